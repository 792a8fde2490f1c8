"""Which skips `tests/conftest.py` lets pass."""

import subprocess
import sys
from pathlib import Path

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
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = cuda: needs a GPU\n")
    for name, source in modules.items():
        (folder / f"test_{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_an_unexpected_skip_is_a_failure(tmp_path):
    text = report(tmp_path, cases=MODULE)
    assert "1 failed, 2 skipped, 1 xfailed, 1 error" in text, text
    assert "ERROR test_cases.py::test_skipped - unexpected skip: some reason" in text
    assert "FAILED test_cases.py::test_skips - unexpected skip: some reason" in text


def test_an_unexpectedly_skipped_module_is_a_failure(tmp_path):
    text = report(tmp_path, absent="import pytest\npytest.importorskip('no_such_module_of_ours')\n")
    assert "unexpected skip: Skipped: could not import 'no_such_module_of_ours'" in text, text


def test_a_module_without_shared_is_skipped(tmp_path):
    text = report(tmp_path, away="import pytest\npytest.skip('../shared', allow_module_level=True)\n")
    assert "1 skipped" in text, text
