// Rows of numbers of many classes, by a table of each class, in one launch: a thread takes an entry of the results, those of
// a class one after the other by rows. `ends` says where the results of `classes` end, `rows` where their numbers begin,
// and `tables` their tables, which have `widths` columns. Index and THREADS are given.

struct Place {
  int own; // class
  long long row;
  int column;
};

HPFEM_DEVICE Place place_of(long long entry, int classes, const long long *ends, const int *widths) {
  int low = 0, high = classes - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (entry < ends[middle]) high = middle;
    else low = middle + 1;
  }
  const long long among = low ? entry - ends[low - 1] : entry;
  return {low, among / widths[low], int(among % widths[low])};
}

// Products with matrices [depth, width].
extern "C" __global__ void products(const long long n, const int classes, const int depth, const long long *__restrict__ ends,
                                    const double *const *__restrict__ rows, const double *const *__restrict__ tables,
                                    const int *__restrict__ widths, double *__restrict__ out) {
  const long long entry = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (entry >= n) return;
  const Place at = place_of(entry, classes, ends, widths);
  const double *const row = rows[at.own] + at.row * depth, *const column = tables[at.own] + at.column;
  double sum = 0;
  for (int k = 0; k < depth; k++) sum += row[k] * column[(long long)k * widths[at.own]];
  out[entry] = sum;
}

// Entries of rows of so many, `depths`, at the places that tables list.
extern "C" __global__ void picked(const long long n, const int classes, const int *__restrict__ depths,
                                  const long long *__restrict__ ends, const Index *const *__restrict__ rows,
                                  const long long *const *__restrict__ tables, const int *__restrict__ widths,
                                  Index *__restrict__ out) {
  const long long entry = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (entry >= n) return;
  const Place at = place_of(entry, classes, ends, widths);
  out[entry] = rows[at.own][at.row * depths[at.own] + tables[at.own][at.column]];
}
