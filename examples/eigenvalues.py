"""Eigenvalues of the Laplacian on a mesh of all shapes, matrix-free: K u = lambda M u by SciPy's LOBPCG.

    python examples/eigenvalues.py --output modes.vtu
    python examples/eigenvalues.py --backend cuda

On the unit cube with u = 0 on the boundary they are pi^2 (i^2 + j^2 + k^2): 3, 6, 6, 6, 9, ... times pi^2. For SciPy
the operators are `LinearOperator`s on NumPy vectors, whatever their device; the multigrid preconditioner of the
Helmholtz solver makes LOBPCG converge fast.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

import hpfem as hp
from hpfem.solvers import make_preconditioner
from hpfem.vtu import write_vtu

MESH = Path(__file__).resolve().parent.parent / "meshes" / "cube_mixed.msh"


def on_free(operator, c0, free):
    """The operator between free unknowns only; unknowns with Dirichlet values would add the eigenvalue 1.

    SciPy runs in one process: each process has all unknowns, and gives its own ones to the operator.
    """

    def apply(x):
        full = np.zeros(free.size)
        full[free] = x.ravel()
        return c0.allgather(operator(c0.local(full)))[free]

    n = int(free.sum())
    return LinearOperator((n, n), matvec=apply, dtype=float)


def main(path=MESH, order=5, count=5, method="lobpcg", tol=1e-6, backend="auto", output=None):
    """Compute the smallest eigenvalues of the cube.

    Parameters
    ----------
    method : str
        "lobpcg", or "eigsh": Lanczos on the inverse, applied by CG.

    Returns
    -------
    dict
        "values" (over pi^2) and "errors" (relative).
    """
    space = hp.Space(hp.read_mesh(path), order, backend=backend)
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    K = hp.GlobalOperator(hp.Laplacian(space), c0, bc)
    M = hp.GlobalOperator(hp.Mass(space), c0, bc)
    on_device, used = make_preconditioner("auto", K)

    def precondition(r):
        return K.vectors.to_host(on_device(K.vectors.from_host(r)))

    def inverse(b):
        return K.vectors.to_host(hp.cg(K, K.vectors.from_host(b), on_device, tol=1e-12, bar=False)[0])

    free = c0.allgather(bc.free)
    space.comm.print(f"{int(free.sum()):,} free unknowns, preconditioner {used}")
    stiffness, mass = on_free(K.matvec, c0, free), on_free(M.matvec, c0, free)
    if method == "lobpcg":
        rng = np.random.default_rng(0)
        # A few more than needed: the last ones of a block converge last.
        guess = rng.standard_normal((stiffness.shape[0], count + 5))
        preconditioner = on_free(precondition, c0, free)
        with warnings.catch_warnings():
            # It warns of those last ones.
            warnings.simplefilter("ignore", UserWarning)
            values, vectors = lobpcg(stiffness, guess, B=mass, M=preconditioner, largest=False, tol=tol, maxiter=40)
        best = np.argsort(values)[:count]
        values, vectors = values[best], vectors[:, best]
    else:
        values, vectors = eigsh(stiffness, count, M=mass, sigma=0.0, OPinv=on_free(inverse, c0, free), tol=tol)
    triples = np.stack(np.meshgrid(*[np.arange(1, 6)] * 3), axis=-1).reshape(-1, 3)
    exact = np.sort(np.sum(triples**2, axis=1))[:count]
    errors = np.abs(values / np.pi**2 / exact - 1)
    for value, error in zip(values, errors):
        space.comm.print(f"lambda = {value / np.pi**2:.10f} pi^2, relative error {error:.1e}")
    if output is not None:
        full = np.zeros((count, free.size))
        full[:, free] = vectors.T
        write_vtu(output, {f"mode_{k}": c0.scatter(row) for k, row in enumerate(c0.local(full))})
        print("written", output)
    return {"values": values / np.pi**2, "errors": errors}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Eigenvalues of the Laplacian.")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--method", choices=("lobpcg", "eigsh"), default="lobpcg")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", metavar="FILE.vtu")
    given = parser.parse_args()
    main(order=given.order, count=given.count, method=given.method, backend=given.backend, output=given.output)
