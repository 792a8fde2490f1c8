"""Memory that arrays leave is used again while much is made, and given back after."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hpfem.support import reuse

MB = 1 << 20


def held() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


@pytest.mark.skipif(reuse._library() is None, reason="no glibc, or one that is tuned")
def test_memory_is_kept_for_the_next_arrays_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "_LONG", 0.0)
    with reuse.memory_kept():
        below, array = held(), np.ones(8 * MB)
        del array
        inside = held()
        with reuse.memory_kept():
            pass
        array = np.ones(8 * MB)
        del array
        nested = held()
    after = held()
    assert min(inside, nested) > below + 60 * MB > after + 50 * MB
    array = np.ones(8 * MB)
    del array
    assert held() < after + 10 * MB
