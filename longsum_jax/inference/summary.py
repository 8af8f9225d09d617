"""The result of summarising one document."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    pass


Overflow = Literal["truncate", "error"]


class Summary(NamedTuple):
    """A summary and what became of its document; lengths in tokens, end of sequence included.

    Attributes:
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
        """Everything but the text, ready for JSON."""
        return {name: value for name, value in self._asdict().items() if name != "text"}
