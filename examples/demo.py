"""What hpfem does, in ten lines and four pictures: `make demo` runs this, in about a minute on a core.

python examples/demo.py --output demo-output
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import hpfem as hp
from hpfem.benchmarks import (
    BenchSettings,
    Runner,
    compare_algorithms,
    document,
    machine_description,
    thread_limit,
)
from hpfem.plots import plot_results

MESHES = Path(__file__).resolve().parent.parent / "meshes"


def wave(x, y):
    """The solution of the demo's problem."""
    return np.sin(6 * x) * np.cos(5 * y)


def solve(output, order, backend):
    """Draw a mesh, solve on it, draw the solution; -> its relative error in L2."""
    mesh = hp.read_mesh(MESHES / "curved_mixed_2d.msh")
    mesh.plot(output / "mesh.png")
    kinds = " and ".join(f"{len(group)} {group.shape.name}s" for group in mesh.cells)
    print(f"mesh.png: {kinds} of order {mesh.cells[0].order} with names, read from a file of gmsh")
    space = hp.Space(mesh, order, backend=backend)
    u = hp.solve_helmholtz(space, lam=1.0, f=lambda *x: 62 * wave(*x), dirichlet=wave)
    u.plot(output / "solution.png")
    error = hp.l2_error(u, wave)
    print(
        f"solution.png: -div grad u + u = f at order {order}: {u.info.size} unknowns, {u.info.iterations} iterations,"
        f" relative error {error:.1e}"
    )
    return error


def compare(output, orders, backend):
    """Compare algorithms on a mesh of all solid shapes; -> the largest relative difference of their results."""
    rows = [
        row
        for order in orders
        for row in compare_algorithms(hp.read_mesh(MESHES / "curved_mixed.msh"), order, backend=backend)
        if not row.quadrature  # on the same points
    ]
    about = {"mesh": "curved_mixed.msh", "machine": machine_description()}
    with TemporaryDirectory(dir=output) as folder:
        first, *_ = plot_results(document("hpfem-compare", [row.as_dict() for row in rows], True, **about), folder)
        first.replace(output / "compare.png")
    difference = max(row.difference for row in rows)
    last = {row.shape: row for row in reversed(rows) if row.collocation and row.order == orders[-1]}
    found = {shape: row.collocation for shape, row in last.items()}
    gains = ", ".join(f"{shape} {f'{own.median:.2f}' if own.sign else own}" for shape, own in found.items())
    print(f"compare.png: all algorithms give the same numbers, to {difference:.0e} relative;")
    print(f"  times as fast by collocation at order {orders[-1]}: {gains}")
    return difference


def measure(output, orders, dofs, backend):
    """Measure the throughput of the fastest strategy, shape by shape; -> {shape: its measurements}."""
    backend = hp.choose_backend(backend).name
    with thread_limit() as threads:
        limits = hp.choose_backend(backend).roofline("float64", True)
        settings = BenchSettings(
            "bk3",
            orders=orders,
            dofs=dofs,
            geometries=("deformed",),
            strategies=("auto",),
            algorithms=("auto",),
            backend=backend,
            repeats=3,
            min_seconds=5e-3,
        )
        run = Runner(settings, {"float64": limits})
        for _ in run:
            pass
    about = {"machine": machine_description(), "threads": threads, "roofline": limits.as_dict()}
    with TemporaryDirectory(dir=output) as folder:
        first, *_ = plot_results(
            document("hpfem-bench", [m.as_dict() for m in run.measurements], True, **about), folder
        )
        first.replace(output / "throughput.png")
    speeds = f"{limits.bandwidth / 1e9:.0f} GB/s from main memory and {limits.flops / 1e9:.0f} GFLOP/s"
    print(f"throughput.png: the Helmholtz operator on curved cells, on one core that has {speeds}:")
    found = {}
    for shape in settings.shapes:
        own = found[shape] = [m for m in run.measurements if m.shape == shape]
        best = [max((m for m in own if m.order == order), key=lambda m: m.dofs_per_second) for order in orders]
        rates = ", ".join(f"{m.dofs_per_second / 1e6:.0f}" for m in best)
        top = max(best, key=lambda m: m.fraction)
        limit = {"bandwidth": "memory", "flops": "arithmetic"}[top.bound]
        print(f"  {shape:8} {rates} MDoF/s at orders {orders}; at best {top.fraction:.1f} times what {limit} allows")
    print("  (what is in cache comes faster than memory allows; some kernels need fewer operations than are counted)")
    return found


def main(output="demo-output", order=10, orders=(1, 2, 4, 6), dofs=(1e3, 1e4, 1e5), backend="auto"):
    """Run all of it; -> "error", "difference", "throughput"."""
    start, output = time.perf_counter(), Path(output)
    output.mkdir(parents=True, exist_ok=True)
    found = {
        "error": solve(output, order, backend),
        "difference": compare(output, orders, backend),
        "throughput": measure(output, orders, dofs, backend),
    }
    print(f"four pictures in {output}, after {time.perf_counter() - start:.0f} s")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What hpfem does, in ten lines and four pictures.")
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", default="demo-output", help="folder for the pictures")
    given = parser.parse_args()
    main(given.output, backend=given.backend)
