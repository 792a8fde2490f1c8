// Entries that processes share. `real`, `Index` and THREADS are given.
//
//   own[component][i]      this process' numbers of the n shared entries
//   message[k][component]  what is sent to, or received from, all neighbours, one after the other

// Number k of the m numbers that are sent is that of the shared entry places[k].
extern "C" __global__ void __launch_bounds__(THREADS)
    pack(const long long m, const int components, const long long n, const Index *__restrict__ places,
         const real *__restrict__ own, real *__restrict__ message) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i < m * components) message[i] = own[i % components * n + places[i / components]];
}

// A row of ones for every shared entry, in the order of the processes: columns from m on are those of `own`. Its sum is
// written to place shared[i] of every component of `rows`, each of `size` numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
    combine(const long long n, const int components, const long long m, const Index *__restrict__ starts,
            const Index *__restrict__ columns, const Index *__restrict__ shared, const real *__restrict__ own,
            const real *__restrict__ message, const long long size, real *__restrict__ rows) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (i >= n) return;
  for (int c = 0; c < components; c++) {
    real sum = 0;
    for (Index k = starts[i]; k < starts[i + 1]; k++) {
      const Index column = columns[k];
      sum += column < m ? message[column * (long long)components + c] : own[c * n + (column - m)];
    }
    rows[c * size + shared[i]] = sum;
  }
}
