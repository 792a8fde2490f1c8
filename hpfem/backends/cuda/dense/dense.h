// Affine elements as dense matrices on FP64 tensor cores: y = sum_i D_i^T sum_j G_ij D_j u + w M u.
//
// D_i (ROWS x N_MODES) is the derivative by xi_i in an orthonormal basis of the gradients, G the element's metric times
// the form's coefficient, M the mass matrix, w the element's w|J| times its coefficient. A warp takes TILES times 16
// elements as the rows of the products.

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const real *__restrict__ factors, const real *__restrict__ matrices HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
  short *const places = reinterpret_cast<short *>(shared + STREAM), *const result_places = places + N_MODES;
  real *const given = shared + STREAM + PLACES + warp * WARP_SIZE;
  real *const result = KEPT ? given + GIVEN : given;
  real *const scaled = given + GIVEN + RESULT, *const raw = KEPT ? scaled + FACTORS_SIZE : scaled;
  const long long groups = (n_elements + WARP_ELEMENTS - 1) / WARP_ELEMENTS, step = (long long)gridDim.x * WARPS;
  in += blockIdx.y * n_elements * N_MODES;
  out += blockIdx.y * n_elements * N_MODES;
  const Transfer transfer{places, result_places, given, result, scaled, raw, lane};
  const FormCoefficients of_form = form_coefficients(parameters);
  const real coefficient = transfer.factor == N_FACTORS - 1 ? of_form.value : of_form.flux;
  const Matrices tiles{shared, matrices, reinterpret_cast<const Two *>(shared) + lane};
  transfer.start();
  tiles.start();
  __syncthreads();

  const auto live_of = [&](long long group) {
    const long long left = n_elements - group * WARP_ELEMENTS;
    return left < WARP_ELEMENTS ? int(left) : WARP_ELEMENTS;
  };
  const auto request = [&](long long group) { transfer.request(in, factors, group, live_of(group)); };

  transfer.clear();
  __syncwarp();
  if constexpr (KEPT) request((long long)blockIdx.x * WARPS + warp);
  for (long long base = (long long)blockIdx.x * WARPS; base < groups; base += step) {
    const long long group = base + warp;
    const int live = live_of(group); // not positive: the warp only keeps up with its block
    if constexpr (!KEPT) request(group);
    HPFEM_COPY_WAIT(0);
    __syncwarp();
    transfer.scale(coefficient);
    Values kept[KEPT ? TILES : 1][KEPT ? K_TILES : 1];
    if constexpr (KEPT) {
      HPFEM_UNROLL for (int m = 0; m < TILES; m++) {
        HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) kept[m][k] = transfer.load(m, k);
      }
    }
    __syncwarp();
    if constexpr (KEPT) request(group + step);
    const auto u = [&](int m, int k) -> Values {
      if constexpr (KEPT) return kept[m][k];
      else return transfer.load(m, k);
    };

    real y[K_TILES][TILES][4] = {};
    if constexpr (TEST_VALUE) mass(y, u, tiles, scaled, g);
    // Some eights of rows at a time: products that do not wait for each other.
    each<0, (R_TILES + AT_ONCE - 1) / AT_ONCE>([&](auto part) {
      constexpr int begin = decltype(part)::value * AT_ONCE, end = begin + AT_ONCE < R_TILES ? begin + AT_ONCE : R_TILES;
      real s[AT_ONCE][DIM][TILES][4] = {};
      Values flux[AT_ONCE][DIM][TILES];
      evaluate<begin, end>(s, u, tiles);
      metric<end - begin>(flux, s, scaled, g);
      test<begin, end>(y, flux, tiles);
    });
    if constexpr (STAGES > 0) {
      HPFEM_UNROLL for (int n = USED_TILES; n < N_TILES; n++) tiles.tile(n);
    }

    // Eight elements at a time, so that stores are whole lines.
    real *const to = out + group * (WARP_ELEMENTS * N_MODES) + transfer.mode_element * N_MODES + transfer.mode;
    HPFEM_UNROLL for (int h = 0; h < 2 * TILES; h++) {
      __syncwarp();
      HPFEM_UNROLL for (int n = 0; n < K_TILES; n++) {
        const real *const v = y[n][h / 2] + h % 2 * 2;
        *reinterpret_cast<Two *>(result + n * PITCH + 2 * lane) = {v[0], v[1]};
      }
      __syncwarp();
      transfer.store(to, h, live);
    }
    __syncwarp();
    if constexpr (!KEPT) {
      transfer.clear();
      __syncwarp();
    }
  }
  HPFEM_COPY_WAIT(0);
}
