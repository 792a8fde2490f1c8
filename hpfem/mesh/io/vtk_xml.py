"""The XML format of VTK for unstructured grids (.vtu): text, base64 and raw data, compressed or not, any pieces."""

from __future__ import annotations

import base64
import binascii
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError
from hpfem.shapes.arguments import shown
from hpfem.shapes.arrays import Array, Indices

from ...support.machine import available_memory
from .mesh_file import ForLibrary, MeshFile
from .text import as_integers, count_in, parsed_numbers
from .vtk_cells import NUMBER_TYPES, cell_blocks

# Bytes of XML that are read at a time until the first element begins.
_PROLOG = 4096
# Largest dictionary of an LZMA stream: twice that of the best preset.
_LZMA_BYTES = 1 << 27
# Functions that make a decompressor of one block.
_COMPRESSORS: dict[str, Callable[[], Any]] = {
    "vtkZLibDataCompressor": zlib.decompressobj,
    "vtkLZMADataCompressor": lambda: lzma.LZMADecompressor(memlimit=_LZMA_BYTES),
}
# Point data that are read: marks of hidden points, and numbers of points that are the same in all pieces.
_POINT_DATA = {"vtkGhostType", "GlobalNodeIds"}


class _Arrays:
    """Reads the data arrays of one file."""

    def __init__(self, root: ElementTree.Element, appended: bytes, *, raw: bool) -> None:
        order = root.get("byte_order", "LittleEndian")
        if order not in ("LittleEndian", "BigEndian"):
            raise MeshError(f"byte order {order[:30]!r} is not known")
        self.order = "<" if order == "LittleEndian" else ">"
        header = root.get("header_type", "UInt32")
        if header not in ("UInt32", "UInt64"):
            raise MeshError(f"header type {header[:30]!r} is not known")
        self.header = np.dtype(self.order + NUMBER_TYPES[header])
        compressor = root.get("compressor")
        if compressor is not None and compressor not in _COMPRESSORS:
            raise MeshError(f"data compressed by {compressor[:40]!r} cannot be read; use zlib or no compression")
        self.unpacker = _COMPRESSORS[compressor] if compressor else None
        self.appended = memoryview(appended)
        self.raw = raw
        # Bytes of all arrays: they are copied a few times on the way to a mesh.
        self.room = available_memory() / 4

    def read(self, array: ElementTree.Element, most: int) -> NDArray[np.generic]:
        """All numbers of a DataArray, flat; its piece has at most so many."""
        name, type_name, form = array.get("Name", "Points"), array.get("type", ""), array.get("format", "ascii")
        if type_name not in NUMBER_TYPES:
            raise MeshError(f"array {name[:40]!r} is of type {type_name[:30]!r}, which is not known")
        dtype = np.dtype(self.order + NUMBER_TYPES[type_name])
        text = (array.text or "").strip().encode("latin-1", "replace")
        if form == "ascii":
            values = parsed_numbers(text)[0]
            return as_integers(values) if dtype.kind in "iu" else values
        if form == "binary":
            data = self._bytes(memoryview(text), most * dtype.itemsize, raw=False)
        elif form == "appended":
            start = array.get("offset", "")
            offset = count_in(start)
            if offset is None or offset >= max(len(self.appended), 1):
                raise MeshError(f"array {name[:40]!r} starts at {start[:20]!r}, beyond the appended data")
            data = self._bytes(self.appended[offset:], most * dtype.itemsize, raw=self.raw)
        else:
            raise MeshError(f"array {name[:40]!r} is in format {form[:30]!r}, which is not known")
        if len(data) % dtype.itemsize:
            raise MeshError(f"array {name[:40]!r} is cut short")
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))

    def _reserve(self, n_bytes: int, most: int) -> None:
        """Refuse an array, before it is made, that is too large for its piece or for the memory."""
        if n_bytes > most:
            raise MeshError(f"an array announces {n_bytes} bytes where its piece has {most}")
        self.room -= n_bytes
        if self.room < 0:
            raise MeshError("its arrays do not fit into memory")

    def _bytes(self, source: memoryview, most: int, *, raw: bool) -> bytes:
        """The content of a block of data, at most so many bytes: a header of sizes, then the content."""
        size = self.header.itemsize
        n_bytes = n_blocks = self._head(source, 1, raw)[0]
        if self.unpacker is None:
            # The size is encoded with the data or, by some writers, before them.
            content = _taken(source, 0, size + n_bytes, raw)[size:]
            if len(content) < n_bytes and not raw:
                content = _taken(source, _encoded_length(size), n_bytes, raw)
            if len(content) < n_bytes:
                raise MeshError("an array is cut short")
            self._reserve(n_bytes, most)
            return content
        if n_blocks > len(source) // size:
            raise MeshError(f"an array announces {n_blocks} compressed blocks, more than it has")
        _, whole, last, *lengths = header = self._head(source, 3 + n_blocks, raw)
        begin = len(header) * size if raw else _encoded_length(len(header) * size)
        packed = _taken(source, begin, sum(lengths), raw)
        if len(packed) < sum(lengths) or last > whole:
            raise MeshError("a compressed array is cut short or damaged")
        sizes = [whole] * (n_blocks - 1) + [last or whole] if n_blocks else []
        self._reserve(sum(sizes), most)
        ends = np.cumsum([0, *lengths])
        return b"".join(self._unpacked(packed[a:b], n) for a, b, n in zip(ends[:-1], ends[1:], sizes, strict=True))

    def _unpacked(self, packed: bytes | memoryview, size: int) -> bytes:
        """A block of compressed data, which must be as long as announced."""
        assert self.unpacker is not None
        stream = self.unpacker()
        # One more byte is allowed, so that a block that is too long is found; and the limit is never 0, which means
        # none.
        data: bytes = stream.decompress(packed, size + 1)
        if len(data) != size or not stream.eof:
            raise MeshError(f"a compressed array is damaged: a block does not have its {size} bytes")
        return data

    def _head(self, source: memoryview, count: int, raw: bool) -> list[int]:
        """The first numbers of a block's header."""
        data = _taken(source, 0, count * self.header.itemsize, raw)
        if len(data) < count * self.header.itemsize:
            raise MeshError("an array is cut short: its header is missing")
        return np.frombuffer(data, self.header, count).tolist()


