"""Examples, unchanged, in several processes: the numbers of one."""

import contextlib
import os

import numpy as np
import pytest

import hpfem as hp
from tests.test_examples import load


def alike(comm, name, function, keys, close, **options):
    """What an example finds in one process, and in all."""
    module, given = load(name), {}
    redirected = contextlib.redirect_stdout
    with open(os.devnull, "w") as nowhere, redirected(nowhere), pytest.MonkeyPatch.context() as patch:
        given["all"] = getattr(module, function)(**options)
        for maker in ("box", "read_mesh"):
            made = getattr(hp, maker)
            for place in (hp, module):
                if getattr(place, maker, None) is made:
                    patch.setattr(place, maker, _alone(made))
        given["one"] = getattr(module, function)(**options)
    given = {how: own if isinstance(own, dict) else own[0] for how, own in given.items()}  # or rows
    for key in keys:
        one, every = (np.asarray(given[which][key]) for which in ("one", "all"))
        assert np.abs(every - one).max() <= close * np.abs(one).max(), (name, key, one, every)


def _alone(made):
    return lambda *arguments, **options: made(*arguments, **{**options, "comm": hp.ALONE})


def eigenvalues(comm):
    """By SciPy, which has all unknowns in every process."""
    alike(comm, "eigenvalues", "main", ["values"], 1e-9, order=2, count=1, method="eigsh")


def wave(comm):
    """Steps, energies and what receivers hear."""
    keys = ["dt", "times", "energies", "traces"]
    alike(comm, "acoustic_wave", "main", keys, 1e-8, order=2, frequency=20.0, end=0.14)


def flow(comm):
    """Drag, lift, energy and dissipation; with numbers of the whole mesh on all processes."""
    keys = ["drag", "lift"]
    alike(comm, "incompressible_flow", "cylinder", keys, 1e-5, order=2, steps=2)


def nekbone(comm):
    """Iterations, and the work of all processes."""
    alike(comm, "nekbone", "main", ["iterations"], 0.03, counts=(3, 2, 2), order=4, lams=(0.1,), components=(2,))


def insulation(comm):
    """Shapes and costs: an optimiser on all processes, which takes the same steps."""
    alike(comm, "insulation", "main", ["cost", "solves", "flux"], 1e-6, waves=2, order=3, geometry=3, cells=(8, 1))
