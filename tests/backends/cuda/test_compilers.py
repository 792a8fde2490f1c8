"""Processes that compile, one for each thread: they end with their parent, hold nothing of it, and may die."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from queue import PriorityQueue
from threading import Barrier, Thread
from types import SimpleNamespace

import pytest

from hpfem.backends.cuda.runtime import compiler, device, kernel, nvrtc
from tests.limits import forked

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes of POSIX")
SOURCE, OPTIONS = 'extern "C" __global__ void own() {}', ["--gpu-architecture=sm_90"]


@pytest.fixture(autouse=True)
def ended():
    """The process of this thread ends with the test."""
    nvrtc._end_process()
    yield
    nvrtc._end_process()


@pytest.fixture
def anew(monkeypatch):
    """No thread was begun before."""
    monkeypatch.setattr(nvrtc, "_threads", [])
    monkeypatch.setattr(nvrtc, "_asked", PriorityQueue())


def stand_in(monkeypatch, folder, text):
    """Another program in place of the compiler's."""
    script = folder / "compiler.py"
    script.write_text("import os, pickle, sys, time\n" + text)
    monkeypatch.setattr(compiler, "__file__", str(script))


def gone(pid, seconds=10.0):
    """Whether a process ends; one that nobody has waited for yet has ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z":
                time.sleep(0.05)
                continue
        return True
    return False


def works():
    """Whether a kernel is compiled."""
    return nvrtc._apart(SOURCE, OPTIONS)[2].startswith(b"\x7fELF")


def test_a_process_is_kept(monkeypatch):
    monkeypatch.setattr(nvrtc, "compiled", None)
    assert works()
    first = nvrtc._own.process.pid
    os.kill(first, signal.SIGINT)  # Ctrl-C reaches all processes of a terminal
    assert works() and nvrtc._own.process.pid == first
    assert nvrtc.by_process("__global__ void broken( {}", OPTIONS)[0] == 6 and nvrtc._own.process.pid == first


PARENT = """
import os, sys, time
from hpfem.backends.cuda.runtime import nvrtc
print(nvrtc.by_process(*{kernel!r}) and nvrtc._own.process.pid, flush=True)
holder = os.fork() if {fork} else 0
if holder or not {fork}:
    print(holder, flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize(("number", "fork"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, True)])
def test_it_ends_with_its_parent(number, fork):
    """Also where another process, which the parent has forked, keeps the pipe open."""
    code = PARENT.format(kernel=(SOURCE, OPTIONS), fork=fork)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        own, holder = int(parent.stdout.readline()), int(parent.stdout.readline())
        assert not gone(own, 0.8)
        parent.send_signal(number)
        parent.wait()
        try:
            assert gone(own)
        finally:
            if holder:
                os.kill(holder, signal.SIGKILL)


