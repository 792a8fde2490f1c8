// Affine elements as dense matrices, one element per thread: y = sum_i D_i^T sum_j G_ij D_j u + w M u as in dense.h, with
// the matrices in the constant bank. For few modes.
//
// Modes are sorted: the derivatives of the modes before first_mode(r) have no part in row r. Coefficients and factors of
// a warp come and go through shared memory, and so stay [element][mode] for the user.

constexpr int PITCH = N_MODES | 1, FACTORS_PITCH = N_FACTORS | 1;

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const real *__restrict__ factors, const real *__restrict__ matrices HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const long long first = (long long)blockIdx.x * THREADS + warp * 32, left = n_elements - first;
  const int live = left < 32 ? int(left) : 32; // not positive: nothing to do
  in += (blockIdx.y * n_elements + first) * N_MODES;
  out += (blockIdx.y * n_elements + first) * N_MODES;
  factors += first * N_FACTORS;
  real *const given = shared + warp * 32 * (PITCH + FACTORS_PITCH), *const metric = given + 32 * PITCH;

  // Warps whose elements are all there, all but the last, need no comparisons.
  const auto load = [&](auto whole_) {
    constexpr bool whole = decltype(whole_)::value;
    HPFEM_UNROLL for (int n = 0; n < N_MODES; n++) {
      const int i = n * 32 + lane, e = i / N_MODES;
      if (whole || e < live) HPFEM_COPY(given + e * (PITCH - N_MODES) + i, in + i, sizeof(real));
    }
    HPFEM_UNROLL for (int n = 0; n < N_FACTORS; n++) {
      const int i = n * 32 + lane, e = i / N_FACTORS;
      if (whole || e < live) HPFEM_COPY(metric + e * (FACTORS_PITCH - N_FACTORS) + i, factors + i, sizeof(real));
    }
  };
  if (live == 32) load(Int<1>{});
  else load(Int<0>{});
  HPFEM_COPY_COMMIT();
  HPFEM_COPY_WAIT(0);
  __syncwarp();

  real *const mine = given + lane * PITCH;
  real u[N_MODES], y[N_MODES], q[N_FACTORS];
  HPFEM_UNROLL for (int n = 0; n < N_MODES; n++) {
    u[n] = mine[sorted_mode(n)];
    y[n] = 0;
  }
  const FormCoefficients coefficients = form_coefficients(parameters);
  HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) {
    q[c] = metric[lane * FACTORS_PITCH + c] * (c == N_FACTORS - 1 ? coefficients.value : coefficients.flux);
  }
  if constexpr (TEST_VALUE) {
    HPFEM_UNROLL for (int n = 0; n < N_MODES; n++) {
      HPFEM_UNROLL for (int m = 0; m < N_MODES; m++) y[n] += MASS[n * N_MODES + m] * u[m];
      y[n] *= q[N_FACTORS - 1];
    }
  }
  each<0, ROWS>([&](auto r_) {
    constexpr int r = decltype(r_)::value, begin = first_mode(r);
    real v[VECTOR];
    HPFEM_UNROLL for (int c = 0; c < DIM; c++) {
      v[c] = 0;
      HPFEM_UNROLL for (int n = begin; n < N_MODES; n++) v[c] += DERIVATIVES[(c * ROWS + r) * N_MODES + n] * u[n];
    }
    times_metric(q, v);
    HPFEM_UNROLL for (int n = begin; n < N_MODES; n++) {
      HPFEM_UNROLL for (int c = 0; c < DIM; c++) y[n] += DERIVATIVES[(c * ROWS + r) * N_MODES + n] * v[c];
    }
  });

  __syncwarp();
  HPFEM_UNROLL for (int n = 0; n < N_MODES; n++) mine[result_place(sorted_mode(n))] = y[n];
  __syncwarp();
  const auto store = [&](auto whole_) {
    constexpr bool whole = decltype(whole_)::value;
    HPFEM_UNROLL for (int n = 0; n < N_MODES; n++) {
      const int i = n * 32 + lane, e = i / N_MODES;
      if (whole || e < live) HPFEM_STORE(out + i, given[e * (PITCH - N_MODES) + i]);
    }
  };
  if (live == 32) store(Int<1>{});
  else store(Int<0>{});
}
