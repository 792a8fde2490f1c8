"""The tuner: what it times, keeps and refuses, and what operators make of it. Times are invented."""

import json
import pickle
from concurrent.futures import Future
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import BACKENDS, choose_backend
from hpfem.backends.cuda.dense import strategy as dense
from hpfem.backends.cuda.runtime import planned
from hpfem.backends.cuda.runtime.device import Limits
from hpfem.backends.cuda.stdmat import strategy as stdmat
from hpfem.backends.cuda.sumfac import strategy as sumfac
from hpfem.backends.cuda.sumfac_top import strategy as sumfac_top
from hpfem.backends.cuda.sumfac_top.plan import SumFacTopOptions
from hpfem.backends.numpy.pipeline import NumpyKernel
from hpfem.backends.options import from_text
from hpfem.backends.strategy import Strategy
from hpfem.errors import ArgumentError, NotSuitable
from hpfem.forms.cost import operator_bytes
from hpfem.forms.form import BlockKernel
from hpfem.geometry import FactorSource
from hpfem.memory import HOST
from hpfem.mesh import box
from hpfem.operators.operator import tune_operators
from hpfem.support.log import forget_reports, reports
from hpfem.tuning import key, store, tuner
from hpfem.tuning.key import form_key, timed_elements, tuning_key
from tests.operators.reference import random_field
from tests.samples import curved, norm_error, straight, tapered
from tests.standin import StandInBackend, add_strategy
from tests.tuning.world import World

NUMPY = BACKENDS["numpy"]


def register_strategy(strategy):
    """One more strategy of NumPy's."""
    add_strategy(NUMPY, strategy)


@pytest.fixture(autouse=True)
def world(tmp_path, monkeypatch):
    """An empty cache, invented time on backend "numpy", and none of its own strategies."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    made = World()
    for name, value in (("timer", lambda: made), ("processor", lambda: "chip"), ("strategies", ())):
        monkeypatch.setattr(NUMPY, name, value)
    forget_reports()
    yield made
    forget_reports()


@pytest.fixture
def space():
    """One block."""
    return hp.Space(box("quad", (3, 2)), 2, backend="numpy")


class PacedKernel(BlockKernel):
    """A kernel that moves the world's clock, and may be wrong by a factor."""

    def __init__(self, problem, world, seconds, factor):
        self.inner = NumpyKernel(problem, "sumfac")
        self.problem, self.strategy, self.flops = problem, "paced", self.inner.flops
        self.world, self.seconds, self.factor = world, seconds, factor

    def apply(self, source, out):
        """Apply."""
        self.world.now += self.seconds
        self.inner.apply(source, out)
        out *= self.factor


class Paced(Strategy):
    """A strategy whose options take given seconds, in rounds."""

    special = False

    def __init__(self, name, world, *rounds, cost=1.0, shapes=None, wrong=()):
        self.name, self.world, self.rounds, self._cost = name, world, rounds, cost
        self.shapes, self.wrong, self.prepared, self.sent = shapes, wrong, [], []

    def default(self, problem):
        """The first of the first round."""
        return next(iter(self.rounds[0]))

    def measured(self, problem):
        """Known where the cost is a tenth."""
        return "9 GDoF/s on a chip" if self._cost == 0.1 else None

    def search(self, problem):
        """One round after the other."""
        for batch in self.rounds:
            self.sent.append(dict((yield list(batch))))

    def prepare(self, problem, options=None):
        """Nothing to begin."""
        self.prepared.append(options)

    def build(self, problem, options=None):
        """Serve some shapes."""
        if self.shapes is not None and problem.shape.name not in self.shapes:
            raise NotSuitable(f"no {problem.shape.name}s")
        known = {name: seconds for batch in self.rounds for name, seconds in batch.items()}
        if options not in known:
            raise ArgumentError(f"no options {options!r}")
        seconds = known[options]
        # Collocated, where that means something, takes twice as long.
        slow = problem.algorithm == "collocated" and problem.form.gradients
        return PacedKernel(problem, self.world, seconds * (1 + slow), 1.001 if options in self.wrong else 1.0)

    def cost(self, problem):
        """As given."""
        return self._cost


def chosen(operator):
    """Strategy, algorithm and options of every block."""
    return [choice.config for choice in operator.choices]


