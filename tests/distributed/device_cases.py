"""Vectors that stay on GPUs, of which each process has one: as on one process, and as on the host."""

from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.memory import count_transfers
from hpfem.solvers.multigrid import Multigrid
from hpfem.solvers.multigrid.lines import SharedLayers
from hpfem.solvers.preconditioners import jacobi
from tests.distributed.lacking_cases import ITERATED, check
from tests.distributed.meshes import BOXES, by_cell, by_first, difference, exact, random_owners, whole
from tests.distributed.operator_cases import CLOSE, as_many, problem
from tests.distributed.solver_cases import both

TOL = 1e-10


def operators(comm, backend="cuda"):
    """Products, sums and conjugate gradients of vectors on the device."""
    for name in BOXES:
        mesh = whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm))
        (A, b), (P, c) = (problem(own, backend=backend) for own in (mesh, part))
        x, y = (own.vectors.from_host(own.c0.project(exact)) for own in (A, P))
        for one, other in ((b, c), (A.apply(x, A.device), P.apply(y, P.device))):
            assert P.vectors.has(other)
            found = [by_cell(o.c0.scatter(o.vectors.to_host(v)), comm) for o, v in ((A, one), (P, other))]
            assert difference(*found) < CLOSE
            assert abs(P.vectors.norm(other) / A.vectors.norm(one) - 1) < CLOSE
            agreed = P.vectors.agreed(other.copy())
            assert bool((agreed == other).all())  # to the last bit on all processes
        (u, one), (v, other) = (hp.cg(o, f, jacobi(o), tol=TOL, bar=False) for o, f in ((A, b), (P, c)))
        assert as_many(one, other), (one.iterations, other.iterations)
        found = [by_cell(o.c0.scatter(o.vectors.to_host(w)), comm) for o, w in ((A, u), (P, v))]
        # |u - v| <= |1/A| (|r| + |s|), with residuals r, s <= tol |b| <= tol |A| |u| and |u| <= sqrt(n) max |u|.
        assert difference(*found) < 2 * TOL * np.linalg.cond(A.assemble().toarray()) * len(b) ** 0.5


def iterations(comm, backend="cuda", order=3):
    """Conjugate gradients with the kernels that sum as they go, also where unknowns that are held are no zeros."""
    for name in ("mixed", "tet", "quad"):
        mesh = whole(name)
        part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 9))
        for components, make in ((1, jacobi), (2, lambda A: None), (1, lambda A: lambda r: 0.5 * r)):

            def solved(own, components=components, make=make):
                c0 = hp.C0Space(hp.Space(own, order, backend=backend))
                bc = hp.BoundaryConditions(c0, dirichlet={"xmin": exact, "ymax": 0.0})
                A = hp.GlobalOperator(hp.Helmholtz(c0.space, 1.5), c0, bc, components=components)
                assert A.product_on(A.device).alone
                b = np.tile(c0.project(exact), components)
                x, info = hp.cg(A, A.vectors.from_host(b), make(A), tol=TOL, bar=False)
                with pytest.raises(hp.SolverError, match="after 3 iterations"):
                    hp.cg(A, A.vectors.from_host(b), make(A), tol=TOL, max_iterations=3, bar=False)
                rows = A.vectors.to_host(x).reshape(components, -1)
                with pytest.raises(hp.SolverError, match="operator is not positive definite .* after 0"):
                    hp.cg(lambda w: -A.apply(w, A.device), A.vectors.from_host(b), shared=A.vectors, bar=False)
                return info, [by_cell(c0.scatter(row), comm) for row in rows], A.vectors.iteration is None

            (one, u, first), (other, v, second) = by_first(comm, partial(solved, mesh)), solved(part)
            assert as_many(one, other), (one.iterations, other.iterations)
            # A device that iterates keeps the inverse of the diagonal in float32, a host that iterates does not.
            close = 1e-9 if first == second or make is not jacobi else 1e-6
            assert np.allclose(one.residuals[:8], other.residuals[:8], close, 0), (one.residuals, other.residuals)
            assert all(difference(*pair) < 1e-6 for pair in zip(u, v, strict=True))


