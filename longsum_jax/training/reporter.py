"""The reporter of a training run: writes and displays its metrics, and stops it if it diverges."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from longsum_jax.training.trackers import MetricsWriter, open_trackers
from longsum_jax.training.writers import (
    METRICS,
    MetricsFile,
    ProgressLine,
    Throughput,
)
from longsum_jax.typing import Array


class TrainingDiverged(RuntimeError):  # noqa: N818 - the name is clear
    """Too many consecutive steps were not finite, or an update was not finite."""


class Reporter:
    """A context manager that writes the metrics of steps and evaluations.

    The metrics of a step are read from the devices one step later, so that the
    devices never wait for the host. Only the first host writes.

    Args:
        workdir: directory of metrics.jsonl and tensorboard/.
        start: step at which the run continues, 0 for a new run; lines of later
            steps, from an interrupted run, are removed.
        is_evaluated: True if the evaluation of ``start`` is complete; otherwise
            its line is also removed.
        steps: number of steps of the whole run, for the progress line.
        log_every: number of steps between lines of metrics.jsonl, 0 for no
            lines.
        max_bad_steps: number of consecutive non-finite steps after which
            `TrainingDiverged` is raised.
        tensorboard: True to also write TensorBoard files.
        wandb: project of Weights & Biases to also write to; "" for none.
        mlflow: experiment of MLflow to also write to; "" for none.
        run: description of the run for Weights & Biases and MLflow.
        progress: True to show the progress line.
        clip_norm: gradient norm above which gradients are clipped, None for no
            clipping; lines then contain "clipped", the share of clipped steps
            since the last line.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        start: int,
        is_evaluated: bool,
        steps: int,
        log_every: int,
        max_bad_steps: int,
        tensorboard: bool,
        progress: bool,
        clip_norm: float | None = None,
        wandb: str = "",
        mlflow: str = "",
        run: Mapping[str, Any] | None = None,
    ) -> None:
        self._clip_norm = clip_norm
        self._are_clipped: list[bool] = []
        self._signal = self._noise = 0.0  # sums since the last line
        self._steps = steps
        self._log_every, self._max_bad_steps = log_every, max_bad_steps
        self._compiled_step = start + 1
        self._throughput = Throughput()
        self._pending: tuple[int, dict[str, Array], float] | None = None
        self._unwritten: tuple[int, dict[str, Any]] | None = None
        self._writers: list[MetricsWriter] = []
        is_first = jax.process_index() == 0
        if is_first:
            self._writers += open_trackers(
                workdir,
                run or {},
                after_step=start,
                is_evaluated=is_evaluated,
                tensorboard=tensorboard,
                wandb=wandb,
                mlflow=mlflow,
            )
            file = MetricsFile(workdir / METRICS, start, is_evaluated)
            # TensorBoard no longer shows values of this step
            if not is_evaluated:
                for line in file.earlier:
                    self._write(line.pop("step"), line)
            self._writers.append(file)
        self._progress = ProgressLine(steps, start, shown=is_first and progress)

    def __enter__(self) -> "Reporter":
        return self

    def __exit__(self, *error: object) -> None:
        for writer in self._writers:
            writer.close()
        self._progress.close()

    def push(
        self,
        step: int,
        metrics: dict[str, Array],
        shortest_seconds: float = 0.0,
    ) -> None:
        """Stores the metrics of the started step, and reports the metrics of the previous one.

        Args:
            step: number of the step.
            metrics: metrics of the step, on the devices.
            shortest_seconds: seconds that the matrix products of the step take
                at the peak rate of the devices, for "mfu"; 0 if unknown.
        """
        self.flush()
        self._pending = (step, metrics, shortest_seconds)

    def flush(self) -> None:
        """Reports the pending step, waiting for the devices.

        Raises:
            TrainingDiverged: too many non-finite steps (`max_bad_steps`), or
                non-finite parameters.
        """
        if self._pending is None:
            return
        step, arrays, shortest_seconds = self._pending
        self._pending = None
        values = {
            name: value.item() for name, value in jax.device_get(arrays).items()
        }
        self._check_finite(step, values["bad_streak"])
        _check_parameters(step, values["param_norm"])
        rate = self._throughput.add(
            values.get("tokens", values["weight"]), shortest_seconds
        )
        is_compiled = step == self._compiled_step
        self._progress.update(values["loss"], rate, is_compiled)
        values["tokens_per_second"] = round(rate, 1)
        if is_compiled:
            self._throughput.restart()
        else:
            values |= self._speed(step)
        if self._clip_norm:
            self._are_clipped.append(values["grad_norm"] > self._clip_norm)
        self._signal += values.pop("gradient_signal", 0.0)
        self._noise += values.pop("gradient_noise", 0.0)
        self._unwritten = (step, values)
        if self._log_every and step % self._log_every == 0:
            self.write_last_step()

    def write_last_step(self) -> None:
        """Writes the line of the last step, unless it is already written.

        With gradient accumulation, "gradient_noise" is the gradient noise scale
        over the batch size, from the steps since the last line.

        If devices report it (CPUs do not), "peak_gib" is the peak memory of any
        device since the process began, in GiB.
        """
        self.flush()
        if self._unwritten is not None:
            step, values = self._unwritten
            if self._are_clipped:
                share = sum(self._are_clipped) / len(self._are_clipped)
                values["clipped"] = round(share, 4)
                self._are_clipped.clear()
            if self._signal > 0:
                ratio = self._noise / self._signal
                values["gradient_noise"] = round(ratio, 4)
            self._signal = self._noise = 0.0
            if peak := _peak_memory():
                values["peak_gib"] = round(peak / 2**30, 3)
            self._write(step, values)
            self._unwritten = None

    def write_evaluation(self, step: int, scores: dict[str, float]) -> None:
        """Writes the scores of an evaluation, whose time does not count for tokens per second."""
        self._write(step, {"eval": scores})
        self.resume_clock()

    def resume_clock(self) -> None:
        """Excludes the time since the last step from the speed of the next ones."""
        self._throughput.restart()

    def _speed(self, step: int) -> dict[str, float]:
        """Returns the time left and the share of the peak rate, after a step without compilation.

        "seconds_left" counts the remaining steps at the speed of the last ones,
        without evaluations. "mfu" is left out if the peak rate is unknown.
        """
        seconds = self._throughput.seconds_per_step * (self._steps - step)
        speed = {"seconds_left": round(seconds, 1)}
        if utilization := self._throughput.utilization:
            speed["mfu"] = round(utilization, 4)
        return speed

    def _write(self, step: int, values: dict[str, Any]) -> None:
        for writer in self._writers:
            writer.write(step, values)

    def _check_finite(self, step: int, bad_streak: int) -> None:
        if bad_streak < self._max_bad_steps:
            return
        raise TrainingDiverged(
            f"the loss or its gradient was not finite in steps {step - bad_streak + 1} to {step}, "
            f"{bad_streak} in a row (training.max_bad_steps); lower the learning rate or look at "
            "these batches; the last checkpoint is intact"
        )


def _peak_memory() -> int:
    """Returns the peak bytes in use of any device of this process so far, 0 if unknown."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max(values.get("peak_bytes_in_use", 0) for values in stats)


def _check_parameters(step: int, norm: float) -> None:
    """Raises TrainingDiverged for non-finite parameters, which no checkpoint must contain."""
    if not math.isfinite(norm):
        raise TrainingDiverged(
            f"the update of step {step} left parameters that are not finite (param_norm {norm}), "
            "although loss and gradient were; lower optimizer.learning_rate or raise "
            "optimizer.eps; the last checkpoint is intact"
        )
