"""ROUGE, bit-identical to rouge-score 0.1.2 in its settings, and many times as fast.

Its settings are ``tokenizer="default"`` and ``splitter="lines"``. With the
defaults of this module, ROUGE-Lsum differs, because lines are split into sentences, and
so do scores with references in non-Latin scripts, because words of any script
are counted. The final arithmetic is done by rouge-score; n-grams and common
subsequences are counted here, which is faster.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from rouge_score.scoring import Score, fmeasure

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import PairMetric, Scores, mean_scores
from longsum_jax.text.lcs import UnionLcs, lcs_length
from longsum_jax.text.ngrams import TOKENIZERS, is_latin, ngrams_of, stem
from longsum_jax.text.sentences import split_sentences, splitter_name

RougeType = Literal["rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum"]
Word = Hashable

ROUGE_TYPES: tuple[RougeType, ...] = ("rouge1", "rouge2", "rougeLsum")
SCROLLS_TYPES: tuple[RougeType, ...] = ("rouge1", "rouge2", "rougeL")
EQUALED_VERSION = "0.1.2"  # of rouge-score; a test compares both


class Rouge(PairMetric):
    """ROUGE of the selected types (Lin, 2004), from 0 to 100; see ``Options``.

    ``score`` returns these columns for each example:

        rouge1, ...       F-measure of every type
        rouge1_precision, rouge1_recall, ...
                          also of every type, with ``details``
        mean_rouge        mean of rouge1, rouge2 and rougeLsum (LOCOST)
        geometric_rouge   geometric mean of rouge1, rouge2 and rougeL (SCROLLS)

    The two means are present if their three types are selected. The geometric
    mean of a data set is computed from the means of the three types over its
    examples.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of ROUGE.

        Attributes:
            types: types among rouge1, rouge2, rouge3 (n-grams), rougeL (longest
                common subsequence of the texts) and rougeLsum (of their
                sentences).
            details: True to report precision and recall in addition to
                F-measures.
            stemmer: True to stem words of more than three letters (Porter, as
                in NLTK).
            tokenizer: "default" is rouge-score's, which finds only a-z and 0-9;
                "unicode" finds words in any script; "auto" uses "unicode" for
                references in non-Latin scripts, otherwise "default".
            splitter: splitter of ROUGE-Lsum. "sentences" splits every line into
                sentences; "lines" treats each line as a sentence, as
                rouge-score does.
            references: aggregation over several references: for each type,
                "max" uses the reference with the highest F-measure, "mean"
                averages over the references.

        Raises:
            InputError: no type, an unknown type, or a type named twice.
        """

        types: tuple[RougeType, ...] = ROUGE_TYPES
        details: bool = False
        stemmer: bool = False
        tokenizer: Literal["auto", "default", "unicode"] = "auto"
        splitter: Literal["sentences", "lines"] = "sentences"
        references: Literal["max", "mean"] = "max"

        def __post_init__(self) -> None:
            different = set(self.types)
            if (
                not self.types
                or len(different) < len(self.types)
                or not different <= set(get_args(RougeType))
            ):
                types = ",".join(self.types)
                raise InputError(
                    f'metrics.rouge.types="{types}" must name each type once, of '
                    f"{', '.join(get_args(RougeType))}"
                )

    columns: tuple[str, ...] = (*ROUGE_TYPES, "mean_rouge")
    reads_sources = False
    options: Options

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options)
        self.columns = tuple(
            self._values({name: _NOTHING for name in self.options.types})
        )

    def compare(self, prediction: str, other: str) -> Scores:
        return self._values(rouge_parts(prediction, other, self.options))

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        if self.options.references == "mean":
            return self._with_means(mean_scores(scores))
        values: Scores = {}
        for name in self.options.types:
            best = max(scores, key=lambda score: score[name])
            values |= {
                column: best[column] for column in self._columns_of(name)
            }
        return self._with_means(values)

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        return self._with_means(means)

    def describe(self) -> dict[str, Any]:
        return describe(self.options)

    def notes(self, references: Sequence[str]) -> list[str]:
        result = []
        num_others = sum(not is_latin(text) for text in references)
        if num_others and self.options.tokenizer != "unicode":
            others = f"{num_others} of {len(references)} references are not in Latin script"
            if self.options.tokenizer == "auto":
                result.append(
                    f"{others}: they are split as by rouge.tokenizer=unicode"
                )
            else:
                result.append(
                    f"{others}, which rouge.tokenizer=default leaves out: their scores mean "
                    "nothing; --metric_option=rouge.tokenizer=unicode counts words of any script"
                )
        if (
            "rougeLsum" in self.options.types
            and self.options.splitter != "lines"
        ):
            result.append(
                "rougeLsum was computed on sentences; the package rouge-score takes each line as a "
                "sentence: for its values, give --metric_option=rouge.splitter=lines"
            )
        return result

    def _columns_of(self, name: RougeType) -> tuple[str, ...]:
        if not self.options.details:
            return (name,)
        return (name, f"{name}_precision", f"{name}_recall")

    def _values(self, parts: dict[RougeType, Score]) -> Scores:
        """Returns the values of all columns."""
        values: Scores = {}
        for name, part in parts.items():
            numbers = (
                100 * part.fmeasure,
                100 * part.precision,
                100 * part.recall,
            )
            values |= dict(zip(self._columns_of(name), numbers, strict=False))
        return self._with_means(values)

    def _with_means(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the columns of all types with both means, if their types are selected."""
        values = dict(values)
        if set(ROUGE_TYPES) <= set(self.options.types):
            values["mean_rouge"] = sum(
                values[name] for name in ROUGE_TYPES
            ) / len(ROUGE_TYPES)
        if set(SCROLLS_TYPES) <= set(self.options.types):
            product = math.prod(values[name] for name in SCROLLS_TYPES)
            values["geometric_rouge"] = product ** (1 / len(SCROLLS_TYPES))
        return values