# Graphs of messages that Python deletes after the end of the script.
KEPT = []


def multigrid(comm, backend="cuda"):
    """Multigrid, all on the device where NCCL connects the processes: the vertices too, a cycle as one graph."""
    for name in BOXES:
        mesh = whole(name)
        part = hp.distribute(mesh, comm)
        for own in (mesh, part):  # the degree of the smoother is another where the device iterates alone
            space = hp.Space(own, 4, backend=backend)
            u = hp.solve_helmholtz(
                space, lam=1.0, f=1.0, dirichlet=exact, preconditioner="multigrid", tol=1e-10, bar=False
            )
            assert u.info.iterations < 25
        both(mesh, part, comm, 1e-6, f=1.0, dirichlet=exact, preconditioner="jacobi", order=2, backend=backend)
    lines = []
    for shape, n, height in (("pyramid", (2, 2, 1), 0.02), ("hex", 3, 0.01)):  # eliminated, and groups alone
        thin = hp.distribute(hp.box(shape, n, upper=(1, 1, height), comm=hp.ALONE), comm)
        c0 = hp.C0Space(hp.Space(thin, 3, backend=backend))
        given = hp.BoundaryConditions(c0, dirichlet={"ymin": 0.0})
        lines.append(hp.GlobalOperator(hp.Helmholtz(c0.space, 1.0), c0, given))
    for A in (problem(part, backend=backend)[0], *lines):
        M = Multigrid(A)
        assert M.on_devices == (A.vectors.iteration is not None)
        assert comm.any(any(isinstance(own, SharedLayers) for own in M.levels[0].smoothers[0].lines)) == (A in lines)
        r = A.vectors.from_host(A.c0.project(exact))
        first = [M(r), M(r)]
        KEPT.append(M)
        with count_transfers() as moved:
            again = M(r)
        assert bool((again == first[0]).all()) and bool((A.vectors.agreed(again.copy()) == again).all())
        assert moved.total == 0 or not M.on_devices
    u = hp.solve_helmholtz(
        c0.space, lam=1.0, f=1.0, dirichlet={"ymin": 0.0}, preconditioner="multigrid", tol=1e-10, bar=False
    )
    assert u.info.iterations < 17


def lacking(comm, backend="cuda"):
    """Processes without cells, or without facets of a condition: all capture, and exchange, or none."""
    for mesh in (hp.box("hex", (8, 4, 4)), hp.box("quad", 6), hp.box("hex", (1, 1, 1))):
        space = hp.Space(mesh, 3 if mesh.dim == 3 else 1, backend=backend)
        for preconditioner in ("jacobi", "none", "multigrid"):
            given = {"robin": {"xmin": (2.0, 1.0)}, "dirichlet": {"xmax": 0.0}, "preconditioner": preconditioner}
            assert np.isfinite(hp.solve_helmholtz(space, 1.0, 1.0, bar=False, **given).norm())
    names, uses = ("one", "two", "strip", "curved", "thin"), [*ITERATED, "coefficients 1 jacobi", "functions", "wave"]
    check(comm, [(names[i % 5], use) for i, use in enumerate(uses)], backend)


def between(comm, backend="cuda"):
    """What processes exchange goes from GPU to GPU."""
    _, P = mesh_and_operator(comm, backend)
    x = P.vectors.from_host(P.c0.project(exact))
    for _ in range(2):  # tables come at first
        with count_transfers() as moved:
            P.apply(x, P.device)
            P.vectors.dots((x, x), (x, x))
    assert moved.to_host == moved.to_device == 0, moved


def mesh_and_operator(comm, backend):
    mesh = whole("mixed")
    part = hp.distribute(mesh, comm, owners=random_owners(mesh, comm, 3))
    return part, problem(part, backend=backend)[0]


def on_host(comm):
    """The same without GPUs, so that these cases are tried everywhere."""
    operators(comm, "numpy")
    iterations(comm, "numpy", order=2)
    assert np.isfinite(mesh_and_operator(comm, "numpy")[1].diagonal()).all()
