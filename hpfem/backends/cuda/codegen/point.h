// The pointwise part of StdMat: one thread per point, between two dense products.
//
// work[component][element][K][point], K = 0 the value, then the slopes by eta; K_SLOTS = 1 where there are no slopes.
// Stage 4 works in place; stages 1 and 3 read `in` ([component][element][point]), stage 2 writes `out`.

extern "C" __global__ void __launch_bounds__(THREADS)
    HPFEM_KERNEL(const long long n_elements, const long long first, const long long chunk, const real *__restrict__ in,
                 real *__restrict__ out, real *work, const real *__restrict__ factors,
                 const real *__restrict__ points HPFEM_ARGUMENTS) {
  constexpr int POINTS = Q1 * Q2 * Q3;
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  const long long item = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (item >= chunk * POINTS) return;
  const long long local = item / POINTS, element = first + local;
  const int q = int(item % POINTS), i = q / (Q2 * Q3), jk = q % (Q2 * Q3);
  const Factors f = stored_factors(factors, element, i, jk);
  Line line;
  line.start(factors, element, jk);
  const auto slot = [&](int c, int k) -> real & { return work[((c * chunk + local) * K_SLOTS + k) * POINTS + q]; };

  if constexpr (STAGE == 1) {
    slot(0, 0) = in[element * POINTS + q] * line.weight(f, i);
  } else if constexpr (STAGE == 2) {
    real s[DIM], du[SPACE];
    HPFEM_UNROLL for (int a = 0; a < DIM; a++) s[a] = slot(0, 1 + a);
    line.gradient(f, i, s, du);
    HPFEM_UNROLL for (int x = 0; x < SPACE; x++) out[(x * n_elements + element) * POINTS + q] = du[x];
  } else if constexpr (STAGE == 3) {
    real v[VECTOR];
    HPFEM_UNROLL for (int x = 0; x < SPACE; x++) v[x] = in[(x * n_elements + element) * POINTS + q];
    line.pull_back(f, i, v);
    slot(0, 0) = 0;
    HPFEM_UNROLL for (int a = 0; a < DIM; a++) slot(0, 1 + a) = v[a];
  } else if constexpr (STAGE == 4) {
    real u[COMPONENTS], s[COMPONENTS][DIM], value[COMPONENTS], flux[COMPONENTS][VECTOR], x[SPACE], extra[N_FIELDS + 1];
    if constexpr (USES_POINTS) {
      const real *p = points + ((element * Q1 + i) * SPACE) * (long long)LINES_PADDED + jk;
      HPFEM_UNROLL for (int c = 0; c < SPACE; c++) x[c] = p[c * LINES_PADDED];
    }
    each<0, N_FIELDS>([&](auto n_) {
      constexpr int n = decltype(n_)::value;
      extra[n] = fields[field_array(n)][(field_component(n) * n_elements + element) * POINTS + q];
    });
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      u[c] = slot(c, 0);
      HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[c][d] = K_SLOTS > 1 ? slot(c, 1 + d) : real(0);
    }
    weak_point(line, f, i, x, extra, parameters, u, s, value, flux);
    HPFEM_UNROLL for (int c = 0; c < COMPONENTS; c++) {
      slot(c, 0) = TEST_VALUE ? value[c] : real(0);
      if constexpr (K_SLOTS > 1) {
        HPFEM_UNROLL for (int d = 0; d < DIM; d++) slot(c, 1 + d) = TEST_GRADIENT ? flux[c][d] : real(0);
      }
    }
  }
}
