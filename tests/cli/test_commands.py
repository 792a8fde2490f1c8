"""The command line as it is used: exit codes, one line of complaint, JSON alone on standard output, whole files."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.benchmarks import compare_algorithms
from hpfem.cli import bench as bench_command
from hpfem.cli import main
from hpfem.operators import InverseMass
from hpfem.support.cache import Cache
from hpfem.support.threads import thread_count
from tests.benchmarks.test_comparison import Modelled
from tests.lazy import Lazy, numpy_support
from tests.standin import StandInBackend

ROOT = Path(__file__).resolve().parent.parent.parent
MIXED = str(ROOT / "meshes" / "cube_mixed.msh")
CURVED = str(ROOT / "meshes" / "curved_mixed.msh")
FLAT = str(ROOT / "meshes" / "square_mixed.msh")
SMALL_BENCH = [
    "bench", "--quick", "--backend", "numpy", "--shapes", "hex,tri", "--orders", "1,2", "--dofs", "500,2000",
    "--repeats", "1",
]  # fmt: skip


def run(capsys, *arguments):
    """Standard output of a command that works."""
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def refused(capsys, *arguments):
    """The one line of complaint about bad input."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        code = exit_.code
    out, err = capsys.readouterr()
    assert code == 2
    assert out == "" and err.startswith("hpfem") and ": error: " in err and err.count("\n") == 1
    return err


def read_vtu(path):
    """Points and point data of a file, read by VTK."""
    reader = Lazy("vtkmodules.vtkIOXML").vtkXMLUnstructuredGridReader()
    reader.SetFileName(str(path))
    reader.Update()
    data = reader.GetOutput().GetPointData()
    arrays = {
        data.GetArrayName(i): numpy_support.vtk_to_numpy(data.GetArray(i)) for i in range(data.GetNumberOfArrays())
    }
    return numpy_support.vtk_to_numpy(reader.GetOutput().GetPoints().GetData()), arrays


def test_info(capsys):
    text = run(capsys, "info", MIXED)
    assert "130 cells" in text and "pyramid" in text
    summary = json.loads(run(capsys, "info", MIXED, "--json"))
    assert summary["counts"] == {"hex": 6, "prism": 14, "pyramid": 40, "tet": 70}
    assert summary["volume"] == pytest.approx(1) and summary["affine_share"] == 1


def test_info_expects_throughput(capsys):
    command = ("info", CURVED, "--order", 4, "--backend", "cuda")
    lines = run(capsys, *command).splitlines()
    shares = sum(int(line.split()[2].rstrip("%")) for line in lines if re.search(r"\d% +\d+% ", line))
    assert 98 <= shares <= 102 and "on an H200" in lines[-3]
    found = json.loads(run(capsys, *command, "--json"))["expected"]
    now, then = found["dofs_per_second"]
    assert now < then and f"{1e-9 * now:.3g} GDoF/s; {1e-9 * then:.3g}, {then / now:.2f} times" in lines[-2]
    assert "no curved cell is within 1%" in run(capsys, "info", MIXED, "--order", 2, "--backend", "cuda")
    assert "order has no value for prism" in refused(capsys, "info", MIXED, "--order", "hex=2,tet=2,pyramid=2")
    assert "unknown backend 'gpu'" in refused(capsys, "info", MIXED, "--order", 2, "--backend", "gpu")
    assert "takes an --order" in refused(capsys, "info", MIXED, "--backend", "gpu")


def test_apply_helmholtz(capsys):
    out = run(capsys, "apply", MIXED, "--order", 3, "--field", "x*y + z", "--json")
    report = json.loads(out)
    assert report["functional_of_field"] == pytest.approx(85 / 36, rel=1e-12)
    assert report["field_norm"] ** 2 == pytest.approx(1 / 9 + 1 / 4 + 1 / 3, rel=1e-12)
    assert report["dofs"] == 6 * 64 + 14 * 40 + 40 * 30 + 70 * 20
    assert {block["shape"] for block in report["blocks"]} == {"hex", "prism", "pyramid", "tet"}
    assert report["seconds"] > 0
    assert all(re.match(r"expected \d+\.\d\d times as fast as ", block["gain"]) for block in report["blocks"])
    text = run(capsys, "apply", MIXED, "--order", "hex=2,prism=2,pyramid=2,tet=3", "--strategy", "sumfac")
    assert "sumfac" in text and "tet 3" in text and "metric" in text


