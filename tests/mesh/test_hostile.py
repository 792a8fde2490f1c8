"""Headers that lie, bombs, entities: refused, or a good mesh, in bounded memory and time. Seeds are fixed."""

import lzma
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from hpfem.errors import MeshError
from hpfem.mesh import read_mesh
from tests.limits import MIB, forked, limit_memory, limit_time
from tests.mesh.hostile import ARRAYS, ENCODINGS, every_way, vtu, with_binary_numbers, with_header_numbers, with_texts
from tests.mesh.test_fuzz import DATA, MUTATIONS, examine
from tests.mesh.test_msh import TEXT_22
from tests.mesh.test_vtk import LEGACY, XML

Case = tuple[str, bytes]
# For every file that is read.
ROOM, SECONDS, ZEROS = 256 * MIB, 10, 320 * MIB


def check(cases: Iterable[Case], path: Path) -> None:
    """Read every file in a process with little memory and time; one that is no mesh is refused in one line."""
    doing = path.with_name("doing")

    def read_all() -> None:
        limit_memory(ROOM)
        for label, data in cases:
            doing.write_text(label)
            limit_time(SECONDS)
            examine(path, data)
        doing.write_text("")

    code = forked(read_all)
    assert code == 0, f"exit code {code} at: {doing.read_text()}"


def sampled(cases: Iterable[Case], share: float) -> Iterable[Case]:
    """A part of them, the same in every run."""
    rng = np.random.default_rng(0)
    return (case for case in cases if rng.random() < share)


def texts() -> dict[str, bytes]:
    """Text files by name."""
    version_41 = (DATA / "cube_41_text.msh").read_bytes()
    return {"x.msh": TEXT_22.encode(), "y.msh": version_41, "x.vtk": LEGACY.encode(), "x.vtu": XML.encode()}


def binaries() -> dict[str, bytes]:
    """Binary files by name."""
    return {name: (DATA / name).read_bytes() for name in ("cube_41_binary_order2.msh", "cube_22_binary_order2.msh")}


@pytest.mark.parametrize(("compressor", "encoding", "width"), every_way())
def test_the_files_are_good_before_they_are_damaged(compressor, encoding, width, tmp_path):
    assert examine(tmp_path / "x.vtu", vtu(compressor, encoding, width))


def test_every_number_of_vtu_headers(tmp_path):
    check(sampled(with_header_numbers(("connectivity", "types")), 0.25), tmp_path / "x.vtu")


@pytest.mark.parametrize("name", texts())
def test_every_number_of_text(name, tmp_path):
    cases = with_texts(texts()[name])
    check(sampled(cases, 0.006 if name == "y.msh" else 0.25), tmp_path / name)


@pytest.mark.parametrize("name", binaries())
def test_every_number_of_binary_files(name, tmp_path):
    check(sampled(with_binary_numbers(binaries()[name]), 0.002), tmp_path / name)


@pytest.mark.long
@pytest.mark.parametrize("name", [*texts(), *binaries(), "headers.vtu"])
def test_every_number_of_every_file(name, tmp_path):
    if name == "headers.vtu":
        check(with_header_numbers(tuple(ARRAYS)), tmp_path / name)
    elif name in texts():
        check(sampled(with_texts(texts()[name]), 0.3 if name == "y.msh" else 1.0), tmp_path / name)
    else:
        check(sampled(with_binary_numbers(binaries()[name]), 0.1), tmp_path / name)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_damage(seed, tmp_path):
    """Several damages at once, of files in every encoding."""
    files = {**texts(), **binaries()}
    files |= {f"{c or 'plain'}-{e}-{w}.vtu": vtu(c, e, w) for c, e, w in every_way()}
    rng = np.random.default_rng(seed)

    def cases(data: bytes) -> Iterable[Case]:
        for number in range(150):
            damaged = data
            for _ in range(rng.integers(1, 4)):
                damaged = MUTATIONS[rng.integers(len(MUTATIONS))](damaged, rng) or b"\n"
            yield f"seed {seed}, number {number}", damaged

    for name, data in files.items():
        check(cases(data), tmp_path / name)


