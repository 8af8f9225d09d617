"""The longest document that models train on within a device's memory, and what a step over one
takes (AWESOME, table 14, figure 3; the longest inputs of Hepos, table 4).

    python benchmarks/fit_length.py --out=fit_length.json [--budget_gib=27] [--size=large] \
        [--lengths=1024,16384] [--run]
    python benchmarks/fit_length.py --out=hepos_lengths.json --budget_gib=48 --batch=2 \
        --models=full/full,full/hepos,lsh/full,lsh/hepos

One document a step (--batch), no gradient checkpointing, AdamW, float32. Models are of equal width
and depth: BART with as many positions as it needs, LED, LongT5, BART with the block attention of
PEGASUS-X, BART in pages with the decoder of Unlimiformer or of PageSum, and BART segment by
segment: without a memory ("se3"), with one in the last three layers ("compressive", "attentive") or
in all of them ("attentive all"), with important sentences as vectors ("kv"). Segments hold 768
tokens and are padded to 1,024, as configs/awesome.py has them, so "se3" and "attentive" are also
the paper's Txt and Attn+Txt, whose important sentences fill the segment. With " 768" after the name
("se3 768", "attentive 768") segments are padded to 768, as the paper measures models without text.
"extract_abstract" is the abstractor of Extract-Abstract: BART over 1,024 tokens of sentences that
were selected before, whatever the length of the document. LongT5 is the model of
configs/long_baselines.py, with sliding windows and for the sizes base and large the sizes of its
base checkpoint. Rows of Hepos are models of configs/hepos.py, encoder/cross, with its options.

Memory comes from compiled programs alone: nothing is run and no array is made. XLA on a CPU plans
other temporary arrays than on a GPU: --device=a100-40 compiles for one that need not be there (see
`longsum plan`). How they grow with the length is the same. Rows `at_end` fit even at --longest,
where the search ends. `--lengths` asks what steps over these lengths take, and `--run` makes such
steps: the fastest of --repeats. Summaries have 1,024 tokens, summaries of segments 256. Started
again with the same --out, it goes on where it stopped.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import (
    GIB,
    Program,
    RefusedError,
    compiled,
    fastest,
    numbers,
    print_table,
    rows_before,
    write_report,
)
from flax.core import meta

from longsum_jax.configs import hepos, long_baselines
from longsum_jax.errors import InputError
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.models.registry import get_family, model_config, preset
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.training.loss import LossFn, LossOutput, SegmentedLoss
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import TrainState, init_state
from longsum_jax.training.step import make_train_step
from longsum_plan import devices
from longsum_plan.fit_length import fit_length


class Size(NamedTuple):
    """Layers of each stack, width, heads and vocabulary; tokens of a segment, of its padding and
    target, and of a summary."""

    layers: int
    width: int
    heads: int
    vocabulary: int = 50265
    segment: int = 768
    padded: int = 1024
    segment_target: int = 256
    target: int = 1024


SIZES = {
    "tiny": Size(3, 16, 4, 99, segment=24, padded=32, segment_target=8, target=16),
    "small": Size(4, 256, 4),
    "base": Size(6, 768, 12),
    "large": Size(12, 1024, 16),
}
# Name -> options of BART, read in one piece. Pages are those of configs/long_baselines.py.
WHOLE: dict[str, Callable[[Size], dict[str, Any]]] = {
    "bart": lambda size: {},
    "block_attention": lambda size: {
        "encoder_attention": "block_staggered",
        "block_size": size.padded // 2,
    },
    "unlimiformer": lambda size: {
        "page_length": size.padded,
        "page_context": size.padded // 4,
        "cross_attention": "nearest",
        "cross_nearest": size.padded,
    },
    "pagesum": lambda size: {"page_length": size.padded, "page_decoding": True},
}
# Name -> options of BART, read segment by segment.
SEGMENTED: dict[str, Callable[[Size], dict[str, Any]]] = {
    "se3": lambda size: {},
    "compressive": lambda size: {"memory": "compressive", "memory_size": size.padded},
    "attentive": lambda size: {"memory": "attentive", "memory_size": size.padded},
    "attentive all": lambda size: {
        "memory": "attentive",
        "memory_size": size.padded,
        "memory_layers": "all",
    },
    "kv": lambda size: {"salient_vectors": size.padded},
}
SHORT = " 768"  # after the name of a model of SEGMENTED: segments are not padded
HEPOS = tuple("/".join(row) for row in hepos.SOURCES)
MODELS = (*WHOLE, "led", "longt5", *SEGMENTED)
FURTHER = ("extract_abstract", *(name + SHORT for name in SEGMENTED), *HEPOS)


@dataclass(frozen=True)
class Step:
    """A model's loss, and the shapes of its parameters and of a batch; ``device`` compiles."""

    loss_fn: LossFn | SegmentedLoss
    init_params: Callable[[Any], Any]
    batch: dict[str, jax.ShapeDtypeStruct]
    vocabulary: int
    device: jax.Device | None = None

    @cached_property
    def program(self) -> Program:
        """The step, compiled for shapes; ``held_bytes`` is what it holds."""
        step = make_train_step(self.loss_fn, make_optimizer(OptimizerOptions()))
        shapes = jax.eval_shape(self._state, jax.random.key(0)), self.batch
        return compiled(step, *shapes, device=self.device)

    def seconds(self, repeats: int) -> float:
        """The fastest of some steps."""
        state = jax.jit(self._state)(jax.random.key(0))
        batch = {name: jnp.asarray(self._array(name, x)) for name, x in self.batch.items()}

        def step() -> None:
            nonlocal state
            state, metrics = self.program.compiled(state, batch)
            jax.block_until_ready((state, metrics))

        return fastest({"": step}, repeats)[""].wall

    def _state(self, rng: Any) -> TrainState:
        return init_state(meta.unbox(self.init_params(rng)), make_optimizer(OptimizerOptions()))

    def _array(self, name: str, x: jax.ShapeDtypeStruct) -> np.ndarray:
        if x.dtype == jnp.bool_:
            return np.ones(x.shape, bool)
        if name in ("slots", "reads"):  # a slot holds the token at its place, a read the first
            return np.broadcast_to(np.arange(x.shape[-1], dtype=np.int32), x.shape)
        return np.random.default_rng(0).integers(5, self.vocabulary, x.shape, dtype=np.int32)


