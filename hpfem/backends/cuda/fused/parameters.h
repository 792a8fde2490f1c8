// What the fused kernel is told at compile time beside the constants of every kernel (`FusedPlan.source`).

constexpr int WARPS = $WARPS;           // per block of threads
constexpr int MIN_BLOCKS = $MIN_BLOCKS; // blocks per multiprocessor that registers leave room for
constexpr int STAGES = $STAGES;         // of the ring that the tables of a step go through; 0: all of them stay in shared memory
constexpr int AHEAD = $AHEAD;           // steps whose factors are in shared memory or on their way
constexpr int FOURS = $FOURS;           // fours of pairs of points of a step
constexpr int KEPT = $KEPT;             // eights of modes whose coefficients are kept in registers
// Modes that are even under the mirror eta_1 -> -eta_1 and those that are odd; pairs of points, and points on the mirror.
// Without the mirror all modes count as even, and all points as on it.
constexpr int EVEN = $EVEN;
constexpr int ODD = $ODD;
constexpr int PAIRED = $PAIRED; // the first of the even and of the odd modes are sum and difference of two that are images
constexpr int PAIRS = $PAIRS;
constexpr int SINGLES = $SINGLES;
// Of the i-th even and odd mode: the two modes that they are sum and difference of, or themselves; -1: none.
HPFEM_TABLE short FIRST[] = {$FIRST};
HPFEM_TABLE short SECOND[] = {$SECOND};
