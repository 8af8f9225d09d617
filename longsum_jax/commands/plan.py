"""longsum plan: memory, collectives and roofline time of programs, compiled but not run."""

import argparse
import dataclasses
import itertools
import math
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted, first_line

if TYPE_CHECKING:
    from longsum_jax.experiment.config import RunConfig
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.summary_options import SummaryOptions
    from longsum_plan.devices import Target
    from longsum_plan.plan import ProgramPlan
    from longsum_plan.program import AbstractProgram
    from longsum_plan.trials import Trial

EXAMPLES = """\
  # the published pre-training of LOCOST on 256 chips of TPU v5e, from a laptop
  longsum plan --config=configs/locost_c4.py --device=v5e:16x16 \\
      --config.mesh.preset=fsdp --config.mesh.batch=1 --config.mesh.fsdp=-1

  # fine-tuning LED on eight H200 of one host, with a JSON file and a bar chart
  longsum plan --config=configs/finetune.py:model=allenai/led-base-16384,data=my.jsonl \\
      --device=h200:1x8 --out=plan.json
  longsum plots plan plan.json --out=plan.png

  # summaries of documents of 100,000 tokens in batches of 1 and 8, and the longest that fit
  longsum plan --model=locost-base --device=v5p --input_length=100000 --batch_size=1,8

Devices: cpu[:N], TPUs v5e, v5p and v6e with a topology (v5e:16x16, v5p:2x2x1), GPUs a100-40,
a100-80, h100, h200, b200, l4, rtx4090 and rtx5090 with hosts x devices (h200:2x8); one device
without a size. XLA compiles for devices that you do not have, and nothing is run. Memory and
collectives are read from the compiled program. The time "at least" is a roofline bound: the slowest
of matrix products, memory and links at the vendor's peak rates. No run can be faster.
"""
# Flags in the short help.
EVERYDAY = (
    *(
        "config",
        "config.KEY",
        "model",
        "device",
        "input_length",
        "batch_size",
        "programs",
    ),
    *("tries", "fastest", "out"),
)
PROGRAMS = ("train", "loss", "read", "search")
_MODEL_FLAGS = (
    "input_length",
    "batch_size",
    *flags.COMPUTATION_FLAGS,
    "param_dtype",
    *flags.GENERATION_FLAGS,
)
TRIES = 8
# With --fastest: more than there are changes to try.
_ALL_TRIES = 100
# The part of the memory that a faster step may use: on an H200, runs used up to
# 11 % more than their compiled steps.
_USABLE = 0.9
TOP = 5


def main(argv: Sequence[str]) -> None:
    """Plans the programs of a config or a model.

    Raises:
        InputError: the config, model or device is invalid, or a compiler is
            missing.
    """
    args, overrides = _parse(argv)
    flags.check_file("out", args.out)
    from longsum_plan import devices

    devices.set_environment(args.device, os.environ)  # before jax is imported
    if args.config is not None:
        from longsum_jax.experiment.config import run_config
        from longsum_jax.experiment.config_files import read_config

        run = run_config(read_config(args.config, overrides))
        target = devices.find_target(args.device)
        options = {
            "programs": args.programs,
            "tries": args.tries,
            "top": args.top,
            "fastest": args.fastest,
        }
        described = {"config": args.config, "changes": overrides}
        plan_run(
            run,
            target,
            **options,
            save=lambda report: _write(args.out, described | report),
        )
    else:
        from longsum_jax.inference.loading import load_shapes
        from longsum_jax.summarization.model import Model

        model = load_shapes(
            Model,
            args.model,
            **flags.given(args, (*flags.COMPUTATION_FLAGS, "param_dtype")),
        )
        target = devices.find_target(args.device)
        _write(
            args.out, {"model": args.model, **_plan_model(args, model, target)}
        )
    if args.out:
        command = shlex.join(
            ["longsum", "plots", "plan", args.out, "--out=plan.png"]
        )
        console.print_stderr(f"{args.out}: {command} draws it")


