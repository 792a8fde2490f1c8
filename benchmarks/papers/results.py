"""Result files of `hpfem reproduce`: made, checked when read again, put together."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hpfem.backends.options import source_in
from hpfem.benchmarks.results import BENCH, document, rounded
from hpfem.errors import ArgumentError
from hpfem.geometry import FactorSource
from hpfem.shapes.arguments import shown
from hpfem.support.files import file_path, path_text, read_file

from .experiment import EXPERIMENTS, Experiment, Series
from .run import Key, text_of

REPRODUCE = "hpfem-reproduce"
VERSION = 1

_NUMBER = (int, float)
_NAMES = ("experiment", "series", "backend", "case", "status")
_NUMBERS = ("value", "seconds", "n_dofs", "order", "n_cells", "dofs_per_second")


def reproduction_document(
    runs: Sequence[Mapping[str, Any]], records: Sequence[Mapping[str, Any]], quick: bool, complete: bool
) -> dict[str, Any]:
    """Put records, with the number of their run under "run", and what is known of their runs together."""
    made = document(REPRODUCE, [rounded(record) for record in records], complete, quick=quick, runs=list(runs))
    return {**made, "version": VERSION}


def key_of(record: Mapping[str, Any]) -> Key:
    """Find what tells a record's case apart."""
    return record["experiment"], record["series"], record["backend"], record["case"]


def done_of(content: Mapping[str, Any]) -> set[Key]:
    """Find the cases of which a document has a measurement; what was not possible is tried again."""
    return {key_of(record) for record in content["results"] if "value" in record}


def _read(path: str | os.PathLike[str]) -> Any:
    try:
        return json.loads(read_file(file_path(path)).decode("utf-8"))
    except OSError as error:
        raise ArgumentError(f"cannot read {path_text(path)}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path_text(path)} is not JSON ({error}); give a file of hpfem reproduce") from None


def read_reproduction(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read results of `hpfem reproduce`, or take over those of `hpfem bench --tiled` or `--backend cuda`."""
    content, name = _read(path), path_text(path)
    kind = content.get("format") if isinstance(content, dict) else None
    if kind == BENCH:
        return _from_bench(content, name)
    if kind != REPRODUCE or content.get("version") != VERSION:
        raise ArgumentError(f"{name} is not a result of this hpfem's reproduce: its 'format' is {shown(kind)}")
    runs, results = content.get("runs"), content.get("results")
    if not isinstance(runs, list) or not all(
        isinstance(run, dict) and isinstance(run.get("machine"), dict) for run in runs
    ):
        raise ArgumentError(f"{name}: its runs are not what hpfem writes")
    if not isinstance(results, list):
        raise ArgumentError(f"{name} holds no results")
    for number, record in enumerate(results):
        wrong = _wrong(record, len(runs))
        if wrong is not None:
            raise ArgumentError(f"{name}: results[{number}] has {wrong}, not what hpfem writes")
    return {**content, "quick": bool(content.get("quick"))}


def _wrong(record: Any, runs: int) -> str | None:
    """The fault of a record; None where there is none."""
    if not isinstance(record, dict):
        return shown(record)
    for name in _NAMES:
        if not isinstance(record.get(name), str):
            return f"{name} = {shown(record.get(name))}"
    for name in _NUMBERS if "value" in record else ():
        value = record.get(name)
        if not isinstance(value, _NUMBER) or isinstance(value, bool) or not 0 < value < 1e300:
            return f"{name} = {shown(value)}"
    run = record.get("run")
    return None if isinstance(run, int) and 0 <= run < runs else f"run = {shown(run)}"


def _from_bench(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Records of series that `hpfem bench` measures too, of stored factors only: the papers' kernels read them."""
    runs = content.get("runs")
    if not isinstance(runs, list) or not runs:
        raise ArgumentError(f"{name}: only results of hpfem bench --tiled (or --backend cuda) belong to a paper")
    known: dict[tuple[str, str], list[tuple[Experiment, Series]]] = {}
    for experiment in EXPERIMENTS.values():
        for series in experiment.series:
            for backend in series.backends if series.bench else ():
                for case in series.cases(backend, False):
                    known.setdefault((backend, text_of(case)), []).append((experiment, series))
    once: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    records = []
    try:
        for entry in content["results"]:
            case = {part: entry[part] for part in ("benchmark", "shape", "order", "geometry")}
            if entry["dtype"] != "float64":
                continue
            which = (text_of(case), entry["strategy"], entry["algorithm"], entry.get("source"))
            largest = once.setdefault(which, entry)
            stored = (entry.get("source") or FactorSource.STORED) == FactorSource.STORED
            if not stored or source_in(largest.get("variant") or "").recomputes:
                continue
            record = {**largest, **entry}  # what smaller sizes need not repeat
            for work in ("flops", "nbytes"):
                record[work] = largest[work] * entry["n_cells"] / largest["n_cells"]
            for experiment, series in known.get((entry["backend"], text_of(case)), ()):
                about = {"experiment": experiment.name, "series": series.name, "case": text_of(case)}
                extra = {"unit": series.unit, "status": series.status, "value": series.value(record)}
                records.append({**record, **about, **extra, "run": entry.get("run", 0)})
    except (KeyError, TypeError) as error:
        raise ArgumentError(f"{name}: its results are not what hpfem bench writes: {error!r}") from None
    runs = [
        {
            "machine": run["machine"],
            "command": f"hpfem bench ({os.path.basename(name)})",
            "rooflines": {entry["backend"]: run["rooflines"]["float64"] for entry in content["results"][:1]},
            "threads": run.get("threads"),
            "seconds": run.get("seconds"),
        }
        for run in runs
    ]
    return reproduction_document(runs, records, False, True)


def merge(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Put results together; of a case the last one that was measured, whole ones or those of --quick."""
    if len({bool(part["quick"]) for part in documents}) > 1:
        raise ArgumentError("results of --quick and whole ones do not belong together")
    runs: list[Mapping[str, Any]] = []
    kept: dict[Key, list[dict[str, Any]]] = {}
    for part in documents:
        cases: dict[Key, list[dict[str, Any]]] = {}
        for record in part["results"]:
            cases.setdefault(key_of(record), []).append({**record, "run": record["run"] + len(runs)})
        for key, records in cases.items():
            measured = any("value" in record for record in records)
            if measured or not any("value" in record for record in kept.get(key, ())):
                kept[key] = records
        runs += part["runs"]
    used = sorted({record["run"] for records in kept.values() for record in records})
    place = {run: number for number, run in enumerate(used)}
    results = [{**record, "run": place[record["run"]]} for records in kept.values() for record in records]
    complete = all(part["complete"] for part in documents)
    return reproduction_document([runs[run] for run in used], results, bool(documents[0]["quick"]), complete)
