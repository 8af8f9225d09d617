"""Longest common subsequences of words, bit-parallel: one integer is a row of the dynamic program.

Entry (i, j) of the table is the length for the first i words of one text and
the first j of the other. Neighboring entries of a row differ by 0 or 1, so that
a row is a bit vector, and an integer addition gives the next one (Hyyrö,
"Bit-parallel LCS-length computation revisited", 2004). Here bit j is 1 if entry
j + 1 equals entry j:

                  the  cat  sat  down
    before     0   0    0    0    0      1 1 1 1
    cat        0   0    1    1    1      1 0 1 1     word 1, "cat", raises the length
    down       0   0    1    1    2      1 0 1 0     so does word 3: two zeros, length 2
"""

from collections.abc import Hashable, Sequence


def lcs_length(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """Returns the length of the longest common subsequence, in words.

    Args:
        first, second: words of two texts.
    """
    if len(first) < len(second):
        first, second = second, first
    occurrences = _places([(second, 0)])
    everywhere = (1 << len(second)) - 1
    # the current row; bit j: word j does not raise the length
    level = everywhere
    for word in first:
        matches = level & occurrences.get(word, 0)
        level = (level + matches | level - matches) & everywhere
    return len(second) - level.bit_count()


class UnionLcs:
    """Computes union LCS: the words of a sentence in its LCS with any of several sentences.

    All sentences are concatenated in one bit vector, each after a boundary bit
    that is always 0 and stops the carries of the addition:

        bit       0   1    2    3    4   5    6
        sentence  |  the  cat  sat   |  a    dog

    If several subsequences are longest, the traceback of rouge-score 0.1.2
    decides. It starts at the ends of both sentences (the lower right of the
    table), takes a match if both words are equal, otherwise moves up if the
    entry above is at least the entry on the left, otherwise left.

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
        positions = []
        # one bit for each sentence: the column of its traceback
        columns = self._last_words
        for position in reversed(range(len(sentence))):
            bits, stops = rows[position]
            matching = columns & stops
            if not matching:
                continue
            positions.append(position)
            columns ^= matching
            while matching:
                column = matching & -matching  # the lowest bit
                matching ^= column
                # The last occurrence of the word at or before the column.
                match = (bits & (2 * column - 1)).bit_length() - 1
                columns |= 1 << (match - 1)
        return positions[::-1]

    def _rows(self, sentence: Sequence[Hashable]) -> list[tuple[int, int]]:
        """Returns two bit vectors for each word of the sentence.

        Returns:
            The positions of the word in the other sentences, and the columns at
            which a traceback takes a match in this row, at that column or to
            the left of it: the words are equal, or the entry is larger than the
            one above. At all other columns it moves up.
        """
        rows = []
        level = self._words
        for word in sentence:
            bits = self._places.get(word, 0)
            matches = level & bits
            total = level + matches
            # the carries out of each bit
            higher = (level ^ matches ^ total) >> 1
            rows.append((bits, bits | higher))
            level = (total | level - matches) & self._words
        return rows


def _places(
    sentences: Sequence[tuple[Sequence[Hashable], int]],
) -> dict[Hashable, int]:
    """Returns the bits of the positions of every word; each sentence begins at a given bit."""
    positions: dict[Hashable, int] = {}
    for sentence, start in sentences:
        for bit, word in enumerate(sentence, start):
            positions[word] = positions.get(word, 0) | 1 << bit
    return positions
