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

HPFEM_DEVICE constexpr int larger(int a, int b) { return a > b ? a : b; }
HPFEM_DEVICE constexpr int rounded_up(int n, int step) { return (n + step - 1) / step * step; }

// The user's point q = (i Q2 + j) Q3 + k, or with the directions reversed (k Q2 + j) Q1 + i.
HPFEM_DEVICE int point_i(int q) { return REVERSED ? q % Q1 : q / (Q2 * Q3); }
HPFEM_DEVICE int point_j(int q) { return REVERSED ? q / Q1 % Q2 : q / Q3 % Q2; }
HPFEM_DEVICE int point_k(int q) { return REVERSED ? q / (Q1 * Q2) : q % Q3; }
HPFEM_DEVICE int user_point(int i, int jk) {
  return REVERSED ? (jk % Q3 * Q2 + jk / Q3) * Q1 + i : i * (Q2 * Q3) + jk;
}
