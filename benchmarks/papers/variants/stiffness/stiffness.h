// The stiffness of a hex whose nodes are the points, out = D^T G D u, as [Roget] has it: by six matrix products
// [n, n] x [n, n^2] with reshaped arrays between them, or by the classical sum over points. The constants below are the
// switches.

constexpr int N = $N, NODES = N * N * N; // nodes along a direction, and of an element
constexpr bool PRODUCTS = $PRODUCTS;     // else the classical sum
constexpr bool TEAM = $TEAM;             // an element to a team, which is a block of threads (Method 2), else to a thread
constexpr int THREADS = $THREADS;        // of a block
constexpr int STRIDE = $STRIDE;          // elements that are interleaved

constexpr int LANES = TEAM ? THREADS : 1; // that share the work on an element
HPFEM_DEVICE int lane() { return TEAM ? threadIdx.x : 0; }
HPFEM_DEVICE void barrier() {
  if (TEAM) __syncthreads();
}

// Place of node n in the matrix [N, N^2] whose rows are a direction.
template <int DIRECTION> HPFEM_DEVICE int place(int n) {
  const int a = n / (N * N), b = n / N % N, c = n % N;
  return DIRECTION == 0 ? n : DIRECTION == 1 ? (b * N + a) * N + c : (c * N + a) * N + b;
}

// to = D from, or its transpose, [N, N] x [N, N^2].
template <bool TRANSPOSED> HPFEM_DEVICE void multiply(const real *D, const real *from, real *to) {
  for (int n = lane(); n < NODES; n += LANES) {
    const int row = n / (N * N), column = n % (N * N);
    real sum = 0;
    for (int m = 0; m < N; m++) sum += D[TRANSPOSED ? m * N + row : row * N + m] * from[m * N * N + column];
    to[n] = sum;
  }
}
template <int DIRECTION> HPFEM_DEVICE void derivative(const real *D, const real *u, real *matrix, real *to) {
  for (int n = lane(); n < NODES; n += LANES) matrix[place<DIRECTION>(n)] = u[n * STRIDE];
  barrier();
  multiply<false>(D, matrix, to);
  barrier();
}
template <int DIRECTION> HPFEM_DEVICE void tested(const real *D, const real *flux, real *matrix, real *out) {
  multiply<true>(D, flux, matrix);
  barrier();
  for (int n = lane(); n < NODES; n += LANES) {
    const real part = matrix[place<DIRECTION>(n)];
    if (DIRECTION == 0) out[n * STRIDE] = part;
    else out[n * STRIDE] += part;
  }
  barrier();
}
struct Flux {
  real along[3];
};
HPFEM_DEVICE Flux flux_at(const real *G, int n, real d0, real d1, real d2) {
  constexpr int NEXT = NODES * STRIDE;
  G += n * STRIDE;
  return {{G[0] * d0 + G[NEXT] * d1 + G[2 * NEXT] * d2, G[NEXT] * d0 + G[3 * NEXT] * d1 + G[4 * NEXT] * d2,
           G[2 * NEXT] * d0 + G[4 * NEXT] * d1 + G[5 * NEXT] * d2}};
}

HPFEM_DEVICE void six_products(const real *D, real *arrays, const real *u, const real *G, real *out) {
  real *const matrix = arrays, *const d0 = matrix + NODES, *const d1 = d0 + NODES, *const d2 = d1 + NODES;
  derivative<0>(D, u, matrix, d0);
  derivative<1>(D, u, matrix, d1);
  derivative<2>(D, u, matrix, d2);
  for (int n = lane(); n < NODES; n += LANES) {
    real &e0 = d0[place<0>(n)], &e1 = d1[place<1>(n)], &e2 = d2[place<2>(n)];
    const Flux f = flux_at(G, n, e0, e1, e2);
    e0 = f.along[0];
    e1 = f.along[1];
    e2 = f.along[2];
  }
  barrier();
  tested<0>(D, d0, matrix, out);
  tested<1>(D, d1, matrix, out);
  tested<2>(D, d2, matrix, out);
}

// Point after point: derivatives there, and what the flux contributes to the nodes of its three lines. A thread does that
// for itself; a team keeps the fluxes, and each thread adds up at its nodes.
HPFEM_DEVICE void classical_sum(const real *D, real *arrays, const real *u, const real *G, real *out) {
  real *const own = arrays, *const fluxes = own + NODES;
  for (int n = lane(); n < NODES; n += LANES) {
    own[n] = u[n * STRIDE];
    if (!TEAM) fluxes[n] = 0; // the sums
  }
  barrier();
  for (int n = lane(); n < NODES; n += LANES) {
    const int a = n / (N * N), b = n / N % N, c = n % N;
    real d0 = 0, d1 = 0, d2 = 0;
    for (int m = 0; m < N; m++) {
      d0 += D[a * N + m] * own[(m * N + b) * N + c];
      d1 += D[b * N + m] * own[(a * N + m) * N + c];
      d2 += D[c * N + m] * own[(a * N + b) * N + m];
    }
    const Flux f = flux_at(G, n, d0, d1, d2);
    if (TEAM) {
      for (int x = 0; x < 3; x++) fluxes[x * NODES + n] = f.along[x];
      continue;
    }
    for (int m = 0; m < N; m++) {
      fluxes[(m * N + b) * N + c] += D[a * N + m] * f.along[0];
      fluxes[(a * N + m) * N + c] += D[b * N + m] * f.along[1];
      fluxes[(a * N + b) * N + m] += D[c * N + m] * f.along[2];
    }
  }
  barrier();
  for (int n = lane(); n < NODES; n += LANES) {
    const int a = n / (N * N), b = n / N % N, c = n % N;
    real sum = TEAM ? real(0) : fluxes[n];
    for (int m = 0; TEAM && m < N; m++) {
      sum += D[m * N + a] * fluxes[(m * N + b) * N + c];
      sum += D[m * N + b] * fluxes[NODES + (a * N + m) * N + c];
      sum += D[m * N + c] * fluxes[2 * NODES + (a * N + b) * N + m];
    }
    out[n * STRIDE] = sum;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    stiffness(const long long n_elements, const real *u, const real *G, const real *D_given, real *out) {
  HPFEM_SHARED(D);
  for (int n = threadIdx.x; n < N * N; n += THREADS) D[n] = D_given[n];
  __syncthreads();
  const long long element = TEAM ? blockIdx.x : (long long)blockIdx.x * THREADS + threadIdx.x;
  if (element >= n_elements) return;
  const long long group = element / STRIDE, in_group = element % STRIDE;
  u += group * (NODES * STRIDE) + in_group;
  out += group * (NODES * STRIDE) + in_group;
  G += group * (7 * NODES * STRIDE) + in_group;
  real own[TEAM ? 1 : (PRODUCTS ? 4 : 2) * NODES], *const arrays = TEAM ? D + N * N : own;
  if constexpr (PRODUCTS) six_products(D, arrays, u, G, out);
  else classical_sum(D, arrays, u, G, out);
}
