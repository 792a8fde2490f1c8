// Affine elements as dense matrices on FP64 tensor cores: y = sum_i D_i^T sum_j G_ij D_j u + w M u.
//
// D_i (ROWS x N_MODES) is the derivative by xi_i in an orthonormal basis of the gradients, G the element's metric times
// the form's coefficient, M the mass matrix, w the element's w|J| times its coefficient. A warp takes TILES times 16
// elements as the rows of the products. What a lane gets from one product, C[g, g + 8][2 t, 2 t + 1], is what it gives to
// the next as A[g, g + 8][t, t + 4] if the summed index is permuted: place 2 t of eight to term t, 2 t + 1 to t + 4. So
// the chain u, D u, G D u, y stays in registers.
//
// `matrices` is a stream of 8 x 8 tiles in the order of their use, [result place][summed place]: M by (summed, result),
// then for every eight rows D by (modes, direction) and D^T by (direction, modes). Modes are sorted so that many tiles are
// zero; those are left out: MASS_TILE, FORWARD_TILE and BACK_TILE give a tile's index, or -1. STAGES = 0: all tiles stay
// in shared memory, and warps run on their own. Otherwise CHUNK of them at a time go through a ring of STAGES.

constexpr int K_TILES = (N_MODES + 7) / 8, R_TILES = (ROWS + 7) / 8;
// Whether the last eight are at most four, at even places.
constexpr bool K_HALF = N_MODES % 8 >= 1 && N_MODES % 8 <= 4, R_HALF = ROWS % 8 >= 1 && ROWS % 8 <= 4;
constexpr int WARP_ELEMENTS = 16 * TILES, THREADS = 32 * WARPS;
// Coefficients of eight elements in shared memory, [eight modes][element][place]; padded against bank conflicts.
constexpr int TILE_PITCH = 72, EIGHT = K_TILES * TILE_PITCH;
constexpr int STREAM = 64 * (STAGES > 0 ? STAGES * CHUNK : N_TILES), PLACES_SIZE = (N_MODES + 3) / 4;
constexpr int GIVEN = 2 * TILES * EIGHT, RESULT = KEPT ? EIGHT : 0, FACTORS_SIZE = rounded_up(WARP_ELEMENTS * N_FACTORS, 2);
constexpr int WARP_SIZE = GIVEN + RESULT + (KEPT ? 2 : 1) * FACTORS_SIZE;

struct alignas(16) Two {
  real x, y;
};
// Values of two eights of elements at two places.
struct Values {
  Two low, high;
};