def _write(out: str | None, report: Mapping[str, Any]) -> None:
    if out:
        from longsum_plan.plan import write_json

        write_json(out, report)


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "plan",
        "Compiles programs ahead of time for a device, and prints their memory and time.",
        EXAMPLES,
        EVERYDAY,
    )
    parser.add_argument(
        "--config",
        metavar="FILE[:MODE][,KEY=VALUE...]",
        help="config file; plans training and its evaluations",
    )
    parser.add_argument(
        "--config.KEY",
        dest="ignored",
        metavar="VALUE",
        help="new value of a config key; default: the config's",
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        help="model directory or training workdir; plans summaries",
    )
    parser.add_argument(
        "--device",
        default="here",
        metavar="NAME[:SIZE]",
        help="devices to plan for; default: the devices of this machine",
    )
    parser.add_argument(
        "--programs",
        type=_names,
        default=PROGRAMS,
        metavar="NAME[,NAME]",
        help=f"programs of --config; default: {','.join(PROGRAMS)}",
    )
    parser.add_argument(
        "--tries",
        type=int,
        default=TRIES,
        metavar="N",
        help="maximum number of changed configs to compile if training does not fit the device or "
        "leaves memory for a faster step; with --model, 0 to skip the search for the longest "
        f"document; default: {TRIES}; 0 for none",
    )
    parser.add_argument(
        "--fastest",
        action="store_true",
        help="plan only the training step of --config, first made to fit if necessary, and try "
        "all changes that may make it faster, whatever --tries",
    )
    parser.add_argument(
        "--top",
        type=int,
        default=TOP,
        metavar="N",
        help="number of modules of each program to print, the slowest first; "
        f"default: {TOP}; --out contains all",
    )
    parser.add_argument(
        "-o", "--out", metavar="FILE", help="JSON file for the plan"
    )
    group = parser.add_argument_group("with --model")
    group.add_argument(
        "--input_length",
        type=_numbers,
        default=(),
        metavar="N[,N]",
        help="document lengths in tokens",
    )
    group.add_argument(
        "--batch_size",
        type=_numbers,
        default=(1,),
        metavar="N[,N]",
        help="numbers of documents that are summarized together; default: 1",
    )
    flags.add_computation_flags(group)
    flags.add_param_dtype(group)
    flags.add_generation_flags(parser)
    return parser


def _parse(argv: Sequence[str]) -> tuple[argparse.Namespace, dict[str, str]]:
    """Returns the parsed flags and the values of --config.KEY; refuses incompatible flags."""
    from longsum_jax.experiment.config_files import split_overrides

    parser = _parser()
    rest, overrides = split_overrides(argv)
    args = parser.parse_args(rest)
    flags.check_one(args, config="FILE", model="DIR")
    if args.config is not None:
        flags.refuse_idle(args, parser, _MODEL_FLAGS, "with --config")
        if args.fastest and args.programs != ("train",):
            mode = "with --fastest, which plans only train"
            flags.refuse_idle(args, parser, ("programs",), mode)
        return args, overrides
    flags.refuse_idle(args, parser, ("programs", "fastest"), "with --model")
    if not args.tries and not args.input_length:
        raise InputError(
            "--tries=0 leaves nothing to plan; give --input_length"
        )
    for key in overrides:
        raise InputError(
            f"--config.{key} has no effect with --model; leave it out"
        )
    return args, overrides


def _numbers(text: str) -> tuple[int, ...]:
    numbers = [part.replace("_", "") for part in text.split(",")]
    if not all(part.isdecimal() for part in numbers):
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a list of numbers such as 4096,16384'
        )
    return tuple(map(int, numbers))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in PROGRAMS:
            raise argparse.ArgumentTypeError(
                f'"{name}" must be one of {", ".join(PROGRAMS)}'
            )
    return names


