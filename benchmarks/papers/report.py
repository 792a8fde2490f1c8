"""Reports of runs: pages in Markdown, the same for every experiment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.script import markdown_table
from hpfem.backends.timer import Timing
from hpfem.benchmarks.turns import MARGIN, gain

from .experiment import EXPERIMENTS, Experiment, Published, Record, Statement, Where, matches

HEADINGS = (
    *("case", "paper", "device", "ours", "ours / paper's", "each per bandwidth or FP64 peak"),
    *("largest error / largest entry", "status"),
)
SAID = ("the paper says", "where", "ours on", "we see", "ratios", "numerator / denominator")
DEVICES = {"cuda": "GPU", "cpu": "CPU"}
# Their form in labels.
_WORDS = {"d": "d = {}", "elements": "{} elements"}
# Relative difference up to which we call two rates per bandwidth equally fast.
TIE = 0.05
# Slowest over fastest timing from which a case is called noisy.
NOISY = 1.3
# Entries, beside order and size, that label the rows of a table if they differ.
_PARTS = ("benchmark", "equation", "d", "elements", "shape", "geometry", "strategy", "algorithm")
INTRODUCTION = """\
Our kernels beside the published results of the papers. `hpfem reproduce` made this page from the runs that are listed
at the end. The papers show most results as figures. Published numbers here come from their texts, tables and formulas
only, each with its place; without such a number a field is empty.

- *ours / paper's* is our rate over the paper's. *each per bandwidth* (or *per FP64 peak*) divides each rate by the
  limit of its device first: the paper's limit as printed there, ours as measured in the run. *device* is the paper's.
- *largest error / largest entry*: the largest difference from NumPy's result over its largest entry; above 1e-12
  nothing is timed.
- *status* says whether the protocol is the paper's, and what binds if we are not faster per bandwidth: our rate over
  the rate that our roofline allows.
- What a paper says in words is judged by ratios of our own rates: *numerator / denominator* names both, and what they
  have in common; of several that fit the fastest counts, by shape and order or whatever it names. Where the paper's
  ratio is over something else, it says so. A ratio that two standard errors of its median timings (5/n of the range of
  n timings) move across a bound is *within the spread* and decides nothing; of kernels that are timed in turns, the
  quartiles of the ratio over the turns, and 2 % beside, count instead. Bounds in brackets ("we take") are ours."""


def measured(records: Iterable[Record], **where: Any) -> list[Record]:
    """Take the measurements among records."""
    return [record for record in records if "value" in record and matches(record, where)]


def number(value: float | None) -> str:
    """Write a number with three digits."""
    return "" if value is None else f"{value:.3g}"


def row(experiment: Experiment, published: Published, document: Mapping[str, Any]) -> list[str]:
    """Lay the best of our measurements beside a published number."""
    own = [r for r in document["results"] if r["experiment"] == experiment.name and r["backend"] == published.backend]
    rated = measured(own, unit=published.unit, **published.where)
    paper = [published.what, f"{published.value:g} {published.unit} ({published.source})", published.device.name]
    if not rated:
        refused = (r["status"] for r in own if "value" not in r and matches(r, published.where))
        anything = (r["status"] for r in own if "value" not in r and not measured(own))
        status = next(refused, None) or next(anything, "not measured")
        return [*paper, "", "", "", "", status if status.startswith("not") else f"not possible: {status}"]
    best = max(rated, key=lambda record: record["value"])
    ratio = best["value"] / published.value
    scaled, limit = per_limit(published, best, document)
    status = best["status"]
    if scaled is not None and scaled < 1 + TIE:
        word = "**slower**" if scaled < 1 - TIE else "**as fast**"
        binds = f", {best['fraction']:.2f} of our roofline, bound by {best['bound']}" if "bound" in best else ""
        status = f"{word} {limit}{binds}; {status}"
    where = " ".join(str(best[part]) for part in (*_PARTS[4:], "order") if part in best)
    ours = f"{number(best['value'])} ({where.replace('auto ', '')})"
    per = "" if scaled is None else f"{number(scaled)} {limit}"
    return [*paper, ours, number(ratio), per, number(best.get("error")), status]


def per_limit(published: Published, best: Record, document: Mapping[str, Any]) -> tuple[float | None, str]:
    """Ratio of rates over the limits of the devices."""
    limits = document["runs"][best["run"]].get("rooflines", {}).get(best["backend"], {})
    theirs, ours = published.device, best.get("processes", 1)  # each has a device
    for name, their, our in (
        ("per bandwidth", theirs.bandwidth, limits.get("bandwidth")),
        ("per FP64 peak", theirs.peak, limits.get("flops")),
    ):
        if their and our:
            return (best["value"] / (ours * our)) / (published.value / their), name
    return None, ""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two measurements, and its least and largest value within the spread of their timings."""

    value: float
    least: float
    most: float


