"""Longest common subsequences of words, a whole row of the table at a time as bits of one integer.

Row i of the table holds the lengths for the first i words of one text and the first j of the other.
Neighbouring lengths differ by 0 or 1, so that a row is a bit vector, and the next one follows by an
addition (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004).
"""

from collections.abc import Hashable, Sequence


def lcs_length(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Returns the length of the longest common subsequence of two lists of words."""
    if len(first) < len(second):
        first, second = second, first
    places = _places([(second, 0)])
    everywhere = (1 << len(second)) - 1
    level = everywhere  # bit j: the row is as high after word j as before it
    for word in first:
        matches = level & places.get(word, 0)
        level = (level + matches | level - matches) & everywhere
    return len(second) - level.bit_count()


class UnionLcs:
    """Finds which words of a sentence lie in its common subsequences with any of several sentences.

    All sentences stand side by side in one bit vector, in which a bit that is always 0 comes before
    each, the lowest first; carries of the addition end there:

        bit       0   1    2    3    4   5    6
        sentence  |  the  cat  sat   |  a    dog

    Where several subsequences are longest, the one is taken that rouge-score 0.1.2 reads out of its
    table: from the ends of both sentences, words that agree, else up, else to the left.

    Args:
        sentences: lists of words.
    """

    def __init__(self, sentences: Sequence[Sequence[Hashable]]) -> None:
        placed = []
        self._words = 0  # bits of words, not of boundaries
        self._last_words = 0
        start = 0
        for sentence in sentences:
            placed.append((sentence, start + 1))
            self._words |= ((1 << len(sentence)) - 1) << (start + 1)
            start += len(sentence) + 1
            self._last_words |= 1 << (start - 1)
        self._places = _places(placed)

    def union(self, sentence: Sequence[Hashable]) -> list[int]:
        """Returns the positions in ``sentence`` of the union of all subsequences, ascending."""
        rows = self._rows(sentence)
        found = []
        marks = self._last_words  # one bit a sentence: where its way through the table stands
        for position in reversed(range(len(sentence))):
            places, stops = rows[position]
            taken = marks & stops
            if not taken:
                continue
            found.append(position)
            marks ^= taken
            while taken:
                mark = taken & -taken
                taken ^= mark
                match = (places & (2 * mark - 1)).bit_length() - 1
                marks |= 1 << (match - 1)
        return found[::-1]

    def _rows(self, sentence: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Returns for each word where it stands, and where a way does not go on to the row above.

        A way that stands on a word that agrees takes it. Where the table is higher than in the row
        above, it goes to the left up to the next word that agrees. Else it goes up.
        """
        rows = []
        level = self._words
        for word in sentence:
            places = self._places.get(word, 0)
            matches = level & places
            total = level + matches
            higher = (level ^ matches ^ total) >> 1  # the carries out of each bit
            rows.append((places, places | higher))
            level = (total | level - matches) & self._words
        return rows


def _places(sentences: Sequence[tuple[Sequence[Hashable], int]]) -> dict[Hashable, int]:
    """Returns the bits at which every word stands, in sentences that begin at the given bits."""
    places: dict[Hashable, int] = {}
    for sentence, start in sentences:
        for bit, word in enumerate(sentence, start):
            places[word] = places.get(word, 0) | 1 << bit
    return places
