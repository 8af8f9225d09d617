"""The steps from a run's config to the arguments of ``training.loop.fit``.

In the order of execution:

    run_config                      typed config, each section checked separately (config.py)
    check_run, check_mesh           checks across sections, and of the devices
    make_experiment                 labels of the data, start model, tokenizer, objective, LoRA
    make_store, make_batches        training examples, read and batched
    with_run_length                 steps of the run, if limited by epochs
    make_evaluator                  evaluation documents
    initial_params                  parameters of the start model
    with_matrices                   the same with new matrices of LoRA
    write_model_directory           config.json and tokenizer, for ``load(workdir)``
    set_reference                   log-probabilities under a frozen reference model
    make_loss                       loss function
    write_adapter                   matrices of LoRA, after training
"""

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from longsum_jax.checkpoints import huggingface
from longsum_jax.checkpoints.directories import TRAINING_MODEL, load_config
from longsum_jax.checkpoints.lora import Lora
from longsum_jax.data.batches import Batches
from longsum_jax.data.examples.base import ExampleStore
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleList, ExampleStream, load_examples
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.base import Evaluation, Objective, Setup
from longsum_jax.experiment.objectives.penalties import with_span_penalty
from longsum_jax.experiment.objectives.registry import OBJECTIVES
from longsum_jax.experiment.packing import check_packing
from longsum_jax.experiment.untrained import UntrainedModel
from longsum_jax.layers.dense import LowRank, low_rank_updates
from longsum_jax.layers.layer_groups import parse_hybrid
from longsum_jax.models.heads import LabelOptions, label_names
from longsum_jax.models.registry import max_input_length
from longsum_jax.schema import first_names
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.training.checkpointing import restore_params
from longsum_jax.training.loss import (
    LossFn,
    SegmentedLoss,
    with_context,
    with_frozen,
)
from longsum_jax.training.mesh import check_batch_size, host_rows, make_mesh
from longsum_jax.training.workdir import has_checkpoint
from longsum_jax.typing import Array, Params

if TYPE_CHECKING:
    from longsum_jax.data.prepared import PreparedExamples
    from longsum_jax.experiment.warm_start import WarmStart
    from longsum_jax.inference.model import AuxiliaryModels

ADAPTER_DIRECTORY = "adapter"  # of a workdir


class Experiment(NamedTuple):
    """A run that is ready to read its data.

    Attributes:
        setup: family, model config, task, tokenizer and config of the run.
        objective: objective constructed from the setup.
        start: model of ``init_from``; None without one, and if the run resumes
            from a checkpoint.
        model: model of the run without its parameters.
        lora: matrices that are trained instead of the model; None without LoRA.
    """

    setup: Setup
    objective: Objective
    start: "WarmStart | None"
    model: UntrainedModel
    lora: Lora | None = None

    @property
    def auxiliary(self) -> "AuxiliaryModels | None":
        """The extractor and the sentence encoder of the task; None for none."""
        return self.model.auxiliary

    @property
    def init(self) -> Callable[[Array], Any]:
        """The function from a PRNG key to all parameters, boxed with their axes."""
        init = self.setup.family.init_params(self.setup.config)
        if self.lora is None:
            return init
        return self.lora.with_matrices(init)

    @property
    def parameter_axes(self) -> dict[str, tuple[str | None, ...]]:
        """The logical names of the axes of all parameters by path."""
        axes = self.setup.family.parameter_axes(self.setup.config)
        if self.lora is None:
            return axes
        return axes | self.lora.axes


def check_run(run: RunConfig) -> None:
    """Raises InputError unless the sections of a config are consistent."""
    objective = OBJECTIVES[run.task.objective]
    if objective.head not in run.model.heads:
        raise InputError(
            f'config.task.objective "{run.task.objective}" trains the head "{objective.head}", but '
            f'config.model.family "{run.family.name}" has {", ".join(run.model.heads)}; change '
            "either"
        )
    if (
        getattr(run.model, "has_memory", False)
        and run.task.base_objective != "summarize_segments"
    ):
        raise InputError(
            f'config.model has a memory, which config.task.objective "{run.task.objective}" would '
            'never fill; train "summarize_segments", or leave memory and salient_vectors out'
        )
    _check_lengths(run, objective)
    check_packing(run, objective)
    if run.data.reader == "prepared" and not run.data.prepared:
        raise InputError(
            'config.data.prepared is empty; data.reader="prepared" needs a directory that '
            "longsum prepare wrote"
        )
    best, metrics = run.training.best_metric, objective.ranking(run)
    if run.evaluation.examples and best not in metrics:
        raise InputError(
            f'config.training.best_metric: evaluation gives no "{best}"; '
            f"{did_you_mean(best, metrics)}"
        )
    if run.training.early_stopping_patience and not run.evaluation.examples:
        raise InputError(
            f"config.training.early_stopping_patience={run.training.early_stopping_patience} "
            "needs evaluations; give evaluation.examples"
        )
    if run.data.reader == "stream" and run.data.shuffle == "all":
        raise InputError(
            'config.data.shuffle is "all", which a stream cannot do; give "block" or "none"'
        )
    if run.data.reader == "stream" and run.task.base_objective == "prefer":
        raise InputError(
            'config.data.reader is "stream", but the reference model of the objective "prefer" '
            'reads all pairs before training; give "memory" or "prepared"'
        )


