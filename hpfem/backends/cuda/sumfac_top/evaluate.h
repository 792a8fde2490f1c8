// Evaluation: coefficients along the last direction, then along the second; collocated derivatives.

// Z and Y of row p on one lane: -> S rows (p, j) of one array, or of DIM arrays with derivatives.
template <int p> HPFEM_DEVICE void evaluate_row(const Tables &t, const real *modes, int k, real *S) {
  constexpr int L = count2(p), first = node2(p), f0 = start2(p);
  real f[L], fz[L];
  each<0, L>([&](auto q_) {
    constexpr int q = decltype(q_)::value, s = first + q;
    if constexpr (TRIVIAL3) f[q] = modes[leaf_to_mode(first_leaf_of(s))];
    else if constexpr (REVERSED || SPLIT_IN) {
      f[q] = S[(p * R2 + q) * LS];
      if constexpr (TREE_IN) fz[q] = S[ARRAY + (p * R2 + q) * LS];
    } else {
      constexpr int leaf = first_leaf_of(s), c0 = start3(s);
      real x = 0, y = 0;
      each<0, count3(s)>([&](auto r_) {
        constexpr int r = decltype(r_)::value;
        const real v = modes[leaf_to_mode(leaf + r)];
        const Entry c = t.c[(c0 + r) * LAST_PITCH + k];
        x += value_of(c) * v;
        if constexpr (TREE_IN) y += derivative_of(c) * v;
      });
      f[q] = x;
      fz[q] = y;
    }
  });
  each<0, Q2>([&](auto j_) {
    constexpr int j = decltype(j_)::value;
    real a = 0, b = 0, c = 0;
    each<0, L>([&](auto q_) {
      constexpr int q = decltype(q_)::value;
      const Pair w = table2<(f0 + q) * Q2 + j>(t);
      a += w.v * f[q];
      if constexpr (TREE_IN && DIM > 1) b += w.d * f[q];
      if constexpr (TREE_IN && DIM > 2) c += w.v * fz[q];
    });
    S[(p * R2 + j) * LS] = a;
    if constexpr (TREE_IN && DIM > 1) S[ARRAY + (p * R2 + j) * LS] = b;
    if constexpr (TREE_IN && DIM > 2) S[2 * ARRAY + (p * R2 + j) * LS] = c;
  });
}

// Rows of all functions p, of one component.
HPFEM_DEVICE void evaluate_rows(const Tables &tables, const real *modes, real *S) {
  constexpr bool lines = REVERSED || SPLIT_IN || TRIVIAL3;
  if constexpr (UNIFORM2 && (lines || GRID)) {
    alike_rows([&](int p, int l) {
      if constexpr (TRIVIAL3 && !LEAVES_ARE_MODES) {
        each<0, N1>([&](auto p_) {
          if (p == decltype(p_)::value) evaluate_row<decltype(p_)::value>(tables, modes + l * MODES_PITCH, 0, S + l);
        });
      } else {
        const int first = p * UNIFORM2_COUNT * (lines ? 1 : UNIFORM3_COUNT);
        evaluate_row<0>(tables, modes + l % E * MODES_PITCH + first, l / E, S + p * STEP + l);
      }
    });
  } else {
    rows([&](auto p, int l) {
      evaluate_row<decltype(p)::value>(tables, modes + l % E * MODES_PITCH, l / E, S + l);
    });
  }
}

// Lines of the last direction, as a phase of its own.
HPFEM_DEVICE void evaluate_lines(const Tables &t, const real *modes, real *S) {
  for (int item = threadIdx.x; item < N_LAST * E_STEP; item += THREADS) {
    const int e = item % E_STEP;
    const Node node = NODES[item / E_STEP];
    const real *const m = modes + e * MODES_PITCH + node.leaf;
    real *const out = S + node.row * LS + e, x[TOGETHER][LAST_POINTS], y[TOGETHER][LAST_POINTS];
    HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++)
      HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) x[n][k] = y[n][k] = 0;
    for (int r = 0; r < node.count; r++) {
      real v[TOGETHER];
      HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) v[n] = m[n * E_STEP * MODES_PITCH + r];
      entries(t.c + (node.function + r) * LAST_PITCH, [&](int k, Entry c) {
        HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) {
          x[n][k] += value_of(c) * v[n];
          if constexpr (TREE_IN) y[n][k] += derivative_of(c) * v[n];
        }
      });
    }
    HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) {
      HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) {
        out[n * E_STEP + k * LAST_STEP] = x[n][k];
        if constexpr (TREE_IN) out[ARRAY + n * E_STEP + k * LAST_STEP] = y[n][k];
      }
    }
  }
}

