"""longsum train: pre-trains or fine-tunes a model, and goes on where it stopped."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longsum_jax.commands import console

if TYPE_CHECKING:
    import argparse

    from longsum_jax.experiment.experiment import Experiment
    from longsum_jax.training.loop import FitResult

EXAMPLES = """\
  # minutes on a laptop: tokenizer, pre-training, evaluation, a summary; nothing is downloaded
  python -m longsum_jax.train --config=configs/quickstart.py --workdir=runs/quickstart

  # gap-sentence pre-training on C4 with the published configuration, on every device there is
  python -m longsum_jax.train --config=configs/locost_c4.py --workdir=runs/c4 \\
      --config.tokenizer.path=spiece.model --config.mesh.preset=fsdp --config.mesh.fsdp=8

  # fine-tune a published checkpoint on reports of your own
  python -m longsum_jax.train --config=configs/locost_finetune.py:govreport --workdir=runs/reports \\
      --config.init_from=locost-base --config.task.source='json:reports/{split}.jsonl'

The same command started again continues from the last checkpoint of --workdir. SIGTERM and Ctrl-C save first.
"""


def main(argv: Sequence[str]) -> int:
    """Trains as the config says; 0 when done or stopped by a signal, 1 when training diverged."""
    from longsum_jax.experiment.config_files import read_config, split_overrides

    rest, overrides = split_overrides(argv)
    parser = console.parser(
        "train", "Trains a model as a config file says, and resumes it.", EXAMPLES
    )
    parser.add_argument(
        "--config", required=True, metavar="FILE[:MODE][,KEY=VALUE...]", help="a file of configs/"
    )
    parser.add_argument(
        "--workdir",
        required=True,
        help="directory of the run: checkpoints, metrics.jsonl, tokenizer",
    )
    parser.add_argument(
        "--config.KEY", dest="ignored", metavar="VALUE", help="replaces one value of the config"
    )
    _add_host_flags(parser)
    args = parser.parse_args(rest)
    config = read_config(args.config, overrides)

    import jax

    from longsum_jax.experiment.experiment import Experiment
    from longsum_jax.training.distributed import require_agreement
    from longsum_jax.training.reporter import TrainingDiverged
    from longsum_jax.training.workdir import check_workdir

    check_workdir(args.workdir, config)
    _join_hosts(args)
    require_agreement(config, "config")
    experiment = Experiment(config, args.workdir)
    try:
        result = _train(experiment)
    except TrainingDiverged as error:
        console.print_stderr(f"error: {error}")
        return 1
    if jax.process_index() == 0:
        _report(experiment, result)
    return 0


def _add_host_flags(parser: "argparse.ArgumentParser") -> None:
    group = parser.add_argument_group(
        "several processes (found by themselves on TPUs, under Slurm and Open MPI)"
    )
    group.add_argument(
        "--distributed", choices=("auto", "on", "off"), default="auto", help="default: auto"
    )
    group.add_argument("--coordinator", metavar="HOST:PORT", help="of process 0")
    group.add_argument("--num_processes", type=int, metavar="N", help="that run this command")
    group.add_argument("--process_id", type=int, metavar="I", help="of this one, from 0")


def _join_hosts(args: "argparse.Namespace") -> None:
    from longsum_jax.training.distributed import find_cluster, join

    given = {
        "coordinator": args.coordinator,
        "num_processes": args.num_processes,
        "process_id": args.process_id,
    }
    cluster = find_cluster(os.environ, mode=args.distributed, **given)
    if cluster is not None:
        with console.spinner("connecting the processes"):
            join(cluster)
        _say(
            "when one process dies, all end within a minute or two; the same commands continue from the last checkpoint"
        )


def _train(experiment: "Experiment") -> "FitResult":
    from longsum_jax.data.prefetch import Prefetcher
    from longsum_jax.training.distributed import require_agreement
    from longsum_jax.training.loop import fit
    from longsum_jax.training.optimizers import make_optimizer

    # Everything that can be wrong with the input shows here, before anything is written.
    experiment.check_mesh()
    optimizer = make_optimizer(experiment.optimizer)
    with console.spinner("reading documents"):
        batches, evaluate = experiment.batches(), experiment.evaluator()
    require_agreement(
        {"tokenizer": experiment.tokenizer.fingerprint, "examples": _size(experiment)}, "data"
    )
    if experiment.mesh.sequence != 1:
        _say(
            f"documents are padded to {', '.join(map(str, experiment.source_lengths))} tokens, cut over mesh.sequence"
        )
    initial_params = experiment.initial_params()
    if experiment.start is not None and (fresh := experiment.start.fresh):
        _say(f"not in {experiment.init_from}, so new: {', '.join(fresh)}")
    _say(
        f"{_size(experiment)}; {experiment.tokenizer.vocab_size} token ids; compiling the first step"
    )

    experiment.write_model_directory()
    with Prefetcher(batches, experiment.data.prefetch) as batches:
        return fit(
            loss_fn=experiment.loss_fn(),
            init=experiment.family.init_params(experiment.config),
            optimizer=optimizer,
            batches=batches,
            options=experiment.training,
            workdir=experiment.workdir,
            mesh_options=experiment.mesh,
            run=experiment.description,
            model_name=experiment.family.name,
            evaluate=evaluate,
            initial_params=initial_params,
        )


def _size(experiment: "Experiment") -> str:
    if not hasattr(experiment.store, "__len__"):
        return "streamed"
    counts = getattr(experiment.store, "counts", None)
    if counts is None:
        return str(len(experiment.store))
    held_out = (
        f"{experiment.held_out} documents held out for evaluation, "
        if experiment.task.holds_out
        else ""
    )
    return (
        f"{held_out}{len(experiment.store)} examples from {counts.read} documents, {counts.too_short} too short, "
        f"{counts.dropped_source_tokens} of {counts.source_tokens} source tokens beyond the length limit"
    )


def _report(experiment: "Experiment", result: "FitResult") -> None:
    """How training ended, how good the model is, and what to do with it."""
    where = experiment.workdir
    if result.stopped_by in ("SIGTERM", "SIGINT"):
        _say(
            f"stopped by {result.stopped_by} after step {result.step}, saved; the same command continues"
        )
        return
    print(f"{result.step} steps done; checkpoints and metrics are in {where}")
    if experiment.evaluation.examples:
        print(
            f"\n{experiment.objective.report(experiment.evaluation_at(result.step, result.state.params))}"
        )
    if next_step := experiment.objective.next_step():
        print(f"\n{next_step}")


def _say(message: str) -> None:
    import jax

    if jax.process_index() == 0:
        console.print_stderr(message)
