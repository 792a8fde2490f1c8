"""Hashes of the generated kernels, to show that a change of the code changes no kernel.

    python -m benchmarks.machine_code --check               # names the kernels that are not those of the reference
    python -m benchmarks.machine_code --check --only fused  # only those whose names contain it
    python -m benchmarks.machine_code --write               # renews the reference, where kernels change on purpose

The reference is `results/machine_code.json`: LLVM's IR of the kernels of CPUs, source and PTX of those of CUDA, for
every strategy and every kernel on vectors. Nothing is run, and neither the processor nor the GPU at hand
matters: kernels are written for `WIDTHS` of vectors and for `DEVICE`. Names of symbols and comments do not count, and
numbers to seven digits only, since the last ones differ between versions of LAPACK. What OpenBLAS turns
where singular values are equal differs between processors: it computes as for one of them. PTX alone depends on a
compiler: NVRTC makes it of sources that are not those of the reference, which are the same kernel if it is the same.
`--check` says where that takes another version of NVRTC.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import hpfem as hp
from hpfem.backends import BACKENDS
from hpfem.backends.cellwise import FactorisedMatrix
from hpfem.backends.cpu.codegen import vectors as cpu_vectors
from hpfem.backends.cpu.codegen.indexed import Runs
from hpfem.backends.cpu.codegen.pointwise import write_function
from hpfem.backends.cpu.codegen.sequence import write_sequence
from hpfem.backends.cpu.runtime import cache as compiler
from hpfem.backends.cpu.runtime import geometry, kernel, passes, target
from hpfem.backends.cuda.codegen.prelude import program
from hpfem.backends.cuda.runtime import device, nvrtc
from hpfem.backends.cuda.runtime.compiler import compiled
from hpfem.backends.cuda.vectors import cellwise, conjugate, function, indexed, messages, space
from hpfem.backends.passes import Pass, combination
from hpfem.backends.strategy import options_of_source
from hpfem.errors import DeviceError, NotSuitable
from hpfem.forms.form import BlockProblem
from hpfem.forms.sources import possible_sources
from hpfem.forms.trace import trace_function
from hpfem.mesh import box
from hpfem.support.progress import progress

# The processor for which OpenBLAS, which reads this when it is loaded, computes.
CORE = {"OPENBLAS_CORETYPE": "Haswell"}
REFERENCE = Path(__file__).parent / "results" / "machine_code.json"
# Bytes of vectors, and what LLVM calls the features of processors that have them.
WIDTHS: dict[int, tuple[str, ...]] = {64: ("avx512f", "avx512vl"), 32: ("avx",), 16: ()}
DEVICE = SimpleNamespace(architecture="sm_90", limits=device.Limits(), name="any")
# What the backends have handed to their compilers.
TEXTS: list[str] = []
# Case -> name of a kernel -> hash of its text, and of its PTX.
Hashes = dict[str, dict[str, str]]


def couple(u: Any, du: Any, x: Any, k: Any) -> Any:
    """Two components that meet in value and flux, with every kind of argument."""
    return [k * u[1] + x[0], np.tanh(u[0]) * u[1]], [du[1] * k + du[0], du[0]]


def functions(u: Any, x: Any, c: Any) -> Any:
    """Functions of the points, and choices."""
    waves = np.sin(u) * np.cos(u) + np.abs(u) ** c + np.log(2 + u * u) + np.exp(-u * u) / np.sqrt(1 + u * u)
    return waves + np.where(u <= 0, np.maximum(u, -1), np.minimum(u, c)) + (u >= c) * x[0]


def state(u: Any, du: Any, k: Any) -> Any:
    """More numbers at points than components."""
    return [k * u[0] * du[1][0], u[1] - k, *du[0]]


Make = Callable[..., Any]
FORMS: dict[str, Make] = {
    "Mass": hp.Mass,
    "Helmholtz": partial(hp.Helmholtz, lam=1.0),
    "BwdTrans": hp.BwdTrans,
    "IProductWRTBase": hp.IProductWRTBase,
    "PhysDeriv": hp.PhysDeriv,
    "IProductWRTDerivBase": hp.IProductWRTDerivBase,
    "variable": lambda on, **how: hp.Helmholtz(on, lambda *x: 1 + x[0] ** 2, lambda *x: 2 + x[1], **how),
    "advection": lambda on, **how: hp.AdvectionDiffusionReaction(on, [1.0] * on.dim, 0.5, lambda *x: 1 + x[0], **how),
    "couple": lambda on, **how: hp.WeakForm(on, couple, fields={"k": lambda *x: 2 + x[0]}, components=2, **how),
    "functions": lambda on, **how: hp.WeakForm(on, functions, test=("value",), fields={"c": 0.7}, **how),
    "at points": lambda on, **how: hp.AtPoints(on, state, fields={"k": lambda *x: 2 + x[0]}, components=2, **how),
    "values": lambda on, **how: hp.AtPoints(on, functions, fields={"c": 0.7}, **how),
}
SPACES: dict[str, dict[str, Any]] = {
    "modified": {"quadrature": "collapsed"},
    "lagrange": {"basis": "lagrange", "quadrature": "collapsed"},
    "nodal": {"basis": "lagrange", "quadrature": "collocated"},
    "simplex": {"quadrature": "simplex"},
}
NOT_SIMPLEX, FLAT = ("hex", "prism", "pyramid", "quad"), ("quad", "tri")
SHAPES = (*NOT_SIMPLEX, "tet", "tri")
WEAK, USUAL, LOW = ("Mass", "Helmholtz"), ("affine", "quadratic"), ("multilinear", "quadratic")
BOTH, PLAIN, F64, REALS = ("collocated", "noncollocated"), ("modified",), ("float64",), ("float64", "float32")
# Forms, shapes, orders, meshes, spaces, types and algorithms of which all combinations are cases: first those with all
# variants of their kernels, then two rows with every source of factors.
CASES: list[tuple[Sequence[Any], ...]] = [
    (("Helmholtz",), SHAPES, (2,), USUAL, PLAIN, F64, BOTH[1:]),
    (("Helmholtz",), SHAPES, (3,), ("quadratic",), PLAIN, F64, BOTH[1:]),
    (("Helmholtz", "variable"), NOT_SIMPLEX, (3,), ("multilinear",), PLAIN, F64, BOTH[1:]),
    (tuple(FORMS), SHAPES, (3,), ("quadratic",), PLAIN, F64, BOTH),
    (tuple(FORMS), SHAPES, (2,), ("affine",), PLAIN, F64, BOTH),
    (WEAK, SHAPES, (1,), USUAL, PLAIN, F64, BOTH),
    (WEAK, SHAPES, (6,), ("quadratic",), PLAIN, F64, BOTH),
    (WEAK, ("tet", "tri", "quad"), (5,), ("affine",), PLAIN, F64, BOTH[1:]),
    (WEAK, SHAPES, (2,), ("affine",), PLAIN, ("float32",), BOTH[1:]),
    (("Helmholtz",), SHAPES, (3,), ("cubic",), PLAIN, F64, BOTH),
    (WEAK, SHAPES, (3,), ("quadratic",), PLAIN, ("float32", "mixed"), BOTH),
    (WEAK, SHAPES, (3,), ("quadratic",), ("lagrange",), REALS, BOTH),
    (WEAK, ("hex", "quad"), (3, 7), LOW, ("nodal",), F64, BOTH[:1]),
    (WEAK, ("tet", "tri"), (1, 2, 4), USUAL, ("simplex",), REALS, BOTH[1:]),
    (("at points",), ("tet", "tri"), (2,), USUAL, ("simplex",), F64, BOTH[1:]),
    (("values",), ("tet",), (2,), USUAL[1:], ("simplex",), F64, BOTH[:1]),
]


def mesh(shape: str, kind: str) -> Any:
    """Some cells of a shape and a kind of geometry."""
    straight = box(shape, (2,) * (2 if shape in FLAT else 3))
    if kind == "affine":
        return straight.transformed(lambda x: x + 0.1 * x[:, ::-1])
    curved = straight.elevated({"multilinear": 1, "quadratic": 2, "cubic": 3}[kind])
    return curved.transformed(lambda x: x + 0.05 * np.sin(2 * x.sum(axis=1, keepdims=True)))


def problems() -> Iterator[tuple[str, BlockProblem, int]]:
    """Names and problems, and the row of `CASES`."""
    rows: dict[Any, int] = {}
    for row, sets in enumerate(CASES):
        rows = dict.fromkeys(product(*sets), row) | rows
    for (form, shape, order, kind, basis, real, algorithm), row in rows.items():
        kept, dtype = ("mixed", "float64") if real == "mixed" else ("full", real)
        where = hp.Space(mesh(shape, kind), order, dtype=dtype, backend="numpy", **SPACES[basis])
        made = FORMS[form](where, algorithm=algorithm, precision=kept, strategy="stdmat").choices[0].kernel.problem
        if made.algorithm == algorithm:
            yield f"{form} {shape} P={order} {kind} {basis} {real} {algorithm}", made, row


def take() -> None:
    """Take kernels where the backends hand them to their compilers, and let the backends go on with nothing."""
    target.llvm_version()
    nothing = target.Code(lambda *arguments: None, 0, None)
    compiler.key_of, compiler._LOADED = lambda text, target: TEXTS.append(text) or "", {"": nothing}  # type: ignore

    def begin(write: Callable[..., Any], target: Any, *given: Any) -> tuple[Any, Any]:
        program = write(*given)
        TEXTS.append(program.text)
        return program, SimpleNamespace(code=nothing)

    kernel.begin = geometry.begin = begin  # type: ignore
    nvrtc._key, nvrtc._there = lambda text, *_: TEXTS.append(text) or "", lambda key: True  # type: ignore
    device.current_device = lambda: DEVICE  # type: ignore
    sys.modules["cupy"] = SimpleNamespace(ElementwiseKernel=lambda *texts: TEXTS.append("\n".join(texts)))  # type: ignore


def taken() -> list[str]:
    """What was taken, which is forgotten."""
    found, TEXTS[:] = TEXTS.copy(), []
    return found


def processor(width: int) -> None:
    """Write for a processor with vectors of so many bytes; what was written before is written again."""
    features = SimpleNamespace(get=lambda name: name in WIDTHS[width], flatten=lambda: "")
    own = SimpleNamespace(get_host_cpu_features=lambda: features, get_host_cpu_name=lambda: "")
    target._llvm = lambda: own  # type: ignore
    for value in chain(*(vars(module).values() for module in (geometry, kernel, passes))):
        getattr(value, "cache_clear", lambda: None)()


def of_problem(problem: BlockProblem, row: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the kernels of every strategy that serves a problem, each text once."""
    seen = set()
    for backend, texts_of in (("cpu", of_cpu), ("cuda", of_cuda)):
        tensor = problem.tabulation.rule.tensor
        strategies = [own for own in BACKENDS[backend].strategies if tensor or not own.tensor]
        for strategy, source in product(strategies, (None, *(possible_sources(problem) if row in (1, 2) else ()))):
            try:
                options = options_of_source(strategy, problem, source) if source else None
                for variant, text in texts_of(strategy, problem, options, row == 0):
                    if text not in seen:
                        seen.add(text)
                        yield " ".join(filter(None, (backend, strategy.name, source, variant))), text
            except NotSuitable:
                taken()


