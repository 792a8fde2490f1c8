// Elements per block, 1-D lines in registers: every operator on every shape, driven by the mode tree.
//
// A block takes E elements. Shared arrays are [row][lane] with lane = k E + e fastest and rows LS apart. A row is
//   (p, q) or (p, j):  p R2 + q   on the way through the tree,      (i, j):  i R2 + j   at the points.
// Phases, a barrier between any two:
//   stage      coefficients of the block's elements, coalesced, to `modes`
//   Z, Y       leaves -> k -> j. A warp takes a row p, whose ranges are compile-time constants, and fuses Z and Y; or
//              (SPLIT_IN) lines along z are a phase of their own.
//   X          a thread takes the line (j, k, e): p -> i, pointwise, i -> p
//   Y^T, Z^T   back; leaves of one mode are summed. Z^T is fused with the stores, or (SPLIT_OUT) a phase of its own.
// Products of segments (REVERSED) need no staging: lines of their last direction come from and go to the user's arrays.
// Collocated: after p -> i two more phases differentiate along y and z, and two more transpose that.

constexpr bool FROM_MODES = STAGE == 0 || STAGE == 4;
constexpr bool TO_MODES = STAGE != 0 && STAGE != 2;
constexpr bool SLOPES_IN = STAGE == 2 || (STAGE == 4 && TRIAL_GRADIENT);
constexpr bool SLOPES_OUT = STAGE == 3 || (STAGE == 4 && TEST_GRADIENT);
constexpr bool LINES_IN = SLOPES_IN && COLLOCATED, LINES_OUT = SLOPES_OUT && COLLOCATED;
constexpr bool TREE_IN = SLOPES_IN && !COLLOCATED, TREE_OUT = SLOPES_OUT && !COLLOCATED;
constexpr bool PAIRS = TREE_IN || TREE_OUT;
constexpr int LANES = Q3 * E, LINES = Q2 * LANES;
constexpr int POINTS = Q1 * Q2 * Q3;
constexpr int SOURCES = STAGE == 3 ? SPACE : COMPONENTS; // components that come in together
constexpr int SINKS = STAGE == 2 ? SPACE : COMPONENTS;   // and go out
constexpr int ROW_WARPS = (LANES + 31) / 32;

using Entry = typename Choose<PAIRS, Pair, real>::type;

HPFEM_DEVICE real value_of(real x) { return x; }
HPFEM_DEVICE real value_of(Pair x) { return x.v; }
HPFEM_DEVICE real slope_of(real) { return 0; }
HPFEM_DEVICE real slope_of(Pair x) { return x.d; }
HPFEM_DEVICE void set(real &entry, real v, real) { entry = v; }
HPFEM_DEVICE void set(Pair &entry, real v, real d) { entry = Pair{v, d}; }

// The user's point q = (i Q2 + j) Q3 + k, or with the directions reversed (k Q2 + j) Q1 + i.
HPFEM_DEVICE int point_i(int q) { return REVERSED ? q % Q1 : q / (Q2 * Q3); }
HPFEM_DEVICE int point_j(int q) { return REVERSED ? q / Q1 % Q2 : q / Q3 % Q2; }
HPFEM_DEVICE int point_k(int q) { return REVERSED ? q / (Q1 * Q2) : q % Q3; }
HPFEM_DEVICE int user_point(int i, int jk) {
  return REVERSED ? (jk % Q3 * Q2 + jk / Q3) * Q1 + i : i * (Q2 * Q3) + jk;
}

struct Tables {
  const Entry *b; // [function][j], in shared memory if TABLES2_SHARED
  const Entry *c; // of the last direction, [function][k], in shared memory unless REVERSED
};
template <int index> HPFEM_DEVICE Pair table2(const Tables &t) {
  if constexpr (TABLES2_SHARED) return Pair{value_of(t.b[index]), slope_of(t.b[index])};
  else return Pair{B2[index], PAIRS ? D2[index] : real(0)};
}

