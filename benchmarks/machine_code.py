"""Hashes of the generated kernels, to show that a change of the code changes no kernel.

Of each case the LLVM IR of the CPU's kernels and the PTX of the CUDA kernels, by NVRTC and without a GPU, without the
names of symbols:

    python benchmarks/machine_code.py before.json
    python benchmarks/machine_code.py after.json --against before.json
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cpu.runtime import kernel as cpu_kernel
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.codegen.tables import Levels
from hpfem.backends.cuda.dense import strategy as cuda_dense
from hpfem.backends.cuda.runtime import nvrtc
from hpfem.backends.cuda.stdmat.strategy import source as stdmat_source
from hpfem.backends.cuda.sumfac import strategy as cuda_sumfac
from hpfem.backends.cuda.sumfac_top import plan as options
from hpfem.backends.cuda.sumfac_top import strategy as cuda_sumfac_top
from hpfem.backends.cuda.vectors import conjugate, indexed
from hpfem.backends.restriction import BlockMatrix, Codes
from hpfem.errors import NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.mesh import box
from hpfem.support.progress import progress

SHAPES = ("hex", "prism", "pyramid", "tet", "quad", "tri")
ORDERS = (1, 3, 6)
ARCHITECTURE = "sm_90"


def couple(u: Any, du: Any, x: Any, k: Any) -> Any:
    """Two components that meet in value and flux, with every kind of argument."""
    return [k * u[1] + x[0], np.tanh(u[0]) * u[1]], [du[1] * k + du[0], du[0]]


FORMS: dict[str, Callable[..., Any]] = {
    "BwdTrans": hp.BwdTrans,
    "IProductWRTBase": hp.IProductWRTBase,
    "PhysDeriv": hp.PhysDeriv,
    "IProductWRTDerivBase": hp.IProductWRTDerivBase,
    "Mass": hp.Mass,
    "Helmholtz": hp.Helmholtz,
    "AdvectionDiffusionReaction": lambda space, **how: hp.AdvectionDiffusionReaction(
        space, [1.0] * space.dim, 0.5, lambda *x: 1 + x[0], **how
    ),
    "couple": lambda space, **how: hp.WeakForm(space, couple, fields={"k": lambda *x: 2 + x[0]}, components=2, **how),
}


def mesh(shape: str, curved: bool) -> Any:
    """A few skewed or curved cells of a shape."""
    made = box(shape, (2,) * (2 if shape in ("quad", "tri") else 3))
    if not curved:
        return made.transformed(lambda x: x + 0.1 * x[:, ::-1])
    return made.elevated(2).transformed(lambda x: x + 0.05 * np.sin(2 * x[:, ::-1]))


def cases() -> Iterator[tuple[str, BlockProblem]]:
    """Names and problems: every form at one order, mass and Helmholtz at all orders."""
    for shape, order, curved, real in product(SHAPES, ORDERS, (False, True), ("float64", "float32")):
        for basis in ("modified", "lagrange"):
            if (real == "float32" or basis == "lagrange") and not (order == 3 and curved):
                continue
            space = hp.Space(mesh(shape, curved), order, dtype=real, basis=basis, backend="numpy")
            for form, make in FORMS.items():
                if form not in ("Mass", "Helmholtz") and not (order == 3 and curved and basis == "modified"):
                    continue
                for algorithm in ("collocated", "noncollocated"):
                    operator = make(space, algorithm=algorithm, strategy="sumfac")
                    problem = operator.choices[0].kernel.problem
                    if algorithm != problem.algorithm:
                        continue
                    kind = "curved" if curved else "affine"
                    yield f"{form} {shape} P={order} {kind} {real} {basis} {algorithm}", problem


def anonymous(text: str, symbols: str) -> str:
    """The text with names numbered in the order in which they come, without comments and empty lines."""
    numbers: dict[str, str] = {}
    text = re.sub(r"(//|;).*" if symbols.startswith("[%@]") else r"//.*", "", text)
    text = re.sub(symbols, lambda found: numbers.setdefault(found[0], f"n{len(numbers)}"), text)
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def ptx(source: str) -> str:
    """PTX of a kernel without the compile-time constants, which nothing reads; symbols and registers are numbered."""
    library, program = nvrtc.library(), ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"hpfem.cu", 0, None, None)
    options = [*nvrtc.OPTIONS, f"--gpu-architecture={ARCHITECTURE.replace('sm', 'compute')}"]
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    )
    if status:
        sys.exit(nvrtc._text(program, "ProgramLog").decode())
    text = nvrtc._text(program, "PTX").decode().rstrip("\0")
    library.nvrtcDestroyProgram(ctypes.byref(program))
    uses = Counter(re.findall(r"[A-Za-z_$][\w$]*", text))
    constant = re.compile(r"^\.global \.align \d+ \.[us]\d+ (\w+)(?: = -?\d+)?;\n", re.MULTILINE)
    text = constant.sub(lambda found: "" if uses[found[1]] == 1 else found[0], text)
    declared = set(
        re.findall(r"(?:\.entry|\.func(?:\s*\([^)]*\))?|\.b(?:8|16|32|64)|\.f(?:32|64))\s+([A-Za-z_$][\w$]*)", text)
    )
    named = "|".join(sorted(map(re.escape, declared), key=len, reverse=True)) or "(?!)"
    text = anonymous(text, rf"(?<![\w$.%])(?:{named})(?:_param_\d+)?(?![\w$])|\$L_\w+")
    return anonymous(text, r"%[a-z]+\d+")


def digest(text: str) -> str:
    """Sixteen characters that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def cpu_codes(problem: BlockProblem) -> Iterator[tuple[str, str]]:
    """IR of every strategy that compiles."""
    found: list[str] = []

    def take(text: str, target: Any) -> Any:
        found.append(text)
        raise NotSuitable("only the text is wanted")

    cpu_kernel.compiled = take  # type: ignore[assignment]
    for strategy in ("sumfac", "dense"):
        try:
            next(s for s in BACKENDS["cpu"].strategies if s.name == strategy).build(problem)
        except NotSuitable:
            pass
        if found:
            yield f"cpu {strategy}", digest(anonymous(found.pop(), r"[%@][A-Za-z_.$][\w.$]*"))


