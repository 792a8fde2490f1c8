// What a warp has in shared memory, and how it gets there and back.

struct Transfer {
  // References here and in Matrices: with copies the compiler addresses shared memory in another way.
  // Of the block: where modes are among coefficients and results.
  short *const &places, *const &result_places;
  // Of the warp: coefficients, results, factors times the form's coefficient, factors as they come.
  real *const &given, *const &result, *const &scaled, *const &raw;
  const int lane;
  const int mode = lane % MODE_LANES, mode_element = lane / MODE_LANES;
  const int factor = lane % FACTOR_LANES, factor_element = lane / FACTOR_LANES;
  const int factor_at = factor_element * N_FACTORS + factor;

  HPFEM_DEVICE void start() const {
    for (int m = threadIdx.x; m < N_MODES; m += THREADS) {
      const int p = PLACE[m];
      places[m] = p / 8 * (2 * PITCH) + p % 2 * PITCH + p % 8 / 2 * 2;
      result_places[result_place(m)] = p / 8 * PITCH + p % 8;
    }
  }
  // Places of no mode must be finite, as they are multiplied by zeros.
  HPFEM_DEVICE void clear() const {
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
      for (int i = lane; i < 2 * PITCH; i += 32) given[m * SIXTEEN + (K_TILES - 1) * (2 * PITCH) + i] = 0;
    }
  }
  // Asks for a group's coefficients and factors. All groups but the last are whole, and need no comparisons.
  HPFEM_DEVICE void request(const real *in, const real *factors, long long group, int live) const {
    const auto request = [&](auto whole_) {
      constexpr bool whole = decltype(whole_)::value;
      const real *const u = in + group * (WARP_ELEMENTS * N_MODES) + mode_element * N_MODES + mode;
      HPFEM_ROLLED for (int n = 0; n < N_MODES; n += MODE_LANES) {
        if (n + mode < N_MODES) {
          real *const to = given + mode_element * 8 + places[n + mode];
          const real *const from = u + n;
          HPFEM_UNROLL for (int e = 0; e < WARP_ELEMENTS; e += MODES_AT_ONCE) {
            if (whole || e + mode_element < live) {
              HPFEM_COPY(to + e / 16 * SIXTEEN + e % 8 * 8 + e / 8 % 2, from + e * N_MODES, 8);
            }
          }
        }
      }
      const real *const f = factors + group * (WARP_ELEMENTS * N_FACTORS) + factor_at;
      if (factor < N_FACTORS) {
        HPFEM_UNROLL for (int e = 0; e < WARP_ELEMENTS; e += FACTORS_AT_ONCE) {
          const bool there = whole ? e + FACTORS_AT_ONCE <= WARP_ELEMENTS || e + factor_element < WARP_ELEMENTS
                                   : e + factor_element < live;
          if (there) HPFEM_COPY(raw + factor_at + e * N_FACTORS, f + e * N_FACTORS, 8);
        }
      }
      HPFEM_COPY_COMMIT();
    };
    if (live == WARP_ELEMENTS) request(Int<1>{});
    else request(Int<0>{});
  }
  // Multiplies the factors by the form's coefficient.
  HPFEM_DEVICE void scale(real coefficient) const {
    if (factor < N_FACTORS) {
      HPFEM_UNROLL for (int e = 0; e < WARP_ELEMENTS; e += FACTORS_AT_ONCE) {
        if (e + FACTORS_AT_ONCE <= WARP_ELEMENTS || e + factor_element < WARP_ELEMENTS) {
          scaled[factor_at + e * N_FACTORS] = raw[factor_at + e * N_FACTORS] * coefficient;
        }
      }
    }
  }
  HPFEM_DEVICE Values load(int m, int k) const {
    const real *const at = given + m * SIXTEEN + k * (2 * PITCH) + 2 * lane;
    return {*reinterpret_cast<const Two *>(at), *reinterpret_cast<const Two *>(at + PITCH)};
  }
  // Writes the results of the h-th eight of a group's elements; `to` is the lane's first one of the group.
  HPFEM_DEVICE void store(real *to, int h, int live) const {
    const auto store = [&](auto whole) {
      HPFEM_ROLLED for (int n = 0; n < N_MODES; n += MODE_LANES) {
        if (n + mode < N_MODES) {
          const real *const from = result + mode_element * 8 + result_places[n + mode];
          real *const at = to + 8 * h * N_MODES + n;
          HPFEM_UNROLL for (int e = 0; e < 8; e += MODES_AT_ONCE) {
            if (decltype(whole)::value || 8 * h + e + mode_element < live) HPFEM_STORE(at + e * N_MODES, from[e * 8]);
          }
        }
      }
    };
    if (live == WARP_ELEMENTS) store(Int<1>{});
    else store(Int<0>{});
  }
};
