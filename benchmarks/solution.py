"""The waiting time of a user from a mesh to a solution, row by row, each in a process of its own.

    python -m benchmarks.solution -o OUT.json [ROW ...] [--backend cpu|cuda] [--small] [--before CHECKOUT]

By default all rows of the backend are measured. The processor's rows run on one core. A row that is not done within
its time says so. Kernels are compiled before, if a row is about the time without compilation. With --before each row
is measured with the code of another checkout first, as "ROW before": `git worktree add CHECKOUT COMMIT` makes one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import matmul
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array, kron

import hpfem as hp
from benchmarks.script import Content, run
from hpfem.backends import BACKENDS, vectors_on
from hpfem.backends.vectors import HOST_VECTORS
from hpfem.benchmarks import measure
from hpfem.benchmarks.global_phases import MeasuredOperator
from hpfem.benchmarks.problems import deformed, random_field
from hpfem.benchmarks.whole_solve import source as exact
from hpfem.mesh import box
from hpfem.solvers import make_preconditioner
from hpfem.solvers.multigrid.algebraic import AlgebraicMultigrid, Hierarchy
from hpfem.solvers.norms import load

# Seconds that a row may take.
LIMIT = 900
CACHE = Path(tempfile.gettempdir()) / "hpfem-solution"

Row = Callable[["Clock", bool], None]
ROWS: dict[str, dict[str, Row]] = {"cpu": {}, "cuda": {}}


class Clock:
    """Seconds of the phases of a row, and what else it measured."""

    def __init__(self) -> None:
        self.record: dict[str, Any] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what is done within."""
        synchronize()
        start = time.perf_counter()
        yield
        synchronize()
        self.record[name] = round(time.perf_counter() - start, 4)

    def median(self, name: str, call: Callable[[], Any], seconds: float = 1.0) -> float:
        """Median of the seconds of a call, after one that does not count."""
        call()
        times: list[float] = []
        while not times or (sum(times) < seconds and len(times) < 200):
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            times.append(time.perf_counter() - start)
        self.record[name] = float(np.median(times))
        return float(self.record[name])


def global_phases(A: Any, clock: Clock, preconditioner: str = "none", phases: tuple[str, ...] = ()) -> None:
    """Seconds of phases of a global operator, as `hpfem bench --benchmark bp3` measures them."""
    for timed in MeasuredOperator(A, preconditioner).phases(A.operator.space.n_cells):
        if timed.phase in phases:
            timing = measure(timed.call, A.operator.backend.timer(), 9, 0.02, timed.start, timed.steps)
            clock.record[timed.phase] = timing.median


def synchronize() -> None:
    """Wait for the GPU, if there is one in use."""
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.Device().synchronize()


def row(device: str) -> Callable[[Row], Row]:
    """Register a row of a device by the name of its function."""

    def add(function: Row) -> Row:
        ROWS[device][function.__name__] = function
        return function

    return add


def source(*x: Any) -> Any:
    """What -div grad u makes of it."""
    return 2.25 * len(x) * exact(*x)


def curved(mesh: Any) -> Any:
    """The mesh with cells of order 2, bent smoothly."""
    return mesh.elevated(2).transformed(deformed, check=False)


def solved(clock: Clock, mesh: Any, order: int, preconditioners: tuple[str, ...], backend: str) -> None:
    """A Poisson problem, all in."""
    space = hp.Space(mesh, order, backend=backend)
    for name in preconditioners:
        gc.collect()
        for again in ("first", "again"):
            with clock.phase(f"{name}, {again}"):
                u = hp.solve_helmholtz(space, lam=0.0, f=source, dirichlet=exact, preconditioner=name, tol=1e-8)
            clock.record[f"{name}, {again}, set-up"] = u.info.set_up_time
        clock.record[f"{name}, iterations"] = u.info.iterations
        clock.record["unknowns"] = u.info.size
    with clock.phase("error's time"):
        clock.record["error"] = hp.l2_error(u, exact)


