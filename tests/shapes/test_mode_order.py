"""The mode order drawn in each shape's module is the one of the basis."""

import importlib
import re

import numpy as np

from hpfem.shapes import lattice, make_basis
from tests.cases import cases, each_shape

ORDER = 3
COUNTS = {  # as `exact.N_MODES`, which every basis is tested against
    "segment": "P + 1.",
    "quad": "(P+1)^2.",
    "tri": "(P+1)(P+2)/2.",
    "hex": "(P+1)^3.",
    "prism": "(P+1)^2 (P+2)/2.",
    "pyramid": "(P+1)(P+2)(2P+3)/6:",
    "tet": "(P+1)(P+2)(P+3)/6.",
}


def drawn(shape):
    """Modes by (p, q, r) from the picture in the docstring of a shape's module."""
    text = importlib.import_module(f"hpfem.shapes.{shape.name}").__doc__.split(f"Mode order at P = {ORDER}:")[1]
    rows = dict(re.findall(r"^ +(\w+) +\|(.*)$", text, flags=re.MULTILINE))
    if shape.dim == 1:
        numbers = zip(rows["p"].split(), rows["mode"].split(), strict=True)
        return {(int(p),): int(mode) for p, mode in numbers}
    found = {}
    for last, row in rows.items():
        for p, part in enumerate(row.split("|")):
            for q, mode in enumerate(part.split()):
                # A 2-D picture has no slices: its columns are p.
                index = (p, q, int(last)) if shape.dim == 3 else (q, int(last))
                found[index] = int(mode)
    return found


def numbered(tree):
    """Modes by the child number at every level of a tree."""
    columns, ancestor = [], np.arange(tree.n_leaves)
    for level in range(tree.dim, 0, -1):
        start = np.repeat(tree.start[level - 1], tree.count[level - 1])
        columns.append((tree.function(level) - start)[ancestor])
        ancestor = tree.parent(level)[ancestor]
    indices = np.column_stack(columns[::-1])
    return {tuple(index): mode for index, mode in zip(indices.tolist(), tree.leaf_to_mode.tolist(), strict=True)}


@each_shape()
def test_the_picture_is_the_mode_order(shape):
    basis = make_basis("modified", shape, ORDER)
    picture = drawn(shape)
    assert picture == numbered(basis.tree)
    assert set(picture.values()) == set(range(basis.n_modes))


@each_shape()
def test_the_mode_count_is_in_the_text(shape):
    text = importlib.import_module(f"hpfem.shapes.{shape.name}").__doc__
    assert f"Count {COUNTS[shape.name]}" in " ".join(text.split())


@cases(bases=("orthogonal",), orders=(1, 3, 6))
def test_orthogonal_modes_are_in_lattice_order(shape, order, basis):
    made = make_basis(basis, shape, order)
    assert [mode.indices for mode in made.modes] == [tuple(i) for i in lattice(shape, order).tolist()]
    assert list(numbered(made.tree)) == [mode.indices for mode in made.modes]
