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


def main(path=MESH, orders=(2, 4, 6), backend="auto", output=None):
    """Compare both on one thread; dense matrices are the third.

    Returns
    -------
    dict
        "difference": the largest relative difference of any two results; "flops_saved": {(shape, order): share of the
        operations that collocation saves}; "rows": the `ComparisonRow` of all.
    """
    mesh = hp.read_mesh(path)
    with thread_limit():
        rows = [row for order in orders for row in compare_algorithms(mesh, order, backend=backend, repeats=3)]

    # Every algorithm computes the same numbers, up to rounding.
    rows = [row for row in rows if not row.quadrature]  # on the same points
    difference = max(row.difference for row in rows)
    print(f"largest relative difference: {difference:.1e}")

    # Only the work differs.
    saved = {}
    # On a GPU sum factorisation with both algorithms has another name: some elements per block of threads.
    strategy = "sumfac-top" if any(row.strategy == "sumfac-top" for row in rows) else "sumfac"
    sumfac = {(row.shape, row.order, row.algorithm): row for row in rows if row.strategy == strategy}
    for (shape, order, algorithm), collocated in sumfac.items():
        if algorithm == "collocated":
            direct = sumfac[shape, order, "noncollocated"]
            saved[shape, order] = 1 - collocated.flops / direct.flops
            print(
                f"{shape:8} P={order}: {saved[shape, order]:4.0%} fewer operations,"
                f" {direct.seconds / collocated.seconds:.2f} times as fast"
            )

    if output is not None:
        result = document("hpfem-compare", [row.as_dict() for row in rows], True, mesh=str(path))
        print("written", *plot_results(result, output))
    return {"difference": difference, "flops_saved": saved, "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Collocated and non-collocated Helmholtz on every shape.")
    parser.add_argument("mesh", nargs="?", default=MESH)
    parser.add_argument("--backend", default="auto", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for a picture")
    arguments = parser.parse_args()
    main(arguments.mesh, backend=arguments.backend, output=arguments.output)
