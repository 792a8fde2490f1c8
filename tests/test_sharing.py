"""Threads that share objects, and applications inside applications, get the results of one alone."""

import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime import kernel as cpu_kernel
from hpfem.memory import Host, PairArray
from hpfem.mesh.box import box
from hpfem.operators import InverseMass
from hpfem.shapes.cached import cached_property
from hpfem.solvers.preconditioners import make_preconditioner

THREADS, ROUNDS = 6, 20
WAYS = [(b, s) for b in ("numpy", "cpu") for s in ("stdmat", "sumfac")] + [("cpu", "dense")]
CUDA = [("cuda", s) for s in ("stdmat", "sumfac-top", "sumfac", "dense")]
EVERY_WAY = [*WAYS, *(pytest.param(*way, marks=pytest.mark.cuda) for way in CUDA)]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Threads take turns as often as they can, and kernels are cut up for threads whatever their size."""
    monkeypatch.setattr(cpu_kernel, "THREAD_FLOPS", 1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(params=["1", "2"])
def native_threads(request, monkeypatch):
    """Threads that a kernel of its own may use."""
    monkeypatch.setenv("HPFEM_NUM_THREADS", request.param)


def together(work, threads=THREADS):
    """Call work(number of the thread) in threads that start at once; raises what one of them raises."""
    barrier, errors = threading.Barrier(threads), []

    def run(number):
        try:
            barrier.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def same_for_all(function, arguments, alike=np.array_equal, rounds=ROUNDS):
    """Threads call one function with arguments of their own, many times: each result is that of a call alone."""
    expected = [function(argument) for argument in arguments]
    wrong = []

    def work(number):
        for turn in range(rounds):
            which = (number + turn) % len(arguments)
            if not alike(function(arguments[which]), expected[which]):
                wrong.append((number, turn))

    together(work)
    assert not wrong, f"{len(wrong)} of {THREADS * rounds} results are wrong"


def close(a, b):
    """Equal but for the order of sums, which libraries may change."""
    return np.abs(a - b).max() <= 1e-12 * np.abs(b).max()


def mesh(shape="hex"):
    """Cells of one block."""
    return box(shape, (6, 4, 4))


def fields(space, state, components, rng, count=4):
    """Fields of random values."""
    found = []
    for _ in range(count):
        field = space.empty(state, components)
        for pair in field.data:
            pair.write()[...] = rng.standard_normal(pair.shape)
        found.append(field)
    return found


def values(field):
    """All values of a field."""
    return np.concatenate([pair.read().ravel() for pair in field.data])


def coupled(u, du):
    """A weak form of two components."""
    return hp.Vector([u[0] * 2.0 + u[1], u[0] - u[1]]), hp.Vector([du[1], du[0]])


OPERATORS = {
    "BwdTrans": hp.BwdTrans,
    "IProductWRTBase": hp.IProductWRTBase,
    "Helmholtz": lambda space, **way: hp.Helmholtz(space, lam=1.5, **way),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("backend", "strategy"), EVERY_WAY)
def test_an_operator(backend, strategy, name, native_threads, rng):
    space = hp.Space(mesh(), 4, basis="lagrange")
    algorithm = "noncollocated" if strategy == "dense" else "auto"
    try:
        operator = OPERATORS[name](space, backend=backend, strategy=strategy, algorithm=algorithm)
    except hp.NotSuitable:
        return
    given = fields(space, operator.input_state, 1, rng)
    same_for_all(lambda field: values(operator(field)), given)


@pytest.mark.parametrize(("backend", "strategy"), EVERY_WAY)
def test_an_operator_of_coupled_components(backend, strategy, rng):
    space = hp.Space(mesh("prism"), 2)
    try:
        operator = hp.WeakForm(space, coupled, components=2, backend=backend, strategy=strategy)
    except hp.NotSuitable:
        return
    same_for_all(lambda field: values(operator(field)), fields(space, "coeff", 2, rng))


@pytest.mark.parametrize("strategy", ["stdmat", "sumfac"])
def test_an_operator_inside_itself(strategy, rng):
    """As a handler of a signal may apply it: here in the middle of a chunk, when a coefficient is read."""
    space = hp.Space(mesh("tet"), 2, quadrature="collapsed", backend="numpy")
    operator = hp.WeakForm(space, lambda u, du, k: (k * u, du), fields={"k": lambda x, y, z: 1 + x}, strategy=strategy)
    first, second = fields(space, "coeff", 1, rng, 2)
    expected = [values(operator(field)) for field in (first, second)]
    inside, depth = [], []

    class Coefficient(np.ndarray):
        """Values that have the operator applied when they are read."""

        def __getitem__(self, key):
            if not depth:
                depth.append(1)
                inside.append(values(operator(second)))
                depth.pop()
            return np.asarray(self)[key] if isinstance(key, slice) else super().__getitem__(key)

    coefficient = operator.choices[0].kernel.problem.fields["k"]
    disturbing = coefficient.values.view(Coefficient)
    object.__setattr__(coefficient, "pair", SimpleNamespace(read=lambda device: disturbing))
    assert np.array_equal(values(operator(first)), expected[0])
    assert inside and all(np.array_equal(found, expected[1]) for found in inside)


@pytest.mark.parametrize("make", [hp.FwdTrans, InverseMass])
def test_projections(make, backend, rng):
    space = hp.Space(mesh("pyramid"), 2, backend=backend)
    operator = make(space)
    same_for_all(lambda field: values(operator(field)), fields(space, operator.input_state, 1, rng))


def global_operator(backend, components=1, basis="modified"):
    """On a mesh of two blocks, fixed on a part of the boundary."""
    space = hp.Space(box(("tet", "prism"), (2, 2, 2)), 2, basis=basis, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet={"xmin": 0.0}, robin={"xmax": (1.0, 0.0)})
    return hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0, bc, components=components)


@pytest.mark.parametrize("components", [1, 2])
def test_a_global_operator(components, backend, native_threads, rng):
    A = global_operator(backend, components)
    same_for_all(lambda x: A @ x, list(rng.standard_normal((4, A.shape[0]))))


def test_a_global_operator_on_its_device(backend, rng):
    A = global_operator(backend)
    given = [A.vectors.from_host(x) for x in rng.standard_normal((4, A.shape[0]))]
    same_for_all(lambda x: A.vectors.to_host(A.apply(x, A.device)), given)


@pytest.mark.parametrize("name", ["jacobi", "multigrid"])
def test_a_preconditioner(name, backend, rng):
    A = global_operator(backend)
    M, _ = make_preconditioner(name, A)
    given = [A.vectors.from_host(x) for x in rng.standard_normal((4, A.shape[0]))]
    same_for_all(lambda x: A.vectors.to_host(M(x)), given)


def test_solves_with_one_operator(backend, rng):
    A = global_operator(backend)
    M, _ = make_preconditioner("jacobi", A)
    given = [A.vectors.from_host(x) for x in rng.standard_normal((4, A.shape[0]))]

    def solve(rhs):
        x, info = hp.cg(A, rhs, M, tol=1e-6)
        assert info.size == A.shape[0]
        return A.vectors.to_host(x)

    same_for_all(solve, given, alike=lambda a, b: np.abs(a - b).max() <= 1e-4 * np.abs(b).max(), rounds=3)


def test_threads_that_compute_a_property_get_one_result():
    """The addresses of its arrays may be kept, so that none of them may be replaced by an equal one."""
    begun, made = threading.Event(), threading.Event()

    class Table:
        @cached_property
        def numbers(self):
            if not begun.is_set():  # the first thread ends after the second
                begun.set()
                made.wait(10)
            return np.zeros(3)

    table, found = Table(), []
    first = threading.Thread(target=lambda: found.append(table.numbers))
    first.start()
    begun.wait(10)
    second = table.numbers
    made.set()
    first.join()
    assert found[0] is second is table.numbers


@pytest.mark.parametrize("basis", ["modified", "lagrange"])
def test_lazy_properties(basis, backend, rng):
    """Matrices, topology, locators, factors: threads that ask at the same time all get what is whole."""
    points = rng.uniform(0.1, 0.9, (20, 3))

    def everything(c0):
        space = c0.space
        u = space.project(lambda x, y, z: x * y + z)
        g = c0.average(u)
        again = c0.scatter(g)
        dual = hp.Mass(space)(again)
        boundary = [len(facets) for facets in space.mesh.boundaries.values()]
        numbers = [u.norm(), space.integrate(u), *boundary, len(space.memory_report()), *c0.multiplicity]
        return np.concatenate([u.at(points), g, values(again), c0.gather(dual), np.array(numbers, dtype=float)])

    def fresh():
        return hp.C0Space(hp.Space(box(("tet", "prism"), (2, 2, 2)), 3, basis=basis, backend=backend))

    expected = everything(fresh())
    for _ in range(3):
        c0, found = fresh(), {}
        together(lambda number, c0=c0, found=found: found.update({number: everything(c0)}))
        assert len(found) == THREADS and all(close(result, expected) for result in found.values())


def test_kernels_compiled_at_the_same_time(monkeypatch, tmp_path, rng):
    space = hp.Space(mesh(), 2, backend="cpu")
    (u,) = fields(space, "coeff", 1, rng, 1)
    hp.Laplacian(space)(u)  # the kernel that makes the geometry's factors is none of those counted here
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    found = {}

    def work(number):
        found[number] = values(hp.WeakForm(space, lambda u, du: (1.23456 * u, du))(u))

    together(work)
    assert len(found) == THREADS and all(np.array_equal(found[0], other) for other in found.values())
    assert len(list((tmp_path / "kernels").iterdir())) == 1  # one entry and nothing half-written


def test_tuning_while_others_compute(backend, rng):
    space = hp.Space(box("quad", (8, 8)), 2, backend=backend)
    operator = hp.Helmholtz(space, lam=1.5)
    given = fields(space, "coeff", 1, rng)
    expected = [values(operator(field)) for field in given]
    over, wrong = threading.Event(), []

    def work(number):
        if number == 0:
            operator.tune(0.2)
            over.set()
        while not over.is_set():
            if not close(values(operator(given[number % 4])), expected[number % 4]):
                wrong.append(number)

    together(work, 3)
    assert not wrong and close(values(operator(given[0])), expected[0])


def test_threads_see_a_side_of_a_pair_only_when_it_is_filled(rng):
    """Slow transfers: a thread that finds the side in place must not find it empty."""
    turn = threading.Barrier(THREADS)

    class Slow(Host):
        """A device that lets the others go on between its steps."""

        name = "slow"

        def empty(self, shape, dtype):
            made = np.full(shape, np.nan, dtype)
            turn.wait()
            return made

    device, numbers = Slow(), rng.standard_normal((3, 5))
    for _ in range(ROUNDS):
        pair, wrong = PairArray.of(numbers), []

        def work(number, pair=pair, wrong=wrong):
            if not np.array_equal(pair.read(device), numbers):
                wrong.append(number)

        together(work)
        assert not wrong and pair.valid(device) and pair.valid()
