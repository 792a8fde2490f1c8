"""Make the drawings of the theory pages: python docs/theory/drawings.py [FOLDER]."""

import sys
from itertools import combinations
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("agg")
import matplotlib.pyplot as plt

from hpfem.shapes import SHAPES, make_basis, make_rule

FOLDER = Path(__file__).resolve().parent.parent / "pictures"
# Vertices, edges, faces, interiors.
COLOURS = ("#c1440e", "#1f6f8b", "#3a7d44", "#b8b8b8")
NAMES = ("vertex", "edge", "face", "interior")
LINE = "#333333"
# Where the unit vectors of space are on the page.
VIEW = np.array([[1.0, 0.12], [0.45, 0.38], [0.0, 1.0]])
STYLE = {
    "font.size": 10,
    "svg.hashsalt": "hpfem",
    "svg.fonttype": "path",
    "axes.titlesize": 10,
    "lines.solid_capstyle": "round",
}


def sheet(columns, width=8.0, height=2.8, rows=1):
    """A figure of panels without axes."""
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), layout="constrained", squeeze=False)
    for axis in axes.flat:
        axis.set_aspect("equal")
        axis.axis("off")
    return figure, axes.ravel()


def collapsed(shape, eta):
    """Local coordinates of collapsed ones, by the definition of the cone: xi' = (1 + eta')(1 - z)/2 - 1."""
    xi = np.array(eta, dtype=float)
    built = {"tri": [1], "pyramid": [2], "prism": [1], "tet": [1, 2]}.get(shape, [])
    for direction in built:
        xi[..., :direction] = (1 + xi[..., :direction]) * (1 - xi[..., direction, None]) / 2 - 1
    return xi


def wires(dim, n, n_along=2):
    """Lines of a grid on all facets of the cube [-1, 1]^dim, as arrays [points, dim]."""
    ticks, along = np.linspace(-1, 1, n), np.linspace(-1, 1, n_along)
    for direction in range(dim):
        others = [k for k in range(dim) if k != direction]
        for index in np.ndindex(*(n,) * len(others)):
            if len(others) == 2 and not any(i in (0, n - 1) for i in index):
                continue
            line = np.empty((len(along), dim))
            line[:, direction] = along
            for k, i in zip(others, index):
                line[:, k] = ticks[i]
            yield line, all(i in (0, n - 1) for i in index)


def page(xi):
    """Places on the page of points in the plane or in space."""
    return xi if xi.shape[-1] == 2 else xi @ VIEW


def collapse():
    """Squares and cubes, and what becomes of them when a side shrinks to a point."""
    figure, axes = sheet(5, 9.0, 2.5)
    titles = {
        "quad": "quad",
        "tri": "tri = cone(segment)",
        "hex": "hex",
        "pyramid": "pyramid = cone(quad)",
        "tet": "tet = cone(tri)",
    }
    for axis, (shape, title) in zip(axes, titles.items()):
        dim = 2 if shape in ("quad", "tri") else 3
        for eta, edge in wires(dim, 7 if dim == 2 else 4):
            line = page(collapsed(shape, eta))
            axis.plot(*line.T, color=LINE if edge else COLOURS[1], lw=1.6 if edge else 0.5)
        if shape in ("tri", "pyramid", "tet"):
            apex = page(collapsed(shape, np.array([[0.0] * (dim - 1) + [1.0]])))[0]
            axis.plot(*apex, "o", color=COLOURS[0], ms=7)
        axis.set_title(title)
    return figure


def points():
    """Quadrature points of a quad and a tri: the same grid, collapsed."""
    figure, axes = sheet(2, 5.6, 2.9)
    ordinary, radau = make_rule("lobatto", 6).points, make_rule("radau", 5, alpha=1).points
    for axis, shape in zip(axes, ("quad", "tri")):
        ticks = ordinary if shape == "quad" else radau
        eta = np.stack(np.meshgrid(ordinary, ticks, indexing="ij"), axis=-1)
        corners = {"quad": [(-1, -1), (1, -1), (1, 1), (-1, 1)], "tri": [(-1, -1), (1, -1), (-1, 1)]}[shape]
        axis.fill(*np.transpose(corners), fill=False, ec=LINE, lw=1.5)
        axis.plot(*collapsed(shape, eta).reshape(-1, 2).T, "o", color=COLOURS[1], ms=4)
        axis.set_title(f"{shape}: {len(ordinary)} × {len(ticks)} points")
    return figure


