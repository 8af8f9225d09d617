"""LSG attention beside its peers: seconds and memory, forward and training, by length.

    python benchmarks/lsg.py --out=lsg.json [--kinds="128/4 norm,full"] [--lengths=1024,4096] \
        [--layers=6 --ffn=3072]
    python benchmarks/lsg.py --classifier --out=lsg_classifier.json [--size=base] [--batch=4]

One encoder layer of BART base (768 wide, 12 heads, by default a feed-forward of 64 so that
attention is what is measured), one document, float32, the same numbers for all. "128/4 norm" has
blocks of 128 tokens, and of every four tokens beyond them one sparse key; "256/none" blocks of 256
alone. Longformer's window is 512, BigBird's blocks are 64 with three random ones, as in their
papers, which at evaluation are the first block again, as transformers has it: 320 keys are read, as
many as by "64/4 norm"; "longformer 640" has those of 128/4. `keys` is what a token reads; linear,
efficient and Performer attention (256 features) read sums alone.

At every length all kinds take turns, so that other work on the machine hits them alike; the fastest
of --repeats turns counts, in seconds and in processor seconds of all threads (which waiting does
not lengthen). Memory is what the compiled program takes besides its arguments. Training is the
gradient of all parameters; beyond --train_limit tokens only its memory is told. Full attention
stops at --dense_limit. `ratio` compares the seconds with those at half the length: 2 is linear.

--classifier measures whole models as in table 8 of the paper: a RoBERTa of --size that tells two
classes, a step with Adam over --batch documents, with and without dropout of attention weights
(--rates); `gib` is all that the step holds, parameters and moments included. Its default length is
4,096. "roberta" is full attention over at most 512 tokens, and as many documents as make the same
number of tokens (paper: 16,384 for all rows, which --batch=4 has at 4,096). With --compiled_only
nothing is run. Started again with the same --out, either measures what is not there yet (all kinds
of a length, which take turns).
"""

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from common import (
    GIB,
    Program,
    compiled,
    fastest,
    numbers,
    print_table,
    rows_before,
    write_report,
)

from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bart import BartConfig
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import class_cross_entropy
from longsum_jax.training.loss import LossOutput
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step

BASE = BartConfig(
    d_model=768,
    encoder_attention_heads=12,
    decoder_attention_heads=12,
    dropout=0.0,
)
_BLOCKS = {
    "num_global_tokens": 1,
    "encoder_attention": "lsg",
    "block_size": 128,
    "sparse_block_size": 128,
    "sparsity_factor": 4,
}
_SELECTIONS = ("norm", "stride", "pooling", "lsh")
# Name -> fields of the config, keys that a token sees.
KINDS: dict[str, tuple[dict[str, Any], int | None]] = {
    **{f"128/4 {kind}": (_BLOCKS | {"sparsity_type": kind}, 640) for kind in _SELECTIONS},
    "256/none": (_BLOCKS | {"block_size": 256, "sparsity_type": "none"}, 768),
    "longformer": ({"encoder_attention": "longformer"}, 513),
    "longformer 640": ({"encoder_attention": "longformer", "attention_window": (640,)}, 641),
    "64/4 norm": (
        _BLOCKS | {"block_size": 64, "sparse_block_size": 64, "sparsity_type": "norm"},
        320,
    ),
    "bigbird": ({"encoder_attention": "bigbird", "block_size": 64}, 320),
    "full": ({"encoder_attention": "full"}, None),
    **{kind: ({"encoder_attention": kind}, 0) for kind in ("linear", "efficient", "performer")},
}
SHORT = 512  # longest text of "roberta"
# Table 8 has the first six (block size / sparsity factor).
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "roberta": {"encoder_attention": "full"},
    "longformer": {"encoder_attention": "longformer", "attention_window": (512,)},
    "bigbird": {"encoder_attention": "bigbird", "block_size": 64, "num_random_blocks": 3},
    "256/none": KINDS["256/none"][0],
    "128/4 norm": KINDS["128/4 norm"][0],
    "32/4 norm": _BLOCKS | {"block_size": 32, "sparse_block_size": 32, "sparsity_type": "norm"},
    **{kind: {"encoder_attention": kind} for kind in ("linear", "efficient", "performer", "full")},
}
# Size -> layers, width, heads, inner width, vocabulary of the classifiers.
SIZES = {
    "base": (12, 768, 12, 3072, 50265),
    "small": (4, 256, 4, 1024, 8192),
    "tiny": (1, 16, 2, 16, 99),
}


def programs(kind: str, length: int, layers: int, ffn: int) -> dict[str, Program]:
    """The forward pass and the gradient."""
    config = BASE.replace(encoder_layers=layers, encoder_ffn_dim=ffn, **KINDS[kind][0])
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


def keys_of(kind: str, length: int) -> int:
    """Keys that a token reads of a text."""
    keys = KINDS[kind][1]
    return length if keys is None else min(keys, length)


