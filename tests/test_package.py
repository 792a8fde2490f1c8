"""What an installation holds, from a wheel in an empty folder and from the repository root.

The wheel is pure Python: the packages, the CUDA headers, the measured speeds and `py.typed`. The source distribution
holds what builds it (MANIFEST.in).
"""

import ast
import itertools
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

import hpfem
from tests.installed import lay_out
from tests.test_floors import MODULES, imports

ROOT = Path(__file__).resolve().parent.parent
WHERE = "import hpfem, hpfem.shapes, hpfem.shapes.errors as e; print(hpfem.__file__); print(e.__file__)"


def run(*command, cwd, **environment):
    """Run a command without this process's Python paths; return its standard output, fail with its errors."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "COV"))}
    result = subprocess.run(command, cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution, built from a copy so that no build folder appears in the checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("sdist")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    for name in ("hpfem", "shapes", "tests", "benchmarks"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    build = "import sys, setuptools.build_meta as backend; backend.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, str(out), cwd=source)
    [path] = out.glob("hpfem-*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel, built from the source distribution: nothing is missing there."""
    out = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(out), str(sdist), cwd=out)
    [path] = out.glob("hpfem-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A Python with the wheel installed, which finds the dependencies where this one does."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    [purelib] = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).split()
    # Folders named in a .pth file come after the wheel's own, and .pth files inside them are not read: an editable
    # install of hpfem among the dependencies stays out.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (Path(purelib) / "dependencies.pth").write_text("\n".join(folders) + "\n")
    options = ("--no-deps", "--no-index", "--quiet", "--disable-pip-version-check", "--ignore-installed")
    run(sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel), cwd=folder)
    return python


def test_wheel_holds_every_source_file_and_nothing_else(wheel):
    suffixes = {".py", ".h", ".cu", ".json", ".typed"}
    expected = set()
    for folder, package in (("hpfem", "hpfem"), ("shapes", "hpfem/shapes")):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in suffixes or path.name == "py.typed":
                expected.add(f"{package}/{path.relative_to(ROOT / folder).as_posix()}")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert inside == expected
    assert {"hpfem/py.typed", "hpfem/shapes/py.typed", "hpfem/shapes/errors.py"} <= inside


def test_sdist_holds_what_builds_the_wheel_and_no_more(sdist, wheel):
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    packages = {re.sub(r"^hpfem/shapes/", "shapes/", name) for name in inside}
    about = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "REFERENCES.md"}
    made = {name for name in names if name.startswith("hpfem.egg-info/")} | {"setup.cfg"}
    assert names - made == packages | about | {"pyproject.toml", "setup.py"}


def test_wheel_works_from_an_empty_folder(installed, tmp_path):
    package, shapes = map(Path, run(installed, "-c", WHERE, cwd=tmp_path).split())
    assert ROOT not in package.parents
    assert shapes.parent == package.parent / "shapes"


def test_wheel_works_from_the_repository_root(installed):
    package, shapes = map(Path, run(installed, "-c", WHERE, cwd=ROOT).split())
    assert package == ROOT / "hpfem" / "__init__.py"
    assert shapes == ROOT / "shapes" / "errors.py"


@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_this_installation_uses_the_checkout(where, tmp_path):
    cwd = ROOT if where == "root" else tmp_path
    package, shapes = map(Path, run(sys.executable, "-c", WHERE, cwd=cwd).split())
    assert package == ROOT / "hpfem" / "__init__.py"
    assert shapes == ROOT / "shapes" / "errors.py"


@pytest.mark.parametrize("which", ["installed", "this"])
@pytest.mark.parametrize("where", ["root", "elsewhere"])
def test_python_m_hpfem(installed, which, where, tmp_path):
    python = installed if which == "installed" else sys.executable
    assert "usage: hpfem" in run(python, "-m", "hpfem", "--help", cwd=ROOT if where == "root" else tmp_path)


@pytest.mark.parametrize("which", ["installed", "this"])
def test_python_m_pytest_from_the_root(installed, which):
    python = installed if which == "installed" else sys.executable
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert "passed" in run(python, "-m", "pytest", *quiet, "tests/test_errors.py", cwd=ROOT)


def test_some_tests_pass_outside_the_checkout(installed, tmp_path):
    """On every shape, basis and backend, of one order: what a wheel lacks is a file. `make package` runs all."""
    lay_out(tmp_path)
    some = (
        "tests/shapes/test_basis.py",
        "tests/mesh/test_box.py",
        "tests/operators/test_exactness.py",
        "tests/test_floors.py",
    )
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "-k", "P2 or box or floors")
    said = run(installed, "-m", "pytest", *options, *some, cwd=tmp_path)
    assert "passed" in said and f"hpfem from {installed.parent.parent}" in said


def test_command_is_installed(installed, tmp_path):
    assert "usage: hpfem" in run(installed.with_name("hpfem"), "--help", cwd=tmp_path)


def test_version_and_metadata(installed, tmp_path):
    code = "import hpfem, importlib.metadata as m; print(hpfem.__version__, m.version('hpfem'))"
    ours, metadata = run(installed, "-c", code, cwd=tmp_path).split()
    assert ours == metadata


def test_citation_is_complete():
    """What version 1.2.0 of the format requires, and the version of the package."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["title"].startswith("hpfem") and citation["message"] and citation["authors"][0]["name"]
    assert citation["version"] == hpfem.__version__ and citation["license"] == "MIT"


def test_everything_imported_is_declared():
    """Each top-level import of hpfem is the standard library's, a dependency's, or an extra's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.match(r"[\w-]+", requirement).group() for requirement in requirements}
    distributions = {"cupy": "cupy-cuda12x", "cupyx": "cupy-cuda12x", "vtkmodules": "vtk"}
    for module, path in MODULES.items():
        for target in imports(ast.parse(path.read_text(encoding="utf-8")), module, path.name == "__init__.py"):
            name = target.split(".")[0]
            if name not in sys.stdlib_module_names and name != "hpfem":
                assert distributions.get(name, name) in declared, f"{module} imports {name}, which pyproject.toml lacks"


def test_rarely_used_modules_are_not_imported():
    """Importing hpfem takes as long as what it imports."""
    heavy = "matplotlib pyvista vtkmodules rich meshio cupy llvmlite"
    heavy += " scipy.special scipy.spatial urllib.request http.client"
    script = f"import sys, hpfem\nprint([name for name in {heavy.split()} if name in sys.modules])"
    assert run(sys.executable, "-c", script, cwd=ROOT).strip() == "[]"
    command = "import sys, hpfem.cli\nprint('matplotlib' in sys.modules)"
    assert run(sys.executable, "-c", command, cwd=ROOT).strip() == "False"


def test_only_the_shapes_are_found_beside_the_package():
    script = "import hpfem.shapes.tet\ntry:\n    import hpfem.tests\nexcept ModuleNotFoundError:\n    print('none')"
    assert run(sys.executable, "-c", script, cwd=ROOT).strip() == "none"
