"""Keeps the calling thread's alternate signal stack as it was.

OpenVINO 2026.4.1 gives the thread that compiles a model an alternate signal stack, and frees its memory with the model
without taking it back (seen on a CPU with AVX-512). Python's signal handlers run on that stack: the first Ctrl-C or
SIGTERM after a model was closed ends the process with a segmentation fault.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class SignalStack(ctypes.Structure):
    """stack_t of sigaltstack(2), as Linux lays it out."""

    _fields_ = (("base", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


@contextmanager
def signal_stack_kept() -> Iterator[None]:
    """Whatever happens inside, the thread has the signal stack afterwards that it had before; nothing outside Linux."""
    sigaltstack = getattr(ctypes.CDLL(None), "sigaltstack", None) if sys.platform == "linux" else None
    if sigaltstack is None:
        yield
        return
    before = SignalStack()
    sigaltstack(None, ctypes.byref(before))
    try:
        yield
    finally:
        sigaltstack(ctypes.byref(before), None)
