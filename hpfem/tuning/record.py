"""A way to compute a block, and the result of a race between several ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Config(NamedTuple):
    """A way to compute a form on a block; as text: "sumfac-top, collocated, elements=4".

    Attributes
    ----------
    strategy : str
    algorithm : str or None
        None if the form has no gradients of the basis.
    options : str or None
        Options of the strategy; None if it has none.
    """

    strategy: str
    algorithm: str | None = None
    options: str | None = None

    def __str__(self) -> str:
        return ", ".join(word for word in self if word)


@dataclass(frozen=True)
class TuningRecord:
    """The result of a race; kept on disk.

    Attributes
    ----------
    key : mapping
        Everything that the result depends on: strings and integers.
    winner : Config
    seconds : float
        Of one call.
    runner_up : Config or None
        The fastest of the others that were timed to the end; None if there was none.
    ratio : float
        Its time over the winner's; below 1 if it is faster, but not by enough.
    kept : bool
        Whether the incumbent stays although another was faster.
    tried : int
        Number of candidates.
    about : mapping
        More information for users: strings, numbers, and lists of them.
    """

    key: Mapping[str, str | int]
    winner: Config
    seconds: float
    runner_up: Config | None
    ratio: float
    kept: bool
    tried: int
    about: Mapping[str, Any] = field(default_factory=dict)