def plan_run(
    run: "RunConfig",
    target: "Target",
    *,
    programs: Sequence[str] = PROGRAMS,
    tries: int = TRIES,
    top: int = TOP,
    fastest: bool = False,
    save: Callable[[dict[str, Any]], None] | None = None,
    write: Callable[[str], None] = console.print_stdout,
) -> dict[str, Any]:
    """Plans the programs of a run, prints the plan and returns it for JSON.

    Args:
        run: configuration of the run.
        target: target devices.
        programs: names of the programs to compile.
        tries: maximum changes of the config to compile if a program does not
            fit.
        top: number of parts of each program to print.
        fastest: True to plan only the training step, and to try all changes
            that keep the update until it fits and no other is faster.
        save: callback with the plan before changes are tried, and again with
            the results of the changes, so that the plan is kept if a compiler
            crashes.
        write: function that prints a text and a line break.

    Raises:
        InputError: an invalid config, or none of its programs is selected.
    """
    from longsum_jax.experiment.config_files import with_micro_batches
    from longsum_jax.experiment.programs import evaluation_length
    from longsum_plan.printing import print_target
    from longsum_plan.trials import Trial

    if fastest:
        programs, tries = ("train",), _ALL_TRIES
    print_target(target, write)
    run = with_micro_batches(run, write, target.devices)
    plans = list(_compiled(_selected(run, target, programs), target))
    _print_plans(plans, target, top, write)
    if run.evaluation.max_source_length == 0 and {"read", "search"} & {
        p.name for p in plans
    }:
        write(
            f"evaluations read whole documents, planned here with {evaluation_length(run):,} "
            "tokens; for longer ones give --config.evaluation.max_source_length=N"
        )
    report = {**target.report(), "programs": [plan.report() for plan in plans]}
    if save is not None:
        save(report | {"trials": {}, "faster": []})
    trials = {
        plan.name: list(
            _trials(run, target, plan, tries, write, same_model=fastest)
        )
        for plan in plans
        if plan.fits is False and tries
    }
    report["trials"] = {
        name: [trial.report() for trial in of] for name, of in trials.items()
    }
    starts = [Trial({}, "", plan) for plan in plans if plan.name == "train"]
    if fastest:
        starts += [
            trial
            for trial in trials.get("train", [])
            if trial.plan is not None and trial.plan.fits
        ]
    report |= {"fastest": {}, "faster": []}
    for start in starts[-1:]:
        report |= _faster_report(run, target, start, tries, write)
    if fastest and target.hardware is None:
        write(
            f"no faster step is searched: the peak rates of {target.title} are unknown"
        )
    if save is not None:
        save(report)
    return report


def _selected(
    run: "RunConfig", target: "Target", names: Sequence[str]
) -> list["AbstractProgram"]:
    """Returns the programs of a run with these names; refuses names of which it has none."""
    from longsum_jax.experiment.programs import run_programs

    programs = {x.name: x for x in run_programs(run, target.devices)}
    selected = [program for name, program in programs.items() if name in names]
    if not selected:
        raise InputError(
            f"--programs={','.join(names)}: this run only has {' and '.join(programs)}, because "
            "it generates no summaries of documents in one piece; leave it out"
        )
    return selected


def fastest_changes(
    run: "RunConfig", say: Callable[[str], None]
) -> Mapping[str, Any]:
    """Returns the changes with which a run's step fits these devices and is fastest.

    Prints a reason and returns {} if the peak rates of the devices are unknown.

    Args:
        run: configuration of the run.
        say: function that prints a line.
    """
    from longsum_plan.devices import HERE, find_target

    target = find_target(HERE)
    if target.hardware is None:
        say(
            f"training.tune has no effect here: the peak rates of {target.title} "
            "are unknown"
        )
        return {}
    report = plan_run(run, target, top=0, fastest=True, write=say)
    changes: Mapping[str, Any] = report["fastest"]
    return changes


def plan_summaries(
    model: "Model",
    target: "Target",
    *,
    length: int,
    batch_size: int,
    **options: Any,
) -> list["ProgramPlan"]:
    """Plans the programs of summarization by a model; returns "read" and "search".

    Args:
        model: model with parameters, or with their shapes.
        target: target devices, of which only the first is used.
        length: number of tokens of the longest document.
        batch_size: number of documents summarized together.
        **options: generation options.
    """
    import jax

    with jax.default_device(target.devices[0]):
        programs = _summary_programs(model, length, batch_size, options)
        return list(_compiled(programs, target))


def dry_run_training(run: "RunConfig") -> None:
    """Prints the memory and time of a run on this machine, for --dry_run."""
    from longsum_plan.devices import HERE, find_target

    plan_run(run, find_target(HERE))


def dry_run_summaries(
    model: "Model", lengths: Sequence[int], options: "SummaryOptions"
) -> None:
    """Prints the memory and time of summaries on this machine, for --dry_run.

    Args:
        model: loaded model.
        lengths: number of tokens to read of each document.
        options: options of the summaries.
    """
    from longsum_jax.inference.continuous import num_slots
    from longsum_plan.devices import HERE, find_target
    from longsum_plan.printing import print_target

    batch_size = options.batch_size
    if batch_size == "auto":
        batch_size = num_slots(model.config, lengths)
    target = find_target(HERE).first()
    print_target(target, console.print_stdout)
    documents = counted(len(lengths), "document")
    console.print_stdout(
        f"{documents} of at most {max(lengths):,} tokens, {batch_size} at a time"
    )
    plans = plan_summaries(
        model,
        target,
        length=max(lengths),
        batch_size=batch_size,
        **options.generation,
    )
    _print_plans(plans, target, TOP)
    if any(plan.fits is False for plan in plans):
        console.print_stdout(f"to fit: {console.SUMMARY_ADVICE}")


