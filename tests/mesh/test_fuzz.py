"""Hundreds of damaged files: each is refused with a MeshError, or gives a mesh that passes every check.

The second opinion on such a mesh is the divergence theorem: its volume is the flux of x / d through its boundary.
"""

import re
import resource
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hpfem.errors import HpfemWarning, MeshError
from hpfem.mesh import read_mesh
from tests.lazy import vtk
from tests.mesh import decks
from tests.mesh.examples import flux, sample
from tests.mesh.test_vtk import LAGRANGE, LINEAR, grid_of

DATA = Path(__file__).with_name("data")
MESHES = Path(__file__).resolve().parents[2] / "meshes"
MUTATIONS_EACH = 30
SECONDS, MEGABYTES = 5.0, 400

OTHER_NUMBERS = ["0", "-1", "2", "7", "1e30", "1e-30", "nan", "inf", "4294967296", "99999999999999999999", "x", ""]

Random = np.random.Generator


def truncated(data: bytes, rng: Random) -> bytes:
    return data[: rng.integers(len(data))]


def with_other_bytes(data: bytes, rng: Random) -> bytes:
    result = bytearray(data)
    for place in rng.integers(len(data), size=rng.integers(1, 6)):
        result[place] = rng.integers(256)
    return bytes(result)


def with_other_numbers(data: bytes, rng: Random) -> bytes:
    """A few numbers of the text become others: near ones, far ones, none."""
    places = list(re.finditer(rb"-?\d+(\.\d*)?([eE][-+]?\d+)?", data))
    if not places:
        return with_other_bytes(data, rng)
    result = data
    for found in sorted(
        (places[i] for i in rng.integers(len(places), size=rng.integers(1, 4))), key=lambda m: -m.start()
    ):
        old = found[0]
        near = str(int(old) + int(rng.choice([-1, 1, 2]))) if old.lstrip(b"-").isdigit() and len(old) < 18 else "0.5"
        choices = [
            near, near, near, "0", "-1", "1e30", "nan", "inf", "4294967296", "99999999999999999999", "x", "2", "7", "",
        ]  # fmt: skip
        new = str(rng.choice(choices)).encode()
        result = result[: found.start()] + new + result[found.end() :]
    return result


def with_a_piece_moved(data: bytes, rng: Random) -> bytes:
    """A piece is taken out, or put in again elsewhere."""
    start, to = rng.integers(len(data), size=2)
    piece = data[start : start + int(rng.integers(1, 200))]
    rest = data[:start] + data[start + len(piece) :] if rng.random() < 0.5 else data
    return rest[:to] + (piece if rng.random() < 0.5 else b"") + rest[to:]


def with_lines_changed(data: bytes, rng: Random) -> bytes:
    """A line is lost, doubled, or changes its place with another."""
    lines = data.split(b"\n")
    i, j = rng.integers(len(lines), size=2)
    kind = rng.integers(3)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines.insert(j, lines[i])
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return b"\n".join(lines)


MUTATIONS: list[Callable[[bytes, Random], bytes]] = [
    truncated, with_other_bytes, with_other_numbers, with_other_numbers, with_a_piece_moved, with_lines_changed,
]  # fmt: skip


def vtk_files(folder: Path) -> dict[str, bytes]:
    """Small files of VTK in every encoding."""
    writers = []
    for name, order, types in (("3-D mixed", 1, LINEAR), ("2-D mixed", 3, LAGRANGE)):
        grid = grid_of(sample(name, order), types)
        for mode in ("Ascii", "Binary", "Appended"):
            for compressor in (None, vtk.vtkZLibDataCompressor()):
                writer = vtk.vtkXMLUnstructuredGridWriter()
                getattr(writer, f"SetDataModeTo{mode}")()
                writer.SetEncodeAppendedData(compressor is None)
                writer.SetCompressor(compressor)
                writers.append((writer, grid, f"{order}-{mode}-{compressor is None}.vtu"))
        for version in (42, 51):
            for mode in ("ASCII", "Binary"):
                old = vtk.vtkUnstructuredGridWriter()
                old.SetFileVersion(version)
                getattr(old, f"SetFileTypeTo{mode}")()
                writers.append((old, grid, f"{order}-{version}-{mode}.vtk"))
    files = {}
    for writer, grid, name in writers:
        writer.SetInputData(grid)
        writer.SetFileName(str(folder / name))
        assert writer.Write()
        files[name] = (folder / name).read_bytes()
    return files


