"""Killed, or the disk full, at every step of every write: the old file stays, or the new one is there."""

import functools
import json
import os
import re
import signal

import numpy as np
import pytest
from matplotlib.figure import Figure

import hpfem as hp
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.errors import ArgumentError
from hpfem.mesh import box
from hpfem.plots.style import save
from hpfem.support.cache import Cache
from hpfem.support.files import TEMPORARY, write_json
from hpfem.tuning import TuningRecord, store
from hpfem.vtu import write_vtu
from tests.limits import forked, limit_file_size
from tests.vtu.reading import read

KEY = {"device": "H200", "order": 4}


@functools.cache
def space():
    return hp.Space(box("quad", (6, 6)), 3)


def write_mesh(folder, version):
    write_vtu(folder / "u.vtu", space().project(lambda x, y: version + 0 * x))


def write_picture(folder, version):
    figure = Figure(figsize=(version, 1))
    figure.add_subplot()
    save(figure, folder / "p.png")


def write_kernel(folder, version):
    Cache(folder, ".kernel", code=True).keep("key", bytes([version]) * 5000)


def write_gpu_kernel(folder, version):
    os.environ["HPFEM_CACHE_DIR"] = str(folder.parent)
    header = nvrtc_header(5000)
    nvrtc._keep(
        nvrtc.Binary(header + bytes([version]) * (5000 - len(header)), "Used 9 registers"), "key", nvrtc.kernel_cache()
    )


def nvrtc_header(size):
    """The beginning of machine code that ends with its table of sections."""
    return b"\x7fELF" + bytes(28) + bytes(8) + (size - 64).to_bytes(8, "little") + bytes(10) + b"\x40\0\1\0\0\0"


def write_tuning(folder, version):
    os.environ["HPFEM_CACHE_DIR"] = str(folder.parent)
    store.keep(TuningRecord(KEY, ("w" * 2000, str(version), None), 1.0, None, 1.0, False, 1))


def read_tuning(folder):
    found = store.find(KEY)
    return None if found is None else int(found.winner[1])


def read_gpu_kernel(folder):
    """What would be compiled again is none."""
    return nvrtc.kernel_cache().path("key").read_bytes()[-1] if nvrtc._there("key") else None


def read_kernel(folder):
    content = Cache(folder, ".kernel", code=True).read("key")
    assert content is None or len(content) == 5000
    return None if content is None else content[0]


# Folder, how version 1 or 2 of a file is written there, how the version is read again.
WRITERS = {
    "results": (
        "any",
        lambda folder, version: write_json(folder / "r.json", {"version": version, "more": ["x" * 80] * 100}),
        lambda folder: json.loads((folder / "r.json").read_text())["version"],
    ),
    "vtu": ("any", write_mesh, lambda folder: round(read(folder / "u.vtu").point_data["u"].ravel()[0])),
    "picture": ("any", write_picture, lambda folder: png_width(folder / "p.png") // 100),
    "kernel": ("kernels", write_kernel, read_kernel),
    "gpu kernel": ("cuda", write_gpu_kernel, read_gpu_kernel),
    "tuning result": ("tuning", write_tuning, read_tuning),
}
# What may be lost, since it is made again when it is wanted: an entry of two files of different versions is none.
MADE_AGAIN = {"gpu kernel"}


def png_width(path):
    data = path.read_bytes()
    assert data.endswith(b"IEND\xaeB`\x82")
    return int.from_bytes(data[16:20], "big")


@pytest.fixture(params=WRITERS)
def written(request, tmp_path, monkeypatch):
    """A folder with version 1 of a file, how to write version 2, how to read, and what may be read after a fault."""
    name, write, read_version = WRITERS[request.param]
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    folder = tmp_path / name
    folder.mkdir(mode=0o700)
    write(folder, 1)
    assert read_version(folder) == 1
    allowed = {1, 2, None} if request.param in MADE_AGAIN else {1, 2}
    return folder, functools.partial(write, folder, 2), functools.partial(read_version, folder), allowed


def killing(name, after):
    """Make a function of the system's kill this process, before or after its work."""
    original = getattr(os, name)

    def deadly(*arguments, **options):
        if after:
            original(*arguments, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, name, deadly)


def leftovers(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(TEMPORARY)]


def largest(folder):
    return max(path.stat().st_size for path in folder.iterdir())


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", ["fsync", "replace", "unlink"])
def test_killed_between_writing_and_renaming(written, step, after):
    folder, write, version, allowed = written
    entries = {path.name for path in folder.iterdir()}

    def fault():
        killing(step, after)
        write()

    assert forked(fault) in (0, -signal.SIGKILL)
    assert version() in allowed
    assert {path.name for path in folder.iterdir()} - entries <= set(leftovers(folder))
    write()
    assert version() == 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
@pytest.mark.parametrize("kill", [True, False], ids=["killed", "full disk"])
def test_in_the_middle_of_writing(written, share, kill):
    folder, write, version, _ = written
    entries = {path.name for path in folder.iterdir()}
    limit = int(share * largest(folder))

    def fault():
        limit_file_size(limit, kill=kill)
        complaint = "cannot write it: File too large"
        try:
            write()
        except ArgumentError as error:
            complaint = str(error)
        assert re.match("cannot write .*File too large", complaint)

    assert forked(fault) == (-signal.SIGXFSZ if kill else 0)
    assert version() == 1
    assert {path.name for path in folder.iterdir()} - entries == set(leftovers(folder))
    assert bool(leftovers(folder)) == kill  # only the dead leave something behind
    write()
    assert version() == 2


def test_files_of_dead_processes_are_deleted(tmp_path):
    kept = Cache(tmp_path / "kernels", ".kernel", code=True, limit=10)
    assert kept.keep("key", b"1")
    assert forked(lambda: killing("replace", False) or kept.keep("other", b"22")) == -signal.SIGKILL
    [name] = leftovers(kept.folder)
    assert [path.name for path in kept.entries()] == ["key.kernel"] and kept.info().nbytes == 1
    kept.prune()
    assert leftovers(kept.folder) == [name]  # its process may yet be alive
    os.utime(kept.folder / name, (0, 0))
    kept.prune()
    assert leftovers(kept.folder) == [] and kept.read("key") == b"1"


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Else a machine that goes down leaves an empty file in the place of the old one."""
    done = []
    fsync, replace = os.fsync, os.replace

    def synced(handle):
        done.append(("folder" if os.path.isdir(f"/proc/self/fd/{handle}") else "file", os.fstat(handle).st_size > 0))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda *paths: done.append(("renamed", True)) or replace(*paths))
    write_json(tmp_path / "r.json", {"x": np.arange(3)})
    assert [what for what, _ in done] == ["file", "renamed", "folder"] and done[0][1]
