"""Throughput of the mass and Helmholtz operators, shape by shape, against what the machine can do.

    python examples/throughput_by_shape.py --output pictures/
    python examples/throughput_by_shape.py --backend cuda

`hpfem bench` and `hpfem plot` do the same from the command line, with more choices.
"""

import argparse

import hpfem as hp
from hpfem.benchmarks import BenchSettings, Runner, document, machine_description, thread_limit
from hpfem.plots import plot_results


def main(orders=(1, 2, 4, 6), dofs=(3e4,), backend="numpy", output=None):
    """Measure on one thread; -> {(benchmark, shape, geometry, order): the best `Measurement` of all strategies}."""
    backend = hp.choose_backend(backend).name
    best = {}
    results = []
    with thread_limit() as threads:
        # The machine's limits are measured in the same run: how fast memory can be read and matrices multiplied.
        limits = hp.choose_backend(backend).roofline("float64", True)
        for benchmark in ("bk1", "bk3"):
            settings = BenchSettings(benchmark, orders=orders, dofs=dofs, backend=backend, repeats=3, min_seconds=2e-3)
            run = Runner(settings, {"float64": limits})
            for case in run:
                key = case.shape, case.geometry, case.order
                done = [m for m in run.measurements if (m.shape, m.geometry, m.order) == key]
                best[benchmark, *key] = max(done, key=lambda m: m.dofs_per_second)
            results += [measurement.as_dict() for measurement in run.measurements]

    for (benchmark, shape, geometry, order), m in best.items():
        rate = f"{m.dofs_per_second / 1e6:6.1f} MDoF/s with {m.strategy}"
        print(f"{benchmark} {shape:8} {geometry:9} P={order}: {rate}, {m.fraction:.0%} of the {m.bound} limit")

    if output is not None:
        about = {"machine": machine_description(), "threads": threads, "roofline": limits.as_dict()}
        print("written", *plot_results(document("hpfem-bench", results, True, **about), output))
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Throughput of operators by shape.")
    parser.add_argument("--backend", default="numpy", help="auto, numpy, cpu or cuda")
    parser.add_argument("--output", help="folder for pictures")
    given = parser.parse_args()
    main(backend=given.backend, output=given.output)
