"""The tasks of `examples/tasks` run and assert their results, and the table counts their lines."""

import importlib.util
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT / "examples" / "tasks"


def table():
    """Module of the table."""
    spec = importlib.util.spec_from_file_location("examples_tasks_table", TASKS / "table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a script in a folder with the meshes."""
    (tmp_path / "meshes").symlink_to(ROOT / "meshes")
    monkeypatch.chdir(tmp_path)
    return lambda path: runpy.run_path(str(path), run_name="__main__")


@pytest.mark.parametrize("task", sorted(path.stem for path in TASKS.glob("[0-9]*.py")))
def test_a_task(task, run, tmp_path):
    run(TASKS / f"{task}.py")
    written = {"06_vtu": ["solution.vtu"], "15_picture": ["solution.png"]}.get(task, [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["meshes", *written]


@pytest.mark.skipif(importlib.util.find_spec("ngsolve") is None, reason="ngsolve is absent")
@pytest.mark.parametrize("task", sorted(path.stem for path in (TASKS / "ngsolve").glob("*.py")))
def test_the_same_in_ngsolve(task, run):
    run(TASKS / "ngsolve" / f"{task}.py")


def test_every_task_is_in_the_table():
    page = (TASKS / "README.md").read_text(encoding="utf-8")
    assert table().table() in page
    own, theirs = ({path.stem for path in folder.glob("[0-9]*.py")} for folder in (TASKS, TASKS / "ngsolve"))
    assert len(own) == 14 and own - theirs == set(table().WITHOUT)


def test_lines_are_counted_as_the_table_says():
    source = '"""What."""\n\nimport a  # b\n\n# c\nx = [\n    1,\n]\n\n\ndef f(x):\n    """What."""\n    return 1\n'
    assert table().lines_of_code(source + "\n\nassert (\n    x\n)\n") == 6
    assert table().lines_of_code("for i in x:\n    if i:\n        f()\n    else:\n        g()\n") == 5
