"""What goes wrong on one process."""

import os
import signal
import sys

import numpy as np

import hpfem as hp
from hpfem.support.communicator import world


def solve(bad):
    """A solve in which the last process does something at its 10th product."""
    comm = world()
    space = hp.Space(hp.box("hex", 4), 2, backend="numpy")
    c0 = hp.C0Space(space)
    A = hp.GlobalOperator(hp.Helmholtz(space), c0, hp.BoundaryConditions(c0, dirichlet=0.0))
    count = iter(range(10**6))

    def product(x):
        if next(count) == 10 and comm.rank == comm.size - 1:
            bad()
        return A.apply(x)

    hp.cg(product, A.vectors.agreed(np.random.default_rng(0).random(c0.size)), shared=A.vectors, tol=1e-11)


def raising():
    raise ValueError("the tenth product")


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "all":
        hp.Space(hp.box("hex", 4), 99)
    elif what == "set-up":
        space = hp.Space(hp.box("hex", 3), 2)
        if world().rank == 1:
            raise hp.MeshError("this part is bad")
        print(hp.C0Space(space).multiplicity.max())
    else:
        solve({"raising": raising, "killed": killed}[what])
    print("never here")
