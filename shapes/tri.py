r"""The triangle: tri = cone(segment).

    2
    | \               xi_2
    |   \             |
    0 ---- 1          +-- xi_1          xi_1 + xi_2 <= 0

Vertex 2 is the apex; eta_2 is collapsed there. Modified modes (p, q), p slowest: A_p(eta_1) times A_q(eta_2) for p = 0
and 1, times C_{p,q}(eta_2) for p >= 2. The second mode of the rows p = 0 and 1 is the apex mode (1 + eta_2)/2, which
they share. Count (P+1)(P+2)/2. Mode order at P = 3:

    q
    3 |  3  6
    2 |  2  5
    1 |  1  1  8
    0 |  0  4  7  9
      +------------
    p    0  1  2  3
"""

from __future__ import annotations

from .segment import SEGMENT
from .shape import cone

TRI = cone(SEGMENT, "tri")
