"""longsum score: scores summaries of any system, with confidence intervals and tests."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longsum_jax.commands import console, flags
from longsum_jax.commands.score_output import (
    DOCUMENT_SCORES,
    RESULT,
    left_out,
    print_published,
    print_result,
    result_of,
    write_result,
)
from longsum_jax.commands.score_suite import Suite, score_all, submit, suite_of
from longsum_jax.errors import InputError
from longsum_jax.readers.paths import short_names

if TYPE_CHECKING:
    from longsum_jax.evaluation.comparison import Prediction
    from longsum_jax.evaluation.predictions import Metrics, Pair
    from longsum_jax.evaluation.published import PublishedBlock

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
      --metric_option=bertscore.model=FacebookAI/roberta-large

  # published results of LSG and AWESOME on arXiv below the scores of a file
  longsum score predictions.jsonl --references=arxiv/test.jsonl --stemmer \\
      --published=lsg:arxiv --published=awesome:table7

Numbers in brackets are confidence intervals (bootstrap over documents). A star marks a system that
differs from the first at p < 0.05, adjusted for the number of systems (Holm). --out writes
DIR/scores.json, with each difference, its interval, its p-value and the smallest difference that
this number of documents can show, and DIR/scores.jsonl with the scores of every document.
"""


def main(argv: Sequence[str]) -> None:
    """Scores files of predictions.

    Raises:
        InputError: files or settings are invalid.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    suite = suite_of(args)
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
        submit(args, whole)
    else:
        score_all(args, whole)


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
    flags.add_sampling_flags(parser, "rounds for tests and intervals")
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="directory for scores.json and scores.jsonl",
    )
    flags.add_report_flag(parser)
    flags.add_align_flag(parser)
    return parser


def _score(args: argparse.Namespace, suite: Suite | None) -> None:
    from longsum_jax.evaluation.comparison import (
        Sampling,
        common_documents,
        compare,
        read_predictions,
        score_system,
    )
    from longsum_jax.evaluation.report import ReportContent

    flags.check_file("report", args.report)
    inputs = [args.predictions, *args.against, args.references]
    flags.refuse_input("report", args.report, inputs)
    if args.out:
        for name in (RESULT, DOCUMENT_SCORES):
            flags.refuse_input("out", os.path.join(args.out, name), inputs)
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
    if args.references is None:
        _check_references(references, files)
    pairs = common_documents(references, files, args.on_missing)
    if args.out:
        flags.make_directory(args.out)  # fails before metrics take their time
    sampling = Sampling(args.test, args.rounds, args.level, args.seed)
    systems = []
    for name, predictions in files.items():
        with console.spinner(f"scoring {name}"):
            systems.append(
                score_system(name, predictions, pairs, metrics, sampling)
            )
    differences = compare(systems[0], systems[1:], metrics, sampling)
    result = result_of(systems, differences, metrics, sampling)
    result |= left_out(references, *files.values())
    if suite:
        result[suite.name] = {
            "task": suite.task,
            "column": suite.scoring.column,
        }
    if published:
        result["published"] = [block._asdict() for block in published]
    if args.out:
        write_result(Path(args.out), result, systems, pairs)
    print_result(result, systems, differences, metrics, pairs)
    print_published(published, systems, metrics)
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


def _refuse_idle(
    args: argparse.Namespace,
    parser: argparse.ArgumentParser,
    suite: Suite | None,
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
    args: argparse.Namespace, parser: argparse.ArgumentParser, suite: Suite
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


def _metrics(args: argparse.Namespace, suite: Suite | None) -> "Metrics":
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
    suite: Suite | None,
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


def _check_references(
    references: Mapping[str, "Pair"],
    files: Mapping[str, Mapping[str, "Prediction"]],
) -> None:
    """Raises InputError if a file has other references than the first file for an id."""
    first = next(iter(files))
    for name, predictions in files.items():
        for document_id in references.keys() & predictions.keys():
            other = predictions[document_id].references
            if other and set(other).isdisjoint(
                references[document_id].references
            ):
                raise InputError(
                    f'{name}: the reference of "{document_id}" differs from the one in {first}; '
                    "give predictions of the same documents, or --references=FILE"
                )


def _published(choices: Sequence[str]) -> "list[PublishedBlock]":
    """Returns the published rows selected by --published."""
    if not choices:
        return []
    from longsum_jax.evaluation.published import find_published

    return [block for choice in choices for block in find_published(choice)]
