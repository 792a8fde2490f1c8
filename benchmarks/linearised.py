"""Linearisations against their residuals: seconds of an application and of taking another function, and bytes.

    python -m benchmarks.linearised -o OUT.json [--backend cuda] [--orders 2 4 6] [--stores cheap matrix]
    python -m benchmarks.linearised -o OUT.json --multigrid [--orders 2 3 4]
    python -m benchmarks.linearised --show OUT.json

On curved cells. Each number is the least of several rounds, in which all operators of a case take turns. "limit" is the
time in which the bytes of a tangent pass memory, over its own. With --multigrid the seconds to make multigrid of a
tangent and to refresh it at another function, in their place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from time import process_time
from typing import Any

import numpy as np

import hpfem as hp
from benchmarks.script import Content, pivot, run
from hpfem.backends.base import choose_backend
from hpfem.backends.timer import measure
from hpfem.forms.cost import operator_bytes
from hpfem.forms.cut import STORES
from hpfem.memory import HOST
from hpfem.mesh import box

Record = dict[str, Any]


def bratu(u: Any, du: Any, lam: Any) -> Any:
    """-lam exp(u), and the gradient."""
    return -lam * np.exp(u), du


def p_laplacian(du: Any) -> Any:
    """With p = 3.5."""
    return (0.1 + du.dot(du)) ** 0.75 * du


def neo_hooke(du: Any) -> Any:
    """The density of energy of a displacement."""
    F = [[du[i][j] + (1.0 if i == j else 0.0) for j in range(3)] for i in range(3)]
    cross = [F[1][j - 2] * F[2][j - 1] - F[1][j - 1] * F[2][j - 2] for j in range(3)]
    log = np.log(sum(F[0][j] * cross[j] for j in range(3)))
    return 0.5 * sum(f * f for row in F for f in row) - log + 0.75 * log * log


FORMS: dict[str, Callable[[hp.Space], Any]] = {
    "bratu": lambda space: hp.WeakForm(space, bratu, fields={"lam": 1.5}),
    "p-laplacian": lambda space: hp.WeakForm(space, p_laplacian, test="grad"),
    "neo-hooke": lambda space: hp.Energy(space, neo_hooke, components=3).residual,
}


def curved(shape: str, order: int, points: int, backend: str) -> hp.Space:
    """A space on a bent box, with about so many quadrature points."""

    def made(n: int) -> hp.Space:
        mesh = box(shape, n).elevated(2).transformed(lambda x: x + 0.03 * np.sin(3 * x.sum(axis=1, keepdims=True)))
        return hp.Space(mesh, order, backend=backend)

    each = sum(block.n_elements * block.n_points for block in made(1).blocks)
    return made(max(2, round((points / each) ** (1 / 3))))


def bytes_of(operator: Any) -> int:
    """Compulsory bytes of an application to all components."""
    problems = [choice.kernel.problem for choice in operator.choices]
    return sum(operator_bytes(own, own.coupled) * own.coupled * own.n_elements for own in problems)


def cases(given: argparse.Namespace) -> Iterator[Record]:
    """The records."""
    backend = choose_backend(given.backend)
    bandwidth = backend.measure_limits(np.float64, True).bandwidth
    points = (
        given.points or 20_000 if given.small else given.points or (8_000_000 if given.backend == "cuda" else 200_000)
    )
    for shape in ("hex", "tet"):
        for order in given.orders:
            for name in given.forms:
                space = curved(shape, order, points // (3 if name == "neo-hooke" else 1), given.backend)
                if given.multigrid:
                    yield refreshed(name, shape, order, space)
                else:
                    yield from timed(name, shape, order, space, given.stores, backend, bandwidth)


def refreshed(name: str, shape: str, order: int, space: hp.Space) -> Record:
    """Seconds to make multigrid of a tangent, and to refresh it; on a host of its processor."""
    form, c0 = FORMS[name](space), hp.C0Space(space)

    def seconds(call: Callable[[], Any]) -> float:
        if form.device.name != HOST.name:
            return form.backend.timer().seconds(call, 1)
        began = process_time()
        call()
        return process_time() - began

    n, x = form.form.components, c0.coordinates
    bc = hp.BoundaryConditions(c0, {"xmin": (0.0,) * n if n > 1 else 0.0}, components=n)
    size, least = 1e-3 if n > 1 else 0.3, {"set-up": np.inf, "refresh": np.inf}
    states = [c0.scatter([size * np.sin(3 * x[:, 0] + c + t) * x[:, 1] for c in range(n)]) for t in (0.0, 0.1)]
    J = form.linearised(states[0])
    M = hp.Multigrid(hp.GlobalOperator(J, c0, bc, n))
    for _ in range(6):
        for what, u in zip(least, states, strict=True):
            J.at(u)
            A = hp.GlobalOperator(J, c0, bc, n)
            call = partial(hp.Multigrid, A) if what == "set-up" else partial(M.refresh, A)
            least[what] = min(least[what], seconds(call))
    sizes = getattr(M.vertices, "sizes", [])
    return {"form": name, "shape": shape, "order": order, "unknowns": A.shape[0], "vertices": sizes, **least}


def timed(
    name: str, shape: str, order: int, space: hp.Space, stores: Sequence[str], backend: Any, bandwidth: float
) -> Iterator[Record]:
    """The records of a form on a space."""
    form, rng = FORMS[name](space), np.random.default_rng(0)
    n = form.form.components
    u, v = (
        space.field("coeff", [size * rng.standard_normal((n, b.n_elements, b.n_modes)) for b in space.blocks])
        for size in (1e-3, 1.0)
    )
    tangents = {store: form.linearised(u, store) for store in stores}
    calls: dict[str, Callable[[], Any]] = {"residual": partial(form, u, out=form(u))}
    for store, J in tangents.items():
        calls |= {store: partial(J, v, out=J(v)), f"{store} at": partial(J.at, u)}
    least = dict.fromkeys(calls, np.inf)
    for _ in range(6):
        for what, call in calls.items():
            found = measure(call, backend.timer(), repeats=3, min_seconds=0.005)
            least[what] = min(least[what], found.best)
    for store, J in tangents.items():
        size = bytes_of(J)
        yield {
            "form": name,
            "shape": shape,
            "order": order,
            "store": store,
            "points": sum(block.n_elements * block.n_points for block in space.blocks),
            "kept": J.linearisation.reads,
            "strategy": [str(choice.config) for choice in J.choices],
            "residual": least["residual"],
            "tangent": least[store],
            "at": least[f"{store} at"],
            "bytes": size,
            "bytes of the residual": bytes_of(form),
            "share": size / bandwidth / least[store],
        }


def text_of(content: Content) -> str:
    """The tables."""
    found = list[str]()
    for title, cell in (
        ("tangent / residual", lambda own: f"{own['tangent'] / own['residual']:.2f}"),
        ("at(u) / residual", lambda own: f"{own['at'] / own['residual']:.2f}"),
        ("bytes, tangent / residual", lambda own: f"{own['bytes'] / own['bytes of the residual']:.2f}"),
        ("limit", lambda own: f"{own['share']:.2f}"),
        ("unknowns", lambda own: str(own["unknowns"])),
        ("making multigrid, ms", lambda own: f"{1e3 * own['set-up']:.0f}"),
        ("refresh / making", lambda own: f"{own['refresh'] / own['set-up']:.2f}"),
    ):
        rows: dict[tuple[str, ...], dict[Any, str]] = {}
        for own in content["cases"]:
            with suppress(KeyError):
                text = cell(own)
                rows.setdefault((own["form"], own["shape"], own.get("store", "")), {})[own["order"]] = text
        if rows:
            found.append(f"{title}\n\n{pivot(('form', 'shape', 'store'), rows, 'P={}')}\n")
    return "\n".join(found)


def _measured(given: argparse.Namespace, content: Content) -> Iterator[object]:
    content["cases"] = []
    for record in cases(given):
        content["cases"].append(record)
        yield record


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--orders", nargs="*", type=int, default=[2, 3, 4, 5, 6])
    parser.add_argument("--stores", nargs="*", choices=STORES, default=["cheap"])
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=list(FORMS))
    parser.add_argument("--multigrid", action="store_true")
    parser.add_argument("--points", type=int, help="quadrature points of a case")


def main(arguments: Sequence[str] | None = None) -> Content:
    """Run the script."""
    return run(__doc__, _measured, text_of, arguments, ("cpu", "numpy", "cuda"), _options)


if __name__ == "__main__":
    main()