def test_apply_in_mixed_precision(capsys):
    norms = {}
    for precision in ("full", "mixed"):
        arguments = ("apply", CURVED, "--order", 2, "--precision", precision)
        report = json.loads(run(capsys, *arguments, "--json"))
        norms[precision] = report["result_norm"]
        assert (0 < report["precision_error"] < 1e-5) == (precision == "mixed")
    assert 0 < abs(norms["mixed"] / norms["full"] - 1) < 1e-5
    assert "in float32, relative error" in run(capsys, *arguments)


@pytest.mark.parametrize(
    "name", ["BwdTrans", "iproductwrtbase", "phys-deriv", "IProductWRTDerivBase", "fwd_trans", "MASS"]
)
def test_apply_every_operator(capsys, name):
    report = json.loads(run(capsys, "apply", FLAT, "--operator", name, "--order", 2, "--field", "x**2 - y", "--json"))
    assert report["operator"].lower() == name.replace("-", "").replace("_", "").lower()
    assert report["result_norm"] > 0


def test_apply_inner_product_with_derivatives_takes_the_gradient(capsys):
    common = (MIXED, "--order", 2, "--field", "x*x + 2*y - z", "--json")
    weak = json.loads(run(capsys, "apply", *common, "--operator", "iproductwrtderivbase"))
    laplace = json.loads(run(capsys, "apply", *common, "--operator", "laplacian"))
    assert weak["result_norm"] == pytest.approx(laplace["result_norm"], rel=1e-10)


def test_apply_coefficients(capsys):
    common = ("apply", FLAT, "--order", 3, "--field", "x + y", "--json")
    helmholtz = json.loads(run(capsys, *common, "--lam", "2 + 0*x", "--diffusivity", "3"))
    assert helmholtz["functional_of_field"] == pytest.approx(2 * 7 / 6 + 3 * 2, rel=1e-11)
    transport = json.loads(
        run(capsys, *common, "--operator", "advectiondiffusionreaction", "--velocity", "1, 0", "--diffusivity", "0*y")
    )
    assert transport["functional_of_field"] == pytest.approx(1, rel=1e-11)
    err = refused(capsys, "apply", FLAT, "--operator", "mass", "--lam", "1")
    assert "has no coefficient 'lam'" in err


def test_apply_writes_vtu(capsys, tmp_path):
    path = tmp_path / "out.vtu"
    run(capsys, "apply", MIXED, "--operator", "mass", "--order", 2, "--field", "x*y + z", "-o", path)
    x, data = read_vtu(path)
    np.testing.assert_allclose(data["field"], x[:, 0] * x[:, 1] + x[:, 2], atol=1e-12)
    np.testing.assert_allclose(data["Mass"], data["field"], atol=1e-11)
    run(capsys, "apply", MIXED, "--operator", "physderiv", "--order", 2, "--field", "x*y + z", "-o", path)
    x, data = read_vtu(path)
    gradient = data["PhysDeriv"]
    np.testing.assert_allclose(gradient, np.stack([x[:, 1], x[:, 0], 1 + 0 * x[:, 0]], axis=1), atol=1e-11)
    assert [p.name for p in tmp_path.iterdir()] == ["out.vtu"]


@pytest.mark.parametrize("basis", ["modified", "orthogonal", "lagrange"])
def test_riesz_representation_inverts_mass(basis):
    space = hp.Space(hp.read_mesh(CURVED), 4, basis=basis)
    u = space.project(lambda x, y, z: [np.sin(x + y) * z, x * y])
    again = InverseMass(space)(hp.Mass(space)(u))
    assert space.norm(again - u) < 1e-11 * space.norm(u)
    with pytest.raises(hp.StateError, match="takes a 'dual' field, got 'coeff'"):
        InverseMass(space)(u)
    with pytest.raises(hp.StateError, match="out of InverseMass"):
        InverseMass(space)(hp.Mass(space)(u), out=space.zeros("dual", 2))


