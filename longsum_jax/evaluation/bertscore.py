"""BERTScore with any encoder: tokens of two texts matched by their states."""

import csv
import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.aligners import unit_rows
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import ModelMetric, longest_text

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# The default layers of bert-score 0.3.13, which correlate best with human
# judgments on WMT16.
LAYERS = {
    "bert-base-uncased": 9,
    "bert-large-uncased": 18,
    "bert-base-multilingual-cased": 9,
    "bert-base-chinese": 8,
    "bert-base-turkish-cased": 10,
    "scibert_scivocab_uncased": 8,
    "scibert_scivocab_cased": 9,
    "spanbert-base-cased": 8,
    "spanbert-large-cased": 17,
    "finbert": 10,
    "roberta-base": 10,
    "roberta-large": 17,
    "roberta-large-mnli": 19,
    "bertweet-base": 9,
    "xlm-roberta-base": 9,
    "xlm-roberta-large": 17,
    "distilbert-base-uncased": 5,
    "distilbert-base-uncased-distilled-squad": 4,
    "distilbert-base-multilingual-cased": 5,
    "distilbert-base-turkish-cased": 4,
    "distilroberta-base": 5,
    "albert-base-v1": 10,
    "albert-large-v1": 17,
    "albert-xlarge-v1": 16,
    "albert-xxlarge-v1": 8,
    "albert-base-v2": 9,
    "albert-large-v2": 14,
    "albert-xlarge-v2": 13,
    "albert-xxlarge-v2": 8,
    "electra-small-generator": 9,
    "electra-small-discriminator": 11,
    "electra-base-generator": 10,
    "electra-base-discriminator": 9,
    "electra-large-generator": 18,
    "electra-large-discriminator": 14,
    "longformer-base-4096": 7,
    "longformer-large-4096": 14,
    "bigbird-roberta-base": 10,
    "bigbird-roberta-large": 14,
    "bart-base": 6,
    "bart-large": 10,
    "bart-large-cnn": 10,
    "bart-large-mnli": 11,
    "bart-large-xsum": 9,
    "led-base-16384": 6,
    "pegasus-large": 8,
    "pegasus-xsum": 11,
    "mbart-large-cc25": 12,
    "mbart-large-50": 12,
    "t5-small": 6,
    "t5-base": 11,
    "t5-large": 23,
}

TOKENS_AT_ONCE = 65_536  # maximum tokens whose states are in memory
PARTS = ("precision", "recall", "f1")


