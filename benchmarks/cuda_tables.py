"""Tables of benchmarks/CUDA.md from a result file of `hpfem bench` on a GPU.

python -m benchmarks.cuda_tables benchmarks/results/bk_h200.json
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from benchmarks.script import pivot
from hpfem.backends.options import source_in
from hpfem.benchmarks import read_results
from hpfem.benchmarks.cases import SOLID_FIRST
from hpfem.geometry import FactorSource

TITLES = {"bk1": "Mass (BK1)", "bk3": "Helmholtz (BK3)"}
# Sum factorisation over a block of threads is what is not named; with one element per thread it is "lane".
NAMES = {"sumfac-top": "", "sumfac": "lane"}
ALGORITHMS = ("collocated", "noncollocated")
Record = Mapping[str, Any]
Cell = Callable[[Sequence[Record]], str]


def having(records: Sequence[Record], **values: Any) -> list[Record]:
    """Records with these values."""
    return [r for r in records if all(r[name] == value for name, value in values.items())]


def table(records: Sequence[Record], cell: Cell, column: Callable[[Record], str]) -> str:
    """A row per order, cells of records that agree in the column's value, the fastest first."""
    ordered = sorted(records, key=lambda r: (r["order"], SOLID_FIRST.index(r["shape"]), -r["dofs_per_second"]))
    cells: dict[tuple[str, ...], dict[str, list[Record]]] = {}
    for record in ordered:
        cells.setdefault((str(record["order"]),), {}).setdefault(column(record), []).append(record)
    return pivot(["P"], {order: {name: cell(r) for name, r in row.items()} for order, row in cells.items()})


def rate(records: Sequence[Record]) -> str:
    """Burst, sustained rate, fraction of the roofline, and strategy or the algorithm's first letter, of the fastest."""
    best = records[0]
    seconds = best.get("sustained_seconds")
    sustained = f" ({best['n_dofs'] / seconds * 1e-9:.1f})" if seconds else ""
    name = NAMES.get(best["strategy"], best["strategy"])
    name = name or (best["algorithm"][0] if best["benchmark"] == "bk3" else "")
    return f"{best['dofs_per_second'] * 1e-9:.1f}{sustained} {best['fraction']:.2f} {name}".rstrip()


def gain(records: Sequence[Record]) -> str:
    """Rate of the collocated algorithm over that of the other, both by the fastest strategy that has both."""
    rates = [
        [own[0]["dofs_per_second"] for own in (having(records, strategy=s, algorithm=a) for a in ALGORITHMS) if own]
        for s in NAMES
    ]
    pair = max((pair for pair in rates if len(pair) == len(ALGORITHMS)), key=max, default=None)
    return f"{pair[0] / pair[1]:.2f}" if pair else ""


def source_of(record: Record) -> str:
    """Source of geometric factors: asked for, or the strategy's own by its options."""
    return str(record.get("source") or source_in(record.get("variant") or ""))


def main(path: str) -> None:
    """Print the tables: of stored factors by shape, of algorithms, and by the source of factors."""
    every = [r for r in read_results(path)["results"] if "fraction" in r and "n_modes" in r]  # at the largest size
    stored = [r for r in every if source_of(r) == FactorSource.STORED]
    for benchmark, geometry, dtype in product(TITLES, ("deformed", "affine"), ("float64", "float32")):
        chosen = having(stored, benchmark=benchmark, geometry=geometry, dtype=dtype)
        print(f"\n{TITLES[benchmark]}, {geometry} elements, stored factors, {dtype}\n")
        print(table(chosen, rate, lambda r: str(r["shape"])))
    for geometry in ("deformed", "affine"):
        chosen = having(stored, benchmark="bk3", geometry=geometry, dtype="float64")
        print(f"\nCollocated against not, Helmholtz, {geometry}\n\n{table(chosen, gain, lambda r: str(r['shape']))}")
    for benchmark, geometry, dtype in product(TITLES, ("multilinear", "deformed"), ("float64", "float32")):
        for shape in SOLID_FIRST:
            chosen = having(every, benchmark=benchmark, geometry=geometry, dtype=dtype, shape=shape)
            if len(set(map(source_of, chosen))) > 1:
                print(f"\n{TITLES[benchmark]}, {geometry} {shape}, by source of factors, {dtype}\n")
                print(table(chosen, rate, source_of))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", help="from `hpfem bench`")
    main(parser.parse_args().results)
