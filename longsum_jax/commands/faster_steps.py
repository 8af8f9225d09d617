"""The search for the fastest training step that fits: other configs with the same update."""

import math
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from functools import partial
from typing import Any

from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.memory_changes import (
    BY_MEMORY,
    REMAT_SAYS,
    accumulations,
    mesh_values,
)
from longsum_jax.training.mesh import axis_sizes
from longsum_plan.plan import ProgramPlan
from longsum_plan.trials import Trial, fastest

# Yields one attempt, and returns it.
_Attempt = Generator[Trial, None, Trial]


class FasterSteps:
    """Attempts to make a training step faster with the remaining memory; an iterable of them.

    Settings of ``model.remat`` are tried first, then larger micro-batches,
    dense maps in one piece, on TPUs the smallest micro-batches, and meshes that
    send less. Each attempt changes the fastest step before it, by the roofline
    time (``trials.fastest``).

    Args:
        run: config of the run, with the changes ``begun``.
        plan_with: function from changes of the config to the plan of the step.
        plan: plan of the step with ``begun``, which fits.
        begun: changes of the config before the first attempt.
        memory: bytes of memory that may be used on each device.
        platform: platform of the devices, as JAX names it.
        num_devices, num_hosts: numbers of devices and hosts of the mesh.
    """

    def __init__(
        self,
        run: RunConfig,
        plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
        plan: ProgramPlan,
        begun: Mapping[str, Any],
        *,
        memory: int,
        platform: str,
        num_devices: int,
        num_hosts: int,
    ) -> None:
        self._run, self._plan_with, self._memory = run, plan_with, memory
        self._platform = platform
        self._num_devices, self._num_hosts = num_devices, num_hosts
        self._counts = accumulations(run, num_devices)
        self._tried = [Trial(begun, "", plan)]

    def __iter__(self) -> Iterator[Trial]:
        yield from self._other_remats()
        yield from self._larger_parts()
        yield from self._smallest_parts()
        yield from self._other_meshes()

    @property
    def _best(self) -> Trial:
        return fastest(self._tried) or self._tried[0]

    def _attempt(
        self, values: Mapping[str, Any], says: str, base: Trial | None = None
    ) -> _Attempt:
        together = {**(base or self._best).values, **values}
        trial = Trial.of(self._plan_with, together, says)
        self._tried.append(trial)
        yield trial
        return trial

    def _other_remats(self) -> Iterator[Trial]:
        """Yields all other settings, the smallest first.

        One that does not fit is tried again with smaller micro-batches.
        """
        count = self._accumulation(self._best)
        for remat in reversed(BY_MEMORY):
            if remat == self._run.model.remat:
                continue
            values: dict[str, Any] = {"model.remat": remat}
            if count != self._accumulation(self._best):
                values["training.accumulation"] = count
            trial = yield from self._attempt(values, REMAT_SAYS[remat])
            smaller = self._smallest_fitting(trial)
            if smaller > count and self._may_be_faster(trial):
                # Larger settings need as small micro-batches.
                count = smaller
                says = f"{REMAT_SAYS[remat]}, in {count} micro-batches"
                values["training.accumulation"] = count
                yield from self._attempt(values, says)

    def _larger_parts(self) -> Iterator[Trial]:
        """Yields micro-batches of as many rows as fit, and dense maps in one piece."""
        tried = {self._accumulation(self._best)}
        while True:
            count = self._accumulation(self._best)
            smallest = self._smallest_fitting(self._best)
            # The time is not monotone: larger arrays may be computed in chunks.
            counts = [
                n
                for n in (smallest, count // 2)
                if n in self._counts and smallest <= n < count
            ]
            fewer = next((n for n in counts if n not in tried), None)
            if fewer is None:
                break
            tried.add(fewer)
            yield from self._attempt(*self._micro_batches(fewer))
        if 0 < self._run.model.length_chunk < self._run.task.max_source_length:
            says = "dense maps of the encoder read their weights once"
            yield from self._attempt({"model.length_chunk": 0}, says)

    def _smallest_parts(self) -> Iterator[Trial]:
        """Yields the smallest micro-batches for TPUs whose step waits for memory.

        XLA may keep arrays of a single row on the chip; then saved results are
        cheap, so the settings that compute least are tried.
        """
        plan = self._best.plan
        if self._platform != "tpu" or plan is None or plan.bound != "memory":
            return
        base = min(self._tried, key=partial(_seconds, parts=("compute",)))
        most = self._counts[-1]
        if self._accumulation(base) < most:
            yield from self._attempt(*self._micro_batches(most), base)

    def _other_meshes(self) -> Iterator[Trial]:
        """Yields meshes whose devices share the parameters in smaller groups, or not at all.

        A step that waits for links hides how fast its other settings are, so
        meshes are tried with the settings that are fastest without links.
        """
        mesh, devices = self._run.mesh, self._num_devices
        if devices == 1 or mesh.preset not in ("replicated", "fsdp"):
            return
        current = axis_sizes(mesh, devices)["fsdp"]
        without_links = partial(_seconds, parts=("compute", "memory"))
        base = min(self._tried, key=without_links)
        for group in _groups(devices, self._num_hosts):
            if group == current:
                continue
            if group == 1:
                values = mesh_values("replicated", batch=-1, fsdp=1)
                says = "every device has all parameters and the optimizer state"
            else:
                values = mesh_values("fsdp", batch=devices // group)
                says = f"every {group} devices have all parameters"
            yield from self._attempt(values, says, base)

    def _micro_batches(self, count: int) -> tuple[dict[str, Any], str]:
        """Returns the values and the description of so many micro-batches."""
        rows = self._run.data.batch_size // count
        values = {"training.accumulation": count}
        return values, f"micro-batches of {rows:,} rows"

    def _accumulation(self, trial: Trial) -> int:
        count: int = trial.values.get(
            "training.accumulation", self._run.training.accumulation
        )
        return count

    def _may_be_faster(self, trial: Trial) -> bool:
        """Returns True unless a step that does not fit is slower than the best."""
        plan = trial.plan
        if plan is None or plan.least_seconds is None:
            return True
        return plan.least_seconds < self._best.seconds

    def _smallest_fitting(self, trial: Trial) -> int:
        """Returns the smallest number of micro-batches that fits, else the trial's own."""
        count = self._accumulation(trial)
        plan = trial.plan
        if plan is None:
            return count
        fixed = sum(
            plan.memory.get(part, 0) for part in ("parameters", "optimizer")
        )
        for other in self._counts:
            # at most: not all other memory depends on the rows
            if fixed + (plan.total - fixed) * count / other <= self._memory:
                return other
        return count


def _groups(num_devices: int, num_hosts: int) -> list[int]:
    """Returns numbers of devices that may share the parameters, the largest first.

    They are a row of a square of devices, as TPUs have links, a host, and one.
    """
    # the largest divisor that is not above the square root
    side = math.isqrt(num_devices)
    while num_devices % side:
        side -= 1
    return sorted({side, num_devices // num_hosts, 1}, reverse=True)


def _seconds(trial: Trial, parts: Collection[str]) -> float:
    """Returns the roofline time of some parts; infinity if the step does not fit."""
    if trial.plan is None or trial.seconds == math.inf:
        return math.inf
    seconds = trial.plan.seconds
    return max((seconds[part] for part in seconds.keys() & parts), default=0.0)
