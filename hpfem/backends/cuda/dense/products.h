// Products of a warp's elements with tiles of the matrices. What a lane gets from one, C[g, g + 8][2 t, 2 t + 1], is what
// it gives to the next as A[g, g + 8][t, t + 4] if the summed index is permuted: place 2 t of eight to term t, 2 t + 1 to
// t + 4. So the chain u, D u, G D u, y stays in registers.

// Values of elements g and g + 8 at an even place and at the odd one behind.
struct Values {
  Two even, odd;
};

// Adds the product with a tile unless that is zero; of a `half` tile only the even places count.
HPFEM_DEVICE void add(real (&c)[TILES][4], const Values (&a)[TILES], const Matrices &tiles, int at, bool half) {
  if (at < 0) return;
  const Two b = tiles.tile(at);
  HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
    if (half) {
      HPFEM_MULTIPLY_4(c[m], a[m].even.x, a[m].even.y, b.x);
    } else {
      HPFEM_MULTIPLY_8(c[m], a[m].even.x, a[m].even.y, a[m].odd.x, a[m].odd.y, b.x, b.y);
    }
  }
}

// y = w M u. `u` gives a lane's coefficients of 16 elements and eight modes, `scaled` are factors, `g` is its first element.
template <class U>
HPFEM_DEVICE void mass(real (&y)[K_TILES][TILES][4], const U &u, const Matrices &tiles, const real *scaled, int g) {
  HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
    Values a[TILES];
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) a[m] = u(m, k);
    HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
      add(y[n], a, tiles, MASS_TILE[k * K_TILES + n], K_HALF && k == K_TILES - 1);
    }
  }
  HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
    const real *const q = scaled + (16 * m + g) * N_FACTORS + N_FACTORS - 1;
    const real low = q[0], high = q[8 * N_FACTORS];
    HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
      HPFEM_UNROLL for (int i = 0; i < 4; i++) y[n][m][i] *= i < 2 ? low : high;
    }
  }
}

// D_i u in some eights of rows.
template <int begin, int end, class U>
HPFEM_DEVICE void evaluate(real (&s)[AT_ONCE][DIM][TILES][4], const U &u, const Matrices &tiles) {
  HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
    Values a[TILES];
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) a[m] = u(m, k);
    HPFEM_UNROLL for (int r = begin; r < end; r++) {
      HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
        add(s[r - begin][c], a, tiles, FORWARD_TILE[(r * K_TILES + k) * DIM + c], K_HALF && k == K_TILES - 1);
      }
    }
  }
}

// f_i = sum_j G_ij s_j.
template <int rows>
HPFEM_DEVICE void metric(Values (&f)[AT_ONCE][DIM][TILES], const real (&s)[AT_ONCE][DIM][TILES][4], const real *scaled,
                         int g) {
  HPFEM_UNROLL for (int r = 0; r < rows; r++) {
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
      HPFEM_UNROLL for (int i = 0; i < 4; i++) {
        real v[VECTOR];
        HPFEM_UNROLL for (int c = 0; c < DIM; c++) v[c] = s[r][c][m][i];
        times_metric(scaled + (16 * m + i / 2 * 8 + g) * N_FACTORS, v);
        HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
          Two &to = i % 2 ? f[r][c][m].odd : f[r][c][m].even;
          (i < 2 ? to.x : to.y) = v[c];
        }
      }
    }
  }
}

// Adds to y sum_i D_i^T f_i of some eights of rows.
template <int begin, int end>
HPFEM_DEVICE void test(real (&y)[K_TILES][TILES][4], const Values (&f)[AT_ONCE][DIM][TILES], const Matrices &tiles) {
  HPFEM_UNROLL for (int r = begin; r < end; r++) {
    HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
      HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
        add(y[n], f[r - begin][c], tiles, BACK_TILE[(r * DIM + c) * K_TILES + n], R_HALF && r == R_TILES - 1);
      }
    }
  }
}
