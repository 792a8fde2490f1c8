// Local coefficients from global ones, local = Q global (vectors/indexed.h). `real` is given.

template <class Index> struct Restriction {
  const Index *row_starts, *columns;
  const real *entries;

  // The local coefficients that codes make of a component of a global vector; their loads are under way together. The
  // vector is a pointer, or what has its numbers.
  template <int n, class Vector> HPFEM_DEVICE void take(const Index (&codes)[n], const Vector global, real (&v)[n]) const {
    HPFEM_UNROLL for (int i = 0; i < n; i++) {
      const real x = global[codes[i] < 0 ? 0 : codes[i] / 2];
      v[i] = codes[i] < 0 ? real(0) : codes[i] % 2 ? -x : x;
    }
    HPFEM_UNROLL for (int i = 0; i < n; i++) {
      if (codes[i] < -1) v[i] = row(-1 - codes[i], global); // row 0 is empty
    }
  }
  template <class Vector> HPFEM_DEVICE real row(Index r, const Vector global) const {
    real sum = 0;
    for (Index k = row_starts[r]; k < row_starts[r + 1]; k++) sum += entries[k] * global[columns[k]];
    return sum;
  }
};