def test_a_program_does_not_wait_for_what_it_has_begun(monkeypatch, tmp_path):
    stand_in(monkeypatch, tmp_path, "while os.getppid() == int(sys.argv[1]): time.sleep(0.1)")
    code = "from hpfem.backends.cuda.runtime import compiler, nvrtc\n"
    code += f"compiler.__file__ = {compiler.__file__!r}\nnvrtc.start({SOURCE!r}, 'sm_90')"
    environment = os.environ | {"HPFEM_CACHE_DIR": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=50).returncode == 0


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux tells what a process holds")
def test_it_holds_no_file_of_its_parent_and_no_device(monkeypatch, tmp_path):
    """NVRTC loads CUDA's driver, here some library in its place, unless it is told not to."""
    own = Path("/proc/self/maps").read_text().split()
    shutil.copy(next(name for name in own if re.search(r"/libm[.-].*so", name)), tmp_path / "libcuda.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with (tmp_path / "file").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        assert works()
        own = Path(f"/proc/{nvrtc._own.process.pid}")
        held = [os.readlink(path) for path in (own / "fd").iterdir()]
    assert all(name == "/dev/null" or name.startswith("pipe:") for name in held)
    maps = (own / "maps").read_text()
    assert "nvrtc" in maps and not any(name in maps for name in ("libcuda.so", "libmpi", "libcudart", "/dev/nvidia"))


def test_one_that_has_died_is_replaced(monkeypatch):
    assert works()
    nvrtc._own.process.kill()
    nvrtc._own.process.wait()
    monkeypatch.setattr(nvrtc, "compiled", None)
    assert works()


@pytest.mark.parametrize("holder", [False, True])
def test_one_that_dies_at_work_leaves_it_to_this_process(monkeypatch, tmp_path, holder):
    """Also where another process has its end of the pipe."""
    fork = f"if {holder} and os.fork() == 0: time.sleep(30), os._exit(0)\n"
    stand_in(monkeypatch, tmp_path, fork + "pickle.load(sys.stdin.buffer)\nos.kill(os.getpid(), 9)")
    began = time.monotonic()
    assert works() and nvrtc._own.process is None and time.monotonic() - began < 20


@pytest.mark.parametrize("answer", ["(1, 'no memory', b'')", "b'?' * 9", "None"])
def test_no_verdict_leaves_it_to_this_process(monkeypatch, tmp_path, answer):
    stand_in(monkeypatch, tmp_path, f"pickle.dump({answer}, sys.stdout.buffer)\nsys.stdout.flush()\ntime.sleep(9)")
    assert works()


def test_writing_to_one_that_does_not_listen_does_not_kill(monkeypatch, tmp_path):
    """Libraries, as gmsh, set SIGPIPE back to what ends a process."""
    stand_in(monkeypatch, tmp_path, "os.close(0)\nprint('closed', flush=True)\ntime.sleep(9)")

    def work():
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

        def write():
            nvrtc._own.process = nvrtc._process()
            nvrtc._own.process.stdout.readline()
            return works()

        assert nvrtc.begin(write).result()

    assert forked(work) == 0


def test_one_without_work_ends(anew, monkeypatch):
    monkeypatch.setattr(nvrtc, "IDLE", 0.2)
    pids = [nvrtc.begin(lambda: nvrtc.by_process(SOURCE, OPTIONS) and nvrtc._own.process.pid).result()]
    assert gone(pids[0])
    monkeypatch.setattr(nvrtc.os, "cpu_count", lambda: 1)  # the same thread
    pids.append(nvrtc.begin(lambda: works() and nvrtc._own.process.pid).result())
    assert pids[0] != pids[1] and gone(pids[1])


def test_without_threads_work_is_done_at_once(anew, monkeypatch):
    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(nvrtc.Thread, "start", refused)
    assert nvrtc.begin(works).done()


def test_what_is_late_comes_after_what_is_not(anew, monkeypatch):
    monkeypatch.setattr(nvrtc.os, "cpu_count", lambda: 1)
    order, both = [], Barrier(2)
    begun = [nvrtc.begin(both.wait), *(nvrtc.begin(lambda n=n: order.append(n), late=n < 3) for n in range(6))]
    both.wait()
    assert [one.result() for one in begun[1:]] and order == [3, 4, 5, 0, 1, 2]


def test_a_kernel_is_looked_for_once_unless_it_is_gone(monkeypatch, tmp_path):
    """Its source is long: to make its name again takes as long as to load it."""
    asked, cubin = [], tmp_path / "own.cubin"

    def start(source, architecture, late=False):
        asked.append(architecture)
        cubin.touch()
        return SimpleNamespace(done=lambda: True, result=lambda: cubin, exception=lambda: None)

    monkeypatch.setattr(kernel, "start", start)
    monkeypatch.setattr(kernel, "architecture", lambda: "sm_90")
    monkeypatch.setattr(kernel, "_BEGUN", {})
    kernel.begin(SOURCE)
    assert kernel._compiled(SOURCE) == cubin and len(asked) == 1
    cubin.unlink()
    assert kernel._compiled(SOURCE) == cubin and cubin.exists() and len(asked) == 2


def test_threads_take_a_gpu_once(monkeypatch):
    """What is begun with it, CuPy's kernels, is begun once."""
    begun, meet = [], Barrier(4)

    def begin(number):
        time.sleep(0.2)
        begun.append(number)

    monkeypatch.setattr(device, "begin", begin)
    monkeypatch.setattr(device, "world", lambda: SimpleNamespace(size=1))
    monkeypatch.setattr(device, "cuda_device", lambda number: number)
    monkeypatch.setattr(device, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=SimpleNamespace(getDevice=int))))
    device._take_own.cache_clear()
    threads = [Thread(target=lambda: (meet.wait(), device.current_device())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device._take_own.cache_clear()
    assert begun == [0]
