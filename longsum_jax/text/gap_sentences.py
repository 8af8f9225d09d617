"""Gap-sentence generation: the pre-training task of PEGASUS, LongT5 and LOCOST.

The sentences of a document that say most about its other sentences (ROUGE-1) become the target; the
source is what remains (LOCOST, section 4.1 and equation 4) or has a mask token in their place
(PEGASUS, section 3.1).
"""

import collections
import dataclasses
import hashlib
import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.ngrams import words_of
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
    """How gap sentences are chosen and what stands in their place.

    Attributes:
        ratio: part of the sentences that become the target, between 0 and 1; K = floor(ratio * M).
        strategy: "independent" scores each sentence alone against the rest; "sequential" grows the
            selection greedily (PEGASUS, Seq); "lead" takes the first K; "random" any K.
        counting: "original" counts repeated words as ROUGE does; "unique" compares sets (PEGASUS,
            Uniq).
        metric: which side of ROUGE-1 is maximised.
        mask_token: what replaces each selected sentence; None removes them, as LOCOST does.
        short_documents: when K is 0, "skip" gives no example and "one" takes K = 1.

    Raises:
        InputError: a value out of range or not among the known ones.
    """

    ratio: float = 0.2
    strategy: Strategy = "independent"
    counting: Counting = "original"
    metric: Metric = "f1"
    mask_token: str | None = None
    short_documents: ShortDocuments = "skip"

    def __post_init__(self):
        if not 0 < self.ratio < 1:
            raise InputError(f"gap_sentences.ratio must lie between 0 and 1, got {self.ratio}")
        for name, known in _CHOICES.items():
            _check_choice(name, getattr(self, name), known)
        if self.mask_token == "":
            raise InputError(
                'gap_sentences.mask_token is ""; use None to remove the selected sentences'
            )


class GapExample(NamedTuple):
    """One pre-training example, as text."""

    source: str
    target: str


def gap_sentence_example(
    document: str | Sequence[str], options: GapSentenceOptions, rng: np.random.Generator
) -> GapExample | None:
    """Makes a pre-training example out of a document.

    Args:
        document: text, which is split into sentences first, or its sentences.
        options: what is selected and how.
        rng: used by the "random" strategy only.

    Returns:
        Source and target, sentences joined by spaces in document order; None when the document is
        too short.
    """
    sentences = split_sentences(document) if isinstance(document, str) else document
    selected = select_gap_sentences(sentences, options, rng)
    if not selected:
        return None
    target = " ".join(sentences[index] for index in selected)
    gaps = set(selected)
    kept = (options.mask_token if index in gaps else text for index, text in enumerate(sentences))
    return GapExample(" ".join(text for text in kept if text is not None), target)


def gap_sentence_texts(
    text: str, options: GapSentenceOptions, seed: int = 0
) -> tuple[str, str] | None:
    """Returns source and target of a document, or None if it is too short.

    Args:
        text: the document.
        options: what is selected and how.
        seed: of strategy "random"; that choice depends on the seed and the text alone, so it is the
            same in whatever file, order or shard the document comes.
    """
    digest = hashlib.sha256(text.encode()).digest()
    entropy = [seed, int.from_bytes(digest[:8], "little")]
    rng = np.random.Generator(np.random.PCG64(entropy))
    example = gap_sentence_example(text, options, rng)
    return None if example is None else (example.source, example.target)


def select_gap_sentences(
    sentences: Sequence[str], options: GapSentenceOptions, rng: np.random.Generator
) -> list[int]:
    """Returns the indices of the K selected sentences in document order; none when the document is
    too short.

    Among equal scores the earlier sentence wins. A single sentence is never selected: nothing would
    remain.
    """
    count = _number_of_gaps(len(sentences), options)
    if count == 0:
        return []
    if options.strategy == "lead":
        return list(range(count))
    if options.strategy == "random":
        return sorted(rng.choice(len(sentences), count, replace=False).tolist())
    words = _WordCounts.of(sentences, options.counting)
    if options.strategy == "sequential":
        return sorted(_grow(words, options, count))
    best_first = np.argsort(-words.scores(options.metric), kind="stable")
    return sorted(best_first[:count].tolist())


