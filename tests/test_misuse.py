"""Only exceptions of ours come out of public functions, whatever they are given; the messages are short."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpfem as hp
from tests.misuse import World

MANY = 8
NAMES = [call.name for call in World().calls(Path())]

numbers = st.one_of(st.integers(), st.floats(), st.complex_numbers())
anything = st.recursive(
    st.one_of(st.none(), numbers, st.text()), lambda inner: st.lists(inner, max_size=4), max_leaves=6
)


@pytest.fixture(scope="module")
def world():
    return World()


@pytest.fixture(scope="module")
def calls(world, tmp_path_factory):
    return {call.name: call for call in world.calls(tmp_path_factory.mktemp("misuse"))}


def refused(call, argument, value):
    """Call with a wrong value; whether an exception of ours said so."""
    message = ""
    try:
        call(**{argument: value})
    except hp.HpfemError as error:
        message = str(error)
    assert len(message) < 600
    return bool(message)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_known_wrong_values(name, world, calls):
    """Each argument of functions of many gets a quarter of them, in turn; all, in the long test."""
    step = 1 if len(calls[name].good) < MANY else 4
    for number, argument in enumerate(calls[name].good):
        assert sum(refused(calls[name], argument, value) for value in world.bad()[number % step :: step]) >= 5


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_all_wrong_values(name, world, calls):
    if len(calls[name].good) >= MANY:
        for argument in calls[name].good:
            assert sum(refused(calls[name], argument, value) for value in world.bad()) >= 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_generated_values(name, calls):
    @settings(max_examples=20)
    @given(st.sampled_from(sorted(calls[name].good)), anything)
    def check(argument, value):
        refused(calls[name], argument, value)

    check()


def test_every_public_function_is_called():
    called = {name.partition(" ")[0].partition("(")[0].partition(".")[0] for name in NAMES}
    errors = {name for name in hp.__all__ if name.endswith(("Error", "Warning"))} | {"NotSuitable", "OutOfMemory"}
    # Made by others only; and what is written inside of pointwise functions (tests/forms/test_expression.py).
    made = {"Block", "SolveInfo", "Gradient", "Vector", "Backend", "BACKENDS", "ALONE"}
    assert set(hp.__all__) - called == errors | made
