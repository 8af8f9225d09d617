"""Attempts to make a program fit a device, or to make it faster with the remaining memory."""

import itertools
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_plan.plan import ProgramPlan


class Trial(NamedTuple):
    """One attempt to make a program fit.

    Attributes:
        values: all changes of the config, dotted key -> value.
        says: description of the last change and its cost.
        plan: plan of the changed program; None if the config is invalid.
        refusal: reason why the config is invalid.
    """

    values: Mapping[str, Any]
    says: str
    plan: ProgramPlan | None
    refusal: str = ""

    @property
    def flags(self) -> str:
        """The changes as flags of ``longsum train``."""
        return shlex.join(
            f"--config.{key}={value}" for key, value in self.values.items()
        )

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
            program.
        current: plan without changes.
        changes: values with descriptions of their costs, cheapest first.
        tries: maximum number of attempts, each of which compiles the program.
    """
    accepted: dict[str, Any] = {}
    least = current.total
    for values, says in itertools.islice(changes, tries):
        together = accepted | dict(values)
        try:
            plan = plan_with(together)
        except InputError as error:
            yield Trial(together, says, None, str(error))
            continue
        yield Trial(together, says, plan)
        if plan.fits:
            return
        if plan.total < 0.99 * least:
            accepted, least = together, plan.total


def fastest(trials: Iterable[Trial], current: ProgramPlan) -> Trial | None:
    """Returns the fastest of the trials that fit; None if ``current`` is as fast."""
    best, result = current, None
    for trial in trials:
        if trial.plan is not None and trial.plan.is_faster_than(best):
            best, result = trial.plan, trial
    return result


def find_faster(
    plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
    current: ProgramPlan,
    changes: Generator[tuple[Mapping[str, Any], str], ProgramPlan | None, None],
    *,
    tries: int,
    begun: Mapping[str, Any],
) -> Iterator[Trial]:
    """Yields attempts to use remaining memory; a change that fits and is faster is kept.

    Speed is measured by the roofline time.

    Args:
        plan_with: function from changes of the config to the plan of the
            program.
        current: plan with the changes ``begun``.
        changes: generator of values with descriptions of their costs; it
            receives the plan of each.
        tries: maximum number of attempts; each compiles the program.
        begun: changes of the config before the first attempt.
    """
    accepted, best = dict(begun), current
    plan = None
    for _ in range(tries):
        try:
            values, says = changes.send(plan)
        except StopIteration:
            return
        together = accepted | dict(values)
        plan = plan_with(together)
        yield Trial(together, says, plan)
        if plan.is_faster_than(best):
            accepted, best = together, plan
