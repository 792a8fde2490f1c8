// Runs the kernels on a CPU, for tests without a GPU: the threads of a block are coroutines, and a barrier of the block or
// of a warp hands over to the next one. Every thread has to reach the same barriers; shared memory is poisoned before a
// block and guarded behind its end. Threads run in ascending or descending order: a missing barrier makes the results
// differ. Asynchronous copies happen when they are waited for, as late as they may. A caller may give shared memory of its
// own, with nothing behind it that may be touched, and leave out the first blocks.
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <sched.h>
#include <ucontext.h>

#define HPFEM_HOST
#define HPFEM_DEVICE inline __attribute__((always_inline))
#define HPFEM_CALLED static __attribute__((noinline))
#define HPFEM_CONSTANT static const
#define HPFEM_TABLE static const
#define HPFEM_UNROLL
#define HPFEM_ROLLED
#define HPFEM_STREAM(pointer) (*(pointer))
#define HPFEM_READ(pointer) (*(pointer))
#define HPFEM_STORE(pointer, x) (*(pointer) = (x))
#define hpfem_reciprocal(x) (1 / (x))
#define HPFEM_PREFETCH_L2(pointer, bytes) hpfem_host::prefetch(pointer, bytes)
#define HPFEM_SHARED(name) real *const name = reinterpret_cast<real *>(hpfem_host::shared)
#define HPFEM_COPY(to, from, bytes) hpfem_host::copy(to, from, bytes)
#define HPFEM_COPY_ONCE(to, from) hpfem_host::copy(to, from, 16)
#define HPFEM_WRITE_MARKED(to, words, mark) hpfem_host::write_marked(to, words, mark)
#define HPFEM_READ_MARKED(from, words, mark) hpfem_host::read_marked(from, words, mark)
#define HPFEM_TEAM_SYNC(team) hpfem_host::team_wait(MEMBERS)
#define HPFEM_COPY_COMMIT() hpfem_host::copies[hpfem_host::current].groups++
#define HPFEM_COPY_WAIT(groups) hpfem_host::copy_wait(groups)
#define HPFEM_MULTIPLY_8(c, a0, a1, a2, a3, b0, b1) hpfem_host::multiply(c, a0, a1, a2, a3, b0, b1)
#define HPFEM_MULTIPLY_16(c, a, b) hpfem_host::multiply_short(c, a, b)
#define hpfem_bfloat16(x) hpfem_host::bfloat16(x)
#define HPFEM_MULTIPLY_4(c, a0, a1, b0) hpfem_host::multiply(c, a0, a1, 0, 0, b0, 0)
#define __global__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define atomicAdd(at, n) __atomic_fetch_add(at, n, __ATOMIC_RELAXED)
#define __restrict__
template <class T> static T atomicMin(T *at, T x) {
  const T old = *at;
  *at = x < old ? x : old;
  return old;
}
template <class T, class X> static T atomicMax(T *at, X x) {
  const T old = *at;
  *at = x > old ? x : old;
  return old;
}
template <class T> static T atomicCAS(T *at, T expected, T x) {
  const T old = *at;
  *at = old == expected ? x : old;
  return old;
}

extern "C" {
unsigned char *hpfem_given_shared;
unsigned hpfem_first_block;
}