def _encoded_length(n_bytes: int) -> int:
    """Characters that base64 takes for so many bytes."""
    return -(-n_bytes // 3) * 4


def _taken(source: memoryview, start: int, n_bytes: int, raw: bool) -> bytes:
    """The bytes that begin at some place of raw data or of base64; fewer where they end or, in base64, are padded."""
    if raw:
        return bytes(source[start : start + n_bytes])
    return base64.b64decode(source[start : start + _encoded_length(n_bytes)], validate=True)[:n_bytes]


def read_vtu(data: bytes) -> MeshFile:
    """Read the content of a VTK XML file of an unstructured grid."""
    with _decoding():
        return _read(data)


def pieces_of_pvtu(data: bytes) -> list[str]:
    """Find the files of the pieces of an unstructured grid."""
    root = _parsed(data)
    sources = [piece.get("Source", "") for piece in root.findall("./PUnstructuredGrid/Piece")]
    if not sources or not all(sources):
        raise MeshError(f"this names no pieces of a PUnstructuredGrid but is of {root.get('type', root.tag)[:40]!r}")
    return sources


def read_vtu_data(data: bytes) -> tuple[dict[str, NDArray[np.generic]], NDArray[np.generic] | None]:
    """Read the point data of an unstructured grid of VTK's XML; -> values [n_points, components], cells [n_cells]."""
    with _decoding():
        root, arrays, _ = _opened(data)
        pieces = root.findall("./UnstructuredGrid/Piece")
        if len(pieces) != 1:
            return {}, None
        values = _data(pieces[0], arrays, "PointData", _stated(pieces[0], "NumberOfPoints"), bool)
        named = _data(pieces[0], arrays, "CellData", _stated(pieces[0], "NumberOfCells"), lambda name: name == "cell")
        return values, named["cell"][:, 0] if named else None


@contextmanager
def _decoding() -> Iterator[None]:
    """Say what is wrong with encoded data."""
    try:
        yield
    except (binascii.Error, zlib.error, lzma.LZMAError, EOFError) as error:
        raise MeshError(f"its encoded data are damaged: {error}") from None


def _opened(data: bytes) -> tuple[ElementTree.Element, _Arrays, bool]:
    """The tree, the reader of its arrays, and whether the file's version is before 2.1."""
    markup, appended, raw = _split(data)
    root = _parsed(markup)
    if root.tag != "VTKFile" or root.get("type") != "UnstructuredGrid":
        grid = root.get("type", root.tag)
        if root.tag == "VTKFile" and grid in ("PolyData", "StructuredGrid", "RectilinearGrid", "ImageData"):
            raise ForLibrary(f"a VTK file of type {grid}", "vtk")
        raise MeshError(f"this is not a VTK file of an UnstructuredGrid but of {grid[:40]!r}")
    found = re.fullmatch(r"\s*([0-9]{1,4})\.([0-9]{1,4})\s*", root.get("version", "0.1"))
    if not found:
        raise MeshError(f"version {root.get('version')!r} is not one of VTK's XML formats")
    return root, _Arrays(root, appended, raw=raw), (int(found[1]), int(found[2])) < (2, 1)


def _read(data: bytes) -> MeshFile:
    root, arrays, before_2_1 = _opened(data)
    points, blocks, ids, n_points, n_cells = [], [], [], 0, 0
    of_cells = root.findall("./UnstructuredGrid/Piece/CellData/*")
    left = sorted({shown(array.get("Name", "")) for array in of_cells if array.get("type") not in NUMBER_TYPES})
    warnings = [f"cell data that are no numbers are left out: {', '.join(left)}"] if left else []
    for piece in root.findall("./UnstructuredGrid/Piece"):
        own = _points(piece, arrays)
        nodes, offsets, types = _cells(piece, arrays)
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= len(own)):
            where = int(np.argmax((nodes < 0) | (nodes >= len(own))))
            cell = int(np.searchsorted(offsets, where, side="right")) + n_cells + 1
            raise MeshError(f"element {cell} refers to a node that does not exist; there are {len(own)} nodes")
        of_points = _data(piece, arrays, "PointData", len(own), _POINT_DATA.__contains__)
        found = cell_blocks(
            nodes,
            np.append(0, offsets),
            types,
            _data(piece, arrays, "CellData", len(types), bool),
            before_2_1=before_2_1,
            first_number=n_cells + 1,
            point_data=of_points,
        )
        blocks += [replace(each, nodes=each.nodes + n_points) for each in found] if n_points else found
        points.append(own)
        if "GlobalNodeIds" in of_points:
            ids.append(as_integers(of_points["GlobalNodeIds"].ravel()))
        n_points, n_cells = n_points + len(own), n_cells + len(types)
    if not points:
        raise MeshError("there is no Piece of an UnstructuredGrid")
    known = np.concatenate(ids) if [*map(len, ids)] == [*map(len, points)] else None
    return MeshFile(np.concatenate(points), blocks, by_piece=True, ids=known, warnings=warnings)


