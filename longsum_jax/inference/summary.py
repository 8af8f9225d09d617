"""The result of summarizing one document."""

import html
from typing import Any, Literal, NamedTuple

# What happens to documents beyond the limit: their beginning is read, or InputError is raised.
Overflow = Literal["truncate", "error"]
# Documents decoded together; "auto" for as many as are fastest.
BatchSize = int | Literal["auto"]


class Request(NamedTuple):
    """A document to summarize: its text, its name in error messages, a query or None."""

    text: str
    name: str
    query: str | None


class Summary(NamedTuple):
    """A summary, and the lengths of it and of its document.

    Attributes:
        text: the summary.
        document_tokens: tokens of the document, end of sequence included, as all lengths here.
        read_tokens: tokens that the model read.
        dropped_tokens: tokens beyond the limit, which it did not read.
        summary_tokens: tokens of the summary.
        ended: "eos" when the summary ended by itself, "limit" when it was cut at
            ``max_new_tokens``.
    """

    text: str
    document_tokens: int
    read_tokens: int
    dropped_tokens: int
    summary_tokens: int
    ended: Literal["eos", "limit"]

    def report(self) -> dict[str, Any]:
        """Returns everything but the text, ready for JSON."""
        fields = self._asdict()
        del fields["text"]
        return fields

    def _repr_html_(self) -> str:
        """Returns the summary as a card, which notebooks show."""
        return card(self.text, self.about())

    def about(self) -> str:
        """Returns in one line what was read, and how the summary ended."""
        read = f"{self.read_tokens:,} of {self.document_tokens:,} tokens read"
        ended = "" if self.ended == "eos" else ", cut at the longest length"
        return f"{read}; {self.summary_tokens:,} tokens written{ended}"


def card(text: str, about: str, title: str | None = None) -> str:
    """Returns a summary as HTML that stands for itself.

    Args:
        text: of the summary.
        about: a line below it.
        title: above it.
    """
    style = (
        "border: 1px solid #8888; border-radius: 6px; padding: 0.6em 1em; margin: 0.6em 0; "
        "max-width: 48em; line-height: 1.5"
    )
    head = f"<strong>{html.escape(title)}</strong>" if title else ""
    body = html.escape(text).replace("\n", "<br>")
    foot = f'<small style="opacity: 0.7">{html.escape(about)}</small>'
    return f'<div style="{style}">{head}<p dir="auto">{body}</p>{foot}</div>'
