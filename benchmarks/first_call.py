"""How long the first call of an operator takes on a mesh of hexes, prisms, pyramids and tets: cold, and warm.

    python benchmarks/first_call.py -o OUT.json [--backends cuda,cpu] [--orders 2,4,7] [--operator Helmholtz]

Each measurement is a process of its own. Cold: every cache of kernels (hpfem's, CuPy's, the driver's) is an empty
folder. Warm: the same folders once more; the shortest of the repeats. `first` is the time of the project's target:
making the operator, with everything that it compiles, and applying it once; the rest of a process is listed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SHAPES = ("hex", "prism", "pyramid", "tet")
CHILD = "--child"


def measure(backend: str, order: int, operator: str, geometry: str) -> dict[str, Any]:
    """Times of this process in seconds, step by step.

    Parameters
    ----------
    backend : str
        "cuda", "cpu" or "numpy".
    order : int
    operator : str
        Name of an operator without coefficients, or "Helmholtz".
    geometry : str
        "deformed" or "affine".

    Returns
    -------
    dict
        "import", "device" (CuPy and the CUDA context), "space", "operator", "call", "again" (a later call), "first"
        (operator and call), and "blocks": what was chosen.
    """
    times: dict[str, Any] = {}
    began = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal began
        now = time.perf_counter()
        times[name], began = now - began, now

    import numpy as np

    import hpfem as hp
    from hpfem.mesh import box

    lap("import")
    wait = _prepare(backend)
    lap("device")
    mesh = box(SHAPES, (4, 4, 4))
    if geometry == "deformed":
        mesh = mesh.elevated(2).transformed(lambda x: x + 0.02 * np.sin(3 * np.roll(x, 1, axis=1)))
    space = hp.Space(mesh, order, backend=backend)
    field = space.zeros("coeff")
    lap("space")
    made = getattr(hp, operator)(space, **({"lam": 1.0} if operator == "Helmholtz" else {}))
    wait()
    lap("operator")
    result = made(field)
    wait()
    lap("call")
    made(field, out=result)
    wait()
    lap("again")
    times["first"] = times["operator"] + times["call"]
    times["blocks"] = [f"{c.kernel.problem.shape.name}: {c.strategy}, {c.algorithm}" for c in made.choices]
    return times


def _prepare(backend: str) -> Any:
    """Open the device; returns a function that waits for it."""
    if backend != "cuda":
        return lambda: None
    import cupy

    cupy.cuda.Device().synchronize()
    cupy.empty(1)
    return lambda: cupy.cuda.Device().synchronize()


def run(backend: str, order: int, operator: str, geometry: str, caches: Path) -> dict[str, Any]:
    """Measure in a new process with these folders as caches; adds "process", its whole time."""
    folders = {"HPFEM_CACHE_DIR": "hpfem", "CUPY_CACHE_DIR": "cupy", "CUDA_CACHE_PATH": "cuda", "XDG_CACHE_HOME": "xdg"}
    environment = {**os.environ, **{name: str(caches / folder) for name, folder in folders.items()}}
    command = [sys.executable, __file__, CHILD, backend, str(order), operator, geometry]
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - began}


def main() -> None:
    """Measure, print a table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", default="")
    parser.add_argument("--backends", default="cuda,cpu")
    parser.add_argument("--orders", default="2,4,7")
    parser.add_argument("--operator", default="Helmholtz")
    parser.add_argument("--geometry", default="deformed", choices=("deformed", "affine"))
    parser.add_argument("--repeats", type=int, default=3, help="of the warm measurement")
    options = parser.parse_args()
    from hpfem.backends.base import choose_backend
    from hpfem.benchmarks.results import rounded
    from hpfem.support.files import write_json
    from hpfem.support.machine import machine_description

    for backend in options.backends.split(","):
        choose_backend(backend)  # says what is missing
    rows = []
    for backend in options.backends.split(","):
        for order in map(int, options.orders.split(",")):
            case = (backend, order, options.operator, options.geometry)
            with tempfile.TemporaryDirectory() as folder:
                found = {"cold": [run(*case, Path(folder))]}
                found["warm"] = [run(*case, Path(folder)) for _ in range(options.repeats)]
            for kind, times in found.items():
                best = min(times, key=lambda t: t["first"])
                row = rounded({"backend": backend, "order": order, "cache": kind, **best})
                rows.append(row)
                numbers = [f"{name} {value:.3f}" for name, value in best.items() if isinstance(value, float)]
                print(backend, f"P={order}", kind, *numbers, flush=True)
    if options.output:
        settings = {name: value for name, value in vars(options).items() if name != "output"}
        write_json(options.output, {"settings": settings, "machine": machine_description(), "rows": rows})


if __name__ == "__main__":
    if CHILD in sys.argv:
        backend, order, operator, geometry = sys.argv[2:]
        print(json.dumps(measure(backend, int(order), operator, geometry)))
    else:
        main()
