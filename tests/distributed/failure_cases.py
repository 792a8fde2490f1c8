"""What goes wrong on one process."""

import importlib
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.support.communicator import world


def solve(bad):
    """A solve in which the last process does something at its 10th product."""
    comm = world()
    space = hp.Space(hp.box("hex", 4), 2, backend="numpy")
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    count = iter(range(10**6))

    def product(x):
        if next(count) == 10 and comm.rank == comm.size - 1:
            bad()
        return A.apply(x)

    hp.cg(product, A.vectors.agreed(np.random.default_rng(0).random(c0.size)), shared=A.vectors, tol=1e-11)


def raising():
    raise ValueError("what goes wrong")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted():
    os.kill(os.getpid(), signal.SIGINT)


def leaving():
    with pytest.raises(SystemExit) as caught:  # nothing ends
        sys.exit(5)
    assert caught.value.code == 5
    sys.exit(7)


def explaining():
    sys.exit("why it ends")


class Leaving(SystemExit):
    """An exception of a script."""


def raising_exit():
    with pytest.raises(SystemExit) as caught:
        raise SystemExit(5)
    assert caught.value.code == 5
    thread = threading.Thread(target=lambda: sys.exit(6))  # ends the thread alone, and prints nothing
    thread.start()
    thread.join()
    raise Leaving(8)


def succeeding():
    sys.exit(0)


HOW = {own.__name__: own for own in (raising, killed, interrupted, leaving, explaining, raising_exit, succeeding)}


def waiting():
    """One process comes late; then two wait for each other."""
    comm = world()
    if comm.rank == 1:
        time.sleep(2.5)
    comm.sum(1.0)
    signal.alarm(4)
    if comm.rank == 0:
        comm.exchanged({1: np.zeros(1)})
    else:
        comm.allgather(None)


# Where something goes wrong: module, function, process.
PHASES = {
    "reading": ("hpfem.mesh.io.reader", "_content", 0),
    "compiling": ("hpfem.backends.cpu.runtime.cache", "compile_object", 1),
    "writing": ("hpfem.vtu.writer", "_write_grid", 1),
    "saving": ("hpfem.checkpoint", "_write_mesh", 1),
}


def phases(name, bad):
    """All that a program does; in one phase a process does something else."""
    module, function, rank = PHASES[name]
    if world().rank == rank:
        setattr(importlib.import_module(module), function, lambda *_: bad())
    space = hp.Space(hp.read_mesh("meshes/cube_mixed.msh"), 2, backend="cpu")
    u = hp.solve_helmholtz(space, lam=1.0, f=1.0, dirichlet=0.0, preconditioner="multigrid", bar=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(world().bcast(folder))
        hp.write_vtu(path / "u.vtu", u)
        hp.save(path / "u.h5", u)
        world().allgather(None)


if __name__ == "__main__":
    what, *more = sys.argv[1:]
    if what == "before":  # hpfem has not asked for the other processes yet
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 1:
            HOW[more[0]]()
        MPI.COMM_WORLD.barrier()
    elif what == "all":
        hp.Space(hp.box("hex", 4), 99)
    elif what == "set-up":
        space = hp.Space(hp.box("hex", 3), 2)
        if world().rank == 1:
            raise hp.MeshError("this part is bad")
        print(hp.C0Space(space).multiplicity.max())
    elif what == "apart":  # they end at different times
        solve(lambda: None)
        time.sleep(0.3 * world().rank)
        sys.exit(0)
    elif what == "waiting":
        waiting()
    elif what in PHASES:
        phases(what, HOW[more[0]])
    else:
        solve(HOW[what])
    print("never here")
