// Products with sparse matrices in cells: local = F_1 F_2 .. Q global, in shared memory. Each number is summed up by one
// thread, in a fixed order.
//
// `codes`, `row_starts`, `places` and `entries` are Q as in indexed.h. A factor has its rows that are not those of the
// identity, 32 at a time in slices: entry k of the rows of slice s is at slice_starts[s] + k, one for each lane; rows
// shorter than others of their slice are filled up with zeros, and rows that are none are -1. Factor f, the first one
// first, has the slices factor_starts[f] to factor_starts[f + 1]. A block has GROUPS times ELEMENTS elements.
//
// `real`, `Index`, MODES, FACTORS, ELEMENTS, GROUPS, ROUNDS, THREADS and SIDE are given. ROUNDS: slices of all groups that
// a warp has at most; the widest slices, which come first, are those of different warps. SIDE: numbers that a thread reads
// at a time, as their loads are then under way together.

struct alignas(ELEMENTS * sizeof(real) < 16 ? ELEMENTS * sizeof(real) : 16) Several {
  real of[ELEMENTS];
};

extern "C" __global__ void __launch_bounds__(THREADS)
    cellwise(const long long elements, const Index *__restrict__ codes, const Index *__restrict__ row_starts,
             const Index *__restrict__ places, const real *__restrict__ entries, const int *__restrict__ factor_starts,
             const int *__restrict__ slice_starts, const int *__restrict__ rows,
             const unsigned short *__restrict__ columns, const real *__restrict__ values,
             const real *__restrict__ global, real *__restrict__ out) {
  HPFEM_SHARED(shared);
  constexpr int ALL = GROUPS * ELEMENTS, WARPS = THREADS / 32;
  // x[group * MODES + mode].of[element of the group]
  Several *x = reinterpret_cast<Several *>(shared);
  const long long first = (long long)blockIdx.x * ALL;
  const Restriction<Index> Q{row_starts, places, entries};
  const long long left = (elements - first) * MODES;
  for (int i0 = threadIdx.x; i0 < ALL * MODES; i0 += SIDE * THREADS) {
    Index own[SIDE];
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS;
      own[s] = i < ALL * MODES && i < left ? HPFEM_STREAM(codes + first * MODES + i) : Index(-1);
    }
    real v[SIDE];
    Q.take(own, global, v);
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS, e = i / MODES, m = i - e * MODES;
      if (i < ALL * MODES) x[e / ELEMENTS * MODES + m].of[e % ELEMENTS] = v[s];
    }
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int f = 0; f < FACTORS; f++) {
    const int start = factor_starts[f], slices = factor_starts[f + 1] - start;
    Several sum[ROUNDS];
    HPFEM_UNROLL for (int r = 0; r < ROUNDS; r++) {
      const int task = warp + r * WARPS, group = task % GROUPS, s = start + task / GROUPS;
      HPFEM_UNROLL for (int e = 0; e < ELEMENTS; e++) sum[r].of[e] = 0;
      if (task >= slices * GROUPS) continue;
      for (int k = slice_starts[s]; k < slice_starts[s + 1]; k++) {
        const real value = values[k * 32 + lane];
        const Several given = x[group * MODES + columns[k * 32 + lane]];
        HPFEM_UNROLL for (int e = 0; e < ELEMENTS; e++) sum[r].of[e] += value * given.of[e];
      }
    }
    __syncthreads();
    HPFEM_UNROLL for (int r = 0; r < ROUNDS; r++) {
      const int task = warp + r * WARPS, group = task % GROUPS, s = start + task / GROUPS;
      if (task >= slices * GROUPS) continue;
      const int row = rows[s * 32 + lane];
      if (row >= 0) x[group * MODES + row] = sum[r];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < ALL * MODES; i += THREADS) {
    const int e = i / MODES, m = i - e * MODES;
    if (first + e < elements) out[first * MODES + i] = x[e / ELEMENTS * MODES + m].of[e % ELEMENTS];
  }
}
