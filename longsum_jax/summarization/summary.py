"""The request for and the result of summarizing one document."""

import dataclasses
import functools
import html
import os
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from longsum_jax.errors import InputError, counted
from longsum_jax.inference.arguments import READERS, check_document
from longsum_jax.text.prompts import NO_PROMPT, Prompt
from longsum_jax.text.statements import (
    NO_OUTLINE,
    Outline,
    Reason,
    SourceSentence,
    Statement,
)

# Behavior for documents beyond the limit: read their beginning, or raise
# InputError.
Overflow = Literal["truncate", "error"]
# Strategy for reading a document, see ``summarization.strategies``.
Strategy = Literal[
    "auto", "direct", "extract", "segments", "hierarchical", "refine", "memory"
]
# Documents decoded together; "auto" picks the fastest number.
BatchSize = int | Literal["auto"]
# Minimum tokens of an input that must be left for the document.
SHORTEST_ROOM = 16
_LONGEST_NAME = 255  # characters


class Request(NamedTuple):
    """A document to summarize.

    Attributes:
        text: text of the document, or of several that are read as one.
        name: name of the document in error messages.
        query: question or topic of the summary, or None.
        outline: headings and pages of the document, which sources then name.
        borders: offsets in the text at which all but the first of several
            documents begin.
    """

    text: str
    name: str
    query: str | None
    outline: Outline = NO_OUTLINE
    borders: tuple[int, ...] = ()


def check_request(request: Request) -> Request:
    """Returns the request, or raises InputError if it is a text instead."""
    if not isinstance(request, Request):
        raise InputError(
            f"requests holds a {type(request).__name__}; give each document as "
            "longsum_jax.summarization.summary.Request(text, name, query), or give texts to "
            "Model.summarize"
        )
    return request


def check_text(request: Request) -> None:
    """Raises InputError as ``inference.arguments.check_document``."""
    check_document(request.text, request.name, request.query)


def check_no_file_name(request: Request) -> None:
    """Raises InputError for a file name instead of a text."""
    if isinstance(request.text, str):
        name = request.text
    else:
        name = ""
    if (
        len(name) <= _LONGEST_NAME
        and PurePath(name).suffix
        and os.path.isfile(name)
    ):
        raise InputError(
            f"{request.name} is {name}, the name of a file; give its text: {READERS}"
        )


@dataclasses.dataclass(frozen=True)
class Summary:
    """A summary with the lengths of the summary and its document.

    Attributes:
        text: text of the summary.
        document_tokens: tokens of the document, including the end-of-sequence
            token, as in all token counts.
        read_tokens: tokens that the model read.
        dropped_tokens: tokens that it did not read: beyond the limit, or not
            selected by strategy "extract".
        summary_tokens: tokens of the summary.
        ended: "eos" if the model ended the summary, "limit" if it was cut at
            ``max_new_tokens`` or at the requested length.
        unit: unit of the token counts: the model's tokens or, without a model,
            words separated by white space.
        strategy: strategy that read the document, one of
            ``summarization.strategies``.
        coverage: for each tenth of the document, the share of its text that
            supports the summary, from 0 to 1.
        request: the document, in which sources are found.
        statements: sentences of the summary with their sources, if already
            computed.
        prompt: text around the document in the model's input.
    """

    text: str
    document_tokens: int
    read_tokens: int
    dropped_tokens: int
    summary_tokens: int
    ended: Literal["eos", "limit"]
    unit: Literal["tokens", "words"] = "tokens"
    strategy: str = "direct"
    coverage: tuple[float, ...] = ()
    request: Request | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    statements: Sequence[Statement] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    prompt: Prompt = dataclasses.field(
        default=NO_PROMPT, repr=False, compare=False
    )

    def of(self, request: Request) -> "Summary":
        """Returns this summary with its document."""
        return dataclasses.replace(self, request=request)

    @functools.cached_property
    def sources(self) -> Sequence[Statement]:
        """The sentences of the summary with the document sentences that support them.

        Extracted sentences are their own sources. Otherwise sources are found
        by shared n-grams on first access (``text.support.find_statements``); ()
        for a summary without its document.
        """
        if self.statements is not None:
            return self.statements
        if self.request is None:
            return ()
        from longsum_jax.text.support import find_statements

        return find_statements(
            self.text, self.request.text, self.request.outline
        )

    def report(self) -> dict[str, Any]:
        """Returns all fields except text and sources, ready for JSON."""
        return {name: getattr(self, name) for name in REPORTED}

    def with_sources(self) -> str:
        """Returns the summary with indented lines of sources after each sentence."""
        return lines_with_sources(self.sources)

    def _repr_html_(self) -> str:
        """Returns the summary as an HTML card for notebooks."""
        return card(self.text, self.about(), statements=self.sources)

    def about(self) -> str:
        """Returns a one-line description of what was read and how the summary ended."""
        read = (
            f"{self.read_tokens:,} of {self.document_tokens:,} {self.unit} read"
        )
        if self.unit == "tokens" and self.strategy != "direct":
            read += f" ({self.strategy})"
        if self.ended == "eos":
            ended = ""
        else:
            ended = ", cut at the longest length"
        written = counted(self.summary_tokens, self.unit.removesuffix("s"))
        return f"{read}; {written} written{ended}"


