"""Which skips `tests/conftest.py` lets pass, and which tests it leaves to `make test-all`."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

from tests.conftest import has_gpu
from tests.covering import covering, listed, pairs, same

ROOT = Path(__file__).resolve().parent.parent

MODULE = """
import pytest

@pytest.mark.skip(reason="some reason")
def test_skipped(): ...

def test_skips():
    pytest.skip("some reason")

def test_without_shared():
    pytest.skip("../shared is absent")

@pytest.mark.cuda
def test_cuda():
    pytest.skip("no GPU")

@pytest.mark.xfail(reason="known", strict=True)
def test_fails():
    assert False
"""


def report(folder, **modules):
    """What pytest says about test modules under the project's conftest."""
    (folder / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text())
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib -m 'not long'\nmarkers =\n cuda: needs a GPU\n long: by test-all\n"
    )
    for name, source in modules.items():
        (folder / f"test_{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(command, cwd=folder, env=paths, capture_output=True, text=True, check=False).stdout


def test_an_unexpected_skip_is_a_failure(tmp_path):
    text = report(tmp_path, cases=MODULE)
    left = "2 skipped" if has_gpu() else "1 skipped, 1 deselected"
    assert f"1 failed, {left}, 1 xfailed, 1 error" in text, text
    assert "ERROR test_cases.py::test_skipped - unexpected skip: some reason" in text
    assert "FAILED test_cases.py::test_skips - unexpected skip: some reason" in text


def test_the_level_of_users_ends_with_the_tests_of_the_cpu(tmp_path):
    """A process that has run some compiles quickly again: the fixture's scope says where it ends."""
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "conftest.py").write_text((ROOT / "tests/backends/cpu/conftest.py").read_text())
    level = "from hpfem.backends.cpu.runtime import target\n\ndef test_level():\n    assert target.LEVEL == {}\n"
    (tmp_path / "cpu" / "test_users.py").write_text(level.format(1))
    assert "2 passed" in report(tmp_path, after=level.format(0))


def test_an_unexpectedly_skipped_module_is_a_failure(tmp_path):
    text = report(tmp_path, absent="import pytest\npytest.importorskip('no_such_module_of_ours')\n")
    assert "unexpected skip: Skipped: could not import 'no_such_module_of_ours'" in text, text


def test_a_module_without_shared_is_skipped(tmp_path):
    text = report(tmp_path, away="import pytest\npytest.skip('../shared', allow_module_level=True)\n")
    assert "1 skipped" in text, text


def test_a_covering_has_all_pairs_and_is_small():
    names = ("shape", "order", "kind")
    cases = [dict(zip(names, values, strict=True)) for values in product(range(6), range(8), range(3))]
    chosen = covering(cases, [str(case) for case in cases])
    assert set().union(*(pairs(cases[position]) for position in chosen)) == set().union(*map(pairs, cases))
    assert 48 <= len(chosen) < 60


def test_a_covering_of_values_prefers_the_backends_that_are_compared():
    cases = [{"shape": shape, "backend": same(name)} for shape in range(6) for name in ("numpy", "cpu")]
    chosen = [cases[position] for position in covering(cases, [str(case) for case in cases], once=True)]
    assert {case["shape"] for case in chosen if case["backend"] == same("cpu")} == {*range(6)}
    assert len(chosen) == 7


def test_what_is_listed_as_long_is_there():
    for line in [*listed(), *listed(once=True)]:
        path, _, rest = line.partition("::")
        name = rest.rpartition("::")[2].partition("[")[0]
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8"), line