def test_auto_takes_what_was_tuned(world, space):
    register_strategy(Paced("slow", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("fast", world, {None: 0.5}, cost=1.0))
    before = hp.Mass(space)
    assert chosen(before) == [("slow", None, None)]
    assert "slow (least expected time by the model), expected 2.00 times as fast as fast" in before.explain()
    [result] = hp.tune(space, "Mass", seconds=np.float32(1e9))
    assert result.changed and result.operator == "Mass" and "6 affine quad, P=2" in result.block
    after = hp.Mass(space)
    assert chosen(after) == [("fast", None, None)] and chosen(before) == [("slow", None, None)]
    assert "fast (measured here: 1.08e-07 GDoF/s, 2.00 times as fast as slow)" in after.explain()
    before.rebuild()
    assert chosen(before) == chosen(after)
    assert chosen(hp.Mass(space, strategy="slow")) == [("slow", None, None)]
    u = random_field(space, np.random.default_rng(0))
    assert norm_error(after(u).arrays[0], before(u).arrays[0]) < 1e-14


def test_an_operator_tunes_itself_and_keeps_its_choice_in_a_pickle(world, space):
    register_strategy(Paced("a", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("b", world, {"x": 1.2, "y": 0.9}, {"z": 0.5, "w": 0.6}))
    operator = hp.Helmholtz(space, lam=1.0)
    copy = pickle.loads(pickle.dumps(operator))
    [result] = operator.tune(1e9)
    assert chosen(operator) == [("b", "noncollocated", "z")]
    assert result.record.winner == ("b", "noncollocated", "z") and result.record.runner_up[2] == "w"
    assert "b, noncollocated, z (measured here: " in operator.explain()
    assert chosen(copy) == [("a", "collocated", None)]
    opened = pickle.loads(pickle.dumps(operator))
    store.cache().clear()
    again = pickle.loads(pickle.dumps(operator))
    assert chosen(opened) == chosen(again) == chosen(operator)
    assert again.explain() == operator.explain()
    assert chosen(hp.Helmholtz(space, lam=1.0)) == [("a", "collocated", None)]


@pytest.mark.parametrize(("challenger", "winner"), [(0.97, "old"), (0.9, "new")])
def test_the_present_choice_stays_unless_it_is_beaten_clearly(world, space, challenger, winner):
    register_strategy(Paced("old", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("new", world, {None: challenger}))
    operator = hp.Mass(space)
    [result] = operator.tune(1e9)
    assert operator.choices[0].strategy == winner and result.changed == (winner == "new")
    if winner == "old":
        assert "kept: new is 3.1% faster, which is not enough" in operator.explain()


def test_an_earlier_result_is_the_incumbent(world, space):
    register_strategy(Paced("old", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("new", world, {None: 0.9}))
    hp.Mass(space).tune(1e9)
    register_strategy(Paced("newest", world, {None: 0.88}))
    [result] = hp.tune(space, hp.Mass(space), 1e9)
    assert result.record.winner[0] == "new" and result.record.kept


def test_rounds_build_on_times_and_stop_for_those_far_behind(world, space):
    good = Paced("good", world, {"a": 1.0, "b": 0.8}, {"c": 0.7}, {"d": 0.6}, cost=0.5)
    bad = Paced("bad", world, {"p": 2.0}, {"q": 0.1})
    register_strategy(good)
    register_strategy(bad)
    [result] = hp.Mass(space).tune(1e9)
    assert result.record.winner == ("good", None, "d") and result.record.tried == 5
    assert good.sent[0] == pytest.approx({"a": 1.0, "b": 0.8}) and good.sent[1]["c"] == pytest.approx(0.7)
    assert bad.prepared == ["p"]


def test_shipped_measurements_are_reported(world, space):
    register_strategy(Paced("known", world, {"a": 1.0}, cost=0.1))
    text = hp.Mass(space).explain()
    assert "known, a (shipped table: 9 GDoF/s on a chip)" in text
    assert "known, a (asked for)" in hp.Mass(space, strategy="known").explain()


def test_unsuitable_candidates_are_reported(world):
    space = hp.Space(box(("quad", "tri"), (2, 1)), 2, backend="numpy")
    register_strategy(Paced("some", world, {None: 0.5}, cost=0.5, shapes=("tri",)))
    register_strategy(Paced("all", world, {None: 1.0}))
    operator = hp.Mass(space)
    operator.tune(1e9)
    assert {b.shape.name: c.strategy for b, c in zip(space.blocks, operator.choices, strict=True)} == {
        "quad": "all",
        "tri": "some",
    }
    lines = operator.explain().splitlines()
    assert sum("not some: no quads" in line for line in lines) == 1
    assert any("all (measured here: " in line and "nothing else serves" in line for line in lines)


def test_what_was_chosen_is_not_called_unsuitable(world, space):
    class Partial(Paced):
        """Serves an algorithm, and not the other."""

        def build(self, problem, options=None):
            if problem.algorithm == "collocated":
                raise NotSuitable("no collocation")
            return super().build(problem, options)

    register_strategy(Partial("partial", world, {None: 0.5}, cost=0.5))
    register_strategy(Paced("other", world, {None: 20.0}))
    operator = hp.Helmholtz(space, lam=1.0)
    assert chosen(operator) == [("partial", "noncollocated", None)] and "    not" not in operator.explain()
    [result] = operator.tune(1e9)
    assert result.unsuitable == ("partial: no collocation",) and result.record.runner_up is None
    assert "    not" not in operator.explain() and ", others are far slower)" in operator.explain()


def test_wrong_results_never_win(world, space):
    register_strategy(Paced("right", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("wrong", world, {"a": 0.5, "b": 0.8}, wrong=("a",)))
    [result] = hp.Mass(space).tune(1e9)
    assert result.record.winner == ("wrong", None, "b")
    assert ("wrong", None, "a") not in result.seconds
    assert any("wrong, a: its result is wrong" in text for text in result.unsuitable)
    assert any("wrong, a gives wrong results" in text for text in reports().values())


def test_kernels_that_fail_never_win(world, space):
    class Failing(Paced):
        """What a GPU says of a launch that asks for too much."""

        def build(self, problem, options=None):
            kernel = super().build(problem, options)
            if options == "a":
                kernel.apply = lambda source, out: (_ for _ in ()).throw(RuntimeError("CUDA_ERROR_OUT_OF_RESOURCES"))
            return kernel

    register_strategy(Paced("works", world, {None: 1.0}, cost=0.5))
    register_strategy(Failing("fails", world, {"a": 0.5, "b": 0.8}))
    [result] = hp.Mass(space).tune(1e9)
    assert result.record.winner == ("fails", None, "b")
    assert any("fails, a: CUDA_ERROR_OUT_OF_RESOURCES" in text for text in result.unsuitable)


def test_it_ends_in_time(world, space):
    register_strategy(Paced("first", world, {None: 1.0}, cost=0.5))
    many = Paced("many", world, {f"v{i}": 0.99 for i in range(100)})
    register_strategy(many)
    problem, backend = hp.Mass(space).problem(0), choose_backend("numpy")
    began = world.now
    result = tuner.BlockTuner(problem, "auto", "auto", backend, 30.0, world.clock).run()
    assert 25.0 < world.now - began < 35.0
    assert 1 < result.record.tried < 15 and result.record.winner == ("first", None, None)


def test_every_candidate_is_timed_if_time_is_short():
    a, b, c = [("a", None, v) for v in "123"], [("b", None, "1")], []
    assert tuner.in_turns([a, b, c]) == [a[0], b[0], a[1], a[2]]
    assert tuner.in_turns([]) == []


def test_without_time_nothing_is_kept(world, space):
    register_strategy(Paced("first", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("second", world, {None: 0.1}))
    found = tune_operators([hp.Mass(space)], 1.0, world.clock)
    assert [tuned.record for tuned in found] == [None] and store.entries() == []
    assert chosen(hp.Mass(space)) == [("first", None, None)]


def test_equal_blocks_are_tuned_once(world):
    spaces = [hp.Space(box("quad", counts), 2, backend="numpy") for counts in ((3, 2), (2, 3))]
    register_strategy(Paced("a", world, {None: 1.0}))
    assert len(tune_operators([hp.Mass(space) for space in spaces], 1e9)) == 1


def test_nothing_of_the_user_is_touched(world, space):
    register_strategy(Paced("a", world, {None: 1.0}))
    register_strategy(Paced("b", world, {None: 0.5}))
    lam = space.evaluate(lambda x, y: 1 + x)
    before = lam.arrays[0].copy()
    operator = hp.Helmholtz(space, lam=lam)
    operator.tune(1e9)
    assert np.array_equal(lam.arrays[0], before)


def test_large_blocks_are_timed_in_part(world, space, monkeypatch):
    register_strategy(Paced("a", world, {None: 1.0}))
    operator, backend = hp.Helmholtz(space, lam=lambda x, y: x), choose_backend("numpy")
    assert timed_elements(operator.problem(0), backend) == 6
    monkeypatch.setattr(key, "HOST_BYTES", 3 * operator_bytes(operator.problem(0)))
    few = timed_elements(operator.problem(0), backend)
    assert few == 3
    [result] = operator.tune(1e9)
    assert result.elements == few and result.record.about["block_elements"] == 6
    part = tuner.sample(operator.problem(0), few)
    assert part.n_elements == few and part.fields["lam"].values.shape[1] == few


def key_of(mesh, order=2, operator=hp.Mass, strategy="auto", algorithm="auto", backend="numpy", options=None, **given):
    """Key of the first block of an operator."""
    space = hp.Space(mesh, order, backend="numpy", **(options or {}))
    problem = operator(space, strategy="sumfac", backend="cpu", **given).problem(0)
    return tuning_key(problem, strategy, algorithm, choose_backend(backend))


def test_the_key_knows_what_speed_depends_on(monkeypatch):
    mesh = straight("quad")
    keys = {
        "plain": key_of(mesh),
        "order": key_of(mesh, 3),
        "shape": key_of(straight("tri")),
        "geometry": key_of(curved("quad")),
        "points": key_of(mesh, options={"quadrature": "gauss"}),
        "more points": key_of(mesh, options={"quadrature": 1}),
        "basis": key_of(mesh, options={"basis": "orthogonal"}),
        "dtype": key_of(mesh, options={"dtype": "float32"}),
        "size": key_of(box("quad", (20, 20))),
        "operator": key_of(mesh, operator=hp.Helmholtz, lam=1.0),
        "coefficient": key_of(mesh, operator=hp.Helmholtz, lam=1.0, diffusivity=2.0),
        "field": key_of(mesh, operator=hp.Helmholtz, lam=lambda x, y: x),
        "stage": key_of(mesh, operator=hp.BwdTrans),
        "strategy": key_of(mesh, strategy="sumfac"),
        "algorithm": key_of(mesh, algorithm="collocated"),
        "backend": key_of(mesh, backend="cpu"),
        "form": key_of(mesh, operator=hp.WeakForm, pointwise=lambda u: u * u, test="value"),
        "constant": key_of(mesh, operator=hp.WeakForm, pointwise=lambda u: 2.0 * u, test="value"),
        "other constant": key_of(mesh, operator=hp.WeakForm, pointwise=lambda u: 3.0 * u, test="value"),
        "components": key_of(mesh, operator=hp.WeakForm, pointwise=lambda u: (u[0], u[1]), test="value", components=2),
    }
    monkeypatch.setattr(NUMPY, "processor", lambda: "another chip")
    keys["device"] = key_of(mesh)
    assert len({tuple(k.items()) for k in keys.values()}) == len(keys)
    assert all(isinstance(value, (str, int)) for k in keys.values() for value in k.values())


def test_the_key_does_not_know_what_speed_does_not_depend_on():
    mesh = straight("quad")
    assert key_of(mesh) == key_of(box("quad", mesh_counts(mesh)))
    # A parameter's value, and what a form is called.
    assert key_of(mesh, operator=hp.Helmholtz, lam=1.0) == key_of(mesh, operator=hp.Helmholtz, lam=2.0)
    mine = key_of(mesh, operator=hp.WeakForm, pointwise=lambda u: u, trial=("value",), test="value")
    assert mine == key_of(mesh)


def mesh_counts(mesh):
    """Boxes of a mesh of quads with as many cells."""
    return (mesh.n_cells, 1)


def test_forms_are_told_apart_by_content():
    space = hp.Space(straight("tri"), 2, backend="cpu")
    forms = [hp.WeakForm(space, f, test="value").form for f in (lambda u: u * u, lambda u: u**2 * 1.5, lambda u: u * u)]
    keys = [form_key(form) for form in forms]
    assert keys[0] == keys[2] != keys[1]


def test_damaged_results_are_reported_once_and_ignored(world, space):
    register_strategy(Paced("model", world, {None: 1.0}, cost=0.5))
    register_strategy(Paced("fast", world, {None: 0.5}))
    hp.Mass(space).tune(1e9)
    [path] = store.cache().folder.iterdir()
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "about": {"unsuitable": 3}}))
    assert "    not" not in hp.Mass(space).explain()
    path.write_text("{")
    assert chosen(hp.Mass(space)) == chosen(hp.Mass(space)) == [("model", None, None)]
    assert len([text for text in reports().values() if str(path) in text]) == 1
    hp.Mass(space).tune(1e9)
    assert chosen(hp.Mass(space)) == [("fast", None, None)]


@pytest.mark.parametrize(
    "winner", [("sumfac-warp", None, "elements=2 l2"), ("model", None, "v9"), ("model", "sideways", None)]
)
def test_a_result_that_cannot_be_built_is_reported_and_ignored(world, space, winner):
    register_strategy(Paced("model", world, {None: 1.0}))
    operator = hp.Mass(space)
    [result] = operator.tune(1e9)
    store.keep(replace(result.record, winner=winner))
    operator = hp.Mass(space)
    assert chosen(operator) == [("model", None, None)] and "by the model" in operator.explain()
    assert any("was chosen before and is not used now" in text for text in reports().values())
    [again] = operator.tune(1e9)
    assert again.record.winner == ("model", None, None)


def test_a_requested_strategy_is_tuned_by_itself(world, space):
    register_strategy(Paced("a", world, {"x": 1.0, "y": 0.5}))
    register_strategy(Paced("b", world, {None: 0.1}, cost=0.5))
    operator = hp.Helmholtz(space, lam=1.0, strategy="a", algorithm="collocated")
    [result] = operator.tune(1e9)
    assert chosen(operator) == [("a", "collocated", "y")] and set(result.seconds) == {
        ("a", "collocated", "x"),
        ("a", "collocated", "y"),
    }
    assert chosen(hp.Helmholtz(space, lam=1.0)) == [("b", "collocated", None)]


def test_errors(world, space):
    register_strategy(Paced("a", world, {None: 1.0}))
    for seconds in (0, -1.0, float("nan"), float("inf"), "1", True):
        with pytest.raises(ArgumentError, match="seconds of tuning must be a finite number > 0"):
            hp.tune(space, seconds=seconds)
    with pytest.raises(ArgumentError, match="unknown operator 'Mas'"):
        hp.tune(space, ["Mas"])
    with pytest.raises(ArgumentError, match="AdvectionDiffusionReaction takes coefficients"):
        hp.tune(space, ["AdvectionDiffusionReaction"])
    with pytest.raises(ArgumentError, match="FwdTrans cannot be tuned"):
        hp.tune(space, ["FwdTrans"], backend="cpu")
    with pytest.raises(ArgumentError, match="None cannot be tuned"):
        hp.tune(space, None)
    with pytest.raises(ArgumentError, match="Mass is on another space"):
        hp.tune(space, [hp.Mass(hp.Space(space.mesh, 3, backend="numpy"))])
    with pytest.raises(ArgumentError, match="unknown strategy 'b'"):
        hp.tune(space, strategy="b")
    broken = Paced("broken", world, {None: 1.0}, shapes=())
    NUMPY.strategies = ()
    operator = replace_kernels(space, world)
    register_strategy(broken)
    with pytest.raises(NotSuitable, match="Mass on quad: broken: no quads"):
        operator.tune(1.0)


def replace_kernels(space, world):
    """A mass operator whose strategy is gone."""
    register_strategy(Paced("gone", world, {None: 1.0}))
    operator = hp.Mass(space)
    NUMPY.strategies = NUMPY.strategies[:-1]
    return operator


STAGES = [hp.BwdTrans, hp.IProductWRTBase, hp.PhysDeriv, hp.IProductWRTDerivBase]


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_and_components(world, stage):
    register_strategy(Paced("a", world, {None: 1.0}))
    register_strategy(Paced("b", world, {None: 0.5}))
    space = hp.Space(box("tri", (2, 1)), 2, backend="numpy")
    couple = hp.WeakForm(space, lambda u, du: ((u[1], u[0]), (du[0], du[1])), components=2)
    results = hp.tune(space, [stage.__name__, couple], seconds=1e9)
    assert [result.changed for result in results] == [True, True]


def test_on_every_backend(backend, monkeypatch, rng):
    monkeypatch.undo()
    monkeypatch.setattr(tuner, "keep", lambda record: kept.append(record))
    kept = []
    space = hp.Space(curved("tri"), 2, backend=backend)
    # Time that passes by one second whenever it is asked for: the same work on a busy machine and an idle one.
    operators = [hp.Mass(space), hp.WeakForm(space, lambda u, du: (u**3, du))]
    results = tune_operators(operators, 400.0, clock=count().__next__)
    assert len(results) == len(kept) == 2
    for result in results:
        assert result.record.tried >= 1 and result.record.key["backend"] == backend
        assert result.seconds and all(seconds > 0 for seconds in result.seconds.values())
    operator, u = hp.Helmholtz(space, lam=1.0), random_field(space, rng)
    expected = hp.Helmholtz(space, lam=1.0, backend="numpy", strategy="sumfac")(u)
    tune_operators([operator], 200.0, clock=count().__next__)
    assert norm_error(operator(u).arrays[0], expected.arrays[0]) < 1e-12


class DryKernel(PacedKernel):
    """In place of a CUDA kernel: its time depends on the plan."""

    world = None

    def __init__(self, problem, plan=None):
        options = getattr(plan, "options", None)
        gain = bool(options and options.prefetch) + 2 * (problem.source == "recomputed")
        seconds = 1e-3 if options is None else 1e-4 * (2 - 0.5 * gain + 0.01 * options.elements)
        super().__init__(problem, self.world, seconds, 1.0)


def test_options_of_cuda_without_a_gpu(world, monkeypatch):
    begun = []

    def start(source, architecture):
        """Compile nothing."""
        begun.append((source, architecture))
        done = Future()
        done.set_result(None)
        return done

    strategies = BACKENDS["cuda"].strategies
    monkeypatch.setitem(BACKENDS, "cuda", StandInBackend("cuda", HOST, strategies, timer=lambda: world))
    monkeypatch.setattr(DryKernel, "world", world)
    monkeypatch.setattr(stdmat, "StdMatKernel", DryKernel)
    for strategy in (sumfac_top.CudaSumFacTop, sumfac.CudaSumFac, dense.CudaDense):
        monkeypatch.setattr(strategy, "kernel", lambda plan, name: DryKernel(plan.problem, plan))
    for name, stub in (("limits", Limits), ("architecture", lambda: "sm_90"), ("start", start)):
        for module in (planned, stdmat):
            monkeypatch.setattr(module, name, stub, raising=False)
    space = hp.Space(curved("tet"), 4, backend="cuda", quadrature="collapsed")
    operator = hp.Helmholtz(space, lam=1.0)
    assert "GDoF/s on an H200)" in operator.explain() and "(shipped table: " in operator.explain()
    [result] = operator.tune(1e9)
    strategy, algorithm, options = result.record.winner
    assert strategy == "sumfac-top" and from_text(SumFacTopOptions, options).prefetch
    assert len({source for source, _ in begun}) > 20
    assert f"sumfac-top, {algorithm}, {options} (measured here: " in operator.explain()
    assert [text for text in result.unsuitable if text.startswith("sumfac: ")]
    assert chosen(hp.Helmholtz(space, lam=1.0)) == chosen(operator) == [result.record.winner]
    hp.Helmholtz(space, lam=1.0, strategy="sumfac-top", algorithm="collocated").tune(1e9)
    assert len(store.entries()) == 2
    explained = hp.Helmholtz(hp.Space(tapered("hex"), 4, backend="cuda"), lam=1.0).explain()
    assert "recomputed (shipped table: " in explained and "metric, recomputed: 21 numbers per element" in explained
    straight_sided = hp.Helmholtz(hp.Space(tapered("hex"), 7, backend="cuda"), lam=1.0)
    assert "metric: 7 numbers per point" in straight_sided.explain() and straight_sided.nbytes == 8 * 8 * (
        1024 + 7 * 729
    )
    [result] = straight_sided.tune(1e9)
    assert from_text(SumFacTopOptions, result.record.winner.options).source is FactorSource.RECOMPUTED
    assert "metric, recomputed: 21 numbers per element" in straight_sided.explain()
    assert straight_sided.nbytes == 8 * 8 * (1024 + 21)
