"""The interface of objectives: batches, loss, evaluation, and a human-readable report."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import jax
import numpy as np
from jax.sharding import PartitionSpec

from longsum_jax.data.examples.base import Example, ExampleStore
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.padding import pad_batch
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleList
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import RunConfig
from longsum_jax.models.config import takes_token_types
from longsum_jax.models.family import Family
from longsum_jax.text.documents import DataRow
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.training.mesh import MeshJit, make_mesh
from longsum_jax.typing import Array, NumpyBatch, Params

if TYPE_CHECKING:
    from longsum_jax.data.prepared import PreparedExamples
    from longsum_jax.inference.model import AuxiliaryModels
    from longsum_jax.summarization.model import Model

Row = dict[str, Any]  # one line of predictions.jsonl
T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """The model, task and tokenizer of a run, from which an objective is constructed.

    Attributes:
        family: model family.
        config: config of the model, including its head.
        task: task, including the names of its labels.
        tokenizer: tokenizer of the run.
        run: config of the run.
        workdir: directory of the run.
        make_model: function that returns a ``Model`` for generation, which
            reads documents as the task does; ``params`` are set for every
            evaluation.
        devices: devices of the mesh; None for all of the process.
    """

    family: Family
    config: Any
    task: Task
    tokenizer: Tokenizer
    run: RunConfig
    workdir: Path
    make_model: "Callable[[], Model]"
    devices: Sequence[jax.Device] | None = None


class Evaluation(NamedTuple):
    """Scores by name, including baselines, and one row for every document."""

    scores: dict[str, float]
    rows: list[Row]


class Objective(ABC):
    """A training objective.

    The class methods define requirements on data and config, before there is a
    tokenizer.

    Attributes:
        head: head of the trained models, one of ``ModelConfig.heads``.
        parts: True if an example has several parts (sentences, segments), whose
            number determines the bucket of ``data.source_lengths``.
        packs: True if rows of the batches may contain several examples.
        has_reference: True if the loss uses the run's initial model, see
            ``set_reference``.
    """

    head: ClassVar[str]
    parts: ClassVar[bool] = False
    packs: ClassVar[bool] = False
    has_reference: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def ranking(cls, run: RunConfig) -> tuple[str, ...]:
        """Returns the names of scores for ranking checkpoints; higher is better."""

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        """Returns task and model config, completed with values from objective and data."""
        return run.task, run.model

    @classmethod
    def summarization(cls, task: Task) -> dict[str, Any]:
        """Returns the entries of config.json for summarization, except the task's prefix."""
        del task
        return {}

    @classmethod
    def auxiliary_models(cls, task: Task) -> "AuxiliaryModels | None":
        """Returns the models that find and compare sentences of a document; None for none."""
        del task
        return None

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    @abstractmethod
    def batch_options(self) -> dict[str, Any]:
        """Returns the arguments of ``Batches`` for the arrays of a batch other than ids."""

    @abstractmethod
    def loss_fn(self) -> LossFn | SegmentedLoss:
        """Returns the loss function of a batch, for ``training.loop.fit``."""

    def training_examples(
        self, store: "ExampleList | PreparedExamples"
    ) -> ExampleStore:
        """Returns the examples that a run reads.

        Raises:
            InputError: the objective cannot learn from them.
        """
        return store

    def set_reference(
        self, store: ExampleStore, weights: str, initial_params: Params | None
    ) -> None:
        """Adds values of the run's initial model to the examples, with ``has_reference``.

        Args:
            store: examples returned by ``training_examples``.
            weights: hash of the model's weights.
            initial_params: its parameters; None for random ones.

        Raises:
            InputError: the run is resumed with another model than at its start.
        """
        raise NotImplementedError

    @abstractmethod
    def read_evaluation(self) -> None:
        """Reads the evaluation documents.

        Raises:
            InputError: they are missing or invalid.
        """

    @abstractmethod
    def evaluate(self, params: Params) -> Evaluation:
        """Scores the parameters and the baselines."""

    @abstractmethod
    def report(self, evaluation: Evaluation) -> str:
        """Returns a human-readable report of a few lines."""

    def intervals(
        self, evaluation: Evaluation
    ) -> dict[str, tuple[float, float]]:
        """Returns 95% bootstrap intervals of scores, by name; {} if there are none."""
        del evaluation
        return {}

    def samples(
        self, evaluation: Evaluation, count: int
    ) -> list[dict[str, str]]:
        """Returns the "id", "reference" and "summary" of the first ``count`` documents.

        Returns [] if the objective writes no summaries.
        """
        del evaluation, count
        return []

    def next_step(self) -> str:
        """Returns a suggestion for using the trained model; "" for none."""
        return ""

    @property
    def source_lengths(self) -> tuple[int, ...]:
        """Buckets of the batches, in tokens, or in parts of an example."""
        run = self.setup.run
        if self.parts:
            longest = run.task.max_parts
        else:
            longest = run.task.max_source_length
        lengths = run.data.source_lengths or (longest,)
        if self.parts or run.mesh.sequence == 1:
            return lengths
        # Round up, so that every device has the same number of tokens of a
        # document.
        num_shards = make_mesh(run.mesh, self.setup.devices).shape["sequence"]
        return tuple(
            dict.fromkeys(length + -length % num_shards for length in lengths)
        )

    def empty_batch(self, rows: int) -> NumpyBatch:
        """Returns a batch of the longest bucket without examples, to determine shapes."""
        longest = self.source_lengths[-1]
        return pad_batch(
            [], rows=rows, source_length=longest, **self.batch_options()
        )

    def logits_and_labels(
        self, params: Params, examples: Sequence[Example], source_length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the logits and labels of examples, followed by rows of
        padding; see ``evaluation_batches``.
        """
        logits, labels = [], []
        for batch in self.evaluation_batches(examples, source_length):
            logits.append(jax.device_get(self.logits(params, batch)))
            labels.append(batch["labels"])
        return np.concatenate(logits), np.concatenate(labels)

    def evaluation_batches(
        self, examples: Sequence[Example], source_length: int
    ) -> Iterator[NumpyBatch]:
        """Yields evaluation examples in batches of one shape; the last is filled with empty rows.

        Args:
            examples: examples of the evaluation documents.
            source_length: tokens of a row, or number of parts if an example has
                several.
        """
        rows = self.setup.run.evaluation.batch_size
        shape = {
            "rows": rows,
            "source_length": source_length,
            **self.batch_options(),
        }
        for start in range(0, len(examples), rows):
            some = examples[start : start + rows]
            yield pad_batch(
                some, pad_id=self.setup.config.pad_token_id, **shape
            )

    def first_examples(self, items: Iterable[T]) -> list[T]:
        """Returns the first ``evaluation.examples`` items of the evaluation's split."""
        options, task = self.setup.run.evaluation, self.setup.task
        examples = list(itertools.islice(items, options.examples))
        if not examples:
            remedy = "name another split or evaluation.examples=0"
            if task.holds_out:
                remedy = f"raise task.held_out={task.held_out}, or give evaluation.examples=0"
            raise InputError(
                f'task "{task.name}", split "{options.split}": no documents to evaluate on; '
                f"{remedy}"
            )
        return examples

    def check_parts(self, examples: Iterable[Example]) -> None:
        """Raises InputError for an evaluation example that exceeds the last bucket."""
        last_bucket, split = (
            self.source_lengths[-1],
            self.setup.run.evaluation.split,
        )
        for example in examples:
            count = len(example["segment_lengths"])
            if count > last_bucket:
                raise InputError(
                    f'document "{example["id"]}" of the split "{split}" has {count} parts, more '
                    f"than the last bucket ({last_bucket}); raise data.source_lengths or lower "
                    "task.max_parts"
                )

    @cached_property
    def documents_with_examples(self) -> list[tuple[DataRow, Example]]:
        """The evaluation documents with their examples."""
        task, tokenizer = self.setup.task, self.setup.tokenizer
        docs = documents(task, self.setup.run.evaluation.split)
        made = (
            (doc, example)
            for doc in docs
            for example in make_examples(task, tokenizer, [doc])
        )
        return self.first_examples(made)

    @cached_property
    def module(self) -> Any:
        """The Flax module of the model."""
        return self.setup.family.module_class(self.setup.config)

    def forward(
        self,
        params: Params,
        batch: Mapping[str, Array],
        *,
        deterministic: bool = True,
        **options: Any,
    ) -> Array:
        """Returns the outputs of an encoder's head for a batch, such as logits of labels.

        Args:
            params: parameters of the model.
            batch: ids [batch, length], or [batch, parts, length], with their
                mask.
            deterministic: False in training.
            **options: arguments of ``flax.linen.Module.apply``.
        """
        return self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            deterministic=deterministic,
            **self._token_types(batch),
            **options,
        )

    @cached_property
    def logits(self) -> Callable[[Params, NumpyBatch], Array]:
        """Compiled ``forward`` without dropout; its result is available on every host."""
        return MeshJit(
            lambda params, batch: replicate(self.forward(params, batch))
        )

    def _token_types(self, batch: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the token types of a batch as an argument, if model and batch have them."""
        if "token_type_ids" not in batch or not takes_token_types(
            self.setup.config
        ):
            return {}
        return {"token_type_ids": batch["token_type_ids"]}


def loss_with_counts(
    loss_sum: Array, weight: Array, **counts: Array
) -> LossOutput:
    """Returns the loss of a batch, with counts over its rows as metrics."""
    metrics = {name: count.astype(np.float32) for name, count in counts.items()}
    return LossOutput(loss_sum, weight, metrics)


def replicate(x: Array) -> Array:
    """Replicates ``x`` on every device, so that every host can read it; for use inside jit."""
    if jax.sharding.get_abstract_mesh().empty:
        return x
    return jax.lax.with_sharding_constraint(x, PartitionSpec())
