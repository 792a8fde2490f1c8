// Numbers between the GPUs of processes on one machine, which write to each other's memory: 16 bytes at a time, four bytes
// and a mark twice, so that who waits for them waits for nothing else. The memory of a process has two halves, one after
// the other, of which one is written while the numbers before may still be read in the other, and in each of them `most`
// places for every process. A mark is the number of times that they were used. `real` and THREADS are given.

#ifndef HPFEM_HOST
// Two words and a mark after each, to and from memory that other devices write; the second waits for the marks.
#define HPFEM_WRITE_MARKED(to, words, mark)                                                                            \
  asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%2};" ::"l"(to), "r"((words)[0]), "r"(mark), "r"((words)[1])  \
               : "memory")
#define HPFEM_READ_MARKED(from, words, mark)                                                                           \
  do {                                                                                                                 \
    unsigned first, second;                                                                                            \
    do {                                                                                                               \
      asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"                                                    \
                   : "=r"((words)[0]), "=r"(first), "=r"((words)[1]), "=r"(second)                                     \
                   : "l"(from)                                                                                         \
                   : "memory");                                                                                        \
    } while (first != (mark) || second != (mark));                                                                     \
  } while (0)
#endif

constexpr int EACH = 8 / sizeof(real);

union Eight {
  real numbers[EACH];
  unsigned words[2];
};
struct __align__(16) Sixteen {
  unsigned words[4];
};

// Sums over processes, in their order.
extern "C" __global__ void __launch_bounds__(THREADS)
    total(const long long n, const int rank, const int processes, const long long most, void *const *memory,
          unsigned *__restrict__ marks, const real *given, real *out) {
  const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
  const unsigned mark = marks[blockIdx.x] + 1;
  const long long half = (mark & 1) * processes * most;
  Eight own, sum;
  for (int k = 0; k < EACH; k++) own.numbers[k] = i * EACH + k < n ? given[i * EACH + k] : real(0), sum.numbers[k] = 0;
  for (int k = 0; k < processes && i * EACH < n; k++) {
    HPFEM_WRITE_MARKED((Sixteen *)memory[(rank + k) % processes] + half + rank * most + i, own.words, mark);
  }
  __syncthreads();
  for (int process = 0; process < processes && i * EACH < n; process++) {
    HPFEM_READ_MARKED((Sixteen *)memory[rank] + half + process * most + i, own.words, mark);
    for (int k = 0; k < EACH; k++) sum.numbers[k] += own.numbers[k];
  }
  for (int k = 0; k < EACH && i * EACH + k < n; k++) out[i * EACH + k] = sum.numbers[k];
  // Who has no numbers waits for nobody: if that counted, the next sum would write where the one before may be read.
  if (threadIdx.x == 0 && i * EACH < n) marks[blockIdx.x] = mark;
}

// Parts [first, last) of `sent` to other processes, and theirs to the same places of `received`.
struct Part {
  long long first, last;
  int process;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    exchange(const int parts, const Part *__restrict__ part, const int rank, const int processes, const long long most,
             void *const *memory, unsigned *marks, const real *__restrict__ sent, real *__restrict__ received) {
  const long long start = (long long)blockIdx.x * THREADS + threadIdx.x, step = (long long)gridDim.x * THREADS;
  for (int read = 0; read < 2; read++) {
    __syncthreads();
    for (int k = 0; k < parts; k++) {
      const Part own = part[k];
      const unsigned mark = marks[own.process] + 1;
      const long long half = (mark & 1) * processes * most;
      Sixteen *const there = (Sixteen *)memory[read ? rank : own.process] + half + (read ? own.process : rank) * most;
      for (long long i = start; own.first + i * EACH < own.last; i += step) {
        const long long at = own.first + i * EACH;
        Eight value;
        if (read) {
          HPFEM_READ_MARKED(there + i, value.words, mark);
          for (int c = 0; c < EACH && at + c < own.last; c++) received[at + c] = value.numbers[c];
        } else {
          for (int c = 0; c < EACH; c++) value.numbers[c] = at + c < own.last ? sent[at + c] : real(0);
          HPFEM_WRITE_MARKED(there + i, value.words, mark);
        }
      }
    }
  }
  // The last block counts: it is one number after those of all processes.
  __syncthreads();
  if (threadIdx.x == 0 && atomicAdd(marks + processes, 1) == gridDim.x - 1) {
    marks[processes] = 0;
    for (int k = 0; k < parts; k++) marks[part[k].process]++;
  }
}