def of_cpu(strategy: Any, problem: BlockProblem, options: Any, variants: bool) -> Iterator[tuple[str, str]]:
    """Of a strategy with options: the kernel, what makes its factors and points, and variants."""
    processor(64)
    own, texts = strategy.build(problem, options), taken()
    yield from zip(("", "factors", "points"), texts, strict=False)
    if texts and variants:
        own.diagonal()
        yield from (("diagonal", text) for text in taken())
        own.indexed(np.zeros(0, np.int32), (Runs(tuple((mode,) for mode in range(problem.n_modes)), (True,)),))
        yield "indexed", taken()[0]
        usual, kernel.PREFETCH_BYTES = kernel.PREFETCH_BYTES, 0
        strategy.build(problem, options)
        kernel.PREFETCH_BYTES = usual
        yield "prefetching", taken()[0]
        for width in (32, 16):
            processor(width)
            strategy.build(problem, options)
            yield f"{width} bytes", taken()[0]


def of_cuda(strategy: Any, problem: BlockProblem, options: Any, variants: bool) -> Iterator[tuple[str, str]]:
    """Of a strategy with options: the kernel, and with results entity by entity."""
    strategy.prepare(problem, options)
    for text in taken():
        yield "", text
        if variants and "HPFEM_RESULT_PLACES" in text:
            yield "by entity", f"#define HPFEM_RESULT_PLACES {', '.join(map(str, range(problem.n_modes)))}\n{text}"


