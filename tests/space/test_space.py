"""Spaces: blocks, orders, quadrature, evaluation, projection, integrals, pickling; and what is refused."""

import pickle
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hpfem as hp
from hpfem.errors import ArgumentError, MeshError, NotSuitable, SolverError, StateError
from hpfem.memory import HOST
from hpfem.mesh import box
from hpfem.operators import InverseMass
from hpfem.shapes import BASES
from hpfem.space import transforms
from tests.mesh.examples import Elsewhere
from tests.operators.reference import random_field
from tests.samples import NAMES, Polynomial, curved, dimension, norm_error, skewed, straight, tapered

each_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def mixed():
    """A mesh of all solid shapes."""
    return box(("hex", "prism", "pyramid", "tet"), (4, 1, 1))


def check_made_elsewhere(mesh, xp, monkeypatch, **options):
    """Blocks whose maps are made with another module of arrays are those that the host makes."""
    here = hp.Space(mesh, 3)
    monkeypatch.setattr("hpfem.space.space.CHUNK", 0)
    if xp is not None:
        monkeypatch.setattr(hp.Space, "array_module", lambda self: xp)
    there = hp.Space(mesh, 3, **options)
    assert len(there.blocks) == len(here.blocks)
    for a, b in zip(there.blocks, here.blocks, strict=True):
        assert a.geometry.xp is not np and np.array_equal(a.elements, b.elements)
        assert (a.shape, a.geometry.kind) == (b.shape, b.geometry.kind)
        assert HOST.name not in a.geometry._copies  # nothing was copied to the host
        scale = abs(b.geometry.coefficients).max()
        assert abs(a.geometry.coefficients - b.geometry.coefficients).max() < 1e-14 * scale
        assert np.allclose(a.geometry.widths, b.geometry.widths, rtol=1e-13)
    back = pickle.loads(pickle.dumps(there))
    assert all(block.geometry.xp is np for block in back.blocks)
    return there


MESHES = sorted(Path(__file__).parents[2].joinpath("meshes").glob("*.msh"))


