"""LSG attention beside full attention, Longformer and BigBird: seconds and memory, forward and
training, by length.

    python benchmarks/lsg.py --out=lsg.json [--kinds="128/4 norm,full"] [--lengths=1024,4096] \
        [--layers=6 --ffn=3072]

One encoder layer of BART base (768 wide, 12 heads, by default a feed-forward of 64 so that
attention is what is measured), one document, float32, the same numbers for all. "128/4 norm" has
blocks of 128 tokens, and of every four tokens beyond them one sparse key; "256/none" blocks of 256
alone. Longformer's window is 512, BigBird's blocks are 64 with three random ones, as in their
papers, which at evaluation are the first block again, as transformers has it: 320 keys are read, as
many as by "64/4 norm"; "longformer 640" has those of 128/4. `keys` is what a token reads.

At every length all kinds take turns, so that other work on the machine hits them alike; the fastest
of --repeats turns counts, in seconds and in processor seconds of all threads (which waiting does
not lengthen). Memory is what the compiled program takes besides its arguments. Training is the
gradient of all parameters; beyond --train_limit tokens only its memory is told. Full attention
stops at --dense_limit. `ratio` compares the seconds with those at half the length: 2 is linear.
"""

import argparse
import dataclasses
import json
import math
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from common import Program, compiled, fastest, print_table, write_report

from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bart import BartConfig

BASE = BartConfig(
    d_model=768,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
    dropout=0.0,
    num_global_tokens=1,
    attention_window=(512,),
    num_random_blocks=3,
)
_BLOCKS = {
    "encoder_attention": "lsg",
    "block_size": 128,
    "sparse_block_size": 128,
    "sparsity_factor": 4,
}
_SELECTIONS = ("norm", "stride", "pooling", "lsh")
# Name -> fields of the config, keys that a token sees.
KINDS: dict[str, tuple[dict[str, Any], int | None]] = {
    **{f"128/4 {kind}": (_BLOCKS | {"sparsity_type": kind}, 640) for kind in _SELECTIONS},
    "256/none": ({"encoder_attention": "lsg", "block_size": 256, "sparsity_type": "none"}, 768),
    "longformer": ({"encoder_attention": "longformer"}, 513),
    "longformer 640": ({"encoder_attention": "longformer", "attention_window": (640,)}, 641),
    "64/4 norm": (
        _BLOCKS | {"block_size": 64, "sparse_block_size": 64, "sparsity_type": "norm"},
        320,
    ),
    "bigbird": ({"encoder_attention": "bigbird", "block_size": 64}, 320),
    "full": ({"encoder_attention": "full"}, None),
}


def programs(kind: str, length: int, layers: int, ffn: int) -> dict[str, Program]:
    """The forward pass and the gradient."""
    config = dataclasses.replace(BASE, encoder_layers=layers, encoder_ffn_dim=ffn, **KINDS[kind][0])
    encoder = Encoder(config.encoder_stack)
    x, mask = (
        jax.random.normal(jax.random.key(0), (1, length, BASE.d_model)),
        jnp.ones((1, length), bool),
    )
    variables = nn.meta.unbox(jax.jit(encoder.init)(jax.random.key(1), x[:, :64], mask[:, :64]))

    def loss(variables: Any, x: jax.Array, mask: jax.Array) -> jax.Array:
        return jnp.square(encoder.apply(variables, x, mask)).mean()

    arguments = variables, x, mask
    functions = {"forward": encoder.apply, "training": jax.grad(loss)}
    return {name: compiled(f, *arguments) for name, f in functions.items()}


def measure(length: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every kind."""
    kinds = [kind for kind in args.kinds.split(",") if kind != "full" or length <= args.dense_limit]
    made = {kind: programs(kind, length, args.layers, args.ffn) for kind in kinds}
    rows = {
        kind: {"kind": kind, "length": length, "keys": min(KINDS[kind][1] or length, length)}
        for kind in kinds
    }
    for name, limit in (("forward", math.inf), ("training", args.train_limit)):
        taken = (
            fastest({kind: made[kind][name] for kind in kinds}, args.repeats)
            if length <= limit
            else {}
        )
        for kind in kinds:
            wall, cpu = taken.get(kind, (None, None))
            numbers = {
                "seconds": wall,
                "cpu_seconds": cpu,
                "mib": made[kind][name].work_bytes / 2**20,
            }
            rows[kind] |= {f"{name}_{key}": value for key, value in numbers.items()}
    return list(rows.values())


def add_ratios(rows: list[dict[str, Any]]) -> None:
    """How many times as long a text of twice the length takes."""
    seconds = {(row["kind"], row["length"]): row["forward_seconds"] for row in rows}
    for row in rows:
        half = seconds.get((row["kind"], row["length"] / 2))
        row["ratio"] = half and row["forward_seconds"] / half


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated; default: all")
    parser.add_argument(
        "--lengths", default="512,1024,2048,4096,8192,16384,32768,65536", help="tokens"
    )
    parser.add_argument("--layers", type=int, default=1, help="of the encoder; default: 1")
    parser.add_argument(
        "--ffn", type=int, default=64, help="width of the feed-forward; default: 64"
    )
    parser.add_argument(
        "--dense_limit", type=int, default=8192, help="longest input of full attention"
    )
    parser.add_argument(
        "--train_limit", type=int, default=4096, help="longest input whose training is timed"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="timed turns, of which the fastest counts"
    )
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    rows: list[dict[str, Any]] = []
    for length in sorted(map(int, args.lengths.split(","))):
        rows += measure(length, args)
        add_ratios(rows)
        print(
            *(json.dumps(row) for row in rows if row["length"] == length),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
        if args.out:
            write_report(args.out, rows, layers=args.layers, ffn=args.ffn)
    print_table(rows)


if __name__ == "__main__":
    main()
