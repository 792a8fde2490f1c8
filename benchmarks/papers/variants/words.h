// The device's own words, which the tests' host.h defines for a CPU.
#ifndef HPFEM_HOST
#define HPFEM_DEVICE __device__ __forceinline__
#define HPFEM_SHARED(name)                                                                                             \
  extern __shared__ __align__(16) unsigned char hpfem_shared[];                                                        \
  real *const name = reinterpret_cast<real *>(hpfem_shared)
#define FILLED_CONSTANT(declaration) extern "C" { __constant__ declaration; }
#define MULTIPLY(c, a, b)                                                                                              \
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"                                     \
      : "+d"((c)[0]), "+d"((c)[1])                                                                                     \
      : "d"(a), "d"(b))
#else
#define FILLED_CONSTANT(declaration) static declaration;
#define MULTIPLY(c, a, b)                                                                                              \
  {                                                                                                                    \
    real rows[4] = {(c)[0], (c)[1], 0, 0};                                                                             \
    HPFEM_MULTIPLY_4(rows, a, 0.0, b);                                                                                 \
    (c)[0] = rows[0], (c)[1] = rows[1];                                                                                \
  }
#endif
using real = double;
