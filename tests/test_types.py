"""The type checker sees hpfem.shapes: a right use passes and a wrong one is reported."""

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
# Of what is imported only the types count, as with an installed package.
STRICT = ("--strict", "--follow-imports", "silent")
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


@pytest.fixture
def check(tmp_path):
    """Check a program: (source, arguments of mypy) -> the finished process. What is known of the packages is used."""
    folder, program = type_check.ROOT / "build" / "type_check", tmp_path / "program.py"
    type_check.lay_out(folder)

    def run(source, *arguments):
        program.write_text(source)
        return type_check.mypy(folder, *arguments, str(program), cache="strict" if arguments else "")

    return run


@pytest.mark.parametrize(
    ("source", "message"), [(RIGHT, None), (WRONG, "Too many arguments"), (ABSENT, 'has no attribute "NoSuchError"')]
)
def test_uses_of_shapes_are_checked(check, source, message):
    result = check(source)
    if message is None:
        assert "program.py" not in result.stdout
        assert result.stderr == ""
    else:
        assert result.returncode == 1, result.stdout + result.stderr
        assert message in result.stdout


def test_a_strictly_typed_program_passes(check):
    result = check(CONSUMER, *STRICT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_misuse_of_the_api_is_reported(check):
    found = check(MISUSE, *STRICT).stdout
    lines = {int(number) for number in re.findall(r"program\.py:(\d+)", found)}
    assert lines == {4, 5, 6, 7, 8, 9, 10}, found


def test_a_strictly_typed_program_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(type_check.ROOT)
    source = CONSUMER.replace('"u.vtu"', repr(str(tmp_path / "u.vtu")))
    with pytest.raises(HpfemError, match=r"absent\.msh"):
        exec(compile(source, "program.py", "exec"), {})
    assert (tmp_path / "u.vtu").stat().st_size > 0
