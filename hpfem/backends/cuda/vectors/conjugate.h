// The vector work of preconditioned conjugate gradients: an iteration is
//
//   q = A p, with the blocks' sums of p.q   elsewhere (indexed.h), or `dots`
//   residual:  alpha = rho / p.q            r -= alpha q                    with r.r and, for a diagonal M, r.(r / M)
//   z = M^-1 r, `dots` of r and z           where M is not diagonal
//   direction: beta = rho' / rho            x += alpha p, p = z + beta p; without z only if the iterations end here
//
// No scalar leaves the device: blocks leave their sums, and every block of the next kernel adds them up. Of vectors that
// processes share (SHARED) only entries that a process owns count: their bits are set in `owned`. What the blocks of all
// processes left is added, block by block, before the next kernel takes it. Each of the last two
// kernels reads what the other one wrote of the control block, so that no block depends on another's progress. Once
// `stopped` is set nothing changes any more. z may be of a type of its own, `Other`, and given only where `free` is true:
// elsewhere it is r. `real`, `Other`, `Inverse` (the type of the inverse of a diagonal M), SHARED, THREADS and RING are
// given.

enum Stop : int { RUNNING = 0, CONVERGED = 1, PRECONDITIONER = 2, NOT_FINITE = 3, OPERATOR = 4, EXHAUSTED = 5 };

// The last RING iterations; entry i belongs to iteration i % RING.
struct Control {
  double residual[RING], rho[RING], curvature[RING];
  double scale, tolerance;
  long long most;     // iterations
  long long finished; // by `direction`
  long long begun;    // by `residual`
  int stopped;        // by `direction`
  int broken;         // by `residual`
  int ended;          // by `direction` without z, for those with z
};

HPFEM_DEVICE bool finite_number(double x) { return x - x == 0; }

HPFEM_DEVICE bool counts(const unsigned *owned, long long i) {
  return !SHARED || (owned[i >> 5] >> (unsigned(i) & 31) & 1) != 0;
}

HPFEM_DEVICE real chosen(const Other *z, const bool *free, const real *r, long long i) {
  return free == nullptr || free[i] ? real(z[i]) : r[i];
}

// The blocks' sums of a.b, b as z.
extern "C" __global__ void __launch_bounds__(THREADS)
    dots(const long long n, const real *a, const Other *b, const bool *__restrict__ free,
         const unsigned *__restrict__ owned, double *__restrict__ partials, const int *stop) {
  HPFEM_SHARED(shared);
  if (stop != nullptr && *stop != 0) return;
  double sum[1] = {0};
  for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS) {
    if (counts(owned, i)) sum[0] += double(a[i]) * double(chosen(b, free, a, i));
  }
  block_sums(sum, reinterpret_cast<double *>(shared));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum[0];
}

// `copy` gets r, too, where it is `taken`, if they are given.
extern "C" __global__ void __launch_bounds__(THREADS)
    residual(const long long n, Control *control, const int count, const double *__restrict__ pq,
             const real *__restrict__ q, const Inverse *__restrict__ inverse, const unsigned *__restrict__ owned,
             real *__restrict__ r, double *__restrict__ rr, double *__restrict__ rz, const bool *__restrict__ taken,
             Other *__restrict__ copy) {
  HPFEM_SHARED(words);
  double *const shared = reinterpret_cast<double *>(words);
  const bool speaks = blockIdx.x == 0 && threadIdx.x == 0;
  const int stopped = control->stopped;
  if (stopped != RUNNING) {
    if (speaks) control->broken = stopped;
    return;
  }
  const long long i = control->finished;
  double curvature[1];
  sums_of_partials(curvature, {pq}, count, shared);
  const double rho = control->rho[i % RING];
  const int broken = !finite_number(curvature[0]) ? NOT_FINITE : curvature[0] <= 0 ? OPERATOR : RUNNING;
  if (speaks) {
    control->curvature[i % RING] = curvature[0];
    control->begun = i + 1;
    control->broken = broken;
  }
  if (broken != RUNNING) return;
  const real alpha = real(rho / curvature[0]);
  double sum[2] = {0, 0};
  for (long long k = (long long)blockIdx.x * THREADS + threadIdx.x; k < n; k += (long long)gridDim.x * THREADS) {
    const real mine = r[k] - alpha * q[k];
    r[k] = mine;
    if (copy) copy[k] = taken == nullptr || taken[k] ? Other(mine) : Other(0);
    if (!counts(owned, k)) continue;
    sum[0] += double(mine) * double(mine);
    if (inverse) sum[1] += double(mine) * double(mine * real(inverse[k]));
  }
  block_sums(sum, shared);
  if (threadIdx.x == 0) {
    rr[blockIdx.x] = sum[0];
    if (inverse) rz[blockIdx.x] = sum[1];
  }
}

// z is given, or where `inverse` is, r, which is multiplied by it. Without z, before M^-1 r is made, it tells whether to stop.
extern "C" __global__ void __launch_bounds__(THREADS)
    direction(const long long n, Control *control, const int count, const double *__restrict__ rr,
              const double *__restrict__ rz, const real *__restrict__ r, const Other *__restrict__ z,
              const bool *__restrict__ free, const Inverse *__restrict__ inverse, real *__restrict__ x,
              real *__restrict__ p) {
  HPFEM_SHARED(words);
  const bool speaks = blockIdx.x == 0 && threadIdx.x == 0;
  if (z != nullptr && control->ended != RUNNING) return;
  const int broken = control->broken;
  if (broken != RUNNING) {
    if (speaks) control->stopped = broken;
    return;
  }
  const long long i = control->begun;
  double sum[2];
  sums_of_partials(sum, {rr, rz}, count, reinterpret_cast<double *>(words));
  const double size = sqrt(sum[0]) / control->scale, rho = sum[1];
  int stopped = RUNNING;
  if (!finite_number(size)) stopped = NOT_FINITE;
  else if (size <= control->tolerance) stopped = CONVERGED;
  else if (i >= control->most) stopped = EXHAUSTED;
  else if (!finite_number(rho)) stopped = NOT_FINITE;
  else if (rho <= 0) stopped = PRECONDITIONER;
  const double before = i > 0 ? control->rho[(i - 1) % RING] : 1;
  const real alpha = i > 0 ? real(before / control->curvature[(i - 1) % RING]) : real(0);
  const real beta = i > 0 ? real(rho / before) : real(0);
  if (speaks) {
    control->residual[i % RING] = size;
    control->rho[i % RING] = rho;
    control->finished = i;
    control->stopped = stopped;
    if (z == nullptr) control->ended = stopped;
  }
  if (z == nullptr && stopped == RUNNING) return;
  for (long long k = (long long)blockIdx.x * THREADS + threadIdx.x; k < n; k += (long long)gridDim.x * THREADS) {
    const real old = p[k];
    if (i > 0) x[k] += alpha * old;
    if (stopped != RUNNING) continue;
    const real own = inverse ? r[k] * real(inverse[k]) : chosen(z, free, r, k);
    p[k] = i > 0 ? own + beta * old : own;
  }
}