def bart_config(size: Size, family: str, length: int, **options: Any) -> Any:
    """A relative of BART with ``length`` positions."""
    sizes = {"encoder_layers": size.layers, "decoder_layers": size.layers, "d_model": size.width}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_ffn_dim": 4 * size.width, f"{side}_attention_heads": size.heads}
    sizes |= {"vocab_size": size.vocabulary, "dropout": 0.1}
    config = get_family(family).config(sizes | options)
    return config.with_max_source_length(max(length, size.target))


def longt5_config(size: Size) -> Any:
    """The LongT5 of configs/long_baselines.py, or a small one with its attention."""
    family, options = long_baselines.BASELINES["longt5"]
    if size in (SIZES["base"], SIZES["large"]):
        return model_config(preset(family, "base", **options))[1]
    sizes = {
        "num_layers": size.layers,
        "num_decoder_layers": size.layers,
        "d_model": size.width,
        "num_heads": size.heads,
        "d_kv": size.width // size.heads,
        "d_ff": 4 * size.width,
        "vocab_size": size.vocabulary,
    }
    return get_family(family).config(sizes | options)


def whole_step(family: str, config: Any, size: Size, length: int, batch: int) -> Step:
    """A step over documents that are read in one piece."""
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

    arrays = {"input_ids": _ints(batch, length), "labels": _ints(batch, size.target)}
    arrays["attention_mask"] = jax.ShapeDtypeStruct((batch, length), jnp.bool_)
    return Step(loss_fn, get_family(family).init_params(config), arrays, config.vocab_size)


