"""Kernels that only experiments need: right, and missed by nobody."""

import ast
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from hpfem.backends.vectors import HOST_VECTORS
from hpfem.benchmarks.cases import BOX_SHAPES
from hpfem.benchmarks.problems import BENCHMARKS
from hpfem.benchmarks.tiled import few_elements
from hpfem.errors import NotSuitable
from hpfem.operators import Laplacian
from hpfem.reproduction import EXPERIMENTS
from hpfem.reproduction.blocks import Elements, VariantElements
from hpfem.reproduction.variants import grouped
from hpfem.reproduction.variants.stiffness import experiments as stiffness
from hpfem.space import Space
from tests.backends.cuda.host_kernels import Case
from tests.backends.cuda.test_host import check
from tests.test_floors import MODULES, ROOT, imports

VARIANTS = "hpfem.reproduction.variants"


def error(name, build, *what, **options):
    """Largest relative difference of a variant to NumPy's result, on numbers of elements with and without a tail."""
    block = VariantElements(name, build, *what, (1,), **options)
    return np.max([block.build("auto", "auto", n).error() for n in (1, 8, 37)])


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("shape", BOX_SHAPES)
@pytest.mark.parametrize("benchmark_name", ["bk1", "bk3"])
def test_groups_of_elements(benchmark_name, shape, order):
    what = BENCHMARKS[benchmark_name], shape, order, "deformed", "cpu"
    assert error(grouped.NAME, grouped.GroupedMatrices, *what) < 1e-12


@pytest.mark.parametrize("order", range(1, 9))
@pytest.mark.parametrize("name", stiffness.VARIANTS)
def test_products(name, order):
    def build(problem):
        return stiffness.VARIANTS[name](problem, name, HOST_VECTORS)

    what = Laplacian, "hex", order, "deformed", "cpu"
    assert error(name, build, *what, basis="lagrange", quadrature="collocated") < 1e-12


def test_refusals():
    affine = Elements(BENCHMARKS["bk1"], "hex", 2, "affine", "cpu", (1,)).problem
    with pytest.raises(NotSuitable, match="curved elements only"):
        grouped.GroupedMatrices(affine)
    with pytest.raises(NotSuitable, match="the points are to be the nodes"):
        stiffness.ClassicalSum(
            Elements(Laplacian, "hex", 2, "deformed", "cpu", (1,)).problem, "classical", HOST_VECTORS
        )


def test_nothing_imports_the_variants():
    for module, path in MODULES.items():
        if not module.startswith(VARIANTS):
            found = imports(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py")
            assert not [name for name in found if name.startswith(VARIANTS)], module


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


def test_every_folder_is_known():
    folders = (ROOT / "hpfem" / "reproduction" / "variants").glob("*/__init__.py")
    assert {folder.parent.name for folder in folders} == set(OF_FOLDERS)


@pytest.mark.parametrize("folder", ["variants", *OF_FOLDERS])
def test_without_a_folder_its_experiments_are_gone(folder, tmp_path):
    """Deleting all variants, or one of them, removes experiments and breaks nothing."""
    at = tmp_path / "hpfem" / "reproduction" / ("variants" if folder == "variants" else f"variants/{folder}")
    for copied in ("hpfem", "shapes"):
        shutil.copytree(ROOT / copied, tmp_path / copied, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(at)
    command = [sys.executable, "-m", "hpfem", "reproduce", "list", "--json"]
    listed = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert listed.returncode == 0, listed.stderr
    gone = set(EXPERIMENTS) - {entry["id"] for entry in json.loads(listed.stdout)}
    alone = {"xing-grouped", "xing-thread", "eichstaedt-thread"}
    assert gone == (OF_FOLDERS[folder] if folder in OF_FOLDERS else alone.union(*OF_FOLDERS.values()))


def test_elements_beyond_the_registers(tmp_path, rng):
    """The GPU's kernel with an element to a thread, in the host's shim; without the option it refuses."""
    cases, kernels = [], []
    for shape, order, operator in (("quad", 7, "bk3"), ("quad", 10, "bk3"), ("tet", 4, "bk3"), ("hex", 3, "bk3")):
        made = BENCHMARKS[operator](
            Space(few_elements(shape, "deformed"), order, backend="numpy"), algorithm="noncollocated"
        )
        kernels.append(made.choices[0].kernel)
        cases.append(Case.of(kernels[-1].problem, f"case{len(cases)}", "spilling"))
        with pytest.raises(NotSuitable, match="numbers in a thread's registers"):
            Case.of(kernels[-1].problem, "other", "sumfac")
    check(cases, kernels, tmp_path, rng)
