"""python -m longsum_jax.convert: rewrites a model directory or a training run as a model directory."""

from collections.abc import Sequence

from longsum_jax import cli

EXAMPLES = """\
  # a published checkpoint (pytorch_model.bin) as safetensors; needs torch this once
  python -m longsum_jax.convert locost-gsg-pretrained locost-base --tokenizer=spiece.model

  # a BART that has positions for 4,096 tokens instead of 1,024
  python -m longsum_jax.convert bart-large-cnn bart-4096 --max_source_length=4096

  # the best checkpoint of a training run, to share or to load in PyTorch
  python -m longsum_jax.convert runs/reports reports-model
"""


def main(argv: Sequence[str]) -> None:
    """Converts; raises InputError for what cannot be read or written."""
    parser = cli.parser("convert", "Writes config.json, model.safetensors and tokenizer files.", EXAMPLES)
    parser.add_argument("source", metavar="SRC", help="a model directory, or the workdir of a training run")
    parser.add_argument("target", metavar="DST", help="directory to make")
    parser.add_argument("--tokenizer", metavar="PATH", help=".model file or directory to put in instead of SRC's own")
    parser.add_argument("--which", choices=("best", "latest"), default="best", help="checkpoint of a training run")
    parser.add_argument(
        "--max_source_length", type=int, metavar="TOKENS", help="continue the position tables up to here"
    )
    args = parser.parse_args(argv)

    from longsum_jax.pipeline import load

    with cli.waiting(f"reading {args.source}"):
        model = load(args.source, tokenizer=args.tokenizer, which=args.which)
    if args.max_source_length is not None:
        model = model.extended(args.max_source_length)
    model.save(args.target)
    note = "" if model.tokenizer else "; it holds no tokenizer, add one with --tokenizer"
    print(f"{args.target}: {model.family.name}, {model.num_parameters:,} parameters{note}")


if __name__ == "__main__":
    cli.run(main)
