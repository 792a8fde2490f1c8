"""`hpfem scale`: what it measures on one and two processes is in one table and one figure."""

import json

import pytest

import hpfem as hp
from benchmarks import several
from hpfem.assembly import GlobalOperator
from hpfem.benchmarks import read_results
from hpfem.benchmarks.scaling import (
    ScalingRun,
    box_counts,
    efficiencies,
    expected_seconds,
    factors,
    merged,
    needed_bytes,
    unknowns_per_box,
)
from hpfem.cli import main
from tests.backends.cuda.host_vectors import index_tables, tables
from tests.distributed.launch import commands, needs_mpi
from tests.fake_cupy import fake_cuda


def test_boxes():
    assert [factors(n) for n in (1, 2, 8, 12)] == [(1, 1, 1), (2, 1, 1), (2, 2, 2), (3, 2, 2)]
    assert [unknowns_per_box(shape, 3) for shape in ("hex", "prism", "tet")] == [27, 27, 27]
    assert box_counts("hex", 3, 27e3, 2) == (20, 10, 10)
    assert box_counts("mixed", 2, 10) == (4, 1, 1)


def test_model():
    assert expected_seconds(1.0, 1e6, 1) == 1.0
    # Two boxes have one face between them, 26 neighbours of one in the middle six.
    assert expected_seconds(1.0, 1e6, 2, link=1e9) == pytest.approx(1 + 8e4 / 1e9 + 2 * 12e-6)
    assert expected_seconds(1.0, 1e6, 1024, link=1e9) == pytest.approx(1 + 6 * 8e4 / 1e9 + 36 * 12e-6)


def row(scaling, ranks, rate, wanted=100.0):
    """A record."""
    about = {"shape": "hex", "order": 3, "geometry": "affine", "backend": "cpu"}
    return {**about, "scaling": scaling, "ranks": ranks, "dofs_per_second": rate, "wanted": wanted}


def test_efficiencies():
    rows = merged([row("weak", 1, 9.0), row("weak", 2, 1.0)], [row("weak", 2, 15.0), row("alone", 2, 16.0)])
    assert [(r["scaling"], r["ranks"]) for r in rows] == [("alone", 2), ("weak", 1), ("weak", 2)]
    assert efficiencies(rows) == [1.0, 1.0, 15 / 16]


