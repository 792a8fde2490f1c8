// axhelm of [Cao] on hexes whose nodes are the points: y = (D^T lambda0 G D + lambda1 w|J|) x for COMPONENTS fields, where
// lambda0 = 1 and lambda1 = 0 unless HELMHOLTZ. A block of Q x Q threads takes an element slice by slice (Alg. 2). The
// constants below are the switches. Points are (k, j, i) for (t, s, r), i the fastest.

constexpr int Q = $Q, COMPONENTS = $COMPONENTS;
constexpr bool HELMHOLTZ = $HELMHOLTZ;
// Where G comes from: memory; parallelepipeds (Alg. 4); eight vertices (Alg. 3), there with factors of G in lambda0 and
// lambda1 (Sec. 4.1.1), or with the one that needs a division from memory (Sec. 4.1.2).
enum Geometry { STORED, PARALLELEPIPED, TRILINEAR, MERGED, PARTIAL };
constexpr Geometry GEOMETRY = $GEOMETRY;
constexpr bool TENSOR_CORES = $TENSOR_CORES; // derivatives along r and s of two slices, a warp each (Alg. 5)
constexpr bool CONSTANT = $CONSTANT;         // derivatives along t read D from constant memory
#define LOOP $LOOP // _Pragma("unroll"), or nothing: the compiler decides

constexpr int POINTS = Q * Q * Q, PLANE = Q * Q, SLICES = TENSOR_CORES ? 2 : 1;
constexpr bool VERTICES = GEOMETRY == TRILINEAR || GEOMETRY == MERGED || GEOMETRY == PARTIAL;
// Numbers of an element, one behind the other: of its geometry, then lambda0 and lambda1 at the points.
constexpr int GIVEN = GEOMETRY == STORED           ? (6 + HELMHOLTZ) * POINTS
                      : GEOMETRY == PARALLELEPIPED ? 7
                                                   : 24 + (GEOMETRY == PARTIAL ? POINTS : 0);
constexpr int ELEMENT = GIVEN + 2 * HELMHOLTZ * POINTS;
static_assert(!TENSOR_CORES || Q == 8, "two warps a block, products of 8 x 8");
FILLED_CONSTANT(real constant_tables[PLANE + 2 * Q]) // D, points, weights
#define CONSTANT_D constant_tables
#define CONSTANT_POINTS (constant_tables + PLANE)
#define CONSTANT_WEIGHTS (constant_tables + PLANE + Q)

// scale times the symmetric matrix is lambda0 G of a point, mass is lambda1 w|J|.
struct Factors {
  real rr, rs, rt, ss, st, tt, scale, mass;
};

// What the threads of a column of points know of the geometry: J along t, and J along r and s at t = 0 with its slope, all
// eight times as large.
struct Column {
  const real *given;
  const real *E0, *E1, *F0, *F1; // in shared memory, [Q][3]
  real along_t[3], weight;
};
HPFEM_DEVICE Column column_of(const real *given, real *shared, int j, int i) {
  real *const V = shared, *const E0 = V + 24, *const E1 = E0 + 3 * Q, *const F0 = E1 + 3 * Q, *const F1 = F0 + 3 * Q;
  Column c = {given, E0, E1, F0, F1, {}, CONSTANT_WEIGHTS[i] * CONSTANT_WEIGHTS[j]};
  if (!VERTICES) return c;
  for (int n = j * Q + i; n < 24; n += PLANE) V[n] = given[n];
  __syncthreads();
  const real r = CONSTANT_POINTS[i], s = CONSTANT_POINTS[j], r0 = 1 - r, r1 = 1 + r, s0 = 1 - s, s1 = 1 + s;
  for (int x = j; x < 3; x += Q) { // coordinate x; here r stands for s of E, too
    const real a = r0 * (V[3 + x] - V[x]) + r1 * (V[9 + x] - V[6 + x]);
    const real b = r0 * (V[15 + x] - V[12 + x]) + r1 * (V[21 + x] - V[18 + x]);
    const real d = r0 * (V[6 + x] - V[x]) + r1 * (V[9 + x] - V[3 + x]);
    const real e = r0 * (V[18 + x] - V[12 + x]) + r1 * (V[21 + x] - V[15 + x]);
    E0[3 * i + x] = a + b;
    E1[3 * i + x] = b - a;
    F0[3 * i + x] = d + e;
    F1[3 * i + x] = e - d;
  }
  for (int x = 0; x < 3; x++) {
    c.along_t[x] = r0 * s0 * (V[12 + x] - V[x]) + r1 * s0 * (V[15 + x] - V[3 + x]) +
                   r1 * s1 * (V[21 + x] - V[9 + x]) + r0 * s1 * (V[18 + x] - V[6 + x]);
  }
  return c;
}

