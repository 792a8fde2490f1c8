// Products with a sparse matrix Q [local, global] whose entries are +-1 but for a few: local = Q global, "scatter", and
// global = Q^T local, "gather". Each number is summed up by one thread, in a fixed order.
//
// An entry +-1 is a code 2 * place + (1 where negative). A row of Q that is not one such entry has the code -1 - r, with
// r its row in a CSR matrix of all of these; another entry of Q^T the code -1 - k, with k its place in a list of rows and
// values. `real`, `Index`, COMPONENTS, BLOCKS, THREADS and GATHER_BLOCKS are given.
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
extern "C" __global__ void __launch_bounds__(THREADS)
    scatter(const long long n, const long long size, const Index *__restrict__ codes, const Index *__restrict__ row_starts,
            const Index *__restrict__ columns, const real *__restrict__ values, const real *__restrict__ global,
            real *__restrict__ out, const int *stop) {
  if (stop != nullptr && *stop != 0) return;
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const Index code = codes[i];
  HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
    real result = 0;
    if (code >= 0) {
      result = global[c * size + code / 2];
      if (code % 2) result = -result;
    } else {
      const Index row = -1 - code;
      for (Index k = row_starts[row]; k < row_starts[row + 1]; k++) result += values[k] * global[c * size + columns[k]];
    }
    out[c * n + i] = result;
  }
}

// Columns of Q that a thread sums up at a time: their loads are under way together.
constexpr int SIDE = COMPONENTS == 1 ? 4 : 2;

// Columns that Q has no entry in are those of the identity, if a vector is given. From column `single` on each has one.
// The blocks' sums of vector * out go to `partials`, if it is given.
extern "C" __global__ void __launch_bounds__(THREADS, GATHER_BLOCKS)
    gather(const long long size, const long long single, const Index *__restrict__ starts,
           const Index *__restrict__ column_starts, const Index *__restrict__ codes, const Index *__restrict__ rows,
           const real *__restrict__ values, const real *__restrict__ local, const real *__restrict__ vector,
           real *__restrict__ out, double *partials, const int *stop) {
  HPFEM_SHARED(shared);
  if (stop != nullptr && *stop != 0) return;
  const auto term = [&](Index code, int c) {
    if (code < 0) return values[-1 - code] * local[place_of(rows[-1 - code], c, starts)];
    const real x = local[place_of(code / 2, c, starts)];
    return code % 2 ? -x : x;
  };
  double dot[1] = {0};
  const Index first_single = column_starts[single];
  const long long step = (long long)gridDim.x * THREADS;
  for (long long j0 = (long long)blockIdx.x * THREADS + threadIdx.x; j0 < size; j0 += SIDE * step) {
    Index first[SIDE], last[SIDE], code[SIDE];
    real sum[SIDE][COMPONENTS];
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const long long j = j0 + s * step;
      first[s] = last[s] = 0;
      if (j < single) {
        first[s] = column_starts[j];
        last[s] = column_starts[j + 1];
      } else if (j < size) {
        first[s] = first_single + Index(j - single);
        last[s] = first[s] + 1;
      }
    }
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) code[s] = first[s] < last[s] ? codes[first[s]] : 0;
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const long long j = j0 + s * step;
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        if (first[s] < last[s]) sum[s][c] = term(code[s], c);
        else sum[s][c] = vector && j < size ? vector[c * size + j] : real(0);
      }
    }
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const long long j = j0 + s * step;
      for (Index k = first[s] + 1; k < last[s]; k++) {
        const Index next = codes[k];
        HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) sum[s][c] += term(next, c);
      }
      if (j >= size) continue;
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        out[c * size + j] = sum[s][c];
        if (partials) dot[0] += double(sum[s][c]) * vector[c * size + j];
      }
    }
  }
  if (partials == nullptr) return;
  block_sums(dot, reinterpret_cast<double *>(shared));
  if (threadIdx.x == 0) partials[blockIdx.x] = dot[0];
}
