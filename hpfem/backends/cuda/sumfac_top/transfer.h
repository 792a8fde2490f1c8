// Between the user's arrays and shared memory.

// The user's point q = (i Q2 + j) Q3 + k, or with the directions reversed (k Q2 + j) Q1 + i.
HPFEM_DEVICE int point_i(int q) { return REVERSED ? q % Q1 : q / (Q2 * Q3); }
HPFEM_DEVICE int point_j(int q) { return REVERSED ? q / Q1 % Q2 : q / Q3 % Q2; }
HPFEM_DEVICE int point_k(int q) { return REVERSED ? q / (Q1 * Q2) : q % Q3; }
HPFEM_DEVICE int user_point(int i, int jk) {
  return REVERSED ? (jk % Q3 * Q2 + jk / Q3) * Q1 + i : i * (Q2 * Q3) + jk;
}

// The last direction's table in shared memory is [function][k], padded.
HPFEM_DEVICE void load_tables(Entry *b, Entry *c) {
  const int t = threadIdx.x;
  for (int n = t; n < C_TABLE_SIZE; n += THREADS) {
    const int from = n % LAST_PITCH < LAST_POINTS ? n / LAST_PITCH * LAST_POINTS + n % LAST_PITCH : 0;
    if constexpr (DIM > 2) set(c[n], G3[from], GD3[from]);
    else set(c[n], G2[from], GD2[from]);
  }
  for (int n = t; n < B_TABLE_SIZE; n += THREADS) set(b[n], G2[n], GD2[n]);
}

// Coefficients of the block's elements, coalesced; `between` happens while they are under way.
template <class F> HPFEM_DEVICE void load_modes(const Coefficients &from, int live, real *modes, F &&between) {
  constexpr int items = SPLIT_IN ? N_LEAVES : N_MODES, rounds = (E * items + THREADS - 1) / THREADS;
  const int t = threadIdx.x;
  Coefficients::Asked asked[rounds];
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + t, e = item / items, l = item % items;
    const int m = SPLIT_IN && !LEAVES_ARE_MODES ? LEAF_TO_MODE[l] : l;
    asked[n] = e < live ? from.ask(e * N_MODES, m) : from.none();
  }
  between();
  real v[rounds];
  from.take(asked, v);
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + t, e = item / items, l = item % items;
    if (e < E) modes[e * MODES_PITCH + l] = v[n];
  }
}

HPFEM_DEVICE void load_points(const real *from, int live, real *S) {
  const int t = threadIdx.x;
  constexpr int rounds = (E * POINTS + THREADS - 1) / THREADS;
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + t, e = item / POINTS, q = item % POINTS;
    const int row = point_i(q) * R2 + point_j(q);
    if (e < E) S[row * LS + point_k(q) * E + e] = e < live ? HPFEM_STREAM(from + e * POINTS + q) : real(0);
  }
}

HPFEM_DEVICE void store_points(const real *S, real *to, int live) {
  const int t = threadIdx.x;
  for (int item = t; item < E * POINTS; item += THREADS) {
    const int e = item / POINTS, q = item % POINTS;
    const int row = point_i(q) * R2 + point_j(q);
    if (e < live) HPFEM_STORE(to + e * POINTS + q, S[row * LS + point_k(q) * E + e]);
  }
}

// Modes from leaves of component c.
HPFEM_DEVICE void store_leaves(const real *modes, int c, real *to, int live) {
  const real *const leaves = modes + c * E * MODES_PITCH;
  const int t = threadIdx.x;
  for (int item = t; item < E * N_MODES; item += THREADS) {
    const int e = item / N_MODES, m = item % N_MODES;
    const real *const h = leaves + e * MODES_PITCH;
    Leaf leaf = MODE_LEAVES[m];
    real x = h[leaf.leaf];
    while (!INJECTIVE && leaf.next >= 0) {
      leaf = MORE_LEAVES[leaf.next];
      x += h[leaf.leaf];
    }
    if (e < live) HPFEM_STORE(to + e * N_MODES + result_place(m), x);
  }
}

// Products (REVERSED): the kernel's directions are the user's, last first, so that neighbouring modes in memory belong to
// different lines of the last direction. Threads read and write those lines in the user's arrays: mode r LAST_LINES + s.
constexpr int LAST_COUNT = DIM > 2 ? UNIFORM3_COUNT : UNIFORM2_COUNT, LAST_LINES = N_MODES / LAST_COUNT;
HPFEM_DEVICE constexpr real last_value(int n) { return DIM > 2 ? B3[n] : B2[n]; }
HPFEM_DEVICE constexpr real last_derivative(int n) { return DIM > 2 ? D3[n] : D2[n]; }
HPFEM_DEVICE int last_line(int s) { return (DIM > 2 ? s % N1 * R2 + s / N1 : s * R2) * LS; }

template <class F> HPFEM_DEVICE void load_lines(const Coefficients &from, int live, real *S, F &&between) {
  constexpr int items = LAST_LINES * E, rounds = (items + THREADS - 1) / THREADS;
  Coefficients::Asked asked[rounds][LAST_COUNT];
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + threadIdx.x, e = item / LAST_LINES, s = item % LAST_LINES;
    HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
      asked[n][r] = e < live ? from.ask(e * N_MODES, r * LAST_LINES, s) : from.none();
    }
  }
  between();
  real v[rounds][LAST_COUNT];
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) from.take(asked[n], v[n]);
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + threadIdx.x, e = item / LAST_LINES, s = item % LAST_LINES;
    if (item < items) {
      real *const out = S + last_line(s) + e;
      HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) {
        real x = 0, y = 0;
        HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
          x += last_value(r * LAST_POINTS + k) * v[n][r];
          if constexpr (TREE_IN) y += last_derivative(r * LAST_POINTS + k) * v[n][r];
        }
        out[k * LAST_STEP] = x;
        if constexpr (TREE_IN) out[ARRAY + k * LAST_STEP] = y;
      }
    }
  }
}

HPFEM_DEVICE void store_lines(const real *S, real *to, int live) {
  for (int item = threadIdx.x; item < LAST_LINES * E; item += THREADS) {
    const int e = item / LAST_LINES, s = item % LAST_LINES;
    const real *const in = S + last_line(s) + e;
    real v[LAST_COUNT];
    HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) v[r] = 0;
    HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) {
      const real x = in[k * LAST_STEP];
      real y = 0;
      if constexpr (TREE_OUT) y = in[ARRAY + k * LAST_STEP];
      HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
        v[r] += last_value(r * LAST_POINTS + k) * x;
        if constexpr (TREE_OUT) v[r] += last_derivative(r * LAST_POINTS + k) * y;
      }
    }
    if (e < live) {
      HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
        HPFEM_STORE(to + e * N_MODES + result_place(r * LAST_LINES + s), v[r]);
      }
    }
  }
}