def examine(path: Path, data: bytes) -> bool:
    """Whether the file is a mesh; if so, a good one."""
    path.write_bytes(data)
    start = time.perf_counter()
    try:
        mesh = read_mesh(path)
        summary = mesh.summary()
    except MeshError as error:
        message = str(error)
    else:
        message = ""
    assert time.perf_counter() - start < SECONDS
    if message:
        assert message.startswith(f"{path}: ")
        assert "\n" not in message
        return False
    assert 0 < summary.worst_scaled_jacobian <= 1 + 1e-9
    if mesh.dim == mesh.points.shape[1]:
        middle = mesh.points.mean(axis=0)
        centred = mesh.transformed(lambda x: x - middle, check=False)
        assert flux(centred) == pytest.approx(summary.volume, rel=1e-8, abs=1e-8 * flux(centred, absolute=True))
        assert summary.volume > 0
    return True


def fuzz(files: dict[str, bytes], folder: Path, each: int) -> tuple[int, int]:
    """How many damaged files were read, and how many refused."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read = refused = 0
    for name, data in files.items():
        assert examine(folder / name, data)
        rng = np.random.default_rng(zlib.crc32(name.encode()))
        for number in range(each):
            mutate = MUTATIONS[number % len(MUTATIONS)]
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.simplefilter("ignore", HpfemWarning)  # what a mesh leaves out
                if examine(folder / name, mutate(data, rng)):
                    read += 1
                else:
                    refused += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEGABYTES
    return read, refused


def test_damaged_files_of_gmsh(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = {path.name: path.read_bytes() for path in sorted(DATA.glob("*.msh"))}
    files = {name: data for name, data in files.items() if name.startswith(("cube_2", "cube_41", "pyramids"))}
    read, refused = fuzz(files, tmp_path, MUTATIONS_EACH)
    assert read > 20
    assert refused > 100
    assert capfd.readouterr() == ("", "")


def test_damaged_files_of_vtk(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    read, refused = fuzz(vtk_files(tmp_path), tmp_path, MUTATIONS_EACH)
    assert read > 20
    assert refused > 100
    assert capfd.readouterr() == ("", "")


def test_damaged_decks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Abaqus's, Nastran's and SU2's files."""
    rng, files = np.random.default_rng(0), {}
    for suffix, write in ((".inp", decks.abaqus), (".bdf", decks.nastran), (".su2", decks.su2)):
        for name in ("hex", "3-D mixed", "2-D mixed"):
            files[f"{name}{suffix}"] = write(decks.numbered(sample(name), 1, rng), rng).encode()
    read, refused = fuzz(files, tmp_path, 12)
    assert read > 10
    assert refused > 30
    assert capfd.readouterr() == ("", "")


def test_damaged_files_of_ours(tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in sorted(MESHES.glob("*.msh")) if path.stat().st_size < 150_000}
    assert len(files) > 5
    read, refused = fuzz(files, tmp_path, 12)
    assert read + refused == 12 * len(files)


def test_damaged_files_of_others(shared_meshes: Path, tmp_path: Path) -> None:
    files = {
        path.name: path.read_bytes() for path in sorted(shared_meshes.rglob("*")) if path.suffix in (".msh", ".vtk")
    }
    read, refused = fuzz(files, tmp_path, MUTATIONS_EACH)
    assert read + refused == MUTATIONS_EACH * len(files)