def ngsolve_solved(clock: Clock, hexes: bool, n: int, order: int) -> None:
    """The same by NGSolve: static condensation and BDDC."""
    try:
        import ngsolve as ng
        from ngsolve.meshes import MakeStructured3DMesh
    except ImportError:
        clock.record["ngsolve"] = "not installed"
        return
    mesh = MakeStructured3DMesh(hexes=hexes, nx=n, ny=n, nz=n)
    x, y, z = ng.x, ng.y, ng.z
    u_exact = ng.sin(1.5 * x) * ng.sin(1.5 * y + 0.3) * ng.sin(1.5 * z + 0.6)
    with clock.phase(f"ngsolve {ng.__version__}"):
        fes = ng.H1(mesh, order=order, dirichlet=".*")
        u, v = fes.TnT()
        a = ng.BilinearForm(ng.grad(u) * ng.grad(v) * ng.dx, condense=True)
        f = ng.LinearForm(6.75 * u_exact * v * ng.dx)
        pre = ng.Preconditioner(a, "bddc")
        a.Assemble()
        f.Assemble()
        gf = ng.GridFunction(fes)
        gf.Set(u_exact, definedon=mesh.Boundaries(".*"))
        r = f.vec.CreateVector()
        r.data = f.vec - a.mat * gf.vec
        r.data += a.harmonic_extension_trans * r
        solver = ng.krylovspace.CGSolver(a.mat, pre.mat, tol=1e-8, maxiter=1000)
        gf.vec.data += solver * r
        gf.vec.data += a.harmonic_extension * gf.vec
        gf.vec.data += a.inner_solve * r
    clock.record["ngsolve, iterations"] = solver.iterations
    clock.record["ngsolve, error"] = float(ng.sqrt(ng.Integrate((gf - u_exact) ** 2, mesh)))


def mfem_solved(clock: Clock, hexes: bool, n: int, order: int) -> None:
    """The same by MFEM's serial library: partial assembly and the diagonal on hexes, a matrix and Gauss-Seidel on tets.

    Functions of the coordinates are Python's there, called point by point: what they take is shown apart.
    """
    try:
        import mfem.ser as mfem
    except ImportError:
        clock.record["mfem"] = "not installed"
        return

    class Function(mfem.PyCoefficient):  # type: ignore[misc]
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def EvalValue(self, x: Any) -> float:
            return float(self.scale * np.sin(1.5 * x[0]) * np.sin(1.5 * x[1] + 0.3) * np.sin(1.5 * x[2] + 0.6))

    kind = mfem.Element.HEXAHEDRON if hexes else mfem.Element.TETRAHEDRON
    mesh, f, u_exact = mfem.Mesh.MakeCartesian3D(n, n, n, kind), Function(6.75), Function(1.0)
    collection, one = mfem.H1_FECollection(order, 3), mfem.ConstantCoefficient(1.0)
    with clock.phase("mfem, space, operator, preconditioner and iterations"):
        space = mfem.FiniteElementSpace(mesh, collection)
        a, b, u = mfem.BilinearForm(space), mfem.LinearForm(space), mfem.GridFunction(space)
        u.Assign(0.0)
        boundary, fixed = mfem.intArray(mesh.bdr_attributes.Max()), mfem.intArray()
        boundary.Assign(1)
        space.GetEssentialTrueDofs(boundary, fixed)
        with clock.phase("mfem, of that functions of the coordinates"):
            b.AddDomainIntegrator(mfem.DomainLFIntegrator(f))
            b.Assemble()
            u.ProjectBdrCoefficient(u_exact, boundary)
        if hexes:
            a.SetAssemblyLevel(mfem.AssemblyLevel_PARTIAL)
        a.AddDomainIntegrator(mfem.DiffusionIntegrator(one))
        a.Assemble()
        A, rhs, x = mfem.OperatorPtr(), mfem.Vector(), mfem.Vector()
        a.FormLinearSystem(fixed, u, b, A, x, rhs)
        matrix = None if hexes else mfem.OperatorHandle2SparseMatrix(A)
        preconditioner = mfem.OperatorJacobiSmoother(a, fixed) if hexes else mfem.GSSmoother(matrix)
        solver = mfem.CGSolver()
        solver.SetRelTol(1e-8)
        solver.SetMaxIter(3000)
        solver.SetPrintLevel(0)
        solver.SetPreconditioner(preconditioner)
        solver.SetOperator(A.Ptr())
        solver.Mult(rhs, x)
        a.RecoverFEMSolution(x, b, u)
    clock.record["mfem, iterations"] = solver.GetNumIterations()
    clock.record["mfem, error"] = u.ComputeL2Error(u_exact)


def box_of(shape: str, clock: Clock, small: bool) -> None:
    """16^3 hexes, or boxes of six tets, P = 4, beside the peers."""
    n = 4 if small else 16
    solved(clock, box(shape, (n, n, n)), 4, ("jacobi", "multigrid"), "cpu")
    ngsolve_solved(clock, shape == "hex", n, 4)
    mfem_solved(clock, shape == "hex", n, 4)