HPFEM_DEVICE Factors factors_at(const Column &c, int k, int j, int i) {
  const int point = (k * Q + j) * Q + i;
  Factors f;
  f.scale = 1;
  f.mass = 0;
  if (GEOMETRY == STORED || GEOMETRY == PARALLELEPIPED) {
    constexpr int NEXT = GEOMETRY == STORED ? POINTS : 1;
    const real *const g = c.given + (GEOMETRY == STORED ? point : 0);
    f.tt = g[0], f.st = g[NEXT], f.rt = g[2 * NEXT], f.ss = g[3 * NEXT], f.rs = g[4 * NEXT], f.rr = g[5 * NEXT];
    if (GEOMETRY == PARALLELEPIPED) f.scale = c.weight * CONSTANT_WEIGHTS[k];
    if (HELMHOLTZ) f.mass = f.scale * g[6 * NEXT];
  } else {
    const real t = CONSTANT_POINTS[k];
    real J[3][3]; // J[x] is the derivative of coordinate x along r, s and t
    for (int x = 0; x < 3; x++) {
      J[x][0] = c.E0[3 * j + x] + t * c.E1[3 * j + x];
      J[x][1] = c.F0[3 * i + x] + t * c.F1[3 * i + x];
      J[x][2] = c.along_t[x];
    }
    real K[3][3];
    for (int a = 0; a < 3; a++) {
      for (int b = a; b < 3; b++) K[a][b] = J[0][a] * J[0][b] + J[1][a] * J[1][b] + J[2][a] * J[2][b];
    }
    f.rr = K[1][1] * K[2][2] - K[1][2] * K[1][2];
    f.rs = K[0][2] * K[1][2] - K[0][1] * K[2][2];
    f.rt = K[0][1] * K[1][2] - K[0][2] * K[1][1];
    f.ss = K[0][0] * K[2][2] - K[0][2] * K[0][2];
    f.st = K[0][1] * K[0][2] - K[0][0] * K[1][2];
    f.tt = K[0][0] * K[1][1] - K[0][1] * K[0][1];
    if (GEOMETRY == TRILINEAR) {
      const real determinant = fabs(J[0][0] * (J[1][1] * J[2][2] - J[2][1] * J[1][2]) - // (r, s, t) is left-handed
                                    J[1][0] * (J[0][1] * J[2][2] - J[2][1] * J[0][2]) +
                                    J[2][0] * (J[0][1] * J[1][2] - J[1][1] * J[0][2]));
      const real weight = c.weight * CONSTANT_WEIGHTS[k];
      f.scale = weight / (8 * determinant);
      if (HELMHOLTZ) f.mass = weight * determinant / 512;
    } else if (GEOMETRY == PARTIAL) f.scale = c.given[24 + point];
  }
  if (HELMHOLTZ) {
    const real *const lambda = c.given + GIVEN + point;
    if (GEOMETRY == MERGED) {
      f.scale = lambda[0];
      f.mass = lambda[POINTS];
    } else {
      f.scale *= lambda[0];
      f.mass *= lambda[POINTS];
    }
  }
  return f;
}

// ---- FP64 matrix products of a warp, c += a b, of 8 x 8 with 4 terms: lane 4 g + t holds a[g][t], b[t][g] and
// c[g][2 t], c[g][2 t + 1].

// The four parts of D that lanes hold: D[g][t], D[g][t + 4], which are those of the transpose from the right, too, and
// D[t][g], D[t + 4][g].
struct Fragments {
  int g, t;
  real left, right, upper, lower;
};
HPFEM_DEVICE Fragments fragments_of(const real *D) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  return {g, t, D[g * Q + t], D[g * Q + t + 4], D[t * Q + g], D[(t + 4) * Q + g]};
}

// xr = x D^T and xs = D x of the slice of this warp.
HPFEM_DEVICE void differentiate_on_tensor_cores(const Fragments &d, const real *x, real *xr, real *xs) {
  real cr[2] = {}, cs[2] = {};
  MULTIPLY(cs, d.left, x[d.t * Q + d.g]);
  MULTIPLY(cs, d.right, x[(d.t + 4) * Q + d.g]);
  MULTIPLY(cr, x[d.g * Q + d.t], d.left);
  MULTIPLY(cr, x[d.g * Q + d.t + 4], d.right);
  const int place = d.g * Q + 2 * d.t;
  for (int n = 0; n < 2; n++) xr[place + n] = cr[n], xs[place + n] = cs[n];
}

