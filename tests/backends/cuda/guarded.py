"""CUDA kernels, run on the CPU, on arrays at the border of memory.

`python -m tests.backends.cuda.guarded hex` runs those of a shape, `vectors` those without one. All arrays that a kernel
is given are there, to the byte, and shared memory, to 16 bytes; tables are part of its code: their bounds are checked.
"""

import sys
from copy import copy
from dataclasses import replace
from itertools import count, cycle, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from scipy.sparse import csr_array

from hpfem.backends.cuda.dense.plan import DenseOptions
from hpfem.backends.cuda.fused.plan import FusedOptions, FusedPlan
from hpfem.backends.cuda.kronecker.strategy import KroneckerOptions
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.cuda.vectors.conjugate import CONTROL
from hpfem.backends.cuda.vectors.conjugate import source as conjugate_source
from hpfem.backends.cuda.vectors.indexed import THREADS, IndexTables, rows_per_thread
from hpfem.shapes import SHAPES, Tabulation
from hpfem.space.arguments import simplex_rules
from tests.backends.cuda import dense_host, fused_host, host_kernels, point_host
from tests.backends.cuda.dense_host import DenseCase
from tests.backends.cuda.fused_host import FusedCase
from tests.backends.cuda.host_kernels import Case, build
from tests.backends.cuda.host_vectors import block_matrix, library, run, widened
from tests.backends.cuda.host_vectors import tables as arrays_of
from tests.backends.cuda.point_host import PointCase
from tests.backends.problems import FORMS, make_space, of_size
from tests.guard import SIDES, Crooked, Guard, faults

OPTIONS = (
    None, SumFacTopOptions(3), SumFacTopOptions(4, split=7), SumFacTopOptions(2, prefetch=1, tables_shared=True),
    SumFacTopOptions(4, late=True, split=1, l2=True), SumFacTopOptions(3, split=3), SumFacTopOptions(2, prefetch=9),
)  # fmt: skip
DENSE = (DenseOptions(2, 0), DenseOptions(2, 1), DenseOptions(1, 1, 2, False), DenseOptions(1, 2, 3))
FUSED = (FusedOptions(2), FusedOptions(1, 2, 1, 1))
PLAIN_FORMS = ("BwdTrans", "IProductWRTBase", "PhysDeriv", "IProductWRTDerivBase")


def problem_of(shape, form, order=2, deformed=True, dtype="float64", algorithm="collocated", **options):
    """Problem of a form."""
    space = make_space(shape, order, deformed, dtype, cells=1, **options)
    return FORMS[form](space, strategy="sumfac", algorithm=algorithm).choices[0].kernel.problem


def cases(shape):
    """Kernels of a shape: what each is, its case, the module that applies it, the elements that it takes at a time."""
    configs, plain = cycle(OPTIONS), {"algorithm": "noncollocated"}
    names = (f"case{n}" for n in count())

    top = [(form, {}) for form in (*PLAIN_FORMS, "Mass", "Helmholtz", "transport", "coupled", "library")]
    top += [(form, plain) for form in ("IProductWRTDerivBase", "Helmholtz", "transport", "coupled")]
    affine = ("PhysDeriv", "IProductWRTDerivBase", "Helmholtz", "advection")
    top += [(form, {"deformed": False, **algorithm}) for form in affine for algorithm in ({}, plain)]
    top += [("IProductWRTBase", {"deformed": False}), ("Helmholtz", {"deformed": False, "dtype": "float32"})]
    top += [("transport", {"order": 1, "dtype": "float32"}), ("Helmholtz", {"order": 4, **plain})]
    top += [("Mass", {"order": 3, "basis": "orthogonal"})]
    for form, options in top:
        case = Case.of(problem_of(shape, form, **options), next(names), next(configs))
        yield f"sumfac-top {form} {options} {case.plan.options}", case, host_kernels, case.block[0]
    single = [
        ("BwdTrans", {}),
        ("IProductWRTBase", {"dtype": "float32"}),
        ("Helmholtz", {"deformed": False}),
        ("transport", {}),
    ]
    for form, options in single:
        case = Case.of(problem_of(shape, form, 1, **options, **plain), next(names), "sumfac")
        yield f"sumfac {form} {options}", case, host_kernels, case.block[0]
    for order, form in ((1, "Mass"), (3, "Helmholtz"), (4, "Laplacian")):
        problem = problem_of(shape, form, order, False, **plain)
        if problem.tabulation.basis.tree.product:
            case = Case.of(problem, next(names), KroneckerOptions(2))
            yield f"kronecker {form}", case, host_kernels, case.block[0]
    point = [
        ("IProductWRTBase", {}), ("PhysDeriv", {"deformed": False}), ("IProductWRTDerivBase", {}), ("transport", {}),
        ("coupled", {}), ("library", {"dtype": "float32"}),
    ]  # fmt: skip
    for form, options in point:
        case = PointCase.of(problem_of(shape, form, **options), next(names))
        yield f"stdmat {form} {options}", case, point_host, 4
    for order, form, options in zip((1, 2, 1, 2), ("Mass", "Helmholtz", "Laplacian", "Mass"), DENSE, strict=True):
        problem = problem_of(shape, form, order, False, **plain)
        case = DenseCase.of(problem, next(names), options)
        yield f"dense {form} {options}", case, dense_host, case.plan.elements
    for rule in simplex_rules({shape.name: 3}).values():
        for form, options in zip(("Mass", "Helmholtz"), FUSED, strict=True):
            own = problem_of(shape, form, 3, **plain)
            tabulation, geometry = Tabulation(own.tabulation.basis, rule), own.geometry.on_rule(rule)
            case = FusedCase.of(replace(own, tabulation=tabulation, geometry=geometry), next(names), options)
            yield f"fused {form} {options}", case, fused_host, case.plan.elements


