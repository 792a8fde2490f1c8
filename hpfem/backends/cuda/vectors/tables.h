// Makes the tables of `indexed.h`. Columns are first counted, then put in order and sliced, and their entries placed by
// threads in any order and sorted, so that tables are the same each time. `Index`, THREADS and ORDERED are given. A thread
// takes one of n: a row with its code, a column, a slice of 32 columns, or an entry.

HPFEM_DEVICE long long number() { return blockIdx.x * (long long)THREADS + threadIdx.x; }

// Entries of columns, in `counts`, and all rows less the first of each column. Rows that are one entry in a column that is
// not to `keep`, if that is given, become empty ones; `entry_rows` are those of entries that are not +-1.
extern "C" __global__ void count_entries(const long long n, const bool *keep, Index *codes, const Index *row_starts,
                                         const Index *columns, Index *entry_rows, int *counts, Index *first) {
  const long long i = number();
  if (i >= n) return;
  const Index code = codes[i];
  if (code >= 0 && keep && !keep[code >> 1]) codes[i] = -1;
  else if (code >= 0) {
    atomicAdd(counts + (code >> 1), 1);
    atomicMax(first + (code >> 1), Index(n - i));
  } else {
    for (Index k = row_starts[-1 - code]; k < row_starts[-code]; k++) {
      entry_rows[k] = Index(i);
      atomicAdd(counts + columns[k], 1);
      atomicMax(first + columns[k], Index(n - i));
    }
  }
}

// The end of the columns after which each has one entry.
extern "C" __global__ void end_of_several(const long long n, const int *counts, long long *single) {
  const long long j = number();
  if (j < n && counts[j] != 1 && (j + 1 == n || counts[j + 1] == 1)) atomicMax(single, j + 1);
}

// What columns are sorted by: parts of their first rows, and of each part those with most entries first.
extern "C" __global__ void sort_keys(const long long n, const long long rows, const int *counts, const Index *first,
                                     const long long *single, long long *keys) {
  const long long j = number();
  if (j >= n) return;
  const long long part = counts[j] ? (rows - first[j]) / ORDERED : 0;
  keys[j] = j < *single ? part * (1LL << 32) - counts[j] : (1LL << 62);
}

// Places of columns in their order.
extern "C" __global__ void rank_columns(const long long n, const long long *single, const Index *order, Index *rank) {
  const long long i = number();
  if (i < n) rank[i < *single ? (long long)order[i] : i] = Index(i);
}

// Lengths of slices of `size` columns, after a zero.
extern "C" __global__ void slice_lengths(const long long n, const long long size, const long long *single, const Index *order,
                                         const int *counts, long long *lengths) {
  const long long s = number();
  if (s >= n) return;
  int most = 0;
  for (long long i = 32 * s; i < 32 * s + 32 && i < size; i++) {
    const int own = counts[i < *single ? (long long)order[i] : i];
    if (own > most) most = own;
  }
  lengths[s + 1] = 32LL * most;
}

// Puts the entries of rows into their columns, in any order; `counts` are zero afterwards.
extern "C" __global__ void place_entries(const long long n, const Index *codes, const Index *row_starts, const Index *columns,
                                         const Index *rank, const long long *starts, int *counts, Index *entries) {
  const long long i = number();
  if (i >= n) return;
  const auto put = [&](Index column, Index code) {
    const Index at = rank[column];
    entries[starts[at / 32] + 32LL * (atomicAdd(counts + column, -1) - 1) + at % 32] = code;
  };
  const Index code = codes[i];
  if (code >= 0) put(code >> 1, Index(i) << 1 | (code & 1));
  else {
    for (Index k = row_starts[-1 - code]; k < row_starts[-code]; k++) put(columns[k], -2 - k);
  }
}

// Sorts the entries of columns by Shell's method: those +-1 by rows, then others as they are listed.
extern "C" __global__ void order_entries(const long long n, const long long *starts, Index *entries) {
  const long long i = number();
  if (i >= n) return;
  Index *const own = entries + starts[i / 32] + i % 32;
  const int width = int((starts[i / 32 + 1] - starts[i / 32]) / 32);
  int count = 0, gap = 1;
  while (count < width && own[32LL * count] != -1) count++;
  while (gap < count / 3) gap = 3 * gap + 1;
  for (; gap > 0; gap /= 3) {
    for (int k = gap; k < count; k++) {
      const Index code = own[32LL * k];
      int to = k;
      for (; to >= gap; to -= gap) {
        const Index before = own[32LL * (to - gap)];
        if (code < 0 ? before >= 0 || before > code : before >= 0 && before < code) break;
        own[32LL * to] = before;
      }
      own[32LL * to] = code;
    }
  }
}

// Lengths of slices of some columns, `size` in all, after a zero.
extern "C" __global__ void part_lengths(const long long n, const long long size, const long long *columns, const Index *rank,
                                        const long long *starts, long long *lengths) {
  const long long s = number();
  if (s >= n) return;
  long long most = 0;
  for (long long i = 32 * s; i < 32 * s + 32 && i < size; i++) {
    const long long slice = rank[columns[i]] / 32, own = starts[slice + 1] - starts[slice];
    if (own > most) most = own;
  }
  lengths[s + 1] = most;
}

// Takes the entries of some columns.
extern "C" __global__ void part_entries(const long long n, const long long *columns, const Index *rank, const long long *starts,
                                        const Index *entries, const long long *part_starts, Index *out) {
  const long long i = number();
  if (i >= n) return;
  const long long at = rank[columns[i]], slice = at / 32, count = (starts[slice + 1] - starts[slice]) / 32;
  for (long long k = 0; k < count; k++) out[part_starts[i / 32] + 32 * k + i % 32] = entries[starts[slice] + 32 * k + at % 32];
}

// Where local numbers are if they stand entity by entity in tiles of elements. Of each block there are its modes, elements of
// a tile, or 0 where it stays as it is, and the begin of its `places`: three rows of modes (`Place` in cellwise.h).
struct Tiles {
  int blocks;
  const Index *starts;
  const int *numbers, *places;
  HPFEM_DEVICE Index operator()(const Index row) const {
    int low = 0, high = blocks - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (row < starts[middle + 1]) high = middle;
      else low = middle + 1;
    }
    const int modes = numbers[3 * low], tile = numbers[3 * low + 1];
    if (!tile) return row;
    const Index among = row - starts[low], element = among / modes, first = element / tile * tile;
    const Index left = (starts[low + 1] - starts[low]) / modes - first, here = left < tile ? left : Index(tile);
    const int *const place = places + numbers[3 * low + 2] + among % modes;
    return starts[low] + first * modes + place[0] * here + (element - first) * place[modes] + place[2 * modes];
  }
};

// Moves what codes of columns say of rows: numbers, or twice these and a bit for a sign; others stay.
extern "C" __global__ void move_codes(const long long n, const int blocks, const Index *starts, const int *numbers,
                                      const int *places, const int bits, const Index *codes, Index *out) {
  const long long i = number();
  if (i >= n) return;
  const Index code = codes[i];
  out[i] = code < 0 ? code : Tiles{blocks, starts, numbers, places}(code >> bits) << bits | (code & bits);
}

// Moves the codes of rows.
extern "C" __global__ void move_rows(const long long n, const int blocks, const Index *starts, const int *numbers,
                                     const int *places, const Index *codes, Index *out) {
  const long long i = number();
  if (i < n) out[Tiles{blocks, starts, numbers, places}(Index(i))] = codes[i];
}
