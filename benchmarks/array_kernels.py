"""Record the kernels that CuPy compiles for solutions on a GPU, for `hpfem.backends.cuda.runtime.ahead`.

    python -m benchmarks.array_kernels [--check]

With --check nothing is written, and kernels that the table lacks are listed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterable
from itertools import chain
from typing import Any

import hpfem as hp
from benchmarks.cycle import refined
from benchmarks.solution import curved, parts_of
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.runtime.ahead import TABLE, plain
from hpfem.mesh import box

# Kernels of a group.
MOST = 16


def spied(found: dict[str, None]) -> str:
    """From here on keep sources of CuPy's kernels, in the order in which they are needed; -> what they begin with."""
    from cupy._core import core
    from cupy.cuda import compiler

    inner, head = compiler._compile_module_with_cache, ""

    def first(source: str, *_: Any, **__: Any) -> Any:
        raise KeyError(source)

    def spy(source: str, options: tuple[str, ...] = (), **given: Any) -> Any:
        if source.startswith(head) and plain(options, given):
            found[source.removeprefix(head)] = None
        if "<cub/" in source:
            print("here CuPy includes CUB, which takes seconds to compile:", *traceback.format_stack(limit=6), sep="\n")
        return inner(source, options, **given)

    compiler._compile_module_with_cache = first
    try:
        core.compile_with_cache("")
    except KeyError as error:
        head = error.args[0]
    compiler._compile_module_with_cache = spy
    return head


def grouped(sources: Iterable[str]) -> list[list[str]]:
    """Groups of kernels with different names, those that are needed first in the first ones."""
    groups = list[dict[str, str]]()
    for source in sources:
        name = source.split("__global__ void ")[1].split("(")[0]
        group = next((own for own in groups if len(own) < MOST and name not in own), None)
        if group is None:
            groups.append(group := {})
        group[name] = source
    return [list(group.values()) for group in groups]


def main() -> None:
    """Record, or check."""
    import cupy

    found: dict[str, None] = {}
    os.environ["HPFEM_AHEAD"] = "0"  # CuPy is to ask for all
    BACKENDS["cuda"].device()
    head = spied(found)
    for mesh, order in (
        (refined("pipe_mixed", 2), 6),
        (curved(box("hex", (24,) * 3)), 4),
        (curved(box("tet", (20,) * 3)), 4),
    ):
        parts_of(mesh, order, "cuda")
        space = hp.Space(mesh, order, backend="cuda")
        A = hp.GlobalOperator(hp.Laplacian(space), c0 := hp.C0Space(space), hp.BoundaryConditions(c0, dirichlet=0.0))
        hp.cg(A, A.vectors.from_host(c0.coordinates[:, 0] + 1.0), hp.Multigrid(A), tol=1e-8)
    if sys.argv[1:] == ["--check"]:
        known = set(chain(*json.loads(TABLE.read_text(encoding="utf-8"))[2]))
        lacking = [source[-300:] for source in found if source not in known]
        print(f"{len(found)} kernels, {len(lacking)} of them not in the table", *lacking, sep="\n\n")
    else:
        rows = ",\n".join("[" + ",\n".join(map(json.dumps, group)) + "]" for group in grouped(found))
        TABLE.write_text(f'["{cupy.__version__}", {json.dumps(head)}, [\n{rows}\n]]\n', encoding="utf-8")


if __name__ == "__main__":
    main()
