"""Clocks and limits: medians of what was timed, limits that are plausible and bound what is measured."""

import os

import numpy as np
import pytest
import threadpoolctl

from hpfem.backends import BACKENDS
from hpfem.backends.roofline import Roofline
from hpfem.backends.timer import Timer
from hpfem.benchmarks import BenchSettings, Runner, measure, thread_limit
from hpfem.benchmarks import threads as threads_module


class Scripted:
    """A clock that says what it is told."""

    def __init__(self, *seconds):
        self.seconds_per_call = list(seconds)
        self.asked = []

    def seconds(self, call, calls):
        self.asked.append(calls)
        call()
        return self.seconds_per_call.pop(0) * calls


def test_median_of_repeats_after_a_first_call_that_does_not_count():
    counted = []
    clock = Scripted(9.0, 0.01, 0.03, 0.01, 0.02, 0.05, 0.011)
    timing = measure(lambda: counted.append(1), clock, repeats=5, min_seconds=0.1)
    assert (timing.median, timing.best, timing.worst) == pytest.approx((0.02, 0.01, 0.05))
    assert (timing.repeats, timing.calls) == (5, 10)
    assert clock.asked == [1, 1, 10, 10, 10, 10, 10] and len(counted) == 7


def test_slow_calls_are_repeated_less():
    assert measure(lambda: None, Scripted(*[2.0] * 5), repeats=9).repeats == 3


def test_host_timer_counts_calls():
    calls = []
    assert Timer().seconds(lambda: calls.append(1), 7) > 0 and len(calls) == 7


def test_a_roofline_bounds_by_bandwidth_or_flops():
    limits = Roofline(bandwidth=10.0, flops=100.0, details={})
    assert limits.bound(20.0, 100.0) == (2.0, "bandwidth")
    assert limits.bound(20.0, 400.0) == (4.0, "flops")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_host_roofline_is_plausible(dtype):
    with thread_limit():
        limits = BACKENDS["numpy"].roofline(dtype, quick=True)
    assert 5e8 < limits.bandwidth < 2e12 and 5e8 < limits.flops < 1e13
    assert limits.bandwidth == max(limits.details[kind] for kind in ("read", "copy", "axpy", "compiled_read"))
    assert limits.flops == max(limits.details["gemm"], limits.details["fma"])
    assert limits.as_dict()["details"]["array_bytes"] >= 1 << 26


def test_thread_limit_holds_and_is_lifted(monkeypatch):
    monkeypatch.delenv("HPFEM_NUM_THREADS", raising=False)
    np.ones((2, 2)) @ np.ones((2, 2))

    def threads():
        return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]

    before = threads()
    with thread_limit(1) as limit:
        assert limit == {"limit": 1, "blas": "threadpoolctl"}
        assert set(threads()) == {1} and os.environ["HPFEM_NUM_THREADS"] == "1"
    assert threads() == before and "HPFEM_NUM_THREADS" not in os.environ
    monkeypatch.setenv("HPFEM_NUM_THREADS", "7")
    with thread_limit(3):
        assert os.environ["HPFEM_NUM_THREADS"] == "3"
    assert os.environ["HPFEM_NUM_THREADS"] == "7"


def test_thread_limit_without_threadpoolctl(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(threads_module, "import_module", absent)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with thread_limit() as limit:
        assert limit == {"limit": 1, "blas": "environment"}
    for name in threads_module.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with thread_limit() as limit:
        assert limit == {"limit": 1, "blas": "nothing"}


@pytest.mark.cuda
def test_gpu_is_measured():
    import cupy

    target = BACKENDS["cuda"]
    a = cupy.ones(1 << 26)
    timing = measure(lambda: cupy.add(a, a, out=a), target.timer())
    # A GPU moves between 50 GB/s and 20 TB/s.
    assert 2 * a.nbytes / 2e13 < timing.median < 2 * a.nbytes / 5e10
    limits = target.roofline("float64", True)
    assert 5e10 < limits.bandwidth < 2e13 and 1e11 < limits.flops < 1e15
    assert 1 / 3 < limits.details["read"] / limits.details["copy"] < 3


@pytest.mark.cuda
def test_throughput_on_a_gpu():
    settings = BenchSettings(shapes=("hex", "tet"), orders=(3,), dofs=(1e5,), backend="cuda", repeats=3)
    run = Runner(settings, {"float64": BACKENDS["cuda"].roofline("float64", True)})
    list(run)
    assert len(run.measurements) >= 8 and {m.backend for m in run.measurements} == {"cuda"}
    assert all(1e7 < m.dofs_per_second < 1e12 and 0 < m.fraction < 1.5 for m in run.measurements)
