// The operators of [Swirydowicz] on a hex of N^3 nodes, at Q^3 points:
//
//     BP1.0    out = I^T w|J| I q                               I interpolates from the nodes to Gauss points
//     BP3.5    out = (D^T G D + lambda w|J|) q                  the nodes are the points
//     BP3.0    out = I^T (D^T G D + lambda w|J|) I q            D differentiates at the points along r, s and t,
//                                                               G is w|J| times the inverse metric at a point
//
// A block of threads takes an element. One kernel for every rung of the paper's ladders (its sections 6 to 8): the
// constants below are the switches, and each rung switches one more on (plan.py). Nodes and points are (k, j, i) for
// (t, s, r), i the fastest.

constexpr int N = $N, Q = $Q; // nodes and points along a direction
constexpr bool INTERPOLATES = $INTERPOLATES, DIFFERENTIATES = $DIFFERENTIATES; // whether the operator has I, and D
constexpr bool THREAD_A_POINT = $THREAD_A_POINT; // else a column of points, those of all k
constexpr bool SHARED = $SHARED;                 // threads exchange numbers in shared memory, else in global memory
constexpr bool REGISTERS = $REGISTERS;       // what a thread uses again is in its registers, each result written once
constexpr bool PADDED = $PADDED;             // rows of an odd length in shared memory: columns in different banks
constexpr bool FEW_BARRIERS = $FEW_BARRIERS; // more shared memory, so that fewer stages wait for each other
constexpr bool SYMMETRIC = $SYMMETRIC;       // an entry of a table is read once for the two places where it stands
#define LOOP $LOOP // _Pragma("unroll"), or nothing: the compiler decides

constexpr int NODES = N * N * N, POINTS = Q * Q * Q, THREADS = THREAD_A_POINT ? POINTS : Q * Q;
constexpr int PITCH = PADDED ? Q | 1 : Q, PLANE = Q * PITCH, ELEMENT = Q * PLANE; // of shared memory
constexpr int FACTORS = DIFFERENTIATES ? 7 : 1;                                   // at a point
constexpr int SCRATCH = 4 * POINTS;                                               // numbers of an element
enum Direction { T, S, R };
using Shared = real;

// What a thread sees: its place (k = 0 of a column), and its element.
struct Element {
  int k, j, i;
  const Shared *I, *D; // tables of PITCH numbers a row: Q rows of N, and of Q
  Shared *shared;      // what is left of shared memory
  real *q, *out, *scratch;
  const real *G;
  real lambda;
};

// Three indices of numbers in global or shared memory.
template <class Number> struct Array {
  Number *first;
  int pitch, plane;
  HPFEM_DEVICE Number &operator()(int k, int j, int i) const { return first[k * plane + j * pitch + i]; }
};
HPFEM_DEVICE Array<real> at_nodes(real *first) { return {first, N, N * N}; }
HPFEM_DEVICE Array<real> at_points(real *first) { return {first, Q, Q * Q}; }
HPFEM_DEVICE int point_at(int k, int j, int i) { return (k * Q + j) * Q + i; }
HPFEM_DEVICE real weight_at(const Element &e, int k) { return e.G[(FACTORS - 1) * POINTS + point_at(k, e.j, e.i)]; }

// Fluxes G (ur, us, ut) at a point.
struct Fluxes {
  real r, s, t;
};
HPFEM_DEVICE Fluxes fluxes_at(const Element &e, int k, real ur, real us, real ut) {
  const real *const g = e.G + point_at(k, e.j, e.i);
  const real tt = g[0], ts = g[POINTS], tr = g[2 * POINTS], ss = g[3 * POINTS], sr = g[4 * POINTS], rr = g[5 * POINTS];
  return {rr * ur + sr * us + tr * ut, sr * ur + ss * us + ts * ut, tr * ur + ts * us + tt * ut};
}

// An entry of table times numbers, or of the transposed table, along a direction through (k, j, i).
template <Direction DIRECTION, int COUNT, bool TRANSPOSED, class From>
HPFEM_DEVICE real sum_along(const Shared *table, const From &from, int k, int j, int i) {
  const int row = DIRECTION == T ? k : DIRECTION == S ? j : i;
  real sum = 0;
  LOOP for (int n = 0; n < COUNT; n++) {
    const real number = from(DIRECTION == T ? n : k, DIRECTION == S ? n : j, DIRECTION == R ? n : i);
    sum += table[TRANSPOSED ? n * PITCH + row : row * PITCH + n] * number;
  }
  return sum;
}