// Z and Y of row p on one lane: -> S rows (p, j) of one array, or of DIM arrays with slopes.
template <int p> HPFEM_DEVICE void forward(const Tables &t, const real *modes, int k, real *S) {
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
        if constexpr (TREE_IN) y += slope_of(c) * v;
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

// Y^T of row p on one lane: rows (p, j) -> rows (p, q) of one array, or of two (the second for the slopes along z); where
// there is no third direction, -> leaves.
template <int p> HPFEM_DEVICE void backward(const Tables &t, real *S, real *leaves) {
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

// Calls f(Int<p>{}, lane) for all rows and lanes: a warp keeps to one row, long rows are paired with short ones.
template <class F> HPFEM_DEVICE void rows(F &&f) {
  const int warp = threadIdx.x / 32, inside = threadIdx.x % 32;
  for (int item = warp; item < N1 * ROW_WARPS; item += THREADS / 32) {
    const int at = item / ROW_WARPS, lane = item % ROW_WARPS * 32 + inside;
    const int row = ROW_WARPS > 1 || at < 4 ? at : N1 + 3 - at;
    if (lane < LANES) each<0, N1>([&](auto p) { if (row == decltype(p)::value) f(p, lane); });
  }
}
// The same where all rows are alike: no lane is idle and the row is a run-time number.
template <class F> HPFEM_DEVICE void alike_rows(F &&f) {
  for (int item = threadIdx.x; item < N1 * LANES; item += THREADS) f(item / LANES, item % LANES);
}

// Lines of the last direction: the third one, or the second of two. Their points are LAST_STEP apart in S.
constexpr int LAST_POINTS = DIM > 2 ? Q3 : Q2, LAST_STEP = DIM > 2 ? E : LS;

// Calls f(k, entry) for the entries of a function of the last direction; two at a time from shared memory.
template <class F> HPFEM_DEVICE void entries(const Entry *c, F &&f) {
  if constexpr (PAIRS) {
    HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) f(k, c[k]);
  } else {
    HPFEM_UNROLL for (int k = 0; k + 1 < LAST_POINTS; k += 2) {
      const Pair two = *reinterpret_cast<const Pair *>(c + k);
      f(k, Entry{two.v});
      f(k + 1, Entry{two.d});
    }
    if constexpr (LAST_POINTS % 2) f(LAST_POINTS - 1, c[LAST_POINTS - 1]);
  }
}

// A thread takes the line of TOGETHER elements, E_STEP apart: they share what is read of the table.
constexpr int E_STEP = E / TOGETHER;

HPFEM_DEVICE void last_lines(const Tables &t, const real *modes, real *S) {
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
          if constexpr (TREE_IN) y[n][k] += slope_of(c) * v[n];
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

HPFEM_DEVICE void last_lines_back(const Tables &t, const real *S, real *modes) {
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
          if constexpr (TREE_OUT) w[n] += slope_of(c) * y[n][k];
        }
      });
      HPFEM_UNROLL for (int n = 0; n < TOGETHER; n++) m[n * E_STEP * MODES_PITCH + r] = v[n] + w[n];
    }
  }
}

// Products (REVERSED): the kernel's directions are the user's, last first, so that neighbouring modes in memory belong to
// different lines of the last direction. Threads read and write those lines in the user's arrays: mode r LAST_LINES + s.
constexpr int LAST_COUNT = DIM > 2 ? UNIFORM3_COUNT : UNIFORM2_COUNT, LAST_LINES = N_MODES / LAST_COUNT;
HPFEM_DEVICE constexpr real last_value(int n) { return DIM > 2 ? B3[n] : B2[n]; }
HPFEM_DEVICE constexpr real last_slope(int n) { return DIM > 2 ? D3[n] : D2[n]; }
HPFEM_DEVICE int last_line(int s) { return (DIM > 2 ? s % N1 * R2 + s / N1 : s * R2) * LS; }

