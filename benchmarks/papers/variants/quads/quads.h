// Helmholtz on a quad by sum factorisation, as [Eichstaedt] has it: an element to a thread or to a block of threads, its
// tables in global, constant or shared memory, elements one behind the other (stride 1) or 32 of them interleaved. The
// constants below are the switches.

constexpr int N1 = $N1, Q = $Q, MODES = N1 * N1, POINTS = Q * Q; // modes and points along a direction, and of a quad
constexpr bool BLOCK_AN_ELEMENT = $BLOCK_AN_ELEMENT;             // else a thread
constexpr int THREADS = $THREADS;                                // of a block
enum Memory { GLOBAL, CONSTANT, SHARED };
constexpr Memory TABLES = $TABLES;
constexpr int STRIDE = $STRIDE;  // elements that are interleaved, of coefficients and of factors
constexpr bool AFFINE = $AFFINE; // straight-sided (a parallelogram): the same factors at all points
#define LOOP $LOOP // _Pragma("unroll"), or nothing: the compiler decides

constexpr int TABLE = N1 * Q, TABLES_SIZE = 2 * TABLE + Q; // functions, derivatives, and weights at the points
FILLED_CONSTANT(real constant_tables[TABLES_SIZE])
using Shared = real;

// Derivatives of both coordinates, and w|J| (|J| where AFFINE): the flux of a point, given value and derivatives there.
struct Flux {
  real value, along[2];
};
HPFEM_DEVICE Flux flux_at(const real *factors, int point, real weight, real lambda, real u, real d0, real d1) {
  constexpr int NEXT = (AFFINE ? 1 : POINTS) * STRIDE;
  factors += (AFFINE ? 0 : point) * STRIDE;
  const real x0 = factors[0], y0 = factors[NEXT], x1 = factors[2 * NEXT], y1 = factors[3 * NEXT];
  const real w = factors[4 * NEXT] * weight, ux = w * (x0 * d0 + x1 * d1), uy = w * (y0 * d0 + y1 * d1);
  return {lambda * w * u, {x0 * ux + y0 * uy, x1 * ux + y1 * uy}};
}

// All of an element in a thread: its numbers in registers as long as they fit. Threads of a warp read the same entry of
// a table at the same time.
template <class Table>
HPFEM_DEVICE void thread_an_element(const Table *B, const real *in, const real *factors, real *out, real lambda) {
  const Table *const DB = B + TABLE, *const weights = DB + TABLE;
  real c[MODES], result[MODES];
  LOOP for (int m = 0; m < MODES; m++) {
    c[m] = in[m * STRIDE];
    result[m] = 0;
  }
  LOOP for (int j = 0; j < Q; j++) {
    real f[N1], g[N1], a[N1], b[N1]; // values and derivatives of the second direction at its point j, and the way back
    LOOP for (int p = 0; p < N1; p++) f[p] = g[p] = a[p] = b[p] = 0;
    LOOP for (int q = 0; q < N1; q++) {
      const real value = B[q * Q + j], derivative = DB[q * Q + j];
      LOOP for (int p = 0; p < N1; p++) {
        f[p] += value * c[p * N1 + q];
        g[p] += derivative * c[p * N1 + q];
      }
    }
    LOOP for (int i = 0; i < Q; i++) {
      real u = 0, d0 = 0, d1 = 0;
      LOOP for (int p = 0; p < N1; p++) {
        const real value = B[p * Q + i];
        u += value * f[p];
        d0 += DB[p * Q + i] * f[p];
        d1 += value * g[p];
      }
      const real weight = AFFINE ? weights[i] * weights[j] : real(1);
      const Flux flux = flux_at(factors, i * Q + j, weight, lambda, u, d0, d1);
      LOOP for (int p = 0; p < N1; p++) {
        const real value = B[p * Q + i];
        a[p] += value * flux.value + DB[p * Q + i] * flux.along[0];
        b[p] += value * flux.along[1];
      }
    }
    LOOP for (int q = 0; q < N1; q++) {
      const real value = B[q * Q + j], derivative = DB[q * Q + j];
      LOOP for (int p = 0; p < N1; p++) result[p * N1 + q] += value * a[p] + derivative * b[p];
    }
  }
  LOOP for (int m = 0; m < MODES; m++) out[m * STRIDE] = result[m];
}

