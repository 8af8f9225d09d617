"""longsum evaluate: scores a model's summaries, and the lead and random baselines."""

import argparse
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic, checksums
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted
from longsum_jax.files import json_text, read_json
from longsum_jax.locks import locked
from longsum_jax.progress import Bar

if TYPE_CHECKING:
    from longsum_jax.commands.beam_results import Summarize
    from longsum_jax.data.tasks import Task
    from longsum_jax.evaluation.aligners import Aligner
    from longsum_jax.evaluation.comparison import System
    from longsum_jax.evaluation.metric import Scores
    from longsum_jax.evaluation.predictions import (
        Metrics,
        Pair,
        PredictionsFile,
    )
    from longsum_jax.evaluation.rows_file import Row
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.summary_options import SummaryOptions

EXAMPLES = """\
  # your own documents and summaries, one JSON object per line
  longsum evaluate --model=runs/reports --data=reports/test.jsonl --out=runs/reports/test

  # a named data set from TensorFlow Datasets; the same with other files
  longsum evaluate --model=runs/arxiv --task=arxiv --split=test --out=runs/arxiv/test
  longsum evaluate --model=runs/qmsum --task=qmsum --source='json:qmsum/{split}.jsonl' \\
      --split=test --out=runs/qmsum/test

  # other field names, beam search, the first 500 documents
  longsum evaluate --model=locost-base --data='test-*.jsonl.gz' --out=results \\
      --document_key=article --summary_key=abstract --num_beams=4 --examples=500

  # summaries of a fixed length
  longsum evaluate --model=runs/books --data=books.jsonl --length="150 words" --out=results

  # with a page that shows every document next to its summaries
  longsum evaluate --model=runs/reports --data=reports/test.jsonl --out=results \\
      --report=report.html

  # models for labels, answers or masked tokens, scored by their training objective
  longsum evaluate --model=runs/scotus --task=scotus --split=test --out=runs/scotus/test

Writes each summary to OUT/predictions.jsonl as soon as it is finished, and OUT/metrics.json with
confidence intervals at the end. If started again, documents whose ids are in predictions.jsonl are
skipped. longsum score compares such files. For tasks without summaries, all lines are written at
the end.
"""

# Flags in the short help.
EVERYDAY = (
    *("model", "data", "task", "split", "out", "examples", "metrics", "report"),
    *("length", "strategy", "batch_size", "dry_run"),
)
DATA_KEYS = ("document_key", "summary_key", "query_key", "document_separator")
TASK_ONLY = ("split", "source", "data_dir", "cache_dir")
DEFAULT_SPLIT = "test"
SETTINGS = "settings.json"  # all settings that predictions depend on
OUTPUTS = (SETTINGS, "predictions.jsonl", "metrics.json")
# Flags that have an effect for tasks without summaries.
OBJECTIVE_FLAGS = (
    *(
        "model",
        "task",
        "out",
        "examples",
        "batch_size",
        "max_source_length",
        "seed",
    ),
    *("document_key", "query_key", *TASK_ONLY, *flags.LABEL_FLAGS),
    *("revision", "which", "base", "architecture", "tokenizer"),
    *flags.COMPUTATION_FLAGS,
    "param_dtype",
)


