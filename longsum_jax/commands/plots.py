"""longsum plots: training curves, kernels, positions of summary bigrams, studies, plans."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.commands import console, flags
from longsum_jax.commands.corpus import add_data_flags, read_pairs
from longsum_jax.errors import InputError
from longsum_jax.readers.paths import short_names

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model

EXAMPLES = """\
  # loss, learning rate and ROUGE of two runs, side by side
  longsum plots curves runs/quickstart runs/longer --out=curves.png

  # the range of a model's layers: the memory of their modes, and |kernel| over the lag
  longsum plots kernels runs/quickstart --out=kernels.png

  # three layers of a published model, as a vector graphic with the width of a paper's column
  longsum plots kernels locost-base --layers=1,6,12 --length=4096 --width=3.3 --out=kernels.pdf

  # positions in documents at which the bigrams of their summaries first occur, for two data sets
  longsum plots bigrams pubmed/test.jsonl reports/test.jsonl --out=bigrams.png

  # bits per token, ROUGE and speed of a study of attentions (studies/study.py)
  longsum plots study runs/study/results.jsonl --out=study.png

  # memory of the programs of two plans (longsum plan --out), compared with their devices
  longsum plots plan v5e.json h200.json --out=memory.png

In figures of kernels, memory is the time after which a mode has decayed to 1/e, in tokens; channels
are sorted by the mean decay of their modes, the longest memory at the top.
"""
FORMATS = (".png", ".pdf", ".svg")
_NGRAMS = {1: "words", 2: "bigrams"}


def main(argv: Sequence[str]) -> None:
    """Draws one figure.

    Raises:
        InputError: the data cannot be read or drawn, or the file cannot be
            written.
    """
    args = _parser().parse_args(argv)
    from longsum_jax.analysis import figures

    figures.require_matplotlib()
    _check_output(args)
    figure = args.draw(args)
    figures.save(figure, args.out, args.dpi)
    width, height = figure.get_size_inches()
    console.print_stdout(f"{args.out}: {width:g} x {height:g} inches")


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "plots", "Draws runs, models, data sets, studies and plans.", EXAMPLES
    )
    commands = parser.add_subparsers(
        required=True, metavar="curves|kernels|bigrams|study|plan"
    )
    curves = commands.add_parser(
        "curves",
        help="loss, learning rate and ROUGE over the steps of one or more runs",
    )
    curves.add_argument(
        "workdirs",
        nargs="+",
        metavar="WORKDIR",
        help="workdir of a training run",
    )
    curves.set_defaults(draw=_curves)
    kernels = commands.add_parser(
        "kernels",
        help="memory and kernels of every state-space layer of a model",
    )
    kernels.add_argument(
        "model",
        metavar="MODEL",
        help="a model directory, or a training workdir",
    )
    kernels.add_argument(
        "--length",
        type=int,
        default=1024,
        help="lags to draw, in tokens; default: 1024",
    )
    kernels.add_argument(
        "--layers",
        type=_numbers,
        metavar="N,N",
        help="layers to draw, from 1; default: all",
    )
    kernels.set_defaults(draw=_kernels)
    bigrams = commands.add_parser(
        "bigrams",
        help="positions in documents at which the bigrams of their summaries first occur",
    )
    add_data_flags(bigrams)
    bigrams.add_argument(
        "--ngram",
        type=int,
        default=2,
        metavar="N",
        help="words per n-gram; default: 2",
    )
    bigrams.set_defaults(draw=_bigrams)
    study = commands.add_parser(
        "study", help="bits per token, ROUGE and speed of a study of attentions"
    )
    study.add_argument(
        "results", metavar="FILE", help="results.jsonl of studies/study.py"
    )
    study.set_defaults(draw=_study)
    plan = commands.add_parser(
        "plan", help="memory of the programs of one or more plans"
    )
    plan.add_argument(
        "plans",
        nargs="+",
        metavar="FILE",
        help="JSON file written by longsum plan --out",
    )
    plan.set_defaults(draw=_plan)
    heights = (
        (curves, "2.4"),
        (kernels, "1 a layer, and 0.9"),
        (bigrams, "2.6"),
        (study, "0.3 a line, and 0.8"),
        (plan, "0.3 a program, and 0.9 a plan"),
    )
    for command, height in heights:
        command.add_argument(
            "-o",
            "--out",
            required=True,
            metavar="FILE",
            help=f"picture to write: {', '.join(FORMATS)}",
        )
        command.add_argument(
            "--width",
            type=float,
            default=7.0,
            help="inches; default: 7, the text width of a page",
        )
        command.add_argument(
            "--height", type=float, help=f"inches; default: {height}"
        )
        command.add_argument(
            "--dpi", type=int, default=200, help="dots per inch; default: 200"
        )
    return parser


def _numbers(text: str) -> list[int]:
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not a list of numbers such as 1,6,12'
        ) from None


def _check_output(args: argparse.Namespace) -> None:
    out = Path(args.out)
    if out.suffix.lower() not in FORMATS:
        raise InputError(
            f'--out={out}: unsupported file type "{out.suffix}"; use {", ".join(FORMATS)}'
        )
    flags.check_file("out", args.out)


def _curves(args: argparse.Namespace) -> Any:
    from longsum_jax.analysis import figures, records

    runs = [records.read_run(workdir) for workdir in args.workdirs]
    return figures.curves_figure(runs, (args.width, args.height or 2.4))


def _kernels(args: argparse.Namespace) -> Any:
    from longsum_jax.analysis import figures, kernels
    from longsum_jax.ops.ssm.kernel import MAX_LENGTH
    from longsum_jax.summarization.loading import load

    if not 2 <= args.length <= MAX_LENGTH:
        raise InputError(
            f"--length={args.length} must lie between 2 and {MAX_LENGTH}"
        )
    model = load(args.model)
    layers = _state_space_layers(model, args)
    discretization = model.config.option("ssm_discretization")
    result = kernels.kernels(layers, args.length, discretization=discretization)
    return figures.kernels_figure(
        result, (args.width, args.height or 0.9 + len(layers))
    )


def _state_space_layers(
    model: "Model", args: argparse.Namespace
) -> dict[int, Mapping[str, Any]]:
    """Returns the parameters of the state-space layers of --layers, by default of all, by index."""
    from longsum_jax.layers.layer_groups import (
        layer_attentions,
        layer_params,
        num_layers,
        parse_hybrid,
    )

    name = model.config.encoder_attention
    if "s4d" not in dict(parse_hybrid(name)):
        raise InputError(
            f'{args.model}: a model of family "{model.family.name}" has no state-space layers to '
            f"draw, but {name} attention"
        )
    encoder = model.params["encoder"]
    attentions = layer_attentions(name, num_layers(encoder))
    selected = [
        layer
        for layer, attention in enumerate(attentions)
        if attention == "s4d"
    ]
    if args.layers:
        _check_layers(args.layers, attentions)
        selected = [number - 1 for number in args.layers]
    return {
        layer: layer_params(encoder, layer)["self_attention"]
        for layer in selected
    }


def _bigrams(args: argparse.Namespace) -> Any:
    from longsum_jax.analysis import figures
    from longsum_jax.text.extractive import mean_salient_ngrams

    curves = {}
    for path in args.data:
        with console.spinner(f"reading {path}"):
            curves[path] = mean_salient_ngrams(
                read_pairs(path, args), size=args.ngram
            )
    what = _NGRAMS.get(args.ngram, f"{args.ngram}-grams")
    console.print_stdout(
        f"{what} that summaries share with documents, in the first 10, 20, ... 100 % of these:"
    )
    for path, curve in curves.items():
        console.print_stdout(
            f"{path}: {' '.join(f'{100 * value:.1f}' for value in curve)} %"
        )
    # Complete paths are too long for the legend.
    named = dict(zip(short_names(list(curves)), curves.values(), strict=True))
    return figures.ngrams_figure(
        named, args.ngram, (args.width, args.height or 2.6)
    )


def _study(args: argparse.Namespace) -> Any:
    from longsum_jax.analysis import figures, records

    rows = records.read_study(args.results)
    lines = len({row["encoder"] for row in rows})
    return figures.study_figure(
        rows, (args.width, args.height or 0.8 + 0.3 * lines)
    )


def _plan(args: argparse.Namespace) -> Any:
    from longsum_jax.analysis import figures, records

    plans = [records.read_plan(path) for path in args.plans]
    named = dict(zip(short_names(args.plans), plans, strict=True))
    height = sum(0.9 + 0.3 * len(plan["programs"]) for plan in plans)
    return figures.plan_figure(named, (args.width, args.height or height))


def _check_layers(numbers: Sequence[int], attentions: Sequence[str]) -> None:
    """Raises InputError unless all numbers, from 1, refer to state-space layers."""
    for number in numbers:
        if not 1 <= number <= len(attentions):
            raise InputError(
                f"--layers: there is no layer {number}; the model has layers 1 to {len(attentions)}"
            )
        if attentions[number - 1] != "s4d":
            supported = [
                str(i) for i, name in enumerate(attentions, 1) if name == "s4d"
            ]
            raise InputError(
                f"--layers: layer {number} has {attentions[number - 1]} attention; state-space "
                f"layers are {', '.join(supported)}"
            )
