"""Attempts to make a program fit a device, or to make it faster with the remaining memory."""

import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
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


def find_faster(
    plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
    current: ProgramPlan,
    changes: Iterable[tuple[Mapping[str, Any], str]],
    *,
    tries: int,
) -> Iterator[Trial]:
    """Yields attempts to use remaining memory; a change that fits and is faster is kept.

    The arguments are described in ``find_fit``. Speed is measured by the
    roofline time.
    """
    accepted: dict[str, Any] = {}
    least = current.least_seconds or 0.0
    for values, says in itertools.islice(changes, tries):
        together = accepted | dict(values)
        plan = plan_with(together)
        yield Trial(together, says, plan)
        seconds = plan.least_seconds
        if plan.fits and seconds is not None and seconds < least:
            accepted, least = together, seconds
