"""Collocated or not: two ways to compute the same gradients, compared on every shape.

The derivatives of the basis functions can be tabulated at the quadrature points and summed directly (non-collocated),
or the function can be evaluated there first and its values differentiated with the Lagrange polynomials through the
points (collocated). Both are exact; the second needs fewer operations when there are about as many points as modes.

    python examples/compare_collocation.py --output pictures/
    python examples/compare_collocation.py --backend cuda
"""

import argparse
from pathlib import Path

import hpfem as hp
from hpfem.benchmarks import compare_algorithms, document, thread_limit
from hpfem.plots import plot_results

MESH = Path(__file__).resolve().parent.parent / "meshes" / "curved_mixed.msh"


def main(path=MESH, orders=(2, 4, 6), backend="auto", output=None, repeats=25):
    """Compare both on one thread, in turns; `hpfem compare` does the same, and prints more.

    Returns
    -------
    dict
        "difference": the largest relative difference of any two results; "flops_saved": {(shape, geometry, order):
        share of the operations that collocation saves}; "gain": how many times as fast it is there; "rows": the
        `ComparisonRow` of all.
    """
    mesh = hp.read_mesh(path)
    with thread_limit():
        rows = [row for order in orders for row in compare_algorithms(mesh, order, backend=backend, repeats=repeats)]

    # Every algorithm computes the same numbers, up to rounding.
    rows = [row for row in rows if not row.quadrature]  # on the same points
    difference = max(row.difference for row in rows)
    print(f"largest relative difference: {difference:.1e}")

    # Only the work differs. Of each block, the fastest strategy that has both algorithms: rows are sorted.
    saved, gain = {}, {}
    others = {(row.strategy, row.shape, row.geometry, row.order): row for row in rows if not row.collocation}
    for row in rows:
        block = row.shape, row.geometry, row.order
        if row.collocation and block not in gain:
            saved[block] = 1 - row.flops / others[row.strategy, *block].flops
            gain[block] = row.collocation  # median and quartiles, or "no difference"
            print(f"{row.shape:8} {row.geometry:8} P={row.order}: {saved[block]:4.0%} fewer operations, {gain[block]}")

    if output is not None:
        result = document("hpfem-compare", [row.as_dict() for row in rows], True, mesh=str(path))
        print("written", *plot_results(result, output))
    return {"difference": difference, "flops_saved": saved, "gain": gain, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Collocated and non-collocated Helmholtz on every shape.")
    parser.add_argument("mesh", nargs="?", default=MESH)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for a picture")
    arguments = parser.parse_args()
    main(arguments.mesh, backend=arguments.backend, output=arguments.output)