class BertScore(ModelMetric):
    """BERTScore (Zhang et al., 2020) from 0 to 100: precision, recall, F1.

    Every token of the summary is matched with the most similar token of the
    reference, by the cosine of their states; the mean of these similarities is
    the precision, and vice versa the recall. Special tokens can be matched, but
    have zero weight. Equal to bert-score 0.3.13, with the best of several
    references in each column. ``bertscore_unread`` is the percentage of the
    tokens of both texts that did not fit into the model.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of ``ModelMetric``, and the following.

        Attributes:
            layer: encoder layer whose states are compared; None for
                bert-score's default by the name of the model (``LAYERS``).
            idf: True to weight tokens by inverse document frequency in the
                references.
            baseline: precision, recall and F1 of unrelated texts, from 0 to 1,
                which are rescaled to 0; or a baseline file of bert-score, with
                a row for every layer.
            long_texts: "cut" at the model's number of positions, as bert-score
                does, or read in "windows" that overlap by half.
        """

        layer: int | None = None
        idf: bool = False
        baseline: str | tuple[float, ...] | None = None
        long_texts: Literal["cut", "windows"] = "cut"

    name = "bertscore"
    columns = (*(f"bertscore_{part}" for part in PARTS), "bertscore_unread")
    reads_sources = False
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options, model)
        self._layer = self._chosen_layer()
        self._baseline = self._read_baseline()

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        reader = _StateReader(model, self._layer, self.options)
        ids = reader.ids([*predictions, *references])
        predicted, expected = ids[: len(predictions)], ids[len(predictions) :]
        weights = self._weights(reader, [text.read for text in expected])
        scores: list[Scores] = [{} for _ in predicted]
        pairs = list(zip(predicted, expected, strict=True))
        for chunk in _chunks(
            [len(pair[0].read) + len(pair[1].read) for pair in pairs]
        ):
            texts = list({side.read: None for i in chunk for side in pairs[i]})
            sides = {
                ids: Side(
                    unit_rows(states), weights[reader.special.around(ids)]
                )
                for ids, states in zip(texts, reader.states(texts), strict=True)
            }
            for i in chunk:
                values = greedy_match(*(sides[side.read] for side in pairs[i]))
                scores[i] = self._columns(values, pairs[i])
        return scores

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        best = {
            name: max(score[name] for score in scores)
            for name in self.columns[:-1]
        }
        return super().over_references(scores) | best

    def describe(self) -> dict[str, Any]:
        options = self.options
        answers = ("no", "yes")
        idf = answers[options.idf]
        rescaled = answers[self._baseline is not None]
        signature = (
            f"bertscore|model:{self.user_model.label}|layer:{self._layer}"
            f"|idf:{idf}|rescaled:{rescaled}|long:{options.long_texts}"
        )
        described = super().describe() | {"layer": self._layer}
        if self._baseline is None:
            baseline = None
        else:
            baseline = list(self._baseline)
        return {"signature": signature} | described | {"baseline": baseline}

    def _chosen_layer(self) -> int:
        """Returns the layer in the options, or the default for the model's name.

        Raises:
            InputError: the model has no such layer, or there is no default.
        """
        layer = self.options.layer
        num_layers = self.user_model.config.encoder_stack.num_layers
        if layer is None:
            layer = LAYERS.get(Path(self.options.model).name.lower())
        if layer is None:
            raise InputError(
                f"metrics.bertscore.layer is not given, and no default is known for "
                f"{self.user_model.label}; give one of 1 to {num_layers}, "
                "--metric_option=bertscore.layer=N"
            )
        if not 0 <= layer <= num_layers:
            raise InputError(
                f"metrics.bertscore.layer={layer}: {self.user_model.label} has layers 0 to "
                f"{num_layers}"
            )
        return layer

    def _read_baseline(self) -> tuple[float, ...] | None:
        """Returns the values of unrelated texts for ``PARTS``; None for no baseline.

        Raises:
            InputError: a file that cannot be read or lacks the layer, or values
                out of range.
        """
        baseline = self.options.baseline
        if isinstance(baseline, str):
            baseline = _baseline_of_file(Path(baseline), self._layer)
        if baseline is None:
            return None
        if len(baseline) != len(PARTS) or not all(
            -1 <= value < 1 for value in baseline
        ):
            raise InputError(
                f"metrics.bertscore.baseline={list(baseline)} must be precision, recall and F1, "
                "each below 1"
            )
        return baseline

    def _weights(
        self, reader: "_StateReader", references: Sequence[tuple[int, ...]]
    ) -> np.ndarray:
        """Returns the weight of every id, float64 [vocab_size]."""
        weights = np.ones(self.user_model.config.vocab_size)
        if self.options.idf:
            if len(references) < 2:
                raise InputError(
                    "metrics.bertscore.idf=true needs at least two references to count words in; "
                    "leave it out"
                )
            weights = idf_weights(
                [reader.special.around(ids) for ids in references], len(weights)
            )
        # as in bert-score, which gives T5's </s> a weight
        if reader.special.before:
            weights[[*reader.special.before, *reader.special.after]] = 0
        return weights

    def _columns(
        self, values: Sequence[float], pair: "Sequence[_Ids]"
    ) -> Scores:
        if self._baseline is not None:
            rescaled = zip(values, self._baseline, strict=True)
            values = [(value - base) / (1 - base) for value, base in rescaled]
        scores = {
            f"bertscore_{part}": 100 * value
            for part, value in zip(PARTS, values, strict=True)
        }
        unread = sum(side.unread for side in pair)
        total = unread + sum(len(side.read) for side in pair)
        return scores | {"bertscore_unread": 100 * unread / max(total, 1)}


