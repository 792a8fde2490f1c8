"""What several commands take: orders, sizes, names, coefficients, output files."""

from __future__ import annotations

import argparse
import math
import re
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from hpfem.shapes import BASES

from ..errors import ArgumentError
from ..forms.form import ALGORITHMS
from ..space import ByRegion, Space, by_region
from ..space.arguments import MAX_ORDER
from ..support.files import file_path, output_path, path_text
from .field_expression import FieldExpression, parse_field

DTYPES = ("float64", "float32")


def parse_orders(text: str) -> tuple[int, ...]:
    """Read orders: "4", "2:8" (both ends included), "1,3,5", "1:3,6"."""
    orders: list[int] = []
    for part in text.split(","):
        ends = part.strip().split(":")
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 9 for end in ends):
            raise ArgumentError(f"orders {text!r} are not understood; write 4, 2:8 or 1,3,5")
        low, high = int(ends[0]), int(ends[-1])
        if not 1 <= low <= high <= MAX_ORDER:
            raise ArgumentError(f"orders {part.strip()!r} must increase and lie between 1 and {MAX_ORDER}")
        orders += range(low, high + 1)
    return tuple(dict.fromkeys(orders))


def parse_order(text: str) -> int | dict[str, int]:
    """Read the order of a space: "4", or "hex=3,tet=4"."""
    if "=" not in text:
        orders = parse_orders(text)
        if len(orders) != 1:
            raise ArgumentError(f"only one order can be given, got {text!r}; write 4 or hex=3,tet=4")
        return orders[0]
    result: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        order = parse_orders(value)
        if len(order) != 1 or not name or name in result:
            raise ArgumentError(f"orders {text!r} are not understood; write 4 or hex=3,tet=4")
        result[name] = order[0]
    return result


def parse_dofs(text: str) -> tuple[float, ...]:
    """Read sizes: "1e5", "1e4,1e6", or "1e3:1e6" for 1e3, 3e3, 1e4, ... 1e6."""
    sizes: list[float] = []
    for part in text.split(","):
        try:
            ends = [float(end) for end in part.split(":")]
        except ValueError:
            ends = []
        if len(ends) not in (1, 2) or not all(1 <= end <= 1e11 for end in ends) or ends[-1] < ends[0]:
            raise ArgumentError(f"sizes {text!r} are not understood; write 1e5, 1e4,1e6 or 1e3:1e6 (at most 1e11)")
        steps = [digit * 10.0**exponent for exponent in range(12) for digit in (1, 3)]
        sizes += [s for s in steps if ends[0] < s < ends[-1]] + ends
    return tuple(sorted(set(sizes)))


def parse_names(text: str) -> tuple[str, ...]:
    """Read names separated by commas."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise ArgumentError("no name given; separate names by commas")
    return names


def parse_quadrature(text: str) -> str | int | None:
    """Read a quadrature: "default", its name or a number of additional points."""
    if text in ("collapsed", "simplex", "gauss", "collocated"):
        return text
    if text == "default":
        return None
    if re.fullmatch(r"-?\d{1,2}", text, re.ASCII) and abs(int(text)) <= MAX_ORDER:
        return int(text)
    valid = "default, collapsed, simplex, gauss, collocated or a number of additional points"
    raise ArgumentError(f"unknown quadrature {text!r}; valid: {valid}")


def parse_positive(text: str) -> int:
    """Read an integer from 1 to 10000."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= 10000):
        raise ArgumentError(f"{text!r} is not a number from 1 to 10000")
    return int(text)


