"""Evaluation of a trained model by the objective of a task, away from its run."""

import dataclasses
from pathlib import Path
from typing import Any

from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import DataOptions, EvaluationOptions, RunConfig
from longsum_jax.experiment.objectives.base import Objective, Setup
from longsum_jax.experiment.objectives.registry import OBJECTIVES
from longsum_jax.inference.model import Model
from longsum_jax.schema import LARGEST
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
    """Returns the objective of a task for a trained model, with the documents of a split read.

    Its ``evaluate`` takes the parameters of the model. Documents get the prefix that the model was
    trained with.

    Args:
        model: with the head that the objective trains, and a tokenizer.
        task: what it is scored on; any but those that make summaries.
        split: of the task.
        examples: the first documents alone; None for all.
        batch_size: documents that go through the model together.
        max_source_length: tokens that are read of a document (of a sentence to extract, of a
            document with a choice); None for as many as the model has positions for, or was trained
            with.
        seed: of masks, and of baselines that are drawn.

    Raises:
        InputError: a model without the head, the labels or a tokenizer, or documents that are
            missing or do not fit.
    """
    objective = OBJECTIVES[task.objective]
    _check_head(model, task, objective)
    if not model.has_tokenizer:
        raise InputError("the model holds no tokenizer; add one with --tokenizer")
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
        data=DataOptions(split=split),  # where labels are looked up
        evaluation=EvaluationOptions(
            split=split, examples=examples or LARGEST, batch_size=batch_size, seed=seed
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
        make_model=lambda _: model,
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


def _source_length(model: Model, task: Task, wanted: int | None) -> int:
    """Returns how many tokens are read.

    Raises:
        InputError: more than the model has positions for.
    """
    positions = getattr(model.config, "max_source_length", None)
    if wanted is None:
        return _trained_length(model, task, positions)
    if positions is not None and wanted > positions:
        raise InputError(
            f"max_source_length={wanted}, but the model has positions for {positions}; lower it"
        )
    return wanted


def _trained_length(model: Model, task: Task, positions: int | None) -> int:
    """Returns how many tokens of a document, a sentence or a choice the model is used to."""
    if task.objective == "extract":
        return model.config.max_sentence_length
    if positions is None:
        return task.max_source_length
    # A document stands beside each of its choices: all positions would be several times the work.
    return min(task.max_source_length, positions) if task.objective == "choose" else positions


def _with_label_names(config: Any) -> Any:
    """Returns a model config whose labels have names; numbers, where it has none.

    Otherwise the labels would be those that the documents happen to have.
    """
    if config.head not in _LABEL_HEADS or config.id2label:
        return config
    return dataclasses.replace(config, id2label=tuple(map(str, range(config.num_labels))))


def _check_labels(model: Model, task: Task, config: Any) -> None:
    """Raises InputError unless documents are labeled as those that the model was trained on."""
    for name in ("problem_type", "num_labels"):
        found, known = (getattr(x, name, None) for x in (config, model.config))
        if found != known:
            raise InputError(
                f'task "{task.name}" has {name} {found}, the model {known}; give the task that it '
                "was trained on"
            )
