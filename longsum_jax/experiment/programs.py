"""A run's programs as functions of shapes only, for any devices, to be compiled but not run."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.stages import Lowered

from longsum_jax.checkpoints.directories import load_generation
from longsum_jax.checkpoints.lora import without_matrices
from longsum_jax.decoding.options import GenerationOptions, of_whole_texts
from longsum_jax.experiment import experiment as steps
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import Objective, Setup
from longsum_jax.experiment.objectives.registry import OBJECTIVES
from longsum_jax.experiment.untrained import UntrainedModel
from longsum_jax.inference.abstract import summary_programs
from longsum_jax.inference.kernel_cache import MAX_KERNEL_CACHE_BYTES
from longsum_jax.inference.padding import input_length
from longsum_jax.models.registry import max_input_length
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.training.loop import initialization_key
from longsum_jax.training.loss import SegmentedLoss, document_loss
from longsum_jax.training.mesh import BATCH_AXES, MeshJit, activate, make_mesh
from longsum_jax.training.optimizers import make_optimizer
from longsum_jax.training.state import TrainState, plan_state, shardings_of
from longsum_jax.training.step import make_train_step
from longsum_jax.typing import NumpyBatch
from longsum_plan.program import AbstractProgram


def run_programs(
    run: RunConfig, devices: Sequence[jax.Device]
) -> Iterator[AbstractProgram]:
    """Yields the programs that a run compiles, for its longest bucket.

        train       one update
        loss        the loss of one micro-batch without gradients
        read        encodes documents to summarize in an evaluation, and computes their keys
        search      the search for their summaries

    The last two exist for models with a decoder that read documents in one
    input. No array is created, and documents are only read to collect the names
    of their labels.

    Args:
        run: config from ``run_config``.
        devices: devices of the mesh.

    Raises:
        InputError: config sections that do not fit together or the devices, or
            a missing start model from which the config takes dropout rates or
            options for summaries.
    """
    steps.check_run(run)
    steps.check_mesh(run, devices)
    mesh = make_mesh(run.mesh, devices)
    objective = _objective(run, devices)
    schedule = run.optimizer.for_run(run.training.steps)
    lora = steps.make_lora(objective.setup, None)
    setup = objective.setup
    model = UntrainedModel(setup.family, setup.config, setup.tokenizer)
    experiment = steps.Experiment(setup, objective, None, model, lora)
    optimizer = make_optimizer(
        schedule, experiment.parameter_axes, run.training.trained
    )
    init = experiment.init
    rng = initialization_key(run.training.seed)
    state, _ = plan_state(init, optimizer, mesh, run.mesh.rules, rng)
    loss_fn = steps.make_loss(experiment)
    accumulation = run.training.accumulation
    train_step = make_train_step(
        loss_fn,
        optimizer,
        accumulation=accumulation,
        seed=run.training.seed,
        shardings=shardings_of(state),
    )
    batch = objective.empty_batch(run.data.batch_size)
    parts = {"parameters": state.params, "optimizer": state.opt_state}
    on_mesh = partial(_lower, mesh, run)
    segments = run.task.max_parts if objective.parts else 1
    lower = partial(on_mesh, train_step, state, _on_mesh(batch, mesh))
    yield AbstractProgram("train", lower, parts, segments)

    parts = {"parameters": state.params}
    part = _on_mesh(
        objective.empty_batch(run.data.batch_size // accumulation), mesh
    )
    if isinstance(loss_fn, SegmentedLoss):
        whole = document_loss(loss_fn)
    else:
        whole = loss_fn
    key = jax.eval_shape(partial(jax.random.key, 0))
    lower = partial(on_mesh, MeshJit(whole), state.params, part, key)
    yield AbstractProgram("loss", lower, parts, idle=state.opt_state)
    if objective.head == "language_model" and not objective.parts:
        # Evaluations merge the matrices of LoRA into the other parameters.
        merged = dataclasses.replace(
            state, params=without_matrices(state.params)
        )
        yield from _evaluation_programs(run, objective, mesh, merged)


def evaluation_length(run: RunConfig) -> int:
    """Returns the maximum tokens that evaluations read of a document, according to the config.

    Whole documents, ``evaluation.max_source_length=0``, are as long as the
    model's positions; for a model without a limit, they are assumed to be as
    long as in training.
    """
    length = run.evaluation.max_source_length
    if length == 0:
        length = max_input_length(run.model)
    return length or run.task.max_source_length


def _objective(run: RunConfig, devices: Sequence[jax.Device]) -> Objective:
    """Returns the objective of a run, with a placeholder tokenizer."""
    objective = OBJECTIVES[run.task.objective]
    task, config = objective.resolve(run)
    config = steps.with_start_dropouts(run, config, run.init_from)
    tokenizer = ByteTokenizer(extra_ids=1)
    setup = Setup(
        run.family, config, task, tokenizer, run, Path(), _no_model, devices
    )
    return objective(setup)


def _no_model() -> Any:
    raise RuntimeError("programs are planned without a model to generate with")


def _evaluation_programs(
    run: RunConfig, objective: Objective, mesh: Mesh, state: TrainState
) -> Iterator[AbstractProgram]:
    config, evaluation = objective.setup.config, run.evaluation
    if run.init_from:
        started = load_generation(run.init_from)
    else:
        started = ({}, {})
    stored = run.family.generation_config(
        config, steps.generation_options(run, *started)
    )
    options = GenerationOptions.from_config(stored)
    with activate(mesh, run.mesh.rules):
        generator = summary_programs(
            run.family.module_class(config),
            state.params,
            batch_size=evaluation.batch_size,
            length=input_length(config, evaluation_length(run)),
            options=of_whole_texts(
                options, evaluation.generation(), "whole documents"
            ),
            kernel_bytes=MAX_KERNEL_CACHE_BYTES,
        )
        programs = list(generator)
    for program in programs:
        idle = program.idle, state.opt_state
        yield program._replace(
            lower=partial(_inside, mesh, run, program.lower), idle=idle
        )


def _lower(mesh: Mesh, run: RunConfig, jitted: Any, *arguments: Any) -> Lowered:
    return _inside(mesh, run, partial(jitted.lower, *arguments))


def _inside(
    mesh: Mesh, run: RunConfig, lower: Callable[[], Lowered]
) -> Lowered:
    with activate(mesh, run.mesh.rules):
        return lower()


def _on_mesh(batch: NumpyBatch, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    sharding = NamedSharding(mesh, P(BATCH_AXES))
    return {
        name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
        for name, x in batch.items()
    }
