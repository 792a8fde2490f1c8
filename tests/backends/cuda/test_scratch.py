"""Scratch on a GPU: one user at a time, in the order of streams, graphs apart."""

import pytest

from hpfem.backends.cuda.runtime.scratch import StreamPool, captured
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


def test_a_graph_keeps_its_scratch_until_it_is_released(gpus):
    pool, stream = StreamPool(), FakeStream(gpus)
    with stream:
        stream.capturing = True
        scratch = pool.take(object)
        pool.give(scratch)
        stream.capturing = False
        assert pool.take(object) is not scratch
    assert pool.made[0] is scratch
