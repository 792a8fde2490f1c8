"""Meshes that mix element shapes: reading, topology, geometry of the cells, checks."""

from .box import box
from .cells import CellArray
from .io.reader import from_meshio, read_mesh
from .mesh import CellGroup, Mesh
from .node_order import gmsh_nodes, vtk_nodes
from .summary import MeshSummary
from .symmetry import symmetries
from .topology import Entities, Facets, Topology

__all__ = [
    "CellArray", "CellGroup", "Entities", "Facets", "Mesh", "MeshSummary", "Topology", "box", "from_meshio",
    "gmsh_nodes", "read_mesh", "symmetries", "vtk_nodes",
]  # fmt: skip