def cuda_sources(problem: BlockProblem) -> Iterator[tuple[str, str]]:
    """Sources of the kernels of every strategy that serves, with their default options."""
    found: list[str] = []

    def take(source: str, architecture: str) -> Future[Any]:
        found.append(source)
        done: Future[Any] = Future()
        done.set_result(None)
        return done

    for module in (cuda_sumfac_top, cuda_sumfac, cuda_dense):
        module.start, module.architecture, module.limits = take, lambda: ARCHITECTURE, options.Limits  # type: ignore
    for strategy in BACKENDS["cuda"].strategies:
        try:
            strategy.prepare(problem)
        except NotSuitable:
            continue
        if found:
            yield f"cuda {strategy.name}", found.pop()
    if problem.form.to_modes or problem.form.gradients:
        yield "cuda stdmat", program(stdmat_source(problem, Levels.plain(problem.tabulation)))


def vector_sources() -> Iterator[tuple[str, str]]:
    """Sources of the kernels of the iterations."""
    blocks = [
        Codes((2, 1), lambda xp, rows=rows: xp.asarray(rows, np.int32), True) for rows in ([[0], [2]], [[4], [4]])
    ]
    tables = indexed.IndexTables(BlockMatrix(blocks, csr_array((1, 4))))
    for real, components in product(("float32", "float64"), (1, 3)):
        yield f"cuda indexed {real} {components}", program(tables.source(real, components))
    for real in ("float32", "float64"):
        yield f"cuda conjugate {real}", program(conjugate.source(real, "float32"))


def main() -> int:
    """Write the hashes, and compare them with others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="JSON file to write")
    parser.add_argument("--against", type=Path, metavar="FILE", help="JSON file to compare with")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    arguments = parser.parse_args()
    hashes: dict[str, str] = {}
    with ThreadPoolExecutor(2) as pool, progress("kernels") as step:
        waiting = {}
        sources = [(name, source) for name, source in vector_sources() if arguments.only in name]
        for name, problem in cases():
            if arguments.only in name:
                hashes |= {f"{name} {code}": found for code, found in cpu_codes(problem)}
                sources += [(f"{name} {code}", source) for code, source in cuda_sources(problem)]
        waiting = {name: pool.submit(lambda text: digest(ptx(text)), source) for name, source in sources}
        for name, result in waiting.items():
            hashes[name] = result.result()
            step()
    arguments.output.write_text(json.dumps(dict(sorted(hashes.items())), indent=1) + "\n", encoding="utf-8")
    print(f"{len(hashes)} kernels")
    if arguments.against is None:
        return 0
    before = json.loads(arguments.against.read_text(encoding="utf-8"))
    differing = sorted(name for name in before | hashes if before.get(name) != hashes.get(name))
    print("\n".join(differing) or "all as before")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
