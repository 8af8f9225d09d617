"""Lines of text about plans, and about attempts to change them, as they arrive."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from longsum_plan.devices import Target
from longsum_plan.plan import ProgramPlan
from longsum_plan.tables import (
    collectives_table,
    memory_table,
    milliseconds,
    parts_table,
    work_table,
)
from longsum_plan.trials import Trial, fastest

Write = Callable[[str], None]  # prints a text and a line break


def print_target(target: Target, write: Write) -> None:
    """Prints number, name and memory of the devices."""
    if target.memory:
        memory = f"{target.memory / 1e9:.1f} GB each"
    else:
        memory = "memory not known"
    write(f"{len(target.devices)} x {target.title}, {memory}")


def print_plans(
    plans: Sequence[ProgramPlan], target: Target, top: int, write: Write
) -> None:
    """Prints tables of memory, work, the ``top`` longest parts of each program and collectives."""
    write(f"\n{memory_table(plans, target)}\n\n{work_table(plans)}\n")
    for table in (
        *(parts_table(plan, top) for plan in plans),
        collectives_table(plans),
    ):
        if table is not None:
            write(f"{table}\n")


def print_trials(
    trials: Iterable[Trial], name: str, write: Write
) -> Iterator[Trial]:
    """Prints attempts to make a program fit as they arrive, and yields them.

    Args:
        trials: attempts from ``trials.find_fit``.
        name: name of the program.
        write: function that prints a line.
    """
    fitting, failure = None, "does not fit"
    for trial in trials:
        failure = "fits with none of these"
        write(_trial_line(trial, name))
        if trial.plan is not None:
            fitting = trial if trial.plan.fits else None
        yield trial
    if fitting is None:
        write(
            f"{name} {failure}; take more devices, or devices with more memory"
        )
    else:
        write(f"to fit {name}: {fitting.flags}")


def print_faster(
    trials: Iterable[Trial], start: Trial, name: str, write: Write
) -> Iterator[Trial]:
    """Prints attempts at a faster program as they arrive, and yields them.

    Args:
        trials: attempts; one without a plan is refused.
        start: program before them, with a plan that fits.
        name: name of the program.
        write: function that prints a line.
    """
    tried = [start]
    for trial in trials:
        time = ""
        if trial.seconds < math.inf:
            time = f", at least {milliseconds(trial.seconds)} ms"
        write(_trial_line(trial, name, time))
        tried.append(trial)
        yield trial
    best = fastest(tried) or start
    if best is start:
        write(f"no change makes {name} faster")
        return
    percent = round(100 * (1 - best.seconds / start.seconds))
    gain = f"{percent}% less, " if percent > 0 else ""
    write(
        f"the fastest {name} that fits: {best.flags}: at least "
        f"{milliseconds(best.seconds)} ms in place of {milliseconds(start.seconds)}, "
        f"{gain}with {best.total / 1e9:.2f} GB in place of {start.total / 1e9:.2f}"
    )


def _trial_line(trial: Trial, name: str, time: str = "") -> str:
    if trial.plan is None:
        return f"{name} with {trial.flags}: refused, {trial.refusal}"
    verdict = "fits" if trial.plan.fits else "does not fit"
    total = f"{trial.total / 1e9:.2f} GB"
    return f"{name} with {trial.flags}: {total}, {verdict}{time} ({trial.says})"
