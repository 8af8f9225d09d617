"""Time limits of child processes."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def time_limit(
    process: subprocess.Popen[bytes], seconds: float
) -> Iterator[threading.Event]:
    """Kills a child process if the block takes too long.

    Args:
        process: child process, see ``kill``.
        seconds: maximum time of the block.

    Yields:
        An event that is set when the process is killed.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        kill(process)

    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a child process, and its own children if it was started with ``start_new_session``."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.name == "posix" and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
