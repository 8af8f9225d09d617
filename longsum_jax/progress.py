"""Progress bars on standard error, which are printed as lines if it is not a terminal."""

import sys
import time
from typing import Any

from tqdm import tqdm

from longsum_jax.errors import terminal_text

_SECONDS = 30.0  # interval between lines


class Bar(tqdm):
    """A tqdm bar on a terminal; otherwise one line per half minute, and none for short tasks.

    Args:
        arguments, options: arguments of ``tqdm.tqdm``.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._is_animated = sys.stderr.isatty()
        if not self._is_animated:
            options |= {
                "mininterval": _SECONDS,
                "miniters": 1,
                "delay": _SECONDS,
            }
            options |= {"dynamic_ncols": False, "ncols": 0, "leave": False}
        super().__init__(*arguments, **options)

    def update_untimed(self) -> None:
        """Counts an item with an unrepresentative time, such as a step that is compiled."""
        self.n += 1
        self.initial = self.last_print_n = self.n
        self.last_print_t = time.time()
        if self._is_animated:
            self.refresh()

    def __str__(self) -> str:
        # A description may be the name of a file.
        return terminal_text(super().__str__())

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """See ``tqdm.tqdm``."""
        if self._is_animated:
            super().display(msg, pos)
        elif (
            pos is None
        ):  # otherwise the task is ending, and reports that itself
            print(self, file=self.fp, flush=True)
