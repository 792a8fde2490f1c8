// Mass and Helmholtz operators by sum factorisation as [Xing] has it, on any shape: an element to a thread, its numbers in
// local memory and 32 elements interleaved (SumFac, Alg. 3), or to a block whose threads take an output number each
// (SumFacTOP, Alg. 4). The constants below are the switches.
//
// Modes are the leaves of a tree: the children of node n of level l are nodes first[n] to first[n + 1] of level l + 1, each
// with a function of direction l, so that the same loops serve products and simplices. In 2-D the first direction has
// one function, 1, and one point.

constexpr bool TOP = $TOP; // else a thread an element
constexpr bool HELMHOLTZ = $HELMHOLTZ;
constexpr int DIM = $DIM, THREADS = $THREADS, STRIDE = $STRIDE; // threads of a block, elements that are interleaved
constexpr int Q0 = $Q0, Q1 = $Q1, Q2 = $Q2, POINTS = Q0 * Q1 * Q2;
constexpr int F0 = $F0, F1 = $F1, F2 = $F2; // functions of each direction
constexpr int N1 = $N1, N2 = $N2, LEAVES = $LEAVES, MODES = $MODES;
constexpr int FACTORS = !HELMHOLTZ ? 1 : DIM == 2 ? 4 : 7;

constexpr int LANES = TOP ? THREADS : 1; // that share the work on an element
HPFEM_DEVICE int lane() { return TOP ? threadIdx.x : 0; }
HPFEM_DEVICE void barrier() {
  if (TOP) __syncthreads();
}

// Tables of functions [function][point] and of derivatives at the points [point][point], one behind the other.
constexpr int B0 = 0, B1 = B0 + F0 * Q0, B2 = B1 + F1 * Q1, D0 = B2 + F2 * Q2, D1 = D0 + Q0 * Q0, D2 = D1 + Q1 * Q1;
constexpr int TABLES = D2 + Q2 * Q2;
// Tables of the tree: first children, function and parent of the nodes of each level, mode of a leaf; and of every mode the
// leaves, of which a collapsed vertex has several.
struct Tree {
  const int *first1, *first2, *function1, *function2, *function3, *parent2, *parent3, *mode, *leaf_first, *leaves;
};
HPFEM_DEVICE Tree tree_of(const int *t) {
  Tree tree;
  tree.first1 = t, t += N1 + 1;
  tree.first2 = t, t += N2 + 1;
  tree.function1 = t, t += N1;
  tree.function2 = t, t += N2;
  tree.function3 = t, t += LEAVES;
  tree.parent2 = t, t += N2;
  tree.parent3 = t, t += LEAVES;
  tree.mode = t, t += LEAVES;
  tree.leaf_first = t, t += MODES + 1;
  tree.leaves = t;
  return tree;
}

// What an element takes: values and fluxes at the points, and arrays between the directions.
constexpr int W1 = N1 * Q1 * Q2, W2 = N2 * Q2;
constexpr int NUMBERS = (HELMHOLTZ ? 4 : 1) * POINTS + W1 + W2 + LEAVES;

HPFEM_DEVICE void backward(const Tree &t, const real *B, const real *in, real *v, real *w1, real *w2) {
  for (int n = lane(); n < W2; n += LANES) {
    const int node = n / Q2, k = n % Q2;
    real sum = 0;
    for (int c = t.first2[node]; c < t.first2[node + 1]; c++) {
      sum += B[B2 + t.function3[c] * Q2 + k] * in[t.mode[c] * STRIDE];
    }
    w2[n] = sum;
  }
  barrier();
  for (int n = lane(); n < W1; n += LANES) {
    const int node = n / (Q1 * Q2), j = n / Q2 % Q1, k = n % Q2;
    real sum = 0;
    for (int c = t.first1[node]; c < t.first1[node + 1]; c++) sum += B[B1 + t.function2[c] * Q1 + j] * w2[c * Q2 + k];
    w1[n] = sum;
  }
  barrier();
  for (int n = lane(); n < POINTS; n += LANES) {
    const int i = n / (Q1 * Q2), jk = n % (Q1 * Q2);
    real sum = 0;
    for (int c = 0; c < N1; c++) sum += B[B0 + t.function1[c] * Q0 + i] * w1[c * Q1 * Q2 + jk];
    v[n] = sum;
  }
  barrier();
}

