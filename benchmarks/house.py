"""Numbers of the house: lines of code, conditions on names, modules that name CUDA, circles, documented functions.

python benchmarks/house.py [CHECKOUT]
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

EMPTY = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def python_lines(path: Path) -> int:
    """Lines of code without docstrings, comments and blanks."""
    text = path.read_text(encoding="utf-8")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        first = node.body[0] if isinstance(node, documented) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            docstrings |= set(range(first.lineno, (first.end_lineno or 0) + 1))
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in EMPTY:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings)


def cuda_lines(path: Path) -> int:
    """Lines of code without comments and blanks."""
    return sum(bool(line.partition("//")[0].strip()) for line in path.read_text(encoding="utf-8").splitlines())


def main() -> None:
    """Print the numbers of a checkout."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent)
    python = {path: python_lines(path) for path in (root / "hpfem").rglob("*.py")}
    cuda = {path: cuda_lines(path) for path in (root / "hpfem").rglob("*.h")}
    print(f"lines of code: {sum(python.values())} Python in {len(python)} files, {sum(cuda.values())} CUDA")
    stages = sum(
        bool(re.search(r"\bstage\b.*(==|!=|\bin\b)|getattr\(self, .*stage|uses_gradient", line))
        for path in python
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.lstrip().startswith(("#", '"'))
    )
    stages += sum(len(re.findall(r"STAGE\s*(==|!=)", path.read_text(encoding="utf-8"))) for path in cuda)
    print(f"conditions on an operator's stage, or on what stands for it: {stages}")
    print("modules that name CUDA, circles, documented functions: pytest tests/test_house.py tests/test_docstrings.py")


if __name__ == "__main__":
    main()
