"""BARTScore: the log-probability of one text given another, from an encoder-decoder."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import (
    ModelMetric,
    Requirement,
    TextIds,
    text_ids,
)

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

Direction = Literal["src_hyp", "ref_hyp", "hyp_ref"]
DIRECTIONS: tuple[Direction, ...] = ("src_hyp", "ref_hyp", "hyp_ref")
WRITER = Requirement(
    "an encoder-decoder that writes text, as a BART",
    ("language_model",),
    encoder_decoder=True,
)


class BartScore(ModelMetric):
    """BARTScore (Yuan et al., 2021): mean token log-probability of one text given another.

    ``bartscore_src_hyp`` scores the summary given the document (faithfulness),
    ``bartscore_ref_hyp`` the summary given the reference (precision),
    ``bartscore_hyp_ref`` the reference given the summary (recall);
    ``bartscore_f`` is the mean of the last two. All tokens are weighted
    equally, including special tokens, as in the published code.
    ``bartscore_unread`` is the percentage of all tokens that did not fit into
    the model. With several references, their mean counts.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of ``ModelMetric``, and the following.

        Attributes:
            directions: pairs of texts to read and to score, among
                ``DIRECTIONS``.
        """

        batch_size: int = 4
        directions: tuple[Direction, ...] = DIRECTIONS

    name = "bartscore"
    requirement = WRITER
    columns: tuple[str, ...] = (
        *(f"bartscore_{direction}" for direction in DIRECTIONS),
        "bartscore_f",
        "bartscore_unread",
    )
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options, model)
        directions = self.options.directions
        if not directions or len(set(directions)) < len(directions):
            raise InputError(
                f"metrics.bartscore.directions={list(directions)} must name some of "
                f"{', '.join(DIRECTIONS)}, each once"
            )
        columns = [f"bartscore_{direction}" for direction in directions]
        if {"ref_hyp", "hyp_ref"} <= set(directions):
            columns.append("bartscore_f")
        self.columns = (*columns, "bartscore_unread")
        self.reads_sources = "src_hyp" in directions
        self.reads_references = set(directions) != {"src_hyp"}

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        texts = {"hyp": predictions, "ref": references, "src": sources}
        scores: dict[str, np.ndarray] = {}
        unread, total = np.zeros(len(predictions)), np.zeros(len(predictions))
        for direction in self.options.directions:
            conditions, scored = (texts[name] for name in direction.split("_"))
            sides = text_ids(model, conditions), target_ids(model, scored)
            for side in sides:
                unread += side.unread
                total += side.unread + [len(row) for row in side.rows]
            pairs = list(zip(*(side.rows for side in sides), strict=True))
            values = mean_log_probs(model, pairs, self.options.batch_size)
            scores[f"bartscore_{direction}"] = values
        scores["bartscore_unread"] = 100 * unread / total
        if "bartscore_f" in self.columns:
            scores["bartscore_f"] = (
                scores["bartscore_ref_hyp"] + scores["bartscore_hyp_ref"]
            ) / 2
        return [
            {name: float(scores[name][i]) for name in self.columns}
            for i in range(len(predictions))
        ]

    def describe(self) -> dict[str, Any]:
        directions = "+".join(self.options.directions)
        signature = (
            f"bartscore|model:{self.user_model.label}|directions:{directions}"
        )
        return {"signature": signature} | super().describe()


def target_ids(model: "LoadedModel", texts: Sequence[str]) -> TextIds:
    """Returns the ids of texts, truncated to the positions of the model's decoder."""
    return text_ids(model, texts, model.config.max_target_length)


class _Lengths(NamedTuple):
    """Sort key of pairs of rows: padded lengths of the first and second row."""

    condition: int
    scored: int


def mean_log_probs(
    model: "LoadedModel",
    pairs: Sequence[tuple[list[int], list[int]]],
    batch_size: int,
) -> np.ndarray:
    """Returns the mean log-probability of the second row's tokens given the first, [pairs].

    Yuan et al. (2021), equation 2 with equal weights.

    Args:
        model: encoder-decoder.
        pairs: rows of ids including special tokens.
        batch_size: pairs read together.
    """
    from longsum_jax.inference.padding import (
        FINE_BUCKET,
        batches_by_length,
        bucket_length,
        pad_rows,
    )

    pad_id = model.config.pad_token_id
    lengths = []
    for condition, scored in pairs:
        lengths.append(
            _Lengths(
                bucket_length(len(condition), FINE_BUCKET),
                bucket_length(len(scored), FINE_BUCKET),
            )
        )
    means = np.zeros(len(pairs))
    for batch in batches_by_length(lengths, batch_size):
        ids, mask = pad_rows([pairs[i][0] for i in batch], batch_size, pad_id)
        # ``real`` is False on padding, whose log-probabilities are left out.
        targets, real = pad_rows(
            [pairs[i][1] for i in batch], batch_size, pad_id
        )
        log_probs = np.asarray(
            model.log_probs(ids, mask, targets, bucket=FINE_BUCKET), np.float64
        )
        sums = np.where(real, log_probs, 0).sum(1)
        means[batch] = (sums / real.sum(1))[: len(batch)]
    return means
