"""Meshes that mix element shapes: reading, topology, geometry of the cells, checks.

From a file to a `Mesh`, in this order: `io` reads it; `cells` brings its cells and points into canonical form;
`checks` renumbers mirrored cells and refuses unusable meshes; `topology` numbers vertices, edges and faces;
`named_sets` finds regions and boundaries. `Mesh.from_cells` runs these steps.
"""

from .box import box
from .cells import CellArray
from .distribute import distribute
from .io.reader import from_gmsh, from_meshio, read_mesh
from .mesh import CellGroup, Mesh
from .node_order import gmsh_nodes, vtk_nodes
from .summary import MeshSummary
from .symmetry import symmetries
from .topology import Entities, Facets, Topology

__all__ = [
    "CellArray", "CellGroup", "Entities", "Facets", "Mesh", "MeshSummary", "Topology", "box", "distribute",
    "from_gmsh", "from_meshio", "gmsh_nodes", "read_mesh", "symmetries", "vtk_nodes",
]  # fmt: skip
