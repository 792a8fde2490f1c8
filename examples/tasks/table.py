"""Make the table of README.md: lines of code of each task, here and in NGSolve.

    python examples/tasks/table.py

Counted are lines with code: those that are blank, comments, docstrings or assertions are not, in files that one
formatter has formatted.
"""

import ast
import io
import tokenize
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
BEGIN, END = "<!-- the table, by table.py -->\n", "<!-- its end -->\n"
# What is not counted, and why.
WITHOUT = {
    "01_mesh": "no: its reader takes cells of order 2 at most, and not quads of nine nodes, as here",
    "15_picture": "no picture file: its viewer is a page in a browser, or a window",
}
NOTES = {
    "06_vtu": "cells of order 2 at most",
    "13_arrays": "NumPy and SciPy",
}


def lines_of_code(source):
    """Count lines with code."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if text or isinstance(node, ast.Assert):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def table():
    """The table, in Markdown."""
    rows = ["| task | hpfem | NGSolve | there |", "|---|---|---|---|"]
    for path in sorted(HERE.glob("[0-9]*.py")):
        peer = HERE / "ngsolve" / path.name
        source = path.read_text(encoding="utf-8")
        title = ast.get_docstring(ast.parse(source)).rstrip(".").replace("|", "\\|")
        theirs = str(lines_of_code(peer.read_text(encoding="utf-8"))) if peer.exists() else "–"
        note = WITHOUT.get(path.stem) or NOTES.get(path.stem, "")
        number = path.stem.partition("_")[0].lstrip("0")
        rows.append(f"| {number}. [{title}]({path.name}) | {lines_of_code(source)} | {theirs} | {note} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(before + BEGIN + table() + END + rest.split(END)[1], encoding="utf-8")
