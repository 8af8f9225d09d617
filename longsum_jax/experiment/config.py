"""The config of a run: a typed tree of all sections of a config file."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from longsum_jax.data.tasks import Task, get_task
from longsum_jax.decoding.options import MAX_NEW_TOKENS, GenerationOptions
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.models.config import ModelConfig
from longsum_jax.models.family import Family
from longsum_jax.models.registry import model_config
from longsum_jax.schema import (
    Count,
    Length,
    LengthOrNone,
    Positive,
    Range,
    Rate,
    Share,
    Size,
    SizeOrNone,
    check_ranges,
    from_dict,
)
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.lora import LoraOptions
from longsum_jax.training.mesh import MeshOptions
from longsum_jax.training.optimizers import OptimizerOptions

T = TypeVar("T")
_BatchSize = Annotated[int, Range(1, 2**20)]


@dataclass(frozen=True)
class TokenizerOptions:
    """Options for loading or training the tokenizer.

    Attributes:
        path: .model file, directory, or "bytes"; empty to train a tokenizer on
            the task's documents.
        extra_ids: number of sentinels of a trained tokenizer, included in the
            model's vocab_size.
    """

    path: str = ""
    extra_ids: SizeOrNone = 0

    def __post_init__(self) -> None:
        check_ranges(self, "tokenizer")


@dataclass(frozen=True)
class DataOptions:
    """Options for reading and batching examples.

    Attributes:
        reader: "memory" makes all examples at the start, "stream" makes them
            during training, "prepared" reads the directory ``prepared``,
            written by the prepare command.
        prepared: directory of prepared examples.
        split: split of the task to train on.
        batch_size: rows per step, over all devices and micro-batches.
        batch_by_tokens: True for more rows per step in shorter buckets:
            ``batch_size`` times the longest bucket's length divided by the
            bucket's, rounded down.
        pack: True to put several short pairs of document and summary into each
            row, for objectives that write summaries; ``source_lengths`` then
            has at most one length, the length of a row.
        source_lengths: padded lengths (buckets) in tokens, or in sentences for
            extraction, ascending; empty for the task's maximum.
        shuffle: "all" (not for streams), "block" (within blocks of
            ``shuffle_block`` examples), or "none".
        shuffle_block: number of examples in a block; a stream keeps that many
            in memory.
        epochs: passes over the data; None for as many as the steps require.
        prefetch: number of batches prepared ahead.
    """

    reader: Literal["memory", "stream", "prepared"] = "memory"
    prepared: str = ""
    split: str = "train"
    batch_size: _BatchSize = 8
    batch_by_tokens: bool = False
    pack: bool = False
    source_lengths: tuple[Length, ...] = ()
    shuffle: Literal["all", "block", "none"] = "all"
    shuffle_block: Positive = 4096
    epochs: Positive | None = None
    prefetch: Size = 2

    def __post_init__(self) -> None:
        check_ranges(self, "data")


@dataclass(frozen=True)
class LossOptions:
    """Options of the loss.

    Attributes:
        label_smoothing: probability mass spread over the vocabulary, for
            summaries only.
        beta: factor of the log-probability ratios between the model and the
            initial model (the reference model of direct preference
            optimization), for the objective "prefer" only, which needs a value
            above 0; a larger one keeps the model closer to the initial model.
    """

    label_smoothing: Rate = 0.0
    beta: Annotated[float, Range(0, 1e3)] = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, "loss")


@dataclass(frozen=True)
class MaskingOptions:
    """The selection of masked tokens, for masked language models.

    Attributes:
        probability: probability with which a token is selected; special tokens
            are never selected.
        masked, random: shares of selected tokens that are replaced by the mask
            or a random token; the remaining ones are kept.
    """

    probability: Annotated[float, Range(0, 1, above=True)] = 0.15
    masked: Share = 0.8
    random: Share = 0.1

    def __post_init__(self) -> None:
        check_ranges(self, "mlm")
        if self.masked + self.random > 1:
            raise InputError(
                f"mlm.masked={self.masked} and mlm.random={self.random} are shares of the chosen "
                "tokens; give at most 1 together"
            )


# Options that the model sets, and the number of summaries per document.
_NOT_SET = (
    "decoder_start_token_id",
    "eos_token_id",
    "pad_token_id",
    "num_return_sequences",
)


def _with_generation_options(cls: type[T]) -> type[T]:
    """Adds the generation options that a class lacks as fields, with the default None."""
    for name, hint in typing.get_type_hints(GenerationOptions).items():
        if name not in _NOT_SET and name not in cls.__annotations__:
            cls.__annotations__[name] = hint | None
            setattr(cls, name, None)
    return cls


@dataclass(frozen=True)
@_with_generation_options
class EvaluationOptions:
    """Evaluation during training, on the first documents of a split.

    Attributes:
        split: split of the task.
        examples: number of documents, 0 for no evaluation.
        batch_size: documents (pieces of documents, for masked language models)
            per forward pass.
        max_source_length: maximum tokens read of a document to summarize; None
            for the length in training, 0 for all.
        stemmer: True to stem the words of ROUGE.
        rouge_types: types of ROUGE, see ``evaluation.rouge.Rouge.Options``.
        metrics: names in ``evaluation.registry.METRICS``, for summaries.
        seed: random seed of the masks of masked language models, and of
            sampling.
        max_new_tokens, num_beams, ...: generation options for summaries
            (``decoding.options.GenerationOptions``), in evaluations and as
            defaults of the trained model; None uses the initial model's value.
    """

    split: str = "validation"
    examples: Count = 0
    batch_size: _BatchSize = 8
    max_source_length: LengthOrNone | None = None
    stemmer: bool = False
    rouge_types: tuple[str, ...] = ("rouge1", "rouge2", "rougeLsum")
    metrics: tuple[str, ...] = ("rouge",)
    seed: Count = 0
    max_new_tokens: int | None = 512
    num_beams: int | None = 1
    no_repeat_ngram_size: int | None = 0

    def __post_init__(self) -> None:
        check_ranges(self, "evaluation")
        # Values from the start model are unknown here; the ids do not affect
        # the checks.
        options: dict[str, Any] = {
            "max_new_tokens": MAX_NEW_TOKENS,
            "decoder_start_token_id": 0,
        }
        options |= self.generation()
        try:
            GenerationOptions(**options)
        except InputError as error:
            raise InputError(f"config.evaluation: {error}") from None

    def generation(self) -> dict[str, Any]:
        """Returns the generation options that are set, under their generation_config names."""
        names = {field.name for field in dataclasses.fields(GenerationOptions)}
        values = {
            name: value for name, value in vars(self).items() if name in names
        }
        return {
            name: value for name, value in values.items() if value is not None
        }


# parts of ``init_from`` that are reinitialized
Fresh = Literal["", "encoder_attention"]


@dataclass(frozen=True)
class RunConfig:
    """The complete config of a run.

    Attributes:
        family: model family, named in the section "model".
        model: config of the family as specified; after the data are read, the
            objective adds labels and a head.
        task: task as specified; the objective completes it too.
        training: options for the length of the run, logging, evaluation and
            checkpoints.
        init_from: model directory, training workdir or name on the Hub, whose
            parameters (and tokenizer, unless one is specified) initialize the
            run; empty to start from scratch.
        init_fresh: part of the initial model that is reinitialized: nothing (""),
            or "encoder_attention", so that another attention can replace the
            original one.
        description: nested plain dictionaries from which the config was read,
            for run.json.
    """

    family: Family
    model: Any
    task: Task
    training: LoopOptions
    tokenizer: TokenizerOptions = field(default_factory=TokenizerOptions)
    data: DataOptions = field(default_factory=DataOptions)
    loss: LossOptions = field(default_factory=LossOptions)
    mlm: MaskingOptions = field(default_factory=MaskingOptions)
    optimizer: OptimizerOptions = field(default_factory=OptimizerOptions)
    lora: LoraOptions = field(default_factory=LoraOptions)
    mesh: MeshOptions = field(default_factory=MeshOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    init_from: str = ""
    init_fresh: Fresh = ""
    description: Mapping[str, Any] = field(default_factory=dict, compare=False)


# Section of a config file -> its dataclass. The keys of "model" and "task"
# depend on their names.
SECTIONS: Mapping[str, type] = {
    "tokenizer": TokenizerOptions,
    "data": DataOptions,
    "loss": LossOptions,
    "mlm": MaskingOptions,
    "optimizer": OptimizerOptions,
    "lora": LoraOptions,
    "training": LoopOptions,
    "mesh": MeshOptions,
    "evaluation": EvaluationOptions,
}


def default_sections() -> dict[str, Any]:
    """Returns the defaults of every section, as a template for config files.

    ``training.steps`` must be set.
    """
    sections: dict[str, Any] = {"init_from": "", "init_fresh": ""}
    for name, cls in SECTIONS.items():
        if cls is LoopOptions:
            options = LoopOptions(steps=1)
        else:
            options = cls()
        sections[name] = dataclasses.asdict(options)
    return sections


def run_config(description: Mapping[str, Any]) -> RunConfig:
    """Builds the typed config of a run.

    Args:
        description: nested plain dictionaries: "model", "task", the sections of
            ``SECTIONS``, "init_from" and "init_fresh". In "model", None selects
            a default; for a dropout rate, None selects the rate of the model in
            "init_from".

    Raises:
        InputError: unknown sections, keys or values, or a missing section.
    """
    _check_sections(description)
    family, model = model_config(description["model"], "config.model")
    # None in the task section selects the default of the named task.
    task = {
        key: value
        for key, value in description["task"].items()
        if value is not None
    }
    sections: dict[str, Any] = {
        name: from_dict(cls, description.get(name, {}), f"config.{name}")
        for name, cls in SECTIONS.items()
    }
    init_from, init_fresh = (
        description.get(name, "") for name in ("init_from", "init_fresh")
    )
    if init_fresh not in typing.get_args(Fresh):
        raise InputError(
            f'config.init_fresh="{init_fresh}"; give "encoder_attention", or nothing'
        )
    if init_fresh and not init_from:
        raise InputError(
            f"config.init_fresh={init_fresh} has no effect without config.init_from; leave it out"
        )
    _check_lora(sections["lora"], sections["training"], init_from)
    named_task = get_task(task.pop("name", ""), **task)
    _check_loss(sections["loss"], named_task)
    return RunConfig(
        family=family,
        model=model,
        task=named_task,
        init_from=init_from,
        init_fresh=init_fresh,
        description=dict(description),
        **sections,
    )


def _check_lora(
    lora: LoraOptions, training: LoopOptions, init_from: str
) -> None:
    """Raises InputError for LoRA without a base, or for options without effect."""
    if training.train == "lora" and not init_from:
        raise InputError(
            'config.training.train="lora" adapts a trained model; give one as config.init_from'
        )
    if training.train != "lora" and lora != LoraOptions():
        raise InputError(
            f'config.lora has no effect with config.training.train="{training.train}"; give '
            'training.train="lora"'
        )


def _check_loss(loss: LossOptions, task: Task) -> None:
    """Raises InputError for options without effect on the task's objective, or for missing ones."""
    is_preference = task.base_objective == "prefer"
    if loss.label_smoothing and (is_preference or not task.writes_summaries):
        raise InputError(
            f"config.loss.label_smoothing={loss.label_smoothing} has no effect on the objective "
            f'"{task.objective}", only on summaries; leave it out'
        )
    if loss.beta and not is_preference:
        raise InputError(
            f"config.loss.beta={loss.beta} has no effect on the objective "
            f'"{task.objective}", only on "prefer"; leave it out'
        )
    if is_preference and not loss.beta:
        raise InputError(
            'config.loss.beta is 0, with which the objective "prefer" learns nothing; give a value '
            "above 0, such as 0.1"
        )


