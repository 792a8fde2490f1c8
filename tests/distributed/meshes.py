"""Meshes of all shapes, and parts of them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hpfem as hp

BOXES = {
    "quad": ("quad", 4), "tri": ("tri", 4), "hex": ("hex", 3), "prism": ("prism", 3), "pyramid": ("pyramid", 2),
    "tet": ("tet", 2), "mixed": (("hex", "prism", "pyramid", "tet"), (4, 2, 2)),
}  # fmt: skip


def whole(name, **options):
    """A box on every process."""
    return hp.box(*BOXES[name], comm=hp.ALONE, **options)


def bent(points):
    """Coordinates of a curved box."""
    x = points.copy()
    x[:, 0] += 0.1 * np.sin(2 * points[:, 1])
    x[:, 1] += 0.08 * points[:, 0] * points[:, -1]
    return x


def random_owners(mesh, comm, seed=0, ranks=None):
    """Every cell its own whim, of some ranks."""
    ranks = np.arange(comm.size) if ranks is None else np.asarray(ranks)
    return ranks[np.random.default_rng(seed).integers(len(ranks), size=mesh.n_cells)]


def partitions(comm, check, examples=8):
    """Check (mesh, part, order) for any partition of any mesh: every cell its own whim, all with one process, none."""
    name, order, ranks = map(st.sampled_from, (sorted(BOXES), (2, 3, 5), range(comm.size)))

    @settings(max_examples=examples)
    @given(name, st.integers(0, 2**30), order, st.sets(ranks, min_size=1), st.booleans())
    def same(name, seed, order, ranks, curved):
        # All processes take the same examples, so that none goes on alone.
        assert len(set(comm.allgather((name, seed, order, curved)))) == 1
        mesh = whole(name).elevated(2).transformed(bent) if curved else whole(name)
        check(mesh, hp.distribute(mesh, comm, owners=random_owners(mesh, comm, seed, sorted(ranks))), order)

    same()


def by_first(comm, make):
    """What the first process makes alone, on all of them; the others sleep, as they do not in MPI's broadcast."""
    made = make() if comm.rank == 0 else None
    comm.any(False)
    return comm.bcast(made)


def exact(x, *y):
    """A function that no space has."""
    return np.sin(2 * x) * np.exp(0.3 * sum(y))


def by_cell(field, comm):
    """Coefficients of a field of the whole mesh by the cells' numbers there, on every process: {cell: [c, modes]}."""
    mesh = field.space.mesh
    numbers = np.arange(mesh.n_cells) if mesh.part is None else mesh.part.cells
    own = {}
    for block, array in zip(field.space.blocks, field.arrays, strict=True):
        own |= dict(zip(numbers[block.elements].tolist(), array.swapaxes(0, 1), strict=True))
    if mesh.part is None:
        return own
    return {cell: array for part in comm.allgather(own) for cell, array in part.items()}


def difference(one, other):
    """Largest difference of two such, over the largest number."""
    assert one.keys() == other.keys()
    size = max(np.abs(array).max() for array in one.values())
    return max(np.abs(one[cell] - other[cell]).max() for cell in one) / size
