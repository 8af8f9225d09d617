"""longsum score: scores summaries of any system, with confidence intervals and tests."""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted, did_you_mean
from longsum_jax.files import json_text
from longsum_jax.readers.paths import short_names

if TYPE_CHECKING:
    from longsum_jax.evaluation.comparison import (
        Difference,
        Prediction,
        Sampling,
        System,
    )
    from longsum_jax.evaluation.predictions import Metrics, Pair
    from longsum_jax.evaluation.published import PublishedBlock
    from longsum_jax.evaluation.scrolls import ScrollsTask, Tasks

EXAMPLES = """\
  # ROUGE of a file of {"id": ..., "prediction": ...} against the summaries of a data set
  longsum score predictions.jsonl --references=reports/test.jsonl --stemmer

  # two outputs of longsum evaluate, which contain the references
  longsum score runs/a/predictions.jsonl --against=runs/b/predictions.jsonl

  # a page with every document, its reference and the summaries of both side by side
  longsum score lead.jsonl --against=random.jsonl --references=test.jsonl --report=report.html

  # a data set of SCROLLS as released, with its own metric
  longsum score qmsum.json --scrolls=qmsum --references=qmsum.zip --split=validation

  # all of SCROLLS and its mean, from TASK.json and TASK.zip of every task; then the submission
  longsum score validation --scrolls=all --references=releases
  longsum score test --scrolls=all --references=releases --split=test --submission=scrolls.csv

  # the same for ZeroSCROLLS
  longsum score validation --zero_scrolls=all --references=releases

  # more metrics, all types of ROUGE, words in any script, and the scores of every document
  longsum score predictions.jsonl --references=test.jsonl --metrics=rouge,novelty,length \\
      --metric_option='rouge.types=["rouge1","rouge2","rouge3","rougeL","rougeLsum"]' \\
      --metric_option=rouge.tokenizer=unicode --out=scores

  # a metric that uses your own model
  longsum score predictions.jsonl --references=test.jsonl --metrics=bertscore \\
      --metric_option=bertscore.model=roberta-large

  # published results of LSG and AWESOME on arXiv below the scores of a file
  longsum score predictions.jsonl --references=arxiv/test.jsonl --stemmer \\
      --published=lsg:arxiv --published=awesome:table7

Numbers in brackets are confidence intervals (bootstrap over documents). A star marks a system that
differs from the first at p < 0.05, adjusted for the number of systems (Holm). --out writes
DIR/scores.json, with each difference, its interval, its p-value and the smallest difference that
this number of documents can show, and DIR/scores.jsonl with the scores of every document.
"""
SIGNIFICANT = 0.05


