"""longsum corpus: describes data sets, and converts them to JSON Lines."""

import argparse
import dataclasses
import itertools
import json
import math
import statistics
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from longsum_jax import atomic
from longsum_jax.commands import console, flags, noisy_pairs, overlap
from longsum_jax.errors import InputError, counted
from longsum_jax.files import json_text
from longsum_jax.progress import Bar

if TYPE_CHECKING:
    from longsum_jax.data.govreport import SummarySection
    from longsum_jax.data.tasks import Task
    from longsum_jax.text.documents import DataRow
    from longsum_jax.text.extractive import Extractiveness
    from longsum_jax.text.lengths import LengthStatistics

EXAMPLES = """\
  # lengths, compression, coverage and density of data sets
  longsum corpus statistics pubmed/test.jsonl reports/test.jsonl.gz --out=statistics.json

  # lengths in tokens of all splits and of one split; an empty --summary_key is for documents
  # without summaries, and --tokenizer=whitespace counts words
  longsum corpus statistics 'arxiv/*.jsonl' arxiv/test.jsonl --tokenizer=spiece.model
  longsum corpus statistics 'scotus/*.jsonl' --document_key=text --summary_key= \\
      --tokenizer=whitespace

  # test documents that share 13 words in a row with training documents
  longsum corpus overlap reports/test.jsonl --train='reports/train.jsonl'

  # named data sets as JSON lines: all splits (arxiv/train.jsonl, ...), or one compressed split
  longsum corpus export --task=arxiv --out=arxiv
  longsum corpus export --task=mediasum --split=test --out=mediasum-test.jsonl.gz --examples=500

  # the release of GovReport (directory gov-report) as reports/train.jsonl, validation.jsonl and
  # test.jsonl, for config.task.source='json:reports/{split}.jsonl' and --data=reports/test.jsonl
  longsum corpus govreport gov-report reports

  # unfaithful summaries for configs/prefer.py, of the half of a data set that a model was not
  # trained on
  longsum corpus pairs --model=runs/half --unconditional_model=led-base --task=summaries \\
      --source='json:reports/{split}.jsonl' --half=second --noise=0.5 --out=runs/pairs

Coverage is the fraction of a summary's words in fragments copied from the document, density the
mean length of a word's fragment (Grusky et al. 2018). Percentiles are interpolated linearly, as in
numpy.percentile. longsum plots bigrams shows the positions of summary words in documents.
"""
# Objectives that derive training data by rules -> objectives that read it from
# files.
_READERS = {"claims": "classify_pairs", "cloze": "answer"}
EXPORT_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.xz")
HEADS = (
    "documents",
    "document words",
    "summary words",
    "compression",
    "coverage",
    "density",
)
TOKEN_HEADS = ("mean", "median", "90th percentile", "largest")
WHITESPACE = "whitespace"  # --tokenizer for pieces between white space


def main(argv: Sequence[str]) -> None:
    """Runs one subcommand.

    Raises:
        InputError: the data are invalid.
    """
    args = _parser().parse_args(argv)
    args.run(args)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "corpus", "Describes data sets, and writes JSON lines.", EXAMPLES
    )
    commands = parser.add_subparsers(
        required=True, metavar="statistics|overlap|export|govreport|pairs"
    )
    describe = commands.add_parser(
        "statistics", help="lengths, compression, coverage and density"
    )
    add_data_flags(describe)
    describe.add_argument(
        "--tokenizer",
        metavar="PATH",
        help=".model file, tokenizer directory, bytes or whitespace: adds the lengths of documents "
        "and summaries in tokens",
    )
    describe.add_argument(
        "-o", "--out", metavar="FILE", help="JSON file for the statistics"
    )
    describe.set_defaults(run=_statistics)
    overlap.add(commands)
    _add_export(commands)
    govreport = commands.add_parser(
        "govreport", help="write the release of GovReport as JSON lines"
    )
    govreport.add_argument(
        "source",
        metavar="SRC",
        help="the directory gov-report, which contains split_ids, crs and gao",
    )
    govreport.add_argument(
        "target",
        metavar="DST",
        help="directory for train.jsonl, validation.jsonl and test.jsonl",
    )
    govreport.set_defaults(run=_govreport)
    noisy_pairs.add(commands)
    return parser