def apply(kernels, case, runner, n, guard, components=1):
    """Results of a kernel for n elements."""
    problem = of_size(case.problem, n)
    rng = np.random.default_rng(7)
    source = rng.standard_normal((components * problem.coupled, n, problem.n_input)).astype(problem.dtype)
    sized = case
    if runner is fused_host:
        sized = replace(case, plan=FusedPlan(problem, case.plan.options))
    elif runner is point_host:
        sized = replace(case, problem=problem)
    elif runner is not dense_host:
        sized = replace(case, plan=copy(case.plan))
        sized.plan.problem = problem
    return runner.apply(kernels, sized, source, guard.side == "end", guard)


def check(kernels, case, runner, at_once):
    """A kernel for numbers of elements about those that it takes at a time."""
    for n in sorted({1, at_once - 1, at_once, at_once + 1} - {0}):
        components = 1 + (n > at_once and runner is not point_host)
        both = [apply(kernels, case, runner, n, Guard(side), components) for side in SIDES]
        for one, other in zip(*both, strict=True):
            assert np.isfinite(one).all() and np.array_equal(one, other)


def check_faults(folder):
    """Kernels fault at every array that lies a number too far on, and at an index beyond a table or a local array."""
    shape = SHAPES["hex"]
    # Factors of so many elements and lines that there is nothing behind the last.
    problem = problem_of(shape, "transport")
    affine = problem_of(shape, "Helmholtz", 2, False, algorithm="noncollocated")
    top = Case.of(problem, "top", SumFacTopOptions(2))
    values = Case.of(problem_of(shape, "IProductWRTBase"), "values", SumFacTopOptions(2))
    dense = DenseCase.of(affine, "dense", DenseOptions(1, 1))
    point = PointCase.of(problem, "point")
    single = Case.of(problem_of(shape, "BwdTrans", 1), "single", "sumfac")
    wrong = [
        replace(values, name="table").altered("B1[p * Q1 + i] * value", "B1[p * Q1 + i + N1 * Q1] * value"),
        replace(values, name="local").altered(
            "for (int n = 0; n < NUMBERS; n++) b[c][d][n] = 0", "for (int n = 0; n <= NUMBERS; n++) b[c][d][n] = 0"
        ),
    ]
    kernels = build([top, values, dense, point, single, *wrong], folder, bounds=True)
    for case, runner, n, arrays in (
        (top, host_kernels, 2, 4),  # input, result, factors, a field
        (values, host_kernels, 2, 3),
        (single, host_kernels, 64, 2),
        (dense, dense_host, 16, 4),  # with matrices
        (point, point_host, 2, 4),  # factors, a field, what two parts have between products
    ):
        for side in SIDES:
            straight = Crooked(side, 0)
            apply(kernels, case, runner, n, straight)
            assert straight.copies == arrays
            for which in range(1, arrays + 1):
                print(case.name, side, which, flush=True)
                assert faults(lambda: apply(kernels, case, runner, n, Crooked(side, which)))  # noqa: B023
    for case in wrong:
        print(case.name, flush=True)
        assert faults(lambda: apply(kernels, case, host_kernels, 2, Guard("end")))  # noqa: B023


def matrix_of(rng, rows, columns, general):
    """A sparse matrix whose rows have one entry of 1 or -1; or some of which have none, or several numbers."""
    dense = np.zeros((rows, columns))
    dense[np.arange(rows), rng.integers(columns - 3, size=rows)] = rng.choice([-1.0, 1.0], rows)
    if general:
        some = rng.random(rows) < 0.3
        dense[some] *= rng.random((some.sum(), columns)) < 0.5
        dense[some, -3:-1] = rng.standard_normal((some.sum(), 2))
    return csr_array(dense)


