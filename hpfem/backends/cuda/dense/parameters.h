// What the kernel on tensor cores is told at compile time beside the constants of every kernel (`DensePlan.source`).

constexpr int ROWS = $ROWS;                 // rows of every D_i that the form needs
constexpr int MIN_BLOCKS = $MIN_BLOCKS;     // blocks per multiprocessor that registers leave room for
constexpr int WARPS = $WARPS;               // per block of threads
constexpr int TILES = $TILES;               // elements of a warp in units of 16
constexpr int STAGES = $STAGES;             // of the ring that the matrices' tiles go through; 0: all of them stay in shared memory
constexpr int CHUNK = $CHUNK;               // tiles of a stage
constexpr int AT_ONCE = $AT_ONCE;           // eights of rows in work at a time
constexpr int N_TILES = $N_TILES;           // tiles of the stream: those that are multiplied, and what fills the last chunks
constexpr int USED_TILES = $USED_TILES;     // tiles that are multiplied
constexpr bool KEPT = $KEPT;                // whether coefficients are kept in registers, and the next ones fetched meanwhile
// Where the tile of these eights is in the stream; -1 if it is zero.
HPFEM_TABLE short MASS_TILE[] = {$MASS_TILE};       // [summed modes][resulting modes]
HPFEM_TABLE short FORWARD_TILE[] = {$FORWARD_TILE}; // [rows][modes][direction]
HPFEM_TABLE short BACK_TILE[] = {$BACK_TILE};       // [rows][direction][modes]
// Place of a mode among the sorted ones, with gaps in the last eight.
HPFEM_TABLE short PLACE[] = {$PLACE};
