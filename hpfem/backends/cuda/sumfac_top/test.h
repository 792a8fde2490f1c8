// Test with the basis: along the second direction, then along the last.

// Y^T of row p on one lane: rows (p, j) -> rows (p, q) of one array, or of two (the second for the derivatives along z); where
// there is no third direction, -> leaves.
template <int p> HPFEM_DEVICE void test_row(const Tables &t, real *S, real *leaves) {
  constexpr int L = count2(p), f0 = start2(p);
  real h[L], hz[L];
  HPFEM_UNROLL for (int q = 0; q < L; q++) h[q] = hz[q] = 0;
  each<0, Q2>([&](auto j_) {
    constexpr int j = decltype(j_)::value;
    const real a = S[(p * R2 + j) * LS];
    real b = 0, c = 0;
    if constexpr (TREE_OUT && DIM > 1) b = S[ARRAY + (p * R2 + j) * LS];
    if constexpr (TREE_OUT && DIM > 2) c = S[2 * ARRAY + (p * R2 + j) * LS];
    each<0, L>([&](auto q_) {
      constexpr int q = decltype(q_)::value;
      const Pair w = table2<(f0 + q) * Q2 + j>(t);
      h[q] += w.v * a;
      if constexpr (TREE_OUT && DIM > 1) h[q] += w.d * b;
      if constexpr (TREE_OUT && DIM > 2) hz[q] += w.v * c;
    });
  });
  HPFEM_UNROLL for (int q = 0; q < L; q++) {
    (TRIVIAL3 ? leaves[node2(p) + q] : S[(p * R2 + q) * LS]) = h[q];
    if constexpr (TREE_OUT && DIM > 2) S[ARRAY + (p * R2 + q) * LS] = hz[q];
  }
}

// Rows of all functions p, of one component.
HPFEM_DEVICE void test_rows(const Tables &tables, real *S, real *leaves) {
  if constexpr (UNIFORM2) {
    alike_rows([&](int p, int l) {
      test_row<0>(tables, S + p * STEP + l, leaves + l * MODES_PITCH + p * UNIFORM2_COUNT);
    });
  } else {
    rows([&](auto p, int l) { test_row<decltype(p)::value>(tables, S + l, leaves + l * MODES_PITCH); });
  }
}

// Lines of the last direction, as a phase of its own.
HPFEM_DEVICE void test_lines(const Tables &t, const real *S, real *modes) {
  for (int item = threadIdx.x; item < N_LAST * E_STEP; item += THREADS) {
    const int e = item % E_STEP;
    const Node node = NODES[item / E_STEP];
    const real *const in = S + node.row * LS + e;
    real *const m = modes + e * MODES_PITCH + node.leaf, x[TOGETHER][LAST_POINTS], y[TOGETHER][LAST_POINTS];
    HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) {
      HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) {
        x[n][k] = in[n * E_STEP + k * LAST_STEP];
        y[n][k] = TREE_OUT ? in[(TREE_OUT ? ARRAY : 0) + n * E_STEP + k * LAST_STEP] : real(0);
      }
    }
    for (int r = 0; r < node.count; r++) {
      real v[TOGETHER], w[TOGETHER];
      HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) v[n] = w[n] = 0;
      entries(t.c + (node.function + r) * LAST_PITCH, [&](int k, Entry c) {
        HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) {
          v[n] += value_of(c) * x[n][k];
          if constexpr (TREE_OUT) w[n] += derivative_of(c) * y[n][k];
        }
      });
      HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) m[n * E_STEP * MODES_PITCH + r] = v[n] + w[n];
    }
  }
}

// Adds what the numbers at point i test.
HPFEM_DEVICE void test(int i, const real &value, const real (&flux)[VECTOR], Result &b) {
  if constexpr (COLLOCATED) {
    if constexpr (LINES_OUT) { HPFEM_UNROLL for (int m = 0; m < Q1; m++) b[0][m] += C1[i * Q1 + m] * flux[0]; }
  } else {
    HPFEM_UNROLL for (int p = 0; p < N1; p++) {
      if constexpr (TEST_VALUE) b[0][p] += B1[p * Q1 + i] * value;
      if constexpr (TREE_OUT) {
        b[0][p] += D1[p * Q1 + i] * flux[0];
        HPFEM_UNROLL for (int d = 1; d < DIM; d++) b[TREE_OUT ? d : 0][p] += B1[p * Q1 + i] * flux[d];
      }
    }
  }
}
