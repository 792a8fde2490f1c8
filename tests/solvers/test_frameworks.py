"""Solutions as functions of JAX and PyTorch: their own checks of gradients pass, and what they cannot do is said."""

import sys

import numpy as np
import pytest

import hpfem as hp
from hpfem.mesh import box
from tests.solvers.test_solution_map import flow


@pytest.fixture(params=["hex", "prism", "pyramid", "tet"])
def linear(request, backend):
    """A linear problem, and data."""
    space = hp.Space(box(request.param, 1), 2, backend=backend)
    k = space.evaluate(lambda *x: 1 + x[0])
    problem = hp.Problem(space, dirichlet={"xmin": lambda *x: x[1]}, diffusivity=k, bar=False)
    return mapped(problem, {"diffusivity": "cells", "lam": "number", "f": "cells", "dirichlet": "function"})


@pytest.fixture
def other():
    """One that is neither linear nor symmetric, and data."""
    space = hp.Space(box("quad", 2), 2)
    form = flow(space, {"k": space.evaluate(lambda x, y: 1 + x), "a": 0.3})
    c0 = hp.C0Space(space)
    bc = hp.BoundaryConditions(c0, {"xmin": [1.0, 0.5]}, components=2)
    return mapped(form, {"k": "cells", "a": "number"}, c0, bc, tol=1e-13)


def mapped(*given, **options):
    solution = hp.SolutionMap(*given, **options)
    rng = np.random.default_rng(0)
    return solution, {name: rng.uniform(1, 2, shape) for name, shape in solution.shapes.items()}


@pytest.fixture
def jax():
    """JAX in float64."""
    module = pytest.importorskip("jax", reason="jax is absent")
    with module.enable_x64(True):
        yield module


def check_jax(jax, solution, data):
    from jax.test_util import check_grads

    solve, given = hp.jax.wrap(solution), {name: jax.numpy.asarray(own) for name, own in data.items()}
    assert np.array_equal(solve(given), solution(data).vector)
    check_grads(jax.jit(solve), (given,), 2, modes=("fwd", "rev"), atol=1e-6, rtol=1e-6)
    return solve, given


def test_jax(jax, linear):
    check_jax(jax, *linear)


def test_jax_by_rows_and_what_it_refuses(jax, other):
    solve, given = check_jax(jax, *other)

    def size(a):
        return (solve({**given, "a": a}) ** 2).sum()

    numbers = jax.numpy.array([0.2, 0.4])
    rows = jax.vmap(jax.grad(size))(numbers)
    assert np.allclose(rows, [jax.grad(size)(a) for a in numbers], rtol=1e-9)
    both = jax.jit(lambda a, b: (solve({**given, "a": a}), solve({**given, "a": b})))(*numbers)  # JAX may use threads
    assert all(np.allclose(u, solve({**given, "a": a}), rtol=1e-9) for u, a in zip(both, numbers))
    J = jax.jacfwd(lambda k: solve({**given, "k": k}))(given["k"])
    assert np.allclose(J[:, ::3], jax.jacrev(lambda k: solve({**given, "k": k})[:, ::3])(given["k"]), atol=1e-10)
    with pytest.raises(hp.ArgumentError, match="'k' is an array of float64 .* of float32 .*jax_enable_x64"):
        solve({**given, "k": given["k"].astype("float32")})
    slopes = [jax.grad(size)(0.2 + t) for t in (1e-4, -1e-4)]
    assert np.allclose(jax.hessian(size)(0.2), (slopes[0] - slopes[1]) / 2e-4, rtol=1e-6)
    with pytest.raises(hp.ArgumentError, match="first and second derivatives, no third ones"):
        jax.grad(jax.hessian(size))(0.2)
    with pytest.raises(jax.errors.JaxRuntimeError, match="NewtonError: SolutionMap: step"):
        jax.block_until_ready(solve({**given, "k": np.nan * given["k"]}))


def check_torch(torch, solution, data):
    solve, given = hp.torch.wrap(solution), [torch.tensor(own, requires_grad=True) for own in data.values()]
    assert np.array_equal(solve(dict(zip(data, given))).detach(), solution(data).vector)
    options = {"eps": 1e-4, "atol": 1e-6, "rtol": 1e-4, "fast_mode": True}

    def solved(*arrays):
        return solve(dict(zip(data, arrays)))

    assert torch.autograd.gradcheck(solved, given, check_forward_ad=True, **options)
    assert torch.autograd.gradgradcheck(solved, given, check_fwd_over_rev=True, **options)
    return solve, given


@pytest.fixture
def torch():
    """PyTorch."""
    return pytest.importorskip("torch", reason="torch is absent")


def test_torch(torch, linear):
    check_torch(torch, *linear)


def test_what_torch_refuses(torch, other):
    solve, (k, a) = check_torch(torch, *other)
    with pytest.raises(hp.ArgumentError, match="'k' is an array of float64 .* got one of float32"):
        solve({"k": k.detach().float(), "a": a})
    slopes = [(solve({"k": k, "a": a}) ** 2).sum()]
    for _ in range(2):
        slopes = torch.autograd.grad(slopes[0], a, create_graph=True)
    with pytest.raises(hp.ArgumentError, match="first and second derivatives, no third ones"):
        slopes[0].backward()
    with torch.autograd.forward_ad.dual_level():  # reverse over forward
        b = torch.autograd.forward_ad.make_dual(a, torch.ones_like(a))
        du = torch.autograd.forward_ad.unpack_dual(solve({"k": k, "a": b})).tangent
    [slope] = torch.autograd.grad(du.sum(), a)
    solution, data = other
    change = {"k": 0 * data["k"], "a": 1.0}
    assert float(slope) == pytest.approx(solution.forward(data, change, along=change).sum(), rel=1e-9)


@pytest.mark.cuda
def test_tensors_stay_on_the_device(torch):
    space = hp.Space(box("hex", 2), 2, backend="cuda")
    k = space.evaluate(lambda *x: 1 + x[0])
    solve = hp.torch.wrap(hp.Problem(space, dirichlet=0.0, diffusivity=k, bar=False), {"diffusivity": "cells"}, f=1.0)
    given = torch.ones(8, dtype=torch.float64, device="cuda", requires_grad=True)

    def twice(k):
        u = solve({"diffusivity": k})
        [slopes] = torch.autograd.grad(u.square().sum(), k, create_graph=True)
        return [u, slopes, *torch.autograd.grad(slopes.square().sum(), k)]

    twice(given)
    with hp.memory.count_transfers() as moved:
        found = twice(2 * given)
    assert all(own.is_cuda for own in found) and not moved.total


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_the_extra_is_named(name, other, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(hp.ArgumentError, match=f"hp.{name} takes {name}, which is not .* 'hpfem.{name}.'"):
        getattr(hp, name).wrap(other[0])


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_map_has_its_inputs(name, other):
    pytest.importorskip(name, reason=f"{name} is absent")
    with pytest.raises(hp.ArgumentError, match="a SolutionMap has inputs and options"):
        getattr(hp, name).wrap(other[0], {"k": "cells"})