def parse_seconds(text: str) -> float:
    """Read a time."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 86400:
        raise ArgumentError(f"{text!r} is not a number of seconds from 0 to 86400")
    return seconds


def by_name(option: str, texts: Sequence[str], names: Collection[str]) -> dict[str | None, str]:
    """Sort expressions by the regions or boundaries that they are for."""
    found: dict[str | None, str] = {}
    for text in texts:
        start, equals, rest = text.partition("=")
        if equals and ":" not in start and start.strip() in names:
            raise ArgumentError(f"--{option} {text!r}: write {start.strip() + ': ' + rest.strip()!r}")
        name, colon, expression = text.rpartition(":")
        key = name.strip() if colon else None
        if key in found:
            raise ArgumentError(f"--{option}: two expressions for {repr(key) if key else 'the rest'}")
        found[key] = expression
    return found


def coefficient(name: str, texts: Sequence[str], space: Space) -> float | FieldExpression | ByRegion:
    """Read a coefficient of an operator."""
    d = space.dim
    components = {"velocity": (d,), "diffusivity": (1, d, d * d)}.get(name, (1,))

    def read(text: str) -> float | FieldExpression:
        expression = parse_field(text, d)
        if expression.components not in components:
            wanted = " or ".join(map(str, components))
            raise ArgumentError(f"{name} has {wanted} component(s), but {text!r} has {expression.components}")
        return expression if expression.constant is None else expression.constant

    found = {key: read(text) for key, text in by_name(name, texts, space.mesh.regions).items()}
    rest = found.pop(None, None)
    if not found and rest is not None:
        return rest
    try:
        return by_region(space, {str(key): value for key, value in found.items()}, rest)
    except ArgumentError as error:
        why = str(error).replace("elsewhere= of by_region", "one without a name")
        raise ArgumentError(f"--{name}: {why}") from error


def add(parser: Any, names: str, parse: Callable[[str], Any], metavar: str, text: str, **more: Any) -> None:
    """Add an option whose value is read by one of the functions above; argparse shows our messages."""

    def convert(value: str) -> Any:
        try:
            return parse(value)
        except ArgumentError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    parser.add_argument(*names.split(), type=convert, metavar=metavar, help=text, **more)


def add_order_option(parser: argparse.ArgumentParser) -> None:
    """Add the order of a space."""
    add(parser, "--order", parse_order, "P", "polynomial order, or one per shape: hex=3,tet=4 (default 4)", default=4)


def add_space_options(parser: argparse.ArgumentParser, both: bool = False) -> None:
    """Add the options of a space and of where its operators run."""
    group = parser.add_argument_group("space")
    text = f"{', '.join(BASES)} (default modified{'; lagrange for bp5' if both else ''})"
    group.add_argument("--basis", default=None if both else "modified", metavar="NAME", help=text)
    text = "default, collapsed, simplex, gauss, collocated, or a number of additional points in each direction"
    text += " (default collapsed)" * both
    add(group, "--quadrature", parse_quadrature, "RULE", text)
    dtypes, dtype = ((*DTYPES, "both"), None) if both else (DTYPES, "float64")
    group.add_argument("--dtype", default=dtype, choices=dtypes, help="type of all numbers (default float64)")
    group.add_argument("--backend", default="auto", metavar="NAME", help="auto, numpy, cpu or cuda (default auto)")


def add_choice_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose how an operator computes."""
    group = parser.add_argument_group("computation")
    group.add_argument("--strategy", default="auto", metavar="NAME", help="auto, stdmat, sumfac, ... (default auto)")
    algorithms = ", ".join(("auto", *ALGORITHMS))
    group.add_argument("--algorithm", default="auto", metavar="NAME", help=f"{algorithms} (default auto)")
    add_precision_option(group)


def add_precision_option(parser: argparse._ActionsContainer) -> None:
    """Add the option of an operator's precision."""
    text = "mixed allows geometric factors in float32 (default full)"
    parser.add_argument("--precision", default="full", metavar="NAME", help=text)


def add_timing_options(parser: argparse.ArgumentParser, repeats: int | None) -> None:
    """Add the options of what is timed."""
    group = parser.add_argument_group("timing")
    add(group, "--repeats", parse_positive, "N", f"timings of each problem (default {repeats or 9})", default=repeats)
    add(group, "--threads", parse_positive, "N", "number of threads (default 1)", default=1)


def space_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `Space`, without mesh and order."""
    return {name: getattr(arguments, name) for name in ("basis", "quadrature", "dtype", "backend")}


def output_file(text: str, suffix: str | None = None) -> Path:
    """Check, before any work, that a file can be written."""
    path = file_path(text)
    if suffix is not None and path.suffix != suffix:
        raise ArgumentError(f"cannot write {path_text(text)!r}: give a name that ends in {suffix}")
    _open_folder(output_path(path).parent)
    return path


def output_folder(text: str, takes: str = "a folder") -> Path:
    """Make a folder for results, if it is not there; what looks like another file than -o takes is refused."""
    if not text:
        raise ArgumentError("the name of the folder is empty; write . for this one")
    path = file_path(text)
    if path.suffix[1:].isalpha() and not text.endswith("/") and not path.is_dir():
        raise ArgumentError(f"cannot write {path_text(text)!r}: -o takes {takes}; end a folder's name with /")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"cannot make the folder {path_text(path)}: {error.strerror}") from None
    _open_folder(path)
    return path


def _open_folder(folder: Path) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ArgumentError(f"cannot write to the folder {folder}: {error.strerror}") from None
