"""`compare_algorithms`: all ways, small blocks too, and the same verdicts on a loaded machine."""

from functools import partial

import pytest

import hpfem as hp
from hpfem.benchmarks import compare_algorithms
from hpfem.benchmarks.comparison import THREAD_DOFS
from hpfem.support.threads import thread_count
from tests.benchmarks.test_turns import Loaded

CURVED, MIXED = "meshes/curved_mixed.msh", "meshes/cube_mixed.msh"


class Modelled(Loaded):
    """The clock of a loaded machine on which a kernel takes a time by its operations and bytes."""

    def seconds(self, call, calls):
        """Time a call of a kernel that is not called."""
        assert isinstance(call, partial)
        kernel, n_elements = call.func.__self__, call.args[0].shape[1]
        idle = 2e-11 * n_elements * kernel.flops
        return super().seconds(lambda: idle, calls)


def verdicts(rows):
    """What a reader takes from rows."""
    return {
        (row.shape, row.order, row.way): (row.fastest, row.behind.sign, row.collocation and row.collocation.sign)
        for row in rows
    }


def test_twice_on_a_loaded_machine_gives_the_same_verdicts():
    mesh = hp.read_mesh("meshes/curved_mixed_2d.msh")
    runs = [list(compare_algorithms(mesh, 4, timer=Modelled(seed))) for seed in range(4)]
    first, *others = map(verdicts, runs)
    assert all(other == first for other in others)
    # The clock's verdicts, and times that differ.
    assert {key[2] for key, (fastest, *_) in first.items() if fastest} == {"sumfac collocated"}
    assert runs[0][0].seconds != runs[1][0].seconds
    assert all(row.low <= row.seconds <= row.high for row in runs[0])


def test_whatever_auto_takes_is_there_and_is_the_fastest_of_ways_without_difference():
    class Even(Loaded):
        def seconds(self, call, calls):
            return super().seconds(lambda: 1e-4, calls)

    mesh = hp.read_mesh(MIXED)
    rows = list(compare_algorithms(mesh, 3, timer=Even(0)))
    assert all(row.fastest == (row.chosen and not row.quadrature) and row.behind.sign == 0 for row in rows)
    operator = hp.Helmholtz(hp.Space(mesh, 3), lam=1.0)
    for choice, block in zip(operator.choices, operator.space.blocks, strict=True):
        own = [row for row in rows if row.shape == block.shape.name and not row.quadrature]
        assert own[0].chosen and own[0].strategy == choice.strategy
        # Its operations and numbers are the same in both algorithms.
        assert [row.algorithm for row in own if row.strategy == "dense"] == [""]
    assert {row.strategy for row in rows if row.chosen} >= {"kronecker", "orthogonal"}
    assert max(row.difference for row in rows if not row.quadrature) < 1e-12


@pytest.fixture(scope="module")
def curved():
    """Rows of a mesh of few curved cells."""
    return list(compare_algorithms(hp.read_mesh(CURVED), 2, repeats=1))


def test_small_blocks_are_repeated(curved):
    least = THREAD_DOFS * thread_count()
    for row in curved:
        assert row.copies > 1 and least <= row.n_dofs < least + row.n_dofs / row.copies
        assert row.n_dofs % (row.n_cells * row.copies) == 0
        assert row.dofs_per_second == pytest.approx(row.n_dofs / row.seconds)
    large = hp.box("quad", (200, 200 * thread_count()))
    assert {row.copies for row in compare_algorithms(large, 1, repeats=1, min_seconds=1e-6)} == {1}


def test_the_symmetric_rule_stands_apart_and_has_no_collocation(curved):
    apart = [row for row in curved if row.quadrature]
    assert apart and not any(row.collocation or row.fastest for row in apart)
    assert all(1e-7 < row.difference < 1e-3 and row.shape == "tet" for row in apart)
    assert any(row.chosen for row in apart)
    # Asked for, it is compared with collocation, which needs the other one.
    asked = compare_algorithms(hp.read_mesh("meshes/curved_tet.msh"), 1, repeats=1, quadrature="simplex")
    assert {(row.quadrature, bool(row.collocation)) for row in asked} >= {("simplex", False), ("", True)}


@pytest.mark.cuda
def test_on_a_gpu():
    rows = list(compare_algorithms(hp.read_mesh(CURVED), 3, backend="cuda", repeats=5))
    assert {row.shape for row in rows if row.fastest} == {"hex", "prism", "pyramid", "tet"}
    assert max(row.difference for row in rows if not row.quadrature) < 1e-12
    assert all(row.backend == "cuda" and row.dofs_per_second > 1e7 for row in rows)
    assert len([row for row in rows if row.chosen]) == 5  # the tets' on both rules
