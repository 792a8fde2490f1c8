"""Errors of forward, transposed and second derivatives of weak forms, six shapes, curved cells.

    python -m benchmarks.derivatives -o OUT.json [--backend cuda] [--orders 1 2 3 4 5 6] [--shapes hex tet]

"forward" and "second" are against differences of fourth order, "adjoint" is (w, J v) - (J^T w, v) over the sum of its
terms' absolute values, "numpy" the difference of J v on the backend and on NumPy; all relative, the largest of a shape.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.linearised import FORMS, curved
from benchmarks.script import Content, pivot, run
from hpfem.shapes import SHAPES

NAMES = [name for name, shape in SHAPES.items() if shape.dim > 1]
# The size of the function, and the step of differences, whose rounding is that of the linear part of Bratu's form.
SIZES = {"bratu": (1.0, 4e-3), "p-laplacian": (1.0, 1e-3), "neo-hooke": (0.01, 2e-5)}
KINDS = ("forward", "adjoint", "second", "numpy")


def apart(a: Any, b: Any) -> float:
    """The largest difference of two fields, relative to the largest number."""
    pairs = list(zip(a.arrays, b.arrays, strict=True))
    return float(max(np.abs(x - y).max() for x, y in pairs) / max(np.abs(y).max() for _, y in pairs))


def slope(function: Callable[[Any], Any], u: Any, v: Any, h: float) -> Any:
    """The derivative of a function along v, by differences."""
    near, far = function(u + h * v) - function(u - h * v), function(u + 2 * h * v) - function(u - 2 * h * v)
    return (8 * near - far) / (12 * h)


def errors(name: str, shape: str, order: int, backend: str) -> dict[str, float]:
    """The errors of a form on a space."""
    found, data, (scale, h) = dict[str, float](), list[Any](), SIZES[name]
    for where in ("numpy", backend):
        space, rng = curved(shape, order, 1, where), np.random.default_rng(order)
        form = FORMS[name](space)
        sizes = [(form.form.components, b.n_elements, b.n_modes) for b in space.blocks]
        u, v, w = (
            space.field("coeff", [size * rng.standard_normal(n) / n[-1] ** 0.5 for n in sizes])
            for size in (scale, 1.0, 1.0)
        )
        J = form.linearised(u)
        data.append((Jv := J(v)).arrays)
    one, other = ([x * y for x, y in zip(a.arrays, b.arrays)] for a, b in ((w, Jv), (J.transposed()(w), v)))
    terms = sum(np.abs(own).sum() for own in one)
    found["forward"] = apart(Jv, slope(form, u, v, h))
    found["adjoint"] = float(abs(sum(map(np.sum, one)) - sum(map(np.sum, other))) / terms)
    found["second"] = apart(form.pullback(u, w, None, {"u": v}), slope(lambda at: form.pullback(at, w), u, v, h))
    size = max(np.abs(x).max() for x in data[0])
    found["numpy"] = float(max(np.abs(x - y).max() for x, y in zip(*data, strict=True)) / size)
    return found


def _measured(given: argparse.Namespace, content: Content) -> Iterator[object]:
    content["cases"], content["backend"] = [], given.backend
    for shape in given.shapes:
        for order in given.orders:
            for name in FORMS:
                if name != "neo-hooke" or SHAPES[shape].dim == 3:
                    own = {"form": name, "shape": shape, "order": order, **errors(name, shape, order, given.backend)}
                    content["cases"].append(own)
                    yield own


def text_of(content: Content) -> str:
    """The largest errors."""
    rows: dict[tuple[str, ...], dict[Any, str]] = {}
    for own in content["cases"]:
        alike = [one for one in content["cases"] if (one["form"], one["shape"]) == (own["form"], own["shape"])]
        rows[own["form"], own["shape"]] = {kind: f"{max(one[kind] for one in alike):.1e}" for kind in KINDS}
    return pivot(("form", "shape"), rows)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--orders", nargs="*", type=int, default=[1, 2, 3, 4, 5, 6])


def main(arguments: Sequence[str] | None = None) -> Content:
    """Run the script."""
    return run(__doc__, _measured, text_of, arguments, ("cpu", "numpy", "cuda"), _options)


if __name__ == "__main__":
    main()
