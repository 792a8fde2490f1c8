r"""The segment [-1, 1]: segment = point x [-1, 1].

    0 -------- 1   --> xi_1
   -1         +1

Modes of order P (modified), first to last: vertex 0, vertex 1, then the interior p = 2..P. Count P + 1.
"""

from __future__ import annotations

from .shape import POINT, product

SEGMENT = product(POINT, "segment")