class _Ids(NamedTuple):
    """A text: ids that are read, without special tokens, and the number of truncated ids."""

    read: tuple[int, ...]
    unread: int


class Side(NamedTuple):
    """One of the two texts that are matched.

    Attributes:
        states: unit vectors, float32 [tokens, d_model].
        weights: token weights, float64 [tokens].
    """

    states: np.ndarray
    weights: np.ndarray


def greedy_match(
    prediction: Side, reference: Side
) -> tuple[float, float, float]:
    """Returns precision, recall and F1 of greedy matching (Zhang et al., 2020, section 3).

    They are 0 if all tokens of a text have zero weight.
    """
    weights = prediction.weights.sum(), reference.weights.sum()
    if not all(weights):
        return 0.0, 0.0, 0.0
    similarity = prediction.states @ reference.states.T
    precision = float(prediction.weights @ similarity.max(1) / weights[0])
    recall = float(reference.weights @ similarity.max(0) / weights[1])
    total = precision + recall
    return precision, recall, 2 * precision * recall / total if total else 0.0


def idf_weights(
    references: Sequence[Iterable[int]], vocab_size: int
) -> np.ndarray:
    """Returns the inverse document frequency of every id, float64 [vocab_size].

    The weight is log((n + 1) / (m + 1)) for an id in m of n references.

    Args:
        references: ids of each reference, including special tokens.
        vocab_size: number of ids.
    """
    counts = Counter(id for ids in references for id in set(ids))
    weights = np.full(vocab_size, np.log(len(references) + 1))
    for id, count in counts.items():
        weights[id] = np.log((len(references) + 1) / (count + 1))
    return weights


class _StateReader:
    """Computes the states of texts with a model."""

    def __init__(
        self, model: "LoadedModel", layer: int, options: BertScore.Options
    ) -> None:
        from longsum_jax.inference.token_states import SurroundingTokens

        self._model = model
        self._layer = layer
        self._options = options
        self._limit = longest_text(model)
        tokens = tuple(model.tokenizer.add_special_tokens([]))
        before = model.tokenizer.prefix_ids
        self.special = SurroundingTokens(before, tokens[len(before) :])

    def ids(self, texts: Sequence[str]) -> list[_Ids]:
        """Returns the ids of texts, truncated if the options require it."""
        # bert-score prepends a space only for RoBERTa's tokenizer.
        if self._model.family.name == "roberta":
            space = " "
        else:
            space = ""
        stripped = [text.strip() for text in texts]
        encoded = self._model.tokenizer.encode_batch(
            [text and space + text for text in stripped]
        )
        if self._options.long_texts == "windows" or self._limit is None:
            return [_Ids(tuple(ids), 0) for ids in encoded]
        room = self._limit - self.special.number
        return [
            _Ids(tuple(ids[:room]), max(len(ids) - room, 0)) for ids in encoded
        ]

    def states(self, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """Returns the states of all tokens of each text, including special tokens."""
        from longsum_jax.inference.token_states import token_states

        return token_states(
            self._model,
            texts,
            self.special,
            limit=self._limit,
            layer=self._layer,
            batch_size=self._options.batch_size,
        )


def _chunks(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yields the indices of examples of similar size, the largest first.

    The sizes of a chunk sum to at most ``TOKENS_AT_ONCE``, unless it has only
    one example.
    """
    chunk: list[int] = []
    tokens = 0
    for i in sorted(range(len(sizes)), key=lambda i: sizes[i], reverse=True):
        if chunk and tokens + sizes[i] > TOKENS_AT_ONCE:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(i)
        tokens += sizes[i]
    if chunk:
        yield chunk


def _baseline_of_file(path: Path, layer: int) -> tuple[float, ...]:
    """Returns the row of a layer in a bert-score file with the columns LAYER, P, R and F."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = {row["LAYER"]: row for row in csv.DictReader(file)}
        return tuple(float(rows[str(layer)][column]) for column in "PRF")
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"metrics.bertscore.baseline={path}: no values of layer {layer} ({error}); give a file "
            "with the columns LAYER,P,R,F, or three numbers"
        ) from error
