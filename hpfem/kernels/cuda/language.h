// What the kernels need beyond C++17: a few helpers, and the device's own words, which the host shim (host.h) defines
// for a CPU.
#ifndef HPFEM_HOST
#define HPFEM_DEVICE __device__ __forceinline__
#define HPFEM_CONSTANT static __constant__ const
#define HPFEM_TABLE static __device__ const
#define HPFEM_UNROLL _Pragma("unroll")
#define HPFEM_STREAM(pointer) __ldcs(pointer)
#define HPFEM_STORE(pointer, x) __stcs(pointer, x)
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
#endif
