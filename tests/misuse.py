"""Every public function with arguments that it takes, and the objects of a small world to make them wrong with."""

from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any

import meshio
import numpy as np

import hpfem as hp
from hpfem import shapes, solvers
from hpfem.forms import Pointwise
from hpfem.mesh import box
from hpfem.operators import OPERATORS
from hpfem.shapes.arguments import is_real
from hpfem.shapes.refinement import refinements
from hpfem.space.locate import Locator
from tests.mesh.recorded_model import RecordedModel
from tests.wrong_values import FIXED


class Call:
    """A public function and good values of its arguments; "*0", "*1", ... for those without a name."""

    def __init__(self, name: str, function: Callable[..., Any], /, **good: Any) -> None:
        self.name, self.function, self.good = name, function, good

    def __call__(self, **other: Any) -> Any:
        """Call it with some arguments changed."""
        given = self.good | other
        numbered = [given.pop(key) for key in sorted(key for key in given if key.startswith("*"))]
        return self.function(*numbered, **given)


def _from_parts(p: Any, c: Any) -> hp.Mesh:
    mesh = meshio.Mesh(np.zeros((4, 2)), [("quad", np.array([[0, 1, 3, 2]]))])
    mesh.points, mesh.cells[0].data = p, c
    return hp.from_meshio(mesh)


def _shown(description: Any, total: Any) -> None:
    with hp.progress(description, total) as step:
        step()


def _inside(folder: Any, path: Any) -> Any:
    """A path in a folder, of what may be one."""
    return folder / path if isinstance(path, str) else path


def _key(name: Any) -> Any:
    return name if isinstance(name, Hashable) else "a"


