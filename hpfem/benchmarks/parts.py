"""Result files of the whole benchmark: made from its parts, read again, merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import ArgumentError
from .cases import Case, SuiteSettings
from .results import BENCH, Measurement, document

# Lists of a result file whose entries belong to problems.
_ENTRIES = ("results", "skipped", "wrong")


# Entries that a record of a smaller size does not repeat.
_ONCE = {
    *("operator", "basis", "n_modes", "n_points", "repeats", "flops", "nbytes"),
    *("error", "chosen", "factors", "variant"),
}


def suite_records(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Make records of a run for a result file."""
    largest: dict[Case, int] = {}
    for measured in measurements:
        case = Case.of(vars(measured))
        largest[case] = max(largest.get(case, 0), measured.n_dofs)
    records = []
    for measured in measurements:
        whole = measured.n_dofs == largest[Case.of(vars(measured))]
        record = {**measured.as_dict(), "run": 0}
        records.append({name: value for name, value in record.items() if whole or name not in _ONCE})
    return records


def suite_document(
    settings: SuiteSettings,
    runs: Sequence[Mapping[str, Any]],
    results: Sequence[Mapping[str, Any]],
    skipped: Sequence[Mapping[str, Any]],
    wrong: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Make the result file of runs, whose number each result has as "run"; complete if no problem is left."""
    done = {Case.of(entry) for entry in (*results, *skipped, *wrong)}
    left = sum(case not in done for case in settings.cases())
    about = "kernels alone, on copies of a few curved or sheared elements, each with factors of its own in memory"
    of = {"left": left, "about": about, "settings": asdict(settings), "machine": dict(runs[0]["machine"])}
    listed = {"runs": [dict(run) for run in runs], "skipped": list(skipped), "wrong": list(wrong)}
    return document(BENCH, results, left == 0, **of, **listed)


def settings_of(document: Mapping[str, Any]) -> SuiteSettings:
    """Read the settings of a result file that `suite_document` made."""
    try:
        return SuiteSettings(**document["settings"])
    except (TypeError, KeyError) as error:
        raise ArgumentError(f"the settings of a result file are not what hpfem writes: {error}") from None


def cases_of(part: Mapping[str, Any]) -> set[Case]:
    """Find the cases that a document has entries of; checks the entries and the runs on the way."""
    what = "runs"
    try:
        for run in part["runs"]:
            _identity(run, "cuda")
            for limits in run.get("rooflines", {}).values():
                _ = [float(limits[name]) for name in ("bandwidth", "flops")]
        cases = set()
        for what in _ENTRIES:
            for entry in part.get(what, ()):
                cases.add(Case.of(entry))
                int(entry.get("run", 0))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"the {what} of a result file are not what hpfem writes: {error!r}") from None
    return cases


def _identity(run: Mapping[str, Any], backend: str) -> tuple[Any, ...]:
    """Properties in which runs must agree to be merged: device, code, and software."""
    machine = run["machine"]
    device = (machine.get("gpu") or [None])[0] if backend == "cuda" else machine.get("cpu")
    return device, machine.get("commit"), machine.get("numpy")


def merge_results(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge result files of one benchmark: equal settings, devices and commits, and no problem twice."""
    if not all(isinstance(part.get("runs"), list) and part["runs"] for part in documents):
        raise ArgumentError("only results of hpfem bench --tiled (or --backend cuda) have parts that can be merged")
    settings = settings_of(documents[0])
    runs: list[Mapping[str, Any]] = []
    entries: dict[str, list[Mapping[str, Any]]] = {name: [] for name in _ENTRIES}
    done: set[Case] = set()
    for part in documents:
        ours, theirs = asdict(settings), asdict(settings_of(part))
        values = [f"{name} {value} and {theirs[name]}" for name, value in ours.items() if value != theirs[name]]
        if values:
            raise ArgumentError(f"these results do not belong together: their settings differ ({', '.join(values)})")
        cases = cases_of(part)
        for run in part["runs"]:
            known, other = (_identity(r, settings.backend) for r in ([*runs, run][0], run))
            if known != other:
                differ = f"device, commit and NumPy are {known} and {other}"
                raise ArgumentError(f"these results do not belong together: {differ}")
        twice = cases & done
        if twice:
            raise ArgumentError(f"{min(map(str, twice))} and {len(twice) - 1} more are in two of these results")
        done |= cases
        for name, listed in entries.items():
            listed += [{**e, "run": e["run"] + len(runs)} if "run" in e else e for e in part.get(name, ())]
        runs += part["runs"]
    return suite_document(settings, runs, **entries)
