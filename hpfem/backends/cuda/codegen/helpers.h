// A value and a derivative that are always used together: one access of twice the width.
struct alignas(2 * sizeof(real)) Pair {
  real v, d;
};

template <int I> struct Int {
  static constexpr int value = I;
};

template <bool which, class A, class B> struct Choose {
  using type = A;
};
template <class A, class B> struct Choose<false, A, B> {
  using type = B;
};

// Calls f(Int<first>{}) ... f(Int<last - 1>{}): a loop whose counter is a compile-time constant.
template <int first, int last, class F> HPFEM_DEVICE void each(F &&f) {
  if constexpr (first < last) {
    f(Int<first>{});
    each<first + 1, last>(f);
  }
}

// Components, in y, take turns on the blocks of elements, in x, in the order in which blocks start: what one of them
// reads of the geometry the others find in the cache.
HPFEM_DEVICE unsigned turn() { return blockIdx.y * gridDim.x + blockIdx.x; }
HPFEM_DEVICE long long block_number() { return turn() / gridDim.y; }
HPFEM_DEVICE long long component_number() { return turn() % gridDim.y; }

// Where the result of a mode stands in its element: in products with global vectors entity by entity, as sums read it.
#ifdef HPFEM_RESULT_PLACES
HPFEM_TABLE short RESULT_PLACES[] = {HPFEM_RESULT_PLACES};
HPFEM_DEVICE int result_place(int mode) { return RESULT_PLACES[mode]; }
#else
HPFEM_DEVICE constexpr int result_place(int mode) { return mode; }
#endif

HPFEM_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
HPFEM_DEVICE constexpr int rounded_up(int n, int step) { return (n + step - 1) / step * step; }
