// Affine hexes and quads: an element's matrix is a sum of Kronecker products of sparse one-dimensional matrices.
//
// y = sum_ij G_ij D_i^T D_j u + w M u, with the form's coefficients in G_ij and w. With phi_m the functions of a direction,
// S_ab[m][n] is the integral of phi_m (a = 0) or its derivative (a = 1) times phi_n or its derivative (b). The term of G_ij
// has in direction d the factor S_ab with a = (i == d), b = (j == d); that of w has S_00 everywhere.
//
// A thread has a line of coefficients in registers: of a hex along direction 0, then 2, then 1, of a quad along 1, then 0,
// so that results are written coalesced. Lines are handed on through shared memory, [ab][element][row][k], k the last
// direction. The first pass makes T_ab = S_ab u. The second multiplies by what the terms have in its direction, and sums
// all that have S_ab in the last direction to R_ab; of quads, the first one makes R_ab. The last makes the sum of S_ab R_ab.

constexpr int E = $E;                   // elements of a block
constexpr int MIN_BLOCKS = $MIN_BLOCKS; // blocks of a multiprocessor that registers have to leave room for
constexpr int THREADS = $THREADS;       // of a block
constexpr int N = $N;                   // functions of each direction
constexpr int FIRST = DIM == 3 ? 0 : 1, SECOND = 2, LAST = 1 - FIRST; // directions of the passes
// Lines of an element; numbers from a row of shared memory to the next, odd for its banks.
constexpr int LINES = N_MODES / N, PITCH = N | 1;
constexpr int ARRAY = E * LINES * PITCH, ARRAYS = TEST_GRADIENT ? 4 : 1;

// Row m of S_ab of direction d times a line: the products that are not zero.
template <int d, int ab, int m> HPFEM_DEVICE real times(const real (&x)[N]);
$rows

// The lines of a thread: a place of shared memory for each S_ab, and the step from one number of a line to the next.
template <int step> struct Lines {
  real *const first;
  HPFEM_DEVICE void load(int ab, real (&x)[N]) const {
    HPFEM_UNROLL for (int n = 0; n < N; n++) x[n] = first[ab * ARRAY + n * step];
  }
  HPFEM_DEVICE real &operator()(int ab, int n) const { return first[ab * ARRAY + n * step]; }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const stored_real *__restrict__ factors, const real *__restrict__ points HPFEM_ARGUMENTS HPFEM_Q_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const int e = threadIdx.x / LINES, line = threadIdx.x % LINES, row = line / N, along = line % N;
  const long long element = block_number() * E + e, component = component_number();
  const bool live = e < E && element < n_elements;
  real *const own = shared + e * (LINES * PITCH);
  real g[N_FACTORS];
  const auto G = [&](int i, int j) { return g[symmetric(i, j)]; };
  const real &w = g[N_FACTORS - 1];

  if (live) {
    const FormCoefficients form = form_coefficients(parameters);
    const Coefficients from = HPFEM_COEFFICIENTS(component, element);
    Coefficients::Asked asked[N];
    HPFEM_UNROLL for (int n = 0; n < N; n++) asked[n] = DIM == 3 ? from.ask(n * LINES, line) : from.ask(n, line * N);
    HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) {
      g[c] = factors[element * N_FACTORS + c] * (c == N_FACTORS - 1 ? form.value : form.flux);
    }
    real u[N];
    from.take(asked, u);
    const Lines<DIM == 3 ? N * PITCH : 1> lines{own + (DIM == 3 ? row * PITCH + along : line * PITCH)};
    each<0, N>([&](auto n_) {
      constexpr int n = decltype(n_)::value;
      real t[4] = {times<FIRST, 0, n>(u)}, r[4];
      if constexpr (TEST_GRADIENT) {
        t[1] = times<FIRST, 1, n>(u), t[2] = times<FIRST, 2, n>(u), t[3] = times<FIRST, 3, n>(u);
      }
      if constexpr (DIM == 2) {
        r[0] = TEST_VALUE ? w * t[0] : 0;
        if constexpr (TEST_GRADIENT) {
          r[0] += G(FIRST, FIRST) * t[3];
          r[1] = G(FIRST, LAST) * t[2], r[2] = G(LAST, FIRST) * t[1], r[3] = G(LAST, LAST) * t[0];
        }
      }
      HPFEM_UNROLL for (int ab = 0; ab < ARRAYS; ab++) lines(ab, n) = DIM == 2 ? r[ab] : t[ab];
    });
  }
  __syncthreads();
  if constexpr (DIM == 3) {
    if (live) {
      const Lines<1> lines{own + line * PITCH};
      real t[ARRAYS][N];
      HPFEM_UNROLL for (int ab = 0; ab < ARRAYS; ab++) lines.load(ab, t[ab]);
      each<0, N>([&](auto n_) {
        constexpr int n = decltype(n_)::value;
        const real value = times<SECOND, 0, n>(t[0]);
        real r[4] = {TEST_VALUE ? w * value : 0};
        if constexpr (TEST_GRADIENT) {
          r[0] += G(FIRST, FIRST) * times<SECOND, 0, n>(t[3]) + G(SECOND, SECOND) * times<SECOND, 3, n>(t[0]);
          r[0] += G(FIRST, SECOND) * (times<SECOND, 1, n>(t[2]) + times<SECOND, 2, n>(t[1]));
          r[1] = G(FIRST, LAST) * times<SECOND, 0, n>(t[2]) + G(SECOND, LAST) * times<SECOND, 2, n>(t[0]);
          r[2] = G(LAST, FIRST) * times<SECOND, 0, n>(t[1]) + G(LAST, SECOND) * times<SECOND, 1, n>(t[0]);
          r[3] = G(LAST, LAST) * value;
        }
        HPFEM_UNROLL for (int ab = 0; ab < ARRAYS; ab++) lines(ab, n) = r[ab];
      });
    }
    __syncthreads();
  }
  if (live) {
    const Lines<PITCH> lines{own + row * (N * PITCH) + along};
    real r[N], y[N] = {};
    each<0, ARRAYS>([&](auto ab_) {
      constexpr int ab = decltype(ab_)::value;
      lines.load(ab, r);
      each<0, N>([&](auto n_) { y[decltype(n_)::value] += times<LAST, ab, decltype(n_)::value>(r); });
    });
    real *const to = out + (component * n_elements + element) * N_MODES;
    HPFEM_UNROLL for (int n = 0; n < N; n++) HPFEM_STORE(to + result_place((row * N + n) * N + along), y[n]);
  }
}