def allowed_words(key: str) -> dict[str, Any]:
    """Returns the words that a key accepts in addition to numbers, with their values.

    Examples are {"epoch": "epoch"} for "training.eval_every", and "true",
    "false" and "never".

    Args:
        key: section and name joined by a dot; the result is {} for an unknown
            key.
    """
    choices = typing.get_args(_type_of(key))
    if not {int, bool}.intersection(choices):
        return {}
    words: dict[str, Any] = {}
    for choice in choices:
        if choice is bool:
            words |= {"true": True, "false": False}
        if typing.get_origin(choice) is Literal:
            words |= {word: word for word in typing.get_args(choice)}
    return words


def takes_several(key: str) -> bool:
    """Returns True if the type of a value is a tuple, even if the value is None.

    Args:
        key: section and name joined by a dot.
    """
    return typing.get_origin(_type_of(key)) is tuple


def _type_of(key: str) -> Any:
    """Returns the type of a key such as "training.eval_every"; None for unknown keys."""
    section, _, name = key.partition(".")
    cls = {"model": ModelConfig, "task": Task, **SECTIONS}.get(section)
    if cls:
        return typing.get_type_hints(cls).get(name)
    return None


def _check_sections(description: Mapping[str, Any]) -> None:
    sections = {"model", "task", "init_from", "init_fresh", *SECTIONS}
    for name in description:
        if name not in sections:
            raise InputError(
                f'config: unknown section "{name}"; {did_you_mean(name, sections)}'
            )
    for name in ("model", "task", "training"):
        if not isinstance(description.get(name), Mapping):
            raise InputError(
                f'config: the section "{name}" is missing; see configs/common.py'
            )
