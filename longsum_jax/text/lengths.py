"""Lengths of texts: the requested length of a summary, and statistics of several lengths."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from longsum_jax.errors import InputError

Unit = Literal["words", "sentences", "percent", "auto"]
# Lengths by name, in words.
NAMED = {"short": 75, "medium": 150, "long": 400}
# Words of the default length: for a document of ``_AUTO_DOCUMENT`` words and
# less, and at most. Between them it grows with a power of the document.
_AUTO_DOCUMENT, _AUTO_FEWEST, _AUTO_MOST, _AUTO_POWER = 1_000, 150, 600, 0.35
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(words?|sentences?|%|percent)?")


@dataclasses.dataclass(frozen=True)
class Length:
    """The length of a summary.

    Attributes:
        value: positive length; an integer for words or sentences, at most 100
            for percent.
        unit: "words", "sentences", "percent" of the document's words, or "auto"
            for words of a short document, which grow with longer documents.
    """

    value: float
    unit: Unit = "words"

    def __post_init__(self) -> None:
        whole = self.unit == "percent" or float(self.value).is_integer()
        highest = 100 if self.unit == "percent" else float("inf")
        if (
            self.unit not in get_args(Unit)
            or not whole
            or not 0 < self.value <= highest
        ):
            raise InputError(
                f"a length of {self.value:g} {self.unit}; give a whole number of words or "
                "sentences, at least 1, or more than 0 and at most 100 percent"
            )

    def limit(self, num_words: int) -> float:
        """Returns the maximum of words, or of sentences, for a document of ``num_words`` words."""
        if self.unit == "percent":
            return self.value / 100 * num_words
        if self.unit == "auto":
            growth = max(num_words / _AUTO_DOCUMENT, 1.0) ** _AUTO_POWER
            return float(round(min(self.value * growth, _AUTO_MOST)))
        return self.value

    def __str__(self) -> str:
        if self.unit == "auto":
            return "auto"
        if self.value == 1:
            unit = self.unit.removesuffix("s")
        else:
            unit = self.unit
        return f"{self.value:g} {unit}"


AUTO = Length(_AUTO_FEWEST, "auto")


def parse_length(text: str | int | Length) -> Length:
    """Parses the length of a summary.

    Args:
        text: "auto", "short", "medium", "long", "150", "150 words",
            "7 sentences" or "5%"; a number counts words.

    Raises:
        InputError: the text is not a length.
    """
    if isinstance(text, Length):
        return text
    name = str(text).strip().lower()
    if name == "auto":
        return AUTO
    if name in NAMED:
        return Length(NAMED[name])
    match = _LENGTH.fullmatch(name)
    if not match:
        raise InputError(
            f'length="{text}"; write {", ".join(NAMED)}, a number of words such as 150, '
            '"7 sentences", "5%" or auto'
        )
    value, unit = match.groups(default="words")
    if unit in ("%", "percent"):
        return Length(float(value), "percent")
    return Length(
        float(value), "words" if unit.startswith("word") else "sentences"
    )


class LengthStatistics(NamedTuple):
    """Statistics of several lengths, in the unit of the lengths.

    Attributes:
        mean: arithmetic mean.
        median: middle length; the mean of the two middle lengths if their
            number is even.
        percentile_90: 90th percentile, linearly interpolated: for n sorted
            lengths the one with index 0.9 (n - 1), counted from 0 (the default
            of ``numpy.percentile``).
        largest: largest length.
    """

    mean: float
    median: float
    percentile_90: float
    largest: int


def length_statistics(lengths: Sequence[int]) -> LengthStatistics:
    """Returns mean, median, 90th percentile and largest of some lengths.

    Raises:
        InputError: there are no lengths.
    """
    values = np.asarray(lengths, np.int64)
    if not values.size:
        raise InputError(
            "statistics of no documents: give a file with at least one"
        )
    median, percentile_90 = np.percentile(values, [50, 90])
    return LengthStatistics(
        float(values.mean()),
        float(median),
        float(percentile_90),
        int(values.max()),
    )
