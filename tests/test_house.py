"""The house, as ARCHITECTURE says: no circles, backends known in their folders only, no operator in a condition."""

import ast
import functools
import re

import pytest

from tests.test_floors import MODULES, PACKAGE, ROOT, imports

BACKENDS = sorted(path.name for path in (PACKAGE / "backends").iterdir() if (path / "backend.py").exists())
# Where texts for people may name what they choose from.
FOR_PEOPLE = ("hpfem.cli", "hpfem.benchmarks", "hpfem.plots")


def parsed(module):
    """Syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def graph():
    """Modules of the package that each module imports."""
    found = {}
    for module, path in MODULES.items():
        targets = set()
        for name in imports(parsed(module), module, path.name == "__init__.py"):
            targets.add(name if name in MODULES else name.rpartition(".")[0])
        found[module] = targets & set(MODULES) - {module}
    return found


def circle(edges):
    """A circle of a graph, as a list of its nodes; None if there is none."""
    state, stack = {}, []

    def visit(node):
        state[node] = "open"
        stack.append(node)
        for target in sorted(edges[node]):
            if state.get(target) == "open":
                return stack[stack.index(target) :]
            if target not in state and (found := visit(target)):
                return found
        state[stack.pop()] = "done"
        return None

    return next((found for node in edges if node not in state and (found := visit(node))), None)


def names_in_code(tree):
    """Identifiers, and strings other than docstrings, of a module."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name) | ast.ImportFrom(module=str(name)):
                yield name
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                yield text


def named_conditions(tree, names):
    """Lines that compare something with the name of an operator."""
    for node in ast.walk(tree):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        parts += [node.value] if isinstance(node, ast.MatchValue) else []
        constants = [part for whole in parts for part in ast.walk(whole) if isinstance(part, ast.Constant)]
        if any(constant.value in names for constant in constants):
            yield node.lineno


def test_there_is_no_circle():
    assert circle(graph()) is None


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_is_imported_in_its_folder_only(backend):
    folder = f"hpfem.backends.{backend}"
    inside = [module for module in MODULES if module == folder or module.startswith(f"{folder}.")]
    found = {module: targets & set(inside) for module, targets in graph().items() if module not in inside}
    assert {module: targets for module, targets in found.items() if targets} == {
        "hpfem.backends": {f"{folder}.backend"}
    }


def test_no_other_module_names_cuda():
    for module in MODULES:
        if not module.startswith((*FOR_PEOPLE, "hpfem.backends.cuda")) and module != "hpfem.backends":
            names = (
                name for name in names_in_code(parsed(module)) if re.search("cuda|cupy|nvrtc", name, re.IGNORECASE)
            )
            assert list(names) == [], module


def test_no_condition_on_an_operator():
    import hpfem as hp
    from hpfem.operators import Operator

    names = {
        name for name in hp.__all__ if isinstance(getattr(hp, name), type) and issubclass(getattr(hp, name), Operator)
    }
    assert {"BwdTrans", "Helmholtz"} <= names
    found = {module: list(named_conditions(parsed(module), names)) for module in MODULES}
    assert {module: lines for module, lines in found.items() if lines} == {}


def test_a_condition_on_an_operator_is_found():
    source = "if form.name == 'Mass': pass\nmatch x:\n    case 'Mass': pass\ny = 'Mass' in z\nprint('Mass')"
    assert sorted(named_conditions(ast.parse(source), {"Mass"})) == [1, 3, 4]


def test_references_are_listed():
    listed = set(re.findall(r"^\| \[(\w+)\]", (ROOT / "REFERENCES.md").read_text(encoding="utf-8"), flags=re.MULTILINE))
    cited = set()
    papers = (path for path in (ROOT / "benchmarks" / "papers").rglob("*") if path.suffix in (".py", ".h"))
    for path in [*MODULES.values(), *PACKAGE.rglob("*.h"), *(ROOT / "examples").glob("*.py"), *papers]:
        text = path.read_text(encoding="utf-8")
        assert "DESIGN section" not in text, path
        cited |= set(re.findall(r"\[([A-Z]\w+)\](?= (?:eq|Alg|Fig|section|chapter)\b|[,:;.)]| [a-z]*$)", text))
    assert cited & listed == listed
    assert not {key for key in cited if key in {"X", "S", "C", "R"}}


def test_committed_results_are_cited_and_small():
    """`benchmarks/results` was most of the checkout; what no page or script names is not kept."""
    ignored = "reproduce.json"  # by git
    files = [path for path in (ROOT / "benchmarks" / "results").rglob("*.*") if path.name != ignored]
    assert sum(path.stat().st_size for path in files) < 20e6
    citing = [path for folder in ("", "benchmarks", "docs") for path in (ROOT / folder).glob("*.md")]
    citing += (ROOT / "benchmarks").rglob("*.py")
    texts = "".join(path.read_text(encoding="utf-8") for path in citing)
    # Of these a page or a test takes all that there are.
    groups = ("cycle_", "flow_", "reproduce_", "scaling_")
    assert [path.name for path in files if path.name not in texts and not path.name.startswith(groups)] == []


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_use_what_is_public(example):
    modules = {
        node.module
        for node in ast.walk(ast.parse(example.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("hpfem")
    }
    assert all(module.count(".") == 1 and module != "hpfem.support" for module in modules)


def test_tests_are_collected_without_vtk():
    """GPU machines lack it; see tests/lazy.py."""
    tests = (ROOT / "tests").rglob("*.py")
    assert [path for path in tests if re.search(r"^(import|from) (vtk|h5py)", path.read_text(), re.MULTILINE)] == []
