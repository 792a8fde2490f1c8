// What happens at one point, between evaluation and test.

// Coordinates and fields at the points of a line, as far as the pointwise function takes them.
struct Surroundings {
  const real *points; // [group][i][x][line]
  const real *const *fields;
  long long element, n_elements, group;
  int line;

  // At point i of the line.
  HPFEM_DEVICE void coordinates(int i, real (&x)[SPACE]) const {
    if constexpr (USES_POINTS) {
      const real *p = points + ((group * Q1 + i) * SPACE) * (long long)LINES_PADDED + line;
      HPFEM_UNROLL for (int c = 0; c < SPACE; c++) x[c] = p[c * LINES_PADDED];
    }
  }
  // At the user's point q.
  HPFEM_DEVICE void values(int q, real *f) const {
    each<0, N_FIELDS>([&](auto n_) {
      constexpr int n = decltype(n_)::value;
      f[n] = fields[field_array(n)][(field_component(n) * n_elements + element) * POINTS + q];
    });
  }
};

// What happens at one point: values and derivatives in, what multiplies test values and derivatives out; or the result
// at the point, in `value`, where nothing is tested.
HPFEM_DEVICE void at_point(const Line &line, const Factors &f, int i, const real (&x)[SPACE], const real *fields,
                           const real *parameters, const real (&u)[SOURCES], const real (&s)[SOURCES][DIM],
                           real (&value)[SINKS], real (&flux)[SINKS][VECTOR]) {
  if constexpr (HAS_FUNCTION) {
    real du[SOURCES][SPACE];
    if constexpr (FLUX_KIND == 2 && TRIAL_GRADIENT) {
      HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) line.gradient(f, i, s[c], du[c]);
    }
    physics(u, du, s, x, fields, parameters, value, flux);
    const real weight = line.weight(f, i);
    HPFEM_UNROLL for (int c = 0; c < SINKS; c++) {
      if constexpr (TEST_VALUE) value[c] *= weight;
      if constexpr (TEST_GRADIENT) line.pull_back(f, i, flux[c]);
    }
  } else if constexpr (TEST_GRADIENT) {
    HPFEM_UNROLL for (int c = 0; c < SOURCES; c++) flux[0][c] = u[c];
    line.pull_back(f, i, flux[0]);
  } else if constexpr (TRIAL_GRADIENT) {
    real du[SPACE];
    line.gradient(f, i, s[0], du);
    HPFEM_UNROLL for (int c = 0; c < SINKS; c++) value[c] = du[c];
  } else {
    value[0] = TEST_VALUE ? u[0] * line.weight(f, i) : u[0];
  }
}
