// Threads that read the same numbers over and over, from shared memory or through the first cache.

constexpr int THREADS = $THREADS, NUMBERS = $NUMBERS, AT_ONCE = NUMBERS / THREADS;
constexpr bool SHARED = $SHARED;

extern "C" __global__ void __launch_bounds__(THREADS)
    near_memory(const real *__restrict__ given, real *out, const int trips) {
  HPFEM_SHARED(copy);
  const int t = threadIdx.x;
  if (SHARED) {
    for (int n = t; n < 2 * NUMBERS; n += THREADS) copy[n] = given[n];
    __syncthreads();
  }
  real sum[AT_ONCE] = {};
  for (int trip = 0; trip < trips; trip++) {
    const int first = (t + 32 * trip) % NUMBERS; // another place every time, so that nothing is kept in registers
    for (int n = 0; n < AT_ONCE; n++) sum[n] += SHARED ? copy[first + n * THREADS] : given[first + n * THREADS];
  }
  real total = 0;
  for (int n = 0; n < AT_ONCE; n++) total += sum[n];
  if (total == -1) out[0] = total; // never: the sum is used, and nothing is written
}
