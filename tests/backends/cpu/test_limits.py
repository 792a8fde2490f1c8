"""Limits of the cores: threads are measured at once, and counted together."""

import numpy as np
import pytest

from hpfem.backends.cpu.runtime import limits


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_work_at_once(threads, monkeypatch):
    monkeypatch.setenv("HPFEM_NUM_THREADS", str(threads))
    at_once = []

    def run_all(tasks):
        at_once.append(len(tasks))
        for task in tasks:
            task()

    monkeypatch.setattr(limits, "run_all", run_all)
    monkeypatch.setattr(limits, "best_seconds", lambda function, seconds: function() or 2.0)
    size = 1 << 20
    found = limits.measure_cores(np.float64, size, quick=True)
    assert at_once == [threads, threads]
    one = limits.measure_fma(np.float64, 0.0), limits.measure_read(size, 0.0)
    assert (found.flops, found.bandwidth) == pytest.approx((threads * one[0], threads * one[1]))
    # An array of 1 MiB is read four times, in what is said to be two seconds.
    assert found.bandwidth == pytest.approx(threads * 4 * size / 2, rel=1e-3)