def main(argv: Sequence[str]) -> None:
    """Scores files of predictions.

    Raises:
        InputError: files or settings are invalid.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    suite = _suite(args)
    whole = None
    if suite is not None and suite.task == "all":
        whole = suite
    if args.submission is not None and whole is None:
        raise InputError(
            f"--submission={args.submission} needs --scrolls=all or --zero_scrolls=all"
        )
    _refuse_idle(args, parser, suite)
    if whole is None:
        _score(args, suite)
    elif args.submission is not None:
        _submit(args, whole)
    else:
        _score_all(args, whole)


class _Suite(NamedTuple):
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


def _suite(args: argparse.Namespace) -> _Suite | None:
    from longsum_jax.evaluation.scrolls import SUITES

    suites = flags.given(args, SUITES)
    if not suites:
        return None
    if len(suites) > 1:
        raise InputError(
            "--scrolls and --zero_scrolls are two suites; give one of them"
        )
    [(name, task)] = suites.items()
    suite = _Suite(name, task, SUITES[name])
    if task != "all" and task not in suite.tasks:
        raise InputError(
            f"{suite.flag} is unknown; {did_you_mean(task, suite.tasks)}"
        )
    return suite


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "score",
        "Scores predictions of any system against references.",
        EXAMPLES,
    )
    parser.add_argument(
        "predictions", metavar="FILE", help="JSON lines with id and prediction"
    )
    parser.add_argument(
        "--references",
        metavar="FILE",
        help="JSON lines with id, summary (a text or a list of texts) and document, "
        "plain or compressed, or a glob; default: the references in FILE",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="FILE",
        help="predictions of another system; may be given several times",
    )
    flags.add_prediction_flags(parser)
    parser.add_argument(
        "--scrolls",
        metavar="TASK",
        help="score with the metric of this SCROLLS data set; FILE is a JSON object of "
        "predictions by id, and --references is the data set's zip, a directory, or"
        " JSON lines with id, input and output; all: every task and the mean, from "
        "directories with TASK.json and TASK.zip",
    )
    parser.add_argument(
        "--zero_scrolls",
        metavar="TASK",
        help="same as --scrolls, for ZeroSCROLLS",
    )
    parser.add_argument(
        "--submission",
        metavar="FILE",
        help="with --scrolls=all or --zero_scrolls=all: write the CSV file of a "
        "submission instead of scoring; ids are checked if --references is given",
    )
    parser.add_argument(
        "--split",
        default="validation",
        help="split of SCROLLS or ZeroSCROLLS; default: validation",
    )
    flags.add_metric_flags(parser)
    parser.add_argument(
        "--published",
        action="append",
        default=[],
        metavar="PAPER:DATASET|PAPER:tableN",
        help="print the results of a paper (locost, lsg, hepos, awesome) on a data set "
        "or in a table below the scores; may be given several times",
    )
    parser.add_argument(
        "--test",
        choices=("randomization", "bootstrap"),
        default="randomization",
        help="significance test for differences; default: randomization",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=10_000,
        help="rounds for tests and intervals; default: 10000",
    )
    parser.add_argument(
        "--level",
        type=float,
        default=0.95,
        help="level of confidence intervals; default: 0.95",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed for the rounds; default: 0",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="directory for scores.json and scores.jsonl",
    )
    flags.add_report_flag(parser)
    flags.add_align_flag(parser)
    return parser


def _score(args: argparse.Namespace, suite: _Suite | None) -> None:
    from longsum_jax.evaluation.comparison import (
        Sampling,
        common_documents,
        compare,
        read_predictions,
        score_system,
    )
    from longsum_jax.evaluation.report import ReportContent

    flags.check_file("report", args.report)
    published = _published(args.published)
    metrics = _metrics(args, suite)
    aligner = flags.aligner_of(args)
    paths = [args.predictions, *args.against]
    if len(set(map(os.path.realpath, paths))) < len(paths):
        raise InputError(
            f"--against={','.join(args.against)} names a file twice; give each once"
        )
    names = short_names(paths)
    files = {
        name: read_predictions(path, prediction_key=args.prediction_key)
        for name, path in zip(names, paths, strict=True)
    }
    references = _references(args, suite, metrics, files[names[0]])
    pairs = common_documents(references, files, args.on_missing)
    sampling = Sampling(args.test, args.rounds, args.level, args.seed)
    systems = []
    for name, predictions in files.items():
        with console.spinner(f"scoring {name}"):
            systems.append(
                score_system(name, predictions, pairs, metrics, sampling)
            )
    differences = compare(systems[0], systems[1:], metrics, sampling)
    result = _result(systems, differences, metrics, sampling)
    result |= _left_out(references, *files.values())
    if suite:
        result[suite.name] = {
            "task": suite.task,
            "column": suite.scoring.column,
        }
    if published:
        result["published"] = [block._asdict() for block in published]
    if args.out:
        _write(Path(args.out), result, systems, pairs)
    _print(result, systems, differences, metrics, pairs)
    _print_published(published, systems, metrics)
    if args.report:
        column = suite.scoring.column if suite else None
        content = ReportContent(
            pairs,
            systems,
            metrics,
            differences,
            sampling,
            column,
            aligner=aligner,
            published=published,
        )
        flags.write_report(args.report, content)


def _score_all(args: argparse.Namespace, suite: _Suite) -> None:
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
    scores, left_out = {}, {}
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
            left_out[task] = _left_out(pairs, predictions[task])
    mean = sum(scores.values()) / len(scores)
    if args.out:
        columns = {task: suite.tasks[task].column for task in scores}
        values = {
            "tasks": scores,
            "columns": columns,
            "mean": mean,
            "split": args.split,
        }
        values |= {
            "left_out": {
                task: counts for task, counts in left_out.items() if counts
            }
        }
        _write_json(Path(args.out), values | {"longsum_jax": __version__})
    rows = {
        f"{task} ({suite.tasks[task].column})": [value]
        for task, value in scores.items()
    }
    console.print_stdout(score_table([args.split], rows | {"mean": [mean]}))
    for task, counts in left_out.items():
        if counts:
            console.print_stdout(f"{task}{_left_out_text(counts)}")


def _submit(args: argparse.Namespace, suite: _Suite) -> None:
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


def _refuse_idle(
    args: argparse.Namespace,
    parser: argparse.ArgumentParser,
    suite: _Suite | None,
) -> None:
    """Raises InputError for flags that would have no effect."""
    keys = ("document_key", "summary_key")
    if suite is None:
        flags.refuse_idle(
            args, parser, ("split",), "without --scrolls or --zero_scrolls"
        )
    else:
        flags.refuse_idle(args, parser, keys, f"with {suite.flag}")
    if args.references is None:
        flags.refuse_idle(args, parser, keys, "without --references")
    if suite is not None and suite.task == "all":
        _refuse_with_all(args, parser, suite)
    elif not args.against:
        flags.refuse_idle(args, parser, ("test",), "without --against")


def _refuse_with_all(
    args: argparse.Namespace, parser: argparse.ArgumentParser, suite: _Suite
) -> None:
    idle = [
        "against",
        "metrics",
        "metric_option",
        "stemmer",
        "published",
        "report",
    ]
    idle += ["align_model"]
    idle += ["test", "rounds", "level", "seed"]
    if args.submission is not None:
        idle += ["out"]
    for name in flags.changed(args, parser, idle):
        raise InputError(
            f"--{name} cannot be combined with {suite.flag}; score one task instead"
        )
    if args.submission is not None and args.on_missing == "skip":
        raise InputError(
            "--on_missing=skip cannot be combined with --submission, which needs all ids"
        )


def _metrics(args: argparse.Namespace, suite: _Suite | None) -> "Metrics":
    """Returns the requested metrics, including the metric of a suite's data set."""
    if suite is None:
        return flags.metrics_of(args)
    if args.references is None:
        raise InputError(f"{suite.flag} needs --references={suite.task}.zip")
    name, column, options = suite.scoring
    if args.metrics is not None and name not in args.metrics.split(","):
        raise InputError(
            f"--metrics={args.metrics} must name {name} with --{suite.name}"
        )
    metrics = flags.metrics_of(args, (name,), {name: options})
    if column not in metrics[name].columns:
        raise InputError(
            f"{suite.flag} is scored by {column}; leave out --metric_option={name}.types"
        )
    return metrics


