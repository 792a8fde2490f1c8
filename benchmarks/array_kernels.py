"""Record the kernels that CuPy compiles for solutions on a GPU, for `hpfem.backends.cuda.runtime.ahead`.

    python -m benchmarks.array_kernels [--check]

With --check nothing is written, and kernels that the table lacks are listed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import hpfem as hp
from benchmarks.cycle import refined
from benchmarks.solution import curved, parts_of
from hpfem.backends import BACKENDS
from hpfem.backends.cuda.runtime.ahead import TABLE, loaded
from hpfem.mesh import box


def spied(found: dict[tuple[str, ...], None]) -> None:
    """From here on keep sources and options of CuPy's kernels, in the order in which they are needed."""
    from cupy._core import core
    from cupy.cuda import compiler

    inner, head = compiler._compile_module_with_cache, ""

    def first(source: str, *_: Any, **__: Any) -> Any:
        raise KeyError(source)

    def spy(source: str, options: tuple[str, ...] = (), **given: Any) -> Any:
        if source.startswith(head) and not given.get("name_expressions") and "/cub/" not in source:
            own = tuple(option for option in options if not option.startswith("-I"))
            if core.assemble_cupy_compiler_options(own) != options:
                own = tuple(option for option in own if option != "--std=c++17")
            assert core.assemble_cupy_compiler_options(own) == options
            found[source.removeprefix(head), *own] = None
        return inner(source, options, **given)

    compiler._compile_module_with_cache = first
    try:
        core.compile_with_cache("")
    except KeyError as error:
        head = error.args[0]
    compiler._compile_module_with_cache = spy


def main() -> None:
    """Record, or check."""
    import cupy

    found: dict[tuple[str, ...], None] = {}
    BACKENDS["cuda"].device()  # begins those that the table has
    loaded()
    spied(found)
    for mesh, order in (
        (refined("pipe_mixed", 2), 6),
        (curved(box("hex", (24,) * 3)), 4),
        (curved(box("tet", (20,) * 3)), 4),
    ):
        parts_of(mesh, order, "cuda")
        space = hp.Space(mesh, order, backend="cuda")
        A = hp.GlobalOperator(hp.Laplacian(space), c0 := hp.C0Space(space), hp.BoundaryConditions(c0, dirichlet=0.0))
        hp.cg(A, A.vectors.from_host(c0.coordinates[:, 0] + 1.0), hp.Multigrid(A), tol=1e-8)
    recorded = [list(own) for own in found]
    if sys.argv[1:] == ["--check"]:
        _, known = json.loads(TABLE.read_text(encoding="utf-8"))
        lacking = [own[0][-300:] for own in recorded if own not in known]
        print(f"{len(found)} kernels, {len(lacking)} of them not in the table", *lacking, sep="\n\n")
    else:
        rows = ",\n".join(map(json.dumps, recorded))
        TABLE.write_text(f'["{cupy.__version__}", [\n{rows}\n]]\n', encoding="utf-8")


if __name__ == "__main__":
    main()
