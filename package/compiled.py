"""Kernels that are compiled when they are first needed.

Importing Numba and loading a compiled kernel takes a third of a second, a hundred times as long as to rank a thousand
images, and ten times as long as to make the visterms of one. So a kernel that a search calls has a plain form, too, in
NumPy or as it is written: it gives the same bytes. A process uses plain forms until they have taken `WORTH_COMPILING`
seconds, for small work alone.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any

WORTH_COMPILING = 0.2  # seconds
_lock = threading.RLock()
_waiting: list[Callable[[], object]] = []


class Kernel:
    """A function that Numba compiles at its first call, unless its plain form does the work.

    Of the globals of `function`, those that are kernels are compiled with it, with the `options` of ``numba.njit``. The
    plain form answers NotImplemented where the work is too large; True is `function` as it is written.
    """

    spent = 0.0  # seconds that plain forms took, of the process

    def __init__(self, function: FunctionType, options: dict[str, Any], plain: Any) -> None:
        self.__name__, self.__doc__, self.__wrapped__ = function.__name__, function.__doc__, function
        self._options, self._plain, self._compiled = options, plain, None

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain form while that pays, else the compiled one."""
        answer: Any = NotImplemented
        if self._plain is not None and Kernel.spent < WORTH_COMPILING:  # or many short calls would ask for it
            answer = while_it_pays(self.interpreted if self._plain is True else self._plain, *arguments)
        return self.compiled(*arguments) if answer is NotImplemented else answer

    @property
    def compiled(self) -> Any:
        """The dispatcher of Numba."""
        if self._compiled is None:
            from numba import njit

            with _lock:
                while _waiting:
                    _waiting.pop()()
                if self._compiled is None:
                    self._compiled = njit(**self._options)(self._calling("compiled"))
        return self._compiled

    @property
    def interpreted(self) -> Any:
        """The function without Numba: its plain form, if it has one, else as it is written."""
        return self._plain if callable(self._plain) else self._calling("interpreted")

    def _calling(self, form: str) -> FunctionType:
        """The function with a form of the kernels that it calls."""
        function = self.__wrapped__
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            if isinstance(names.get(name), Kernel | Imported):
                names[name] = getattr(names[name], form)
        made = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
        made.__qualname__ = function.__qualname__
        return made


@contextmanager
def when_loaded(call: Callable[[], object]) -> Iterator[None]:
    """Context that calls a function where Numba is loaded, or else once the first kernel loads it."""
    if "numba" in sys.modules:
        call()
    else:
        _waiting.append(call)
    try:
        yield
    finally:
        if call in _waiting:
            _waiting.remove(call)


def while_it_pays(plain: Callable[..., Any], *arguments: Any) -> Any:
    """Call a plain form, unless plain forms have taken the time in which kernels are loaded: then NotImplemented."""
    if Kernel.spent >= WORTH_COMPILING:
        return NotImplemented
    begun = time.thread_time()
    answer = plain(*arguments)
    if answer is not NotImplemented:
        Kernel.spent += time.thread_time() - begun
    return answer


class Imported:
    """What kernels use of a module that imports Numba."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    @property
    def compiled(self) -> Any:
        """What it is."""
        return getattr(import_module(self._module), self._name)


def njit(*, plain: Any = None, **options: Any) -> Callable[[Any], Any]:
    """``numba.njit`` at the first call; see `Kernel`."""
    return lambda function: Kernel(function, options, plain)
