"""longsum convert: rewrites a model directory or a training run as a model directory."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longsum_jax.commands import console, flags
from longsum_jax.commands.help_format import true_or_false
from longsum_jax.errors import InputError

EXAMPLES = """\
  # a published checkpoint (pytorch_model.bin) as safetensors; needs the extra torch
  longsum convert locost-gsg-pretrained locost-base --tokenizer=spiece.model

  # a BART with positions for 4,096 tokens instead of 1,024
  longsum convert bart-large-cnn bart-4096 --max_source_length=4096

  # the same with random new positions, as in the Hepos paper
  longsum convert bart-large bart-7168 --max_source_length=7168 --position_extension=random

  # a BART with LSG attention for 4,096 tokens, then for 16,384 tokens with more global tokens
  longsum convert bart-base lsg-bart-4096 --encoder_attention=lsg --max_source_length=4096 \\
      --block_size=128 --sparse_block_size=128 --sparsity_type=norm --sparsity_factor=4
  longsum convert lsg-bart-4096 lsg-bart-16384 --max_source_length=16384 --num_global_tokens=64

  # a decoder whose heads read every fourth position, which needs a quarter of the keys and values
  longsum convert bart-4096 bart-hepos --cross_attention=hepos --hepos_stride=4

  # the best checkpoint of a training run, for sharing or for PyTorch; the same at half the size
  longsum convert runs/reports reports-model
  longsum convert runs/reports reports-half --dtype=bfloat16
  # a LoRA adapter, merged into its base model
  longsum convert runs/led/adapter led-reports
