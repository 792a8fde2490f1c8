"""Kernels for processors that are not at hand: LLVM makes their assembly, with vectors as long as theirs."""

import re
from functools import cache
from itertools import product

import numpy as np
import pytest

from hpfem.backends.cpu.codegen.sumfac import write_sumfac
from hpfem.backends.cpu.runtime.target import Target
from hpfem.shapes import SHAPES as BY_NAME
from tests.backends.problems import FORMS, make_space
from tests.samples import long

# Triple, processor, bytes of its vectors; a multiply-add of whole vectors in its assembly (float64, float32), and
# registers that are longer.
NEON = (r"\bfmla(\.2d\s+v\d|\s+v\d+\.2d)", r"\bfmla(\.4s\s+v\d|\s+v\d+\.4s)"), r"\bz\d+\.[sd]"
AVX2 = (r"vfn?m(add|sub)\d+pd\s.*%ymm", r"vfn?m(add|sub)\d+ps\s.*%ymm"), r"%zmm"
AVX512 = (r"vfn?m(add|sub)\d+pd\s.*%zmm", r"vfn?m(add|sub)\d+ps\s.*%zmm"), r"$^"
PROCESSORS = {
    "aarch64 Linux": ("aarch64-unknown-linux-gnu", "neoverse-n1", 16, *NEON),
    "aarch64 macOS": ("arm64-apple-darwin", "apple-m1", 16, *NEON),
    "AVX2 Linux": ("x86_64-unknown-linux-gnu", "haswell", 32, *AVX2),
    "AVX2 Windows": ("x86_64-pc-windows-msvc", "znver3", 32, *AVX2),
    "AVX-512 Linux": ("x86_64-unknown-linux-gnu", "skylake-avx512", 64, *AVX512),
}

# Every processor with two shapes; what another one computes has no other instructions.
FEW = [(name, BY_NAME[shape]) for name in PROCESSORS for shape in ("hex", "tet")]
CASES = [*FEW, *long(*(case for case in product(PROCESSORS, BY_NAME.values()) if case[1].dim > 1 and case not in FEW))]


@cache
def all_targets():
    """LLVM with all processors that it was built for."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def assembly(text, triple, cpu):
    """Assembly of a module; a test is skipped where LLVM was not built for the processor."""
    llvm = all_targets()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"LLVM for {triple} is absent")
    # As hpfem.backends.cpu.runtime.target does for this machine.
    machine = target.create_target_machine(cpu=cpu, opt=1, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.verify()
    assert machine.emit_object(module)
    return machine.emit_assembly(module)


def library_functions(code):
    """Functions that are called and not in the module."""
    called = set(re.findall(r"^\s+(?:callq?|bl)\s+(\w+)", code, flags=re.MULTILINE))
    return {name.lstrip("_") for name in called - set(re.findall(r"^(\w+):", code, flags=re.MULTILINE))}


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_vectors_are_as_long_as_the_processors(name, shape):
    triple, cpu, vector_bytes, multiply_adds, longer = PROCESSORS[name]
    for dtype, multiply_add in zip(("float64", "float32"), multiply_adds):
        problem = FORMS["Helmholtz"](make_space(shape, 3, True, dtype), strategy="sumfac").choices[0].kernel.problem
        lanes = Target(cpu, "", vector_bytes).lanes(dtype)
        assert lanes * np.dtype(dtype).itemsize == vector_bytes
        code = assembly(write_sumfac(problem, lanes, prefetch=2).text, triple, cpu)
        assert len(re.findall(multiply_add, code)) > 20
        assert len(re.findall(r"\sprefetcht0|\sprfm", code)) > 2
        assert not re.search(longer, code)
        assert not library_functions(code)


@pytest.mark.parametrize("name", PROCESSORS)
def test_functions_of_the_c_library_are_those_of_every_system(name):
    triple, cpu, vector_bytes, *_ = PROCESSORS[name]
    space = make_space(BY_NAME["quad"], 2, True)
    problem = FORMS["library"](space, strategy="sumfac").choices[0].kernel.problem
    code = assembly(write_sumfac(problem, vector_bytes // 8).text, triple, cpu)
    assert library_functions(code) <= {"cos", "exp", "log", "pow", "sin", "tanh"}
