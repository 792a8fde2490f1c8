"""Folders of files that can be made again."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hpfem.support.cache import PRUNE_EVERY, Cache


def fill(folder, names, size=1000, limit=None):
    """Entries with a companion each, one second apart, the first the oldest."""
    folder.mkdir()
    for age, name in enumerate(reversed(names)):
        for suffix in (".code", ".log"):
            path = folder / f"{name}{suffix}"
            path.write_bytes(b"0" * (size // 2))
            os.utime(path, (time.time() - 100 - age,) * 2)
    return Cache(folder, ".code", (".log",), limit=limit)


def names(kept):
    """Names of the entries."""
    return [path.stem for path in kept.entries()]


def test_counts_and_clears(tmp_path):
    kept = Cache(tmp_path / "none", ".code", limit=0)
    assert kept.entries() == [] and kept.clear() == 0 and kept.info().entries == 0
    kept.prune()
    kept = fill(tmp_path / "some", "abc", limit=5)
    (tmp_path / "some" / "foreign.txt").write_text("x")
    info = kept.info()
    assert (info.entries, info.nbytes, info.limit) == (3, 3000, 5)
    assert kept.clear() == 3 and [path.name for path in (tmp_path / "some").iterdir()] == ["foreign.txt"]


def test_the_least_recently_used_go_first(tmp_path):
    kept = fill(tmp_path / "some", "abcd")
    assert replace(kept, limit=4000).prune() == 4
    assert names(kept) == list("abcd")
    os.utime(tmp_path / "some" / "a.code")
    assert replace(kept, limit=2500).prune() == 2
    assert names(kept) == ["a", "d"] and kept.info().nbytes == 2000


def test_recently_used_entries_stay(tmp_path):
    kept = fill(tmp_path / "some", "abc", limit=0)
    os.utime(tmp_path / "some" / "b.code")
    kept.prune(spared=50.0)
    assert names(kept) == ["b"]
    kept.prune()
    assert names(kept) == []


def test_one_process_makes_the_kernel_for_several(tmp_path):
    kept, made = Cache(tmp_path / "new", ".code"), []

    def make():
        with kept.alone("a"):
            if kept.read("a") is None:
                time.sleep(0.05)
                made.append(kept.keep("a", b"1"))

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(make) for _ in range(4)]:
            done.result()
    assert made == [True] and [path.name for path in kept.folder.iterdir()] == ["a.code"]


def test_only_code_is_left_where_others_can_write(tmp_path):
    tmp_path.chmod(0o777)
    kept = Cache(tmp_path, ".json")
    assert kept.keep("a", b"1") and kept.read("a") == b"1" and replace(kept, code=True).read("a") is None


def test_without_file_locks_all_make_it(tmp_path):
    (tmp_path / "file").write_text("")
    with Cache(tmp_path / "file" / "folder", ".code").alone("a"):
        pass


def test_sizes_are_looked_at_now_and_then(tmp_path, monkeypatch):
    """Looking at all entries after each that is written would take longer than compiling a kernel."""
    for entries, every in ((3, PRUNE_EVERY), (160 * PRUNE_EVERY, 10 * PRUNE_EVERY)):
        kept, looked = Cache(tmp_path / str(entries), ".code"), []
        monkeypatch.setattr(Cache, "prune", lambda self, spared: looked.append(spared) or entries)  # noqa: B023
        for number in range(2 * every):
            kept.grown(3.0)
            assert looked == [3.0] * (1 + number // every)


def test_entries_without_end_are_made_again(tmp_path):
    """Damage may give a file any length."""
    cache = Cache(tmp_path, ".x")
    cache.path("a").touch()
    os.truncate(cache.path("a"), 1 << 40)
    assert cache.read("a") is None