def rouge1_scores(
    sentences: Sequence[str], counting: Counting = "original", metric: Metric = "f1"
) -> np.ndarray:
    """Scores each sentence (as prediction) against all others (as reference) by ROUGE-1, without
    stemming.

    Returns:
        [M] float64 between 0 and 1. Mathematically equal scores are equal bit for bit.

    Raises:
        InputError: unknown counting or metric.
    """
    _check_choice("counting", counting, _CHOICES["counting"])
    _check_choice("metric", metric, _CHOICES["metric"])
    return _WordCounts.of(sentences, counting).scores(metric)


class _WordCounts(NamedTuple):
    """Sparse word counts: one entry for each pair of a sentence and one of its words.

    The score of growing a selection S by sentence j is ROUGE-1 of S + j against all others. An
    empty S gives the independent scores, so both strategies share these sums.
    """

    sentence: np.ndarray  # [P] int, which sentence
    word: np.ndarray  # [P] int, which word
    count: np.ndarray  # [P] int, how often the word stands in the sentence
    total: np.ndarray  # [V] int, how often it stands in the document
    num_sentences: int
    unique: bool

    @classmethod
    def of(cls, sentences: Sequence[str], counting: Counting) -> "_WordCounts":
        vocabulary = collections.defaultdict(
            itertools.count().__next__
        )  # numbers words as they come
        tokens = [words_of(sentence) for sentence in sentences]
        words = np.fromiter(
            map(vocabulary.__getitem__, itertools.chain.from_iterable(tokens)), np.int64
        )
        rows = np.repeat(np.arange(len(sentences)), [len(line) for line in tokens])
        size = max(len(vocabulary), 1)
        pairs, count = np.unique(rows * size + words, return_counts=True)
        total = np.bincount(words, minlength=size)
        return cls(pairs // size, pairs % size, count, total, len(sentences), counting == "unique")

    def scores(self, metric: Metric, selected: np.ndarray | None = None) -> np.ndarray:
        """Returns [M] the score of the selection, given as word counts [V], grown by each
        sentence."""
        chosen = np.zeros_like(self.total) if selected is None else selected
        before = self._sums(chosen, self.total - chosen)
        grown = chosen[self.word] + self.count
        after = self._sums(grown, self.total[self.word] - grown)
        without = self._sums(chosen[self.word], (self.total - chosen)[self.word])
        overlap, inside, outside = (
            b.sum() + np.bincount(self.sentence, a - w, self.num_sentences)
            for b, a, w in zip(before, after, without, strict=True)
        )
        return _ratio(overlap, inside, outside, metric)

    def of_sentence(self, index: int) -> np.ndarray:
        """Returns [V] the word counts of one sentence."""
        own = self.sentence == index
        return np.bincount(self.word[own], self.count[own], len(self.total)).astype(np.int64)

    def _sums(
        self, inside: np.ndarray, outside: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns overlap and both lengths, word by word, of the selection and of the rest."""
        if self.unique:
            inside, outside = np.minimum(inside, 1), np.minimum(outside, 1)
        return np.minimum(inside, outside), inside, outside


def _ratio(
    overlap: np.ndarray, inside: np.ndarray, outside: np.ndarray, metric: Metric
) -> np.ndarray:
    """ROUGE-1 from whole numbers in one division, so that ties are exact; 0 where there are no
    words."""
    denominator = {"precision": inside, "recall": outside, "f1": inside + outside}[metric]
    numerator = 2 * overlap if metric == "f1" else overlap
    return numerator / np.maximum(denominator, 1)


def _grow(words: _WordCounts, options: GapSentenceOptions, count: int) -> list[int]:
    """Adds the sentence that raises the score of the whole selection most, ``count`` times."""
    selected: list[int] = []
    chosen = np.zeros_like(words.total)
    for _ in range(count):
        scores = words.scores(options.metric, chosen)
        scores[selected] = -1
        selected.append(int(scores.argmax()))
        chosen += words.of_sentence(selected[-1])
    return selected


def _number_of_gaps(num_sentences: int, options: GapSentenceOptions) -> int:
    if num_sentences < 2:
        return 0
    count = math.floor(options.ratio * num_sentences + 1e-9)  # 0.57 * 100 is a hair below 57
    if count == 0 and options.short_documents == "one":
        return 1
    return count


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(
            f'gap_sentences.{name}: "{value}" is not allowed; {did_you_mean(value, known)}'
        )
