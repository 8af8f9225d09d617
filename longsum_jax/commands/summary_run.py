"""One run of longsum summarize: reads documents ahead, summarizes them, and writes to --out."""

import argparse
import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax.commands import flags
from longsum_jax.errors import InputError
from longsum_jax.locks import locked
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.source import ReadOptions
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.summarization.summary_files import (
    OutputFiles,
    SummaryDirectory,
)
from longsum_jax.summarization.summary_formats import Entry
from longsum_jax.text.statements import Statement

if TYPE_CHECKING:
    from longsum_jax.evaluation.summac import SummaC
    from longsum_jax.summarization.stream import Result

# options that change a document's text
_READING = ("keep_all", "document_key", "query_key")


# A function that maps documents to batches of (index, summary or error).
SummaryStream = Callable[[Iterable[Request]], Iterator[list["Result"]]]


class SummaryBackend(NamedTuple):
    """The source of the summaries.

    Attributes:
        stream: function from documents to summaries.
        settings: all settings that the summaries depend on, apart from their
            documents.
        unit: unit of lengths.
        sources: function that returns the statements of a summary with their
            sources.
        clock: clock that ``stream`` itself updates; None to measure the time of
            its batches.
    """

    stream: SummaryStream
    settings: dict[str, Any]
    unit: str
    sources: Callable[[Summary], Sequence[Statement]] = attrgetter("sources")
    clock: "Clock | None" = None


class Shown(NamedTuple):
    """A document and its summary, as shown on the page of --report.

    Attributes:
        number: index of the document on the command line.
        name, text, query: properties of the document.
        summary: text of the summary.
    """

    number: int
    name: str
    text: str
    query: str | None
    summary: str


class SummaryRun:
    """Summarizes documents, and writes the summaries to --out.

    Only the thread that consumes the results may use a run; its
    ``_DocumentReader`` runs in another thread.

    Args:
        args: parsed command line.
        options: options of reading.
        summarizer: source of the summaries.

    Attributes:
        unit: unit of lengths.
        failures: documents that were read but could not be summarized.
        empty: names of documents whose summary is empty.

    Raises:
        InputError: the entailment classifier is invalid, or --out cannot be
            created.
    """

    def __init__(
        self,
        args: argparse.Namespace,
        options: ReadOptions,
        summarizer: SummaryBackend,
    ) -> None:
        self._args = args
        self._summarizer = summarizer
        self.unit = summarizer.unit
        self._judge = _judge(args)
        self._out: SummaryDirectory | None = None
        if args.out:
            self._out = SummaryDirectory(
                flags.make_directory(args.out),
                args.format,
                self._settings(options),
            )
        self._reader = _DocumentReader(
            self._out, args.query, keeps_texts=bool(args.report)
        )
        self._shown: list[Shown] = []
        self._num_made = 0
        self._num_tokens = 0
        self._clock = summarizer.clock or Clock()
        self.failures: list[Failure] = []
        self.empty: list[str] = []

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Returns a context that locks --out against other writers."""
        if self._out is None:
            return contextlib.nullcontext()
        return locked(
            Path(self._args.out), "writes summaries", "give another --out"
        )

    def results(
        self, documents: Iterable[Document]
    ) -> Iterator[list["Result"]]:
        """Returns the results of the summarizer, in batches; pass each of them to ``finish``.

        Raises:
            InputError: the summarizer does not support a request.
        """
        batches = self._summarizer.stream(self._reader.requests(documents))
        if self._summarizer.clock is not None:
            return batches
        return self._clock.timed(batches)

    def finish(
        self, index: int, result: "Summary | InputError"
    ) -> Entry | None:
        """Writes the summary of a document to --out, and keeps it for --report.

        Args:
            index: index of the result.
            result: result of the summarizer.

        Returns:
            The document's entry; None if it failed.

        Raises:
            InputError: files cannot be written.
        """
        pending = self._reader.pending[index]
        if isinstance(result, InputError):
            self.failures.append(Failure.of(pending.document.name, result))
            return None
        try:
            statements = None
            if self._args.sources:
                statements = self._summarizer.sources(result)
        except (
            InputError
        ) as error:  # attention sources of a document that was read in parts
            self.failures.append(Failure.of(pending.document.name, error))
            return None
        if statements and self._judge is not None:
            statements = self._judge.judge(statements)
        entry = Entry.of(
            pending.document, result, self._clock.seconds, statements
        )
        if self._out is not None and pending.files is not None:
            self._out.write(pending.files, entry)
        if self._args.report:
            self._shown.append(_shown(pending.number, pending.document, entry))
        if not result.text.strip():
            self.empty.append(pending.document.name)
        self._num_made += 1
        self._num_tokens += result.read_tokens
        return entry

    def name(self, index: int) -> str:
        """Returns the name of the document of a result."""
        return self._reader.pending[index].document.name

    @property
    def num_read(self) -> int:
        """The number of documents that are or were to be summarized in this run."""
        return len(self._reader.pending)

    @property
    def num_finished(self) -> int:
        """The number of documents summarized by an earlier run."""
        return self._reader.num_finished

    @property
    def num_done(self) -> int:
        """The number of documents with a summary, including summaries of an earlier run."""
        return self._num_made + self.num_finished

    @property
    def tokens_per_second(self) -> float:
        """The speed up to the last batch; 0 before the first."""
        if self._num_tokens:
            return self._num_tokens / self._clock.total
        return 0.0

    def shown(self) -> list[Shown]:
        """Returns the content of --report in command-line order; call it after the last result."""
        return sorted(
            [*self._reader.finished, *self._shown], key=attrgetter("number")
        )

    def _settings(self, options: ReadOptions) -> dict[str, Any]:
        """Returns all settings that summaries depend on, apart from their documents."""
        from longsum_jax import __version__

        settings = self._summarizer.settings | {
            "query": self._args.query,
            "sources": self._args.source_method if self._args.sources else None,
            "join": self._args.join,
            "support": self._judge and self._judge.user_model.describe(),
            # Limits do not change the text of documents within them.
            "files": {name: getattr(options, name) for name in _READING},
            "longsum_jax": __version__,
        }
        return json.loads(json.dumps(settings))


def _judge(args: argparse.Namespace) -> "SummaC | None":
    """Returns the classifier of --support_model; None to use shared words.

    Raises:
        InputError: the model is not an entailment classifier.
    """
    if args.support_model is None:
        return None
    from longsum_jax.evaluation.summac import SummaC

    try:
        return SummaC(SummaC.Options(model=args.support_model))
    except InputError as error:
        problem = str(error).removeprefix("metrics.summac.model: ")
        raise InputError(f"--support_model: {problem}") from None


class Clock:
    """Measures the time of batches.

    Attributes:
        seconds: mean seconds per document of the last batch.
        total: seconds from the start of the first batch to the end of the last
            one.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.total = 0.0

    def timed(
        self, batches: Iterator[list["Result"]]
    ) -> Iterator[list["Result"]]:
        """Yields the batches, and updates the times."""
        start = time.perf_counter()
        for batch in batches:
            total = time.perf_counter() - start
            self.seconds = (total - self.total) / len(batch)
            self.total = total
            yield batch


