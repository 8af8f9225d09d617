"""The result of summarizing one document."""

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
