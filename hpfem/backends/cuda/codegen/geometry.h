// Geometric factors on a line of points along the first direction, and what they do there.
//
// Stored:  factors[group][i][factor][line], line = (j Q3 + k) E + e padded to LINES_PADDED; one set of numbers a point.
// Affine:  factors[element][factor] in xi, one set an element; the collapse K[a][b] = d eta_a / d xi_b is a product of
//          1-D functions, KX[n][i] KYZ[n][j Q3 + k] for its n-th entry that is not constantly 0 or 1.
// A set is: the symmetric metric, or the inverse Jacobian [a][x], or nothing (FLUX_KIND); then w|J|.

// The factors of one point, as loaded.
struct Factors {
  real g[larger(N_FACTORS, 1)];
};

HPFEM_DEVICE Factors stored_factors(const real *__restrict__ factors, long long group, int i, int line) {
  Factors f;
  if constexpr (N_FACTORS > 0 && !AFFINE) {
    const real *p = factors + ((group * Q1 + i) * N_FACTORS) * (long long)LINES_PADDED + line;
    HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) f.g[c] = HPFEM_STREAM(p + c * LINES_PADDED);
  }
  return f;
}

// The factors' direction of a kernel's one (REVERSED: last first).
HPFEM_DEVICE constexpr int direction(int a) { return REVERSED ? DIM - 1 - a : a; }
HPFEM_DEVICE constexpr int symmetric(int one, int other) {
  const int a = direction(one), b = direction(other), low = a < b ? a : b, high = a < b ? b : a;
  return low * DIM - low * (low - 1) / 2 + high - low;
}

// The metric of a point times a vector.
HPFEM_DEVICE void times_metric(const real *g, real (&f)[VECTOR]) {
  real r[DIM];
  HPFEM_UNROLL for (int a = 0; a < DIM; a++) {
    r[a] = g[symmetric(a, 0)] * f[0];
    HPFEM_UNROLL for (int b = 1; b < DIM; b++) r[a] += g[symmetric(a, b)] * f[b];
  }
  HPFEM_UNROLL for (int a = 0; a < DIM; a++) f[a] = r[a];
}

// Derivatives by reference coordinates to derivatives by x.
HPFEM_DEVICE void to_physical(const real *g, const real (&s)[DIM], real (&du)[SPACE]) {
  HPFEM_UNROLL for (int x = 0; x < SPACE; x++) {
    du[x] = g[direction(0) * SPACE + x] * s[0];
    HPFEM_UNROLL for (int a = 1; a < DIM; a++) du[x] += g[direction(a) * SPACE + x] * s[a];
  }
}

// A flux in x to what multiplies derivatives by reference coordinates.
HPFEM_DEVICE void to_reference(const real *g, real weight, real (&f)[VECTOR]) {
  real r[DIM];
  HPFEM_UNROLL for (int x = 0; x < SPACE; x++) f[x] *= weight;
  HPFEM_UNROLL for (int a = 0; a < DIM; a++) {
    r[a] = g[direction(a) * SPACE] * f[0];
    HPFEM_UNROLL for (int x = 1; x < SPACE; x++) r[a] += g[direction(a) * SPACE + x] * f[x];
  }
  HPFEM_UNROLL for (int a = 0; a < DIM; a++) f[a] = r[a];
}

// The geometry of a line.
struct Line {
  real g[larger(N_FACTORS, 1)]; // affine: the element's factors, weights of the other directions in
  real kyz[larger(N_COLLAPSE, 1)];

  HPFEM_DEVICE void start(const real *__restrict__ factors, long long element, int jk) {
    if constexpr (AFFINE && N_FACTORS > 0) {
      HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) g[c] = factors[element * N_FACTORS + c];
      const real w = W23[jk];
      if constexpr (FLUX_KIND == 1) { HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) g[c] *= w; }
      else g[N_FACTORS - 1] *= w;
      if constexpr (FLUX_KIND > 0) {
        HPFEM_UNROLL for (int n = 0; n < N_COLLAPSE; n++) kyz[n] = KYZ[n * (Q2 * Q3) + jk];
      }
    }
  }
  HPFEM_DEVICE real collapse(int n, int i) const { return kyz[n] * KX[n * Q1 + i]; }

  // K^T s: derivatives by eta to derivatives by xi.
  template <int M> HPFEM_DEVICE void to_xi(int i, real (&s)[M]) const {
    real r[DIM];
    HPFEM_UNROLL for (int b = 0; b < DIM; b++) r[b] = k_one(b) ? s[b] : real(0);
    HPFEM_UNROLL for (int n = 0; n < N_COLLAPSE; n++) r[k_column(n)] += collapse(n, i) * s[k_row(n)];
    HPFEM_UNROLL for (int b = 0; b < DIM; b++) s[b] = r[b];
  }
  // K f: the transpose.
  template <int M> HPFEM_DEVICE void to_eta(int i, real (&f)[M]) const {
    real r[DIM];
    HPFEM_UNROLL for (int a = 0; a < DIM; a++) r[a] = k_one(a) ? f[a] : real(0);
    HPFEM_UNROLL for (int n = 0; n < N_COLLAPSE; n++) r[k_row(n)] += collapse(n, i) * f[k_column(n)];
    HPFEM_UNROLL for (int a = 0; a < DIM; a++) f[a] = r[a];
  }
  HPFEM_DEVICE real weight(const Factors &f, int i) const {
    if constexpr (AFFINE) return g[N_FACTORS - 1] * W1[i];
    else return f.g[N_FACTORS - 1];
  }
  // Derivatives by x of one component.
  HPFEM_DEVICE void gradient(const Factors &f, int i, const real (&s)[DIM], real (&du)[SPACE]) const {
    if constexpr (AFFINE) {
      real r[DIM];
      HPFEM_UNROLL for (int a = 0; a < DIM; a++) r[a] = s[a];
      to_xi(i, r);
      to_physical(g, r, du);
    } else to_physical(f.g, s, du);
  }
  // A flux, in x or a combination of derivatives (FLUX_KIND 1), to what multiplies those of the test function; in place.
  HPFEM_DEVICE void pull_back(const Factors &f, int i, real (&v)[VECTOR]) const {
    if constexpr (FLUX_KIND == 1) {
      if constexpr (AFFINE) {
        HPFEM_UNROLL for (int a = 0; a < DIM; a++) v[a] *= W1[i];
        to_xi(i, v);
        times_metric(g, v);
        to_eta(i, v);
      } else times_metric(f.g, v);
    } else if constexpr (FLUX_KIND == 2) {
      if constexpr (AFFINE) {
        to_reference(g, weight(f, i), v);
        to_eta(i, v);
      } else to_reference(f.g, f.g[N_FACTORS - 1], v);
    }
  }
};