def ratios(statement: Statement, records: Sequence[Record]) -> dict[tuple[Any, ...], Ratio]:
    """Ratios that a statement is about, by what both of their measurements agree in."""
    own = [r for r in measured(records, backend=statement.backend) if r["n_dofs"] >= statement.smallest]

    def best(where: Where, largest: bool = False) -> dict[tuple[Any, ...], Record]:
        found: dict[tuple[Any, ...], list[Record]] = {}
        for record in measured(own, **where):
            found.setdefault(tuple(record.get(name) for name in statement.by), []).append(record)
        return {group: max(some, key=lambda r: (largest * r["n_dofs"], r["value"])) for group, some in found.items()}

    above, below = best(statement.above, statement.largest_above), best(statement.below)
    return {group: _ratio(statement, record, below[group]) for group, record in above.items() if group in below}


def _ratio(statement: Statement, above: Record, below: Record) -> Ratio:
    if statement.operations:
        value = (above["flops"] / above["n_dofs"]) / (below["flops"] / below["n_dofs"])
        return Ratio(value, value, value)
    value = above["value"] / below["value"]
    if above is below:
        return Ratio(value, value, value)
    if "samples" in above and "samples" in below and above["case"] == below["case"]:
        found = gain(*(Timing.of(record["samples"], 1) for record in (above, below)))
        return Ratio(found.median, found.low / (1 + MARGIN), found.high * (1 + MARGIN))
    (least, most), (least_below, most_below) = _rates(above), _rates(below)
    return Ratio(value, least / most_below, most / least_below)


def _rates(record: Record) -> tuple[float, float]:
    """Rates at two standard errors of the median time, by the range of n timings: 1 of it for n = 5, 5/9 for n = 9."""
    seconds, reach = record["seconds"], min(1.0, 5 / (record.get("repeats") or 5))
    slow, fast = (seconds + reach * (record.get(name, seconds) - seconds) for name in ("worst", "best"))
    return record["value"] * seconds / slow, record["value"] * seconds / fast


def seen(statement: Statement, records: Sequence[Record]) -> tuple[str, str]:
    """Say what we see of what a paper says: the verdict, and the ratios."""
    found = ratios(statement, records)
    if not found:
        return "not measured", ""
    verdict = _verdict(statement, [*found.values()])
    if statement.by == ("order",):
        orders = _named({"order": tuple(order for (order,) in sorted(found))})
        return verdict, f"{orders}: {' '.join(number(found[group].value) for group in sorted(found))}"
    if len(statement.by) == 1:
        return verdict, ", ".join(f"{_named({statement.by[0]: g[0]})} {number(r.value)}" for g, r in found.items())
    parts: dict[Any, list[float]] = {}
    for group, ratio in found.items():
        parts.setdefault(group[0], []).append(ratio.value)
    ranges = {part: dict.fromkeys(map(number, (min(own), max(own)))) for part, own in parts.items()}
    return verdict, ", ".join(f"{part} {'–'.join(own)}" for part, own in ranges.items())


def _verdict(statement: Statement, found: Sequence[Ratio]) -> str:
    """Yes, no, or in how many; a ratio whose timings spread over a bound is open."""
    low, high = statement.low, statement.high
    inside = sum(low <= r.least and r.most <= high for r in found)
    less, more = sum(r.most < low for r in found), sum(r.least > high for r in found)
    still = len(found) - inside - less - more
    if still == len(found):
        return "no verdict: within the spread"
    side = {less: ", less", more: ", more"}.get(len(found), "")
    verdict = f"in {inside} of {len(found)}"
    if not still and inside in (0, len(found)):
        verdict = "yes" if inside else f"no{side}"
    return f"{verdict}, {still} within the spread" if still else verdict