def _add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export", help="write a named data set as JSON lines"
    )
    flags.add_task_flags(export, "fields and places")
    export.add_argument(
        "--split",
        metavar="NAME[,NAME]",
        help="splits of the task; default: all",
    )
    export.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="PATH",
        help="file to write (.jsonl, .jsonl.gz or .jsonl.xz; {split} in it becomes the "
        "split name), or a directory for {split}.jsonl",
    )
    export.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="only the first N documents of a split; default: all",
    )
    export.set_defaults(run=_export)


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """Adds data files, --document_key, --summary_key and --examples."""
    parser.add_argument(
        "data",
        nargs="+",
        metavar="FILE",
        help="JSON lines, plain or compressed, or a glob",
    )
    flags.add_data_keys(parser)
    parser.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="only the first N documents of each; default: all",
    )


def read_pairs(
    path: str, args: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """Yields the document and summary of each selected row of a data set."""
    from longsum_jax.text.documents import read_json_lines

    rows = read_json_lines(
        path, document_key=args.document_key, summary_key=args.summary_key
    )
    return (
        (row.document, row.only_summary)
        for row in itertools.islice(rows, args.examples)
    )


class _DataSet(NamedTuple):
    """Statistics of a data set; ``tokens`` contains the lengths of each kind of text."""

    path: str
    documents: int
    means: "Extractiveness"
    tokens: dict[str, "LengthStatistics"]


def _statistics(args: argparse.Namespace) -> None:
    flags.refuse_input("out", args.out, args.data)
    count_tokens = _token_counter(args.tokenizer)
    data_sets = [_describe(path, args, count_tokens) for path in args.data]
    width = max(len(path) for path in args.data)
    console.print_stdout(
        " ".join([" " * width, *(f"{head:>14}" for head in HEADS)])
    )
    for data_set in data_sets:
        cells = _cells(data_set.means)
        console.print_stdout(
            " ".join(
                [
                    f"{data_set.path:<{width}}",
                    f"{data_set.documents:14,}",
                    *cells,
                ]
            )
        )
    if args.tokenizer is not None:
        _print_tokens(args.tokenizer, data_sets)
    if args.out:
        rows = [_json_row(data_set, args.tokenizer) for data_set in data_sets]
        _write(Path(args.out), json.dumps(rows, indent=2) + "\n")


def _token_counter(tokenizer: str | None) -> Callable[[str], int] | None:
    """Returns the function that counts the tokens of a text; None without a tokenizer."""
    if tokenizer is None:
        return None
    if tokenizer == WHITESPACE:
        return lambda text: len(text.split())
    from longsum_jax.tokenizers.loading import load_tokenizer

    loaded = load_tokenizer(tokenizer)
    return lambda text: len(loaded.encode(text))


def _describe(
    path: str,
    args: argparse.Namespace,
    count_tokens: Callable[[str], int] | None,
) -> _DataSet:
    """Returns the statistics of a data set, whose documents are read one at a time.

    Per document, 8 bytes remain in memory for its token count, and 8 for the
    summary's.
    """
    from longsum_jax.text.documents import read_json_lines
    from longsum_jax.text.extractive import mean_extractiveness
    from longsum_jax.text.lengths import length_statistics

    has_summaries = args.summary_key != ""
    rows = read_json_lines(
        path,
        document_key=args.document_key,
        summary_key=args.summary_key,
        require_summary=has_summaries,
    )
    rows = itertools.islice(rows, args.examples)
    lengths = {"document": array("q"), "summary": array("q")}
    count = 0

    def pairs() -> Iterator[tuple[str, str | None]]:
        nonlocal count
        for row in Bar(rows, path, args.examples, unit="document"):
            count += 1
            summary = None
            if has_summaries:
                summary = row.only_summary
            for kind, text in (
                ("document", row.document),
                ("summary", summary),
            ):
                if count_tokens is not None and text is not None:
                    lengths[kind].append(count_tokens(text))
            yield row.document, summary

    means = mean_extractiveness(pairs())
    tokens = {
        kind: length_statistics(values)
        for kind, values in lengths.items()
        if values
    }
    return _DataSet(path, count, means, tokens)


def _cells(means: "Extractiveness") -> list[str]:
    """Returns the means as text; a dash for an absent number."""
    formats = ("14,.1f", "14,.1f", "14.2f", "14.3f", "14.2f")
    cells = []
    for value, pattern in zip(means, formats, strict=True):
        if math.isnan(value):
            cells.append(f"{'-':>14}")
        else:
            cells.append(format(value, pattern))
    return cells


def _print_tokens(tokenizer: str, data_sets: Sequence[_DataSet]) -> None:
    rows = {
        f"{data_set.path} {kind}": lengths
        for data_set in data_sets
        for kind, lengths in data_set.tokens.items()
    }
    title = f"tokens ({tokenizer})"
    width = max(map(len, [title, *rows]))
    console.print_stdout()
    console.print_stdout(
        " ".join(
            [f"{title:<{width}}", *(f"{head:>15}" for head in TOKEN_HEADS)]
        )
    )
    for name, lengths in rows.items():
        cells = [f"{lengths.mean:15,.2f}", f"{lengths.median:15,.1f}"]
        cells += [f"{lengths.percentile_90:15,.1f}", f"{lengths.largest:15,}"]
        console.print_stdout(" ".join([f"{name:<{width}}", *cells]))


def _json_row(data_set: _DataSet, tokenizer: str | None) -> dict[str, Any]:
    """Returns the JSON object of a data set; absent numbers are null."""
    means = {
        name: None if math.isnan(value) else value
        for name, value in data_set.means._asdict().items()
    }
    row = {"data": data_set.path, "documents": data_set.documents, **means}
    if tokenizer is not None:
        row["tokenizer"] = tokenizer
    for kind, lengths in data_set.tokens.items():
        row[f"{kind}_tokens"] = lengths._asdict()
    return row


def _export(args: argparse.Namespace) -> None:
    if args.task is None:
        raise InputError(
            "give --task=NAME; longsum prepare --help-all lists the names"
        )
    task = flags.task_of(args)
    if task.base_objective == "gap_sentences":
        if task.cache_dir is not None:
            raise InputError(
                f"--cache_dir={task.cache_dir} holds pieces of documents, without their gap "
                "sentences; leave it out"
            )
        # the reader of the file will cut them
        task = dataclasses.replace(task, piece_words=None)
    if args.split is None:
        splits = list(task.splits)
    else:
        splits = args.split.split(",")
    for split in splits:
        task.source_split(split)  # raises for an unknown split
    for split, path in _targets(args.out, splits).items():
        _export_split(task, split, path, args.examples)


def _targets(out: str, splits: Sequence[str]) -> dict[str, Path]:
    """Returns the output file of each split; refuses existing files."""
    is_file = out.endswith(EXPORT_SUFFIXES)
    if not is_file and Path(out).suffix and not Path(out).is_dir():
        raise InputError(
            f"--out={out}: end it in {', '.join(EXPORT_SUFFIXES)}, or name a directory"
        )
    if is_file:
        pattern = out
    else:
        pattern = str(Path(out) / "{split}.jsonl")
    if "{split}" not in pattern and len(splits) > 1:
        raise InputError(
            f'--out={out} is one file for {len(splits)} splits; put "{{split}}" into its name or '
            f"give one as --split={splits[0]}"
        )
    paths = {split: Path(pattern.replace("{split}", split)) for split in splits}
    for path in paths.values():
        if path.exists():
            raise InputError(
                f"{path} already exists; remove it or give another --out"
            )
    return paths


def _export_split(
    task: "Task", split: str, path: Path, examples: int | None
) -> None:
    """Writes the documents of a split, except unreadable ones (without text or summary)."""
    from longsum_jax.data.sources import documents

    left_out = 0

    def found() -> Iterator["DataRow"]:
        nonlocal left_out
        for document in documents(task, split):
            if _is_complete(task, document):
                yield document
            else:
                left_out += 1

    selected = itertools.islice(found(), examples)
    with console.spinner(f'reading split "{split}" of {task.source}'):
        first = next(selected, None)
    if first is None:
        raise InputError(
            f'task "{task.name}": split "{split}" has no document with a text and a summary; '
            "give another --split"
        )
    bar = Bar(
        itertools.chain([first], selected), path.name, examples, unit="document"
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.open_text(path) as file:
            count = _write_rows(file, bar, _field_names(task))
    except OSError as error:
        raise console.unwritable(path, error) from error
    report = f"{path}: {counted(count, 'document')}"
    if left_out:
        report += f"; {left_out:,} without a text or a summary left out"
    console.print_stdout(report)


def _is_complete(task: "Task", document: "DataRow") -> bool:
    has_summary = bool(document.summary and document.only_summary.strip())
    has_answer = task.base_objective == "cloze"  # derived from a summary
    return bool(document.document.strip()) and (
        has_summary or has_answer or not task.needs_summary
    )


def _field_names(task: "Task") -> dict[str, str]:
    """Returns the names of document fields in a JSON Lines task."""
    from longsum_jax.data.tasks import get_task

    objective = _READERS.get(task.base_objective, task.objective)
    reader = get_task(task.name, objective=objective, source="json:OUT")
    return {
        "document": reader.document_key.rpartition("|")[2],
        "query": reader.query_key or "query",
        "label": reader.label_key,
    }


def _write_rows(
    file: TextIO, documents: Iterable["DataRow"], names: Mapping[str, str]
) -> int:
    """Writes documents as JSON Lines, with some fields renamed, and returns their number."""
    count = 0
    for count, document in enumerate(documents, 1):  # noqa: B007
        file.write(json_text(_row(document, names)) + "\n")
    return count


def _row(document: "DataRow", names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the JSON object of a document, without absent fields."""
    values = document._asdict()
    del values["borders"]  # the text has empty lines between its documents
    row = {"id": values.pop("id"), **values}
    return {
        names.get(key, key): value
        for key, value in row.items()
        if value is not None
    }


def _govreport(args: argparse.Namespace) -> None:
    from longsum_jax.data.govreport import SPLITS, SummarySection, aspect_shares
    from longsum_jax.evaluation.tables import score_table

    target = Path(args.target)
    aspects: dict[str, list[SummarySection]] = {}
    try:
        with atomic.scratch_directory(target) as work:
            notes = {
                split: _write_split(
                    args.source, split, work / f"{split}.jsonl", aspects
                )
                for split in SPLITS
            }
            target.mkdir(exist_ok=True)
            for split, note in notes.items():
                (work / f"{split}.jsonl").replace(target / f"{split}.jsonl")
                console.print_stdout(f"{target / split}.jsonl: {note}")
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); give another DST"
        ) from error
    console.print_stdout(
        f"aspects of {counted(len(aspects), 'GAO summary')} in %, all splits"
    )
    console.print_stdout(
        score_table(("summaries", "sentences"), aspect_shares(aspects.values()))
    )


def _write_split(
    source: str,
    split: str,
    path: Path,
    aspects: "dict[str, list[SummarySection]]",
) -> str:
    """Writes the reports of a split, and names unreadable reports.

    Args:
        source: directory of the release.
        split: train, validation or test.
        path: file to write.
        aspects: dictionary to which the sections of GAO summaries are added by
            id.

    Returns:
        The numbers of written and skipped reports, and the mean number of
        sections by office.

    Raises:
        InputError: the split, or every report of it, cannot be read.
    """
    from longsum_jax.data.govreport import read_govreport

    unreadable: list[InputError] = []
    sections: dict[str, list[int]] = {}
    with (
        console.spinner(f"reading {split}"),
        path.open("w", encoding="utf-8") as file,
    ):
        reports = read_govreport(
            source,
            split,
            unreadable=unreadable,
            sections=sections,
            aspects=aspects,
        )
        written = 0
        for report in reports:
            row = _row(report, {})
            if report.id in aspects:
                row["aspects"] = [
                    section._asdict() for section in aspects[report.id]
                ]
            file.write(json_text(row) + "\n")
            written += 1
    if not written and unreadable:
        raise unreadable[0]
    for error in unreadable:
        console.print_stderr(f"left out: {error}")
    means = [
        f"{statistics.fmean(counts):.1f} ({name})"
        for name, counts in sections.items()
    ]
    if unreadable:
        left_out = f", {len(unreadable):,} left out"
    else:
        left_out = ""
    return f"{counted(written, 'report')}{left_out}; sections of a report: {', '.join(means)}"


def _write(path: Path, text: str) -> None:
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); give another path"
        ) from error
