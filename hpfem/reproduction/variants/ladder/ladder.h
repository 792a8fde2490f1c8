// The screened Poisson operator on hexes whose nodes are the points, BP3.5 of [Swirydowicz]:
//
//     out = (D^T G D + lambda w|J|) q      D differentiates along r, s and t, G = w|J| times the inverse metric at a node
//
// A block of threads takes an element. One kernel for every rung of the paper's ladders (its sections 6 and 7): the
// constants below are the switches, and each rung switches one more on (plan.py). Nodes are (k, j, i) for (t, s, r), i
// the fastest.

constexpr int NQ = $NQ, NODES = NQ * NQ * NQ; // points along a direction, and of an element
constexpr bool THREAD_A_NODE = $THREAD_A_NODE; // else a column of nodes, those of all k
constexpr bool SHARED = $SHARED;               // threads exchange numbers in shared memory, else in global memory
constexpr bool REGISTERS = $REGISTERS;         // what a thread uses again is in its registers, each result written once
constexpr bool PADDED = $PADDED;               // rows of an odd length in shared memory: columns in different banks
constexpr bool FEW_BARRIERS = $FEW_BARRIERS;   // more shared memory, so that fewer stages wait for each other
constexpr bool SYMMETRIC = $SYMMETRIC;         // an entry of D is read once for the two places where it stands
#define LOOP $LOOP // _Pragma("unroll"), or nothing: the compiler decides

constexpr int THREADS = THREAD_A_NODE ? NODES : NQ * NQ;
constexpr int PITCH = PADDED ? NQ | 1 : NQ, PLANE = NQ * PITCH, ELEMENT = NQ * PLANE; // of shared memory
using Shared = real;

HPFEM_DEVICE int node_at(int k, int j, int i) { return (k * NQ + j) * NQ + i; }

// The symmetric G of a node, and w|J|.
struct Factors {
  real tt, ts, tr, ss, sr, rr, wJ;
};
HPFEM_DEVICE Factors factors_at(const real *G, int node) {
  G += node;
  return {G[0], G[NODES], G[2 * NODES], G[3 * NODES], G[4 * NODES], G[5 * NODES], G[6 * NODES]};
}

// Threads (j, i), each with its column; all that they exchange, and all partial sums, are in global memory.
HPFEM_DEVICE void columns_in_global_memory(int j, int i, const Shared *D, const real *q, const real *G, real *out,
                                           real *scratch, real lambda) {
  real *const fr = scratch, *const fs = fr + NODES, *const ft = fs + NODES;
  LOOP for (int k = 0; k < NQ; k++) {
    const int node = node_at(k, j, i);
    real ur = 0, us = 0, ut = 0;
    LOOP for (int n = 0; n < NQ; n++) {
      ur += D[i * PITCH + n] * q[node_at(k, j, n)];
      us += D[j * PITCH + n] * q[node_at(k, n, i)];
      ut += D[k * PITCH + n] * q[node_at(n, j, i)];
    }
    const Factors g = factors_at(G, node);
    fr[node] = g.rr * ur + g.sr * us + g.tr * ut;
    fs[node] = g.sr * ur + g.ss * us + g.ts * ut;
    ft[node] = g.tr * ur + g.ts * us + g.tt * ut;
    out[node] = lambda * g.wJ * q[node];
  }
  __syncthreads();
  LOOP for (int k = 0; k < NQ; k++) {
    real sum = 0;
    LOOP for (int n = 0; n < NQ; n++) {
      sum += D[n * PITCH + i] * fr[node_at(k, j, n)];
      sum += D[n * PITCH + j] * fs[node_at(k, n, i)];
      sum += D[n * PITCH + k] * ft[node_at(n, j, i)];
    }
    out[node_at(k, j, i)] += sum;
  }
}

