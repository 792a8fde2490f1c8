// Everything that a kernel is told at compile time, each with what it means; Python fills in the values (`fill` in
// prelude.py), and refuses one that is missing or unknown. A family's own are in the folder of its kernel.

typedef $real real;
typedef $stored_real stored_real; // of geometric factors in memory: a smaller one, or the same

// The form (hpfem/forms/form.py).
constexpr bool FROM_MODES = $FROM_MODES;          // coefficients come in; otherwise values at the points
constexpr bool TO_MODES = $TO_MODES;              // the result is tested with the basis; otherwise it is that at the points
constexpr bool TRIAL_VALUE = $TRIAL_VALUE;        // the value is evaluated at the points
constexpr bool TRIAL_GRADIENT = $TRIAL_GRADIENT;  // the gradient is
constexpr bool TEST_VALUE = $TEST_VALUE;          // something multiplies the test functions
constexpr bool TEST_GRADIENT = $TEST_GRADIENT;    // something multiplies their gradients
constexpr bool HAS_FUNCTION = $HAS_FUNCTION;      // there is a pointwise function: `physics`
constexpr bool COLLOCATED = $COLLOCATED;          // gradients, if any, are those of the values at the points
constexpr int COMPONENTS = $COMPONENTS;           // that the pointwise function couples
constexpr int SOURCES = $SOURCES;                 // components that come in together
constexpr int SINKS = $SINKS;                     // and go out

// Where derivatives are taken: in the tree, with those of the basis, or along lines of values.
constexpr bool TREE_IN = TRIAL_GRADIENT && !COLLOCATED, TREE_OUT = TEST_GRADIENT && !COLLOCATED;
constexpr bool LINES_IN = TRIAL_GRADIENT && COLLOCATED, LINES_OUT = TEST_GRADIENT && COLLOCATED;

// Geometry.
constexpr int DIM = $DIM;                 // of the reference element
constexpr int SPACE = $SPACE;             // of the space that it is in
constexpr int VECTOR = $VECTOR;           // the larger of the two
constexpr bool AFFINE = $AFFINE;          // one set of factors an element, not a point
constexpr bool UNIT = $UNIT;              // ... that of the reference element, which is not read
constexpr bool RECOMPUTED = $RECOMPUTED;  // factors are made from the elements' maps, not read
constexpr bool SCALED = $SCALED;          // ... and from a scale that is read at every point, and maybe w|J|
constexpr int N_FACTORS = $N_FACTORS;     // numbers of a set
constexpr int N_READ = $N_READ;           // numbers that are read at every point
constexpr bool STORED = N_READ > 0;
constexpr int N_MAP = $N_MAP;             // numbers of an element's map; 0 where factors are read
constexpr int MAP_ROWS = $MAP_ROWS;       // rows of a line, terms that make them, functions of the line (`MapLines`)
constexpr int MAP_TERMS = $MAP_TERMS;
constexpr int MAP_ACROSS = $MAP_ACROSS;
constexpr int FLUX_KIND = $FLUX_KIND;     // what they are: 1 symmetric metric, 2 inverse Jacobian; then w|J|. 0: w|J| alone
constexpr int LINES_PADDED = $LINES_PADDED; // lines of a group of elements in stored factors (geometry.h)
constexpr long long SET = $SET;           // numbers of a group of elements there, those of their maps behind the others
constexpr int N_COLLAPSE = $N_COLLAPSE;   // entries of the collapse's matrix that are not constantly 0 or 1 (geometry.h)

// The pointwise function's arguments.
constexpr bool USES_POINTS = $USES_POINTS;       // coordinates
constexpr int N_FIELDS = $N_FIELDS;              // numbers of fields at a point
constexpr int N_FIELD_ARRAYS = $N_FIELD_ARRAYS;  // fields
constexpr int N_PARAMETERS = $N_PARAMETERS;

