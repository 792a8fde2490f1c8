"""What `make test` leaves to `make test-all`: cases that others cover, and the tests that `long.txt` lists.

Of a test with two parameters or more, cases run in which every pair of values of two parameters comes at least once;
where the list says `once`, every value: first in cases of other backends than NumPy's, the reference.
"""

import zlib
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

# Tests with fewer cases run all of them.
FEW = 6
LISTED = Path(__file__).with_name("long.txt")


def same(value: object) -> Hashable:
    """What equal values of a parameter have in common; others than numbers and words are equal to themselves only."""
    return (type(value), value) if isinstance(value, str | int | float | None) else id(value)


def pairs(values: Mapping[str, Hashable]) -> set[Hashable]:
    """Pairs of values of two parameters in a case."""
    return set(combinations(sorted(values.items(), key=lambda item: item[0]), 2))


def covering(cases: Sequence[Mapping[str, Hashable]], names: Sequence[str], once: bool = False) -> list[int]:
    """Positions of cases that cover all pairs which occur, or all values; the choice depends on the names alone."""
    owned = [set[Hashable](case.items()) if once else pairs(case) for case in cases]
    order = sorted(range(len(cases)), key=lambda position: zlib.crc32(names[position].encode()))
    chosen, covered = list[int](), set[Hashable]()
    first = [position for position in order if once and same("numpy") not in cases[position].values()]
    for some in (first, order):
        missing = set[Hashable]().union(*(owned[position] for position in some)) - covered
        while missing:
            best = max(some, key=lambda position: len(owned[position] & missing))
            chosen.append(best)
            missing -= owned[best]
            covered |= owned[best]
    return sorted(chosen)


def listed(once: bool = False) -> list[str]:
    """Lines of `long.txt`: node ids of tests, of all cases of a test, or of files; or of tests with `once`."""
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    rest = [line for line in lines if line and not line.startswith("#")]
    return [line.removeprefix("once ") for line in rest if line.startswith("once ") == once]


def left_out(items: Iterable) -> list:
    """Collected tests that are in the list, or no part of the covering of their function."""
    groups, result, lines, once = defaultdict(list), [], tuple(listed()), {*listed(once=True)}
    starts = tuple(line + mark for line in lines for mark in ("[", "::"))
    for item in items:
        if item.nodeid in lines or item.nodeid.startswith(starts):
            result.append(item)
        elif len(getattr(getattr(item, "callspec", None), "params", ())) > 1 and not item.get_closest_marker("long"):
            groups[item.nodeid.partition("[")[0], bool(item.get_closest_marker("cuda"))].append(item)
    for (test, cuda), own in groups.items():
        if len(own) > FEW or test in once:
            cases = [{name: same(value) for name, value in item.callspec.params.items()} for item in own]
            kept = set(covering(cases, [item.nodeid for item in own], test in once and not cuda))
            result += [item for position, item in enumerate(own) if position not in kept]
    return result