class TestBlocks:
    """How cells become blocks."""

    @pytest.mark.parametrize("path", MESHES, ids=lambda path: path.stem)
    def test_maps_made_elsewhere(self, path, monkeypatch):
        check_made_elsewhere(hp.read_mesh(path), Elsewhere(), monkeypatch)

    @pytest.mark.cuda
    @pytest.mark.parametrize("path", MESHES, ids=lambda path: path.stem)
    def test_maps_made_on_a_gpu(self, path, monkeypatch, rng):
        mesh = hp.read_mesh(path)
        space = check_made_elsewhere(mesh, None, monkeypatch, backend="cuda")
        host = hp.Space(mesh, 3, backend="numpy")
        u = random_field(host, rng)
        expected = hp.Helmholtz(host, lam=1.3)(u)
        found = hp.Helmholtz(space, lam=1.3)(space.field("coeff", u.arrays))
        assert all(norm_error(a, b) < 1e-12 for a, b in zip(found.arrays, expected.arrays, strict=True))

    def test_the_host_asks_for_parts_of_maps_elsewhere(self, monkeypatch):
        """Few elements are copied alone; all of them are copied, and kept, once as many were asked for as there are."""
        monkeypatch.setattr("hpfem.space.space.CHUNK", 0)
        monkeypatch.setattr(hp.Space, "array_module", lambda self: Elsewhere())
        copied, geometry = [], hp.Space(curved("tet"), 3).blocks[0].geometry
        monkeypatch.setattr("hpfem.geometry.element_map.as_numpy", lambda a: copied.append(len(a)) or np.array(a))
        n, expected = geometry.n_elements, geometry.given
        for _ in range(3):
            for e in range(n):
                assert np.array_equal(geometry.coefficients_of(slice(e, e + 1)), expected[e : e + 1])
                assert np.array_equal(geometry.coefficients_of(np.array([e])), expected[e : e + 1])
        assert HOST.name in geometry._copies and sum(copied) == 2 * n
        assert np.shares_memory(geometry.on_rule(geometry.rule).coefficients, geometry.coefficients)
        assert np.array_equal(pickle.loads(pickle.dumps(geometry)).coefficients, expected)

    def test_maps_are_made_on_the_host_without_room_elsewhere(self, monkeypatch):
        class Full(Elsewhere):
            def empty(self, shape, dtype=None):
                if shape and dtype is None:  # not to copy
                    raise MemoryError
                return np.empty(shape, dtype)

        monkeypatch.setattr("hpfem.space.space.CHUNK", 0)
        monkeypatch.setattr(hp.Space, "array_module", lambda self: Full())
        assert all(block.geometry.on_host for block in hp.Space(curved("tet"), 3).blocks)

    def test_every_cell_is_in_one_block(self, mixed):
        space = hp.Space(mixed, 2)
        elements = np.concatenate([block.elements for block in space.blocks])
        assert np.array_equal(np.sort(elements), np.arange(mixed.n_cells))
        assert space.n_cells == mixed.n_cells
        assert space.n_dofs == sum(b.n_elements * b.n_modes for b in space.blocks)
        assert {b.shape.name for b in space.blocks} == {"hex", "prism", "pyramid", "tet"}

    def test_affine_and_deformed_cells_are_apart(self):
        mesh = box("hex", (3, 1, 1)).transformed(lambda x: x + 0.1 * np.outer(x[:, 0] == 1, [0, 1, 1]) * x[:, [1]])
        space = hp.Space(mesh, 2)
        assert [(b.affine, b.elements.tolist()) for b in space.blocks] == [(True, [0, 1]), (False, [2])]
        assert "1 multilinear hex, P=2, Q=(4, 4, 4)" in repr(space.blocks[1])

    def test_orders_of_shapes(self, mixed):
        orders = {"hex": 3, "prism": 2, "pyramid": 1, "tet": 4}
        space = hp.Space(mixed, {**orders, "tri": 9})
        assert space.orders == orders
        assert {b.shape.name: b.order for b in space.blocks} == orders
        assert hp.Space(mixed, np.int64(2)).orders == dict.fromkeys(orders, 2)

    def test_describes_itself(self, mixed):
        space = hp.Space(mixed, 2, basis="orthogonal")
        assert repr(space).startswith(f"Space({mixed.n_cells} cells, order=")
        assert "'orthogonal'" in repr(space)
        rows = space.memory_report()
        assert [row["coeff"] for row in rows] == [8 * b.n_elements * b.n_modes for b in space.blocks]
        assert all(row["metric"] == 7 * 8 * b.n_elements for row, b in zip(rows, space.blocks, strict=True))


