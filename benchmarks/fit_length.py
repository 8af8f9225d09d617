"""The longest document that models train on within a device's memory (AWESOME, table 14), from
compiled programs alone.

    python benchmarks/fit_length.py --out=fit_length.json [--budget_gib=27] [--size=large] \
        [--lengths=1024,16384]

One document a step, no gradient checkpointing, AdamW, float32: nothing is run and no array is made.
Models are of equal width and depth: BART with as many positions as it needs, LED, LongT5, and BART
segment by segment without and with memories. `--lengths` asks instead what steps over these lengths
take. XLA on a CPU plans other temporary arrays than on a GPU, so that numbers for a device have to
be taken on one; how they grow with the length is the same. Segments hold 768 tokens, padded to
1,024; summaries 1,024 tokens, those of segments 256.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from common import print_table, write_report

from longsum_jax.analysis.device_memory import fit_length, step_bytes
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.step import LossOutput

SEGMENT, PADDED, SEGMENT_TARGET, TARGET = 768, 1024, 256, 1024
# Size -> layers of each stack, width, heads.
SIZES = {"small": (4, 256, 4), "base": (6, 768, 12), "large": (12, 1024, 16)}
MEMORIES = {
    "se3": {},
    "compressive": {"memory": "compressive"},
    "attentive": {"memory": "attentive"},
    "kv": {"salient_vectors": 1024},
}


def bart_config(size: str, family: str, length: int, **options: Any) -> Any:
    """A relative of BART with ``length`` positions."""
    layers, width, heads = SIZES[size]
    sizes = {"encoder_layers": layers, "decoder_layers": layers, "d_model": width, "dropout": 0.1}
    sizes |= {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
              {"ffn_dim": 4 * width, "attention_heads": heads}.items()}  # fmt: skip
    return get_family(family).config(sizes | options).with_max_source_length(length)


def longt5_config(size: str, length: int) -> Any:
    layers, width, heads = SIZES[size]
    sizes = {
        "num_layers": layers,
        "num_decoder_layers": layers,
        "d_model": width,
        "num_heads": heads,
        "d_kv": 64,
    }
    return get_family("longt5").config(
        sizes | {"d_ff": 4 * width, "encoder_attention": "transient_global"}
    )


def whole_bytes(family: str, config: Any, length: int) -> int:
    """Bytes of a step over a document that is read in one piece."""
    module = get_family(family).module_class(config)

    def loss_fn(params: Any, batch: Any, rng: Any) -> LossOutput:
        ids = shift_right(
            batch["labels"], start_id=config.decoder_start_token_id, pad_id=config.pad_token_id
        )
        inputs = batch["input_ids"], batch["attention_mask"], ids
        logits = module.apply(
            {"params": params}, *inputs, deterministic=False, rngs={"dropout": rng}
        )
        return LossOutput(*token_cross_entropy(logits, batch["labels"]))

    batch = {"input_ids": _ints(1, length), "labels": _ints(1, TARGET)}
    batch["attention_mask"] = jax.ShapeDtypeStruct((1, length), jnp.bool_)
    return step_bytes(loss_fn, make_optimizer(OptimizerOptions()), _params(family, config), batch)


def segmented_bytes(config: Any, length: int) -> int:
    """Bytes of a step over a document that is read segment by segment."""
    loss = segment_loss_fn(get_family("bart").module_class(config), config, label_smoothing=0.1)
    segments = -(-length // SEGMENT)
    batch = {"input_ids": _ints(1, segments, PADDED), "labels": _ints(1, segments, SEGMENT_TARGET)}
    batch["attention_mask"] = jax.ShapeDtypeStruct((1, segments, PADDED), jnp.bool_)
    if config.salient_vectors:
        batch |= {
            "slots": _ints(1, segments, PADDED),
            "reads": _ints(1, segments, config.salient_vectors),
        }
    return step_bytes(loss, make_optimizer(OptimizerOptions()), _params("bart", config), batch)


def models(size: str) -> dict[str, Callable[[int], int]]:
    """Name -> tokens to bytes."""
    segmented = {
        name: bart_config(size, "bart", PADDED, **options) for name, options in MEMORIES.items()
    }
    return {
        "bart": lambda length: whole_bytes("bart", bart_config(size, "bart", length), length),
        "led": lambda length: whole_bytes("led", bart_config(size, "led", length), length),
        "longt5": lambda length: whole_bytes("longt5", longt5_config(size, length), length),
        **{
            name: lambda length, config=config: segmented_bytes(config, length)
            for name, config in segmented.items()
        },
    }


def _params(family: str, config: Any) -> Any:
    from flax.core import meta

    return meta.unbox(jax.eval_shape(get_family(family).init_params(config), jax.random.key(0)))


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out")
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--budget_gib", type=float, default=27.0)
    parser.add_argument("--longest", type=int, default=2**17)
    parser.add_argument(
        "--lengths", help="comma-separated; asks for bytes instead of the longest length"
    )
    parser.add_argument("--models", help="comma-separated; default: all")
    args = parser.parse_args()
    chosen = models(args.size)
    rows = []
    for name in args.models.split(",") if args.models else chosen:
        if args.lengths:
            row = {
                f"{n:,}": round(chosen[name](n) / 2**30, 3)
                for n in map(int, args.lengths.split(","))
            }
        else:
            row = {
                "tokens": fit_length(
                    chosen[name], int(args.budget_gib * 2**30), longest=args.longest
                )
            }
        rows.append({"model": name} | row)
        print_table(rows[-1:])
    print_table(rows)
    if args.out:
        write_report(args.out, rows, size=args.size, budget_gib=args.budget_gib)


if __name__ == "__main__":
    main()
