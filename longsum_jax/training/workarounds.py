"""Workarounds for Orbax and TensorStore: tracebacks of threads, and memory that is not freed."""

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
    """Silences background-thread tracebacks after a failed read or write.

    Returns a function that restores them. After a first error, TensorStore's
    threads continue to fail, and no one waits for them. The result must
    therefore only be called after success.
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
        # A hook that was installed in the meantime is kept, and may call ours.
        if sys.excepthook is uncaught:
            sys.excepthook = excepthook
        if sys.unraisablehook is unraisable:
            sys.unraisablehook = unraisablehook

    sys.excepthook, sys.unraisablehook = uncaught, unraisable
    return show


def disable_write_metrics() -> None:
    """Keeps Orbax from querying TensorStore in every save for the number of bytes written, for a
    log message: TensorStore (0.1.86) never frees the result.
    """
    # another version, which may query elsewhere
    with contextlib.suppress(ImportError):
        from orbax.checkpoint._src.serialization import tensorstore_utils

        tensorstore_utils.get_tensorstore_raw_bytes = lambda direction=None: 0


def release_memory() -> None:
    """Returns the memory that a save has freed to the operating system.

    Saves run in threads, and glibc keeps for each thread the peak memory of any
    of them, so that a process would grow with their number; allocators of other
    systems return it automatically.
    """
    trim = None
    if os.name == "posix":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _is_not_from_orbax(record: logging.LogRecord) -> bool:
    """Returns False for errors that Orbax logs, and for tracebacks that pass through it.

    A failed read or write reaches the caller as InputError; the tracebacks of
    Orbax's threads and of tasks that are never awaited would hide it.
    """
    if record.levelno >= logging.ERROR:
        files = [record.pathname]
    else:
        files = []
    if record.exc_info:
        frames = traceback.walk_tb(record.exc_info[2])
        files += [frame.f_code.co_filename for frame, _ in frames]
    return not any(file.startswith(_orbax()) for file in files)


@functools.cache
def _orbax() -> tuple[str, ...]:
    """Returns the directories of Orbax's modules; other paths may also contain its name."""
    spec = importlib.util.find_spec("orbax.checkpoint")
    directories = None
    if spec:
        directories = spec.submodule_search_locations
    return tuple(f"{directory}{os.sep}" for directory in directories or ())
