"""Tables of `hpfem bench`: one line per problem, one column per order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any

from ..benchmarks.turns import Gain
from . import output

Record = Mapping[str, Any]


def print_bench(result: Record) -> None:
    """Print the best throughput over the sizes: a line per shape, geometry, phase, strategy and algorithm."""
    settings, roofline = result["settings"], result["roofline"]
    phases = ("phase",) if any("phase" in record for record in result["results"]) else ()
    # "auto" may take different algorithms at different orders; where phases are compared, also different strategies.
    asked = {"algorithm": settings["algorithms"], **({"strategy": settings["strategies"]} if phases else {})}
    free = {name: "auto" for name, names in asked.items() if tuple(names) == ("auto",)}
    records: list[Record] = [{**record, **free} for record in result["results"]]
    types = settings["dtype"] + (", mixed precision" if settings.get("precision") == "mixed" else "")
    what = f"{settings['benchmark']}, {roofline['backend']}, {types}"
    solves = any("iterations" in record for record in records)
    beside = "iterations" if solves else "of main memory's limit; above 100%: in cache"
    title, names = f"{what}: best throughput in MDoF/s ({beside})", ("shape", "geometry", *phases, "strategy")
    _print_by_order(title, (*names, "algorithm"), records, ("dofs_per_second",), _bench_cell)
    names = ("shape", "geometry", "strategy")
    if gains := list(_gains(records)):
        title = f"{what}: application over SciPy's CSR product"
        _print_by_order(title, (*names, "algorithm"), gains, ("n_dofs",), lambda record: f"{record['gain']:.2f}")
    if paired := [record for record in records if record.get("collocation")]:
        title = f"{what}: times as fast collocated, at the largest size (quartiles)"
        _print_by_order(title, names, paired, ("order",), lambda record: str(Gain(*record["collocation"])))
    output.say(f"limits measured: {_limits(roofline)}")
    reasons: dict[str, dict[str, None]] = {}
    for entry in result["skipped"]:
        strategy = entry.get("strategy", "")
        reason = entry["reason"].rpartition(f"{strategy}: ")[2] if strategy else entry["reason"]
        reasons.setdefault(reason, {})[strategy] = None
    if reasons:
        words = "; ".join(reason + f" ({', '.join(names)})" * any(names) for reason, names in reasons.items())
        output.say_wrapped(f"{len(result['skipped'])} skipped: {words}")


def _bench_cell(record: Record) -> str:
    """MDoF/s and share of the roofline; for a whole solve, the iterations instead of the share."""
    rate = record["dofs_per_second"] / 1e6
    return (
        f"{rate:.3g} ({record['iterations']})" if "iterations" in record else f"{rate:.1f} ({record['fraction']:.0%})"
    )


def _gains(records: list[Record]) -> Iterator[Record]:
    """Products with a matrix, and the speed-up of the application over them on the same unknowns."""
    names = ("shape", "geometry", "strategy", "algorithm", "order", "n_dofs")
    phases = {(record.get("phase"), *(record[name] for name in names)): record for record in records}
    for (phase, *problem), record in phases.items():
        application = phases.get(("application", *problem))
        if phase == "csr" and application is not None:
            yield {**record, "gain": application["dofs_per_second"] / record["dofs_per_second"]}


def print_suite(result: Record) -> None:
    """Print the fastest at the largest size: a line per benchmark, dtype, geometry and shape."""
    title = "fastest at the largest size: GDoF/s, share of the roofline, strategy"
    names = ("benchmark", "dtype", "geometry", "shape")
    usual = [record for record in result["results"] if record.get("source") is None]
    _print_by_order(title, names, usual, ("n_dofs", "dofs_per_second"), _suite_cell)
    for run in result["runs"]:
        limits = [f"{dtype} {_limits(roofline)}" for dtype, roofline in run.get("rooflines", {}).items()]
        output.say(f"limits measured: {'; '.join(limits)}")


def _suite_cell(record: Record) -> str:
    """GDoF/s, share of the roofline, strategy in short."""
    algorithm = record["algorithm"][0] if record["benchmark"] == "bk3" else ""
    short = "".join(word[0] for word in record["strategy"].split("-"))
    return f"{record['dofs_per_second'] / 1e9:.1f} {record['fraction']:.2f} {short}{algorithm}"


def _limits(roofline: Record) -> str:
    return f"{output.engineering(roofline['bandwidth'], 'B/s')}, {output.engineering(roofline['flops'], 'Flop/s')}"


def _print_by_order(
    title: str, names: tuple[str, ...], records: list[Record], most: tuple[str, ...], cell: Callable[[Record], str]
) -> None:
    """Print the record with the most of something for each order and each combination of the values of `names`."""
    best: dict[tuple[str, ...], dict[int, Record]] = {}
    for record in records:
        line = best.setdefault(tuple(record[name] for name in names), {})
        line[record["order"]] = max(line.get(record["order"], record), record, key=itemgetter(*most))
    orders = sorted({record["order"] for record in records})
    rows = [(*key, *(cell(line[p]) if p in line else "" for p in orders)) for key, line in best.items()]
    output.print_table(title, (*names, *(f">P={p}" for p in orders)), rows, len(names))
