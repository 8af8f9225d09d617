"""Attempts to make a program fit a device, and the choice of the fastest."""

import itertools
import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from longsum_jax.errors import InputError, first_line
from longsum_plan.plan import ProgramPlan

# Times, or sizes, that differ by less are taken for equal: bounds are not exact.
_NEAR = 1.01


class Trial(NamedTuple):
    """One attempt to make a program fit.

    Attributes:
        values: all changes of the config, dotted key -> value.
        says: description of the last change and its cost.
        plan: plan of the changed program; None if it was refused.
        refusal: reason why there is no plan.
    """

    values: Mapping[str, Any]
    says: str
    plan: ProgramPlan | None
    refusal: str = ""

    @classmethod
    def of(
        cls,
        plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
        values: Mapping[str, Any],
        says: str,
    ) -> "Trial":
        """Returns the trial of ``values``, which ``plan_with`` plans or refuses."""
        try:
            return cls(values, says, plan_with(values))
        except InputError as error:
            return cls(values, says, None, first_line(error))

    @property
    def flags(self) -> str:
        """The changes as flags of ``longsum train``."""
        return flags_of(self.values)

    @property
    def seconds(self) -> float:
        """The roofline time; infinity if it is unknown or the program does not fit."""
        if self.plan is None or not self.plan.fits:
            return math.inf
        if self.plan.least_seconds is None:
            return math.inf
        return self.plan.least_seconds

    @property
    def total(self) -> float:
        """Bytes in use on one device; infinity without a plan."""
        if self.plan is None:
            return math.inf
        return self.plan.total

    def report(self) -> dict[str, Any]:
        """Returns the trial as plain values for JSON."""
        values: dict[str, Any] = {
            "changes": dict(self.values),
            "says": self.says,
            "least_seconds": None,
            "total_bytes": None,
            "fits": None,
            "refusal": self.refusal,
        }
        if self.plan:
            values["least_seconds"] = self.plan.least_seconds
            values["total_bytes"] = self.plan.total
            values["fits"] = self.plan.fits
        return values


def flags_of(values: Mapping[str, Any]) -> str:
    """Returns changes of the config as flags of ``longsum train``."""
    return shlex.join(
        f"--config.{key}={value}" for key, value in values.items()
    )


def find_fit(
    plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
    current: ProgramPlan,
    changes: Iterable[tuple[Mapping[str, Any], str]],
    *,
    tries: int,
) -> Iterator[Trial]:
    """Yields attempts to make a program fit; the last one fits unless all fail.

    A change that saves at least 1 % of memory is kept for the next attempt.

    Args:
        plan_with: function from changes of the config to the plan of the
            program; it raises InputError to refuse them.
        current: plan without changes.
        changes: values with descriptions of their costs, cheapest first.
        tries: maximum number of attempts, each of which compiles the program.
    """
    accepted: dict[str, Any] = {}
    least = current.total
    for values, says in itertools.islice(changes, tries):
        together = accepted | dict(values)
        trial = Trial.of(plan_with, together, says)
        yield trial
        plan = trial.plan
        if plan is None:
            continue
        if plan.fits:
            return
        if plan.total < 0.99 * least:
            accepted, least = together, plan.total


def fastest(trials: Iterable[Trial]) -> Trial | None:
    """Returns the fastest of the trials that fit; None if none does.

    Of trials within 1 % of the least time, it is the one with the least memory.
    """
    fitting = [trial for trial in trials if trial.seconds < math.inf]
    if not fitting:
        return None
    least = min(trial.seconds for trial in fitting)
    near = [trial for trial in fitting if trial.seconds <= _NEAR * least]
    total = min(trial.total for trial in near)
    small = [trial for trial in near if trial.total <= _NEAR * total]
    return min(small, key=lambda trial: trial.seconds)
