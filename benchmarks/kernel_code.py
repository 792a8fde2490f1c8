"""Compiled kernels looked at without the processor they are for: sizes of code, footprint, cache lines, cycles.

    python -m benchmarks.kernel_code
    python -m benchmarks.kernel_code --cases hex:4,tet:6 --processor sapphirerapids

Kernels are those of Helmholtz on curved elements, collocated, in float64, for vectors of 64 bytes. Each number is for a
group of eight elements: bytes of machine code, and of its largest loop; KiB of scratch; lines of scratch that come into
a first-level cache or leave it, and the others, which are a stream (every load and store is noted while the kernel runs
here, but not what the compiler spills); where llvm-mca is installed, its cycles, each loop by itself.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import struct
import subprocess
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from benchmarks.bk_cpu import make_problem
from benchmarks.script import markdown_table
from hpfem.backends.cpu.codegen.ir import Program
from hpfem.backends.cpu.codegen.sumfac import write_sumfac
from hpfem.backends.cpu.runtime import target
from hpfem.backends.cpu.runtime.buffers import aligned
from hpfem.backends.cpu.runtime.target import compile_object, host, load_object

LANES, LINE, WAYS = 8, 64, 8
CASES = [(shape, order) for shape in ("hex", "prism", "pyramid", "tet") for order in (2, 4, 6)]
MCA = next(filter(shutil.which, ("llvm-mca", *(f"llvm-mca-{version}" for version in range(24, 13, -1)))), None)
NOTE = """
@noted = internal global ptr null
define internal void @note(ptr %where, i64 %stores) noinline {
  %at = load ptr, ptr @noted
  %word = ptrtoint ptr %where to i64
  %shifted = shl i64 %word, 1
  %both = or i64 %shifted, %stores
  store i64 %both, ptr %at
  %next = getelementptr i64, ptr %at, i64 1
  store ptr %next, ptr @noted
  ret void
}
"""


def program_of(shape: str, order: int, fetches: int = 0) -> tuple[Program, int]:
    """The kernel, with its prefetches if any, and how many points an element has."""
    problem = make_problem("bk3", shape, order, "deformed", 1, "float64", "collocated")
    return write_sumfac(problem, LANES, fetches), problem.n_points


@dataclass
class Block:
    """Instructions in a row, and how often they run for a group."""

    runs: int
    lines: list[str] = field(default_factory=list)
    nbytes: int = 0


def _runs(text: str) -> dict[tuple[str, str], int]:
    """How often each block runs: the product of the trips of the loops around it."""
    trips = {number: int(n) for number, n in re.findall(r"%c(\d+) = icmp slt i64 %n\1, (\d+)\n", text)}
    runs = {}
    for name, body in re.findall(r"^define .*?@(\w+)\(.*?\n(.*?)^}", text, re.MULTILINE | re.DOTALL):
        around = [1]
        for label in re.findall(r"^(\w+):$", body, re.MULTILINE):
            if label[0] == "L":
                around.append(around[-1] * trips.get(label[1:], 1))
            elif label[0] == "E":
                around.pop()
            runs[name, label] = around[-1]
    return runs


def blocks_of(text: str, processor: str) -> list[Block]:
    """Blocks of a program as that processor has them; the differences of labels are their sizes."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    made = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    machine = made.create_target_machine(cpu=processor, opt=target.LEVEL, reloc="pic", codemodel="small")
    machine.set_asm_verbosity(True)
    runs, blocks, kept, function = _runs(text), list[Block](), list[str](), ""
    for line in machine.emit_assembly(llvm.parse_assembly(text)).split("\n"):
        kept.append(line)
        if found := re.match(r"(\w+):\s+# @", line):
            function = found[1]
        elif line.startswith(".Lfunc_end"):
            kept.insert(-1, f".Lblock{len(blocks)}:")
            blocks.append(Block(0))  # what is behind a function is no code
        elif found := re.match(r"(?:\.LBB\d+_\d+:|# %bb\.\d+:)\s*# %(\w+)", line):
            kept.append(f".Lblock{len(blocks)}:")
            blocks.append(Block(runs[function, found[1]]))
        elif blocks and re.match(r"\t[a-z]", line):
            blocks[-1].lines.append(line.split("#")[0].strip())
    sizes = [f"\t.long .Lblock{i + 1}-.Lblock{i}" if block.runs else "\t.long 0" for i, block in enumerate(blocks)]
    assembly = "\n".join([*kept, '\t.section .sizes,"a",@progbits', *sizes])
    escaped = "".join(c if c.isalnum() or c in " \n\t" else f"\\{ord(c):02X}" for c in assembly)
    module = llvm.parse_assembly("\n".join(f'module asm "{line}"' for line in escaped.split("\n")))
    module.triple = machine.triple
    for section in llvm.ObjectFileRef.from_data(machine.emit_object(module)).sections():
        if section.name() == b".sizes":
            for block, (nbytes,) in zip(blocks, struct.iter_unpack("<i", section.data()), strict=True):
                block.nbytes = nbytes
    return [block for block in blocks if block.lines and block.runs]


