"""Inputs that are refused before anything is read, outputs that are written whole or not at all."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from hpfem import files
from hpfem.errors import ArgumentError


def test_atomic_path_gives_a_name_with_the_same_suffix_and_renames(tmp_path):
    target = tmp_path / "picture.png"
    with files.atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".png"
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_path_leaves_the_old_file_when_writing_fails(tmp_path):
    target = tmp_path / "result.json"
    target.write_text("old")
    with pytest.raises(RuntimeError, match="half way"), files.atomic_path(target) as temporary:
        temporary.write_text("ne")
        raise RuntimeError("half way")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_atomic_path_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(ArgumentError, match="there is no folder"), files.atomic_path(tmp_path / "no" / "file"):
        pass
    with pytest.raises(ArgumentError, match="it is a folder"), files.atomic_path(tmp_path):
        pass


def test_json_takes_numpy_and_has_no_nan(tmp_path):
    target = tmp_path / "result.json"
    numbers = {"rate": np.float64(2.5), "count": np.int64(3), "flag": np.True_, "bad": math.nan, "worse": np.inf}
    arrays = {"array": np.array([[1.0, np.nan]]), "tuple": (1, "two"), "none": None, 4: Path("a/b")}
    files.write_json(target, numbers | arrays)
    assert json.loads(target.read_text()) == {
        "rate": 2.5,
        "count": 3,
        "flag": True,
        "bad": None,
        "worse": None,
        "array": [[1.0, None]],
        "tuple": [1, "two"],
        "none": None,
        "4": "a/b",
    }


def test_json_refuses_other_objects_and_writes_nothing(tmp_path):
    with pytest.raises(ArgumentError, match="cannot write a object as JSON"):
        files.write_json(tmp_path / "result.json", {"x": object()})
    assert list(tmp_path.iterdir()) == []