def test_compare(capsys, tmp_path):
    folder = tmp_path / "new"
    result = json.loads(run(capsys, "compare", CURVED, "--order", "1:2", "--repeats", 1, "--json", "-o", folder))
    assert result == json.loads((folder / "compare.json").read_text()) and (folder / "compare.png").exists()
    assert result["complete"] and result["machine"]["cpu"] and result["threads"]
    rows = result["results"]
    assert len(rows) >= 2 * 4 * 3
    assert max(row["difference"] for row in rows if not row["quadrature"]) <= 1e-12
    assert {(row["strategy"], row["algorithm"]) for row in rows} >= {
        ("stdmat", "noncollocated"),
        ("sumfac", "noncollocated"),
        ("sumfac", "collocated"),
    }


def test_compare_says_the_answer_first_and_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("hpfem.cli.compare.compare_algorithms", partial(compare_algorithms, timer=Modelled(0)))
    text = run(capsys, "compare", MIXED, "--order", "1:2", "--dtype", "float32", "--repeats", 1)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "…" not in text and "\x1b" not in text
    answer, table = text.split("Times as fast, with quartiles", 1)
    assert answer.startswith("The fastest way to apply Helmholtz on") and "float32" in answer
    for shape in ("hex", "prism", "pyramid", "tet"):
        assert f"{shape}, affine, P = " in answer
        assert sum(line.split()[:1] == [shape] for line in table.splitlines()) == 2 * 2  # orders, parts of the table
    answer = " ".join(answer.split())
    assert answer.count("auto takes") >= 4 and answer.count("times as fast as the next") >= 4
    assert "that of the fastest strategy with both" in " ".join(table.split())  # which may be another than the way's
    closing = " ".join(text[text.index("Largest") :].split())
    assert re.search(r"results \d\.\de-0[67]\. Collocation is compared on the collapsed rule", closing)
    assert re.search(r"quadrature='simplex', tet .* results differ by \d\.\de-0[67]$", closing)
    monkeypatch.delenv("COLUMNS")
    everything = run(capsys, "compare", CURVED, "--order", 2, "--repeats", 1, "--all")
    assert everything.count("* sumfac") == 4 and everything.count("stdmat noncollocated") > 4


def test_compare_writes_the_one_file_that_is_named(capsys, tmp_path):
    for name in ("gains.png", "rows.json"):
        assert f"written {tmp_path / name}" in run(
            capsys, "compare", FLAT, "--order", 1, "--repeats", 1, "-o", tmp_path / name
        )
    assert {path.name for path in tmp_path.iterdir()} == {"gains.png", "rows.json"}
    assert (tmp_path / "gains.png").read_bytes().startswith(b"\x89PNG")
    rows = tmp_path / "rows.json"
    assert str(tmp_path / "both.svg") in run(capsys, "plot", rows, rows, "-o", tmp_path / "both.svg")
    assert "give its name to -o" in refused(capsys, "plot", str(rows), str(rows))
    pictures = "-o takes a folder, or a picture (.png, .pdf, .svg)"
    for name in ("x.csv", "x.jpg"):  # no folder is made that looks like a file
        assert f"{pictures}, or a .json file;" in refused(capsys, "compare", FLAT, "-o", str(tmp_path / name))
        assert f"{pictures};" in refused(capsys, "plot", str(rows), "-o", str(tmp_path / name))
    assert not list(tmp_path.glob("x.*"))


def test_precision_of_comparisons_benchmarks_and_solves(capsys):
    mixed = ("--precision", "mixed", "--json")
    rows = json.loads(run(capsys, "compare", CURVED, "--order", 2, "--repeats", 1, *mixed))["results"]
    assert max(row["difference"] for row in rows if not row["quadrature"]) <= 1e-12
    assert all(0 < row["precision_error"] < 1e-5 for row in rows)
    text = run(capsys, "compare", CURVED, "--order", 2, "--repeats", 1, "--precision", "mixed")
    assert "relative error by factors in float32" in text
    bench = ("bench", "--quick", "--shapes", "tet", "--orders", 2, "--geometry", "deformed", "--strategies", "sumfac")
    for how in (("--dofs", "1e3"), ("--tiled", "--dofs", "1e3"), ("--benchmark", "bp3", "--dofs", "1e3")):
        halves = [json.loads(run(capsys, *bench, *how, *more)) for more in (("--json",), mixed)]
        moved = [found["results"][0]["nbytes"] / found["results"][0]["n_dofs"] for found in halves]
        assert halves[1]["settings"]["precision"] == "mixed" and moved[1] < 0.8 * moved[0], (how, moved)
    found = [json.loads(run(capsys, "solve", CURVED, "--order", 2, *more)) for more in (("--json",), mixed)]
    assert 0 < abs(found[1]["norm"] / found[0]["norm"] - 1) < 1e-5


