"""longsum corpus pairs: reference and unfaithful summaries, for preference training."""

import argparse
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted
from longsum_jax.evaluation.rows_file import RowsFile
from longsum_jax.files import read_json
from longsum_jax.locks import locked
from longsum_jax.progress import Bar

if TYPE_CHECKING:
    from longsum_jax.data.tasks import Task
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.summarization.model import Model

DEFAULT_NOISE = 0.5
# Flags in the short help.
EVERYDAY = (
    *(
        "model",
        "unconditional_model",
        "noise",
        "task",
        "source",
        "split",
        "half",
        "out",
    ),
    *("examples", "batch_size"),
)


def add(commands: Any) -> None:
    """Adds the subcommand to ``longsum corpus``."""
    parser = commands.add_parser(
        "pairs",
        help="JSON lines with the references and unfaithful summaries",
        description="Writes OUT/SPLIT.jsonl with rows of document, summary and rejected, for "
        "configs/prefer.py.\n"
        "Each token of a rejected summary is drawn with probability --noise from a model without\n"
        "access to the document. If started again, the command continues after the last row.",
        everyday=EVERYDAY,
    )
    flags.add_model_flags(parser)
    parser.add_argument(
        "--unconditional_model",
        metavar="DIR",
        help="model from which noise tokens are drawn, such as the pretrained model of "
        "--model; default: --model, with an empty document",
    )
    parser.add_argument(
        "--noise",
        type=float,
        default=DEFAULT_NOISE,
        metavar="P",
        help=f"probability that a token is drawn from it; default: {DEFAULT_NOISE}",
    )
    flags.add_task_flags(parser, "fields and places")
    parser.add_argument(
        "--split", default="train", help="split of the task; default: train"
    )
    parser.add_argument(
        "--half",
        help="first or second, for this half of the split train; default: all of it",
    )
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="DIR",
        help="directory for SPLIT.jsonl and its settings",
    )
    parser.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="only the first N documents; default: all",
    )
    flags.add_summary_flags(
        parser, ("batch_size", "max_source_length", "on_overflow")
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> None:
    if not 0 <= args.noise <= 1:
        raise InputError(
            f"--noise={args.noise} is a probability; give a number between 0 and 1"
        )
    task = _task(args)

    from longsum_jax.evaluation.predictions import read_task_pairs
    from longsum_jax.summarization.loading import load
    from longsum_jax.summarization.noisy import NoisySummarizer

    with console.spinner(f'reading split "{args.split}" of {task.source}'):
        pairs, without_summary = read_task_pairs(
            task, args.split, args.examples
        )
    model = load(args.model, **flags.load_options(args))
    unconditional = model
    if args.unconditional_model is not None:
        options = flags.given(
            args, (*flags.COMPUTATION_FLAGS, "param_dtype", "decoder_storage")
        )
        unconditional = load(args.unconditional_model, **options)
    summarizer = NoisySummarizer(model, unconditional, noise=args.noise)
    generation = dataclasses.asdict(
        summarizer.summary_options(**flags.generation_options(args))
    )
    settings = _settings(args, task, model, unconditional, generation)
    out = flags.make_directory(args.out)
    with (
        locked(out, "writes pairs", "give another --out"),
        console.memory_errors(console.SUMMARY_ADVICE),
    ):
        file = PairsFile(out / f"{args.split}.jsonl", settings)
        _write_pairs(args, file, pairs, model, unconditional)
        console.print_stdout(_report(file, pairs, without_summary))


def _task(args: argparse.Namespace) -> "Task":
    """Returns the task of the command line, which must have summaries.

    Raises:
        InputError: no task, a task without summaries, or --half with a split
            other than train.
    """
    if args.task is None:
        raise InputError(
            "give --task=NAME; longsum prepare --help-all lists the names"
        )
    task = flags.task_of(args)
    if not task.writes_summaries:
        raise InputError(
            f"--task={args.task} has no summaries; give a task with summaries, such as summaries"
        )
    task.source_split(args.split)
    if args.half is None:
        return task
    flags.check_half(args)
    from longsum_jax.data.tasks import get_task

    return get_task(
        args.task, **flags.given(args, (*flags.SOURCE_FLAGS, "half"))
    )


class PairsFile(RowsFile):
    """A file of pairs to which rows are appended one by one.

    An interrupted command continues after the last row. The file
    PATH.settings.json next to it contains all settings that the rows depend on.

    Args:
        path: path of the file, which need not exist.
        settings: settings of new rows.

    Attributes:
        by_id: rows of the file by id.

    Raises:
        InputError: the file cannot be read, or contains rows made with other
            settings.
    """

    columns = ("id", "document", "summary", "rejected")
    kind = "a row of pairs"

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        super().__init__(path)
        self.by_id = {row["id"]: row for row in self.rows}
        self._settings = json.loads(json.dumps(settings))
        self._settings_path = path.with_name(f"{path.name}.settings.json")
        if self.rows:
            self._check_settings()

    def check(self, pairs: list["Pair"]) -> None:
        """Raises InputError if the document, query or summary of a row has changed."""
        for pair in pairs:
            row = self.by_id.get(pair.id)
            if row is None:
                continue
            before = row["document"], row.get("query"), row["summary"]
            if before != (pair.source, pair.query, pair.reference):
                raise InputError(
                    f'{self.path}: the document, query or summary of "{pair.id}" has changed since '
                    "its pair was written; give another --out"
                )

    def add(self, pair: "Pair", rejected: str) -> None:
        """Appends the row of a pair.

        Raises:
            InputError: the file cannot be written; earlier rows are kept.
        """
        if pair.query is None:
            query = {}
        else:
            query = {"query": pair.query}
        row = {
            "id": pair.id,
            "document": pair.source,
            **query,
            "summary": pair.reference,
        }
        row["rejected"] = rejected
        try:
            if not self.rows:
                atomic.write_text(
                    self._settings_path,
                    json.dumps(self._settings, indent=2) + "\n",
                )
        except OSError as error:
            raise self._not_written(error) from error
        self.append(row)
        self.by_id[pair.id] = row

    def _check_settings(self) -> None:
        before = read_json(self._settings_path)
        differing = [
            name
            for name, value in self._settings.items()
            if before.get(name, ...) != value
        ]
        if differing:
            raise InputError(
                f"{self.path}: holds pairs made with another {', '.join(differing)}; give another "
                "--out"
            )


def _write_pairs(
    args: argparse.Namespace,
    file: PairsFile,
    pairs: list["Pair"],
    model: "Model",
    unconditional: "Model",
) -> None:
    """Writes the missing rows, with a progress bar."""
    from longsum_jax.evaluation.predictions import predict
    from longsum_jax.summarization.noisy import NoisySummarizer

    file.check(pairs)
    missing = {pair.id: pair for pair in pairs if pair.id not in file.by_id}
    done = len(pairs) - len(missing)
    with (
        Bar(total=len(pairs), initial=done, unit="document") as bar,
        flags.on_devices(args, model) as parallel,
        flags.on_devices(args, unconditional) as parallel_unconditional,
    ):
        summarizer = NoisySummarizer(
            parallel, parallel_unconditional, noise=args.noise
        )

        def on_row(row: dict[str, Any]) -> None:
            pair, rejected = missing[row["id"]], row["prediction"]
            # Empty or unchanged summaries are useless for training; the next
            # start retries them.
            if rejected.strip() and rejected != pair.reference:
                file.add(pair, rejected)
            bar.update()

        predict(
            summarizer,
            list(missing.values()),
            {},
            flags.summary_options(args),
            on_row=on_row,
        )


def _settings(
    args: argparse.Namespace,
    task: "Task",
    model: "Model",
    unconditional: "Model",
    generation: dict[str, Any],
) -> dict[str, Any]:
    """Returns all settings that the rows depend on."""
    from longsum_jax import __version__

    names = (
        "noise",
        "half",
        "max_source_length",
        "seed",
        *flags.COMPUTATION_FLAGS,
        "decoder_storage",
    )
    return {
        "source": task.source,
        "split": args.split,
        **{name: getattr(args, name) for name in names},
        "weights": model.fingerprint,
        "unconditional_weights": unconditional.fingerprint,
        "tokenizer": model.tokenizer.fingerprint,
        "generation": generation,
        "longsum_jax": __version__,
    }


def _report(file: PairsFile, pairs: list["Pair"], without_summary: int) -> str:
    """Returns a report of the numbers of written pairs and skipped documents.

    Raises:
        InputError: no pair was written.
    """
    written = sum(pair.id in file.by_id for pair in pairs)
    if not written:
        raise InputError(
            f"{file.path}: each of {counted(len(pairs), 'noisy summary')} is "
            "empty or the reference, so no pair was written; check --model and "
            "--unconditional_model, or give another --noise or --min_new_tokens"
        )
    report = f"{file.path}: {counted(written, 'pair')}"
    if left_out := len(pairs) - written:
        report += f"; {left_out:,} left out, whose noisy summary is empty or the reference"
    if without_summary:
        report += f"; {without_summary:,} without a text or a summary left out"
    return report