def _check_lengths(run: RunConfig, objective: type[Objective]) -> None:
    """Raises InputError if texts are longer than the model's positions or Linformer projection."""
    # Positions begin again in every pair of a packed row.
    has_buckets = not (objective.parts or run.data.pack)
    buckets = run.data.source_lengths if has_buckets else ()
    longest = {
        "max_source_length": max(run.task.max_source_length, *buckets, 0)
    }
    if objective.head == "language_model":
        longest["max_target_length"] = run.task.max_target_length
    for name, length in longest.items():
        positions = getattr(run.model, name, None)
        if positions is not None and length > positions:
            raise InputError(
                f"config.task.{name} (or a bucket of data.source_lengths) is {length}, but the "
                f"model has positions for {positions}; lower it, or lengthen the model: convert "
                "--max_source_length"
            )
    limit = max_input_length(run.model)
    source_length = longest["max_source_length"]
    if limit is not None and source_length > limit:
        raise InputError(
            f"config.task.max_source_length (or a bucket of data.source_lengths) is "
            f"{source_length}, but the Linformer projection has weights for {limit}; lower it, or "
            "raise config.model.linformer_max_length or cross_linformer_max_length"
        )


def check_mesh(
    run: RunConfig, devices: Sequence[jax.Device] | None = None
) -> None:
    """Raises InputError unless the mesh divides devices, batch size and S4D channels.

    The rows of ``data.pack`` must not be split along the sequence.

    Args:
        run: config of the run.
        devices: devices of the mesh; None for all of the process.
    """
    mesh = make_mesh(run.mesh, devices)
    check_batch_size(run.data.batch_size, mesh, run.training.accumulation)
    attentions = dict(parse_hybrid(run.model.encoder_attention))
    num_shards = mesh.shape["sequence"]
    if "s4d" in attentions and run.model.d_model % num_shards:
        raise InputError(
            f"config.model.d_model is {run.model.d_model}, which does not divide over "
            f"mesh.sequence={num_shards}; change either"
        )
    if run.data.pack and num_shards > 1:
        raise InputError(
            f"config.data.pack does not work with mesh.sequence={num_shards}, which splits the "
            "rows; leave it out, or give mesh.sequence=1"
        )


def make_experiment(run: RunConfig, workdir: str | Path) -> Experiment:
    """Makes everything for training except the examples and the parameters.

    Args:
        run: config from ``run_config``, checked by ``check_run``.
        workdir: directory of the run; a resumed run reuses the tokenizer in it.

    Raises:
        InputError: labels, a start model or a tokenizer that are unsuitable, or
            that differ from the start of the run.
    """
    workdir = Path(workdir)
    objective = OBJECTIVES[run.task.objective]
    task, config = objective.resolve(run)
    config = with_start_dropouts(
        run, config, workdir if has_checkpoint(workdir) else run.init_from
    )
    start = _warm_start(run, config, workdir)
    tokenizer = _tokenizer(run, start, workdir)
    if has_checkpoint(workdir):
        _check_continued(run, config, tokenizer, workdir)
    generation_config = _generation_config(run, start, workdir)
    # An empty prefix disables the chat template, which training does not use.
    has_prefix = task.prefix or tokenizer.chat_template is not None
    if has_prefix:
        summarization = {"prefix": task.prefix}
    else:
        summarization = {}
    summarization |= objective.summarization(task)
    model = UntrainedModel(
        run.family,
        config,
        tokenizer,
        generation_config,
        summarization,
        objective.auxiliary_models(task),
    )
    setup = Setup(
        run.family, config, task, tokenizer, run, workdir, model.make_model
    )
    lora = make_lora(setup, start)
    return Experiment(setup, objective(setup), start, model, lora)