// The same slice by slice of equal k: q and the fluxes along r and s of a slice are in shared memory. With REGISTERS the
// column of q and its sums are a thread's own, and global memory is read once and written once.
HPFEM_DEVICE void slices(int j, int i, const Shared *D, Shared *u, const real *q, const real *G, real *out,
                         real lambda) {
  Shared *const fr = u + PLANE, *const fs = fr + PLANE;
  const int here = j * PITCH + i;
  real column[NQ], sum[NQ];
  LOOP for (int k = 0; k < NQ; k++) {
    if (REGISTERS) {
      column[k] = q[node_at(k, j, i)];
      sum[k] = 0;
    } else out[node_at(k, j, i)] = 0;
  }
  LOOP for (int k = 0; k < NQ; k++) {
    const real mine = REGISTERS ? column[k] : q[node_at(k, j, i)];
    u[here] = mine;
    __syncthreads();
    real ur = 0, us = 0, ut = 0;
    LOOP for (int n = 0; n < NQ; n++) {
      ur += D[i * PITCH + n] * u[j * PITCH + n];
      us += D[j * PITCH + n] * u[n * PITCH + i];
      ut += D[k * PITCH + n] * (REGISTERS ? column[n] : q[node_at(n, j, i)]);
    }
    const Factors g = factors_at(G, node_at(k, j, i));
    fr[here] = g.rr * ur + g.sr * us + g.tr * ut;
    fs[here] = g.sr * ur + g.ss * us + g.ts * ut;
    const real ft = g.tr * ur + g.ts * us + g.tt * ut;
    __syncthreads();
    real here_sum = lambda * g.wJ * mine;
    LOOP for (int n = 0; n < NQ; n++) {
      here_sum += D[n * PITCH + i] * fr[j * PITCH + n];
      here_sum += D[n * PITCH + j] * fs[n * PITCH + i];
      const real part = D[k * PITCH + n] * ft; // of every node of the column
      if (REGISTERS) sum[n] += part;
      else out[node_at(n, j, i)] += part;
    }
    if (REGISTERS) sum[k] += here_sum;
    else out[node_at(k, j, i)] += here_sum;
  }
  if (REGISTERS) {
    LOOP for (int k = 0; k < NQ; k++) out[node_at(k, j, i)] = sum[k];
  }
}

// out = D in, or its transpose, along a line that is in registers. D[n][m] is -D[NQ - 1 - n][NQ - 1 - m].
template <bool TRANSPOSED> HPFEM_DEVICE void along_line(const Shared *D, const real (&in)[NQ], real (&out)[NQ]) {
  constexpr int LAST = NQ - 1, ROWS = SYMMETRIC ? (NQ + 1) / 2 : NQ;
  LOOP for (int m = 0; m < NQ; m++) out[m] = 0;
  LOOP for (int m = 0; m < ROWS; m++) {
    LOOP for (int n = 0; n < NQ; n++) {
      const real d = D[TRANSPOSED ? n * PITCH + m : m * PITCH + n];
      out[m] += d * in[n];
      if (SYMMETRIC && m != LAST - m) out[LAST - m] -= d * in[LAST - n];
    }
  }
}

// The same for a line in shared memory, from where it is to where its result goes.
template <bool TRANSPOSED> HPFEM_DEVICE void line(const Shared *D, const Shared *from, Shared *to, int stride) {
  real in[NQ], out[NQ];
  LOOP for (int n = 0; n < NQ; n++) in[n] = from[n * stride];
  along_line<TRANSPOSED>(D, in, out);
  LOOP for (int n = 0; n < NQ; n++) to[n * stride] = out[n];
}

// All of the element is in shared memory, and a thread takes a whole line of every direction in turn, so that threads
// wait for each other four times, whatever the order. Every thread reads the same entry of D at the same time.
HPFEM_DEVICE void lines(int j, int i, const Shared *D, Shared *u, const real *q, const real *G, real *out,
                        real lambda) {
  Shared *const fr = u + ELEMENT, *const fs = fr + ELEMENT;
  const int column = j * PITCH + i;
  const int row_r = j * PLANE + i * PITCH, row_s = j * PLANE + i; // thread (j, i) has the lines k = j
  real own[NQ], ut[NQ], sum[NQ];
  LOOP for (int k = 0; k < NQ; k++) u[k * PLANE + column] = own[k] = q[node_at(k, j, i)];
  __syncthreads();
  line<false>(D, u + row_r, fr + row_r, 1);
  line<false>(D, u + row_s, fs + row_s, PITCH);
  along_line<false>(D, own, ut);
  __syncthreads();
  LOOP for (int k = 0; k < NQ; k++) {
    const int here = k * PLANE + column;
    const Factors g = factors_at(G, node_at(k, j, i));
    const real ur = fr[here], us = fs[here];
    fr[here] = g.rr * ur + g.sr * us + g.tr * ut[k];
    fs[here] = g.sr * ur + g.ss * us + g.ts * ut[k];
    ut[k] = g.tr * ur + g.ts * us + g.tt * ut[k];
    own[k] *= lambda * g.wJ;
  }
  __syncthreads();
  line<true>(D, fr + row_r, fr + row_r, 1);
  line<true>(D, fs + row_s, fs + row_s, PITCH);
  along_line<true>(D, ut, sum);
  __syncthreads();
  LOOP for (int k = 0; k < NQ; k++) {
    out[node_at(k, j, i)] = own[k] + sum[k] + fr[k * PLANE + column] + fs[k * PLANE + column];
  }
}

