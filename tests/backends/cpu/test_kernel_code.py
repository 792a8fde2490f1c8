"""benchmarks/kernel_code.py: what compiled kernels need of a processor that is not at hand, within limits."""

import re

import pytest

from benchmarks.kernel_code import LANES, MCA, blocks_of, lines_of_cache, main, program_of
from hpfem.backends.cpu.codegen.indexed import CACHE_LINE
from hpfem.backends.cpu.codegen.ir import Builder
from hpfem.backends.cpu.codegen.prefetch import BY_WORK, Prefetch

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
    for fetches, most in ((BY_WORK, 24 << 10), (0, 20 << 10)):
        program, n_points = program_of(shape, 6, fetches)
        blocks = blocks_of(program.text, "cascadelake")
        assert all(block.nbytes >= len(block.lines) for block in blocks)
        assert max(block.nbytes for block in blocks if block.runs > 1) <= 4096
        assert sum(block.nbytes for block in blocks) <= most
    # What fits stays; less does not.
    vectors = program.scratch_size + 9 * n_points
    assert lines_of_cache(program, n_points, LANES * 8 * vectors << 2)[0] == 0
    assert lines_of_cache(program, n_points, 16 << 10)[0] > lines_of_cache(program, n_points)[0] > 0


# A processor may drop a prefetch: lines are fetched again, as often as arithmetic leaves time.
@pytest.mark.parametrize(
    ("fetches", "flops", "times"),
    [(1, 0, 1), (4, 10_000, 4), (BY_WORK, 7000, 8), (BY_WORK, 9712, 5), (BY_WORK, 20_000, 1)],
)
def test_streams_are_fetched_by_the_work_beside_them(fetches, flops, times):
    b, lines = Builder(LANES, "float64"), 600
    prefetch = Prefetch(b, fetches, [lines * CACHE_LINE], [7 * CACHE_LINE])
    b.count_flops(flops)
    with b.function("run", "ptr %all"):
        for trips, work in ((10, 30), (5, 60), (5, 0)):
            with b.loop(trips):
                prefetch.fetch()
                for _ in range(work):
                    b.store(b.load("%all"), "%all")
        b.lines[:0] = prefetch.finish()
    loops = re.split(r"^L\d+:", b.module(), flags=re.MULTILINE)[1:]
    read, written = ([over // n * k for k in range(n)] for over, n in ((64, times), (16, (times + 1) // 2)))
    for n, call, again in ((lines, 0, read), (7, 1, written)):
        at = [re.findall(rf"%q\d_{call}, i64 (\d+)\n  call.*prefetch.*, i32 {call}, i32 3", loop) for loop in loops]
        first, second, third = (len(own) // len(again) for own in at)
        assert n <= 10 * first + 5 * second + 5 * third < n + 5
        if call == 0:
            assert 0.04 * n <= first <= 0.051 * n
            assert 0.09 * n <= second <= 0.11 * n
            assert third <= 2 + n // 100
        for own in at:
            expected = [CACHE_LINE * (line + far) for line in range(len(own) // len(again)) for far in again]
            assert [int(place) for place in own] == expected