// ---- Stage by stage, every array whole: threads of points, and columns as long as all is in global memory.

// to = I from along a direction, or its transpose, for K x J x I results.
template <Direction DIRECTION, bool TRANSPOSED, bool IN_PLACE, class From, class To>
HPFEM_DEVICE void stage(const Element &e, const From &from, const To &to, int K, int J, int I) {
  LOOP for (int k = e.k; k < Q; k += THREADS / (Q * Q)) {
    const bool mine = k < K && e.j < J && e.i < I;
    const real sum = mine ? sum_along<DIRECTION, TRANSPOSED ? Q : N, TRANSPOSED>(e.I, from, k, e.j, e.i) : real(0);
    if (IN_PLACE) __syncthreads();
    if (mine) to(k, e.j, e.i) = sum;
  }
  __syncthreads();
}
constexpr bool ONE_ARRAY = THREAD_A_POINT && SHARED && !FEW_BARRIERS; // a and b are the same
template <class A> HPFEM_DEVICE void interpolate_stages(const Element &e, const A &a, const A &b) {
  stage<S, false, false>(e, at_nodes(e.q), a, N, Q, N);
  stage<R, false, ONE_ARRAY>(e, a, b, N, Q, Q);
  stage<T, false, ONE_ARRAY>(e, b, a, Q, Q, Q);
}
template <class A> HPFEM_DEVICE void project_stages(const Element &e, const A &a, const A &b) {
  __syncthreads();
  stage<T, true, ONE_ARRAY>(e, a, b, N, Q, Q);
  stage<R, true, ONE_ARRAY>(e, b, a, N, Q, N);
  stage<S, true, false>(e, a, at_nodes(e.out), N, N, N);
}

// Threads (j, i), each with its column; all that they exchange, and all partial sums, are in global memory.
HPFEM_DEVICE void columns_in_global_memory(const Element &e) {
  const Array<real> a = at_points(INTERPOLATES ? e.scratch : e.q), b = at_points(e.scratch + POINTS);
  const Array<real> found = INTERPOLATES ? a : at_points(e.out);
  if (INTERPOLATES) interpolate_stages(e, a, b);
  if (DIFFERENTIATES) {
    const Array<real> fr = b, fs = at_points(b.first + POINTS), ft = at_points(fs.first + POINTS);
    LOOP for (int k = 0; k < Q; k++) {
      const real ur = sum_along<R, Q, false>(e.D, a, k, e.j, e.i), us = sum_along<S, Q, false>(e.D, a, k, e.j, e.i);
      const Fluxes f = fluxes_at(e, k, ur, us, sum_along<T, Q, false>(e.D, a, k, e.j, e.i));
      fr(k, e.j, e.i) = f.r;
      fs(k, e.j, e.i) = f.s;
      ft(k, e.j, e.i) = f.t;
    }
    __syncthreads();
    LOOP for (int k = 0; k < Q; k++) {
      real sum = e.lambda * weight_at(e, k) * a(k, e.j, e.i);
      sum += sum_along<R, Q, true>(e.D, fr, k, e.j, e.i);
      sum += sum_along<S, Q, true>(e.D, fs, k, e.j, e.i);
      sum += sum_along<T, Q, true>(e.D, ft, k, e.j, e.i);
      found(k, e.j, e.i) = sum;
    }
  } else {
    LOOP for (int k = 0; k < Q; k++) a(k, e.j, e.i) *= weight_at(e, k);
  }
  if (INTERPOLATES) project_stages(e, a, b);
}

