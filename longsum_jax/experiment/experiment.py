"""From a config to what ``training.fit`` takes: model, tokenizer, batches, loss and evaluation."""

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax

from longsum_jax.checkpoints import huggingface
from longsum_jax.data.batches import Batches
from longsum_jax.data.examples.base import ExampleStore
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleStream, load_examples
from longsum_jax.data.tasks import Task, get_task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.experiment.objectives.base import Evaluation, EvaluationOptions, Objective
from longsum_jax.experiment.objectives.masked_lm import MaskingOptions
from longsum_jax.experiment.objectives.penalties import with_span_penalty
from longsum_jax.experiment.objectives.registry import OBJECTIVES
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.inference.auxiliary import AuxiliaryModels
from longsum_jax.inference.loading import TRAINING_MODEL, load_auxiliary
from longsum_jax.inference.model import Model
from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.models.family import Family
from longsum_jax.models.registry import max_input_length, model_config
from longsum_jax.schema import from_dict
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer, train_sentencepiece
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.mesh import MeshOptions, check_batch_size, make_mesh
from longsum_jax.training.optimizers import OptimizerOptions
from longsum_jax.training.step import LossFn, SegmentedLoss
from longsum_jax.training.workdir import has_checkpoint
from longsum_jax.typing import Params


@dataclass(frozen=True)
class TokenizerOptions:
    """Where the tokenizer comes from.

    Attributes:
        path: a .model file, a directory, or "bytes"; empty to train one on the task's own
            documents.
        extra_ids: sentinels of a trained tokenizer, counted in the model's vocab_size.
    """

    path: str = ""
    extra_ids: int = 0


@dataclass(frozen=True)
class DataOptions:
    """How examples are read and batched.

    Attributes:
        reader: "memory" makes all examples at the start, "stream" makes them as it goes, "prepared"
            reads the directory ``prepared`` that the prepare command wrote.
        batch_size: rows per step, all devices and micro-batches together.
        source_lengths: padded lengths in tokens (in sentences, to extract), ascending; empty for
            the task's maximum.
        shuffle: "all" (not for streams), "block": within blocks of ``shuffle_block`` examples, or
            "none".
        epochs: passes over the data; None for as many as the steps need.
        prefetch: batches made ahead.
    """

    reader: Literal["memory", "stream", "prepared"] = "memory"
    prepared: str = ""
    split: str = "train"
    batch_size: int = 8
    source_lengths: tuple[int, ...] = ()
    shuffle: Literal["all", "block", "none"] = "all"
    shuffle_block: int = 4096
    epochs: int | None = None
    prefetch: int = 2


@dataclass(frozen=True)
class LossOptions:
    """Attributes: label_smoothing: mass spread over the vocabulary, of summaries alone."""

    label_smoothing: float = 0.0


SECTIONS: Mapping[str, type] = {
    "tokenizer": TokenizerOptions,
    "data": DataOptions,
    "loss": LossOptions,
    "mlm": MaskingOptions,
    "optimizer": OptimizerOptions,
    "training": LoopOptions,
    "mesh": MeshOptions,
    "evaluation": EvaluationOptions,
}


def default_sections() -> dict[str, Any]:
    """Every section at its defaults, for config files to fill in; ``training.steps`` must be
    set."""
    sections = {
        name: dataclasses.asdict(cls() if cls is not LoopOptions else LoopOptions(steps=1))
        for name, cls in SECTIONS.items()
    }
    return {"init_from": "", **sections}


