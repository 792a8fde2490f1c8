"""High-order finite element operators on meshes that mix element shapes."""

from pathlib import Path

__version__ = "0.1.0"

# hpfem.shapes is installed from the folder shapes/. In a checkout that folder lies beside this package, not in it.
_checkout = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("shapes").exists() and (_checkout / "shapes" / "polynomials.py").exists():
    __path__.append(str(_checkout))

from .assembly import BoundaryConditions, C0Space, GlobalOperator  # noqa: E402
from .errors import (  # noqa: E402
    ArgumentError,
    DeviceError,
    HpfemError,
    MeshError,
    NotSuitable,
    SolverError,
    StateError,
)
from .field import Field  # noqa: E402
from .kernels.expression import Gradient, Pointwise, Vector  # noqa: E402
from .mesh import Mesh, read_mesh  # noqa: E402
from .operators import (  # noqa: E402
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
)
from .solvers import SolveInfo, cg, l2_error, l2_project, solve_helmholtz  # noqa: E402
from .space import Block, Space  # noqa: E402
from .vtu import write_vtu  # noqa: E402
