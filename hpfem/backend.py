"""Backends: where kernels run, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .errors import ArgumentError, DeviceError
from .memory import HOST, Device
from .registry import Registry
from .reporting import report_once


@dataclass(frozen=True)
class Backend:
    """Where kernels run.

    Attributes
    ----------
    name : str
        "numpy", "cpu" or "cuda".
    device : callable
        () -> the memory its kernels read and write.
    missing : callable
        () -> None if it works here, else one sentence: what is missing and how to install it.
    """

    name: str
    device: Callable[[], Device]
    missing: Callable[[], str | None]

    def __reduce__(self) -> tuple[Callable[[str], Backend], tuple[str]]:
        # By name: where it is opened, the backend may have to be refused.
        return choose_backend, (self.name,)


BACKENDS: Registry[Backend] = Registry("backend")
# The order in which "auto" looks for a backend that works.
PREFERENCE = ("cpu", "numpy")

BACKENDS.add("numpy", Backend("numpy", lambda: HOST, lambda: None))


def checked_name(name: str) -> str:
    """Check that there is such a backend, whether or not it can run here.

    Parameters
    ----------
    name : str
        "auto" or the name of a backend.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ArgumentError
        For an unknown name.
    """
    if name != "auto" and name not in BACKENDS:
        raise ArgumentError(f"unknown backend {name!r}; valid: auto, {', '.join(BACKENDS)}")
    return name


def choose_backend(name: str) -> Backend:
    """Backend of that name, or the first that works for "auto".

    Parameters
    ----------
    name : str

    Returns
    -------
    Backend

    Raises
    ------
    ArgumentError
        For an unknown name.
    DeviceError
        If the backend cannot run here; the message says what is missing.
    """
    if name == "auto":
        for candidate in (BACKENDS[n] for n in PREFERENCE if n in BACKENDS):
            reason = candidate.missing()
            if reason is None:
                return candidate
            report_once(f"backend/{candidate.name}", f"backend {candidate.name!r} is not used: {reason}")
    backend = BACKENDS[checked_name(name)]
    reason = backend.missing()
    if reason is not None:
        raise DeviceError(f"backend {name!r} cannot run here: {reason}")
    return backend
