"""The record of a solve."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..support.notebook import Printed


@dataclass(frozen=True, eq=False, repr=False)
class SolveInfo(Printed):
    """How a solve went.

    Attributes
    ----------
    iterations : int
    residuals : list of float
        Norm of the recurred residual over that of the right-hand side, before the first and after each iteration; after
        a restart, the norm of the true residual.
    time : float
        Seconds, all together.
    operator_time, preconditioner_time : float
        Seconds in the operator and in the preconditioner. On a device that computes asynchronously this is the time to
        start them, without those in a graph.
    set_up_time : float
        Seconds before the first iteration: boundary conditions, right-hand side, preconditioner.
    compile_time : float
        Seconds of `time` in which compilers were waited for: machine code of new kernels, which is then kept on disk.
    preconditioner : str
        Its name: "none", "jacobi", "multigrid", or "user" for any other function.
    smoother_steps : int
        Steps of multigrid's smoother before and after each coarser level, by its table one more where that pays; 0
        without multigrid.
    method : str
        "cg", "minres" or "gmres".
    size : int
        Unknowns.
    residual : float
        Norm of the true residual b - A x over that of b, computed from the solution.
    incompatibility : {str: float}
        For a problem that determines u up to constants only: by part of the mesh (`solve_helmholtz`), the sum of the
        right-hand side over the sum of its absolute values; 0 up to rounding if there is a solution.
    phases : {str: float}
        Seconds of each part of the set-up. Printed, the record is a table of these and of the iterations.
    """

    iterations: int
    residuals: list[float] = field(repr=False)
    time: float
    operator_time: float = 0.0
    preconditioner_time: float = 0.0
    set_up_time: float = 0.0
    compile_time: float = 0.0
    preconditioner: str = "none"
    smoother_steps: int = 0
    method: str = "cg"
    size: int = 0
    residual: float = 0.0
    incompatibility: dict[str, float] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        iterating = self.time - self.set_up_time
        per = f", {1e3 * iterating / self.iterations:.3g} ms each" if self.iterations else ""
        steps = f" of {self.smoother_steps} step(s)" if self.smoother_steps else ""
        used = f"preconditioner {self.preconditioner}{steps}"
        lines = [f"{self.size} unknowns, {self.method}, {used}, residual {self.residual:.1e}"]
        lines += [f"  {name:<18}{seconds:9.3f} s" for name, seconds in self.phases.items()]
        lines.append(f"  {'iterations':<18}{iterating:9.3f} s   {self.iterations}{per}")
        if self.compile_time:
            lines.append(f"  {'of all, compiling':<18}{self.compile_time:9.3f} s   not again: kernels are kept on disk")
        return "\n".join(lines)

    __repr__ = __str__
