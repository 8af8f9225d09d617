"""Evaluates a trained model with the objective of a task, outside of its run."""

import dataclasses
from pathlib import Path
from typing import Any

from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import (
    DataOptions,
    EvaluationOptions,
    RunConfig,
)
from longsum_jax.experiment.objectives.base import Objective, Setup
from longsum_jax.experiment.objectives.registry import OBJECTIVES
from longsum_jax.schema import LARGEST
from longsum_jax.summarization.model import Model
from longsum_jax.training.loop import LoopOptions

_LABEL_HEADS = ("classification", "token_classification")


def objective_of(
    model: Model,
    task: Task,
    *,
    split: str,
    examples: int | None = None,
    batch_size: int = 1,
    max_source_length: int | None = None,
    seed: int = 0,
) -> Objective:
    """Returns the objective of a task for a trained model, with a split's documents read.

    Its ``evaluate`` takes the parameters of the model. Documents get the prefix
    with which the model was trained.

    Args:
        model: model with the head that the objective trains, and with a
            tokenizer.
        task: task to evaluate, with any objective except summarization.
        split: split of the task.
        examples: number of documents, taken from the start; None for all.
        batch_size: documents per forward pass.
        max_source_length: maximum tokens to read of a document (of a sentence
            for extraction, of a document with a choice for multiple choice);
            None for the model's number of positions, or its length in training.
        seed: random seed of masks and of random baselines.

    Raises:
        InputError: a model without the head, the labels or a tokenizer, or
            missing or invalid documents.
    """
    objective = OBJECTIVES[task.objective]
    _check_head(model, task, objective)
    if not model.has_tokenizer:
        raise InputError(
            "the model holds no tokenizer; add one with --tokenizer"
        )
    task = dataclasses.replace(
        task,
        prefix=model.summarization.get("prefix", ""),
        max_source_length=_source_length(model, task, max_source_length),
    )
    run = RunConfig(
        family=model.family,
        model=_with_label_names(model.config),
        task=task,
        training=LoopOptions(steps=1, seed=seed),
        data=DataOptions(split=split),  # the split for collecting labels
        evaluation=EvaluationOptions(
            split=split,
            examples=examples or LARGEST,
            batch_size=batch_size,
            seed=seed,
        ),
    )
    task, config = objective.resolve(run)
    _check_labels(model, task, config)
    setup = Setup(
        family=model.family,
        config=model.config,
        task=task,
        tokenizer=model.tokenizer,
        run=run,
        workdir=Path(),
        make_model=lambda: model,
    )
    made = objective(setup)
    made.read_evaluation()
    return made


def _check_head(model: Model, task: Task, objective: type[Objective]) -> None:
    if objective.head != model.config.head:
        raise InputError(
            f'task "{task.name}" is for the head "{objective.head}", but the model has '
            f'"{model.config.head}"; give a model that was trained on such a task'
        )


def _source_length(model: Model, task: Task, requested: int | None) -> int:
    """Returns the number of tokens to read.

    Raises:
        InputError: it exceeds the model's positions.
    """
    positions = getattr(model.config, "max_source_length", None)
    if requested is None:
        return _trained_length(model, task, positions)
    if positions is not None and requested > positions:
        raise InputError(
            f"max_source_length={requested}, but the model has positions for {positions}; lower it"
        )
    return requested


def _trained_length(model: Model, task: Task, positions: int | None) -> int:
    """Returns the length in tokens of documents, sentences or choices in the model's training."""
    if task.base_objective == "extract":
        return model.config.max_sentence_length
    if positions is None:
        return task.max_source_length
    # The document is repeated for each choice: using all positions would
    # multiply the work.
    if task.base_objective == "choose":
        return min(task.max_source_length, positions)
    return positions


def _with_label_names(config: Any) -> Any:
    """Returns a model config with named labels, numbered if they are not named.

    Otherwise, the labels would be collected from the documents.
    """
    if config.head not in _LABEL_HEADS or config.id2label:
        return config
    return dataclasses.replace(
        config, id2label=tuple(map(str, range(config.num_labels)))
    )


def _check_labels(model: Model, task: Task, config: Any) -> None:
    """Raises InputError unless the documents have the labels that the model was trained on."""
    for name in ("problem_type", "num_labels"):
        actual, expected = (
            getattr(x, name, None) for x in (config, model.config)
        )
        if actual != expected:
            raise InputError(
                f'task "{task.name}" has {name} {actual}, the model {expected}; give the task that '
                "it was trained on"
            )
