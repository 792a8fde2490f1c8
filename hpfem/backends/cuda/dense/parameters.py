"""Headers that declare compile-time constants, with their values."""

from __future__ import annotations

from collections.abc import Mapping
from string import Template
from typing import Any

import numpy as np

from ..codegen.prelude import header


def fill(name: str, values: Mapping[str, Any]) -> str:
    """Text of a kernel file that declares compile-time constants, with their values.

    Parameters
    ----------
    name : str
        Its path in the backend's folder.
    values : mapping
        Name -> number, or array of numbers, whose elements are listed, for every $name of the file.

    Returns
    -------
    str

    Raises
    ------
    KeyError
        If a value is missing, or one is not declared.
    """
    template = Template(header(name))
    wrong = set(template.get_identifiers()) ^ values.keys()
    if wrong:
        raise KeyError(f"{name}: declared without a value, or given without a declaration: {', '.join(sorted(wrong))}")
    # A list between braces may not be empty.
    lists = {key: np.ravel(value).tolist() or [0] for key, value in values.items()}
    return template.substitute({key: ", ".join(str(item).lower() for item in row) for key, row in lists.items()})