def boxes(backend: str, shape: str, n: int, order: int, clock: Clock, small: bool) -> None:
    """n^3 hexes, or boxes of six tets."""
    solved(clock, box(shape, (4 if small else n,) * 3), order, ("jacobi", "multigrid"), backend)


ROWS["cpu"] |= {"box_hexes": partial(box_of, "hex"), "box_tets": partial(box_of, "tet")}
ROWS["cpu"]["box_tets_million"] = partial(boxes, "cpu", "tet", 33, 3)
ROWS["cuda"] |= {"gpu_hexes": partial(boxes, "cuda", "hex", 32, 7), "gpu_tets": partial(boxes, "cuda", "tet", 20, 4)}


@row("cpu")
def mixed_boxes(clock: Clock, small: bool) -> None:
    """Small problems on all shapes: the first solution of a process, and the next one."""
    for n, order in ((2, 2),) if small else ((4, 2), (4, 4), (2, 9)):
        inner = Clock()
        solved(inner, box(("hex", "prism", "pyramid", "tet"), (4, n, n)), order, ("multigrid",), "cpu")
        clock.record[f"P={order}"] = inner.record


def ball(cells: float) -> Path:
    """A gmsh file of a ball of about so many tets of order 2, made where there is none."""
    path = CACHE / f"ball_{cells:.0e}.msh"
    if path.exists():
        return path
    import gmsh

    CACHE.mkdir(exist_ok=True)
    size = (4 / 3 * np.pi / cells * 6 * 2**0.5 * 0.46) ** (1 / 3)
    options = {"General.Verbosity": 1, "Mesh.Algorithm3D": 10, "Mesh.Binary": 1}
    gmsh.initialize()
    for option in (options | dict.fromkeys(("Mesh.MeshSizeMin", "Mesh.MeshSizeMax"), size)).items():
        gmsh.option.setNumber(*option)
    gmsh.model.occ.addSphere(0, 0, 0, 1)
    gmsh.model.occ.synchronize()
    gmsh.model.addPhysicalGroup(3, [1], name="ball")
    gmsh.model.addPhysicalGroup(2, [tag for _, tag in gmsh.model.getEntities(2)], name="surface")
    gmsh.model.mesh.generate(3)
    gmsh.model.mesh.setOrder(2)
    unfinished = path.with_suffix(".unfinished.msh")
    gmsh.write(str(unfinished))
    gmsh.finalize()
    unfinished.rename(path)
    return path


@row("cpu")
def ball_tets(clock: Clock, small: bool) -> None:
    """A ball of 1.5e6 gmsh tets of order 2, P = 3: from the file to the first iteration."""
    path = ball(2e4 if small else 1.5e6)
    began = time.perf_counter()
    with clock.phase("reading"):
        mesh = hp.read_mesh(path)
    with clock.phase("space"):
        space = hp.Space(mesh, 3, backend="cpu")
    with clock.phase("continuous space"):
        c0 = hp.C0Space(space)
    with clock.phase("operator"):
        A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0)
    x = np.random.default_rng(0).standard_normal(c0.size)
    with clock.phase("first application"):
        A.apply(x)
    clock.record["ready but for the diagonal"] = time.perf_counter() - began
    clock.record |= {"cells": mesh.n_cells, "unknowns": c0.size, "memory, GB": peak()}
    clock.median("application", lambda: A.apply(x))
    with clock.phase("diagonal"):
        A.diagonal()
    clock.record["memory in the end, GB"] = peak()


@row("cpu")
def ball_solution(clock: Clock, small: bool) -> None:
    """The same ball: from the file to a solution to 1e-8 with multigrid, and a second one."""
    solutions(clock, lambda: hp.read_mesh(ball(2e4 if small else 1.5e6)), 3, "cpu")


