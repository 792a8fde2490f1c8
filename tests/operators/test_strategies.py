"""Strategies as providers: choice per block, refusals and their reports, names; backends with memory of their own."""

import logging
import pickle
import re
import warnings
from functools import partial

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends import base as backends
from hpfem.backends.base import BACKENDS, choose_backend
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.strategy import Strategy
from hpfem.errors import ArgumentError, DeviceError, NotSuitable
from hpfem.memory import count_transfers
from hpfem.mesh import box
from hpfem.support.log import forget_reports, reports
from tests.operators.reference import random_field
from tests.samples import curved, norm_error
from tests.standin import StandIn, StandInBackend, StandInStrategy, add_strategy


@pytest.fixture
def space():
    """A space of two shapes, affine and deformed."""
    mesh = box(("quad", "tri"), (4, 2)).elevated(2)
    return hp.Space(mesh.transformed(lambda x: x + 0.1 * np.outer(np.maximum(x[:, 1] - 0.5, 0) ** 2, [1, 0])), 3)


@pytest.fixture
def providers(monkeypatch):
    """The strategies of NumPy are put back afterwards; nothing has been reported."""
    monkeypatch.setattr(BACKENDS["numpy"], "strategies", BACKENDS["numpy"].strategies)
    forget_reports()
    yield
    forget_reports()


class Picky(Strategy):
    """A fast strategy of the NumPy backend that serves some shapes, or none."""

    name, special = "picky", False

    def __init__(self, *serves):
        self.serves = serves
        self.asked = []

    def build(self, problem, options=None):
        """Build for the shapes it serves."""
        self.asked.append((problem.shape.name, problem.geometry.affine, problem.algorithm))
        if problem.shape.name not in self.serves:
            raise NotSuitable(f"no {problem.shape.name}s today")
        return NumpyKernel(problem, "sumfac")

    def cost(self, problem):
        """Less than anything."""
        return 0.0 if problem.algorithm == "collocated" else 0.5