def modes():
    """Modes of a quad and a tri of order 4 by their indices, coloured by what they belong to."""
    figure, axes = sheet(2, 7.0, 3.6)
    for axis, name in zip(axes, ("quad", "tri")):
        basis = make_basis("modified", SHAPES[name], 4)
        leaf, seen = 0, set()
        for p, count in enumerate(basis.tree.count[1]):
            for q in range(count):
                mode = basis.tree.leaf_to_mode[leaf]
                dim = basis.modes[mode].entity[0]
                colour = COLOURS[3] if dim == 2 else COLOURS[dim]
                axis.add_patch(plt.Rectangle((p - 0.45, q - 0.45), 0.9, 0.9, fc=colour, ec="none"))
                axis.text(p, q, str(mode), ha="center", va="center", color="black" if dim == 2 else "white")
                if mode in seen:
                    axis.annotate(
                        "the apex, once more", (p + 0.45, q + 0.2), (p + 1.6, q + 2.6), arrowprops={"arrowstyle": "->"}
                    )
                seen.add(mode)
                leaf += 1
            axis.text(p, -0.8, f"p = {p}", ha="center", va="center")
        axis.set(xlim=(-0.6, 4.6), ylim=(-1.1, 4.6), title=f"{name}, order 4: {basis.n_modes} modes")
    handles = [plt.Rectangle((0, 0), 1, 1, fc=c) for c in (COLOURS[0], COLOURS[1], COLOURS[3])]
    figure.legend(handles, ("vertex", "edge", "interior"), loc="outside lower center", ncols=3, frameon=False)
    return figure


def functions():
    """Functions of one direction of the modified basis."""
    figure, axis = plt.subplots(figsize=(6.0, 2.6), layout="constrained")
    z = np.linspace(-1, 1, 200)
    table = make_basis("modified", SHAPES["segment"], 5).table(0, z)
    table = table if table.shape[0] == 6 else table.T
    for p, values in enumerate(table):
        colour = COLOURS[0] if p < 2 else plt.get_cmap("viridis")((p - 2) / 4)
        axis.plot(z, values, color=colour, lw=2, label=f"$A_{p}$")
    axis.set(xlabel="z", xlim=(-1, 1))
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    return figure


def tree():
    """The mode tree of a tri of order 3."""
    basis = make_basis("modified", SHAPES["tri"], 3)
    figure, [axis] = sheet(1, 7.5, 2.6)
    axis.set_aspect("auto")
    counts, leaf, centres = basis.tree.count[1], 0, []
    first = {}
    for p, count in enumerate(counts):
        places = leaf + np.arange(count)
        centre = places.mean()
        centres.append(centre)
        axis.text(centre, 1, f"$A_{p}$", ha="center", va="center", bbox={"fc": "white", "ec": LINE})
        for place in places:
            mode = basis.tree.leaf_to_mode[place]
            dim = basis.modes[mode].entity[0]
            axis.plot([centre, place], [0.88, 0.14], color=LINE, lw=0.8)
            face = COLOURS[3] if dim == 2 else COLOURS[dim]
            ink = "black" if dim == 2 else "white"
            axis.text(place, 0, str(mode), ha="center", va="center", color=ink, bbox={"fc": face, "ec": "none"})
            if mode in first:
                path = {"arrowstyle": "<->", "connectionstyle": "arc3,rad=0.35", "color": COLOURS[0]}
                axis.annotate("", (place, -0.15), (first[mode], -0.15), arrowprops=path)
                axis.text((place + first[mode]) / 2, -0.95, "one mode: the apex", ha="center", color=COLOURS[0])
            first[mode] = place
        leaf += count
    for centre in centres:
        axis.plot([np.mean(centres), centre], [1.9, 1.12], color=LINE, lw=0.8)
    axis.text(np.mean(centres), 2, "root", ha="center", va="center", bbox={"fc": "white", "ec": LINE})
    for y, text in ((2, ""), (1, "first direction"), (0, "second direction")):
        axis.text(-0.8, y, text, ha="right", va="center")
    axis.set(xlim=(-3.2, leaf), ylim=(-1.05, 2.2))
    return figure


def box_of(axis, x, y, text, colour="white", width=1.9):
    """A box with a text."""
    axis.add_patch(plt.Rectangle((x - width / 2, y - 0.3), width, 0.6, fc=colour, ec=LINE, lw=1))
    axis.text(x, y, text, ha="center", va="center", fontsize=9)


def arrow(axis, x, y, text):
    """An arrow to the right, from place to place."""
    axis.annotate("", (x[1], y[1]), (x[0], y[0]), arrowprops={"arrowstyle": "->", "color": LINE})
    axis.text(np.mean(x), np.mean(y) + 0.1 + 0.25 * abs(y[1] - y[0]), text, ha="center", fontsize=9)


