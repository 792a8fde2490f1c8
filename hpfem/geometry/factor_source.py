"""Where a kernel has geometric factors from."""

from __future__ import annotations

from enum import StrEnum


class FactorSource(StrEnum):
    """Where a kernel has geometric factors from; the words are those of options, results and messages."""

    STORED = "stored"
    MERGED = "merged"
    RECOMPUTED = "recomputed"
    SCALED = "scaled"
    SCALED_MERGED = "scaled merged"

    @property
    def recomputes(self) -> bool:
        """Whether factors are recomputed from the elements' maps, and not read."""
        return self not in (FactorSource.STORED, FactorSource.MERGED)

    @property
    def scales(self) -> bool:
        """Whether w / |J| is read at every point beside the maps, instead of the division ([Cao] section 4.1.2)."""
        return self in (FactorSource.SCALED, FactorSource.SCALED_MERGED)

    @property
    def merges(self) -> bool:
        """Whether coefficients of the form are multiplied into what is read (`hpfem.forms.merged`)."""
        return self in (FactorSource.MERGED, FactorSource.SCALED_MERGED)