def segmented_step(config: Any, size: Size, length: int, batch: int) -> Step:
    """A step over documents that are read segment by segment."""
    loss = segment_loss_fn(get_family("bart").module_class(config), config, label_smoothing=0.1)
    segments = -(-length // size.segment)
    shape = (batch, segments, size.padded)
    arrays = {"input_ids": _ints(*shape), "labels": _ints(batch, segments, size.segment_target)}
    arrays["attention_mask"] = jax.ShapeDtypeStruct(shape, jnp.bool_)
    if config.memory.salient_vectors:
        arrays |= {
            "slots": _ints(*shape),
            "reads": _ints(batch, segments, config.memory.salient_vectors),
        }
    return Step(loss, get_family("bart").init_params(config), arrays, size.vocabulary)


def step_of(name: str, size: Size, length: int, batch: int = 1) -> Step:
    """A step of the model of this name over ``batch`` documents of ``length`` tokens."""
    variant = name.removesuffix(SHORT)
    if variant in SEGMENTED:
        config = bart_config(size, "bart", size.padded, **SEGMENTED[variant](size))
        if variant != name:
            size = size._replace(padded=size.segment)
        return segmented_step(config, size, length, batch)
    if name == "extract_abstract":
        name, length = "bart", min(length, size.padded)
    if name == "longt5":
        return whole_step("longt5", longt5_config(size), size, length, batch)
    if name == "led":
        return whole_step("led", bart_config(size, "led", length), size, length, batch)
    if name in HEPOS:
        options = hepos.attention_options(*name.split("/"), length)
    else:
        options = WHOLE[name](size)
    positions = options.get("page_length", length)
    config = bart_config(size, "bart", positions, **options)
    return whole_step("bart", config, size, length, batch)


def _ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def bytes_of(step: Step) -> int:
    """What a step holds; of one that a described device refuses, what it would need."""
    try:
        return step.program.held_bytes
    except RefusedError as error:
        return error.bytes


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """The row of a model."""
    size = SIZES[args.size]
    device = devices.find_target(args.device).devices[0] if args.device else None

    def step_over(length: int) -> Step:
        return dataclasses.replace(step_of(name, size, length, args.batch), device=device)

    if not args.lengths:
        options = {"longest": args.longest, "multiple": size.padded}
        result = fit_length(lambda n: bytes_of(step_over(n)), int(args.budget_gib * GIB), **options)
        return {"tokens": result, "at_end": result == args.longest}
    row: dict[str, Any] = {}
    for length in numbers(args.lengths):
        step = step_over(length)
        row[f"{length:,}"] = round(step.program.held_bytes / GIB, 3)
        if args.run:
            row[f"batches/s at {length:,}"] = 1 / step.seconds(args.repeats)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out")
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--budget_gib", type=float, default=27.0)
    parser.add_argument("--longest", type=int, default=2**17)
    parser.add_argument(
        "--device", help="to compile for, as longsum plan names it: a100-40, v5p; default: here"
    )
    parser.add_argument("--batch", type=int, default=1, help="documents of a step; default: 1")
    parser.add_argument(
        "--lengths", help="comma-separated; asks for bytes instead of the longest length"
    )
    parser.add_argument("--run", action="store_true", help="makes steps over --lengths")
    parser.add_argument("--repeats", type=int, default=3, help="steps that are timed; default: 3")
    parser.add_argument(
        "--models",
        default=",".join(MODELS),
        help=f"comma-separated: {', '.join(MODELS)} (default), {', '.join(FURTHER)}",
    )
    args = parser.parse_args()
    if args.run and not args.lengths:
        parser.error("--run makes steps over --lengths; give them")
    if args.run and args.device:
        parser.error("--run makes steps here; leave --device out")
    if args.device:  # compilers read their flags with the first program
        try:
            devices.set_environment(args.device, os.environ)
        except InputError as error:
            parser.error(str(error))
        # JAX has read the environment; with plan-cuda, it would look for a GPU.
        jax.config.update("jax_platforms", os.environ.get("JAX_PLATFORMS"))

    settings = {"size": args.size, "budget_gib": args.budget_gib}
    settings |= {"lengths": args.lengths, "batch": args.batch, "device": args.device}
    rows = rows_before(args.out, **settings)
    done = {row["model"] for row in rows}
    for name in args.models.split(","):
        if name in done:
            continue
        rows.append({"model": name} | measure(name, args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        if args.out:
            write_report(args.out, rows, **settings)
    print_table(rows)


if __name__ == "__main__":
    main()
