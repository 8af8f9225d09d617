"""Sentences of a summary and the sentences of its document that they rest on, as data."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from longsum_jax.text.entities import EntityKind


class Outline(NamedTuple):
    """The positions of headings and page starts in a text.

    Attributes:
        headings: first and last place of each, the latter exclusive, in the order of the text.
        pages: the place at which every page begins; () where there are no pages.
    """

    headings: Sequence[tuple[int, int]] = ()
    pages: Sequence[int] = ()


NO_OUTLINE = Outline()


class Source(NamedTuple):
    """A sentence of a document that a sentence of its summary rests on.

    Attributes:
        text: the sentence, white space in it as single spaces.
        number: of the sentence in the document, from 0 on.
        start, end: its place in the document, the latter exclusive.
        heading: the last one before it, or None.
        page: on which it begins, from 1 on, or None.
        score: how much of the summary's sentence rests on it, from 0 to 1.
    """

    text: str
    number: int
    start: int
    end: int
    heading: str | None
    page: int | None
    score: float


Missing = Literal["document", "sources"]


class Flag(NamedTuple):
    """A name, number or date of a summary that is missing where it should stand.

    Attributes:
        kind: what it is.
        text: as the summary has it.
        start: its place in the summary's sentence.
        missing: from the whole document, or only from the sources of the sentence.
    """

    kind: EntityKind
    text: str
    start: int
    missing: Missing


class Reason(NamedTuple):
    """A kind of feature that a ranker scores sentences by.

    Attributes:
        name: name of the kind, in words.
        contribution: how much it adds to the score of a sentence, in comparison with the sentences
            of the document on average.
    """

    name: str
    contribution: float


class Explanation(NamedTuple):
    """The score of a sentence that was extracted, as a sum.

    Attributes:
        score: score of the sentence, which is ``mean_score`` plus all contributions.
        mean_score: mean over the sentences of the document.
        reasons: the largest contributions, by their absolute value.
        others: the other contributions together.
    """

    score: float
    mean_score: float
    reasons: tuple[Reason, ...]
    others: float


class Statement(NamedTuple):
    """A sentence of a summary with its sources, support and flags.

    Attributes:
        text: the sentence, white space in it as single spaces.
        start, end: its place in the summary, the latter exclusive.
        sources: sentences of the document, that with the largest share first.
        support: how much of the sentence its sources hold: the share of its words and pairs of
            words, from 0 to 1, or what a model of entailment says, from -1 to 1.
        is_supported: whether that is enough.
        flags: names, numbers and dates that are not in the document, or not in its sources.
        explanation: why the sentence was extracted; None if it was not.
    """

    text: str
    start: int
    end: int
    sources: tuple[Source, ...]
    support: float
    is_supported: bool
    flags: tuple[Flag, ...] = ()
    explanation: Explanation | None = None

    def report(self) -> dict[str, Any]:
        """Returns everything, ready for JSON; without a key for an explanation if there is none."""
        fields = self._asdict()
        for name in ("sources", "flags"):
            fields[name] = [each._asdict() for each in fields[name]]
        explanation = fields.pop("explanation")
        if explanation is not None:
            reasons = [reason._asdict() for reason in explanation.reasons]
            fields["explanation"] = explanation._asdict() | {"reasons": reasons}
        return fields

    @classmethod
    def from_report(cls, fields: Mapping[str, Any]) -> "Statement":
        """Returns the statement of which ``report`` gave the fields."""
        sources = tuple(Source(**each) for each in fields["sources"])
        flags = tuple(Flag(**each) for each in fields["flags"])
        explanation = fields.get("explanation")
        if explanation is not None:
            reasons = tuple(Reason(**reason) for reason in explanation["reasons"])
            explanation = Explanation(**{**explanation, "reasons": reasons})
        changes = {"sources": sources, "flags": flags, "explanation": explanation}
        return cls(**{**fields, **changes})


def in_line(text: str) -> str:
    """Returns a text with single spaces for all white space."""
    return " ".join(text.split())