HPFEM_DEVICE void transposed(const Tree &t, const real *B, const real *v, real *out, real *w1, real *w2, real *leaf) {
  for (int n = lane(); n < W1; n += LANES) {
    const int function = t.function1[n / (Q1 * Q2)], jk = n % (Q1 * Q2);
    real sum = 0;
    for (int i = 0; i < Q0; i++) sum += B[B0 + function * Q0 + i] * v[i * Q1 * Q2 + jk];
    w1[n] = sum;
  }
  barrier();
  for (int n = lane(); n < W2; n += LANES) {
    const int node = n / Q2, k = n % Q2, parent = t.parent2[node], function = t.function2[node];
    real sum = 0;
    for (int j = 0; j < Q1; j++) sum += B[B1 + function * Q1 + j] * w1[(parent * Q1 + j) * Q2 + k];
    w2[n] = sum;
  }
  barrier();
  for (int n = lane(); n < LEAVES; n += LANES) {
    const int parent = t.parent3[n], function = t.function3[n];
    real sum = 0;
    for (int k = 0; k < Q2; k++) sum += B[B2 + function * Q2 + k] * w2[parent * Q2 + k];
    leaf[n] = sum;
  }
  barrier();
  for (int n = lane(); n < MODES; n += LANES) {
    real sum = 0;
    for (int c = t.leaf_first[n]; c < t.leaf_first[n + 1]; c++) sum += leaf[t.leaves[c]];
    out[n * STRIDE] = sum;
  }
}

// Alg. 6 between the transforms: v becomes D^T G D v + lambda w|J| v.
HPFEM_DEVICE void differentiate(const real *B, const real *G, real *v, real *d0, real *d1, real *d2, real lambda) {
  constexpr int NEXT = POINTS * STRIDE;
  for (int n = lane(); n < POINTS; n += LANES) {
    const int i = n / (Q1 * Q2), j = n / Q2 % Q1, k = n % Q2;
    real u0 = 0, u1 = 0, u2 = 0;
    for (int m = 0; DIM == 3 && m < Q0; m++) u0 += B[D0 + i * Q0 + m] * v[(m * Q1 + j) * Q2 + k];
    for (int m = 0; m < Q1; m++) u1 += B[D1 + j * Q1 + m] * v[(i * Q1 + m) * Q2 + k];
    for (int m = 0; m < Q2; m++) u2 += B[D2 + k * Q2 + m] * v[(i * Q1 + j) * Q2 + m];
    const real *const g = G + n * STRIDE;
    if (DIM == 3) {
      d0[n] = g[0] * u0 + g[NEXT] * u1 + g[2 * NEXT] * u2;
      d1[n] = g[NEXT] * u0 + g[3 * NEXT] * u1 + g[4 * NEXT] * u2;
      d2[n] = g[2 * NEXT] * u0 + g[4 * NEXT] * u1 + g[5 * NEXT] * u2;
    } else {
      d1[n] = g[0] * u1 + g[NEXT] * u2;
      d2[n] = g[NEXT] * u1 + g[2 * NEXT] * u2;
    }
  }
  barrier();
  for (int n = lane(); n < POINTS; n += LANES) {
    const int i = n / (Q1 * Q2), j = n / Q2 % Q1, k = n % Q2;
    real sum = lambda * G[(FACTORS - 1) * NEXT + n * STRIDE] * v[n];
    for (int m = 0; DIM == 3 && m < Q0; m++) sum += B[D0 + m * Q0 + i] * d0[(m * Q1 + j) * Q2 + k];
    for (int m = 0; m < Q1; m++) sum += B[D1 + m * Q1 + j] * d1[(i * Q1 + m) * Q2 + k];
    for (int m = 0; m < Q2; m++) sum += B[D2 + m * Q2 + k] * d2[(i * Q1 + j) * Q2 + m];
    v[n] = sum;
  }
  barrier();
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sumfac(const long long n_elements, const real *in, const real *G, const real *tables, const int *tree, real *out,
           const real lambda) {
  HPFEM_SHARED(B);
  for (int n = threadIdx.x; n < TABLES; n += THREADS) B[n] = tables[n];
  __syncthreads();
  const long long element = TOP ? blockIdx.x : (long long)blockIdx.x * THREADS + threadIdx.x;
  if (element >= n_elements) return;
  const long long group = element / STRIDE, in_group = element % STRIDE;
  in += group * (MODES * STRIDE) + in_group;
  out += group * (MODES * STRIDE) + in_group;
  G += group * (FACTORS * POINTS * STRIDE) + in_group;
  real own[TOP ? 1 : NUMBERS], *const v = TOP ? B + TABLES : own, *const w1 = v + (HELMHOLTZ ? 4 : 1) * POINTS;
  real *const w2 = w1 + W1, *const leaf = w2 + W2;
  const Tree t = tree_of(tree);
  backward(t, B, in, v, w1, w2);
  if constexpr (HELMHOLTZ) differentiate(B, G, v, v + POINTS, v + 2 * POINTS, v + 3 * POINTS, lambda);
  else {
    for (int n = lane(); n < POINTS; n += LANES) v[n] *= G[n * STRIDE];
    barrier();
  }
  transposed(t, B, v, out, w1, w2, leaf);
}