// A thread for each point. A flux goes through one array, direction by direction, or with FEW_BARRIERS through three at
// once; with SHARED and without FEW_BARRIERS that array is the values' own. Without REGISTERS sums are in global memory
// and factors are read for every direction.
template <class Number> HPFEM_DEVICE void threads_of_points(const Element &e, const Array<Number> &a, Number *others) {
  const int k = e.k, j = e.j, i = e.i;
  const Array<Number> b = {ONE_ARRAY ? a.first : others, SHARED ? PITCH : Q, SHARED ? PLANE : Q * Q};
  if (INTERPOLATES) interpolate_stages(e, a, b);
  else if (SHARED) {
    a(k, j, i) = e.q[point_at(k, j, i)];
    __syncthreads();
  }
  real own, &sum = REGISTERS ? own : INTERPOLATES ? e.scratch[3 * POINTS + point_at(k, j, i)] : e.out[point_at(k, j, i)];
  const real mine = a(k, j, i), scaled = weight_at(e, k) * mine;
  if (DIFFERENTIATES) {
    sum = e.lambda * scaled;
    const real ur = sum_along<R, Q, false>(e.D, a, k, j, i), us = sum_along<S, Q, false>(e.D, a, k, j, i);
    const real ut = sum_along<T, Q, false>(e.D, a, k, j, i);
    if (FEW_BARRIERS) {
      const Array<Number> fs = {b.first + ELEMENT, PITCH, PLANE}, ft = {fs.first + ELEMENT, PITCH, PLANE};
      const Fluxes f = fluxes_at(e, k, ur, us, ut);
      b(k, j, i) = f.r;
      fs(k, j, i) = f.s;
      ft(k, j, i) = f.t;
      __syncthreads();
      sum += sum_along<R, Q, true>(e.D, b, k, j, i);
      sum += sum_along<S, Q, true>(e.D, fs, k, j, i);
      sum += sum_along<T, Q, true>(e.D, ft, k, j, i);
    } else {
      Fluxes f = fluxes_at(e, k, ur, us, ut);
      __syncthreads(); // until all have read what was there
      b(k, j, i) = f.r;
      __syncthreads();
      sum += sum_along<R, Q, true>(e.D, b, k, j, i);
      if (!REGISTERS) f = fluxes_at(e, k, ur, us, ut);
      __syncthreads();
      b(k, j, i) = f.s;
      __syncthreads();
      sum += sum_along<S, Q, true>(e.D, b, k, j, i);
      if (!REGISTERS) f = fluxes_at(e, k, ur, us, ut);
      __syncthreads();
      b(k, j, i) = f.t;
      __syncthreads();
      sum += sum_along<T, Q, true>(e.D, b, k, j, i);
    }
  } else own = scaled;
  if (INTERPOLATES) {
    if (ONE_ARRAY && DIFFERENTIATES) __syncthreads();
    a(k, j, i) = DIFFERENTIATES ? sum : own;
    project_stages(e, a, b);
  } else if (REGISTERS) e.out[point_at(k, j, i)] = sum;
}

// ---- Slice by slice of equal k: what threads (j, i) exchange of a slice is in shared memory.

// A thread's column: in its registers, or where it is in global memory, so that each of its numbers is read and written
// there as often as it is used.
struct Column {
  real own[REGISTERS ? Q : 1], *global;
  int plane;
  HPFEM_DEVICE real &operator[](int k) { return REGISTERS ? own[k] : global[k * plane]; }
};

// The value at point (k, j, i), given the columns of nodes.
HPFEM_DEVICE real interpolated(const Element &e, int k, Column &nodes) {
  const Array<Shared> a = {e.shared, PITCH, PLANE}, b = {e.shared + PLANE, PITCH, PLANE};
  if (e.j < N && e.i < N) {
    real sum = 0;
    LOOP for (int n = 0; n < N; n++) sum += e.I[k * PITCH + n] * nodes[n];
    a(0, e.j, e.i) = sum;
  }
  __syncthreads();
  if (e.i < N) b(0, e.j, e.i) = sum_along<S, N, false>(e.I, a, 0, e.j, e.i);
  __syncthreads();
  return sum_along<R, N, false>(e.I, b, 0, e.j, e.i);
}

// Add what the value at point (k, j, i) contributes to the columns of nodes.
HPFEM_DEVICE void project(const Element &e, int k, real value, Column &nodes) {
  const Array<Shared> a = {e.shared, PITCH, PLANE}, b = {e.shared + PLANE, PITCH, PLANE};
  a(0, e.j, e.i) = value;
  __syncthreads();
  if (e.j < N) b(0, e.j, e.i) = sum_along<S, Q, true>(e.I, a, 0, e.j, e.i);
  __syncthreads();
  if (e.j < N && e.i < N) {
    const real part = sum_along<R, Q, true>(e.I, b, 0, e.j, e.i);
    LOOP for (int n = 0; n < N; n++) nodes[n] += e.I[k * PITCH + n] * part;
  }
}

