// Entries that processes share. `real`, `Index` and THREADS are given.
//
//   sent, received[k][component]  the m messages to and from all neighbours, one after the other

// A row of ones for every shared entry, in the order of the processes: columns from m on are those of `sent`. Its sum,
// times scale[place] if it is given, is written to place shared[i] of every component of `rows`, each of `size` numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine(const long long n, const int components, const long long m, const Index *__restrict__ starts,
            const Index *__restrict__ columns, const Index *__restrict__ shared, const real *__restrict__ sent,
            const real *__restrict__ received, const real *__restrict__ scale, const long long size,
            real *__restrict__ rows) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  const long long place = shared[i];
  for (int c = 0; c < components; c++) {
    real sum = 0;
    for (Index k = starts[i]; k < starts[i + 1]; k++) {
      const long long column = columns[k];
      sum += column < m ? received[column * components + c] : sent[(column - m) * components + c];
    }
    rows[c * size + place] = scale ? scale[place] * sum : sum;
  }
}
