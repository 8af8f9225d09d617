"""Reads the files written by runs, studies and plans, as arrays of numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.files import (
    MAX_ROWS_BYTES,
    open_regular,
    parse_json,
    read_bytes,
)

# Keys that a row of a study must have to be plotted.
STUDY_KEYS = (
    "encoder",
    "cross",
    "seed",
    "bits",
    "mean_rouge",
    "tokens_per_second",
)
MAX_POINTS = 1024  # half of the maximum length of a thinned curve
# Parts of a program's memory in a plan; the remainder of the total is inputs
# and others.
PLAN_PARTS = ("parameters", "optimizer", "temporary", "results", "idle")


class Curve(NamedTuple):
    """One quantity over the steps of a run."""

    steps: np.ndarray  # int64 [points]
    values: np.ndarray  # float64 [points], NaN for values that were not finite


class Run(NamedTuple):
    """The curves of one run by their names in metrics.jsonl, separately for evaluations."""

    name: str
    training: Mapping[str, Curve]
    evaluation: Mapping[str, Curve]


class RunReader:
    """Reads metrics.jsonl of a run that grows: at each call, only the new lines.

    Long curves are thinned to at most ``2 * MAX_POINTS`` means of neighboring
    points and the last point, so that all calls together take time proportional
    to the length of the file.

    Args:
        workdir: path of the training workdir.
    """

    def __init__(self, workdir: str | Path) -> None:
        self._workdir = Path(workdir)
        self._offset = self._num_lines = 0
        self._training: dict[str, ThinnedCurve] = {}
        self._evaluation: dict[str, ThinnedCurve] = {}

    def read(self) -> Run:
        """Returns the curves up to now; a line that is still being written is ignored.

        Raises:
            InputError: the file cannot be read, or a line is not a metrics line.
        """
        path = self._workdir / "metrics.jsonl"
        try:
            with open_regular(path) as file:
                file.seek(self._offset)
                content = file.read()
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give the --workdir of a training run"
            ) from error
        content = content[: content.rfind(b"\n") + 1]
        lines = content.decode(errors="replace").splitlines()
        rows = [
            _metrics_row(line, f"{path}:{number}")
            for number, line in enumerate(lines, self._num_lines + 1)
        ]
        for row in rows:
            _add_row(self._training, row["step"], row)
            if isinstance(row.get("eval"), dict):
                _add_row(self._evaluation, row["step"], row["eval"])
        self._num_lines += len(lines)
        self._offset += len(content)
        training, evaluation = (
            {name: curve.curve() for name, curve in sorted(curves.items())}
            for curves in (self._training, self._evaluation)
        )
        return Run(str(self._workdir), training, evaluation)


class ThinnedCurve:
    """A curve of bounded size that grows: means of equally many points, and the last point."""

    def __init__(self) -> None:
        self._sums = np.zeros((2 * MAX_POINTS, 4))  # see ``add``
        self._size = 1  # number of points of a complete row of sums
        self._count = 0  # number of rows
        self._last = (0, 0.0)

    def add(self, step: int, value: float) -> None:
        """Adds a point; values that are not finite do not affect means."""
        if not self._count or self._sums[self._count - 1, 0] == self._size:
            if self._count == len(self._sums):
                pairs = self._sums.reshape(MAX_POINTS, 2, 4).sum(axis=1)
                self._sums[:] = 0
                self._sums[:MAX_POINTS] = pairs
                self._count //= 2
                self._size *= 2
            self._count += 1
        is_finite = bool(np.isfinite(value))
        # points, sum of steps, finite points, sum of finite values
        self._sums[self._count - 1] += (
            1,
            step,
            is_finite,
            value if is_finite else 0.0,
        )
        self._last = (step, value)

    def curve(self) -> Curve:
        """Returns the points, the last one exactly."""
        num_points, steps, num_finite, values = self._sums[: self._count].T
        with np.errstate(invalid="ignore"):
            means = values / num_finite  # NaN if no value is finite
        steps = (steps / num_points).round().astype(np.int64)
        if num_points[-1] == 1:
            return Curve(steps, means)
        last_step, last_value = self._last
        return Curve(np.append(steps, last_step), np.append(means, last_value))


def read_run(workdir: str | Path) -> Run:
    """Reads metrics.jsonl of a training workdir.

    A last line that is still being written is ignored.

    Raises:
        InputError: the file is missing, a line is not a metrics line (the
            message names file and line), a value is not a number, or there are
            no steps.
    """
    path = Path(workdir) / "metrics.jsonl"
    lines = _finished_lines(path, "the --workdir of a training run")
    rows = [
        _metrics_row(line, f"{path}:{number}")
        for number, line in enumerate(lines, 1)
    ]
    if not rows:
        raise InputError(
            f"{path}: holds no step yet; wait for the run to write its first line"
        )
    evaluations = [
        {"step": row["step"], **row["eval"]}
        for row in rows
        if isinstance(row.get("eval"), dict)
    ]
    try:
        return Run(str(workdir), _curves(rows), _curves(evaluations))
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(
            f"{path}: a value is not a number ({error}); correct or delete its line"
        ) from None


def read_study(path: str | Path) -> list[dict[str, Any]]:
    """Reads results.jsonl of a study (studies/study.py), one row per model.

    A last line that is still being written is ignored.

    Raises:
        InputError: the file is missing, a line is not a row of a study (the
            message names file and line), or there are no rows.
    """
    lines = _finished_lines(Path(path), "results.jsonl of a study")
    rows = [
        _study_row(line, f"{path}:{number}")
        for number, line in enumerate(lines, 1)
    ]
    if not rows:
        raise InputError(
            f"{path}: holds no row yet; wait for the first model of the study"
        )
    return rows


def _finished_lines(path: Path, what: str) -> list[str]:
    """Returns the lines of a file, without an unfinished one; ``what`` is the file for errors."""
    try:
        text = read_bytes(path, MAX_ROWS_BYTES).decode(errors="replace")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give {what}"
        ) from error
    return text[: text.rfind("\n") + 1].splitlines()


def _metrics_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise InputError(
            f"{where}: not valid JSON ({error}); delete the line"
        ) from None
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise InputError(
            f'{where}: not a line of metrics, which have a "step"; delete the line'
        )
    return row


def _study_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
        encoder, cross, *numbers = [row[key] for key in STUDY_KEYS]
        if not (
            isinstance(encoder, str)
            and isinstance(cross, str)
            and all(isinstance(number, int | float) for number in numbers)
        ):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{where}: not a row of a study; delete the line"
        ) from None
    return row


def _add_row(
    curves: dict[str, ThinnedCurve], step: int, row: Mapping[str, Any]
) -> None:
    """Adds the numbers of a row to their curves; null in a curve means not finite."""
    for name, value in row.items():
        is_missing = value is None and name in curves
        if name != "step" and (is_missing or isinstance(value, int | float)):
            curve = curves.setdefault(name, ThinnedCurve())
            curve.add(step, np.nan if value is None else float(value))


def _curves(rows: Sequence[Mapping[str, Any]]) -> dict[str, Curve]:
    """Returns a curve for each numeric key of the rows."""
    names: set[str] = set()
    for row in rows:
        names |= {
            name
            for name, value in row.items()
            if isinstance(value, int | float)
        }
    names -= {"step"}
    return {
        name: _curve([row for row in rows if name in row], name)
        for name in sorted(names)
    }


def _curve(rows: Sequence[Mapping[str, Any]], name: str) -> Curve:
    # null means a value that was not finite.
    values = [np.nan if row[name] is None else row[name] for row in rows]
    steps = [row["step"] for row in rows]
    return Curve(np.array(steps, np.int64), np.array(values, np.float64))


def read_plan(path: str | Path) -> dict[str, Any]:
    """Reads a plan written by ``longsum plan --out``.

    Raises:
        InputError: the file is missing or not a plan.
    """
    try:
        plan = parse_json(read_bytes(path))
        names, _ = plan_bars(plan)
        # The size is None if it is unknown.
        _ = (plan["device_memory_bytes"] or 0) / 1e9
        _ = plan["num_devices"], plan["title"]
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); give the --out of longsum plan"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError):
        names = []
    if not names:
        raise InputError(
            f"{path}: holds no plan; give the --out of longsum plan"
        )
    return plan


def plan_bars(
    plan: Mapping[str, Any],
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Returns the names of a plan's programs, and the size of each part of their memory in GB.

    Args:
        plan: plan from ``read_plan``.

    Returns:
        (names, part -> GB [programs]); the parts of a program sum to its total.
    """
    names, rows = [], []
    for program in plan["programs"]:
        if "length" in program:
            sizes = f"{program['batch_size']} x {program['length']:,}"
        else:
            sizes = ""
        names.append(f"{program['program']} {sizes}".strip())
        memory = program["memory_bytes"]
        row = {part: memory.get(part, 0) for part in PLAN_PARTS}
        inputs = (
            memory.get("arguments", 0) - row["parameters"] - row["optimizer"]
        )
        row["inputs"] = max(inputs, 0)
        row["other"] = memory["total"] - sum(row.values())
        rows.append(row)
    parts = (*PLAN_PARTS, "inputs", "other")
    return names, {
        part: np.array([row[part] / 1e9 for row in rows]) for part in parts
    }