class World:
    """Small objects of every kind, and the calls that can be made on them."""

    def __init__(self) -> None:
        mesh = hp.Mesh.from_cells(
            [[0, 0], [1, 0], [1, 1], [0, 1], [2, 0], [2, 1]],
            [("tri", 1, [[0, 1, 2], [0, 2, 3]]), ("quad", 1, [[1, 4, 2, 5]])],
            boundaries={"left": [[[0, 3]]], "right": [[[4, 5]]]},
            regions={"all": [0, 1, 2]},
        )
        self.mesh = mesh
        self.space = hp.Space(mesh, 2, backend="numpy")
        self.other = hp.Space(mesh, 2, backend="numpy")
        self.single = hp.Space(box("quad", (2, 1)), 2, backend="numpy", dtype="float32")
        self.c0 = hp.C0Space(self.space)
        self.u = self.space.project(lambda x, y: x)
        self.values = self.space.evaluate(lambda x, y: 1 + x)
        self.dual = hp.Mass(self.space)(self.u)
        self.bc = hp.BoundaryConditions(self.c0, dirichlet={"left": 1.0})
        self.mass = hp.Mass(self.space)
        self.A = hp.GlobalOperator(hp.Helmholtz(self.space, lam=1.0), self.c0, self.bc)
        self.b = np.ones(self.c0.size)

    def bad(self) -> list[Any]:
        """What no function takes everywhere: also fields in another state, of another space, unwritten ones."""
        return [
            *FIXED,
            self.u,
            self.values,
            self.dual,
            self.space.empty("coeff"),
            self.space.empty("phys"),
            self.space.zeros("coeff", 2),
            self.other.zeros("coeff"),
            self.single.zeros("phys"),
            self.space,
            self.single,
            self.mesh,
            self.c0,
            hp.C0Space(self.single),
            self.bc,
            self.mass,
            shapes.HEX,
            shapes.POINT,
            self.b[:-1],
            self.b * np.nan,
            self.b * 1j,
            self.b.astype(object),
            np.stack([self.b, self.b]),
            list(self.u.arrays),
            hp.Space,
            shapes.make_basis("modified", shapes.TRI, 2),
            shapes.make_rule("gauss", 2),
            hp.Mass,
        ]  # fmt: skip

    def calls(self, folder: Any) -> list[Call]:
        """All calls."""
        return [
            *self._shapes(), *self._mesh(), *self._files(folder), *self._space(), *self._operators(),
            *self._solvers(folder),
        ]  # fmt: skip

    def _shapes(self) -> list[Call]:
        s, tri = shapes, shapes.TRI
        basis = s.make_basis("modified", tri, 3)
        eta = np.zeros((2, 2))
        return [
            Call("shapes.make_basis", s.make_basis, name="modified", shape=tri, order=2),
            Call("shapes.make_rule", s.make_rule, kind="gauss", n=3, alpha=1),
            Call("shapes.quadrature", s.quadrature, shape=tri, counts=[3, 3], kinds=["gauss", "gauss"]),
            Call("shapes.simplex_quadrature", s.simplex_quadrature, shape=tri, order=2),
            Call("shapes.default_counts", s.default_counts, shape=tri, order=2, more=1),
            Call("shapes.lattice", s.lattice, shape=tri, order=2),
            Call("shapes.node_entities", s.node_entities, shape=tri, order=2),
            Call("shapes.equispaced_nodes", s.equispaced_nodes, shape=tri, order=2),
            Call("shapes.interpolation_nodes", s.interpolation_nodes, shape=tri, order=2),
            Call("refinements", refinements, shape=tri),
            Call("shapes.get_shape", s.get_shape, name="hex"),
            Call("shapes.product", lambda base: s.product(base, "segment"), base=s.POINT),
            Call("shapes.cone", lambda base: s.cone(base, "tet"), base=tri),
            Call("shapes.cone name", lambda name: s.cone(tri, "tet" if isinstance(name, str) else name), name="tet"),
            Call("Shape.collapse", tri.collapse, eta=eta),
            Call("Shape.inverse_collapse", tri.inverse_collapse, xi=eta),
            Call("Shape.collapse_matrix", tri.collapse_matrix, eta=eta),
            Call("Shape.depth", tri.depth, xi=eta),
            Call("Shape.entity_number", tri.entity_number, vertices=(0, 1)),
            Call("Shape.lift", tri.lift, entity=(0, 1), to="low"),
            Call("Basis.table", basis.table, direction=0, z=np.zeros(2), derivative=0),
            Call("Basis.tables", basis.tables, points=(np.zeros(2), np.zeros(2)), derivative=0),
            Call("Basis.evaluate", basis.evaluate, xi=eta),
            Call("Basis.evaluate_eta", basis.evaluate_eta, eta=eta),
            Call("Basis.gradient_eta", basis.gradient_eta, eta=eta),
            Call("Basis.gradient", basis.gradient, xi=eta),
        ]  # fmt: skip

    def _mesh(self) -> list[Call]:
        points, cells = [[0, 0], [1, 0], [0, 1], [1, 1]], [("quad", 1, [[0, 1, 2, 3]])]
        mesh = self.mesh
        return [
            Call("Mesh.from_cells", hp.Mesh.from_cells, points=points, cells=cells, regions={"a": [0]},
                boundaries={"b": [[[0, 1]]]}, periodic=(), name="m", numbers=[3], check=True, ordering="tensor"),
            Call("Mesh.from_cells cell", lambda **c: hp.Mesh.from_cells(points, [tuple(c.values())]), shape="quad",
                order=1, nodes=[[0, 1, 2, 3]]),
            Call("Mesh.from_cells named", lambda **c: hp.Mesh.from_cells(points, cells,
                regions={_key(c["key"]): c["region"]}, boundaries={"b": [c["sides"]]}, periodic=[c["pairs"]]), key="a",
                region=[0], sides=[[0, 1]], pairs=[[7, 8]]),
            Call("distribute", hp.distribute, mesh=mesh, comm=hp.ALONE, weights={"tri": 1.0, "quad": 2.0},
                owners=[0, 0, 0]),
            Call("Communicator.sum", hp.ALONE.sum, numbers=1.0),
            Call("distribute weights", lambda weights: hp.distribute(mesh, None, weights), weights="auto"),
            Call("Mesh.transformed", mesh.transformed, function=lambda p: 2 * p, check=True),
            Call("Mesh.elevated", mesh.elevated, order=2),
            # More times would take all memory.
            Call("Mesh.refined", lambda t: mesh.refined(min(t, 2) if is_real(t) and t == t else t), t=1),
            Call("Mesh.describe_cell", mesh.describe_cell, cell=0),
            Call("Mesh.with_sides", mesh.with_sides, sides={"a": [[0, 1]]}),
            Call("Mesh.plot", mesh.plot, by="regions", edges=False),
            Call("Mesh.coordinates", mesh.coordinates, group=mesh.cells[0]),
            Call("Mesh.affine", mesh.affine, group=mesh.cells[0]),
            Call("box", box, shapes="quad", counts=(3, 1), lower=(0, 0), upper=(1, 1), periodic=("x",), comm=None),
            Call("choose_backend", hp.choose_backend, name="numpy"),
            Call("progress", _shown, description="work", total=3),
            Call("read_mesh", partial(hp.read_mesh, "meshes/square_mixed.msh"), periodic=False, comm=hp.ALONE),
            Call("from_gmsh", hp.from_gmsh, model=RecordedModel("model_cube_order2"), periodic=True, comm=hp.ALONE),
            Call("from_meshio", hp.from_meshio, mesh=meshio.Mesh(np.array(points, float), [("quad", [[0, 1, 3, 2]])])),
            Call("from_meshio parts", _from_parts, p=np.array(points, float), c=np.array([[0, 1, 3, 2]])),
        ]  # fmt: skip

    def _files(self, folder: Any) -> list[Call]:
        inside, picture = partial(_inside, folder), cache(self.u.plot)
        return [
            Call("Mesh.plot to", lambda path: self.mesh.plot(inside(path)), path="a.png"),
            Call("Field.plot to", lambda path: self.u.plot(inside(path)), path="a.png"),
            Call("Picture.save", lambda path: picture().save(inside(path)), path="a.svg"),
            Call("Mesh.write", lambda path: self.mesh.write(inside(path)), path="a.msh"),
            Call("save", lambda path, fields: hp.save(inside(path), fields), path="a.h5", fields={"u": self.u}),
            Call("load", lambda path, backend, comm: hp.load(inside(path), backend, comm), path="b.h5", backend="numpy",
                comm=hp.ALONE),
        ]  # fmt: skip

    def _space(self) -> list[Call]:
        space, u, values = self.space, self.u, self.values
        c0, data = self.c0, list(self.u.data)
        return [
            Call("Space", hp.Space, mesh=self.mesh, order=2, basis="modified", quadrature=None, dtype="float64",
                backend="numpy"),
            Call("Space.zeros", space.zeros, state="coeff", components=1),
            Call("Space.empty", space.empty, state="coeff", components=1),
            Call("Space.field", space.field, state="coeff", arrays=list(u.arrays)),
            Call("Space.field array", lambda a: space.field("coeff", [a, u.arrays[1]]), a=u.arrays[0]),
            Call("Space.evaluate", space.evaluate, function=lambda x, y: x),
            Call("Space.evaluate region", lambda v: space.evaluate({"all": v}), v=1.0),
            Call("by_region", hp.by_region, space=space, values={"all": 1.0}, elsewhere=1.0),
            Call("by_region name", lambda n: hp.by_region(space, {_key(n): 1.0}), n="all"),
            Call("Space.project", space.project, function=lambda x, y: x),
            Call("Space.integrate", space.integrate, field=u),
            Call("Space.integrate_boundary", space.integrate_boundary, function=1.0, boundary="left"),
            Call("Space.norm", space.norm, field=u),
            Call("Locator", Locator, space=space, tolerance=1e-10),
            Call("Locator.find", space.locator.find, points=[[0.1, 0.2]]),
            Call("Locator.evaluate", space.locator.evaluate, arrays=list(u.arrays), points=[[0.1, 0.2]]),
            Call("Field", hp.Field, space=space, state="coeff", data=data),
            Call("Field.like", u.like, state="phys", components=2),
            Call("Field.component", u.component, number=0),
            Call("Field.axpy", u.copy().axpy, scale=2.0, other=u),
            Call("Field.axpy of several", u.copy().axpy, scale=[2.0, 1.0], other=[u, u]),
            Call("Field()", u, **{"*0": [[0.1, 0.2]]}),
            Call("Field() of coordinates", lambda x, y: u(x, y), x=[0.1, 0.2], y=0.2),
            Call("Field item", lambda i: u[i], i=0),
            Call("Space.interpolate", space.interpolate, field=self.other.zeros("coeff"), tolerance=1e-10),
            Call("Field.plot", u.plot, component=0, name="u", edges=True, cmap="viridis", limits=(0.0, 1.0)),
            Call("Field.to_pyvista", u.to_pyvista, name="u", subdivide=2),
            Call("Field.dot", u.dot, other=self.dual),
            Call("Field.at", u.at, points=[[0.1, 0.2]]),
            Call("Field.times", lambda a: values * a if isinstance(a, (int, float, np.number, hp.Field)) else 0, a=2.0),
            Call("Field.over", lambda a: values / a if isinstance(a, (int, float, np.number, hp.Field)) else 0, a=2.0),
            Call("Field.plus", lambda a: values + a if isinstance(a, (int, float, np.number, hp.Field)) else 0, a=2.0),
            Call("C0Space", hp.C0Space, space=space),
            Call("C0Space.project", c0.project, function=lambda x, y: x),
            Call("C0Space.scatter", c0.scatter, vector=self.b, out=None),
            Call("C0Space.gather", c0.gather, field=self.dual),
            Call("C0Space.average", c0.average, field=u),
            Call("C0Space.allgather", c0.allgather, vector=self.b),
            Call("C0Space.local", c0.local, vector=self.b),
        ]  # fmt: skip

    def _operators(self) -> list[Call]:
        space, u, values = self.space, self.u, self.values
        options = {"strategy": "auto", "algorithm": "auto", "backend": "numpy"}
        transform, options = options, {**options, "precision": "full"}
        plain = [name for name in OPERATORS if name not in ("AdvectionDiffusionReaction", "FwdTrans", "Helmholtz")]

        def weak(u: Any, du: Any, k: Any) -> Any:
            return k * u, du

        form = {
            "space": space, "pointwise": weak, "trial": ("value", "grad"), "test": ("value", "grad"),
            "fields": {"k": 1.0}, "components": 1, **options,
        }  # fmt: skip
        velocity = space.evaluate(lambda x, y: [x, y])
        return [
            *(Call(name, getattr(hp, name), space=space, **options) for name in plain),
            Call("FwdTrans", hp.FwdTrans, space=space, **transform),
            Call("Helmholtz", hp.Helmholtz, space=space, lam=1.0, diffusivity=1.0, **options),
            Call("AdvectionDiffusionReaction", hp.AdvectionDiffusionReaction, space=space, velocity=[1.0, 0.0],
                diffusivity=1.0, reaction=0.0, **options),
            Call("Helmholtz region", lambda k: hp.Helmholtz(space, lam=1.0, diffusivity={"all": k}), k=1.0),
            Call("Helmholtz tensor", lambda k: hp.Helmholtz(space, 1.0, [[k, 0.5], [0.5, 2.0]]), k=1.0),
            Call("WeakForm", hp.WeakForm, **form),
            Call("OperatorSum", hp.OperatorSum, summands=[hp.Mass(space)], factors=[2.0]),
            Call("AtPoints", hp.AtPoints, **({"space": space, "pointwise": lambda u, k: k * u, "fields": {"k": 1.0},
                "components": 1, "target": None} | options)),
            Call("integrate region", lambda r: space.integrate(u, r), r="all"),
            Call("Energy", lambda k, n: hp.Energy(space, lambda u, k: k, {"k": k}, n), k=1.0, n=1),
            Call("Energy()", hp.Energy(space, lambda u: u * u), u=u),
            Call("node_gradient", hp.node_gradient, form=hp.Mass(space), u=u, w=u, along=space.mesh.points),
            Call("linearised", lambda u, store: self.mass.linearised(u, store), u=u, store="cheap"),
            Call("linearised at", lambda u: self.mass.linearised(self.u).at(u), u=u),
            Call("pullback", lambda u, w, c: self.mass.pullback(u, w, None, c), u=u, w=u, c={"u": u}),
            Call("pushforward", lambda u, c: self.mass.pushforward(u, c), u=u, c={"u": u}),
            Call("pushforward of a sum", lambda c: (2.0 * self.mass).pushforward(u, c), c={"u": u}),
            Call("WeakForm on", lambda on: hp.WeakForm(space, lambda u: u, test="value", on=on), on="left"),
            Call("WeakForm on()", hp.WeakForm(space, lambda u: u, test="value", on="left"), field=u, out=None),
            Call("WeakForm field", lambda k: hp.WeakForm(**form | {"fields": {"k": k}}), k=1.0),
            Call("Mass()", hp.Mass(space), field=u, out=None),
            Call("Mass() of arrays", lambda a, out: hp.Mass(self.single)(a, out), a=np.ones((1, 2, 9), np.float32),
                out=np.ones((1, 2, 9), np.float32)),
            Call("BwdTrans()", hp.BwdTrans(space), field=u, out=None),
            Call("FwdTrans()", hp.FwdTrans(space), field=values, out=None),
            Call("PhysDeriv()", hp.PhysDeriv(space), field=values, out=None),
            Call("IProductWRTBase()", hp.IProductWRTBase(space), field=values, out=None),
            Call("IProductWRTDerivBase()", hp.IProductWRTDerivBase(space), field=velocity, out=None),
            Call("tune", hp.tune, space=space, operators=(), seconds=1e-3),
            Call("tune operator", lambda o: hp.tune(space, [o], 1e-9), o="FwdTrans"),
            Call("Operator.tune", lambda s: self.mass.tune(1e-9 if is_real(s) and s > 0 else s), s=1e-9),
            Call("Pointwise", Pointwise, function=weak, test=("value",)),
        ]  # fmt: skip

    def _solvers(self, folder: Any) -> list[Call]:
        space, c0 = self.space, self.c0
        helmholtz = {
            "space": space, "lam": 1.0, "f": 1.0, "dirichlet": None, "neumann": None, "robin": None,
            "diffusivity": None, "tol": 1e-8, "preconditioner": "jacobi", "max_iterations": None, "c0": c0,
            "components": 1, "bar": False, "precision": "full",
        }  # fmt: skip
        solve, solved = hp.solve_helmholtz, hp.Problem(space, lam=1.0, dirichlet={"left": 0.0}, c0=c0)
        A, M = self.A, hp.Multigrid(self.A)
        mapped = hp.SolutionMap(solved, {"lam": "number"}, f=1.0)
        return [
            Call("solve_helmholtz", solve, **helmholtz),
            Call("solve_helmholtz named", lambda d, n: solve(space, 1.0, 1.0, {"left": d}, {"right": n}, c0=c0), d=1.0,
                n=1.0),
            Call("Multigrid", hp.Multigrid, A=A, degree=2, dtype="float32", near_null="auto"),
            Call("Multigrid.refresh", M.refresh, A=A),
            Call("Multigrid.matvec", M.matvec, r=self.b),
            Call("Problem", hp.Problem, **({key: v for key, v in helmholtz.items() if key != "f"} | {"data_tol": 0.1})),
            Call("Problem.solve", hp.Problem(space, lam=1.0, c0=c0).solve, f=1.0, start=None, tol=None,
                max_iterations=None),
            Call("Problem of two components",
                lambda d, n, f: hp.Problem(space, 1.0, {"left": d}, {"right": n}, c0=c0, components=2).solve(f),
                d=1.0, n=(1.0, 2.0), f=(1.0, 2.0)),
            Call("Problem.update", lambda lam: hp.Problem(space, lam=1.0, c0=c0).update(lam), lam=2.0),
            Call("Problem.flux", lambda b: solved.flux(solved.solve(), b), b="left"),
            Call("solve_helmholtz robin", lambda r, a: solve(space, 1.0, robin=(a, r), c0=c0), r=1.0, a=1.0),
            Call("BoundaryConditions", hp.BoundaryConditions, c0=c0, dirichlet={"left": 0.0}, neumann={"right": 1.0},
                robin=None),
            Call("BoundaryConditions robin", lambda r: hp.BoundaryConditions(c0, robin={"left": r}), r=(1.0, 1.0)),
            Call("BoundaryConditions by component",
                lambda a, b: hp.BoundaryConditions(c0, {"left": (a, b)}, components=2), a=1.0, b=None),
            Call("GlobalOperator.right_hand_side", self.A.right_hand_side, functional=self.b),
            Call("BoundaryConditions name", lambda n: hp.BoundaryConditions(c0, {_key(n): 1.0}), n="left"),
            Call("GlobalOperator", hp.GlobalOperator, operator=self.mass, c0=c0, bc=self.bc, components=1),
            Call("GlobalOperator.apply", self.A.apply, vector=self.b),
            Call("cg", hp.cg, apply=self.A, rhs=self.b, precondition=None, tol=1e-8, max_iterations=None, start=None,
                name="CG", bar=False),
            Call("cg callable", hp.cg, apply=self.A.apply, rhs=self.b, precondition=lambda r: r, bar=False),
            Call("solve", hp.solve, A=self.A, b=self.b, preconditioner="jacobi", symmetric=True, definite=True,
                tol=1e-8, max_iterations=None, start=None, restart=10, name="it", bar=False),
            Call("solve matrix", hp.solve, A=np.eye(len(self.b)), b=self.b, start=None, bar=False),
            Call("solve field", hp.solve, A=self.A, b=self.dual, start=self.u, bar=False),
            Call("solve function", hp.solve, A=self.A.apply, b=self.b, preconditioner=lambda r: r, bar=False),
            Call("newton", hp.newton,
                residual=hp.WeakForm(space, lambda u, du, a: (u + a * u**3, du), fields={"a": 1.0}), c0=c0, bc=None,
                start=None, f=1.0, loads=None, parameters={"a": [1.0]}, tol=1e-8, max_steps=9, forcing=0.1,
                preconditioner="jacobi", symmetric=None, definite=None, max_iterations=None, restart=50, name="newton",
                bar=False),
            Call("SolutionMap", hp.SolutionMap,
                problem=hp.WeakForm(space, lambda u, du, a: (u + a * u**3, du), fields={"a": 1.0}),
                inputs={"a": "number"}, c0=c0, bc=None, f=1.0, start=None, tol=1e-8, max_steps=9,
                preconditioner="jacobi", symmetric=None, definite=None, max_iterations=None),
            Call("SolutionMap()", mapped, data={"lam": 1.0}),
            Call("SolutionMap.forward", mapped.forward, data={"lam": 1.0}, change={"lam": 1.0}, u=solved.solve().vector,
                along={"lam": 1.0}),
            Call("SolutionMap.pullback", mapped.pullback, data={"lam": 1.0}, w=self.b, u=None, along={"lam": 1.0}),
            Call("march", hp.march, residual=hp.WeakForm(space, lambda u, du, a: (u + a * u**3, du), fields={"a": 1.0}),
                u0=1.0, times=(0.0, 1e-3), c0=c0, bc=None, method="bs3", dt=1e-3, courant=0.9, tol=1e-2, mass=None,
                preconditioner="auto", parameters={"a": lambda t: 1.0 + t}, dirichlet=None, load=None, velocity=None,
                watch=None, save=[1e-3], checkpoint=None, name="march", bar=False),
            Call("GlobalOperator.diagonal", self.A.diagonal, elliptic=False),
            Call("l2_error", hp.l2_error, field=self.u, exact=lambda x, y: x + 1, relative=True, more=2),
            Call("h1_error", hp.h1_error, field=self.u, exact=lambda x, y: x + 1, gradient=lambda x, y: [1 + 0 * x, 0],
                relative=True, more=2),
            Call("l2_project", hp.l2_project, c0=c0, function=lambda x, y: x, tol=1e-8),
            Call("make_preconditioner", solvers.make_preconditioner, name="jacobi", A=self.A, definite=True),
            Call("point_source", solvers.point_source, c0=c0, point=[0.1, 0.2]),
            Call("ricker", solvers.ricker, frequency=1.0, delay=None),
            Call("write_vtu", partial(hp.write_vtu, folder / "a.vtu"), fields={"u": self.u}, subdivide=None,
                compress=False),
            Call("write_vtu named", lambda n, f: hp.write_vtu(folder / "a.vtu", {_key(n): f}), n="u", f=self.u),
        ]  # fmt: skip
