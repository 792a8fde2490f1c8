"""Write data/two_blocks.exo by netCDF4 alone: a hex and two prisms in two blocks, two side sets, a node set.

Needs netCDF4 (pip install netCDF4): python -m tests.mesh.record_exodus_file
"""

from pathlib import Path

import netCDF4
import numpy as np

POINTS = [(x, y, z) for x in (0, 1, 2) for z in (0, 1) for y in (0, 1)]


def names(data: netCDF4.Dataset, name: str, dimension: str, texts: list[str]) -> None:
    """A list of names."""
    variable = data.createVariable(name, "S1", (dimension, "len_string"))
    for row, text in enumerate(texts):
        variable[row] = np.frombuffer(text.encode().ljust(33, b"\0"), "S1")


def members(data: netCDF4.Dataset, kind: str, dimension: str, ids: list[int], texts: list[str]) -> None:
    """Numbers, states and names of blocks or sets."""
    variable = data.createVariable(f"{kind}_prop1", "i4", (dimension,))
    variable.setncattr("name", "ID")
    variable[:] = ids
    data.createVariable(f"{kind}_status", "i4", (dimension,))[:] = 1
    names(data, f"{kind}_names", dimension, texts)


def main() -> None:
    """Write the file."""
    data = netCDF4.Dataset(Path(__file__).with_name("data") / "two_blocks.exo", "w", format="NETCDF3_64BIT_OFFSET")
    data.api_version = data.version = np.float32(5.1)
    data.floating_point_word_size, data.file_size, data.title = np.int32(8), np.int32(1), "two blocks"
    sizes = {"len_string": 33, "len_line": 81, "four": 4, "num_dim": 3, "num_nodes": 12, "num_elem": 3}
    sizes |= {"num_el_blk": 2, "num_el_in_blk1": 1, "num_nod_per_el1": 8, "num_el_in_blk2": 2, "num_nod_per_el2": 6}
    sizes |= {"num_side_sets": 2, "num_side_ss1": 1, "num_side_ss2": 1, "num_node_sets": 1, "num_nod_ns1": 2}
    for name, size in sizes.items():
        data.createDimension(name, size)
    data.createDimension("time_step", None)
    data.createVariable("time_whole", "f8", ("time_step",))
    for axis, name in enumerate("xyz"):
        data.createVariable(f"coord{name}", "f8", ("num_nodes",))[:] = [point[axis] for point in POINTS]
    names(data, "coor_names", "num_dim", list("xyz"))
    square = [(0, 0), (1, 0), (1, 1), (0, 1)]
    hexes = [[1 + POINTS.index((i + x, y, z)) for z in (0, 1) for x, y in square] for i in (0, 1)]
    prisms = [[hexes[1][k] for k in (0, 1, 3, 4, 5, 7)], [hexes[1][k] for k in (1, 2, 3, 5, 6, 7)]]
    members(data, "eb", "num_el_blk", [10, 20], ["left", ""])
    for number, (kind, cells) in enumerate((("HEX8", hexes[:1]), ("WEDGE6", prisms)), start=1):
        variable = data.createVariable(f"connect{number}", "i4", (f"num_el_in_blk{number}", f"num_nod_per_el{number}"))
        variable.elem_type = kind
        variable[:] = np.array(cells)
    members(data, "ss", "num_side_sets", [1, 2], ["in", "out"])
    for number, (element, side) in enumerate(((1, 4), (3, 1)), start=1):
        data.createVariable(f"elem_ss{number}", "i4", (f"num_side_ss{number}",))[:] = element
        data.createVariable(f"side_ss{number}", "i4", (f"num_side_ss{number}",))[:] = side
    members(data, "ns", "num_node_sets", [7], ["foot"])
    data.createVariable("node_ns1", "i4", ("num_nod_ns1",))[:] = [1, 2]
    data.close()


if __name__ == "__main__":
    main()
