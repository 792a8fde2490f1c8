// Products with a sparse matrix Q [local, global] whose entries are +-1 but for a few: local = Q global, "scatter", and
// global = Q^T local, "gather". Each number is summed up by one thread, in a fixed order.
//
// An entry +-1 is a code 2 * place + (1 where negative). A row of Q that is not one such entry has the code -1 - r, with
// r its row in a CSR matrix of all of these; another entry of Q^T the code -2 - k, with k its place in a list of rows and
// values. `real`, `Index`, COMPONENTS, BLOCKS, THREADS, GATHER_BLOCKS, ROWS, COLUMNS, FEW, MANY and PASSES are given. ROWS,
// COLUMNS: those of Q that a thread of `scatter` or `gather` takes at a time, as their loads are then under way together.
// FEW, MANY: entries of a column that it takes so, the first and later ones. PASSES: how often one of `gather` does so.
//
//   global[component][j]        local: block after block, [component][i] in each; block b has the rows starts[b] to
//                               starts[b + 1] of Q

HPFEM_DEVICE long long place_of(long long row, int component, const Index *starts) {
  if constexpr (COMPONENTS == 1) return row;
  int b = 0;
  if constexpr (BLOCKS > 1) {
    while (row >= starts[b + 1]) b++;
  }
  const long long first = starts[b], size = starts[b + 1] - first;
  return COMPONENTS * first + component * size + (row - first);
}

// Rows of one block: `codes` and `out` are the block's. Nothing is done where *stop is not zero.
extern "C" __global__ void __launch_bounds__(THREADS, COMPONENTS == 1 ? 5 : 4)
    scatter(const long long n, const long long size, const Index *__restrict__ codes, const Index *__restrict__ row_starts,
            const Index *__restrict__ columns, const real *__restrict__ values, const real *__restrict__ global,
            real *__restrict__ out, const int *stop) {
  if (stop != nullptr && *stop != 0) return;
  const long long first = (long long)blockIdx.x * (ROWS * THREADS) + threadIdx.x;
  const int left = n - first < ROWS * THREADS ? int(n - first) : ROWS * THREADS;
  const Restriction<Index> Q{row_starts, columns, values};
  Index own[ROWS];
  HPFEM_UNROLL for (int s = 0; s < ROWS; s++) own[s] = s * THREADS < left ? HPFEM_STREAM(codes + first + s * THREADS) : -1;
  HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
    real x[ROWS];
    Q.take(own, global + c * size, x);
    HPFEM_UNROLL for (int s = 0; s < ROWS; s++) {
      if (s * THREADS < left) out[c * n + first + s * THREADS] = x[s];
    }
  }
}

// Adds `n` entries of columns, from the one of number k on, in order; their loads are under way together.
template <int n>
HPFEM_DEVICE void add(const int k, const Index *const (&entry)[COLUMNS], const int (&width)[COLUMNS], const Index *starts,
                      const Index *rows, const real *values, const real *local, bool (&empty)[COLUMNS],
                      real (&sum)[COLUMNS][COMPONENTS]) {
  Index code[COLUMNS][n];
  HPFEM_UNROLL for (int i = 0; i < COLUMNS * n; i++) {
    const int s = i / n, e = i % n;
    code[s][e] = k + e < width[s] ? entry[s][32 * (k + e)] : Index(-1);
  }
  real factor[COLUMNS][n];
  HPFEM_UNROLL for (int i = 0; i < COLUMNS * n; i++) {
    Index &own = code[i / n][i % n];
    empty[i / n] &= own == -1;
    factor[i / n][i % n] = own < -1 ? values[-2 - own] : own & 1 ? real(-1) : real(1);
    own = own < -1 ? rows[-2 - own] : own >> 1; // -1 stays
  }
  HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
    real x[COLUMNS][n];
    HPFEM_UNROLL for (int i = 0; i < COLUMNS * n; i++) {
      const Index own = code[i / n][i % n];
      x[i / n][i % n] = own < 0 ? real(0) : local[place_of(own, c, starts)];
    }
    HPFEM_UNROLL for (int i = 0; i < COLUMNS * n; i++) sum[i / n][c] += factor[i / n][i % n] * x[i / n][i % n];
  }
}

