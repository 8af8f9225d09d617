"""Prints the output of longsum summarize: summaries, progress, failures, the page of --report."""

import argparse
import contextlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from longsum_jax.commands import console, flags
from longsum_jax.commands.summary_run import Shown, SummaryRun
from longsum_jax.errors import counted
from longsum_jax.progress import Bar
from longsum_jax.readers.document import Failure
from longsum_jax.readers.paths import expand, printable
from longsum_jax.schema import first_names
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_formats import FORMATS, Entry

_MANY_FILES = 1_000_000  # maximum number of files that the bar counts
_MANY_ROWS = 10  # maximum number of rows listed
_EXTRACT_DELAY = 2  # seconds before the spinner of an extract
T = TypeVar("T")


class Printer:
    """Prints summaries in the order of their documents, in whatever order they arrive.

    Args:
        format: one of ``FORMATS``.
        has_summary: True if the summaries themselves are to be printed.
        has_headings: True to print the name of each document before its
            summary, if the format is text; other formats have headings or
            fields for it.
    """

    def __init__(
        self, format: str, *, has_summary: bool, has_headings: bool
    ) -> None:
        self._is_text = format == "text"
        self._format = FORMATS[format]
        self._has_summary = has_summary
        self._has_headings = has_headings and self._is_text
        self._waiting: dict[int, Entry | None] = {}
        self._next = 0
        self._num_printed = 0

    def add(self, index: int, entry: Entry | None) -> None:
        """Prints an entry as soon as all previous ones are printed; None is a failure."""
        self._waiting[index] = entry
        while self._next in self._waiting:
            following = self._waiting.pop(self._next)
            self._next += 1
            if following is not None:
                self._print(following)

    def end(self) -> None:
        """Prints the end of the output."""
        if self._num_printed:
            console.print_stdout(self._format.end, end="", flush=True)

    def _print(self, entry: Entry) -> None:
        if self._num_printed:
            before = self._format.between
        else:
            before = self._format.begin
        self._num_printed += 1
        if self._has_headings:
            before += f"==> {printable(entry.file)} <==\n"
        if self._has_summary:
            console.print_stdout(
                before + self._format.show(entry), end="", flush=True
            )
        if self._is_text:
            console.print_stderr(
                f"{printable(entry.about())}; {entry.seconds:.2f} s"
            )


def output_paths(args: argparse.Namespace) -> list[str]:
    """Returns the paths that the command writes, which it must not read as documents."""
    return [path for path in (args.out, args.report) if path is not None]


