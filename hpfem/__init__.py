"""High-order finite element operators on meshes that mix element shapes."""

import importlib.util
import sys
from pathlib import Path

# hpfem.shapes is installed from the folder shapes/. In a checkout that folder lies beside this package, not in it.
_shapes = Path(__file__).resolve().parent.parent / "shapes"
if not Path(__file__).with_name("shapes").exists() and (_shapes / "polynomials.py").exists():
    _spec = importlib.util.spec_from_file_location("hpfem.shapes", _shapes / "__init__.py")
    assert _spec is not None and _spec.loader is not None
    shapes = sys.modules["hpfem.shapes"] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(shapes)

from . import jax as jax
from . import torch as torch
from .assembly import BoundaryConditions, C0Space, GlobalOperator
from .backends import BACKENDS, Backend, choose_backend
from .checkpoint import load, save
from .errors import (
    ArgumentError,
    DeviceError,
    HpfemError,
    HpfemWarning,
    MeshError,
    NewtonError,
    NotSuitable,
    SolverError,
    StateError,
)
from .forms import Gradient, Pointwise, Vector
from .memory import OutOfMemory
from .mesh import Mesh, box, distribute, from_gmsh, from_meshio, read_mesh
from .operators import OPERATORS as _OPERATORS
from .operators import AtPoints, Energy, OperatorSum, WeakForm, node_gradient, tune
from .operators.table import *  # noqa: F403
from .solvers import (
    Multigrid,
    Problem,
    SolutionMap,
    SolveInfo,
    cg,
    h1_error,
    l2_error,
    l2_project,
    march,
    newton,
    solve,
    solve_helmholtz,
)
from .space import Block, Field, Space, by_region
from .support.communicator import ALONE, Communicator
from .support.keywords import name_near_keywords as _name_near_keywords
from .support.progress import progress
from .version import __version__ as __version__
from .view import Picture
from .vtu import write_vtu

__all__ = [
    "ALONE",
    "BACKENDS",
    "ArgumentError",
    "AtPoints",
    "Backend",
    "Block",
    "BoundaryConditions",
    "C0Space",
    "Communicator",
    "DeviceError",
    "Energy",
    "Field",
    "GlobalOperator",
    "Gradient",
    "HpfemError",
    "HpfemWarning",
    "Mesh",
    "MeshError",
    "Multigrid",
    "NewtonError",
    "NotSuitable",
    "OperatorSum",
    "OutOfMemory",
    "Picture",
    "Pointwise",
    "Problem",
    "SolutionMap",
    "SolveInfo",
    "SolverError",
    "Space",
    "StateError",
    "Vector",
    "WeakForm",
    "box",
    "by_region",
    "cg",
    "choose_backend",
    "distribute",
    "from_gmsh",
    "from_meshio",
    "h1_error",
    "l2_error",
    "l2_project",
    "load",
    "march",
    "newton",
    "node_gradient",
    "progress",
    "read_mesh",
    "save",
    "solve",
    "solve_helmholtz",
    "tune",
    "write_vtu",
]
__all__ += _OPERATORS

for _name in __all__:
    _name_near_keywords(globals()[_name])
