"""README and ARCHITECTURE are true: commands exist, the snippet runs, files are there, the floors are those tested."""

import argparse
import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from hpfem.cli import main
from hpfem.view.solid import missing_opengl
from tests.pages import ROOT, blocks, printed, workplace
from tests.test_floors import FLOORS, PACKAGE, SHAPES

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


COMMANDS = [
    shlex.split(line, comments=True)
    for block in blocks(README + GUIDE, "sh")
    for line in block.splitlines()
    if line.strip()
]


class Parsed(Exception):
    """Raised where a command would start to work."""


def parse(arguments, monkeypatch):
    """Let `hpfem` parse its arguments, and no more."""
    parse_args = argparse.ArgumentParser.parse_args

    def stop(self, *args, **kwargs):
        parse_args(self, *args, **kwargs)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Parsed):
        main(arguments)


def test_the_two_commands_are_there():
    assert [command for command in COMMANDS if command[0] == "make"] == [["make", "demo"], ["make", "test"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_of_the_readme_exist(command, monkeypatch):
    if command[0] == "make":
        assert re.search(rf"^{command[1]}:", MAKEFILE, flags=re.MULTILINE)
    else:
        assert command[0] == "hpfem"
        parse(command[1:], monkeypatch)


def test_the_demo_is_an_example():
    assert "$(BIN)/python examples/demo.py --output $(OUT)" in MAKEFILE  # which tests/test_examples.py runs


# What makes long commands short: options given again, of which the last counts.
CHEAP = {
    "compare": ["--order", "2", "--repeats", "1"],
    "tune": ["--order", "2", "--seconds", "1"],
    "bench": ["--shapes", "hex,tet", "--orders", "1,2", "--dofs", "1000", "--repeats", "1", "--quick"],
}


def written_by(command):
    """Files or folders that a command is told to write."""
    return [Path(command[i + 1]) for i, argument in enumerate(command[:-1]) if argument == "-o"]


def test_commands_do_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "meshes").symlink_to(ROOT / "meshes")
    done = [command for command in COMMANDS if command[0] == "hpfem"]
    if missing_opengl():  # which pictures of solids need
        done = [command for command in done if "gradient.png" not in command]
    for command in done:
        assert main([*command[1:], *CHEAP.get(command[1], [])]) == 0, command
        out, err = capsys.readouterr()
        assert out and "error" not in err, command
        assert all(path.exists() for path in written_by(command)), command
    assert {command[1] for command in done} >= {"info", "apply", "compare", "bench", "plot"}
    # In the end there are pictures of a bench.
    assert {"bk3_best.png", "bk3_by_order.png"} <= {path.name for path in tmp_path.rglob("*.png")}


def test_an_unknown_command_is_noticed(monkeypatch):
    with pytest.raises(SystemExit):
        parse(["fly", "meshes/cube_mixed.msh"], monkeypatch)


def test_meshes_in_commands_exist():
    for argument in (argument for command in COMMANDS for argument in command):
        assert not argument.endswith(".msh") or (ROOT / argument).is_file(), argument


def test_ci_runs_the_second_command():
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"


def test_extras_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [sentence] = re.findall(r"extras: (.*?)\)", README, flags=re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", sentence)) <= set(extras)
    named = re.findall(r"\(extras? ([^)]*)\)", ARCHITECTURE)
    assert {extra for names in named for extra in re.findall(r"`([\w-]+)`", names)} <= set(extras)


def test_dependencies_are_justified():
    for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        name = re.match(r"[\w-]+", requirement).group()
        assert name in ARCHITECTURE.split("## Dependencies")[1].lower()


@pytest.mark.skipif(importlib.util.find_spec("pyvista") is None, reason="pyvista is absent")
def test_the_snippets_print_what_they_say(tmp_path):
    if missing_opengl():
        pytest.skip("OpenGL is absent")
    with workplace(tmp_path):
        outputs = [printed(snippet, "README.md") for snippet in blocks(README + GUIDE, "python")]
    numbers = [[float(word) for word in output.split()] for output in outputs]
    [[temperature, heat], [value, square, energy], [error, iterations], [of_gmres], [of_heat], [volume]] = numbers
    assert (temperature, heat) == pytest.approx((0.43959, 6.42514), rel=2e-5)
    assert (value, square, energy) == pytest.approx((3 / 4, 25 / 36, 85 / 36), rel=1e-10)
    assert [path.name for path in tmp_path.glob("*.png")] == ["temperature.png"]
    assert of_heat == pytest.approx(9e-7, rel=0.1)
    assert volume == pytest.approx(1, rel=1e-12)
    assert error == pytest.approx(4.4e-7, rel=0.02) and iterations == pytest.approx(12, abs=2)
    assert of_gmres == pytest.approx(13, abs=2)


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "examples/README.md", "examples/tasks/README.md"])
def test_files_that_are_named_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"(?:\]\(|<img src=\")([^)#\"]+)", text) if not link.startswith("http")]
    paths = re.findall(r"`((?:hpfem|shapes|meshes|examples|tests|benchmarks)/[\w./]*)`", text)
    assert links or paths
    above = {"hpfem": PACKAGE.parent, "shapes": SHAPES.parent}
    named = [above.get(path.split("/")[0], ROOT) / path for path in paths]
    for path in [*((ROOT / name).parent / link for link in links), *named]:
        assert path.exists(), path


def test_architecture_has_the_tested_floors():
    rows = re.findall(r"^\| (`.*?) \|", ARCHITECTURE, flags=re.MULTILINE)
    floors = [{name.rstrip("/") for name in re.findall(r"`([\w/.]+)`", row)} - {"hpfem.shapes"} for row in rows]
    present = {path.stem for path in PACKAGE.iterdir()} | {"shapes"}
    assert floors == [floor & present for floor in FLOORS if floor & present]
