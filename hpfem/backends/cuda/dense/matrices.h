// The matrices as a stream of 8 x 8 tiles in the order of their use, [result place][summed place]: M by (summed, result),
// then for every AT_ONCE eights of rows D by (modes, rows, direction) and D^T by (rows, direction, modes). Modes are sorted
// so that many tiles are zero; those are left out. STAGES = 0: all tiles stay in shared memory, and warps run on their own.
// Otherwise CHUNK of them at a time go through a ring of STAGES; the number of chunks is a multiple of STAGES, so that
// every tile is always found at the same address.

struct alignas(16) Two {
  real x, y;
};

struct Matrices {
  real *const &shared;
  const real *const __restrict__ matrices;
  const Two *const tiles;

  HPFEM_DEVICE void request(int chunk) const {
    HPFEM_UNROLL for (int n = 0; n < (CHUNK * 32 + THREADS - 1) / THREADS; n++) {
      const int i = n * THREADS + threadIdx.x;
      if (CHUNK * 32 % THREADS == 0 || i < CHUNK * 32) {
        HPFEM_COPY(shared + chunk % STAGES_OR_1 * (CHUNK * 64) + 2 * i, matrices + chunk * (CHUNK * 64) + 2 * i, 16);
      }
    }
    HPFEM_COPY_COMMIT();
  }
  HPFEM_DEVICE void start() const {
    if constexpr (STAGES > 0) {
      HPFEM_UNROLL for (int s = 0; s < STAGES - 1; s++) request(s);
    } else {
      for (int i = threadIdx.x; i < N_TILES * 32; i += THREADS) HPFEM_COPY(shared + 2 * i, matrices + 2 * i, 16);
      HPFEM_COPY_COMMIT();
      HPFEM_COPY_WAIT(0);
    }
  }
  // The lane's part of a tile; every tile is asked for once, in order.
  HPFEM_DEVICE Two tile(int n) const {
    if constexpr (STAGES > 0) {
      if (n % CHUNK == 0) {
        // The next chunk is there for all, and all have left the one before: its stage takes another.
        HPFEM_COPY_WAIT(STAGES - 2);
        __syncthreads();
        request((n / CHUNK + STAGES - 1) % (N_TILES / CHUNK));
      }
      return tiles[(n / CHUNK % STAGES * CHUNK + n % CHUNK) * 32];
    } else return tiles[n * 32];
  }
};
