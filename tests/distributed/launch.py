"""Cases that several processes run together, started by pytest itself with the `mpiexec` of this Python.

    python -m tests.distributed.launch [MODULE FUNCTION]

runs a function of a module in one process of them; or those that the first process reads, one after the other.
"""

import atexit
import faulthandler
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Beyond this a test hangs.
LIMIT = 240
MISSING = "mpi4py or mpiexec is absent"
# What the first process prints when all have run a case.
DONE = "all have run it"


def mpiexec():
    """The launcher beside this Python, or that of the system; None where there is none, or no mpi4py or pymetis."""
    if any(importlib.util.find_spec(name) is None for name in ("mpi4py", "pymetis")):
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(mpiexec() is None, reason=MISSING)


def started(n, *command, environment=None, nodes=((), ())):
    """How to start Python in n processes. For other nodes: a command around mpiexec, and options of mpiexec."""
    settings = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        # Open MPI asks for these where there are few cores, and of root.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return {
        "args": [*nodes[0], mpiexec(), *nodes[1], "-n", str(n), sys.executable, *command],
        "cwd": ROOT,
        "env": {**os.environ, **settings, **(environment or {})},
        "text": True,
    }


def start(n, *command, limit=LIMIT, **options):
    """Run Python in n processes, with options of `started`; what came of it."""
    return subprocess.run(**started(n, *command, **options), capture_output=True, timeout=limit, check=False)


# Runs commands one after the other; what each prints ends with a line of the first process, the others print nothing.
COMMANDS = f"""
import contextlib, io, json, sys
from hpfem.cli import main
from hpfem.support.communicator import world
for given in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said) if world().rank else contextlib.nullcontext():
        try:
            assert main(given) == 0
        except SystemExit as left:
            assert not left.code
    assert not said.getvalue()
    world().print("{DONE}")
"""


def commands(n, *given):
    """Run commands of hpfem in the same n processes; what each prints, and their warnings."""
    found = start(n, "-c", COMMANDS, json.dumps(given))
    assert found.returncode == 0, found.stderr[-2000:]
    *said, rest = found.stdout.split(f"{DONE}\n")
    assert len(said) == len(given) and not rest
    return said, found.stderr


class Team:
    """n processes that run one case after the other; starting them takes as long as many a case."""

    def __init__(self, n):
        self.errors = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        self.processes = subprocess.Popen(**started(n, "-m", "tests.distributed.launch"), **pipes)

    def run(self, module, function):
        """Run a case; whether all have, and what is printed. An error of one has ended all."""
        with suppress(BrokenPipeError):  # they have ended: what they have said tells why
            self.processes.stdin.write(f"{module} {function}\n")
            self.processes.stdin.flush()
        lines = []
        for line in self.processes.stdout:
            if line == f"{DONE}\n":
                return True, ""
            lines.append(line)
        self.end()
        self.errors.seek(0)
        return False, f"{''.join(lines)[-3000:]}\n{self.errors.read()[-6000:]}"

    def end(self):
        """Let them end."""
        with suppress(BrokenPipeError):
            self.processes.stdin.close()
        self.processes.wait(LIMIT)


# By their number of processes; those without work sleep.
_TEAMS: dict[int, Team] = {}
atexit.register(lambda: [team.end() for team in _TEAMS.values()])


def run(n, module, function, **options):
    """Run a case of a module in n processes; in new ones if there are options, of `start`. It fails as they do."""
    if options:
        found = start(n, "-m", "tests.distributed.launch", module, function, **options)
        fine, said = found.returncode == 0, f"{found.stdout[-3000:]}\n{found.stderr[-6000:]}"
    else:
        if n not in _TEAMS:
            _TEAMS[n] = Team(n)
        fine, said = _TEAMS[n].run(module, function)
        if not fine:
            del _TEAMS[n]
    assert fine, f"{function} on {n} processes:\n{said}"


def read(comm):
    """Modules and functions that the first process is told, on all; those that wait for the next ones sleep."""
    while True:
        given = sys.stdin.readline().split() if comm.rank == 0 else []
        told = comm._mpi.Ibarrier()
        while not told.Test():
            time.sleep(0.01)
        given = comm.bcast(given)
        if not given:
            return
        yield given
        comm.allgather(None)
        comm.print(DONE)


if __name__ == "__main__":
    import hypothesis

    from hpfem.backends.cpu.runtime import target
    from hpfem.support import communicator, waiting

    target.LEVEL = int(os.environ.get("HPFEM_TEST_LEVEL", target.LEVEL))

    # Processes outnumber cores: those that wait leave them to others.
    waiting._LOOKS, waiting._let_others_run = 0, partial(time.sleep, 5e-4)
    hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("same")

    comm = communicator.world()
    assert comm.size > 1, "start it with mpiexec"
    warnings.simplefilter("error", RuntimeWarning)  # as pytest has them
    warnings.filterwarnings("error", category=DeprecationWarning, module="hpfem")
    for module, function in [sys.argv[1:]] if len(sys.argv) > 1 else read(comm):
        # What hangs says where.
        faulthandler.dump_traceback_later(float(os.environ.get("HPFEM_TEST_LIMIT", LIMIT - 30)), exit=True)
        getattr(importlib.import_module(module), function)(comm)
        faulthandler.cancel_dump_traceback_later()
