"""longsum train: pre-trains or fine-tunes a model, or resumes a run."""

import contextlib
import os
from collections.abc import Sequence, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console, flags, tuning
from longsum_jax.errors import counted

if TYPE_CHECKING:
    import argparse

    import jax

    from longsum_jax.data.examples.base import ExampleStore
    from longsum_jax.experiment.config import RunConfig
    from longsum_jax.experiment.experiment import Evaluator, Experiment
    from longsum_jax.training.loop import FitResult

EXAMPLES = """\
  # a small model in minutes on a laptop, from tokenizer to summary, without downloads
  python -m longsum_jax.train --config=configs/quickstart.py --workdir=runs/quickstart

  # gap-sentence pre-training on C4 with the published configuration, on all devices
  python -m longsum_jax.train --config=configs/locost_c4.py --workdir=runs/c4 \\
      --config.tokenizer.path=spiece.model --config.mesh.preset=fsdp --config.mesh.fsdp=8

  # fine-tune a published checkpoint on your own reports
  python -m longsum_jax.train --config=configs/locost_finetune.py:govreport \\
      --workdir=runs/reports --config.init_from=locost-base \\
      --config.task.source='json:reports/{split}.jsonl'

If started again, the same command continues from the last checkpoint in --workdir. SIGTERM and
Ctrl-C save a checkpoint before exiting.
"""
_SIGNALS = ("SIGTERM", "SIGINT")


def main(argv: Sequence[str]) -> int:
    """Trains as configured; returns 0 when done, --stopped_exit_code when stopped by a
    signal, 1 if training diverged.
    """
    from longsum_jax.experiment.config_files import read_config, split_overrides

    rest, overrides = split_overrides(argv)
    args = _parser().parse_args(rest)
    config = read_config(args.config, overrides)
    _pin_source(config, args.workdir)
    config = tuning.keep_choice(config, args.workdir)

    from longsum_jax.experiment.config import run_config
    from longsum_jax.ops.platform import require_devices
    from longsum_jax.training.distributed import require_agreement
    from longsum_jax.training.reporter import TrainingDiverged
    from longsum_jax.training.workdir import check_workdir

    if not args.dry_run:
        check_workdir(args.workdir, config)
    _join_hosts(args)
    require_devices()
    require_agreement(config, "config")
    if args.dry_run:
        _dry_run(run_config(config))
        return 0
    config = tuning.choose(config, args.workdir, _say)
    try:
        with console.memory_errors(console.TRAINING_ADVICE):
            result = _train(
                run_config(config), args.workdir, args.debug_nans, args.profile
            )
    except TrainingDiverged as error:
        console.print_stderr(f"error: {error}")
        return 1
    if result.stopped_by in _SIGNALS:
        return args.stopped_exit_code
    return 0


def _pin_source(config: dict[str, Any], workdir: str) -> None:
    """Sets the commits of data sets of the Hub in ``task.source``, for the run's record.

    A resumed run uses the commits with which it began.
    """
    source = config.get("task", {}).get("source") or ""
    if "hf:" not in source:
        return
    from longsum_jax.data.hub_source import pin_source
    from longsum_jax.files import read_json

    record = Path(workdir) / "run.json"
    began = read_json(record) if record.exists() else {}
    earlier = began.get("task", {}).get("source") or ""
    config["task"]["source"] = pin_source(source, earlier)


def _dry_run(run: "RunConfig") -> None:
    from longsum_jax.commands.plan import dry_run_training

    dry_run_training(run)


def _check_memory(compiled: "jax.stages.Compiled") -> None:
    from longsum_jax.ops.device_memory import check_memory

    advice = f"{console.TRAINING_ADVICE}; longsum plan finds a change that fits"
    check_memory(compiled, "a training step", advice)


