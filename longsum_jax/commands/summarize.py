"""longsum summarize: summaries of files of many kinds, folders of them, or standard input."""

import argparse
import contextlib
import dataclasses
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError
from longsum_jax.inference.summary import Request, Summary
from longsum_jax.inference.summary_files import Place, SummaryDirectory
from longsum_jax.inference.summary_formats import FORMATS, Entry
from longsum_jax.locks import locked
from longsum_jax.readers.document import PARAGRAPH, Document, Failure, joined
from longsum_jax.readers.paths import expand, printable
from longsum_jax.readers.source import ReadOptions
from longsum_jax.text.statements import Statement

if TYPE_CHECKING:
    from longsum_jax.evaluation.summac import SummaC
    from longsum_jax.inference.model import Model
    from longsum_jax.inference.stream import Result

EXAMPLES = """\
  # the best sentences of a report, at once and without a model, with their places
  longsum summarize --length="200 words" --sources report.pdf

  # a model's summary as a page that shows what each of its sentences rests on
  longsum summarize --model=runs/reports --sources --format=html report.pdf > summary.html

  # a whole book, read from its first to its last token
  longsum summarize --model=runs/quickstart book.epub

  # all files of a folder and some more, each to a file of its own; run again, it goes on
  longsum summarize --model=runs/reports --out=summaries --batch_size=auto reports/ 'more/*.pdf'

  # a report that is longer than what the model reads at once, in 200 words
  longsum summarize --model=facebook/bart-large-cnn --length="200 words" --batch_size=auto long.pdf

  # reports of one day as one
  longsum summarize --model=allenai/PRIMERA-multinews --join reports/2026-11-22/

  # a model of the Hugging Face Hub (extra hf), at one of its versions
  longsum summarize --model=facebook/bart-large-cnn --revision=main report.docx

  # what a meeting says of one question, by a model that was trained with queries
  longsum summarize --model=runs/qmsum --query="What did they say of the budget?" meeting.vtt

  # standard input, beam search, machine-readable output
  cat report.txt | longsum summarize --model=locost-base --num_beams=4 --format=jsonl

Files are text, Markdown, HTML, PDF, EPUB, DOCX, ODT, RTF, subtitles (SRT, VTT), e-mail (EML, MBOX),
JSON lines, CSV, Parquet, and .gz, .xz, .bz2, .zst, .zip and .tar of these. Some need packages:
pip install 'longsum_jax[files]'.

The summary goes to standard output, and one JSON line to standard error: tokens of the document,
read and dropped, whether the summary ended by itself ("eos") or at --max_new_tokens or --length
("limit"), by which strategy it was made, how much of each tenth of the document it rests on, and
what was left out of the file. With --format=jsonl both are one line of standard output, with --out
both are in NAME_summary.json beside NAME_summary.txt. Without --model the summary consists of
sentences of the document, which a ranker chooses that comes with the package; --query changes its
choice.

Documents that cannot be read are named at the end, after all others; the exit code is 3 then, or 2
where there was no other.
"""

_MODEL_FLAGS = (
    *flags.LOAD_FLAGS,
    *("max_source_length", "on_overflow", "strategy", "segment_length", "seed", "stream"),
    *("dry_run", "source_method"),
)
_MANY_FILES = 1_000_000  # of which the bar counts no more
_READING = ("keep_all", "document_key", "query_key")  # options that change a document's text
T = TypeVar("T")