class TestQuadrature:
    """The choices of points."""

    @each_name
    def test_counts_and_rules(self, name):
        mesh = straight(name)
        collapsed = [d.collapsed for d in mesh.cells[0].shape.directions]

        def rules(choice):
            rule = hp.Space(mesh, 3, quadrature=choice).blocks[0].rule
            return [(r.kind, len(r)) for r in rule.rules]

        default = [("radau", 4) if c else ("lobatto", 5) for c in collapsed]
        assert rules("collapsed") == rules(0) == default
        assert rules("gauss") == [("gauss", n) for _, n in default]
        assert rules("collocated") == [(kind, 4) for kind, _ in default]
        assert rules(2) == [(kind, n + 2) for kind, n in default]
        assert rules(np.int32(-1)) == [(kind, n - 1) for kind, n in default]

    @pytest.mark.parametrize("name", ["quad", "hex"])
    def test_collocated_mass_is_diagonal(self, backend, name):
        space = hp.Space(curved(name), 3, basis="lagrange", quadrature="collocated", backend=backend)
        block = space.blocks[0]
        weights = block.geometry.factors("wJ")[:, 0, :, 0]
        one = space.zeros("coeff")
        for mode in (0, 5, block.n_modes - 1):
            one.arrays[0][...] = 0
            one.arrays[0][..., mode] = 1
            found = hp.Mass(space)(one).arrays[0][0]
            expected = np.zeros_like(found)
            expected[:, mode] = weights[:, mode]
            assert norm_error(found, expected) < 1e-13

    @pytest.mark.parametrize("choice", ["gauss", "collocated", 1])
    @each_name
    def test_stiffness_does_not_depend_on_sufficient_points(self, backend, name, choice, rng):
        mesh = skewed(straight(name))
        u = Polynomial(rng, dimension(name), 4)
        found = []
        for quadrature in (choice, 4):
            space = hp.Space(mesh, 4, quadrature=quadrature, backend=backend)
            v = space.project(u)
            found.append(v.dot(hp.Laplacian(space)(v)))
        # P + 1 Gauss-Lobatto points integrate degree 2P - 1 exactly: the stiffness of a polynomial of degree P needs
        # 2P in the directions across the derivative.
        assert found[0] == pytest.approx(found[1], rel=1e-12 if choice != "collocated" else 0.05)

    @pytest.mark.parametrize("choice", ["gaus", "GAUSS", True, 1.5, (3, 3), -9])
    def test_bad_choices(self, choice):
        with pytest.raises(ArgumentError, match="quadrature|points"):
            hp.Space(straight("tri"), 2, quadrature=choice)

    @each_name
    def test_too_few_points_for_collocation(self, backend, name, rng):
        space = hp.Space(straight(name), 3, quadrature=-2, backend=backend)
        u = space.zeros("coeff")
        for operator in (hp.Laplacian, partial(hp.Helmholtz, lam=1.0), hp.IProductWRTDerivBase):
            with pytest.raises(ArgumentError, match=rf"on {name}: .* at least 4 points in each.*noncollocated"):
                operator(space, algorithm="collocated")
            assert "noncollocated" in operator(space).explain()
        with pytest.raises(ArgumentError, match=r"at least 4 points.*use more points$"):
            hp.PhysDeriv(space)
        assert hp.Laplacian(space, algorithm="noncollocated")(u).dot(u) == 0
        # Mass has no gradients: whatever is asked, it is served.
        assert hp.Mass(space, algorithm="collocated")(u).dot(u) == 0


class TestEvaluation:
    """Functions of the user."""

    def test_values_at_the_points(self, mixed):
        space = hp.Space(mixed, 2)
        f = space.evaluate(lambda x, y, z: x * y + z)
        x = space.coordinates()
        assert (f.state, f.components, x.state, x.components) == ("phys", 1, "phys", 3)
        for values, points in zip(f.arrays, x.arrays, strict=True):
            assert np.array_equal(values[0], points[0] * points[1] + points[2])

    def test_numbers_and_components(self, mixed):
        space = hp.Space(mixed, 1)
        assert all(np.all(a == 2) for a in space.evaluate(lambda x, y, z: 2).arrays)
        f = space.evaluate(lambda x, y, z: (x, 1.0, np.float32(3)))
        assert f.components == 3
        assert all(np.all(a[1] == 1) and np.all(a[2] == 3) for a in f.arrays)
        g = space.evaluate(lambda x, y, z: np.stack([x, y]))
        assert g.components == 2
        assert space.evaluate(lambda x, y, z: [x]).components == 1

    def test_single_precision(self, mixed):
        space = hp.Space(mixed, 2, dtype="float32")
        assert space.evaluate(lambda x, y, z: x).dtype == np.float32
        assert space.project(lambda x, y, z: x).arrays[0].dtype == np.float32
        assert space.integrate(space.evaluate(lambda x, y, z: 1.0)) == pytest.approx(1, rel=1e-6)

    def test_results_that_are_not_finite_name_the_cell(self, mixed):
        space = hp.Space(mixed, 2)
        hexes = next(b for b in space.blocks if b.shape.name == "hex")
        with pytest.raises(ArgumentError, match=rf"cell {hexes.elements[0]} \(hex\)") as caught:
            space.evaluate(lambda x, y, z: np.sqrt(x - 0.1))
        # The point is named too, and it is one of those.
        x = float(str(caught.value).split("(")[1].split(",")[0])
        assert x < 0.1
        with pytest.raises(ArgumentError, match=r"not finite at .* in cell \d+"):
            space.project(lambda x, y, z: [x, np.inf])

    @pytest.mark.parametrize(
        ("function", "match"),
        [
            (lambda x, y: x[0], "shape"),
            (lambda x, y: "a", "real numbers"),
            (lambda x, y: None, "real numbers, got None"),
            (lambda x, y: x + 1j, "real numbers.*complex128"),
            (lambda x, y: [x, x[:1, :2]], "shape"),
            (lambda x, y: [x, [1.0, [2.0]]], r"real numbers, got \[1.0, \[2.0\]\]"),
            (lambda x, y: {"a": 1}, "real numbers"),
            (3.0, "expected a function of the 2 coordinates, got float"),
        ],
    )
    def test_wrong_results(self, function, match):
        with pytest.raises(ArgumentError, match=match):
            hp.Space(straight("tri"), 2).evaluate(function)

    def test_errors_of_the_function_come_through(self):
        with pytest.raises(KeyError):
            hp.Space(straight("tri"), 2).evaluate(lambda x, y: {}["k"])

    def test_different_components_in_blocks(self, mixed):
        answers = iter([1.0, [1.0, 2.0], 1.0, 1.0])
        with pytest.raises(ArgumentError, match="different numbers of components"):
            hp.Space(mixed, 1).evaluate(lambda x, y, z: next(answers))


