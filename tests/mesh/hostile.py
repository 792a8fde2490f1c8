"""Mesh files in every encoding, with any number of their headers made another."""

import base64
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

TEXTS = [
    *("0", "-1", "1", "3", "2147483647", "2147483648", "4294967295", "4294967296", "9223372036854775807"),
    *("9223372036854775808", "18446744073709551615", "18446744073709551616", "1e30", "1e400", "nan", "-inf", "²", "٣"),
    *("0x10", "1_0", "", "9" * 5000, "-" + "9" * 5000),
]
NUMBERS = [0, 1, 2, 5, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "vtkZLibDataCompressor": zlib.compress,
    "vtkLZMADataCompressor": lzma.compress,
}
ENCODINGS = ("inline", "base64", "raw")
# Two triangles.
ARRAYS = {
    "Points": ("Float64", np.array([0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0], dtype="<f8")),
    "connectivity": ("Int64", np.array([0, 1, 2, 1, 3, 2], dtype="<i8")),
    "offsets": ("Int64", np.array([3, 6], dtype="<i8")),
    "types": ("UInt8", np.array([5, 5], dtype="u1")),
    "region": ("Int32", np.array([4, 6], dtype="<i4")),
}
BLOCK = 16  # bytes compressed at a time

Header = list[int]


def packed(data: bytes, compressor: str) -> tuple[Header, bytes]:
    """Header and content of an array."""
    if not compressor:
        return [len(data)], data
    blocks = [COMPRESSORS[compressor](data[i : i + BLOCK]) for i in range(0, len(data), BLOCK)]
    return [len(blocks), BLOCK, len(data) % BLOCK, *map(len, blocks)], b"".join(blocks)


def vtu(
    compressor: str = "",
    encoding: str = "inline",
    width: int = 8,
    change: Callable[[str, Header, bytes], tuple[Header, bytes]] = lambda name, header, content: (header, content),
) -> bytes:
    """Two triangles as a VTU file, header and content of each array changed by a function of its name."""
    appended, elements = b"", {}
    for name, (kind, values) in ARRAYS.items():
        header, content = change(name, *packed(values.tobytes(), compressor))
        head = b"".join((number % 2 ** (8 * width)).to_bytes(width, "little") for number in header)
        if encoding == "raw":
            data = head + content
        elif compressor:
            data = base64.b64encode(head) + base64.b64encode(content)
        else:
            data = base64.b64encode(head + content)
        where = "binary" if encoding == "inline" else f'appended" offset="{len(appended)}'
        text = data.decode() if encoding == "inline" else ""
        appended += b"" if encoding == "inline" else data
        elements[name] = f'<DataArray type="{kind}" Name="{name}" format="{where}">{text}</DataArray>'
    points, *cells, region = elements.values()
    attribute = f' compressor="{compressor}"' if compressor else ""
    tail = b"" if encoding == "inline" else b'<AppendedData encoding="%s">_' % encoding.encode()
    end = b"" if encoding == "inline" else b"</AppendedData>"
    return (
        f'<VTKFile type="UnstructuredGrid" version="2.2" byte_order="LittleEndian" header_type="UInt{8 * width}"'
        f'{attribute}><UnstructuredGrid><Piece NumberOfPoints="4" NumberOfCells="2"><Points>{points}</Points>'
        f"<Cells>{''.join(cells)}</Cells><CellData>{region}</CellData></Piece></UnstructuredGrid>"
    ).encode() + tail + appended + end + b"</VTKFile>"  # fmt: skip


def every_way() -> list[tuple[str, str, int]]:
    """Compressor, encoding and bytes of a header's number."""
    return list(product(COMPRESSORS, ENCODINGS, (4, 8)))


def with_header_numbers(names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """VTU files with one number of one header made another: what was done, and the file."""
    for compressor, encoding, width in every_way():
        for name in names:
            whole = packed(ARRAYS[name][1].tobytes(), compressor)[0]
            for place, number in product(range(len(whole)), NUMBERS):

                def change(of: str, header: Header, content: bytes) -> tuple[Header, bytes]:
                    changed = [number if i == place and of == name else n for i, n in enumerate(header)]  # noqa: B023
                    return changed, content

                label = f"{compressor or 'plain'} {encoding} UInt{8 * width} {name}[{place}] = {number}"
                yield label, vtu(compressor, encoding, width, change)


def with_texts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Text files with one number made another: what was done, and the file."""
    for found in re.finditer(rb"-?\d+(\.\d*)?", data):
        for text in TEXTS:
            label = f"byte {found.start()} ({found[0].decode()}) = {text[:30]}"
            yield label, data[: found.start()] + text.encode() + data[found.end() :]


def with_binary_numbers(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Binary files with four or eight bytes made another number: what was done, and the file."""
    for start, width in product(range(0, len(data) - 8), (4, 8)):
        for number in (0, -1, 2**31 - 1, 2**31, 2**62, 2**63):
            new = (number % 2 ** (8 * width)).to_bytes(width, "little")
            yield f"byte {start} = {number}", data[:start] + new + data[start + width :]
