// Affine elements as dense matrices on FP64 tensor cores: y = sum_i D_i^T sum_j G_ij D_j u + w M u.
//
// D_i (ROWS x N_MODES) is the derivative by xi_i in an orthonormal basis of the gradients, G the element's metric times
// the form's coefficient, M the mass matrix, w the element's w|J| times its coefficient. A warp takes TILES times 16
// elements as the rows of the products. What a lane gets from one product, C[g, g + 8][2 t, 2 t + 1], is what it gives to
// the next as A[g, g + 8][t, t + 4] if the summed index is permuted: place 2 t of eight to term t, 2 t + 1 to t + 4. So
// the chain u, D u, G D u, y stays in registers.
//
// `matrices` is a stream of 8 x 8 tiles in the order of their use, [result place][summed place]: M by (summed, result),
// then for every AT_ONCE eights of rows D by (modes, rows, direction) and D^T by (rows, direction, modes). Modes are sorted so that many tiles are
// zero; those are left out: MASS_TILE, FORWARD_TILE and BACK_TILE give a tile's index, or -1. STAGES = 0: all tiles stay
// in shared memory, and warps run on their own. Otherwise CHUNK of them at a time go through a ring of STAGES; the number
// of chunks is a multiple of STAGES, so that every tile is always found at the same address.

constexpr int K_TILES = (N_MODES + 7) / 8, R_TILES = (ROWS + 7) / 8;
// Whether the last eight are at most four, at even places.
constexpr bool K_HALF = N_MODES % 8 >= 1 && N_MODES % 8 <= 4, R_HALF = ROWS % 8 >= 1 && ROWS % 8 <= 4;
constexpr int WARP_ELEMENTS = 16 * TILES, THREADS = 32 * WARPS, STAGES_OR_1 = STAGES > 0 ? STAGES : 1;
// Coefficients of 16 elements in shared memory, [eight modes][odd place][element % 8][place / 2][element / 8], so that a
// lane reads what it multiplies as it multiplies it; results of eight, [eight modes][element][place]. Padded against bank
// conflicts.
constexpr int PITCH = 72, SIXTEEN = K_TILES * 2 * PITCH, EIGHT = K_TILES * PITCH;
constexpr int STREAM = 64 * (STAGES > 0 ? STAGES * CHUNK : N_TILES), PLACES = rounded_up((2 * N_MODES + 3) / 4, 2);
// Lanes that take the modes of an element, or its factors, side by side when they are copied.
constexpr int MODE_LANES = N_MODES <= 8 ? 8 : N_MODES <= 16 ? 16 : 32, MODES_AT_ONCE = 32 / MODE_LANES;
constexpr int FACTOR_LANES = N_FACTORS == 1 ? 1 : N_FACTORS <= 4 ? 4 : 8, FACTORS_AT_ONCE = 32 / FACTOR_LANES;
constexpr int GIVEN = TILES * SIXTEEN, RESULT = KEPT ? EIGHT : 0, FACTORS_SIZE = rounded_up(WARP_ELEMENTS * N_FACTORS, 2);
constexpr int WARP_SIZE = GIVEN + RESULT + (KEPT ? 2 : 1) * FACTORS_SIZE;

struct alignas(16) Two {
  real x, y;
};
// Values of elements g and g + 8 at an even place and at the odd one behind.
struct Values {
  Two even, odd;
};

