"""An error of one process ends all of them, with its message and exit code; nothing hangs."""

import re
import subprocess
import sys
import textwrap
import time

import pytest

import hpfem as hp
from hpfem.support.waiting import _patience
from tests.distributed.launch import needs_mpi, start
from tests.samples import long

# What is said, and the exit code; a process that is killed has that of its signal.
CASES = {
    "all": ("must be an integer >= 1 and <= 32, got 99", 1), "set-up": ("MeshError: this part is bad", 1),
    "raising": ("ValueError: what goes wrong", 1), "interrupted": ("KeyboardInterrupt", 1), "killed": ("", None),
    "leaving": ("", 7), "explaining": ("why it ends", 1),
    "succeeding": ("process 2 has left the script, and process 0 waits for it at ", 1),
    "before raising": ("ValueError: what goes wrong", 1), "before raising_exit": ("", 8),
}  # fmt: skip


@needs_mpi
@pytest.mark.parametrize("case", CASES)
def test_all_end(case):
    said, code = CASES[case]
    began = time.monotonic()
    # The last process goes wrong; where there are three, two go on.
    n = 3 if case in ("raising", "succeeding") else 2
    found = start(n, "tests/distributed/failure_cases.py", *case.split(), limit=60)
    assert time.monotonic() - began < 30
    assert found.returncode == code or (code is None and found.returncode != 0)
    assert "never here" not in found.stdout
    assert said in found.stderr
    assert found.stderr.count("Traceback") == (code == 1 and case not in ("explaining", "succeeding"))


@needs_mpi
def test_processes_that_end_one_after_the_other_say_nothing():
    found = start(2, "tests/distributed/failure_cases.py", "apart", limit=60)
    assert found.returncode == 0 and found.stdout == found.stderr == ""


@needs_mpi
def test_who_waits_for_long_says_once_where_and_for_whom():
    patience = {"HPFEM_PATIENCE": "0.5"}
    found = start(2, "tests/distributed/failure_cases.py", "waiting", limit=60, environment=patience)
    said = [line for line in found.stderr.splitlines() if "goes on waiting" in line]
    assert len(said) == 3 and found.returncode != 0
    late, *both = sorted(said, key=lambda line: "computes" not in line)
    assert late.startswith("process 0 of 2 has waited for ") and "for process 1, which does not wait" in late
    lines = [int(re.search(r"waited for .* s at [^ ]*failure_cases\.py:(\d+)", line).group(1)) for line in sorted(both)]
    for rank, line in enumerate(sorted(both)):
        other = rf"for process {1 - rank}, which waits at [^ ]*failure_cases\.py:{lines[1 - rank]}"
        assert line.startswith(f"process {rank} of 2") and re.search(other, line)


def test_patience_is_a_positive_number(monkeypatch):
    for wrong in ("soon", "0", "-1", "nan"):
        monkeypatch.setenv("HPFEM_PATIENCE", wrong)
        with pytest.raises(hp.ArgumentError, match="HPFEM_PATIENCE"):
            _patience()


@needs_mpi
@pytest.mark.parametrize(
    ("phase", "how"),
    [
        ("reading", "raising"),
        ("compiling", "raising"),
        ("writing", "raising"),
        *long(("writing", "killed")),
        ("saving", "raising"),
    ],
)
def test_all_end_in_every_phase(phase, how, tmp_path):
    if phase == "saving":
        pytest.importorskip("h5py")
    fresh = {"HPFEM_CACHE_DIR": str(tmp_path)} if phase == "compiling" else None
    began = time.monotonic()
    found = start(2, "tests/distributed/failure_cases.py", phase, how, limit=60, environment=fresh)
    assert time.monotonic() - began < 30
    assert found.returncode == 1 or (how == "killed" and found.returncode != 0)
    assert "never here" not in found.stdout
    assert how == "killed" or "ValueError: what goes wrong" in found.stderr