class TestChoice:
    """What is chosen, and what is said of it."""

    def test_per_block(self, space, providers):
        add_strategy(BACKENDS["numpy"], Picky("tri"))
        operator = hp.Helmholtz(space, lam=1.0, backend="numpy")
        chosen = [(b.shape.name, c.strategy) for b, c in zip(space.blocks, operator.choices, strict=True)]
        assert {strategy for name, strategy in chosen if name == "tri"} == {"picky"}
        assert {strategy for name, strategy in chosen if name == "quad"} <= {"stdmat", "sumfac"}

    def test_refusal_falls_back_and_is_reported_once(self, space, providers, caplog):
        add_strategy(BACKENDS["numpy"], Picky())
        with caplog.at_level(logging.WARNING, logger="hpfem"):
            operator = hp.Helmholtz(space, lam=1.0, backend="numpy")
            hp.Helmholtz(space, lam=1.0, backend="numpy")
        said = [r.getMessage() for r in caplog.records if "picky" in r.getMessage()]
        assert len(said) == 2  # one for each shape, whatever the number of blocks and operators
        assert any("Helmholtz/quad P=3" in m and "picky: no quads today" in m for m in said)
        assert any("Helmholtz/tri P=3" in m and "picky: no tris today" in m for m in said)
        assert set(said) <= set(reports().values())
        assert all("picky: no" in " ".join(c.unsuitable) for c in operator.choices)
        assert operator.explain().count("not picky: no") >= len(space.blocks)
        u = space.project(lambda x, y: x * y)
        assert norm_error(operator(u).arrays[0], hp.Helmholtz(space, lam=1.0, strategy="sumfac")(u).arrays[0]) < 1e-12

    def test_refusal_of_what_was_asked_for(self, space, providers):
        add_strategy(BACKENDS["numpy"], Picky())
        with pytest.raises(NotSuitable, match="Helmholtz on quad: picky: no quads today"):
            hp.Helmholtz(space, lam=1.0, strategy="picky", backend="numpy")
        add_strategy(BACKENDS["numpy"], Picky("tri"))
        with pytest.raises(NotSuitable, match="Helmholtz on quad: picky: no quads today"):
            hp.Helmholtz(space, lam=1.0, strategy={"quad": "picky", "tri": "stdmat"}, backend="numpy")

    def test_what_is_not_suitable_takes_what_auto_takes(self, space, providers):
        auto = hp.Helmholtz(space, lam=1.0, backend="numpy")
        add_strategy(BACKENDS["numpy"], Picky("quad"))
        with pytest.warns(hp.HpfemWarning) as given:
            operator = hp.Helmholtz(space, lam=1.0, strategy="picky", backend="numpy")
        assert len(given) == 1 and "test_strategies" in given[0].filename
        said = str(given[0].message)
        assert said.startswith("Helmholtz: some blocks take what 'auto' takes, not what was asked for: affine tri, P=3")
        assert "no tris today" in said and "on quad" not in said
        for block, choice, usual in zip(space.blocks, operator.choices, auto.choices, strict=True):
            assert choice.config == (usual.config if block.shape.name == "tri" else ("picky", "collocated", None))
        lines = operator.explain().splitlines()
        refused = "    not as asked for: Helmholtz on tri: picky: no tris today"
        assert lines.count(refused) == sum(block.shape.name == "tri" for block in space.blocks)
        assert not any(line.startswith("    not picky") for line in lines)
        with warnings.catch_warnings():
            warnings.simplefilter("error", hp.HpfemWarning)  # it was said
            again = pickle.loads(pickle.dumps(operator))
            assert again.explain() == operator.explain()
            operator.tune(1e-3)
        u = space.project(lambda x, y: x * y)
        assert all(norm_error(*pair) < 1e-12 for pair in zip(operator(u).arrays, auto(u).arrays, strict=True))

    def test_by_shape(self, space):
        algorithm = {"tri": "noncollocated"}
        operator = hp.Helmholtz(space, lam=1.0, strategy={"quad": "stdmat", "hex": "sumfac"}, algorithm=algorithm)
        auto = hp.Helmholtz(space, lam=1.0, algorithm="noncollocated")
        for block, choice, usual in zip(space.blocks, operator.choices, auto.choices, strict=True):
            assert choice.config == usual.config if block.shape.name == "tri" else choice.strategy == "stdmat"
        doubled = (operator + operator).volume
        assert [c.strategy for c in doubled.choices] == [c.strategy for c in operator.choices]
        form = hp.WeakForm(space, lambda u: u, test="value", on="xmin", strategy={"quad": "stdmat"})
        assert all(c.strategy == "stdmat" for c in form.inner.choices if c.kernel.problem.shape.name == "quad")

    def test_an_algorithm_without_directions(self):
        space = hp.Space(box(("quad", "tri"), (4, 2)), 3, quadrature={"tri": "simplex"})
        with pytest.warns(hp.HpfemWarning, match="affine tri, P=3: .* has no directions to differentiate along"):
            operator = hp.Laplacian(space, algorithm="collocated")
        assert {choice.kernel.problem.shape.name: choice.algorithm for choice in operator.choices} == {
            "quad": "collocated",
            "tri": "noncollocated",
        }

    def test_algorithm_that_was_asked_for(self, space, providers):
        picky = Picky("quad", "tri")
        add_strategy(BACKENDS["numpy"], picky)
        operator = hp.Helmholtz(space, lam=1.0, strategy="picky", algorithm="noncollocated", backend="numpy")
        assert {c.algorithm for c in operator.choices} == {"noncollocated"}
        assert {how for *_, how in picky.asked} == {"noncollocated"}

    def test_explains(self, space):
        text = hp.Helmholtz(space, lam=1.0, strategy="sumfac", algorithm="collocated", backend="numpy").explain()
        lines = text.splitlines()
        assert lines[0] == "Helmholtz on backend numpy"
        # Under a block of simplices stands what a symmetric rule would give.
        assert all("quadrature='simplex'" in line for line in lines[1:] if line.startswith("    "))
        of_blocks = [line for line in lines[1:] if not line.startswith("    ")]
        for line, block in zip(of_blocks, space.blocks, strict=True):
            assert repr(block) in line
            assert "sumfac, collocated (asked for)" in line
            assert f"metric: 4 numbers per {'element' if block.affine else 'point'}" in line
        general = hp.AdvectionDiffusionReaction(space, [1.0, 0.0], backend="numpy").explain()
        assert "jacobian: 5 numbers per point" in general
        assert "wJ: 1 numbers per" in hp.Mass(space, backend="numpy").explain()
        assert "numbers" not in hp.BwdTrans(space, backend="numpy").explain()

    def test_the_expected_gain_is_over_what_serves_and_builds_no_kernel(self, space, monkeypatch):
        operator = hp.Mass(space, backend="cpu")
        for strategy in operator.backend.strategies:
            monkeypatch.setattr(type(strategy), "build", lambda *_: pytest.fail("a kernel is built"))
        lines = [line for line in operator.explain().splitlines()[1:] if "Block" in line]
        for line, block in zip(lines, space.blocks, strict=True):
            other = "(orthogonal|sumfac|dense)" if block.affine else "stdmat"  # 'dense' refuses deformed cells
            assert re.search(rf"by the model\), expected [1-9]\d*\.\d\d times as fast as {other};", line), line

    def test_cost_falls_with_factorisation_at_high_order(self):
        mesh = box("hex", (2, 1, 1))
        operators = [hp.Helmholtz(hp.Space(mesh, order), lam=1.0, backend="numpy") for order in (1, 10)]
        assert [op.choices[0].strategy for op in operators] == ["stdmat", "sumfac"]