def test_bench_and_plot(capsys, tmp_path):
    path = tmp_path / "results.json"
    text = run(capsys, *SMALL_BENCH, "-o", path)
    assert "hex" in text and "tri" in text and "P=2" in text and str(path) in text
    result = json.loads(path.read_text())
    assert result["complete"] and result["quick"]
    pictures = json.loads(run(capsys, "plot", path, "--json"))["pictures"]
    names = ("best", "by_order", "gain", "roofline", "deformed", "affine", "geometry")
    assert [Path(p).name for p in pictures] == [f"bk3_{name}.png" for name in names]
    assert all(Path(p).parent == tmp_path for p in pictures)
    text = run(capsys, "plot", path, "-o", tmp_path / "svg", "--format", "svg")
    assert text.count("written") == 7 and (tmp_path / "svg" / "bk3_roofline.svg").read_text().startswith("<?xml")


def test_one_picture_goes_into_a_file(capsys, tmp_path):
    run(capsys, "compare", FLAT, "--order", 2, "--repeats", 1, "-o", tmp_path)
    (results,) = tmp_path.glob("*.json")
    target = tmp_path / "out.pdf"
    assert str(target) in run(capsys, "plot", results, "-o", target)
    assert target.read_bytes().startswith(b"%PDF")
    said = refused(capsys, "plot", str(results), "-o", str(tmp_path / "out.svg"), "--format", "pdf")
    assert "out.svg' in the format pdf" in said and not (tmp_path / "out.svg").exists()
    several = tmp_path / "bench.json"
    run(capsys, *SMALL_BENCH, "-o", several)
    # The picture that answers.
    assert run(capsys, "plot", several, "-o", tmp_path / "best.svg") == f"written {tmp_path / 'best.svg'}\n"
    assert "the fastest strategy" in (tmp_path / "best.svg").read_text()


def test_a_long_name_stands_apart(capsys):
    text = run(capsys, "apply", FLAT, "--operator", "advectiondiffusionreaction", "--velocity", "1,0", "--order", 2)
    assert "AdvectionDiffusionReaction norm" in text