def main(argv: Sequence[str]) -> None:
    """Evaluates a model on a data set.

    Raises:
        InputError: the data or settings are invalid.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    _resolve_source(args)
    task = _task_without_summaries(args)
    if task is not None:
        others = [name for name in vars(args) if name not in OBJECTIVE_FLAGS]
        flags.refuse_idle(
            args,
            parser,
            others,
            f"with --task={task.name}, which has no summaries",
        )
        _evaluate_objective(args, task)
        return
    flags.refuse_idle(args, parser, flags.LABEL_FLAGS, "on summaries")
    with console.memory_errors(console.SUMMARY_ADVICE):
        _evaluate(args)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "evaluate",
        "Scores the summaries of a model against references.",
        EXAMPLES,
        EVERYDAY,
    )
    flags.add_model_flags(parser)
    parser.add_argument(
        "--data",
        metavar="FILE",
        help="JSON lines, CSV or Parquet, a glob, or a source such as hf:ORG/NAME; or give "
        "--task",
    )
    flags.add_task_flags(
        parser,
        "sources and fields (with --data, the default fields are document, summary, query)",
        flags.LABEL_FLAGS,
    )
    parser.add_argument(
        "--split", help=f"split of the task; default: {DEFAULT_SPLIT}"
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="DIR",
        help="directory for metrics.json and predictions.jsonl",
    )
    parser.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="only the first N documents; default: all",
    )
    flags.add_beam_flag(
        parser, "summarize with Apache Beam, whose workers load the model"
    )
    flags.add_report_flag(parser)
    flags.add_align_flag(parser)
    flags.add_metric_flags(parser)
    flags.add_summary_flags(
        parser, strategy="as the model was trained, direct or memory"
    )
    flags.add_dry_run_flag(parser)
    return parser


def _resolve_source(args: argparse.Namespace) -> None:
    """Changes --data=SOURCE, such as hf:ORG/NAME, to --task=summaries --source=SOURCE."""
    from longsum_jax.data.tasks import is_source

    if args.data is not None and args.task is None and is_source(args.data):
        if args.source is not None:
            raise InputError(
                f"--data={args.data} and --source={args.source} are both sources; leave one out"
            )
        args.task, args.source, args.data = "summaries", args.data, None


def _task_without_summaries(args: argparse.Namespace) -> "Task | None":
    """Returns the task of --task if its models output labels, answers or masked tokens instead."""
    if args.task is None or args.data is not None:
        return None
    task = flags.task_of(args, flags.LABEL_FLAGS)
    return None if task.writes_summaries else task


def _evaluate_objective(args: argparse.Namespace, task: "Task") -> None:
    """Scores a model by its training objective."""
    from longsum_jax.experiment.trained import objective_of
    from longsum_jax.summarization.loading import load

    if args.batch_size == "auto":
        raise InputError(
            f"--batch_size=auto is for summaries, which --task={task.name} does not have"
        )
    split = args.split or DEFAULT_SPLIT
    task.source_split(split)
    _note_idle_split(args, task)
    model = load(args.model, **flags.load_options(args))
    with console.spinner(f'reading split "{split}" of {task.source}'):
        objective = objective_of(
            model,
            task,
            split=split,
            examples=args.examples,
            batch_size=args.batch_size,
            max_source_length=args.max_source_length,
            seed=args.seed,
        )
    settings = _flags_and_model(args, model) | {
        "examples": args.examples,
        "seed": args.seed,
        **flags.given(args, flags.LABEL_FLAGS),
    }
    out = flags.make_directory(args.out)
    with locked(out, "evaluates", "give another --out"):
        _check_settings(out, settings)
        with console.spinner("evaluating"):
            evaluation = objective.evaluate(model.params)
        _remove_checksums(out)
        _write(out / SETTINGS, settings)
        lines = (json_text(row) + "\n" for row in evaluation.rows)
        atomic.write_text(out / "predictions.jsonl", "".join(lines))
        result = {
            "documents": len(evaluation.rows),
            "scores": evaluation.scores,
        }
        _write(out / "metrics.json", result | settings)
        checksums.write(out, lambda name: name in OUTPUTS)
    console.print_stdout(f"{objective.report(evaluation)}; details in {out}")


def _evaluate(args: argparse.Namespace) -> None:
    from longsum_jax.summarization.loading import load

    flags.check_file("report", args.report)
    flags.refuse_input("report", args.report, [args.data])
    flags.summary_options(args)  # refuses invalid options
    metrics = flags.metrics_of(args)
    aligner = flags.aligner_of(args)
    pairs = _read(args)
    model = load(args.model, **flags.load_options(args))
    if args.dry_run:
        _dry_run(args, model, pairs)
        return
    settings = _settings(args, model, metrics)
    out = flags.make_directory(args.out)
    with locked(out, "evaluates", "give another --out"):
        _evaluate_into(out, args, model, pairs, metrics, aligner, settings)


def _evaluate_into(
    out: Path,
    args: argparse.Namespace,
    model: "Model",
    documents: list["Pair"],
    metrics: "Metrics",
    aligner: "Aligner | None",
    settings: dict[str, Any],
) -> None:
    """Predicts and scores; continues existing predictions in the output directory."""
    from longsum_jax.evaluation.predictions import PredictionsFile, summary_of

    _check_settings(out, settings)
    predictions = PredictionsFile(out / "predictions.jsonl")
    predictions.check_content(documents)
    _predict(args, model, documents, metrics, predictions, settings)
    rows_by_id = {row["id"]: row for row in predictions.rows}
    rows = [rows_by_id[pair.id] for pair in documents]
    is_changed = _score_last(rows, documents, metrics, predictions.path)
    _remove_checksums(out)
    if is_changed:
        predictions.write_again()
    result = summary_of(rows, documents, metrics)
    systems = _systems(rows, result["scores"], documents, metrics)
    result["intervals"] = systems[0].intervals
    result["baselines"] = {system.name: system.values for system in systems[1:]}
    _write(out / "metrics.json", result | settings)
    checksums.write(out, lambda name: name in OUTPUTS)
    _print(result, metrics, out)
    flags.print_notes(metrics, [pair.reference for pair in documents])
    if args.report:
        _report(args.report, documents, systems, metrics, aligner)


def _systems(
    rows: list["Row"],
    values: "Scores",
    documents: list["Pair"],
    metrics: "Metrics",
) -> list["System"]:
    """Returns the model and the baselines with their scores."""
    from longsum_jax.evaluation.comparison import (
        Prediction,
        Sampling,
        System,
        intervals,
        score_system,
    )
    from longsum_jax.evaluation.predictions import baseline_predictions

    scores = [row["scores"] for row in rows]
    predictions = [row["prediction"] for row in rows]
    sampling = Sampling()
    systems = [
        System(
            "model",
            predictions,
            scores,
            values,
            intervals(metrics, scores, sampling),
        )
    ]
    for name, texts in baseline_predictions(documents).items():
        by_id = {
            pair.id: Prediction(text)
            for pair, text in zip(documents, texts, strict=True)
        }
        systems.append(score_system(name, by_id, documents, metrics, sampling))
    return systems


def _report(
    path: str,
    documents: list["Pair"],
    systems: list["System"],
    metrics: "Metrics",
    aligner: "Aligner | None",
) -> None:
    from longsum_jax.evaluation.comparison import Sampling, compare
    from longsum_jax.evaluation.report import ReportContent

    differences = compare(systems[0], systems[1:], metrics, Sampling())
    content = ReportContent(
        documents, systems, metrics, differences, Sampling(), aligner=aligner
    )
    flags.write_report(path, content)


def _read(args: argparse.Namespace) -> list["Pair"]:
    """Returns the documents of --data or --task with their references."""
    from longsum_jax.evaluation.predictions import read_pairs, read_task_pairs

    flags.check_one(args, data="FILE", task="NAME")
    if args.task is None:
        for name in TASK_ONLY:
            if getattr(args, name) is not None:
                raise InputError(
                    f"--{name}={getattr(args, name)} is for --task; leave it out"
                )
        keys = flags.given(args, DATA_KEYS)
        pairs = read_pairs(args.data, **keys, examples=args.examples)
        return list(pairs.values())
    task, split = flags.task_of(args), args.split or DEFAULT_SPLIT
    _note_idle_split(args, task)
    with console.spinner(f'reading split "{split}" of {task.source}'):
        documents, left_out = read_task_pairs(task, split, args.examples)
    if left_out:
        unusable = counted(left_out, "document")
        console.print_stderr(f"{unusable} without a text or a summary left out")
    return documents


def _note_idle_split(args: argparse.Namespace, task: "Task") -> None:
    """Notes that --split selects nothing in files that training may have read as well."""
    if args.split is not None and task.is_undivided:
        console.print_stderr(
            f"--split={args.split} has no effect on {task.source}, all documents of which are "
            'scored; for splits, write "{split}" in the names of the files'
        )


def _dry_run(
    args: argparse.Namespace, model: "Model", pairs: list["Pair"]
) -> None:
    from longsum_jax.commands.plan import dry_run_summaries

    options = _options(args, model)
    lengths = model.read_lengths(
        [pair.source for pair in pairs],
        options,
        names=[f'document "{pair.id}"' for pair in pairs],
        queries=[pair.query for pair in pairs],
    )
    dry_run_summaries(model, lengths, options)


def _predict(
    args: argparse.Namespace,
    model: "Model",
    pairs: list["Pair"],
    metrics: "Metrics",
    predictions: "PredictionsFile",
    settings: dict[str, Any],
) -> None:
    """Predicts the documents that the file does not contain yet, with a progress bar.

    The settings are written with the first row, so that a refused model leaves
    no files.
    """
    finished = {row["id"] for row in predictions.rows}
    missing = [pair for pair in pairs if pair.id not in finished]
    initial = len(pairs) - len(missing)
    with Bar(total=len(pairs), initial=initial, unit="document") as bar:

        def on_row(row: dict[str, Any]) -> None:
            _remove_checksums(predictions.path.parent)
            if not predictions.rows:
                _write(predictions.path.with_name(SETTINGS), settings)
            predictions.append(row)
            bar.update()

        beam = flags.beam_flags(args)
        if beam is None:
            _predict_all(args, model, missing, metrics, on_row)
        else:
            rows = _rows_of_beam(
                args, beam, missing, predictions.path.parent, settings
            )
            for row in rows:
                on_row(row)


def _predict_all(
    args: argparse.Namespace,
    model: "Model",
    pairs: Sequence["Pair"],
    metrics: "Metrics",
    on_row: Callable[["Row"], None] = lambda row: None,
) -> list["Row"]:
    """Returns the predictions of documents in this process; see ``predict``."""
    from longsum_jax.evaluation.predictions import predict

    with flags.on_devices(args, model) as parallel:
        options = _options(args, model)
        return predict(parallel, pairs, metrics, options, on_row=on_row)


def _rows_of_beam(
    args: argparse.Namespace,
    beam: Sequence[str],
    pairs: Sequence["Pair"],
    out: Path,
    settings: dict[str, Any],
) -> Iterator["Row"]:
    """Yields the predictions of documents, made on Beam, in the order of ``predict``."""
    from longsum_jax.commands.beam_results import corpus_results
    from longsum_jax.evaluation.predictions import prediction_order
    from longsum_jax.summarization.stream import window_size

    results = corpus_results(
        out,
        (list(pairs[i]) for i in prediction_order(pairs, args.batch_size)),
        partial(_load_predictor, args),
        beam,
        settings=settings,
        window=window_size(args.batch_size),
    )
    for result in results:
        yield result.results


def _load_predictor(args: argparse.Namespace) -> "Summarize":
    """Returns the function with which a worker of Beam predicts documents."""
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.summarization.loading import load

    model = load(args.model, **flags.load_options(args))
    metrics = flags.metrics_of(args)

    def predictions(rows: list[list[Any]]) -> list["Row"]:
        # JSON has lists for the tuples of a pair.
        pairs = [
            Pair._make([*texts, tuple(references), tuple(borders)])
            for *texts, references, borders in rows
        ]
        return _predict_all(args, model, pairs, metrics)

    return predictions


def _options(args: argparse.Namespace, model: "Model") -> "SummaryOptions":
    """Returns the options of the flags; the default strategy is the one of the model's training."""
    return flags.summary_options(args, strategy=model.trained_strategy)


