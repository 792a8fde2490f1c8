"""Result files are checked when read, and their pictures show something, whole or not at all."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from hpfem.benchmarks import document, read_results
from hpfem.benchmarks.results import BENCH, COMPARE
from hpfem.errors import ArgumentError
from hpfem.plots import plot_results, throughput
from hpfem.plots.comparison import plot_gains
from hpfem.plots.style import broken, handle, in_order, strategy_colours
from hpfem.support.files import write_json

ROOT = Path(__file__).parents[2]


def bench(
    shapes=("tet", "hex"),
    orders=(1, 2, 3),
    strategies=("sumfac", "stdmat"),
    algorithms=("collocated",),
    geometries=("deformed", "affine"),
    **changes,
):
    """A made-up benchmark result."""
    results = []
    for shape in shapes:
        for order in orders:
            for size in (1e3, 1e4, 1e5):
                for geometry in geometries:
                    for s, strategy in enumerate(strategies):
                        for a, algorithm in enumerate(algorithms):
                            rate = 1e7 * (1 + order) / (1 + s + 0.3 * a) * (1.2 if geometry == "affine" else 1)
                            results.append(
                                {
                                    "benchmark": "bk3",
                                    "backend": "numpy",
                                    "dtype": "float64",
                                    "shape": shape,
                                    "geometry": geometry,
                                    "strategy": strategy,
                                    "algorithm": algorithm,
                                    "order": order,
                                    "n_dofs": int(size),
                                    "dofs_per_second": rate,
                                    "fraction": min(rate / 5e7, 1.1),
                                    "bound": "flops" if order > 2 else "bandwidth",
                                    **changes,
                                }
                            )
    return document(BENCH, results, True, machine={"cpu": "a machine"}, settings={})


def comparison():
    """A made-up comparison."""
    results = [
        {
            "shape": shape,
            "geometry": "affine",
            "strategy": strategy,
            "algorithm": algorithm,
            "order": order,
            "n_dofs": 100,
            "backend": "cpu",
            "quadrature": "",
            "seconds": 1e-4 / order,
            "low": 0.9e-4 / order,
            "high": 1.2e-4 / order,
            "dofs_per_second": 1e6 * order,
            "flops": 1e4 * order,
            "nbytes": 1e4,
            "difference": 0.0 if strategy == "stdmat" else 1e-15,
            "behind": [1.0, 1.1, 1.2] if strategy == "sumfac" else [4.0, 4.0, 5.0],
            "collocation": {2: [0.99, 1.01, 1.05], 3: [1.1, 1.2, 1.4]}[order] if algorithm == "collocated" else None,
            "fastest": algorithm == "collocated",
        }
        for shape in ("tri", "quad")
        for order in (2, 3)
        for strategy, algorithm in (("stdmat", "noncollocated"), ("sumfac", "noncollocated"), ("sumfac", "collocated"))
    ]
    return document(COMPARE, results, True, mesh="some/where.msh")


def pixels(path):
    """Image of a PNG file, [row, column, channel] (8 bits, no interlace: what matplotlib writes)."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data.endswith(b"IEND\xaeB`\x82")
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert depth == 8 and colour == 6
    parts, at = [], 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        parts += [data[at + 8 : at + 8 + length]] if kind == b"IDAT" else []
        at += length + 12
    lines = np.frombuffer(zlib.decompress(b"".join(parts)), np.uint8).reshape(height, 1 + 4 * width)
    return lines, width, height


def test_pictures_of_a_bench(tmp_path):
    paths = plot_results(bench(algorithms=("collocated", "noncollocated"), strategies=("sumfac",)), tmp_path / "new")
    # The one that answers is the first.
    names = ("best", "by_order", "gain", "roofline", "deformed", "affine", "geometry", "collocation")
    assert [path.name for path in paths] == [f"bk3_{name}.png" for name in names]
    assert sorted(tmp_path.rglob("*")) == sorted([tmp_path / "new", *paths])
    for path in paths:
        lines, width, height = pixels(path)
        assert 800 < width < 4000 and 500 < height < 2000
        # Most rows of a blank picture are equal.
        assert len(np.unique(lines, axis=0)) > height / 4


def shown(monkeypatch, result, folder):
    """Figures by name; they are not written."""
    figures = {}
    monkeypatch.setattr(throughput.style, "save", lambda figure, path: figures.update({path.stem: figure}) or path)
    plot_results(result, folder)
    return figures


def test_precisions_are_not_mixed(tmp_path, monkeypatch):
    result = bench()
    result["results"] += [{**record, "dtype": "float32"} for record in result["results"]]
    figures = shown(monkeypatch, result, tmp_path)
    assert figures["bk3_float64_by_order"].get_suptitle().endswith("float64")
    assert figures["bk3_float32_by_order"].get_suptitle().endswith("float32")
    assert "bk3_by_order" not in figures


def test_an_algorithm_chosen_by_itself_makes_no_comparison(tmp_path, monkeypatch):
    result = bench()
    for record in result["results"]:
        record["algorithm"] = "collocated" if record["order"] < 3 else "noncollocated"
    assert not {"bk3_collocation", "bk3_gain"} & set(shown(monkeypatch, result, tmp_path))


def test_gains_that_were_timed_in_turns_are_drawn_instead_of_ratios(tmp_path, monkeypatch):
    result = bench(shapes=("hex",), algorithms=("collocated", "noncollocated"), strategies=("sumfac", "stdmat"))
    for record in result["results"]:
        if record["strategy"] == "sumfac" and record["algorithm"] == "noncollocated":
            record["collocation"] = [1.0, 1.1, 1.3]
    lines = shown(monkeypatch, result, tmp_path)["bk3_gain"].axes[0].get_lines()
    assert [set(line.get_ydata()) for line in lines] == [{1.1}, {1.0}]  # the latter is the level of no gain


def test_geometries_are_compared_by_a_strategy_that_serves_both(tmp_path, monkeypatch):
    result = bench(strategies=("dense", "sumfac"), fraction=1.3)
    result["results"] = [r for r in result["results"] if (r["strategy"], r["geometry"]) != ("dense", "deformed")]
    figures = shown(monkeypatch, result, tmp_path)
    assert ", sumfac" in figures["bk3_geometry"].get_suptitle()
    [legend] = figures["bk3_roofline"].legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert {"dense", "sumfac", "bound by memory", "bound by arithmetic"} <= set(labels)
    # Above the line there is a word on why; what is drawn has no limit in its name.
    assert any("above 1" in text.get_text() for text in figures["bk3_roofline"].texts)
    assert figures["bk3_roofline"].axes[0].get_ylabel() == "deformed elements\nShare of the roofline"


def names_in(axis):
    """Names in frames below a panel, with the orders' places that each is for: row -> [(name, first, last)]."""
    spans = sorted((round(bar.get_y() + bar.get_height() / 2), *bar.get_bbox().intervalx) for bar in axis.patches)
    texts = sorted((text.get_position()[1], text.get_position()[0], text.get_text()) for text in axis.texts)
    found = {}
    for (row, left, right), (_, _, name) in zip(spans, texts, strict=True):
        found.setdefault(row, []).append((name, round(left + 0.5), round(right - 0.5)))
    return found


def test_one_picture_names_the_fastest_by_shape_and_order(tmp_path, monkeypatch):
    """All shapes in a panel at the largest size, with their spread; another that is as fast within it is told."""
    result = bench(
        geometries=("deformed",), algorithms=("collocated", "noncollocated"), seconds=1.0, low=0.9, high=1.2, worst=30
    )
    for record in result["results"]:
        record["dofs_per_second"] *= 10 if record["n_dofs"] < 10**5 else 1  # faster in cache
        if (record["shape"], record["order"], record["strategy"]) == ("tet", 3, "stdmat"):
            record["dofs_per_second"] *= 5
        if record["algorithm"] == "noncollocated":  # slower by 30 %, on hexes of order 2 by 10
            record["dofs_per_second"] *= 0.9 * 1.3 if (record["shape"], record["order"]) == ("hex", 2) else 0.8
    panel, names = shown(monkeypatch, result, tmp_path)["bk3_best"].axes
    assert [label.get_text() for label in names.get_yticklabels()] == ["hex", "tet"]
    assert names_in(names) == {
        0: [("sumfac", 0, 0), ("sumfac ≈", 1, 1), ("sumfac", 2, 2)],
        1: [("sumfac", 0, 1), ("stdmat", 2, 2)],
    }
    assert [list(line.get_ydata()) for line in panel.get_lines()] == [[2e7, 3e7, 4e7], [2e7, 3e7, 1e8]]
    (hexes, tets) = panel.collections
    assert np.allclose([bar[:, 1] for bar in hexes.get_segments()], np.outer([2e7, 3e7, 4e7], [1 / 1.2, 1 / 0.9]))
    assert len(tets.get_segments()) == 3


def test_a_picture_has_one_source_of_factors(tmp_path, monkeypatch):
    """What recomputes is elsewhere, by its name; so are smaller sizes, which do not repeat what a kernel is."""
    result = bench(backend="cuda", shapes=("hex",), strategies=("sumfac",), geometries=("deformed",))
    for record in [record for record in result["results"] if record["order"] == 1]:
        whole = record["n_dofs"] == 10**5
        if whole:
            half = record["dofs_per_second"] / 2
            result["results"].append({**record, "source": "stored", "variant": "stored", "dofs_per_second": half})
        record.update(variant="elements=4 recomputed" if whole else None)
    figures = shown(monkeypatch, result, tmp_path)
    for name, heights in {"by_order": [1e7, 3e7, 4e7], "best": [1e7, 3e7, 4e7], "best_recomputed": [2e7]}.items():
        assert list(figures[f"bk3_{name}"].axes[0].get_lines()[0].get_ydata()) == heights
        assert f"{'recomputed' if 'recomputed' in name else 'stored'} factors" in figures[f"bk3_{name}"].get_suptitle()
    # Over size there are no lines of one point.
    for name, orders in (("deformed", [2, 3]), ("deformed_recomputed", [1])):
        labels = [text.get_text() for text in figures[f"bk3_{name}"].legends[0].get_texts()]
        assert labels == [f"P = {order}" for order in orders]
    labels = [text.get_text() for text in figures["bk3_sources"].legends[0].get_texts()]
    assert labels == ["recomputed", "stored"]


def test_panels_have_few_lines_and_fit_their_data(tmp_path, monkeypatch):
    strategies = ("a", "b", "c", "sumfac-top", "stdmat", "sumfac", "dense")
    result = bench(shapes=("hex",), orders=range(1, 8), strategies=strategies)
    for record in result["results"]:
        record["dofs_per_second"] *= 10 if record["geometry"] == "affine" else 1
    figures = shown(monkeypatch, result, tmp_path)
    for name in ("by_order", "deformed", "affine", "geometry"):
        for axis in figures[f"bk3_{name}"].axes:
            tops = [max(line.get_ydata()) for line in axis.get_lines()]
            assert len(tops) <= 5 and axis.get_ylim()[1] < 1.1 * max(tops)
    alone = shown(monkeypatch, bench(shapes=("hex",), orders=range(1, 8), strategies=("sumfac",)), tmp_path)
    lines = alone["bk3_deformed"].axes[0].get_lines()
    labels = [text.get_text() for text in alone["bk3_deformed"].legends[0].get_texts()]
    assert len(lines) == 5 and labels == [f"P = {order}" for order in (1, 3, 4, 5, 7)]


def test_a_roofline_and_throughput_by_order_are_of_one_size(tmp_path, monkeypatch):
    result = bench(shapes=("hex",), strategies=("sumfac", "stdmat"))
    for record in result["results"]:
        if record["n_dofs"] < 10**5:  # faster in cache, by another strategy
            record["dofs_per_second"] *= 3 if record["strategy"] == "stdmat" else 1
            record["fraction"] = 3.0
    figures = shown(monkeypatch, result, tmp_path)
    assert [max(line.get_ydata()) for line in figures["bk3_by_order"].axes[0].get_lines()] == [4e7, 2e7]
    assert [bar.get_height() for bar in figures["bk3_roofline"].axes[0].patches] == [0.4, 0.6, 0.8]
    assert all("100 k DoF" in figures[f"bk3_{name}"].get_suptitle() for name in ("best", "by_order", "roofline"))


def test_headings_fit(tmp_path, monkeypatch):
    result = bench(shapes=("hex",), strategies=("sumfac",))
    result["machine"]["cpu"] = "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
    for figure in shown(monkeypatch, result, tmp_path).values():
        figure.canvas.draw()
        box = figure._suptitle.get_window_extent()
        assert 0 < box.x0 < box.x1 < figure.bbox.width and box.y1 < figure.bbox.height
        assert all(axis.title.get_window_extent().y1 < box.y0 + 2 for axis in figure.axes if axis.get_title())


def test_picture_of_a_comparison(tmp_path):
    paths = plot_results(comparison(), tmp_path)
    assert [path.name for path in paths] == ["compare.png", "best.png"]
    for path in paths:
        lines, _, height = pixels(path)
        assert len(np.unique(lines, axis=0)) > height / 4


def test_a_comparison_shows_the_fastest_and_what_collocation_gains(tmp_path, monkeypatch):
    axes = shown(monkeypatch, comparison(), tmp_path)["compare"].axes
    assert [axis.get_title() for axis in axes] == ["Quad, affine", "Tri, affine", "", ""]
    (stars,) = (line for line in axes[0].get_lines() if line.get_marker() == "*")
    assert list(stars.get_xdata()) == [2, 3] and list(stars.get_ydata()) == [2e6, 3e6]
    gains = [
        (line.get_ydata()[0], line.get_markerfacecolor()) for line in axes[2].get_lines() if line.get_marker() == "o"
    ]
    # A difference inside the quartiles has a hollow marker.
    assert gains[0] == (1.01, "white") and gains[1][0] == 1.2 and gains[1][1] != "white"


def test_gains_of_several_machines_are_beside_each_other(tmp_path, monkeypatch):
    figures = {}
    save = throughput.style.save
    monkeypatch.setattr(throughput.style, "save", lambda f, p: figures.update({p.stem: f}) or save(f, p))
    other = comparison()
    other["results"] = [{**row, "backend": "cuda"} for row in other["results"] if row["shape"] == "quad"]
    path = plot_gains(
        [{**comparison(), "machine": {"cpu": "A"}}, {**other, "machine": {"gpu": ["B"]}}], tmp_path / "x.png"
    )
    axes = figures["x"].axes
    assert path.stat().st_size > 5000 and [axis.get_title() for axis in axes] == ["A", "B"]
    assert [sum(line.get_marker() == "o" for line in axis.get_lines()) for axis in axes] == [4, 2]


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_pictures_as_pdf_and_svg(tmp_path, suffix):
    path, _ = plot_results(comparison(), tmp_path, suffix)
    assert path.suffix == suffix and path.stat().st_size > 5000
    with pytest.raises(ArgumentError, match="not '.bmp'"):
        plot_results(comparison(), tmp_path, ".bmp")


def test_one_record_and_many_records_are_drawn(tmp_path, monkeypatch):
    one = bench(shapes=("pyramid",), orders=(4,), strategies=("new",))
    one["results"] = one["results"][:1]
    assert [path.stem for path in plot_results(one, tmp_path)] == ["bk3_best", "bk3_by_order", "bk3_roofline"]
    much = bench(
        shapes=("quad", "tri", "hex", "prism", "pyramid", "tet"),
        orders=range(1, 13),
        strategies=("a", "b", "sumfac-top"),
    )
    # Six columns are parted by dimension.
    names = list(shown(monkeypatch, much, tmp_path))
    assert len(names) == 12 and sum(name.endswith("_2d") for name in names) == 6


def named_lines(axis):
    """Texts of a panel's own legend."""
    legend = axis.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(("benchmark", "peaks"), [("bk1", (60.7, 35, 25)), ("bk3", (15.2, 11))])
def test_peaks_of_others_are_drawn_over_a_gpu_s(tmp_path, monkeypatch, benchmark, peaks):
    result = bench(backend="cuda", benchmark=benchmark, shapes=("hex", "prism"), sustained_fraction=0.4)
    figures = shown(monkeypatch, result, tmp_path)
    for name in ("deformed", "geometry"):
        axes = figures[f"{benchmark}_{name}"].axes
        labels = named_lines(axes[0])
        assert [float(label.rpartition(" ")[2]) for label in labels] == list(peaks) and named_lines(axes[1]) == []
        assert any("Xing et al." in label and "GH200" in label for label in labels)
        drawn = {line.get_ydata()[0] for line in axes[0].get_lines() if len(set(line.get_ydata())) == 1}
        assert drawn >= {peak * 1e9 for peak in peaks}
    # They are of deformed elements in double precision, on GPUs.
    assert named_lines(figures[f"{benchmark}_affine"].axes[0]) == []
    for changes in ({"backend": "cpu"}, {"backend": "cuda", "dtype": "float32"}):
        other = shown(monkeypatch, bench(benchmark=benchmark, shapes=("hex",), **changes), tmp_path)
        assert all(named_lines(axis) == [] for figure in other.values() for axis in figure.axes)


def test_of_many_strategies_the_fastest_has_a_bar(tmp_path, monkeypatch):
    result = bench(backend="cuda", strategies=("sumfac-top", "stdmat", "sumfac"), shapes=("hex", "tet"))
    for record in result["results"]:
        if record["strategy"] == "sumfac-top" and record["n_dofs"] == 10**5:
            record["sustained_fraction"] = 0.9 * record["fraction"]
    figure = shown(monkeypatch, result, tmp_path)["bk3_roofline"]
    assert "fastest strategy" in figure.get_suptitle()
    assert len(figure.axes) == 2 * 2  # geometries, shapes
    for axis in figure.axes:
        assert len(axis.patches) == 3
        ticks = [line for line in axis.get_lines() if line.get_color() == "black"]
        assert len(ticks) == 3 and all(0 < line.get_ydata()[0] < 1.1 for line in ticks)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "sustained" in labels and "stdmat" not in labels


def test_many_strategies_by_order_have_a_column_per_shape(tmp_path, monkeypatch):
    shapes = ("hex", "prism", "pyramid", "tet")
    result = bench(backend="cuda", strategies=("sumfac-top", "stdmat", "sumfac", "dense"), shapes=shapes)
    figure = shown(monkeypatch, result, tmp_path)["bk3_by_order"]
    assert [axis.get_title() for axis in figure.axes] == ["Hex", "Prism", "Pyramid", "Tet", *[""] * 4]
    assert all(len(axis.get_lines()) == 4 for axis in figure.axes[1:3])
    assert named_lines(figure.axes[0]) and named_lines(figure.axes[3])


def test_each_line_looks_different(tmp_path, monkeypatch):
    result = bench(shapes=("prism",), strategies=("sumfac-top", "stdmat", "sumfac", "dense"))
    result["results"] += [
        {**record, "geometry": "multilinear"} for record in result["results"] if record["geometry"] == "affine"
    ]
    figures = shown(monkeypatch, result, tmp_path)
    looks = {
        name: {(line.get_color(), line.get_marker()) for line in figures[name].axes[0].get_lines()}
        for name in ("bk3_by_order", "bk3_geometry")
    }
    assert [len(own) for own in looks.values()] == [4, 3]  # strategies, kinds of elements
    assert all(len({part[k] for part in own}) == len(own) for own in looks.values() for k in (0, 1))


def test_gain_of_collocation_by_order(tmp_path, monkeypatch):
    result = bench(backend="cuda", strategies=("sumfac-top",), algorithms=("collocated", "noncollocated"))
    figure = shown(monkeypatch, result, tmp_path)["bk3_gain"]
    curves = [line for axis in figure.axes for line in axis.get_lines() if len(line.get_xdata()) == 3]
    assert len(curves) == 2 * 2 and all(np.allclose(line.get_ydata(), 1.3) for line in curves)


def test_a_precision_at_one_size_has_no_figure_over_size(tmp_path, monkeypatch):
    result = bench(shapes=("hex",))
    single = [{**record, "dtype": "float32"} for record in result["results"] if record["n_dofs"] == 10**5]
    result["results"] += single
    names = set(shown(monkeypatch, result, tmp_path))
    assert {"bk3_float32_best", "bk3_float32_roofline", "bk3_float64_deformed", "bk3_float64_geometry"} <= names
    assert not {"bk3_float32_deformed", "bk3_float32_geometry"} & names


def test_shapes_are_sorted_and_strategies_have_colours():
    assert in_order(["tet", "cube", "hex", "tri", "hex"]) == ["tri", "hex", "tet", "cube"]
    colours = strategy_colours(["sumfac", "new", "stdmat", "newer"])
    assert len(set(colours.values())) == 4
    assert strategy_colours(["stdmat"])["stdmat"] == colours["stdmat"]
    entries = [handle(f"P = {n}") for n in range(20)]
    assert [len(row) for row in broken([entries, entries[:3]], 7.0)] == [7, 7, 6, 3]
    assert [len(row) for row in broken([[handle("a" * 20), *entries[:3]]], 7.0)] == [3, 1]


def test_results_are_read_as_they_were_written(tmp_path):
    for result in (bench(), comparison()):
        write_json(tmp_path / "r.json", result)
        assert read_results(tmp_path / "r.json") == result


def test_broken_results_are_refused(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(ArgumentError, match="cannot read"):
        read_results(path)
    with pytest.raises(ArgumentError, match="cannot read"):
        read_results(tmp_path)
    write_json(path, bench())
    text = path.read_text()
    for end in (0, 1, len(text) // 2, len(text) - 3):
        path.write_text(text[:end])
        with pytest.raises(ArgumentError, match="is not JSON"):
            read_results(path)
    for raw in (b"\xff\xfe\x00", b"[" * 100_000):
        path.write_bytes(raw)
        with pytest.raises(ArgumentError, match="is not JSON"):
            read_results(path)
    for content, message in (
        ([], "is not a result"),
        ({"format": ["x"]}, "is not a result"),
        ({**bench(), "format": "other"}, "is not a result"),
        ({**bench(), "version": 99}, "version 99"),
        ({**bench(), "results": []}, "no results"),
        ({**bench(), "results": {}}, "no results"),
        ({**bench(), "results": [3]}, r"results\[0\] has benchmark = None"),
        (bench(order="two"), r"results\[0\] has order = 'two'"),
        (bench(fraction=None), r"results\[0\] has fraction = None"),
        (bench(phase=3), r"results\[0\] has phase = 3"),
        ({**bench(), "results": [*bench()["results"], *bench(phase="csr")["results"]]}, r"\[0\] has phase = None"),
        (bench(dofs_per_second=float("nan")), r"results\[0\] has dofs_per_second = nan"),
        ({**comparison(), "results": [{**comparison()["results"][0], "behind": [1, 2]}]}, r"has behind = \[1, 2\]"),
        ({**comparison(), "results": [{**comparison()["results"][0], "fastest": 1}]}, r"has fastest = 1"),
        (bench(n_dofs=0), r"results\[0\] has n_dofs = 0"),
        (bench(n_dofs=True), r"results\[0\] has n_dofs = True"),
        (bench(n_dofs=10**400), r"results\[0\] has n_dofs = <integer of 1329 bits>"),
        (bench(order="two" * 5000), r"results\[0\] has order = 'two"),
        ({**bench(), "format": "other" * 5000}, "is not a result"),
        ({**bench(), "version": "other" * 5000}, "of version 'other"),
        ({**bench(), "runs": "other" * 5000}, "its runs are 'other"),
    ):
        path.write_text(json.dumps(content))
        with pytest.raises(ArgumentError, match=message) as caught:
            read_results(path)
        assert len(str(caught.value).replace(str(path), "")) < 200


def test_phases_of_problems_on_continuous_functions(tmp_path, monkeypatch):
    result = bench(shapes=("hex", "tet"), strategies=("auto",), benchmark="bp3")
    result["results"] = [
        {**record, "phase": phase, "dofs_per_second": record["dofs_per_second"] / part}
        for record in result["results"]
        for part, phase in enumerate(("application", "iteration", "csr"), start=1)
        if phase != "csr" or record["n_dofs"] < 10**5
    ]
    figures = shown(monkeypatch, result, tmp_path)
    assert list(figures) == ["bp3_best", "bp3_by_order", "bp3_roofline", "bp3_deformed", "bp3_affine"]
    assert "application, the fastest" in figures["bp3_best"].get_suptitle()
    assert figures["bp3_affine"].get_suptitle().startswith("BP3, stiffness, affine elements")
    for axis in figures["bp3_deformed"].axes:  # of an order and a shape
        sizes = [tuple(line.get_xdata()) for line in axis.get_lines()]
        # Applications, iterations, and products with matrices as far as there are some.
        assert sizes == [(1e3, 1e4, 1e5)] * 2 + [(1e3, 1e4)]
    labels = [text.get_text() for text in figures["bp3_deformed"].legends[0].get_texts()]
    assert labels == ["application", "CG iteration", "CSR product"]
    assert [len(axis.get_lines()) for axis in figures["bp3_by_order"].axes] == [3] * 4
    # A matrix does other work: it has no share of the operator's limit.
    assert not any("CSR" in text.get_text() for text in figures["bp3_roofline"].legends[0].get_texts())


def test_parts_of_whole_solves(tmp_path, monkeypatch):
    result = bench(shapes=("hex", "tet"), strategies=("auto",), benchmark="solve")
    phases = ("all in", "space", "operator", "multigrid", "vertices", "right-hand side", "iterations", "first", "pyamg")
    result["results"] = [
        {**{name: value for name, value in record.items() if name not in ("fraction", "bound")}, "phase": phase}
        for record in result["results"]
        for phase in phases
    ]
    figures = shown(monkeypatch, result, tmp_path)
    assert list(figures) == ["solve_best", "solve_by_order", "solve_parts", "solve_deformed", "solve_affine"]
    assert figures["solve_parts"].get_suptitle().startswith("Whole solve, parts, at about 100 k DoF")
    rates = {(r["shape"], r["geometry"]): r["dofs_per_second"] for r in result["results"] if r["order"] == 1}
    cases = [(shape, geometry) for geometry in ("deformed", "affine") for shape in ("hex", "tet")]
    for axis, case in zip(figures["solve_parts"].axes, cases, strict=True):
        # Six parts, each of as many microseconds per unknown, one upon the other, of three orders.
        assert len(axis.patches) == 6 * 3
        tops = sorted(bar.get_y() + bar.get_height() for bar in axis.patches)
        assert tops[-1] == pytest.approx(6e6 / rates[case])
        assert all(bar.get_height() > 0 for bar in axis.patches)
    assert [len(axis.get_lines()) for axis in figures["solve_by_order"].axes] == [3] * 4


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks" / "results").glob("scaling_*.json")), ids=lambda p: p.name)
def test_legends_of_scaling_fit_the_figure(path, tmp_path, monkeypatch):
    [figure] = shown(monkeypatch, json.loads(path.read_text(encoding="utf-8")), tmp_path).values()
    figure.canvas.draw()
    left, right = figure.legends[0].get_window_extent().intervalx
    assert 0 <= left < right <= figure.bbox.width
