"""Iterations of conjugate gradients by several processes, each with a GPU or a core of its own: cases of a series.

    mpiexec -n 2 python -m benchmarks.papers.processes

reads cases, {"series": ..., "case": ..., "backend": "cuda"} a line, and prints seconds and error of each as JSON.
`InProcesses` starts that once for all cases, since starting takes longer than a case, and takes the numbers over.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Timer
from time import perf_counter
from typing import Any

import numpy as np

from hpfem.backends.base import BACKENDS
from hpfem.backends.timer import Timing
from hpfem.benchmarks.global_phases import OPERATIONS, VECTORS
from hpfem.benchmarks.problems import Application, BuiltOperator, OneMesh, ProblemSize
from hpfem.errors import NotSuitable, SolverError
from hpfem.forms.form import BlockKernel, BlockProblem
from hpfem.memory import HOST
from hpfem.solvers import cg
from hpfem.support.communicator import world
from hpfem.tuning.select import Choice
from hpfem.tuning.store import Config

from .experiment import EXPERIMENTS

# Iterations of the two runs whose difference counts, and how many of each, the median of which counts.
SHORT, LONG, RUNS = 12, 112, 5
# Seconds after which a case is given up.
LIMIT = 300.0
# Where the processes find this module: the checkout.
CHECKOUT = Path(__file__).resolve().parents[2]


class InProcesses(OneMesh):
    """A case of another series (experiment, name) of `GlobalElements`, run by processes; `problem` is for records."""

    def __init__(
        self,
        series: tuple[str, str],
        case: Mapping[str, Any],
        backend: str,
        size: ProblemSize,
        processes: int,
        problem: BlockProblem,
    ) -> None:
        self.size, self.backend, self.processes, self.problem = size, BACKENDS[backend], processes, problem
        self._given = {"series": series, "case": dict(case), "backend": backend}

    def build(self, strategy: str, algorithm: str, n_elements: int) -> BuiltOperator:
        """Run the processes, which choose their kernels; see `OneMesh`."""
        beside = Path(sys.executable).with_name("mpiexec")
        mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
        if mpiexec is None:
            raise NotSuitable("mpiexec is not found; it comes with pip install 'hpfem[mpi]'")
        command = mpiexec, "-n", str(self.processes), sys.executable, "-m", __name__
        if command not in _TEAMS:
            _TEAMS[command] = Team(command)
        try:
            return _Found(self, _TEAMS[command].measured(self._given))
        except NotSuitable:
            _TEAMS.pop(command).end()
            raise


class Team:
    """Processes that measure one case after the other."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._count, self._errors = command[2], tempfile.TemporaryFile("w+")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._errors}
        self._run = subprocess.Popen(command, cwd=CHECKOUT, text=True, **pipes)

    def measured(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Have a case measured; without a result the processes have ended."""
        assert self._run.stdin is not None and self._run.stdout is not None
        late = Timer(LIMIT, self._run.kill)
        late.start()
        with suppress(BrokenPipeError):  # they have ended: what they have said tells why
            print(json.dumps(given), file=self._run.stdin, flush=True)
        line = next((line for line in self._run.stdout if line.startswith("{")), None)
        if line is None and not late.is_alive():
            raise NotSuitable(f"{self._count} processes were not ready after {LIMIT:g} s")
        late.cancel()
        if line is None:
            self._run.wait()
            self._errors.seek(0)
            text = self._errors.read()
            said = [line for line in text.splitlines() if "Error" in line or "NotSuitable" in line]
            raise NotSuitable(f"{self._count} processes failed: {said[0] if said else text.strip()[-200:]}")
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """Let them end."""
        with suppress(BrokenPipeError):
            self._run.communicate()
        self._errors.close()


# Those that are at work, by their command.
_TEAMS: dict[tuple[str, ...], Team] = {}


@atexit.register
def _end() -> None:
    for team in _TEAMS.values():
        team.end()


class _Found(BuiltOperator):
    def __init__(self, block: InProcesses, found: Mapping[str, Any]) -> None:
        self._block, self._found, self.about = block, found, {"share": found["share"]}
        kernel = BlockKernel()
        kernel.problem = block.problem
        config = Config(found["strategy"], None, f"{block.processes} processes")
        self.choice = Choice(config, block.backend.name, kernel, "chosen by each process", ())

    def error(self) -> float:
        return float(self._found["error"])

    def on(self, n_elements: int) -> Application:
        timing = Timing.of(self._found["seconds"], LONG - SHORT)
        nbytes, flops, n_dofs = (self._found[name] for name in ("nbytes", "flops", "n_dofs"))
        return Application(lambda: None, nbytes, flops, n_dofs, timing=timing)


def measured(given: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a case in all processes of this run; collective."""
    comm = world()
    experiment, name = given["series"]
    [series] = [one for one in EXPERIMENTS[experiment].series if one.name == name]
    built = series.block(given["case"], given["backend"]).build("auto", "auto", 0)
    A, kernel = built.A, built.choice.kernel
    if A.device.name != HOST.name and len(set(comm.allgather(A.device.name))) < comm.size:
        raise NotSuitable(f"{comm.size} processes need as many GPUs")
    b = A.apply(A.vectors.from_host(np.ones(A.shape[0])), A.device)

    def seconds(iterations: int) -> float:
        comm.sum(0.0)
        began = perf_counter()
        with suppress(SolverError):  # it is not to converge
            cg(A, b, tol=1e-300, max_iterations=iterations, bar=False)
        A.vectors.norm(b)  # waits for the device
        return float(comm.max(perf_counter() - began))

    seconds(SHORT)
    short, long = (sorted(seconds(count) for _ in range(RUNS)) for count in (SHORT, LONG))
    iterations = [max(more - less, 1e-9) / (LONG - SHORT) for less, more in zip(short, long, strict=True)]
    problem = kernel.problem
    u = A.vectors.xp.ones((given["case"].get("d", 1), problem.n_elements, problem.n_modes))
    out, timer = A.vectors.xp.empty_like(u), A.operator.backend.timer()
    timer.seconds(lambda: kernel.apply(u, out), 1)
    share = timer.seconds(lambda: kernel.apply(u, out), 10) / 10 / median(iterations)
    own = A.shape[0]
    return {
        "seconds": iterations,
        "nbytes": float(comm.sum(built.nbytes + VECTORS["none"] * own * A.dtype.itemsize)),
        "flops": float(comm.sum(built.flops + OPERATIONS["none"] * own)),
        "share": float(comm.max(share)),
        "error": float(comm.max(built.error())),
        "strategy": kernel.strategy,
        "n_dofs": A.components * A.c0.whole_size,
    }


def serve() -> None:
    """Measure what the first process reads, a case a line; collective."""
    comm = world()
    while given := comm.bcast(sys.stdin.readline() if comm.rank == 0 else ""):
        found = measured(json.loads(given))
        if comm.rank == 0:
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    from benchmarks.papers import processes

    processes.serve()