class TestNames:
    """Unknown names: the valid ones are listed."""

    def test_strategy(self, backend, space):
        with pytest.raises(
            ArgumentError,
            match=f"unknown strategy 'sumfact' of backend '{backend}' .did you mean 'sumfac'.*; valid: auto, .*sumfac",
        ):
            hp.Mass(space, strategy="sumfact", backend=backend)

    def test_by_shape(self, space):
        with pytest.raises(ArgumentError, match="unknown shape 'quads' in strategy .did you mean 'quad'"):
            hp.Mass(space, strategy={"quads": "sumfac"})
        with pytest.raises(ArgumentError, match="unknown strategy 'sumfact' of backend 'numpy'"):
            hp.Mass(space, strategy={"hex": "sumfact"}, backend="numpy")
        with pytest.raises(ArgumentError, match="unknown algorithm 'kollocated' .did you mean"):
            hp.Mass(space, algorithm={"tri": "kollocated"})
        with pytest.raises(ArgumentError, match="one point across it"):
            hp.WeakForm(space, lambda u: u, test="value", on="xmin", algorithm={"tri": "collocated"})

    def test_algorithm(self, backend, space):
        for operator in (partial(hp.Helmholtz, lam=1.0), hp.Mass, hp.BwdTrans):
            with pytest.raises(
                ArgumentError,
                match="algorithm 'colocated' .did you mean 'collocated'.*; valid: auto, collocated, noncollocated",
            ):
                operator(space, algorithm="colocated", backend=backend)

    def test_backend(self, space):
        for make in (lambda: hp.Mass(space, backend="gpu"), lambda: hp.Mass(hp.Space(space.mesh, 2, backend="gpu"))):
            with pytest.raises(ArgumentError, match="unknown backend 'gpu'; valid: auto, numpy"):
                make()

    def test_operator(self):
        from hpfem.operators import OPERATORS

        with pytest.raises(ArgumentError, match="unknown operator 'Helmoltz'.*did you mean 'Helmholtz'.*BwdTrans"):
            OPERATORS["Helmoltz"]

    def test_options(self, space):
        with pytest.raises(TypeError, match="strat"):
            hp.Mass(space, strat="sumfac")

    def test_strategies_of_a_backend(self, backend):
        assert {"stdmat", "sumfac"} <= set(BACKENDS[backend].strategy_names)


