"""Strategies and algorithms that are asked for by shape, and what of that blocks take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpfem.shapes import SHAPES
from hpfem.shapes.arguments import name_of

from ..backends.base import Backend
from ..errors import NotSuitable
from ..forms.form import ALGORITHMS
from ..support.communicator import Communicator
from ..support.log import warn

ByShape = str | Mapping[str, str]  # for all shapes, or for some, of which others take "auto"
AUTO = "auto", "auto"


def asked_by_shape(strategy: ByShape, algorithm: ByShape, backend: Backend) -> dict[str, tuple[str, str]]:
    """Strategy and algorithm that are asked for, by shape."""
    names, where, found = ["auto", *backend.strategy_names], f" of backend {backend.name!r}", []
    for kind, given, valid, of in (
        ("strategy", strategy, names, where),
        ("algorithm", algorithm, ["auto", *ALGORITHMS], ""),
    ):
        own = given if isinstance(given, Mapping) else dict.fromkeys(SHAPES, given)
        for shape, name in own.items():
            name_of(shape, SHAPES, "shape", f" in {kind}")
            name_of(name, valid, kind, of)
        found.append(own)
    return {shape: (found[0].get(shape, "auto"), found[1].get(shape, "auto")) for shape in SHAPES}


def agree(name: str, comm: Communicator, own: Iterable[tuple[tuple[str, str], str, str]]) -> None:
    """Warn of blocks for which what was asked for is not suitable; refuse it if it suits none; collective.

    For each kernel of the process: what was asked for, the refusal, and a text about it, or "".
    """
    found = dict.fromkeys(one for part in comm.allgather(list(own)) for one in part)
    for asked, refusal, _ in found:
        if refusal and (asked, "", "") not in found:
            raise NotSuitable(refusal)
    others = "; ".join(text for *_, text in found if text)
    if others and comm.rank == 0:
        warn(f"{name}: some blocks take what 'auto' takes, not what was asked for: {others}")