def _score_last(
    rows: list[dict[str, Any]],
    pairs: list["Pair"],
    metrics: "Metrics",
    path: Path,
) -> bool:
    """Adds the scores that predictions lack; returns True if a row has changed."""
    from longsum_jax.evaluation.predictions import score_last, unscored_rows

    names = unscored_rows(rows, pairs, metrics)
    if not names:
        return False
    with console.spinner(f"scoring by {', '.join(names)}"):
        try:
            return score_last(rows, pairs, metrics)
        except InputError as error:
            raise InputError(
                f"{error}; the summaries are in {path}, which longsum score reads"
            ) from error


def _settings(
    args: argparse.Namespace, model: "Model", metrics: "Metrics"
) -> dict[str, Any]:
    """Returns all settings that the predictions and scores depend on."""
    names = ("strategy", "segment_length", "length", "prompt")
    generation = dataclasses.asdict(
        model.summary_options(**flags.generation_options(args))
    )
    settings = {
        **_flags_and_model(args, model, (*names, "decoder_storage")),
        "generation": _as_json(generation) | {"seed": args.seed},
    }
    for name, metric in metrics.items():
        # The metric "length" has the name of a flag.
        key = f"{name}_metric" if name in settings else name
        settings[key] = _as_json(metric.describe())
    return settings