@cache
def zeros(compressor: str) -> bytes:
    """More zeros than there is room for, compressed."""
    pack = {
        "vtkZLibDataCompressor": lambda: zlib.compressobj(1),
        "vtkLZMADataCompressor": lambda: lzma.LZMACompressor(preset=0),
    }
    stream, some = pack[compressor](), bytes(MIB)
    return b"".join(stream.compress(some) for _ in range(ZEROS // MIB)) + stream.flush()


def bomb(name, compressor, whole, last):
    """One block of zeros as an array, and what its header says of it."""
    content = zeros(compressor)
    return lambda of, header, own: ([1, whole, last, len(content)], content) if of == name else (header, own)


@pytest.mark.parametrize("compressor", ["vtkZLibDataCompressor", "vtkLZMADataCompressor"])
def test_bombs(compressor, tmp_path):
    sizes = [(0, 0), (0, 2**63), (2**63, 0), (ZEROS, ZEROS), (48, 0), (48, 47), (2**64 - 1, ZEROS)]
    files = {str(size): vtu(compressor, "raw", 8, bomb("connectivity", compressor, *size)) for size in sizes}
    check(files.items(), tmp_path / "x.vtu")
    for data in files.values():
        (tmp_path / "x.vtu").write_bytes(data)
        with pytest.raises(MeshError, match="announces|damaged"):
            read_mesh(tmp_path / "x.vtu")


def test_an_honest_bomb_does_not_fill_the_memory(tmp_path, monkeypatch):
    """The counts agree: a piece really has so many points."""
    data = vtu("vtkZLibDataCompressor", "raw", 8, bomb("Points", "vtkZLibDataCompressor", ZEROS, 0))
    data = data.replace(b'NumberOfPoints="4"', b'NumberOfPoints="%d"' % (ZEROS // 24 + 1))
    check([("honest", data)], tmp_path / "x.vtu")
    monkeypatch.setattr("hpfem.mesh.io.vtk_xml.available_memory", lambda: float(ZEROS))
    (tmp_path / "x.vtu").write_bytes(data)
    with pytest.raises(MeshError, match="do not fit into memory"):
        read_mesh(tmp_path / "x.vtu")


def test_a_dictionary_without_bounds_is_refused(tmp_path):
    content = lzma.compress(ARRAYS["types"][1].tobytes(), format=lzma.FORMAT_ALONE)
    content = content[:1] + b"\xff" * 4 + content[5:]
    change = lambda of, header, own: ([1, 2, 0, len(content)], content) if of == "types" else (header, own)  # noqa: E731
    (tmp_path / "x.vtu").write_bytes(vtu("vtkLZMADataCompressor", "raw", 8, change))
    with pytest.raises(MeshError, match="data are damaged: Memory usage limit"):
        read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize("encoding", ENCODINGS[1:])
def test_arrays_that_share_their_bytes_do_not_multiply(encoding, tmp_path, monkeypatch):
    data = vtu("", encoding)
    piece = data[data.index(b"<Piece") : data.index(b"</UnstructuredGrid>")]
    monkeypatch.setattr("hpfem.mesh.io.vtk_xml.available_memory", lambda: 1e6)
    (tmp_path / "x.vtu").write_bytes(data.replace(piece, piece * 2000))
    with pytest.raises(MeshError, match="do not fit into memory"):
        read_mesh(tmp_path / "x.vtu")


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
DOCTYPES = ['<!DOCTYPE VTKFile [<!ENTITY l0 "ha">' + LAUGHS + "]>", "<!DOCTYPE VTKFile>"]


@pytest.mark.parametrize("doctype", DOCTYPES)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"])
def test_a_document_type_is_refused_in_every_encoding(encoding, doctype, tmp_path):
    named = {"utf-8-sig": "utf-8", "utf-16-le": "utf-16", "utf-16-be": "utf-16"}.get(encoding, encoding)
    text = XML.replace('"1.0"?>', f'"1.0" encoding="{named}"?>{doctype}').replace(">3 6<", ">3 6&l9;<")
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}.get(encoding, b"")
    data = mark + text.encode(encoding)
    check([(encoding, data)], tmp_path / "x.vtu")
    (tmp_path / "x.vtu").write_bytes(data)
    with pytest.raises(MeshError, match="no XML entities"):
        read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize("encoding", ["nonsense", "utf-32", "shift_jis", "rot13", "idna"])
def test_encodings_that_are_not_known(encoding, tmp_path):
    (tmp_path / "x.vtu").write_text(XML.replace('"1.0"?>', f'"1.0" encoding="{encoding}"?>'))
    with pytest.raises(MeshError, match="not a whole XML file"):
        read_mesh(tmp_path / "x.vtu")


@pytest.mark.parametrize(
    ("name", "head", "rest"),
    [
        ("x.vtu", b"<VTKFile>", b"<AppendedData"),
        ("x.msh", b"$MeshFormat\n2.2 0 8\n$EndMeshFormat\n$Nodes\n", b"1"),
        ("x.vtk", b"# vtk DataFile Version 3.0\nt\nASCII\nDATASET UNSTRUCTURED_GRID\nPOINTS 1 double\n", b"1"),
    ],
)
def test_files_that_take_a_reader_long(name, head, rest, tmp_path):
    check([(name, head + rest * (20 * MIB // len(rest)))], tmp_path / name)
