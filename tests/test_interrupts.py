"""An exception of a signal handler in the middle of an application: nothing runs on, and what comes next is right."""

import random
import signal
import threading
import time

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.cpu.runtime import cache, target
from hpfem.backends.cpu.runtime import geometry as cpu_geometry
from hpfem.backends.cpu.runtime import kernel as cpu_kernel
from hpfem.mesh.box import box
from hpfem.support.threads import run_all

# Exceptions in callbacks of weak references are printed by Python, not raised.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
# How often a test tries to interrupt, and how often it tries on while too few signals fell into the work: the verdict
# is on results alone, as how many fall there depends on the machine.
ENOUGH, PATIENCE = 10, 10


class Interrupt(BaseException):
    """What the handler raises, as Ctrl-C raises KeyboardInterrupt."""


@pytest.fixture(params=["1", "2"])
def native_threads(request, monkeypatch):
    """Threads that a kernel may use, whatever its size."""
    monkeypatch.setattr(cpu_kernel, "THREAD_FLOPS", 1)
    monkeypatch.setenv("HPFEM_NUM_THREADS", request.param)
    return int(request.param)


@pytest.fixture
def alarm():
    """Have a handler called after some seconds; other handlers and timers come back at the end."""
    before = signal.getsignal(signal.SIGALRM)

    def set_alarm(handler, seconds, every=0.0):
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, seconds, every)

    yield set_alarm
    signal.setitimer(signal.ITIMER_REAL, 0)
    # One that is on its way to another thread would end the process, as signals without a handler do.
    signal.signal(signal.SIGALRM, before if callable(before) else signal.SIG_IGN)


def interrupted(work, alarm, seconds, every=0.0):
    """Whether work() was interrupted."""
    armed = [True]

    def handler(*_):
        # A signal that another thread has got may come here only after the work.
        if armed:
            raise Interrupt

    try:
        try:
            alarm(handler, seconds, every)
            work()
        finally:
            armed.clear()
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        # Another one may have come on the way here.
        signal.setitimer(signal.ITIMER_REAL, 0)
        return True
    return False


def attempts(times, hits):
    """Numbers of attempts, until there were enough and so many hit."""
    for turn in range(PATIENCE * times):
        if turn >= times and len(hits) > ENOUGH:
            return
        yield turn


def test_who_is_interrupted_while_llvm_works_waits_until_it_has_ended(alarm):
    """Others, and forks, are let in by the lock that the caller holds."""
    ended = []

    def work():
        time.sleep(0.3)
        ended.append(True)

    assert interrupted(lambda: target._undisturbed(work), alarm, 0.05)
    assert ended


def test_a_thread_of_llvm_whose_start_is_interrupted_ends(monkeypatch):
    started, start = [], threading.Thread.start

    def interrupted_start(self):
        start(self)
        started.append(self)
        raise KeyboardInterrupt

    target._thread.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted_start)
        with pytest.raises(KeyboardInterrupt):
            target._undisturbed(list)
    started[0].join(10)
    assert not started[0].is_alive() and target._undisturbed(list) == []


def random_field(space, state, rng, components=1):
    field = space.empty(state, components)
    for pair in field.data:
        pair.write()[...] = rng.standard_normal(pair.shape)
    return field


@pytest.mark.parametrize(("backend", "strategy"), [("cpu", "sumfac"), ("cpu", "stdmat"), ("numpy", "sumfac")])
def test_every_result_after_an_interrupt_is_right(backend, strategy, native_threads, alarm, rng):
    space = hp.Space(box("hex", (6, 4, 4)), 3, backend=backend)
    operator = hp.Helmholtz(space, lam=1.0, strategy=strategy)
    given = [random_field(space, "coeff", rng) for _ in range(2)]
    expected = [operator(field).arrays[0].copy() for field in given]
    chance, hits, wrong = random.Random(7), [], 0
    out = space.empty("dual")
    for turn in attempts(2000, hits):
        which = turn % 2
        if interrupted(lambda which=which, out=out: operator(given[which], out=out), alarm, chance.uniform(1e-6, 3e-4)):
            hits.append(turn)
            del out
            out = space.empty("dual")
            operator(given[which], out=out)
        # What is left of an interrupted application would write into this memory.
        wrong += not np.array_equal(out.data[0].read(), expected[which])
    assert wrong == 0