"""


# Flags in the short help.
EVERYDAY = (
    *("tokenizer", "base", "max_source_length"),
    *("encoder_attention", "cross_attention", "dtype"),
)
# Option of LSG attention in config.json -> type of its value, help.
_LSG_OPTIONS: dict[str, tuple[Any, str]] = {
    "block_size": (
        int,
        "tokens per block; a token attends to its block and both neighbors; default: 128",
    ),
    "sparse_block_size": (
        int,
        "number of sparse keys on either side, 0 for none; default: 128",
    ),
    "sparsity_factor": (
        int,
        "tokens per sparse key, a divisor of the block size; default: 2",
    ),
    "sparsity_type": (
        str,
        "selection of sparse keys: norm, lsh, pooling, stride, block_stride, bos_pooling or none; "
        "default: norm",
    ),
    "num_global_tokens": (int, "number of global tokens, 1 to 512; default: 1"),
    "mask_first_token": (
        true_or_false,
        "true: the first global token replaces the first token; default: false",
    ),
    "pool_with_global": (
        true_or_false,
        "true: the state of the first global token replaces the first token's; default: true",
    ),
    "pass_global_tokens_to_decoder": (
        true_or_false,
        "true: the decoder also attends to global tokens; default: true",
    ),
    "lsh_num_pre_rounds": (
        int,
        "with lsh: rounds of clustering before the last one; default: 1",
    ),
}
_LSG_CHOICES: dict[str, tuple[Any, str]] = {
    "global_positional_stride": (
        int,
        "distance of the positions that initialize new global tokens; default: 64",
    ),
    "keep_first_global_token": (
        true_or_false,
        "true: initialize all global tokens of an LSG model again, except the first; "
        "default: false",
    ),
    "random_global_init": (
        true_or_false,
        "true: initialize global tokens randomly instead of with the mask token; default: false",
    ),
    "use_token_ids": (
        true_or_false,
        "true: add token type 0 to global tokens, if the model has types; default: true",
    ),
    "seed": (
        int,
        "random seed for global tokens and the input of --run_test; default: 123",
    ),
}


def _add_lsg_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "LSG attention (with --encoder_attention=lsg, or to change a model that has it)"
    )
    group.add_argument(
        "--encoder_attention",
        choices=("lsg",),
        help="attention that replaces full attention",
    )
    for name, (value_type, text) in (_LSG_OPTIONS | _LSG_CHOICES).items():
        metavar = "NAME" if value_type is str else None
        group.add_argument(
            f"--{name}", type=value_type, metavar=metavar, help=text
        )
    group.add_argument(
        "--run_test",
        action="store_true",
        help="run the converted model on random input, and compare it with the original",
    )


def _with_encoder(model: Any, args: argparse.Namespace) -> Any:
    """Returns the model with the encoder attention and the positions selected by the flags."""
    options = flags.given(args, _LSG_OPTIONS)
    choices = flags.given(args, _LSG_CHOICES)
    if args.encoder_attention == "lsg":
        return model.to_lsg(args.max_source_length, **options, **choices)
    if choices:
        name = next(iter(choices))
        raise InputError(
            f"--{name}={getattr(args, name)} needs --encoder_attention=lsg; give both or neither"
        )
    if options:
        model = model.with_lsg_options(**options)
    if args.max_source_length is None:
        return model
    return model.extended(args.max_source_length, args.position_extension)


def _check_extension(args: argparse.Namespace) -> None:
    """Checks --position_extension against other flags, and sets its default.

    LSG attention always repeats (tiles) the position tables.
    """
    extension = args.position_extension
    args.position_extension = extension or "tiled"
    if extension is not None and args.max_source_length is None:
        raise InputError(
            f"--position_extension={extension} needs --max_source_length; give both or neither"
        )
    if extension not in (None, "tiled") and args.encoder_attention == "lsg":
        raise InputError(
            f"--position_extension={extension} cannot be combined with --encoder_attention=lsg, "
            "whose positions are tiled; leave it out, or convert in two steps"
        )


def main(argv: Sequence[str]) -> None:
    """Converts a model.

    Raises:
        InputError: the model cannot be read, or the directory cannot be
            written.
    """
    args = _parser().parse_args(argv)
    _check(args)
    from longsum_jax.analysis.model_card import copy_card
    from longsum_jax.checkpoints.huggingface import check_target
    from longsum_jax.summarization.loading import load
    from longsum_jax.training.workdir import has_checkpoint

    check_target(Path(args.target))  # first, because reading may take minutes
    with console.spinner(f"reading {args.source}"):
        original = load(
            args.source,
            tokenizer=args.tokenizer,
            which=args.which,
            architecture=args.architecture,
            base=args.base,
        )
    model = _with_encoder(original, args)
    if args.cross_attention is not None:
        if args.hepos_stride is None:
            stride = {}
        else:
            stride = {"hepos_stride": args.hepos_stride}
        model = model.with_cross_attention(args.cross_attention, **stride)
    model.save(args.target, dtype=args.dtype)
    if has_checkpoint(Path(args.source)):
        copy_card(Path(args.source), Path(args.target))
    if model.has_tokenizer:
        note = ""
    else:
        note = "; it holds no tokenizer, add one with --tokenizer"
    console.print_stdout(
        f"{args.target}: {model.family.name}, {model.num_parameters:,} parameters{note}"
    )
    if args.run_test:
        _run_test(original, args)


def _run_test(original: Any, args: argparse.Namespace) -> None:
    """Prints a check of the converted model."""
    from longsum_jax.conversion.lsg import SEED
    from longsum_jax.inference.lsg_check import check_lsg
    from longsum_jax.summarization.loading import load

    with console.spinner("testing"):
        result = check_lsg(
            original,
            load(args.target),
            first_id=original.first_id,
            use_token_ids=args.use_token_ids is not False,
            seed=SEED if args.seed is None else args.seed,
        )
    console.print_stdout(f"run_test: {result}")


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "convert",
        "Writes a model directory: config.json, model.safetensors and tokenizer files.",
        EXAMPLES,
        EVERYDAY,
    )
    parser.add_argument(
        "source",
        metavar="SRC",
        help="a model directory, the workdir of a training run, ORG/NAME on the Hugging Face "
        "Hub, or a LoRA adapter, which is merged",
    )
    parser.add_argument("target", metavar="DST", help="directory to create")
    parser.add_argument(
        "--tokenizer",
        metavar="PATH",
        help=".model file or directory of the tokenizer to save; default: SRC's",
    )
    flags.add_checkpoint_flags(parser)
    parser.add_argument(
        "--max_source_length",
        type=int,
        metavar="TOKENS",
        help="new length of the position tables; default: SRC's",
    )
    parser.add_argument(
        "--position_extension",
        choices=("tiled", "random", "last_row"),
        help="how new rows are filled: with the rows repeated (default), random rows, or"
        " copies of the last row",
    )
    parser.add_argument(
        "--cross_attention",
        choices=("full", "hepos"),
        help="attention of the decoder over the encoder; default: SRC's",
    )
    parser.add_argument(
        "--hepos_stride",
        type=int,
        metavar="N",
        help="with hepos: each head attends to one of every N positions; default: 4",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="dtype of the weights in the file, except state-space kernels; default: float32",
    )
    _add_lsg_flags(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    """Refuses incompatible flags."""
    if args.hepos_stride is not None and args.cross_attention != "hepos":
        raise InputError(
            f"--hepos_stride={args.hepos_stride} needs --cross_attention=hepos; give both or "
            "neither"
        )
    if args.run_test and args.encoder_attention != "lsg":
        raise InputError(
            "--run_test needs --encoder_attention=lsg; give both or neither"
        )
    if args.run_test and args.dtype not in (None, "float32"):
        raise InputError(
            f"--run_test compares exactly, which --dtype={args.dtype} does not allow; convert with "
            "--run_test first, then to --dtype"
        )
    _check_extension(args)