def _plan_model(
    args: argparse.Namespace, model: "Model", target: "Target"
) -> dict[str, Any]:
    from longsum_plan.printing import print_target

    if "segments" in model.summarization:
        raise InputError(
            f"--model={args.model}: reads segment by segment, so its memory does not depend on a "
            "document's length; plan the --config that trained it"
        )
    target = target.first()
    options = flags.generation_options(args)
    print_target(target, console.print_stdout)
    rows, longest = [], []
    for batch_size in args.batch_size:
        for length in args.input_length:
            sizes = {"length": length, "batch_size": batch_size}
            plans = plan_summaries(model, target, **sizes, **options)
            console.print_stdout(f"{batch_size} x {length:,} tokens")
            _print_plans(plans, target, args.top)
            rows += [sizes | plan.report() for plan in plans]
        if args.tries and target.memory:
            fitting = _longest(model, target, batch_size, options)
            console.print_stdout(
                f"longest document that fits, {batch_size} at a time: {fitting:,} tokens"
            )
            longest.append({"batch_size": batch_size, "tokens": fitting})
    return {**target.report(), "programs": rows, "longest": longest}


def _longest(
    model: "Model",
    target: "Target",
    batch_size: int,
    options: Mapping[str, Any],
) -> int:
    """Returns the length in tokens of the longest document that fits on the target."""
    import functools

    from longsum_jax.inference.padding import input_length, kernel_limit
    from longsum_jax.models.registry import max_input_length
    from longsum_plan.fit_length import LONGEST, fit_length

    limits = (
        max_input_length(model.config),
        kernel_limit(model.config),
        LONGEST,
    )
    limit = min(value for value in limits if value is not None)

    @functools.cache  # several lengths have the same padded length
    def padded_bytes(length: int) -> int:
        sizes = {"length": length, "batch_size": batch_size}
        with console.spinner(f"compiling for {length:,} tokens"):
            return max(
                plan.total
                for plan in plan_summaries(model, target, **sizes, **options)
            )

    def bytes_of(length: int) -> int:
        return padded_bytes(min(input_length(model.config, length), limit))

    return fit_length(
        bytes_of, target.memory, multiple=min(1024, limit), longest=limit
    )


def _summary_programs(
    model: "Model", length: int, batch_size: int, options: Mapping[str, Any]
) -> Iterator["AbstractProgram"]:
    import jax

    from longsum_jax.decoding.options import of_whole_texts
    from longsum_jax.inference.abstract import summary_programs
    from longsum_jax.inference.kernel_cache import MAX_KERNEL_CACHE_BYTES
    from longsum_jax.inference.padding import (
        check_kernel_length,
        check_length,
        input_length,
    )

    name = "--input_length"
    check_length(length, model.config.max_source_length, name)
    check_kernel_length(length, model.config, name, "give less")
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), model.params
    )
    return summary_programs(
        model.module,
        shapes,
        batch_size=batch_size,
        length=input_length(model.config, length),
        options=of_whole_texts(
            model.summary_options(**options), options, "whole documents"
        ),
        kernel_bytes=MAX_KERNEL_CACHE_BYTES,
        storage=model.decoder_storage,
    )


def _compiled(
    programs: Iterable["AbstractProgram"], target: "Target", changes: str = ""
) -> Iterator["ProgramPlan"]:
    """Yields plans of programs, with the kernel of each attention among their notes.

    ``changes`` is shown while they are compiled.

    Raises:
        InputError: XLA cannot compile a program for another reason than the
            memory of the device.
    """
    import jax

    from longsum_jax.ops.attention.fused import noted_choices
    from longsum_plan.devices import HERE
    from longsum_plan.plan import plan_program

    if target.name == HERE:
        name = "this machine"
    else:
        name = target.name
    for program in programs:
        with (
            console.spinner(f"compiling {program.name} for {name}{changes}"),
            noted_choices() as choices,
        ):
            try:
                plan = plan_program(program, target)
            except jax.errors.JaxRuntimeError as error:
                raise InputError(
                    f"XLA cannot compile {program.name} for {name}{changes} "
                    f"({first_line(error)}); if a kernel is named, leave it out by "
                    "--config.model.attention_backend=reference"
                ) from error
        if program.name == "search":
            # It attends from so few tokens that no kernel would help.
            choices = {
                layer: x._replace(reason="") for layer, x in choices.items()
            }
        attention = {
            layer: choice._asdict() for layer, choice in choices.items()
        }
        yield dataclasses.replace(plan, notes={"attention": attention})