class TestIntegrals:
    """Integrals and norms."""

    @each_name
    def test_of_values_and_coefficients(self, name):
        space = hp.Space(tapered(name), 3, quadrature=1)
        d = dimension(name)
        f = space.evaluate(lambda *x: [x[0] ** 2, 1.0])
        assert space.integrate(f) == pytest.approx([1 / 3, 1.0], rel=1e-12)
        assert space.integrate(f).shape == (2,)
        u = space.project(lambda *x: x[0] ** 2)
        total = space.integrate(u)
        assert isinstance(total, float)
        assert total == pytest.approx(1 / 3, rel=1e-12)
        assert space.norm(u) == u.norm() == pytest.approx(np.sqrt(1 / 5), rel=1e-12)
        assert space.evaluate(lambda *x: [3.0] * d).norm() == pytest.approx(3 * np.sqrt(d), rel=1e-12)

    def test_refused(self, mixed):
        space, other = hp.Space(mixed, 1), hp.Space(mixed, 1)
        f = space.evaluate(lambda x, y, z: x)
        dual = hp.IProductWRTBase(space)(f)
        for ask in (space.integrate, space.norm):
            with pytest.raises(StateError, match="'dual'"):
                ask(dual)
        with pytest.raises(StateError, match="'dual'"):
            dual.norm()
        with pytest.raises(StateError, match="another space"):
            other.integrate(f)
        with pytest.raises(StateError, match="takes a Field"):
            space.integrate(1.0)