def _parsed(markup: bytes) -> ElementTree.Element:
    """The tree of an XML file without a document type: entities, which may grow without end, are declared in one."""
    parser = expat.ParserCreate()
    began: list[str] = []

    def refuse(*_: object) -> None:
        raise MeshError("a VTK file defines no XML entities")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, _: began.append(name)
    try:
        for start in range(0, len(markup), _PROLOG):
            parser.Parse(markup[start : start + _PROLOG])
            if began:
                break
        return ElementTree.fromstring(markup)
    # An encoding that is not known is a LookupError or a ValueError.
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError) as error:
        raise MeshError(f"this is not a whole XML file: {error}") from None


def _stated(piece: ElementTree.Element, name: str) -> int:
    """A count among the attributes of a piece."""
    count = count_in(piece.get(name, ""))
    if count is None:
        raise MeshError(f"a piece does not state its {name}")
    return count


def _cells(piece: ElementTree.Element, arrays: _Arrays) -> tuple[Indices, Indices, Indices]:
    """Connectivity, offsets and types."""
    found = {array.get("Name"): array for array in piece.findall("./Cells/DataArray")}
    missing = [name for name in ("connectivity", "offsets", "types") if name not in found]
    if missing:
        raise MeshError(f"a piece has no array {', '.join(missing)}")
    count = _stated(piece, "NumberOfCells")
    offsets, types = (as_integers(arrays.read(found[name], count)) for name in ("offsets", "types"))
    entries = max(int(offsets[-1]), 0) if len(offsets) else 0
    return as_integers(arrays.read(found["connectivity"], entries)), offsets, types


def _split(data: bytes) -> tuple[bytes, bytes, bool]:
    """The file as XML, its appended data, and whether these are raw: raw bytes are not XML."""
    found = re.search(rb"<AppendedData[^<>]*>\s*_", data)
    if not found:
        return data, b"", False
    end = data.rfind(b"</AppendedData>")
    if end < found.end():
        raise MeshError("the file is cut short: its appended data do not end")
    encoding = re.search(rb"encoding\s*=\s*[\"'](\w+)", found[0])
    raw = encoding is not None and encoding[1] == b"raw"
    content = data[found.end() : end]
    return data[: found.start()] + data[end + len(b"</AppendedData>") :], content if raw else content.strip(), raw


def _points(piece: ElementTree.Element, arrays: _Arrays) -> Array:
    array = piece.find("./Points/DataArray")
    if array is None:
        raise MeshError("a piece has no points")
    values = arrays.read(array, 3 * _stated(piece, "NumberOfPoints")).astype(np.float64)
    if len(values) % 3:
        raise MeshError(f"a piece has {len(values)} coordinates, not three for each point")
    return values.reshape(-1, 3)


def _data(
    piece: ElementTree.Element, arrays: _Arrays, section: str, count: int, wanted: Callable[[str], bool]
) -> dict[str, NDArray[np.generic]]:
    """Arrays [count, components] of a section, by name."""
    result: dict[str, NDArray[np.generic]] = {}
    for array in piece.findall(f"./{section}/DataArray"):
        name, columns = array.get("Name", ""), count_in(array.get("NumberOfComponents", "1"))
        if wanted(name) and columns is not None and array.get("type") in NUMBER_TYPES:
            values = arrays.read(array, count * max(columns, 3))
            if len(values) % max(count, 1) or len(values) < count:
                raise MeshError(f"array {name[:40]!r} has {len(values)} numbers for {count} {section[:-4].lower()}s")
            result[name] = values.reshape(count, len(values) // max(count, 1))
    return result