def compared(statement: Statement) -> str:
    """Name numerator and denominator of a statement's ratios, what both agree in, and the paper's denominator."""
    above, below = statement.above, statement.below
    every = {**above, **below}
    alike = [
        n for n in every if above.get(n) == below.get(n) or (n in statement.by and not (n in above and n in below))
    ]
    sides = [_named({n: v for n, v in where.items() if n not in alike}) for where in (above, below)]
    over, under = sides[0] or "the fastest", sides[1] or "the fastest"
    if statement.largest_above:
        over, under = ", ".join(filter(None, [sides[0], "the largest size"])), f"{under}{' size' * (not sides[1])}"
    common = [_named({n: every[n] for n in alike}), f"by {', '.join(statement.by)}"]
    what = "operations a degree of freedom, " if statement.operations else ""
    theirs = f" (the paper's: over {statement.over})" if statement.over else ""
    return f"{what}{over} / {under}; {'; '.join(part for part in common if part)}{theirs}"


def _named(where: Where) -> str:
    """Name what results hold, as in "sumfac or stdmat, P = 1 to 3"."""
    words = {"order": "P = {}", "d": "d = {}", "elements": "{} elements"}
    return ", ".join(words.get(name, "{}").format(_any_of(value)) for name, value in where.items())


def _any_of(value: Any) -> str:
    if not isinstance(value, tuple) or len(value) == 1:
        return str(value[0] if isinstance(value, tuple) else value)
    whole = len(value) > 2 and all(isinstance(one, int) for one in value)
    if whole and value == tuple(range(value[0], value[-1] + 1)):
        return f"{value[0]} to {value[-1]}"
    if all(isinstance(one, str) and ", " in one for one in value):
        firsts, lasts = (tuple(dict.fromkeys(one.rsplit(", ", 1)[k] for one in value)) for k in (0, 1))
        if len(firsts) * len(lasts) == len(value):
            return f"{_any_of(firsts)} ({_any_of(lasts)})"
    return f"{', '.join(map(str, value[:-1]))} or {value[-1]}"


def tables(experiment: Experiment, records: Sequence[Record]) -> Iterator[str]:
    """Write all that was measured: the best of all sizes, by order."""
    for series in experiment.series:
        for backend in series.backends:
            own = [r for r in records if (r["series"], r["backend"]) == (series.name, backend)]
            rated = measured(own)
            if rated:
                errors = [record["error"] for record in rated if record.get("error") is not None]
                error = f"; largest error {number(max(errors))}" if errors else ""
                yield f"\n**{series.name}, {DEVICES[backend]}**, {series.unit}, the best of all sizes by order{error}."
                yield f"Status: {series.status}. Counts: {series.counts.source}.\n"
                yield _by_order(rated)
                yield from _about(rated)
            reasons: dict[str, int] = {}
            for record in own:
                if "value" not in record:
                    reasons[record["status"]] = reasons.get(record["status"], 0) + 1
            if reasons:
                yield f"\n{series.name}, {DEVICES[backend]}:\n"
                yield from (f"- {reason} ({count} ×)" for reason, count in reasons.items())


def parts_of(rated: Sequence[Record]) -> list[str]:
    """Find what tells the rows of a table apart beside order and size."""
    algorithms: dict[tuple[Any, ...], set[str]] = {}
    for record in rated:
        way = (record["series"], record["case"], record["strategy"])
        algorithms.setdefault(way, set()).add(record["algorithm"])
    compared = any(len(own) > 1 for own in algorithms.values())
    differ = [name for name in _PARTS if len({record.get(name) for record in rated}) > 1]
    return [name for name in differ if compared or name != "algorithm"]


def words_of(record: Record, names: Sequence[str]) -> Iterator[str]:
    """Name the parts of a case that are there."""
    for name in names:
        if record.get(name) is not None:
            yield _WORDS.get(name, "{}").format(record[name])


def _about(rated: Sequence[Record]) -> Iterator[str]:
    """What else is known of measurements: the product's share of iterations, solves, limits of rooflines."""
    told = []
    for name, text in (
        ("share", "the product takes {} of the time of an iteration"),
        ("iterations", "a solve takes {} iterations"),
        ("residual", "to a norm of the residual of {} of that of the right-hand side"),
    ):
        found = [record[name] for record in rated if record.get(name) is not None]
        if found:
            told.append(text.format("–".join(dict.fromkeys(number(own) for own in (min(found), max(found))))))
    if rated[0]["series"].startswith("roofline"):
        told += dict.fromkeys(record["variant"] for record in rated if record.get("variant"))
    if told:
        first, *rest = told
        yield f"\n{'; '.join([first[0].upper() + first[1:], *rest])}."


