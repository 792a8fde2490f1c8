// Geometric factors on a line of points along the first direction, and what they do there.
//
// Stored:  factors[group][i][factor][line], line = (j Q3 + k) E + e padded to LINES_PADDED; one set of numbers a point.
// Affine:  factors[element][factor] in xi, one set an element; the collapse K[a][b] = d eta_a / d xi_b is a product of
//          1-D functions, KX[n][i] KYZ[n][j Q3 + k] for its n-th entry that is not constantly 0 or 1.
// Recomputed: numbers of an element's map, [group][coefficient][x][e]; the line's Jacobians are KX[r][i] times rows r
//          that are made of them and functions KYZ[n][j Q3 + k]. A set is the adjugate of dx/d eta [a][x], w|J|, 1/|J|.
// Scaled:  stored are w/|J|, which stands in place of 1/|J|, and w|J| if coefficients are in both; the map is behind them.
// A set is otherwise: the symmetric metric, or the inverse Jacobian [a][x], or nothing (FLUX_KIND); then w|J|.

// The factors of one point.
struct Factors {
  real g[larger(N_FACTORS, 1)];
};

// As loaded: a conversion would wait for them.
struct StoredFactors {
  stored_real g[larger(N_FACTORS, 1)];

  HPFEM_DEVICE operator Factors() const {
    Factors f;
    HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) f.g[c] = g[c];
    return f;
  }
};

HPFEM_DEVICE StoredFactors stored_factors(const stored_real *__restrict__ factors, long long group, int i, int line) {
  StoredFactors f;
  const stored_real *p = factors + group * SET + i * (N_READ * LINES_PADDED) + line;
  HPFEM_UNROLL for (int c = 0; c < N_READ; c++) {
    const stored_real *const from = p + c * LINES_PADDED;
    f.g[SCALED ? N_FACTORS - 1 - c : c] = TO_MODES || !HAS_FUNCTION ? HPFEM_STREAM(from) : HPFEM_READ(from);
  }
  return f;
}

