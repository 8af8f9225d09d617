"""longsum summarize: summaries of text files or standard input."""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longsum_jax.commands import console
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    import argparse

    from longsum_jax.inference.model import Model
    from longsum_jax.inference.summary import Summary

EXAMPLES = """\
  # a whole book, read from its first to its last token
  longsum summarize --model=runs/quickstart book.txt

  # what a meeting says of one question, by a model that was trained with queries
  longsum summarize --model=runs/qmsum --query="What did they say of the budget?" meeting.txt

  # standard input, beam search, machine-readable output
  cat report.txt | longsum summarize --model=locost-base --num_beams=4 --json

The summary goes to standard output, and one JSON line to standard error: tokens of the document,
read and dropped, and whether the summary ended by itself ("eos") or at --max_new_tokens ("limit").
With --json both are one line of standard output.
"""


def main(argv: Sequence[str]) -> None:
    """Summarizes every file.

    Raises:
        InputError: a file or a model that cannot be read.
    """
    parser = console.parser("summarize", "Summarizes documents of any length.", EXAMPLES)
    console.add_model_flags(parser)
    console.add_reading_flags(parser)
    console.add_generation_flags(parser)
    parser.add_argument(
        "--query",
        metavar="TEXT",
        help="what to look for; stands before every document, or before each of its segments",
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object per document on standard output"
    )
    console.add_dry_run_flag(parser)
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="plain text; standard input when none is given"
    )
    args = parser.parse_args(argv)
    if args.query is not None and not args.query.strip():
        raise InputError("--query is blank; give a question or leave it out")

    from longsum_jax.checkpoints.hub import local_directory
    from longsum_jax.text.documents import read_text_file

    documents = [(name, read_text_file(name)) for name in args.files or ["-"]]
    directory = local_directory(args.model)
    # Here, because jax takes a second to import, and a missing file should be told at once.
    from longsum_jax.inference.loading import load

    model = load(directory, dtype=args.dtype, tokenizer=args.tokenizer)
    if args.dry_run:
        _dry_run(model, documents, args)
        return
    with console.memory_errors(console.SUMMARY_ADVICE):
        _summarize(model, documents, args)


def _dry_run(
    model: "Model", documents: Sequence[tuple[str, str]], args: "argparse.Namespace"
) -> None:
    from longsum_jax.commands.plan import dry_run_summaries

    lengths = model.read_lengths(
        [text for _, text in documents],
        max_source_length=args.max_source_length,
        on_overflow=args.on_overflow,
        names=[name for name, _ in documents],
        queries=[args.query] * len(documents),
    )
    dry_run_summaries(model, lengths, 1, **console.generation_options(args))


def _summarize(
    model: "Model", documents: Sequence[tuple[str, str]], args: "argparse.Namespace"
) -> None:
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
