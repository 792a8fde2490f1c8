// Numbers of groups times a matrix for each group, in place. A block of threads takes some whole groups, the places of whose
// numbers stand side by side in `members`, from `pieces` [block] on. `rows` says of each number where its group begins, its
// size, and where in `values` its row is, an entry for every number of the group: those of all rows of a group for one
// number stand side by side. PARTS threads share a row. A block has up to `room` numbers. `real`, THREADS, PARTS and AHEAD are
// given; AHEAD: entries of a row that a thread reads before the barrier.

struct alignas(16) Row {
  long long first;
  int begin, size;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    groups(const int room, const int *__restrict__ pieces, const long long *__restrict__ members, const Row *__restrict__ rows,
           const real *__restrict__ values, real *z) {
  HPFEM_SHARED(given);
  real *const sums = given + room;
  constexpr int AT_ONCE = THREADS / PARTS;
  const int start = pieces[blockIdx.x], count = pieces[blockIdx.x + 1] - start;
  const int own = threadIdx.x % AT_ONCE, part = threadIdx.x / AT_ONCE;
  const long long mine = threadIdx.x < count ? members[start + threadIdx.x] : -1;
  for (int i0 = 0; i0 < count; i0 += AT_ONCE) {
    const Row row = i0 + own < count ? rows[start + i0 + own] : Row{0, start, 0};
    const real x = i0 == 0 && mine >= 0 ? z[mine] : real(0); // on its way with entries
    real entry[AHEAD];
    HPFEM_UNROLL for (int e = 0; e < AHEAD; e++) {
      const int k = part + PARTS * e;
      entry[e] = k < row.size ? values[row.first + (long long)k * row.size] : real(0);
    }
    if (i0 == 0) {
      if (mine >= 0) given[threadIdx.x] = x;
      for (int i = threadIdx.x + THREADS; i < count; i += THREADS) given[i] = z[members[start + i]];
      __syncthreads();
    }
    const real *const known = given + (row.begin - start);
    real sum = 0;
    HPFEM_UNROLL for (int e = 0; e < AHEAD; e++) {
      const int k = part + PARTS * e;
      if (k < row.size) sum += entry[e] * known[k];
    }
#pragma unroll 8
    for (int k = part + PARTS * AHEAD; k < row.size; k += PARTS) {
      sum += values[row.first + (long long)k * row.size] * known[k];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (part == 0 && i0 + own < count) {
      HPFEM_UNROLL for (int p = 1; p < PARTS; p++) sum += sums[p * AT_ONCE + own];
      z[members[start + i0 + own]] = sum;
    }
    __syncthreads();
  }
}

// The matrices of groups by rows, as `values` above.
extern "C" __global__ void __launch_bounds__(THREADS)
    turned(const int *__restrict__ pieces, const Row *__restrict__ rows, const double *__restrict__ given, real *out) {
  for (int i = pieces[blockIdx.x]; i < pieces[blockIdx.x + 1]; i++) {
    const Row row = rows[i];
    const long long at = row.first + (long long)(i - row.begin) * (row.size - 1);
    for (int k = threadIdx.x; k < row.size; k += THREADS) out[row.first + (long long)k * row.size] = given[at + k];
  }
}
