"""Public functions say what they take and return, in numpy's sections."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = [
    *(
        path
        for folder in ("shapes", "hpfem/vtu", "hpfem/cli", "hpfem/benchmarks", "hpfem/plots")
        for path in (ROOT / folder).glob("*.py")
    ),
    *(ROOT / "hpfem" / f"{name}.py" for name in ("space/locate", "support/log", "support/registry")),
]


def undocumented(tree):
    """Public functions and methods with parameters or results that no section of their docstring tells of."""
    for node in tree.body:
        # What a class takes over from a base is described there.
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not node.bases:
            yield from (f"{node.name}.{name}" for name in undocumented(node))
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        given = node.args
        names = {arg.arg for arg in [*given.posonlyargs, *given.args, *given.kwonlyargs]} - {"self", "cls"}
        text = ast.get_docstring(node) or ""
        if names and "\nParameters\n---" not in text:
            yield node.name
        silent = node.returns is None or ast.unparse(node.returns) in ("None", "NoReturn")
        is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if not silent and not is_property and "\nReturns\n---" not in text and "\nYields\n---" not in text:
            yield node.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_public_functions_have_their_sections(path):
    assert list(undocumented(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_a_function_without_sections_is_found():
    source = 'class A:\n    def f(self, x) -> int:\n        """One line."""\n\n    def _g(self, x):\n        pass\n'
    assert list(undocumented(ast.parse(source))) == ["A.f", "A.f"]
