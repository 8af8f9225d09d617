"""DiscoScore: discourse coherence by focused nouns and by sentences that share nouns."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import ModelMetric, longest_text
from longsum_jax.experimental.metrics.entity_graph import entity_graph
from longsum_jax.experimental.metrics.taggers import (
    Tagger,
    describe_tagger,
    noun_tagger,
    tag,
)
from longsum_jax.text.sentences import split_sentences

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel


class DiscoScore(ModelMetric):
    """The noun-based variants of DiscoScore (Zhao et al., 2023): focus and sentence graphs.

    ``ds_focus_nn`` compares the focus of both texts: the vector of a noun is
    the sum of its normalized states over all its occurrences in the text, and
    the score is the sum of squared distances of the nouns in both texts over
    the number of the summary's nouns. Lower is better; it is 0 if no noun is
    shared. ``ds_sent_nn`` compares the links of sentences: the vector of a
    sentence is the mean of its states plus the means of later sentences that
    share a noun with it, divided by their distance; minima, means, maxima and
    sums of these over the text are compared by their cosine, and higher is
    better. With several references, the mean counts. ``ds_unread`` is the
    percentage of tokens that did not fit into the model.

    As in the published code, words are split at white space, a word counts as a
    noun if it is spelled like a noun returned by the tagger, and the only
    special token is [CLS] before the text. Unlike in it, all tokens are
    attended to: the meaning of its mask of zeros varies with the transformers
    version.

    Args:
        options: options of the metric.
        model: model to use instead of the one in the options.
        tagger: tagger that returns the nouns of each sentence of a text; None
            for the tagger in the options.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of ``ModelMetric``, and the following.

        Attributes:
            layer: encoder layer whose states are used; the last one if there
                are fewer.
            tagger: name in ``taggers.NOUN_TAGGERS``, or a token classification
                model.
            long_texts: "cut" at the model's number of positions, or read in
                "windows" that overlap by half. The published code fails on such
                texts.
        """

        layer: int = 8
        tagger: str = "rules"
        long_texts: Literal["cut", "windows"] = "cut"

    name = "discoscore"
    columns = ("ds_focus_nn", "ds_sent_nn", "ds_unread")
    reads_sources = False
    options: Options

    def __init__(
        self,
        options: Options | None = None,
        model: "LoadedModel | None" = None,
        tagger: Tagger | None = None,
    ) -> None:
        super().__init__(options, model)
        self._tagger_name = self.options.tagger if tagger is None else None
        self._tagger = tagger or noun_tagger(
            self.options.tagger, "metrics.discoscore"
        )

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        texts = list(dict.fromkeys([*predictions, *references]))
        read = dict(zip(texts, self._read(model, texts), strict=True))
        pairs = zip(predictions, references, strict=True)
        return [
            _scores(read[prediction], read[reference])
            for prediction, reference in pairs
        ]

    def describe(self) -> dict[str, Any]:
        tagged = describe_tagger("discoscore", self._tagger_name, self._tagger)
        signature = (
            f"discoscore|model:{self.user_model.label}|layer:{self.options.layer}"
            f"|tagger:{tagged['tagger']}|long:{self.options.long_texts}"
        )
        return super().describe() | tagged | {"signature": signature}

    def _read(
        self, model: "LoadedModel", texts: Sequence[str]
    ) -> "list[Reading]":
        """Returns the vectors to compare for every text."""
        from longsum_jax.inference.token_states import (
            SurroundingTokens,
            token_states,
        )

        special = SurroundingTokens(model.tokenizer.prefix_ids, ())
        limit = longest_text(model)
        parsed = [self._parse(model, text) for text in texts]
        unread = [0] * len(texts)
        if limit is not None and self.options.long_texts == "cut":
            room = limit - special.number
            unread = [max(len(text.ids) - room, 0) for text in parsed]
            parsed = [text.first(room) for text in parsed]
        states = token_states(
            model,
            [text.ids for text in parsed],
            special,
            limit=limit,
            layer=min(
                self.options.layer, model.config.encoder_stack.num_layers
            ),
            batch_size=self.options.batch_size,
        )
        readings = []
        for part, rows, left_out in zip(parsed, states, unread, strict=True):
            nouns = noun_vectors(part.nouns, rows[special.number :])
            # The tokens before the text belong to its first sentence.
            sentences = np.concatenate(
                [[0] * special.number, part.sentences]
            ).astype(np.int64)
            vectors = sentence_vectors(
                rows, sentences, entity_graph(part.sentence_nouns)
            )
            readings.append(Reading(nouns, vectors, len(part.ids), left_out))
        return readings

    def _parse(self, model: "LoadedModel", text: str) -> "_Parsed":
        """Returns the tokens of a text with the positions of its nouns and sentences."""
        sentences = split_sentences(text) or [""]
        sentence_nouns = tag(self._tagger, sentences)
        all_nouns = {noun for nouns in sentence_nouns for noun in nouns}
        words = [
            (word, i)
            for i, sentence in enumerate(sentences)
            for word in sentence.split()
        ]
        pieces = model.tokenizer.encode_batch([word for word, _ in words])
        ids: list[int] = []
        numbers: list[int] = []
        nouns: dict[str, list[int]] = {}
        for (word, sentence), token_ids in zip(words, pieces, strict=True):
            ids += token_ids
            numbers += [sentence] * len(token_ids)
            if word in all_nouns and token_ids:
                nouns.setdefault(word, []).append(len(ids) - 1)
        return _Parsed(ids, np.array(numbers, np.int64), nouns, sentence_nouns)


class _Parsed(NamedTuple):
    """A tokenized text.

    Attributes:
        ids: token ids, without special tokens.
        sentences: sentence index of every token, int [tokens].
        nouns: noun -> the last token of each of its occurrences.
        sentence_nouns: nouns of every sentence.
    """

    ids: list[int]
    sentences: np.ndarray
    nouns: dict[str, list[int]]
    sentence_nouns: list[list[str]]

    def first(self, length: int) -> "_Parsed":
        """Returns the first tokens of the text, with the sentences that contain them."""
        if len(self.ids) <= length:
            return self
        nouns = {}
        for noun, positions in self.nouns.items():
            inside = [position for position in positions if position < length]
            if inside:
                nouns[noun] = inside
        num_sentences = self.sentences[length - 1] + 1
        return _Parsed(
            self.ids[:length],
            self.sentences[:length],
            nouns,
            self.sentence_nouns[:num_sentences],
        )


class Reading(NamedTuple):
    """The vectors of a text.

    Attributes:
        nouns: noun -> vector, float32 [d_model].
        sentences: unit vectors, float64 [sentences, d_model].
        num_read, num_unread: numbers of tokens that were read and truncated.
    """

    nouns: dict[str, np.ndarray]
    sentences: np.ndarray
    num_read: int
    num_unread: int


def noun_vectors(
    positions: Mapping[str, Sequence[int]], states: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the sum of normalized token states of every noun (Zhao et al., 2023, section 3.1).

    Args:
        positions: noun -> its token positions.
        states: float [tokens, d_model].
    """
    return {
        noun: _unit(states[list(tokens)]).sum(0)
        for noun, tokens in positions.items()
    }


