// Inverses of symmetric matrices by Gauss' and Jordan's method, without pivoting, a block of threads for each: groups of
// `counts` rows, the matrices one after the other in `given`. Those of `room` entries at most are in shared memory. Rows of
// an inverse are multiplied by `scale`, and columns divided by it; what is below `rounding` before is zero. Where a pivot
// is not positive, or the product of the norms of a matrix and its inverse is `most` or more, it is not `fine`, and the
// result is the matrix as it is. THREADS is given.

// Largest sum of absolute values of a row; to thread 0.
HPFEM_DEVICE real norm(const real *A, int n, real *sums) {
  for (int i = threadIdx.x; i < n; i += THREADS) {
    real sum = 0;
    for (int j = 0; j < n; j++) sum += fabs(A[j * n + i]); // of a column: it is symmetric
    sums[i] = sum;
  }
  __syncthreads();
  real most = 0;
  for (int i = 0; threadIdx.x == 0 && i < n; i++) most = sums[i] <= most ? most : sums[i];
  __syncthreads();
  return most;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    invert(const int room, const int longest, const real rounding, const real most, const int *__restrict__ counts,
           const long long *__restrict__ firsts, const long long *__restrict__ rows, const real *__restrict__ given,
           const real *__restrict__ scale, real *out, unsigned char *fine) {
  HPFEM_SHARED(column);
  constexpr int LANES = 32, WARPS = THREADS / LANES;
  real *const row = column + longest;
  const int n = counts[blockIdx.x], lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  const long long first = firsts[blockIdx.x];
  real *const A = n * n <= room ? row + longest : out + first;
  for (int e = threadIdx.x; e < n * n; e += THREADS) A[e] = given[first + e];
  __syncthreads();
  const real before = norm(A, n, column);
  bool positive = true;
  for (int k = 0; k < n; k++) {
    for (int i = threadIdx.x; i < n; i += THREADS) {
      column[i] = A[i * n + k];
      row[i] = A[k * n + i];
    }
    __syncthreads();
    positive &= row[k] > 0;
    const real pivot = 1 / row[k];
    for (int i = warp; i < n; i += WARPS) {
      const real factor = i == k ? -pivot : column[i] * pivot;
      for (int j = lane; j < n; j += LANES) A[i * n + j] = j == k ? -factor : (i == k ? 0 : A[i * n + j]) - factor * row[j];
    }
    __syncthreads();
  }
  const real after = norm(A, n, column);
  if (threadIdx.x == 0) column[0] = positive && before * after < most;
  __syncthreads();
  const bool good = column[0] > 0;
  if (threadIdx.x == 0) fine[blockIdx.x] = good;
  const real *const own = scale + rows[blockIdx.x];
  for (int i = warp; i < n; i += WARPS) {
    for (int j = lane; j < n; j += LANES) {
      const real x = A[i * n + j];
      const real scaled = fabs(x) > rounding ? x * own[i] / own[j] : real(0);
      out[first + i * n + j] = good ? scaled : given[first + i * n + j];
    }
  }
}