def test_a_global_operator_and_solves_after_interrupts(native_threads, alarm, rng):
    space = hp.Space(box(("tet", "prism"), (2, 2, 2)), 2, backend="cpu")
    A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), hp.C0Space(space))
    rhs = rng.standard_normal(A.shape[0])
    expected, solution = A @ rhs, hp.cg(A, rhs, tol=1e-8)[0]
    chance, hits = random.Random(8), []
    for turn in attempts(300, hits):
        if interrupted(lambda: hp.cg(A, rhs, tol=1e-8), alarm, chance.uniform(1e-6, 5e-3)):
            hits.append(turn)
        assert np.array_equal(A @ rhs, expected)
    assert np.array_equal(hp.cg(A, rhs, tol=1e-8)[0], solution)


def test_nothing_runs_when_the_exception_arrives(alarm):
    """Tasks that take their time, signals that come again: those of other threads are over."""
    running, chance, hits, left = [], random.Random(9), [], 0
    main = threading.main_thread()

    def task():
        if threading.current_thread() is not main:
            running.append(1)
            np.sort(np.arange(20_000.0)[::-1].copy())  # without Python's lock
            running.pop()

    for turn in attempts(500, hits):
        if interrupted(lambda: run_all([task] * 3), alarm, chance.uniform(1e-6, 4e-4)):
            hits.append(turn)
        left += len(running)
    assert left == 0
    done = []
    run_all([lambda k=k: done.append(k) for k in range(5)])
    assert sorted(done) == list(range(5))


def test_nothing_runs_when_several_exceptions_arrive_at_once():
    """Three handlers are due at the same moment: each raises as soon as Python looks."""
    running, numbers = threading.Event(), (signal.SIGINT, signal.SIGALRM, signal.SIGTERM)

    def slow():
        running.set()
        time.sleep(0.05)
        running.clear()

    def interrupt():
        assert running.wait(10)
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        for number in numbers:
            signal.pthread_kill(threading.get_ident(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def raise_inside(_, frame):
        while frame is not None and frame.f_code is not run_all.__code__:
            frame = frame.f_back
        if frame is not None:
            raise Interrupt

    before = [signal.signal(number, raise_inside) for number in numbers]
    try:
        for _ in range(20):
            with pytest.raises(Interrupt):
                run_all([interrupt, slow])
            assert not running.is_set()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_a_handler_may_use_the_operator_that_it_interrupts(native_threads, alarm, rng):
    space = hp.Space(box("hex", (6, 4, 4)), 3, backend="cpu")
    operator = hp.Helmholtz(space, lam=1.0)
    first, second = (random_field(space, "coeff", rng) for _ in range(2))
    expected = [operator(field).arrays[0].copy() for field in (first, second)]
    wrong, calls, chance = [], [], random.Random(11)

    def handler(*_):
        calls.append(1)
        if not np.array_equal(operator(second).data[0].read(), expected[1]):
            wrong.append("inside")

    for _ in attempts(500, calls):
        alarm(handler, chance.uniform(1e-6, 3e-4))
        if not np.array_equal(operator(first).data[0].read(), expected[0]):
            wrong.append("outside")
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert not wrong


def test_results_that_were_interrupted_hold_no_values(rng):
    space = hp.Space(box("hex", (2, 2, 2)), 2, backend="cpu")
    operator = hp.Helmholtz(space, lam=1.0)
    u, out = random_field(space, "coeff", rng), space.zeros("dual")
    apply = operator.choices[0].kernel.apply

    def half(source, target):
        target[:, :4] = 1.0
        raise Interrupt

    operator.choices[0].kernel.apply = half
    with pytest.raises(Interrupt):
        operator(u, out=out)
    with pytest.raises(hp.StateError, match="interrupted"):
        out.dot(u)
    operator.choices[0].kernel.apply = apply
    assert np.array_equal(operator(u, out=out).arrays[0], operator(u).arrays[0])


def test_interrupted_kernels_are_not_kept(alarm, monkeypatch, tmp_path):
    """Spaces, kernels compiled anew, topology: what an interrupt leaves behind changes no result."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    mesh = box(("tet", "prism"), (2, 2, 2))

    def everything(lam=1.0):
        space = hp.Space(mesh, 2, backend="cpu")
        u = space.project(lambda x, y, z: x * y + z)
        c0 = hp.C0Space(space)
        return c0.gather(hp.WeakForm(space, lambda u, du, c: (c * u, du), fields={"c": lam})(u))

    expected, chance, hits = everything(), random.Random(12), []
    for turn in attempts(100, hits):
        cache._LOADED.clear()  # so that kernels are written and read, or compiled, again
        cpu_kernel._specialised.cache_clear()
        cpu_geometry._specialised.cache_clear()
        if interrupted(everything, alarm, chance.uniform(1e-4, 3e-2)):
            hits.append(turn)
    assert np.array_equal(everything(), expected)