class TestProjection:
    """Elementwise L2 projection."""

    @pytest.mark.parametrize("basis", BASES)
    @each_name
    def test_returns_what_is_in_the_space(self, backend, name, basis, rng):
        for mesh, order in ((skewed(straight(name)), 6), (tapered(name), 4), (curved(name), 3)):
            space = hp.Space(mesh, order, basis=basis, backend=backend)
            u = random_field(space, rng, components=2)
            back = hp.FwdTrans(space)(hp.BwdTrans(space)(u))
            assert (back.state, back.components) == ("coeff", 2)
            assert all(norm_error(a, b) < 1e-10 for a, b in zip(back.arrays, u.arrays, strict=True))

    @pytest.mark.parametrize("name", ["hex", "pyramid", "tet"])
    def test_keeps_its_digits_at_high_order(self, name):
        space = hp.Space(straight(name, (1, 1, 1)), 10)
        u = Polynomial(np.random.default_rng(5), 3, 10)
        found = hp.BwdTrans(space)(space.project(u))
        assert (found - space.evaluate(u)).norm() < 1e-11

    def test_error_is_orthogonal_to_the_space(self, backend, mixed, rng):
        space = hp.Space(mixed, 3, backend=backend)
        f = space.evaluate(lambda x, y, z: np.exp(x + y * z))
        residual = hp.IProductWRTBase(space)(f - hp.BwdTrans(space)(space.project(f)))
        assert max(np.abs(a).max() for a in residual.arrays) < 1e-13

    def test_nodal_coefficients_are_values_at_the_nodes(self, mixed):
        space = hp.Space(mixed, 3, basis="lagrange")
        u = space.project(lambda x, y, z: x * y**2 - z**3)
        for block, values in zip(space.blocks, u.arrays, strict=True):
            values_at = block.geometry.basis.evaluate(block.basis.nodes)
            x = np.einsum("eim,mq->ieq", block.geometry.coefficients, values_at)
            assert np.abs(values[0] - (x[0] * x[1] ** 2 - x[2] ** 3)).max() < 1e-12

    def test_out_and_zero(self, mixed):
        space = hp.Space(mixed, 2)
        f, out = space.evaluate(lambda x, y, z: x), space.zeros("coeff")
        forward = hp.FwdTrans(space)
        assert forward(f, out=out) is out
        assert norm_error(out.arrays[0], space.project(f).arrays[0]) == 0
        assert not any(a.any() for a in forward(space.zeros("phys")).arrays)

    def test_refused(self, mixed):
        space, other = hp.Space(mixed, 2), hp.Space(mixed, 2)
        forward, f = hp.FwdTrans(space), space.evaluate(lambda x, y, z: [x, y])
        with pytest.raises(StateError, match="takes a 'phys' field, got 'coeff'"):
            forward(space.zeros("coeff"))
        with pytest.raises(StateError, match="its own space"):
            forward(other.zeros("phys"))
        with pytest.raises(StateError, match="'coeff' field with 2 component"):
            forward(f, out=space.zeros("coeff"))
        with pytest.raises(ArgumentError, match="unknown strategy 'fast'.*sumfac"):
            hp.FwdTrans(space, strategy="fast")
        with pytest.raises(ArgumentError, match="unknown strategy 'fast'.*sumfac"):
            hp.FwdTrans(space, strategy={"tet": "fast"})
        with pytest.raises(ArgumentError, match="unknown shape 'brick' in strategy"):
            InverseMass(space, strategy={"brick": "sumfac"})
        with pytest.raises(ArgumentError, match="unknown backend 'gpu'"):
            hp.FwdTrans(space, backend="gpu")
        with pytest.raises(ArgumentError, match="FwdTrans is made on a Space, got Mesh"):
            hp.FwdTrans(mixed)

    def test_strategies_by_shape(self, mixed):
        space = hp.Space(mixed, 2, quadrature="collapsed")
        f = space.evaluate(lambda x, y, z: x * y + z)
        ways = {"hex": "stdmat", "tet": "sumfac"}
        wanted, forward = hp.FwdTrans(space)(f), hp.FwdTrans(space, strategy=ways, backend="numpy")
        for own in (forward, pickle.loads(pickle.dumps(forward))):
            found = {p.block.shape.name: {p._mass.strategy, p._iproduct.strategy} for p in own._projections}
            assert all(found[shape] == {name} for shape, name in ways.items())
            assert all(norm_error(*pair) < 1e-12 for pair in zip(forward(f).arrays, wanted.arrays, strict=True))
        # Its mass matrix is affine and small; the products with the basis are no weak form.
        with pytest.warns(hp.HpfemWarning, match=r"InverseMass: some blocks take what 'auto' takes.*: only weak forms"):
            inverse = InverseMass(space, strategy={"tet": "dense"}, backend="cpu")
        dual = hp.Mass(space)(wanted)
        assert all(norm_error(*pair) < 1e-11 for pair in zip(inverse(dual).arrays, wanted.arrays, strict=True))
        with pytest.raises(NotSuitable, match="kronecker"):
            hp.FwdTrans(space, strategy={"tet": "kronecker"}, backend="cpu")

    @pytest.mark.parametrize("fewer", [-2, -3])
    def test_too_few_points_are_refused(self, fewer):
        space = hp.Space(straight("hex"), 4, quadrature=fewer)
        with pytest.raises(ArgumentError, match=r"FwdTrans of order 4 on hex needs at least 5 points.*use more points"):
            space.project(lambda x, y, z: np.exp(3 * x) * np.cos(5 * y + z))

    def test_no_convergence_names_the_cell(self, monkeypatch):
        monkeypatch.setattr(transforms, "MAX_ITERATIONS", 1)
        with pytest.raises(SolverError, match=r"cell \d+ \(hex, P=4.*more quadrature points"):
            hp.Space(curved("hex"), 4).project(lambda x, y, z: np.exp(3 * x) * np.cos(5 * y + z))

    def test_fields_that_are_not_finite_name_the_cell(self):
        space = hp.Space(straight("hex"), 2)
        values = space.evaluate(lambda x, y, z: x)
        values.arrays[0][0, 2, 1] = np.nan
        with pytest.raises(StateError, match=rf"not finite in cell {space.blocks[0].elements[2]} \(hex\)"):
            space.project(values)


