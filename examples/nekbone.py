"""Nekbone: Poisson and Helmholtz problems on a box of hexes by conjugate gradients, the benchmark of spectral elements.

    python examples/nekbone.py --counts 8 8 8 --output nekbone.json
    python examples/nekbone.py --backend cuda
    mpirun -n 2 python examples/nekbone.py --counts 32 32 16 --backend cuda

Order 7, nodes and points at Gauss-Lobatto points, one or three components, the diagonal or nothing as preconditioner.
Every variant of the operator must take as many iterations to the same error. Work and degrees of freedom of an
iteration are counted as in [Cao] Table 6: 12 E N^4 + 30 E N^3 flops (35 with a mass term), N = P + 1, and E P^3
degrees of freedom a component. (Nekbone itself counts 34 E N^3.) The operator's share of the roofline is relative to
the bandwidth of main memory: a small box in cache exceeds it.
"""

import argparse
import time
from itertools import product

import numpy as np

import hpfem as hp
from hpfem.benchmarks import machine_description, measure, write_json
from hpfem.mesh import box
from hpfem.solvers import make_preconditioner


def flops_per_iteration(elements, order, components, mass):
    """The count of [Cao] Table 6: the operator, 12 N^4 and 15 N^3 (20 with a mass term), and 15 N^3 of vector work."""
    n = order + 1
    return components * elements * (12 * n**4 + (35 if mass else 30) * n**3)


def dofs(elements, order, components):
    """The count of [Cao] Table 6: P^3 an element."""
    return components * elements * order**3


def solve(c0, lam, components, preconditioner, tol, options, limits):
    """One solve with a known solution; the entries of the table."""
    bc = hp.BoundaryConditions(c0, dirichlet=0.0)
    A = hp.GlobalOperator(hp.Helmholtz(c0.space, lam=lam, **options), c0, bc, components=components)
    device = A.device

    # The right-hand side of a known smooth solution that vanishes on the boundary, times random numbers near one.
    shape = c0.project(lambda x, y, z: np.sin(np.pi * x) * np.sin(np.pi * y) * np.sin(np.pi * z))
    noise = c0.vectors_on().agreed(np.random.default_rng(1).uniform(0.9, 1.1, (components, c0.size)))
    known = (shape * noise * bc.free).ravel()
    rhs = A.apply(A.vectors.from_host(known), device)
    precondition, _ = make_preconditioner(preconditioner, A)
    # A first short solve, not timed: kernels are compiled at first use.
    hp.cg(A, rhs, precondition, tol=0.5)

    start = time.perf_counter()
    x, info = hp.cg(A, rhs, precondition, tol=tol, name="Nekbone")
    found = A.vectors.to_host(x)
    comm = c0.space.comm
    seconds = comm.max(time.perf_counter() - start)
    local = A.c0.scatter(rhs.reshape(components, -1), device=device)
    out = A.operator(local)
    # The machine's limits are measured once per backend.
    name = A.operator.backend.name
    if name not in limits:
        limits[name] = hp.choose_backend(name).roofline(c0.space.dtype, True)
    kernel = measure(lambda: A.operator(local, out=out), timer=hp.choose_backend(name).timer()).median
    # All processes make as many calls.
    calls = {} if comm.size == 1 else {"repeats": 3, "min_seconds": 0.0}
    whole = measure(lambda: A.apply(rhs, device), timer=hp.choose_backend(name).timer(), **calls).median
    least, _ = limits[name].bound(A.operator.nbytes * components, A.operator.flops * components)
    iteration = seconds / max(info.iterations, 1)
    cells, order = int(comm.sum(c0.space.n_cells)), c0.space.blocks[0].order
    n = dofs(cells, order, components)
    count = flops_per_iteration(cells, order, components, lam != 0)
    choice = A.operator.choices[0]
    return {
        "equation": "Helmholtz" if lam else "Poisson",
        "components": components,
        "preconditioner": preconditioner,
        "variant": f"{choice.backend}/{choice.strategy}/{choice.algorithm}",
        "error": comm.max(float(np.abs(found - known).max())),
        "iterations": info.iterations,
        "seconds_per_iteration": iteration,
        "gflops": count / iteration / 1e9,
        "gdofs": n / iteration / 1e9,
        "share_of_operator": min(kernel / iteration, 1.0),
        "share_of_gather_scatter": max(whole - kernel, 0.0) / iteration,
        "operator_gdofs": n / comm.max(kernel) / 1e9,
        "operator_of_roofline": least / kernel,
    }


def main(
    counts=(4, 4, 4),
    order=7,
    lams=(0.0, 0.1),
    components=(1, 3),
    preconditioners=("jacobi",),
    variants=({},),
    backend="auto",
    tol=1e-8,
    output=None,
):
    """Run the table.

    Parameters
    ----------
    counts : sequence of int
        Hexes in each direction.
    variants : sequence of dict
        Options of the operator: strategy, algorithm, backend.

    Returns
    -------
    list of dict
        One row per combination.
    """
    space = hp.Space(box("hex", counts), order, "lagrange", "collocated", backend=backend)
    c0 = hp.C0Space(space)
    space.comm.print(f"{np.prod(counts)} hexes, order {order}, {c0.whole_size:,} unknowns a component")
    space.comm.print(
        "equation   d precond. variant                       error   iter.  GFLOP/s  GDOF/s  operator  roofline  gather"
    )
    rows, limits = [], {}
    for lam, n, preconditioner, options in product(lams, components, preconditioners, variants):
        row = solve(c0, lam, n, preconditioner, tol, options, limits)
        rows.append(row)
        space.comm.print(
            f"{row['equation']:10} {n} {preconditioner:8} {row['variant']:28} {row['error']:.2e} {row['iterations']:5}"
            f" {row['gflops']:9.2f} {row['gdofs']:7.4f} {row['share_of_operator']:8.0%}"
            f" {row['operator_of_roofline']:8.0%} {row['share_of_gather_scatter']:7.0%}"
        )
    if output is not None and space.comm.rank == 0:
        about = {
            "machine": machine_description(),
            "counts": list(counts),
            "order": order,
            "backend": backend,
            "tol": tol,
        }
        about["roofline"] = {name: limit.as_dict() for name, limit in limits.items()}
        write_json(output, {**about, "rows": rows})
        print("written", output)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The Nekbone benchmark.")
    parser.add_argument("--counts", type=int, nargs=3, default=(4, 4, 4))
    parser.add_argument("--order", type=int, default=7)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--preconditioners", nargs="+", default=("jacobi", "none"))
    parser.add_argument("--all-variants", action="store_true", help="every strategy and algorithm of the NumPy backend")
    parser.add_argument("--output", metavar="FILE.json")
    given = parser.parse_args()
    every = [
        {"backend": "numpy", "strategy": s, "algorithm": a}
        for s in ("sumfac", "stdmat")
        for a in ("collocated", "noncollocated")
    ]
    main(
        given.counts,
        given.order,
        preconditioners=given.preconditioners,
        variants=([{}, *every] if given.all_variants else [{}]),
        backend=given.backend,
        output=given.output,
    )