// Columns that Q has no entry in are those of the identity, if a vector is given. Columns before `single` are summed up in
// the given order, the others, with one entry each, as they stand. Entries are sliced (SELL-C-sigma): entry k of the 32
// columns of slice s is at slice_starts[s] + 32 k, one for each lane; -1 where a column has no more.
// Sums are multiplied by `scale`, [size], if it is given. The blocks' sums of vector * sum go to `partials`, if it is given.
// If `onto` is given, out is onto + factor * sum; the two may be the same array. Columns whose bit is set in `marked` are not
// written, but for those of the identity, which do not count in `partials`.
// Blocks take columns that stand together, and start in their order: so those that run at one time read the same part of
// the local numbers, which stays in the second cache. Blocks that run until the kernel ends do not keep step, and
// read parts that the cache cannot hold together.
extern "C" __global__ void __launch_bounds__(THREADS, GATHER_BLOCKS)
    gather(const long long size, const long long single, const Index *__restrict__ starts,
           const Index *__restrict__ order, const long long *__restrict__ slice_starts, const Index *__restrict__ codes,
           const Index *__restrict__ rows, const real *__restrict__ values, const real *__restrict__ local,
           const real *__restrict__ vector, const real *__restrict__ scale, const real *onto, const real factor,
           const unsigned *__restrict__ marked, real *out, double *partials, const int *stop) {
  HPFEM_SHARED(shared);
  if (stop != nullptr && *stop != 0) return;
  double dot[1] = {0};
  const long long first = (long long)blockIdx.x * (PASSES * COLUMNS * THREADS) + threadIdx.x;
  for (int pass = 0; pass < PASSES; pass++) {
    const long long i0 = first + pass * (COLUMNS * THREADS);
    long long column[COLUMNS];
    const Index *entry[COLUMNS];
    int width[COLUMNS], most = 0;
    bool empty[COLUMNS];
    real sum[COLUMNS][COMPONENTS] = {};
    HPFEM_UNROLL for (int s = 0; s < COLUMNS; s++) {
      const long long i = i0 + s * THREADS, slice = i / 32;
      column[s] = i < single ? (long long)order[i] : i;
      const long long first = i < size ? slice_starts[slice] : 0;
      width[s] = i < size ? int((slice_starts[slice + 1] - first) / 32) : 0;
      entry[s] = codes + first + i % 32;
      empty[s] = true;
      if (width[s] > most) most = width[s];
    }
    // Most columns have few entries; others would take a trip to memory for every one.
    add<FEW>(0, entry, width, starts, rows, values, local, empty, sum);
    HPFEM_ROLLED for (int k = FEW; k < most; k += MANY) add<MANY>(k, entry, width, starts, rows, values, local, empty, sum);
    HPFEM_UNROLL for (int s = 0; s < COLUMNS; s++) {
      const long long j = column[s];
      if (j >= size) continue;
      const bool spared = marked != nullptr && (marked[j >> 5] >> (unsigned(j) & 31) & 1);
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        if (empty[s] && vector) sum[s][c] = vector[c * size + j];
        if (scale) sum[s][c] *= scale[j];
        const real result = onto ? onto[c * size + j] + factor * sum[s][c] : sum[s][c];
        // leaves the cache to local numbers, which come again
        if (!spared || empty[s]) HPFEM_STORE(out + c * size + j, result);
        if (partials && !(spared && empty[s])) dot[0] += double(sum[s][c]) * vector[c * size + j];
      }
    }
  }
  if (partials == nullptr) return;
  block_sums(dot, reinterpret_cast<double *>(shared));
  if (threadIdx.x == 0) partials[blockIdx.x] = dot[0];
}

// Sums of the sums of many blocks, each of as many that stand together.
extern "C" __global__ void __launch_bounds__(THREADS)
    fold(const int count, const double *__restrict__ sums, double *__restrict__ partials, const int *stop) {
  HPFEM_SHARED(shared);
  if (stop != nullptr && *stop != 0) return;
  const int each = (count + gridDim.x - 1) / gridDim.x, first = blockIdx.x * each;
  double sum[1];
  sums_of_partials(sum, {sums + first}, count - first < each ? count - first : each, reinterpret_cast<double *>(shared));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}