def measure(length: int, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every kind."""
    kinds = [kind for kind in args.kinds.split(",") if kind != "full" or length <= args.dense_limit]
    made = {kind: programs(kind, length, args.layers, args.ffn) for kind in kinds}
    rows = {kind: {"kind": kind, "length": length, "keys": keys_of(kind, length)} for kind in kinds}
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


def classifier_batch(kind: str, length: int, batch: int) -> tuple[int, int]:
    """Documents and tokens of each, for the row of ``batch`` documents of ``length`` tokens."""
    if kind != "roberta" or length <= SHORT:
        return batch, length
    return batch * length // SHORT, SHORT


def classifier_step(
    kind: str, batch_size: int, length: int, rate: float, args: argparse.Namespace
) -> tuple[Program, Callable[[], tuple[Any, Any]]]:
    """A step of a RoBERTa that tells two classes, compiled for shapes, and a function that gives
    its state and a batch."""
    layers, width, heads, inner, vocabulary = SIZES[args.size]
    family = get_family("roberta")
    config = family.config(
        {
            "vocab_size": vocabulary,
            "hidden_size": width,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "max_position_embeddings": length + 2,
            "attention_probs_dropout_prob": rate,
            "dtype": args.dtype,
            "head": "classification",
            "num_global_tokens": 1,
            **CLASSIFIERS[kind],
        }
    )
    module = family.module_class(config)

    def loss_fn(params: Any, batch: Any, rng: Any) -> LossOutput:
        logits = module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            deterministic=False,
            rngs={"dropout": rng},
        )
        return LossOutput(*class_cross_entropy(logits, batch["labels"]))

    optimizer = make_optimizer(OptimizerOptions("adamw", weight_decay=0.0))
    shapes = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    state = jax.eval_shape(lambda params: init_state(params, optimizer), shapes)
    batch = {
        "input_ids": jax.ShapeDtypeStruct((batch_size, length), jnp.int32),
        "attention_mask": jax.ShapeDtypeStruct((batch_size, length), jnp.bool_),
        "labels": jax.ShapeDtypeStruct((batch_size,), jnp.int32),
    }
    program = compiled(make_train_step(loss_fn, optimizer), state, batch)

    def arguments() -> tuple[Any, Any]:
        params = nn.meta.unbox(jax.jit(family.init_params(config))(jax.random.key(0)))
        random = np.random.default_rng(0)
        ids = random.integers(5, vocabulary, (batch_size, length), dtype=np.int32)
        labels = random.integers(0, 2, batch_size, dtype=np.int32)
        mask = np.ones(ids.shape, bool)
        arrays = {"input_ids": ids, "attention_mask": mask, "labels": labels}
        return init_state(params, optimizer), jax.tree.map(jnp.asarray, arrays)

    return program, arguments


def classifier_row(kind: str, length: int, rate: float, args: argparse.Namespace) -> dict[str, Any]:
    """A row of table 8: seconds of a step, and what it holds."""
    documents, tokens = classifier_batch(kind, length, args.batch)
    program, arguments = classifier_step(kind, documents, tokens, rate, args)
    row: dict[str, Any] = {"kind": kind, "length": length, "attention_dropout": rate}
    row |= {"documents": documents, "document_tokens": tokens} if tokens != length else {}
    row |= {"gib": program.held_bytes / GIB, "work_gib": program.work_bytes / GIB}
    if args.compiled_only:
        return row
    state, batch = arguments()

    def step() -> None:
        nonlocal state
        state, metrics = program.compiled(state, batch)
        jax.block_until_ready((state, metrics))

    taken = fastest({kind: step}, args.repeats)[kind]
    return row | {"seconds": taken.wall, "cpu_seconds": taken.cpu}


def measure_classifiers(args: argparse.Namespace) -> None:
    """Measures, prints and writes all that table 8 asks for."""
    args.dtype = args.dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    settings = {"size": args.size, "batch": args.batch, "dtype": args.dtype}
    rows = rows_before(args.out, **settings)
    done = {(row["kind"], row["length"], row["attention_dropout"]) for row in rows}
    for length in numbers(args.lengths or "4096"):
        for kind in args.kinds.split(",") if args.kinds else CLASSIFIERS:
            if kind == "full" and length > args.dense_limit:
                continue
            for rate in map(float, args.rates.split(",")):
                if (kind, length, rate) in done:
                    continue
                rows.append(classifier_row(kind, length, rate, args))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                if args.out:
                    write_report(args.out, rows, **settings)
    print_table(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", help="comma-separated; default: all")
    parser.add_argument(
        "--lengths", help="tokens; default: 512,1024 and so on to 65536; --classifier: 4096"
    )
    parser.add_argument("--classifier", action="store_true", help="steps of whole models")
    parser.add_argument("--size", choices=SIZES, default="base", help="--classifier: of the model")
    parser.add_argument("--batch", type=int, default=4, help="--classifier: documents of a step")
    parser.add_argument("--rates", default="0.1,0", help="--classifier: of attention dropout")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16"),
        help="--classifier; default: bfloat16, float32 on a CPU",
    )
    parser.add_argument(
        "--compiled_only", action="store_true", help="--classifier: memory alone, nothing is run"
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
    if args.classifier:
        measure_classifiers(args)
        return

    args.kinds = args.kinds or ",".join(KINDS)
    settings = {"layers": args.layers, "ffn": args.ffn}
    rows = rows_before(args.out, **settings)
    done = {row["length"] for row in rows}
    lengths = args.lengths or "512,1024,2048,4096,8192,16384,32768,65536"
    for length in sorted(set(numbers(lengths)) - done):
        rows += measure(length, args)
        add_ratios(rows)
        print(
            *(json.dumps(row) for row in rows if row["length"] == length),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
        if args.out:
            write_report(args.out, rows, **settings)
    print_table(rows)


if __name__ == "__main__":
    main()