// A thread for each node. The flux goes through one array, direction by direction, or with FEW_BARRIERS through three at
// once; with SHARED the array is q's own, in shared memory. Without REGISTERS factors are read for every direction.
HPFEM_DEVICE void nodes(int k, int j, int i, const Shared *D, Shared *u, const real *q, const real *G, real *out,
                        real *scratch, real lambda) {
  const int node = node_at(k, j, i), here = k * PLANE + j * PITCH + i;
  const real mine = q[node];
  if (SHARED) u[here] = mine;
  __syncthreads();
  real ur = 0, us = 0, ut = 0;
  LOOP for (int n = 0; n < NQ; n++) {
    ur += D[i * PITCH + n] * (SHARED ? real(u[k * PLANE + j * PITCH + n]) : q[node_at(k, j, n)]);
    us += D[j * PITCH + n] * (SHARED ? real(u[k * PLANE + n * PITCH + i]) : q[node_at(k, n, i)]);
    ut += D[k * PITCH + n] * (SHARED ? real(u[n * PLANE + j * PITCH + i]) : q[node_at(n, j, i)]);
  }
  Factors g = factors_at(G, node);
  real sum = lambda * g.wJ * mine;
  if (!REGISTERS) out[node] = sum;
  Shared *const shared_flux = FEW_BARRIERS ? u + ELEMENT : u;
  LOOP for (int direction = 0; direction < 3; direction++) {
    if (!FEW_BARRIERS) __syncthreads(); // until all have read what was there
    if (!REGISTERS) g = factors_at(G, node);
    const real flux = direction == 0   ? g.rr * ur + g.sr * us + g.tr * ut
                      : direction == 1 ? g.sr * ur + g.ss * us + g.ts * ut
                                       : g.tr * ur + g.ts * us + g.tt * ut;
    if (SHARED) shared_flux[FEW_BARRIERS * direction * ELEMENT + here] = flux;
    else scratch[node] = flux;
    if (FEW_BARRIERS) continue;
    __syncthreads();
    real part = 0;
    LOOP for (int n = 0; n < NQ; n++) {
      const int a = direction == 0 ? i : direction == 1 ? j : k;
      const int kn = direction == 2 ? n : k, jn = direction == 1 ? n : j, in = direction == 0 ? n : i;
      part += D[n * PITCH + a] * (SHARED ? real(u[kn * PLANE + jn * PITCH + in]) : scratch[node_at(kn, jn, in)]);
    }
    if (REGISTERS) sum += part;
    else out[node] += part;
  }
  if (FEW_BARRIERS) {
    const Shared *const fr = shared_flux, *const fs = fr + ELEMENT, *const ft = fs + ELEMENT;
    __syncthreads();
    LOOP for (int n = 0; n < NQ; n++) {
      sum += D[n * PITCH + i] * fr[k * PLANE + j * PITCH + n];
      sum += D[n * PITCH + j] * fs[k * PLANE + n * PITCH + i];
      sum += D[n * PITCH + k] * ft[n * PLANE + j * PITCH + i];
    }
  }
  if (REGISTERS) out[node] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ladder(const real *q, const real *G, const real *D_given, real *out, real *scratch, const real lambda) {
  HPFEM_SHARED(memory);
  Shared *const D = reinterpret_cast<Shared *>(memory), *const rest = D + PLANE;
  const int t = threadIdx.x, i = t % NQ, j = t / NQ % NQ, k = t / (NQ * NQ);
  const long long element = blockIdx.x;
  q += element * NODES;
  out += element * NODES;
  G += element * (7 * NODES);
  scratch += element * (3 * NODES);
  for (int entry = t; entry < NQ * NQ; entry += THREADS) D[entry / NQ * PITCH + entry % NQ] = D_given[entry];
  if constexpr (THREAD_A_NODE) nodes(k, j, i, D, rest, q, G, out, scratch, lambda);
  else {
    __syncthreads();
    if constexpr (FEW_BARRIERS) lines(j, i, D, rest, q, G, out, lambda);
    else if constexpr (SHARED) slices(j, i, D, rest, q, G, out, lambda);
    else columns_in_global_memory(j, i, D, q, G, out, scratch, lambda);
  }
}
