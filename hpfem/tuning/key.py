"""What the speed of a block operator depends on: the key of tuning results."""

from __future__ import annotations

import hashlib
import math

from ..backends.base import Backend
from ..forms.cost import operator_bytes
from ..forms.form import BlockProblem, Form
from ..forms.merged import merged_if_possible
from ..memory import HOST
from ..version import __version__

# Largest number of bytes that the timed part of a block moves: many times the size of the caches.
HOST_BYTES, DEVICE_BYTES = 1 << 27, 1 << 30


def form_key(form: Form) -> str:
    """Key of a form's computation, without its name: what it evaluates and tests, and the content of its function."""
    content = "" if form.trace is None else hashlib.sha256(repr(form.trace.key).encode()).hexdigest()[:16]
    sets = (form.source, *("+".join(term.what for term in terms) for terms in (form.trial, form.test)), form.sink)
    return f"{' '.join(sets)} {content}".strip()


def timed_elements(problem: BlockProblem, backend: Backend) -> int:
    """Elements of a block that are enough to measure its speed."""
    most = HOST_BYTES if backend.device().name == HOST.name else DEVICE_BYTES
    return min(problem.n_elements, max(1, most // operator_bytes(problem)))


def tuning_key(problem: BlockProblem, strategy: str, algorithm: str, backend: Backend) -> dict[str, str | int]:
    """Key of the tuning result of a problem."""
    basis, geometry = problem.tabulation.basis, problem.geometry
    rules = [f"{kind} {count} {alpha}" for kind, count, alpha in problem.tabulation.rule.key]
    constant = {"coefficients": "constant"} if merged_if_possible(problem) is not problem else {}
    return {
        **constant,
        "hpfem": __version__,
        "backend": backend.name,
        "device": backend.processor(),
        "form": form_key(problem.form),
        "components": problem.form.components,
        "shape": problem.shape.name,
        "basis": basis.name,
        "order": basis.order,
        "points": ", ".join(rules),
        "dtype": problem.dtype.name,
        **({"factors": problem.factors_dtype.name} if problem.factors_dtype != problem.dtype else {}),
        "geometry": geometry.kind.name,
        "dimension": geometry.space_dim,
        # Classes in powers of four of degrees of freedom; all very large blocks are in one class.
        "size": round(math.log(max(1, timed_elements(problem, backend) * problem.n_modes), 4)),
        "strategy": strategy,
        "algorithm": algorithm,
    }
