"""longsum summarize: summaries of text files or standard input."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longsum_jax.commands import console
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from longsum_jax.inference.summary import Summary

EXAMPLES = """\
  # the best sentences of a report, at once and without a model, with their places
  longsum summarize --length="200 words" --sources report.txt

  # a whole book, read from its first to its last token
  longsum summarize --model=runs/quickstart book.txt

  # what a meeting says of one question, by a model that was trained with queries
  longsum summarize --model=runs/qmsum --query="What did they say of the budget?" meeting.txt

  # standard input, beam search, machine-readable output
  cat report.txt | longsum summarize --model=locost-base --num_beams=4 --json

The summary goes to standard output, and one JSON line to standard error: tokens of the document,
read and dropped, and whether the summary ended by itself ("eos") or at --max_new_tokens ("limit").
With --json both are one line of standard output. Without --model the summary consists of sentences
of the document, which a ranker chooses that comes with the package; --query changes its choice.
"""

_MODEL_FLAGS = ("tokenizer", "dtype", "max_source_length", "on_overflow", "seed")


def main(argv: Sequence[str]) -> None:
    """Summarizes every file.

    Raises:
        InputError: a file or a model that cannot be read.
    """
    parser = console.parser("summarize", "Summarizes documents of any length.", EXAMPLES)
    console.add_model_flags(parser, required=False)
    console.add_reading_flags(parser)
    console.add_generation_flags(parser)
    parser.add_argument(
        "--query",
        metavar="TEXT",
        help="what to look for; stands before every document, or before each of its segments",
    )
    parser.add_argument(
        "--length",
        metavar="TEXT",
        help='without --model: short, medium, long, "150 words", "7 sentences" or "5%%"; '
        "default: medium, 150 words",
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="without --model: say after each sentence where it stands in the document",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per document on standard output"
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="plain text; standard input when none is given"
    )
    args = parser.parse_args(argv)
    if args.query is not None and not args.query.strip():
        raise InputError("--query is blank; give a question or leave it out")
    _check_flags(args, parser)

    from longsum_jax.text.documents import read_text_file

    documents = [(name, read_text_file(name)) for name in args.files or ["-"]]
    if args.model is None:
        _extract(args, documents)
        return

    from longsum_jax.checkpoints.hub import local_directory

    directory = local_directory(args.model)
    # Here, because jax takes a second to import, and a missing file should be told at once.
    from longsum_jax.inference.loading import load

    model = load(directory, dtype=args.dtype, tokenizer=args.tokenizer)
    for name, text in documents:
        title = "standard input" if name == "-" else name
        began = time.perf_counter()
        with console.spinner(f"summarizing {title}"):
            (summary,) = model.summaries(
                text,
                max_source_length=args.max_source_length,
                on_overflow=args.on_overflow,
                seed=args.seed,
                names=[title],
                queries=[args.query],
                **console.generation_options(args),
            )
        seconds = round(time.perf_counter() - began, 2)
        _print(name, summary, seconds, as_json=args.json)


def _check_flags(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuses flags that have no effect with a model, or without one."""
    if args.model is not None:
        if args.length is not None:
            raise InputError("--length is for summaries without --model; use --max_new_tokens")
        if args.sources:
            raise InputError("--sources is for summaries without --model; leave one of them out")
        return
    changed = [name for name in _MODEL_FLAGS if getattr(args, name) != parser.get_default(name)]
    given = [*console.generation_options(args), *changed]
    if given:
        raise InputError(
            f"--{given[0]} is for a model; give one with --model or leave --{given[0]} out"
        )


def _extract(args: argparse.Namespace, documents: Sequence[tuple[str, str]]) -> None:
    """Prints the best sentences of every document."""
    from longsum_jax.ranking.ranker import DEFAULT_LENGTH, summarize

    for name, text in documents:
        began = time.perf_counter()
        extract = summarize(text, length=args.length or DEFAULT_LENGTH, query=args.query)
        seconds = round(time.perf_counter() - began, 2)
        report = {"file": name, **extract.report(), "seconds": seconds}
        if args.json:
            print(json.dumps({**report, "summary": extract.text}, ensure_ascii=False), flush=True)
            continue
        print(extract.with_sources() if args.sources else extract.text, flush=True)
        del report["sources"]
        print(json.dumps(report), file=sys.stderr)


def _print(name: str, summary: "Summary", seconds: float, *, as_json: bool) -> None:
    report = {"file": name, **summary.report(), "seconds": seconds}
    if summary.dropped_tokens:
        console.print_stderr(
            f"{name}: only the first {summary.read_tokens} of {summary.document_tokens} tokens "
            "were read (--max_source_length)"
        )
    if as_json:
        print(json.dumps({**report, "summary": summary.text}, ensure_ascii=False), flush=True)
    else:
        print(summary.text, flush=True)
        print(json.dumps(report), file=sys.stderr)
