"""A traced pointwise function printed as C++."""

from __future__ import annotations

from ....forms.graph import OPERATIONS, TRANSCENDENTAL, Expression
from ....forms.trace import Trace

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_PLAIN = {"neg": "-", "abs": "fabs", "floor": "floor", "ceil": "ceil"}
# Operations up to which a pointwise function, and what it calls, is written out at every point: more would take minutes
# to compile. One that is called has its arguments and results in memory. A call of the library counts as `_CALLED`.
INLINED, _CALLED = 400, 40
_CALLS = ("sqrt", *TRANSCENDENTAL)


def _number(value: float) -> str:
    """A C++ expression of the working type with exactly this value, rounded to it."""
    if value != value:
        return "real(NAN)"
    if value in (float("inf"), float("-inf")):
        return "real(INFINITY)" if value > 0 else "real(-INFINITY)"
    return f"real({value!r})"


def _is_inlined(trace: Trace) -> bool:
    return trace.flops + (_CALLED - 1) * sum(node.op in _CALLS for node in trace.live) <= INLINED


def field_keys(trace: Trace) -> list[tuple[str, int]]:
    """Fields and their components that a trace reads, in the order of the kernel's numbering."""
    return [(key[1], key[2]) for key in trace.inputs if key[0] == "field"]


def parameter_names(trace: Trace) -> list[str]:
    """Parameters that a trace reads, in the order of the kernel's arguments."""
    return [key[1] for key in trace.inputs if key[0] == "param"]


class _Printer:
    """Statements of the nodes of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.fields = field_keys(trace)
        self.parameters = parameter_names(trace)
        self.inlined = _is_inlined(trace)

    def _name(self, node: Expression) -> str:
        if node.op == "const":
            return _number(node.payload)
        if node.op != "input":
            return f"v{node.index}"
        kind, *key = node.payload
        if kind == "field":
            return f"fields[{self.fields.index((key[0], key[1]))}]"
        if kind == "param":
            return f"parameters[{self.parameters.index(key[0])}]"
        return kind + "".join(f"[{i}]" for i in key)

    def _expression(self, node: Expression) -> str:
        a = [self._name(argument) for argument in node.args]
        op = node.op
        if op == "mul" and self.trace.graph.exact:
            return f"rounded_product({a[0]}, {a[1]})"
        if op in _INFIX:
            text = f"{a[0]} {_INFIX[op]} {a[1]}"
            return f"real({text})" if op in ("lt", "le", "gt", "ge") else text
        if op in _PLAIN:
            return f"{_PLAIN[op]}({a[0]})"
        if op == "sign":  # a NaN comes out
            return f"{a[0]} > 0 ? real(1) : {a[0]} < 0 ? real(-1) : {a[0]} + real(0)"
        if op in ("min", "max"):
            # As NumPy's: a NaN in either argument comes out.
            compare = "<" if op == "min" else ">"
            return f"{a[0]} {compare} {a[1]} || {a[0]} != {a[0]} ? {a[0]} : {a[1]}"
        if op == "where":
            return f"{a[0]} != real(0) ? {a[1]} : {a[2]}"
        if op in _CALLS:
            return f"real({op}({', '.join(a)}))" if self.inlined else f"called_{op}({', '.join(a)})"
        raise AssertionError(f"operation {op!r} has no C++ form")

    def _combination(self, terms: dict[int, Expression], a: int) -> str:
        parts = []
        for c, scale in terms.items():
            one = scale.op == "const" and scale.payload == 1.0
            parts.append(f"s[{c}][{a}]" if one else f"{self._name(scale)} * s[{c}][{a}]")
        return " + ".join(parts)

    def body(self, dim: int) -> list[str]:
        """Statements that compute everything and assign the results."""
        computed = [node for node in self.trace.live if node.op not in ("const", "input")]
        out = [f"const real v{node.index} = {self._expression(node)};" for node in computed]
        for c, value in enumerate(self.trace.value or ()):
            out.append(f"value[{c}] = {self._name(value)};")
        for c, terms in enumerate(self.trace.scaled or ()):
            out += [f"flux[{c}][{a}] = {self._combination(terms, a)};" for a in range(dim)]
        for c, vector in enumerate(self.trace.flux or ()):
            out += [f"flux[{c}][{i}] = {self._name(component)};" for i, component in enumerate(vector)]
        return out


def _called(op: str) -> str:
    """A function of the library that is not written out where it is called."""
    names = [f"a{i}" for i in range(OPERATIONS[op][0])]
    parameters = ", ".join(f"real {name}" for name in names)
    return f"HPFEM_CALLED real called_{op}({parameters}) {{ return real({op}({', '.join(names)})); }}"


def physics(trace: Trace | None, dim: int) -> str:
    """The function `physics` of a kernel's prelude."""
    body = [] if trace is None else _Printer(trace).body(dim)
    place, library = "HPFEM_DEVICE", []
    if trace is not None and not _is_inlined(trace):
        place, used = "HPFEM_CALLED", {node.op for node in trace.live}
        library = [_called(op) for op in _CALLS if op in used]
    return "\n".join(
        [
            *library,
            f"{place} void physics(const real (&u)[SOURCES], const real (&du)[SOURCES][SPACE],",
            "                          const real (&s)[SOURCES][DIM], const real (&x)[SPACE], const real *fields,",
            "                          const real *parameters, real (&value)[SINKS],",
            "                          real (&flux)[SINKS][VECTOR]) {",
            *(f"  {line}" for line in body),
            "}",
        ]
    )
