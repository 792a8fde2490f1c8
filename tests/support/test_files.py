"""Inputs that are refused before anything is read, outputs that are written whole or not at all."""

import json
import math
import os
import socket
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.benchmarks import read_results
from hpfem.cli import main
from hpfem.errors import ArgumentError, MeshError
from hpfem.mesh import box
from hpfem.support import files
from tests.limits import MIB, forked, limit_memory, limit_time
from tests.mesh.test_msh import TEXT_22


def test_atomic_path_gives_a_name_with_the_same_suffix_and_renames(tmp_path):
    target = tmp_path / "picture.png"
    with files.atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_path_leaves_the_old_file_when_writing_fails(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), files.atomic_path(target) as temporary:
        temporary.write_text("ne")
        raise RuntimeError("half way")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.skipif(os.name != "posix", reason="processes are asked for by POSIX")
def test_incomplete_files_of_dead_processes_are_deleted_by_the_next_write_beside_them(tmp_path):
    def killed():
        with files.atomic_path(tmp_path / "large.vtu") as temporary:
            temporary.write_text("incomplete")
            os.kill(os.getpid(), 9)

    assert forked(killed) == -9
    others = [
        f"{files.TEMPORARY}elsewhere-1-{forked(lambda: None)}-12345678.vtu",
        f"{files.TEMPORARY}12345678.vtu",
        "1-2",
    ]
    for name in others:
        (tmp_path / name).touch()
    assert len(list(tmp_path.iterdir())) == 4
    with files.atomic_path(tmp_path / "first.vtu") as of_the_living:
        of_the_living.touch()
        with files.atomic_path(tmp_path / "second.vtu") as temporary:
            temporary.touch()
        assert of_the_living.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"first.vtu", "second.vtu", *others}


def test_atomic_path_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(ArgumentError, match="there is no folder"), files.atomic_path(tmp_path / "no" / "file"):
        pass
    with pytest.raises(ArgumentError, match="it is a folder"), files.atomic_path(tmp_path):
        pass


def test_json_takes_numpy_and_has_no_nan(tmp_path):
    target = tmp_path / "result.json"
    numbers = {"rate": np.float64(2.5), "count": np.int64(3), "flag": np.True_, "bad": math.nan, "worse": np.inf}
    arrays = {"array": np.array([[1.0, np.nan]]), "tuple": (1, "two"), "none": None, 4: Path("a/b")}
    files.write_json(target, numbers | arrays)
    assert json.loads(target.read_text()) == {
        "rate": 2.5,
        "count": 3,
        "flag": True,
        "bad": None,
        "worse": None,
        "array": [[1.0, None]],
        "tuple": [1, "two"],
        "none": None,
        "4": "a/b",
    }


def test_json_refuses_other_objects_and_writes_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="cannot write a object as JSON"):
        files.write_json(tmp_path / "result.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []


def test_the_target_of_a_link_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "r.json").write_text("old")
    (tmp_path / "r.json").symlink_to(tmp_path / "real" / "r.json")
    files.write_json(tmp_path / "r.json", 1)
    assert (tmp_path / "r.json").is_symlink() and (tmp_path / "real" / "r.json").read_text() == "1\n"
    assert len(list(tmp_path.iterdir())) == 2


def odd(folder):
    """Things in the file system that are no files, by what they are."""
    os.mkfifo(folder / "pipe.msh")
    (folder / "folder.msh").mkdir()
    (folder / "loop.msh").symlink_to(folder / "loop.msh")
    with socket.socket(socket.AF_UNIX) as listener:
        # The name of a socket is short.
        name = f"/tmp/hpfem-{os.getpid()}-{len(str(folder))}"
        listener.bind(name)
        os.rename(name, folder / "socket.msh")
    (folder / "device.msh").symlink_to("/dev/zero")
    return {path.stem: path for path in folder.iterdir()}


ODD = {
    "pipe": "this is a pipe; save what comes through it to a file first",
    "folder": "this is a folder",
    "loop": "Too many levels of symbolic links",
    "socket": "this is a device, a socket or a link",
    "device": "this is a device, a socket or a link",
}


@pytest.mark.parametrize("kind", ODD)
def test_only_regular_files_are_read(kind, tmp_path):
    path = odd(tmp_path)[kind]

    def read():
        limit_time(5)  # nobody writes to the pipe, and zeros do not end
        with pytest.raises(MeshError, match=ODD[kind]):
            hp.read_mesh(path)
        with pytest.raises(ArgumentError, match=ODD[kind]):
            read_results(path)

    assert forked(read) == 0


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device"])
def test_only_regular_files_are_replaced(kind, tmp_path):
    path = odd(tmp_path)[kind]
    mode = path.stat().st_mode
    with pytest.raises(ArgumentError, match="it is a (folder|device, a pipe or a socket); give a file name"):
        files.write_json(path, 1)
    assert path.stat().st_mode == mode


NAMES = ["a\0b.msh", "a" * 300 + ".msh", "a/" * 3000 + "a.msh", "a\ud800.msh", "absent\n\x1b[31m.msh", "absent/a.msh"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_odd_names_are_refused_in_one_short_line(name, tmp_path):
    target = f"{tmp_path}/{name}"
    for action in (
        lambda: hp.read_mesh(target),
        lambda: hp.read_mesh(Path(target)),
        lambda: read_results(target),
        lambda: files.write_json(target + "/x.json", 1),
        lambda: hp.write_vtu(target + "/x.vtu", hp.Space(box("quad", (1, 1)), 1).zeros("coeff")),
    ):
        with pytest.raises(hp.HpfemError) as caught:
            action()
        message = str(caught.value)
        assert len(message) < 600 and message.isprintable()


@pytest.mark.parametrize(
    "name", ["ünïcode ∇.msh", "with space\tand tab.msh", "new\nline.msh", os.fsdecode(b"\xff.msh")]
)
def test_odd_names_of_files_are_no_hindrance(name, tmp_path, capsys):
    write_msh(tmp_path / name)
    assert hp.read_mesh(tmp_path / name).n_cells == 2
    assert main(["info", str(tmp_path / name)]) == 0
    assert "2 cells" in capsys.readouterr().out


def write_msh(path):
    """Two cells."""
    path.write_text(TEXT_22)


@pytest.mark.parametrize("suffix", [".msh", ".vtk", ".vtu", ".stl", ".mesh", ""])
def test_a_file_larger_than_memory_is_refused_at_once(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"x{suffix}"
    write_msh(path)
    os.truncate(path, 40 << 30)
    monkeypatch.setattr(files, "available_memory", lambda: float(64 << 30))

    def read():
        limit_memory(256 * MIB)
        limit_time(5)
        with pytest.raises(MeshError, match="its 40 GiB do not fit into 64 GiB of free memory"):
            hp.read_mesh(path)
        with pytest.raises(ArgumentError, match="its 40 GiB do not fit"):
            read_results(path)

    assert forked(read) == 0


def test_lack_of_memory_names_the_file(tmp_path):
    path = tmp_path / "x.msh"
    write_msh(path)
    os.truncate(path, 400 * MIB)

    def read():
        limit_memory(64 * MIB)
        with pytest.raises(MeshError, match="x.msh: there is not enough memory to read it"):
            hp.read_mesh(path)

    assert forked(read) == 0
