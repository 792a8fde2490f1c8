"""The folder of compiled kernels: found again, never trusted when damaged or foreign, safe with many processes."""

import ctypes
import os
import subprocess
import sys
import time

import pytest

from hpfem.backends.cpu.codegen.ir import ARGUMENTS
from hpfem.backends.cpu.runtime import cache
from hpfem.backends.cpu.runtime.target import host
from hpfem.support.cache import seal
from tests.limits import forked, limit_time

OBSTACLES = {
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path, 0o600),
    "loop": lambda path: path.symlink_to(path),
    "dangling link": lambda path: path.symlink_to(path.parent / "absent"),
    "device": lambda path: path.symlink_to("/dev/zero"),
}
MODULE = f"define void @run({ARGUMENTS}) {{\n  store i64 %g0, ptr %out\n  ret void\n}}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_LOADED", {})
    return tmp_path / "kernels"


def build(monkeypatch, text=MODULE):
    """Compile as a new process would; returns whether LLVM was needed."""
    cache._LOADED.clear()
    calls = []
    compile_object = cache.compile_object
    with monkeypatch.context() as patch:
        patch.setattr(cache, "compile_object", lambda *a: calls.append(a) or compile_object(*a))
        code = cache.compiled(text, host())
    out = ctypes.c_int64(0)
    code.run(7, 0, 0, 0, 0, ctypes.addressof(out), 0, 0, 0, 0, 0, 0, 0)
    assert out.value == 7
    return bool(calls)


def test_an_entry_is_found_again(folder, monkeypatch):
    assert build(monkeypatch)
    assert not build(monkeypatch)
    assert cache.kernel_cache().info().entries == 1
    assert cache.kernel_cache().info().nbytes == sum(path.stat().st_size for path in folder.iterdir())


def test_other_code_is_another_entry(monkeypatch):
    assert build(monkeypatch)
    assert build(monkeypatch, MODULE + "; another\n")
    assert cache.kernel_cache().info().entries == 2


def test_clear(monkeypatch):
    build(monkeypatch)
    assert cache.kernel_cache().clear() == 1
    assert cache.kernel_cache().info().entries == 0
    assert build(monkeypatch)


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_entry_is_rebuilt(folder, monkeypatch, damage):
    build(monkeypatch)
    (entry,) = folder.iterdir()
    good = entry.read_bytes()
    bad = {"flip": good[:-9] + bytes([good[-9] ^ 1]) + good[-8:], "cut": good[:-100], "empty": b""}[damage]
    entry.write_bytes(bad)
    assert build(monkeypatch)
    assert entry.read_bytes() == good


@pytest.mark.parametrize("mode", [0o622, 0o602, 0o620])
def test_an_entry_that_others_can_write_is_rebuilt(folder, monkeypatch, mode):
    build(monkeypatch)
    (entry,) = folder.iterdir()
    entry.chmod(mode)
    assert build(monkeypatch)
    assert not entry.stat().st_mode & 0o022


def test_an_entry_of_another_user_is_rebuilt(folder, monkeypatch):
    build(monkeypatch)
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert build(monkeypatch)


def test_a_link_is_not_followed(folder, monkeypatch, tmp_path):
    build(monkeypatch)
    (entry,) = folder.iterdir()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert build(monkeypatch)
    assert not entry.is_symlink()


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_entries_are_regular_files(folder, monkeypatch, obstacle):
    build(monkeypatch)
    (entry,) = folder.iterdir()
    entry.unlink()
    OBSTACLES[obstacle](entry)

    def rebuild():
        limit_time(10)
        assert build(monkeypatch)
        assert obstacle == "folder" or not build(monkeypatch)
        assert cache.kernel_cache().clear() == (obstacle != "folder")

    assert forked(rebuild) == 0


def test_an_entry_of_another_kernel_is_rebuilt(folder, monkeypatch):
    build(monkeypatch)
    (entry,) = folder.iterdir()
    other = MODULE.replace("store i64 %g0", "store i64 %g1")
    cache.compiled(other, host())
    (foreign,) = set(folder.iterdir()) - {entry}
    entry.write_bytes(foreign.read_bytes())
    assert build(monkeypatch)


def test_code_that_was_cut_before_it_was_sealed_is_rebuilt(folder, monkeypatch):
    """LLVM would follow its tables beyond the end."""
    build(monkeypatch)
    (entry,) = folder.iterdir()
    code = entry.read_bytes()[32:]

    def rebuild():
        for left in (0, 4, 40, 64, len(code) // 2, len(code) - 64, len(code) - 1):
            entry.write_bytes(seal(entry.stem, code[:left]) + code[:left])
            assert build(monkeypatch)

    assert forked(rebuild) == 0


def test_a_folder_that_others_can_write_is_not_used(folder, monkeypatch):
    build(monkeypatch)
    folder.chmod(0o777)
    assert build(monkeypatch)
    assert build(monkeypatch)


def test_a_folder_that_cannot_be_made(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path / "file"))
    assert build(monkeypatch)
    assert cache.kernel_cache().info().entries == 0


def test_the_least_recently_used_go_first(folder, monkeypatch):
    monkeypatch.setattr("hpfem.support.cache.PRUNE_EVERY", 1)
    texts = [MODULE + f"; number {i}\n" for i in range(3)]
    paths = []
    for age, text in enumerate(texts):
        build(monkeypatch, text)
        (path,) = set(folder.iterdir()) - set(paths)
        paths.append(path)
        os.utime(path, (time.time() - 100 + age,) * 2)
    assert not build(monkeypatch, texts[0])  # used now
    monkeypatch.setattr(cache, "LIMIT", 3 * paths[0].stat().st_size)
    build(monkeypatch, MODULE + "; number 3\n")
    assert [path.exists() for path in paths] == [True, False, True]


def test_many_processes_at_once(folder):
    """They all compile the same kernel, none sees half an entry, and one entry is left."""
    script = (
        "import ctypes\nfrom hpfem.backends.cpu.runtime import cache\n"
        "from hpfem.backends.cpu.runtime.target import host\n"
        f"code = cache.compiled({MODULE!r}, host())\n"
        "out = ctypes.c_int64(0)\ncode.run(7, 0, 0, 0, 0, ctypes.addressof(out), 0, 0, 0, 0, 0, 0, 0)\n"
        "assert out.value == 7\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [process.wait(timeout=120) for process in running] == [0] * 4
    assert len(list(folder.iterdir())) == 1
