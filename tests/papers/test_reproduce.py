"""`hpfem reproduce` and `python benchmarks/papers`: quick runs, parts, pages, and what is refused in one line."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.papers import EXPERIMENTS, draw, merge, page, read_reproduction, reproduction_document
from benchmarks.papers.experiment import Device, Published, Statement
from benchmarks.papers.report import DEVICES, HEADINGS, SAID, compared, per_limit, ratios, row, seen
from hpfem.backends.base import BACKENDS
from hpfem.benchmarks.results import rounded
from hpfem.cli import main, reproduce
from tests.test_floors import ROOT

PAPERS = sorted({experiment.paper.lower() for experiment in EXPERIMENTS.values()})
NO_GPU = BACKENDS["cuda"].missing() is not None


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("paper", PAPERS)
def test_quick(paper, tmp_path, capsys):
    assert main(["reproduce", paper, "--quick", "--backend", "cpu", "-o", str(tmp_path)]) == 0
    made = read(tmp_path / "reproduce.json")
    assert made["complete"]
    own = [experiment for experiment in EXPERIMENTS.values() if experiment.paper.lower() == paper]
    text = (tmp_path / "REPRODUCTION.md").read_text(encoding="utf-8")
    for experiment in own:
        if any("cpu" in series.backends for series in experiment.series):
            rated = [r for r in made["results"] if r["experiment"] == experiment.name and "value" in r]
            assert rated, experiment.name
            assert all(r["error"] < 1e-12 for r in rated if not r["series"].startswith("roofline"))
            assert f"## {experiment.name}" in text
            assert (tmp_path / f"{experiment.name}_cpu.png").exists()
    for record in made["results"]:
        if record["experiment"] == "cao-nekbone":
            assert record["share"] > 0 and record["iterations"] > 10 and record["residual"] < 1e-8
            assert "The product takes " in text and "a solve takes" in text
        nodal = paper in ("cao", "roget", "swirydowicz") and record["shape"] == "hex"
        assert "value" not in record or record["basis"] == ("lagrange" if nodal else "modified"), record
    written = [line for line in capsys.readouterr().out.splitlines() if line.startswith("written")]
    assert len(written) == len(set(written)) >= 3


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_without_a_gpu_rows_say_so(tmp_path):
    assert main(["reproduce", "xing", "eichstaedt", "--quick", "--backend", "cuda", "-o", str(tmp_path)]) == 0
    statuses = {record["status"] for record in read(tmp_path / "reproduce.json")["results"]}
    assert statuses == {"not possible: no GPU"}
    assert "| not possible: no GPU |" in (tmp_path / "REPRODUCTION.md").read_text(encoding="utf-8")


def test_without_a_checkout_one_line_says_so(capsys, monkeypatch):
    monkeypatch.setattr(reproduce, "CHECKOUT", ROOT / "absent")
    for package in ("benchmarks.papers.command", "benchmarks.papers", "benchmarks"):
        monkeypatch.setitem(sys.modules, package, None)  # import finds nothing
        assert main(["reproduce", "all", "--quick"]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert "are in the source checkout" in line and "python benchmarks/papers" in line


def test_what_an_experiment_fails_to_import_is_named(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="hpfem.absent")

    monkeypatch.setattr(reproduce, "import_module", absent)
    with pytest.raises(ModuleNotFoundError, match="No module"):
        main(["reproduce", "list"])


@pytest.mark.parametrize("command", [("benchmarks/papers",), ("-m", "hpfem", "reproduce")])
def test_from_a_checkout(command):
    listed = subprocess.run(
        [sys.executable, *command, "list", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert [entry["id"] for entry in json.loads(listed.stdout)] == list(EXPERIMENTS)


def test_list(capsys):
    assert main(["reproduce", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(EXPERIMENTS)
    assert all(e.title in line and e.figures in line for e, line in zip(EXPERIMENTS.values(), lines, strict=True))
    assert main(["reproduce", "list", "--json"]) == 0
    assert [entry["id"] for entry in json.loads(capsys.readouterr().out)] == list(EXPERIMENTS)


def test_a_run_goes_on(tmp_path, capsys):
    command = ["reproduce", "eichstaedt", "--quick", "--backend", "cpu", "-o", str(tmp_path)]
    assert main([*command, "--budget", "0.000001"]) == 0
    assert "1 of 1 cases are left" in capsys.readouterr().out
    assert main(command) == 0
    first = read(tmp_path / "reproduce.json")
    assert main([*command, "--resume", str(tmp_path / "reproduce.json")]) == 0
    assert read(tmp_path / "reproduce.json")["results"] == first["results"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "unknown experiment 'nothing'"),
        ([], "give an experiment, a paper, or all"),
        (["all", "--backend", "numpy"], "unknown backend 'numpy'; valid: cuda, cpu"),
        (["all", "--budget", "x"], "--budget"),
        (["all", "--quick", "--page", "x.md"], "--page needs -o"),
        (["all", "--merge", "x.json"], "--merge measures nothing"),
        (["all", "--quick", "--resume", "absent.json"], "cannot read absent.json"),
        (["--merge", "absent.json"], "cannot read absent.json"),
    ],
)
def test_wrong_arguments(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["reproduce", *arguments])
    except SystemExit as left:
        code = left.code
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("folder", ["file", "/proc/hpfem"])
def test_a_folder_that_cannot_be_written(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert main(["reproduce", "all", "--quick", "-o", str(tmp_path / folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


RECORD = {
    **{"experiment": "xing-mass", "series": "mass", "backend": "cuda", "case": "bk1 hex P=3 deformed"},
    **{"status": "equivalent: x", "value": 40.0, "unit": "GDoF/s", "seconds": 1e-3, "n_dofs": 100, "order": 3},
    **{"n_cells": 10, "dofs_per_second": 1e5, "shape": "hex", "geometry": "deformed", "strategy": "sumfac-top"},
    **{"algorithm": "collocated", "error": 1e-15, "fraction": 0.5, "bound": "bandwidth", "run": 0},
}
RUN = {"machine": {"cpu": "x"}, "rooflines": {"cuda": {"bandwidth": 4e12, "flops": 3e13}}}


def document(*records, quick=False):
    return reproduction_document([RUN], records, quick, True)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "{}",
        '{"format": "hpfem-bench", "version": 1, "results": []}',
        json.dumps({**document(RECORD), "version": 9}),
        json.dumps({**document(RECORD), "runs": [1]}),
        json.dumps({**document(RECORD), "results": 3}),
        json.dumps({**document(RECORD), "results": [3]}),
        *(
            json.dumps(document({**RECORD, **wrong}))
            for wrong in ({"value": -1}, {"run": 7}, {"case": 3}, {"order": "x"})
        ),
    ],
)
def test_damaged_files(content, tmp_path, capsys):
    file = tmp_path / "damaged.json"
    file.write_text(content, encoding="utf-8")
    assert main(["reproduce", "all", "--quick", "--resume", str(file)]) == 2
    error = capsys.readouterr().err
    assert "damaged.json" in error
    assert error.count("\n") == 1


def test_quick_results_do_not_mix(tmp_path, capsys):
    for name, quick in (("a.json", True), ("b.json", False)):
        (tmp_path / name).write_text(json.dumps(document(RECORD, quick=quick)), encoding="utf-8")
    assert main(["reproduce", "--merge", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 2
    assert main(["reproduce", "all", "--resume", str(tmp_path / "a.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_merge_takes_measurements_before_refusals():
    refused = {name: RECORD[name] for name in ("experiment", "series", "backend", "case", "run")}
    refused["status"] = "not possible: no GPU"
    later, other = {**RECORD, "value": 50.0}, {**refused, "case": "another"}
    for parts in ([document(RECORD), document(refused, other)], [document(refused, other), document(RECORD)]):
        made = merge(parts)
        assert {r["case"]: r.get("value") for r in made["results"]} == {RECORD["case"]: 40.0, "another": None}
        assert all(0 <= r["run"] < len(made["runs"]) for r in made["results"])
    assert [r["value"] for r in merge([document(RECORD), document(later)])["results"]] == [50.0]


def test_results_of_bench_are_taken_over():
    made = read_reproduction(ROOT / "benchmarks" / "results" / "bk_h200.json")
    peak = max(r["value"] for r in made["results"] if r["experiment"] == "xing-mass" and r["shape"] == "hex")
    assert peak > 35
    assert {r["experiment"] for r in made["results"]} == {"xing-mass", "xing-helmholtz", "eichstaedt-quads"}
    for record in made["results"][:200]:
        assert record["value"] > 0
    assert not any({"recomputed", "scaled"} & set((r.get("variant") or "").split()) for r in made["results"])
    lanes = {"experiment": "xing-helmholtz", "shape": "tet", "geometry": "deformed", "order": 1, "strategy": "sumfac"}
    (lane,) = (r for r in made["results"] if all(r[key] == value for key, value in lanes.items()))
    assert lane["source"] == "stored"  # the strategy's own are recomputed


def test_a_row():
    result = document(RECORD)
    experiment = EXPERIMENTS["xing-mass"]
    cells = row(experiment, experiment.published[0], result)
    assert cells[0] == "hex, SumFacTOP, peak"
    assert cells[4] == "1.14"
    assert cells[6] == "1e-15"
    theirs = Published("x", 20.0, "GDoF/s", "Table 1", Device("d", bandwidth=1e12), "cuda", {})
    assert per_limit(theirs, result["results"][0], result) == (pytest.approx(0.5), "per bandwidth")
    assert "**slower** per bandwidth, 0.50 of our roofline, bound by bandwidth" in row(experiment, theirs, result)[-1]


def test_verdicts_on_a_statement():
    says = Statement("x", "Table 1", "cuda", {"strategy": "a"}, {"strategy": "b"}, 1.0, 2.0, by=("order",))
    records = [
        rounded({**RECORD, "strategy": s, "order": p, "value": v})
        for s, p, v in (("a", 1, 3.0), ("b", 1, 2.0), ("a", 2, 5.0), ("b", 2, 1.0), ("a", 3, 1.0))
    ]
    assert seen(says, records) == ("in 1 of 2", "P = 1 or 2: 1.5 5")
    assert seen(says, records[:2]) == ("yes", "P = 1: 1.5")
    assert seen(says, records[2:]) == ("no, more", "P = 2: 5")
    assert seen(says, []) == ("not measured", "")
    works = [{**record, "flops": 300.0 / record["order"]} for record in records]
    assert seen(replace(says, operations=True), works) == ("yes", "P = 1 or 2: 1 1")


def test_a_ratio_within_the_spread_of_its_timings_decides_nothing():
    says = Statement("x", "Table 1", "cuda", {"strategy": "a"}, {"strategy": "b"}, 1.0, by=("order",))
    noisy = {"best": 0.9e-3, "worst": 1.4e-3}
    a, b = ({**RECORD, "strategy": s, "value": v} for s, v in (("a", 1.2), ("b", 1.0)))
    far = [{**a, "order": 4, "value": 9.0}, {**b, "order": 4}]
    assert seen(says, [a, b])[0] == "yes"
    for pair in ([{**a, **noisy}, b], [a, {**b, "best": 0.7e-3}]):
        assert seen(says, pair)[0] == "no verdict: within the spread"
    assert seen(says, [{**a, **noisy, "repeats": 20}, b])[0] == "yes"  # the median of more is surer
    assert seen(says, [{**a, **noisy}, b, *far])[0] == "in 1 of 2, 1 within the spread"


def test_ratios_of_timings_in_turns_are_of_the_same_turns():
    """One twice as fast in each turn is that, whatever the load; other cases were in other turns."""
    says = Statement("x", "Table 1", "cuda", {"strategy": "a"}, {"strategy": "b"}, 1.5, by=("order",))
    load = [1e-3, 5e-3, 1.1e-3, 9e-3, 2e-3]
    a, b = ({**RECORD, "strategy": s, "value": v, "best": 1e-3, "worst": 9e-3} for s, v in (("a", 2.0), ("b", 1.0)))
    turns = {**a, "samples": load}, {**b, "samples": [2 * seconds for seconds in load]}
    assert seen(says, turns)[0] == "yes" and seen(says, [a, b])[0] == "no verdict: within the spread"
    assert seen(says, [turns[0], {**turns[1], "case": "another"}])[0] == "no verdict: within the spread"
    assert seen(replace(says, low=1.0, high=1.99), turns)[0] == "no verdict: within the spread"  # 2 % are no difference


def test_pictures_cut_nothing(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.append(figure) or path)
    shapes = ("hex", 1.0), ("tet", 9.0)
    records = [
        {**RECORD, "shape": shape, "value": value, "order": order} for shape, value in shapes for order in (1, 2)
    ]
    draw(document(*records), tmp_path)
    for axis in figures[0].axes:
        low, high = axis.get_ylim()
        assert low == 0 and high > 9


def test_pictures_show_the_papers_numbers(monkeypatch, tmp_path):
    """As lines across the panels that they are of, as marks on bars; the device is named."""
    figures = {}
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.update({path.stem: figure}) or path)
    solve = {"series": "Nekbone, Poisson", "equation": "Poisson", "d": 1, "order": 7, "strategy": "x"}
    solves = [{**RECORD, **solve, "experiment": "cao-nekbone", "geometry": kind} for kind in ("deformed", "affine")]
    orders = [{**RECORD, "order": order, "shape": shape} for order in (1, 2) for shape in ("hex", "tet")]
    draw(document(*solves, *orders), tmp_path)
    hexes, tets = figures["xing-mass_gpu"].axes
    assert [text.get_text() for text in hexes.get_legend().get_texts()] == [
        "hex, SumFacTOP, peak: 35",
        "hex, MFEM, peak: 25",
    ]
    assert {35.0, 25.0} <= {line.get_ydata()[0] for line in hexes.get_lines()} and tets.get_legend() is None
    assert any("the paper's numbers, NVIDIA GH200" in text.get_text() for text in figures["xing-mass_gpu"].texts)
    nekbone = figures["cao-nekbone_gpu"]
    marks = {(line.get_ydata()[0], line.get_xdata()[0]) for line in nekbone.axes[0].get_lines()}
    assert marks == {("deformed", 6.51), ("deformed", 5.42), ("affine", 8.47), ("affine", 7.24)}
    labels = [text.get_text() for text in nekbone.legends[0].get_texts()]
    assert labels == ["the paper, 2x NVIDIA A100", "the paper, 4x DCU K100"]


def test_limits_leave_a_panel_that_fits_its_data(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.append(figure) or path)
    limits = [{**RECORD, "series": "roofline", "strategy": "copying", "order": p, "value": 900.0} for p in (1, 2)]
    draw(document(*({**RECORD, "order": p} for p in (1, 2)), *limits), tmp_path)
    assert figures[0].axes[0].get_ylim()[1] < 60


def test_over_size_there_are_lines_only(monkeypatch, tmp_path):
    figures = {}
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.update({path.name: figure}) or path)
    case = {**RECORD, "geometry": "deformed", "algorithm": "collocated"}
    at_sizes = [{**case, "case": "a", "order": 7, "n_dofs": 10**n} for n in range(4, 8)]
    draw(document(*at_sizes, {**case, "case": "b", "order": 8}), tmp_path)
    (axis,) = next(own for name, own in figures.items() if name.endswith("_by_size.png")).axes
    lines = [line for line in axis.lines if line.get_label() not in ("hex, MFEM, peak: 25", "hex, SumFacTOP, peak: 35")]
    assert [len(line.get_xdata()) for line in lines] == [4]


def test_cases_of_one_order_have_bars(monkeypatch, tmp_path):
    figures = []
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.append(figure) or path)
    case = {**RECORD, "equation": "Poisson", "strategy": "plain"}
    limit = {**case, "series": "roofline of Poisson", "strategy": "copying", "value": 9.0}
    draw(document(case, limit, {**case, "equation": "Helmholtz", "value": 3.0}), tmp_path)
    [[first, second]] = [figure.axes for figure in figures]
    assert [axis.get_title() for axis in (first, second)] == ["Poisson", "Helmholtz"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["plain", "copying"]
    assert [bar.get_width() for bar in first.patches] == [case["value"], 9.0]
    assert [bar.get_facecolor()[:3] == (0, 0, 0) for bar in first.patches] == [False, True]
    assert [bar.get_width() for bar in second.patches] == [3.0] and first.get_xlim()[1] > 9


@pytest.mark.parametrize(
    ("other", "words"),
    [("warp", ["deformed, plain", "affine, warp", "affine, plain"]), ("plain", ["deformed", "affine"])],
)
def test_bars_name_what_does_not_follow(other, words, monkeypatch, tmp_path):
    """A strategy that each kind of elements has alone is not named beside it."""
    figures = []
    monkeypatch.setattr("hpfem.plots.style.save", lambda figure, path: figures.append(figure) or path)
    case = {**RECORD, "equation": "Poisson", "strategy": "plain", "geometry": "deformed"}
    records = [case, {**case, "geometry": "affine", "strategy": other}, {**case, "geometry": "affine"}]
    draw(document(*records), tmp_path)
    [axis] = figures[0].axes
    assert [label.get_text() for label in axis.get_yticklabels()] == words


def test_noisy_machines_are_told():
    slow = {**RUN, "rooflines": {"cuda": {"bandwidth": 2e12, "flops": 3e13}}}
    text = page({**document(RECORD), "runs": [RUN, slow]}, {})
    assert "2 runs: GPU 2000 – 4000 GB/s, 3e+04 GFLOP/s" in text
    assert "The bandwidth of the GPU (x) was 2e+03 to 4e+03 GB/s in these runs" in text
    assert "others used" not in page(document({**RECORD, "best": 1e-3, "worst": 1.1e-3}), {})
    assert "took 2.5 times as long" in page(document({**RECORD, "best": 1e-3, "worst": 2.5e-3}), {})


@pytest.fixture(scope="module")
def committed():
    """The committed results, as `hpfem reproduce --merge` of benchmarks/README.md puts them together."""
    folder = ROOT / "benchmarks" / "results"
    files = [folder / "bk_h200.json", *sorted(folder.glob("reproduce_*.json"))]
    return merge([read_reproduction(file) for file in files])


def test_the_page_is_of_the_committed_results(committed):
    result = committed
    text = (ROOT / "benchmarks" / "REPRODUCTION.md").read_text(encoding="utf-8")
    links = {name: re.findall(rf"\((results/reproduce/{name}_\w+\.png)\)", text) for name in EXPERIMENTS}
    assert all((ROOT / "benchmarks" / link).exists() for own in links.values() for link in own)
    assert page(result, links) == text


STATEMENTS = [(e, statement) for e in EXPERIMENTS.values() for statement in e.statements]


@pytest.mark.parametrize(("experiment", "statement"), STATEMENTS)
def test_a_ratio_is_of_results_of_one_kind(experiment, statement):
    """What one side of a ratio holds of a case, the other holds too; orders may be the best of each side."""
    free = {"strategy", "algorithm", "order", "series"}
    assert {*statement.above} ^ {*statement.below} <= {*statement.by} | free, statement
    [over, under] = compared(statement).split("; ")[0].split(" / ")
    assert over and under and over != under, statement
    for name, value in {**statement.above, **statement.below}.items():
        values = value if isinstance(value, tuple) else (value,)
        parts = {part for one in values for part in (str(one).split(", ") if name == "strategy" else (str(one),))}
        assert name == "order" or all(part in compared(statement) for part in parts), (statement, parts)
    if re.search(r"abstract \(A100|Table 6", statement.source):
        assert statement.over, "the paper divides by its original kernel"


# What a statement says -> what its ratio divides by.
BASELINES = {
    r"roofline|copying|streaming|bound by": r"roofline|copying|near memory",
    r"reference": r"^global scratch|^shared memory",
    r"thread an element wins|block an element wins above": r"^sumfac|^block|^thread",
    r"straight-sided|^regular|constant factors of affine": r"^deformed|^Poisson|^affine|size$",
    r"collocation gains": r"^noncollocated$",
    r"(better|superior|outperforms|excels|competitive).*StdMat|SumFac(TOP)? (is better|outperforms)": r"stdmat|^sumfac",
    r"faces are slower than hexes": r"^prism, pyramid or tet$",
    r"tets (are|take) .* hexes": r"^hex$|^tet$",
    r"over the peak": r"^the fastest size$",
    r"the best is": r"scratch|shared memory|copying",
    r"Nekbone gains|axhelm is": r"^deformed$",
    r"as the original: our plain": r"^stored, plain$",
}


@pytest.mark.parametrize("says", BASELINES)
def test_a_ratio_divides_by_what_the_statement_names(says):
    own = [statement for _, statement in STATEMENTS if re.search(says, statement.says)]
    found = [compared(statement).split("; ")[0].split(" / ")[1] for statement in own]
    assert found and all(re.search(BASELINES[says], one) for one in found), found


def test_rows_of_the_page_name_their_ratios():
    text = (ROOT / "benchmarks" / "REPRODUCTION.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if "|" in line[:1]]
    said = [cells for cells in rows if len(cells) == len(SAID) and cells[2] in DEVICES.values()]
    measured = {name for name in EXPERIMENTS if f"## {name}:" in text}
    assert [cells[-1] for cells in said] == [compared(s) for e, s in STATEMENTS if e.name in measured] and len(
        said
    ) > 90
    assert all(" / " in cells[-1] for cells in said)
    heads = {cell for cells in rows for cell in cells if "ratio" in cell.split()}
    assert not heads and "ours / paper's" in HEADINGS and list(HEADINGS) in rows


def test_gains_of_nekbone_divide_by_as_many_components(committed):
    """1.29 and 1.28 on parallelepipeds, 1.14 on trilinear elements, d = 1."""
    own = [r for r in committed["results"] if r["experiment"] == "cao-nekbone"]
    gains = [ratios(statement, own) for statement in EXPERIMENTS["cao-nekbone"].statements]
    found = {key: [round(of[key].value, 2) for of in gains if key in of] for of in gains for key in of}
    assert found["Poisson", 1] == [1.29, 1.14] and found["Helmholtz", 1] == [1.28, 1.14]


def test_what_is_not_measured_is_on_the_page(committed):
    others = [record for record in committed["results"] if record["experiment"] != "cao-nekbone"]
    text = page({**committed, "results": others}, {})
    assert "- cao-nekbone: " in text[text.index("## Not measured") :]
