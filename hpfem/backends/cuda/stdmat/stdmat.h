// The pointwise part of StdMat: one thread per point, between two dense products.
//
// work[component][element][slot][point]: what the product before evaluated, and what the one behind tests; VALUES (0 or 1)
// values, then derivatives by eta, if N_SLOTS > VALUES. Values at the points come from `in`, results there go to `out`, both
// [component][element][point].

constexpr int THREADS = $THREADS;
constexpr int VALUES = $VALUES, N_SLOTS = $N_SLOTS;

extern "C" __global__ void __launch_bounds__(THREADS)
    HPFEM_KERNEL(const long long n_elements, const long long first, const long long chunk, const real *__restrict__ in,
                 real *__restrict__ out, real *work, const stored_real *__restrict__ factors,
                 const real *__restrict__ points HPFEM_ARGUMENTS) {
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  const long long item = (long long)blockIdx.x * THREADS + threadIdx.x;
  if (item >= chunk * POINTS) return;
  const long long local = item / POINTS, element = first + local;
  const int q = int(item % POINTS), i = q / (Q2 * Q3), jk = q % (Q2 * Q3);
  const Factors f = stored_factors(factors, element, i, jk);
  Line line;
  line.start(factors, element, jk);
  const auto slot = [&](int c, int k) -> real & { return work[((c * chunk + local) * N_SLOTS + k) * POINTS + q]; };

  real u[SOURCES], s[SOURCES][DIM], value[SINKS], flux[SINKS][VECTOR], x[SPACE], extra[N_FIELDS + 1];
  const Surroundings around{points, fields, element, n_elements, element, jk};
  around.coordinates(i, x);
  around.values(q, extra);
  HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) {
    if constexpr (FROM_MODES || TRIAL_GRADIENT) u[c] = VALUES ? slot(c, 0) : real(0);
    else u[c] = in[(c * n_elements + element) * POINTS + q];
    HPFEM_UNROLL for (int d = 0; d < DIM; d++) {
      if constexpr (TRIAL_GRADIENT) s[c][d] = slot(c, VALUES + d);
      else s[c][d] = 0;
    }
  }
  at_point(line, f, i, x, extra, parameters, u, s, value, flux);
  each<0, SINKS>([&](auto c_) {
    constexpr int c = decltype(c_)::value;
    if constexpr (TO_MODES) {
      if constexpr (VALUES) slot(c, 0) = TEST_VALUE ? value[c] : real(0);
      if constexpr (N_SLOTS > VALUES) {
        HPFEM_UNROLL for (int d = 0; d < DIM; d++) slot(c, VALUES + d) = TEST_GRADIENT ? flux[c][d] : real(0);
      }
    } else out[(c * n_elements + element) * POINTS + q] = value[c];
  });
}
