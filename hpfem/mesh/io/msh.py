"""The gmsh format MSH, versions 2.2 and 4.1, text and binary.

We read it ourselves because meshio 5.3.5 has no pyramids of order 3 and above, loses the numbers of the elements, takes
node number 0 for the last node, cannot read files in which some entities have no physical group or that are
partitioned, and allocates as much as a damaged header asks for. Here no allocation exceeds a few times the size of
the file.

Element data: text or binary, a section is a stream of numbers. Version 2.2 has per element: number, type, number of
tags, tags (the first is the physical group), nodes. Version 4.1 has blocks of one type on one entity of the model; the
entity knows its physical groups.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes import SHAPES, Shape, get_shape
from hpfem.shapes.arrays import Array, Indices

from ..node_order import gmsh_nodes, serendipity_nodes
from ..sorting import unique
from .mesh_file import Elements, ForLibrary, MeshFile, canonical, group_name, joined, positions, tagged
from .text import as_integers, count_in, parsed_numbers

# gmsh's numbers of the complete elements of order 1, 2, 3, ...
_TYPES_BY_ORDER = {
    "segment": (1, 8, 26, 27, 28, 62, 63, 64, 65, 66),
    "tri": (2, 9, 21, 23, 25, 42, 43, 44, 45, 46),
    "quad": (3, 10, 36, 37, 38, 47, 48, 49, 50, 51),
    "tet": (4, 11, 29, 30, 31, 71, 72, 73, 74, 75),
    "hex": (5, 12, 92, 93, 94, 95, 96, 97, 98),
    "prism": (6, 13, 90, 91, 106, 107, 108, 109, 110),
    "pyramid": (7, 14, 118, 119, 120, 121, 122, 123, 124),
    "point": (15,),
}
ELEMENT_TYPES = {
    number: (name, order) for name, numbers in _TYPES_BY_ORDER.items() for order, number in enumerate(numbers, start=1)
}
_SERENDIPITY = {16: "quad", 17: "hex", 18: "prism", 19: "pyramid"}

Bytes = bytes | mmap
# Bytes that are searched at a time.
_AT_A_TIME = 1 << 22


class _Stream:
    """Numbers of one section, taken one after the other: of a text, or of binary data with size_t of `size` bytes."""

    def __init__(
        self, section: str, text: Array | None, data: Bytes | memoryview = b"", order: str = "<", size: int = 8
    ) -> None:
        self.section = section
        self.text = text
        self.data = data
        self.dtypes = {
            "int": np.dtype(f"{order}i4"),
            "size": np.dtype(f"{order}u{size}"),
            "double": np.dtype(f"{order}f8"),
            "node": np.dtype([("id", f"{order}i4"), ("x", f"{order}f8", (3,))]),
        }
        self.position = 0

    def cut_short(self, why: str) -> MeshError:
        """The error of a section that ends too early."""
        return MeshError(f"section ${self.section} is cut short: {why}")

    def left(self, name: str) -> int:
        """How many numbers there can still be."""
        if self.text is not None:
            return len(self.text) - self.position
        return (len(self.data) - self.position) // self.dtypes[name].itemsize

    def take(self, name: str, count: int) -> NDArray[Any]:
        """The next numbers of one type: "int", "size" or "double"; or the next nodes of a binary file of version 2."""
        if count < 0 or count > self.left(name):
            raise self.cut_short(f"{count} more numbers are announced than it has")
        start = self.position
        if self.text is not None:
            self.position += count
            return self.text[start : self.position]
        self.position += count * self.dtypes[name].itemsize
        return np.frombuffer(self.data, self.dtypes[name], count, start)

    def integers(self, name: str, count: int) -> Indices:
        """The next numbers, which must be integers."""
        return as_integers(self.take(name, count))

    def integer(self, name: str) -> int:
        """The next number, an integer."""
        return int(self.integers(name, 1)[0])

    def peek(self, name: str) -> float:
        """The next number, without taking it; -1 at the end."""
        position = self.position
        value = self.take(name, 1)[0] if self.left(name) else -1
        self.position = position
        return float(value)

    def doubles(self, count: int, columns: int, who: str) -> Array:
        """The next nodes, with a given count of real numbers each; `who` announces them."""
        if count > self.left("double") // columns:
            raise self.cut_short(f"{who} announces {count} nodes")
        return self.take("double", columns * count).astype(np.float64).reshape(count, columns)

    def ahead(self, lines: int) -> None:
        """Prepare the numbers of the next lines of a text; here all are ready."""

    def skip(self, name: str, rows: int, columns: int) -> None:
        """Skip rows of numbers, of one line each."""
        if rows < 0 or rows * columns > self.left(name):
            raise self.cut_short(f"{rows} rows are announced")
        self.position += rows * columns * (1 if self.text is not None else self.dtypes[name].itemsize)

    def table(self, name: str, rows: int, columns: int) -> Indices:
        """The next rows of integers, [rows, columns]."""
        if rows < 0 or rows > self.left(name):
            raise self.cut_short(f"{rows} rows are announced")
        return self.integers(name, rows * columns).reshape(rows, columns)


class _Lines(_Stream):
    """Numbers of one section of text, of which some lines are held at a time."""

    def __init__(self, section: str, data: Bytes, begin: int, end: int) -> None:
        super().__init__(section, np.empty(0))
        self.data, self._at, self._end = data, begin, end
        self.ahead(0)

    def ahead(self, lines: int) -> None:
        """Read the next lines."""
        stop = self._behind(lines)
        self.text, self.position = parsed_numbers(bytes(self.data[self._at : stop]))[0], 0
        self._at = stop

    def skip(self, name: str, rows: int, columns: int) -> None:
        """Skip lines."""
        self._at = self._behind(rows)

    def _behind(self, lines: int) -> int:
        """Where the next lines end."""
        at = self._at
        while lines > 0:
            part = np.frombuffer(self.data, np.uint8, min(_AT_A_TIME, self._end - at), at)
            ends = np.flatnonzero(part == ord("\n"))
            if len(ends) >= lines:
                return at + int(ends[lines - 1]) + 1
            lines, at = lines - len(ends), at + len(part)
            if at == self._end:
                raise self.cut_short(f"{lines} more lines are announced than it has")
        return at


@dataclass
class Content:
    """What has been read so far, of all partitions or of those in `chosen`; the nodes of the elements by their ids."""

    names: dict[int, dict[int, str]] = field(default_factory=lambda: {dim: {} for dim in range(4)})
    groups: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    ids: Indices | None = None
    points: Array | None = None
    elements: list[Elements] | None = None
    periodic: list[Indices] = field(default_factory=list)
    chosen: frozenset[int] | None = None
    partitions: dict[tuple[int, int], frozenset[int]] = field(default_factory=dict)
    needed: Indices | None = None
    data: dict[str, tuple[Indices, Array]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def whole(self) -> tuple[Indices, Array, list[Elements]]:
        """Numbers of the nodes, the nodes, and the elements; a file must have them."""
        if self.points is None or self.ids is None:
            raise MeshError("there is no $Nodes section")
        if self.elements is None:
            raise MeshError("there is no $Elements section")
        return self.ids, self.points, self.elements

    def sets(self, dim: int, entity: int, count: int) -> dict[str, Indices]:
        """Names of all of so many elements on an entity: of its physical groups, or their numbers."""
        names, groups = self.names[dim], self.groups.get((dim, entity), [])
        return {group_name(tag, names): np.arange(count) for tag in groups if tag}

    def wants(self, dim: int, entity: int) -> bool:
        """Whether elements on an entity are to be read."""
        return self.chosen is None or bool(self.chosen & self.partitions.get((dim, entity), frozenset()))


def read_msh(data: bytes) -> MeshFile:
    """Read the content of a gmsh file."""
    return mesh_file(_read(data))


def mesh_file(content: Content) -> MeshFile:
    """The mesh of what was read, its nodes by rows; names of no elements are told."""
    ids, points, elements = content.whole()
    row = positions(ids, "node")
    elements = [replace(own, nodes=row(own.nodes)) for own in elements]
    known = {(own.shape.dim, name) for own in elements for name in own.sets}
    lost = [name for dim, own in content.names.items() for name in own.values() if (dim, name) not in known]
    if lost:
        names = ", ".join([*lost[:10], "..."] if len(lost) > 10 else lost)
        content.warnings.append(f"physical names of no elements are left out: {names}")
    return MeshFile(points, elements, [row(pairs) for pairs in content.periodic], warnings=content.warnings)


def read_msh_partitions(data: Bytes, chosen: frozenset[int]) -> tuple[Indices, MeshFile]:
    """Read some partitions of a gmsh file, without holding the rest of the file; -> ids [n_points]."""
    content = _read(data, chosen)
    ids, points, elements = content.whole()
    ids, first = np.unique(ids, return_index=True)
    row = positions(ids, "node")
    elements = [replace(own, nodes=row(own.nodes)) for own in elements]
    return ids, MeshFile(points[first], elements, warnings=content.warnings)


def _read(data: Bytes, chosen: frozenset[int] | None = None) -> Content:
    """What a file has; of some partitions, the nodes of their cells."""
    content, nodes = Content(chosen=chosen), None
    version, binary, order, size, start = _header(data)
    for name, begin, end in _sections(data, start, version, binary):
        stream: _Stream | _Lines
        if name == "ElementData":
            _read_data(content, data[begin:end], order if binary else "")
            continue
        if name == "Periodic" and chosen is not None:
            continue
        if name not in _READERS[version] or (name == "Periodic" and b"Affine" in data[begin : begin + 99]):
            if name in _LINE_READERS:
                lines = (line.strip() for line in _text(content, data[begin:end]).split("\n"))
                _LINE_READERS[name](content, list(filter(None, lines)))
            continue
        if binary:
            stream = _Stream(name, None, memoryview(data)[begin:end], order, size)
        elif chosen is not None and name in ("Nodes", "Elements"):
            stream = _Lines(name, data, begin, end)
        else:
            stream = _Stream(name, parsed_numbers(data[begin:end])[0])
        if name == "Nodes" and chosen is not None:
            nodes = stream  # the nodes of the elements, which come later in the file
        else:
            _READERS[version][name](content, stream)
            if isinstance(stream, _Stream) and not binary and (more := stream.left("double")):
                content.warnings.append(f"section ${name} has more than it announces: {more} numbers are left out")
    elements = content.elements or []
    if nodes is not None:
        dim = max((own.shape.dim for own in elements), default=0)
        content.needed = unique(joined([own.nodes.ravel() for own in elements if own.shape.dim == dim]))
        _read_nodes_4(content, nodes)
    for name, (numbers, values) in content.data.items():
        place, values = positions(numbers, "element"), np.append(values, np.full_like(values[:1], np.nan), axis=0)
        rows = [place(own.indices) for own in elements]
        dims = {own.shape.dim for own, at in zip(elements, rows, strict=True) if (at >= 0).any()}
        for own, at in zip(elements, rows, strict=True):
            if own.shape.dim in dims:
                own.data[name] = values[at]  # NaN where there is none
    return content


def partitions_of_msh(data: Bytes) -> int:
    """Count the partitions of a gmsh file."""
    version, binary, order, size, start = _header(data)
    at = data.find(b"$PartitionedEntities", start)
    if version != "4.1" or at < 0 or 0 <= data.find(b"$Nodes", start) < at:
        return 1
    begin = data.find(b"\n", at) + 1
    if binary:
        return _Stream("PartitionedEntities", None, data[begin : begin + 8], order, size).integer("size")
    return int(as_integers(parsed_numbers(data[begin : data.find(b"\n", begin)])[0])[0])


def _text(content: Content, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        content.warnings.append("names that are not UTF-8 are read as Latin-1")
        return data.decode("latin-1")


def _header(data: Bytes) -> tuple[str, bool, str, int, int]:
    """Version, binary, byte order, bytes of a size_t, and where the header ends."""
    found = re.search(rb"^\$MeshFormat\s+(\S+)\s+(\S+)\s+(\S+)[ \t]*\r?\n", data[:100_000], re.MULTILINE)
    if not found and data[:100].lstrip().startswith(b"$NOD"):
        raise ForLibrary("MSH of version 1", "gmsh")
    if not found:
        raise MeshError("this is not a gmsh mesh: there is no $MeshFormat")
    version, mode, size = (word.decode("ascii", "replace") for word in found.groups())
    if mode not in ("0", "1") or size not in ("4", "8"):
        raise MeshError(f"the header '{version} {mode} {size}' is not one of a gmsh mesh")
    version = re.sub(r"(\.[0-9])0+$", r"\1", version)
    known = {"2": "2.2", "2.0": "2.2", "2.1": "2.2", "2.2": "2.2", "4.1": "4.1"}
    if version not in known:
        if version in ("4", "4.0"):
            raise ForLibrary("MSH of version 4.0", "gmsh")
        raise MeshError(f"MSH version {version} cannot be read; save it as version 4.1 or 2.2 (gmsh -format msh41)")
    end = found.end() + (4 if mode == "1" else 0)
    one = data[found.end() : end] if mode == "1" else b"\1\0\0\0"
    if one not in (b"\1\0\0\0", b"\0\0\0\1"):
        raise MeshError("the binary header is damaged")
    closing = data.find(b"$EndMeshFormat", end, end + 100)
    if closing < 0:
        raise MeshError("the header is cut short")
    return known[version], mode == "1", "<" if one[0] else ">", int(size), closing + len(b"$EndMeshFormat")


def _sections(data: Bytes, start: int, version: str, binary: bool) -> Iterator[tuple[str, int, int]]:
    """Name, begin and end of each section; a closing mark may also occur among binary numbers: the last one counts."""
    opening, nothing = re.compile(rb"\s*\$(\w+)[ \t]*\r?\n"), re.compile(rb"\s*\Z")
    while not nothing.match(data, start):
        found = opening.match(data, start)
        if not found:
            raise MeshError(f"a section was expected, not {data[start : start + 30].strip()!r}")
        name = found[1].decode()
        mark = b"$End" + found[1]
        packed = binary and name in _READERS[version]
        end = data.rfind(mark, found.end()) if packed else data.find(mark, found.end())
        if end < 0:
            raise MeshError(f"the file is cut short: section ${name} does not end")
        yield name, found.end(), end
        start = end + len(mark)


def _read_names(content: Content, lines: list[str]) -> None:
    for line in lines[1:]:
        found = re.fullmatch(r'([0-3])\s+(-?[0-9]{1,18})\s+"(.*)"', line)
        if not found:
            raise MeshError(f"a physical name was expected, not {line[:60]!r}")
        content.names[int(found[1])][int(found[2])] = found[3]


def _read_data(content: Content, data: bytes, order: str) -> None:
    """Values of elements: lines of texts, reals and integers; then a table, a binary one in this order of bytes."""
    file, tags = BytesIO(data), []
    for _ in range(3):
        count = count_in(file.readline().decode("latin-1")) or 0
        tags.append([_text(content, file.readline()).strip() for _ in range(min(count, 100))])
    step, columns, count = (count_in(text) or 0 for text in [*tags[2], "", "", ""][:3])
    rest, width = file.read(), 1 + columns
    if not 1 <= columns <= 1000:
        raise MeshError(f"section $ElementData announces {columns} values of an element")
    if order:
        row_type = np.dtype([("id", f"{order}i4"), ("x", f"{order}f8", (columns,))])
        rows = np.frombuffer(rest, row_type, min(count, len(rest) // row_type.itemsize))
        ids, values = as_integers(rows["id"]), rows["x"].astype(np.float64)
    else:
        numbers, _ = parsed_numbers(rest, min(count, len(rest)) * width)
        table = numbers[: len(numbers) // width * width].reshape(-1, width)
        ids, values = as_integers(table[:, 0]), table[:, 1:]
    if len(ids) < count:
        raise MeshError(f"section $ElementData is cut short: {count} values are announced, {len(ids)} found")
    name = tags[0][0].strip('"') if tags[0] else ""
    name = f"{name}, step {step}" if name in content.data else name
    if count:
        content.data[name] = ids, values[:, 0] if columns == 1 else values


def _read_nodes_2(content: Content, stream: _Stream) -> None:
    count = _announced(stream)
    if stream.text is None:
        if count > stream.left("node"):
            raise stream.cut_short(f"it announces {count} nodes")
        nodes = stream.take("node", count)
        content.ids, content.points = as_integers(nodes["id"]), nodes["x"].astype(np.float64)
    else:
        rows = stream.doubles(count, 4, "it")
        content.ids, content.points = as_integers(rows[:, 0]), rows[:, 1:].copy()


def _announced(stream: _Stream) -> int:
    """The count at the start of a section of version 2.2, a line of text in binary files too."""
    if stream.text is not None:
        count = stream.integer("int")
    else:
        line = bytes(stream.data[:40]).split(b"\n", 1)[0]
        if not line.strip().isdigit() or len(line) >= 40:
            raise MeshError(f"section ${stream.section} does not start with a count")
        count, stream.position = int(line), len(line) + 1
    if count < 0:
        raise MeshError(f"section ${stream.section} announces {count} entries")
    return count


def element_type(number: int, element: float) -> tuple[Shape, int, Array]:
    """Shape, order and reference coordinates of the nodes of an element type."""
    if number in _SERENDIPITY:
        shape = SHAPES[_SERENDIPITY[number]]
        return shape, 2, serendipity_nodes("gmsh", shape)
    if number not in ELEMENT_TYPES:
        raise MeshError(
            f"element {element:.0f} is of gmsh type {number}, which cannot be used; complete elements can, and "
            "incomplete ones of order 2 (Mesh.SecondOrderIncomplete = 0)"
        )
    name, order = ELEMENT_TYPES[number]
    return get_shape(name), order, gmsh_nodes(name, order)


def _read_elements_2(content: Content, stream: _Stream) -> None:
    count = _announced(stream)
    content.elements = []
    while count > 0:
        if stream.text is None:
            number, rows, n_tags = (int(n) for n in stream.integers("int", 3))
            kind = element_type(number, stream.peek("int"))
            if rows < 1 or rows > count or n_tags < 0:
                raise MeshError(f"section $Elements has a block of {rows} elements with {n_tags} tags")
            table = stream.table("int", rows, 1 + n_tags + len(kind[2]))
            rest = table[:, 1:]
        else:
            element, number, n_tags = (int(n) for n in stream.integers("int", 3))
            kind = element_type(number, element)
            table = _run_of_elements(stream, number, n_tags, len(kind[2]), count)
            rest = table[:, 3:]
        groups = tagged(np.abs(rest[:, 0]), content.names[kind[0].dim]) if n_tags else {}
        content.elements.append(canonical(*kind, rest[:, n_tags:], table[:, 0].copy(), groups))
        count -= len(table)


def _run_of_elements(stream: _Stream, number: int, n_tags: int, n_nodes: int, most: int) -> Indices:
    """The next elements of text that have the same type and number of tags; three numbers of the first are read."""
    assert stream.text is not None
    start, width = stream.position - 3, 3 + n_tags + n_nodes
    if n_tags < 0 or start + width > len(stream.text):
        raise MeshError("section $Elements is cut short")
    most = min(most, (len(stream.text) - start) // width)
    same, window = 1, 64
    while same < most:
        # A row starts where the last one ended, so only an unbroken run counts.
        rows = min(window, most - same)
        begin = start + same * width
        heads = stream.text[begin : begin + rows * width].reshape(rows, width)[:, 1:3]
        alike = (heads == (number, n_tags)).all(axis=1)
        if not alike.all():
            same += int(np.argmin(alike))
            break
        same, window = same + rows, 4 * window
    stream.position = start
    return stream.table("int", same, width)


def _read_periodic_2(content: Content, lines: list[str]) -> None:
    text = "\n".join(line for line in lines if not line.startswith("Affine"))
    stream = _Stream("Periodic", parsed_numbers(text.encode())[0])
    for _ in range(stream.integer("int")):
        stream.integers("int", 3)
        content.periodic.append(stream.table("int", stream.integer("int"), 2))


def _read_entities(content: Content, stream: _Stream) -> None:
    partitioned = stream.section == "PartitionedEntities"
    if partitioned:
        stream.integer("size")  # partitions
        stream.table("int", stream.integer("size"), 2)  # ghosts
    for dim, count in enumerate(stream.integers("size", 4)):
        for _ in range(int(count)):
            tag = stream.integer("int")
            if partitioned:
                stream.integers("int", 2)  # parent
                own = stream.integers("int", stream.integer("size"))
                content.partitions[dim, tag] = frozenset(own.tolist())
            stream.take("double", 3 if dim == 0 else 6)
            # The sign is the orientation of the entity in the group.
            content.groups[dim, tag] = [abs(int(group)) for group in stream.integers("int", stream.integer("size"))]
            if dim > 0:
                stream.integers("int", stream.integer("size"))


def _read_nodes_4(content: Content, stream: _Stream) -> None:
    stream.ahead(1)
    n_blocks = stream.integers("size", 4)[0]
    ids, points = [np.empty(0, dtype=np.int64)], [np.empty((0, 3))]
    for _ in range(int(n_blocks)):
        stream.ahead(1)
        dim, _, parametric = (int(n) for n in stream.integers("int", 3))
        count = stream.integer("size")
        if not 0 <= dim <= 3 or parametric not in (0, 1):
            raise MeshError(f"section $Nodes has a block of dimension {dim}, parametric {parametric}")
        stream.ahead(count)
        ids.append(stream.integers("size", count))
        stream.ahead(count)
        points.append(stream.doubles(count, 3 + dim * parametric, "a block")[:, :3])
        if content.needed is not None:
            kept = np.isin(ids[-1], content.needed)
            ids[-1], points[-1] = ids[-1][kept], points[-1][kept]
    content.ids, content.points = np.concatenate(ids), np.concatenate(points)


def _read_elements_4(content: Content, stream: _Stream) -> None:
    stream.ahead(1)
    n_blocks = stream.integers("size", 4)[0]
    content.elements = []
    for _ in range(int(n_blocks)):
        stream.ahead(1)
        dim, entity, number = (int(n) for n in stream.integers("int", 3))
        count = stream.integer("size")
        if not content.wants(dim, entity):
            stream.skip("size", count, 1 + len(element_type(number, -1)[2]))
            continue
        stream.ahead(count)
        shape, order, reference = element_type(number, stream.peek("size"))
        if shape.dim != dim:
            raise MeshError(f"section $Elements has a block of {shape.name}s on an entity of dimension {dim}")
        table = stream.table("size", count, 1 + len(reference))
        sets = content.sets(dim, entity, count)
        content.elements.append(canonical(shape, order, reference, table[:, 1:], table[:, 0].copy(), sets))


def _read_periodic_4(content: Content, stream: _Stream) -> None:
    for _ in range(stream.integer("size")):
        stream.integers("int", 3)
        stream.take("double", stream.integer("size"))
        content.periodic.append(stream.table("size", stream.integer("size"), 2))


def content_of_model(model: Any) -> MeshFile:
    """Read a model; cells in no physical group are left out if others are in one, as gmsh leaves them out of files."""
    content, mesh, entities, cells = Content(), model.mesh, model.getEntities(), []
    ids, points, _ = mesh.getNodes()
    content.ids, content.points = np.asarray(ids, np.int64), np.asarray(points, np.float64).reshape(-1, 3)
    for dim, group in model.getPhysicalGroups():
        if name := model.getPhysicalName(dim, group):
            content.names[dim][group] = name
    for dim, tag in entities:
        content.groups[dim, tag] = [abs(int(group)) for group in model.getPhysicalGroupsForEntity(dim, tag)]
        for number, own, nodes in zip(*mesh.getElements(dim, tag), strict=True):
            shape, order, reference = element_type(int(number), own[0])
            rows = np.asarray(nodes, np.int64).reshape(len(own), len(reference))
            sets = content.sets(dim, tag, len(own))
            cells.append(canonical(shape, order, reference, rows, np.asarray(own, np.int64), sets))
        _, here, there, _ = mesh.getPeriodicNodes(dim, tag)
        if len(here):
            content.periodic.append(np.column_stack([here, there]).astype(np.int64))
    most = max((own.shape.dim for own in cells), default=0)
    named = any(own.sets for own in cells if own.shape.dim == most)
    content.elements = [own for own in cells if own.sets or own.shape.dim < most or not named]
    return mesh_file(content)


# Also of version 4.1: gmsh 4.15 writes what it has read from older versions as it was.
_LINE_READERS: dict[str, Callable[[Content, list[str]], None]] = {
    "PhysicalNames": _read_names,
    "Periodic": _read_periodic_2,
}
_READERS: dict[str, dict[str, Callable[[Content, _Stream], None]]] = {
    "2.2": {"Nodes": _read_nodes_2, "Elements": _read_elements_2},
    "4.1": {
        "Entities": _read_entities,
        "PartitionedEntities": _read_entities,
        "Nodes": _read_nodes_4,
        "Elements": _read_elements_4,
        "Periodic": _read_periodic_4,
    },
}
