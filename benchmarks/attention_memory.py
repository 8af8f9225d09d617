"""The largest array of every attention in training on a GPU, with and without fused kernels, from
compiled programs; nothing is run.

    python benchmarks/attention_memory.py --out=attention_memory.json [--cases="t5 lsg,led"]

A case is a stack of two layers of the base size: values and gradients over 4 documents of 4,096
tokens (decoders: targets of 512), in bfloat16, with dropout 0.1 and without rematerialization.
`largest` is the largest array that instructions of the attention write to the device's memory, its
projections included, and `moved_gb` the traffic of these instructions. The extra `plan-cuda` is
needed, but no GPU. Started again with the same --out, it goes on where it stopped.
"""

import argparse
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from common import compiled, print_table, rows_before, write_report

from longsum_plan import devices

BATCH, LENGTH, TARGET = 4, 4096, 512
BACKENDS = ("reference", "auto")
LAYERS = {"num_layers": 2, "num_decoder_layers": 2, "dropout_rate": 0.1}
BART = {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1, "attention_dropout": 0.1}
LSG = {"encoder_attention": "lsg", "block_size": 128, "sparse_block_size": 128}


class Case(NamedTuple):
    """A stack of a family: the encoder or the decoder, with options of the config."""

    family: str
    options: Mapping[str, Any]
    stack: str = "encoder"
    is_packed: bool = False


CASES = {
    "t5": Case("t5", LAYERS),
    "t5 packed": Case("t5", LAYERS, is_packed=True),
    "t5 decoder": Case("t5", LAYERS, "decoder"),
    "t5 decoder packed": Case("t5", LAYERS, "decoder", is_packed=True),
    "longt5 local": Case("longt5", LAYERS | {"encoder_attention": "local"}),
    "longt5 local packed": Case("longt5", LAYERS | {"encoder_attention": "local"}, is_packed=True),
    "longt5 transient_global": Case("longt5", LAYERS | {"encoder_attention": "transient_global"}),
    "t5 lsg": Case("t5", LAYERS | LSG),
    "t5 longformer": Case("t5", LAYERS | {"encoder_attention": "longformer"}),
    "t5 block_staggered": Case(
        "t5", LAYERS | {"encoder_attention": "block_staggered", "block_size": 512}
    ),
    "t5 window+global": Case("t5", LAYERS | {"encoder_attention": "window+global"}),
    "bart": Case("bart", BART),
    "bart lsg": Case("bart", BART | LSG),
    "bart hepos decoder": Case("bart", BART | {"cross_attention": "hepos"}, "decoder"),
    "led": Case("led", BART),
    "pegasus_x": Case("pegasus_x", BART),
    "bigbird_pegasus": Case("bigbird_pegasus", BART),
}


def gradients(case: Case, backend: str) -> tuple[Any, tuple[Any, ...]]:
    """Returns a function of values and gradients of a stack, and the shapes of its arguments."""
    import jax
    import jax.numpy as jnp

    from longsum_jax.layers.decoder import Decoder
    from longsum_jax.layers.encoder import Encoder
    from longsum_jax.models.registry import get_family
    from longsum_jax.ops.packing import SegmentIds

    config = get_family(case.family).presets["base"]
    config = config.replace(dtype="bfloat16", attention_backend=backend, **case.options)

    def ids(length: int) -> Any:
        return jax.ShapeDtypeStruct((BATCH, length), jnp.int32)

    def states(length: int) -> Any:
        return jax.ShapeDtypeStruct((BATCH, length, config.d_model), jnp.bfloat16)

    mask = jax.ShapeDtypeStruct((BATCH, LENGTH), bool)
    packed: dict[str, Any] = {}
    if case.stack == "encoder":
        module, inputs = Encoder(config.encoder_stack), (states(LENGTH), mask)
        if case.is_packed:
            packed["segment_ids"] = ids(LENGTH)
    else:
        module = Decoder(config.decoder_stack)
        inputs = (states(TARGET), states(LENGTH), mask)
        if case.is_packed:
            packed["segment_ids"] = SegmentIds(ids(LENGTH), ids(TARGET))
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)

    def loss(variables: Any, states: Any, mask: Any, packed: Any) -> Any:
        rngs = {"dropout": jax.random.key(0)}
        options = {"deterministic": False, "rngs": rngs, **packed}
        out = module.apply(variables, *states, mask, **options)
        return jnp.square(out.astype(jnp.float32)).sum()

    return jax.value_and_grad(loss, (0, 1)), (variables, inputs[:-1], mask, packed)


def measure(case: Case, backend: str, target: devices.Target) -> dict[str, Any]:
    """Returns the kernels and the arrays of a stack's attention."""
    from longsum_jax.ops.attention.fused import noted_choices
    from longsum_plan.program_parts import program_parts

    with noted_choices() as choices:
        function, arguments = gradients(case, backend)
        program = compiled(function, *arguments, device=target.devices[0])
    parts = program_parts(program.compiled.as_text())
    parts = [part for part in parts if "attention" in part.module]
    largest = max((x.largest for x in parts if x.largest), key=lambda x: x.num_bytes)
    kernels = [choice.kernel or choice.reason for choice in choices.values()]
    return {
        "attention": ", ".join(dict.fromkeys(kernels)),
        "largest": str(largest),
        "largest_mb": largest.num_bytes / 1e6,
        "moved_gb": sum(part.work.num_bytes for part in parts) / 1e9,
        "temporary_gb": program.work_bytes / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="h200", help="described device")
    parser.add_argument("--cases", default=",".join(CASES), help="default: all")
    parser.add_argument("--out", help="JSON report")
    args = parser.parse_args()
    devices.set_environment(args.device, os.environ)  # before jax is imported
    target = devices.find_target(args.device)
    rows = rows_before(args.out, device=args.device)
    for name in args.cases.split(","):
        for backend in BACKENDS:
            key = {"case": name, "backend": backend}
            if any(key.items() <= row.items() for row in rows):
                continue
            rows.append(key | measure(CASES[name], backend, target))
            print_table(rows[-1:])
            if args.out:
                write_report(args.out, rows, device=args.device)
    print_table(rows)


if __name__ == "__main__":
    main()