def solutions(clock: Clock, make: Callable[[], Any], order: int, backend: str) -> None:
    """A mesh, a problem with multigrid, two solutions; with the processor's time, where others use the machine."""
    began, busy = time.perf_counter(), time.process_time()
    with clock.phase("mesh"):
        mesh = make()
    with clock.phase("space"):
        space = hp.Space(mesh, order, backend=backend)
    with clock.phase("problem"):
        problem = hp.Problem(space, lam=1.0, dirichlet=0.0, preconditioner="multigrid", tol=1e-8)
        synchronize()
    multigrid: Any = problem.preconditioner
    clock.record["of that, multigrid"] = multigrid.phases
    with clock.phase("solve"):
        u = problem.solve(source)
    clock.record["together"] = time.perf_counter() - began
    clock.record["processor's time together"] = time.process_time() - busy
    with clock.phase("solve again"):
        u = problem.solve(source)
    clock.record |= {"iterations": u.info.iterations, "iterating again": u.info.time - u.info.set_up_time}
    clock.record |= {"residual": u.info.residual, "unknowns": u.info.size, "memory, GB": peak()}


def parts_of(mesh: Any, order: int, backend: str) -> dict[str, Any]:
    """Seconds of all parts of a problem with multigrid that do not belong to the mesh and the space; iterations."""
    clock = Clock()
    space = hp.Space(mesh, order, backend=backend)
    with clock.phase("problem"):
        problem = hp.Problem(space, dirichlet=exact, preconditioner="multigrid", tol=1e-8, bar=False)
    multigrid: Any = problem.preconditioner
    for name in ("first solution", "another right-hand side"):
        with clock.phase(name):
            info = problem.solve(source).info
    made = round(problem.phases["preconditioner"], 4)
    record = {"operator and conditions": round(clock.record["problem"] - made, 4), "set-up": made} | clock.record
    record["together"] = record.pop("problem") + record["first solution"]
    return record | {"phases": multigrid.phases, "iterations": info.iterations, "unknowns": info.size}


PARTS = ("operator and conditions", "set-up", "first solution", "another right-hand side", "together")


def mixed_mesh(name: str, order: int, backend: str, clock: Clock, small: bool) -> None:
    """A curved mesh of all shapes, refined twice, and boxes of its shapes, straight and curved, as many unknowns: the
    first problem of a process and the fastest of the next three; per unknown, over the mean of the boxes.
    """
    file = Path(__file__).resolve().parent.parent / "meshes" / f"{name}.msh"
    makers: dict[str, Callable[[], Any]] = {name: lambda: hp.read_mesh(file).refined(0 if small else 2)}
    order, wanted = (2, 0) if small else (order, hp.C0Space(hp.Space(makers[name](), order)).size)
    shapes = [own.name for own in hp.read_mesh(file).shapes]
    for shape in shapes:
        across = hp.C0Space(hp.Space(box(shape, (2, 2, 2)), order)).size ** (1 / 3) - 1
        n = max(2, round(2 * (wanted ** (1 / 3) - 1) / across))
        makers[shape] = straight = partial(box, shape, (n, n, n))
        makers[f"curved {shape}"] = lambda straight=straight: curved(straight())
    passes = [{own: parts_of(make(), order, backend) for own, make in makers.items()} for _ in range(2 if small else 4)]
    rates = {}
    for own in makers:
        first, *others = (records[own] for records in passes)
        again = min(others, key=lambda record: record["together"])
        rates[own] = np.array([again[part] / again["unknowns"] for part in PARTS])
        each = dict(zip(PARTS, (1e6 * rates[own]).round(4).tolist(), strict=True))
        clock.record[own] = again | {"first": {part: first[part] for part in PARTS}, "microseconds an unknown": each}
    for kind in ("", "curved "):
        ratios = rates[name] / np.mean([rates[kind + shape] for shape in shapes], axis=0)
        clock.record[f"over the mean of the {kind}boxes"] = dict(zip(PARTS, ratios.round(3).tolist(), strict=True))


ROWS["cpu"]["curved_mixed"] = partial(mixed_mesh, "curved_mixed", 4, "cpu")
ROWS["cuda"]["pipe_mixed"] = partial(mixed_mesh, "pipe_mixed", 6, "cuda")


def peak() -> float:
    """Most memory that this process has had, in GB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


SIZES = {"hex": 10, "prism": 8, "pyramid": 6, "tet": 6, "quad": 60, "tri": 45}


@row("cpu")
def applications(clock: Clock, small: bool) -> None:
    """Element-local and global application, a CG iteration, SciPy's CSR product, diagonal: every shape and P."""
    for shape, n in SIZES.items():
        straight = box(shape, (n,) * (2 if shape in ("quad", "tri") else 3))
        for name, mesh in (("affine", straight), ("curved", curved(straight))):
            for order in (1, 2, 3) if small else range(1, 9):
                inner = Clock()
                space = hp.Space(mesh, order, backend="cpu")
                c0 = hp.C0Space(space)
                A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0)
                u = random_field(space, "coeff")
                out = A.operator(u)
                inner.median("operator", partial(A.operator, u, out=out), 0.2)
                global_phases(A, inner, "none", ("application", "iteration", "csr"))
                A.diagonal()
                with inner.phase("diagonal"):
                    A.diagonal()
                inner.record["unknowns"] = c0.size
                clock.record[f"{shape} {name} P={order}"] = inner.record
                print(shape, name, order, inner.record, file=sys.stderr, flush=True)


