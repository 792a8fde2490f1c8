"""Mesh files that other readers read wrongly: the volume and the names of each."""

from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import read_mesh
from tests.mesh.formats_table import quick
from tests.mesh.test_formats_table import GMSH, MISSING

DATA = Path(__file__).with_name("data")
# Files, their volume, their regions, and their boundaries and sets of points; or what their refusal says.
RIGHT = {
    "abaqus-elsets/A*": (3, "STEEL", ""), "abaqus-elsets/B*": (3, "COPPER", ""), "abaqus-elsets/C*": (3, "MIX", ""),
    "abaqus-elsets/D*": (3, "BRICK", ""), "abaqus-elsets/E*": (3, "ALL H W", ""), "abaqus-elsets/F*": (3, "G", ""),
    "abaqus-elsets/G*": (3, "STEEL W", ""), "abaqus-elsets/H*": (3, "STEEL", ""),
    "abaqus-elsets/I*": (3, "COPPER STEEL", ""), "abaqus-nodes/parts.inp": r"several \*PART or \*INSTANCE",
    "abaqus-nodes/*": (2, "", ""), "abaqus-nsets/plate.inp": (1, "PLATE", "LEFT RIGHT"),
    "abaqus-nsets/plate2.inp": (1, "PLATE", "ALLN"), "integer-data/*": (3, "", ""),
    "msh-names/latin1.msh": (1, "Körper", "Südseite"), "msh-names/utf8.msh": (1, "Körper", "Südseite"),
    "msh-names/negative_tag.msh": (1, "plate", "bottom"), "msh-names/no_groups.msh": (1, "", ""),
    "msh-names/names_without_tags.msh": (1, "", ""), "msh-names/numbers_only.msh": (1, "9", "7"),
    "msh-names/quote_in_name.msh": (1, "x, y; z", 'a "b" c'), "msh-names/version*": (0.5, "1", ""),
    "nastran/two_pids*": (1 / 3, "7 8", ""), "nastran/*": (1, "7", ""), "netgen/box.vol": (1, "block", "base default"),
    "netgen/*": (2, "fluid rod", "floor left right ring roof"),
    "second-order/pyramid13.vtk": "element 1 is a pyramid of order 1 with 13 nodes instead of 5",
    "second-order/pyramid13.cgns": "gmsh finds no elements in it",
    "second-order/pyramid13.unv": "gmsh finds no elements in it",
    "second-order/prism18.med": "meshio cannot read it as med: its reader does not know 'P18'",
    "second-order/pyramid13.su2": "element 1 of VTK type 14 has 14 numbers, not its nodes",
    "duct.su2": (3, "", "inlet outlet wall"), "vtu-unjoined/two.vtu": (2, "", ""), "vtu-unjoined/own.vtu": (1, "1", ""),
    "vtu-unjoined/apart.vtu": (1, "", ""), "z-noise/*": (1, "", ""), "two.med": (2, "copper steel", "cold hot"),
    "interface.msh": (2, "one two", "interface left right"),
}  # fmt: skip
VOLUMES = {"quad8": 4, "hex20": 8, "prism15": 1.0333333333, "prism18": 1.0333333333, "pyramid13": 1.3334222222}
BODIES = {".bdf": "1", ".vtk": "1", ".inp": "Volume1 body", ".su2": ""}  # others have the group "body"
TOLD = ("integer-data/*", "msh-names/latin1*", "msh-names/names_without*", "vtu-unjoined/*")
FILES = sorted(str(path.relative_to(DATA / "cases")) for path in (DATA / "cases").rglob("*.*"))


def right(name: str) -> tuple[float, str, str] | str:
    """What is right for a file."""
    found = next((own for pattern, own in RIGHT.items() if fnmatch(name, pattern)), None)
    if found is not None:
        return found
    path = Path(name)
    body = BODIES.get(path.suffix, "body")
    return VOLUMES[path.stem], body.replace("Volume", "Surface") if path.stem == "quad8" else body, ""


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with quick():
        yield


@pytest.mark.parametrize("name", FILES)
def test_volume_and_names(name: str, recwarn: pytest.WarningsRecorder) -> None:
    wanted = right(name)
    if GMSH is None and name.endswith((".cgns", ".unv")):
        wanted = MISSING
    if isinstance(wanted, str):
        with pytest.raises(MeshError, match=wanted):
            read_mesh(DATA / "cases" / name)
        return
    mesh = read_mesh(DATA / "cases" / name)
    volume, regions, others = wanted
    assert mesh.summary().volume == pytest.approx(volume, rel=2e-4 if "netgen" in name else 1e-9)
    assert " ".join(sorted(mesh.regions)) == regions
    assert " ".join(sorted({*mesh.boundaries, *mesh.point_sets})) == others
    told = [own for own in recwarn if issubclass(own.category, HpfemWarning)]
    assert len(told) == any(fnmatch(name, pattern) for pattern in TOLD)
    if name.startswith("second-order"):
        assert list(mesh.summary().orders.values()) == [(2,)]
