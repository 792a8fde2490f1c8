// Runs the kernels on a CPU, for tests without a GPU: the threads of a block are coroutines, and a barrier hands over to
// the next one. Every thread of a block has to reach the same barriers; shared memory is poisoned before a block and
// guarded behind its end. Threads run in ascending or descending order: a missing barrier makes the results differ.
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <ucontext.h>

#define HPFEM_HOST
#define HPFEM_DEVICE inline __attribute__((always_inline))
#define HPFEM_CONSTANT static const
#define HPFEM_TABLE static const
#define HPFEM_UNROLL
#define HPFEM_STREAM(pointer) (*(pointer))
#define HPFEM_STORE(pointer, x) (*(pointer) = (x))
#define HPFEM_PREFETCH_L2(pointer, bytes)
#define HPFEM_SHARED(name) real *const name = reinterpret_cast<real *>(hpfem_host::shared)
#define __global__
#define __launch_bounds__(...)
#define __restrict__

namespace hpfem_host {
struct Index {
  unsigned x, y, z;
};
constexpr int STACK = 1 << 17, MOST_THREADS = 1024, GUARD = 256;
enum Outcome { FINE = 0, DIVERGED = 1, OVERRUN = 2 };

static ucontext_t home, threads[MOST_THREADS];
static bool done[MOST_THREADS];
static char *stacks;
static unsigned char *shared;
static int current;
static void (*body)();

static void start() {
  body();
  done[current] = true;
}
} // namespace hpfem_host

static hpfem_host::Index threadIdx, blockIdx, gridDim;

static void __syncthreads() { swapcontext(&hpfem_host::threads[hpfem_host::current], &hpfem_host::home); }

namespace hpfem_host {
// One block. Between two barriers every thread runs once; all have to be done in the same round.
static int run_block(int n_threads, bool descending) {
  for (int t = 0; t < n_threads; t++) {
    getcontext(&threads[t]);
    threads[t].uc_stack.ss_sp = stacks + (size_t)t * STACK;
    threads[t].uc_stack.ss_size = STACK;
    threads[t].uc_link = &home;
    makecontext(&threads[t], start, 0);
    done[t] = false;
  }
  for (int finished = 0; finished == 0;) {
    for (int n = 0; n < n_threads; n++) {
      current = descending ? n_threads - 1 - n : n;
      threadIdx.x = current;
      swapcontext(&home, &threads[current]);
      finished += done[current];
    }
    if (finished != 0 && finished != n_threads) return DIVERGED;
  }
  return FINE;
}

static int launch(void (*kernel)(), unsigned blocks, unsigned batches, int n_threads, size_t shared_bytes,
                  bool descending) {
  body = kernel;
  stacks = (char *)malloc((size_t)n_threads * STACK);
  shared = (unsigned char *)aligned_alloc(256, (shared_bytes + 2 * GUARD) / 256 * 256);
  gridDim = {blocks, batches, 1};
  int outcome = FINE;
  for (unsigned y = 0; y < batches && outcome == FINE; y++) {
    for (unsigned x = 0; x < blocks && outcome == FINE; x++) {
      blockIdx = {x, y, 0};
      memset(shared, 0xff, shared_bytes + GUARD); // NaNs
      outcome = run_block(n_threads, descending);
      for (int n = 0; n < GUARD; n++)
        if (shared[shared_bytes + n] != 0xff) outcome = OVERRUN;
    }
  }
  free(shared);
  free(stacks);
  return outcome;
}
} // namespace hpfem_host
