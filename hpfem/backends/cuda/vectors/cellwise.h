// Products with dense matrices in cells, local = M Q global, by tensor cores: M and Q global in bfloat16, sums in float32.
// Each sum has a fixed order. `global` is multiplied by `weights`, if they are given.
//
// `codes`, `row_starts`, `places` and `entries` are Q as in indexed.h. A block has up to ELEMENTS elements with one matrix:
// `pieces` [block] has its first row of `codes` and `out`, its elements, and the numbers of its matrix and of its table.
// Its warps share the elements, ELEMENT_WARPS by ELEMENT_TILES tiles of 16, and the rows of M, MODE_WARPS by MODE_PAIRS
// pairs of tiles of 8. `matrix` [number][pair][tile of 16 columns][lane][tile of the pair][2] holds M as HPFEM_MULTIPLY_16
// wants it, zero beyond MODES.
//
// The numbers of a block stand entity by entity, in `codes` and in `out`: those of all its elements for the first entity,
// element by element, then for the next one. So neighbours are read side by side, here and in sums over cells. `layout`
// has the place of each mode in that order; `tables` [number] the place in shared memory of each number, by the elements
// that a block has.
//
// `real`, `Index`, MODES, THREADS, ELEMENT_WARPS, ELEMENT_TILES, MODE_WARPS, MODE_PAIRS, BLOCKS and SIDE are given.
// BLOCKS: those of a multiprocessor that registers are to be enough for. SIDE: numbers that a thread reads at a time, as
// their loads are then under way together.

constexpr int ELEMENTS = 16 * ELEMENT_WARPS * ELEMENT_TILES, COLUMN_TILES = (MODES + 15) / 16;
// Words of two numbers of an element in shared memory: so far apart that the lanes of a warp find theirs in all banks.
constexpr int WORDS = 8 * COLUMN_TILES + 4;
static_assert(32 * ELEMENT_WARPS * MODE_WARPS == THREADS && 16 * MODE_WARPS * MODE_PAIRS >= MODES, "all rows");

struct alignas(16) Pair {
  unsigned of[2][2];
};
struct Piece {
  long long row;
  int elements, matrix, table, unused;
};
struct alignas(8) Place {
  unsigned short offset, size, within, unused; // of the mode's entity, of its modes, and among these
};
struct Weighted {
  const real *x, *weights;
  HPFEM_DEVICE real operator[](long long i) const { return weights ? weights[i] * x[i] : x[i]; }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    cellwise(const Piece *__restrict__ pieces, const Index *__restrict__ codes, const Index *__restrict__ row_starts,
             const Index *__restrict__ places, const real *__restrict__ entries, const Pair *__restrict__ matrix,
             const Place *__restrict__ layout, const unsigned short *__restrict__ tables, const real *__restrict__ global,
             const real *__restrict__ weights, real *__restrict__ out) {
  HPFEM_SHARED(shared);
  unsigned *const words = reinterpret_cast<unsigned *>(shared);
  unsigned short *const x = reinterpret_cast<unsigned short *>(shared);
  const Piece piece = pieces[blockIdx.x];
  const Restriction<Index> Q{row_starts, places, entries};
  const int here = piece.elements;
  const unsigned short *const target = tables + piece.table * (ELEMENTS * MODES);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int element = warp % ELEMENT_WARPS * (16 * ELEMENT_TILES), pair = warp / ELEMENT_WARPS * MODE_PAIRS;
  // The next columns of M are on their way, the first ones while the block reads its numbers, all then from the second cache:
  // a small problem's blocks all wait for the same columns.
  Pair next[MODE_PAIRS];
  const Pair *const mine = matrix + (piece.matrix * (MODE_WARPS * MODE_PAIRS) + pair) * (32 * COLUMN_TILES) + lane;
  if (lane == 0 && warp % ELEMENT_WARPS == 0) HPFEM_PREFETCH_L2(mine, int(MODE_PAIRS * 32 * COLUMN_TILES * sizeof(Pair)));
  HPFEM_UNROLL for (int j = 0; j < MODE_PAIRS; j++) next[j] = mine[32 * COLUMN_TILES * j];
  for (int i0 = threadIdx.x; i0 < here * MODES; i0 += SIDE * THREADS) {
    Index own[SIDE];
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS;
      own[s] = i < here * MODES ? HPFEM_STREAM(codes + piece.row + i) : Index(-1);
    }
    real v[SIDE];
    Q.take(own, Weighted{global, weights}, v);
    HPFEM_UNROLL for (int s = 0; s < SIDE; s++) {
      const int i = i0 + s * THREADS;
      if (i < here * MODES) x[target[i]] = hpfem_bfloat16(v[s]);
    }
  }
  constexpr int FILLED = 16 * COLUMN_TILES - MODES;
  for (int i = threadIdx.x; i < ELEMENTS * FILLED; i += THREADS) {
    const int e = i / (FILLED + (FILLED == 0));
    x[2 * WORDS * e + MODES + (i - e * FILLED)] = 0;
  }
  __syncthreads();
  float sum[ELEMENT_TILES][2 * MODE_PAIRS][4] = {};
  HPFEM_ROLLED for (int k = 0; k < COLUMN_TILES; k++) {
    unsigned a[ELEMENT_TILES][4];
    Pair b[MODE_PAIRS];
    HPFEM_UNROLL for (int j = 0; j < MODE_PAIRS; j++) {
      b[j] = next[j];
      if (k + 1 < COLUMN_TILES) next[j] = mine[32 * (COLUMN_TILES * j + k + 1)];
    }
    HPFEM_UNROLL for (int i = 0; i < ELEMENT_TILES; i++) {
      const unsigned *const own = words + (element + 16 * i + g) * WORDS + 8 * k + t;
      a[i][0] = own[0], a[i][1] = own[8 * WORDS], a[i][2] = own[4], a[i][3] = own[8 * WORDS + 4];
    }
    HPFEM_UNROLL for (int i = 0; i < ELEMENT_TILES; i++) {
      HPFEM_UNROLL for (int j = 0; j < 2 * MODE_PAIRS; j++) HPFEM_MULTIPLY_16(sum[i][j], a[i], b[j / 2].of[j % 2]);
    }
  }
  __syncthreads();
  HPFEM_UNROLL for (int j = 0; j < 2 * MODE_PAIRS; j++) {
    HPFEM_UNROLL for (int second = 0; second < 2; second++) {
      const int m = 8 * (2 * pair + j) + 2 * t + second;
      if (m >= MODES) continue;
      const Place place = layout[m];
      const int begin = place.offset * here + place.within;
      HPFEM_UNROLL for (int i = 0; i < 2 * ELEMENT_TILES; i++) {
        const int e = element + 8 * i + g;
        if (e < here) shared[begin + e * place.size] = sum[i / 2][j][2 * (i % 2) + second];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < here * MODES; i += THREADS) out[piece.row + i] = shared[i];
}