def _by_order(rated: Sequence[Record]) -> str:
    names = parts_of(rated)
    orders = sorted({record["order"] for record in rated})
    best: dict[tuple[Any, ...], dict[int, float]] = {}
    for record in rated:
        line = best.setdefault(tuple(words_of(record, names)), {})
        line[record["order"]] = max(line.get(record["order"], 0.0), record["value"])
    lines = [
        [", ".join(label) or "all", *(number(line.get(order)) for order in orders)] for label, line in best.items()
    ]
    return markdown_table(["case", *(f"P = {order}" for order in orders)], lines)


def page(document: Mapping[str, Any], pictures: Mapping[str, Sequence[str]]) -> str:
    """Write the Markdown page of a result file, with links to pictures by experiment."""
    lines = ["# The papers reproduced", "", INTRODUCTION]
    named = {record["experiment"] for record in document["results"]}
    for experiment in EXPERIMENTS.values():
        if experiment.name not in named:
            continue
        records = [record for record in document["results"] if record["experiment"] == experiment.name]
        lines += ["", f"## {experiment.name}: {experiment.title}", ""]
        lines += [f"[{experiment.paper}] {experiment.figures}. {experiment.protocol}"]
        if experiment.published:
            rows = [row(experiment, published, document) for published in experiment.published]
            lines += ["", markdown_table(HEADINGS, rows)]
        if experiment.statements:
            said = []
            for statement in experiment.statements:
                verdict, text = seen(statement, records)
                what = compared(statement)
                said.append([statement.says, statement.source, DEVICES[statement.backend], verdict, text, what])
            lines += ["", markdown_table(SAID, said)]
        lines += tables(experiment, records)
        lines += [f"\n![{experiment.title}]({link})" for link in pictures.get(experiment.name, ())]
        if experiment.not_possible:
            lines += ["", "Not here:", ""]
            lines += [f"- {what}: not possible: {why}." for what, why in experiment.not_possible.items()]
        if experiment.corrections:
            lines += ["", "What the paper prints otherwise:", ""]
            lines += [f"- {correction}" for correction in experiment.corrections]
    papers = {experiment.paper for experiment in EXPERIMENTS.values() if experiment.name in named}
    if absent := [e for e in EXPERIMENTS.values() if e.paper in papers and e.name not in named]:
        lines += ["", "## Not measured", ""]
        lines += [f"- {e.name}: {e.title} ([{e.paper}] {e.figures}). {e.protocol}" for e in absent]
    lines += ["", "## Runs", ""]
    lines += runs_of(document)
    return "\n".join(lines) + "\n"


def runs_of(document: Mapping[str, Any]) -> Iterator[str]:
    """Tell of the runs of a result file: what, where, and the limits that were measured."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    bandwidths: dict[str, list[float]] = {}
    for run in document["runs"]:
        machine, threads = run["machine"], (run.get("threads") or {}).get("limit", "?")
        device = ", ".join([*(machine.get("gpu") or []), str(machine.get("cpu"))])
        commit = str(machine.get("commit"))[:12]
        load = f", load {run['load']:g}" if "load" in run else ""
        what = f"- `{run.get('command', 'hpfem reproduce')}` on {device}, {threads} thread(s){load}, commit {commit}"
        alike.setdefault(what, []).append(run.get("rooflines", {}))
        for name, limit in run.get("rooflines", {}).items():
            bandwidths.setdefault(f"{DEVICES[name]} ({device})", []).append(limit["bandwidth"] / 1e9)
    for what, limits in alike.items():
        texts = []
        for name, device in DEVICES.items():
            own = [limit[name] for limit in limits if name in limit]
            if own:
                rates = (sorted(limit[part] / 1e9 for limit in own) for part in ("bandwidth", "flops"))
                read, compute = (" – ".join(dict.fromkeys(f"{r[k]:.4g}" for k in (0, -1))) for r in rates)
                texts.append(f": {device} {read} GB/s, {compute} GFLOP/s")
        yield f"{what}{f', {len(limits)} runs' if len(limits) > 1 else ''}{''.join(texts)}"
    for device, found in bandwidths.items():
        if max(found) > 1.3 * min(found):
            yield (
                f"\nThe bandwidth of the {device} was {min(found):.3g} to {max(found):.3g} GB/s in these runs: others"
                " used the machine. What exceeds its caches is a lower bound there; ratios of single cases are noisy."
            )
    for name, device in DEVICES.items():
        spreads = [r["worst"] / r["best"] for r in measured(document["results"], backend=name) if "worst" in r]
        if spreads and median(spreads) > NOISY:
            yield (
                f"\nOn the {device} the slowest of a case's timings took {median(spreads):.2g} times as long as the"
                " fastest, in the median of all cases: others used the machine; the median timing is given."
            )
