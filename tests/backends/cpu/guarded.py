"""Compiled kernels on arrays at the border of memory: `python -m tests.backends.cpu.guarded hex` runs those of a shape.

Everything that a kernel is given is there, to the byte: what the caller and the driver give it, and its tables.
"""

import inspect
import os
import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from hpfem.backends.cpu.codegen.indexed import Runs
from hpfem.backends.cpu.runtime import geometry
from hpfem.backends.cpu.runtime import kernel as driver
from hpfem.backends.cpu.runtime import target as compiler
from hpfem.backends.cpu.runtime.kernel import CpuKernel, indexed_codes
from hpfem.backends.cpu.runtime.target import compile_object, host, load_object
from hpfem.shapes import SHAPES
from tests.backends.cpu.processors import narrower
from tests.backends.problems import FORMS, FORMS_WITH_GRADIENT, curve_problems, make_space, of_size
from tests.guard import SIDES, Crooked, Guard, faults
from tests.kept import kept

TABLE = re.compile(
    r"^@(table\d+) = internal unnamed_addr constant (\[\d+ x (\w+)\]) \[(.*)\], align \d+$", re.MULTILINE
)
NUMBERS = {"double": np.float64, "float": np.float32, "i32": np.int32}


class GuardedNumpy:
    """NumPy, but that arrays are made at a border."""

    def __init__(self, guard):
        self.guard = guard

    def __getattr__(self, name):
        made = getattr(np, name)
        if isinstance(made, type) or not callable(made):
            return made

        def place(*args, **options):
            result = made(*args, **options)
            known = not isinstance(result, np.ndarray) or self.guard.holds(result.ctypes.data)
            return result if known else self.guard.copy(result)

        return place


def table(kind, text):
    """Numbers of a table, as IR has them."""
    words = [item.split()[1] for item in text.split(", ")]
    if kind == "i32":
        return np.array(words, np.int32)
    return np.array([int(word, 16) for word in words], np.uint64).view(np.float64).astype(NUMBERS[kind])


@cache
def compiled_apart(text, target):
    """Object code whose tables are elsewhere, and these by name."""
    tables = {name: table(kind, numbers) for name, _, kind, numbers in TABLE.findall(text)}
    text = TABLE.sub(lambda m: f"@{m[1]} = external constant {m[2]}, align {np.dtype(NUMBERS[m[3]]).itemsize}", text)
    parts = [inspect.getsource(compiler), compiler.llvm_version(), target.cpu, target.features, text]
    return kept(parts, lambda: compile_object(text, target)), tables


@cache
def loaded(text, target, side, shift=0):
    """A kernel with its tables at a border, and what holds them."""
    content, tables = compiled_apart(text, target)
    guard = Guard(side)
    return load_object(content, {name: guard.copy(own, shift).ctypes.data for name, own in tables.items()}), guard


def written_once(write):
    """A writer of kernels, for problems that differ in the number of elements."""
    made = {}

    def writer(*args):
        if args[3] not in made:
            made[args[3]] = write(*args)
        return made[args[3]]

    return writer


@contextmanager
def driver_at(guard, shift=0):
    """The driver makes its arrays in a guard, and gives kernels no others; tables are shifted.

    So does what makes geometric factors, with another guard for what it makes them of.
    """
    of_geometry = Guard(guard.side)

    def begin_in(guards, shift):
        def begin(write, target, *given):
            program = write(*given)
            code, _ = loaded(program.text, target, guard.side, shift)

            def run(*arguments):
                addresses = [address for address in arguments[4:-1] if address]
                assert all(any(own.holds(at) for own in guards) for at in addresses), "not at the border"
                code.run(*arguments)

            return program, SimpleNamespace(code=replace(code, run=run))

        return begin

    with pytest.MonkeyPatch.context() as patch:
        for module, own, guards in ((driver, guard, [guard]), (geometry, of_geometry, [guard, of_geometry])):
            patch.setattr(module, "np", GuardedNumpy(own))
            patch.setattr(module, "aligned", guard.array)
            patch.setattr(module, "_specialised", module._specialised.__wrapped__)
            patch.setattr(module, "begin", begin_in(guards, shift if module is driver else 0))
        yield


