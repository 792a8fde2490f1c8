"""Memory that arrays leave is used again while much is made, and given back after."""

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
    reuse._library().malloc_trim(0)  # what tests before this one have left
    with reuse.memory_kept():
        below, array = held(), np.ones(8 * MB)
        del array
        inside = held()
        with reuse.memory_kept():
            pass
        nested = held()
    assert min(inside, nested) > below + 60 * MB
    assert held() < below + 10 * MB


def test_a_user_who_tunes_glibc_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert reuse._library.__wrapped__() is None