def make_lora(setup: Setup, start: "WarmStart | None") -> Lora | None:
    """Returns the matrices of LoRA; None if the run does not train them.

    Raises:
        InputError: targets that the model does not have, or a start model
            without some parameters, such as a head for other labels, which
            would never be trained.
    """
    if setup.run.training.train != "lora":
        return None
    if start is not None and start.fresh:
        raise InputError(
            'config.training.train="lora" trains no new parameters, but '
            f"{setup.run.init_from} has no {first_names(start.fresh)} for this task; give a run "
            'that trained them, such as one with config.training.train="^head/"'
        )
    return Lora(setup.family, setup.config, setup.run.lora)


def with_start_dropouts(run: RunConfig, config: Any, start: str | Path) -> Any:
    """Returns ``config`` with the start model's dropout rates if the run's config has None."""
    names = [
        name
        for name, value in run.description.get("model", {}).items()
        if value is None and "dropout" in name
    ]
    if not start or not names:
        return config
    family, start_config = load_config(start)
    if family is not run.family:
        return config  # comparing the parameters raises the error
    return dataclasses.replace(
        config, **{name: getattr(start_config, name) for name in names}
    )


def _warm_start(
    run: RunConfig, config: Any, workdir: Path
) -> "WarmStart | None":
    """Returns the model of ``init_from``; None if the run has a checkpoint, which replaces it."""
    if not run.init_from or has_checkpoint(workdir):
        return None
    # Imported here, because it imports all that loads a model.
    from longsum_jax.experiment.warm_start import WarmStart

    return WarmStart(
        run.init_from,
        run.family,
        config,
        run.training.seed,
        draws_attention=run.init_fresh == "encoder_attention",
    )


def _tokenizer(
    run: RunConfig, start: "WarmStart | None", workdir: Path
) -> Tokenizer:
    """Returns the tokenizer of the config, the run or its start, or trains one on the documents."""
    vocab_size = run.model.vocab_size
    if run.tokenizer.path:
        return load_tokenizer(run.tokenizer.path, vocab_size=vocab_size)
    if has_checkpoint(workdir):
        return load_tokenizer(workdir / TRAINING_MODEL, vocab_size=vocab_size)
    if start is not None:
        return start.tokenizer
    # Imported here, because only runs without one train a tokenizer.
    from longsum_jax.tokenizers.train import train_sentencepiece

    texts = (
        document.document for document in documents(run.task, run.data.split)
    )
    extra_ids = run.tokenizer.extra_ids
    num_pieces = vocab_size - extra_ids
    return train_sentencepiece(
        texts, num_pieces, extra_ids=extra_ids, rows=vocab_size
    )


def _check_continued(
    run: RunConfig, config: Any, tokenizer: Tokenizer, workdir: Path
) -> None:
    """Raises InputError unless ids and labels have the same meaning as at the start of the run."""
    model = workdir / TRAINING_MODEL
    _, began = load_config(model)
    if run.tokenizer.path:  # otherwise it is loaded from the run
        began_with = load_tokenizer(
            model, vocab_size=began.vocab_size
        ).fingerprint
        if tokenizer.fingerprint != began_with:
            raise InputError(
                f"config.tokenizer.path is {run.tokenizer.path}, another tokenizer "
                f"({tokenizer.fingerprint}) than at the start of the run in {workdir} "
                f"({began_with}); give {model}, or another --workdir"
            )
    if not isinstance(config, LabelOptions):
        return
    labels, began_labels = label_names(config), label_names(began)
    if labels != began_labels:
        raise InputError(
            f"the labels are {first_names(labels)}, but the run in {workdir} began with "
            f"{first_names(began_labels)}; give these in this order (task.labels), or another "
            "--workdir"
        )


def _generation_config(
    run: RunConfig, start: "WarmStart | None", workdir: Path
) -> dict[str, Any]:
    """Returns the generation options of the trained model."""
    if has_checkpoint(workdir):
        return huggingface.read_generation_config(workdir / TRAINING_MODEL)
    if start is None:
        return run.evaluation.generation()
    return generation_options(run, start.generation_config, start.summarization)


