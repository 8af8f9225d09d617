"""longsum summarize: summaries of files of many kinds, folders, or standard input."""

import argparse
import dataclasses
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console, flags
from longsum_jax.commands.summary_output import (
    Printer,
    Progress,
    output_paths,
    print_empty,
    print_failures,
    print_reading,
    print_segment,
    write_report,
)
from longsum_jax.commands.summary_run import (
    Clock,
    SummaryBackend,
    SummaryRun,
    SummaryStream,
)
from longsum_jax.errors import InputError, counted
from longsum_jax.readers.document import PARAGRAPH, Document, Failure, joined
from longsum_jax.readers.paths import STDIN, expand
from longsum_jax.summarization.stream import window_size
from longsum_jax.summarization.summary import REPORTED, Request, Summary
from longsum_jax.summarization.summary_formats import FORMATS
from longsum_jax.text.statements import Outline, Statement

if TYPE_CHECKING:
    from longsum_jax.commands.beam_results import Summarize
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.stream import Result

EXAMPLES = """\
  # the most important sentences of a report and their positions, without a model
  longsum summarize --length="200 words" --sources report.pdf

  # a model's summary as a page that shows the sources of each sentence
  longsum summarize --model=runs/reports --sources --format=html report.pdf > summary.html

  # a whole book, read to its last token
  longsum summarize --model=runs/quickstart book.epub

  # all files of a folder and some more, one output file each; run again to continue
  longsum summarize --model=runs/reports --out=summaries --batch_size=auto reports/ 'more/*.pdf'

  # a report that is longer than the model's input, in 200 words
  longsum summarize --model=facebook/bart-large-cnn --length="200 words" --batch_size=auto long.pdf

  # one summary of all reports of a day
  longsum summarize --model=allenai/PRIMERA-multinews --join reports/2026-11-22/

  # a specific version of a model on the Hugging Face Hub (extra hf)
  longsum summarize --model=facebook/bart-large-cnn --revision=main report.docx

  # a summary for one question, with a model that was trained with queries
  longsum summarize --model=runs/qmsum --query="What was decided on the budget?" meeting.vtt

  # standard input, beam search, machine-readable output
  cat report.txt | longsum summarize --model=locost-base --num_beams=4 --format=jsonl

File formats: text, Markdown, HTML, XML, PDF, EPUB, DOCX, ODT, RTF, notebooks (IPYNB), subtitles
(SRT, VTT), e-mail (EML, MBOX), JSON lines, CSV, Parquet, Arrow, and .gz, .xz, .bz2, .zst, .zip and
.tar archives of these. Some need packages: pip install 'longsum_jax[files]'.

Summaries are printed on standard output, and a line about each document on standard error: what was
read, what was left out, and how the summary was made. --format=jsonl prints both as one JSON object
per document: tokens in the document, read and dropped; whether the model ended the summary ("eos")
or --max_new_tokens or --length did ("limit"); the strategy; and the share of each tenth of the
document that supports the summary. --out writes this object to NAME_summary.json. Without --model,
the summary consists of sentences of the document, selected by the bundled ranker; --query changes
the selection.

Documents that cannot be read are listed at the end. The exit code is then 3, or 2 if no document
was summarized.
"""

# Flags in the short help.
EVERYDAY = (
    *("model", "length", "query", "sources", "join", "strategy"),
    *("batch_size", "out", "format", "report"),
)
_MODEL_FLAGS = (
    *flags.LOAD_FLAGS,
    *(
        "max_source_length",
        "on_overflow",
        "strategy",
        "segment_length",
        "seed",
        "stream",
    ),
    "prompt",
    *("batch_size", "dry_run", "source_method"),
)


