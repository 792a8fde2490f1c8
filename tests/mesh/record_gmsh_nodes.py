"""Record where gmsh puts the nodes of its cells: writes gmsh_nodes.json beside this file (needs the gmsh wheel).

Each cell is the bi-unit reference cell, raised to its order by gmsh itself; the node coordinates are kept as the
integers i of xi = 2 i / order - 1, flattened, in gmsh's order, with gmsh's number of the cell type.
"""

import json
from pathlib import Path

import gmsh
import numpy as np

CORNERS = {
    "segment": ("Line", [[-1], [1]]),
    "tri": ("Triangle", [[-1, -1], [1, -1], [-1, 1]]),
    "quad": ("Quadrangle", [[-1, -1], [1, -1], [1, 1], [-1, 1]]),
    "tet": ("Tetrahedron", [[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]),
    "hex": (
        "Hexahedron",
        [[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [1, 1, 1], [-1, 1, 1]],
    ),
    "prism": ("Prism", [[-1, -1, -1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1], [1, -1, 1], [-1, 1, 1]]),
    "pyramid": ("Pyramid", [[-1, -1, -1], [1, -1, -1], [1, 1, -1], [-1, 1, -1], [-1, -1, 1]]),
}
ORDERS = range(1, 10)


def record(family: str, corners: list[list[int]], order: int) -> dict[str, object]:
    """The nodes of one cell as gmsh lists them."""
    dim = len(corners[0])
    points = np.zeros((len(corners), 3))
    points[:, :dim] = corners
    gmsh.clear()
    gmsh.model.add("cell")
    entity = gmsh.model.addDiscreteEntity(dim)
    numbers = list(range(1, len(points) + 1))
    gmsh.model.mesh.addNodes(dim, entity, numbers, points.ravel().tolist())
    gmsh.model.mesh.addElements(dim, entity, [gmsh.model.mesh.getElementType(family, 1)], [[1]], [numbers])
    gmsh.model.mesh.setOrder(order)
    types, _, nodes = gmsh.model.mesh.getElements(dim, entity)
    tags, coordinates, _ = gmsh.model.mesh.getNodes()
    at = dict(zip(tags, np.reshape(coordinates, (-1, 3)), strict=True))
    lattice = (np.array([at[node] for node in nodes[0]])[:, :dim] + 1) * order / 2
    assert np.allclose(lattice, np.rint(lattice), atol=1e-9)
    return {"type": int(types[0]), "lattice": np.rint(lattice).astype(int).ravel().tolist()}


def main() -> None:
    gmsh.initialize(interruptible=False)
    gmsh.option.setNumber("General.Terminal", 0)
    data = {
        "generator": f"tests/mesh/record_gmsh_nodes.py with gmsh {gmsh.__version__}",
        "cells": {
            name: {order: record(family, corners, order) for order in ORDERS}
            for name, (family, corners) in CORNERS.items()
        },
    }
    gmsh.finalize()
    Path(__file__).with_name("gmsh_nodes.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
