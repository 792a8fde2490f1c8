"""Meshes that mix element shapes: reading, topology, geometry of the cells, checks."""

from .node_order import gmsh_nodes, vtk_nodes

__all__ = ["gmsh_nodes", "vtk_nodes"]