class TestArguments:
    """What a space refuses."""

    @pytest.mark.parametrize("elsewhere", [False, True])
    @each_name
    def test_cells_tangled_at_the_points(self, name, elsewhere, monkeypatch):
        if elsewhere:
            monkeypatch.setattr("hpfem.space.space.CHUNK", 0)
            monkeypatch.setattr(hp.Space, "array_module", lambda self: Elsewhere())

        def fold(x):
            return np.column_stack([x[:, 0] - 1.4 * x[:, 0] ** 2 * (x[:, 1] > 0.4), x[:, 1:]])

        mesh = straight(name).elevated(2).transformed(fold, check=False)
        with pytest.raises(
            MeshError, match=rf"\({name}\) is tangled: its Jacobian determinant at the quadrature points"
        ):
            hp.Space(mesh, 3)

    def test_cannot_be_changed(self, mixed):
        space = hp.Space(mixed, 2)
        with pytest.raises(ArgumentError, match="a space cannot be changed \\('basis'\\)"):
            space.basis = "orthogonal"
        assert space.locator is space.locator

    def test_backends(self, mixed):
        for name in ("junk", None):
            with pytest.raises(ArgumentError, match="unknown backend.*valid: .*numpy"):
                hp.Space(mixed, 2, backend=name)

    def test_functions_of_too_few_coordinates(self, mixed):
        space = hp.Space(mixed, 2)
        with pytest.raises(ArgumentError, match=r"the mesh is in 3-D: the function must take 3 arguments \(x, y, z\)"):
            space.evaluate(lambda x, y: x)
        with pytest.raises(ArgumentError, match="must take 3 arguments"):
            hp.Helmholtz(space, lam=lambda x, y: x)
        with pytest.raises(ArgumentError, match="no components"):
            space.evaluate(lambda x, y, z: [])

    @pytest.mark.parametrize("order", [0, -1, 1.5, True, "3", None, [2]])
    def test_orders(self, order):
        with pytest.raises(ArgumentError, match="order for tri must be an integer >= 1 and <= 32"):
            hp.Space(straight("tri"), order)

    def test_orders_of_shapes(self, mixed):
        with pytest.raises(ArgumentError, match="order has no value for pyramid, tet"):
            hp.Space(mixed, {"hex": 2, "prism": 2})
        with pytest.raises(ArgumentError, match="unknown shape 'cube'.*hex"):
            hp.Space(mixed, {"cube": 2})
        with pytest.raises(ArgumentError, match="order for tet .* got 0"):
            hp.Space(mixed, {"hex": 2, "prism": 2, "pyramid": 1, "tet": 0})

    def test_names_and_types(self, mixed):
        with pytest.raises(ArgumentError, match="unknown basis 'nodal'; valid: modified, orthogonal, lagrange"):
            hp.Space(mixed, 2, basis="nodal")
        with pytest.raises(ArgumentError, match="made on a Mesh, got str; use read_mesh"):
            hp.Space("cube.msh", 2)
        for dtype in (int, "float16", "floaty", complex):
            with pytest.raises(ArgumentError, match="float64 or float32, got"):
                hp.Space(mixed, 2, dtype=dtype)

    def test_fields(self, mixed):
        space = hp.Space(mixed, 2)
        for components in (0, -1, 1.0, True):
            with pytest.raises(ArgumentError, match="components must be an integer >= 1"):
                space.zeros("coeff", components)
        with pytest.raises(ArgumentError, match="unknown field state 'modal'; valid: coeff, phys, dual"):
            space.zeros("modal")


