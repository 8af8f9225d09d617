"""Gap-sentence generation: the pre-training task of PEGASUS, LongT5 and LOCOST.

The target is the sentences of a document with the highest ROUGE-1 against its
other sentences. The source is the remaining text (LOCOST, section 5.2 and
equation 4), or the text in which a mask token replaces each target sentence
(PEGASUS, section 3.1).

Long documents are cut into pieces, so that a novel yields many examples instead
of a truncated one.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.documents import DataRow, document_rng
from longsum_jax.text.ngrams import Tokenize, num_words, unicode_words, words_of
from longsum_jax.text.sentences import split_sentences

Strategy = Literal["independent", "sequential", "lead", "random"]
Counting = Literal["original", "unique"]
Metric = Literal["f1", "recall", "precision"]
ShortDocuments = Literal["skip", "one"]

_CHOICES = {
    "strategy": get_args(Strategy),
    "counting": get_args(Counting),
    "metric": get_args(Metric),
    "short_documents": get_args(ShortDocuments),
}


@dataclasses.dataclass(frozen=True)
class GapSentenceOptions:
    """Options of gap-sentence selection.

    Attributes:
        ratio: fraction of the M sentences that become the target; K =
            floor(ratio * M).
        strategy: "independent" scores each sentence separately against the
            rest; "sequential" grows the selection greedily (PEGASUS, Seq);
            "lead" takes the first K; "random" any K.
        counting: "original" counts repeated words as ROUGE does; "unique"
            compares sets (PEGASUS, Uniq).
        metric: ROUGE-1 score to maximize.
        mask_token: text that replaces each selected sentence; None removes
            them, as in LOCOST.
        short_documents: handling of K = 0: "skip" gives no example and "one"
            takes K = 1.
        unicode_words: True to count words of every script. ROUGE uses only
            words of a-z and 0-9, so all Chinese or Russian sentences are equal.

    Raises:
        InputError: a value is out of range or not allowed.
    """

    ratio: float = 0.2
    strategy: Strategy = "independent"
    counting: Counting = "original"
    metric: Metric = "f1"
    mask_token: str | None = None
    short_documents: ShortDocuments = "skip"
    unicode_words: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1:
            raise InputError(
                f"gap_sentences.ratio must lie between 0 and 1, got {self.ratio}"
            )
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(
                    f'gap_sentences.{name}: "{value}" is not allowed; '
                    f"{did_you_mean(value, choices)}"
                )
        if self.mask_token == "":
            raise InputError(
                'gap_sentences.mask_token is ""; use None to remove the selected sentences'
            )


class GapExample(NamedTuple):
    """One pre-training example, as text."""

    source: str
    target: str


def gap_sentence_example(
    document: str | Sequence[str],
    options: GapSentenceOptions,
    rng: np.random.Generator,
) -> GapExample | None:
    """Returns the pre-training example of a document.

    Args:
        document: text, or its sentences.
        options: options of the selection.
        rng: random generator of the "random" strategy.

    Returns:
        Source and target, sentences joined by spaces in document order; None if
        the document is too short.
    """
    sentences = (
        split_sentences(document) if isinstance(document, str) else document
    )
    selected = select_gap_sentences(sentences, options, rng)
    if not selected:
        return None
    target = " ".join(sentences[index] for index in selected)
    source: list[str | None] = list(sentences)
    for index in selected:
        source[index] = options.mask_token
    return GapExample(
        " ".join(text for text in source if text is not None), target
    )


def gap_sentence_texts(
    text: str, options: GapSentenceOptions, seed: int = 0
) -> tuple[str, str] | None:
    """Returns source and target of a document, or None if it is too short.

    Args:
        text: text of the document.
        options: options of the selection.
        seed: random seed of strategy "random", whose choice depends only on the
            seed and the text.
    """
    example = gap_sentence_example(text, options, document_rng(text, seed))
    if example is None:
        return None
    return (example.source, example.target)


def select_gap_sentences(
    sentences: Sequence[str],
    options: GapSentenceOptions,
    rng: np.random.Generator,
) -> list[int]:
    """Returns the indices of the K selected sentences in document order; [] for short documents.

    Ties go to the earlier sentence. The only sentence of a document is never
    selected, because nothing would remain.

    Args:
        sentences: sentences of the document.
        options: options of the selection.
        rng: random generator for ``options.strategy`` "random".
    """
    count = _number_of_gaps(len(sentences), options)
    if count == 0:
        return []
    if options.strategy == "lead":
        return list(range(count))
    if options.strategy == "random":
        return sorted(rng.choice(len(sentences), count, replace=False).tolist())
    split = unicode_words if options.unicode_words else words_of
    words = _WordCounts.of(sentences, options.counting, split)
    if options.strategy == "sequential":
        return sorted(_grow(words, options, count))
    best_first = np.argsort(-words.scores(options.metric), kind="stable")
    return sorted(best_first[:count].tolist())


class _WordCounts(NamedTuple):
    """Sparse word counts: one entry for each pair of a sentence and one of its words.

    The score of growing a selection S by sentence j is ROUGE-1 of S + j against
    all others. An empty S gives the independent scores, so both strategies
    share these sums. The overlap,

        sum over words w of min(count of w in S + j, count of w in the others),

    is the overlap of S plus a change, to which only the words of j contribute:
    the scores of all sentences take one pass over the sparse entries, not one
    over the vocabulary per sentence.
    """

    sentence: np.ndarray  # [P] int, number of the sentence
    word: np.ndarray  # [P] int, number of the word
    counts: np.ndarray  # [P] int, occurrences of the word in the sentence
    total: np.ndarray  # [V] int, occurrences of each word in the document
    num_sentences: int
    unique: bool

    @classmethod
    def of(
        cls,
        sentences: Sequence[str],
        counting: Counting,
        split: Tokenize = words_of,
    ) -> "_WordCounts":
        # Words are numbered in order of appearance.
        vocabulary: dict[Hashable, int] = collections.defaultdict(
            itertools.count().__next__
        )
        tokens = [split(sentence) for sentence in sentences]
        numbers = map(
            vocabulary.__getitem__, itertools.chain.from_iterable(tokens)
        )
        words = np.fromiter(numbers, np.int64)
        rows = np.repeat(
            np.arange(len(sentences)), [len(line) for line in tokens]
        )
        size = max(len(vocabulary), 1)
        pairs, counts = np.unique(rows * size + words, return_counts=True)
        total = np.bincount(words, minlength=size)
        return cls(
            pairs // size,
            pairs % size,
            counts,
            total,
            len(sentences),
            counting == "unique",
        )

    def scores(
        self, metric: Metric, selected: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns the scores [M] of the selection grown by each sentence.

        Args:
            metric: ROUGE-1 score.
            selected: word counts [V] of the selection; None for an empty one.
        """
        if selected is None:
            counts = np.zeros_like(self.total)
        else:
            counts = selected
        rest = self.total - counts
        before = self._sums(counts, rest)  # [V] each
        # By entry [P], before and after its sentence moves to the selection.
        entry_before = self._sums(counts[self.word], rest[self.word])
        grown = counts[self.word] + self.counts
        entry_after = self._sums(grown, self.total[self.word] - grown)
        sums = []
        for old, entry_old, entry_new in zip(
            before, entry_before, entry_after, strict=True
        ):
            change = np.bincount(
                self.sentence, entry_new - entry_old, self.num_sentences
            )
            sums.append(old.sum() + change)
        overlap, inside, outside = sums
        return _ratio(overlap, inside, outside, metric)

    def of_sentence(self, index: int) -> np.ndarray:
        """Returns the word counts [V] of one sentence."""
        entries = self.sentence == index
        counts = np.bincount(
            self.word[entries], self.counts[entries], len(self.total)
        )
        return counts.astype(np.int64)

    def _sums(
        self, inside: np.ndarray, outside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns overlap and both lengths, by word, of the selection and the other sentences."""
        if self.unique:
            inside, outside = np.minimum(inside, 1), np.minimum(outside, 1)
        return np.minimum(inside, outside), inside, outside


def _ratio(
    overlap: np.ndarray, inside: np.ndarray, outside: np.ndarray, metric: Metric
) -> np.ndarray:
    """Returns ROUGE-1 by a single integer division, so that ties are exact; 0 without words."""
    denominator = {
        "precision": inside,
        "recall": outside,
        "f1": inside + outside,
    }[metric]
    numerator = 2 * overlap if metric == "f1" else overlap
    return numerator / np.maximum(denominator, 1)


def _grow(
    words: _WordCounts, options: GapSentenceOptions, count: int
) -> list[int]:
    """Adds ``count`` sentences, each the one that maximizes the score of the selection."""
    selected: list[int] = []
    counts = np.zeros_like(words.total)
    for _ in range(count):
        scores = words.scores(options.metric, counts)
        scores[selected] = -1
        selected.append(int(scores.argmax()))
        counts += words.of_sentence(selected[-1])
    return selected


def _number_of_gaps(num_sentences: int, options: GapSentenceOptions) -> int:
    if num_sentences < 2:
        return 0
    # 0.57 * 100 is slightly below 57
    count = math.floor(options.ratio * num_sentences + 1e-9)
    if count == 0 and options.short_documents == "one":
        return 1
    return count


def in_pieces(docs: Iterable[DataRow], piece_words: int) -> Iterator[DataRow]:
    """Yields the pieces of all documents in order.

    Each piece is a document with id ``<id>#0``, ``<id>#1`` and so on. A short
    document is its only piece ``<id>#0``, so that ``is_first_piece`` is
    unambiguous.
    """
    for document in docs:
        for number, text in enumerate(cut_text(document.document, piece_words)):
            yield document._replace(id=f"{document.id}#{number}", document=text)


def is_first_piece(piece_id: str) -> bool:
    """Returns True if ``in_pieces`` assigned this id to the first piece of a document."""
    return piece_id.endswith("#0")


def cut_text(text: str, piece_words: int) -> list[str]:
    """Cuts a text at sentence ends into ceil(words / piece_words) pieces of nearly equal length.

    The sentences of each piece are separated by blank lines, so that splitting
    it again does not join any. Its length differs from the mean by less than
    the sentences at its ends. A sentence longer than a piece is not cut, and
    there are then fewer pieces. Words are counted by ``num_words``. The time is
    linear in the length of the text.

    Args:
        text: text of any length.
        piece_words: words of a piece, at least 1.

    Returns:
        The pieces in order, none of them empty; the unchanged text if it is
        short enough or a single sentence.
    """
    if num_words(text) <= piece_words:
        return [text]
    sentences = split_sentences(text)
    words = [num_words(sentence) for sentence in sentences]
    ends = np.cumsum([0, *words])  # words before each sentence, and in total
    num_pieces = -(-ends[-1] // piece_words)
    goals = ends[-1] * np.arange(1, num_pieces) / num_pieces
    # The sentence end nearest to each goal: the midpoint of two ends separates
    # them.
    nearest = np.searchsorted((ends[:-1] + ends[1:]) / 2, goals)
    bounds = np.unique([0, *nearest, len(sentences)])
    if len(bounds) == 2:
        return [text]
    return [
        "\n\n".join(sentences[start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