def main(argv: Sequence[str]) -> int:
    """Summarizes every document; returns 3 if some could not be summarized.

    Raises:
        InputError: the only document, or the model, cannot be read, or flags
            are invalid.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    _check(args)
    _refuse_model_flags(args, parser)
    options = flags.read_options(args)

    from longsum_jax.readers import read_documents, sandbox

    if options.sandbox:
        sandbox.start()  # while this process imports other modules

    if STDIN in args.files and sys.stdin.isatty():
        console.print_stderr(
            "reading the text that you type or paste; Ctrl-D ends it"
        )
    unread: list[Failure] = []  # appended by the reading thread, once it runs
    args.corpora = _take_sources(args)
    documents = read_documents(
        *args.files,
        options=options,
        on_failure=unread.append,
        exclude=output_paths(args),
    )
    documents = itertools.chain(documents, _of_sources(args))
    if args.model is not None:
        from longsum_jax.checkpoints.hub import local_directory

        # Report a missing model before files are read, and a missing file
        # before jax and the model are loaded, which takes seconds.
        local_directory(args.model, args.revision)
    first = next(documents, None)
    if first is None:
        return _exit_code(unread, 0)
    has_several, documents = _count_documents(
        args, itertools.chain([first], documents)
    )
    if args.model is None:
        if args.join:
            documents = _joined(documents, PARAGRAPH)
        documents = (
            _with_notes(document, args.query) for document in documents
        )
        run = SummaryRun(args, options, _on_beam(args, _by_ranker(args)))
        return _summarize(args, run, documents, unread, has_several=has_several)

    from longsum_jax.summarization.loading import load

    model = load(args.model, **flags.load_options(args))
    if args.join:
        documents = _joined(documents, model.separator)
    if args.dry_run:
        num_done = _dry_run(args, model, list(documents))
        return _exit_code(unread, num_done)
    with flags.on_devices(args, model) as model:
        run = SummaryRun(args, options, _on_beam(args, _by_model(args, model)))
        return _summarize(args, run, documents, unread, has_several=has_several)


def _take_sources(args: argparse.Namespace) -> list[str]:
    """Removes the sources such as hf:ORG/NAME from the files, and returns them.

    Raises:
        InputError: --split without a source.
    """
    from longsum_jax.data.tasks import is_source

    sources = [
        name
        for name in args.files
        if is_source(name) and not Path(name).exists()
    ]
    if args.split is not None and not sources:
        raise InputError(
            f"--split={args.split} is for sources such as hf:ORG/NAME; leave it out"
        )
    args.files = [name for name in args.files if name not in sources]
    return sources


def _of_sources(args: argparse.Namespace) -> Iterator[Document]:
    """Yields the documents of sources, without their summaries."""
    from longsum_jax.data.sources import documents
    from longsum_jax.data.tasks import get_task

    keys = {"document_key": "document"}
    keys |= flags.given(args, ("document_key", "query_key"))
    # An objective that reads no summaries.
    keys["objective"] = "gap_sentences"
    for source in args.corpora:
        task = get_task("summaries", source=source, **keys)
        for row in documents(task, args.split or "test"):
            yield Document(
                row.document, row.id, source, query=row.query, id=row.id
            )


def _count_documents(
    args: argparse.Namespace, documents: Iterator[Document]
) -> tuple[bool, Iterator[Document]]:
    """Returns True if there are several summaries, and all documents.

    Of a single file, which may be a table or an archive, two documents are
    read.
    """
    if args.join:
        return False, documents
    if (
        len(list(itertools.islice(expand(args.files, output_paths(args)), 2)))
        > 1
    ):
        return True, documents
    beginning = list(itertools.islice(documents, 2))
    return len(beginning) > 1, itertools.chain(beginning, documents)


def _with_notes(document: Document, query: str | None) -> Document:
    """Adds notes to a document that the ranker reads less well.

    These are documents in a language that it was not trained on, and documents
    without a word of the query.
    """
    from longsum_jax.ranking.lexicon import is_english, shares_words

    notes = list(document.notes)
    if not is_english(document.text):
        notes.append(
            "few of its words are English, the language that the ranker was made for"
        )
    query = query or document.query
    if query is not None and not shares_words(query, document.text):
        notes.append("no word of the query occurs in it")
    return document._replace(notes=tuple(notes))


def _joined(
    documents: Iterable[Document], separator: str
) -> Iterator[Document]:
    """Yields all documents as one; runs in the thread that reads documents."""
    documents_read = list(documents)
    if documents_read:
        yield joined(documents_read, separator)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "summarize",
        "Summarizes documents of any kind and length.",
        EXAMPLES,
        EVERYDAY,
    )
    flags.add_model_flags(parser, required=False)
    flags.add_summary_flags(
        parser,
        strategy="auto",
        length="the model's own length; without --model auto, 150 to 600 words",
    )
    flags.add_file_flags(parser)
    parser.add_argument(
        "--split",
        help="split of a source, such as hf:ORG/NAME; default: test",
    )
    parser.add_argument(
        "--query",
        metavar="TEXT",
        help="question or topic to focus on; a model reads it before each document or segment",
    )
    parser.add_argument(
        "--join",
        action="store_true",
        help="summarize all documents as one, with the query of the first one; no "
        "segment spans two documents",
    )
    parser.add_argument(
        "--sources",
        action="store_true",
        help="list after each sentence the document sentences that support it, and names"
        " and numbers that the document does not contain",
    )
    parser.add_argument(
        "--source_method",
        choices=("alignment", "attention"),
        default="alignment",
        help="method that finds sources: shared words (alignment), or the model's "
        "cross-attention (attention), for documents read in one piece; default: "
        "alignment",
    )
    parser.add_argument(
        "--support_model",
        metavar="DIR",
        help="with --sources: entailment classifier that decides whether the sources "
        "support a sentence; default: shared words",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="DIR",
        help="directory for NAME_summary.txt and NAME_summary.json of every document; "
        "existing summaries are kept unless the document or a setting has changed; "
        "default: standard output",
    )
    flags.add_report_flag(
        parser,
        "all summaries, and the documents with the sources of each sentence",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="format of standard output and of files; default: text",
    )
    parser.add_argument(
        "--json", action="store_true", help="same as --format=jsonl"
    )
    parser.add_argument(
        "--stream",
        action="store_true",
        help="print the summary of each segment as soon as it is finished",
    )
    flags.add_beam_flag(
        parser, "summarize with Apache Beam, whose workers load the model"
    )
    flags.add_dry_run_flag(parser)
    parser.add_argument(
        "files",
        nargs="*",
        default=["-"],
        metavar="FILE",
        help="files, folders, glob patterns, file:// URLs, or sources of documents such as "
        "hf:ORG/NAME; default: -, standard input",
    )
    return parser


def _check(args: argparse.Namespace) -> None:
    """Resolves --json and --format, and refuses incompatible flags."""
    if args.query is not None and not args.query.strip():
        raise InputError("--query is blank; give a question or leave it out")
    flags.summary_options(args)  # refuses invalid options
    if args.json and args.format not in (None, "jsonl"):
        raise InputError(
            f"--json is --format=jsonl, but --format={args.format}; give one of them"
        )
    if args.json:
        args.format = "jsonl"
    else:
        args.format = args.format or "text"
    if args.stream and (args.format != "text" or args.out):
        if args.out:
            conflicting = "--out"
        else:
            conflicting = f"--format={args.format}"
        raise InputError(
            f"--stream prints text as it comes; leave {conflicting} out"
        )
    if args.beam is not None and not args.out:
        raise InputError(
            "--beam writes files; give a directory for them with --out"
        )
    if args.beam is not None and args.source_method == "attention":
        raise InputError(
            "--source_method=attention is computed by this process, not with --beam; leave one "
            "of them out"
        )
    flags.check_file("report", args.report)
    files = filter(os.path.isfile, args.files)
    flags.refuse_input("report", args.report, files)
    for flag in ("support_model", "source_method"):
        if getattr(args, flag) not in (None, "alignment") and not args.sources:
            raise InputError(
                f"--{flag} is about sources; ask for them with --sources"
            )
    if args.stream and args.sources:
        raise InputError(
            "--stream prints text as it comes; leave --sources out"
        )


def _refuse_model_flags(
    args: argparse.Namespace, parser: argparse.ArgumentParser
) -> None:
    """Raises InputError for a flag that needs a model, if none is given."""
    if args.model is not None:
        return
    changed = flags.changed(args, parser, _MODEL_FLAGS)
    unsupported = [*flags.generation_options(args), *changed]
    if unsupported:
        raise InputError(
            f"--{unsupported[0]} is for a model; give one with --model or "
            f"leave --{unsupported[0]} out"
        )


def _dry_run(
    args: argparse.Namespace, model: "Model", documents: Sequence[Document]
) -> int:
    """Prints memory and time of the summaries; returns the number of documents."""
    from longsum_jax.commands.plan import dry_run_summaries

    options = flags.summary_options(args)
    lengths = model.read_lengths(
        [document.text for document in documents],
        options,
        names=[document.name for document in documents],
        queries=[args.query or document.query for document in documents],
    )
    dry_run_summaries(model, lengths, options)
    return len(documents)


def _by_ranker(args: argparse.Namespace) -> SummaryBackend:
    """Returns the bundled ranker as a summarizer.

    Raises:
        InputError: --length is invalid.
    """
    from longsum_jax.ranking.ranker import DEFAULT_LENGTH, builtin_ranker
    from longsum_jax.summarization.extracts import summarize_stream
    from longsum_jax.text.lengths import parse_length

    length = parse_length(args.length or DEFAULT_LENGTH)
    settings = {
        "model": None,
        "weights": builtin_ranker().fingerprint,
        "length": str(length),
    }
    return SummaryBackend(
        partial(summarize_stream, length=length), settings, "words"
    )


def _by_model(args: argparse.Namespace, model: "Model") -> SummaryBackend:
    """Returns a model as a summarizer."""
    options = flags.summary_options(args)
    stream = _model_stream(args, model)
    generation = dataclasses.asdict(model.summary_options(**options.generation))
    settings = {
        "model": args.model,
        "weights": model.fingerprint,
        "config": model.config_fingerprint,
        "tokenizer": model.tokenizer.fingerprint,
        "dtype": args.dtype,
        **flags.given(args, ("matmul_precision", "decoder_storage")),
        "max_source_length": args.max_source_length,
        "on_overflow": args.on_overflow,
        **flags.given(args, ("strategy", "segment_length", "prompt", "length")),
        "generation": generation | {"seed": args.seed},
    }
    if args.source_method == "alignment":
        return SummaryBackend(stream, settings, "tokens")
    from longsum_jax.summarization.attended import (
        attended_sources,
        check_attends,
    )

    check_attends(model)
    return SummaryBackend(
        stream, settings, "tokens", partial(attended_sources, model)
    )


def _model_stream(args: argparse.Namespace, model: "Model") -> SummaryStream:
    """Returns ``Model.stream`` with the options of the command line."""
    return partial(
        model.stream,
        options=flags.summary_options(args),
        on_segment=print_segment if args.stream else None,
    )


def _on_beam(
    args: argparse.Namespace, backend: SummaryBackend
) -> SummaryBackend:
    """Returns a backend whose summaries are made on Beam, if --beam is given."""
    beam = flags.beam_flags(args)
    if beam is None:
        return backend
    from longsum_jax.commands.beam_results import corpus_results

    clock = Clock()

    def stream(requests: Iterable[Request]) -> Iterator[list["Result"]]:
        backend.stream(())  # refuses invalid options
        results = corpus_results(
            Path(args.out),
            map(list, requests),
            partial(_load_summarizer, args),
            beam,
            settings=backend.settings,
            window=window_size(args.batch_size),
        )
        for number, fields, values in results:
            clock.seconds = values["seconds"]
            clock.total += clock.seconds
            yield [(number, _from_json(values, _request(fields)))]

    return backend._replace(stream=stream, clock=clock)


def _load_summarizer(args: argparse.Namespace) -> "Summarize":
    """Returns the function with which a worker of Beam summarizes documents."""
    if args.model is None:
        return partial(_results, _by_ranker(args).stream)
    from longsum_jax.summarization.loading import load

    model = load(args.model, **flags.load_options(args))

    def summarize(rows: list[list[Any]]) -> list[dict[str, Any]]:
        with flags.on_devices(args, model) as parallel:
            return _results(_model_stream(args, parallel), rows)

    return summarize


def _results(
    stream: SummaryStream, rows: list[list[Any]]
) -> list[dict[str, Any]]:
    """Returns the summaries of documents as JSON."""
    clock = Clock()
    results: dict[int, dict[str, Any]] = {}
    for batch in clock.timed(stream(map(_request, rows))):
        for index, result in batch:
            results[index] = _to_json(result) | {"seconds": clock.seconds}
    return [results[index] for index in range(len(rows))]


def _request(fields: list[Any]) -> Request:
    """Returns a request from JSON."""
    text, name, query, (headings, pages), borders = fields
    outline = Outline([(start, end) for start, end in headings], pages)
    return Request(text, name, query, outline, tuple(borders))


def _to_json(result: "Summary | InputError") -> dict[str, Any]:
    if isinstance(result, InputError):
        return {"error": str(result)}
    reports = None
    if result.statements is not None:
        reports = [statement.report() for statement in result.statements]
    return {"text": result.text, "statements": reports, **result.report()}


def _from_json(
    values: Mapping[str, Any], request: Request
) -> "Summary | InputError":
    if "error" in values:
        return InputError(values["error"])
    fields = {name: values[name] for name in ("text", *REPORTED)}
    fields["coverage"] = tuple(fields["coverage"])
    statements = values["statements"]
    if statements is not None:
        statements = [Statement.from_report(report) for report in statements]
    return Summary(**fields, request=request, statements=statements)


def _summarize(
    args: argparse.Namespace,
    run: SummaryRun,
    documents: Iterable[Document],
    unread: Sequence[Failure],
    *,
    has_several: bool,
) -> int:
    """Summarizes documents; returns the exit code."""
    try:
        with console.memory_errors(console.SUMMARY_ADVICE), run.lock():
            _print_summaries(args, run, documents, unread, has_several)
            if args.report and (shown := run.shown()):
                write_report(args, shown)
    except BaseException:
        # even if another error stops the command
        print_failures([*unread, *run.failures])
        raise
    return _exit_code([*unread, *run.failures], run.num_done)


def _print_summaries(
    args: argparse.Namespace,
    run: SummaryRun,
    documents: Iterable[Document],
    unread: Sequence[Failure],
    has_several: bool,
) -> None:
    """Prints summaries as they are completed; with --out, only their number."""
    batches = run.results(documents)
    printer = Printer(
        args.format, has_summary=not args.stream, has_headings=has_several
    )
    with Progress(args, run.unit) as progress:
        while (batch := progress.wait_for(batches)) is not None:
            with progress.printing():
                for index, result in batch:
                    entry = run.finish(index, result)
                    if entry is not None:
                        is_told = args.format == "text" and not args.out
                        print_reading(
                            run.name(index), entry.summary, is_told=is_told
                        )
                    if not args.out:
                        printer.add(index, entry)
            progress.show(run, len(unread))
        progress.show(run, len(unread), is_end=True)
    if not args.out:
        printer.end()
    print_empty(run.empty)
    if not args.out:
        return
    if run.num_finished:
        finished = f", {run.num_finished} of them from an earlier run"
    else:
        finished = ""
    console.print_stderr(
        f"{counted(run.num_done, 'summary')} in {args.out}{finished}"
    )


def _exit_code(failures: Sequence[Failure], num_done: int) -> int:
    """Prints failures; returns the exit code.

    Raises:
        InputError: there was only one document, and it failed.
    """
    if not failures:
        return 0
    if len(failures) == 1 and num_done == 0:
        raise InputError(failures[0].problem)
    print_failures(failures)
    return 3 if num_done else 2