// Collocated derivatives along y and z of the values in array 0 -> arrays 1 and 2; or, transposed, in place.
template <bool transposed> HPFEM_DEVICE void differentiate_lines(real *S) {
  constexpr int ny = DIM > 1 ? rounded_up(Q1 * LANES, 32) : 0, nz = DIM > 2 ? Q1 * Q2 * E : 0;
  for (int item = threadIdx.x; item < ny + nz; item += THREADS) {
    if (item < ny) {
      if (item < Q1 * LANES) {
        const int i = item / LANES, lane = item % LANES;
        const real *in = S + (transposed ? ARRAY : 0) + i * R2 * LS + lane;
        real *out = S + ARRAY + i * R2 * LS + lane, v[Q2];
        HPFEM_UNROLL for (int j = 0; j < Q2; j++) v[j] = in[j * LS];
        HPFEM_UNROLL for (int j = 0; j < Q2; j++) {
          real x = 0;
          HPFEM_UNROLL for (int m = 0; m < Q2; m++) x += C2[transposed ? m * Q2 + j : j * Q2 + m] * v[m];
          out[j * LS] = x;
        }
      }
    } else if constexpr (DIM > 2) {
      const int e = (item - ny) % E, ij = (item - ny) / E, at = (ij / Q2 * R2 + ij % Q2) * LS + e;
      const real *in = S + (transposed ? 2 * ARRAY : 0) + at;
      real *out = S + 2 * ARRAY + at, v[Q3];
      HPFEM_UNROLL for (int k = 0; k < Q3; k++) v[k] = in[k * E];
      HPFEM_UNROLL for (int k = 0; k < Q3; k++) {
        real x = 0;
        HPFEM_UNROLL for (int m = 0; m < Q3; m++) x += C3[transposed ? m * Q3 + k : k * Q3 + m] * v[m];
        out[k * E] = x;
      }
    }
  }
}

// Coupled components have too many numbers for registers: what their gradients alone need of a line, and fluxes along it,
// are in array 0 while points are gone through, so that derivatives along the line are made before and after that.
constexpr bool AWAY_IN = LINES_AWAY && LINES_IN && FROM_MODES && !TRIAL_VALUE;
constexpr bool AWAY_OUT = LINES_AWAY && LINES_OUT && !TEST_VALUE;
template <bool transposed> HPFEM_DEVICE void differentiate_line(real *o) {
  real v[Q1];
  HPFEM_UNROLL for (int i = 0; i < Q1; i++) v[i] = o[i * STEP];
  HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
    real x = 0;
    HPFEM_UNROLL for (int m = 0; m < Q1; m++) x += C1[transposed ? m * Q1 + i : i * Q1 + m] * v[m];
    o[i * STEP] = x;
  }
}

// Value at point i.
HPFEM_DEVICE real value_at(int i, const real (&coefficients)[N1]) {
  real x = 0;
  HPFEM_UNROLL for (int p = 0; p < N1; p++) x += B1[p * Q1 + i] * coefficients[p];
  return x;
}

// Value and derivatives at point i; collocated derivatives along the first direction alone.
HPFEM_DEVICE void evaluate(const Given &a, int i, real &u, real (&s)[DIM]) {
  u = COLLOCATED ? a[0][i] : real(0);
  HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[d] = 0;
  if constexpr (COLLOCATED) {
    if constexpr (LINES_IN) { HPFEM_UNROLL for (int m = 0; m < Q1; m++) s[0] += C1[i * Q1 + m] * a[0][m]; }
  } else {
    HPFEM_UNROLL for (int p = 0; p < N1; p++) {
      u += B1[p * Q1 + i] * a[0][p];
      if constexpr (TREE_IN) {
        s[0] += D1[p * Q1 + i] * a[0][p];
        HPFEM_UNROLL for (int d = 1; d < DIM; d++) s[d] += B1[p * Q1 + i] * a[TREE_IN ? d : 0][p];
      }
    }
  }
}