class Experiment:
    """The pieces of one training run, each made when it is first asked for.

    Args:
        config: nested plain dictionaries: "model", "task", the sections of ``SECTIONS`` and
            "init_from", a model directory or training workdir whose parameters (and tokenizer, if
            none is given) are the start.
        workdir: the run's directory; a tokenizer trained there before is used again.

    Attributes:
        raw_config, given_task: model and task as the config has them, before the data have been
            looked at.
        last_evaluation: step and outcome of the evaluation that ran last.

    Raises:
        InputError: unknown sections, keys or values.
    """

    def __init__(self, config: Mapping[str, Any], workdir: str | Path) -> None:
        _check_sections(config)
        self.description = dict(config)
        self.workdir = Path(workdir)
        self.family: Family
        self.family, self.raw_config = model_config(config["model"], "config.model")
        # None in the task section means: as the named task has it.
        task = {key: value for key, value in config["task"].items() if value is not None}
        self.given_task: Task = get_task(task.pop("name", ""), **task)
        options = {
            name: from_dict(cls, config.get(name, {}), f"config.{name}")
            for name, cls in SECTIONS.items()
        }
        self.tokenizer_options: TokenizerOptions = options["tokenizer"]
        self.data: DataOptions = options["data"]
        self.loss: LossOptions = options["loss"]
        self.mlm: MaskingOptions = options["mlm"]
        self.optimizer: OptimizerOptions = options["optimizer"]
        self.training: LoopOptions = options["training"]
        self.mesh: MeshOptions = options["mesh"]
        self.evaluation: EvaluationOptions = options["evaluation"]
        self.init_from: str = config.get("init_from", "")
        self.objective: Objective = OBJECTIVES[self.given_task.objective](self)
        self.last_evaluation: tuple[int, Evaluation] | None = None
        self._check()

    def _check(self) -> None:
        family_kind = "encoder_decoder" if self.family.is_encoder_decoder else "encoder"
        if family_kind != self.objective.kind:
            raise InputError(
                f'config.task.objective "{self.given_task.objective}" trains an {self.objective.kind}, but '
                f'config.model.family "{self.family.name}" is an {family_kind}; change either'
            )
        self._check_lengths()
        if self.data.reader == "prepared" and not self.data.prepared:
            raise InputError(
                'config.data.prepared is empty; data.reader="prepared" needs what the prepare command wrote'
            )
        best, known = self.training.best_metric, self.objective.ranking
        if self.evaluation.examples and best not in known:
            raise InputError(
                f'config.training.best_metric: evaluation gives no "{best}"; {did_you_mean(best, known)}'
            )
        if self.data.reader == "stream" and self.data.shuffle == "all":
            raise InputError(
                'config.data.shuffle is "all", which a stream cannot do; give "block" or "none"'
            )

    def _check_lengths(self) -> None:
        """Positions beyond a model's table would be read as anything at all."""
        task, given = self.given_task, self.raw_config
        buckets = () if self.objective.parts else self.data.source_lengths
        longest = {"max_source_length": max(task.max_source_length, *buckets, 0)}
        longest |= (
            {"max_target_length": task.max_target_length}
            if self.objective.kind == "encoder_decoder"
            else {}
        )
        for name, length in longest.items():
            table = getattr(given, name, None)
            if table is not None and length > table:
                raise InputError(
                    f"config.task.{name} (or a bucket of data.source_lengths) is {length}, but the model has positions "
                    f"for {table}; lower it, or lengthen the model: convert --max_source_length"
                )
        limit = max_input_length(given)
        if limit is not None and (length := longest["max_source_length"]) > limit:
            raise InputError(
                f"config.task.max_source_length (or a bucket of data.source_lengths) is {length}, but the Linformer "
                f"projection has weights for {limit}; lower it, or raise config.model.linformer_max_length or "
                "cross_linformer_max_length"
            )

    def check_mesh(self) -> None:
        """Raises InputError unless the devices form the mesh, and a batch and the channels of S4D
        divide over it."""
        mesh = make_mesh(self.mesh)
        check_batch_size(self.data.batch_size, mesh, self.training.accumulation)
        kinds, parts = dict(parse_hybrid(self.raw_config.encoder_attention)), mesh.shape["sequence"]
        if "s4d" in kinds and (width := self.raw_config.d_model) % parts:
            raise InputError(
                f"config.model.d_model is {width}, which does not divide over mesh.sequence={parts}; change either"
            )

    @cached_property
    def _resolved(self) -> tuple[Task, Any]:
        return self.objective.resolve(self.given_task, self.raw_config)

    @property
    def task(self) -> Task:
        """The task, names of labels included."""
        return self._resolved[0]

    @property
    def config(self) -> Any:
        """The model's config, its head included."""
        return self._resolved[1]

    @cached_property
    def start(self) -> WarmStart | None:
        """What ``init_from`` names; after the first checkpoint the run's own directory has taken
        its place."""
        if not self.init_from or has_checkpoint(self.workdir):
            return None
        return WarmStart(self.init_from, self.family, self.config, self.training.seed)

    def initial_params(self) -> Params | None:
        """Parameters to start from; None for random ones, or those of the run's last checkpoint."""
        return None if self.start is None else self.start.params

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Given, of the run or its start, or trained once on the task's documents and kept in the
        workdir."""
        rows = self.raw_config.vocab_size
        if self.tokenizer_options.path:
            return load_tokenizer(self.tokenizer_options.path, vocab_size=rows)
        if has_checkpoint(self.workdir):
            return load_tokenizer(self.workdir / TRAINING_MODEL, vocab_size=rows)
        if self.start is not None:
            if self.start.tokenizer is None:
                raise InputError(
                    f"config.tokenizer.path is empty and {self.init_from} holds no tokenizer; give one"
                )
            return self.start.tokenizer
        texts = (document.document for document in documents(self.given_task, self.data.split))
        extra = self.tokenizer_options.extra_ids
        return train_sentencepiece(texts, rows - extra, extra_ids=extra)

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        """Of the run's model directory or its start, with the longest summary of the evaluation
        options."""
        if has_checkpoint(self.workdir):
            return huggingface.read_generation_config(self.workdir / TRAINING_MODEL)
        found = {} if self.start is None else dict(self.start.generation_config)
        if (longest := self.evaluation.max_new_tokens) is not None:
            found |= {"max_new_tokens": longest}
            found.pop("max_length", None)
        return found

    def model(self, params: Any) -> Model:
        """A Model around ``params``, to generate with; it reads documents as the task does."""
        summarization = {"prefix": self.task.prefix} if self.task.prefix else {}
        summarization |= self.objective.summarization()
        return Model(
            self.family,
            self.config,
            params,
            self.tokenizer,
            self.generation_config,
            summarization,
            self.auxiliary,
        )

    def write_model_directory(self) -> None:
        """Config and tokenizer beside the checkpoints, so that ``longsum_jax.load(workdir)`` works
        from the start."""
        target = self.workdir / TRAINING_MODEL
        if jax.process_index() or (target.exists() and has_checkpoint(self.workdir)):
            return
        shutil.rmtree(target, ignore_errors=True)  # of a run that never came to a checkpoint
        model = self.model(None)
        summarization = {} if self.start is None else dict(self.start.summarization)
        summarization |= {"prefix": self.task.prefix} if self.task.prefix or summarization else {}
        model.summarization = summarization | self.objective.summarization()
        model.save(target)

    @cached_property
    def auxiliary(self) -> AuxiliaryModels:
        """The extractor and the sentence encoder that the task names."""
        if self.task.objective != "summarize_segments":
            return AuxiliaryModels()
        return load_auxiliary(self.task.segments)

    @cached_property
    def store(self) -> ExampleStore:
        """The training examples."""
        data = self.data
        if data.reader == "prepared":
            return PreparedExamples(data.prepared, self.tokenizer.fingerprint)
        if data.reader == "stream":
            return ExampleStream(
                self.task,
                self.tokenizer,
                data.split,
                data.shuffle_block,
                seed=self.training.seed,
                auxiliary=self.auxiliary.functions(),
            )
        return load_examples(
            self.task,
            self.tokenizer,
            data.split,
            seed=self.training.seed,
            auxiliary=self.auxiliary.functions(),
        )

    @property
    def source_lengths(self) -> tuple[int, ...]:
        """Buckets of the batches, in tokens or in parts."""
        longest = (
            self.given_task.max_parts if self.objective.parts else self.given_task.max_source_length
        )
        lengths = self.data.source_lengths or (longest,)
        if self.objective.parts or self.mesh.sequence == 1:
            return lengths
        devices = make_mesh(self.mesh).shape["sequence"]
        return tuple(dict.fromkeys(length + -length % devices for length in lengths))

    def batches(self) -> Batches:
        """This host's training batches."""
        data = self.data
        return Batches(
            self.store,
            batch_size=data.batch_size,
            source_lengths=self.source_lengths,
            **self.objective.label_options(),
            seed=self.training.seed,
            shuffle={"all": "all", "block": data.shuffle_block, "none": None}[data.shuffle],
            epochs=data.epochs,
            host_index=jax.process_index(),
            host_count=jax.process_count(),
            pad_id=self.config.pad_token_id,
        )

    @cached_property
    def held_out(self) -> int:
        """How many documents of the task's files are not for training."""
        return sum(1 for _ in documents(self.task, "validation"))

    def loss_fn(self) -> LossFn | SegmentedLoss:
        """The loss of the task's objective, and what the model adds to it."""
        return with_span_penalty(self.objective.loss_fn(), self.config)

    def evaluator(self) -> Callable[[Any, int], dict[str, float]] | None:
        """What ``fit`` calls; None without examples to evaluate on."""
        if not self.evaluation.examples:
            return None
        self.objective.read_evaluation()  # now: missing data should not show after hours of training

        def evaluate(params: Any, step: int) -> dict[str, float]:
            self.last_evaluation = step, self.objective.evaluate(params)
            return self.last_evaluation[1].scores

        return evaluate

    def evaluation_at(self, step: int, params: Any) -> Evaluation:
        """The evaluation of the parameters of ``step``, run now unless it was the last to run."""
        if self.last_evaluation is None or self.last_evaluation[0] != step:
            self.last_evaluation = step, self.objective.evaluate(params)
        return self.last_evaluation[1]


def _check_sections(config: Mapping[str, Any]) -> None:
    known = {"model", "task", "init_from", *SECTIONS}
    for name in config:
        if name not in known:
            raise InputError(f'config: unknown section "{name}"; {did_you_mean(name, known)}')
    for name in ("model", "task", "training"):
        if not isinstance(config.get(name), Mapping):
            raise InputError(f'config: the section "{name}" is missing; see configs/common.py')
