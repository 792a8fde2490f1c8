"""Keywords that nothing takes: the error names the one that was meant."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from typing import Any, get_args, get_type_hints

from ..errors import ArgumentError

_UNEXPECTED = re.compile(r"got an unexpected keyword argument '(.*?)'")
# Other words for the same.
_SAME = {"lam": "reaction", "reaction": "lam", "maxiter": "max_iterations"}


class KeywordError(ArgumentError, TypeError):
    """A call with a keyword that is not there."""


def name_near_keywords(called: Any) -> None:
    """Let a function of the package, or the methods of a class, name the keyword that is near one that is not there."""
    if inspect.isfunction(called):
        told = _told(called)
        name = called.__name__
        for key, module in list(sys.modules.items()):
            if key.partition(".")[0] == "hpfem" and vars(module).get(name) is called:
                setattr(module, name, told)
    for kind in called.__mro__ if isinstance(called, type) else ():
        for name, own in list(vars(kind).items()) if kind.__module__.startswith("hpfem.") else ():
            of_class = isinstance(own, (classmethod, staticmethod))
            method = own.__func__ if of_class else own
            plain = inspect.isfunction(method) and not hasattr(method, "__wrapped__")
            if plain and (name == "__init__" or not name.startswith("_")):
                setattr(kind, name, type(own)(_told(method)) if of_class else _told(method))


def _told(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError as error:
            found, trace = _UNEXPECTED.search(str(error)), error.__traceback__
            if found is None or trace is None or trace.tb_next is not None:
                raise  # not by this call
        called, name = function, function.__qualname__
        if function.__name__ == "__init__":
            made: Any = next(kind for kind in type(arguments[0]).__mro__ if kind.__module__.startswith("hpfem."))
            called, name = made.__init__, made.__name__
        wrong, known = found[1], list(_keywords(called))
        parts = [one for one in known if min(len(one), len(wrong)) > 2 and (one in wrong or wrong in one)]
        near = [one for one in (_SAME.get(wrong), *get_close_matches(wrong, known), *parts) if one in known]
        meant = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known) or 'no keywords'}"
        raise KeywordError(f"{name} takes no {wrong!r}; {meant}")

    return call


def _keywords(function: Callable[..., Any]) -> Iterator[str]:
    """Names of the arguments of a function, with those of its options."""
    for p in inspect.signature(function).parameters.values():
        if str(p.annotation).startswith("Unpack["):
            yield from get_args(get_type_hints(function)[p.name])[0].__annotations__
        elif p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in ("self", "cls"):
            yield p.name