def _flags_and_model(
    args: argparse.Namespace, model: "Model", names: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the settings shared by all evaluations, and the flags of further ``names``."""
    from longsum_jax import __version__

    names = (
        "model",
        "data",
        "task",
        *DATA_KEYS,
        *TASK_ONLY,
        "max_source_length",
        *names,
    )
    names += flags.COMPUTATION_FLAGS
    # None if a flag was omitted, which differs from any given value.
    settings = {name: getattr(args, name) for name in names}
    if args.task is not None:
        settings |= {
            "source": flags.task_of(args).source,
            "split": args.split or DEFAULT_SPLIT,
        }
    return {
        **settings,
        "weights": model.fingerprint,
        "config": model.config_fingerprint,
        "tokenizer": model.tokenizer.fingerprint,
        "longsum_jax": __version__,
    }


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values after a JSON round trip."""
    return json.loads(json.dumps(values))


def _check_settings(out: Path, settings: dict[str, Any]) -> None:
    """Refuses a directory that is damaged, or has predictions made with other settings."""
    checksums.check(out)
    path = out / SETTINGS
    try:
        if path.exists() and _holds_predictions(out):
            before = read_json(path)
        else:
            before = settings
        differing = _differing(before, settings)
        if differing:
            raise InputError(
                f"{out}: holds predictions made with another {', '.join(differing)}; give another "
                "--out"
            )
    except OSError as error:
        raise _unusable(out, error) from error


def _unusable(out: Path, error: OSError) -> InputError:
    return InputError(f"{out}: cannot be used ({error}); give another --out")


def _remove_checksums(out: Path) -> None:
    """Removes the checksums before a file changes; they are written at the end."""
    try:
        (out / checksums.SUMS).unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(out, error) from error


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns the names of different settings; for generation, the names of its options."""
    before = before | before.get("generation", {})
    now = now | now.get("generation", {})
    names = [name for name in now if before.get(name) != now[name]]
    return [name for name in names if name != "generation"] or names


def _holds_predictions(out: Path) -> bool:
    """Returns True if an earlier command has written predictions to a directory."""
    path = out / "predictions.jsonl"
    return path.exists() and path.stat().st_size > 0


def _write(path: Path, values: dict[str, Any]) -> None:
    """Writes values as JSON, which has no NaN: unmeasured scores become null."""
    from longsum_jax.training.writers import finite

    atomic.write_text(
        path, json.dumps(finite(values), allow_nan=False, indent=2) + "\n"
    )


def _print(result: dict[str, Any], metrics: "Metrics", out: Path) -> None:
    from longsum_jax.evaluation.registry import columns_of
    from longsum_jax.evaluation.tables import score_table

    columns = columns_of(metrics)
    scores = {"model": result["scores"], **result["baselines"]}
    rows = {
        name: [values[key] for key in columns]
        for name, values in scores.items()
    }
    console.print_stdout(score_table(columns, rows))
    console.print_stdout(
        f"{result['examples']} documents, {result['documents_per_second']} documents/s, "
        f"{result['read_tokens_per_second']} tokens/s, "
        f"{result['dropped_tokens']} of {result['document_tokens']} tokens not read, "
        f"{result['ended_by_limit']} summaries cut at the limit; details in {out}"
    )
