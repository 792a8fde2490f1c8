"""Kernels of the CPU are compiled here as they are for users."""

import pytest

from hpfem.backends.cpu.runtime import geometry, kernel, passes, target


@pytest.fixture(scope="module", autouse=True)
def kernels_of_users():
    """At the level of users; what other tests compiled is forgotten, and theirs is not kept for others."""
    known = (kernel._specialised, geometry._specialised, passes.code_of, passes.code_of_pass)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "LEVEL", 1)
        for function in known:
            function.cache_clear()
        yield
    for function in known:
        function.cache_clear()