def main(argv: Sequence[str]) -> int:
    """Summarizes every document; returns 3 where some could not be.

    Raises:
        InputError: the only document, or a model, cannot be read; flags that do not fit.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    _check(args)
    _refuse_model_flags(args, parser)
    options = flags.read_options(args)

    from longsum_jax.readers import read_documents

    failures: list[Failure] = []
    documents = read_documents(
        *args.files, options=options, on_failure=failures.append, exclude=args.out
    )
    if args.model is not None:
        from longsum_jax.checkpoints.hub import local_directory

        # A missing model should be told before files are read, and a missing file before jax and
        # the model are loaded, which takes seconds.
        local_directory(args.model, args.revision)
    first = next(documents, None)
    if first is None:
        return _finish(failures, 0)
    documents = itertools.chain([first], documents)
    if args.model is None:
        if args.join:
            documents = _joined(documents, PARAGRAPH)
        return _summarize(_Run(args, options, _by_ranker(args), failures), documents)

    from longsum_jax.inference.loading import load

    model = load(args.model, **flags.load_options(args))
    if args.join:
        documents = _joined(documents, model.separator)
    if args.dry_run:
        return _finish(failures, _dry_run(args, model, list(documents)))
    with flags.on_devices(args, model) as model:
        return _summarize(_Run(args, options, _by_model(args, model), failures), documents)


def _joined(documents: Iterable[Document], separator: str) -> Iterator[Document]:
    """Yields all documents as one; runs where documents are read."""
    found = list(documents)
    if found:
        yield joined(found, separator)


def _summarize(run: "_Run", documents: Iterable[Document]) -> int:
    """Summarizes documents; returns the exit code."""
    try:
        with console.memory_errors(console.SUMMARY_ADVICE):
            run.summarize(documents)
    except BaseException:
        _name(run.failures)  # a stop for another reason hides none of them
        raise
    return _finish(run.failures, run.num_done)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser("summarize", "Summarizes documents of any kind and length.", EXAMPLES)
    flags.add_model_flags(parser, required=False)
    flags.add_strategy_flags(parser, "auto")
    flags.add_reading_flags(parser)
    flags.add_generation_flags(parser)
    flags.add_file_flags(parser)
    parser.add_argument(
        "--query",
        metavar="TEXT",
        help="what to look for; stands before every document, or before each of its segments",
    )
    parser.add_argument(
        "--length",
        metavar="TEXT",
        help='of each whole summary: short, medium, long, "150 words", "7 sentences" or "5%%"; '
        "default: what the model makes of it, without --model medium, 150 words",
    )
    parser.add_argument(
        "--join",
        action="store_true",
        help="read all documents as one, with the first one's query; no segment goes from one to "
        "the next",
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="say after each sentence which sentences of the document it rests on, and what in it "
        "the document does not have",
    )
    parser.add_argument(
        "--source_method",
        choices=("alignment", "attention"),
        default="alignment",
        help="what finds sources: shared words, or the model's cross-attention to documents that "
        "it reads whole; default: alignment",
    )
    parser.add_argument(
        "--support_model",
        metavar="DIR",
        help="with --sources: a classifier of entailment that says whether the sources support a "
        "sentence; by default shared words do",
    )
    flags.add_batch_size_flag(parser)
    parser.add_argument(
        "--out",
        metavar="DIR",
        help="write NAME_summary.txt and NAME_summary.json for every document; finished ones are "
        "skipped unless they or any setting changed",
    )
    flags.add_report_flag(parser)
    parser.add_argument(
        "--format", choices=FORMATS, help="of standard output, and of files; default: text"
    )
    parser.add_argument("--json", action="store_true", help="the same as --format=jsonl")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="print the summary of every segment as soon as there is one",
    )
    flags.add_dry_run_flag(parser)
    parser.add_argument(
        "files",
        nargs="*",
        default=["-"],
        metavar="FILE",
        help="files, folders, patterns, file:// URLs; - or none is standard input",
    )
    return parser


def _check(args: argparse.Namespace) -> None:
    """Settles --json and --format, and refuses flags that do not go together."""
    if args.query is not None and not args.query.strip():
        raise InputError("--query is blank; give a question or leave it out")
    flags.generation_options(args)  # refuses what it cannot read
    if args.length is not None:
        from longsum_jax.ranking.selection import parse_length

        parse_length(args.length)  # before a model is loaded
    if args.json and args.format not in (None, "jsonl"):
        raise InputError(f"--json is --format=jsonl, but --format={args.format}; give one of them")
    args.format = "jsonl" if args.json else args.format or "text"
    if args.stream and (args.format != "text" or args.out):
        given = "--out" if args.out else f"--format={args.format}"
        raise InputError(f"--stream prints text as it comes; leave {given} out")
    if args.report and not args.out:
        raise InputError("--report shows the summaries of a directory; give one with --out")
    for flag in ("support_model", "source_method"):
        if getattr(args, flag) not in (None, "alignment") and not args.sources:
            raise InputError(f"--{flag} is about sources; ask for them with --sources")
    if args.stream and args.sources:
        raise InputError("--stream prints text as it comes; leave --sources out")


def _refuse_model_flags(args: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Raises InputError for a flag that only a model uses, where there is none."""
    if args.model is not None:
        return
    changed = flags.changed(args, parser, _MODEL_FLAGS)
    given = [*flags.generation_options(args), *changed]
    if given:
        raise InputError(
            f"--{given[0]} is for a model; give one with --model or leave --{given[0]} out"
        )