def test_bench_json_is_all_that_is_printed(capsys):
    result = json.loads(run(capsys, *SMALL_BENCH, "--geometry", "affine", "--benchmark", "bk1", "--json"))
    assert {m["operator"] for m in result["results"]} == {"Mass"}
    assert {m["geometry"] for m in result["results"]} == {"affine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required: COMMAND"),
        (["fly"], "invalid choice: 'fly'"),
        (["info"], "required: MESH"),
        (["info", "absent.msh"], "absent.msh"),
        (["info", str(ROOT / "README.md")], "README.md"),
        (["apply", MIXED, "--operator", "helmoltz"], "did you mean 'Helmholtz'.*valid: .*Mass"),
        (["apply", MIXED, "--precision", "half"], "unknown precision 'half'; valid: full, mixed"),
        (["apply", MIXED, "--operator", "fwdtrans", "--precision", "mixed"], "FwdTrans is computed in full precision"),
        (["apply", MIXED, "--strategy", "magic"], "unknown strategy 'magic'.*valid: auto.*stdmat"),
        (["apply", MIXED, "--algorithm", "magic"], "unknown algorithm 'magic'.*collocated"),
        (["apply", MIXED, "--basis", "magic"], "unknown basis 'magic'.*orthogonal"),
        (["apply", MIXED, "--backend", "magic"], "unknown backend 'magic'.*numpy"),
        (["apply", MIXED, "--quadrature", "magic"], "unknown quadrature 'magic'.*gauss"),
        (["apply", MIXED, "--dtype", "float16"], "invalid choice: 'float16'.*float64"),
        (["apply", MIXED, "--order", "0"], "lie between 1 and"),
        (["apply", MIXED, "--order", "two"], "orders 'two' are not understood"),
        (["apply", MIXED, "--order", "hex=2"], "order has no value for"),
        (["apply", MIXED, "--order", "cube=2"], "unknown shape 'cube'"),
        (["apply", MIXED, "--field", "sin(q)"], "column 5: unknown name 'q'"),
        (["apply", MIXED, "--field", ""], "field expression is empty"),
        (["apply", FLAT, "--field", "x + z"], "unknown name 'z'"),
        (["apply", MIXED, "--field", "1/(x - x)"], "not finite"),
        (["apply", MIXED, "--lam", "9**9**9"], "not a finite number"),
        (["apply", MIXED, "--lam", "x, y"], "lam has 1 component"),
        (["apply", FLAT, "--operator", "advectiondiffusionreaction", "--velocity", "1"], "velocity has 2 component"),
        (["apply", MIXED, "-o", "out.png"], "ends in .vtu"),
        (["apply", MIXED, "-o", "absent/out.vtu"], "there is no folder absent"),
        (["apply", MIXED, "--quadrature", "-2", "--algorithm", "collocated"], "points"),
        (["bench", "--dofs", "1e11", "--backend", "numpy"], "GiB of memory are free; measure at most about"),
        (["compare", MIXED, "--order", "8:2"], "must increase"),
        (["compare", MIXED, "-o", str(ROOT / "LICENSE")], "cannot make the folder"),
        (["bench", "--shapes", "hex,cube"], "unknown shape 'cube'; valid: quad, tri, hex"),
        (["bench", "--benchmark", "bk9"], "unknown benchmark 'bk9'.*bk1, bk3"),
        (["bench", "--strategies", "magic"], "unknown strategy 'magic'; valid: auto"),
        (["bench", "--algorithm", "magic"], "unknown algorithm 'magic'"),
        (["bench", "--geometry", "magic"], "unknown geometry 'magic'"),
        (["bench", "--precision", "half"], "unknown precision 'half'; valid: full, mixed"),
        (["bench", "--tiled", "--precision", "half"], "unknown precision 'half'; valid: full, mixed"),
        (["compare", MIXED, "--precision", "half"], "unknown precision 'half'; valid: full, mixed"),
        (["solve", MIXED, "--precision", "half"], "unknown precision 'half'; valid: full, mixed"),
        (["bench", "--dofs", "many"], "sizes 'many' are not understood"),
        (["bench", "--basis", "magic", "--quick"], "unknown basis 'magic'"),
        (["bench", "-o", "absent/r.json"], "there is no folder absent"),
        (["compare", MIXED, "-o", ""], "the name of the folder is empty"),
        (["bench", "-o", ""], "cannot write '': give a name that ends in .json"),
        (["plot", "absent.json"], "cannot read absent.json"),
        (["plot", MIXED], "is not JSON"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert re.search(message, refused(capsys, *arguments))


def test_bad_input_leaves_nothing_behind(capsys, tmp_path):
    refused(capsys, "apply", MIXED, "--field", "1/(x - x)", "-o", tmp_path / "out.vtu")
    refused(capsys, *SMALL_BENCH, "--basis", "magic", "-o", tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [[], ["info"], ["apply"], ["solve"], ["view"], ["compare"], ["bench"], ["scale"], ["plot"], ["tune"], ["cache"]],
)
def test_help_has_examples(capsys, command):
    with pytest.raises(SystemExit) as exit_:
        main([*command, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert "examples:\n  hpfem " in text
    for line in text.split("examples:")[1].splitlines():
        if line.startswith("  hpfem ") and command:
            assert line.split()[1] == command[0]


def test_caches_are_the_backends(capsys, tmp_path, monkeypatch):
    backend = StandInBackend()
    backend.caches = lambda: {"other": Cache(tmp_path / "other", ".code", limit=7_000_000)}
    monkeypatch.setitem(BACKENDS, "stand-in", backend)
    assert BACKENDS["numpy"].caches() == {}
    assert run(capsys, "cache", "info", "other") == f"other: 0 files, 0.0 of 7 MB in {tmp_path / 'other'}\n"


def test_cache_is_listed_and_cleared(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    empty = json.loads(run(capsys, "cache", "info", "--json"))
    assert set(empty) == {"kernels", "programs", "cuda", "tables", "tuning"}
    for kind, state in empty.items():
        assert state["path"] == str(tmp_path / kind) and state["entries"] == state["nbytes"] == 0
    for kind, name in (("kernels", "0.kernel"), ("cuda", "0.cubin"), ("tuning", "0.json")):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).write_bytes(b"0" * 1000)
    text = run(capsys, "cache", "info")
    (tmp_path / "cuda" / "0.log").write_bytes(b"0" * 500000)
    assert "cuda: 1 files, 0.5 of 2147 MB" in run(capsys, "cache", "info", "cuda")
    assert "kernels: 1 files, 0.0 of 268 MB" in text and "tuning: 1 files, 0.0 MB" in text
    assert json.loads(run(capsys, "cache", "clear", "tuning", "--json"))["tuning"]["deleted"] == 1
    assert not list((tmp_path / "tuning").iterdir()) and list((tmp_path / "kernels").iterdir())
    assert "deleted 1 of kernels" in run(capsys, "cache", "clear")
    assert not list((tmp_path / "kernels").iterdir()) and not list((tmp_path / "cuda").iterdir())
    assert "invalid choice: 'burn'" in refused(capsys, "cache", "burn")


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0 and hp.__version__ in capsys.readouterr().out


STOPS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


@pytest.fixture
def default_signals():
    """Handlers as in a process of its own: a shell starts what is to run in the background with SIGINT ignored."""
    before = [(number, signal.signal(number, signal.SIG_DFL)) for number, _, _ in STOPS]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(("number", "code", "word"), STOPS)
def test_a_signal_leaves_what_was_measured(capsys, tmp_path, monkeypatch, number, code, word):
    class Interrupted(bench_command.Runner):
        def __iter__(self):
            for done, case in enumerate(super().__iter__()):
                if done == 2:
                    signal.raise_signal(number)
                yield case

    monkeypatch.setattr(bench_command, "Runner", Interrupted)
    path = tmp_path / "results.json"
    assert main([*SMALL_BENCH, "-o", str(path)]) == code
    assert capsys.readouterr().err == f"hpfem: {word}\n"
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    result = json.loads(path.read_text())
    assert not result["complete"] and len(result["results"]) == 6
    assert run(capsys, "plot", path).count("written") >= 4


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(("number", "code", "word"), STOPS)
def test_a_signal_while_the_disk_is_full_says_what_is_lost(capsys, caplog, tmp_path, monkeypatch, number, code, word):
    def full(path, result):
        raise hp.ArgumentError("cannot write r.json: No space left on device")

    monkeypatch.setattr("hpfem.cli.output.write_json", full)
    monkeypatch.setattr(bench_command.Runner, "prepare", lambda *_: signal.raise_signal(number))
    monkeypatch.setattr("hpfem.cli.bench.document", lambda *_, **__: {"results": [1]})
    assert main([*SMALL_BENCH, "-o", str(tmp_path / "r.json")]) == code
    assert "so far is lost: cannot write r.json: No space left" in caplog.text
    assert capsys.readouterr().err.endswith(f"hpfem: {word}\n")


def test_a_signal_ends_a_process_with_its_code():
    stop = "os.kill(os.getpid(), signal.SIGTERM)"
    script = f"import os, signal, sys; from hpfem.cli import info, main; info.read_mesh = lambda *_, **__: {stop}"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; sys.exit(main(['info', 'x']))"], cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, b"", b"hpfem: terminated\n")


def test_a_long_bench_is_saved_on_the_way(capsys, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("hpfem.cli.output.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("hpfem.cli.output.write_json", lambda path, result: written.append(result))
    run(capsys, *SMALL_BENCH, "-o", tmp_path / "results.json")
    assert [result["complete"] for result in written] == [False] * (len(written) - 1) + [True]
    sizes = [len(result["results"]) for result in written]
    assert len(sizes) > 3 and sizes == sorted(sizes)


def test_the_table_of_a_bench_has_a_line_per_strategy(capsys):
    table, gains = run(capsys, *SMALL_BENCH).split("times as fast collocated")
    assert re.search(r"^hex +affine +(sumfac|stdmat)  .*(no difference|\d \([\d.]+-[\d.]+\))$", gains, re.M)
    lines = [line.split()[:4] for line in table.splitlines() if line.startswith(("hex", "tri"))]
    assert len(lines) == 2 * 2 * 2 == len({tuple(line) for line in lines}) and {line[3] for line in lines} == {"auto"}
    both = run(capsys, *SMALL_BENCH, "--algorithm", "both", "--strategies", "sumfac", "--geometry", "affine")
    both = both.split("times as fast collocated")[0]
    lines = [line.split()[:4] for line in both.splitlines() if line.startswith(("hex", "tri"))]
    assert {line[3] for line in lines} == {"collocated", "noncollocated"}
    small = ("--shapes", "hex", "--orders", "1:2", "--dofs", "1e3", "--geometry", "deformed")
    text = run(capsys, "bench", "--quick", "--backend", "cpu", *small)
    assert re.findall(r"(\d+) skipped: (.*)", text) == [("10", text.partition("10 skipped: ")[2].strip())]
    assert "10 skipped: elements are not affine (dense, kronecker, orthogonal); fused kernels" in text


def test_nothing_measured_is_an_error(capsys, tmp_path, monkeypatch):
    def picky(space, **options):
        raise hp.NotSuitable("too tall")

    monkeypatch.setattr("hpfem.benchmarks.problems.BENCHMARKS", {"bk3": picky})
    assert "too tall" in refused(capsys, *SMALL_BENCH, "-o", tmp_path / "results.json")
    assert list(tmp_path.iterdir()) == []


def shell(command, before="true", **environment):
    """Run the command line in a shell: exit code, standard output and error."""
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {before}; {sys.executable} -m hpfem {command}"],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


def test_closed_pipe_is_no_error_and_the_work_is_done(tmp_path):
    assert shell(f"info {MIXED} | true") == (0, "", "")
    assert shell(f"compare {FLAT} --order 2 --repeats 1 -o {tmp_path} | true") == (0, "", "")
    assert {path.name for path in tmp_path.iterdir()} == {"best.png", "compare.json", "compare.png"}


def test_closed_output_is_one_line():
    assert shell(f"info {MIXED} >&-") == (
        2,
        "",
        "hpfem: error: standard output is closed; send it to a file, or to /dev/null\n",
    )
    code, out, err = shell(f"info {MIXED} >/dev/full")
    assert (code, out, err) == (2, "", "hpfem: error: standard output cannot be written: No space left on device\n")
    code, out, err = shell(f"info {MIXED} 2>&-")
    assert code == 0 and "130 cells" in out
    assert shell("info absent.msh 2>&-") == (2, "", "")


def test_pipes_are_one_line():
    for command in (f"info /dev/stdin < <(cat {MIXED})", f"info <(cat {MIXED})"):
        code, out, err = shell(command)
        assert code == 2 and out == "" and err.count("\n") == 1 and "this is a pipe; save" in err


@pytest.mark.parametrize("threads", ["²", "0", "-1", "1e3", "four", "9" * 5000, "٣", " 2", "1_0"])
def test_odd_numbers_of_threads(monkeypatch, threads):
    monkeypatch.setenv("HPFEM_NUM_THREADS", threads)
    with pytest.raises(hp.ArgumentError, match="HPFEM_NUM_THREADS is .*it must be a positive integer") as caught:
        thread_count()
    assert len(str(caught.value)) < 150


def test_an_odd_cache_folder_is_one_line():
    code, out, err = shell(f"apply {MIXED} --order 1", HPFEM_CACHE_DIR="/dev/null")
    assert code == 0 and "Helmholtz" in out and err.count("\n") == 1
    assert re.search("not kept: /dev/null/[a-z]+: Not a directory; set HPFEM_CACHE_DIR to a folder", err)


def test_lack_of_memory_is_one_line(capsys, monkeypatch):
    def greedy(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr("hpfem.cli.info.read_mesh", greedy)
    assert "not enough memory" in refused(capsys, "info", MIXED)


def test_an_output_folder_without_permission_is_refused(capsys, tmp_path, monkeypatch):
    def closed(dir):
        raise PermissionError(13, "Permission denied", str(dir))

    monkeypatch.setattr("hpfem.cli.options.tempfile.TemporaryFile", closed)
    assert "cannot write to the folder" in refused(capsys, "bench", "-o", tmp_path / "r.json")
