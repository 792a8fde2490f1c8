"""Throughput that is expected of a mesh, by shape and kind of geometry."""

import numpy as np
import pytest

import hpfem as hp
from hpfem.backends.base import BACKENDS
from hpfem.backends.cuda.runtime.measured import measured_table
from hpfem.backends.roofline import Roofline
from hpfem.benchmarks.expected import expected_throughput
from hpfem.geometry.element_map import ElementMap
from hpfem.geometry.kinds import GEOMETRY_KINDS, first_kinds
from tests.samples import NAMES, curved


def bent(shape, by):
    """Two cells or more of order 2; the last ones bend by a part of their size."""
    dim = hp.shapes.get_shape(shape).dim
    mesh = hp.box(shape, (2, *[1] * (dim - 1)), upper=(2, *[1] * (dim - 1))).elevated(2)

    def moved(x):
        x = x.copy()
        x[:, 0] += np.where(x[:, 0] > 1, 4 * by * x[:, 1] * (1 - x[:, 1]), 0)
        return x

    return mesh.transformed(moved)


@pytest.mark.parametrize("shape", NAMES)
def test_nearly_straight_cells_are_told(shape):
    for by, kind in ((0.008, "affine"), (0.2, "quadratic")):
        mesh = bent(shape, by)
        elements = ElementMap.of(mesh.cells[0], mesh.points)
        exact, loose = ({GEOMETRY_KINDS[n].name for n in first_kinds(elements, departure)} for departure in (0.0, 0.01))
        assert (exact, loose) == ({"affine", "quadratic"}, {"affine", kind})


@pytest.mark.parametrize("shape", ["hex", "tet"])
def test_rates_are_those_of_the_shipped_table(shape):
    """Without the device; the whole is the mean of the cells' times."""
    found = expected_throughput(bent(shape, 0.008), 4, "cuda")
    affine, curved = found["rows"]
    for row in found["rows"]:
        kinds = {"affine": ["affine"], "quadratic": ["quadratic", "deformed"]}[row["geometry"]]
        names = tuple(f"/metric/{how}/{kind}" for kind in kinds for how in ("collocated", "noncollocated"))
        known = [rate for key, (rate, _) in measured_table().items() if f"/{shape}/4/" in key and key.endswith(names)]
        assert any(1e-9 * row["dofs_per_second"] == pytest.approx(rate) for rate in known)
    assert affine["straightened"] == affine["cells"] + curved["cells"] and curved["straightened"] == 0
    now, then = found["dofs_per_second"]
    times = [row["cells"] / row["dofs_per_second"] for row in (affine, curved)]
    assert now == pytest.approx((affine["cells"] + curved["cells"]) / sum(times))
    assert then == pytest.approx(affine["dofs_per_second"])


def test_rules_of_simplices_and_the_gain_of_the_other():
    """On tris the default is not the fastest on an H200; on tets it is, and other shapes have one rule."""
    [tri], [tet], [quad] = (expected_throughput(curved(name), 3, "cuda")["rows"] for name in ("tri", "tet", "quad"))
    assert (tri["rule"], tri["faster rule"]) == ("collapsed", "simplex") and 1.2 < tri["gain"] < 1.3
    assert tet["rule"] == "simplex" and not {"faster rule", "gain"} & set(tet)
    assert "rule" not in quad


def test_rates_are_limits_where_costs_are_operations(monkeypatch):
    cpu = BACKENDS["cpu"]
    rates = {}
    for name, limits in (("slow memory", Roofline(1.0, 1e30, {})), ("slow arithmetic", Roofline(1e30, 1.0, {}))):
        monkeypatch.setattr(type(cpu), "roofline", lambda *_, limits=limits, **__: limits)
        found = expected_throughput(bent("hex", 0.2), 3, "cpu")
        rates[name] = {row["geometry"]: row["dofs_per_second"] for row in found["rows"]}
        assert cpu.processor() in found["source"]
    # Of curved hexes 7 numbers at 125 points are read, of affine ones 7; and coefficients are read and written.
    assert rates["slow memory"]["quadratic"] == pytest.approx(64 / (8 * (7 * 125 + 2 * 64)), rel=0.2)
    assert rates["slow memory"]["affine"] == pytest.approx(64 / (8 * (7 + 2 * 64)), rel=0.2)
    made = hp.Helmholtz(hp.Space(bent("hex", 0.2), 3, backend="cpu"), 1.0)
    for choice in made.choices:
        problem = choice.kernel.problem
        own = problem.n_modes / cpu.strategy(choice.strategy).cost(problem)
        assert rates["slow arithmetic"][problem.geometry.kind.name] == pytest.approx(own)