def _dry_run(args: argparse.Namespace, model: "Model", documents: Sequence[Document]) -> int:
    """Prints what the summaries would take; returns the number of documents."""
    from longsum_jax.commands.plan import dry_run_summaries

    lengths = model.read_lengths(
        [document.text for document in documents],
        **flags.strategy_options(args),
        max_source_length=args.max_source_length,
        on_overflow=args.on_overflow,
        names=[document.name for document in documents],
        queries=[args.query or document.query for document in documents],
    )
    dry_run_summaries(model, lengths, args.batch_size, **flags.generation_options(args))
    return len(documents)


class _Summarizer(NamedTuple):
    """The source of the summaries.

    Attributes:
        stream: documents -> their places with summaries, or with what is wrong with them.
        settings: all that the summaries depend on besides their documents.
        unit: of lengths.
        sources: finds what the sentences of a summary rest on.
    """

    stream: Callable[[Iterable[Request]], Iterator[list["Result"]]]
    settings: dict[str, Any]
    unit: str
    sources: Callable[[Summary], Sequence[Statement]] = attrgetter("sources")


def _by_ranker(args: argparse.Namespace) -> _Summarizer:
    """Returns the ranker that comes with the package as a summarizer.

    Raises:
        InputError: a --length that is none.
    """
    from longsum_jax.inference.extracts import summarize_stream
    from longsum_jax.ranking.ranker import DEFAULT_LENGTH, builtin_ranker
    from longsum_jax.ranking.selection import parse_length

    length = parse_length(args.length or DEFAULT_LENGTH)
    settings = {"model": None, "weights": builtin_ranker().fingerprint, "length": str(length)}
    return _Summarizer(partial(summarize_stream, length=length), settings, "words")


def _by_model(args: argparse.Namespace, model: "Model") -> _Summarizer:
    """Returns a model as a summarizer."""
    generation = flags.generation_options(args)
    reading = flags.strategy_options(args) | flags.given(args, ("length",))
    stream = partial(
        model.stream,
        **reading,
        max_source_length=args.max_source_length,
        on_overflow=args.on_overflow,
        batch_size=args.batch_size,
        seed=args.seed,
        on_segment=_print_segment if args.stream else None,
        **generation,
    )
    options = dataclasses.asdict(model.summary_options(**generation))
    settings = {
        "model": args.model,
        "weights": model.fingerprint,
        "config": model.config_fingerprint,
        "tokenizer": model.tokenizer and model.tokenizer.fingerprint,
        "dtype": args.dtype,
        **flags.given(args, ("matmul_precision", "decoder_storage")),
        "max_source_length": args.max_source_length,
        "on_overflow": args.on_overflow,
        **reading,
        "generation": options | {"seed": args.seed},
    }
    if args.source_method == "alignment":
        return _Summarizer(stream, settings, "tokens")
    from longsum_jax.inference.attended import attended_sources, check_attends

    check_attends(model)
    return _Summarizer(stream, settings, "tokens", partial(attended_sources, model))


class _Shown(NamedTuple):
    """A document and its summary, as the report shows them."""

    name: str
    text: str
    query: str | None
    summary: str


