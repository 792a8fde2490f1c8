"""Scratch on a GPU: one user at a time, in the order of streams, graphs apart."""

import pytest

from hpfem.backends.cuda.runtime.scratch import StreamPool, captured, in_branches
from tests.fake_cupy import FakeStream, fake_cuda


@pytest.fixture
def gpus():
    with fake_cuda() as made:
        yield made


def test_on_one_stream_scratch_is_reused_without_waiting(gpus):
    pool = StreamPool()
    first = pool.take(object)
    second = pool.take(object)  # while the first is in use
    assert first is not second and pool.made == [first, second]
    pool.give(first)
    assert pool.take(object) is first
    assert gpus.stream.waited == [] and gpus.waits == 0


def test_another_stream_waits_for_the_first_one(gpus):
    pool, before, other = StreamPool(), gpus.stream, FakeStream(gpus)
    pool.give(pool.take(object))
    with other:
        scratch = pool.take(object)
        pool.give(scratch)
    assert other.waited == [before] and pool.made == [scratch]
    pool.take(object)
    assert before.waited == [other]


def test_the_scratch_of_a_graph_is_not_reused(gpus):
    pool, stream = StreamPool(), FakeStream(gpus)
    pool.give(pool.take(object))
    with stream, captured(stream) as used:
        stream.capturing = True
        scratch = pool.take(object)
        pool.give(scratch)
        for _ in range(3):  # further steps of the graph
            assert pool.take(object) is scratch
            pool.give(scratch)
        stream.capturing = False
    assert stream.waited == [] and used == [pool] and pool.made == [scratch]
    assert pool.take(object) is not scratch  # an application while the graph is there
    for each in used:
        each.release(stream)
    assert pool.take(object) is scratch


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6])
def test_calls_beside_each_other_are_branches_of_a_graph(gpus, count):
    """They come after what is before them, and before what is after them; streams without a call are left alone."""
    stream, beside, seen = gpus.stream, [FakeStream(gpus), FakeStream(gpus)], []
    calls = [lambda number=number: seen.append((number, gpus.stream)) for number in range(count)]
    with captured(stream, beside):
        in_branches(calls)
    used = beside[: max(0, count - 1)]
    assert sorted(number for number, _ in seen) == list(range(count)) and gpus.stream is stream
    assert {own for _, own in seen} == {*used, *([stream] if count else [])}
    assert stream.waited == used and [own.waited for own in beside] == [[stream] * (own in used) for own in beside]
    in_branches(calls)  # nothing is captured
    assert [own for _, own in seen[count:]] == [stream] * count and stream.waited == used


@pytest.mark.parametrize("first", [True, False])
def test_calls_may_have_branches_again(gpus, first):
    """Others than those beside them, while there are some."""
    stream, beside, seen = gpus.stream, [FakeStream(gpus), FakeStream(gpus)], []

    def nested(depth):
        if depth:
            calls = [lambda: nested(depth - 1), lambda: seen.append(gpus.stream)]
            in_branches(calls if first else calls[::-1])

    with captured(stream, beside):
        for _ in range(2):
            nested(3)
    assert seen == [*beside, stream] * 2 if first else seen == [beside[1], beside[0], stream] * 2


def test_a_graph_keeps_its_scratch_until_it_is_released(gpus):
    pool, stream = StreamPool(), FakeStream(gpus)
    with stream:
        stream.capturing = True
        scratch = pool.take(object)
        pool.give(scratch)
        stream.capturing = False
        assert pool.take(object) is not scratch
    assert pool.made[0] is scratch
