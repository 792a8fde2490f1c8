"""A model of gmsh's Python interface whose answers were recorded; `record_gmsh_files.py` records them."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).with_name("data")
KINDS = (list, tuple, np.ndarray)


def as_lists(answer):
    """An answer without NumPy, as gmsh gives it where that is not installed."""
    if isinstance(answer, KINDS):
        return [as_lists(own) for own in answer]
    return answer.item() if isinstance(answer, np.generic) else answer


class RecordedModel:
    """Answers by name and arguments of a call; of a real model they are recorded."""

    def __init__(self, name, model=None):
        self.path, self._model = FOLDER / f"{name}.json", model
        self.answers = {} if model else json.loads(self.path.read_text(encoding="utf-8"))
        self.mesh = self

    def save(self):
        """Write what was answered so far."""
        self.path.write_text(json.dumps(self.answers, separators=(",", ":")) + "\n", encoding="utf-8")

    def __getattr__(self, name):
        def call(*given):
            key = f"{name}{as_lists(given)}"
            if self._model is not None:
                own = getattr(self._model, name, None) or getattr(self._model.mesh, name)
                self.answers[key] = as_lists(own(*given))
            return self.answers[key]

        return call
