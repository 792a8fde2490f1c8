"""The operators that have a name in `hpfem`, on the command line and for `tune`: a row each.

`from .module import Name as Name`; nothing else is to be changed for a new one.
"""

from .standard import AdvectionDiffusionReaction as AdvectionDiffusionReaction
from .standard import Helmholtz as Helmholtz
from .standard import Laplacian as Laplacian
from .standard import Mass as Mass
from .transforms import BwdTrans as BwdTrans
from .transforms import FwdTrans as FwdTrans
from .transforms import IProductWRTBase as IProductWRTBase
from .transforms import IProductWRTDerivBase as IProductWRTDerivBase
from .transforms import PhysDeriv as PhysDeriv
