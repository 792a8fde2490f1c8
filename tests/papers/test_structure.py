"""The papers' experiments: what they import, that nothing imports the variants, and that hpfem's rules hold."""

import ast
import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.papers import EXPERIMENTS
from tests.test_docstrings import incomplete
from tests.test_floors import MODULES, PACKAGE, ROOT, compares_shape, imports

PAPERS = "benchmarks.papers"
VARIANTS = f"{PAPERS}.variants"
FOLDER = ROOT / "benchmarks" / "papers"
SOURCES = {
    ".".join((PAPERS, *path.relative_to(FOLDER).with_suffix("").parts)).removesuffix(".__init__"): path
    for path in sorted(FOLDER.rglob("*.py"))
}
LIBRARIES = {"cupy", "matplotlib", "numpy", *sys.stdlib_module_names}
# Folder -> the experiments that go with it.
OF_FOLDERS = {
    "axhelm": {"cao-variants"},
    "ladder": {
        f"swirydowicz-ladder-{problem}-{threads}" for problem in ("bp10", "bp35", "bp30") for threads in ("2d", "3d")
    },
    "quads": {"eichstaedt-memory"},
    "stiffness": {"roget-gemm"},
    "sumfac": {"xing-algorithms"},
}


def imported(module, path):
    """Dotted names that a module imports."""
    return set(imports(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py"))


def beyond(names):
    """Those that an experiment may not import."""
    known = (PAPERS, "hpfem.", "benchmarks.script.")
    return {name for name in names if not name.startswith(known) and name.split(".")[0] not in LIBRARIES}


def test_experiments_import_hpfem_and_themselves():
    assert f"{PAPERS}.experiments.cao" in SOURCES
    assert {module: found for module, path in SOURCES.items() if (found := beyond(imported(module, path)))} == {}
    assert beyond({"tests.samples", "benchmarks.flow", "scipy.sparse", "hpfem.mesh.box"}) == {
        *("tests.samples", "benchmarks.flow", "scipy.sparse")
    }


def test_hpfem_imports_no_experiment():
    assert [
        module for module, path in MODULES.items() if "benchmarks" in {n.split(".")[0] for n in imported(module, path)}
    ] == []


def test_nothing_imports_the_variants():
    for module, path in SOURCES.items():
        if not module.startswith(VARIANTS):
            assert not [name for name in imported(module, path) if name.startswith(VARIANTS)], module


def test_they_branch_on_no_shape_and_are_documented():
    for module, path in SOURCES.items():
        source = path.read_text(encoding="utf-8")
        assert compares_shape(source) == [], module
        assert list(incomplete(ast.parse(source), lambda name: False)) == [], module


def test_every_folder_is_known():
    folders = (FOLDER / "variants").glob("*/__init__.py")
    assert {folder.parent.name for folder in folders} == set(OF_FOLDERS)


@pytest.mark.parametrize("folder", ["variants", *OF_FOLDERS])
def test_without_a_folder_its_experiments_are_gone(folder, tmp_path):
    """Deleting all variants, or one of them, removes experiments and breaks nothing."""
    papers = tmp_path / "benchmarks" / "papers"
    shutil.copytree(FOLDER, papers, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "script.py"):
        shutil.copy(FOLDER.parent / name, papers.parent)
    shutil.rmtree(papers / ("variants" if folder == "variants" else f"variants/{folder}"))
    listed = subprocess.run(
        [sys.executable, str(papers), "list", "--json"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    assert listed.returncode == 0, listed.stderr
    gone = set(EXPERIMENTS) - {entry["id"] for entry in json.loads(listed.stdout)}
    alone = {"xing-stdmat", "xing-thread", "eichstaedt-thread"}
    assert gone == (OF_FOLDERS[folder] if folder in OF_FOLDERS else alone.union(*OF_FOLDERS.values()))
