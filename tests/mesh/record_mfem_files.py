"""Write the files data/mfem_*.mesh by MFEM itself: boxes of cells of all shapes, turned at random, then bent.

Needs MFEM (pip install mfem): python -m tests.mesh.record_mfem_files
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import mfem.ser as mfem
import numpy as np

from hpfem.mesh import box
from hpfem.support.communicator import ALONE
from tests.mesh.examples import ALL_3D, scrambled
from tests.mesh.test_mfem import bent, mfem_text

DATA = Path(__file__).with_name("data")
BOXES = {
    "flat": (("tri", "quad"), (2, 2)), "solid": (ALL_3D, (4, 1, 1)), "hexes": ("hex", (2, 2, 1)),
    "prisms": (("hex", "prism"), (2, 1, 1)), "tets": ("tet", (1, 1, 1)),
}  # fmt: skip
FILES = [
    *(("flat", f"H1_2D_P{order}", 1) for order in (2, 3, 4)),
    *(("solid", f"H1_3D_P{order}", order % 2) for order in (1, 2, 3, 4)), ("hexes", "Cubic", 0),
    ("prisms", "H1_3D_P3", 0), ("tets", "Quadratic", 1), ("solid", "H1@U_3D_P3", 1),
]  # fmt: skip


class Bent(mfem.VectorPyCoefficient):
    """The bent coordinates."""

    def EvalValue(self, x):
        return bent(np.array(x)[None], self.vdim)[0]


def main() -> None:
    """Write all files."""
    for number, (name, collection, ordering) in enumerate(FILES):
        straight = scrambled(box(*BOXES[name], comm=ALONE), np.random.default_rng(number))
        with TemporaryDirectory() as folder:
            path = Path(folder, "x.mesh")
            path.write_text(mfem_text(straight))
            mesh = mfem.Mesh(str(path), 1, 0, False)
        dim = mesh.Dimension()
        functions = mfem.FiniteElementCollection.New(collection)
        space = mfem.FiniteElementSpace(mesh, functions, dim, ordering)
        mesh.SetNodalFESpace(space)
        nodes = mfem.GridFunction(space)
        nodes.ProjectCoefficient(Bent(dim))
        mesh.SetNodes(nodes)
        mesh.Print(str(DATA / f"mfem_{name}_{collection.replace('@', '')}.mesh"), 16)


if __name__ == "__main__":
    main()
