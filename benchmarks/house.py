"""Numbers of the house by folder: files, lines, lines of code, functions whose docstring is longer than the body.

python -m benchmarks.house [CHECKOUT]
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from benchmarks.script import markdown_table


def docstring(node: ast.AST) -> range:
    """Lines of the docstring of a module, class or function."""
    first = node.body[0] if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body else None
    text = first.value if isinstance(first, ast.Expr) else None
    return range(text.lineno, (text.end_lineno or 0) + 1) if isinstance(text, ast.Constant) else range(0)


def numbers(folder: Path) -> list[int]:
    """Files, lines, lines without docstrings, comments and blanks, and functions with long docstrings."""
    total = [0, 0, 0, 0]
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text)))
        documented = {number for node in nodes for number in docstring(node)}
        lines = [line for number, line in enumerate(text.splitlines(), 1) if number not in documented]
        code = sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
        long = sum(2 * len(docstring(f)) > (f.end_lineno or 0) - f.body[0].lineno + 1 for f in functions)
        total = [a + b for a, b in zip(total, (1, len(text.splitlines()), code, long), strict=True)]
    return total


if __name__ == "__main__":
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1])
    folders = ("hpfem", "shapes", "benchmarks", "tests", "examples")
    rows = [[name, *map(str, numbers(root / name))] for name in folders]
    print(markdown_table(["folder", "files", "lines", "of code", "docstring longer than the body"], rows))
