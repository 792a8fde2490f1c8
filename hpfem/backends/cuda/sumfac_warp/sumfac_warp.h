// A warp for each element whose coefficients are its values at 8 x 8 x 8 points, on FP64 tensor cores; collocated.
//
// Points are (i, j, k), k the fastest; a slice is all points of one i. Lane 4 g + t has points (i, g, t) and (i, g, t + 4)
// of all slices. These are rows of A in a product with terms k, two slices at a time, and its columns 2 t and 2 t + 1 of C
// if column n of B is k = n / 2 + 4 (n % 2). So derivatives along k move nothing. Those along j are products from the left
// with a slice as B, which lanes exchange through shared memory; those along i are a lane's own.

constexpr int E = $E;                        // elements, and warps, of a block
constexpr int MIN_BLOCKS = $MIN_BLOCKS;      // blocks of a multiprocessor that registers have to leave room for
constexpr bool L2_PREFETCH = $L2_PREFETCH;   // whether a warp begins by asking for its factors in the L2 cache
constexpr int N = 8, SLICE = N * N, THREADS = 32 * E;

// Where a point of a slice is in shared memory: lanes that take a point of their own, or of column g of B, are in
// different banks.
HPFEM_DEVICE int place(int j, int k) { return N * j + (k ^ (j & 2) * 3); }

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const stored_real *__restrict__ factors, const real *__restrict__ points HPFEM_ARGUMENTS HPFEM_Q_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  const int t = threadIdx.x % 4, g = threadIdx.x / 4 % 8, warp = threadIdx.x / 32, jk = N * g + t;
  // Components take turns on elements: neighbouring warps find what they read of the geometry in the first cache.
  const unsigned number = turn() * E + warp;
  const long long component = number % gridDim.y, element = number / gridDim.y;
  if (element >= n_elements) return;
  if constexpr (L2_PREFETCH && STORED) {
    if (threadIdx.x % 32 == 0) HPFEM_PREFETCH_L2(factors + element * SET, int(SET * sizeof(stored_real)));
  }

  // Numbers of two slices 2 p and 2 p + 1: points t and t + 4 of the first, then of the second.
  const Coefficients from = HPFEM_COEFFICIENTS(component, element);
  Coefficients::Asked asked[N / 2][4];
  HPFEM_UNROLL for (int p = 0; p < N / 2; p++)
    HPFEM_UNROLL for (int n = 0; n < 4; n++) asked[p][n] = from.ask((2 * p + n / 2) * SLICE + n % 2 * 4, jk);
  Line line[2];
  HPFEM_UNROLL for (int v = 0; v < 2; v++) {
    line[v].start(factors, element, jk + 4 * v);
    line[v].start_map(maps_of(factors, element), 1, jk + 4 * v);
  }
  // Parts of D: GD[m N + q] is the derivative of m's function at point q.
  const int column = g / 2 + g % 2 * 4;
  real left[2], right[2], right_out[2];
  HPFEM_UNROLL for (int h = 0; h < 2; h++) {
    left[h] = GD2[(t + 4 * h) * N + g];
    right[h] = GD3[(t + 4 * h) * N + column];
    right_out[h] = GD3[column * N + t + 4 * h];
  }
  real u[N / 2][4], y[N / 2][4] = {};
  HPFEM_UNROLL for (int p = 0; p < N / 2; p++) from.take(asked[p], u[p]);

  real *const own = shared + warp * POINTS; // a slice is replaced by what multiplies derivatives along j there
  const int at[2] = {place(g, t), place(g, t + 4)}, row[2] = {place(t, column), place(t + 4, column)};
  if constexpr (TRIAL_GRADIENT) {
    HPFEM_UNROLL for (int p = 0; p < N / 2; p++)
      HPFEM_UNROLL for (int n = 0; n < 4; n++) own[(2 * p + n / 2) * SLICE + at[n % 2]] = u[p][n];
    __syncwarp();
  }
  HPFEM_UNROLL for (int p = 0; p < N / 2; p++) {
    real di[4] = {}, dj[4] = {}, dk[4] = {}; // derivatives, then what multiplies those of the test functions
    if constexpr (TRIAL_GRADIENT) {
      HPFEM_UNROLL for (int h = 0; h < 2; h++) {
        const real *const slice = own + 2 * p * SLICE + row[h];
        HPFEM_MULTIPLY_ROWS(dj[0], dj[1], left[h], slice[0]);
        HPFEM_MULTIPLY_ROWS(dj[2], dj[3], left[h], slice[SLICE]);
      }
      HPFEM_MULTIPLY_8(dk, u[p][0], u[p][2], u[p][1], u[p][3], right[0], right[1]);
      HPFEM_UNROLL for (int n = 0; n < 4; n++)
        HPFEM_UNROLL for (int m = 0; m < N; m++) di[n] += C1[(2 * p + n / 2) * N + m] * u[m / 2][m % 2 * 2 + n % 2];
      __syncwarp();
    }
    HPFEM_UNROLL for (int n = 0; n < 4; n++) {
      const int i = 2 * p + n / 2, v = n % 2;
      Factors f = stored_factors(factors, element, i, jk + 4 * v);
      line[v].recompute(i, f);
      const Surroundings around{points, fields, element, n_elements, element, jk + 4 * v};
      real x[SPACE], extra[N_FIELDS + 1], value[SINKS], flux[SINKS][VECTOR];
      around.coordinates(i, x);
      around.values(i * SLICE + jk + 4 * v, extra);
      const real here[SOURCES] = {u[p][n]}, s[SOURCES][DIM] = {{di[n], dj[n], dk[n]}};
      at_point(line[v], f, i, x, extra, parameters, here, s, value, flux);
      if constexpr (TEST_VALUE || !TO_MODES) y[p][n] += value[0];
      if constexpr (TEST_GRADIENT) {
        di[n] = flux[0][0], dk[n] = flux[0][2];
        own[i * SLICE + at[v]] = flux[0][1];
      }
    }
    if constexpr (TEST_GRADIENT) {
      HPFEM_MULTIPLY_8(y[p], dk[0], dk[2], dk[1], dk[3], right_out[0], right_out[1]);
      HPFEM_UNROLL for (int n = 0; n < 4; n++)
        HPFEM_UNROLL for (int m = 0; m < N; m++) y[m / 2][m % 2 * 2 + n % 2] += C1[(2 * p + n / 2) * N + m] * di[n];
    }
  }
  if constexpr (TEST_GRADIENT) {
    HPFEM_UNROLL for (int h = 0; h < 2; h++) left[h] = GD2[g * N + t + 4 * h];
    __syncwarp();
    HPFEM_UNROLL for (int p = 0; p < N / 2; p++) {
      HPFEM_UNROLL for (int h = 0; h < 2; h++) {
        const real *const slice = own + 2 * p * SLICE + row[h];
        HPFEM_MULTIPLY_ROWS(y[p][0], y[p][1], left[h], slice[0]);
        HPFEM_MULTIPLY_ROWS(y[p][2], y[p][3], left[h], slice[SLICE]);
      }
    }
  }
  real *const to = out + (component * n_elements + element) * POINTS + jk;
  HPFEM_UNROLL for (int p = 0; p < N / 2; p++)
    HPFEM_UNROLL for (int n = 0; n < 4; n++) {
      HPFEM_STORE(to + (result_place((2 * p + n / 2) * SLICE + n % 2 * 4 + jk) - jk), y[p][n]);
    }
}
