"""Times of single applications on a GPU, launched as a CUDA graph, to compare two checkouts in one session.

    PYTHONPATH=OLD python benchmarks/operator_times.py old.json
    python benchmarks/operator_times.py new.json --against old.json

Only names that have been there from the first version on are used. `--only TEXT` selects cases by their name.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.mesh import box

CELLS = {
    "hex": {1: 60, 3: 32, 6: 16},
    "prism": {1: 48, 3: 28, 6: 14},
    "pyramid": {1: 40, 3: 20, 6: 10},
    "tet": {1: 40, 3: 20, 6: 10},
    "quad": {1: 900, 3: 400, 6: 200},
    "tri": {1: 700, 3: 300, 6: 150},
}
FORMS = {"Helmholtz": (hp.Helmholtz, "coeff", "dual"), "IProductWRTBase": (hp.IProductWRTBase, "phys", "dual")}
STRATEGIES, ALGORITHMS = ("sumfac-top", "sumfac", "stdmat", "dense"), ("collocated", "noncollocated")


def microseconds(operator: Any, u: Any, out: Any, calls: int = 20, samples: int = 15) -> float:
    """Median time of an application on the device."""
    import cupy

    operator(u, out=out)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(calls):
            operator(u, out=out)
        graph = stream.end_capture()
    times = []
    for _ in range(samples):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        graph.launch(stream)
        stop.record(stream)
        stop.synchronize()
        times.append(1e3 * float(cupy.cuda.get_elapsed_time(start, stop)) / calls)
    return statistics.median(times)


def cases(only: str) -> Iterator[tuple[str, float]]:
    """Names and times of all suitable strategies."""
    for shape, sizes in CELLS.items():
        for (order, n), curved in product(sizes.items(), (False, True)):
            space = None
            for form, algorithm, strategy in product(FORMS, ALGORITHMS, STRATEGIES):
                name = f"{form} {shape} P={order} {'curved' if curved else 'affine'} {algorithm} {strategy}"
                if only not in name:
                    continue
                if space is None:
                    mesh = box(shape, (n,) * (2 if shape in ("quad", "tri") else 3))
                    if curved:
                        mesh = mesh.elevated(2).transformed(lambda x, n=n: x + 0.05 / n * np.sin(3 * n * x[:, ::-1]))
                    space = hp.Space(mesh, order, backend="cuda")
                make, source, sink = FORMS[form]
                try:
                    operator = make(space, strategy=strategy, algorithm=algorithm)
                except hp.NotSuitable:
                    continue
                yield name, microseconds(operator, space.zeros(source), space.zeros(sink))


def main() -> None:
    """Measure, write the times, compare them with others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="JSON file to write")
    parser.add_argument("--against", type=Path, metavar="FILE", help="JSON file to compare with")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    arguments = parser.parse_args()
    times = dict(cases(arguments.only))
    arguments.output.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")
    if arguments.against is not None:
        before = json.loads(arguments.against.read_text(encoding="utf-8"))
        ratios = {name: times[name] / before[name] for name in times if name in before}
        for name, ratio in sorted(ratios.items(), key=lambda item: item[1]):
            print(f"{ratio:.4f} {before[name]:9.2f} us -> {times[name]:9.2f} us  {name}")
        print(f"{len(ratios)} cases, median {statistics.median(ratios.values()):.4f}")


if __name__ == "__main__":
    main()
