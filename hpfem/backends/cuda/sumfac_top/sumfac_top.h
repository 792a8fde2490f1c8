// Elements per block, 1-D lines in registers: every operator on every shape, driven by the mode tree.
//
// A block takes E elements. Shared arrays are [row][lane] with lane = k E + e fastest and rows LS apart. A row is
//   (p, q) or (p, j):  p R2 + q   on the way through the tree,      (i, j):  i R2 + j   at the points.
// Phases, a barrier between any two:
//   load       coefficients of the block's elements, coalesced, to `modes`
//   Z, Y       leaves -> k -> j. A warp takes a row p, whose ranges are compile-time constants, and fuses Z and Y; or
//              (SPLIT_IN) lines along z are a phase of their own.
//   X          a thread takes the line (j, k, e): p -> i, what happens at the points, i -> p
//   Y^T, Z^T   back; leaves of one mode are summed. Z^T is fused with the stores, or (SPLIT_OUT) a phase of its own.
// Products of segments (REVERSED) need no loading: lines of their last direction come from and go to the user's arrays.
// Collocated: after p -> i two more phases differentiate along y and z, and two more transpose that.

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const stored_real *__restrict__ factors, const real *__restrict__ points HPFEM_ARGUMENTS HPFEM_Q_ARGUMENTS) {
  HPFEM_SHARED(shared);
  real *const S = shared, *const modes = S + TOTAL_ARRAYS * ARRAY;
  Entry *const c_table = reinterpret_cast<Entry *>(modes + MODES_SIZE);
  Entry *const b_table = reinterpret_cast<Entry *>(c_table + C_TABLE_SIZE);
  real *const map = reinterpret_cast<real *>(b_table + B_TABLE_SIZE); // of the block's elements, [number][e]
  const Tables tables{b_table, c_table};
  const int t = threadIdx.x;
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  load_tables(b_table, c_table);

  // The line of this thread in the X phase.
  const bool on = t < LINES;
  const int j = t / LANES, lane = t % LANES, k = lane / E, e = lane % E, jk = j * Q3 + k;
  real *const own = S + j * LS + lane;

  const long long batch = component_number();
  in += batch * SOURCES * HPFEM_IN_SIZE;
  out += batch * SINKS * n_elements * (TO_MODES ? N_MODES : POINTS);

  const long long group = block_number();
  const long long first = group * E;
  const int live = n_elements - first < E ? int(n_elements - first) : E;
  StoredFactors ahead[larger(PREFETCH, 1)];
  Line line;
  if constexpr ((L2_PREFETCH || SCATTERED) && STORED) {
    if (t == 0) HPFEM_PREFETCH_L2(factors + group * SET, int(SET * sizeof(stored_real)));
  }
  if constexpr (RECOMPUTED) {
    const stored_real *const maps = maps_of(factors, group);
    for (int n = t; n < N_MAP * E; n += THREADS) HPFEM_COPY(map + n, maps + n, sizeof(real));
    HPFEM_COPY_COMMIT();
  }
  // Factors are asked for after the coefficients, which are needed first.
  const auto fetch = [&](bool now) {
    if ((STORED || AFFINE) && now && on) {
      HPFEM_UNROLL for (int i = 0; i < PREFETCH; i++) ahead[i] = stored_factors(factors, group, i, t);
      line.start(factors, first + (e < live ? e : live - 1), jk);
    }
  };

  const auto ask_fields = [&](bool now) {
    if (!now) return;
    each<0, N_FIELDS>([&](auto n_) {
      constexpr int n = decltype(n_)::value;
      const real *const from = fields[field_array(n)] + (field_component(n) * n_elements + first) * POINTS;
      if (N_FIELDS > 1 && t == n && reinterpret_cast<unsigned long long>(from) % 16 == 0) {
        HPFEM_PREFETCH_L2(from, live * POINTS * int(sizeof(real)) / 16 * 16);
      }
    });
  };

  // Load.
  if constexpr (FROM_MODES) {
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
      const Coefficients from = HPFEM_COEFFICIENTS(c, first);
      const auto between = [&]() {
        fetch(!LATE && c == 0);
        ask_fields(c == 0);
      };
      if constexpr (REVERSED) load_lines(from, live, S + c * ARRAYS * ARRAY, between);
      else load_modes(from, live, modes + c * E * MODES_PITCH, between);
    }
    if constexpr (REVERSED && DIM == 2 && !LINES_IN) fetch(LATE);
  } else {
    fetch(true);
    ask_fields(true);
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
      load_points(in + (c * n_elements + first) * POINTS, live, S + c * ARRAY);
    }
  }
  if constexpr (RECOMPUTED) HPFEM_COPY_WAIT(0);
  __syncthreads();

  // Z and Y.
  if constexpr (FROM_MODES && (DIM > 2 || !REVERSED)) {
    if constexpr (SPLIT_IN) {
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
        evaluate_lines(tables, modes + c * E * MODES_PITCH, S + c * ARRAYS * ARRAY);
      }
      if constexpr (DIM > 2) __syncthreads();
    }
    if constexpr (DIM > 2 || !SPLIT_IN) { // otherwise the second direction was the last one
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
        evaluate_rows(tables, modes + c * E * MODES_PITCH, S + c * ARRAYS * ARRAY);
      }
    }
    if constexpr (!LINES_IN) fetch(LATE);
    __syncthreads();
  }

  const Surroundings around{points, fields, first + (e < live ? e : live - 1), n_elements, group, t};

  // X: p -> i, what happens at the points, i -> p. Without collocation all in registers; with it, the line's values and
  // what multiplies test values there are kept across the barriers, and derivatives along the others go through S. Accesses to `own` stand here and not in
  // functions, which would be inlined too late for the compiler to simplify its addresses in the same way.
  Given a[SOURCES];
  Result b[SINKS];
  if (on && COLLOCATED && FROM_MODES) {
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
      real given[N1], *const o = own + c * ARRAYS * ARRAY;
      HPFEM_UNROLL for (int p = 0; p < N1; p++) given[p] = o[p * STEP];
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        a[c][0][i] = value_at(i, given);
        if constexpr (LINES_IN) o[i * STEP] = a[c][0][i];
      }
    }
  }
  if constexpr (LINES_IN) {
    if constexpr (FROM_MODES) __syncthreads();
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) differentiate_lines<false>(S + c * ARRAYS * ARRAY);
    if constexpr (FROM_MODES) fetch(LATE);
    __syncthreads();
  }
  if (on) {
    line.start_map(map + (e < live ? e : live - 1), E, jk);
    if constexpr (AWAY_IN) {
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) differentiate_line<false>(own + c * ARRAYS * ARRAY);
    }
    if constexpr (COLLOCATED ? LINES_IN && !FROM_MODES : FROM_MODES) {
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++)
        HPFEM_UNROLL for (int d = 0; d < GIVEN; d++)
          HPFEM_UNROLL for (int n = 0; n < NUMBERS; n++) a[c][d][n] = own[(c * ARRAYS + d) * ARRAY + n * STEP];
    }
    if constexpr (TO_MODES) {
      HPFEM_UNROLL for (int c = 0; c < SINKS; c++)
        HPFEM_UNROLL for (int d = 0; d < RESULTS; d++)
          HPFEM_UNROLL for (int n = 0; n < NUMBERS; n++) b[c][d][n] = 0;
    }
    // Where results at the points are written in between, fields of the next point are asked for.
    real extra[N_FIELDS + 1], next[N_FIELDS + 1];
    if constexpr (!TO_MODES) around.values(user_point(0, jk), next);
    HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
      Factors f = i < PREFETCH ? ahead[i < PREFETCH ? i : 0] : stored_factors(factors, group, i, t);
      line.recompute(i, f);
      real u[SOURCES], s[SOURCES][DIM], value[SINKS], flux[SINKS][VECTOR], x[SPACE];
      around.coordinates(i, x);
      if constexpr (!TO_MODES) {
        HPFEM_UNROLL for (int n = 0; n < N_FIELDS; n++) extra[n] = next[n];
        if (i + 1 < Q1) around.values(user_point(i + 1, jk), next);
      } else around.values(user_point(i, jk), extra);
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
        if constexpr (FROM_MODES || LINES_IN) {
          if constexpr (!AWAY_IN) evaluate(a[c], i, u[c], s[c]);
          if constexpr (LINES_IN) {
            HPFEM_UNROLL for (int d = AWAY_IN ? 0 : 1; d < DIM; d++) s[c][d] = own[(c * ARRAYS + d) * ARRAY + i * STEP];
          }
        } else u[c] = own[c * ARRAY + i * STEP];
      }
      at_point(line, f, i, x, extra, parameters, u, s, value, flux);
      if constexpr (COLLOCATED && TEST_VALUE) { HPFEM_UNROLL for (int c = 0; c < SINKS; c++) b[c][0][i] += value[c]; }
      HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
        if constexpr (TO_MODES) {
          if constexpr (!AWAY_OUT) test(i, value[c], flux[c], b[c]);
          if constexpr (LINES_OUT) {
            HPFEM_UNROLL for (int d = AWAY_OUT ? 0 : 1; d < DIM; d++) own[(c * ARRAYS + d) * ARRAY + i * STEP] = flux[c][d];
          }
        } else if constexpr (!GRID) own[c * ARRAY + i * STEP] = value[c];
        else if (e < live) HPFEM_STORE(out + (c * n_elements + first + e) * POINTS + user_point(i, jk), value[c]);
      }
    }
    if constexpr (!COLLOCATED && TO_MODES) {
      HPFEM_UNROLL for (int c = 0; c < SINKS; c++)
        HPFEM_UNROLL for (int d = 0; d < RESULTS; d++)
          HPFEM_UNROLL for (int n = 0; n < NUMBERS; n++) own[(c * ARRAYS + d) * ARRAY + n * STEP] = b[c][d][n];
    }
  }
  if constexpr (LINES_OUT && DIM > 1) {
    __syncthreads();
    HPFEM_UNROLL for (int c = 0; c < SINKS; c++) differentiate_lines<true>(S + c * ARRAYS * ARRAY);
    __syncthreads();
  }
  if (on && COLLOCATED && TO_MODES) {
    HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
      real result[N1], *const o = own + c * ARRAYS * ARRAY;
      HPFEM_UNROLL for (int p = 0; p < N1; p++) result[p] = 0;
      if constexpr (AWAY_OUT) differentiate_line<true>(o);
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        real x = AWAY_OUT ? o[i * STEP] : b[c][0][i];
        if constexpr (LINES_OUT) { HPFEM_UNROLL for (int d = 1; d < DIM; d++) x += o[d * ARRAY + i * STEP]; }
        HPFEM_UNROLL for (int p = 0; p < N1; p++) result[p] += B1[p * Q1 + i] * x;
      }
      HPFEM_UNROLL for (int p = 0; p < N1; p++) o[p * STEP] = result[p];
    }
  }
  if constexpr (!TO_MODES && GRID) return;
  __syncthreads();

  // Y^T, Z^T and the stores.
  if constexpr (TO_MODES) {
    if constexpr (DIM > 2 || !(REVERSED || SPLIT_OUT)) {
      HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
        test_rows(tables, S + c * ARRAYS * ARRAY, modes + c * E * MODES_PITCH);
      }
      __syncthreads();
    }
    if constexpr (SPLIT_OUT) {
      HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
        test_lines(tables, S + c * ARRAYS * ARRAY, modes + c * E * MODES_PITCH);
      }
      __syncthreads();
    }
  }
  HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
    real *const to = out + (c * n_elements + first) * (TO_MODES ? N_MODES : POINTS);
    if constexpr (!TO_MODES) store_points(S + c * ARRAY, to, live);
    else if constexpr (REVERSED) store_lines(S + c * ARRAYS * ARRAY, to, live);
    else if constexpr (SPLIT_OUT || TRIVIAL3) store_leaves(modes, c, to, live);
    else {
      // Z^T. Four modes (a 32-byte sector) of all elements side by side: stores stay whole, reads of S spread.
      const real *const Sc = S + c * ARRAYS * ARRAY;
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
              if constexpr (TREE_OUT) y += derivative_of(w[kk]) * h[ARRAY + kk * E];
            }
            if (INJECTIVE || leaf.next < 0) break;
            leaf = MORE_LEAVES[leaf.next];
          }
          HPFEM_STORE(to + ee * N_MODES + result_place(m), x + y);
        }
      }
    }
  }
}
