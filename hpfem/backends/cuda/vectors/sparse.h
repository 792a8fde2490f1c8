// Product of a CSR matrix with a vector: LANES threads a row, their sums added up as a tree. Row i is written to
// out[places[i]], or out[i] without places: the sum, or if `onto` is given, onto + factor * sum at that place. `out` may be
// `onto`, and x where no row is written that another one reads. `real`, `Index`, THREADS and LANES are given.
extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const long long n, const Index *__restrict__ starts, const Index *__restrict__ columns,
             const real *__restrict__ values, const real *x, const long long *__restrict__ places, const real *onto,
             const real factor, real *out) {
  HPFEM_SHARED(sums);
  const long long row = ((long long)blockIdx.x * THREADS + threadIdx.x) / LANES;
  const int lane = threadIdx.x % LANES;
  real sum = 0;
  if (row < n) {
    for (Index k = starts[row] + lane; k < starts[row + 1]; k += LANES) sum += values[k] * x[columns[k]];
  }
  sums[threadIdx.x] = sum;
  HPFEM_UNROLL for (int half = LANES / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) sums[threadIdx.x] = sum += sums[threadIdx.x + half];
  }
  if (row >= n || lane != 0) return;
  const long long i = places ? (long long)places[row] : row;
  out[i] = onto ? onto[i] + factor * sum : sum;
}
