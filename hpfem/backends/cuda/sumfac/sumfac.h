// One element per thread: all of an element's numbers in registers, for small orders; noncollocated.
//
// Factors are stored by groups of a warp's elements, so that its loads are whole lines. Coefficients come and go through
// shared memory, [thread][mode], and so stay [element][mode] for the user.

constexpr int THREADS = $THREADS; // and elements of a block
constexpr int GROUP = $GROUP;     // elements whose factors are stored side by side
constexpr int PITCH = N_MODES | 1;

extern "C" __global__ void __launch_bounds__(THREADS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const stored_real *__restrict__ factors, const real *__restrict__ points HPFEM_ARGUMENTS HPFEM_Q_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  const int t = threadIdx.x;
  const long long batch = component_number(), first = block_number() * THREADS;
  const int live = n_elements - first < THREADS ? int(n_elements - first) : THREADS;
  const long long element = first + (t < live ? t : live - 1), group = element / GROUP;
  in += batch * SOURCES * HPFEM_IN_SIZE;
  out += batch * SINKS * n_elements * (TO_MODES ? N_MODES : POINTS);
  real *const mine = shared + t * PITCH;

  if constexpr (FROM_MODES) {
    for (int item = t; item < live * N_MODES; item += THREADS) {
      const Coefficients from = HPFEM_COEFFICIENTS(0, first);
      const Coefficients::Asked asked[1] = {from.ask(item)};
      real v[1];
      from.take(asked, v);
      shared[item / N_MODES * PITCH + item % N_MODES] = v[0];
    }
    __syncthreads();
  }
  real c[N_MODES], result[N_MODES];
  HPFEM_UNROLL for (int m = 0; m < N_MODES; m++) {
    c[m] = FROM_MODES ? mine[m] : real(0);
    result[m] = 0;
  }

  each<0, Q3>([&](auto k_) {
    constexpr int k = decltype(k_)::value;
    real f[N_NODES], fz[N_NODES], h[N_NODES], hz[N_NODES];
    each<0, N_NODES>([&](auto s_) {
      constexpr int s = decltype(s_)::value, leaf = first_leaf_of(s), c0 = UNIFORM3 ? 0 : start3(s);
      f[s] = fz[s] = h[s] = hz[s] = 0;
      each<0, count3(s)>([&](auto r_) {
        constexpr int r = decltype(r_)::value;
        f[s] += B3[(c0 + r) * Q3 + k] * c[leaf_to_mode(leaf + r)];
        if constexpr (TREE_IN && DIM > 2) fz[s] += D3[(c0 + r) * Q3 + k] * c[leaf_to_mode(leaf + r)];
      });
    });
    each<0, Q2>([&](auto j_) {
      constexpr int j = decltype(j_)::value, jk = j * Q3 + k;
      real a[3][N1], b[3][N1];
      each<0, N1>([&](auto p_) {
        constexpr int p = decltype(p_)::value;
        HPFEM_UNROLL for (int d = 0; d < 3; d++) a[d][p] = b[d][p] = 0;
        each<0, count2(p)>([&](auto q_) {
          constexpr int q = decltype(q_)::value, s = node2(p) + q, at = (start2(p) + q) * Q2 + j;
          a[0][p] += B2[at] * f[s];
          if constexpr (TREE_IN && DIM > 1) a[1][p] += D2[at] * f[s];
          if constexpr (TREE_IN && DIM > 2) a[2][p] += B2[at] * fz[s];
        });
      });
      Line line;
      line.start(factors, element, jk);
      line.start_map(maps_of(factors, group) + element % GROUP, GROUP, jk);
      const int at_line = jk * GROUP + int(element % GROUP);
      HPFEM_UNROLL for (int i = 0; i < Q1; i++) {
        Factors g = stored_factors(factors, group, i, at_line);
        line.recompute(i, g);
        real u[SOURCES], s[SOURCES][DIM], value[SINKS], flux[SINKS][VECTOR], x[SPACE], extra[N_FIELDS + 1];
        const long long point = element * POINTS + i * (Q2 * Q3) + jk;
        if constexpr (FROM_MODES) {
          u[0] = 0;
          HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[0][d] = 0;
          HPFEM_UNROLL for (int p = 0; p < N1; p++) {
            u[0] += B1[p * Q1 + i] * a[0][p];
            if constexpr (TREE_IN) {
              s[0][0] += D1[p * Q1 + i] * a[0][p];
              HPFEM_UNROLL for (int d = 1; d < DIM; d++) s[0][d] += B1[p * Q1 + i] * a[d][p];
            }
          }
        } else {
          HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) u[c] = in[c * n_elements * POINTS + point];
        }
        if constexpr (USES_POINTS) {
          const real *p = points + ((group * Q1 + i) * SPACE) * (long long)LINES_PADDED + at_line;
          HPFEM_UNROLL for (int d = 0; d < SPACE; d++) x[d] = p[d * LINES_PADDED];
        }
        each<0, N_FIELDS>([&](auto n_) {
          constexpr int n = decltype(n_)::value;
          extra[n] = fields[field_array(n)][field_component(n) * n_elements * POINTS + point];
        });
        at_point(line, g, i, x, extra, parameters, u, s, value, flux);
        if constexpr (TO_MODES) {
          HPFEM_UNROLL for (int p = 0; p < N1; p++) {
            if constexpr (TEST_VALUE) b[0][p] += B1[p * Q1 + i] * value[0];
            if constexpr (TREE_OUT) {
              b[0][p] += D1[p * Q1 + i] * flux[0][0];
              HPFEM_UNROLL for (int d = 1; d < DIM; d++) b[d][p] += B1[p * Q1 + i] * flux[0][d];
            }
          }
        } else if (t < live) out[point] = value[0];
      }
      each<0, N1>([&](auto p_) {
        constexpr int p = decltype(p_)::value;
        each<0, count2(p)>([&](auto q_) {
          constexpr int q = decltype(q_)::value, s = node2(p) + q, at = (start2(p) + q) * Q2 + j;
          h[s] += B2[at] * b[0][p];
          if constexpr (TREE_OUT && DIM > 1) h[s] += D2[at] * b[1][p];
          if constexpr (TREE_OUT && DIM > 2) hz[s] += B2[at] * b[2][p];
        });
      });
    });
    each<0, N_NODES>([&](auto s_) {
      constexpr int s = decltype(s_)::value, leaf = first_leaf_of(s), c0 = UNIFORM3 ? 0 : start3(s);
      each<0, count3(s)>([&](auto r_) {
        constexpr int r = decltype(r_)::value;
        result[leaf_to_mode(leaf + r)] += B3[(c0 + r) * Q3 + k] * h[s];
        if constexpr (TREE_OUT && DIM > 2) result[leaf_to_mode(leaf + r)] += D3[(c0 + r) * Q3 + k] * hz[s];
      });
    });
  });

  if constexpr (TO_MODES) {
    if constexpr (FROM_MODES) __syncthreads();
    HPFEM_UNROLL for (int m = 0; m < N_MODES; m++) mine[result_place(m)] = result[m];
    __syncthreads();
    for (int item = t; item < live * N_MODES; item += THREADS) {
      HPFEM_STORE(out + first * N_MODES + item, shared[item / N_MODES * PITCH + item % N_MODES]);
    }
  }
}
