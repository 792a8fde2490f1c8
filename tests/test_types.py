"""The type checker sees hpfem.shapes and the public API: right uses pass, and wrong ones are reported."""

import re

import pytest

from hpfem.errors import HpfemError
from tests import type_check

RIGHT = "from hpfem.shapes.errors import ArgumentError\nraise ArgumentError('order must be at least 1')\n"
WRONG = "from hpfem.shapes.polynomials import jacobi\njacobi('one', 2, 3, 4, 5, 6, 7)\n"
ABSENT = "from hpfem.shapes.errors import NoSuchError\n"


# What a user's program looks like to the checker: the names of the README are exported and have types.
CONSUMER = """
import numpy as np
import hpfem as hp

mesh: hp.Mesh = hp.read_mesh("meshes/cube_mixed.msh")
space = hp.Space(mesh, order=4, basis="modified", dtype=np.float32)
u: hp.Field = space.project(lambda x, y, z: x * y + z)
f: hp.Field = space.evaluate(lambda x, y, z: x * y + z)
helmholtz = hp.Helmholtz(space, lam=1.0, strategy="sumfac", algorithm="collocated")
v: hp.Field = helmholtz(u)
plain = [array * 2 for array in v.arrays]
products = helmholtz(plain)
system: hp.OperatorSum = hp.Mass(space) + np.float64(0.1) * helmholtz - hp.Laplacian(space) / 2
energy: float = u.dot(v)
size: float = space.norm(hp.BwdTrans(space)(u) - f)
names: list[str] = [block.shape.name for block in space.blocks]
total = sum(array.nbytes for array in v.arrays)
hp.write_vtu("u.vtu", {"u": u})


def reaction(u: float, du: hp.Gradient, k: float) -> tuple[float, hp.Gradient]:
    return u**3 - u, k * du


residual: hp.Field = hp.WeakForm(space, reaction, fields={"k": 2.0})(u)
try:
    hp.read_mesh("absent.msh")
except (hp.MeshError, hp.ArgumentError) as error:
    raise hp.HpfemError(str(error)) from error
"""
MISUSE = """
import hpfem as hp

space = hp.Space("meshes/cube_mixed.msh", order=4)
hp.Helmholtz(space, lam=1.0)("u")
hp.Hemlholtz(space)
hp.Mass(space, stratgy="sumfac")
hp.Laplacian(space, algorithm=3)
hp.tune(space, "Mass", baackend="cpu")
hp.Mass(space) + 3
"""


def test_wrong_uses_are_reported(tmp_path):
    """In one run, which takes what an earlier one has found in the packages."""
    folder, programs = type_check.ROOT / "build" / "type_check", {}
    sources = {"right": RIGHT, "wrong": WRONG, "absent": ABSENT, "consumer": CONSUMER, "misuse": MISUSE}
    for name, source in sources.items():
        programs[name] = tmp_path / f"{name}.py"
        programs[name].write_text(source)
    type_check.lay_out(folder)
    result = type_check.mypy(folder, *map(str, programs.values()))
    found = {(name, int(line)) for name, line in re.findall(r"(\w+)\.py:(\d+): error", result.stdout)}
    assert found == {("wrong", 2), ("absent", 1), *(("misuse", line) for line in range(4, 11))}, result.stdout
    assert result.returncode == 1 and result.stderr == ""
    assert "Too many arguments" in result.stdout and 'has no attribute "NoSuchError"' in result.stdout


def test_a_strictly_typed_program_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(type_check.ROOT)
    source = CONSUMER.replace('"u.vtu"', repr(str(tmp_path / "u.vtu")))
    with pytest.raises(HpfemError, match=r"absent\.msh"):
        exec(compile(source, "program.py", "exec"), {})
    assert (tmp_path / "u.vtu").stat().st_size > 0
