"""Finds what reports nothing when it stands alone: headings, exclamations, captions, rows of
numbers, what leads in a list."""

import re

import numpy as np

from longsum_jax.ranking.parsing import LONGEST_HEADING, ParsedDocument, class_counts, is_stopped
from longsum_jax.text.captions import LONGEST_CAPTION, begins_caption

_SECTION = re.compile(r"\d{1,2}(?:\.\d{1,2})+\.?\s+(?=[^\W\d_])(?![a-z])")
_FEWEST_WORDS = 4
_LONGEST_LEAD_IN = 12  # words
_COLONS = (":", "\uff1a")
_DIGITS = 0.1  # of the characters, below which no row of numbers is looked for
_NUMBERS, _UNSTOPPED_NUMBERS = 0.5, 0.3  # of the words of a row, with a stop at its end and without


def are_fragments(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], sentences that should not stand in a summary while there are others."""
    return (
        document.headings
        | _are_short(document)
        | _are_numbered_headings(document)
        | _lead_in(document)
        | _are_numbers(document)
        | _in_captions(document)
    )


def _are_short(document: ParsedDocument) -> np.ndarray:
    """Sentences of fewer than ``_FEWEST_WORDS`` words, where an address of a page is one.

    They say little out of their place, and would be taken often, since there is always room.
    """
    words = np.bincount(document.words.rows, minlength=len(document.sentences))
    return np.minimum(words, document.lengths) < _FEWEST_WORDS


def _are_numbered_headings(document: ParsedDocument) -> np.ndarray:
    """Headings with a stop, known by the numbers of their sections ("3.1 Results.")."""
    numbered = np.array([_SECTION.match(each) is not None for each in document.sentences])
    return numbered & (document.lengths <= LONGEST_HEADING)


def _lead_in(document: ParsedDocument) -> np.ndarray:
    """Sentences that end in a colon ("The steps are:"), unless they say much themselves."""
    opens = np.array([sentence.endswith(_COLONS) for sentence in document.sentences])
    return opens & (document.lengths <= _LONGEST_LEAD_IN)


def _are_numbers(document: ParsedDocument) -> np.ndarray:
    """Rows of tables, as a PDF has them: more than half of the words are numbers.

    Fewer are enough where no stop makes a sentence of it.
    """
    digits = class_counts(document, document.characters.digit)
    found = digits > _DIGITS * (document.ends - document.starts)
    for number in np.flatnonzero(found):
        sentence = document.sentences[number]
        words = [word for word in sentence.split() if any(map(str.isalnum, word))]
        numbers = sum(not any(map(str.isalpha, word)) for word in words)
        most = _NUMBERS if is_stopped(sentence) else _UNSTOPPED_NUMBERS
        found[number] = numbers > most * len(words)
    return found


def _in_captions(document: ParsedDocument) -> np.ndarray:
    """Sentences that begin as captions do, and those after them in their paragraph.

    Where a paragraph is longer than captions are, a text goes on behind its caption, of which at
    least the first sentence behind a label alone ("Figure 1.") is left out.
    """
    found = np.array([begins_caption(sentence) for sentence in document.sentences])
    words = np.cumsum(document.lengths)
    for first in np.flatnonzero(found):
        paragraph = document.paragraphs[first]
        end = int(np.searchsorted(document.paragraphs, paragraph, side="right"))
        if words[end - 1] - words[first] + document.lengths[first] > LONGEST_CAPTION:
            is_label = document.lengths[first] < _FEWEST_WORDS
            end = min(end, first + 1 + is_label)
        found[first:end] = True
    return found
