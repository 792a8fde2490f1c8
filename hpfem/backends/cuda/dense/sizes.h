// Sizes that follow from the parameters.

constexpr int K_TILES = (N_MODES + 7) / 8, R_TILES = (ROWS + 7) / 8; // eights of modes and of rows
// Whether the last eight are at most four, at even places.
constexpr bool K_HALF = N_MODES % 8 >= 1 && N_MODES % 8 <= 4, R_HALF = ROWS % 8 >= 1 && ROWS % 8 <= 4;
constexpr int WARP_ELEMENTS = 16 * TILES, THREADS = 32 * WARPS, STAGES_OR_1 = STAGES > 0 ? STAGES : 1;
// Coefficients of 16 elements in shared memory, [eight modes][odd place][element % 8][place / 2][element / 8], so that a
// lane reads what it multiplies as it multiplies it; results of eight, [eight modes][element][place]. Padded against bank
// conflicts.
constexpr int PITCH = 72, SIXTEEN = K_TILES * 2 * PITCH, EIGHT = K_TILES * PITCH;
// Numbers of a block: tiles, and where each mode is among coefficients and results, two bytes each.
constexpr int STREAM = 64 * (STAGES > 0 ? STAGES * CHUNK : N_TILES), PLACES = rounded_up((2 * N_MODES + 3) / 4, 2);
// Lanes that take the modes of an element, or its factors, side by side when they are copied.
constexpr int MODE_LANES = N_MODES <= 8 ? 8 : N_MODES <= 16 ? 16 : 32, MODES_AT_ONCE = 32 / MODE_LANES;
constexpr int FACTOR_LANES = N_FACTORS == 1 ? 1 : N_FACTORS <= 4 ? 4 : 8, FACTORS_AT_ONCE = 32 / FACTOR_LANES;
// Numbers of a warp: coefficients, results, factors.
constexpr int GIVEN = TILES * SIXTEEN, RESULT = KEPT ? EIGHT : 0, FACTORS_SIZE = rounded_up(WARP_ELEMENTS * N_FACTORS, 2);
constexpr int WARP_SIZE = GIVEN + RESULT + (KEPT ? 2 : 1) * FACTORS_SIZE;