def algorithms():
    """Where the two algorithms differentiate."""
    figure, axes = sheet(1, 8.0, 4.6, rows=2)
    light = "#e3eef2"
    axis = axes[0]
    axis.set_title("noncollocated: the derivatives of the basis functions, once for each direction", loc="left")
    box_of(axis, 0, 0, "coefficients")
    box_of(axis, 8.4, 0, "functionals")
    for k, y in enumerate((1, 0, -1)):
        box_of(axis, 4.2, y, f"$∂u/∂η_{k + 1}$ at the points", light, 2.6)
        arrow(axis, (0.98, 2.85), (0.25 * y, y), f"$D_{k + 1}B$")
        arrow(axis, (5.55, 7.42), (y, 0.25 * y), f"$(D_{k + 1}B)^T$")
    axis.set(xlim=(-1.1, 9.5), ylim=(-1.5, 1.5))
    axis = axes[1]
    axis.set_title("collocated: to the points once, derivatives there", loc="left")
    box_of(axis, 0, 0, "coefficients")
    box_of(axis, 2.3, 0, "u at\nthe points", light, 1.2)
    box_of(axis, 6.1, 0, "sums at\nthe points", light, 1.2)
    box_of(axis, 8.4, 0, "functionals")
    arrow(axis, (0.98, 1.66), (0, 0), "$B$")
    arrow(axis, (6.74, 7.42), (0, 0), "$B^T$")
    for k, y in enumerate((1, 0, -1)):
        box_of(axis, 4.2, y, f"$∂u/∂η_{k + 1}$", light, 1.1)
        arrow(axis, (2.95, 3.62), (0.25 * y, y), f"$D_{k + 1}$")
        arrow(axis, (4.78, 5.46), (y, 0.25 * y), f"$D_{k + 1}^T$")
    axis.set(xlim=(-1.1, 9.5), ylim=(-1.5, 1.5))
    return figure


def sum_factorisation():
    """One dense matrix against one direction after the other."""
    figure, axes = sheet(1, 8.0, 2.7, rows=2)
    light = "#e3eef2"
    steps = ("$û_{pqr}$", "$Σ_r$", "$Σ_q$", "$Σ_p$")
    sizes = ("$(P+1)^3$", "$(P+1)^2 Q$", "$(P+1)\\,Q^2$", "$Q^3$")
    for axis, title in zip(axes, ("stdmat: one large matrix", "sumfac: one direction at a time")):
        axis.set_title(title, loc="left")
        axis.set(xlim=(-0.9, 9.2), ylim=(-0.45, 0.8))
    box_of(axes[0], 0, 0, f"modes: {sizes[0]}", light, 1.8)
    box_of(axes[0], 8.2, 0, f"points: {sizes[3]}", light, 1.8)
    arrow(axes[0], (0.95, 7.25), (0, 0), "every point from every mode: $Q^3 (P+1)^3$ multiplications")
    for k in range(4):
        box_of(axes[1], 8.2 / 3 * k, 0, sizes[k], light, 1.5)
        if k:
            arrow(axes[1], (8.2 / 3 * (k - 1) + 0.8, 8.2 / 3 * k - 0.8), (0, 0), steps[k])
    return figure


def geometry():
    """An affine and a deformed map of the reference quad."""
    figure, axes = sheet(3, 7.5, 2.8)
    maps = {
        "reference cell": lambda x, y: (x, y),
        "affine:\none Jacobian for the cell": lambda x, y: (x + 0.35 * y, 0.15 * x + 0.8 * y),
        "deformed:\na Jacobian at every point": lambda x, y: (
            x + 0.25 * y + 0.18 * (1 - y**2),
            0.2 * x * y + 0.85 * y + 0.25 * (1 - x**2),
        ),
    }
    nodes = make_rule("lobatto", 5).points
    grid = np.stack(np.meshgrid(nodes, nodes), axis=-1).reshape(-1, 2)
    for axis, (title, function) in zip(axes, maps.items()):
        for line, edge in wires(2, 7, 30):
            axis.plot(*function(*line.T), color=LINE if edge else COLOURS[1], lw=1.6 if edge else 0.5)
        axis.plot(*function(*grid.T), "o", color=COLOURS[0], ms=2.5)
        axis.set_title(title)
    return figure


