"""Do the tests of `make test` find what those of `make test-all` find? Random changes of a line, each in a copy.

    python tests/mutations.py --seed 1 --number 64 --folder /tmp/mutations

Modules are drawn by their lines, without what needs a GPU. Tests are those of the folder named like the module's,
files that name what was changed first: the cases of `make test`, and where all pass, the rest.
"""

import argparse
import ast
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from itertools import permutations
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
# Where tests are whose folder is not named like the module's.
ELSEWHERE = {
    "backends/cpu/": ("backends/cpu/", "backends/test_guarded"), "backends/cuda/": ("backends/cuda/",),
    "backends/sharing": ("backends/", "test_sharing"), "mesh/distribute": ("mesh/", "distributed/"),
    "mesh/part": ("mesh/", "distributed/"), "plots/": ("benchmarks/",),
    "support/": ("support/", "test_faults", "test_interrupts", "test_messages", "test_processes"),
}  # fmt: skip
_RUNTIME = "cublas device kernel limits nccl peers scratch".split()
NEED_GPU = {f"hpfem/backends/cuda/runtime/{name}.py" for name in _RUNTIME}
PAIRS = ("Lt GtE", "Gt LtE", "Eq NotEq", "Is IsNot", "In NotIn", "And Or", "Add Sub", "Mult Div")
SWAPPED = {getattr(ast, old): getattr(ast, new) for pair in PAIRS for old, new in permutations(pair.split())}
SWAPPED[ast.FloorDiv] = ast.Mult
# Seconds of a test that hangs, bytes of a process.
HANGS, MEMORY = 240, 12 << 30


def changed(node):
    """The text that a mutation has in place of a node's, or None."""
    match node:
        case ast.Compare(ops=[old]) | ast.BinOp(op=old) | ast.BoolOp(op=old) if type(old) in SWAPPED:
            node.op, node.ops = SWAPPED[type(old)](), [SWAPPED[type(old)]()]
            return f"({ast.unparse(node)})"
        case ast.Constant(value=bool()):
            return str(not node.value)
        case ast.Constant(value=int() | float() as number):
            return repr(number + 1)
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(node.operand)})"
        case ast.Return(value=ast.expr()):
            return "return None"
        case ast.Assign([ast.Attribute() | ast.Subscript()]) | ast.Expr(ast.Call()) | ast.AugAssign():
            return "pass"
        case ast.Raise() | ast.Continue():
            return "pass"


def mutations(module, node, name=""):
    """Each (module, line, start, end, new text, name of the function or class) below a node."""
    name = getattr(node, "name", None) or name
    # Parts of f-strings have no places in Python 3.11.
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.FunctionDef) and "cupy" in ast.unparse(node)):
        return
    if (new := changed(node)) and node.lineno == node.end_lineno:
        yield module, node.lineno, node.col_offset, node.end_col_offset, new, name
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in ("annotation", "returns"):
                yield from mutations(module, child, name)


def drawn(seed, number):
    """Mutations: always the same for a seed and a state of the checkout."""
    files = [path.relative_to(ROOT) for top in ("hpfem", "shapes") for path in sorted((ROOT / top).rglob("*.py"))]
    texts = {str(path): (ROOT / path).read_text(encoding="utf-8") for path in files if str(path) not in NEED_GPU}
    weights, generator, result = [text.count("\n") for text in texts.values()], random.Random(seed), []
    while len(result) < number:
        module = generator.choices(list(texts), weights)[0]
        if places := list(mutations(module, ast.parse(texts[module]))):
            result.append(generator.choice(places))
    return result


def tests_of(module, name):
    """Files of a module's tests, those that name what was changed, or the module, first."""
    inside, stem = module.removeprefix("hpfem/"), Path(module).stem
    own = inside.partition("/")[0] + "/" if "/" in inside else f"test_{inside}"
    places = next((places for start, places in ELSEWHERE.items() if inside.startswith(start)), (own,))
    files = {str(file.relative_to(TESTS)): file.read_text(encoding="utf-8") for file in TESTS.rglob("test_*.py")}
    words = {
        file: {Path(file).stem, *re.findall(r"\w+", text)} for file, text in files.items() if file.startswith(places)
    }
    return [
        f"tests/{file}"
        for file in sorted(words, key=lambda file: [word not in words[file] for word in (f"test_{stem}", name, stem)])
    ]


def run(checkout, tests, marker):
    """Exit status of pytest in a checkout, and the test that failed or was the last."""
    contained = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"] if os.geteuid() == 0 else []
    command = [*contained, sys.executable, "-m", "pytest", "-x", "-v", "-p", "no:cacheprovider", "-m", marker, *tests]
    command += ["-o", f"faulthandler_timeout={HANGS}", "-o", "faulthandler_exit_on_timeout=true"]
    own = {"PYTHONPATH": checkout, "XDG_CACHE_HOME": checkout.parent / "cache", "OMP_NUM_THREADS": "1"}
    options = {"cwd": checkout, "env": {**os.environ, **own, "OPENBLAS_NUM_THREADS": "1"}, "start_new_session": True}
    options["preexec_fn"] = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with (checkout.parent / "output").open("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, **options)
        status = process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        text = output.read()
    failed = re.findall(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", text, re.MULTILINE)
    return status, (failed or re.findall(r"^(tests/\S+::\S+)", text, re.MULTILINE) or [None])[-1]


def caught(original, mutated, tests):
    """Which tests catch a mutation, "default", "full" or "none", and the one that fails."""
    unrelated = []
    for kind, marker in (("default", "not long"), ("full", "long")):
        # Status 5: there are no tests.
        while (ended := run(mutated, [*tests, *unrelated], marker))[0] not in (0, 5):
            failed = ended[1]
            if failed is None or failed in unrelated or run(original, [failed], "")[0] == 0:
                return kind, failed or "none starts"
            unrelated += ["--deselect", failed]
    return "none", None


def main():
    """Make the mutations of a seed that the results do not have yet, and test each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=64)
    parser.add_argument("--folder", type=lambda path: Path(path).resolve(), required=True, help="of copies and results")
    args = parser.parse_args()
    copies, results = [args.folder / name for name in ("original", "mutated")], args.folder / f"{args.seed}.jsonl"
    for copy in copies:
        if not copy.exists():
            subprocess.run(["git", "clone", "-q", ROOT, copy], check=True)
    done = [json.loads(line) for line in results.read_text("utf-8").splitlines()] if results.exists() else []
    for module, line, start, end, new, name in drawn(args.seed, args.number)[len(done) :]:
        text = (ROOT / module).read_bytes()
        lines = text.splitlines(keepends=True)
        before, lines[line - 1] = lines[line - 1], lines[line - 1][:start] + new.encode() + lines[line - 1][end:]
        (copies[1] / module).write_bytes(b"".join(lines))
        kind, by = caught(*copies, tests_of(module, name))
        (copies[1] / module).write_bytes(text)
        record = {"module": module, "line": line, "before": before.decode(), "after": lines[line - 1].decode()}
        done.append(record | {"caught": kind, "by": by})
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1], ensure_ascii=False) + "\n")
    sums = Counter(record["caught"] for record in done)
    print(dict(sums), "in", len({record["module"] for record in done}), "modules:", end=" ")
    print(f"{sums['default'] / (sums['default'] + sums['full']):.1%} of what is caught, by the default tests")


if __name__ == "__main__":
    main()