def test_the_figure_tells_sizes_apart(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    from hpfem.plots import style
    from hpfem.plots.scaling import plot_scaling

    figures = []
    monkeypatch.setattr(style, "save", lambda figure, path: figures.append(figure))
    rows = [row("strong", n, n * rate, wanted) for n in (1, 2) for rate, wanted in ((9.0, 4e7), (8.0, 1e8))]
    straight = [{**own, "geometry": "multilinear"} for own in rows if own["wanted"] == 4e7]
    # What one number of processes has solved alone is compared with nothing, and not drawn.
    for more, words in (([], ""), (straight[:1], ""), (straight, ", affine")):
        plot_scaling({"results": rows + more}, tmp_path)
        (axis,), (legend,) = figures[-1].axes, figures[-1].legends
        labels = {text.get_text(): entry.get_marker() for text, entry in zip(legend.texts, legend.get_lines())}
        found = {line.get_marker(): len(line.get_xdata()) for line in axis.get_lines()}
        assert found[labels[f"40 M unknowns{words}"]] == found[labels[f"100 M unknowns{words}"]] == 2
        assert len(found) == 2 + len(more) // 2


def test_wrong_scalings_and_too_many_iterations_are_refused():
    with pytest.raises(hp.ArgumentError, match="weak, strong"):
        ScalingRun("hex", 3, "sideways", 100, hp.ALONE)
    assert main(["scale", "--shapes", "cube"]) == 2


def test_what_does_not_fit_is_told_with_its_parts(monkeypatch, capsys):
    def full(*_):
        raise MemoryError("no room for 3 GB")

    monkeypatch.setattr(GlobalOperator, "__init__", full)
    given = ["--orders", "3", "--dofs", "3000", "--backend", "numpy", "--geometry", "deformed"]
    assert main(["scale", *given]) == 2
    found = capsys.readouterr().err
    assert "hex P=3: 4096 unknowns take about" in found and "no room for 3 GB" in found and "--dofs" in found
    assert "geometry factors 0.000875 GB" in found  # 125 elements, 5^3 points, 7 numbers


def test_what_a_gpu_needs():
    """By the arrays: tables, and factors of each kind of cells."""
    with fake_cuda():
        for shape, order in (("hex", 3), ("tet", 3), ("prism", 2)):
            run = ScalingRun(shape, order, "weak", 3000, hp.ALONE, geometry="deformed", backend="cuda")
            space = hp.Space(run.mesh(), order, backend="cuda")
            c0 = hp.C0Space(space)
            parts = needed_bytes(space, c0.size)
            (block,) = space.blocks
            assert parts["geometry factors"] == 7 * 8 * block.n_elements * block.n_points
            found = tables(index_tables(c0.block_matrix, hp.BoundaryConditions(c0, dirichlet=0.0).free))
            assert 0.25 < sum(own.nbytes for own in found.values()) / parts["index tables"] < 0.45


def test_what_was_measured_before_an_error_is_kept(monkeypatch, tmp_path):
    measure = ScalingRun.measure

    def once(run):
        if run.shape == "tet":
            raise hp.OutOfMemory("too large")
        return measure(run)

    monkeypatch.setattr(ScalingRun, "measure", once)
    file = tmp_path / "scaling.json"
    given = ["--orders", "2", "--dofs", "3000", "--iterations", "5", "--backend", "numpy", "-o", str(file)]
    assert main(["scale", "--shapes", "hex,tet", *given]) == 2
    found = read_results(file)
    assert not found["complete"] and [row["shape"] for row in found["results"]] == ["hex"]


@needs_mpi
def test_runs_are_put_together(tmp_path, capsys):
    kinds = ("--weak", "--strong", "--alone")
    given = ["scale", "--shapes", "hex,mixed", "--orders", "2", "--dofs", "3000", "--iterations", "5"]
    given += ["--backend", "numpy", "-o"]
    runs = [[*given, str(tmp_path / kind / "scaling.json"), kind] for kind in kinds]
    for kind, run in zip(kinds, runs):
        (tmp_path / kind).mkdir()
        assert main(run) == 0
    for kind, said in zip(kinds, commands(2, *runs)[0]):
        assert said.count("iterations") == 2  # said once
        table, file = said[said.index("conjugate gradients") :], tmp_path / kind / "scaling.json"
        assert "…" not in table and "\x1b" not in table and max(map(len, table.splitlines())) <= 80
        assert all(head in " ".join(table.split()) for head in ("unknowns / N", "rate / N", "iteration, solution"))
        rows = read_results(file)["results"]
        assert [(r["shape"], r["ranks"]) for r in rows] == [("hex", 1), ("hex", 2), ("mixed", 1), ("mixed", 2)]
        for one, two in ((rows[0], rows[1]), (rows[2], rows[3])):
            assert two["n_dofs"] == pytest.approx((1 if kind == "--strong" else 2) * one["n_dofs"], rel=0.1)
            assert (two["messages"] > 0) == (kind != "--alone")
        capsys.readouterr()
        assert main(["plot", str(file), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["pictures"] == [str(file.with_suffix(".png"))]


def test_rows_of_several_gpus(tmp_path):
    given = ["--backend", "cpu", "--small", "-o", str(tmp_path)]
    assert several.main(["strong", "file", *given]) == 0
    rows = read_results(tmp_path / "scaling.json")["results"]
    assert [(row["shape"], row["scaling"], row["preconditioner"]) for row in rows] == [("hex", "strong", "none")]
    found = json.loads((tmp_path / "file.json").read_text())["1"]
    assert {"read", "METIS and parts", "first solution"} <= set(found["seconds"])
    assert found["unknowns"] > 2000 and found["iterations"] < 20 and found["most over the mean"]["cells"] == 1


@pytest.mark.parametrize("preconditioner", ["jacobi", "multigrid"])
def test_whole_solutions_stand_beside_iterations(preconditioner, tmp_path, capsys):
    file = tmp_path / "scaling.json"
    given = ["scale", "--shapes", "tet", "--orders", "2", "--dofs", "3000", "--backend", "cpu", "-o", str(file)]
    assert main([*given, "--iterations", "5"]) == main([*given, "--preconditioner", preconditioner]) == 0
    rows = {row["preconditioner"]: row for row in read_results(file)["results"]}
    assert set(rows) == {"none", preconditioner}
    solved = rows[preconditioner]
    assert 5 < solved["iterations"] < 100 and {"preconditioner", "solution"} <= set(solved["phases"])
    assert solved["seconds"] == solved["phases"]["solution"]
    assert solved["dofs_per_second"] == pytest.approx(solved["n_dofs"] / solved["seconds"], rel=1e-3)
    assert preconditioner in capsys.readouterr().out
    assert main(["plot", str(file)]) == 0