// sum = gr D + D^T gs of the slice of this warp.
HPFEM_DEVICE void test_on_tensor_cores(const Fragments &d, const real *gr, const real *gs, real *sum) {
  real c[2] = {};
  MULTIPLY(c, gr[d.g * Q + d.t], d.upper);
  MULTIPLY(c, gr[d.g * Q + d.t + 4], d.lower);
  MULTIPLY(c, d.upper, gs[d.t * Q + d.g]);
  MULTIPLY(c, d.lower, gs[(d.t + 4) * Q + d.g]);
  for (int n = 0; n < 2; n++) sum[d.g * Q + 2 * d.t + n] = c[n];
}

extern "C" __global__ void __launch_bounds__(PLANE)
    axhelm(const long long n_elements, const real *x_given, const real *given, const real *D_given, real *y_out) {
  HPFEM_SHARED(memory);
  real *const D = memory, *const x_slice = D + PLANE, *const gr = x_slice + SLICES * PLANE;
  real *const gs = gr + SLICES * PLANE, *const rest = gs + SLICES * PLANE;
  const int here = threadIdx.x, i = here % Q, j = here / Q, slice = TENSOR_CORES ? here / 32 * PLANE : 0;
  const long long element = blockIdx.x;
  x_given += element * POINTS + here;
  y_out += element * POINTS + here;
  D[here] = D_given[here];
  real x[COMPONENTS][Q], y[COMPONENTS][Q];
  LOOP for (int c = 0; c < COMPONENTS; c++) {
    LOOP for (int k = 0; k < Q; k++) {
      x[c][k] = x_given[c * n_elements * POINTS + k * PLANE];
      y[c][k] = 0;
    }
  }
  const Column column = column_of(given + element * ELEMENT, rest, j, i);
  __syncthreads();
  Fragments d;
  if constexpr (TENSOR_CORES) d = fragments_of(D);
  LOOP for (int first = 0; first < Q; first += SLICES) {
    Factors f[SLICES];
    LOOP for (int p = 0; p < SLICES; p++) f[p] = factors_at(column, first + p, j, i);
    LOOP for (int c = 0; c < COMPONENTS; c++) {
      real xr[SLICES] = {}, xs[SLICES] = {}, xt[SLICES] = {}, sum[SLICES] = {};
      LOOP for (int p = 0; p < SLICES; p++) {
        x_slice[p * PLANE + here] = x[c][first + p];
        LOOP for (int m = 0; m < Q; m++) {
          const int entry = (first + p) * Q + m;
          xt[p] += (CONSTANT ? CONSTANT_D[entry] : D[entry]) * x[c][m];
        }
      }
      __syncthreads();
      if constexpr (TENSOR_CORES) {
        differentiate_on_tensor_cores(d, x_slice + slice, gr + slice, gs + slice);
        __syncthreads();
        LOOP for (int p = 0; p < SLICES; p++) {
          xr[p] = gr[p * PLANE + here];
          xs[p] = gs[p * PLANE + here];
        }
      } else {
        LOOP for (int m = 0; m < Q; m++) {
          xr[0] += D[i * Q + m] * x_slice[j * Q + m];
          xs[0] += D[j * Q + m] * x_slice[m * Q + i];
        }
      }
      LOOP for (int p = 0; p < SLICES; p++) {
        const Factors &g = f[p];
        gr[p * PLANE + here] = g.scale * (g.rr * xr[p] + g.rs * xs[p] + g.rt * xt[p]);
        gs[p * PLANE + here] = g.scale * (g.rs * xr[p] + g.ss * xs[p] + g.st * xt[p]);
        const real gt = g.scale * (g.rt * xr[p] + g.st * xs[p] + g.tt * xt[p]);
        LOOP for (int m = 0; m < Q; m++) {
          const int entry = (first + p) * Q + m;
          y[c][m] += (CONSTANT ? CONSTANT_D[entry] : D[entry]) * gt;
        }
      }
      __syncthreads();
      if constexpr (TENSOR_CORES) {
        test_on_tensor_cores(d, gr + slice, gs + slice, x_slice + slice);
        __syncthreads();
        LOOP for (int p = 0; p < SLICES; p++) sum[p] = x_slice[p * PLANE + here];
      } else {
        LOOP for (int m = 0; m < Q; m++) {
          sum[0] += D[m * Q + i] * gr[j * Q + m];
          sum[0] += D[m * Q + j] * gs[m * Q + i];
        }
      }
      LOOP for (int p = 0; p < SLICES; p++) y[c][first + p] += sum[p] + f[p].mass * x[c][first + p];
    }
  }
  LOOP for (int c = 0; c < COMPONENTS; c++) {
    LOOP for (int k = 0; k < Q; k++) y_out[c * n_elements * POINTS + k * PLANE] = y[c][k];
  }
}
