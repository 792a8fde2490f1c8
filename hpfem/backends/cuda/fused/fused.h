// A form on elements whose rule has no directions: dense products with the tables of all points on FP64 tensor cores, and
// what happens at the points between them, in one kernel. Where nothing is tested, what results there is written.
//
// A warp takes 16 elements as the rows of the products: rows g and g + 8 are elements 2 g and 2 g + 1. At a pair of points
// {q, image of q} even modes give one part of a quantity and odd ones the other: the table of q serves both, which halves
// the products. A lane has all quantities of its points and two elements; what it gets from one product, C[g, g + 8]
// [2 t, 2 t + 1], is what it gives to the next as A[g, g + 8][t, t + 4] with columns permuted: 2 t is term t, 2 t + 1 is
// t + 4. Of eight modes the first four are at even places and the others at odd ones, for the same reason.
//
// Of components that the pointwise function couples each has a warp of a team, with products of its own. The team shares
// the factors, and what its warps have at the points of a step goes through shared memory, [component][quantity][unit]
// [lane], with the same lanes for all components: units, 4 points and 8 elements each, are dealt out to the warps.
//
// Tables are tiles of 8 columns by 8 places of modes in the order of use: [step][eight modes, even ones first][product].
// `FusedPlan.tables` swizzles them so that both ways through a tile are free of bank conflicts. Factors are
// [16 elements][point][factor][element]; in shared memory eights of pairs of elements are rotated (`rotated`).

struct alignas(16) Two {
  real x, y;
};

