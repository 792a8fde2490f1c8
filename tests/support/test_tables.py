"""Tables that are kept on disk."""

import pickle

import numpy as np
import pytest

from hpfem.shapes import get_shape
from hpfem.support import tables

made = []


@tables.on_disk
def table(shape, values):
    """A table of some arguments."""
    made.append((shape.name, values))
    return np.arange(4.0) * len(values)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    made.clear()
    return tmp_path / "tables"


def test_they_are_made_once_for_each_arguments(folder):
    for _ in range(2):
        assert np.array_equal(table(get_shape("hex"), b"12"), 2 * np.arange(4.0))
        assert np.array_equal(table(get_shape("tet"), b"123"), 3 * np.arange(4.0))
    assert made == [("hex", b"12"), ("tet", b"123")] and tables.table_cache().info().entries == 2


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:32] + pickle.dumps(1), lambda b: b""])
def test_damaged_ones_are_made_again(folder, damage):
    table(get_shape("hex"), b"1")
    [entry] = folder.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert np.array_equal(table(get_shape("hex"), b"1"), np.arange(4.0)) and len(made) == 2


def test_other_sources_make_them_again(monkeypatch):
    table(get_shape("hex"), b"1")
    monkeypatch.setattr(tables, "sources", lambda *folders: "others")
    table(get_shape("hex"), b"1")
    assert len(made) == 2


def test_without_a_folder_they_are_made_each_time(tmp_path):
    (tmp_path / "tables").write_text("a file where the folder should be")
    for _ in range(2):
        assert np.array_equal(table(get_shape("hex"), b"1"), np.arange(4.0))
    assert len(made) == 2


def test_those_that_others_can_write_are_not_read(folder):
    table(get_shape("hex"), b"1")
    [entry] = folder.iterdir()
    entry.chmod(0o666)
    table(get_shape("hex"), b"1")
    assert len(made) == 2
