"""Summary sentences and the document sentences that support them, as data."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from longsum_jax.text.entities import EntityKind


class Outline(NamedTuple):
    """The positions of headings and page starts in a text.

    Attributes:
        headings: start and end (exclusive) of each heading, in the order of the
            text.
        pages: start of every page; () if there are no pages.
    """

    headings: Sequence[tuple[int, int]] = ()
    pages: Sequence[int] = ()


NO_OUTLINE = Outline()


class SourceSentence(NamedTuple):
    """A sentence of a document that supports a sentence of its summary.

    Attributes:
        text: text of the sentence, with single spaces as white space.
        number: index of the sentence in the document, from 0.
        start, end: position in the document; ``end`` is exclusive.
        heading: nearest heading before the sentence, or None.
        page: number of the page on which the sentence begins, from 1, or None.
        score: share of the summary sentence that this source supports, from 0
            to 1.
    """

    text: str
    number: int
    start: int
    end: int
    heading: str | None
    page: int | None
    score: float


Source = SourceSentence  # public name before version 0.3


Missing = Literal["document", "sources"]


class Flag(NamedTuple):
    """A name, number or date of a summary that is missing in the document or the sources.

    Attributes:
        kind: kind of the entity.
        text: text in the summary.
        start: position in the summary sentence.
        missing: "document" if it is missing in the whole document, "sources" if
            it is missing only in the sources of the sentence.
    """

    kind: EntityKind
    text: str
    start: int
    missing: Missing


class Reason(NamedTuple):
    """A group of features that contributes to the score of a sentence.

    Attributes:
        name: display name of the group.
        contribution: contribution to the score of a sentence, relative to the
            average over the sentences of the document.
    """

    name: str
    contribution: float


class Explanation(NamedTuple):
    """The score of an extracted sentence, as a sum.

    Attributes:
        score: score of the sentence, which is ``mean_score`` plus all
            contributions.
        mean_score: mean score over the sentences of the document.
        reasons: largest contributions, by absolute value.
        others: sum of the other contributions.
    """

    score: float
    mean_score: float
    reasons: tuple[Reason, ...]
    others: float


class Statement(NamedTuple):
    """A sentence of a summary with its sources, support and flags.

    Attributes:
        text: text of the sentence, with single spaces as white space.
        start, end: position in the summary; ``end`` is exclusive.
        sources: sentences of the document; the source with the largest share
            first.
        support: share of the words and word pairs of the sentence in its
            sources, from 0 to 1, or the score of an entailment model, from -1
            to 1.
        is_supported: True if the support is sufficient.
        flags: names, numbers and dates that are not in the document, or not in
            its sources.
        explanation: explanation of the extraction; None if the sentence was not
            extracted.
    """

    text: str
    start: int
    end: int
    sources: tuple[SourceSentence, ...]
    support: float
    is_supported: bool
    flags: tuple[Flag, ...] = ()
    explanation: Explanation | None = None

    def report(self) -> dict[str, Any]:
        """Returns all fields, JSON-serializable; without an explanation key if there is none."""
        fields = self._asdict()
        for name in ("sources", "flags"):
            fields[name] = [entry._asdict() for entry in fields[name]]
        explanation = fields.pop("explanation")
        if explanation is not None:
            reasons = [reason._asdict() for reason in explanation.reasons]
            fields["explanation"] = explanation._asdict() | {"reasons": reasons}
        return fields

    @classmethod
    def from_report(cls, fields: Mapping[str, Any]) -> "Statement":
        """Restores a statement from the fields of ``report``."""
        sources = tuple(
            SourceSentence(**source) for source in fields["sources"]
        )
        flags = tuple(Flag(**flag) for flag in fields["flags"])
        explanation = fields.get("explanation")
        if explanation is not None:
            reasons = tuple(
                Reason(**reason) for reason in explanation["reasons"]
            )
            explanation = Explanation(**{**explanation, "reasons": reasons})
        changes = {
            "sources": sources,
            "flags": flags,
            "explanation": explanation,
        }
        return cls(**{**fields, **changes})


def in_line(text: str) -> str:
    """Returns a text with each run of white space replaced by a single space."""
    return " ".join(text.split())