def generation_options(
    run: RunConfig,
    generation_config: Mapping[str, Any],
    summarization: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the generation options of a run: the start model's, overridden by its own.

    Args:
        run: config with overrides in the section "evaluation".
        generation_config: general options of the start model.
        summarization: options of the start model for summaries, which override
            the general ones.
    """
    options = huggingface.summary_generation_config(
        generation_config, summarization
    )
    if run.evaluation.max_new_tokens is not None:
        # The lengths of the start model are specific to its data.
        for name in ("max_length", "min_length", "min_new_tokens"):
            options.pop(name, None)
    return options | run.evaluation.generation()


def make_store(experiment: Experiment) -> ExampleStore:
    """Reads the training examples, or opens their stream or prepared directory.

    Raises:
        InputError: missing or invalid documents, or examples without a training
            signal; for a stream, both are raised while it is read.
    """
    setup = experiment.setup
    data, seed = setup.run.data, setup.run.training.seed
    store: ExampleList | PreparedExamples
    auxiliary = experiment.model.auxiliary_functions()
    if data.reader == "stream":
        return ExampleStream(
            setup.task,
            setup.tokenizer,
            data.split,
            data.shuffle_block,
            seed=seed,
            auxiliary=auxiliary,
        )
    if data.reader == "prepared":
        store = _open_prepared(experiment)
    else:
        options: dict[str, Any] = {"seed": seed, "auxiliary": auxiliary}
        store = load_examples(
            setup.task, setup.tokenizer, data.split, **options
        )
        auxiliary.release()
    if store.counts.unlabelled and len(store) == store.counts.unlabelled:
        raise InputError(
            f'split "{data.split}": none of {len(store)} examples has its answer in the text '
            f"that is read; raise task.max_source_length={setup.task.max_source_length}"
        )
    return experiment.objective.training_examples(store)


def _open_prepared(experiment: Experiment) -> "PreparedExamples":
    """Opens prepared examples, after checking that they match the run."""
    # Imported here, because other readers of examples do not need it.
    from longsum_jax.data.prepared import PreparedExamples

    setup = experiment.setup
    store = PreparedExamples(
        setup.run.data.prepared, setup.tokenizer.fingerprint
    )
    auxiliary = experiment.auxiliary
    fingerprints = {} if auxiliary is None else auxiliary.fingerprints()
    store.check_task(setup.task, setup.run.data.split, fingerprints)
    if setup.task.base_objective == "summarize_segments":
        store.check_content()
    return store


def make_batches(experiment: Experiment, store: ExampleStore) -> Batches:
    """Returns this host's training batches."""
    setup, objective = experiment.setup, experiment.objective
    data = setup.run.data
    shuffles: dict[str, Any] = {
        "all": "all",
        "block": data.shuffle_block,
        "none": None,
    }
    return Batches(
        store,
        batch_size=data.batch_size,
        batch_by_tokens=data.batch_by_tokens,
        source_lengths=objective.source_lengths,
        **objective.batch_options(),
        seed=setup.run.training.seed,
        shuffle=shuffles[data.shuffle],
        epochs=data.epochs,
        host_rows=host_rows(make_mesh(setup.run.mesh)),
        pad_id=setup.config.pad_token_id,
    )


def with_run_length(run: RunConfig, batches: Batches) -> RunConfig:
    """Returns the run with its number of steps, if limited by ``data.epochs``.

    A schedule that ends with the run (``optimizer.total_steps`` None) gets the
    same number.

    Raises:
        InputError: such a schedule with the epochs of a stream or of packed
            rows, whose numbers of batches are unknown.
    """
    steps = run.training.steps
    if run.data.epochs is not None:
        per_epoch = batches.batches_per_epoch
        if per_epoch is not None:
            steps = min(steps, run.data.epochs * per_epoch)
        elif run.optimizer.decays and run.optimizer.total_steps is None:
            raise InputError(
                "config.optimizer.total_steps is not set, and the number of steps in "
                f"data.epochs={run.data.epochs} of a stream or of packed rows is unknown before "
                'their end; give it, or data.reader="memory" or "prepared" without data.pack'
            )
    training = dataclasses.replace(run.training, steps=steps)
    return dataclasses.replace(
        run, training=training, optimizer=run.optimizer.for_run(steps)
    )


def count_held_out(task: Task) -> int:
    """Returns the number of documents in the task's files that are excluded from training."""
    # the others are equal
    split = next(split for split in task.splits if split != "train")
    return sum(1 for _ in documents(task, split))


class Evaluator:
    """The evaluation function of a run, which caches its last result.

    Raises:
        InputError: there are no evaluation documents. Raised on construction,
            not during training.
    """

    def __init__(self, objective: Objective, lora: Lora | None = None) -> None:
        objective.read_evaluation()
        self._objective = objective
        self._lora = lora
        self._last: tuple[int, Evaluation] | None = None

    def __call__(self, params: Params, step: int) -> dict[str, float]:
        """Returns the scores of the parameters of ``step``."""
        return self._evaluate(step, params).scores

    @property
    def last(self) -> Evaluation | None:
        """The last evaluation; None before the first."""
        return None if self._last is None else self._last[1]

    def at(self, step: int, params: Params) -> Evaluation:
        """Returns the evaluation of ``step``, computed unless it was the last one."""
        if self._last is not None and self._last[0] == step:
            return self._last[1]
        return self._evaluate(step, params)

    def _evaluate(self, step: int, params: Params) -> Evaluation:
        if self._lora is not None:
            params = self._lora.merged(params)
        evaluation = self._objective.evaluate(params)
        self._last = step, evaluation
        return evaluation


def make_evaluator(experiment: Experiment) -> Evaluator | None:
    """Reads the evaluation documents; None if the run has no evaluation."""
    if not experiment.setup.run.evaluation.examples:
        return None
    return Evaluator(experiment.objective, experiment.lora)


def initial_params(experiment: Experiment) -> Params | None:
    """Returns the start model's parameters; None for random ones or the last checkpoint's."""
    if experiment.start is None:
        return None
    return experiment.start.params


def with_matrices(
    experiment: Experiment, params: Params | None
) -> Params | None:
    """Returns the result of ``initial_params`` with new matrices of LoRA."""
    if params is None or experiment.lora is None:
        return params
    return experiment.lora.added_to(params, experiment.setup.run.training.seed)


def write_adapter(experiment: Experiment) -> Path | None:
    """Writes the matrices of the best checkpoint to the workdir, in PEFT's layout.

    Returns:
        The directory; None without LoRA, and in runs of several processes,
        of which a single one cannot read a checkpoint.
    """
    setup = experiment.setup
    if experiment.lora is None or jax.process_count() > 1:
        return None
    target = setup.workdir / ADAPTER_DIRECTORY
    params = restore_params(setup.workdir)
    experiment.lora.write(target, params, setup.run.init_from)
    return target


def write_model_directory(experiment: Experiment) -> None:
    """Writes config and tokenizer next to the checkpoints, for ``load(workdir)``."""
    setup = experiment.setup
    target = setup.workdir / TRAINING_MODEL
    if jax.process_index() or (
        target.exists() and has_checkpoint(setup.workdir)
    ):
        return
    # left by a run that never wrote a checkpoint
    shutil.rmtree(target, ignore_errors=True)
    model, start = experiment.model, experiment.start
    if start is not None and "segments" in start.summarization:
        # Of the start model's summarization settings, only "segments" is
        # inherited. Lengths and other generation options come from this run's
        # evaluation.
        if "segments" not in model.summarization:
            model = dataclasses.replace(model, auxiliary=start.auxiliary)
        segments = {"segments": start.summarization["segments"]}
        model = dataclasses.replace(
            model, summarization=segments | model.summarization
        )
    model.write(target)


def set_reference(
    experiment: Experiment, store: ExampleStore, initial_params: Params | None
) -> None:
    """Adds the log-probabilities under the reference model to preference examples.

    The reference is the initial model of the run. Other objectives do not use
    one.

    Args:
        experiment: experiment of the run.
        store: training examples of the run.
        initial_params: parameters of the start model, see ``initial_params``.

    Raises:
        InputError: the run is resumed with another reference than at its start.
    """
    run, objective = experiment.setup.run, experiment.objective
    if not objective.has_reference:
        return
    if experiment.start is not None:
        weights = experiment.start.fingerprint
    elif run.init_from:
        # Imported here, because it imports all that loads a model.
        from longsum_jax.experiment.warm_start import fingerprint

        weights = fingerprint(run.init_from)
    else:
        weights = f"random, seed {run.training.seed}"
    objective.set_reference(store, weights, initial_params)


def make_loss(experiment: Experiment) -> LossFn | SegmentedLoss:
    """Returns the objective's loss plus the model's penalties, without gradients of frozen
    parameters.
    """
    setup = experiment.setup
    loss_fn = with_span_penalty(experiment.objective.loss_fn(), setup.config)
    if experiment.lora is not None:
        options = setup.run.lora
        low_rank = LowRank(options.scale, options.dropout)
        loss_fn = with_context(loss_fn, lambda: low_rank_updates(low_rank))
    return with_frozen(loss_fn, setup.run.training.trained)
