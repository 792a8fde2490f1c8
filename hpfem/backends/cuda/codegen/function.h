// A function of the coordinates at points that lie in one array for each coordinate: x_i at x + i * n, component c of the
// result at out + c * n.
using real = double;
constexpr int THREADS = $THREADS, SOURCES = 1, SPACE = $SPACE, DIM = SPACE, VECTOR = SPACE, SINKS = $COMPONENTS;
// Not made one operation with the sum that follows.
HPFEM_DEVICE real rounded_product(const real a, const real b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}
$physics
extern "C" __global__ void __launch_bounds__(THREADS)
    evaluate(const long long n, const real *__restrict__ x, real *__restrict__ out$arguments) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const real parameters[] = {$parameters 0};
  const real u[SOURCES] = {}, du[SOURCES][SPACE] = {};
  real at[SPACE], value[SINKS], flux[SINKS][VECTOR];
  HPFEM_UNROLL for (int d = 0; d < SPACE; d++) at[d] = x[d * n + i];
  physics(u, du, du, at, nullptr, parameters, value, flux);
  HPFEM_UNROLL for (int c = 0; c < SINKS; c++) out[c * n + i] = value[c];
}
