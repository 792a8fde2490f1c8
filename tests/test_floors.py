"""The house: imports point down only, no branching on a shape above shapes/, no folder with one file."""

import ast
import sys
from pathlib import Path

import pytest

import hpfem
from hpfem import shapes

ROOT = Path(__file__).resolve().parent.parent
# Where the package is: in the checkout, or where a wheel was installed.
PACKAGE, SHAPES = (Path(package.__file__).resolve().parent for package in (hpfem, shapes))

# From the ground up. A module may import what stands below it and what stands on its own floor.
FLOORS = [
    {"shapes"}, {"errors", "support", "version"}, {"memory"}, {"geometry"}, {"mesh"}, {"forms"}, {"backends"},
    {"tuning"}, {"space"}, {"vtu", "checkpoint", "view"}, {"operators"}, {"assembly", "solvers", "jax", "torch"},
    {"benchmarks", "plots"}, {"cli"},
]  # fmt: skip
HEIGHT = {name: height for height, floor in enumerate(FLOORS) for name in floor}
ROOF = len(FLOORS)  # hpfem/__init__.py and hpfem/__main__.py

SHAPE_NAMES = {"segment", "quad", "tri", "hex", "prism", "pyramid", "tet"}
SHAPES_MAY_IMPORT = {"numpy", "scipy"}


def modules():
    """Pairs (dotted name, file) of every module of the distribution."""
    for folder, package in ((PACKAGE, "hpfem"), (SHAPES, "hpfem.shapes")):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *parts)).removesuffix(".__init__"), path


MODULES = dict(modules())
ABOVE_SHAPES = {name: path for name, path in MODULES.items() if not name.startswith("hpfem.shapes")}


def height(module):
    """Floor of a dotted name inside hpfem."""
    parts = module.split(".")
    return ROOF if len(parts) == 1 or parts[1] == "__main__" else HEIGHT[parts[1]]


def imports(tree, module, is_package):
    """Dotted names that a module imports, relative ones made absolute; `from a import b` gives a.b."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def violations(module, source, is_package=False):
    """What is wrong with the imports of a module."""
    found = []
    for target in imports(ast.parse(source), module, is_package):
        parts = target.split(".")
        if target == "functools.cached_property" and module != "hpfem.shapes.cached":
            found.append(f"{module} imports {target}: hpfem.shapes.cached has the one that threads can share")
        if module.startswith("hpfem.shapes") and parts[0] != "hpfem":
            standard = parts[0] in sys.stdlib_module_names
            if not standard and parts[0] not in SHAPES_MAY_IMPORT:
                found.append(f"{module} imports {target}: shapes/ knows NumPy and SciPy only")
        if parts[0] != "hpfem":
            continue
        known = len(parts) > 1 and parts[1] in HEIGHT
        if (HEIGHT[parts[1]] if known else ROOF) > height(module):
            found.append(f"{module} imports {target}, which stands above it")
    return found


def compares_shape(source):
    """Lines of a source that branch on which shape something is."""
    lines = []

    def names_shape(node):
        if isinstance(node, ast.Constant):
            return node.value in SHAPE_NAMES
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return any(names_shape(element) for element in node.elts)
        if isinstance(node, ast.Attribute):
            owner = node.value
            owner_name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            is_name = node.attr == "name" and "shape" in owner_name
            return is_name or (owner_name == "shapes" and node.attr in SHAPE_NAMES)
        return isinstance(node, ast.Name) and node.id in SHAPE_NAMES - {"hex"}

    def looks_up(node):
        """`shape.name in table`: what differs between shapes stands in a table, as it should."""
        table = node.comparators[0]
        return isinstance(node.ops[0], ast.In | ast.NotIn) and isinstance(table, ast.Name | ast.Attribute)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and not looks_up(node):
            if any(names_shape(part) for part in (node.left, *node.comparators)):
                lines.append(node.lineno)
        elif isinstance(node, ast.MatchValue) and names_shape(node.value):
            lines.append(node.value.lineno)
    return lines


def test_the_modules_were_found():
    assert "hpfem.errors" in MODULES
    assert "hpfem.shapes.errors" in MODULES


def test_imports_point_down():
    for module, path in MODULES.items():
        assert violations(module, path.read_text(encoding="utf-8"), path.name == "__init__.py") == []


def test_no_branching_on_a_shape():
    found = {module: compares_shape(path.read_text(encoding="utf-8")) for module, path in ABOVE_SHAPES.items()}
    assert {module: lines for module, lines in found.items() if lines} == {}


@pytest.mark.parametrize("folder", [PACKAGE, SHAPES, *(ROOT / name for name in ("meshes", "examples", "tests"))])
def test_no_folder_with_one_file(folder):
    folders = [path for path in folder.rglob("*") if path.is_dir() and path.name != "__pycache__"]
    for path in [folder, *folders]:
        inside = [entry for entry in path.iterdir() if entry.name not in {"__init__.py", "__pycache__", "py.typed"}]
        assert len(inside) != 1, f"{path} holds only {inside[0].name}"


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hpfem.mesh.io.reader", "from hpfem.operators import Mass"),
        ("hpfem.mesh.io.reader", "from ...operators import Mass"),
        ("hpfem.geometry.block_geometry", "def f():\n    from hpfem import cli"),
        ("hpfem.space.space", "import hpfem as hp"),
        ("hpfem.space.space", "from hpfem import Mesh"),
        ("hpfem.shapes.basis", "import matplotlib.pyplot"),
        ("hpfem.shapes.basis", "from hpfem.errors import MeshError"),
    ],
)
def test_an_import_that_points_up_is_found(module, source):
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("hpfem.mesh.io.reader", "from hpfem.shapes import tet\nfrom . import topology\nimport meshio"),
        ("hpfem.space.space", "from hpfem.space.field import Field"),
        ("hpfem.cli", "from hpfem import plots\nfrom hpfem.version import __version__"),
        ("hpfem", "from hpfem.operators import Mass"),
        ("hpfem.shapes.basis", "import math\nfrom .errors import ArgumentError\nfrom scipy import special"),
    ],
)
def test_an_import_that_points_down_is_allowed(module, source):
    assert violations(module, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "if shape.name == 'x': pass",
        "y = 1 if block.shape.name in {'hex', 'quad'} else 2",
        "if kind == 'pyramid': pass",
        "if kind in ('tri', 'tet'): pass",
        "if shape is tet: pass",
        "if shape == shapes.hex: pass",
        "match kind:\n    case 'prism': pass",
    ],
)
def test_branching_on_a_shape_is_found(source):
    assert compares_shape(source)


@pytest.mark.parametrize(
    "source",
    ["if a.shape == (3, 2) and shape != b.shape and name == 'affine': pass", "if shape.name not in TYPES: pass"],
)
def test_comparing_array_shapes_and_tables_are_allowed(source):
    assert compares_shape(source) == []
