"""SCROLLS and ZeroSCROLLS in longsum score: one task, all tasks with their mean, a submission."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from longsum_jax.commands import console, flags
from longsum_jax.commands.score_output import (
    left_out,
    left_out_text,
    write_json,
)
from longsum_jax.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from longsum_jax.evaluation.scrolls import ScrollsTask, Tasks


class Suite(NamedTuple):
    """The suite selected by --scrolls or --zero_scrolls.

    Attributes:
        name: name of the flag.
        task: name in ``tasks``, or "all".
        tasks: scoring of each task.
    """

    name: str
    task: str
    tasks: "Tasks"

    @property
    def flag(self) -> str:
        """The flag as given on the command line."""
        return f"--{self.name}={self.task}"

    @property
    def scoring(self) -> "ScrollsTask":
        """The scoring of the task."""
        return self.tasks[self.task]


def suite_of(args: argparse.Namespace) -> Suite | None:
    """Returns the suite that flags select; None without --scrolls and --zero_scrolls."""
    from longsum_jax.evaluation.scrolls import SUITES

    suites = flags.given(args, SUITES)
    if not suites:
        return None
    if len(suites) > 1:
        raise InputError(
            "--scrolls and --zero_scrolls are two suites; give one of them"
        )
    [(name, task)] = suites.items()
    suite = Suite(name, task, SUITES[name])
    if task != "all" and task not in suite.tasks:
        raise InputError(
            f"{suite.flag} is unknown; {did_you_mean(task, suite.tasks)}"
        )
    return suite


def score_all(args: argparse.Namespace, suite: Suite) -> None:
    """Scores every task of a suite by its own metric."""
    from longsum_jax import __version__
    from longsum_jax.evaluation.scrolls import (
        read_all_predictions,
        read_scrolls,
        release_of,
        score_task,
    )
    from longsum_jax.evaluation.tables import score_table

    if args.references is None:
        raise InputError(
            f"{suite.flag} needs --references=DIR with TASK.zip of every task"
        )
    predictions = read_all_predictions(
        args.predictions, suite.tasks, prediction_key=args.prediction_key
    )
    releases = {task: release_of(args.references, task) for task in suite.tasks}
    scores, counts_by_task = {}, {}
    for task, release in releases.items():
        with console.spinner(f"scoring {task}"):
            pairs = read_scrolls(release, args.split)
            scores[task] = score_task(
                task,
                predictions[task],
                pairs,
                args.on_missing,
                tasks=suite.tasks,
            )
            counts_by_task[task] = left_out(pairs, predictions[task])
    mean = sum(scores.values()) / len(scores)
    if args.out:
        columns = {task: suite.tasks[task].column for task in scores}
        values = {
            "tasks": scores,
            "columns": columns,
            "mean": mean,
            "split": args.split,
        }
        values["left_out"] = {
            task: counts for task, counts in counts_by_task.items() if counts
        }
        write_json(Path(args.out), values | {"longsum_jax": __version__})
    rows = {
        f"{task} ({suite.tasks[task].column})": [value]
        for task, value in scores.items()
    }
    console.print_stdout(score_table([args.split], rows | {"mean": [mean]}))
    for task, counts in counts_by_task.items():
        if counts:
            console.print_stdout(f"{task}{left_out_text(counts)}")


def submit(args: argparse.Namespace, suite: Suite) -> None:
    """Writes the CSV of a submission."""
    from longsum_jax.evaluation.scrolls import (
        read_all_predictions,
        read_ids,
        release_of,
        write_submission,
    )

    predictions = read_all_predictions(
        args.predictions, suite.tasks, prediction_key=args.prediction_key
    )
    ids = None
    if args.references is not None:
        releases = {
            task: release_of(args.references, task) for task in suite.tasks
        }
        ids = {
            task: read_ids(release, args.split)
            for task, release in releases.items()
        }
    try:
        count = write_submission(
            Path(args.submission), predictions, ids, tasks=suite.tasks
        )
    except OSError as error:
        raise console.unwritable(
            args.submission, error, "submission"
        ) from error
    if ids:
        checked = f"ids match {args.split}"
    else:
        checked = "ids not checked, without --references"
    console.print_stdout(
        f"{args.submission}: {count} predictions of {len(predictions)} tasks, {checked}"
    )