class _Run:
    """Summarizes documents and prints or writes the summaries.

    Args:
        args: of the command.
        options: how documents are read.
        summarizer: makes the summaries.
        failures: to which documents are added that cannot be summarized.

    Attributes:
        failures: as given.
        num_done: documents with a summary, finished ones of an earlier run included.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        options: ReadOptions,
        summarizer: _Summarizer,
        failures: list[Failure],
    ) -> None:
        self._args = args
        self._summarizer = summarizer
        self._documents: list[tuple[Document, Place | None]] = []  # read, by their place
        self._shown: list[_Shown] = []  # by the report
        self._judge = _judge(args)
        self._out: SummaryDirectory | None = None
        if args.out:
            self._out = SummaryDirectory(Path(args.out), args.format, self._settings(options))
        self._tokens = 0
        self._num_finished = 0
        self.failures = failures
        self.num_done = 0

    def summarize(self, documents: Iterable[Document]) -> None:
        """Summarizes all documents; nobody else writes to --out meanwhile."""
        with contextlib.ExitStack() as stack:
            if self._out is not None:
                lock = locked(Path(self._args.out), "writes summaries", "give another --out")
                stack.enter_context(lock)
            self._summarize(documents)

    def _summarize(self, documents: Iterable[Document]) -> None:
        batches = self._summarizer.stream(self._requests(documents))
        printer = _Printer(self._args.format, has_summary=not self._args.stream)
        with _Progress(self._args, self._summarizer.unit) as progress:
            start = began = time.perf_counter()
            while (batch := progress.wait_for(batches)) is not None:
                now = time.perf_counter()
                seconds, began = (now - began) / len(batch), now
                with progress.printing():
                    for index, result in batch:
                        entry = self._entry(index, result, seconds)
                        self._tokens += entry.summary.read_tokens if entry else 0
                        if self._out is None:
                            printer.add(index, entry)
                progress.show(len(batch), len(self._documents), self._tokens / (now - start))
        if self._out is None:
            printer.end()
        else:
            self.num_done += self._num_finished
            finished = f", {self._num_finished} of them before" if self._num_finished else ""
            console.print_stderr(f"{self.num_done} summaries in {self._args.out}{finished}")
        if self._args.report and self._shown:
            _write_report(self._args, self._shown)

    def _requests(self, documents: Iterable[Document]) -> Iterator[Request]:
        """Yields what is to be summarized; runs in a thread of its own."""
        for document in documents:
            place = None
            if self._out is not None:
                place = self._out.claim(document)
                if place is None:  # given twice
                    continue
                if place.finished:
                    self._num_finished += 1
                    self._show(document, place.finished)
                    continue
            kept = document if self._args.report else document._replace(text="")
            self._documents.append((kept, place))
            query = self._args.query or document.query
            borders = document.borders
            yield Request(document.text, document.name, query, document.outline, borders)

    def _entry(self, index: int, result: Any, seconds: float) -> Entry | None:
        """Returns the entry of a document, which is written by now; None where it failed."""
        document, place = self._documents[index]
        if isinstance(result, InputError):
            self.failures.append(Failure.of(document.name, result))
            return None
        try:
            statements = self._summarizer.sources(result) if self._args.sources else None
        except InputError as error:  # by attention, of a document that was read in parts
            self.failures.append(Failure.of(document.name, error))
            return None
        if statements and self._judge is not None:
            statements = self._judge.judge(statements)
        entry = Entry.of(document, result, seconds, statements)
        if self._out is not None and place is not None:
            self._out.write(place, entry)
        self._show(document, entry)
        self.num_done += 1
        about = _reading(result)
        if about:
            console.print_stderr(f"{document.name}: {about}")
        return entry

    def _show(self, document: Document, entry: Entry) -> None:
        if self._args.report:
            query = self._args.query or document.query
            self._shown.append(_Shown(document.name, document.text, query, entry.summary.text))

    def _settings(self, options: ReadOptions) -> dict[str, Any]:
        """Returns everything that summaries depend on besides their documents."""
        from longsum_jax import __version__

        settings = self._summarizer.settings | {
            "query": self._args.query,
            "sources": self._args.source_method if self._args.sources else None,
            "join": self._args.join,
            "support": self._judge and self._judge.user_model.describe(),
            # Limits do not change what is read within them.
            "files": {name: getattr(options, name) for name in _READING},
            "longsum_jax": __version__,
        }
        return json.loads(json.dumps(settings))


def _reading(summary: Summary) -> str:
    """Returns how a document was read, unless it was read whole at once."""
    if summary.unit == "words":
        return ""
    count = f"{summary.read_tokens} of {summary.document_tokens} tokens were read"
    if summary.strategy != "direct":
        return f"{count} (--strategy={summary.strategy})"
    return f"only the first {count} (--max_source_length)" if summary.dropped_tokens else ""


def _judge(args: argparse.Namespace) -> "SummaC | None":
    """Returns what --support_model says; None for shared words.

    Raises:
        InputError: no classifier of entailment.
    """
    if args.support_model is None:
        return None
    from longsum_jax.evaluation.summac import SummaC

    try:
        return SummaC(SummaC.Options(model=args.support_model))
    except InputError as error:
        problem = str(error).removeprefix("metrics.summac.model: ")
        raise InputError(f"--support_model: {problem}") from None


def _write_report(args: argparse.Namespace, shown: Sequence[_Shown]) -> None:
    """Writes the page of --report: every document beside its summary, which has no reference."""
    from longsum_jax.evaluation.comparison import Prediction, Sampling, score_system
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.evaluation.registry import make_metrics
    from longsum_jax.evaluation.report import ReportContent

    pairs = [Pair(each.name, each.text, "", each.query) for each in shown]
    predictions = {each.name: Prediction(each.summary) for each in shown}
    metrics, sampling = make_metrics(["support", "extractiveness"]), Sampling()
    name = Path(args.model).name if args.model else "extracts"
    system = score_system(name, predictions, pairs, metrics, sampling)
    flags.write_report(args.report, ReportContent(pairs, [system], metrics, {}, sampling))


class _Printer:
    """Prints summaries in the order of their documents, whatever the order they come in.

    Args:
        format: one of ``FORMATS``.
        has_summary: whether the summaries themselves are still to be printed.
    """

    def __init__(self, format: str, *, has_summary: bool) -> None:
        self._is_text = format == "text"
        self._format = FORMATS[format]
        self._has_summary = has_summary
        self._waiting: dict[int, Entry | None] = {}
        self._next = 0
        self._num_printed = 0

    def add(self, index: int, entry: Entry | None) -> None:
        """Prints an entry as soon as those before it are printed; None is a failure."""
        self._waiting[index] = entry
        while self._next in self._waiting:
            following = self._waiting.pop(self._next)
            self._next += 1
            if following is not None:
                self._print(following)

    def end(self) -> None:
        """Prints what stands after the last entry."""
        if self._num_printed:
            print(self._format.end, end="", flush=True)

    def _print(self, entry: Entry) -> None:
        before = self._format.between if self._num_printed else self._format.begin
        self._num_printed += 1
        if self._has_summary:
            print(before + self._format.show(entry), end="", flush=True)
        if self._is_text:
            about = entry._replace(statements=None).report()
            print(json.dumps(about, ensure_ascii=False), file=sys.stderr)


class _Progress:
    """Shows documents, tokens a second and the time left, or the seconds of a single document.

    Args:
        args: of the command.
        unit: of lengths.
    """

    def __init__(self, args: argparse.Namespace, unit: str) -> None:
        self._files = list(itertools.islice(expand(args.files), _MANY_FILES))
        if args.join and len(self._files) > 1:
            self._files = [f"{self._files[0]} and others"]
        # Segments show that work goes on, and extracts take no time.
        self._is_quiet = args.stream or args.model is None
        self._unit = unit

    def __enter__(self) -> "_Progress":
        from tqdm import tqdm

        # None: where standard error is no terminal.
        disable = True if len(self._files) == 1 else None
        total = len(self._files)
        self._bar = tqdm(total=total, unit="document", disable=disable, dynamic_ncols=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def wait_for(self, batches: Iterator[T]) -> T | None:
        """Returns the next batch; None after the last one."""
        if len(self._files) > 1 or self._is_quiet:
            return next(batches, None)
        self._is_quiet = True  # a file has one document, most often; after it comes the end
        name = "standard input" if self._files == ["-"] else printable(str(self._files[0]))
        with console.spinner(f"summarizing {name}"):
            return next(batches, None)

    def printing(self) -> contextlib.AbstractContextManager[None]:
        """Takes the bar away while something else is printed."""
        return self._bar.external_write_mode()

    def show(self, num_more: int, num_read: int, per_second: float) -> None:
        """Shows that more documents are done; archives and tables have more than one."""
        if not self._bar.disable:
            self._bar.total = max(len(self._files), num_read)
            self._bar.set_postfix_str(f"{per_second:,.0f} {self._unit}/s", refresh=False)
            self._bar.update(num_more)


def _print_segment(text: str) -> None:
    if text:
        print(text, flush=True)


def _finish(failures: Sequence[Failure], num_done: int) -> int:
    """Names what failed; returns the exit code.

    Raises:
        InputError: there was one document, and it failed.
    """
    if not failures:
        return 0
    if len(failures) == 1 and num_done == 0:
        raise InputError(failures[0].problem)
    _name(failures)
    return 3


def _name(failures: Sequence[Failure]) -> None:
    if failures:
        documents = "1 document" if len(failures) == 1 else f"{len(failures)} documents"
        console.print_stderr(f"{documents} could not be summarized:")
    for failure in failures:
        console.print_stderr(f"  {failure.problem}")