#ifndef HPFEM_HOST
// A barrier of a team; number 0 is that of the block.
#define HPFEM_TEAM_SYNC(team) asm volatile("bar.sync %0, %1;" ::"r"((team) + 1), "n"(MEMBERS) : "memory")
#endif

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    HPFEM_KERNEL(const long long n_elements, const real *__restrict__ in, real *__restrict__ out,
                 const stored_real *__restrict__ factors, const real *__restrict__ points,
                 const real *__restrict__ tables HPFEM_ARGUMENTS) {
  HPFEM_SHARED(shared);
  const real parameters[N_PARAMETERS + 1] = {HPFEM_PARAMETERS real(0)};
  const real *const fields[N_FIELD_ARRAYS + 1] = {HPFEM_FIELDS nullptr};
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4, g = lane / 4;
  const int team = warp / TEAM, own = warp % TEAM, member = threadIdx.x % MEMBERS;
  // Where a lane reads in a tile: places 2 t and 2 t + 1 of column g; place g of columns 2 t and 2 t + 1.
  const int forward = g / 2 * 16 + ((g ^ g / 2) & 1) * 8 + (t ^ (2 * (g / 4))) * 2;
  const int back = t * 16 + t % 2 * 8 + (g / 2 ^ (2 * (t / 2))) * 2 + g % 2;
  real *const stages = shared + TABLES + NAMES + team * TEAM_SIZE;
  // In shared memory: else the compiler keeps a lane's modes in registers all the time.
  short *const modes = reinterpret_cast<short *>(shared + TABLES);
  for (int i = threadIdx.x; i < 2 * PLACES; i += THREADS) {
    const int n = i % PLACES;
    modes[i] = n >= (EVEN > ODD ? EVEN : ODD) ? -1 : i < PLACES ? FIRST[n] : SECOND[n];
  }
  real *const exchanged = stages + AHEAD * STAGE + lane;
  Two *const given = reinterpret_cast<Two *>(stages + AHEAD * STAGE + EXCHANGED + own * GIVEN) + lane;
  real *const own_fields = stages + AHEAD * STAGE + EXCHANGED + TEAM * GIVEN + own * (AHEAD * FIELDS_STAGE) + lane;
  real *const made = stages + TEAM_SIZE - MADE;
  const int groups = int((n_elements + 15) / 16), stride = gridDim.x * TEAMS;
  in += (component_number() * TEAM + own) * n_elements * N_MODES;
  real *const results = out + component_number() * n_elements * (SINKS * POINTS); // where nothing is tested
  out += (component_number() * TEAM + own) * n_elements * N_MODES;

  // Tables: a ring of the block. Factors: a ring of the team, which runs ahead of the steps into the next group.
  int table_step = 0, table_stage = 0;
  const auto ask_tables = [&] {
    const Step next = step_at(table_step);
    for (int i = threadIdx.x; i < next.tiles * 32; i += THREADS) {
      HPFEM_COPY(shared + table_stage * (CHUNK * 64) + 2 * i, tables + next.tile * 64 + 2 * i, 16);
    }
    HPFEM_COPY_COMMIT();
    table_step = table_step + 1 == STEPS ? 0 : table_step + 1;
    table_stage = table_stage + 1 == STAGES ? 0 : table_stage + 1;
  };
  int factor_step = 0, factor_stage = 0;
  const int own_place = rotated(COPIED * member);
  int factor_group = block_number() * TEAMS + team;
  struct Asked {
    const stored_real *from;
    Stored *to;
    int units;
    bool pair;
  };
  // Those of fields at the points of a warp's units, each lane its own.
  const auto ask_fields = [&](const Step &next, int group, int stage) {
    const int sides = next.kind == PAIR ? 2 : 1, units = 2 * sides * ((next.points + 3) / 4);
    HPFEM_ROLLED for (int unit = own; unit < units; unit += TEAM) {
      const int point = 4 * (unit / (2 * sides)) + t, side = unit / 2 % sides;
      const long long element = group * 16LL + 2 * g + unit % 2;
      if (point >= next.points || element >= n_elements) continue;
      const int q = (next.kind == PAIR ? side * PAIRS : 2 * PAIRS) + next.first + point;
      real *const to = own_fields + stage * FIELDS_STAGE + unit / TEAM * (N_FIELDS * 32);
      each<0, N_FIELDS>([&](auto n_) {
        constexpr int n = decltype(n_)::value;
        HPFEM_COPY(to + n * 32, fields[field_array(n)] + (field_component(n) * n_elements + element) * POINTS + q, 8);
      });
    }
  };
  const auto next_factors = [&]() -> Asked {
    if (!(STORED || FIELDS_STAGE) || factor_group >= groups) return {factors, reinterpret_cast<Stored *>(given), 0, false};
    const Step next = step_at(factor_step);
    const int first = (next.kind == PAIR ? 0 : 2 * PAIRS) + next.first;
    const Asked asked{factors + ((long long)factor_group * POINTS + first) * POINT + 2 * COPIED * member,
                      reinterpret_cast<Stored *>(stages + factor_stage * STAGE), next.points * (POINT / 2 / COPIED) - member,
                      next.kind == PAIR};
    if constexpr (FIELDS_STAGE > 0) ask_fields(next, factor_group, factor_stage);
    if (++factor_step == STEPS) {
      factor_step = 0;
      factor_group += stride;
    }
    factor_stage = factor_stage + 1 == AHEAD ? 0 : factor_stage + 1;
    return asked;
  };
  // The n-th part of the factors asked for: of a pair of points those of both.
  const auto ask_part = [&](const Asked &asked, int n) {
    if constexpr (STORED) {
      if (MEMBERS * n < asked.units) {
        const int first = MEMBERS * COPIED * n;
        Stored *const to = asked.to + (BY_ROW ? first + own_place : rotated(first + COPIED * member));
        HPFEM_COPY_ONCE(to, asked.from + 2 * first);
        if (n < parts(most_points(PAIR)) && asked.pair) {
          HPFEM_COPY_ONCE(to + most_points(PAIR) * POINT / 2, asked.from + PAIRS * POINT + 2 * first);
        }
      }
    }
  };
  constexpr int PARTS = STORED ? parts(most_points(SINGLE)) : 0;
  const auto ask_factors = [&] {
    const Asked asked = next_factors();
    HPFEM_ROLLED for (int n = 0; n < PARTS; n++) ask_part(asked, n);
    HPFEM_COPY_COMMIT();
  };
  if constexpr (STAGES == 0) {
    for (int i = threadIdx.x; i < N_TILES * 32; i += THREADS) HPFEM_COPY(shared + 2 * i, tables + 2 * i, 16);
    HPFEM_COPY_COMMIT();
    HPFEM_COPY_WAIT(0);
  }
  __syncthreads();
  // Groups of copies are in the order tables, factors, tables, factors, ...; without a ring of tables there are none of those.
  HPFEM_UNROLL for (int s = 0; s < (AHEAD > STAGES - 1 ? AHEAD : STAGES - 1); s++) {
    if constexpr (STAGES > 0) {
      if (s >= (AHEAD > STAGES - 1 ? AHEAD : STAGES - 1) - (STAGES - 1)) ask_tables();
      else HPFEM_COPY_COMMIT();
    }
    if (s >= (AHEAD > STAGES - 1 ? AHEAD : STAGES - 1) - AHEAD) ask_factors();
    else HPFEM_COPY_COMMIT();
  }
  int stage = 0, tables_at = 0;

  HPFEM_ROLLED for (int base = block_number() * TEAMS; base < groups; base += stride) {
    const int group = base + team;
    const long long first = group * 16LL + 2 * g;
    if (STAGES == 0 && group >= groups) break; // otherwise the team keeps up with its block
    const bool live[2] = {first < n_elements, first + 1 < n_elements};
    // Coefficients of both elements: of the even modes of an eight, then of the odd ones, each at even and odd places.
    const real *const u = in + first * N_MODES;
    Two kept[KEPT ? KEPT : 1][2];
    const auto keep = [&](int k, int place, Two x) {
      if (k < KEPT) kept[k < KEPT ? k : 0][place] = x;
      else given[(k - KEPT) * 64 + place * 32] = x;
    };
    HPFEM_UNROLL for (int k = 0; k < MOST_TILES; k++) {
      HPFEM_UNROLL for (int place = 0; place < 2; place++) {
        const int i = 8 * k + 4 * place + t;
        Two even = {0, 0}, odd = {0, 0};
        const int a = modes[i], b = modes[PLACES + i];
        if (live[0] && a >= 0) even.x = u[a];
        if (live[1] && a >= 0) even.y = u[N_MODES + a];
        if (live[0] && b >= 0) odd.x = u[b];
        if (live[1] && b >= 0) odd.y = u[N_MODES + b];
        if (i < PAIRED) {
          const Two x = even, y = odd;
          even = {x.x + y.x, x.y + y.y};
          odd = {x.x - y.x, x.y - y.y};
        }
        if (k < EVEN_TILES) keep(k, place, even);
        if (k < ODD_TILES) keep(EVEN_TILES + k, place, odd);
      }
    }
    __syncwarp();
    // The next ones are asked for.
    const long long next = (group + (long long)stride) * 16;
    const real *const next_u = in + next * N_MODES;
    if (lane == 0 && next + 16 <= n_elements && reinterpret_cast<unsigned long long>(next_u) % 16 == 0) {
      HPFEM_PREFETCH_L2(next_u, 128 * N_MODES);
    }
    const auto coefficients = [&](int k, int place) -> Two {
      return k < KEPT ? kept[k < KEPT ? k : 0][place] : given[(k - KEPT) * 64 + place * 32];
    };
    Line line[2]; // a team starts it where it is used
    if constexpr (TEAM == 1) {
      HPFEM_UNROLL for (int h = 0; h < 2; h++) line[h].start(factors, live[h] ? first + h : n_elements - 1, 0);
    }
    real y[K_TILES][4] = {};
    const real *tile = shared;

    // Writes what a step has made, up to the last whole sector of memory, and what the step before has left; the last step
    // leaves nothing. A lane's elements are so many apart that their sectors begin at the same point.
    const auto write_made = [&](auto kind_, int number, bool last) {
      constexpr int kind = decltype(kind_)::value, points = most_points(kind), width = points % 8 ? 4 : 8;
      constexpr int sides = kind == PAIR ? 2 : 1, end = kind == PAIR ? PAIRS : SINGLES;
      HPFEM_ROLLED for (int c = own; c < SINKS; c += TEAM) {
        HPFEM_UNROLL for (int side = 0; side < sides; side++) {
          const int h = lane / width;
          const long long element = group * 16LL + h;
          real *const to = results + (c * n_elements + element) * POINTS + (kind == PAIR ? side * PAIRS : 2 * PAIRS);
          const int start = number * points + lane % width - int(reinterpret_cast<unsigned long long>(to) / sizeof(real) % 4);
          HPFEM_UNROLL for (int n = 0; n <= points / width; n++) {
            const int point = start + n * width;
            if (n == points / width && !last) continue;
            if (point < 0 || (last && point >= end)) continue;
            const real *const from = made + (c * 16 + h) * MADE_ROW + made_at(kind, side, point);
            HPFEM_UNROLL for (int i = 0; i < 16; i += 32 / width) {
              if (element + i < n_elements) to[i * POINTS + point] = from[i * MADE_ROW];
            }
          }
        }
      }
    };

    const auto step = [&](auto kind_, auto points_, int number) {
      constexpr int kind = decltype(kind_)::value, count = decltype(points_)::value, fours = (count + 3) / 4;
      constexpr int even_products = products(even_columns(kind), count), odd_products = products(odd_columns(kind), count);
      if constexpr (STAGES > 0) {
        // The tables of this step are there for all, and all have left those of the step before: others take their place.
        HPFEM_COPY_WAIT(2 * STAGES - 3);
        __syncthreads();
        ask_tables();
        tile = shared + tables_at * (CHUNK * 64);
        tables_at = tables_at + 1 == STAGES ? 0 : tables_at + 1;
      }
      // Even and odd modes in turn: products that do not wait for each other.
      real e[larger(even_products, 1)][4] = {}, o[larger(odd_products, 1)][4] = {};
      HPFEM_UNROLL for (int n = 0; n < 2 * MOST_TILES; n++) {
        const bool odd = n % 2;
        const int k = n / 2;
        if (k >= (odd ? (odd_products ? ODD_TILES : 0) : EVEN_TILES)) continue;
        const Two x = coefficients(odd ? EVEN_TILES + k : k, 0), z = coefficients(odd ? EVEN_TILES + k : k, 1);
        const bool half = odd ? ODD_HALF && k == ODD_TILES - 1 : EVEN_HALF && k == EVEN_TILES - 1;
        HPFEM_UNROLL for (int i = 0; i < (odd ? odd_products : even_products); i++) {
          const int at = odd ? EVEN_TILES * even_products + k * odd_products + i : k * even_products + i;
          const Two b = *reinterpret_cast<const Two *>(tile + at * 64 + forward);
          real(&s)[4] = odd ? o[i < odd_products ? i : 0] : e[i < even_products ? i : 0];
          if (half) {
            HPFEM_MULTIPLY_4(s, x.x, x.y, b.x);
          } else {
            HPFEM_MULTIPLY_8(s, x.x, x.y, z.x, z.y, b.x, b.y);
          }
        }
      }
      constexpr int under_way = STAGES > 0 ? 2 * AHEAD - 1 : AHEAD - 1;
      if constexpr ((STORED || FIELDS_STAGE) && TEAM == 1) {
        HPFEM_COPY_WAIT(under_way);
        __syncwarp();
      }
      const Stored *const mine = reinterpret_cast<const Stored *>(stages + stage * STAGE) + t * (POINT / 2);
      const real *const my_fields = own_fields + stage * FIELDS_STAGE;
      stage = stage + 1 == AHEAD ? 0 : stage + 1;
      // Quantity a of element h at the r-th point of a lane, or its image.
      const auto part = [&](int r, int side, int h, int a) -> real & {
        if constexpr (kind == PAIR) {
          const int c = r * QUANTITIES + a;
          return side ? o[c / 2][2 * h + c % 2] : e[c / 2][2 * h + c % 2];
        } else {
          constexpr bool apart = ODD > 0 && GRADIENT; // derivatives across the mirror are those of odd modes
          if (apart && a == ACROSS) return o[r / 2][2 * h + r % 2];
          const int c = r * even_columns(kind) + a - (apart && a > ACROSS);
          return e[c / 2][2 * h + c % 2];
        }
      };
      // Replaces the quantities of element h at the r-th point or its image, which `column` finds, by what is tested there;
      // or writes the results.
      const auto at = [&](int r, int side, int h, int turn, auto column) {
        if (count % 4 && 4 * r + t >= count) {
          HPFEM_UNROLL for (int c = 0; c < TEAM; c++) HPFEM_UNROLL for (int a = 0; a < QUANTITIES; a++) column(c, a) = 0;
          return;
        }
        const int slot = side * most_points(PAIR) + 4 * r;
        const int q = (kind == PAIR ? side * PAIRS : 2 * PAIRS) + (number * most_points(kind) + 4 * r + t);
        Factors f;
        if constexpr (STORED) {
          HPFEM_UNROLL for (int c = 0; c < N_FACTORS; c++) {
            const Stored both = mine[slot * (POINT / 2) + c * 8 + (g + 2 * (BY_ROW ? t * N_FACTORS + c : t)) % 8];
            f.g[c] = h ? both.y : both.x;
          }
        }
        const long long element = live[h] ? first + h : n_elements - 1;
        const Surroundings around{points, fields, element, n_elements, element / 16, int(element % 16)};
        real x[SPACE], extra[N_FIELDS + 1], value[SINKS], flux[SINKS][VECTOR];
        around.coordinates(q, x);
        if constexpr (FIELDS_STAGE > 0) {
          HPFEM_UNROLL for (int n = 0; n < N_FIELDS; n++) extra[n] = my_fields[(turn * N_FIELDS + n) * 32];
        } else around.values(q, extra);
        real u[SOURCES], s[SOURCES][DIM];
        HPFEM_UNROLL for (int c = 0; c < TEAM; c++) {
          u[c] = VALUE ? column(c, 0) : real(0);
          HPFEM_UNROLL for (int d = 0; d < DIM; d++) s[c][d] = GRADIENT ? column(c, (VALUE + d) % QUANTITIES) : real(0);
        }
        Line &own_line = line[TEAM == 1 ? h : 0];
        if constexpr (TEAM > 1) own_line.start(factors, element, 0);
        at_point(own_line, f, q, x, extra, parameters, u, s, value, flux);
        if constexpr (!TO_MODES) {
          real *const to = made + (2 * g + h) * MADE_ROW + made_at(kind, side, number * most_points(kind) + 4 * r + t);
          HPFEM_UNROLL for (int c = 0; c < SINKS; c++) to[c * (16 * MADE_ROW)] = value[c];
          return;
        }
        HPFEM_UNROLL for (int c = 0; c < TEAM; c++) {
          if constexpr (VALUE) column(c, 0) = TEST_VALUE ? value[c] : real(0);
          if constexpr (GRADIENT) {
            HPFEM_UNROLL for (int d = 0; d < DIM; d++) column(c, VALUE + d) = TEST_GRADIENT ? flux[c][d] : real(0);
          }
        }
      };
      // Even and odd parts to values at both points of a pair, or back.
      const auto exchange = [&](bool back) {
        HPFEM_UNROLL for (int c = 0; c < fours * QUANTITIES; c++) {
          const bool across = GRADIENT && c % QUANTITIES == ACROSS;
          HPFEM_UNROLL for (int h = 0; h < 2; h++) {
            real &x = e[c / 2][2 * h + c % 2], &z = o[c / 2][2 * h + c % 2];
            const real sum = x + z, difference = across && !back ? z - x : x - z;
            x = across && back ? difference : sum;
            z = across && back ? sum : difference;
          }
        }
      };
      constexpr int sides = kind == PAIR ? 2 : 1;
      if constexpr (kind == PAIR) exchange(false);
      if constexpr (TEAM == 1) {
        HPFEM_UNROLL for (int r = 0; r < fours; r++) {
          HPFEM_UNROLL for (int side = 0; side < sides; side++) {
            HPFEM_UNROLL for (int h = 0; h < 2; h++) {
              at(r, side, h, (r * sides + side) * 2 + h, [&](int, int a) -> real & { return part(r, side, h, a); });
            }
          }
        }
        if constexpr (TO_MODES && kind == PAIR) exchange(true);
        __syncwarp();
      } else {
        const auto place = [&](int c, int a, int unit) -> real & {
          return exchanged[((c * QUANTITIES + a) * UNITS + unit) * 32];
        };
        const auto each_own = [&](auto act) {
          HPFEM_UNROLL for (int unit = 0; unit < 2 * sides * fours; unit++) {
            HPFEM_UNROLL for (int a = 0; a < QUANTITIES; a++) {
              act(part(unit / (2 * sides), unit / 2 % sides, unit % 2, a), place(own, a, unit));
            }
          }
        };
        each_own([](real &x, real &shared) { shared = x; });
        if constexpr (STORED || FIELDS_STAGE) HPFEM_COPY_WAIT(under_way);
        HPFEM_TEAM_SYNC(team);
        HPFEM_ROLLED for (int unit = own; unit < 2 * sides * fours; unit += TEAM) {
          at(unit / (2 * sides), unit / 2 % sides, unit % 2, unit / TEAM,
             [&](int c, int a) -> real & { return place(c, a, unit); });
        }
        HPFEM_TEAM_SYNC(team);
        if constexpr (TO_MODES) each_own([](real &x, real &shared) { x = shared; });
        if constexpr (TO_MODES && kind == PAIR) exchange(true);
      }
      if constexpr (!TO_MODES) {
        write_made(kind_, number, number * most_points(kind) + count == (kind == PAIR ? PAIRS : SINGLES));
        if constexpr (TEAM == 1) __syncwarp();
      }
      const Asked asked = next_factors();
      // Products that do not wait for each other, and between them the next factors are asked for.
      constexpr int total = even_products * EVEN_TILES + odd_products * ODD_TILES;
      int done = 0;
      if constexpr (!TO_MODES) {
        HPFEM_UNROLL for (int n = 0; n < PARTS; n++) ask_part(asked, n);
      }
      HPFEM_UNROLL for (int i = 0; i < (TO_MODES ? larger(even_products, odd_products) : 0); i++) {
        HPFEM_UNROLL for (int k = 0; k < K_TILES; k++) {
          const bool odd = k >= EVEN_TILES;
          if (i >= (odd ? odd_products : even_products)) continue;
          const int at = odd ? EVEN_TILES * even_products + (k - EVEN_TILES) * odd_products + i : k * even_products + i;
          const real *const b = tile + at * 64;
          const real(&s)[4] = odd ? o[i < odd_products ? i : 0] : e[i < even_products ? i : 0];
          HPFEM_MULTIPLY_8(y[k], s[0], s[2], s[1], s[3], b[back], b[back ^ 8]);
          HPFEM_UNROLL for (int n = done * PARTS / total; n < (done + 1) * PARTS / total; n++) ask_part(asked, n);
          done++;
        }
      }
      HPFEM_COPY_COMMIT();
      if constexpr (STAGES == 0) tile += tiles_of(kind, count) * 64;
    };
    HPFEM_ROLLED for (int n = 0; n < PAIR_STEPS; n++) step(Int<PAIR>{}, Int<most_points(PAIR)>{}, n);
    if constexpr (PAIR_REST > 0) step(Int<PAIR>{}, Int<larger(PAIR_REST, 1)>{}, PAIR_STEPS);
    HPFEM_ROLLED for (int n = 0; n < SINGLE_STEPS; n++) step(Int<SINGLE>{}, Int<8>{}, n);
    if constexpr (SINGLE_REST > 0) step(Int<SINGLE>{}, Int<larger(SINGLE_REST, 1)>{}, SINGLE_STEPS);

    real *const to = out + first * N_MODES;
    HPFEM_UNROLL for (int k = 0; k < (TO_MODES ? MOST_TILES : 0); k++) {
      HPFEM_UNROLL for (int place = 0; place < 2; place++) {
        const int i = 8 * k + 4 * place + t;
        const int a = modes[i], b = modes[PLACES + i];
        HPFEM_UNROLL for (int h = 0; h < 2; h++) {
          real even = k < EVEN_TILES ? y[k < EVEN_TILES ? k : 0][2 * h + place] : real(0);
          real odd = k < ODD_TILES ? y[k < ODD_TILES ? EVEN_TILES + k : 0][2 * h + place] : real(0);
          if (i < PAIRED) {
            const real x = even;
            even = x + odd;
            odd = x - odd;
          }
          if (live[h] && a >= 0) HPFEM_STORE(to + h * N_MODES + result_place(a), even);
          if (live[h] && b >= 0) HPFEM_STORE(to + h * N_MODES + result_place(b), odd);
        }
      }
    }
    __syncwarp();
  }
  HPFEM_COPY_WAIT(0);
}