@needs_mpi
def test_a_command_that_fails_on_one_process_ends_all():
    code = """
        import sys, hpfem as hp
        from hpfem.cli import main, solve
        from hpfem.support.communicator import world
        solve.run = lambda *_: world().sum(1)
        if world().rank == 1:
            def bad(*_): raise hp.MeshError("this part is bad")
            solve.run = bad
        main(["solve", "meshes/cube_tet.msh"])
        world().sum(1)
        print("never here")
    """
    found = start(2, "-c", textwrap.dedent(code), limit=60)
    assert found.returncode == 2 and found.stderr.count("hpfem: error: this part is bad") == 1
    assert "never here" not in found.stdout


@needs_mpi
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("solve absent.msh", "hpfem: error: absent.msh"),
        ("solve", "hpfem solve: error: the following arguments are required: MESH"),
        ("compare absent.msh", "hpfem: error: hpfem compare works in one process; start it without mpirun"),
    ],
)
def test_a_command_that_fails_everywhere_says_so_once(given, said):
    found = start(2, "-m", "hpfem", *given.split(), limit=60)
    assert found.returncode == 2 and found.stderr.count(": error: ") == 1
    assert said in found.stderr and found.stdout == ""


def test_a_process_that_mpirun_has_left_behind_ends():
    """MPICH's may end without ending all, where one aborts while many others work."""
    code = """
        from hpfem.support import ending, waiting
        ending._PARENT = -1
        waiting.Meetings(None).wait([(waiting.ALL, waiting.Done(lambda: False))])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 1 and found.stderr == "hpfem: error: mpirun has ended, so this process ends too\n"


@needs_mpi
def test_without_mpi4py_one_line_says_what_to_install():
    code = "import sys; sys.modules['mpi4py'] = None\nimport hpfem as hp\nhp.box('hex', 2)"
    found = start(2, "-c", code, limit=60)
    assert found.returncode != 0
    assert "cannot work together without mpi4py" in found.stderr and "pip install 'hpfem[mpi]'" in found.stderr


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_an_mpirun_of_another_mpi_is_reported(monkeypatch, variable):
    pytest.importorskip("mpi4py", reason="mpi4py or mpiexec is absent")
    monkeypatch.setenv(variable, "2")
    code = "import hpfem as hp\nhp.box('hex', 2)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode != 0
    assert "mpi4py sees only one" in found.stderr


class _Pair:
    """Two processes of which both are like this one."""

    rank, size, host = 0, 2, "here"

    def allgather(self, value):
        return [value, value]


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (None, "2 processes share 1 GPU(s); start one for each"),
        ("CuPy finds no NCCL; pip install nvidia-nccl-cu13 (or -cu12)", "CuPy finds no NCCL; pip install"),
    ],
)
def test_without_nccl_or_with_too_few_gpus_the_host_serves_and_one_line_says_so(monkeypatch, caplog, missing, said):
    from hpfem.backends.cuda.runtime import nccl
    from hpfem.support.log import forget_reports

    forget_reports()
    monkeypatch.setattr(nccl, "_missing", lambda: missing)
    monkeypatch.setattr(nccl, "_place", lambda comm: (comm.host, "0000:01:00.0"))
    assert nccl.nccl_of(_Pair()) is None
    assert len(caplog.messages) == 1 and said in caplog.messages[0]
    assert "messages between processes go through the host" in caplog.messages[0]


def test_nccl_is_never_destroyed_by_python(monkeypatch):
    """At the end of a script: else it waits for graphs and processes that are deleted later, or for ever."""
    from hpfem.backends.cuda.runtime import nccl

    made = nccl.Nccl.__new__(nccl.Nccl)
    made._comm = object()
    monkeypatch.setattr(nccl, "_MADE", {"some": None, "all": made})
    before = sys.getrefcount(made._comm)
    nccl._keep()
    after = sys.getrefcount(made._comm)
    assert after == before + 1
