"""Public functions say what they take, return and raise, in numpy's sections, or where that is said."""

import ast
import re

import pytest

from tests.test_floors import MODULES

REFERENCE = re.compile(r"([Ss]ee|[Aa]s for|[Aa]s) `")


def incomplete(tree, owner=""):
    """Public functions and methods with parameters, results or errors that their docstring does not tell of."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from incomplete(node, f"{node.name}.")
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_"):
            continue
        text, decorators = ast.get_docstring(node) or "", [ast.unparse(part) for part in node.decorator_list]
        if REFERENCE.search(text) or "overload" in decorators:
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
                yield f"{owner}{node.name}: {section}"


@pytest.mark.parametrize("module", [name for name in MODULES if not name.rpartition(".")[2].startswith("_")])
def test_public_functions_are_documented(module):
    assert list(incomplete(ast.parse(MODULES[module].read_text(encoding="utf-8")))) == []


def test_a_function_without_sections_is_found():
    source = 'class A:\n    def f(self, x) -> int:\n        """One."""\n        raise E\n    def _g(self, x): pass\n'
    assert list(incomplete(ast.parse(source))) == ["A.f: Parameters", "A.f: Returns", "A.f: Raises"]
    assert list(incomplete(ast.parse(source.replace("One.", "One; see `B.f`.")))) == []
