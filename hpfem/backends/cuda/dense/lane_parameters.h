// What the kernel with one element per thread is told at compile time beside the constants of every kernel
// (`DensePlan.source`).

constexpr int ROWS = $ROWS;                 // rows of every D_i that the form needs
constexpr int MIN_BLOCKS = $MIN_BLOCKS;     // blocks per multiprocessor that registers leave room for
constexpr int THREADS = $THREADS;           // per block
// Place before which the modes' derivatives have no part in a row.
HPFEM_DEVICE constexpr int first_mode(int n) {
  const int table[] = {$first_mode};
  return table[n];
}
// Mode at a place.
HPFEM_DEVICE constexpr int sorted_mode(int n) {
  const int table[] = {$sorted_mode};
  return table[n];
}
HPFEM_CONSTANT real MASS[] = {$MASS};               // [place][place]
HPFEM_CONSTANT real DERIVATIVES[] = {$DERIVATIVES}; // D_i, [direction][row][place]
