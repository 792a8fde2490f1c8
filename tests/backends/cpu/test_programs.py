"""Programs that were written before are found again, and compiled while Python goes on."""

import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from llvmlite.binding import ffi

import hpfem as hp
from hpfem.backends.cpu.codegen.ir import ARGUMENTS, Program
from hpfem.backends.cpu.runtime import begun, cache, kernel, programs
from hpfem.backends.cpu.runtime.target import host
from tests.limits import forked

PROGRAM = Program(f"define void @run({ARGUMENTS}) {{\n  ret void\n}}\n", 3, 4, 1)
written = []


def write(number):
    """A program of its own for each number."""
    written.append(number)
    return replace(PROGRAM, text=f"; {number}\n{PROGRAM.text}")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("HPFEM_NUM_THREADS", "1")
    monkeypatch.setattr(cache, "_LOADED", {})
    written.clear()
    return tmp_path / "programs"


def made(number=0):
    program, code = programs.begin(write, host(), number)
    assert replace(program, text=PROGRAM.text) == PROGRAM and not program.text
    code.code.run(*[0] * 13)
    return list(written)


def test_a_program_is_written_once(folder):
    assert made() == made() == [0]
    assert made(1) == [0, 1] == made(0)
    assert programs.program_index().info().entries == 2


def test_it_is_written_again_where_its_code_is_gone():
    made()
    cache._LOADED.clear()
    cache.kernel_cache().clear()
    assert made() == [0, 0]


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:64] + b"[]", lambda b: b""])
def test_a_damaged_entry_is_written_again(folder, damage):
    made()
    [entry] = folder.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert made() == [0, 0] == made()


def test_other_writers_write_again(monkeypatch):
    made()
    monkeypatch.setattr(programs, "_sources", lambda: "other sources")
    assert made() == [0, 0]


def test_what_is_begun_is_compiled_beside_python(monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", "2")
    _, code = programs.begin(write, host(), 0)
    end = time.monotonic() + 30
    while code._code is None and time.monotonic() < end:
        time.sleep(1e-3)
    assert code._code is not None and code.code is code._code


def test_who_needs_a_kernel_does_not_wait_for_those_before(monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", "2")
    order, several = [], threading.Event()

    def compiled(name, text, target):
        several.wait(30)
        order.append(name)
        return name

    monkeypatch.setattr(begun, "compiled_as", compiled)
    codes = [begun.Begun(str(i), str, host()) for i in range(4)]
    while not begun._compiled_now:
        time.sleep(1e-3)
    threading.Timer(0.05, several.set).start()
    assert codes[3].code == "3" and order == ["0", "3"]
    assert [code.code for code in codes] == ["0", "1", "2", "3"] and sorted(order) == ["0", "1", "2", "3"]


def test_an_error_is_raised_where_the_kernel_is_needed(monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", "2")
    code = begun.Begun("none", lambda: "no module", host())
    for _ in range(2):
        with pytest.raises(RuntimeError):
            _ = code.code


def test_a_forked_process_compiles_what_it_needs(monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", "2")
    codes = [programs.begin(write, host(), i)[1] for i in range(20)]

    def child():
        assert not begun._queue
        for code in codes:
            code.code.run(*[0] * 13)

    assert forked(child) == 0


def test_a_fork_waits_for_a_call_of_llvm():
    lock, held = ffi.lib._lock, threading.Event()

    def call():
        with lock:
            held.set()
            time.sleep(0.1)

    def child():
        signal.alarm(30)
        made()

    threading.Thread(target=call).start()
    held.wait()
    assert forked(child) == 0


def test_a_process_ends_with_kernels_that_were_never_needed(tmp_path):
    script = "import hpfem as hp\nfor p in range(3, 9): hp.Helmholtz(hp.Space(hp.box('hex', 1), p), 1.0)\nprint('end')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_results_are_those_of_programs_that_are_written(monkeypatch):
    def result():
        space = hp.Space(hp.box("prism", 2), 3)
        return hp.Helmholtz(space, 1.0)(space.project(lambda x, y, z: x * y + z)).arrays[0]

    kernel._specialised.cache_clear()
    first = result()
    kernel._specialised.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_WRITERS", {})
        assert np.array_equal(result(), first)