def _references(
    args: argparse.Namespace,
    suite: _Suite | None,
    metrics: "Metrics",
    predictions: Mapping[str, "Prediction"],
) -> dict[str, "Pair"]:
    """Returns the documents with their references, by id."""
    from longsum_jax.evaluation.comparison import own_references
    from longsum_jax.evaluation.predictions import read_pairs
    from longsum_jax.evaluation.scrolls import read_scrolls

    if suite is not None:
        return read_scrolls(args.references, args.split)
    reading = [name for name, metric in metrics.items() if metric.reads_sources]
    if args.references is None:
        if reading or args.report:
            if reading:
                flag = f"--metrics={','.join(reading)}"
            else:
                flag = f"--report={args.report}"
            raise InputError(
                f"{flag} needs the documents; give --references=FILE"
            )
        return own_references(predictions, args.predictions)
    return read_pairs(
        args.references,
        document_key=args.document_key,
        summary_key=args.summary_key,
        require_document=bool(reading or args.report),
    )


def _published(choices: Sequence[str]) -> "list[PublishedBlock]":
    """Returns the published rows selected by --published."""
    if not choices:
        return []
    from longsum_jax.evaluation.published import find_published

    return [block for choice in choices for block in find_published(choice)]


def _result(
    systems: Sequence["System"],
    differences: Mapping[str, Mapping[str, "Difference"]],
    metrics: "Metrics",
    sampling: "Sampling",
) -> dict[str, Any]:
    """Returns all numbers and the settings they depend on, for scores.json."""
    from longsum_jax import __version__

    systems_json = {}
    for system in systems:
        systems_json[system.name] = {
            "scores": system.values,
            "intervals": system.intervals,
            "empty_predictions": sum(
                not text.strip() for text in system.predictions
            ),
        }
        if system.name in differences:
            columns = differences[system.name]
            systems_json[system.name]["against"] = {
                column: difference._asdict()
                for column, difference in columns.items()
            }
    return {
        "examples": len(systems[0].predictions),
        "systems": systems_json,
        "metrics": {
            name: metric.describe() for name, metric in metrics.items()
        },
        "sampling": sampling._asdict(),
        "longsum_jax": __version__,
    }


def _write(
    out: Path,
    result: dict[str, Any],
    systems: Sequence["System"],
    pairs: Sequence["Pair"],
) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with atomic.open_text(out / "scores.jsonl") as file:
            for number, pair in enumerate(pairs):
                scores = {
                    system.name: system.scores[number] for system in systems
                }
                row = {"id": pair.id, "scores": scores}
                file.write(json_text(row) + "\n")
    except OSError as error:
        raise console.unwritable(out, error) from error
    _write_json(out, result)


def _write_json(out: Path, result: dict[str, Any]) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        atomic.write_text(
            out / "scores.json", json.dumps(result, indent=2) + "\n"
        )
    except OSError as error:
        raise console.unwritable(out, error) from error