class Progress:
    """Shows documents, tokens per second and remaining time, or the seconds of one document.

    Args:
        args: parsed command line.
        unit: unit of lengths.
    """

    def __init__(self, args: argparse.Namespace, unit: str) -> None:
        self._files = list(
            itertools.islice(
                itertools.chain(
                    args.corpora, expand(args.files, output_paths(args))
                ),
                _MANY_FILES,
            )
        )
        if args.join and len(self._files) > 1:
            self._files = [f"{self._files[0]} and others"]
        # Streamed segments show progress themselves.
        self._is_quiet = args.stream
        # Most extracts are done sooner.
        self._delay = _EXTRACT_DELAY if args.model is None else 0
        self._unit = unit

    def __enter__(self) -> "Progress":
        # None disables the bar if standard error is not a terminal.
        disable = True if len(self._files) == 1 else None
        total = len(self._files)
        self._bar = Bar(
            total=total,
            unit="document",
            disable=disable,
            dynamic_ncols=True,
            # otherwise documents of an earlier run would inflate the speed
            smoothing=0,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def wait_for(self, batches: Iterator[T]) -> T | None:
        """Returns the next batch; None after the last one."""
        if len(self._files) > 1 or self._is_quiet:
            return next(batches, None)
        # most files have one document, after which the input ends
        self._is_quiet = True
        if self._files == ["-"]:
            name = "standard input"
        else:
            name = printable(str(self._files[0]))
        with console.spinner(f"summarizing {name}", self._delay):
            return next(batches, None)

    def printing(self) -> contextlib.AbstractContextManager[None]:
        """Hides the bar while something else is printed."""
        return self._bar.external_write_mode()

    def show(
        self, run: SummaryRun, num_unread: int, *, is_end: bool = False
    ) -> None:
        """Shows the number of finished documents, including an earlier run's and failures.

        Args:
            run: run of the command.
            num_unread: number of documents that could not be read.
            is_end: True if all documents are finished; files may be duplicates
                or empty.
        """
        if self._bar.disable:
            return
        num_done = run.num_done + len(run.failures) + num_unread
        num_known = run.num_read + run.num_finished + num_unread
        # Archives and tables contain several documents.
        if is_end:
            self._bar.total = num_done
        else:
            self._bar.total = max(len(self._files), num_known)
        self._bar.initial = run.num_finished
        self._bar.set_postfix_str(
            f"{run.tokens_per_second:,.0f} {self._unit}/s", refresh=False
        )
        self._bar.update(num_done - self._bar.n)


def print_segment(text: str) -> None:
    """Prints the summary of a segment, unless it is empty."""
    if text:
        console.print_stdout(text, flush=True)


def print_reading(name: str, summary: Summary, *, is_told: bool) -> None:
    """Prints how a document was read, unless it was read whole.

    Args:
        name: name of the document.
        summary: summary of the document.
        is_told: True if a following line about the document describes how it
            was read; then only dropped tokens are reported.
    """
    about = _reading(summary)
    if about and (summary.dropped_tokens or not is_told):
        console.print_stderr(f"{name}: {about}")


def _reading(summary: Summary) -> str:
    if summary.unit == "words":
        return ""
    count = (
        f"{summary.read_tokens} of {summary.document_tokens} tokens were read"
    )
    if summary.strategy != "direct":
        return f"{count} (--strategy={summary.strategy})"
    if summary.dropped_tokens:
        return f"only the first {count} (--max_source_length)"
    return ""


def print_empty(names: Sequence[str]) -> None:
    """Prints the names of documents with empty summaries, if any."""
    if names:
        verb = "is" if len(names) == 1 else "are"
        console.print_stderr(
            f"{counted(len(names), 'summary')} {verb} empty: {first_names(names)}; raise "
            "--min_new_tokens, or give another --model"
        )


def print_failures(failures: Sequence[Failure]) -> None:
    """Prints the documents that could not be summarized, with reasons."""
    if failures:
        documents = counted(len(failures), "document")
        console.print_stderr(f"{documents} could not be summarized:")
    for line in _problems(failures):
        console.print_stderr(f"  {line}")


def _problems(failures: Sequence[Failure]) -> Iterator[str]:
    """Yields the problems; rows of a table with the same problem are combined."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for failure in failures:
        table, _, number = failure.name.rpartition(":")
        prefix, problem = f"{failure.name}:", failure.problem
        if number.isdecimal() and problem.startswith(prefix):
            numbers.setdefault(
                (table, problem.removeprefix(prefix)), []
            ).append(int(number))
        else:
            numbers[problem, ""] = []
    for (table, problem), rows in numbers.items():
        if not rows:
            yield table
        elif len(rows) == 1:
            yield f"{table}:{rows[0]}:{problem}"
        else:
            yield f"{table}:{_ranges(rows)} ({len(rows)} documents):{problem}"


def _ranges(numbers: Sequence[int]) -> str:
    """Returns ascending numbers as "1-3, 7", shortened if there are many ranges."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = []
    for first, last in ranges:
        shown.append(str(first))
        if last > first:
            shown[-1] += f"-{last}"
    return ", ".join(shown[:_MANY_ROWS] + ["..."] * (len(shown) > _MANY_ROWS))


def write_report(args: argparse.Namespace, shown: Sequence[Shown]) -> None:
    """Writes the page of --report: every document with its summary, without references."""
    from longsum_jax.evaluation.comparison import (
        Prediction,
        Sampling,
        score_system,
    )
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.evaluation.registry import make_metrics
    from longsum_jax.evaluation.report import ReportContent

    pairs = [
        Pair(document.name, document.text, "", document.query)
        for document in shown
    ]
    # Rows of two sources may have the same name, so that they are scored under
    # numbers.
    numbered = [pair._replace(id=str(i)) for i, pair in enumerate(pairs)]
    predictions = {
        str(i): Prediction(document.summary) for i, document in enumerate(shown)
    }
    metrics, sampling = make_metrics(["support", "extractiveness"]), Sampling()
    if args.model:
        name = Path(args.model).name
    else:
        name = "extracts"
    system = score_system(name, predictions, numbered, metrics, sampling)
    content = ReportContent(pairs, [system], metrics, {}, sampling)
    # Without --out, standard output has the summaries, which a program may
    # read.
    show = console.print_stdout if args.out else console.print_stderr
    flags.write_report(args.report, content, show)