// The maps of a group's elements, number by number.
HPFEM_DEVICE const stored_real *maps_of(const stored_real *factors, long long group) {
  return factors + group * SET + Q1 * N_READ * LINES_PADDED;
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
  real rows[larger(MAP_ROWS, 1)][SPACE], wyz; // recomputed; of the reference element, the weights of the other directions

  HPFEM_DEVICE void start(const stored_real *__restrict__ factors, long long element, int jk) {
    if constexpr (AFFINE && N_FACTORS > 0) {
      if constexpr (UNIT) wyz = W23[jk];
      else {
        HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) g[c] = factors[element * N_FACTORS + c];
        const real w = W23[jk];
        if constexpr (FLUX_KIND == 1) { HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) g[c] *= w; }
        else g[N_FACTORS - 1] *= w;
      }
      if constexpr (FLUX_KIND > 0) {
        HPFEM_UNROLL for (int n = 0; n < N_COLLAPSE; n++) kyz[n] = KYZ[n * (Q2 * Q3) + jk];
      }
    }
  }
  // From numbers of an element's map that are `step` apart.
  template <class R> HPFEM_DEVICE void start_map(const R *map, int step, int jk) {
    if constexpr (RECOMPUTED) {
      real function[larger(MAP_ACROSS, 1)];
      HPFEM_UNROLL for (int n = 1; n < MAP_ACROSS; n++) function[n] = KYZ[n * (Q2 * Q3) + jk];
      HPFEM_UNROLL for (int r = 0; r < MAP_ROWS; r++) HPFEM_UNROLL for (int x = 0; x < SPACE; x++) rows[r][x] = 0;
      each<0, MAP_TERMS>([&](auto n_) {
        constexpr int n = decltype(n_)::value;
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) {
          const real c = map[(map_mode(n) * SPACE + x) * step];
          rows[map_row(n)][x] += map_function(n) == 0 ? c : function[map_function(n)] * c;
        }
      });
      wyz = W23[jk];
    }
  }
  // The factors of point i from the map, and what is read of them.
  HPFEM_DEVICE void recompute(int i, Factors &f) const {
    if constexpr (RECOMPUTED) {
      real J[DIM][SPACE];
      each<0, MAP_ROWS>([&](auto r_) {
        constexpr int r = decltype(r_)::value, a = map_direction(r);
        constexpr bool first = r == 0 || map_direction(larger(r - 1, 0)) != a;
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) {
          const real y = map_one(r) ? rows[r][x] : KX[r * Q1 + i] * rows[r][x];
          J[a][x] = first ? y : J[a][x] + y;
        }
      });
      real det = 0;
      HPFEM_UNROLL for (int a = 0; a < DIM; a++) {
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) {
          real &cofactor = f.g[a * SPACE + x];
          if constexpr (DIM == 2) cofactor = x == a ? J[1 - a][1 - x] : -J[1 - a][1 - x];
          else { // cyclic neighbours
            const int b = (a + 1) % 3, c = (a + 2) % 3, y = (x + 1) % 3, z = (x + 2) % 3;
            cofactor = J[b][y] * J[c][z] - J[b][z] * J[c][y];
          }
          if (a == 0) det += J[0][x] * cofactor;
        }
      }
      if constexpr (!SCALED) {
        f.g[N_FACTORS - 2] = wyz * W1[i] * det;
        f.g[N_FACTORS - 1] = hpfem_reciprocal(det);
      } else if constexpr (N_READ == 1) f.g[N_FACTORS - 2] = f.g[N_FACTORS - 1] * det * det;
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
    if constexpr (AFFINE) return (UNIT ? wyz : g[N_FACTORS - 1]) * W1[i];
    else if constexpr (RECOMPUTED) return f.g[N_FACTORS - 2];
    else return f.g[N_FACTORS - 1];
  }
  // Derivatives by x of one component.
  HPFEM_DEVICE void gradient(const Factors &f, int i, const real (&s)[DIM], real (&du)[SPACE]) const {
    if constexpr (AFFINE) {
      real r[DIM];
      HPFEM_UNROLL for (int a = 0; a < DIM; a++) r[a] = s[a];
      to_xi(i, r);
      if constexpr (UNIT) { HPFEM_UNROLL for (int a = 0; a < DIM; a++) du[direction(a)] = r[a]; }
      else to_physical(g, r, du);
    } else to_physical(f.g, s, du);
    if constexpr (RECOMPUTED) { HPFEM_UNROLL for (int x = 0; x < SPACE; x++) du[x] *= f.g[N_FACTORS - 1]; }
  }
  // A flux, in x or a combination of derivatives (FLUX_KIND 1), to what multiplies those of the test function; in place.
  HPFEM_DEVICE void pull_back(const Factors &f, int i, real (&v)[VECTOR]) const {
    if constexpr (FLUX_KIND == 1) {
      if constexpr (AFFINE) {
        HPFEM_UNROLL for (int a = 0; a < DIM; a++) v[a] *= UNIT ? weight(f, i) : W1[i];
        to_xi(i, v);
        if constexpr (!UNIT) times_metric(g, v);
        to_eta(i, v);
      } else if constexpr (RECOMPUTED) { // w|J| J^-1 J^-T, with the adjugate in place of the inverse
        real s[DIM], du[SPACE];
        HPFEM_UNROLL for (int a = 0; a < DIM; a++) s[a] = v[a];
        to_physical(f.g, s, du);
        HPFEM_UNROLL for (int x = 0; x < SPACE; x++) v[x] = du[x];
        to_reference(f.g, SCALED ? f.g[N_FACTORS - 1] : wyz * W1[i] * f.g[N_FACTORS - 1], v);
      } else times_metric(f.g, v);
    } else if constexpr (FLUX_KIND == 2) {
      if constexpr (AFFINE) {
        if constexpr (UNIT) {
          const real w = weight(f, i);
          real r[DIM];
          HPFEM_UNROLL for (int a = 0; a < DIM; a++) r[a] = w * v[direction(a)];
          HPFEM_UNROLL for (int a = 0; a < DIM; a++) v[a] = r[a];
        } else to_reference(g, weight(f, i), v);
        to_eta(i, v);
      } else if constexpr (RECOMPUTED) to_reference(f.g, wyz * W1[i], v);
      else to_reference(f.g, f.g[N_FACTORS - 1], v);
    }
  }
};
