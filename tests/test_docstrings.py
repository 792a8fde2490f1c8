"""Docstrings: numpy's sections where people read them, a line or two elsewhere.

People read those of the public API, which are the names in a package's `__all__`, and of the extension points.
"""

import ast
import re

from hpfem.operators import OPERATORS
from tests.test_floors import MODULES

REFERENCE = re.compile(r"([Ss]ee|[Aa]s for|[Aa]s) `")
SECTION = re.compile(r"^\s*(Parameters|Returns|Yields|Raises)\n\s*-+$", re.MULTILINE)
# What another shape, operator, strategy, backend or format is made of: whole modules, or names in them.
EXTENSION_MODULES = {
    "hpfem.backends.base", "hpfem.backends.strategy", "hpfem.errors", "hpfem.forms.form", "hpfem.jax",
    "hpfem.operators.operator", "hpfem.shapes.shape", "hpfem.torch",
}  # fmt: skip
EXTENSIONS = {"Elements", "Format", "GeometryKind", "MeshFile", "canonical"}


def tree_of(module):
    """Syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def exported(tree):
    """Names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            yield from ast.literal_eval(node.value)


PACKAGES = {name.rpartition(".")[0] for name in MODULES}
PUBLIC = {name for module in PACKAGES & set(MODULES) for name in exported(tree_of(module))} | EXTENSIONS | {*OPERATORS}


def functions(tree, owner=()):
    """Functions and methods whose names and classes are not private, with the names that lead to them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from functions(node, (*owner, node.name))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield (*owner, node.name), node


def incomplete(tree, public):
    """Sections that docstrings of public functions lack, and those that docstrings of others have."""
    for names, node in functions(tree):
        text, decorators = ast.get_docstring(node) or "", [ast.unparse(part) for part in node.decorator_list]
        if "overload" in decorators:
            continue
        if not public(names[0]):
            if not text or SECTION.search(text):
                yield f"{'.'.join(names)}: {'sections' if text else 'nothing'}"
            continue
        if REFERENCE.search(text):
            continue
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        returns = "None" if node.returns is None else ast.unparse(node.returns)
        raises = any(isinstance(part, ast.Raise) and part.exc is not None for part in ast.walk(node))
        wanted = {
            "Parameters": {arg.arg for arg in given} - {"self", "cls"},
            "Returns": returns not in ("None", "NoReturn") and "\nYields\n---" not in text,
            "Raises": raises,
        }
        if any("property" in part or part.endswith(".setter") for part in decorators):
            wanted = {}
        for section, needed in wanted.items():
            if not text or (needed and f"\n{section}\n---" not in text):
                yield f"{'.'.join(names)}: {section}"


def test_functions_are_documented_for_their_readers():
    found = [
        f"{module}.{what}"
        for module in MODULES
        for what in incomplete(tree_of(module), lambda name, all_=module in EXTENSION_MODULES: all_ or name in PUBLIC)
    ]
    assert found == []


def test_what_is_missing_or_too_much_is_found():
    source = 'class A:\n    def f(self, x) -> int:\n        """One."""\n        raise E\n    def _g(self, x): pass\n'
    assert list(incomplete(ast.parse(source), "A".__eq__)) == ["A.f: Parameters", "A.f: Returns", "A.f: Raises"]
    assert list(incomplete(ast.parse(source.replace("One.", "One; see `B.f`.")), "A".__eq__)) == []
    assert list(incomplete(ast.parse(source), "B".__eq__)) == []
    long = source.replace("One.", "One.\n\n        Returns\n        -------\n        int\n        ")
    assert list(incomplete(ast.parse(long), "B".__eq__)) == ["A.f: sections"]
