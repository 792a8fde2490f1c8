// Steps, and what each takes.
//
// A warp has a component: those that the pointwise function couples are a team of warps.
//
// A step takes FOURS times four pairs of points, or eight single ones. Its products have eight columns, two for each of
// four points: of the quantities (value and derivatives, as far as the form has them) of one four after the other.

constexpr int THREADS = 32 * WARPS, STAGES_OR_1 = STAGES > 0 ? STAGES : 1;
constexpr int TEAM = COMPONENTS, MEMBERS = 32 * TEAM, TEAMS = WARPS / TEAM;
constexpr int EVEN_TILES = (EVEN + 7) / 8, ODD_TILES = (ODD + 7) / 8, K_TILES = EVEN_TILES + ODD_TILES;
constexpr int MOST_TILES = EVEN_TILES > ODD_TILES ? EVEN_TILES : ODD_TILES;
// Whether the last eight of them are at most four.
constexpr bool EVEN_HALF = EVEN % 8 >= 1 && EVEN % 8 <= 4, ODD_HALF = ODD % 8 >= 1 && ODD % 8 <= 4;

constexpr bool VALUE = TRIAL_VALUE || TEST_VALUE, GRADIENT = TRIAL_GRADIENT || TEST_GRADIENT;
constexpr int QUANTITIES = VALUE + DIM * GRADIENT, ACROSS = VALUE; // the derivative across the mirror is number ACROSS

enum Kind { PAIR, SINGLE };
HPFEM_DEVICE constexpr int most_points(int kind) { return kind == PAIR ? 4 * FOURS : 8; }
// Columns of a four of points that even and odd modes contribute to. On the mirror derivatives across it are those of odd
// modes, and all others those of even ones.
HPFEM_DEVICE constexpr int even_columns(int kind) {
  return kind == SINGLE && ODD > 0 ? QUANTITIES - GRADIENT : QUANTITIES;
}
HPFEM_DEVICE constexpr int odd_columns(int kind) { return ODD == 0 ? 0 : kind == PAIR ? QUANTITIES : int(GRADIENT); }
HPFEM_DEVICE constexpr int products(int columns, int points) { return ((points + 3) / 4 * columns + 1) / 2; }
HPFEM_DEVICE constexpr int tiles_of(int kind, int points) {
  return products(even_columns(kind), points) * EVEN_TILES + products(odd_columns(kind), points) * ODD_TILES;
}

constexpr int PAIR_STEPS = PAIRS / most_points(PAIR), PAIR_REST = PAIRS % most_points(PAIR);
constexpr int SINGLE_STEPS = SINGLES / 8, SINGLE_REST = SINGLES % 8;
constexpr int PAIR_END = PAIR_STEPS + (PAIR_REST > 0), STEPS = PAIR_END + SINGLE_STEPS + (SINGLE_REST > 0);
constexpr int PAIR_TILES = tiles_of(PAIR, most_points(PAIR)), SINGLE_TILES = tiles_of(SINGLE, 8);
constexpr int PAIRS_TILES = PAIR_STEPS * PAIR_TILES + tiles_of(PAIR, PAIR_REST);
constexpr int N_TILES = PAIRS_TILES + SINGLE_STEPS * SINGLE_TILES + tiles_of(SINGLE, SINGLE_REST);
constexpr int CHUNK = larger(PAIR_STEPS ? PAIR_TILES : tiles_of(PAIR, PAIR_REST),
                             SINGLE_STEPS ? SINGLE_TILES : tiles_of(SINGLE, SINGLE_REST));
// The step's kind, its points (pairs), the first of these, its tiles and the first of those.
struct Step {
  int kind, points, first, tiles, tile;
};
HPFEM_DEVICE Step step_at(int s) {
  if (s < PAIR_STEPS) return {PAIR, most_points(PAIR), s * most_points(PAIR), PAIR_TILES, s * PAIR_TILES};
  if (s < PAIR_END) return {PAIR, PAIR_REST, PAIRS - PAIR_REST, tiles_of(PAIR, PAIR_REST), PAIR_STEPS * PAIR_TILES};
  const int n = s - PAIR_END;
  if (n < SINGLE_STEPS) return {SINGLE, 8, 8 * n, SINGLE_TILES, PAIRS_TILES + n * SINGLE_TILES};
  return {SINGLE, SINGLE_REST, SINGLES - SINGLE_REST, tiles_of(SINGLE, SINGLE_REST), N_TILES - tiles_of(SINGLE, SINGLE_REST)};
}

// Numbers of shared memory: tables of the block, and FIRST and SECOND, two bytes each; of a team the factors of some steps, what its
// warps exchange, coefficients of 16 elements, and fields of as many steps.
constexpr int TABLES = 64 * (STAGES > 0 ? STAGES * CHUNK : N_TILES), POINT = 16 * N_FACTORS;
constexpr int PLACES = 8 * MOST_TILES, NAMES = PLACES / 2;
constexpr int STAGE_POINTS = larger(PAIRS ? 2 * most_points(PAIR) : 0, SINGLE_STEPS ? 8 : rounded_up(SINGLE_REST, 4));
constexpr int STAGE = STORED ? STAGE_POINTS * POINT * int(sizeof(stored_real)) / int(sizeof(real)) : 0;
constexpr int UNITS = STAGE_POINTS / 2, EXCHANGED = TEAM > 1 ? TEAM * QUANTITIES * UNITS * 32 : 0;
constexpr int GIVEN = (K_TILES - KEPT) * 128, FIELDS_STAGE = TEAM > 1 || !TO_MODES ? (UNITS + TEAM - 1) / TEAM * N_FIELDS * 32 : 0;
// Results at the points of a step and up to four before, [result][element][point]; rows of elements are in different banks.
constexpr int MADE_ROW = larger(PAIRS ? 2 * (most_points(PAIR) + 4) : 0, 12) + 2, MADE = TO_MODES ? 0 : SINKS * 16 * MADE_ROW;
HPFEM_DEVICE constexpr int made_at(int kind, int side, int point) {
  return side * (most_points(PAIR) + 4) + point % (most_points(kind) + 4);
}
constexpr int TEAM_SIZE = AHEAD * STAGE + EXCHANGED + TEAM * (GIVEN + AHEAD * FIELDS_STAGE) + MADE;

// A factor of a pair of elements; COPIED pairs are copied at a time, those of some points in `parts` by all lanes of the team.
struct alignas(2 * sizeof(stored_real)) Stored {
  stored_real x, y;
};
constexpr int COPIED = 16 / sizeof(Stored);
HPFEM_DEVICE constexpr int parts(int points) { return (points * (POINT / 2 / COPIED) + MEMBERS - 1) / MEMBERS; }

// Where the i-th pair of elements' factors of a step are: eights of them rotated by twice their number if that tells the
// four points of a lane's neighbours apart, else by twice their point's.
constexpr bool BY_ROW = N_FACTORS % 2;
HPFEM_DEVICE int rotated(int i) { return i / 8 * 8 + (i + 2 * (i / (BY_ROW ? 8 : larger(POINT / 2, 1)))) % 8; }
