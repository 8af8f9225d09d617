"""Bars of progress on standard error, which are lines where that is a file."""

import sys
import time
from typing import Any

from tqdm import tqdm

_SECONDS = 30.0  # between lines


class Bar(tqdm):
    """A bar of tqdm on a terminal; elsewhere a line every half minute, none of a short task.

    Args:
        arguments, options: of ``tqdm.tqdm``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._is_animated = sys.stderr.isatty()
        if not self._is_animated:
            options |= {"mininterval": _SECONDS, "miniters": 1, "delay": _SECONDS}
            options |= {"dynamic_ncols": False, "ncols": 0, "leave": False}
        super().__init__(*arguments, **options)

    def update_untimed(self) -> None:
        """Counts one whose time says nothing of the others', such as a step that is compiled."""
        self.n += 1
        self.initial = self.last_print_n = self.n
        self.last_print_t = time.time()
        if self._is_animated:
            self.refresh()

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """See ``tqdm.tqdm``."""
        if self._is_animated:
            super().display(msg, pos)
        elif pos is None:  # else the task ends, and says so itself
            print(self, file=self.fp, flush=True)
