"""Objects in other processes: forked, spawned, pickled, copied."""

import copy
import multiprocessing
import os
import pickle
import threading

import numpy as np
import pytest

import hpfem as hp
from hpfem.kernels.cpu import kernel as cpu_kernel
from hpfem.mesh.box import box


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


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_compute_the_same(way, backend):
    operator, u, expected = made(backend)
    c0 = hp.C0Space(operator.space)
    A = hp.GlobalOperator(operator, c0)
    operator_, u_, A_ = way({"all": (operator, u, A)})["all"]
    assert np.array_equal(np.concatenate([a.ravel() for a in operator_(u_).arrays]), expected)
    x = np.linspace(0, 1, A.shape[0])
    assert np.array_equal(A_ @ x, A @ x)
