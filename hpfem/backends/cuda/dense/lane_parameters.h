// What Python tells the kernel with one element per thread beside the constants of every kernel; see parameters.h.

constexpr int ROWS;         // rows of every D_i that the form needs
constexpr int MIN_BLOCKS;   // blocks per multiprocessor that registers leave room for
constexpr int LINES_PADDED; // of geometry.h: affine factors have no lines
constexpr int THREADS;      // per block
HPFEM_DEVICE constexpr int first_mode(int n);  // place before which the modes' derivatives have no part in a row
HPFEM_DEVICE constexpr int sorted_mode(int n); // mode at a place
HPFEM_CONSTANT real MASS[];                    // [place][place]
HPFEM_CONSTANT real DERIVATIVES[];             // D_i, [direction][row][place]
