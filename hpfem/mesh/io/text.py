"""Reading texts and numbers of mesh files: words, counts, sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

_TEXT_CHUNK = 1 << 24
_SPACE = re.compile(rb"\s")
_DIGITS_AND_SPACE = b"0123456789 \t\n\r\v\f"


def count_in(text: str) -> int | None:
    """Read a count that a header states."""
    found = re.fullmatch(r"\s*([0-9]{1,18})\s*", text)
    return None if found is None else int(found[1])


def parsed_numbers(text: bytes, most: int | None = None) -> tuple[Array, int]:
    """Read the numbers of a text, separated by white space; -> numbers [n]."""
    parts, start, left = [np.empty(0)], 0, len(text) if most is None else most
    while start < len(text) and left > 0:
        stop = min(start + min(_TEXT_CHUNK, 32 * left + 64), len(text))
        word_ends = _SPACE.search(text, stop)
        stop = word_ends.start() if word_ends else len(text)
        numbers = _natural_numbers(text[start:stop])
        if numbers is None or len(numbers) > left:
            words = text[start:stop].split(None, left)
            if len(words) > left:
                stop -= len(words.pop())
            if text.find(b"_", start, stop) >= 0:  # Python allows it inside numbers
                word = next(word for word in words if b"_" in word)
                raise MeshError(f"a number was expected, not {shown(word)}")
            try:
                numbers = np.fromiter(map(float, words), dtype=np.float64, count=len(words))
            except ValueError as error:
                raise MeshError(f"a number was expected: {str(error)[:80]}") from None
        parts.append(numbers)
        left -= len(numbers)
        start = stop
    return np.concatenate(parts), start


def _natural_numbers(text: bytes) -> Array | None:
    """The numbers of a text of digits and white space only, several times faster than other texts."""
    if text.translate(None, _DIGITS_AND_SPACE) or not text.strip():
        return None
    numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    # Larger numbers are read as the largest one.
    return None if numbers.max() == np.iinfo(np.int64).max else numbers.astype(np.float64)


@contextmanager
def within(place: str) -> Iterator[None]:
    """Add a place in the file to errors, and leave out what cannot be printed of it."""
    try:
        yield
    except MeshError as error:
        raise MeshError("".join(filter(str.isprintable, f"{place[:80]}: {error}"))) from None


def sections_of(data: bytes, head: bytes, comment: bytes) -> Iterator[tuple[int, str, bytes]]:
    """Cut a text at its heads, without comments: number of the line, the head, and what stands before the next one."""
    data = re.sub(comment + rb"[^\n]*", b"", data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    found, line, at = list(re.finditer(rb"(?m)^[ \t]*(%s)[ \t]*$" % head, data)), 1, 0
    for match, stop in zip(found, [*(later.start() for later in found), len(data)][1:], strict=True):
        line, at = line + data.count(b"\n", at, match.start()), match.start()
        yield line, as_text(match[1]), data[match.end() : stop]


def as_text(data: bytes) -> str:
    """Decode UTF-8 or, if it is not, Latin-1."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def sections_by_keyword(data: bytes, end: str, words: str = "") -> dict[str, bytes]:
    """Cut a text at lines that begin with a letter, up to `end`; section `words` has a count and so many such lines."""
    result: dict[str, bytes] = {}
    skipped = 0
    for _, name, body in sections_of(data, rb"[A-Za-z_][^\n]*?", rb"(?m)^[ \t]*#"):
        if name == end:
            return result
        if skipped:
            skipped -= 1
        elif name in result:
            raise MeshError(f"section {name[:40]} is given twice")
        else:
            result[name] = body.strip()
            if name == words:
                skipped = count_in(as_text(body)) or 0
    if end:
        raise MeshError(f"the file is cut short: there is no line {end}")
    return result


def counted_rows(numbers: Array, column: int, lengths: dict[float, int]) -> dict[float, tuple[Indices, Array]]:
    """Divide numbers into rows of different lengths that follow their count; numbers [n] -> [n]."""
    values, at = numbers.tolist(), 1
    starts: list[int] = []
    types: list[float] = []
    while at + max(column, 0) < len(values):
        number = values[at + column] if column >= 0 else next(iter(lengths))
        if number not in lengths:
            raise MeshError(f"element {len(types) + 1} is of a kind that cannot be used: {number:g}")
        starts.append(at)
        types.append(number)
        at += lengths[number]
    if at != len(values) or len(starts) != values[0]:
        raise MeshError(f"{values[0] if values else 'no'} rows are announced, which is not what there are")
    rows = {number: np.flatnonzero(np.array(types) == number) for number in sorted(set(types))}
    table = np.array(starts, dtype=np.int64)
    return {number: (own, numbers[table[own, None] + np.arange(lengths[number])]) for number, own in rows.items()}


def as_integers(values: NDArray[np.generic]) -> Indices:
    """Convert numbers that must be integers."""
    if values.dtype.kind == "f":
        wrong = ~((np.abs(values) < 2.0**53) & (values == np.floor(values)))
    elif values.dtype.kind == "u" and values.max(initial=0) > 2**62:
        wrong = values.astype(np.uint64) > 2**62
    elif values.dtype == np.uint64:
        return values.view(np.int64)
    else:
        return values.astype(np.int64, copy=False)
    if wrong.any():
        raise MeshError(f"an integer was expected, not {values[wrong][0]}")
    return values.astype(np.int64)
