"""Joins texts: documents that are read as one, and the summaries of a document's segments."""

import itertools
import math
from collections.abc import Callable, Sequence

from longsum_jax.text.ngrams import num_words, unicode_words
from longsum_jax.text.sentences import split_sentences

DOCUMENT_TOKEN = "<doc-sep>"  # of PRIMERA (Xiao et al. 2022, section 2.1), after every document
BLANK_LINE = "\n\n"
_STOPS = tuple(".!?…。\uff01\uff1f\"”')")
_TOLERANCE = 1e-9  # shares that add up to 1 may differ from it by rounding


def join_documents(
    texts: Sequence[str], separator: str = BLANK_LINE
) -> tuple[str, tuple[int, ...]]:
    """Joins documents that are to be read as one.

    Args:
        texts: at least one.
        separator: between documents; ``DOCUMENT_TOKEN`` stands after each of several.

    Returns:
        The text, and the places in it at which all but the first begin.
    """
    texts = [text.strip() for text in texts]
    if len(texts) == 1:
        return texts[0], ()
    last = separator if separator == DOCUMENT_TOKEN else ""
    borders = []
    place = 0
    for text in texts[:-1]:
        place += len(text) + len(separator)
        borders.append(place)
    return separator.join(texts) + last, tuple(borders)


def split_documents(text: str, borders: Sequence[int], separator: str = BLANK_LINE) -> list[str]:
    """Returns the documents that ``join_documents`` has joined."""
    bounds = [0, *borders, len(text)]
    parts = [text[start:stop] for start, stop in itertools.pairwise(bounds)]
    return [part.removesuffix(separator) for part in parts] if borders else parts


class Joiner:
    """Puts the summaries of a document's segments together, up to a length.

    A sentence that was said before, word by word, is not said again. A length is shared out along
    the document: up to each segment, the summary has at most that share of it that the document has
    up to there. So what a segment leaves is for those after it, and no end of the document is left
    out because its beginning was long. Only whole sentences are taken; where none fits, the first
    one stands alone.

    Args:
        limit: of the summary's length; infinite for none.
        cost: length of a sentence.
        merges: whether repeated sentences are left out; without it and without a limit, texts stay
            as they are.

    Attributes:
        is_cut: whether sentences were left out for their length.
    """

    def __init__(
        self,
        limit: float = math.inf,
        cost: Callable[[str], float] = num_words,
        *,
        merges: bool = True,
    ) -> None:
        self._limit = limit
        self._cost = cost
        self._merges = merges
        self._said: set[tuple[str, ...]] = set()
        self._parts: list[str] = []
        self._first: str | None = None
        self._used = 0.0
        self.is_cut = False

    @property
    def text(self) -> str:
        """The summary up to now."""
        return " ".join(self._parts)

    def add(self, text: str, share: float = 1.0, *, ended: bool = True) -> str:
        """Adds the summary of the next segment; returns what of it is said.

        Args:
            text: a summary; one without words is left out.
            share: of the document up to the end of this segment, from 0 to 1.
            ended: whether the summary is complete; where there is a limit, the last sentence of an
                incomplete one is left out.
        """
        text = text.strip()
        if self._limit == math.inf and not self._merges:
            said = text
        else:
            said = self._chosen(text, share, ended)
        if said:
            self._parts.append(said)
        return said

    def _chosen(self, text: str, share: float, ended: bool) -> str:
        if not unicode_words(text):
            return ""
        sentences = split_sentences(text)
        kept = self._new(sentences)
        if self._limit < math.inf:
            kept = self._within(kept, share, ended)
        self._said.update(filter(None, map(_words, kept)))
        return text if kept == sentences else " ".join(kept)

    def _new(self, sentences: Sequence[str]) -> list[str]:
        """Returns the sentences that were not said before; those without words always are new."""
        found = []
        seen = set(self._said)
        for sentence in sentences:
            words = _words(sentence)
            if words not in seen:
                found.append(sentence)
            if words:
                seen.add(words)
        return found

    def _within(self, sentences: Sequence[str], share: float, ended: bool) -> list[str]:
        """Returns the first sentences, as many as there is room for."""
        is_last = share >= 1 - _TOLERANCE
        if self._first is None and sentences:
            self._first = sentences[0]
        whole = list(sentences)
        if not ended and len(whole) > 1 and not whole[-1].endswith(_STOPS):
            whole.pop()
            self.is_cut = True
        room = self._limit * min(share, 1) + _TOLERANCE
        kept = []
        for sentence in whole:
            if self._used + self._cost(sentence) > room:
                self.is_cut = True
                break
            self._used += self._cost(sentence)
            kept.append(sentence)
        if is_last and not kept and not self._parts and self._first is not None:
            kept = [self._first]
        return kept


def _words(sentence: str) -> tuple[str, ...]:
    return tuple(unicode_words(sentence))