class _PendingDocument(NamedTuple):
    """A document to be summarized.

    Attributes:
        number: index of the document on the command line.
        document: document, without its text if it is no longer needed.
        files: its files in --out; None without --out.
    """

    number: int
    document: Document
    files: OutputFiles | None


class _DocumentReader:
    """Reads documents ahead of their summaries, and skips finished ones.

    ``requests`` runs in a separate thread, the only one that modifies this
    object. Other threads access a document after receiving the result of its
    request, and the rest after the last result.

    Args:
        out: output directory, which may already contain summaries, or None.
        query: query that replaces the queries of the documents, or None.
        keeps_texts: True to keep the texts of documents, for --report.

    Attributes:
        pending: documents to be summarized, by the index of their request.
        finished: documents with a summary of an earlier run, if texts are kept.
        num_finished: number of documents with a summary of an earlier run.
    """

    def __init__(
        self,
        out: SummaryDirectory | None,
        query: str | None,
        *,
        keeps_texts: bool,
    ) -> None:
        self._out = out
        self._query = query
        self._keeps_texts = keeps_texts
        self.pending: list[_PendingDocument] = []
        self.finished: list[Shown] = []
        self.num_finished = 0

    def requests(self, documents: Iterable[Document]) -> Iterator[Request]:
        """Yields the documents to summarize, as requests."""
        for number, document in enumerate(documents):
            files = None
            if self._out is not None:
                files = self._out.claim(document)
                if files is None:  # duplicate document
                    continue
            document = document._replace(query=self._query or document.query)
            if files is not None and files.finished:
                self.num_finished += 1
                if self._keeps_texts:
                    self.finished.append(
                        _shown(number, document, files.finished)
                    )
                continue
            if self._keeps_texts:
                stored = document
            else:
                stored = document._replace(text="")
            self.pending.append(_PendingDocument(number, stored, files))
            yield Request(
                document.text,
                document.name,
                document.query,
                document.outline,
                document.borders,
            )


def _shown(number: int, document: Document, entry: Entry) -> Shown:
    return Shown(
        number, document.name, document.text, document.query, entry.summary.text
    )
