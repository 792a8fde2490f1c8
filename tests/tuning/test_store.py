"""Results on disk: kept, found, damaged, foreign."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpfem.support.log import forget_reports, reports
from hpfem.tuning import TuningRecord
from hpfem.tuning.store import FORMAT, cache, entries, find, keep
from tests.limits import forked, limit_time

KEY = {"device": "H200", "form": "1234", "order": 4}
RECORD = TuningRecord(
    KEY, ("sumfac-top", "collocated", "elements=4"), 1e-3, ("stdmat", None, None), 1.2, False, 9, {"a": 1}
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty cache of our own; nothing has been reported."""
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    forget_reports()
    yield tmp_path / "tuning"
    forget_reports()


def test_round_trip(folder):
    assert find(KEY) is None and entries() == [] and cache().info().entries == 0
    keep(RECORD)
    assert find(KEY) == RECORD and entries() == [RECORD]
    assert find(dict(reversed(KEY.items()))) == RECORD
    assert [path.suffix for path in folder.iterdir()] == [".json"]
    info = cache().info()
    assert (info.path, info.entries) == (folder, 1) and info.nbytes > 100
    assert not reports()


def test_a_new_result_takes_the_place_of_the_old_one():
    keep(RECORD)
    newer = TuningRecord(KEY, ("stdmat", "collocated", None), 5e-4, None, 1.0, True, 2)
    keep(newer)
    assert find(KEY) == newer and len(entries()) == 1


@pytest.mark.parametrize("change", [{"device": "A100"}, {"order": 5}, {"more": 1}])
def test_another_key_is_another_result(change):
    keep(RECORD)
    assert find({**KEY, **change}) is None
    keep(TuningRecord({**KEY, **change}, *list(vars(RECORD).values())[1:]))
    assert len(entries()) == 2 and find(KEY) == RECORD


def damaged():
    """Contents that are no result, by what is wrong."""
    good = {"format": FORMAT, **json.loads(json.dumps(vars(RECORD)))}
    return {
        "empty": b"",
        "cut": json.dumps(good).encode()[:-20],
        "binary": bytes(range(256)),
        "list": b"[1, 2]",
        "nested": b"[" * 50000,
        "large": b" " * 100000 + b"{}",
        "other format": json.dumps({**good, "format": FORMAT + 1}).encode(),
        "no key": json.dumps({**good, "key": None}).encode(),
        "odd key": json.dumps({**good, "key": {"a": [1]}}).encode(),
        "no winner": json.dumps({**good, "winner": []}).encode(),
        "short winner": json.dumps({**good, "winner": ["stdmat"]}).encode(),
        "odd winner": json.dumps({**good, "winner": [1, 2, 3]}).encode(),
        "odd runner-up": json.dumps({**good, "runner_up": "stdmat"}).encode(),
        "no seconds": json.dumps({**good, "seconds": None}).encode(),
        "negative": json.dumps({**good, "ratio": -1.0}).encode(),
        "infinite": json.dumps({**good, "seconds": float("inf")}).encode(),
        "huge": json.dumps({**good, "seconds": 10**400}).encode(),
        "no about": json.dumps({**good, "about": 3}).encode(),
        "huge note": json.dumps({**good, "about": {"dofs_per_second": 10**400}}).encode(),
        "endless note": json.dumps({**good, "about": {"dofs_per_second": float("nan")}}).encode(),
    }


@pytest.mark.parametrize("name", damaged())
def test_damage_is_reported_once_and_ignored(folder, name):
    keep(RECORD)
    [path] = folder.iterdir()
    path.write_bytes(damaged()[name])
    assert find(KEY) is None and find(KEY) is None and entries() == []
    [message] = reports().values()
    assert str(path) in message and "ignored" in message and "hpfem tune" in message
    keep(RECORD)
    assert find(KEY) == RECORD


def test_a_result_under_a_wrong_name_is_not_used(folder):
    keep(RECORD)
    [path] = folder.iterdir()
    path.write_text(path.read_text().replace("H200", "A100"))
    assert find(KEY) is None and entries() == []
    [message] = reports().values()
    assert "another problem" in message


OBSTACLES = {
    "folder": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "loop": lambda path: path.symlink_to(path),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "unreadable": lambda path: path.touch(0o000),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_results_are_regular_files(folder, obstacle):
    keep(RECORD)
    [path] = folder.iterdir()
    path.unlink()
    OBSTACLES[obstacle](path)

    def look():
        limit_time(10)
        assert find(KEY) is None and entries() == []
        keep(RECORD)
        assert find(KEY) == (None if obstacle == "folder" else RECORD)

    assert forked(look) == 0


def test_a_result_of_another_problem_under_its_name_is_not_used(folder):
    keep(RECORD)
    [path] = folder.iterdir()
    other = TuningRecord({**KEY, "order": 9}, *list(vars(RECORD).values())[1:])
    keep(other)
    [foreign] = set(folder.iterdir()) - {path}
    path.write_bytes(foreign.read_bytes())
    assert find(KEY) is None and find(other.key) == other


def test_forgetting():
    keep(RECORD)
    assert cache().clear() == 1 and find(KEY) is None and cache().clear() == 0


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/more", "/proc/more", "x" * 5000, __file__])
def test_a_folder_that_cannot_be_written_is_reported_once(monkeypatch, place):
    monkeypatch.setenv("HPFEM_CACHE_DIR", place)
    for order in (1, 2):
        assert find({**KEY, "order": order}) is None
        keep(RECORD)
    assert find(KEY) is None and entries() == [] and cache().clear() == 0
    [message] = reports().values()
    assert "not kept" in message and "set HPFEM_CACHE_DIR to a folder that can be written" in message
    assert len(message) < 400


def test_many_writers():
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, [RECORD] * 64))
    assert find(KEY) == RECORD and len(list(Path(cache().info().path).iterdir())) == 1
