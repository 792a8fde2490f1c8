"""Tables of benchmarks/CUDA.md from a result file of `hpfem bench` on a GPU.

`python benchmarks/cuda_tables.py benchmarks/results/bk_h200.json`
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from hpfem.backends.options import source_in
from hpfem.benchmarks import read_results
from hpfem.benchmarks.cases import SOLID_FIRST
from hpfem.benchmarks.results import markdown_table
from hpfem.geometry import FactorSource

TITLES = {"bk1": "Mass (BK1)", "bk3": "Helmholtz (BK3)"}
# Sum factorisation over a block of threads is what is not named; with one element per thread it is "lane".
NAMES = {"sumfac-top": "", "sumfac": "lane"}
Record = Mapping[str, Any]
Cell = Callable[[list[Record]], str]


def largest(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Records at the largest size of some problems, fastest first."""
    found = [r for r in records if "fraction" in r and "n_modes" in r]
    found = [r for r in found if all(r[key] == value for key, value in wanted.items())]
    return sorted(found, key=lambda r: -r["dofs_per_second"])


def short_name(record: Record) -> str:
    """Strategy, or the first letter of the algorithm where there are two."""
    name = NAMES.get(record["strategy"], record["strategy"])
    return name or (record["algorithm"][0] if record["benchmark"] == "bk3" else "")


def rate(found: list[Record]) -> str:
    """Burst, sustained rate and fraction of the roofline of the fastest strategy and algorithm."""
    if not found:
        return ""
    best = found[0]
    sustained = f" ({best['sustained_dofs_per_second'] * 1e-9:.1f})" if best.get("sustained_dofs_per_second") else ""
    return f"{best['dofs_per_second'] * 1e-9:.1f}{sustained} {best['fraction']:.2f} {short_name(best)}".rstrip()


def gain(found: list[Record]) -> str:
    """How much faster the best collocated kernel is than the best other one, sum-factorised."""
    own = [r for r in found if r["strategy"] in ("sumfac", "sumfac-top")]
    rates = [
        max((r["dofs_per_second"] for r in own if r["algorithm"] == a), default=0.0)
        for a in ("collocated", "noncollocated")
    ]
    return f"{rates[0] / rates[1]:.2f}" if all(rates) else ""


def strategies(found: list[Record]) -> str:
    """Fastest rate of every strategy."""
    best: dict[str, float] = {}
    for record in found:
        best.setdefault(record["strategy"], record["dofs_per_second"])
    return ", ".join(f"{name} {value * 1e-9:.1f}" for name, value in best.items())


def table(records: list[Record], cell: Cell, **wanted: Any) -> str:
    """A row per order, a column per shape."""
    shapes = [shape for shape in SOLID_FIRST if any(r["shape"] == shape for r in records)]
    rows = [
        [str(order), *(cell(largest(records, shape=shape, order=order, **wanted)) for shape in shapes)]
        for order in sorted({r["order"] for r in records})
    ]
    return markdown_table(["P", *shapes], rows)


def source_of(record: Record) -> str:
    """Source of geometric factors: asked for, or the strategy's own by its options."""
    return str(record.get("source") or source_in(record.get("variant") or ""))


def by_source(records: list[Record], shape: str, geometry: str, benchmark: str, dtype: str) -> str:
    """A row per order, a column per source of factors, of the fastest strategy and algorithm."""
    own = [r for r in records if r["shape"] == shape]
    names = list(dict.fromkeys(map(source_of, own)))
    wanted = {"geometry": geometry, "benchmark": benchmark, "dtype": dtype}
    rows = []
    for order in sorted({r["order"] for r in own}):
        found = largest(own, order=order, **wanted)
        rows.append([str(order), *(rate([r for r in found if source_of(r) == name]) for name in names)])
    kept = [k for k in range(1, len(names) + 1) if any(row[k] for row in rows)]
    rows = [[row[0], *(row[k] for k in kept)] for row in rows if any(row[1:])]
    return markdown_table(["P", *(names[k - 1] for k in kept)], rows) if len(kept) > 1 else ""


def main(path: str) -> None:
    """Print the tables."""
    records = read_results(path)["results"]
    stored = [r for r in records if source_of(r) == FactorSource.STORED]
    for benchmark, title in TITLES.items():
        for geometry in ("deformed", "affine"):
            for dtype in ("float64", "float32"):
                print(f"\n{title}, {geometry} elements, stored factors, {dtype}\n")
                print(table(stored, rate, benchmark=benchmark, geometry=geometry, dtype=dtype))
    for geometry in ("deformed", "affine"):
        wanted = {"benchmark": "bk3", "geometry": geometry, "dtype": "float64"}
        print(f"\nCollocated against not, Helmholtz, {geometry}\n")
        print(table(stored, gain, **wanted))
        print(f"\nStrategies, Helmholtz, {geometry}\n")
        print(table([r for r in records if r.get("source") is None], strategies, **wanted))
    for benchmark, geometry, dtype in product(TITLES, ("multilinear", "deformed"), ("float64", "float32")):
        for shape in SOLID_FIRST:
            found = by_source(records, shape, geometry, benchmark, dtype)
            if found:
                print(f"\n{TITLES[benchmark]}, {geometry} {shape}, by source of factors, {dtype}\n\n{found}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="from `hpfem bench`")
    main(parser.parse_args().results)