def all_passes() -> dict[str, Pass]:
    """Passes over vectors that modules of hpfem hold, each once, and combinations."""
    found: dict[Pass, str] = {combination(count): f"combination {count}" for count in (1, 2, 3, 5)}
    for name, module in sorted(sys.modules.items()):
        for key, value in vars(module).items() if name.startswith("hpfem.") else ():
            several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else [value]
            for number, own in enumerate(several):
                if isinstance(own, Pass):
                    found.setdefault(own, f"{key.strip('_').lower()} {number}")
    return {name: own for own, name in found.items()}


def of_vectors() -> Iterator[tuple[str, str, str]]:
    """Cases, names and texts of the kernels on vectors."""
    every, either = all_passes(), (False, True)
    trace, _ = trace_function(lambda x, y: [np.exp(x) * y, np.where(y > 0.5, np.sin(x), abs(y) / 3)], 2)
    added, inside = np.eye(6), np.eye(6)
    added[:2, 3:] = inside[:3, :3] = 0.5
    matrix = FactorisedMatrix([csr_array(added), csr_array(inside)])
    for width, real in product(WIDTHS, REALS):
        processor(width)
        case, lanes = f"vectors {width} bytes {real}", target.host().lanes(real)
        for (name, own), wide in product(every.items(), either):
            passes.code_of_pass(own, wide, np.dtype(real))
            yield case, f"cpu {name} {'wide' if wide else 'short'}", taken()[0]
        for across in either:
            runs = Runs(((0,), (1,), (2,)), (True,)), Runs((tuple(range(3, 6)),), (False,) * 3, alone=True)
            kernel.MatrixKernel(matrix, 3, real, across).indexed(np.zeros(0, np.int32), runs)
            yield case, f"cpu matrix{' across' * across}", taken()[0]
        given: dict[str, Any] = {"move": product(either, either, [real]), "rows": product(either, [real]), "pass": []}
        for name, write in vars(cpu_vectors).items():
            if name.startswith("write_"):
                for some in given.get(name[6:], [(lanes, real) if name.endswith("panels") else (real,)]):
                    yield case, f"cpu {name[6:]} {some}", write(*some)
    yield "vectors", "cpu function", write_function(trace, 8).text
    yield "vectors", "cpu sequence", write_sequence()
    tables: Any = SimpleNamespace(codes=np.zeros(4, np.int32), starts=range(0, 6, 2), columns_each=1)
    yield "vectors", "cuda function", program(function.source(trace, 2))
    for n in (8, 30, 125):
        yield "vectors", f"cuda cellwise {n}", program(cellwise.MatrixTiles.of(np.eye(n)).source(np.int32))  # type: ignore
    for real in REALS:
        for index, lanes in product((np.int32, np.int64), indexed._LANES):
            name = f"{np.dtype(index)} {lanes}"
            yield f"vectors {real}", f"cuda sparse {name}", program(indexed.source(real, index, lanes))
        yield f"vectors {real}", "cuda messages", program(messages.source(real, np.int32))
        for n in (1, 3):
            yield f"vectors {real}", f"cuda indexed {n}", program(indexed.IndexTables.source(tables, real, n))
        for shared, kept in product(either, REALS):
            yield f"vectors {real}", f"cuda conjugate {kept} {shared}", program(conjugate.source(real, kept, shared))
    for name, own in every.items():
        if own.updates:
            space._kernel(own)
            yield "vectors", f"cuda {name}", taken()[0]
    for make in (space._add_at, space._sum_of_each):
        make()
        yield "vectors", f"cuda {make.__name__.strip('_')}", taken()[0]


