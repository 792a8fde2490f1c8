"""Read VTU files back through VTK, and evaluate them as VTK does."""

from dataclasses import dataclass

import numpy as np

from tests.lazy import numpy_support, vtk


@dataclass
class Grid:
    """What VTK reads from a file.

    Attributes
    ----------
    data : vtkUnstructuredGrid
    point_data, cell_data, field_data : dict of str to ndarray
    """

    data: object
    point_data: dict
    cell_data: dict
    field_data: dict

    @property
    def n_cells(self):
        """Number of VTK cells."""
        return self.data.GetNumberOfCells()

    @property
    def types(self):
        """VTK type of every cell."""
        return np.array([self.data.GetCellType(i) for i in range(self.n_cells)])

    @property
    def points(self):
        """Coordinates of all points, [n, 3]."""
        return numpy_support.vtk_to_numpy(self.data.GetPoints().GetData())


def arrays(attributes):
    """Arrays of a vtkFieldData by name."""
    found = [attributes.GetArray(i) for i in range(attributes.GetNumberOfArrays())]
    return {array.GetName(): numpy_support.vtk_to_numpy(array) for array in found}


def read(path):
    """Read a VTU file; anything that VTK complains of is an error."""
    complaints = []
    reader = vtk.vtkXMLUnstructuredGridReader()
    for event in ("ErrorEvent", "WarningEvent"):
        reader.AddObserver(event, lambda caller, name: complaints.append(name))
    reader.SetFileName(str(path))
    reader.Update()
    assert complaints == []
    data = reader.GetOutput()
    return Grid(data, arrays(data.GetPointData()), arrays(data.GetCellData()), arrays(data.GetFieldData()))


def evaluate(grid, name, rng, cells=None, count=3):
    """Places and values at random interior points of cells, by VTK's own interpolation.

    Returns
    -------
    x : ndarray, [n, 3]
    values : ndarray, [n, components]
    cells : ndarray of int, [n]
    """
    values = grid.point_data[name].reshape(len(grid.points), -1)
    places, results, owners = [], [], []
    number = vtk.mutable(0)
    for i in range(grid.n_cells) if cells is None else cells:
        cell = grid.data.GetCell(int(i))
        ids = [cell.GetPointId(k) for k in range(cell.GetNumberOfPoints())]
        weights = [0.0] * len(ids)
        for _ in range(count):
            # Three of four positive numbers that sum to 1: inside every cell's parametric space.
            x = [0.0, 0.0, 0.0]
            cell.EvaluateLocation(number, rng.dirichlet(np.ones(4))[:3].tolist(), x, weights)
            places.append(x)
            results.append(np.array(weights) @ values[ids])
            owners.append(i)
    return np.array(places), np.array(results), np.array(owners)


def sizes(grid):
    """Areas or volumes of all cells by VTK."""
    tool = vtk.vtkCellSizeFilter()
    tool.SetInputData(grid.data)
    tool.Update()
    found = arrays(tool.GetOutput().GetCellData())
    return found["Volume"] + found["Area"]