template <class F> HPFEM_DEVICE void lines_from_modes(const real *from, int live, real *S, F &&between) {
  constexpr int items = LAST_LINES * E, rounds = (items + THREADS - 1) / THREADS;
  real v[rounds][LAST_COUNT];
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + threadIdx.x, e = item / LAST_LINES, s = item % LAST_LINES;
    HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
      v[n][r] = e < live ? HPFEM_STREAM(from + e * N_MODES + r * LAST_LINES + s) : real(0);
    }
  }
  between();
  HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
    const int item = n * THREADS + threadIdx.x, e = item / LAST_LINES, s = item % LAST_LINES;
    if (item < items) {
      real *const out = S + last_line(s) + e;
      HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) {
        real x = 0, y = 0;
        HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) {
          x += last_value(r * LAST_POINTS + k) * v[n][r];
          if constexpr (TREE_IN) y += last_slope(r * LAST_POINTS + k) * v[n][r];
        }
        out[k * LAST_STEP] = x;
        if constexpr (TREE_IN) out[ARRAY + k * LAST_STEP] = y;
      }
    }
  }
}

HPFEM_DEVICE void lines_to_modes(const real *S, real *to, int live) {
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
        if constexpr (TREE_OUT) v[r] += last_slope(r * LAST_POINTS + k) * y;
      }
    }
    if (e < live) {
      HPFEM_UNROLL for (int r = 0; r < LAST_COUNT; r++) HPFEM_STORE(to + e * N_MODES + r * LAST_LINES + s, v[r]);
    }
  }
}