namespace hpfem_host {
struct Index {
  unsigned x, y, z;
};
constexpr int STACK = 1 << 17, MOST_THREADS = 1024, GUARD = 256;
enum Outcome { FINE = 0, DIVERGED = 1, OVERRUN = 2 };
// What a thread waits for; what is done waits for ever.
enum Wait : unsigned char { NOTHING, WARP, TEAM, BLOCK, DONE };

static ucontext_t home, threads[MOST_THREADS];
static Wait waits[MOST_THREADS];
static char *stacks;
static unsigned char *shared;
static int current;
static int members = 1 << 30; // threads of a team
static void (*body)();

static void write_marked(void *to, const unsigned *words, unsigned mark) {
  for (int k = 0; k < 2; k++)
    __atomic_store_n((unsigned long long *)to + k, (unsigned long long)mark << 32 | words[k], __ATOMIC_RELEASE);
}
static void read_marked(const void *from, unsigned *words, unsigned mark) {
  for (int k = 0; k < 2; k++) {
    unsigned long long seen;
    while (seen = __atomic_load_n((const unsigned long long *)from + k, __ATOMIC_ACQUIRE), seen >> 32 != mark) sched_yield();
    words[k] = (unsigned)seen;
  }
}

static void start() {
  body();
  waits[current] = DONE;
}
static void wait_for(Wait what) {
  waits[current] = what;
  swapcontext(&threads[current], &home);
}
static void team_wait(int threads) {
  members = threads;
  wait_for(TEAM);
}

// Asynchronous copies of a thread, each with the number of groups committed before it.
struct Copy {
  void *to;
  const void *from;
  int bytes, group;
};
struct Copies {
  Copy *pending;
  int count, room, groups;
};
static Copies copies[MOST_THREADS];

static void copy(void *to, const void *from, int bytes) {
  Copies &mine = copies[current];
  if (mine.count == mine.room) {
    mine.room = 2 * mine.room + 64;
    mine.pending = (Copy *)realloc(mine.pending, mine.room * sizeof(Copy));
  }
  mine.pending[mine.count++] = {to, from, bytes, mine.groups};
}
static void copy_wait(int groups) {
  Copies &mine = copies[current];
  int kept = 0;
  for (int n = 0; n < mine.count; n++) {
    const Copy c = mine.pending[n];
    if (c.group < mine.groups - groups) memcpy(c.to, c.from, c.bytes);
    else mine.pending[kept++] = c;
  }
  mine.count = kept;
}

// Asks for whole sixteens of bytes, all of which are there.
static void prefetch(const void *from, int bytes) {
  const volatile char *const first = (const volatile char *)from;
  if ((size_t)first % 16 == 0 && bytes % 16 == 0) (void)(first[0] + first[bytes - 1]);
  else abort();
}

// What the lanes of a warp give to a matrix product; two sets in turn, so that one barrier is enough.
static double fragments[MOST_THREADS / 32][2][32][6];
static int turns[MOST_THREADS];

// m16n8k8: lane 4 g + t holds A[g, g + 8][t, t + 4], B[t, t + 4][g] and C[g, g + 8][2 t, 2 t + 1].
static void multiply(double (&c)[4], double a0, double a1, double a2, double a3, double b0, double b1) {
  const int lane = current % 32;
  double(*given)[6] = fragments[current / 32][turns[current]++ % 2];
  const double mine[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(given[lane], mine, sizeof(mine));
  wait_for(WARP);
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 8; k++) {
      const double a = given[lane / 4 * 4 + k % 4][i / 2 + k / 4 * 2];
      c[i] += a * given[(2 * (lane % 4) + i % 2) * 4 + k % 4][4 + k / 4];
    }
  }
}
// Rounded to the nearest, to even; what is not a number stays so.
static unsigned short bfloat16(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static float of_bfloat16(unsigned half) {
  const unsigned bits = half << 16;
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// m16n8k16 of bfloat16: lane 4 g + t holds two numbers a word, A[g, g + 8][2 t ..], A[g, g + 8][2 t + 8 ..],
// B[2 t ..][g], B[2 t + 8 ..][g].
static unsigned words[MOST_THREADS / 32][2][32][6];
static void multiply_short(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  const int lane = current % 32;
  unsigned(*given)[6] = words[current / 32][turns[current]++ % 2];
  const unsigned mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  memcpy(given[lane], mine, sizeof(mine));
  wait_for(WARP);
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 16; k++) {
      const int shift = 16 * (k % 2), t = k % 8 / 2, half = k / 8;
      const unsigned left = given[lane / 4 * 4 + t][i / 2 + 2 * half] >> shift & 0xffff;
      const unsigned right = given[(2 * (lane % 4) + i % 2) * 4 + t][4 + half] >> shift & 0xffff;
      c[i] += of_bfloat16(left) * of_bfloat16(right);
    }
  }
}
} // namespace hpfem_host

static hpfem_host::Index threadIdx, blockIdx, gridDim;

static void __syncthreads() { hpfem_host::wait_for(hpfem_host::BLOCK); }
static void __syncwarp() { hpfem_host::wait_for(hpfem_host::WARP); }

namespace hpfem_host {
static bool all(int from, int to, Wait what) {
  for (int t = from; t < to; t++) {
    if (waits[t] != what) return false;
  }
  return true;
}
static void open(int from, int to) {
  for (int t = from; t < to; t++) waits[t] = NOTHING;
}

// One block. Threads run up to their next barrier; a barrier opens when all of its threads are there.
static int run_block(int n_threads, bool descending) {
  for (int t = 0; t < n_threads; t++) {
    getcontext(&threads[t]);
    threads[t].uc_stack.ss_sp = stacks + (size_t)t * STACK;
    threads[t].uc_stack.ss_size = STACK;
    threads[t].uc_link = &home;
    makecontext(&threads[t], start, 0);
    waits[t] = NOTHING;
    copies[t].count = copies[t].groups = turns[t] = 0;
  }
  for (;;) {
    for (int n = 0; n < n_threads; n++) {
      current = descending ? n_threads - 1 - n : n;
      threadIdx.x = current;
      if (waits[current] == NOTHING) swapcontext(&home, &threads[current]);
    }
    if (all(0, n_threads, DONE)) return FINE;
    bool opened = all(0, n_threads, BLOCK);
    if (opened) open(0, n_threads);
    for (int t = 0; t < n_threads; t += 32) {
      const int end = t + 32 < n_threads ? t + 32 : n_threads;
      if (!all(t, end, WARP)) continue;
      open(t, end);
      opened = true;
    }
    for (int t = 0; t + members <= n_threads; t += members) {
      if (!all(t, t + members, TEAM)) continue;
      open(t, t + members);
      opened = true;
    }
    if (!opened) return DIVERGED;
  }
}

static int launch(void (*kernel)(), Index grid, int n_threads, size_t shared_bytes, bool descending) {
  body = kernel;
  stacks = (char *)malloc((size_t)n_threads * STACK);
  const size_t guard = hpfem_given_shared ? 0 : GUARD;
  shared = hpfem_given_shared;
  if (guard) shared = (unsigned char *)aligned_alloc(256, (shared_bytes + 2 * guard) / 256 * 256);
  gridDim = grid;
  int outcome = FINE;
  for (unsigned n = hpfem_first_block; n < grid.x * grid.y * grid.z && outcome == FINE; n++) {
    blockIdx = {n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y};
    memset(shared, 0xff, shared_bytes + guard); // NaNs
    outcome = run_block(n_threads, descending);
    for (size_t n = 0; n < guard; n++)
      if (shared[shared_bytes + n] != 0xff) outcome = OVERRUN;
  }
  if (guard) free(shared);
  free(stacks);
  return outcome;
}
} // namespace hpfem_host
