r"""The triangle: tri = cone(segment).

    2
    | \               xi_2
    |   \             |
    0 ---- 1          +-- xi_1          xi_1 + xi_2 <= 0

Vertex 2 is the apex; eta_2 is collapsed there. Modes (p, q), p slowest: A_p(eta_1) C_{max(p,1),q}(eta_2); in the rows
p = 0, 1 the second mode is the apex mode (1 + eta_2)/2, which both rows share. Count (P+1)(P+2)/2.
"""

from __future__ import annotations

from .segment import SEGMENT
from .shape import cone

TRI = cone(SEGMENT, "tri")