def sentence_vectors(
    states: np.ndarray, sentences: np.ndarray, ties: np.ndarray
) -> np.ndarray:
    """Returns normalized vectors of sentences, which include the sentences linked to each.

    Zhao et al. (2023), section 3.2: (I + A) S.

    Args:
        states: states of all tokens, float [tokens, d_model].
        sentences: sentence index of every token, int [tokens].
        ties: link weights A, float [sentences, sentences].
    """
    # bool [sentences, tokens]
    belongs = np.arange(len(ties))[:, None] == sentences
    means = belongs @ states / np.maximum(belongs.sum(1, keepdims=True), 1)
    return _unit(means + ties @ means)


def focus_difference(prediction: Reading, reference: Reading) -> float:
    """Returns the distance of two texts over the nouns that they share; 0 without any."""
    common = prediction.nouns.keys() & reference.nouns.keys()
    differences = [
        prediction.nouns[noun] - reference.nouns[noun]
        for noun in sorted(common)
    ]
    if not differences:
        return 0.0
    return float(np.square(differences).sum() / len(prediction.nouns))


def sentence_similarity(prediction: Reading, reference: Reading) -> float:
    """Returns the cosine of the pooled sentence vectors of two texts.

    A single reference sentence is instead compared with each summary sentence,
    and averaged.
    """
    if len(reference.sentences) == 1:
        return float((prediction.sentences @ reference.sentences[0]).mean())
    sides = [_pooled(side.sentences) for side in (prediction, reference)]
    return float(np.dot(*(_unit(side) for side in sides)))


def _pooled(vectors: np.ndarray) -> np.ndarray:
    """Returns the concatenated minimum, mean, maximum and sum of vectors."""
    parts = [vectors.min(0), vectors.mean(0), vectors.max(0), vectors.sum(0)]
    return np.concatenate(parts)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors divided by their norms; zero vectors remain zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-30)


def _scores(prediction: Reading, reference: Reading) -> Scores:
    unread = prediction.num_unread + reference.num_unread
    total = unread + prediction.num_read + reference.num_read
    return {
        "ds_focus_nn": focus_difference(prediction, reference),
        "ds_sent_nn": sentence_similarity(prediction, reference),
        "ds_unread": 100 * unread / max(total, 1),
    }
