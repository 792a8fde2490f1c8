// What the kernels need beyond C++17: a few helpers, and the device's own words, which the tests' host.h defines for a
// CPU.
#ifndef HPFEM_HOST
#define HPFEM_DEVICE __device__ __forceinline__
#define HPFEM_CALLED __device__ __noinline__
#define HPFEM_CONSTANT static __constant__ const
#define HPFEM_TABLE static __device__ const
#define HPFEM_UNROLL _Pragma("unroll")
#define HPFEM_ROLLED _Pragma("unroll 1")
#define HPFEM_STREAM(pointer) __ldcs(pointer)
// Of what nobody writes meanwhile: it may be read before what stands before it is written.
#define HPFEM_READ(pointer) __ldg(pointer)
#define HPFEM_STORE(pointer, x) __stcs(pointer, x)
// 1 / x to a rounding or two; of doubles from an approximation, without the steps that a division takes for extreme ones.
HPFEM_DEVICE float hpfem_reciprocal(float x) { return 1.0f / x; }
HPFEM_DEVICE double hpfem_reciprocal(double x) {
  double r;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
  r = fma(r, fma(-x, r, 1.0), r);
  return fma(r, fma(-x, r, 1.0), r);
}
// Asks for bytes (a multiple of 16) from global memory, without waiting; registers are not involved.
#if __CUDA_ARCH__ >= 900
#define HPFEM_PREFETCH_L2(pointer, bytes)                                                                              \
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(pointer), "r"(bytes) : "memory")
#else
#define HPFEM_PREFETCH_L2(pointer, bytes)
#endif
#define HPFEM_SHARED(name)                                                                                             \
  extern __shared__ __align__(16) unsigned char hpfem_shared[];                                                        \
  real *const name = reinterpret_cast<real *>(hpfem_shared)
// Asynchronous copies from global to shared memory, 4, 8 or 16 bytes each, in groups; and a wait until at most `groups` of
// the thread's groups are under way.
#define HPFEM_COPY(to, from, bytes)                                                                                    \
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),   \
               "n"(bytes)                                                                                              \
               : "memory")
// The same for 16 bytes that are read once: they leave the first cache alone.
#define HPFEM_COPY_ONCE(to, from)                                                                                      \
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from)    \
               : "memory")
#define HPFEM_COPY_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define HPFEM_COPY_WAIT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")
// A number rounded to bfloat16.
HPFEM_DEVICE unsigned short hpfem_bfloat16(float x) {
  unsigned short rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(x));
  return rounded;
}
// Matrix products of a warp, C += A B, of 16 x 8 with 16 terms: C in float32, A and B in bfloat16, two in a word, the lower
// half first. Lane 4 g + t holds A[g][2 t, 2 t + 1], A[g + 8][..], A[g][2 t + 8, 2 t + 9], A[g + 8][..],
// B[2 t, 2 t + 1][g], B[2 t + 8, 2 t + 9][g] and C[g, g + 8][2 t, 2 t + 1].
#define HPFEM_MULTIPLY_16(c, a, b)                                                                                     \
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"         \
      : "+f"((c)[0]), "+f"((c)[1]), "+f"((c)[2]), "+f"((c)[3])                                                         \
      : "r"((a)[0]), "r"((a)[1]), "r"((a)[2]), "r"((a)[3]), "r"((b)[0]), "r"((b)[1]))
// FP64 matrix products of a warp, C += A B, of 16 x 8 with 8 (or 4) terms. Lane 4 g + t holds A[g, g + 8][t, t + 4],
// B[t, t + 4][g] and C[g, g + 8][2 t, 2 t + 1]. HPFEM_MULTIPLY_ROWS is the first half of them, 8 x 8 with 4 terms, at half
// the speed.
#define HPFEM_MULTIPLY_ROWS(c0, c1, a, b)                                                                              \
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};" : "+d"(c0), "+d"(c1) : "d"(a), "d"(b))
#if __CUDA_ARCH__ >= 900
#define HPFEM_MULTIPLY_8(c, a0, a1, a2, a3, b0, b1)                                                                    \
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"            \
      : "+d"((c)[0]), "+d"((c)[1]), "+d"((c)[2]), "+d"((c)[3])                                                         \
      : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1))
#define HPFEM_MULTIPLY_4(c, a0, a1, b0)                                                                                \
  asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"                     \
      : "+d"((c)[0]), "+d"((c)[1]), "+d"((c)[2]), "+d"((c)[3])                                                         \
      : "d"(a0), "d"(a1), "d"(b0))
#else
#define HPFEM_MULTIPLY_4(c, a0, a1, b0)                                                                                \
  {                                                                                                                    \
    HPFEM_MULTIPLY_ROWS((c)[0], (c)[1], a0, b0);                                                                       \
    HPFEM_MULTIPLY_ROWS((c)[2], (c)[3], a1, b0);                                                                       \
  }
#define HPFEM_MULTIPLY_8(c, a0, a1, a2, a3, b0, b1)                                                                    \
  {                                                                                                                    \
    HPFEM_MULTIPLY_4(c, a0, a1, b0)                                                                                    \
    HPFEM_MULTIPLY_4(c, a2, a3, b1)                                                                                    \
  }
#endif
#endif
