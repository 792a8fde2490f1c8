// Sums over the threads of a block, in an order that depends on nothing but the number of threads: results are the same
// in every run. THREADS is a multiple of 32.

// Doubles of shared memory that K sums take.
constexpr int sum_room(int k) { return k * (THREADS + 32); }

// Replaces each of a thread's K numbers by the sum over the block.
template <int K> HPFEM_DEVICE void block_sums(double (&mine)[K], double *shared) {
  const int t = threadIdx.x;
  __syncthreads(); // the shared memory may be in use
  HPFEM_UNROLL for (int k = 0; k < K; k++) shared[k * (THREADS + 32) + t] = mine[k];
  __syncthreads();
  HPFEM_UNROLL for (int k = 0; k < K; k++) {
    if (t / 32 != k % (THREADS / 32)) continue;
    double sum = 0;
    for (int i = t % 32; i < THREADS; i += 32) sum += shared[k * (THREADS + 32) + i];
    shared[k * (THREADS + 32) + THREADS + t % 32] = sum;
  }
  __syncthreads();
  HPFEM_UNROLL for (int k = 0; k < K; k++) {
    double sum = 0;
    HPFEM_UNROLL for (int i = 0; i < 32; i++) sum += shared[k * (THREADS + 32) + THREADS + i];
    mine[k] = sum;
  }
}

// What the blocks of an earlier kernel left: every block adds it all up for itself, which takes no further launch.
template <int K> HPFEM_DEVICE void sums_of_partials(double (&sum)[K], const double *const (&partials)[K], int count,
                                                    double *shared) {
  HPFEM_UNROLL for (int k = 0; k < K; k++) {
    sum[k] = 0;
    for (int i = threadIdx.x; i < count; i += THREADS) sum[k] += partials[k][i];
  }
  block_sums(sum, shared);
}
