// What sumfac_top.h is told at compile time beside codegen/parameters.h: sizes of a block (`SumFacTopPlan`) and options.

constexpr int E = $E;                          // elements of a block
constexpr int THREADS = $THREADS;              // of a block
constexpr int MIN_BLOCKS = $MIN_BLOCKS;        // blocks of a multiprocessor that registers have to leave room for
constexpr int LS = $LS;                        // distance of rows in shared memory, chosen against bank conflicts
constexpr int R2 = $R2;                        // rows of a function p, or of points i, at most
constexpr int ARRAY = $ARRAY;                  // numbers of an array
constexpr int ARRAYS = $ARRAYS;                // arrays of a component: values and derivatives
constexpr int TOTAL_ARRAYS = $TOTAL_ARRAYS;    // of all components
constexpr int MODES_SIZE = $MODES_SIZE;        // numbers of `modes`, the block's coefficients; 0 where there are none
constexpr int MODES_PITCH = $MODES_PITCH;      // of one element
constexpr int C_TABLE_SIZE = $C_TABLE_SIZE;    // entries of the last direction's table in shared memory
constexpr int B_TABLE_SIZE = $B_TABLE_SIZE;    // of the second direction's; 0: it stays in the constant bank
constexpr int LAST_PITCH = $LAST_PITCH;        // entries between functions of the last direction's table
constexpr int N_LAST = $N_LAST;                // lines along the last direction of an element
constexpr int TOGETHER = $TOGETHER;            // elements whose lines along the last direction a thread takes
constexpr int PREFETCH = $PREFETCH;            // points of a line whose factors are fetched ahead
constexpr bool LATE = $LATE;                   // whether that is before the last barrier in front of them, not the first
constexpr bool L2_PREFETCH = $L2_PREFETCH;     // whether a block begins by asking for its factors in the L2 cache
constexpr bool GRID = $GRID;                   // functions are products of three, directions the user's: a warp has neighbours
constexpr bool LINES_AWAY = $LINES_AWAY;       // lines of coupled components are in shared memory while points are gone through
constexpr bool SPLIT_IN = $SPLIT_IN;           // whether lines along the last direction are a phase of their own
constexpr bool SPLIT_OUT = $SPLIT_OUT;         // the same on the way back

HPFEM_TABLE short LEAF_TO_MODE[] = {$LEAF_TO_MODE};

// A line of the last direction: its row at the points, first leaf, first function and number of leaves.
struct alignas(8) Node {
  short row, leaf, function, count;
};
// A leaf: its number, its parent's row, its function, and the next leaf of its mode (in MORE_LEAVES; -1: none).
struct alignas(8) Leaf {
  short leaf, row, function, next;
};

HPFEM_TABLE Node NODES[] = {$NODES};             // long lines first
HPFEM_TABLE Leaf MODE_LEAVES[] = {$MODE_LEAVES}; // a mode's first leaf
HPFEM_TABLE Leaf MORE_LEAVES[] = {$MORE_LEAVES};