def _print(
    result: dict[str, Any],
    systems: Sequence["System"],
    differences: Mapping[str, Mapping[str, "Difference"]],
    metrics: "Metrics",
    pairs: Sequence["Pair"],
) -> None:
    from longsum_jax.evaluation.predictions import columns_of
    from longsum_jax.evaluation.tables import score_table

    rows = {
        column: [
            _cell(system, column, differences.get(system.name))
            for system in systems
        ]
        for column in columns_of(metrics)
    }
    console.print_stdout(score_table([system.name for system in systems], rows))
    sampling = result["sampling"]
    console.print_stdout(
        f"{counted(result['examples'], 'document')}, intervals of {100 * sampling['level']:g} %"
        + _left_out_text(result)
    )
    if differences:
        console.print_stdout(
            f"* differs from {systems[0].name} at p < {SIGNIFICANT} ({sampling['test']}, "
            f"{sampling['rounds']} rounds, Holm over {len(differences)})"
        )
    for name in ("scrolls", "zero_scrolls"):
        if name in result:
            console.print_stdout(
                f"the score of {result[name]['task']} is {result[name]['column']}"
            )
    for name, system_result in result["systems"].items():
        if system_result["empty_predictions"]:
            empty = counted(
                system_result["empty_predictions"], "empty prediction"
            )
            console.print_stdout(f"{name}: {empty}, scored as is")
    for described in result["metrics"].values():
        if "signature" in described:
            console.print_stdout(described["signature"])
    flags.print_notes(metrics, [pair.reference for pair in pairs])


def _print_published(
    blocks: Sequence["PublishedBlock"],
    systems: Sequence["System"],
    metrics: "Metrics",
) -> None:
    """Prints the scores of the files, followed by the published rows."""
    from longsum_jax.evaluation.published import read_published
    from longsum_jax.evaluation.rouge import Rouge

    rouge = metrics.get("rouge")
    for block in blocks:
        _print_block(block, systems)
    for name in dict.fromkeys(block.paper for block in blocks):
        paper = read_published()[name]
        console.print_stdout(f"\n{name}: {paper.rouge}")
        if isinstance(rouge, Rouge) and paper.stemmer not in (
            None,
            rouge.options.stemmer,
        ):
            if paper.stemmer:
                remedy = "give --stemmer"
            else:
                remedy = "leave out --stemmer"
            console.print_stdout(
                f"{name}: stemming differs from the paper; {remedy} for the same ROUGE"
            )


def _print_block(block: "PublishedBlock", systems: Sequence["System"]) -> None:
    """Prints the rows of one table, or the required metrics if none was scored."""
    from longsum_jax.evaluation.tables import score_table

    split = f", {block.split}" if block.split else ""
    console.print_stdout(
        f"\n{block.paper}, table {block.table}: {block.dataset}{split}"
    )
    scored = systems[0].values
    if not scored.keys().isdisjoint(block.metrics):
        values: dict[str, Mapping[str, float]] = {}
        for system in systems:
            values[system.name] = system.values
        values.update(block.systems)
        rows: dict[str, list[str]] = {}
        for name, scores in values.items():
            row = rows[name] = []
            for metric in block.metrics:
                if metric in scores:
                    row.append(f"{scores[metric]:.2f}")
                else:
                    row.append("-")
        console.print_stdout(score_table(block.metrics, rows))
        for note in block.notes:
            console.print_stdout(note)
    comparable = [
        metric for metric in block.metrics if not metric.endswith("?")
    ]
    absent = [metric for metric in comparable if metric not in scored]
    if absent:
        console.print_stdout(
            f"not scored here: {', '.join(absent)}; see --metrics and --metric_option"
        )


def _left_out(
    references: Mapping[str, "Pair"], *files: Mapping[str, "Prediction"]
) -> dict[str, int]:
    """Returns the numbers of documents not scored, and of documents without references."""
    ids = set(references)
    counts = {
        "left_out": len(ids) - len(ids.intersection(*files)),
        "without_references": len(set().union(*files) - ids),
    }
    return {name: count for name, count in counts.items() if count}


def _left_out_text(counts: Mapping[str, Any]) -> str:
    text = ""
    if "left_out" in counts:
        text += f", {counted(counts['left_out'], 'document')} left out"
    if "without_references" in counts:
        text += f", {counted(counts['without_references'], 'document')} without references left out"
    return text


def _cell(
    system: "System",
    column: str,
    differences: Mapping[str, "Difference"] | None,
) -> str:
    """Returns a value with its interval, and a star if it differs from the first system."""
    text = f"{system.values[column]:.2f}"
    if column in system.intervals:
        low, high = system.intervals[column]
        text += f" [{low:.2f}, {high:.2f}]"
    if differences is None:
        return text
    difference = differences.get(column)
    return text + (
        "*" if difference and difference.p_value < SIGNIFICANT else " "
    )
