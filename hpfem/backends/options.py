"""Options of kernels as text, "elements=4 prefetch=2 late": for caches, messages and command lines.

Options are a frozen dataclass whose fields are integers, or true, false or undecided (None). The source of geometric
factors is the last one, and written by its own words.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from ..errors import ArgumentError
from ..geometry import FactorSource

_WORDS = {word for source in FactorSource for word in source.split()}
T = TypeVar("T")


def source_in(text: str) -> FactorSource:
    """The source of geometric factors that options name."""
    own = " ".join(word for word in text.split() if word in _WORDS)
    try:
        return FactorSource(own or FactorSource.STORED)
    except ValueError:
        raise ArgumentError(f"options {text!r}: there are no factors that are {own}") from None


def to_text(options: Any) -> str:
    """Write options."""
    words = []
    for field in fields(options):
        value = getattr(options, field.name)
        if value == field.default:
            continue
        if isinstance(value, FactorSource):
            words.append(value.value)
        elif isinstance(value, bool):
            words.append(field.name if value else f"no-{field.name}")
        else:
            words.append(f"{field.name}={value}")
    return " ".join(words)


def from_text(kind: type[T], text: str) -> T:
    """Read options."""
    kinds = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    names = ", ".join(kinds).replace("source", ", ".join(sorted(_WORDS)))
    values: dict[str, int | FactorSource] = {}
    words = text.split()
    if "source" in kinds:
        values["source"] = source_in(text)
        words = [word for word in words if word not in _WORDS]
    for word in words:
        name, equals, number = word.partition("=")
        value: int | bool = not word.startswith("no-")
        if equals:
            if not (number.isascii() and number.isdigit() and len(number) < 9):
                raise ArgumentError(f"options {text!r}: {word!r} is not name=number")
            value = int(number)
        name = name if equals else word.removeprefix("no-")
        if name not in kinds or name in values:
            raise ArgumentError(f"options {text!r}: {name!r} is unknown or twice there; valid: {names}")
        if bool(equals) != ("int" in kinds[name]):
            how = "takes a number" if "int" in kinds[name] else "takes no number"
            raise ArgumentError(f"options {text!r}: {name!r} {how}")
        values[name] = value
    try:
        return kind(**values)
    except TypeError:
        raise ArgumentError(f"options {text!r} is incomplete; it takes {names}") from None


def search_in_text(
    rounds: Generator[Sequence[T], Mapping[T, float], None], kind: type[T]
) -> Generator[list[str | None], Mapping[str | None, float], None]:
    """Run a search of options, with options as text."""
    try:
        found = next(rounds)
        while True:
            timed = yield [to_text(options) for options in found]
            found = rounds.send({from_text(kind, name): t for name, t in timed.items() if name is not None})
    except StopIteration:
        return