// Collocated derivatives along y and z of the values in array 0 -> arrays 1 and 2; or, transposed, in place.
template <bool transposed> HPFEM_DEVICE void derivative_lines(real *S) {
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

// What a thread needs at the points of its line beside factors: coordinates and fields.
struct Surroundings {
  const real *points; // [group][i][x][line]
  const real *const *fields;
  long long element, n_elements, group;
  int jk, line;
  HPFEM_DEVICE void at(int i, real (&x)[SPACE], real *f) const {
    if constexpr (USES_POINTS) {
      const real *p = points + ((group * Q1 + i) * SPACE) * (long long)LINES_PADDED + line;
      HPFEM_UNROLL for (int c = 0; c < SPACE; c++) x[c] = p[c * LINES_PADDED];
    }
    each<0, N_FIELDS>([&](auto n_) {
      constexpr int n = decltype(n_)::value;
      f[n] = fields[field_array(n)][(field_component(n) * n_elements + element) * POINTS + user_point(i, jk)];
    });
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const real *__restrict__ factors, const real *__restrict__ points HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  real *const S = shared, *const modes = S + TOTAL_ARRAYS * ARRAY;
  Entry *const c_table = reinterpret_cast<Entry *>(modes + MODES_SIZE);
  Entry *const b_table = reinterpret_cast<Entry *>(c_table + C_TABLE_SIZE);
  const Tables tables{b_table, c_table};
  const int t = threadIdx.x;
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};

  for (int n = t; n < C_TABLE_SIZE; n += THREADS) { // [function][k], padded
    const int from = n % LAST_PITCH < LAST_POINTS ? n / LAST_PITCH * LAST_POINTS + n % LAST_PITCH : 0;
    if constexpr (DIM > 2) set(c_table[n], G3[from], GD3[from]);
    else set(c_table[n], G2[from], GD2[from]);
  }
  for (int n = t; n < B_TABLE_SIZE; n += THREADS) set(b_table[n], G2[n], GD2[n]);

  // The line of this thread in the X phase.
  const bool on = t < LINES;
  const int j = t / LANES, lane = t % LANES, k = lane / E, e = lane % E, jk = j * Q3 + k;
  real *const own = S + j * LS + lane;
  constexpr int step = R2 * LS; // between points of a line

  const long long batch = blockIdx.y;
  in += batch * SOURCES * n_elements * (FROM_MODES ? N_MODES : POINTS);
  out += batch * SINKS * n_elements * (TO_MODES ? N_MODES : POINTS);

  const long long group = blockIdx.x;
  const long long first = group * E;
  const int live = n_elements - first < E ? int(n_elements - first) : E;
  Factors ahead[larger(PREFETCH, 1)];
  Line line;
  if constexpr (L2_PREFETCH && N_FACTORS > 0 && !AFFINE) {
    constexpr int numbers = Q1 * N_FACTORS * LINES_PADDED;
    if (t == 0) HPFEM_PREFETCH_L2(factors + group * (long long)numbers, numbers * int(sizeof(real)));
  }
  // Factors are asked for after the coefficients, which are needed first.
  const auto fetch = [&](bool now) {
    if (STAGE != 0 && now && on) {
      HPFEM_UNROLL for (int i = 0; i < PREFETCH; i++) ahead[i] = stored_factors(factors, group, i, t);
      line.start(factors, first + (e < live ? e : live - 1), jk);
    }
  };

  // Stage.
  if constexpr (FROM_MODES && REVERSED) {
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      lines_from_modes(in + (c * n_elements + first) * N_MODES, live, S + c * ARRAYS * ARRAY,
                       [&]() { fetch(!LATE && c == 0); });
    }
    if constexpr (DIM == 2 && !LINES_IN) fetch(LATE);
  } else if constexpr (FROM_MODES) {
    constexpr int items = SPLIT_IN ? N_LEAVES : N_MODES, rounds = (E * items + THREADS - 1) / THREADS;
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      const real *from = in + (c * n_elements + first) * N_MODES;
      real v[rounds];
      HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
        const int item = n * THREADS + t, ee = item / items, l = item % items;
        const int m = SPLIT_IN && !LEAVES_ARE_MODES ? LEAF_TO_MODE[l] : l;
        v[n] = ee < live ? HPFEM_STREAM(from + ee * N_MODES + m) : real(0);
      }
      if (c == 0) fetch(!LATE);
      HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
        const int item = n * THREADS + t, ee = item / items, l = item % items;
        if (ee < E) modes[(c * E + ee) * MODES_PITCH + l] = v[n];
      }
    }
  } else {
    constexpr int rounds = (E * POINTS + THREADS - 1) / THREADS;
    fetch(!LATE || STAGE != 4);
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
      const real *from = in + (c * n_elements + first) * POINTS;
      HPFEM_UNROLL for (int n = 0; n < rounds; n++) {
        const int item = n * THREADS + t, ee = item / POINTS, q = item % POINTS;
        const int row = point_i(q) * R2 + point_j(q);
        if (ee < E) {
          S[c * ARRAY + row * LS + point_k(q) * E + ee] = ee < live ? HPFEM_STREAM(from + ee * POINTS + q) : real(0);
        }
      }
    }
  }
  __syncthreads();

  // Z and Y.
  if constexpr (FROM_MODES && (DIM > 2 || !REVERSED)) {
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      const real *const m = modes + c * E * MODES_PITCH;
      real *const Sc = S + c * ARRAYS * ARRAY;
      if constexpr (SPLIT_IN) {
        last_lines(tables, m, Sc);
        if (DIM > 2 && c + 1 == COMPONENTS) __syncthreads();
      }
    }
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      const real *const m = modes + c * E * MODES_PITCH;
      real *const Sc = S + c * ARRAYS * ARRAY;
      if constexpr (DIM == 2 && SPLIT_IN) {
        // The second direction was the last one.
      } else if constexpr (UNIFORM2 && (REVERSED || SPLIT_IN || TRIVIAL3)) {
        alike_rows([&](int p, int l) {
          if constexpr (TRIVIAL3 && !LEAVES_ARE_MODES) {
            each<0, N1>([&](auto p_) {
              if (p == decltype(p_)::value) forward<decltype(p_)::value>(tables, m + l * MODES_PITCH, 0, Sc + l);
            });
          } else {
            forward<0>(tables, m + l % E * MODES_PITCH + p * UNIFORM2_COUNT, l / E, Sc + p * step + l);
          }
        });
      } else {
        rows([&](auto p, int l) {
          forward<decltype(p)::value>(tables, m + l % E * MODES_PITCH, l / E, Sc + l);
        });
      }
    }
    if constexpr (!LINES_IN) fetch(LATE);
    __syncthreads();
  }

  const Surroundings around{points, fields, first + (e < live ? e : live - 1), n_elements, group, jk, t};

  // X without collocation: p -> i, pointwise, i -> p, all in registers.
  if constexpr (STAGE == 0) {
    if (on) {
      real a[N1];
      HPFEM_UNROLL for (int p = 0; p < N1; p++) a[p] = own[p * step];
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        real u = 0;
        HPFEM_UNROLL for (int p = 0; p < N1; p++) u += B1[p * Q1 + i] * a[p];
        own[i * step] = u;
      }
    }
  } else if constexpr (STAGE == 1) {
    if (on) {
      real b[N1];
      HPFEM_UNROLL for (int p = 0; p < N1; p++) b[p] = 0;
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        const Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
        const real u = own[i * step] * line.weight(f, i);
        HPFEM_UNROLL for (int p = 0; p < N1; p++) b[p] += B1[p * Q1 + i] * u;
      }
      HPFEM_UNROLL for (int p = 0; p < N1; p++) own[p * step] = b[p];
    }
  } else if constexpr (STAGE == 2) {
    derivative_lines<false>(S);
    __syncthreads();
    if (on) {
      real u[Q1];
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) u[i] = own[i * step];
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        const Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
        real s[DIM], du[SPACE];
        s[0] = 0;
        HPFEM_UNROLL for (int m = 0; m < Q1; m++) s[0] += C1[i * Q1 + m] * u[m];
        HPFEM_UNROLL for (int a = 1; a < DIM; a++) s[a] = own[a * ARRAY + i * step];
        line.gradient(f, i, s, du);
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) own[x * ARRAY + i * step] = du[x];
      }
    }
  } else if constexpr (STAGE == 3 && !COLLOCATED) {
    if (on) {
      real b[DIM][N1];
      HPFEM_UNROLL for (int a = 0; a < DIM; a++) HPFEM_UNROLL for (int p = 0; p < N1; p++) b[a][p] = 0;
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        const Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
        real v[VECTOR];
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) v[x] = own[x * ARRAY + i * step];
        line.pull_back(f, i, v);
        HPFEM_UNROLL for (int p = 0; p < N1; p++) {
          b[0][p] += D1[p * Q1 + i] * v[0];
          HPFEM_UNROLL for (int a = 1; a < DIM; a++) b[a][p] += B1[p * Q1 + i] * v[a];
        }
      }
      HPFEM_UNROLL for (int a = 0; a < DIM; a++)
        HPFEM_UNROLL for (int p = 0; p < N1; p++) own[a * ARRAY + p * step] = b[a][p];
    }
  } else if constexpr (STAGE == 4 && !LINES_IN && !LINES_OUT) {
    if (on) {
      constexpr int ain = TREE_IN ? DIM : 1, aout = TREE_OUT ? DIM : 1;
      real a[COMPONENTS][ain][N1], b[COMPONENTS][aout][N1];
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        HPFEM_UNROLL for (int d = 0; d < ain; d++)
          HPFEM_UNROLL for (int p = 0; p < N1; p++) a[c][d][p] = own[(c * ARRAYS + d) * ARRAY + p * step];
        HPFEM_UNROLL for (int d = 0; d < aout; d++) HPFEM_UNROLL for (int p = 0; p < N1; p++) b[c][d][p] = 0;
      }
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        const Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
        real u[COMPONENTS], s[COMPONENTS][DIM], value[COMPONENTS], flux[COMPONENTS][VECTOR], x[SPACE];
        real extra[N_FIELDS + 1];
        around.at(i, x, extra);
        HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
          u[c] = 0;
          HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[c][d] = 0;
          HPFEM_UNROLL for (int p = 0; p < N1; p++) {
            u[c] += B1[p * Q1 + i] * a[c][0][p];
            if constexpr (TREE_IN) {
              s[c][0] += D1[p * Q1 + i] * a[c][0][p];
              HPFEM_UNROLL for (int d = 1; d < DIM; d++) s[c][d] += B1[p * Q1 + i] * a[c][TREE_IN ? d : 0][p];
            }
          }
        }
        weak_point(line, f, i, x, extra, parameters, u, s, value, flux);
        HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
          HPFEM_UNROLL for (int p = 0; p < N1; p++) {
            if constexpr (TEST_VALUE) b[c][0][p] += B1[p * Q1 + i] * value[c];
            if constexpr (TREE_OUT) {
              b[c][0][p] += D1[p * Q1 + i] * flux[c][0];
              HPFEM_UNROLL for (int d = 1; d < DIM; d++) b[c][TREE_OUT ? d : 0][p] += B1[p * Q1 + i] * flux[c][d];
            }
          }
        }
      }
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++)
        HPFEM_UNROLL for (int d = 0; d < aout; d++)
          HPFEM_UNROLL for (int p = 0; p < N1; p++) own[(c * ARRAYS + d) * ARRAY + p * step] = b[c][d][p];
    }
  } else {
    // X with collocation. u: values of the line; total: what multiplies test values there, across the barriers.
    real u[COMPONENTS][Q1], total[COMPONENTS][Q1];
    if (on && FROM_MODES) {
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        real a[N1], *const o = own + c * ARRAYS * ARRAY;
        HPFEM_UNROLL for (int p = 0; p < N1; p++) a[p] = o[p * step];
        HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
          real x = 0;
          HPFEM_UNROLL for (int p = 0; p < N1; p++) x += B1[p * Q1 + i] * a[p];
          u[c][i] = x;
          if constexpr (LINES_IN) o[i * step] = x;
        }
      }
    }
    if constexpr (LINES_IN) {
      __syncthreads();
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) derivative_lines<false>(S + c * ARRAYS * ARRAY);
      fetch(LATE);
      __syncthreads();
    }
    if (on) {
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) HPFEM_UNROLL for (int i = 0; i < Q1; i++) total[c][i] = 0;
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        const Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
        real flux[COMPONENTS][VECTOR];
        if constexpr (STAGE == 3) {
          HPFEM_UNROLL for (int x = 0; x < SPACE; x++) flux[0][x] = own[x * ARRAY + i * step];
          line.pull_back(f, i, flux[0]);
        } else {
          real at[COMPONENTS], s[COMPONENTS][DIM], value[COMPONENTS], x[SPACE], extra[N_FIELDS + 1];
          around.at(i, x, extra);
          HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
            at[c] = u[c][i];
            HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[c][d] = 0;
            if constexpr (LINES_IN) {
              HPFEM_UNROLL for (int m = 0; m < Q1; m++) s[c][0] += C1[i * Q1 + m] * u[c][m];
              HPFEM_UNROLL for (int d = 1; d < DIM; d++) s[c][d] = own[(c * ARRAYS + d) * ARRAY + i * step];
            }
          }
          weak_point(line, f, i, x, extra, parameters, at, s, value, flux);
          if constexpr (TEST_VALUE) {
            HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) total[c][i] += value[c];
          }
        }
        if constexpr (LINES_OUT) {
          HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
            HPFEM_UNROLL for (int m = 0; m < Q1; m++) total[c][m] += C1[i * Q1 + m] * flux[c][0];
            HPFEM_UNROLL for (int d = 1; d < DIM; d++) own[(c * ARRAYS + d) * ARRAY + i * step] = flux[c][d];
          }
        }
      }
    }
    if constexpr (LINES_OUT && DIM > 1) {
      __syncthreads();
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) derivative_lines<true>(S + c * ARRAYS * ARRAY);
      __syncthreads();
    }
    if (on) {
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        real b[N1], *const o = own + c * ARRAYS * ARRAY;
        HPFEM_UNROLL for (int p = 0; p < N1; p++) b[p] = 0;
        HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
          real x = total[c][i];
          if constexpr (LINES_OUT) { HPFEM_UNROLL for (int d = 1; d < DIM; d++) x += o[d * ARRAY + i * step]; }
          HPFEM_UNROLL for (int p = 0; p < N1; p++) b[p] += B1[p * Q1 + i] * x;
        }
        HPFEM_UNROLL for (int p = 0; p < N1; p++) o[p * step] = b[p];
      }
    }
  }
  __syncthreads();

  if constexpr (TO_MODES) {
    if constexpr (DIM > 2 || !(REVERSED || SPLIT_OUT)) {
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        real *const Sc = S + c * ARRAYS * ARRAY, *const m = modes + c * E * MODES_PITCH;
        if constexpr (UNIFORM2) {
          alike_rows([&](int p, int l) {
            backward<0>(tables, Sc + p * step + l, m + l * MODES_PITCH + p * UNIFORM2_COUNT);
          });
        } else rows([&](auto p, int l) { backward<decltype(p)::value>(tables, Sc + l, m + l * MODES_PITCH); });
      }
      __syncthreads();
    }
    if constexpr (SPLIT_OUT) {
      HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
        last_lines_back(tables, S + c * ARRAYS * ARRAY, modes + c * E * MODES_PITCH);
      }
      __syncthreads();
    }
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      real *const to = out + (c * n_elements + first) * N_MODES;
      const real *const Sc = S + c * ARRAYS * ARRAY, *const m_c = modes + c * E * MODES_PITCH;
      if constexpr (REVERSED) {
        lines_to_modes(Sc, to, live);
      } else if constexpr (SPLIT_OUT || TRIVIAL3) {
        for (int item = t; item < E * N_MODES; item += THREADS) {
          const int ee = item / N_MODES, m = item % N_MODES;
          const real *const h = m_c + ee * MODES_PITCH;
          Leaf leaf = MODE_LEAVES[m];
          real x = h[leaf.leaf];
          while (!INJECTIVE && leaf.next >= 0) {
            leaf = MORE_LEAVES[leaf.next];
            x += h[leaf.leaf];
          }
          if (ee < live) HPFEM_STORE(to + ee * N_MODES + m, x);
        }
      } else {
        // Four modes (a 32-byte sector) of all elements side by side: stores stay whole, reads of S spread.
        for (int item = t; item < E * rounded_up(N_MODES, 4); item += THREADS) {
          const int m = item / (4 * E) * 4 + item % 4, ee = item / 4 % E;
          if (m < N_MODES && ee < live) {
            Leaf leaf = MODE_LEAVES[m];
            real x = 0, y = 0;
            while (true) {
              const real *const h = Sc + leaf.row * LS + ee;
              const Entry *const w = tables.c + leaf.function * LAST_PITCH;
              HPFEM_UNROLL for (int kk = 0; kk < Q3; kk++) {
                x += value_of(w[kk]) * h[kk * E];
                if constexpr (TREE_OUT) y += slope_of(w[kk]) * h[ARRAY + kk * E];
              }
              if (INJECTIVE || leaf.next < 0) break;
              leaf = MORE_LEAVES[leaf.next];
            }
            HPFEM_STORE(to + ee * N_MODES + m, x + y);
          }
        }
      }
    }
  } else {
    HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
      real *const to = out + (c * n_elements + first) * POINTS;
      for (int item = t; item < E * POINTS; item += THREADS) {
        const int ee = item / POINTS, q = item % POINTS;
        const int row = point_i(q) * R2 + point_j(q);
        if (ee < live) HPFEM_STORE(to + ee * POINTS + q, S[c * ARRAY + row * LS + point_k(q) * E + ee]);
      }
    }
  }
}
