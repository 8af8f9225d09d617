"""SummaC: entailment of summary sentences by document sentences."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import (
    REFUTED,
    SUPPORTED,
    ModelMetric,
    Requirement,
    label_number,
    longest_text,
)
from longsum_jax.text.sentences import split_sentences, splitter_name
from longsum_jax.text.statements import SourceSentence, Statement
from longsum_jax.tokenizers.special_tokens import TokenPair

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# Constants of the published code.
MIN_CHARACTERS = 11  # minimum length of a sentence
MAX_SENTENCES = 100  # maximum number of document sentences
MAX_TOKENS = 500  # maximum length of a pair
MAX_CLAIMS = 10  # maximum number of summary sentences for SummaC-Conv
# Bin edges of the published weights: percentiles of entailment over many
# summaries.
PERCENTILES = (
    *(
        0.0,
        0.01,
        0.02,
        0.03,
        0.04,
        0.07,
        0.13,
        0.37,
        0.90,
        0.91,
        0.92,
        0.93,
        0.94,
        0.95,
        0.955,
    ),
    *(0.96, 0.965, 0.97, 0.975, 0.98, 0.985, 0.99, 0.995, 1.0),
)


class SummaC(ModelMetric):
    """Consistency of a summary with its document by an entailment model (Laban et al., 2022).

    Every document sentence is the premise of every summary sentence. SummaC-ZS
    takes for each summary sentence the largest probability of entailment minus
    the largest probability of contradiction, and averages them, from -100 to
    100. SummaC-Conv, from 0 to 100, applies a learned layer to histograms of
    entailment, for the first ten sentences of a summary. As in the published
    code, sentences of up to ten characters and document sentences after the
    hundredth are ignored; summac_unread is the percentage of the latter.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of SummaC.

        Attributes:
            conv_weights: file with the published layers of SummaC-Conv, .bin or
                .safetensors; "" for SummaC-ZS only.
            conv_bins: bins of the histograms: "percentile", or "even50" for
                fifty equal ones.
            entailment, contradiction: names of the model's labels; "" to infer
                them from the names.
        """

        conv_weights: str = ""
        conv_bins: Literal["percentile", "even50"] = "percentile"
        entailment: str = ""
        contradiction: str = ""

    name = "summac"
    columns: tuple[str, ...] = ("summac_zs", "summac_unread")
    reads_references = False
    requirement: ClassVar = Requirement(
        "a classifier of entailment", heads=("classification",)
    )
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options, model)
        values = self.options
        label_names = {
            "entailment": (values.entailment, SUPPORTED),
            "contradiction": (values.contradiction, REFUTED),
        }
        self._labels = [
            label_number(
                self.user_model.config, f"metrics.summac.{option}", *label
            )
            for option, label in label_names.items()
        ]
        self._conv = None
        if self.options.conv_weights:
            self.columns = ("summac_zs", "summac_conv", "summac_unread")
            self._conv = read_conv(
                Path(self.options.conv_weights), self.options.conv_bins
            )

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        from longsum_jax.inference.rows import pair_probabilities

        del references
        sentences = [_sentences(source) for source in sources]
        premises = [of_source[:MAX_SENTENCES] for of_source in sentences]
        hypotheses = [_sentences(prediction) for prediction in predictions]
        groups = (
            _pairs(model, *texts)
            for texts in zip(premises, hypotheses, strict=True)
        )
        pair_values = pair_probabilities(
            model, groups, batch_size=self.options.batch_size
        )
        scores = []
        rows = zip(pair_values, premises, hypotheses, sentences, strict=True)
        for probabilities, first, second, whole in rows:
            image = probabilities[:, self._labels].reshape(
                len(first), len(second), 2
            )
            # As published, a text without sentences is neither entailed nor
            # contradicted.
            if not image.size:
                image = np.zeros((1, 1, 2))
            values = self._scores(image)
            unread = 100 * (1 - len(first) / max(len(whole), 1))
            scores.append(values | {"summac_unread": unread if whole else 0.0})
        return scores

    def judge(self, statements: Sequence[Statement]) -> list[Statement]:
        """Returns the sentences of a summary with their SummaC-ZS score as their support.

        Premises are the sources of a sentence: each separately, and all of them
        together in document order, since some sentences follow only from
        several sources. A sentence that is more probably contradicted than
        entailed, or has no sources, is unsupported.

        Args:
            statements: sentences with their sources.
        """
        from longsum_jax.inference.rows import pair_probabilities

        premises = [_premises(statement) for statement in statements]
        with self.user_model.on_device() as model:
            groups = [
                _pairs(model, texts, [statement.text])
                for texts, statement in zip(premises, statements, strict=True)
                if texts
            ]
            probabilities = pair_probabilities(
                model, groups, batch_size=self.options.batch_size
            )
            support = []
            for texts in premises:
                if not texts:
                    # no premise, so no group of pairs: nothing supports it
                    support.append(0.0)
                    continue
                image = next(probabilities)[:, None, self._labels]
                support.append(float(_zero_shot(image)[0]))
        return [
            statement._replace(support=round(value, 4), is_supported=value > 0)
            for statement, value in zip(statements, support, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        bins = self.options.conv_bins if self._conv else "none"
        signature = (
            f"summac|model:{self.user_model.label}|conv:{bins}"
            f"|split:{splitter_name().replace(' ', '-')}"
        )
        return {"signature": signature} | super().describe()

    def _scores(self, image: np.ndarray) -> Scores:
        """Returns the scores for probabilities [premises, hypotheses, 2] of both labels."""
        scores = {"summac_zs": 100 * float(_zero_shot(image).mean())}
        if self._conv is not None:
            scores["summac_conv"] = 100 * self._conv.score(image[..., 0])
        return scores


def _zero_shot(image: np.ndarray) -> np.ndarray:
    """Returns the score of each hypothesis, from probabilities of entailment and
    contradiction [premises, hypotheses, 2].
    """
    entailment, contradiction = np.moveaxis(image.max(0), -1, 0)
    return entailment - contradiction


class Conv(NamedTuple):
    """The layers of SummaC-Conv.

    Attributes:
        edges: bin edges, [bins + 1].
        weight, bias: parameters of the layer over a histogram, [bins] and a
            scalar.
        output_weight, output_bias: parameters of the layer over three
            statistics, [2, 3] and [2]; as published, all three are the mean
            over the sentences.
    """

    edges: np.ndarray
    weight: np.ndarray
    bias: float
    output_weight: np.ndarray
    output_bias: np.ndarray

    def score(self, entailment: np.ndarray) -> float:
        """Returns the probability of a consistent summary.

        Args:
            entailment: probabilities, [document sentences, summary sentences].
        """
        histograms = [
            np.histogram(column, bins=self.edges)[0]
            for column in entailment.T[:MAX_CLAIMS]
        ]
        mean = (np.stack(histograms) @ self.weight + self.bias).mean()
        no, yes = self.output_weight @ np.full(3, mean) + self.output_bias
        return float(1 / (1 + np.exp(no - yes)))


def read_conv(path: Path, bins: str) -> Conv:
    """Reads the layers of SummaC-Conv.

    Args:
        path: file written by SummaC's training, or the same tensors as
            .safetensors.
        bins: bins of the histograms, see ``SummaC.Options``.

    Raises:
        InputError: the file is missing, or has other layers or bins.
    """
    from longsum_jax.checkpoints.tensor_files import (
        read_safetensors,
        read_torch,
    )

    if not path.is_file():
        raise InputError(
            f"metrics.summac.conv_weights: no such file {path}; give the published .bin, or "
            "leave the option out"
        )
    if path.suffix == ".safetensors":
        read = read_safetensors
    else:
        read = read_torch
    tensors: dict[str, Any] = {
        name: np.asarray(value) for name, value in read(path).items()
    }
    if bins == "percentile":
        edges = np.array(PERCENTILES)
    else:
        edges = np.append(np.arange(50) / 50, 1)
    expected = {
        "mlp.weight": (1, len(edges) - 1),
        "mlp.bias": (1,),
        "layer_final.weight": (2, 3),
        "layer_final.bias": (2,),
    }
    shapes = {name: value.shape for name, value in tensors.items()}
    if shapes != expected:
        raise InputError(
            f"metrics.summac.conv_weights: {path} holds {shapes}, but {bins} bins of entailment "
            f"scores need {expected}; give other weights or metrics.summac.conv_bins"
        )
    arrays = {name: value.astype(np.float64) for name, value in tensors.items()}
    return Conv(
        edges,
        arrays["mlp.weight"][0],
        float(arrays["mlp.bias"][0]),
        arrays["layer_final.weight"],
        arrays["layer_final.bias"],
    )


def _pairs(
    model: "LoadedModel", premises: Sequence[str], hypotheses: Sequence[str]
) -> list[TokenPair]:
    """Returns every pair of a premise and a hypothesis."""
    tokenizer, prefix = model.tokenizer, model.summarization.get("prefix", "")
    premise_ids = tokenizer.encode_batch(
        [prefix + premise for premise in premises]
    )
    hypothesis_ids = tokenizer.encode_batch(hypotheses)
    limit = longest_text(model, MAX_TOKENS)
    return [
        tokenizer.join_pair(first, second, limit)
        for first in premise_ids
        for second in hypothesis_ids
    ]


def _premises(statement: Statement) -> list[str]:
    texts = [source.text for source in sorted(statement.sources, key=_number)]
    if len(texts) > 1:
        return [*texts, " ".join(texts)]
    return texts


def _number(source: SourceSentence) -> int:
    return source.number


def _sentences(text: str) -> list[str]:
    return [
        sentence
        for sentence in split_sentences(text)
        if len(sentence) >= MIN_CHARACTERS
    ]
