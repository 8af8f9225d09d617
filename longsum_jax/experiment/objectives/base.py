"""What every objective gives a run: batches, a loss, an evaluation, and how to tell people of
it."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.typing import Array, Params

if TYPE_CHECKING:
    from longsum_jax.experiment.experiment import Experiment
    from longsum_jax.training.step import LossFn, SegmentedLoss

Row = dict[str, Any]  # one line of predictions.jsonl
T = TypeVar("T")


@dataclass(frozen=True)
class EvaluationOptions:
    """Evaluation during training, of the first ``examples`` documents of a split; 0 for none.

    Attributes:
        batch_size: documents (pieces of documents, for masked language models) that go through the
            model together.
        max_new_tokens, num_beams, no_repeat_ngram_size: of generated summaries; None as the start
            model has it.
        stemmer: of ROUGE.
        metrics: names in ``evaluation.registry.METRICS``, for summaries.
        seed: of the masks of masked language models.
    """

    split: str = "validation"
    examples: int = 0
    batch_size: int = 8
    max_new_tokens: int | None = 512
    num_beams: int | None = 1
    no_repeat_ngram_size: int | None = 0
    stemmer: bool = False
    metrics: tuple[str, ...] = ("rouge",)
    seed: int = 0


class Evaluation(NamedTuple):
    """Named numbers, the baselines' among them, and a row for every document."""

    scores: dict[str, float]
    rows: list[Row]


class Objective(ABC):
    """One way to train.

    Attributes:
        kind: of the model families that can be trained so.
        ranking: scores of the evaluation by which checkpoints can be ranked, higher is better.
        parts: whether examples are several parts, whose number chooses the bucket of
            ``data.source_lengths``.
    """

    kind: ClassVar[str]
    ranking: ClassVar[tuple[str, ...]]
    parts: ClassVar[bool] = False

    def __init__(self, experiment: "Experiment") -> None:
        self.experiment = experiment

    def resolve(self, task: Task, config: Any) -> tuple[Task, Any]:
        """Task and model config with what only the objective, or its data, can say."""
        return task, config

    @abstractmethod
    def label_options(self) -> dict[str, Any]:
        """The arguments of ``Batches`` that say how labels lie in a batch."""

    def summarization(self) -> dict[str, Any]:
        """What the model's config.json says of summarising besides the task's prefix."""
        return {}

    @abstractmethod
    def loss_fn(self) -> "LossFn | SegmentedLoss":
        """The loss of a batch, for ``training.fit``."""

    @abstractmethod
    def evaluate(self, params: Params) -> Evaluation:
        """Scores of the parameters, and of the baselines."""

    @abstractmethod
    def report(self, evaluation: Evaluation) -> str:
        """The evaluation as a few lines for people."""

    def next_step(self) -> str:
        """What to do with the trained model, as a line for people; "" for nothing in particular."""
        return ""

    @abstractmethod
    def read_evaluation(self) -> None:
        """Reads what ``evaluate`` needs; InputError for data that are missing or do not fit."""

    def first(self, found: Iterable[T]) -> list[T]:
        """The first of what was ``found`` in the evaluation's split, as many as are asked for."""
        options, task = self.experiment.evaluation, self.experiment.task
        kept = list(itertools.islice(found, options.examples))
        if not kept:
            raise InputError(
                f'task "{task.name}", split "{options.split}": no documents to evaluate on; name another split or '
                "evaluation.examples=0"
            )
        return kept

    @cached_property
    def logits(self) -> Callable[[Params, np.ndarray, np.ndarray], Array]:
        """Compiled (parameters, ids [B, L], mask [B, L]) -> logits of an encoder, whole on every
        host."""
        module = self.experiment.family.module_class(self.experiment.config)

        def logits(params: Params, ids: Array, mask: Array) -> Array:
            out = module.apply({"params": params}, ids, mask, deterministic=True)
            if jax.sharding.get_abstract_mesh().empty:
                return out
            return jax.lax.with_sharding_constraint(out, PartitionSpec())

        return jax.jit(logits)
