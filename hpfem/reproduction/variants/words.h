// The device's own words, which the tests' host.h defines for a CPU.
#ifndef HPFEM_HOST
#define HPFEM_DEVICE __device__ __forceinline__
#define HPFEM_SHARED(name)                                                                                             \
  extern __shared__ __align__(16) unsigned char hpfem_shared[];                                                        \
  real *const name = reinterpret_cast<real *>(hpfem_shared)
#define FILLED_CONSTANT(declaration) extern "C" { __constant__ declaration; }
#else
#define FILLED_CONSTANT(declaration) static declaration;
#endif
using real = double;
