"""The XML format of VTK for unstructured grids (.vtu): text, base64 and raw data, compressed or not, any pieces."""

from __future__ import annotations

import base64
import binascii
import lzma
import re
import zlib
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from hpfem.errors import MeshError

from .mesh_file import MeshFile, as_integers, parsed_numbers
from .vtk_cells import cell_blocks

_TYPES = {
    "Int8": "i1",
    "UInt8": "u1",
    "Int16": "i2",
    "UInt16": "u2",
    "Int32": "i4",
    "UInt32": "u4",
    "Int64": "i8",
    "UInt64": "u8",
    "Float32": "f4",
    "Float64": "f8",
}
# No compressor makes data smaller than this.
_MAX_RATIO = 2000


def _inflated(data: bytes, size: int) -> bytes:
    return zlib.decompressobj().decompress(data, size)


def _unpacked(data: bytes, size: int) -> bytes:
    return lzma.LZMADecompressor().decompress(data, size)


_COMPRESSORS: dict[str, Callable[[bytes, int], bytes]] = {
    "vtkZLibDataCompressor": _inflated,
    "vtkLZMADataCompressor": _unpacked,
}


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
        self.header = np.dtype(self.order + _TYPES[header])
        compressor = root.get("compressor")
        if compressor is not None and compressor not in _COMPRESSORS:
            raise MeshError(f"data compressed by {compressor[:40]!r} cannot be read; use zlib or no compression")
        self.decompress = _COMPRESSORS[compressor] if compressor else None
        self.appended = appended
        self.raw = raw

    def read(self, array: ElementTree.Element) -> NDArray[np.generic]:
        """All numbers of a DataArray, flat."""
        name, kind, form = array.get("Name", "Points"), array.get("type", ""), array.get("format", "ascii")
        if kind not in _TYPES:
            raise MeshError(f"array {name[:40]!r} is of type {kind[:30]!r}, which is not known")
        dtype = np.dtype(self.order + _TYPES[kind])
        text = (array.text or "").strip().encode("latin-1", "replace")
        if form == "ascii":
            values = parsed_numbers(text)[0]
            return as_integers(values) if dtype.kind in "iu" else values
        if form == "binary":
            data = self._bytes(text, raw=False)
        elif form == "appended":
            offset = array.get("offset", "")
            if not offset.strip().isdecimal() or int(offset) >= max(len(self.appended), 1):
                raise MeshError(f"array {name[:40]!r} starts at {offset[:20]!r}, beyond the appended data")
            data = self._bytes(self.appended[int(offset) :], raw=self.raw)
        else:
            raise MeshError(f"array {name[:40]!r} is in format {form[:30]!r}, which is not known")
        if len(data) % dtype.itemsize:
            raise MeshError(f"array {name[:40]!r} is cut short")
        return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))

    def _bytes(self, source: bytes, *, raw: bool) -> bytes:
        """The content of a block of data: a header of sizes, then bytes."""
        size = self.header.itemsize
        if self.decompress is None:
            n_bytes = int(self._head(source, 1, raw=raw)[0])
            # The size is encoded with the data or, by some writers, before them.
            if raw:
                content = source[size : size + n_bytes]
            else:
                content = _decoded(source, size + n_bytes)[size:]
                if len(content) < n_bytes:
                    content = _decoded(source[_encoded_length(size) :], n_bytes)
            if len(content) < n_bytes:
                raise MeshError("an array is cut short")
            return content[:n_bytes]
        n_blocks = int(self._head(source, 1, raw=raw)[0])
        if n_blocks > len(source) // size:
            raise MeshError(f"an array announces {n_blocks} compressed blocks, more than it has")
        header = self._head(source, 3 + n_blocks, raw=raw).astype(object)
        whole, last, sizes = header[1], header[2], header[3:]
        begin = header.size * size if raw else _encoded_length(header.size * size)
        total = int(sum(sizes))
        packed = source[begin : begin + total] if raw else _decoded(source[begin:], total)
        if len(packed) < total or n_blocks * whole > _MAX_RATIO * (total + 1000):
            raise MeshError("a compressed array is cut short or damaged")
        parts, at = [], 0
        for number, length in enumerate(sizes):
            wanted = last if last and number == n_blocks - 1 else whole
            parts.append(self.decompress(packed[at : at + length], int(wanted)))
            at += length
        return b"".join(parts)

    def _head(self, source: bytes, count: int, *, raw: bool) -> NDArray[np.generic]:
        """The first numbers of a block's header."""
        size = count * self.header.itemsize
        data = source[:size] if raw else _decoded(source, size)[:size]
        if len(data) < size:
            raise MeshError("an array is cut short: its header is missing")
        return np.frombuffer(data, self.header, count)