NEVER = "(?!)"  # matches nothing
# What has no meaning in a text, names of symbols, and numbers that may differ in their last digits.
EMPTY = {"cpu": r"(?:\s*;.*)?\n\s*", "cuda": r"(?:\s*//.*)?\n\s*"}
SYMBOLS = {"cpu": r"[%@][A-Za-z_.$][\w.$]*", "cuda": NEVER}
NUMBERS = {"cpu": r"0x[0-9A-F]{16}", "cuda": r"(?<![\w.])\d+(?:\.\d*(?:e[-+]?\d+)?|e[-+]?\d+)"}


@cache
def rounded(number: str) -> str:
    """Seven digits of a number."""
    value = struct.unpack(">d", bytes.fromhex(number[2:]))[0] if number.startswith("0x") else float(number)
    return f"{value:.6e}" if abs(value) > 1e-12 else "0.0"


def digest(text: str, empty: str, symbols: str, numbers: str) -> str:
    """Eight characters that tell texts apart; symbols count by the order in which they come."""
    text = re.sub(empty, "\n", text)
    names = re.findall(symbols, text)
    order = {name: str(number) for number, name in enumerate(dict.fromkeys(names))}
    parts = re.sub(f"{symbols}|{numbers}", "#", text), *map(order.__getitem__, names)
    return hashlib.sha256(" ".join([*parts, *map(rounded, re.findall(numbers, text))]).encode()).hexdigest()[:8]