// found = (D^T G D + lambda w|J|) values
HPFEM_DEVICE void differentiate(const Element &e, Column &values, Column &found) {
  const Array<Shared> u = {e.shared, PITCH, PLANE}, fr = {u.first + PLANE, PITCH, PLANE};
  const Array<Shared> fs = {fr.first + PLANE, PITCH, PLANE};
  LOOP for (int k = 0; k < Q; k++) found[k] = 0;
  LOOP for (int k = 0; k < Q; k++) {
    const real mine = values[k];
    u(0, e.j, e.i) = mine;
    __syncthreads();
    const real ur = sum_along<R, Q, false>(e.D, u, 0, e.j, e.i), us = sum_along<S, Q, false>(e.D, u, 0, e.j, e.i);
    real ut = 0;
    LOOP for (int n = 0; n < Q; n++) ut += e.D[k * PITCH + n] * values[n];
    const Fluxes f = fluxes_at(e, k, ur, us, ut);
    fr(0, e.j, e.i) = f.r;
    fs(0, e.j, e.i) = f.s;
    __syncthreads();
    real sum = e.lambda * weight_at(e, k) * mine;
    sum += sum_along<R, Q, true>(e.D, fr, 0, e.j, e.i);
    sum += sum_along<S, Q, true>(e.D, fs, 0, e.j, e.i);
    LOOP for (int n = 0; n < Q; n++) found[n] += e.D[k * PITCH + n] * f.t; // of every point of the column
    found[k] += sum;
  }
}

HPFEM_DEVICE void slices(const Element &e) {
  const bool holds = e.j < N && e.i < N; // a column of nodes
  const int first = e.j * N + e.i;
  Column in, out;
  in.global = e.q + first;
  out.global = e.out + first;
  in.plane = out.plane = N * N;
  if (holds) {
    LOOP for (int k = 0; k < N; k++) {
      if (REGISTERS) in[k] = e.q[k * N * N + first];
      out[k] = 0;
    }
  }
  if constexpr (!INTERPOLATES) differentiate(e, in, out);
  else if constexpr (!DIFFERENTIATES) {
    LOOP for (int k = 0; k < Q; k++) project(e, k, weight_at(e, k) * interpolated(e, k, in), out);
  } else {
    Column values, found;
    values.global = e.scratch + e.j * Q + e.i;
    found.global = values.global + POINTS;
    values.plane = found.plane = Q * Q;
    LOOP for (int k = 0; k < Q; k++) values[k] = interpolated(e, k, in);
    differentiate(e, values, found);
    LOOP for (int k = 0; k < Q; k++) project(e, k, found[k], out);
  }
  if (REGISTERS && holds) {
    LOOP for (int k = 0; k < N; k++) e.out[k * N * N + first] = out[k];
  }
}

// ---- Line by line: all of the element is in shared memory, and a thread takes a whole line of every direction in turn,
// so that the number of barriers does not grow with the order. Every thread reads the same entry of a table at once.

// out = table in, or its transpose. Entry [m][n] is SIGN times the one as far from the end.
template <int SIGN, bool TRANSPOSED, int IN, int OUT>
HPFEM_DEVICE void along_line(const Shared *table, const real (&in)[IN], real (&out)[OUT]) {
  LOOP for (int m = 0; m < OUT; m++) out[m] = 0;
  LOOP for (int m = 0; m < (SYMMETRIC ? (OUT + 1) / 2 : OUT); m++) {
    LOOP for (int n = 0; n < IN; n++) {
      const real entry = table[TRANSPOSED ? n * PITCH + m : m * PITCH + n];
      out[m] += entry * in[n];
      if (SYMMETRIC && m != OUT - 1 - m) out[OUT - 1 - m] += SIGN * entry * in[IN - 1 - n];
    }
  }
}

// The same for a line in shared memory, from where it is to where its result goes.
template <int SIGN, bool TRANSPOSED, int IN, int OUT>
HPFEM_DEVICE void line(const Shared *table, const Shared *from, Shared *to, int stride) {
  real in[IN], out[OUT];
  LOOP for (int n = 0; n < IN; n++) in[n] = from[n * stride];
  along_line<SIGN, TRANSPOSED>(table, in, out);
  LOOP for (int n = 0; n < OUT; n++) to[n * stride] = out[n];
}