def _encoded_length(n_bytes: int) -> int:
    """Characters that base64 takes for so many bytes."""
    return -(-n_bytes // 3) * 4


def _decoded(text: bytes, n_bytes: int) -> bytes:
    """At least the first bytes of base64, up to the next padding."""
    return base64.b64decode(text[: _encoded_length(n_bytes)], validate=True)


def read_vtu(data: bytes) -> MeshFile:
    """Read the content of a VTK XML file of an unstructured grid.

    Parameters
    ----------
    data : bytes
        The whole file.

    Returns
    -------
    MeshFile

    Raises
    ------
    MeshError
        If it cannot be read; the message does not name the file.
    """
    try:
        return _read(data)
    except ElementTree.ParseError as error:
        raise MeshError(f"this is not a whole XML file: {error}") from None
    except (binascii.Error, zlib.error, lzma.LZMAError, EOFError) as error:
        raise MeshError(f"its encoded data are damaged: {error}") from None


def _read(data: bytes) -> MeshFile:
    markup, appended, raw = _split(data)
    if b"<!DOCTYPE" in markup or b"<!ENTITY" in markup:
        raise MeshError("a VTK file defines no XML entities")
    root = ElementTree.fromstring(markup)
    if root.tag != "VTKFile" or root.get("type") != "UnstructuredGrid":
        raise MeshError(f"this is not a VTK file of an UnstructuredGrid but of {root.get('type', root.tag)[:40]!r}")
    found = re.fullmatch(r"\s*(\d+)\.(\d+)\s*", root.get("version", "0.1"))
    if not found:
        raise MeshError(f"version {root.get('version')!r} is not one of VTK's XML formats")
    before_2_1 = (int(found[1]), int(found[2])) < (2, 1)
    arrays = _Arrays(root, appended, raw=raw)
    points, blocks, n_points, n_cells = [], [], 0, 0
    for piece in root.findall("./UnstructuredGrid/Piece"):
        own = _points(piece, arrays)
        cells = {a.get("Name", ""): as_integers(arrays.read(a)) for a in piece.findall("./Cells/DataArray")}
        missing = [name for name in ("connectivity", "offsets", "types") if name not in cells]
        if missing:
            raise MeshError(f"a piece has no array {', '.join(missing)}")
        nodes = cells["connectivity"]
        if len(nodes) and (nodes.min() < 0 or nodes.max() >= len(own)):
            where = int(np.argmax((nodes < 0) | (nodes >= len(own))))
            cell = int(np.searchsorted(cells["offsets"], where, side="right")) + n_cells + 1
            raise MeshError(f"element {cell} refers to a node that does not exist; there are {len(own)} nodes")
        blocks += cell_blocks(
            nodes + n_points,
            np.append(0, cells["offsets"]),
            cells["types"],
            _cell_data(piece, arrays, len(cells["types"])),
            before_2_1=before_2_1,
            first_number=n_cells + 1,
        )
        points.append(own)
        n_points, n_cells = n_points + len(own), n_cells + len(cells["types"])
    if not points:
        raise MeshError("there is no Piece of an UnstructuredGrid")
    return MeshFile(np.concatenate(points), blocks)


def _split(data: bytes) -> tuple[bytes, bytes, bool]:
    """The file as XML, what it appends, and whether that is raw: raw bytes are no XML."""
    found = re.search(rb"<AppendedData[^>]*>\s*_", data)
    if not found:
        return data, b"", False
    end = data.rfind(b"</AppendedData>")
    if end < found.end():
        raise MeshError("the file is cut short: its appended data do not end")
    encoding = re.search(rb"encoding\s*=\s*[\"'](\w+)", found[0])
    raw = encoding is not None and encoding[1] == b"raw"
    content = data[found.end() : end]
    return data[: found.start()] + data[end + len(b"</AppendedData>") :], content if raw else content.strip(), raw


def _points(piece: ElementTree.Element, arrays: _Arrays) -> NDArray[np.float64]:
    array = piece.find("./Points/DataArray")
    if array is None:
        raise MeshError("a piece has no points")
    values = arrays.read(array).astype(np.float64)
    if len(values) % 3:
        raise MeshError(f"a piece has {len(values)} coordinates, not three for each point")
    return values.reshape(-1, 3)


def _cell_data(piece: ElementTree.Element, arrays: _Arrays, count: int) -> dict[str, NDArray[np.generic]]:
    """Integer cell data; others name nothing."""
    result: dict[str, NDArray[np.generic]] = {}
    for array in piece.findall("./CellData/DataArray"):
        name, kind = array.get("Name", ""), array.get("type", "")
        if "Int" in kind or name == "HigherOrderDegrees":
            values = arrays.read(array)
            if count and len(values) % count == 0 and len(values):
                result[name] = values.reshape(count, -1)
    return result
