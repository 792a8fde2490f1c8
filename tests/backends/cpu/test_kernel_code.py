"""benchmarks/kernel_code.py: what compiled kernels need of a processor that is not at hand, within limits."""

import pytest

from benchmarks.kernel_code import LANES, MCA, blocks_of, lines_of_cache, main, program_of

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