// A mode or a point to a thread, numbers of the element in shared memory.
template <class Table>
HPFEM_DEVICE void block_an_element(const Table *B, Shared *c, const real *in, const real *factors, real *out,
                                   real lambda) {
  const Table *const DB = B + TABLE, *const weights = DB + TABLE;
  Shared *const f = c + MODES, *const g = f + TABLE, *const v = g + TABLE, *const e0 = v + POINTS, *const e1 = e0 + POINTS;
  const int t = threadIdx.x, i = t / Q, j = t % Q; // point (i, j), or mode i of the first direction at point j
  if (t < MODES) c[t] = in[t * STRIDE];
  __syncthreads();
  if (t < TABLE) {
    real value = 0, derivative = 0;
    LOOP for (int q = 0; q < N1; q++) {
      const real mode = c[i * N1 + q];
      value += B[q * Q + j] * mode;
      derivative += DB[q * Q + j] * mode;
    }
    f[t] = value;
    g[t] = derivative;
  }
  __syncthreads();
  if (t < POINTS) {
    real u = 0, d0 = 0, d1 = 0;
    LOOP for (int p = 0; p < N1; p++) {
      const real value = B[p * Q + i], line = f[p * Q + j];
      u += value * line;
      d0 += DB[p * Q + i] * line;
      d1 += value * g[p * Q + j];
    }
    const real weight = AFFINE ? weights[i] * weights[j] : real(1);
    const Flux flux = flux_at(factors, t, weight, lambda, u, d0, d1);
    v[t] = flux.value;
    e0[t] = flux.along[0];
    e1[t] = flux.along[1];
  }
  __syncthreads();
  if (t < TABLE) {
    real a = 0, b = 0;
    LOOP for (int n = 0; n < Q; n++) {
      const real value = B[i * Q + n];
      a += value * v[n * Q + j] + DB[i * Q + n] * e0[n * Q + j];
      b += value * e1[n * Q + j];
    }
    f[t] = a;
    g[t] = b;
  }
  __syncthreads();
  if (t < MODES) {
    const int p = t / N1, q = t % N1;
    real sum = 0;
    LOOP for (int n = 0; n < Q; n++) sum += B[q * Q + n] * f[p * Q + n] + DB[q * Q + n] * g[p * Q + n];
    out[t * STRIDE] = sum;
  }
}

template <class Table>
HPFEM_DEVICE void apply(long long n_elements, const Table *tables, Shared *rest, const real *in, const real *factors,
                        real *out, real lambda) {
  const long long element = BLOCK_AN_ELEMENT ? blockIdx.x : (long long)blockIdx.x * THREADS + threadIdx.x;
  if (element >= n_elements) return;
  const long long group = element / STRIDE, lane = element % STRIDE;
  in += group * (MODES * STRIDE) + lane;
  out += group * (MODES * STRIDE) + lane;
  factors += group * (5 * (AFFINE ? 1 : POINTS) * STRIDE) + lane;
  if constexpr (BLOCK_AN_ELEMENT) block_an_element(tables, rest, in, factors, out, lambda);
  else thread_an_element(tables, in, factors, out, lambda);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    quads(const long long n_elements, const real *in, const real *factors, const real *tables, real *out,
          const real lambda) {
  HPFEM_SHARED(memory);
  Shared *const shared = reinterpret_cast<Shared *>(memory);
  if constexpr (TABLES == SHARED) {
    for (int n = threadIdx.x; n < TABLES_SIZE; n += THREADS) shared[n] = tables[n];
    __syncthreads();
    apply(n_elements, (const Shared *)shared, shared + TABLES_SIZE, in, factors, out, lambda);
  } else {
    apply(n_elements, TABLES == CONSTANT ? constant_tables : tables, shared, in, factors, out, lambda);
  }
}
