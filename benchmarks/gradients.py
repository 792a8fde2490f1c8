"""What gradients of solutions cost: beside a linear solve, and beside plain JAX.

    python -m benchmarks.gradients -o benchmarks/results/gradients_cpu.json

"beside": the gradient by the coefficient of each cell, beyond the solve before, over one linear solve with its set-up.
"jax": solution and gradient by `jax.grad` of `hp.jax.wrap`, and of finite elements in plain JAX (element matrices,
conjugate gradients with the diagonal, under `jit`) of the same points, tolerance and result. Compilation is not timed.
jax-fem is no peer here: it assembles with PETSc, which has no wheels. Seconds are by the clock and of the processors,
the shortest of several.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import hpfem as hp
from hpfem.support.files import write_json
from hpfem.support.machine import machine_description

TOL = 1e-10


def problem(cells: int, order: int, backend: str = "auto") -> tuple[hp.Problem, hp.Field]:
    """Conduction in a bent cube of hexes, and its conductivity."""
    mesh = hp.box("hex", cells).transformed(lambda x: x + 0.05 * np.sin(3 * np.roll(x, 1, axis=1)))
    space = hp.Space(mesh, order, "lagrange", backend=backend)
    k = space.evaluate(lambda x, y, z: 1 + x)
    return hp.Problem(space, dirichlet={"xmin": 0.0}, diffusivity=k, tol=TOL, bar=False), k


def shortest(call: Callable[[int], object], repeats: int) -> list[float]:
    """Seconds of a call, which gets the number of the repeat: by the clock, and of the processors."""
    times = []
    for number in range(repeats):
        began, used = time.perf_counter(), time.process_time()
        call(number)
        times.append((time.perf_counter() - began, time.process_time() - used))
    return [min(own) for own in zip(*times, strict=True)]


def beside(cells: int, order: int, repeats: int, backend: str) -> dict[str, Any]:
    """The gradient by one number a cell beside a linear solve with its set-up."""
    own, k = problem(cells, order, backend)
    solution = hp.SolutionMap(own, {"diffusivity": "cells"}, f=1.0)
    data = {"diffusivity": np.linspace(1, 2, cells**3)}
    u, w = solution(data), np.ones(solution.shape)
    solution.pullback(data, w)
    form = hp.Helmholtz(own.space, 0.0, k, backend=backend)
    rhs = own.c0.gather(hp.IProductWRTBase(own.space)(own.space.evaluate(lambda x, y, z: 1 + 0 * x)))

    def solved(_: int) -> object:
        A = hp.GlobalOperator(form, own.c0, own.conditions)
        return hp.solve(A, np.where(own.conditions.constrained, 0.0, rhs), tol=TOL, bar=False)

    solved(0)
    found = {
        "linear": shortest(solved, repeats),
        "gradient": shortest(lambda n: solution.pullback(data, n + w), repeats),
    }
    return {"cells": cells**3, "order": order, "unknowns": own.c0.size, "iterations": u.info.iterations, **found}


def plain(own: hp.Problem, jax: Any) -> Callable[[Any], Any]:
    """The solution for f = 1 by conductivities of the cells, in JAX alone."""
    jnp, [block], c0 = jax.numpy, own.space.blocks, own.c0
    inverse, weights = block.geometry.inverse_and_weights(slice(None))
    # Coefficients are values at nodes: the matrix of each cell for k = 1.
    slopes = np.einsum("aieq,anq->einq", inverse, block.tabulation.dense_gradient, optimize=True)
    matrices = np.stack([np.einsum("inq,q,imq->nm", own, w, own, optimize=True) for own, w in zip(slopes, weights)])
    numbers = c0.scatter(np.arange(float(c0.size))).arrays[0][0].round().astype(int)
    local = np.einsum("nq,eq->en", block.tabulation.dense, weights)
    load = np.bincount(numbers.ravel(), local.ravel(), c0.size)
    free = ~own.conditions.constrained
    K, places, b, mask = jnp.asarray(matrices), jnp.asarray(numbers), jnp.asarray(load * free), jnp.asarray(free)

    def solve(k: Any) -> Any:
        def apply(u: Any) -> Any:
            local = jnp.einsum("e,enm,em->en", k, K, (u * mask)[places])
            return jnp.where(mask, jnp.zeros(c0.size).at[places].add(local), u)

        local = k[:, None] * jnp.diagonal(K, axis1=1, axis2=2)
        diagonal = jnp.where(mask, jnp.zeros(c0.size).at[places].add(local), 1.0)
        return jax.scipy.sparse.linalg.cg(apply, b, tol=TOL, maxiter=10_000, M=lambda r: r / diagonal)[0]

    return solve


def with_jax(cells: int, order: int, repeats: int, backend: str) -> dict[str, Any]:
    """Solution and gradient by JAX, of hpfem and of plain JAX."""
    own, _ = problem(cells, order, backend)
    ours = hp.jax.wrap(own, {"diffusivity": "cells"}, f=1.0)  # it says if JAX is absent
    import jax

    jax.config.update("jax_enable_x64", True)
    theirs = plain(own, jax)
    target = jax.numpy.asarray(own.c0.project(lambda x, y, z: x))
    k = jax.numpy.linspace(1, 2, cells**3)
    record: dict[str, Any] = {"cells": cells**3, "order": order, "unknowns": own.c0.size}
    results = {}
    for name, solve in (("hpfem", lambda k: ours({"diffusivity": k})), ("plain JAX", theirs)):
        gradient = jax.jit(jax.value_and_grad(lambda k, solve=solve: ((solve(k) - target) ** 2).sum()))
        results[name] = [np.asarray(part) for part in gradient(k)]
        record[name] = shortest(lambda n, g=gradient: jax.block_until_ready(g(k * (1 + 0.01 * n))), repeats)
    (value, slopes), (other, found) = results.values()
    record["apart"] = [float(abs(value / other - 1)), float(abs(slopes - found).max() / abs(found).max())]
    return record


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--small", action="store_true", help="a few cells")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    sizes = ((46, 1), (23, 2))
    content: dict[str, Any] = {"machine": machine_description(), "backend": given.backend, "beside": [], "jax": []}
    for cells, order in ((3, 1), (2, 2)) if given.small else sizes:
        content["beside"].append(beside(cells, order, given.repeats, given.backend))
        print(json.dumps(content["beside"][-1]), flush=True)
        try:
            content["jax"].append(with_jax(cells, order, given.repeats, given.backend))
        except hp.ArgumentError as error:
            content["jax"].append(str(error))
        print(json.dumps(content["jax"][-1]), flush=True)
    if given.output is not None:
        write_json(given.output, content)
    return content


if __name__ == "__main__":
    main()