def orientation():
    """An edge between two cells that see it in opposite directions, and its first functions."""
    figure, axes = plt.subplots(1, 3, figsize=(8.4, 2.5), layout="constrained", width_ratios=(1.5, 1, 1))
    axis = axes[0]
    axis.set_aspect("equal")
    axis.axis("off")
    axis.fill([0, 1.3, 1.3, 0], [0, 0, 1.3, 1.3], fc="#e3eef2", ec=LINE, lw=1.4)
    axis.fill([1.3, 2.5, 1.3], [0, 0.65, 1.3], fc="#f7e9e3", ec=LINE, lw=1.4)
    axis.annotate("", (1.18, 1.15), (1.18, 0.15), arrowprops={"arrowstyle": "->", "color": COLOURS[1], "lw": 2})
    axis.annotate("", (1.42, 0.15), (1.42, 1.15), arrowprops={"arrowstyle": "->", "color": COLOURS[0], "lw": 2})
    axis.set_title("the quad goes up the edge, the tri down")
    z = np.linspace(-1, 1, 100)
    table = make_basis("modified", SHAPES["segment"], 3).table(0, z)
    table = table if table.shape[0] == 4 else table.T
    for axis, p, title in zip(axes[1:], (2, 3), ("even: the same", "odd: the sign changes")):
        axis.plot(z, table[p], color=COLOURS[1], lw=2.5, label="quad")
        axis.plot(z, table[p][::-1], "--", color=COLOURS[0], lw=1.8, label="tri")
        axis.axhline(0, color=LINE, lw=0.5)
        axis.set(title=f"$A_{p}$ along the edge\n{title}", xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    axes[1].legend(frameon=False, loc="lower center")
    return figure


def continuity():
    """Unknowns of a quad and a tri of order 4 that share an edge."""
    figure, [axis] = sheet(1, 5.6, 2.9)
    quad = np.array([(0, 0), (1.4, 0), (1.4, 1.4), (0, 1.4)])
    tri = np.array([(1.4, 0), (2.7, 0.7), (1.4, 1.4)])
    axis.fill(*quad.T, fc="#f4f8fa", ec=LINE, lw=1.4)
    axis.fill(*tri.T, fc="#fbf4f0", ec=LINE, lw=1.4)
    edges = {(tuple(a), tuple(b)) for c in (quad, tri) for a, b in combinations(c, 2)}
    for a, b in edges - {((0, 0), (1.4, 1.4)), ((1.4, 0), (0, 1.4))}:
        for t in (0.25, 0.5, 0.75):
            axis.plot(*((1 - t) * np.array(a) + t * np.array(b)), "s", color=COLOURS[1], ms=6)
    for vertex in {tuple(v) for v in (*quad, *tri)}:
        axis.plot(*vertex, "o", color=COLOURS[0], ms=9)
    for x in (0.35, 0.7, 1.05):
        for y in (0.35, 0.7, 1.05):
            axis.plot(x, y, "D", color="#888888", ms=5)
    for x, y in ((1.7, 0.5), (1.7, 0.9), (2.1, 0.7)):
        axis.plot(x, y, "D", color="#888888", ms=5)
    handles = [plt.Line2D([], [], ls="", marker=m, color=c) for m, c in zip("osD", (*COLOURS[:2], "#888888"))]
    axis.legend(handles, ("vertex", "edge", "interior"), loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    return figure


def multigrid():
    """A V-cycle."""
    figure, [axis] = sheet(1, 7.5, 3.2)
    axis.set_aspect("auto")
    levels = ("order 8", "order 4", "order 2", "order 1", "algebraic multigrid\non the vertices")
    down = [(k, -k) for k in range(5)]
    up = [(8 - k, -k) for k in range(4)]
    path = np.array([*down, *up[::-1]])
    axis.plot(*path.T, color=LINE, lw=1.2, zorder=1)
    for (x, y), text in zip(down, levels):
        axis.text(-0.6, y, text, ha="right", va="center")
        axis.plot(x, y, "o", color=COLOURS[1] if y > -4 else COLOURS[0], ms=13, zorder=2)
    for x, y in up:
        axis.plot(x, y, "o", color=COLOURS[1], ms=13, zorder=2)
    axis.text(1.75, -1.1, "leave functions out", rotation=0, ha="left")
    axis.text(6.3, -1.1, "add the correction", ha="right")
    handles = [plt.Line2D([], [], ls="", marker="o", ms=10, color=c) for c in (COLOURS[1], COLOURS[0])]
    axis.legend(handles, ("smooth", "solve roughly"), frameon=False, loc="lower right")
    axis.set(xlim=(-3.2, 8.4), ylim=(-4.6, 0.4))
    return figure


DRAWINGS = (
    collapse,
    points,
    modes,
    functions,
    tree,
    algorithms,
    sum_factorisation,
    geometry,
    orientation,
    continuity,
    multigrid,
)


def main(folder=FOLDER):
    """Write all drawings.

    Parameters
    ----------
    folder : path
    """
    with plt.rc_context(STYLE):
        for draw in DRAWINGS:
            figure = draw()
            figure.savefig(Path(folder) / f"theory_{draw.__name__}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
