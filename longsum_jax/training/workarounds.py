"""Workarounds for what Orbax and TensorStore leave behind: tracebacks of threads, and memory."""

import contextlib
import ctypes
import functools
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

_CLOSED = "Event loop is closed"


def hide_background_errors() -> Callable[[], None]:
    """Hides what follows from a failed read or write; returns what shows uncaught errors again.

    After a first error TensorStore's threads go on failing, and find nobody waiting. So the result
    is to be called only where all has gone well.
    """
    excepthook, unraisablehook = sys.excepthook, sys.unraisablehook
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_is_not_from_orbax)

    def uncaught(kind: Any, value: Any, where: Any) -> None:
        if str(value) != _CLOSED:
            excepthook(kind, value, where)

    def unraisable(args: Any) -> None:
        if str(args.exc_value) != _CLOSED:
            unraisablehook(args)

    def show() -> None:
        # A hook that somebody has set since then stays, and may call ours.
        if sys.excepthook is uncaught:
            sys.excepthook = excepthook
        if sys.unraisablehook is unraisable:
            sys.unraisablehook = unraisablehook

    sys.excepthook, sys.unraisablehook = uncaught, unraisable
    return show


def disable_write_metrics() -> None:
    """Keeps Orbax from asking TensorStore at every save how much it has written, for a line of its
    log: TensorStore (0.1.86) never frees its answers.
    """
    with contextlib.suppress(ImportError):  # of another version, which may ask elsewhere
        from orbax.checkpoint._src.serialization import tensorstore_utils

        tensorstore_utils.get_tensorstore_raw_bytes = lambda direction=None: 0


def release_memory() -> None:
    """Gives the memory that a save has freed back to the system.

    Saves run in threads, for each of which glibc keeps what any of them once needed, so a process
    would grow with their number; other systems' allocators return it by themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Returns False for errors that Orbax logs, and for tracebacks that lead through it.

    A failed read or write reaches the caller as InputError; the tracebacks of Orbax's threads and
    of its tasks that nobody waits for would bury it.
    """
    files = [record.pathname] if record.levelno >= logging.ERROR else []
    if record.exc_info:
        frames = traceback.walk_tb(record.exc_info[2])
        files += [frame.f_code.co_filename for frame, _ in frames]
    return not any(file.startswith(_orbax()) for file in files)


@functools.cache
def _orbax() -> tuple[str, ...]:
    """Returns the directories of Orbax's modules; other paths may have its name in them, too."""
    spec = importlib.util.find_spec("orbax.checkpoint")
    directories = spec.submodule_search_locations if spec else None
    return tuple(f"{directory}{os.sep}" for directory in directories or ())
