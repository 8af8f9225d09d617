"""Writers of a run's metrics: JSON lines, TensorBoard, and the progress line."""

import errno
import json
import math
import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.files import MAX_ROWS_BYTES, read_bytes
from longsum_jax.progress import Bar

METRICS = "metrics.jsonl"  # of a workdir


class MetricsFile:
    """Appends one JSON object per line to ``path``; every line has a "step".

    Args:
        path: path of the file; created if it does not exist.
        after_step: step after which lines are removed first, as is a line cut
            short by a crash, so that after a resume the file reads as if the
            run had never stopped.
        is_evaluated: True if the evaluation of ``after_step`` is complete;
            otherwise its line is also removed.

    Attributes:
        earlier: retained parsed lines of ``after_step``.

    Raises:
        InputError: the file cannot be read or written, or contains something
            else.
    """

    def __init__(
        self, path: Path, after_step: int, is_evaluated: bool = True
    ) -> None:
        self._path = path
        self.earlier: list[dict[str, Any]] = []
        try:
            if path.exists():
                self.earlier = _keep_earlier(path, after_step, is_evaluated)
            # Unbuffered, so that a crash loses no complete line.
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from error

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        """Writes one line; non-finite numbers become null.

        Raises:
            InputError: the disk is full, or the file cannot be written for
                another reason.
        """
        line = (
            json.dumps({"step": step, **finite(values)}, allow_nan=False) + "\n"
        )
        try:
            size = self._file.write(line.encode())
            # A short write means that the disk is full.
            if size < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"{self._path}: cannot be read or written ({error.strerror}); check the free space and "
            "permissions; the same command continues from the last checkpoint"
        )

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Writes scalars for TensorBoard with tensorboardX.

    Args:
        directory: directory of its files; created if it does not exist.
        after_step: step after which TensorBoard no longer shows values.
        is_evaluated: True if the evaluation of ``after_step`` is complete;
            otherwise values of that step are not shown either, and the ones to
            keep must be written again.

    Raises:
        InputError: tensorboardX is not installed.
    """

    def __init__(
        self, directory: Path, after_step: int, is_evaluated: bool = True
    ) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InputError(
                "training.tensorboard: needs the package tensorboardX; install it or switch this "
                "off"
            ) from error
        # TensorBoard hides the values of ``purge_step`` and later steps of
        # earlier files.
        self._writer = SummaryWriter(
            str(directory), purge_step=after_step + is_evaluated
        )

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        for name, value in flat_numbers(values).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


def flat_numbers(values: Mapping[str, Any]) -> dict[str, int | float]:
    """Returns the numbers of nested metrics under flat names, such as "eval/rouge1"."""
    flat: dict[str, int | float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            inner = flat_numbers(value)
            flat |= {f"{name}/{key}": number for key, number in inner.items()}
        elif isinstance(value, int | float):
            flat[name] = value
    return flat


class _Mark(NamedTuple):
    """The time at which a step ended, and sums over all steps up to it."""

    time: float
    tokens: float
    shortest_seconds: float


class Throughput:
    """The speed of the last steps; `restart` excludes a pause."""

    def __init__(self, steps: int = 20) -> None:
        self._marks: deque[_Mark] = deque(maxlen=steps + 1)
        self._tokens = self._shortest_seconds = 0.0
        self.restart()

    def restart(self) -> None:
        self._marks.clear()
        self._mark()

    def add(self, tokens: float, shortest_seconds: float = 0.0) -> float:
        """Counts a finished step, and returns the tokens per second.

        Args:
            tokens: number of tokens of the step.
            shortest_seconds: seconds that the step's products take at the peak
                rate of the devices; 0 if unknown.
        """
        self._tokens += tokens
        self._shortest_seconds += shortest_seconds
        self._mark()
        return (self._marks[-1].tokens - self._marks[0].tokens) / self._seconds

    @property
    def seconds_per_step(self) -> float:
        """Mean seconds of the last steps, after at least one step."""
        return self._seconds / (len(self._marks) - 1)

    @property
    def utilization(self) -> float:
        """Share of the time that the products need at the peak rate; 0 if unknown."""
        first, last = self._marks[0], self._marks[-1]
        return (last.shortest_seconds - first.shortest_seconds) / self._seconds

    @property
    def _seconds(self) -> float:
        return max(self._marks[-1].time - self._marks[0].time, 1e-9)

    def _mark(self) -> None:
        self._marks.append(
            _Mark(time.perf_counter(), self._tokens, self._shortest_seconds)
        )


class ProgressLine:
    """One line on standard error: steps done, loss, tokens per second, time left."""

    _FORMAT = (
        "{percentage:3.0f}% |{bar}| step {n_fmt}/{total_fmt} "
        "[{elapsed}, {remaining} left]{postfix}"
    )

    def __init__(self, steps: int, start: int, shown: bool) -> None:
        self._bar = Bar(
            total=steps,
            initial=start,
            unit="step",
            disable=not shown,
            bar_format=self._FORMAT,
            dynamic_ncols=True,
        )

    def update(
        self, loss: float, tokens_per_second: float, is_compiled: bool
    ) -> None:
        """Counts a step; ``is_compiled``: True if most of its time was compilation."""
        text = f"loss {loss:.4f}"
        if is_compiled:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update_untimed()
            return
        self._bar.set_postfix_str(
            f"{text}, {tokens_per_second:,.0f} tokens/s", refresh=False
        )
        self._bar.update()

    def close(self) -> None:
        self._bar.close()


def _keep_earlier(
    path: Path, after_step: int, is_evaluated: bool
) -> list[dict[str, Any]]:
    """Removes the lines of a metrics file that a run will write again; see `MetricsFile`.

    Returns:
        The parsed lines of ``after_step`` that are kept.
    """
    lines = read_bytes(path, MAX_ROWS_BYTES).splitlines(keepends=True)
    steps = [_step_of(line) for line in lines]
    # Only the last line may be incomplete, after a crash.
    if None in steps[:-1]:
        number = steps.index(None) + 1
        raise InputError(
            f"{path}, line {number}: not a line of metrics, the file is damaged; fix it or move "
            "it away"
        )
    retained, repeated = [], []
    for line, step in zip(lines, steps, strict=True):
        is_repeated = (
            step == after_step and not is_evaluated and b'"eval"' in line
        )
        if step is None or step > after_step or is_repeated:
            continue
        retained.append(line)
        if step == after_step:
            repeated.append(json.loads(line))
    if len(retained) < len(lines):
        atomic.write_text(path, b"".join(retained).decode())
    return repeated


def read_evaluations(
    path: Path, last_step: int, is_evaluated: bool
) -> list[dict[str, float]]:
    """Returns the scores of a run's evaluations so far, in order.

    Args:
        path: metrics file of the run, which need not exist.
        last_step: step of the run; later evaluations are left out.
        is_evaluated: True if the evaluation of ``last_step`` is complete;
            otherwise it is left out.
    """
    if not path.exists():
        return []
    evaluations = []
    for line in read_bytes(path, MAX_ROWS_BYTES).splitlines(keepends=True):
        step = _step_of(line)
        if step is None or b'"eval"' not in line:
            continue
        if step < last_step or (step == last_step and is_evaluated):
            evaluations.append(json.loads(line)["eval"])
    return evaluations


def _step_of(line: bytes) -> int | None:
    """Returns the step of a line, None if it was cut short or is not a line of metrics."""
    try:
        step = json.loads(line)["step"] if line.endswith(b"\n") else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None


def finite(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested values with None in place of non-finite numbers."""
    result = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = finite(value)
        elif isinstance(value, float) and not math.isfinite(value):
            value = None
        result[name] = value
    return result
