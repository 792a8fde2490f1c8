"""Messages beside results: warnings, and fallbacks, once each."""

from __future__ import annotations

import logging
import sys
import warnings

from ..errors import HpfemWarning

logger = logging.getLogger("hpfem")

# Messages by key, in a list whose order decides who was first; without a lock, which a fork could leave held.
_reports: dict[str, list[str]] = {}


def warn(message: str) -> None:
    """Give an `HpfemWarning` at the line of the user's code that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "hpfem":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HpfemWarning, stacklevel=level)


def report_once(key: str, message: str, level: int = logging.WARNING) -> bool:
    """Log a warning on the logger "hpfem", the first time that `key` comes up in this process."""
    mine = [message]
    if _reports.setdefault(key, mine) is not mine:
        return False
    logger.log(level, "%s", message)
    return True


def reports() -> dict[str, str]:
    """Tell everything reported so far in this process."""
    return {key: message for key, (message,) in list(_reports.items())}


def forget_reports() -> None:
    """Let everything be reported again."""
    _reports.clear()
