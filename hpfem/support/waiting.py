"""Waiting for other processes: in time each says where it is and for whom it waits; nobody waits for one that has left.

Processes that wait ask each other where they are, in messages with a tag of their own (notes). One that ends its script
tells the others how often it has met each of them; who waits to meet it once more ends all.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..errors import ArgumentError
from .ending import FAILED, end_all, end_if_left_behind, started, told
from .log import logger

# Tests of a message before yielding the core to other processes, for which it may be waiting.
_LOOKS = 300
# A sleep of length zero needs a timer, 70 microseconds; Windows has nothing else.
_let_others_run: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))
# In place of the rank of a process: all of them in a collective call, and work of the devices of all.
ALL, DEVICES = -1, -2
# Tag of notes; seconds between two looks for them, and until those that wait have answered.
_TAG, _BETWEEN, _ANSWERED = 4464, 0.1, 1.0
_VARIABLE = "HPFEM_PATIENCE"
# The process that has read this module: those that it forks have no part in its messages.
_PROCESS = os.getpid()


class Done(NamedTuple):
    """A function that tells whether work is done, in place of a request of MPI."""

    Test: Callable[[], bool]


def _patience() -> float:
    """Seconds after which a process that waits says so."""
    asked = os.environ.get(_VARIABLE, "300")
    with suppress(ValueError):
        if (seconds := float(asked)) > 0:
            return seconds
    raise ArgumentError(f"{_VARIABLE} is {asked[:40]!r}; it must be a positive number of seconds")


def _place() -> str:
    """The line of the script, and of hpfem, where this process is."""
    frame: Any = sys._getframe(1)
    inner, outer = "", "the start of hpfem"
    while frame is not None:
        name, at = frame.f_globals.get("__name__", ""), f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if name.partition(".")[0] == "hpfem":
            if not inner and not name.startswith("hpfem.support."):
                inner = f" ({name}, line {frame.f_lineno})"
            outer = at if frame.f_back is None else f"{frame.f_back.f_code.co_filename}:{frame.f_back.f_lineno}"
        frame = frame.f_back
    return outer + inner


class Meetings:
    """What the processes of a communicator of mpi4py know of each other's calls; None for one process."""

    def __init__(self, mpi: Any) -> None:
        self._mpi, self._patience = mpi, _patience()
        # How often this process has met each other one, and all in a collective call; and those that have left.
        self._counts, self._left = Counter[int](), dict[int, Counter[int]]()
        self._sent, self._asked, self._answers = list[Any](), 0, dict[int, str]()

    def wait(self, requests: Iterable[tuple[int, Any]]) -> None:
        """Wait for messages; if there are more processes than cores, let others run."""
        pending, looks, began, place = list(requests), 0, 0.0, ""
        for rank in {rank for rank, _ in pending}:
            self._counts[rank] += 1
        looked = asked = 0.0
        while pending:
            pending = [one for one in pending if not one[1].Test()]
            looks += 1
            if looks <= _LOOKS or not pending:
                continue
            end_if_left_behind()
            _let_others_run()
            now = time.monotonic()
            began = began or now
            if now - looked < _BETWEEN:
                continue
            looked, place = now, place or _place()
            self._read(place)
            ranks = sorted({rank for rank, _ in pending})
            late = asked == 0 and now - began > self._patience
            gone = [own for own in self._left if any(self._missed(own, rank, asked > 0) for rank in ranks)]
            if gone:
                self._end(gone[0], place)
            if late:
                asked, self._asked, self._answers = now, self._asked + 1, {}
                self._tell("where", self._asked)
            elif 0 < asked < now - _ANSWERED:
                asked = float("inf")
                self._say(ranks, place, now - began)

    def _missed(self, left: int, rank: int, long: bool) -> bool:
        """Whether this process waits for one that has left: as `rank`, among all of them, or long for its device."""
        if rank == DEVICES:
            return long
        mine, theirs = (self._counts[ALL], ALL) if rank == ALL else (self._counts[left], int(self._mpi.rank))
        return rank in (ALL, left) and mine > self._left[left][theirs]

    def _end(self, left: int, place: str) -> None:
        """End all processes."""
        rank = self._mpi.rank
        said = f"hpfem: error: process {left} has left the script, and process {rank} waits for it at {place}"
        end_all(FAILED, lambda: print(said, file=sys.stderr))

    def _say(self, ranks: list[int], place: str, seconds: float) -> None:
        """Tell the user where this process waits, and for whom."""
        others = [rank for rank in range(self._mpi.size) if rank != self._mpi.rank]
        whom = [rank for rank in ranks if rank >= 0]
        if not whom:  # those that are elsewhere
            whom = [rank for rank in others if self._answers.get(rank) != place] or others
        where = {rank: f"which waits at {self._answers[rank]}" for rank in self._answers}
        said = [f"process {rank}, {where.get(rank, 'which does not wait: it computes, or has ended')}" for rank in whom]
        logger.warning(
            "process %d of %d has waited for %.0f s at %s, for %s; it goes on waiting (%s)",
            *(self._mpi.rank, self._mpi.size, seconds, place, " and ".join(said), f"{_VARIABLE} sets the seconds"),
        )

    def _tell(self, kind: str, content: Any, ranks: Iterable[int] | None = None) -> None:
        """Send a note to some processes, by default to all others."""
        self._sent = [request for request in self._sent if not request.Test()]
        for rank in range(self._mpi.size) if ranks is None else ranks:
            if rank != self._mpi.rank:
                self._sent.append(self._mpi.isend((kind, self._mpi.rank, content), rank, _TAG))

    def _read(self, place: str) -> None:
        """Read notes, and answer those that ask."""
        while self._mpi is not None and self._mpi.iprobe(tag=_TAG):
            kind, rank, content = self._mpi.recv(tag=_TAG)
            if kind == "where":
                self._tell("here", (content, place), [rank])
            elif kind == "left":
                self._left[rank] = content
            elif content[0] == self._asked:
                self._answers[rank] = content[1]

    def _leave(self, wait: bool) -> None:
        """Tell the others that this process ends its script; wait, if wanted, until all have told so."""
        self._tell("left", self._counts)
        while wait and len(self._left) < self._mpi.size - 1:
            self._read("the end of its script")
            end_if_left_behind()
            time.sleep(1e-2)


_OF_ALL: list[Meetings] = []


def meetings(mpi: Any) -> Meetings:
    """Make the meetings of a communicator of MPI; those of all processes are made once."""
    if mpi is None or mpi != started():
        return Meetings(mpi)
    if not _OF_ALL:
        _OF_ALL.append(Meetings(mpi))
    return _OF_ALL[0]


def _leave() -> None:
    """At the end of a script that is no failure."""
    mpi = started()
    if mpi is not None and os.getpid() == _PROCESS:
        all_work_together = bool(_OF_ALL)  # else some may know nothing of this
        meetings(mpi)._leave(all_work_together)


if told() > 1:
    atexit.register(_leave)
