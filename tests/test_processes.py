"""Objects in other processes: forked, spawned, pickled, copied."""

import copy
import functools
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import BACKENDS
from hpfem.backends.cpu.runtime import kernel as cpu_kernel
from hpfem.mesh.box import box
from hpfem.operators import OPERATORS, InverseMass
from hpfem.shapes.cached import cached_property
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.preconditioners import jacobi
from tests.limits import forked, limit_time


def made(backend):
    """An operator, a field, and what comes out."""
    space = hp.Space(box(("tet", "prism"), (2, 2, 2)), 2, backend=backend)
    operator = hp.Helmholtz(space, lam=1.0)
    u = space.project(lambda x, y, z: x * y + z)
    return operator, u, np.concatenate([a.ravel() for a in operator(u).arrays])


def applied(operator, u, queue):
    """What a child does: with what it was given, and with an operator of its own that it compiles."""
    own = hp.WeakForm(u.space, lambda u, du: (u * 1.0, du))
    queue.put([np.concatenate([a.ravel() for a in each(u).arrays]) for each in (operator, own)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_computes(monkeypatch):
    """The pool of threads is at work, and other threads use it and compile, when the process forks."""
    monkeypatch.setattr(cpu_kernel, "THREAD_FLOPS", 1)
    monkeypatch.setenv("HPFEM_NUM_THREADS", "2")
    operator, u, expected = made("cpu")
    over = threading.Event()

    def busy():
        while not over.is_set():
            operator(u)
            hp.Mass(u.space)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            context = multiprocessing.get_context("fork")
            queue = context.SimpleQueue()
            child = context.Process(target=applied, args=(operator, u, queue))
            child.start()
            child.join(60)
            assert child.exitcode == 0
            assert all(np.allclose(found, expected, rtol=1e-12, atol=1e-14) for found in queue.get())
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert np.array_equal(np.concatenate([a.ravel() for a in operator(u).arrays]), expected)


def _twice(operator_and_field):
    operator, u = operator_and_field
    return np.concatenate([a.ravel() for a in operator(u).arrays])


def test_a_spawned_process_computes():
    operator, u, expected = made("cpu")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (found,) = pool.map(_twice, [(operator, u)])
    assert np.array_equal(found, expected)


WAYS = {"pickle": lambda o: pickle.loads(pickle.dumps(o)), "copy": copy.copy, "deepcopy": copy.deepcopy}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
def test_copies_compute_the_same(way, backend):
    operator, u, expected = made(backend)
    c0 = hp.C0Space(operator.space)
    A = hp.GlobalOperator(operator, c0)
    operator_, u_, A_ = way({"all": (operator, u, A)})["all"]
    assert np.array_equal(np.concatenate([a.ravel() for a in operator_(u_).arrays]), expected)
    x = np.linspace(0, 1, A.shape[0])
    assert np.array_equal(A_ @ x, A @ x)


@functools.cache
def c0_space():
    return hp.C0Space(hp.Space(box(("tet", "prism"), (2, 2, 2)), 3, backend="cpu"))


def smooth(x, y, z):
    return np.sin(x) * y + z


def long_form(u, du):
    """Its graph is deeper than Python's limit of recursion."""
    for _ in range(600):
        u = np.sin(u) + 1.0
    return u, du


def conditions():
    return hp.BoundaryConditions(c0_space(), dirichlet={"xmin": smooth}, robin={"xmax": (1.0, smooth)})


def global_operator():
    return hp.GlobalOperator(hp.Helmholtz(c0_space().space, lam=smooth), c0_space(), conditions())


def vector():
    return np.linspace(0, 1, c0_space().size)


def applied_to_smooth(operator):
    """Arrays that an operator of scalar or vector fields makes."""
    space, state = c0_space().space, operator.input_state
    components = 3 if operator.name == "IProductWRTDerivBase" else 1
    given = space.empty(state, components)
    for pair in given.data:
        pair.write()[...] = np.linspace(0, 1, np.prod(pair.shape)).reshape(pair.shape)
    return operator([pair.read() for pair in given.data])


# Coefficients of operators that take some.
GIVEN = {"AdvectionDiffusionReaction": ((1, 2, 3),), "Helmholtz": (1.0,)}
# How an object is made, and numbers that come out of it.
OBJECTS = {
    "mesh": (lambda: c0_space().space.mesh, lambda mesh: [mesh.points, mesh.n_cells, *mesh.boundaries.values()]),
    "space": (lambda: c0_space().space, lambda space: [pair.read() for pair in space.project(smooth).data]),
    "block": (lambda: c0_space().space.blocks[0], lambda block: [block.elements, block.geometry.factors("metric")]),
    "locator": (lambda: c0_space().space.locator, lambda locator: locator.find(np.full((1, 3), 0.3))),
    "c0 space": (c0_space, lambda c0: c0.project(smooth)),
    "backend": (lambda: BACKENDS["numpy"], lambda backend: backend.name),
    "field": (lambda: c0_space().space.project(smooth), lambda u: [pair.read() for pair in u.data]),
    "unwritten field": (lambda: c0_space().space.empty("coeff"), lambda u: [pair.shape for pair in u.data]),
    "solution": (
        lambda: hp.solve_helmholtz(c0_space().space, lam=1.0),
        lambda u: [u.norm(), u.info.residuals, u.c0.size],
    ),
    "conditions": (conditions, lambda bc: [bc.values, bc.load, bc.free, bc.matrix.toarray()]),
    "global operator": (global_operator, lambda A: [A @ vector(), A.diagonal()]),
    "jacobi": (lambda: jacobi(global_operator()), lambda M: M(vector())),
    "multigrid": (lambda: Multigrid(global_operator()), lambda M: M(vector())),
    "pointwise": (lambda: hp.Pointwise(long_form, ("value", "grad")), lambda form: [form.name, form.test]),
    "weak form of a lambda": (
        lambda: hp.WeakForm(c0_space().space, lambda u, du, k: (k * u, du), fields={"k": smooth}),
        applied_to_smooth,
    ),
    "long weak form": (lambda: hp.WeakForm(c0_space().space, long_form), applied_to_smooth),
    "InverseMass": (lambda: InverseMass(c0_space().space), applied_to_smooth),
    **{
        name: (lambda name=name: OPERATORS[name](c0_space().space, *GIVEN.get(name, ())), applied_to_smooth)
        for name in OPERATORS
    },
}


@each_way
@pytest.mark.parametrize("what", OBJECTS)
def test_every_object_can_be_pickled_and_copied(what, way):
    make, numbers = OBJECTS[what]
    original = make()
    expected = copy.deepcopy(numbers(original))
    np.testing.assert_equal(numbers(way(original)), expected)
    np.testing.assert_equal(numbers(original), expected)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("what", ["mesh", "space", "block", "c0 space", "backend"])
def test_immutable_objects_are_their_own_copies(what, way):
    original = OBJECTS[what][0]()
    assert way(original) is original


def test_a_deep_copy_of_a_field_fits_the_operators_of_its_space_and_has_values_of_its_own():
    operator, u, expected = made("cpu")
    v = copy.deepcopy(u)
    assert v.space is u.space and np.array_equal(np.concatenate([a.ravel() for a in operator(v).arrays]), expected)
    for array in v.arrays:
        array[...] = 0
    assert np.array_equal(np.concatenate([a.ravel() for a in operator(u).arrays]), expected)
    assert v.norm() == 0


@pytest.mark.parametrize("error", [hp.ArgumentError, hp.StateError, hp.MeshError, hp.SolverError, hp.NotSuitable])
def test_errors_come_back_from_other_processes(error):
    found = pickle.loads(pickle.dumps(error("what and where")))
    assert type(found) is error and str(found) == "what and where"


class Slow:
    """An object with a property that takes as long as it is told to."""

    def __init__(self):
        self.begun, self.may_end = threading.Event(), threading.Event()

    @cached_property
    def value(self):
        """One."""
        self.begun.set()
        self.may_end.wait()
        return 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_process_computes_a_property_that_a_thread_was_computing():
    held, free = Slow(), Slow()
    free.may_end.set()
    thread = threading.Thread(target=lambda: held.value)
    thread.start()
    held.begun.wait()

    def child():
        limit_time(5)
        assert free.value == 1

    assert forked(child) == 0
    held.may_end.set()
    thread.join()
    assert held.value == 1 and held.value is held.__dict__["value"]
