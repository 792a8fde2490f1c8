"""Cases that several processes run together, started by pytest itself with the `mpiexec` of this Python.

    python -m tests.distributed.launch MODULE FUNCTION

runs a function of a module in one process of them.
"""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Beyond this a test hangs.
LIMIT = 240
MISSING = "mpi4py or mpiexec is absent"


def mpiexec():
    """The launcher beside this Python, or that of the system; None where there is none, or no mpi4py or pymetis."""
    if any(importlib.util.find_spec(name) is None for name in ("mpi4py", "pymetis")):
        return None
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


needs_mpi = pytest.mark.skipif(mpiexec() is None, reason=MISSING)


def start(n, *command, limit=LIMIT, environment=None, nodes=((), ())):
    """Run Python in n processes; what came of it. For other nodes: a command around mpiexec, and options of mpiexec."""
    settings = {
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        # Open MPI asks for these where there are few cores, and of root.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    }
    return subprocess.run(
        [*nodes[0], mpiexec(), *nodes[1], "-n", str(n), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **settings, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def run(n, module, function, **options):
    """Run a case of a module in n processes, with options of `start`; it fails as they do."""
    found = start(n, "-m", "tests.distributed.launch", module, function, **options)
    assert found.returncode == 0, f"{function} on {n} processes:\n{found.stdout[-3000:]}\n{found.stderr[-6000:]}"
    return found.stdout


if __name__ == "__main__":
    import faulthandler
    import time
    import warnings
    from functools import partial

    # What hangs says where.
    faulthandler.dump_traceback_later(float(os.environ.get("HPFEM_TEST_LIMIT", LIMIT - 30)), exit=True)

    import hypothesis

    from hpfem.support import communicator

    # Processes outnumber cores: those that wait leave them to others.
    communicator._LOOKS, communicator._let_others_run = 0, partial(time.sleep, 1e-4)
    hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("same")

    comm = communicator.world()
    assert comm.size > 1, "start it with mpiexec"
    warnings.simplefilter("error", RuntimeWarning)  # as pytest has them
    getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(comm)
