"""The exceptions and the registry that names things."""

import pickle

import pytest

from hpfem import errors
from hpfem.shapes import errors as shape_errors
from hpfem.support.registry import Registry


def test_every_exception_is_an_hpfem_error():
    assert issubclass(errors.HpfemWarning, UserWarning)
    for name in set(errors.__all__) - {"HpfemWarning"}:
        assert issubclass(getattr(errors, name), errors.HpfemError)


def test_shapes_and_hpfem_raise_the_same_classes():
    assert errors.HpfemError is shape_errors.HpfemError
    assert errors.ArgumentError is shape_errors.ArgumentError


def test_argument_error_is_a_value_error():
    with pytest.raises(ValueError, match="order"):
        raise errors.ArgumentError("order must be at least 1")


@pytest.mark.parametrize("name", errors.__all__)
def test_exceptions_pickle(name):
    error = pickle.loads(pickle.dumps(getattr(errors, name)("cell 3: bad")))
    assert type(error).__name__ == name
    assert str(error) == "cell 3: bad"


@pytest.fixture
def operators():
    registry = Registry("operator")
    registry.add("mass", 1)
    registry.add("helmholtz", 2)
    return registry


def test_registry_keeps_order_and_finds(operators):
    assert list(operators) == ["mass", "helmholtz"]
    assert dict(operators.items()) == {"mass": 1, "helmholtz": 2}
    assert operators["helmholtz"] == 2
    assert "mass" in operators
    assert "laplacian" not in operators
    assert len(operators) == 2


def test_registry_decorator_returns_what_it_registers(operators):
    @operators.register("twice")
    def twice(x):
        return 2 * x

    assert operators["twice"] is twice
    assert twice(2) == 4


@pytest.mark.parametrize("name", ["helmholz", "", 3, None, ["mass"]])
def test_unknown_name_lists_the_valid_ones(operators, name):
    with pytest.raises(errors.ArgumentError, match="unknown operator .*valid: mass, helmholtz"):
        operators[name]


def test_unknown_name_names_the_closest(operators):
    with pytest.raises(errors.ArgumentError, match="did you mean 'helmholtz'"):
        operators["helmholz"]


def test_a_name_is_taken_once(operators):
    with pytest.raises(errors.ArgumentError, match="operator 'mass' is registered already"):
        operators.add("mass", 3)
