"""Pictures of fields and meshes, and their grids for pyvista; `Field` and `Mesh` have methods that use them.

`surface` cuts the visible surface into triangles, `paint` colours them; `flat` draws by matplotlib, `solid` by pyvista,
which gets only the triangles.
"""

from .drawing import Look, field_picture, mesh_picture
from .from_file import file_picture
from .grids import field_grid, mesh_grid
from .picture import Picture

__all__ = ["Look", "Picture", "field_grid", "field_picture", "file_picture", "mesh_grid", "mesh_picture"]
