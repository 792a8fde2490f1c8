// Arrays in shared memory, their tables, and which thread takes which of their rows and lines.

constexpr bool PAIRS = TREE_IN || TREE_OUT;
constexpr int LANES = Q3 * E, LINES = Q2 * LANES;
constexpr int ROW_WARPS = (LANES + 31) / 32;
constexpr int STEP = R2 * LS; // between points of a line along the first direction

using Entry = typename Choose<PAIRS, Pair, real>::type;

HPFEM_DEVICE real value_of(real x) { return x; }
HPFEM_DEVICE real value_of(Pair x) { return x.v; }
HPFEM_DEVICE real derivative_of(real) { return 0; }
HPFEM_DEVICE real derivative_of(Pair x) { return x.d; }
HPFEM_DEVICE void set(real &entry, real v, real) { entry = v; }
HPFEM_DEVICE void set(Pair &entry, real v, real d) { entry = Pair{v, d}; }

struct Tables {
  const Entry *b; // [function][j], in shared memory if B_TABLE_SIZE > 0
  const Entry *c; // of the last direction, [function][k], in shared memory unless REVERSED
};
template <int index> HPFEM_DEVICE Pair table2(const Tables &t) {
  if constexpr (B_TABLE_SIZE > 0) return Pair{value_of(t.b[index]), derivative_of(t.b[index])};
  else return Pair{B2[index], PAIRS ? D2[index] : real(0)};
}

// Calls f(Int<p>{}, lane) for all rows and lanes: a warp keeps to one row, long rows are paired with short ones.
template <class F> HPFEM_DEVICE void rows(F &&f) {
  const int warp = threadIdx.x / 32, inside = threadIdx.x % 32;
  for (int item = warp; item < N1 * ROW_WARPS; item += THREADS / 32) {
    const int at = item / ROW_WARPS, lane = item % ROW_WARPS * 32 + inside;
    const int row = ROW_WARPS > 1 || at < 4 ? at : N1 + 3 - at;
    if (lane < LANES) each<0, N1>([&](auto p) { if (row == decltype(p)::value) f(p, lane); });
  }
}
// The same where all rows are alike: no lane is idle and the row is a run-time number.
template <class F> HPFEM_DEVICE void alike_rows(F &&f) {
  for (int item = threadIdx.x; item < N1 * LANES; item += THREADS) f(item / LANES, item % LANES);
}

// Lines of the last direction: the third one, or the second of two. Their points are LAST_STEP apart in S.
constexpr int LAST_POINTS = DIM > 2 ? Q3 : Q2, LAST_STEP = DIM > 2 ? E : LS;

// Calls f(k, entry) for the entries of a function of the last direction; two at a time from shared memory.
template <class F> HPFEM_DEVICE void entries(const Entry *c, F &&f) {
  if constexpr (PAIRS) {
    HPFEM_UNROLL for (int k = 0; k < LAST_POINTS; k++) f(k, c[k]);
  } else {
    HPFEM_UNROLL for (int k = 0; k + 1 < LAST_POINTS; k += 2) {
      const Pair two = *reinterpret_cast<const Pair *>(c + k);
      f(k, Entry{two.v});
      f(k + 1, Entry{two.d});
    }
    if constexpr (LAST_POINTS % 2) f(LAST_POINTS - 1, c[LAST_POINTS - 1]);
  }
}

// A thread takes the line of TOGETHER elements, E_STEP apart: they share what is read of the table.
constexpr int E_STEP = E / TOGETHER;

// Numbers of a thread's line along the first direction, of one component: coefficients of functions p, and of derivatives
// along the other directions; or, collocated, values at points i.
constexpr int NUMBERS = COLLOCATED ? Q1 : N1;
constexpr int GIVEN = TREE_IN ? DIM : 1, RESULTS = TREE_OUT ? DIM : 1; // arrays that it goes through
using Given = real[GIVEN][NUMBERS];
using Result = real[RESULTS][NUMBERS];
