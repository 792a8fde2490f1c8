// Local coefficients from global ones, local = Q global (vectors/indexed.h). `real` is given.

template <class Index> struct Restriction {
  const Index *row_starts, *columns;
  const real *entries;

  // The local coefficient that `code` makes of a component of a global vector.
  HPFEM_DEVICE real operator()(Index code, const real *global) const {
    const real x = global[code < 0 ? 0 : code / 2];
    return code < 0 ? row(-1 - code, global) : code % 2 ? -x : x;
  }
  HPFEM_DEVICE real row(Index r, const real *global) const {
    real sum = 0;
    for (Index k = row_starts[r]; k < row_starts[r + 1]; k++) sum += entries[k] * global[columns[k]];
    return sum;
  }
};