class TestBackends:
    """Which backend serves; one with memory of its own."""

    def test_of_the_space_and_of_the_operator(self, space):
        numpy_space = hp.Space(space.mesh, 2, backend="numpy")
        assert hp.Mass(numpy_space).backend.name == "numpy"
        assert hp.Mass(space, backend="numpy").backend.name == "numpy"
        assert hp.Mass(space).backend.name == choose_backend("auto").name

    def test_one_that_cannot_run(self, space, monkeypatch):
        broken = StandInBackend("broken", missing="no such chip; install one")
        monkeypatch.setitem(BACKENDS, "broken", broken)
        with pytest.raises(DeviceError, match="backend 'broken' cannot run here: no such chip; install one"):
            hp.Mass(space, backend="broken")

    def test_auto_goes_to_the_next_and_says_so(self, space, monkeypatch, providers, caplog):
        broken = StandInBackend("broken", missing="no such chip")
        monkeypatch.setitem(BACKENDS, "broken", broken)
        monkeypatch.setattr(backends, "PREFERENCE", ("broken", "numpy"))
        with caplog.at_level(logging.WARNING, logger="hpfem"):
            assert hp.Mass(space).backend.name == "numpy"
            assert hp.Laplacian(space).backend.name == "numpy"
        assert [r.getMessage() for r in caplog.records] == ["backend 'broken' is not used: no such chip"]

    @pytest.fixture
    def device(self, monkeypatch, providers):
        """A device with a backend that computes on it."""
        device = StandIn()
        backend = StandInBackend("stand-in", device, [StandInStrategy()])
        monkeypatch.setitem(BACKENDS, "stand-in", backend)
        return device

    def test_fields_stay_on_the_device(self, space, device, rng):
        u = random_field(space, rng)
        expected = hp.Helmholtz(space, lam=1.0, backend="numpy")(u)
        operator = hp.Helmholtz(space, lam=lambda x, y: 1 + 0 * x, backend="stand-in")
        out = operator(u)
        with count_transfers() as count:
            for _ in range(3):
                operator(u, out=out)
                out.dot(u)
            assert out.home is device
        assert count.total == 0
        with count_transfers() as count:
            arrays = [pair.read() for pair in out.data]
        assert count.to_host == len(space.blocks)
        assert all(norm_error(a, b) < 1e-12 for a, b in zip(arrays, expected.arrays, strict=True))

    def test_only_what_changed_moves(self, space, device, rng):
        u = random_field(space, rng)
        mass = hp.Mass(space, backend="stand-in")
        with count_transfers() as count:
            out = mass(u)
            mass(u, out=out)
        assert (count.to_device, count.to_host) == (len(space.blocks), 0)
        u.arrays[0][...] = 1.0  # `arrays` may be written to: all of them go stale on the device
        with count_transfers() as count:
            mass(u, out=out)
        assert count.to_device == len(space.blocks)

    def test_host_backends_move_nothing(self, backend, space, rng):
        if BACKENDS[backend].device().name != "host":
            return
        u = random_field(space, rng)
        with count_transfers() as count:
            operator, out = hp.Helmholtz(space, lam=1.0, backend=backend), space.zeros("dual")
            for _ in range(3):
                operator(u, out=out)
        assert count.total == 0


def test_kernels_too_large_to_compile_fall_back():
    forget_reports()
    space = hp.Space(curved("quad"), 20, quadrature=12, backend="cpu")
    operator = hp.Mass(space)
    assert [choice.strategy for choice in operator.choices] == ["numpy"]
    assert any("fibers of 34 points are too long to compile" in text for text in reports().values())
    with pytest.raises(NotSuitable, match="too long to compile, the limit is 32"):
        hp.Mass(space, strategy="sumfac")
    u = space.project(lambda x, y: x * y)
    assert u.dot(operator(u)) == pytest.approx(space.norm(u) ** 2, rel=1e-12)
