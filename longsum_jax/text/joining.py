"""Joins texts: documents that are read as one, and the summaries of a document's segments."""

import itertools
import math
from collections.abc import Callable, Sequence

from longsum_jax.text.ngrams import num_words, unicode_words
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.files import DOCUMENT_TOKEN

BLANK_LINE = "\n\n"
_STOPS = tuple(".!?…。\uff01\uff1f\"”')")
_TOLERANCE = 1e-9  # shares that sum to 1 may differ from it by rounding


def join_documents(
    texts: Sequence[str], separator: str = BLANK_LINE
) -> tuple[str, tuple[int, ...]]:
    """Joins documents that are read as one.

    Args:
        texts: texts of the documents; at least one.
        separator: text between documents; ``DOCUMENT_TOKEN`` also follows the
            last of several.

    Returns:
        The text, and the offsets in it of all documents except the first.
    """
    texts = [text.strip() for text in texts]
    if len(texts) == 1:
        return texts[0], ()
    last = separator if separator == DOCUMENT_TOKEN else ""
    borders = []
    offset = 0
    for text in texts[:-1]:
        offset += len(text) + len(separator)
        borders.append(offset)
    return separator.join(texts) + last, tuple(borders)


def split_documents(
    text: str, borders: Sequence[int], separator: str = BLANK_LINE
) -> list[str]:
    """Returns the documents joined by ``join_documents``."""
    bounds = [0, *borders, len(text)]
    parts = [text[start:stop] for start, stop in itertools.pairwise(bounds)]
    if borders:
        return [part.removesuffix(separator) for part in parts]
    return parts


def document_token_id(tokenizer: Tokenizer) -> int | None:
    """Returns the id of the token that separates documents read as one; None if there is none."""
    ids = tokenizer.encode(DOCUMENT_TOKEN)
    if len(ids) == 1 and ids[0] != tokenizer.unk_id:
        return ids[0]
    return None


def cut_documents(
    ids: Sequence[int], separator_id: int | None, limit: int
) -> list[int]:
    """Returns at most ``limit`` ids of a text.

    Of several documents that do not fit, the beginnings are read, at most an
    equal share of each with the separator after it (PRIMERA, Xiao et al. 2022,
    section 2.1).

    Args:
        ids: ids without the special tokens around the text.
        separator_id: id of the token after each of several documents; None
            without one.
        limit: maximum number of ids.
    """
    if separator_id is None or len(ids) <= limit:
        return list(ids[:limit])
    ends = [end for end, index in enumerate(ids, 1) if index == separator_id]
    if not ends:
        return list(ids[:limit])
    bounds = dict.fromkeys((0, *ends, len(ids)))
    share = max(1, limit // (len(bounds) - 1))
    parts: list[int] = []
    for start, stop in itertools.pairwise(bounds):
        part = ids[start:stop]
        if len(part) > share and part[-1] == separator_id:
            parts += [*part[: share - 1], part[-1]]
        else:
            parts += part[:share]
    return parts[:limit]


class Joiner:
    """Joins the summaries of a document's segments, up to a length limit.

    A sentence that repeats an earlier one verbatim is dropped. A length limit
    is distributed along the document: up to the end of each segment, the share
    of the limit that is used is at most the share of the document that precedes
    it. Length that a segment does not use is available to later segments, and a
    long beginning does not exclude the end of the document. Only whole
    sentences are included; if none fits, the result is the first sentence.

    Args:
        limit: maximum length of the summary; infinite for no limit.
        cost: function that returns the length of a sentence.
        merges: True to drop repeated sentences; if False and without a
            limit, texts are unchanged.

    Attributes:
        is_cut: True if sentences were dropped because of the limit.
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
        self._written: set[tuple[str, ...]] = set()
        self._parts: list[str] = []
        self._first: str | None = None
        self._used = 0.0
        self.is_cut = False

    @property
    def text(self) -> str:
        """The summary so far."""
        return " ".join(self._parts)

    def add(self, text: str, share: float = 1.0, *, ended: bool = True) -> str:
        """Adds the summary of the next segment; returns the part that was kept.

        Args:
            text: text of the summary; dropped if it has no words.
            share: share of the document up to the end of this segment, from 0
                to 1.
            ended: True if the summary is complete; with a limit, the last
                sentence of an incomplete summary is dropped.
        """
        text = text.strip()
        if self._limit == math.inf and not self._merges:
            part = text
        else:
            part = self._select(text, share, ended)
        if part:
            self._parts.append(part)
        return part

    def _select(self, text: str, share: float, ended: bool) -> str:
        if not unicode_words(text):
            return ""
        sentences = split_sentences(text)
        selected = self._new(sentences)
        if self._limit < math.inf:
            selected = self._within(selected, share, ended)
        self._written.update(filter(None, map(_words, selected)))
        if selected == sentences:
            return text
        return " ".join(selected)

    def _new(self, sentences: Sequence[str]) -> list[str]:
        """Returns the sentences not added before; sentences without words are always new."""
        new = []
        seen = set(self._written)
        for sentence in sentences:
            words = _words(sentence)
            if words not in seen:
                new.append(sentence)
            if words:
                seen.add(words)
        return new

    def _within(
        self, sentences: Sequence[str], share: float, ended: bool
    ) -> list[str]:
        """Returns the leading sentences that fit into the limit."""
        is_last = share >= 1 - _TOLERANCE
        if self._first is None and sentences:
            self._first = sentences[0]
        whole = list(sentences)
        if not ended and len(whole) > 1 and not whole[-1].endswith(_STOPS):
            whole.pop()
            self.is_cut = True
        room = self._limit * min(share, 1) + _TOLERANCE
        selected = []
        for sentence in whole:
            if self._used + self._cost(sentence) > room:
                self.is_cut = True
                break
            self._used += self._cost(sentence)
            selected.append(sentence)
        if (
            is_last
            and not selected
            and not self._parts
            and self._first is not None
        ):
            selected = [self._first]
        return selected


def _words(sentence: str) -> tuple[str, ...]:
    return tuple(unicode_words(sentence))