def cycles(blocks: list[Block], processor: str, turns: int = 100) -> float:
    """Cycles that llvm-mca gives for a group, each block by itself, again and again."""
    assert MCA is not None
    parts = []
    for i, block in enumerate(blocks):
        lines = [line for line in block.lines if not re.match(r"call|ret|vzeroupper|j", line)] or ["nop"]
        parts += [f"# LLVM-MCA-BEGIN {i}", *lines, f"# LLVM-MCA-END {i}"]
    command = [MCA, "-mtriple=x86_64", f"-mcpu={processor}", f"-iterations={turns}", "-json"]
    done = subprocess.run(command, input="\n".join(parts) + "\n", capture_output=True, text=True, check=True)
    regions = json.loads(done.stdout)["CodeRegions"]
    return sum(
        block.runs * region["SummaryView"]["TotalCycles"] / turns for block, region in zip(blocks, regions, strict=True)
    )


def lines_of_cache(program: Program, n_points: int, nbytes: int = 32 << 10, groups: int = 3) -> tuple[int, int]:
    """Lines that the last of some groups moves between a first-level cache and the next: of scratch, and others."""
    noted = []
    for written in program.text.split("\n"):
        if found := re.search(r"(= load|store) <\d+ x double>.*ptr (%\w+)|masked\.(load|store).*?ptr (%\w+)", written):
            stores = "store" in (found[1], found[3])
            noted.append(f"  call void @note(ptr {found[2] or found[4]}, i64 {int(stores)})")
        noted.append(written)
    text = "\n".join(noted)
    text = re.sub(r"(define void @run\(.*\n)entry:\n", r"\1entry:\n  store ptr %codes, ptr @noted\n", text)
    code = load_object(compile_object(NOTE + text, host()))
    # More than any of input, output, points and parameters has.
    arrays = [aligned((groups * LANES * 8 * n_points,), "float64") for _ in range(3)]
    scratch, notes = aligned((program.scratch_size * LANES,), "float64"), np.zeros(1 << 20, np.int64)
    for array in [*arrays, scratch]:
        array[...] = 1.0
    first, last = scratch.ctypes.data // LINE, (scratch.ctypes.data + scratch.nbytes - 1) // LINE
    source, out, geometry = (array.ctypes.data for array in arrays)
    # Of each set, lines from the one that was used longest ago, and whether it must be written back.
    sets: list[OrderedDict[int, bool]] = [OrderedDict() for _ in range(nbytes // LINE // WAYS)]
    own = others = 0
    for group in range(groups):
        own = others = 0
        notes[...] = 0
        places = source, out, *[geometry] * 4, scratch.ctypes.data, notes.ctypes.data
        code.run(group, group + 1, groups * LANES, 1, *places, 0)
        for word in notes[notes != 0].tolist():
            for line in range((word >> 1) // LINE, ((word >> 1) + LINE - 1) // LINE + 1):
                held = sets[line % len(sets)]
                moved = [] if line in held else [line]
                dirty = held.pop(line, False) or bool(word & 1)
                if moved and len(held) == WAYS:
                    old, changed = held.popitem(last=False)
                    moved += [old] * changed
                held[line] = dirty
                within = sum(first <= one <= last for one in moved)
                own, others = own + within, others + len(moved) - within
    return own, others


def measures(shape: str, order: int, processor: str, nbytes: int = 32 << 10) -> dict[str, float]:
    """All numbers of a kernel; without cycles where there is no llvm-mca."""
    program, n_points = program_of(shape, order)
    blocks = blocks_of(program.text, processor)
    own, others = lines_of_cache(program, n_points, nbytes)
    found = {
        "code B": sum(block.nbytes for block in blocks),
        "largest loop B": max(block.nbytes for block in blocks if block.runs > 1),
        "scratch KiB": program.scratch_size * LANES * 8 / 1024,
        "lines of scratch": own,
        "other lines": others,
    }
    return found | ({"cycles": cycles(blocks, processor)} if MCA else {})


def main(arguments: list[str] | None = None) -> list[dict[str, float]]:
    """Print the table of some kernels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ",".join(f"{shape}:{order}" for shape, order in CASES)
    parser.add_argument("--cases", default=usual, metavar="SHAPE:P,...", help="kernels (default: %(default)s)")
    parser.add_argument("--processor", default="cascadelake", help="as LLVM names it (default: %(default)s)")
    parser.add_argument(
        "--cache", type=int, default=32, metavar="KIB", help="of the first level (default: %(default)s)"
    )
    given = parser.parse_args(arguments)
    cases = [case.split(":") for case in given.cases.split(",")]
    found = [measures(shape, int(order), given.processor, given.cache << 10) for shape, order in cases]
    rows = [[" ".join(case), *(f"{own:.0f}" for own in one.values())] for case, one in zip(cases, found, strict=True)]
    print(markdown_table([given.processor, *found[0]], rows))
    return found


if __name__ == "__main__":
    main()