def _trials(
    run: "RunConfig",
    target: "Target",
    plan: "ProgramPlan",
    tries: int,
    write: Callable[[str], None],
    *,
    same_model: bool,
) -> Iterator["Trial"]:
    """Prints and yields attempts to make a program of a run fit.

    With ``same_model``, those for training do not change the model.
    """
    from longsum_jax.experiment.memory_changes import (
        evaluation_changes,
        training_changes,
    )
    from longsum_plan.printing import print_trials
    from longsum_plan.trials import find_fit

    num_devices = len(target.devices)
    if plan.name in ("train", "loss"):
        per_host = num_devices // target.num_hosts
        changes = training_changes(
            run, num_devices, per_host, same_model=same_model
        )
    else:
        changes = evaluation_changes(run)
    trials = find_fit(
        _plan_with(run, target, plan.name), plan, changes, tries=tries
    )
    return print_trials(trials, plan.name, write)


def _faster_report(
    run: "RunConfig",
    target: "Target",
    start: "Trial",
    tries: int,
    write: Callable[[str], None],
) -> dict[str, Any]:
    """Returns attempts at a faster training step, and the changes of the fastest, for JSON."""
    from longsum_plan.trials import fastest

    faster: list[Trial] = []
    if tries and start.seconds < math.inf:
        faster = list(_faster(run, target, start, tries, write))
    best = fastest([start, *faster]) or start
    return {
        "fastest": dict(best.values),
        "faster": [trial.report() for trial in faster],
    }


def _faster(
    run: "RunConfig",
    target: "Target",
    start: "Trial",
    tries: int,
    write: Callable[[str], None],
) -> Iterator["Trial"]:
    """Prints and yields attempts to make a training step faster with the unused memory.

    ``start`` is the step before them, which fits.
    """
    from longsum_jax.commands.faster_steps import FasterSteps
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import with_changes
    from longsum_plan.printing import print_faster

    assert start.plan is not None
    name = start.plan.name
    usable = target._replace(memory=int(_USABLE * target.memory))
    steps = FasterSteps(
        run_config(with_changes(run.description, start.values)),
        _plan_with(run, usable, name),
        start.plan,
        start.values,
        memory=usable.memory,
        platform=target.platform,
        num_devices=len(target.devices),
        num_hosts=target.num_hosts,
    )
    return print_faster(itertools.islice(steps, tries), start, name, write)


def _plan_with(
    run: "RunConfig", target: "Target", name: str
) -> Callable[[Mapping[str, Any]], "ProgramPlan"]:
    """Returns a function that plans a program of the run with changed config values."""
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import with_changes
    from longsum_jax.experiment.programs import run_programs
    from longsum_plan.trials import flags_of

    def plan_with(values: Mapping[str, Any]) -> "ProgramPlan":
        changed = run_config(with_changes(run.description, values))
        programs = run_programs(changed, target.devices)
        (program,) = (
            candidate for candidate in programs if candidate.name == name
        )
        return next(_compiled([program], target, f" with {flags_of(values)}"))

    return plan_with


def _attention_line(plans: Iterable["ProgramPlan"]) -> str:
    """Returns the attentions without a fused kernel and the reasons; "" if there are none."""
    layers: dict[str, dict[str, None]] = {}
    for plan in plans:
        for name, choice in plan.notes.get("attention", {}).items():
            if choice["kernel"] is None and choice["reason"]:
                layers.setdefault(choice["reason"], {})[name] = None
    reasons = [
        f"{', '.join(names)} ({reason})" for reason, names in layers.items()
    ]
    if reasons:
        return f"attention without a fused kernel: {'; '.join(reasons)}"
    return ""


def _print_plans(
    plans: Sequence["ProgramPlan"],
    target: "Target",
    top: int,
    write: Callable[[str], None] = console.print_stdout,
) -> None:
    from longsum_plan.printing import print_plans

    print_plans(plans, target, top, write)
    attention = _attention_line(plans)
    if attention and target.platform != "cpu":  # CPUs have no kernels
        write(f"{attention}\n")