template <bool half> HPFEM_DEVICE void multiply(real (&c)[4], const Values &a, const Two &b) {
  if constexpr (half) {
    HPFEM_MULTIPLY_4(c, a.even.x, a.even.y, b.x);
  } else {
    HPFEM_MULTIPLY_8(c, a.even.x, a.even.y, a.odd.x, a.odd.y, b.x, b.y);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const real *__restrict__ factors, const real *__restrict__ matrices HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  short *const places = reinterpret_cast<short *>(shared + STREAM), *const result_places = places + N_MODES;
  real *const given = shared + STREAM + PLACES + warp * WARP_SIZE;
  real *const result = KEPT ? given + GIVEN : given;
  real *const scaled = given + GIVEN + RESULT, *const raw = KEPT ? scaled + FACTORS_SIZE : scaled;
  const long long groups = (n_elements + WARP_ELEMENTS - 1) / WARP_ELEMENTS, step = (long long)gridDim.x * WARPS;
  in += blockIdx.y * n_elements * N_MODES;
  out += blockIdx.y * n_elements * N_MODES;

  const int mode = lane % MODE_LANES, mode_element = lane / MODE_LANES;
  const int factor = lane % FACTOR_LANES, factor_element = lane / FACTOR_LANES;
  const int factor_at = factor_element * N_FACTORS + factor;

  // The form's coefficient of the lane's factor: its value or its flux for unit arguments, as it is linear.
  real scale;
  {
    real u[COMPONENTS] = {1}, du[COMPONENTS][SPACE] = {}, s[COMPONENTS][DIM] = {}, x[SPACE] = {};
    real value[COMPONENTS] = {}, flux[COMPONENTS][VECTOR] = {};
    s[0][0] = 1;
    physics(u, du, s, x, nullptr, parameters, value, flux);
    scale = factor == N_FACTORS - 1 ? value[0] : flux[0][0];
  }

  // Tiles in shared memory.
  const Two *const tiles = reinterpret_cast<const Two *>(shared) + lane;
  const auto ask = [&](int chunk) {
    HPFEM_UNROLL for (int n = 0; n < (CHUNK * 32 + THREADS - 1) / THREADS; n++) {
      const int i = n * THREADS + threadIdx.x;
      if (CHUNK * 32 % THREADS == 0 || i < CHUNK * 32) {
        HPFEM_COPY(shared + chunk % STAGES_OR_1 * (CHUNK * 64) + 2 * i, matrices + chunk * (CHUNK * 64) + 2 * i, 16);
      }
    }
    HPFEM_COPY_COMMIT();
  };
  for (int m = threadIdx.x; m < N_MODES; m += THREADS) {
    const int p = PLACE[m];
    places[m] = p / 8 * (2 * PITCH) + p % 2 * PITCH + p % 8 / 2 * 2;
    result_places[m] = p / 8 * PITCH + p % 8;
  }
  if constexpr (STAGES > 0) {
    HPFEM_UNROLL for (int s = 0; s < STAGES - 1; s++) ask(s);
  } else {
    for (int i = threadIdx.x; i < N_TILES * 32; i += THREADS) HPFEM_COPY(shared + 2 * i, matrices + 2 * i, 16);
    HPFEM_COPY_COMMIT();
    HPFEM_COPY_WAIT(0);
  }
  __syncthreads();
  // The lane's part of a tile; every tile is asked for once, in order.
  const auto tile = [&](int n) -> Two {
    if constexpr (STAGES > 0) {
      if (n % CHUNK == 0) {
        // The next chunk is there for all, and all have left the one before: its stage takes another.
        HPFEM_COPY_WAIT(STAGES - 2);
        __syncthreads();
        ask((n / CHUNK + STAGES - 1) % (N_TILES / CHUNK));
      }
      return tiles[(n / CHUNK % STAGES * CHUNK + n % CHUNK) * 32];
    } else return tiles[n * 32];
  };

  const auto live_of = [&](long long group) {
    const long long left = n_elements - group * WARP_ELEMENTS;
    return left < WARP_ELEMENTS ? int(left) : WARP_ELEMENTS;
  };
  // Asks for a warp's coefficients and factors. Groups that are whole, all but the last, need no comparisons.
  const auto request_some = [&](auto whole_, long long group, int live) {
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
  const auto request = [&](long long group) {
    const int live = live_of(group);
    if (live == WARP_ELEMENTS) request_some(Int<1>{}, group, live);
    else request_some(Int<0>{}, group, live);
  };

  // Places of no mode must be finite, as they are multiplied by zeros.
  const auto clear = [&] {
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
      for (int i = lane; i < 2 * PITCH; i += 32) given[m * SIXTEEN + (K_TILES - 1) * (2 * PITCH) + i] = 0;
    }
  };

  clear();
  __syncwarp();
  if constexpr (KEPT) request((long long)blockIdx.x * WARPS + warp);
  for (long long base = (long long)blockIdx.x * WARPS; base < groups; base += step) {
    const long long group = base + warp;
    const int live = live_of(group); // not positive: the warp only keeps up with its block
    if constexpr (!KEPT) request(group);
    HPFEM_COPY_WAIT(0);
    __syncwarp();
    if (factor < N_FACTORS) {
      HPFEM_UNROLL for (int e = 0; e < WARP_ELEMENTS; e += FACTORS_AT_ONCE) {
        if (e + FACTORS_AT_ONCE <= WARP_ELEMENTS || e + factor_element < WARP_ELEMENTS) {
          scaled[factor_at + e * N_FACTORS] = raw[factor_at + e * N_FACTORS] * scale;
        }
      }
    }
    const auto load = [&](int m, int k) -> Values {
      const real *const at = given + m * SIXTEEN + k * (2 * PITCH) + 2 * lane;
      return {*reinterpret_cast<const Two *>(at), *reinterpret_cast<const Two *>(at + PITCH)};
    };
    Values kept[KEPT ? TILES : 1][KEPT ? K_TILES : 1];
    if constexpr (KEPT) {
      HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
        HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) kept[m][k] = load(m, k);
      }
    }
    __syncwarp();
    if constexpr (KEPT) request(group + step);
    const auto coefficients = [&](int m, int k) -> Values {
      if constexpr (KEPT) return kept[m][k];
      else return load(m, k);
    };

    real y[TILES][K_TILES][4];
    HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
      HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
        HPFEM_UNROLL for (int i = 0; i < 4; i++) y[m][n][i] = 0;
      }
    }
    if constexpr (TEST_VALUE) {
      HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
        Values u[TILES];
        HPFEM_UNROLL for (int m = 0; m < TILES; m++) u[m] = coefficients(m, k);
        HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
          const int at = MASS_TILE[k * K_TILES + n];
          if (at < 0) continue;
          const Two b = tile(at);
          HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
            if (K_HALF && k == K_TILES - 1) multiply<true>(y[m][n], u[m], b);
            else multiply<false>(y[m][n], u[m], b);
          }
        }
      }
      HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
        const real *const q = scaled + (16 * m + g) * N_FACTORS + N_FACTORS - 1;
        const real low = q[0], high = q[8 * N_FACTORS];
        HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
          HPFEM_UNROLL for (int i = 0; i < 4; i++) y[m][n][i] *= i < 2 ? low : high;
        }
      }
    }
    // Some eights of rows at a time: products that do not wait for each other.
    each<0, (R_TILES + AT_ONCE - 1) / AT_ONCE>([&](auto part_) {
      constexpr int begin = decltype(part_)::value * AT_ONCE, end = begin + AT_ONCE < R_TILES ? begin + AT_ONCE : R_TILES;
      real s[AT_ONCE][TILES][DIM][4];
      HPFEM_UNROLL for (int r = 0; r < AT_ONCE; r++) {
        HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
          HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
            HPFEM_UNROLL for (int i = 0; i < 4; i++) s[r][m][c][i] = 0;
          }
        }
      }
      HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
        Values u[TILES];
        HPFEM_UNROLL for (int m = 0; m < TILES; m++) u[m] = coefficients(m, k);
        HPFEM_UNROLL for (int r = begin; r < end; r++) {
          HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
            const int at = FORWARD_TILE[(r * K_TILES + k) * DIM + c];
            if (at < 0) continue;
            const Two b = tile(at);
            HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
              if (K_HALF && k == K_TILES - 1) multiply<true>(s[r - begin][m][c], u[m], b);
              else multiply<false>(s[r - begin][m][c], u[m], b);
            }
          }
        }
      }
      Values flux[AT_ONCE][TILES][DIM];
      HPFEM_UNROLL for (int r = 0; r < end - begin; r++) {
        HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
          HPFEM_UNROLL for (int i = 0; i < 4; i++) {
            real v[VECTOR];
            HPFEM_UNROLL for (int c = 0; c < DIM; c++) v[c] = s[r][m][c][i];
            times_metric(scaled + (16 * m + i / 2 * 8 + g) * N_FACTORS, v);
            HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
              Two &to = i % 2 ? flux[r][m][c].odd : flux[r][m][c].even;
              (i < 2 ? to.x : to.y) = v[c];
            }
          }
        }
      }
      HPFEM_UNROLL for (int r = begin; r < end; r++) {
        HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
          HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
            const int at = BACK_TILE[(r * DIM + c) * K_TILES + n];
            if (at < 0) continue;
            const Two b = tile(at);
            HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
              if (R_HALF && r == R_TILES - 1) multiply<true>(y[m][n], flux[r - begin][m][c], b);
              else multiply<false>(y[m][n], flux[r - begin][m][c], b);
            }
          }
        }
      }
    });

    if constexpr (STAGES > 0) {
      HPFEM_UNROLL for (int n = USED_TILES; n < N_TILES; n++) tile(n);
    }

    // Eight elements at a time, so that stores are whole lines.
    real *const to = out + group * (WARP_ELEMENTS * N_MODES) + mode_element * N_MODES + mode;
    HPFEM_UNROLL for (int h = 0; h < 2 * TILES; h++) {
      __syncwarp();
      HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
        const real *const v = y[h / 2][n] + h % 2 * 2;
        *reinterpret_cast<Two *>(result + n * PITCH + 2 * lane) = {v[0], v[1]};
      }
      __syncwarp();
      const auto store = [&](auto whole_) {
        constexpr bool whole = decltype(whole_)::value;
        HPFEM_ROLLED for (int n = 0; n < N_MODES; n += MODE_LANES) {
          if (n + mode < N_MODES) {
            const real *const from = result + mode_element * 8 + result_places[n + mode];
            real *const at = to + 8 * h * N_MODES + n;
            HPFEM_UNROLL for (int e = 0; e < 8; e += MODES_AT_ONCE) {
              if (whole || 8 * h + e + mode_element < live) HPFEM_STORE(at + e * N_MODES, from[e * 8]);
            }
          }
        }
      };
      if (live == WARP_ELEMENTS) store(Int<1>{});
      else store(Int<0>{});
    }
    __syncwarp();
    if constexpr (!KEPT) {
      clear();
      __syncwarp();
    }
  }
  HPFEM_COPY_WAIT(0);
}
