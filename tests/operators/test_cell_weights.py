"""Relative times of cells, with which meshes are distributed."""

import numpy as np

import hpfem as hp
from hpfem.tuning import Config, TuningRecord
from hpfem.tuning.key import tuning_key
from hpfem.tuning.store import keep


def test_expected_and_measured_times(tmp_path, monkeypatch):
    monkeypatch.setenv("HPFEM_CACHE_DIR", str(tmp_path))
    mesh = hp.box(("hex", "prism", "pyramid", "tet"), (4, 2, 2))
    space = hp.Space(mesh, 3, backend="cpu")
    A = hp.Helmholtz(space, lam=1.0)
    expected = A.cell_weights()
    of = {block.shape.name: expected[block.elements] for block in space.blocks}
    assert all(np.ptp(own) == 0 and own[0] > 0 for own in of.values())
    assert of["hex"][0] > of["prism"][0] > of["tet"][0]
    for number, asked in enumerate(A._asked()):
        assert np.array_equal(A.cell_weights(), expected)  # as long as a block is missing
        about = {"dofs_per_second": 1e6 * (number + 1)}
        keep(TuningRecord(tuning_key(*asked), Config("sumfac", None), 1.0, None, 1.0, True, 1, about))
    measured = A.cell_weights()
    for number, block in enumerate(space.blocks):
        assert np.allclose(measured[block.elements], block.n_modes / (1e6 * (number + 1)), rtol=1e-12)
    assert not np.array_equal(hp.Laplacian(space).cell_weights(), measured)  # was not tuned
