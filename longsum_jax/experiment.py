"""From a config to what ``training.fit`` takes: model, tokenizer, batches, loss and evaluation."""

import dataclasses
import itertools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from longsum_jax.checkpoints import huggingface
from longsum_jax.data.batches import Batches
from longsum_jax.data.examples import ExampleStore, load_examples, source_and_target
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.streams import ExampleStream
from longsum_jax.data.tasks import Task, get_task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation import Pair, Row, baseline_scores, predict, summary_of
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.options import from_dict
from longsum_jax.pipeline import TRAINING_MODEL, Model, load
from longsum_jax.registry import Family, model_config
from longsum_jax.text.tokenizers import Tokenizer, load_tokenizer, train_sentencepiece
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.optimizers import OptimizerOptions
from longsum_jax.training.partition import MeshOptions, check_batch_size, make_mesh
from longsum_jax.training.step import LossFn, LossOutput
from longsum_jax.training.workdir import has_checkpoint


@dataclass(frozen=True)
class TokenizerOptions:
    """Where the tokenizer comes from.

    Attributes:
        path: a .model file, a directory, or "bytes"; empty to train one on the task's own documents.
        extra_ids: sentinels of a trained tokenizer, counted in the model's vocab_size.
    """

    path: str = ""
    extra_ids: int = 0


