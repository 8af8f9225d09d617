"""Formats summaries as text, Markdown, HTML and JSON."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from longsum_jax.errors import terminal_text
from longsum_jax.files import json_text
from longsum_jax.readers.document import Document
from longsum_jax.readers.paths import STDIN
from longsum_jax.summarization.summary import (
    Summary,
    card,
    lines_with_sources,
    notes_on,
)
from longsum_jax.text.statements import Statement


class Entry(NamedTuple):
    """A document and its summary.

    Attributes:
        file: name of the document; "-" is standard input.
        title: title of the document, or None.
        notes: notes about omitted parts of the document.
        summary: summary of the document.
        seconds: time of the summary; for a batch, the time of the whole batch.
        statements: sentences of the summary with their sources; None if sources
            are not shown.
        id: row id of a document from a table, or None.
    """

    file: str
    title: str | None
    notes: tuple[str, ...]
    summary: Summary
    seconds: float
    statements: Sequence[Statement] | None = None
    id: str | None = None

    @classmethod
    def of(
        cls,
        document: Document,
        summary: Summary,
        seconds: float,
        statements: Sequence[Statement] | None = None,
    ) -> "Entry":
        """Returns the entry of a document."""
        file = document.name
        if document.path == STDIN:
            file = STDIN + file.removeprefix("standard input")
        about = (
            document.title,
            document.notes,
            summary,
            round(seconds, 2),
            statements,
        )
        return cls(file, *about, document.id)

    def about(self) -> str:
        """Returns a one-line description: file, tokens read and written, and notes."""
        return "; ".join([f"{self.file}: {self.summary.about()}", *self.notes])

    def report(self) -> dict[str, Any]:
        """Returns all fields except the summary's text, ready for JSON."""
        about: dict[str, Any] = {"file": self.file}
        if self.id is not None:
            about["id"] = self.id
        if self.title:
            about["title"] = self.title
        about |= {**self.summary.report(), "seconds": self.seconds}
        if self.notes:
            about["notes"] = list(self.notes)
        if self.statements is not None:
            about["sources"] = [
                statement.report() for statement in self.statements
            ]
        return about


class Format(NamedTuple):
    """An output format of summaries.

    Attributes:
        suffix: suffix of output files.
        show: function that formats one entry.
        begin, between, end: text before, between and after the entries of a
            stream or file.
    """

    suffix: str
    show: Callable[[Entry], str]
    begin: str = ""
    between: str = ""
    end: str = ""


def _text(entry: Entry) -> str:
    text = entry.summary.text
    if entry.statements is not None:
        text = lines_with_sources(entry.statements)
    return terminal_text(f"{text}\n")


def _markdown(entry: Entry) -> str:
    title = " ".join((entry.title or entry.file).split())
    text = entry.summary.text
    if entry.statements is not None:
        text = "\n".join(_item(statement) for statement in entry.statements)
    return terminal_text(f"## {title}\n\n{text}\n\n*{entry.about()}*\n")


def _item(statement: Statement) -> str:
    """Returns a sentence as a list item, with its sources as nested items."""
    return "\n".join(
        [
            "1. " + statement.text,
            *(f"   - {note}" for note in notes_on(statement)),
        ]
    )


def _html(entry: Entry) -> str:
    shown = entry.statements or ()
    page = card(
        entry.summary.text, entry.about(), entry.title or entry.file, shown
    )
    return terminal_text(page) + "\n"


def _json(entry: Entry) -> str:
    return json_text({**entry.report(), "summary": entry.summary.text})


def _json_line(entry: Entry) -> str:
    return _json(entry) + "\n"


_PAGE = '<!DOCTYPE html>\n<html><head><meta charset="utf-8"><title>Summaries</title></head><body>\n'

FORMATS = {
    "text": Format(".txt", _text, between="\n"),
    "markdown": Format(".md", _markdown, between="\n"),
    "html": Format(".html", _html, begin=_PAGE, end="</body></html>\n"),
    # Files in these formats contain plain text, because the sidecar file has
    # all of the JSON.
    "json": Format(".txt", _json, begin="[", between=",\n ", end="]\n"),
    "jsonl": Format(".txt", _json_line),
}
