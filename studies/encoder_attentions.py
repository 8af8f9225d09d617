"""Every encoder attention at equal cost: seconds and memory of one layer, forward and training,
beside its complexity.

    python studies/encoder_attentions.py --out=encoder_attentions.json [--kinds=full,lsh] \
        [--lengths=1024,2048]

One encoder layer of BART base (768 wide, 12 heads, a feed-forward of 64 so that attention is what
is measured), one document, float32. Options are those of Huang et al. (2021, section 6.2), about
256 keys for a query at 1,024 tokens. Seconds on the clock and processor seconds of all cores are
the least of --repeats calls, memory is what the compiled program takes besides its arguments.
"projections" is the layer without any attention, only the maps that all kinds have. `exponent` is
that of the length in Table 1 of the paper, `new_parameters` are those that full attention lacks.
`forward_slope` and `training_slope` are those of the processor seconds between the longest input
and a quarter of it, `forward_expected` and `training_expected` what they would be if all that the
shorter input takes more than "projections" grew with the number of keys that its queries read: for
window+stride those of the window, too, and for Sinkhorn the mixing of blocks, which the table
leaves out. Full attention stops at --dense_limit tokens. Started again with the same --out, it
measures what is not there yet.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import flax.linen as nn
import jax
import jax.numpy as jnp
from common import Program, compiled, fastest, print_table, write_report

from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bart import BartConfig

BASE = BartConfig(
    d_model=768,
    encoder_layers=1,
    encoder_ffn_dim=64,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
    dropout=0.0,
)
OPTIONS = {
    "attention_window": (256,),
    "num_global_tokens": 128,
    "attention_stride": 8,
    "num_random_blocks": 1,
    "block_size": 128,
    "linformer_size": 256,
    "linformer_max_length": 2**16,
}


class Projections(EncoderSelfAttention):
    """What every kind computes besides its attention."""

    def __call__(
        self, x: jax.Array, context: Any, layer_input: Any, deterministic: bool
    ) -> jax.Array:
        return self.o(self.q(x) + self.k(x) + self.v(x))


ENCODER_ATTENTIONS["projections"] = Projections
PASSES = ("forward", "training")
Rows = dict[tuple[str, int], dict[str, Any]]  # by kind and length
LONG_ENOUGH = 10.0  # seconds of calls after which no further one is timed
# Kind -> (complexity in Table 1, exponent of the length there, keys of a query among n tokens).
KINDS = {
    "projections": ("", 1, lambda n: 0),
    "full": ("n^2", 2, lambda n: n),
    "window": ("n w", 1, lambda n: 256),
    "adaptive_span": ("n w", 1, lambda n: 256),
    "window+global": ("2 n g", 1, lambda n: 256 + 2 * 128),
    "window+stride": ("n^2 / s", 2, lambda n: 256 + n / 8),
    "window+random": ("n r", 1, lambda n: 256 + 128),
    "adaptive_span+stride": ("n^2 / s", 2, lambda n: 256 + n / 8),
    "linformer": ("n k", 1, lambda n: 256),
    "lsh": ("l n b", 1, lambda n: 4 * 2 * 64),
    "sinkhorn": (
        "2 n b",
        1,
        lambda n: 2 * 128 + n / 128,
    ),  # mixing keys and values costs a product a block each
}


def programs(kind: str, length: int) -> dict[str, Program]:
    """Forward pass and gradient of one layer."""
    encoder = Encoder(BASE.replace(encoder_attention=kind, **OPTIONS).encoder_stack)
    x, mask = (
        jax.random.normal(jax.random.key(0), (1, length, BASE.d_model)),
        jnp.ones((1, length), bool),
    )
    variables = nn.meta.unbox(jax.jit(encoder.init)(jax.random.key(1), x[:, :256], mask[:, :256]))

    def loss(variables: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.square(encoder.apply(variables, x, mask, False, rngs={"dropout": key})).mean()

    arguments = {"forward": (variables, x, mask), "training": (variables, x, jax.random.key(2))}
    functions = {"forward": encoder.apply, "training": jax.grad(loss)}
    return {name: compiled(f, *arguments[name]) for name, f in functions.items()}


def num_parameters(kind: str) -> int:
    """Parameters of the layer, those of Linformer for 65,536 tokens."""
    encoder = Encoder(BASE.replace(encoder_attention=kind, **OPTIONS).encoder_stack)
    x, mask = jnp.zeros((1, 256, BASE.d_model)), jnp.ones((1, 256), bool)
    shapes = jax.eval_shape(encoder.init, jax.random.key(0), x, mask)
    return sum(x.size for x in jax.tree.leaves(nn.meta.unbox(shapes)))


def measure(kind: str, length: int, repeats: int) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"kind": kind, "length": length}
    for name, program in programs(kind, length).items():
        taken = fastest({name: program}, repeats, warm_ups=0, enough=LONG_ENOUGH)[name]
        row |= {
            f"{name}_seconds": taken.wall,
            f"{name}_cpu": taken.cpu,
            f"{name}_mib": program.work_bytes / 2**20,
        }
    return row


def measured_before(out: str | None) -> Rows:
    """Rows of an earlier run by kind and length, without what the longest of a kind say of all."""
    if out is None or not Path(out).exists():
        return {}
    columns = (
        "kind",
        "length",
        *(f"{name}_{key}" for name in PASSES for key in ("seconds", "cpu", "mib")),
    )
    rows = [{key: row[key] for key in columns} for row in json.loads(Path(out).read_text())["rows"]]
    return {(row["kind"], row["length"]): row for row in rows}


def with_slopes(measured: Rows) -> list[dict[str, Any]]:
    """The rows of one kind after another; the longest of each has complexity, expected and measured
    exponents."""
    table = []
    for kind, (complexity, exponent, _) in KINDS.items():
        rows = [dict(measured[key]) for key in sorted(measured) if key[0] == kind]
        if rows:
            rows[-1] |= {"complexity": complexity, "exponent": exponent}
            rows[-1]["new_parameters"] = num_parameters(kind) - num_parameters("full")
        if shorter := [row for row in rows if 4 * row["length"] <= rows[-1]["length"]]:
            for name in PASSES:
                rows[-1] |= slopes(name, shorter[-1], rows[-1], measured)
        table += rows
    return table


def slopes(
    name: str, short: dict[str, Any], long: dict[str, Any], measured: Rows
) -> dict[str, float]:
    """Expected and measured slope of a pass between two lengths."""
    lengths, column = (short["length"], long["length"]), f"{name}_cpu"
    maps = [measured["projections", length][column] for length in lengths]
    read = [length * (KINDS[short["kind"]][2](length) or 1) for length in lengths]
    expected = maps[1] + (short[column] - maps[0]) * read[1] / read[0]
    return {
        f"{name}_expected": slope(lengths, (short[column], expected)),
        f"{name}_slope": slope(lengths, (short[column], long[column])),
    }


def slope(lengths: Sequence[int], values: Sequence[float]) -> float:
    """The exponent of the length with which values grow."""
    return math.log(values[1] / values[0]) / math.log(lengths[1] / lengths[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated; default: all")
    parser.add_argument(
        "--lengths",
        default="1024,2048,4096,8192,16384,32768",
        help="tokens; default: 1,024 to 32,768",
    )
    parser.add_argument(
        "--dense_limit", type=int, default=16384, help="longest input of full attention"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="timed calls each, fewer of long ones; the least counts",
    )
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    measured = measured_before(args.out)
    for kind in dict.fromkeys(["projections", *args.kinds.split(",")]):
        limit = args.dense_limit if kind == "full" else math.inf
        for length in sorted(int(x) for x in args.lengths.split(",") if int(x) <= limit):
            if (kind, length) not in measured:
                measured[kind, length] = measure(kind, length, args.repeats)
                print(json.dumps(measured[kind, length]), file=sys.stderr, flush=True)
                if args.out:
                    write_report(args.out, with_slopes(measured))
    if args.out:
        write_report(args.out, with_slopes(measured))
    print_table(with_slopes(measured))


if __name__ == "__main__":
    main()