def at_border(problem, guard):
    """The problem with every component of its fields at the border by itself."""
    fields = {
        name: SimpleNamespace(
            values=[guard.copy(np.asarray(v, problem.dtype)) for v in field.values], vector=field.vector
        )
        for name, field in problem.fields.items()
    }
    return replace(problem, fields=fields)


def apply(problem, guard, components, shift=0, alone=False, **options):
    """Apply a kernel of a problem once, its tables shifted, and unless `alone` what is like it; returns the result."""
    with driver_at(guard, shift):
        kernel = CpuKernel(at_border(problem, guard), **options)
        rng = np.random.default_rng(7)
        source = guard.copy(
            rng.standard_normal((components, problem.n_elements, problem.n_input)).astype(problem.dtype)
        )
        shape = problem.components_out(components), problem.n_elements, problem.n_output
        out = guard.copy(np.full(shape, np.nan, problem.dtype))
        kernel.apply(source, out)
        if not alone and problem.form.from_modes and problem.form.to_modes:
            indexed(kernel, source, out, guard, rng)
            diagonal = None if problem.tabulation.basis.transform is not None else kernel.diagonal()
            assert diagonal is None or np.isfinite(diagonal).all()
        return out


def indexed(kernel, source, out, guard, rng):
    """The same on global vectors: numbers in places of their own, and others side by side, with signs and alone."""
    components, elements, n_modes = source.shape
    n, lanes, order = elements * n_modes, kernel.lanes, rng.permutation(n_modes).tolist()
    some, half = order[: n_modes // 4], order[n_modes // 4 : n_modes // 2]
    runs = [Runs((tuple(order[n_modes // 2 :]),), (False,) * (n_modes - n_modes // 2), alone=True)]
    runs += [Runs(tuple((mode,) for mode in some), (True,))] if some else []
    runs += [Runs((tuple(half),), tuple(mode % 2 == 0 for mode in half))] if half else []
    place, sign, codes = np.empty((elements, n_modes), int), np.zeros((elements, n_modes), int), []
    start = 0
    for run in runs:
        for modes in run.modes:
            first = start + rng.permutation(elements) * len(modes)
            flip = rng.integers(2, size=elements) * any(run.signed)
            place[:, modes] = first[:, None] + np.arange(len(modes))
            sign[:, modes] = np.outer(flip, run.signed)
            codes.append((2 * first + flip)[np.minimum(np.arange(kernel.groups * lanes), elements - 1)])
            start += elements * len(modes)
    codes = np.array(codes, np.int32).reshape(-1, kernel.groups, lanes).swapaxes(0, 1)
    given, found = guard.array((components, n), source.dtype), guard.array((len(out), n), source.dtype)
    given[:, place], found[...] = (1 - 2 * sign) * source, 0
    # Those of results lie behind those of coefficients: here they are the same.
    own = kernel.indexed(guard.copy(indexed_codes(runs, codes, codes)), tuple(runs))
    (_, *arguments), _used = own.call(given.shape, given.ctypes.data)
    arguments[5] = found.ctypes.data
    own.code.run(*arguments)
    apart = np.abs((1 - 2 * sign) * found[:, place] - out).max()
    assert apart <= (1e-12 if out.dtype == np.float64 else 1e-5) * np.abs(out).max()


def check(problem, target=None, far=False, **options):
    """Kernels of a problem for groups of elements that are full, short by one, and one element long.

    With `far`, kernels that fetch ahead, as for data out of cache.
    """
    lanes = (target or host()).lanes(problem.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "_WRITERS", {name: written_once(make) for name, make in driver._WRITERS.items()})
        patch.setattr(driver, "PREFETCH_BYTES", 0 if far else driver.PREFETCH_BYTES)
        for module in (driver, geometry):
            patch.setattr(module, "THREAD_FLOPS", 1)
        for n in sorted({1, lanes - 1, lanes, lanes + 1}):
            parts = 1 + (n > lanes)
            patch.setenv("HPFEM_NUM_THREADS", str(parts))
            results = [
                apply(of_size(problem, n), Guard(side), parts * problem.coupled, target=target, **options)
                for side in SIDES
            ]
            assert np.isfinite(results[0]).all() and np.array_equal(*results)


def problem_of(space, form, algorithm="collocated"):
    """Problem of a form."""
    return FORMS[form](space, strategy="sumfac", algorithm=algorithm).choices[0].kernel.problem


def cases(shape):
    """Problems of every kind on a shape, with options of their kernels; each with a name."""
    for deformed in (False, True):
        kind = "deformed" if deformed else "affine"

        def some(order, forms, dtype="float64", basis="modified", deformed=deformed, kind=kind, **options):
            space = make_space(shape, order, deformed, dtype, cells=1, basis=basis)
            for form in forms:
                for algorithm in ("collocated", "noncollocated")[: 1 + (form in FORMS_WITH_GRADIENT)]:
                    more = (f"{key}={value}"[:40] for key, value in options.items())
                    name = " ".join([kind, form, algorithm, basis, dtype, f"order {order}", *more])
                    yield name, problem_of(space, form, algorithm), options

        few = ["PhysDeriv", "Mass", "Laplacian", "advection", "transport", "coupled", "reaction"]
        if deformed:
            few = FORMS if shape.name in ("hex", "tet", "tri") else [*few, "IProductWRTDerivBase", "source"]
        yield from some(2, few)
        yield from some(2, ("Laplacian",), far=True)
        if deformed:
            yield from some(1, ("coupled",))
            yield from some(6, ("Helmholtz",))
            yield from some(3, ("Mass",), basis="lagrange")
            yield from some(2, ("advection",), target=narrower(32))
            yield from some(2, ("transport",), "float32", target=narrower(16))
        else:
            yield from some(3, ("IProductWRTBase", "PhysDeriv", "library"), "float32")
            yield from some(4, ("Mass",), basis="orthogonal")
            for order in (1, 3):
                yield from some(order, ("Mass",), strategy="dense")
                yield from some(order, ("Laplacian",), strategy="dense", far=True)
                yield from some(order, ("Laplacian",), "float32", strategy="dense")
                for form, far in (("Mass", True), ("Laplacian", False), ("Helmholtz", True)):
                    problem = problem_of(make_space(shape, order, deformed, cells=1), form, "noncollocated")
                    if problem.tabulation.basis.tree.product:
                        yield f"kronecker {form} order {order}", problem, {"strategy": "kronecker", "far": far}
                    elif shape.name != "pyramid":
                        yield f"orthogonal {form} order {order}", problem, {"strategy": "orthogonal", "far": far}


def curve_cases():
    """The same on segments in the plane."""
    ends = np.array([[[2.0, 1.0], [0.3, 0.5]], [[2.5, 0.9], [0.2, 0.6]]])
    for order in (1, 5):
        for affine in (False, True):
            for dtype in (np.float64, np.float32):
                for problem in curve_problems(order, affine, ends, dtype):
                    name = f"order {order} affine {affine} {np.dtype(dtype)} {problem.form.name} {problem.algorithm}"
                    yield name, problem, {}


def check_faults():
    """A kernel faults at every array of its own that lies a number too far on."""
    for deformed in (False, True):
        space = make_space(SHAPES["tet"], 2, deformed, cells=1)
        problem = of_size(problem_of(space, "transport"), host().lanes(float))
        for side, shift in zip(SIDES, (1, -1), strict=True):
            straight = Crooked(side, 0)
            apply(problem, straight, 1, alone=True)
            assert straight.copies == 7  # three components of a field, their addresses, a parameter, input and result
            for which in range(1, 8):
                print("deformed" if deformed else "affine", side, which, flush=True)
                assert faults(lambda: apply(problem, Crooked(side, which), 1, alone=True))  # noqa: B023
            assert faults(lambda: apply(problem, Guard(side), 1, shift, alone=True))  # noqa: B023


def main(name):
    """Run the cases of a shape; or those that have to fault."""
    if name == "wrong":
        check_faults()
    else:
        for what, problem, options in curve_cases() if name == "segment" else cases(SHAPES[name]):
            print(what, flush=True)
            check(problem, **options)
    print("done")


if __name__ == "__main__":
    compiler.LEVEL = int(os.environ.get("HPFEM_TEST_LEVEL", compiler.LEVEL))
    main(*sys.argv[1:])
