"""Lists of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any


def grid(**values: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Make every combination, the last name changing fastest.

    Parameters
    ----------
    **values
        What each name of a case may be.

    Returns
    -------
    list of dict
    """
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
