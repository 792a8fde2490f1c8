"""Pictures of objects on lower floors than the code that draws them: their methods ask for it by name.

`hpfem.view` registers its functions when hpfem is imported, as backends do; matplotlib and pyvista are imported when
one of them is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .registry import Registry

VIEWS: Registry[Callable[..., Any]] = Registry("view")
