// Products with a dense matrix in cells, local = M Q global, by tensor cores: M and Q global in bfloat16, sums in float32.
// Each sum has a fixed order.
//
// `codes`, `row_starts`, `places` and `entries` are Q as in indexed.h. A block has ELEMENTS elements. Its warps share them,
// ELEMENT_WARPS by ELEMENT_TILES tiles of 16, and the rows of M, MODE_WARPS by MODE_TILES tiles of 8. `matrix`
// [tile of 8 rows][tile of 16 columns][lane][2] holds M as HPFEM_MULTIPLY_16 wants it, zero beyond MODES.
//
// `real`, `Index`, MODES, THREADS, ELEMENT_WARPS, ELEMENT_TILES, MODE_WARPS, MODE_TILES and SIDE are given. SIDE: numbers
// that a thread reads at a time, as their loads are then under way together.

constexpr int ELEMENTS = 16 * ELEMENT_WARPS * ELEMENT_TILES, COLUMN_TILES = (MODES + 15) / 16;
// Words of two numbers of an element in shared memory: so far apart that the lanes of a warp find theirs in all banks.
constexpr int WORDS = 8 * COLUMN_TILES + 4;
static_assert(32 * ELEMENT_WARPS * MODE_WARPS == THREADS && 8 * MODE_WARPS * MODE_TILES >= MODES, "all rows");

extern "C" __global__ void __launch_bounds__(THREADS)
    cellwise(const long long elements, const Index *__restrict__ codes, const Index *__restrict__ row_starts,
             const Index *__restrict__ places, const real *__restrict__ entries, const unsigned *__restrict__ matrix,
             const real *__restrict__ global, real *__restrict__ out) {
  HPFEM_SHARED(shared);
  unsigned *const words = reinterpret_cast<unsigned *>(shared);
  unsigned short *const x = reinterpret_cast<unsigned short *>(shared);
  const long long first = (long long)blockIdx.x * ELEMENTS;
  const Restriction<Index> Q{row_starts, places, entries};
  const long long left = (elements - first) * MODES;
  for (int i0 = threadIdx.x; i0 < ELEMENTS * MODES; i0 += SIDE * THREADS) {
    Index own[SIDE];
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS;
      own[s] = i < ELEMENTS * MODES && i < left ? HPFEM_STREAM(codes + first * MODES + i) : Index(-1);
    }
    real v[SIDE];
    Q.take(own, global, v);
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS, e = i / MODES, m = i - e * MODES;
      if (i < ELEMENTS * MODES) x[2 * WORDS * e + m] = hpfem_bfloat16(v[s]);
    }
  }
  constexpr int FILLED = 16 * COLUMN_TILES - MODES;
  for (int i = threadIdx.x; i < ELEMENTS * FILLED; i += THREADS) {
    const int e = i / (FILLED + (FILLED == 0));
    x[2 * WORDS * e + MODES + (i - e * FILLED)] = 0;
  }
  __syncthreads();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int element = warp % ELEMENT_WARPS * (16 * ELEMENT_TILES), tile = warp / ELEMENT_WARPS * MODE_TILES;
  float sum[ELEMENT_TILES][MODE_TILES][4] = {};
  HPFEM_ROLLED for (int k = 0; k < COLUMN_TILES; k++) {
    unsigned a[ELEMENT_TILES][4], b[MODE_TILES][2];
    HPFEM_UNROLL for (int j = 0; j < MODE_TILES; j++) {
      const unsigned *const own = matrix + 64 * ((tile + j) * COLUMN_TILES + k) + 2 * lane;
      b[j][0] = own[0], b[j][1] = own[1];
    }
    HPFEM_UNROLL for (int i = 0; i < ELEMENT_TILES; i++) {
      const unsigned *const own = words + (element + 16 * i + g) * WORDS + 8 * k + t;
      a[i][0] = own[0], a[i][1] = own[8 * WORDS], a[i][2] = own[4], a[i][3] = own[8 * WORDS + 4];
    }
    HPFEM_UNROLL for (int i = 0; i < ELEMENT_TILES; i++) {
      HPFEM_UNROLL for (int j = 0; j < MODE_TILES; j++) HPFEM_MULTIPLY_16(sum[i][j], a[i], b[j]);
    }
  }
  HPFEM_UNROLL for (int i = 0; i < ELEMENT_TILES; i++) {
    HPFEM_UNROLL for (int j = 0; j < MODE_TILES; j++) {
      HPFEM_UNROLL for (int n = 0; n < 4; n++) {
        const int e = element + 16 * i + g + n / 2 * 8, m = 8 * (tile + j) + 2 * t + n % 2;
        if (m < MODES && first + e < elements) out[(first + e) * MODES + m] = sum[i][j][n];
      }
    }
  }
}
