r"""The prism: prism = tri x segment.

          5
        / | \
      3 ------ 4          xi_3  xi_2
      |   2    |            |  /
      | /   \  |            | /
      0 ------ 1            +--- xi_1     xi_1 + xi_2 <= 0

The triangle in (xi_1, xi_2) extruded along xi_3. Modes (p, q, r), p slowest: triangle mode (p, q) times A_r(xi_3); the
triangle's apex mode is shared by the rows p = 0, 1. Count (P+1)^2 (P+2)/2.
"""

from __future__ import annotations

from .shape import product
from .tri import TRI

PRISM = product(TRI, "prism")