_NOTHING = Score(0.0, 0.0, 0.0)


def rouge(prediction: str, reference: str, *, stemmer: bool = False) -> Scores:
    """Returns the F-measures of ROUGE-1, ROUGE-2 and ROUGE-Lsum, and their mean, from 0 to 100.

    ROUGE-Lsum compares sentence by sentence (Lin, 2004, section 3.2): each line
    of both texts is split into sentences. LOCOST reports values without
    stemming and their mean; Hepos, LSG and AWESOME use stemming.

    Args:
        prediction: generated summary; may be empty.
        reference: reference summary.
        stemmer: True to stem words (Porter).

    Returns:
        Dictionary with rouge1, rouge2, rougeLsum, mean_rouge.
    """
    [values] = Rouge(Rouge.Options(stemmer=stemmer)).score(
        [prediction], [reference], [""]
    )
    return values


def corpus_rouge(
    pairs: Iterable[tuple[str, str]], *, stemmer: bool = False
) -> Scores:
    """Returns the mean of ``rouge`` over pairs of (prediction, reference).

    Args:
        pairs: summaries with their references.
        stemmer: True to stem words (Porter).

    Raises:
        InputError: there are no pairs.
    """
    scores = [
        rouge(prediction, reference, stemmer=stemmer)
        for prediction, reference in pairs
    ]
    return mean_scores(scores)


def rouge_parts(
    prediction: str, reference: str, options: Rouge.Options
) -> dict[RougeType, Score]:
    """Returns precision, recall and F-measure of every type in the options.

    Args:
        prediction: generated summary; may be empty.
        reference: reference summary.
        options: options of ROUGE.
    """
    tokenizer = options.tokenizer
    if tokenizer == "auto":
        if is_latin(reference):
            tokenizer = "default"
        else:
            tokenizer = "unicode"
    tokenize = _tokenizer(tokenizer, options.stemmer)
    sentences = [
        _sentences(text, options.splitter) for text in (prediction, reference)
    ]
    # With every tokenizer, no word spans two sentences.
    predicted, expected = [
        [tokenize(line) for line in lines] for lines in sentences
    ]
    predicted_words = list(itertools.chain.from_iterable(predicted))
    expected_words = list(itertools.chain.from_iterable(expected))
    if not predicted_words or not expected_words:
        return dict.fromkeys(options.types, _NOTHING)
    parts: dict[RougeType, Any] = {}
    for name in options.types:
        if name == "rougeLsum":
            hits = _summary_hits(predicted, expected)
            parts[name] = _parts(
                hits, len(predicted_words), len(expected_words)
            )
        elif name == "rougeL":
            hits = lcs_length(predicted_words, expected_words)
            parts[name] = _parts(
                hits, len(predicted_words), len(expected_words)
            )
        else:
            parts[name] = _ngram_parts(
                predicted_words, expected_words, int(name[-1])
            )
    return parts


def describe(options: Rouge.Options) -> dict[str, Any]:
    """Returns the settings that determine the values, for reports: signature, splitter, options."""
    if options.splitter == "sentences":
        splitter = splitter_name().replace(" ", "-")
    else:
        splitter = "lines"
    fields = {
        "stem": "yes" if options.stemmer else "no",
        "split": splitter,
        "tok": options.tokenizer,
        "refs": options.references,
        "v": EQUALED_VERSION,
    }
    signature = "|".join(
        ["rouge", *(f"{key}:{value}" for key, value in fields.items())]
    )
    return {"signature": signature} | dataclasses.asdict(options)


def _ngram_parts(
    predicted: Sequence[Word], expected: Sequence[Word], size: int
) -> Score:
    """Returns ROUGE-n, with counts of common n-grams clipped to the smaller count."""
    counts = [
        collections.Counter(ngrams_of(words, size))
        for words in (predicted, expected)
    ]
    hits = (counts[0] & counts[1]).total()
    return _parts(hits, counts[0].total(), counts[1].total())


def _summary_hits(
    predicted: Sequence[Sequence[Word]], expected: Sequence[Sequence[Word]]
) -> int:
    """Returns the number of reference words in common subsequences with predicted sentences.

    A word is counted at most as often as it occurs in the prediction.
    """
    index = UnionLcs(predicted)
    hits: collections.Counter[Word] = collections.Counter()
    for sentence in expected:
        hits.update(sentence[position] for position in index.union(sentence))
    available = collections.Counter(itertools.chain.from_iterable(predicted))
    return (hits & available).total()


def _parts(hits: int, predicted: int, expected: int) -> Score:
    """Returns precision, recall and F-measure."""
    precision = hits / max(predicted, 1)
    recall = hits / max(expected, 1)
    return Score(precision, recall, fmeasure(precision, recall))


def _sentences(text: str, splitter: str) -> list[str]:
    if splitter == "lines":
        return text.split("\n")
    return [
        sentence
        for line in text.splitlines()
        for sentence in split_sentences(line)
    ]


def _tokenizer(name: str, stemmer: bool) -> Callable[[str], Sequence[Word]]:
    """Returns the function that splits a text into words; stemmed words are strings."""
    words_of = TOKENIZERS[name]
    if not stemmer:
        return words_of

    def stemmed_words(text: str) -> list[Word]:
        encoded: Sequence[Any] = words_of(text)
        words = [
            word.decode() if isinstance(word, bytes) else word
            for word in encoded
        ]
        return [stem(word) if len(word) > 3 else word for word in words]

    return stemmed_words
