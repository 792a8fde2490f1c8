"""Folders of files that can be made again."""

import os
import time

from hpfem.support.cache import Kept


def fill(folder, names, size=1000):
    """Entries with a companion each, one second apart, the first the oldest."""
    folder.mkdir()
    for age, name in enumerate(reversed(names)):
        for suffix in (".code", ".log"):
            path = folder / f"{name}{suffix}"
            path.write_bytes(b"0" * (size // 2))
            os.utime(path, (time.time() - 100 - age,) * 2)
    return Kept(folder, ".code", (".log",))


def names(kept):
    """Names of the entries."""
    return [path.stem for path in kept.entries()]


def test_counts_and_clears(tmp_path):
    kept = Kept(tmp_path / "none", ".code")
    assert kept.entries() == [] and kept.clear() == 0 and kept.info().entries == 0
    kept.prune(0)
    kept = fill(tmp_path / "some", "abc")
    (tmp_path / "some" / "foreign.txt").write_text("x")
    info = kept.info(limit=5)
    assert (info.entries, info.nbytes, info.limit) == (3, 3000, 5)
    assert kept.clear() == 3 and [path.name for path in (tmp_path / "some").iterdir()] == ["foreign.txt"]


def test_the_least_recently_used_go_first(tmp_path):
    kept = fill(tmp_path / "some", "abcd")
    kept.prune(4000)
    assert names(kept) == list("abcd")
    os.utime(tmp_path / "some" / "a.code")
    kept.prune(2500)
    assert names(kept) == ["a", "d"] and kept.info().nbytes == 2000


def test_what_was_just_used_stays(tmp_path):
    kept = fill(tmp_path / "some", "abc")
    os.utime(tmp_path / "some" / "b.code")
    kept.prune(0, spared=50.0)
    assert names(kept) == ["b"]
    kept.prune(0)
    assert names(kept) == []
