// The coefficients of a linear form: its value and its flux for unit arguments.
struct FormCoefficients {
  real value, flux;
};

HPFEM_DEVICE FormCoefficients form_coefficients(const real *parameters) {
  real u[COMPONENTS] = {1}, du[COMPONENTS][SPACE] = {}, s[COMPONENTS][DIM] = {}, x[SPACE] = {};
  real value[COMPONENTS] = {}, flux[COMPONENTS][VECTOR] = {};
  s[0][0] = 1;
  physics(u, du, s, x, nullptr, parameters, value, flux);
  return {value[0], flux[0][0]};
}
