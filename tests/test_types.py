"""The type checker sees hpfem.shapes: a right use passes and a wrong one is reported."""

import pytest

from tests import type_check

RIGHT = "from hpfem.shapes.errors import ArgumentError\nraise ArgumentError('order must be at least 1')\n"
WRONG = "from hpfem.shapes.polynomials import jacobi\njacobi('one', 2, 3, 4, 5, 6, 7)\n"
ABSENT = "from hpfem.shapes.errors import NoSuchError\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("type_check")
    type_check.lay_out(folder)
    return folder


@pytest.mark.parametrize(
    ("source", "message"),
    [(RIGHT, None), (WRONG, "Too many arguments"), (ABSENT, 'has no attribute "NoSuchError"')],
)
def test_uses_of_shapes_are_checked(folder, source, message):
    (folder / "snippet.py").write_text(source)
    result = type_check.mypy(folder, "snippet.py")
    if message is None:
        assert "snippet.py" not in result.stdout
        assert result.stderr == ""
    else:
        assert result.returncode == 1, result.stdout + result.stderr
        assert message in result.stdout