@row("cpu")
def heat(clock: Clock, small: bool) -> None:
    """Steps of the implicit heat equation through `solve_helmholtz`."""
    n = 4 if small else 12
    space = hp.Space(box("hex", (n, n, n)), 4, backend="cpu")
    c0 = hp.C0Space(space)
    dt, u = 1e-3, space.evaluate(exact)
    for step in range(3):
        with clock.phase(f"step {step}"):
            found = hp.solve_helmholtz(
                space, lam=1 / dt, f=u, dirichlet=exact, c0=c0, preconditioner="jacobi", tol=1e-8
            )
        u = hp.BwdTrans(space)(found)
        for array in u.arrays:
            array /= dt
        clock.record[f"step {step}, set-up"] = found.info.set_up_time


@row("cpu")
def importing(clock: Clock, small: bool) -> None:
    """Seconds of `import hpfem` in a fresh process."""
    code = "import time; t = time.perf_counter(); import hpfem; print(time.perf_counter() - t)"
    times = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(7)]
    clock.record["import"] = float(np.median(times[1:]))


def gpu_ready(shape: str, n: int, order: int, clock: Clock, small: bool) -> None:
    """A curved mesh in host memory to the first iteration: times of the third pass, the first two compile."""
    for count in (3, 4, 4) if small else (3, n, n):
        mesh = curved(box(shape, (count,) * 3))
        assert mesh.facets.cells.size  # topology is made before
        phases = Clock()
        began = time.perf_counter()
        with phases.phase("space"):
            space = hp.Space(mesh, order, backend="cuda")
        with phases.phase("continuous space"):
            c0 = hp.C0Space(space)
        with phases.phase("set-up"):
            A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0)
            A.apply(load(c0, source), A.device)
        synchronize()
        phases.record["ready but for the diagonal"] = time.perf_counter() - began
        with phases.phase("diagonal"):
            make_preconditioner("jacobi", A)
    clock.record |= phases.record | {"unknowns": c0.size, "memory, GB": peak()}


def gpu_solution(shape: str, n: int, order: int, clock: Clock, small: bool) -> None:
    """Two solutions on a curved mesh in host memory."""
    for count in (3, 4 if small else n):  # the first compiles
        inner = Clock()
        mesh = curved(box(shape, (count,) * 3))
        solutions(inner, lambda mesh=mesh: mesh, order, "cuda")
    clock.record |= inner.record


for _case in (("hex", 54, 4), ("hex", 31, 7), ("tet", 72, 3), ("tet", 54, 4)):
    ROWS["cuda"][f"gpu_ready_{_case[0]}_{_case[2]}"] = partial(gpu_ready, *_case)
for _case in (("hex", 54, 4), ("hex", 32, 7), ("tet", 72, 3), ("tet", 54, 4)):
    ROWS["cuda"][f"gpu_solution_{_case[0]}_{_case[2]}"] = partial(gpu_solution, *_case)


@row("cuda")
def gpu_iterations(clock: Clock, small: bool) -> None:
    """A CG iteration with stored factors."""
    sizes = (("hex", 80, 3), ("hex", 40, 6), ("tet", 72, 3), ("tet", 54, 4))
    for shape, n, order in sizes:
        space = hp.Space(curved(box(shape, (4 if small else n,) * 3)), order, backend="cuda")
        c0 = hp.C0Space(space)
        A = hp.GlobalOperator(hp.Helmholtz(space, lam=1.0), c0)
        inner = Clock()
        global_phases(A, inner, "jacobi", ("iteration",))
        seconds = inner.record["iteration"]
        rate = c0.size / seconds / 1e9
        clock.record[f"{shape} P={order}"] = {"unknowns": c0.size, "seconds": seconds, "GDoF/s": rate}
        print(clock.record, file=sys.stderr, flush=True)


