"""Lists of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any


def grid(**values: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Make every combination, the last name changing fastest."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
