"""longsum corpus: describes data sets, and turns GovReport's release into JSON lines."""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longsum_jax import atomic
from longsum_jax.commands import console
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from longsum_jax.text.extractive import Extractiveness

EXAMPLES = """\
  # lengths, compression, coverage and density of data sets
  longsum corpus statistics pubmed/test.jsonl reports/test.jsonl.gz --out=statistics.json

  # GovReport as released, the directory gov-report, as reports/train.jsonl, validation.jsonl and
  # test.jsonl; then config.task.source='json:reports/{split}.jsonl' trains on it and
  # --data=reports/test.jsonl evaluates
  longsum corpus govreport gov-report reports

Coverage is the share of a summary's words that stand in fragments copied from the document, density
the mean length of a word's fragment (Grusky et al. 2018). longsum plots bigrams shows where in
documents the words of summaries are.
"""
HEADS = ("documents", "document words", "summary words", "compression", "coverage", "density")


def main(argv: Sequence[str]) -> None:
    """Runs one subcommand.

    Raises:
        InputError: data that do not fit.
    """
    parser = console.parser("corpus", "Describes data sets, and converts GovReport.", EXAMPLES)
    commands = parser.add_subparsers(required=True, metavar="statistics|govreport")
    statistics = commands.add_parser(
        "statistics", help="lengths, compression, coverage and density"
    )
    add_data_flags(statistics)
    statistics.add_argument("--out", metavar="FILE", help="JSON to write, too")
    statistics.set_defaults(run=_statistics)
    govreport = commands.add_parser("govreport", help="JSON lines from the release of GovReport")
    govreport.add_argument(
        "source", metavar="SRC", help="the directory gov-report, with split_ids, crs and gao"
    )
    govreport.add_argument(
        "target", metavar="DST", help="directory for train.jsonl, validation.jsonl and test.jsonl"
    )
    govreport.set_defaults(run=_govreport)
    args = parser.parse_args(argv)
    args.run(args)


def add_data_flags(parser: argparse.ArgumentParser) -> None:
    """Adds data files, --document_key, --summary_key and --examples."""
    parser.add_argument(
        "data", nargs="+", metavar="FILE", help="JSON lines, plain, .gz or .xz, or a glob"
    )
    console.add_data_keys(parser)
    parser.add_argument(
        "--examples", type=int, metavar="N", help="only the first N documents of each"
    )


def read_pairs(path: str, args: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Yields document and summary of the rows of one data set that the flags ask for."""
    from longsum_jax.text.documents import read_json_lines

    console.check_positive(args, "examples")
    rows = read_json_lines(path, document_key=args.document_key, summary_key=args.summary_key)
    return ((row.document, row.summary) for row in itertools.islice(rows, args.examples))


def _statistics(args: argparse.Namespace) -> None:
    from longsum_jax.text.extractive import mean_extractiveness

    table = []
    for path in args.data:
        with console.spinner(f"reading {path}"):
            pairs = list(read_pairs(path, args))
            table.append((path, len(pairs), mean_extractiveness(pairs)))
    width = max(len(path) for path in args.data)
    print(" ".join([" " * width, *(f"{head:>14}" for head in HEADS)]))
    for path, count, found in table:
        print(" ".join([f"{path:<{width}}", f"{count:14,}", *_cells(found)]))
    if args.out:
        rows = [
            {"data": path, "documents": count, **found._asdict()} for path, count, found in table
        ]
        _write(Path(args.out), json.dumps(rows, indent=2) + "\n")


def _cells(found: "Extractiveness") -> list[str]:
    formats = ("14,.1f", "14,.1f", "14.2f", "14.3f", "14.2f")
    return [format(value, pattern) for value, pattern in zip(found, formats, strict=True)]


def _govreport(args: argparse.Namespace) -> None:
    from longsum_jax.data.govreport import SPLITS

    target = Path(args.target)
    try:
        with atomic.scratch_directory(target) as work:
            counts = {
                split: _write_split(args.source, split, work / f"{split}.jsonl") for split in SPLITS
            }
            target.mkdir(exist_ok=True)
            for split, (written, left_out) in counts.items():
                (work / f"{split}.jsonl").replace(target / f"{split}.jsonl")
                note = f", {left_out:,} left out" if left_out else ""
                print(f"{target / split}.jsonl: {written:,} reports{note}")
    except OSError as error:
        raise InputError(
            f"{target}: cannot be written ({error.strerror}); give another DST"
        ) from error


def _write_split(source: str, split: str, path: Path) -> tuple[int, int]:
    """Writes the reports of a split.

    Returns:
        How many were written, and how many could not be read, each of which is named.

    Raises:
        InputError: the split cannot be read, or none of its reports.
    """
    from longsum_jax.data.govreport import read_govreport

    written, unreadable = 0, []
    with console.spinner(f"reading {split}"), path.open("w", encoding="utf-8") as file:
        for row in read_govreport(source, split, unreadable=unreadable):
            values = {"id": row.id, "document": row.document, "summary": row.summary}
            file.write(json.dumps(values, ensure_ascii=False) + "\n")
            written += 1
    if not written and unreadable:
        raise unreadable[0]
    for error in unreadable:
        console.print_stderr(f"left out: {error}")
    return written, len(unreadable)


def _write(path: Path, text: str) -> None:
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}); give another place"
        ) from error
