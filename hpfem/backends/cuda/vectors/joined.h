// Parts of a graph, and clusters in it. Every vertex has a label, the number of a vertex that is not above its own; those
// with their own number stand for what is joined with them. THREADS is given; a thread takes a pair, or a vertex.

HPFEM_DEVICE int lowest(const int *label, int x) {
  for (int next; (next = label[x]) != x;) x = next;
  return x;
}

// Joins the ends of n pairs.
extern "C" __global__ void join(const long long n, const int *i, const int *j, int *label) {
  const long long e = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (e >= n) return;
  int a = lowest(label, i[e]), b = lowest(label, j[e]);
  while (a != b) { // another thread may have joined them meanwhile
    const int low = a < b ? a : b, high = a < b ? b : a, seen = atomicCAS(label + high, high, low);
    a = seen == high ? low : lowest(label, seen);
    b = low;
  }
}

// Labels of n vertices are those of what they stand for.
extern "C" __global__ void settle(const long long n, int *label) {
  const long long x = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (x < n) label[x] = lowest(label, x);
}

// A round, in two launches: of n pairs, the first ones before others, those that are the first of both of their clusters
// merge these, unless they are too large. Pairs that never will have no i from then on; `left` is 1 if others are left.
extern "C" __global__ void propose(const long long n, const unsigned round, int *i, int *j, const int *most, const int *label,
                                   const int *size, unsigned long long *first, int *left) {
  const long long e = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (e >= n || i[e] < 0) return;
  const int a = lowest(label, i[e]), b = lowest(label, j[e]);
  const bool possible = a != b && size[a] + size[b] <= most[a];
  i[e] = possible ? a : -1;
  if (!possible) return;
  j[e] = b;
  *left = 1;
  const unsigned long long key = (unsigned long long)~round << 32 | e; // below those of rounds before
  atomicMin(first + a, key);
  atomicMin(first + b, key);
}

extern "C" __global__ void merge(const long long n, const unsigned round, const int *i, const int *j,
                                 const unsigned long long *first, int *label, int *size) {
  const long long e = blockIdx.x * (long long)THREADS + threadIdx.x;
  if (e >= n || i[e] < 0) return;
  const int a = i[e], b = j[e], low = a < b ? a : b, high = a < b ? b : a;
  const unsigned long long key = (unsigned long long)~round << 32 | e;
  if (first[a] != key || first[b] != key) return;
  label[high] = low;
  size[low] += size[high];
}
