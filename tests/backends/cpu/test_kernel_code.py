"""benchmarks/kernel_code.py: what compiled kernels need of a processor that is not at hand, within limits."""

import re

import pytest

from benchmarks.kernel_code import LANES, MCA, blocks_of, lines_of_cache, main, program_of
from hpfem.backends.cpu.codegen.indexed import CACHE_LINE
from hpfem.backends.cpu.codegen.ir import Builder
from hpfem.backends.cpu.codegen.prefetch import Prefetch

# Lines of scratch between caches, and cycles by llvm-mca 14 for the compiler of LLVM 20, at order 4.
RECORDED = {"hex": (1853, 7702), "prism": (1186, 6233), "pyramid": (1156, 6089), "tet": (790, 4999)}


@pytest.mark.parametrize("shape", RECORDED)
def test_limits(shape, capsys):
    [found] = main(["--cases", f"{shape}:4"])
    lines, cycles = RECORDED[shape]
    assert 0 < found["lines of scratch"] <= 1.05 * lines
    assert found["other lines"] > 0
    assert not MCA or 0.5 * cycles < found["cycles"] <= 1.1 * cycles
    assert f"| {shape} 4 |" in capsys.readouterr().out


@pytest.mark.parametrize("shape", RECORDED)
def test_loops_are_decoded_once(shape):
    program, n_points = program_of(shape, 6)
    blocks = blocks_of(program.text, "cascadelake")
    assert all(block.nbytes >= len(block.lines) for block in blocks)
    assert max(block.nbytes for block in blocks if block.runs > 1) <= 4096
    assert sum(block.nbytes for block in blocks) <= 20 << 10
    # What fits stays; less does not.
    vectors = program.scratch_size + 9 * n_points
    assert lines_of_cache(program, n_points, LANES * 8 * vectors << 2)[0] == 0
    assert lines_of_cache(program, n_points, 16 << 10)[0] > lines_of_cache(program, n_points)[0] > 0


def test_streams_are_fetched_by_the_work_beside_them():
    b = Builder(LANES, "float64")
    prefetch = Prefetch(b, 2, [100 * CACHE_LINE], [7 * CACHE_LINE])
    with b.function("run", "ptr %all"):
        for trips, work in ((10, 30), (5, 60), (5, 0)):
            with b.loop(trips):
                prefetch.fetch()
                for _ in range(work):
                    b.store(b.load("%all"), "%all")
        b.lines[:0] = prefetch.finish()
    loops = re.split(r"^L\d+:", b.module(), flags=re.MULTILINE)[1:]
    fetched = [[len(re.findall(rf"prefetch.*, i32 {write}, i32 3", loop)) for loop in loops] for write in (0, 1)]
    # What is read is fetched twice, as a processor may drop a prefetch: the second time by the work on lines before.
    for lines, times, (first, second, third) in zip((100, 7), (2, 1), fetched, strict=True):
        assert times * lines <= 10 * first + 5 * second + 5 * third < times * (lines + 5)
    assert fetched[0][0] in (8, 10)
    assert fetched[0][1] in (18, 20, 22)
    assert fetched[0][2] <= 4
    places = [re.findall(rf"ptr %q{call}_0, i64 (\d+)\n  call", loops[call]) for call in (0, 1)]
    for own in places:
        near, far = own[::2], own[1::2]
        assert near == [str(i * CACHE_LINE) for i in range(len(near))]
        assert [int(at) - int(other) for at, other in zip(far, near)] == [60 * CACHE_LINE] * len(near)