def _train(
    run: "RunConfig", workdir: str, debug_nans: bool, profile: int
) -> "FitResult":
    from longsum_jax.commands.run_record import RunRecord
    from longsum_jax.data.prefetch import Prefetcher
    from longsum_jax.experiment import experiment as steps
    from longsum_jax.experiment.config_files import with_micro_batches
    from longsum_jax.experiment.operations import (
        PROFILE,
        StepOperations,
        StepProfiler,
    )
    from longsum_jax.training.distributed import require_agreement
    from longsum_jax.training.loop import fit
    from longsum_jax.training.optimizers import make_optimizer
    from longsum_jax.training.trackers import require_packages
    from longsum_jax.training.workdir import locked_workdir

    # The model, the task and the data. Input errors are raised here, before
    # anything is written.
    steps.check_run(run)
    # The description is without the change: a resume may have other devices.
    description = run.description
    run = with_micro_batches(run, _say)
    steps.check_mesh(run)
    require_packages(run.training)
    with console.spinner("reading documents"):
        experiment = steps.make_experiment(run, workdir)
        store = steps.make_store(experiment)
        batches = steps.make_batches(experiment, store)
        run = steps.with_run_length(run, batches)
        evaluator = steps.make_evaluator(experiment)
    record = RunRecord(experiment, run, evaluator, store)
    operations = StepOperations.of_devices(keeps_texts=profile > 0)
    fingerprint = experiment.setup.tokenizer.fingerprint
    size = _describe_size(experiment, store)
    require_agreement({"tokenizer": fingerprint, "examples": size}, "data")
    initial_params = steps.initial_params(experiment)
    _announce(experiment, run, size, _num_done(workdir))

    # Training
    optimizer = make_optimizer(
        run.optimizer, experiment.parameter_axes, run.training.trained
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked_workdir(workdir, description))
        record.begin()
        steps.write_model_directory(experiment)
        steps.set_reference(experiment, store, initial_params)
        prefetched = stack.enter_context(Prefetcher(batches, run.data.prefetch))
        hooks = []
        if profile:
            directory = Path(workdir) / PROFILE
            profiler = StepProfiler(directory, profile, operations)
            hooks.append(stack.enter_context(profiler))
        result = fit(
            loss_fn=steps.make_loss(experiment),
            init=experiment.init,
            optimizer=optimizer,
            batches=prefetched,
            options=run.training,
            workdir=workdir,
            mesh_options=run.mesh,
            run=description,
            model_name=run.family.name,
            evaluate=evaluator,
            initial_params=steps.with_matrices(experiment, initial_params),
            hooks=hooks,
            evaluation_hooks=[record],
            check_program=_check_memory,
            count_seconds=operations,
            debug_nans=debug_nans,
            clip_norm=run.optimizer.clip_norm,
        )

    # The report
    record.write_pages()
    _report(experiment, evaluator, result)
    return result


def _parser() -> "argparse.ArgumentParser":
    parser = console.parser(
        "train",
        "Trains a model from a config file, or resumes its training.",
        EXAMPLES,
    )
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE[:MODE][,KEY=VALUE...]",
        help="config file, such as configs/finetune.py",
    )
    parser.add_argument(
        "--workdir",
        required=True,
        help="directory of the run: checkpoints, metrics.jsonl, report.html, tokenizer",
    )
    parser.add_argument(
        "--config.KEY",
        dest="ignored",
        metavar="VALUE",
        help="new value of a config key; default: the config's",
    )
    parser.add_argument(
        "--debug_nans",
        action="store_true",
        help="stop at the first step that is not finite, and name the first tensor that is not",
    )
    parser.add_argument(
        "--profile",
        type=int,
        default=0,
        metavar="STEPS",
        help="profile this many steps after the first: a trace, and profile/operations.md with "
        "the ten most expensive operations, in --workdir; default: 0, for none",
    )
    parser.add_argument(
        "--stopped_exit_code",
        type=int,
        default=0,
        metavar="N",
        help="exit code after SIGTERM or Ctrl-C; use 75, for example, with schedulers "
        "that restart only failed jobs; default: 0",
    )
    flags.add_dry_run_flag(parser)
    _add_host_flags(parser)
    return parser


def _add_host_flags(parser: "argparse.ArgumentParser") -> None:
    group = parser.add_argument_group(
        "several processes (defaults are detected on TPUs, under Slurm and Open MPI)"
    )
    group.add_argument(
        "--distributed",
        choices=("auto", "on", "off"),
        default="auto",
        help="connection with other processes: if the environment describes them (auto), always "
        "(on) or never (off); default: auto",
    )
    group.add_argument(
        "--coordinator", metavar="HOST:PORT", help="address of process 0"
    )
    group.add_argument(
        "--num_processes",
        type=int,
        metavar="N",
        help="total number of processes",
    )
    group.add_argument(
        "--process_id",
        type=int,
        metavar="I",
        help="index of this process, from 0",
    )


def _join_hosts(args: "argparse.Namespace") -> None:
    from longsum_jax.training.distributed import find_cluster, join

    addresses = {
        "coordinator": args.coordinator,
        "num_processes": args.num_processes,
        "process_id": args.process_id,
    }
    cluster = find_cluster(os.environ, mode=args.distributed, **addresses)
    if cluster is not None:
        with console.spinner("connecting the processes"):
            join(cluster)
        _say(
            "when one process dies, all end within a minute or two; the same commands continue "
            "from the last checkpoint"
        )


