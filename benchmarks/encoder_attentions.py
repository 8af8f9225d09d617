"""Every encoder attention at equal cost: seconds and memory of one layer, forward and training, beside its complexity.

    python benchmarks/encoder_attentions.py --out=encoder_attentions.json [--kinds=full,lsh] [--lengths=1024,2048]

One encoder layer of BART base (768 wide, 12 heads, a feed-forward of 64 so that attention is what is measured), one
document, float32. Options are those of Huang et al. (2021, section 4.3), about 256 keys for a query at 1,024 tokens.
Seconds are the fastest of --repeats calls after a warm-up, memory is what the compiled program takes besides its
arguments. `expected` is the exponent of the length in Table 1 of the paper, `slope` the measured one: of the forward
seconds between the two longest inputs. Quadratic kinds stop at --dense_limit tokens.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from common import print_table, write_report

from longsum_jax.layers.transformer import Encoder
from longsum_jax.models.bart import BartConfig

BASE = BartConfig(
    d_model=768,
    encoder_layers=1,
    encoder_ffn_dim=64,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
    dropout=0.0,
    attention_window=(256,),
    num_global_tokens=128,
    attention_stride=8,
    num_random_blocks=1,
    block_size=128,
    linformer_size=256,
    linformer_max_length=2**16,
)
# Kind -> (complexity in Table 1, exponent of the length).
KINDS = {
    "full": ("n^2", 2),
    "window": ("n w", 1),
    "adaptive_span": ("n w", 1),
    "window+global": ("2 n g", 1),
    "window+stride": ("n^2 / s", 2),
    "window+random": ("n r", 1),
    "adaptive_span+stride": ("n^2 / s", 2),
    "linformer": ("n k", 1),
    "lsh": ("l n b", 1),
    "sinkhorn": ("2 n b", 1),
}


def programs(kind: str, length: int) -> dict[str, tuple[Any, tuple]]:
    """Compiled forward pass and gradient of one layer, and what they are called with."""
    encoder = Encoder(dataclasses.replace(BASE, encoder_attention=kind).encoder_stack)
    x, mask = jax.random.normal(jax.random.key(0), (1, length, BASE.d_model)), jnp.ones((1, length), bool)
    variables = nn.meta.unbox(jax.jit(encoder.init)(jax.random.key(1), x[:, :256], mask[:, :256]))

    def loss(variables: Any, x: jax.Array, key: jax.Array) -> jax.Array:
        return jnp.square(encoder.apply(variables, x, mask, False, rngs={"dropout": key})).mean()

    arguments = {"forward": (variables, x, mask), "training": (variables, x, jax.random.key(2))}
    functions = {"forward": encoder.apply, "training": jax.grad(loss)}
    return {name: (jax.jit(f).lower(*arguments[name]).compile(), arguments[name]) for name, f in functions.items()}


def measure(kind: str, length: int, repeats: int) -> dict[str, Any]:
    """A row of the table."""
    row: dict[str, Any] = {"kind": kind, "length": length}
    for name, (program, arguments) in programs(kind, length).items():
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            jax.block_until_ready(program(*arguments))
            seconds.append(time.perf_counter() - start)
        row[f"{name}_seconds"] = min(seconds[1:])
        row[f"{name}_mib"] = program.memory_analysis().temp_size_in_bytes / 2**20
    return row


def add_slope(rows: list[dict[str, Any]]) -> None:
    """Complexity and measured exponent, at the longest input of one kind."""
    rows[-1]["complexity"], rows[-1]["expected"] = KINDS[rows[-1]["kind"]]
    if len(rows) > 1:
        (a, b), name = rows[-2:], "forward_seconds"
        rows[-1]["slope"] = math.log(b[name] / a[name]) / math.log(b["length"] / a["length"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(KINDS), help="comma-separated; default: all")
    parser.add_argument("--lengths", default="1024,2048,4096,8192,16384,32768", help="tokens; default: 1,024 to 32,768")
    parser.add_argument("--dense_limit", type=int, default=32768, help="longest input of quadratic kinds")
    parser.add_argument("--repeats", type=int, default=2, help="timed calls each, of which the fastest counts")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    rows: list[dict[str, Any]] = []
    for kind in args.kinds.split(","):
        limit = args.dense_limit if KINDS[kind][1] > 1 else math.inf
        own = []
        for length in sorted(int(x) for x in args.lengths.split(",") if int(x) <= limit):
            own.append(measure(kind, length, args.repeats))
            print(json.dumps(own[-1]), file=sys.stderr, flush=True)
        add_slope(own)
        rows += own
        if args.out:
            write_report(args.out, rows)
    print_table(rows)


if __name__ == "__main__":
    main()