def nvrtc_version() -> str:
    """Version of NVRTC; none where it is absent."""
    try:
        return ".".join(map(str, nvrtc.version()))
    except DeviceError:
        return ""


def ptx(source: str) -> str:
    """Hash of the PTX of a source with rounded numbers, without the compile-time constants, which nothing reads."""
    source = re.sub(NUMBERS["cuda"], lambda found: rounded(found[0]), source)
    options = [*nvrtc.OPTIONS, f"--gpu-architecture={DEVICE.architecture.replace('sm', 'compute')}"]
    status, log, made = compiled(nvrtc.library(), source, options, "PTX")
    if status:
        sys.exit(log)
    text = made.decode().rstrip("\0")
    uses = Counter(re.findall(r"[A-Za-z_$][\w$]*", text))
    constant = re.compile(r"^\.global \.align \d+ \.[us]\d+ (\w+)(?: = -?\d+)?;\n", re.MULTILINE)
    text = constant.sub(lambda found: "" if uses[found[1]] == 1 else found[0], text)
    kinds = r"\.entry|\.func(?:\s*\([^)]*\))?|\.b(?:8|16|32|64)|\.f(?:32|64)"
    declared = set(re.findall(rf"(?:{kinds})\s+([A-Za-z_$][\w$]*)", text))
    named = "|".join(sorted(map(re.escape, declared), key=len, reverse=True)) or NEVER
    symbols = rf"(?<![\w$.%])(?:{named})(?:_param_\d+)?(?![\w$])|\$L_\w+|%[a-z]+\d+"
    return digest(text, EMPTY["cuda"], symbols, NEVER)


def main() -> int:
    """Compare with the reference, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with the reference")
    what.add_argument("--write", action="store_true", help="write the reference")
    parser.add_argument("--only", default="", metavar="TEXT", help="compare the kernels whose names contain it")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("the reference is written as a whole")
    version, old = nvrtc_version(), json.loads(REFERENCE.read_text(encoding="utf-8"))
    before = {f"{case}: {name}": own.split() for case, row in old["kernels"].items() for name, own in row.items()}
    before = {name: own for name, own in before.items() if arguments.only in name}
    # PTX of the same source is the same.
    usable = bool(version) and old["nvrtc"] == version
    known = {own[0]: own[1] for own in before.values() if usable and len(own) > 1}
    made, found, differ, moved = list(problems()), Hashes(), list[str](), 0
    if arguments.only:  # cases without such kernels are not written
        made = [own for own in made if own[0] in {name.partition(": ")[0] for name in before}]
    take()
    of_forms = ((case, *own) for case, problem, row in made for own in of_problem(problem, row))
    with progress("kernels") as step:
        for case, name, text in chain(of_vectors(), of_forms):
            step()
            if arguments.only not in f"{case}: {name}":
                continue
            kind = name.split()[0]
            own = [digest(text, EMPTY[kind], SYMBOLS[kind], NUMBERS[kind])]
            expected = before.pop(f"{case}: {name}", [""])
            other, compiles = own[0] != expected[0], version and "__global__" in text
            if compiles and (arguments.write or (other and expected[1:] and usable)):
                own.append(known.get(own[0]) or ptx(text))
            found.setdefault(case, {})[name] = " ".join(own)
            if other and own[1:] and own[1:] == expected[1:]:
                moved += 1
            elif other:
                untold = f" (NVRTC {old['nvrtc']} of the reference would tell)" if expected[1:] and not own[1:] else ""
                differ.append(f"{case}: {name}{untold if expected[0] else ' (new)'}")
    differ += [f"{name} (gone)" for name in before]
    print("\n".join(differ) or "all as in the reference")
    count = sum(map(len, found.values()))
    print(f"{count} kernels, {len(differ)} differ; {moved} have another source and the same PTX")
    if arguments.write:
        rows = (f"{json.dumps(case)}: {json.dumps(row, separators=(',', ':'))}" for case, row in found.items())
        text = f'{{"nvrtc": "{version}", "kernels": {{\n' + ",\n".join(rows) + "\n}}\n"
        REFERENCE.write_text(text, encoding="utf-8")
    return int(bool(differ) and arguments.check)


if __name__ == "__main__":
    if not CORE.items() <= os.environ.items():
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.machine_code", *sys.argv[1:]], {**os.environ, **CORE}
        )
    sys.exit(main())
