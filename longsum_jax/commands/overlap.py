"""longsum corpus overlap: finds evaluation documents that share text with training documents."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import check_whole
from longsum_jax.progress import Bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from longsum_jax.text.documents import DataRow

_COLUMNS = ("documents", "with overlap", "mostly shared")
_MOSTLY = 0.5  # share of n-grams


def add(commands: Any) -> None:
    """Adds the subcommand to the parser of ``longsum corpus``."""
    parser = commands.add_parser(
        "overlap", help="n-grams that evaluation and training data share"
    )
    parser.add_argument(
        "data",
        nargs="+",
        metavar="FILE",
        help="evaluation documents: JSON lines, plain or compressed, or a glob",
    )
    parser.add_argument(
        "--train",
        required=True,
        metavar="FILE",
        help="training documents: a file or a glob",
    )
    parser.add_argument(
        "--ngram",
        type=int,
        default=13,
        metavar="N",
        help="words of an n-gram; default: 13",
    )
    flags.add_document_key(parser)
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="JSON file for the share of n-grams of each document that shares any",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Prints how many documents of each evaluation set share n-grams with the training data.

    Raises:
        InputError: the data are invalid, or a file cannot be written.
    """
    from longsum_jax.text.overlap import NgramOverlap

    check_whole("--ngram", args.ngram, 1)
    flags.refuse_input("out", args.out, [*args.data, args.train])
    names: list[tuple[str, str]] = []  # data set and id of each document
    texts: list[str] = []
    for path in dict.fromkeys(args.data):
        for document in _rows(path, args.document_key):
            names.append((path, document.id))
            texts.append(document.document)
    overlap = NgramOverlap(texts, args.ngram)
    for document in Bar(
        _rows(args.train, args.document_key), args.train, unit="document"
    ):
        overlap.add(document.document)
    all_shares: dict[str, list[float]] = {path: [] for path in args.data}
    shares: dict[str, dict[str, float]] = {path: {} for path in args.data}
    for (path, name), share in zip(names, overlap.shares(), strict=True):
        all_shares[path].append(share)
        if share:
            # The largest share of documents with the same id, in files of a glob.
            shares[path][name] = max(share, shares[path].get(name, 0.0))
    _print(all_shares)
    if args.out:
        _write(Path(args.out), json.dumps(shares, indent=2) + "\n")


def _rows(path: str, document_key: str) -> "Iterator[DataRow]":
    from longsum_jax.text.documents import read_json_lines

    return read_json_lines(
        path,
        document_key=document_key,
        summary_key="",
        query_key="",
        require_summary=False,
    )


def _print(all_shares: dict[str, list[float]]) -> None:
    width = max(len(path) for path in all_shares)
    heads = [f"{head:>14}" for head in _COLUMNS]
    console.print_stdout(" ".join([" " * width, *heads]))
    for path, shares in all_shares.items():
        some = sum(share > 0 for share in shares)
        mostly = sum(share > _MOSTLY for share in shares)
        cells = [f"{n:14,}" for n in (len(shares), some, mostly)]
        console.print_stdout(" ".join([f"{path:<{width}}", *cells]))


def _write(path: Path, text: str) -> None:
    try:
        atomic.write_text(path, text)
    except OSError as error:
        raise console.unwritable(path, error) from error