def vertex_matrix(shape: str, n: int) -> Any:
    """The matrix of n^3 vertices of a box of hexes, or of the pattern of boxes of six tets; quickly, by products."""
    eye, K = eye_array(n), diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    M = diags_array([1 / 6, 2 / 3, 1 / 6], offsets=[-1, 0, 1], shape=(n, n)) if shape == "hex" else eye
    found = kron(kron(K, M), M) + kron(kron(M, K), M) + kron(kron(M, M), K)
    if shape == "tet":
        S = diags_array([1.0, 1.0], offsets=[0, 1], shape=(n, n))
        towards = kron(kron(S, S), S)
        found = found + 1e-3 * (towards + towards.T)
    return csr_array(found)


@row("cuda")
def gpu_vertices(clock: Clock, small: bool) -> None:
    """Algebraic multigrid of vertices, from a matrix on the host: set up by pyamg, and on the GPU the second time."""
    vectors = vectors_on(BACKENDS["cuda"].device())
    for n in (20,) if small else (46, 100, 144):
        for shape in ("hex", "tet"):
            A, component, inner = vertex_matrix(shape, n), np.zeros(n**3, np.int64), Clock()
            ways = {"pyamg": (HOST_VECTORS, n < 110), "GPU, first": (vectors, True), "GPU": (vectors, True)}
            for name, (where, wanted) in ways.items():
                if wanted:
                    with inner.phase(name):
                        made = Hierarchy.of(A, component, None, where)
                        M = AlgebraicMultigrid(made, vectors, np.float32)
                    inner.record[f"{name}, rows"] = made.sizes
                    b = vectors.xp.ones(A.shape[0], np.float32)
                    inner.median(f"{name}, cycle", partial(M, b), 0.05)
                    narrow = lambda r, M=M: M(r.astype(np.float32)).astype(np.float64)  # noqa: E731
                    product = partial(matmul, vectors.sparse(A))
                    _, info = hp.cg(product, b.astype(np.float64), narrow, tol=1e-8, bar=False)
                    inner.record[f"{name}, iterations"] = info.iterations
            there = vectors.sparse_library.csr_matrix(A)
            with inner.phase("GPU, from a matrix there"):
                AlgebraicMultigrid(Hierarchy.of(there, component, None, vectors), vectors, np.float32)
            clock.record[f"{shape}, {n**3} vertices"] = inner.record
            print(shape, n, inner.record, file=sys.stderr, flush=True)


def in_a_process(name: str, given: argparse.Namespace, code: str | None = None) -> dict[str, Any]:
    """Measure a row in a process of its own, with the code of a checkout or with this one."""
    root = Path(__file__).resolve().parent.parent if code is None else Path(code).resolve()
    environment = dict(os.environ) | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    if given.backend == "cpu":
        environment |= {"HPFEM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", __file__, name, "--alone", "--backend", given.backend]
    command += ["--small"] if given.small else []
    try:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=given.limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {given.limit:g} s"}
    if done.returncode:
        return {"failed": f"exit code {done.returncode}"}
    return dict(json.loads(done.stdout.splitlines()[-1].removeprefix(name.encode())))


def measure_rows(given: argparse.Namespace, content: Content) -> Iterator[None]:
    """Measure the rows that are asked for, one after the other."""
    rows = ROWS[given.backend]
    content["rows"] = {}
    for name in given.rows or rows:
        if given.alone:
            clock = Clock()
            rows[name](clock, given.small)
            content["rows"][name] = clock.record
            continue
        if given.before and not Path(given.before, "hpfem").is_dir():
            raise SystemExit(f"--before {given.before}: there is no checkout of hpfem there")
        codes = {f"{name} before": given.before} if given.before else {}
        for label, code in (codes | {name: None}).items():
            print(label, file=sys.stderr, flush=True)
            content["rows"][label] = in_a_process(name, given, code)
            yield
    yield


def text_of(content: Content) -> str:
    """A line for each row of a file."""
    return "\n".join(f"{name} {json.dumps(record)}" for name, record in content["rows"].items())


def main(arguments: Sequence[str] | None = None) -> Content:
    """Measure, print and write."""

    def add_options(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("rows", nargs="*", metavar="ROW", help="; ".join(map(", ".join, ROWS.values())))
        parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a row may take")
        parser.add_argument("--before", metavar="CHECKOUT", help="measure rows with its code, too")
        parser.add_argument("--alone", action="store_true", help="measure rows in this process")

    return run(__doc__, measure_rows, text_of, arguments, tuple(ROWS), add_options)


if __name__ == "__main__":
    main()