class TestSharing:
    """Pickling and threads."""

    def test_pickles(self, mixed, rng):
        space = hp.Space(mixed.transformed(lambda x: x + 0.05 * np.sin(3 * x[:, ::-1])), 3, basis="orthogonal")
        u = space.project(lambda x, y, z: x * y - z)
        v = hp.Laplacian(space)(u)
        mesh, again, field, other = pickle.loads(pickle.dumps((space.mesh, space, u, v)))
        assert again.mesh is mesh
        assert field.space is again
        assert other.space is again
        assert (again.orders, again.basis, again.dtype) == (space.orders, space.basis, space.dtype)
        assert [repr(b) for b in again.blocks] == [repr(b) for b in space.blocks]
        assert other.state == "dual"
        assert all(np.array_equal(a, b) for a, b in zip(field.arrays, u.arrays, strict=True))
        assert norm_error(hp.Laplacian(again)(field).arrays[0], v.arrays[0]) < 1e-13
        assert field.dot(other) == pytest.approx(u.dot(v), rel=1e-14)

    def test_pickles_are_small(self, mixed):
        space = hp.Space(mixed, 6)
        empty = len(pickle.dumps(space))
        space.project(lambda x, y, z: x)
        hp.Helmholtz(space, lam=1.0)
        space.integrate(space.evaluate(lambda x, y, z: x))
        assert len(pickle.dumps(space)) < 1.2 * empty + 1000

    def test_pickled_operators_are_made_again(self, backend, mixed):
        space = hp.Space(mixed, 2, backend=backend)
        u = space.project(lambda x, y, z: x * y - z)
        operators = [
            hp.Mass(space),
            hp.FwdTrans(space),
            hp.Helmholtz(space, lam=lambda x, y, z: 1 + x, strategy="sumfac"),
            hp.AdvectionDiffusionReaction(space, [1.0, 2.0, 3.0], algorithm="noncollocated"),
            hp.WeakForm(space, cubic, test=("value",), fields={"k": 2.0}),
        ]
        again, field, *copies = pickle.loads(pickle.dumps((space, u, *operators)))
        for operator, copy in zip(operators, copies, strict=True):
            assert copy.space is again
            mine = hp.BwdTrans(space)(u) if operator.input_state == "phys" else u
            its = hp.BwdTrans(again)(field) if operator.input_state == "phys" else field
            assert norm_error(copy(its).arrays[1], operator(mine).arrays[1]) < 1e-13
            assert repr(copy) == repr(operator)

    def test_threads_share_a_space(self, backend, mixed):
        space = hp.Space(mixed.transformed(lambda x: x + 0.05 * np.sin(3 * x[:, ::-1])), 3, backend=backend)
        fields = [space.project(lambda x, y, z, k=k: x * y + k * z) for k in range(4)]
        expected = [hp.Helmholtz(space, lam=1.0)(u).arrays for u in fields]
        fresh = hp.Space(space.mesh, 3, backend=backend)
        wrong = []

        def work(k):
            u = fresh.field("coeff", [a.copy() for a in fields[k].arrays])
            operator, out = hp.Helmholtz(fresh, lam=1.0), None
            for _ in range(10):
                out = operator(u, out=out)
                if any(norm_error(a, b) > 1e-12 for a, b in zip(out.arrays, expected[k], strict=True)):
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def cubic(u, k):
    """A pointwise function that pickles."""
    return k * u**3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["quad", "tet"])
@pytest.mark.parametrize("exponent", [-45, -20, -9, 9, 20, 45])
def test_a_mesh_of_any_size_is_integrated_or_refused(dtype, name, exponent):
    """Either the volume to rounding, or an error that says which number left the range."""
    mesh = straight(name).transformed(lambda p: p * 10.0**exponent)
    exact = straight(name).summary().volume * 10.0 ** (exponent * mesh.dim)
    try:
        space = hp.Space(mesh, 2, dtype=dtype, backend="numpy")
    except hp.MeshError as error:
        refusal = str(error)
        assert dtype == "float32" and abs(exponent) >= 20
        assert "wide, and the volumes" in refusal and "range of float32" in refusal and "or float64" in refusal
        return
    u = hp.Mass(space)(space.project(lambda *x: 1.0))
    assert space.project(lambda *x: 1.0).dot(u) == pytest.approx(exact, rel=1e-5)