template <bool half> HPFEM_DEVICE void multiply(real (&c)[4], const Values &a, const Two &b) {
  if constexpr (half) {
    HPFEM_MULTIPLY_4(c, a.low.x, a.high.x, b.x);
  } else {
    HPFEM_MULTIPLY_8(c, a.low.x, a.high.x, a.low.y, a.high.y, b.x, b.y);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const real *__restrict__ factors, const real *__restrict__ matrices HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  short *const places = reinterpret_cast<short *>(shared + STREAM);
  real *const given = shared + STREAM + rounded_up(PLACES_SIZE, 2) + warp * WARP_SIZE;
  real *const result = KEPT ? given + GIVEN : given;
  real *const scaled = given + GIVEN + RESULT, *const raw = KEPT ? scaled + FACTORS_SIZE : scaled;
  const long long groups = (n_elements + WARP_ELEMENTS - 1) / WARP_ELEMENTS, step = (long long)gridDim.x * WARPS;
  in += blockIdx.y * n_elements * N_MODES;
  out += blockIdx.y * n_elements * N_MODES;

  // The form's coefficients: its value and its flux for unit arguments, as it is linear.
  real value_scale = 0, slope_scale = 0;
  {
    real u[COMPONENTS] = {1}, du[COMPONENTS][SPACE] = {}, s[COMPONENTS][DIM] = {}, x[SPACE] = {};
    real value[COMPONENTS] = {}, flux[COMPONENTS][VECTOR] = {};
    s[0][0] = 1;
    physics(u, du, s, x, nullptr, parameters, value, flux);
    value_scale = value[0];
    slope_scale = flux[0][0];
  }

  // Tiles in shared memory.
  const Two *chunk = reinterpret_cast<const Two *>(shared) + lane;
  int arriving = 0, stage = 0; // the next chunk to ask for; the stage of the one in use
  const auto ask = [&](int where) {
    const real *const from = matrices + (long long)arriving * (CHUNK * 64);
    for (int i = threadIdx.x; i < CHUNK * 32; i += THREADS) {
      HPFEM_COPY(shared + where * (CHUNK * 64) + 2 * i, from + 2 * i, 16);
    }
    HPFEM_COPY_COMMIT();
    arriving = arriving + 1 == N_TILES / CHUNK ? 0 : arriving + 1;
  };
  for (int m = threadIdx.x; m < N_MODES; m += THREADS) places[m] = PLACE[m];
  if constexpr (STAGES > 0) {
    HPFEM_UNROLL for (int s = 0; s < STAGES - 1; s++) ask(s);
    stage = STAGES - 1;
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
        ask(stage);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        chunk = reinterpret_cast<const Two *>(shared + stage * (CHUNK * 64)) + lane;
      }
      return chunk[n % CHUNK * 32];
    } else return chunk[n * 32];
  };

  const auto live_of = [&](long long group) {
    const long long left = n_elements - group * WARP_ELEMENTS;
    return left < WARP_ELEMENTS ? int(left) : WARP_ELEMENTS;
  };
  // Asks for a warp's coefficients and factors.
  const auto request = [&](long long group) {
    const int live = live_of(group);
    const real *const u = in + group * (WARP_ELEMENTS * N_MODES);
    for (int i = lane; i < live * N_MODES; i += 32) {
      const int e = i / N_MODES;
      HPFEM_COPY(given + e / 8 * EIGHT + e % 8 * 8 + places[i - e * N_MODES], u + i, 8);
    }
    const real *const f = factors + group * (WARP_ELEMENTS * N_FACTORS);
    for (int i = lane; i < live * N_FACTORS; i += 32) HPFEM_COPY(raw + i, f + i, 8);
    HPFEM_COPY_COMMIT();
  };

  // Places of no mode must be finite, as they are multiplied by zeros.
  const auto clear = [&] {
    for (int i = lane; i < 128 * TILES; i += 32) given[i / 64 * EIGHT + (K_TILES - 1) * TILE_PITCH + i % 64] = 0;
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
    for (int i = lane; i < live * N_FACTORS; i += 32) {
      scaled[i] = raw[i] * (i % N_FACTORS == N_FACTORS - 1 ? value_scale : slope_scale);
    }
    const auto load = [&](int m, int k) -> Values {
      const real *const at = given + 2 * m * EIGHT + k * TILE_PITCH + 2 * lane;
      return {*reinterpret_cast<const Two *>(at), *reinterpret_cast<const Two *>(at + EIGHT)};
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
    each<0, R_TILES>([&](auto r_) {
      constexpr int r = decltype(r_)::value;
      constexpr bool half = R_HALF && r == R_TILES - 1;
      real s[TILES][DIM][4];
      HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
        HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
          HPFEM_UNROLL for (int i = 0; i < 4; i++) s[m][c][i] = 0;
        }
      }
      HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
        Values u[TILES];
        HPFEM_UNROLL for (int m = 0; m < TILES; m++) u[m] = coefficients(m, k);
        HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
          const int at = FORWARD_TILE[(r * K_TILES + k) * DIM + c];
          if (at < 0) continue;
          const Two b = tile(at);
          HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
            if (K_HALF && k == K_TILES - 1) multiply<true>(s[m][c], u[m], b);
            else multiply<false>(s[m][c], u[m], b);
          }
        }
      }
      HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
        HPFEM_UNROLL for (int i = 0; i < 4; i++) {
          const real *const q = scaled + (16 * m + i / 2 * 8 + g) * N_FACTORS;
          real v[VECTOR];
          HPFEM_UNROLL for (int c = 0; c < DIM; c++) v[c] = s[m][c][i];
          times_metric(q, v);
          HPFEM_UNROLL for (int c = 0; c < DIM; c++) s[m][c][i] = v[c];
        }
      }
      HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
        HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
          const int at = BACK_TILE[(r * DIM + c) * K_TILES + n];
          if (at < 0) continue;
          const Two b = tile(at);
          HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
            const real(&v)[4] = s[m][c];
            multiply<half>(y[m][n], {{v[0], v[1]}, {v[2], v[3]}}, b);
          }
        }
      }
    });

    // Eight elements at a time, so that stores are whole lines.
    real *const to = out + group * (WARP_ELEMENTS * N_MODES);
    HPFEM_UNROLL for (int h = 0; h < 2 * TILES; h++) {
      __syncwarp();
      HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
        const real *const v = y[h / 2][n] + h % 2 * 2;
        *reinterpret_cast<Two *>(result + n * TILE_PITCH + 2 * lane) = {v[0], v[1]};
      }
      __syncwarp();
      const int here = live - 8 * h < 8 ? live - 8 * h : 8;
      for (int i = lane; i < here * N_MODES; i += 32) {
        const int e = i / N_MODES;
        HPFEM_STORE(to + 8 * h * N_MODES + i, result[e * 8 + places[i - e * N_MODES]]);
      }
    }
    __syncwarp();
    if constexpr (!KEPT) {
      clear();
      __syncwarp();
    }
  }
  HPFEM_COPY_WAIT(0);
}
