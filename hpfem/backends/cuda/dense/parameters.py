"""Values for the compile-time constants that a header of a kernel declares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_DECLARATION = re.compile(r"^([^/=\n]* (\w+))(\[\]|\(int n\)|);", re.MULTILINE)


def filled(text: str, values: Mapping[str, Any]) -> str:
    """A header's declarations of constants, tables and functions of an index, with their values.

    Parameters
    ----------
    text : str
        With `constexpr int NAME;`, `TYPE NAME[];` and `constexpr int NAME(int n);` in lines.
    values : mapping
        A number for each constant, numbers for each table and each function.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If a declaration has no value, or a value no declaration.
    """
    declared = {found[2] for found in _DECLARATION.finditer(text)}
    if declared != values.keys():
        raise ValueError(f"declared or given, not both: {', '.join(sorted(declared ^ values.keys()))}")

    def with_value(found: re.Match[str]) -> str:
        declaration, kind, value = found[1], found[3], values[found[2]]
        if not kind:
            return f"{declaration} = {str(value).lower()};"
        table = f"{{{', '.join(map(repr, np.asarray(value).tolist())) or '0'}}};"
        if kind == "[]":
            return f"{declaration}[] = {table}"
        return f"{declaration}(int n) {{ const int table[] = {table} return table[n]; }}"

    return _DECLARATION.sub(with_value, text)