@dataclass(frozen=True)
class DataOptions:
    """How examples are read and batched.

    Attributes:
        reader: "memory" makes all examples at the start, "stream" makes them as it goes, "prepared" reads the
            directory ``prepared`` that the prepare command wrote.
        batch_size: rows per step, all devices and micro-batches together.
        source_lengths: padded lengths, ascending; empty for the task's maximum alone.
        shuffle: "all" (not for streams), "block": within blocks of ``shuffle_block`` examples, or "none".
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
class EvaluationOptions:
    """Evaluation during training: ROUGE of generated summaries of the first ``examples`` documents of a split."""

    split: str = "validation"
    examples: int = 0
    batch_size: int = 8
    max_new_tokens: int = 512
    num_beams: int = 1
    no_repeat_ngram_size: int = 0
    stemmer: bool = False


@dataclass(frozen=True)
class LossOptions:
    """Attributes: label_smoothing: mass spread over the vocabulary."""

    label_smoothing: float = 0.0


SCORES = ("mean_rouge", "rouge1", "rouge2", "rougeLsum")  # what can rank checkpoints

SECTIONS: Mapping[str, type] = {
    "tokenizer": TokenizerOptions,
    "data": DataOptions,
    "loss": LossOptions,
    "optimizer": OptimizerOptions,
    "training": LoopOptions,
    "mesh": MeshOptions,
    "evaluation": EvaluationOptions,
}


def default_sections() -> dict[str, Any]:
    """Every section at its defaults, for config files to fill in; ``training.steps`` must be set."""
    sections = {
        name: dataclasses.asdict(cls() if cls is not LoopOptions else LoopOptions(steps=1))
        for name, cls in SECTIONS.items()
    }
    return {"init_from": "", **sections}


class Experiment:
    """The pieces of one training run, each made when it is first asked for.

    Args:
        config: nested plain dictionaries: "model", "task", the sections of ``SECTIONS`` and "init_from", a model
            directory or training workdir whose parameters (and tokenizer, if none is given) are the start.
        workdir: the run's directory; a tokenizer trained there before is used again.

    Raises:
        InputError: unknown sections, keys or values.
    """

    def __init__(self, config: Mapping[str, Any], workdir: str | Path) -> None:
        _check_sections(config)
        self.description = dict(config)
        self.workdir = Path(workdir)
        self.family: Family
        self.family, self.config = model_config(config["model"], "config.model")
        # None in the task section means: as the named task has it.
        task = {key: value for key, value in config["task"].items() if value is not None}
        self.task: Task = get_task(task.pop("name", ""), **task)
        options = {name: from_dict(cls, config.get(name, {}), f"config.{name}") for name, cls in SECTIONS.items()}
        self.tokenizer_options: TokenizerOptions = options["tokenizer"]
        self.data: DataOptions = options["data"]
        self.loss: LossOptions = options["loss"]
        self.optimizer: OptimizerOptions = options["optimizer"]
        self.training: LoopOptions = options["training"]
        self.mesh: MeshOptions = options["mesh"]
        self.evaluation: EvaluationOptions = options["evaluation"]
        self.init_from: str = config.get("init_from", "")
        self.last_evaluation: tuple[int, dict[str, float], list[Row]] | None = None  # step, scores, predictions
        self._check()

    def _check(self) -> None:
        if self.data.reader == "prepared" and not self.data.prepared:
            raise InputError(
                'config.data.prepared is empty; data.reader="prepared" needs what the prepare command wrote'
            )
        if self.evaluation.examples and self.training.best_metric not in SCORES:
            hint = did_you_mean(self.training.best_metric, SCORES)
            raise InputError(f'config.training.best_metric: evaluation gives no "{self.training.best_metric}"; {hint}')
        if self.data.reader == "stream" and self.data.shuffle == "all":
            raise InputError('config.data.shuffle is "all", which a stream cannot do; give "block" or "none"')

    def check_mesh(self) -> None:
        """Raises InputError unless the devices form the mesh and a batch divides over it."""
        check_batch_size(self.data.batch_size, make_mesh(self.mesh), self.training.accumulation)

    @cached_property
    def start(self) -> Model | None:
        """The model that ``init_from`` names."""
        if not self.init_from:
            return None
        model = load(self.init_from)
        wanted = self.family.parameter_shapes(self.config)
        found = model.family.parameter_shapes(model.config)
        differing = [name for name in sorted(wanted.keys() | found.keys()) if wanted.get(name) != found.get(name)]
        if model.family is not self.family or differing:
            first = differing[0] if differing else "its family"
            raise InputError(
                f"config.init_from: {self.init_from} is another model than config.model, differing in {first} "
                f"({found.get(first)} there, {wanted.get(first)} here) and {max(len(differing) - 1, 0)} more"
            )
        return model

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Given, of the start model, or trained once on the task's documents and kept in the workdir."""
        rows = self.config.vocab_size
        if self.tokenizer_options.path:
            return load_tokenizer(self.tokenizer_options.path, vocab_size=rows)
        if self.start is not None:
            if self.start.tokenizer is None:
                raise InputError(f"config.tokenizer.path is empty and {self.init_from} holds no tokenizer; give one")
            return self.start.tokenizer
        if has_checkpoint(self.workdir):
            return load_tokenizer(self.workdir / TRAINING_MODEL, vocab_size=rows)
        texts = (document.document for document in documents(self.task, self.data.split))
        extra = self.tokenizer_options.extra_ids
        return train_sentencepiece(texts, rows - extra, extra_ids=extra)

    def model(self, params: Any) -> Model:
        """A Model around ``params``, to generate with."""
        generation = {"max_new_tokens": self.evaluation.max_new_tokens}
        return Model(self.family, self.config, params, self.tokenizer, generation)

    def write_model_directory(self) -> None:
        """Config and tokenizer beside the checkpoints, so that ``longsum_jax.load(workdir)`` works from the start."""
        target = self.workdir / TRAINING_MODEL
        if jax.process_index() or (target.exists() and has_checkpoint(self.workdir)):
            return
        shutil.rmtree(target, ignore_errors=True)  # of a run that never came to a checkpoint
        generation = self.model(None).generation_config
        huggingface.write_model(target, self.family, self.config, None, generation, self.tokenizer)

    @cached_property
    def store(self) -> ExampleStore:
        """The training examples."""
        data = self.data
        if data.reader == "prepared":
            return PreparedExamples(data.prepared, self.tokenizer.fingerprint)
        if data.reader == "stream":
            return ExampleStream(self.task, self.tokenizer, data.split, data.shuffle_block, seed=self.training.seed)
        return load_examples(self.task, self.tokenizer, data.split, seed=self.training.seed)

    def batches(self) -> Batches:
        """This host's training batches."""
        data = self.data
        return Batches(
            self.store,
            batch_size=data.batch_size,
            source_lengths=data.source_lengths or (self.task.max_source_length,),
            target_length=self.task.max_target_length,
            seed=self.training.seed,
            shuffle={"all": "all", "block": data.shuffle_block, "none": None}[data.shuffle],
            epochs=data.epochs,
            host_index=jax.process_index(),
            host_count=jax.process_count(),
            pad_id=self.config.pad_token_id,
        )

    def loss_fn(self) -> LossFn:
        """Teacher-forced cross-entropy; also counts the tokens and the right next-token guesses."""
        module, config, smoothing = self.family.module_class(self.config), self.config, self.loss.label_smoothing

        def loss_fn(params: Any, batch: Mapping[str, Any], rng: Any, carry: Any) -> LossOutput:
            labels = batch["labels"]
            inputs = shift_right(labels, start_id=config.decoder_start_token_id, pad_id=config.pad_token_id)
            logits = module.apply(
                {"params": params},
                batch["input_ids"],
                batch["attention_mask"],
                inputs,
                deterministic=config.dropout_rate == 0,
                rngs={"dropout": rng},
            )
            loss_sum, weight = token_cross_entropy(logits, labels, label_smoothing=smoothing)
            right = (logits.argmax(-1) == labels).sum().astype(np.float32)
            tokens = batch["attention_mask"].sum().astype(np.float32) + weight
            return LossOutput(loss_sum, weight, carry, {"tokens": tokens, "right_tokens": right})

        return loss_fn

    @cached_property
    def evaluation_pairs(self) -> list[Pair]:
        """The documents that evaluation during training reads."""
        made = (
            (document.id, source_and_target(self.task, document, self.training.seed))
            for document in documents(self.task, self.evaluation.split)
        )
        kept = (Pair(id, *texts) for id, texts in made if texts is not None)
        pairs = list(itertools.islice(kept, self.evaluation.examples))
        if not pairs:
            where = f'task "{self.task.name}", split "{self.evaluation.split}"'
            raise InputError(f"{where}: no documents to evaluate on; name another split or evaluation.examples=0")
        return pairs

    @cached_property
    def baselines(self) -> dict[str, dict[str, float]]:
        return baseline_scores(self.evaluation_pairs, stemmer=self.evaluation.stemmer)

    def evaluate(self, model: Model) -> tuple[dict[str, float], list[Row]]:
        """ROUGE of the model and of the baselines on the evaluation pairs, and the predictions."""
        options = self.evaluation
        rows = predict(
            model,
            self.evaluation_pairs,
            batch_size=options.batch_size,
            stemmer=options.stemmer,
            max_source_length=self.task.max_source_length,
            max_new_tokens=options.max_new_tokens,
            num_beams=options.num_beams,
            no_repeat_ngram_size=options.no_repeat_ngram_size,
        )
        summary = summary_of(rows)
        scores = dict(summary["scores"])
        scores |= {f"{name}_{key}": value for name, made in self.baselines.items() for key, value in made.items()}
        scores["summary_tokens"] = summary["summary_tokens"]["mean"]
        scores["ended_by_limit"] = summary["ended_by_limit"]
        return scores, rows

    def evaluator(self) -> Callable[[Any, int], dict[str, float]] | None:
        """What ``fit`` calls; one model object throughout, so that generation compiles once per length."""
        if not self.evaluation.examples:
            return None
        _ = self.evaluation_pairs  # read now: missing data should not show after hours of training
        model = self.model(None)

        def evaluate(params: Any, step: int) -> dict[str, float]:
            model.params = params
            scores, rows = self.evaluate(model)
            self.last_evaluation = step, scores, rows
            return scores

        return evaluate


def _check_sections(config: Mapping[str, Any]) -> None:
    known = {"model", "task", "init_from", *SECTIONS}
    for name in config:
        if name not in known:
            raise InputError(f'config: unknown section "{name}"; {did_you_mean(name, known)}')
    for name in ("model", "task", "training"):
        if not isinstance(config.get(name), Mapping):
            raise InputError(f'config: the section "{name}" is missing; see configs/common.py')
