"""Threads that share objects, and applications inside applications, get the results of one alone."""

import sys
import threading

import numpy as np
import pytest

import hpfem as hp
from hpfem.assembly.devices import vector_home, vector_on
from hpfem.kernels.cpu import kernel as cpu_kernel
from hpfem.mesh.box import box
from hpfem.operators import InverseMass
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


def same_for_all(function, arguments, alike=np.array_equal):
    """Threads call one function with arguments of their own, many times: each result is that of a call alone."""
    expected = [function(argument) for argument in arguments]
    wrong = []

    def work(number):
        for turn in range(ROUNDS):
            which = (number + turn) % len(arguments)
            if not alike(function(arguments[which]), expected[which]):
                wrong.append((number, turn))

    together(work)
    assert not wrong, f"{len(wrong)} of {THREADS * ROUNDS} results are wrong"


def close(a, b):
    """Equal but for the order of sums, which libraries may change."""
    return np.abs(a - b).max() <= 1e-12 * np.abs(b).max()


def mesh(shape="hex", affine=True):
    made = box(shape, (3, 2, 2))
    return made if affine else made.transformed(lambda x: x + 0.02 * np.sin(x[:, ::-1]))


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
    "BwdTrans": lambda space, **way: hp.BwdTrans(space, **way),
    "IProductWRTBase": lambda space, **way: hp.IProductWRTBase(space, **way),
    "Helmholtz": lambda space, **way: hp.Helmholtz(space, lam=1.5, **way),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(("backend", "strategy"), EVERY_WAY)
def test_an_operator(backend, strategy, name, native_threads, rng):
    space = hp.Space(mesh(), 2, basis="lagrange")
    algorithm = "noncollocated" if strategy == "dense" else "auto"
    try:
        operator = OPERATORS[name](space, backend=backend, strategy=strategy, algorithm=algorithm)
    except hp.NotSuitable:
        return
    given = fields(space, operator.input_state, 1, rng)
    same_for_all(lambda field: values(operator(field)), given)