// own = (D^T G D + lambda w|J|) own, on columns.
HPFEM_DEVICE void differentiate_lines(const Element &e, real (&own)[Q]) {
  Shared *const u = e.shared, *const fr = u + ELEMENT, *const fs = fr + ELEMENT;
  const int column = e.j * PITCH + e.i;
  const int row_r = e.j * PLANE + e.i * PITCH, row_s = e.j * PLANE + e.i; // thread (j, i) has the lines k = j
  real ut[Q], sum[Q];
  LOOP for (int k = 0; k < Q; k++) u[k * PLANE + column] = own[k];
  __syncthreads();
  line<-1, false, Q, Q>(e.D, u + row_r, fr + row_r, 1);
  line<-1, false, Q, Q>(e.D, u + row_s, fs + row_s, PITCH);
  along_line<-1, false>(e.D, own, ut);
  __syncthreads();
  LOOP for (int k = 0; k < Q; k++) {
    const int here = k * PLANE + column;
    const Fluxes f = fluxes_at(e, k, fr[here], fs[here], ut[k]);
    fr[here] = f.r;
    fs[here] = f.s;
    ut[k] = f.t;
    own[k] *= e.lambda * weight_at(e, k);
  }
  __syncthreads();
  line<-1, true, Q, Q>(e.D, fr + row_r, fr + row_r, 1);
  line<-1, true, Q, Q>(e.D, fs + row_s, fs + row_s, PITCH);
  along_line<-1, true>(e.D, ut, sum);
  __syncthreads();
  LOOP for (int k = 0; k < Q; k++) own[k] = own[k] + sum[k] + fr[k * PLANE + column] + fs[k * PLANE + column];
}

HPFEM_DEVICE void lines(const Element &e) {
  Shared *const u = e.shared, *const column = u + e.j * PITCH + e.i, *const row = u + e.j * PLANE + e.i * PITCH;
  Shared *const row_s = u + e.j * PLANE + e.i;
  const Array<real> q = at_nodes(e.q), result = at_nodes(e.out);
  real own[Q];
  if constexpr (INTERPOLATES) {
    real nodes[N];
    if (e.j < N && e.i < N) { // along s first: neighbours read neighbours
      LOOP for (int n = 0; n < N; n++) nodes[n] = q(e.j, n, e.i);
      along_line<1, false>(e.I, nodes, own);
      LOOP for (int n = 0; n < Q; n++) row_s[n * PITCH] = own[n];
    }
    __syncthreads();
    if (e.j < N) line<1, false, N, Q>(e.I, row, row, 1);
    __syncthreads();
    LOOP for (int n = 0; n < N; n++) nodes[n] = column[n * PLANE];
    along_line<1, false>(e.I, nodes, own);
  } else {
    LOOP for (int k = 0; k < Q; k++) own[k] = q(k, e.j, e.i);
  }
  if constexpr (DIFFERENTIATES) differentiate_lines(e, own);
  else {
    LOOP for (int k = 0; k < Q; k++) own[k] *= weight_at(e, k);
  }
  if constexpr (INTERPOLATES) {
    real nodes[N];
    along_line<1, true>(e.I, own, nodes);
    LOOP for (int n = 0; n < N; n++) column[n * PLANE] = nodes[n];
    __syncthreads();
    if (e.j < N) line<1, true, Q, N>(e.I, row, row, 1);
    __syncthreads();
    if (e.j < N && e.i < N) {
      LOOP for (int n = 0; n < Q; n++) own[n] = row_s[n * PITCH];
      along_line<1, true>(e.I, own, nodes);
      LOOP for (int n = 0; n < N; n++) result(e.j, n, e.i) = nodes[n];
    }
  } else {
    LOOP for (int k = 0; k < Q; k++) result(k, e.j, e.i) = own[k];
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ladder(real *q, const real *G, const real *I_given, const real *D_given, real *out, real *scratch,
           const real lambda) {
  HPFEM_SHARED(memory);
  Shared *const I = reinterpret_cast<Shared *>(memory), *const D = I + INTERPOLATES * PLANE;
  Shared *const rest = D + DIFFERENTIATES * PLANE;
  const int t = threadIdx.x;
  const long long element = blockIdx.x;
  const Element e = {t / (Q * Q),         t / Q % Q, t % Q, I, D, rest, q + element * NODES, out + element * NODES,
                     scratch + element * SCRATCH, G + element * (FACTORS * POINTS), lambda};
  for (int n = t; INTERPOLATES && n < Q * N; n += THREADS) I[n / N * PITCH + n % N] = I_given[n];
  for (int n = t; DIFFERENTIATES && n < Q * Q; n += THREADS) D[n / Q * PITCH + n % Q] = D_given[n];
  __syncthreads();
  if constexpr (!THREAD_A_POINT) {
    if constexpr (FEW_BARRIERS) lines(e);
    else if constexpr (SHARED) slices(e);
    else columns_in_global_memory(e);
  } else if constexpr (SHARED) threads_of_points<Shared>(e, {e.shared, PITCH, PLANE}, e.shared + ELEMENT);
  else threads_of_points<real>(e, at_points(INTERPOLATES ? e.scratch : e.q), e.scratch + POINTS);
}