// The mode tree in three directions (`Levels`): rows p of the first direction's functions, nodes (p, q), leaves (p, q, r).
constexpr int N1 = $N1;
constexpr int N_NODES = $N_NODES;
constexpr int N_LEAVES = $N_LEAVES;
constexpr int N_MODES = $N_MODES;
constexpr int Q1 = $Q1; // points per direction
constexpr int Q2 = $Q2;
constexpr int Q3 = $Q3;
constexpr int POINTS = Q1 * Q2 * Q3;
constexpr bool UNIFORM2 = $UNIFORM2;             // all rows have the same functions of the second direction
constexpr bool UNIFORM3 = $UNIFORM3;             // all nodes have the same functions of the third one
constexpr int UNIFORM2_COUNT = $UNIFORM2_COUNT;  // how many
constexpr int UNIFORM3_COUNT = $UNIFORM3_COUNT;
constexpr bool REVERSED = $REVERSED;             // the directions are the user's, last first
constexpr bool TRIVIAL3 = $TRIVIAL3;             // there is no third direction
constexpr bool LEAVES_ARE_MODES = $LEAVES_ARE_MODES; // leaf l is mode l
constexpr bool INJECTIVE = $INJECTIVE;           // every mode is one leaf

// Compile-time functions of an index: of row p, of node s, of leaf l, of field value n, of entry n of the collapse.
#define HPFEM_LIST(name, ...)                                                                                          \
  HPFEM_DEVICE constexpr int name(int n) {                                                                             \
    const int table[] = {__VA_ARGS__};                                                                                 \
    return table[n];                                                                                                   \
  }
HPFEM_LIST(start2, $start2)                   // first function of row p
HPFEM_LIST(count2, $count2)                   // how many
HPFEM_LIST(node2, $node2)                     // its first node
HPFEM_LIST(start3, $start3)                   // first function of node s
HPFEM_LIST(count3, $count3)                   // how many
HPFEM_LIST(first_leaf_of, $first_leaf_of)     // its first leaf
HPFEM_LIST(leaf_to_mode, $leaf_to_mode)       // mode of leaf l
HPFEM_LIST(field_array, $field_array)         // number of the field
HPFEM_LIST(field_component, $field_component) // its component
HPFEM_LIST(k_row, $k_row)                     // place of an entry of the collapse
HPFEM_LIST(k_column, $k_column)
HPFEM_LIST(k_one, $k_one)                     // whether K[a][a] is constantly 1
HPFEM_LIST(map_direction, $map_direction)     // of row r of a line: by which derivatives are; whether its function is 1
HPFEM_LIST(map_one, $map_one)
HPFEM_LIST(map_row, $map_row)                 // of term n: its row, coefficient, and function of the line (0: 1)
HPFEM_LIST(map_mode, $map_mode)
HPFEM_LIST(map_function, $map_function)
#undef HPFEM_LIST

// 1-D functions B and their derivatives D, [function][point], and differentiation C, [point][point]; those of the second
// and third direction in global memory too (G, GD), to be copied to shared memory; those of the third only there where
// constant memory is too small.
HPFEM_CONSTANT real B1[] = {$B1};
HPFEM_CONSTANT real D1[] = {$D1};
HPFEM_CONSTANT real C1[] = {$C1};
HPFEM_CONSTANT real B2[] = {$B2};
HPFEM_CONSTANT real D2[] = {$D2};
HPFEM_CONSTANT real C2[] = {$C2};
HPFEM_TABLE real G2[] = {$B2};
HPFEM_TABLE real GD2[] = {$D2};
$memory3 real B3[] = {$B3};
$memory3 real D3[] = {$D3};
HPFEM_CONSTANT real C3[] = {$C3};
HPFEM_TABLE real G3[] = {$B3};
HPFEM_TABLE real GD3[] = {$D3};
// Products of functions of i and of j Q3 + k. Affine elements: the collapse's entries, and the weights; recomputed factors: the
// rows' functions, functions of the line, and the weights.
HPFEM_CONSTANT real KX[] = {$KX};
HPFEM_TABLE real KYZ[] = {$KYZ};
HPFEM_CONSTANT real W1[] = {$W1};
HPFEM_TABLE real W23[] = {$W23};

// The kernel's name, its arguments behind those that all have, and from them the fields' arrays and the parameters.
#undef HPFEM_KERNEL
#undef HPFEM_ARGUMENTS
#undef HPFEM_PARAMETERS
#undef HPFEM_FIELDS
#define HPFEM_KERNEL $kernel
#define HPFEM_ARGUMENTS $arguments
#define HPFEM_PARAMETERS $parameters
#define HPFEM_FIELDS $fields