REPORTED = tuple(
    field.name
    for field in dataclasses.fields(Summary)
    if field.name not in ("text", "request", "statements", "prompt")
)


def place_of(source: SourceSentence) -> str:
    """Returns the location of a source: sentence 5, page 2, under "Costs"."""
    parts = [f"sentence {source.number + 1:,}"]
    if source.page:
        parts.append(f"page {source.page:,}")
    if source.heading:
        parts.append(f'under "{source.heading}"')
    return ", ".join(parts)


def problems_of(statement: Statement) -> list[str]:
    """Returns the warnings about a sentence of a summary, one phrase each.

    Entities that are missing only from its sources are omitted: a third of
    human-written sentences has some.
    """
    if statement.is_supported:
        problems = []
    else:
        problems = ["unsupported"]
    missing = [
        f'"{flag.text}"'
        for flag in statement.flags
        if flag.missing == "document"
    ]
    if missing:
        problems.append(f"not in the document: {', '.join(missing)}")
    return problems


def notes_on(statement: Statement) -> list[str]:
    """Returns the warnings, sources and explanation of a sentence, one phrase each."""
    sources = [
        _share(source) + place_of(source) for source in statement.sources
    ]
    return problems_of(statement) + sources + explanation_of(statement)


def explanation_of(statement: Statement) -> list[str]:
    """Returns the score of an extracted sentence as a sum in words; nothing for other sentences."""
    explanation = statement.explanation
    if explanation is None:
        return []
    terms = [*explanation.reasons, Reason("others", explanation.others)]
    added = []
    for term in terms:
        sign = "-" if term.contribution < 0 else "+"
        added.append(f"{sign} {abs(term.contribution):.3f} {term.name}")
    return [
        f"score {explanation.score:.3f} = {explanation.mean_score:.3f} mean {' '.join(added)}"
    ]


def lines_with_sources(statements: Sequence[Statement]) -> str:
    """Returns the sentences of a summary, one per line, each followed by its sources."""
    lines = []
    for statement in statements:
        lines += [
            statement.text,
            *(f"    [{note}]" for note in notes_on(statement)),
        ]
    return "\n".join(lines)


def _share(source: SourceSentence) -> str:
    """Returns the share of a sentence that a source supports; "" for the whole sentence."""
    if source.score == 1:
        return ""
    return f"{source.score:.0%}: "


_CARD = (
    "border: 1px solid #8888; border-radius: 6px; padding: 0.6em 1em; margin: 0.6em 0; "
    "max-width: 48em; line-height: 1.5"
)
_FAINT = "opacity: 0.7"
_DOUBTFUL = (
    "text-decoration: underline dotted #c33; text-underline-offset: 0.2em"
)


def card(
    text: str,
    about: str,
    title: str | None = None,
    statements: Sequence[Statement] = (),
) -> str:
    """Returns a summary as self-contained HTML.

    Sentences with sources are followed by their number, which refers to a
    collapsed list below. Unsupported sentences and sentences with entities
    missing from the document are underlined.

    Args:
        text: text of the summary.
        about: line below the summary.
        title: title above the summary.
        statements: sentences of the summary with their sources; () to show
            none.
    """
    if title:
        head = f"<strong>{html.escape(title)}</strong>"
    else:
        head = ""
    body, sources = _escaped(text), ""
    if statements:
        body = _marked(text, statements)
        items = "".join(
            f"<li>{_listed(statement)}</li>" for statement in statements
        )
        summary = "<summary>Sources</summary>"
        sources = f'<details style="font-size: smaller">{summary}<ol>{items}</ol></details>'
    foot = f'<small style="{_FAINT}">{html.escape(about)}</small>'
    return f'<div style="{_CARD}">{head}<p dir="auto">{body}</p>{sources}{foot}</div>'


def _escaped(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


def _marked(text: str, statements: Sequence[Statement]) -> str:
    """Returns the sentences of a summary with their numbers, doubtful ones underlined."""
    parts = []
    end = 0
    for number, statement in enumerate(statements, 1):
        # Keep the text between sentences, such as line breaks.
        parts.append(_escaped(text[end : statement.start]))
        end = statement.end
        problems = "; ".join(problems_of(statement))
        if problems:
            style = f' style="{_DOUBTFUL}" title="{html.escape(problems)}"'
        else:
            style = ""
        parts.append(
            f"<span{style}>{_escaped(text[statement.start : end])}</span>"
        )
        parts.append(f'<sup style="{_FAINT}">{number}</sup>')
    return "".join(parts) + _escaped(text[end:])


def _listed(statement: Statement) -> str:
    """Returns the sources of a sentence as a list item, quoted if they differ from it."""
    lines = [
        f"<em>{html.escape(problem)}</em>" for problem in problems_of(statement)
    ]
    for source in statement.sources:
        label = f'<span style="{_FAINT}">{html.escape(_share(source) + place_of(source))}</span>'
        quote = f': <q dir="auto">{html.escape(source.text)}</q>'
        lines.append(label + ("" if source.text == statement.text else quote))
    for explanation in explanation_of(statement):
        lines.append(
            f'<span style="{_FAINT}">{html.escape(explanation)}</span>'
        )
    return "<br>".join(lines)