def products(folder, dtype, components, general):
    """Scatter and gather, for numbers of rows and columns about those of a block."""
    rng = np.random.default_rng(7)
    own, width = None, rows_per_thread(components)
    block = width * THREADS
    for rows, columns in ((1, 4), (THREADS - 1, 40), (block, THREADS), (block + 1, 2 * THREADS + 1)):
        starts = [0, *([rows // 2] * (components > 1)), rows]
        tables = IndexTables(block_matrix(matrix_of(rng, rows, columns, general).astype(dtype), starts))
        if components > 1:
            tables = widened(tables)
        own = own or library(tables.source(dtype, components), ("scatter", "gather", "fold"), folder, True)
        for side in SIDES:
            guard = Guard(side)
            a = {name: guard.copy(array) for name, array in arrays_of(tables).items()}
            vector = guard.copy(rng.standard_normal((components, columns)).astype(dtype))
            scale = guard.copy(np.ones(columns, dtype))
            going, zero = guard.copy(np.zeros(1, np.int32)), np.zeros((), dtype)[()]
            for first, last in pairwise(starts):
                n, out = last - first, guard.array((components, last - first), dtype)
                head = (np.int64(n), np.int64(columns), guard.copy(tables.codes[first:last]))
                rest = (a["row_starts"], a["columns"], a["values"], vector, out, going)
                run(own, "scatter", -(-n // (width * THREADS)), 0, *head, *rest, guard=guard)
            local, out = guard.array(components * rows, dtype), guard.array((components, columns), dtype)
            head = (np.int64(columns), np.int64(tables.single), a["starts"], a["order"], a["slice_starts"])
            head += (a["entry_codes"], a["entry_rows"], a["values"], local)
            blocks = tables.gather_blocks(columns)
            sums, folded = guard.array(blocks, np.float64), guard.array(2, np.float64)
            run(own, "gather", blocks, 1, *head, vector, None, None, zero, None, out, sums, going, guard=guard)
            run(own, "gather", blocks, 1, *head, None, scale, out, -1 + zero, None, out, None, None, guard=guard)
            run(own, "fold", 2, 1, np.int32(blocks), sums, folded, going, guard=guard)


def gradients(folder, dtype, shared):
    """The vector work of conjugate gradients, for numbers of unknowns about those of a block of threads."""
    own = library(conjugate_source(dtype, np.float32, shared), ("dots", "residual", "direction"), folder, True)
    rng = np.random.default_rng(7)
    for n in (1, THREADS - 1, THREADS, 2 * THREADS + 1, 9 * THREADS + 1):
        for side in SIDES:
            guard, size = Guard(side), np.int64(n)
            x, r, p, q, z = (guard.copy(1 + rng.random(n).astype(dtype)) for _ in range(5))
            inverse = guard.copy(1 + rng.random(n).astype(np.float32))
            free, kept = guard.copy(np.arange(n) % 3 != 1), guard.array(n, dtype)
            control = np.zeros(1, CONTROL)
            control["scale"], control["tolerance"], control["most"] = 1, 1e-30, 100
            control, going = guard.copy(control), guard.copy(np.zeros(1, np.int32))
            owned = guard.copy(np.full(-(-n // 32), 0xFFFFFFFF, np.uint32)) if shared else None
            for blocks in (1, 2):
                count, (pq, rr, rz) = np.int32(blocks), (guard.array(blocks, np.float64) for _ in range(3))
                q[:], z[:] = p, r  # sums that are positive
                for a, b, sums in ((p, q, pq), (r, r, rr), (r, z, rz)):
                    run(own, "dots", blocks, 1, size, a, b, free, owned, sums, going, guard=guard)
                for diagonal in (None, inverse):
                    given = (r, z, free, diagonal)
                    run(own, "direction", blocks, 2, size, control, count, rr, rz, *given, x, p, guard=guard)
                    rest = (pq, q, diagonal, owned, r, rr, rz, free, kept)
                    run(own, "residual", blocks, 2, size, control, count, *rest, guard=guard)
            assert control["begun"] == 4 and control["stopped"] == control["broken"] == 0


def check_vectors(folder):
    """Every kernel without a shape."""
    for dtype in (np.float64, np.float32):
        for components in (1, 2):
            for general in (False, True):
                print("products", dtype, components, general, flush=True)
                products(folder, dtype, components, general)
        for shared in (False, True):
            print("conjugate gradients", dtype, shared, flush=True)
            gradients(folder, dtype, shared)


def main(name):
    """Run the cases of a shape, or those of vectors; or those that have to fault."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if name == "wrong":
            check_faults(folder)
        elif name == "vectors":
            check_vectors(folder)
        else:
            made = list(cases(SHAPES[name]))
            kernels = build([case for _, case, *_ in made], folder, bounds=True)
            for what, case, runner, at_once in made:
                print(what, flush=True)
                check(kernels, case, runner, at_once)
    print("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
