"""SIGTERM and SIGINT as a request to finish the step, save and exit."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

import jax
import numpy as np

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# steps between agreements of the hosts, which wait for the devices
_AGREE_EVERY = 10


class Interrupts:
    """A context that records the first SIGTERM or SIGINT; a second signal has its normal effect.

    Outside the main thread, in which Python does not allow handlers, it records
    nothing.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._previous = {
                number: signal.signal(number, self._note) for number in _SIGNALS
            }
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def wanted(self, step: int) -> str | None:
        """Returns the name of the signal that asks to stop after ``step``, None to continue.

        With several hosts, all get the same answer at the same step, whichever
        host got the signal.
        """
        if jax.process_count() == 1:
            if self._received:
                return self._received.name
            return None
        if step % _AGREE_EVERY:
            return None
        from jax.experimental import multihost_utils

        numbers = multihost_utils.process_allgather(
            np.int32(self._received or 0)
        )
        if numbers.any():
            return signal.Signals(int(numbers.max())).name
        return None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._received = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            # otherwise another handler was installed
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)
        self._previous = {}
