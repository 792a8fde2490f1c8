"""Each cell of the tables of docs/formats.md is what comes of a file."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hpfem.errors import MeshError
from hpfem.mesh import read_mesh
from meshes import generate
from tests.mesh import formats_table
from tests.mesh.format_files import DATA, ORDERS
from tests.mesh.formats_table import FORMATS, HEADS, PAGE, Format

GMSH = generate.import_gmsh()
MISSING = r"is read by means of gmsh: pip install gmsh|gmsh cannot read it: OSError"


@cache
def page() -> tuple[dict[str, list[str]], ...]:
    """Both tables of the page: the cells of each row by the name of the format."""
    lines = PAGE.read_text(encoding="utf-8").split(formats_table.BEGIN)[1].split(formats_table.END)[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
    starts = [place for place, row in enumerate(rows) if row[0] == "Format"]
    tables = rows[: starts[1]], rows[starts[1] :]
    assert tuple(tuple(table[0]) for table in tables) == HEADS
    return tuple({row[0]: row[1:] for row in table[2:]} for table in tables)


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with formats_table.quick():
        yield


def test_rows_of_the_page() -> None:
    cells, names = page()
    assert [*cells] == [*names] == [row.name for row in FORMATS]
    for row in FORMATS:
        assert cells[row.name][0] == f"`{row.suffix}`"
        assert cells[row.name][-1] == (row.needs or "–")


def without_gmsh(row: Format, order: str, named: bool, folder: Path) -> None:
    """The file is refused; one that gmsh writes is a recorded one."""
    path = folder / f"x{row.suffix}"
    shape, kind = next(iter(row.cells[order].items()))
    if row.suffix == ".cgns":
        path = DATA / "cases" / "second-order" / "hex20.cgns"
    else:
        row.write(path, formats_table.case(shape, order), kind, named)
    with pytest.raises(MeshError, match=MISSING):
        read_mesh(path)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_cells(row: Format, order: str, tmp_path: Path) -> None:
    said = page()[0][row.name][1 + ORDERS.index(order)]
    if row.needs == "gmsh" and GMSH is None and row.cells.get(order):
        without_gmsh(row, order, False, tmp_path)
    else:
        assert formats_table.cells(row, order, tmp_path) == said


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_names(row: Format, tmp_path: Path) -> None:
    if row.needs == "gmsh" and GMSH is None:
        without_gmsh(row, "1", True, tmp_path)
    else:
        assert formats_table.names(row, tmp_path) == page()[1][row.name]


@pytest.mark.parametrize("suffix", [".neu", ".cas", ".cdb", ".k", ".mphtxt", ".msh"])
def test_formats_that_are_not_read(suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"x{suffix}").write_text('(0 "of another program")\n(2 3)\n')
    with pytest.raises(MeshError, match=re.escape(f"x{suffix}: ") + ".*(cannot be read|is not)"):
        read_mesh(tmp_path / f"x{suffix}")