def _num_done(workdir: str) -> int:
    """Returns the number of steps that the run in a directory has done."""
    from longsum_jax.training.workdir import CHECKPOINTS, checkpoint_steps

    return max(checkpoint_steps(Path(workdir) / CHECKPOINTS), default=0)


def _announce(
    experiment: "Experiment", run: "RunConfig", size: str, num_done: int
) -> None:
    """Prints the inputs of the run and new parts of its model; ``run`` includes its step count."""
    steps, warmup = run.training.steps, run.optimizer.warmup_steps
    if num_done >= steps:
        if steps < experiment.setup.run.training.steps:
            limit = "data.epochs"
        else:
            limit = "training.steps"
        _say(
            f"the run already has {counted(num_done, 'step')}; raise {limit} to continue it"
        )
        return
    if warmup >= steps:
        _say(
            f"the run ends after {counted(steps, 'step')}, within the warm-up of {warmup}; lower "
            "optimizer.warmup_steps, or raise data.epochs or training.steps"
        )
    if run.optimizer.weight_decay and not run.optimizer.decays_all:
        _say(
            f"the weight decay {run.optimizer.weight_decay} spares norms and biases"
        )
    task, split = experiment.setup.task, run.evaluation.split
    if (
        run.evaluation.examples
        and run.data.reader != "prepared"
        and task.is_undivided
    ):
        _say(
            f'the evaluation ("{split}") reads the documents that are trained on; give '
            'task.held_out a share of them, or "{split}" in the names of the files'
        )
    if run.mesh.sequence != 1:
        lengths = ", ".join(map(str, experiment.objective.source_lengths))
        _say(
            f"documents are padded to {lengths} tokens, sharded over mesh.sequence"
        )
    if experiment.start is not None and experiment.start.fresh:
        _say(
            f"new, not from {run.init_from}: {', '.join(experiment.start.fresh)}"
        )
    vocab_size = experiment.setup.tokenizer.vocab_size
    _say(f"{size}; {vocab_size} token ids; compiling the first step")


def _describe_size(experiment: "Experiment", store: "ExampleStore") -> str:
    """Returns the number of examples, and statistics of the documents."""
    from longsum_jax.experiment.experiment import count_held_out

    if not isinstance(store, Sized):
        return "streamed"
    number = len(store)
    counts = getattr(store, "counts", None)
    if counts is None:
        return str(number)
    task = experiment.setup.task
    held_out = ""
    if task.holds_out:
        held_out = f"{counted(count_held_out(task), 'document')} held out for evaluation, "
    unlabelled = ""
    if counts.unlabelled:
        unlabelled = f", {counts.unlabelled} without an answer in what is read"
    identical = ""
    if counts.identical_pairs:
        pairs = counted(counts.identical_pairs, "pair")
        identical = f", {pairs} of identical summaries without weight"
    return (
        f"{held_out}{counted(number, 'example')} from {counted(counts.read, 'document')}, "
        f"{counts.too_short} too short, {counts.dropped_source_tokens:,} of "
        f"{counts.source_tokens:,} source tokens beyond the length limit{unlabelled}{identical}"
    )


def _report(
    experiment: "Experiment", evaluator: "Evaluator | None", result: "FitResult"
) -> None:
    """Prints the outcome of training, the quality of the model, and the next step."""
    import jax

    from longsum_jax.experiment.experiment import write_adapter
    from longsum_jax.training.mesh import activate, make_mesh

    if result.stopped_by in _SIGNALS:
        _say(
            f"stopped by {result.stopped_by} after step {result.step}, saved; the same command "
            "continues"
        )
        return
    evaluation = None
    if evaluator is not None:
        # On all processes: for a run that was already complete, this evaluates
        # on the mesh.
        mesh = experiment.setup.run.mesh
        with activate(make_mesh(mesh), mesh.rules):
            evaluation = evaluator.at(result.step, result.state.params)
    if jax.process_index():
        return
    workdir = experiment.setup.workdir
    if result.stopped_by == "early_stopping":
        training = experiment.setup.run.training
        console.print_stdout(
            f"no better {training.best_metric} in "
            f"{counted(training.early_stopping_patience, 'evaluation')}"
        )
    console.print_stdout(
        f"{counted(result.step, 'step')} done; checkpoints and metrics are in {workdir}"
    )
    if (adapter := write_adapter(experiment)) is not None:
        console.print_stdout(f"the adapter, in PEFT's layout, is in {adapter}")
    if evaluation is not None:
        console.print_stdout(f"\n{experiment.objective.report(evaluation)}")
    next_step = experiment.objective.next_step()
    if next_step:
        console.print_stdout(f"\n{next_step}")


def _say(message: str) -> None:
    import jax

    if jax.process_index() == 0:
        console.print_stderr(message)
