// Coefficients of a component of a block's elements, one element after the other: local ones, or, where HPFEM_INDEX is
// defined, those that Q makes of a global vector (restriction.h). They are asked for, at a place that is a sum, and taken
// later, so that others' numbers can be asked for in between.
#ifdef HPFEM_INDEX
#define HPFEM_Q_ARGUMENTS                                                                                              \
  , const long long size, const Index *__restrict__ codes, const Index *__restrict__ row_starts,                       \
      const Index *__restrict__ columns, const real *__restrict__ entries
#define HPFEM_COEFFICIENTS(component, first)                                                                           \
  Coefficients{in + (component) * size, codes + (first) * N_MODES, {row_starts, columns, entries}}
#define HPFEM_IN_SIZE size

constexpr bool SCATTERED = true;
typedef HPFEM_INDEX Index;
struct Coefficients {
  typedef Index Asked;
  const real *global;
  const Index *codes;
  Restriction<Index> Q;
  template <class... I> HPFEM_DEVICE Asked ask(I... place) const { return HPFEM_STREAM((codes + ... + place)); }
  HPFEM_DEVICE static Asked none() { return -1; } // a row without entries
  template <int n> HPFEM_DEVICE void take(const Asked (&asked)[n], real (&v)[n]) const {
    Q.take(asked, global, v);
  }
};
#else
#define HPFEM_Q_ARGUMENTS
#define HPFEM_COEFFICIENTS(component, first) Coefficients{in + ((component) * n_elements + (first)) * N_MODES}
#define HPFEM_IN_SIZE n_elements * (FROM_MODES ? N_MODES : POINTS)

constexpr bool SCATTERED = false;
struct Coefficients {
  typedef real Asked;
  const real *local;
  template <class... I> HPFEM_DEVICE Asked ask(I... place) const { return HPFEM_STREAM((local + ... + place)); }
  HPFEM_DEVICE static Asked none() { return 0; }
  template <int n> HPFEM_DEVICE void take(const Asked (&asked)[n], real (&v)[n]) const {
    HPFEM_UNROLL for (int i = 0; i < n; i++) v[i] = asked[i];
  }
};
#endif
