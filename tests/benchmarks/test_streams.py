"""benchmarks/streams.py: kernels in turns on the same arrays."""

import json

import numpy as np
import pytest

from benchmarks import streams
from hpfem.backends.cpu.codegen.ir import ARGUMENTS
from hpfem.backends.cpu.runtime.buffers import aligned
from hpfem.backends.cpu.runtime.cache import compiled
from hpfem.backends.cpu.runtime.target import host


def test_a_case(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(streams, "NBYTES", 1 << 20)
    monkeypatch.setattr(streams, "PIECE", 1e-5)
    streams.main(["--cases", "tet:2", "--seconds", "0", "-o", str(tmp_path / "streams.json")])
    [found] = json.loads((tmp_path / "streams.json").read_text())["results"]
    assert found["turns"] == 5
    assert all(found[name] > 0 for name in ("not fetched", "once", "again", "computing", "reading", "GB/s"))
    assert found["share once"] == pytest.approx(found["share again"] * found["again"] / found["once"], abs=0.02)
    assert "| tet | 2 |" in capsys.readouterr().out


def test_all_factors_are_read():
    lanes = host().lanes("float64")
    factors, out = aligned((3, 16, lanes), "float64"), aligned((8, lanes), "float64")
    factors[...] = np.arange(factors.size).reshape(factors.shape)
    places = [0, out.ctypes.data, factors.ctypes.data, 0, 0, 0, 0, 0, 0]
    assert len(places) + 4 == ARGUMENTS.count("%")
    compiled(streams.read_kernel(16), host()).run(2, 3, 0, 0, *places)
    assert out.sum() == factors[2].sum()
