"""The file of a growing result, written during the run, at an interruption, and at the end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from ..support.files import write_json
from ..support.log import report_once
from . import output

# A long run is saved this often.
SAVE_SECONDS = 30.0

Result = Mapping[str, Any]


class ResultFile:
    """The file of a run's result. In a `with` block around the run, an interruption saves the result so far."""

    def __init__(self, path: Path | None, result: Callable[[bool], Result]) -> None:
        self.path = path
        self.result = result
        self._saved = time.monotonic()

    def __enter__(self) -> ResultFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and (trouble := self._save(False)):
            report_once(f"result/{self.path}", f"what was measured so far is lost: {trouble}")

    def save_sometimes(self) -> None:
        """Write the result so far, if the last time was long ago."""
        if time.monotonic() - self._saved > SAVE_SECONDS:
            self._save(False)
            self._saved = time.monotonic()

    def finish(self, arguments: argparse.Namespace, show: Callable[[Result], None]) -> None:
        """Write the result, and print it even if that failed."""
        trouble = self._save(True)
        result = self.result(True)
        output.show(arguments, result, lambda: show(result))
        if trouble is not None:
            raise trouble

    def _save(self, complete: bool) -> ArgumentError | None:
        result = self.result(complete)
        try:
            if self.path is not None and result["results"]:
                write_json(self.path, result)
        except ArgumentError as error:
            return error
        return None
