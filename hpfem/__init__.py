"""High-order finite element operators on meshes that mix element shapes."""

from pathlib import Path

__version__ = "0.1.0"

# hpfem.shapes is installed from the folder shapes/. In a checkout that folder lies beside this package, not in it.
_checkout = Path(__file__).resolve().parent.parent
if not Path(__file__).with_name("shapes").exists() and (_checkout / "shapes" / "polynomials.py").exists():
    __path__.append(str(_checkout))
