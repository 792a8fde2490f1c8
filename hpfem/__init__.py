"""High-order finite element operators on meshes that mix element shapes."""

from pathlib import Path

# hpfem.shapes is installed from the folder shapes/. In a checkout that folder lies beside this package, not in it.
_checkout = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("shapes").exists() and (_checkout / "shapes" / "polynomials.py").exists():
    __path__.append(str(_checkout))

from .assembly import BoundaryConditions, C0Space, GlobalOperator
from .backends import BACKENDS, Backend, choose_backend
from .errors import (
    ArgumentError,
    DeviceError,
    HpfemError,
    HpfemWarning,
    MeshError,
    NotSuitable,
    SolverError,
    StateError,
)
from .forms import Gradient, Pointwise, Vector
from .mesh import Mesh, from_meshio, read_mesh
from .operators import (
    AdvectionDiffusionReaction,
    BwdTrans,
    FwdTrans,
    Helmholtz,
    IProductWRTBase,
    IProductWRTDerivBase,
    Laplacian,
    Mass,
    PhysDeriv,
    WeakForm,
    tune,
)
from .solvers import SolveInfo, cg, l2_error, l2_project, solve_helmholtz
from .space import Block, Field, Space
from .version import __version__ as __version__
from .vtu import write_vtu

__all__ = [
    "BACKENDS",
    "AdvectionDiffusionReaction",
    "ArgumentError",
    "Backend",
    "Block",
    "BoundaryConditions",
    "BwdTrans",
    "C0Space",
    "DeviceError",
    "Field",
    "FwdTrans",
    "GlobalOperator",
    "Gradient",
    "Helmholtz",
    "HpfemError",
    "HpfemWarning",
    "IProductWRTBase",
    "IProductWRTDerivBase",
    "Laplacian",
    "Mass",
    "Mesh",
    "MeshError",
    "NotSuitable",
    "PhysDeriv",
    "Pointwise",
    "SolveInfo",
    "SolverError",
    "Space",
    "StateError",
    "Vector",
    "WeakForm",
    "cg",
    "choose_backend",
    "from_meshio",
    "l2_error",
    "l2_project",
    "read_mesh",
    "solve_helmholtz",
    "tune",
    "write_vtu",
]
