"""Time steps of incompressible flow: how many a second, and where their time goes.

    HPFEM_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.flow [--backend cuda] [--small] [-o OUT.json]
    python -m benchmarks.flow --show OUT.json

The flows of examples/incompressible_flow.py. On a CPU times are processor times of one thread. The part inside compiled
kernels, passes over vectors included, is summed up by clocks, whose own time is measured and taken off; the rest is
Python, NumPy's array operations, and SciPy's sparse products. *Ready*: seconds from the mesh to the end of the first
step. On a GPU PyTorch's profiler, where there is one, sums up what kernels take in steps of their own, which are not
timed.
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any
from unittest.mock import patch

from benchmarks.script import Content, markdown_table, run
from hpfem.backends import choose_backend
from hpfem.backends.cpu.runtime import begun, cache, passes
from hpfem.memory import count_transfers

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "incompressible_flow.py"
# Of `channel`: order and time step; of `vortex`: order, boxes across and time step.
CASES: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "cpu": [
        ("channel", (5, 5e-4)),
        ("channel", (8, 2e-4)),
        ("vortex", (5, 6, 0.02)),
        ("vortex", (7, 6, 0.01)),
        ("vortex", (4, 12, 0.02)),
    ],
    "cuda": [
        ("channel", (8, 2e-4)),
        ("vortex", (4, 24, 0.01)),
        ("vortex", (7, 16, 0.005)),
    ],
}
SMALL = [("channel", (2, 5e-4)), ("vortex", (2, 3, 0.02))]
# Steps that are not measured.
BEFORE = 6


class Counted:
    """Compiled code whose seconds of the processor are summed up, all of them together."""

    seconds, calls = 0.0, 0

    def __init__(self, code: Any) -> None:
        self._code = code

    def __getattr__(self, name: str) -> Any:
        return getattr(self._code, name)

    def run(self, *arguments: int) -> None:
        """Run the kernel."""
        began = thread_time()
        self._code.run(*arguments)
        Counted.seconds += thread_time() - began
        Counted.calls += 1


def seconds_of_clock(calls: int = 1000) -> float:
    """What it takes to look at the clock, which may be as long as a small kernel."""
    times = []
    for _ in range(5):
        began = thread_time()
        for _ in range(calls):
            thread_time()
        times.append((thread_time() - began) / calls)
    return min(times)


def in_kernels_of_gpu(flow: Any, timer: Any, steps: int = 5) -> float | None:
    """Seconds of a step in which the GPU computes; None without PyTorch."""
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError:
        return None
    with profile(activities=[ProfilerActivity.CUDA]) as events:
        timer.seconds(flow.step, steps)
    return sum(event.self_device_time_total for event in events.key_averages()) * 1e-6 / steps


def measured(name: str, arguments: tuple[Any, ...], backend: str, seconds: float = 6.0) -> dict[str, Any]:
    """Times in milliseconds of a step of one flow."""
    spec = importlib.util.spec_from_file_location("incompressible_flow", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    timer = choose_backend(backend).timer()

    def counted(make: Any) -> Any:
        return lambda *given: Counted(make(*given))

    with (
        patch.object(begun, "compiled_as", counted(cache.compiled_as)),
        patch.object(passes, "compiled", counted(cache.compiled)),
    ):
        began = perf_counter()
        flow = getattr(example, name)(*arguments, backend=backend)
        flow.step()
        ready = perf_counter() - began
        for _ in range(BEFORE):
            flow.step()
    solves: list[Any] = []

    def step() -> None:
        flow.step()
        solves.append((flow.p.info, flow.solution.info))

    steps = max(2, int(seconds / timer.seconds(flow.step, 2) * 2))
    Counted.seconds, Counted.calls, began = 0.0, 0, thread_time()
    with count_transfers() as moved:
        elapsed = timer.seconds(step, steps)
    clocks = Counted.calls * seconds_of_clock()
    whole = thread_time() - began - 2 * clocks if backend == "cpu" else elapsed
    unknowns = (flow.dim + 1) * flow.c0.size

    def mean(which: int, what: str) -> float:
        return float(sum(getattr(both[which], what) for both in solves)) / steps

    case = {
        "flow": name,
        "order": arguments[0],
        "cells": flow.c0.space.n_cells,
        "unknowns": unknowns,
        "ready": round(ready, 2),
        "step": round(1e3 * whole / steps, 3),
        "pressure": round(1e3 * mean(0, "time") * whole / elapsed, 3),
        "velocity": round(1e3 * mean(1, "time") * whole / elapsed, 3),
        "iterations": [round(mean(which, "iterations"), 1) for which in (0, 1)],
        "unknowns_per_second": round(unknowns * steps / whole),
        "bytes_moved": (moved.bytes_to_host + moved.bytes_to_device) // steps,
    }
    busy = (Counted.seconds - clocks) / steps if backend == "cpu" else in_kernels_of_gpu(flow, timer)
    return case | ({} if busy is None else {"kernels": round(busy * steps / whole, 3)})


def text_of(content: Content) -> str:
    """The table of a file, in Markdown."""
    heads = "flow,cells,unknowns,ready,ms a step,pressure,velocity,iterations,steps/s,unknowns/s,kernels".split(",")
    rows = [
        [
            f"{case['flow']}, P={case['order']}",
            str(case["cells"]),
            f"{case['unknowns']:.2e}",
            f"{case['ready']:.1f} s" if "ready" in case else "",
            *(f"{case[name]:.1f}" for name in ("step", "pressure", "velocity")),
            " + ".join(map(str, case["iterations"])),
            f"{1e3 / case['step']:.3g}",
            f"{case['unknowns_per_second']:.2e}",
            f"{case['kernels']:.2f}" if "kernels" in case else "",
        ]
        for case in content["cases"]
    ]
    return markdown_table(heads, rows)


def measure(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Time the flows of the backend."""
    content |= {"unit": "ms", "cases": []}
    for name, arguments in SMALL if given.small else CASES[given.backend]:
        content["cases"].append(measured(name, arguments, given.backend, 0.1 if given.small else 6.0))
        yield


def main(arguments: Sequence[str] | None = None) -> Content:
    """Measure, print and write."""
    return run(__doc__, measure, text_of, arguments, tuple(CASES))


if __name__ == "__main__":
    main()
