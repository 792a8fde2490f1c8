"""Write the files data/netgen_*.vol: one second-order cell of each shape, as netgen numbers its nodes.

Needs netgen (pip install netgen-mesher): python -m tests.mesh.record_netgen_files
"""

from pathlib import Path

import netgen.meshing as netgen

FLAT = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
CELLS = {
    "tri": [FLAT[0], FLAT[1], FLAT[3]], "quad": FLAT, "tet": [FLAT[0], FLAT[1], FLAT[3], (0, 0, 1)],
    "pyramid": [*FLAT, (0, 0, 1)], "prism": [FLAT[0], FLAT[1], FLAT[3], (0, 0, 1), (1, 0, 1), (0, 1, 1)],
    "hex": [*FLAT, *((x, y, 1) for x, y, _ in FLAT)],
}  # fmt: skip


def main() -> None:
    """Write all files."""
    for name, corners in CELLS.items():
        mesh = netgen.Mesh(2 if name in ("tri", "quad") else 3)
        mesh.Add(netgen.FaceDescriptor(surfnr=1, domin=1, bc=1))
        points = [mesh.Add(netgen.MeshPoint(netgen.Pnt(*point))) for point in corners]
        mesh.Add((netgen.Element2D if mesh.dim == 2 else netgen.Element3D)(1, points))
        mesh.SecondOrder()
        mesh.Save(str(Path(__file__).with_name("data") / f"netgen_{name}.vol"))


if __name__ == "__main__":
    main()
