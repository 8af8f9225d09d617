"""A million tokens in one pass: memory of the base LOCOST in bfloat16, from compiled programs
alone.

    python benchmarks/million_tokens.py --out=million_tokens.json [--lengths=131072,1048576]

Nothing is run and no array is made: programs are compiled for abstract shapes and asked what they
would take, arguments and results included. "encode" gives the states, "decode" generates a summary
of ``--new_tokens`` from them, greedily, and "generate" is both in one program, as
``Model.generate`` runs it. Stride 1 is full cross-attention, others are Hepos. XLA on a CPU
multiplies in float32, so that programs compiled there hold copies that an accelerator does not
make.

``--run=131072`` runs the last of the programs at those lengths, too, once, with random weights, and
adds its time and the largest memory of the process.
"""

import argparse
import dataclasses
import resource
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import print_table, write_report
from flax.core import meta

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Decoder, generate
from longsum_jax.layers.decoder import DecoderCache
from longsum_jax.models.locost import PRESETS, LocostConfig
from longsum_jax.models.t5 import T5

GB = 1e9
Row = dict[str, Any]


class Programs:
    """The programs of one configuration.

    Args:
        config: of the model.
        new_tokens: of the summary.
    """

    def __init__(self, config: LocostConfig, new_tokens: int) -> None:
        self.module = T5(config)
        # Without an end of sequence, so that every token is generated.
        start, padding = config.decoder_start_token_id, config.pad_token_id
        self.options = GenerationOptions(
            max_new_tokens=new_tokens, decoder_start_token_id=start, pad_token_id=padding
        )

    def encode(self, variables: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return self.module.apply(variables, ids, mask, method="encode")

    def decode(self, variables: Any, states: jax.Array, mask: jax.Array) -> jax.Array:
        apply = partial(self.module.apply, variables)
        cache = apply(
            states,
            mask,
            self.options.decoder_beams,
            self.options.max_new_tokens,
            method="init_cache",
        )
        decoder = Decoder(partial(apply, method="decode_step"), DecoderCache.reorder)
        return generate(decoder, cache, batch_size=len(states), options=self.options).sequences

    def generate(self, variables: Any, ids: jax.Array, mask: jax.Array) -> jax.Array:
        return self.decode(variables, self.encode(variables, ids, mask), mask)

    def inputs(self, length: int) -> dict[str, tuple[Any, ...]]:
        """Shapes of each program's arguments for one document."""
        config = self.module.config
        ids = jnp.zeros((1, 16), jnp.int32)
        variables = meta.unbox(jax.eval_shape(self.module.init, jax.random.key(0), ids, ids, ids))
        # Weights in bfloat16 but for the state-space kernels', as ``load(param_dtype="bfloat16")``
        # has them.
        kernels = ("log_dt", "inv_A_real", "A_imag", "B", "C", "D")
        variables = jax.tree_util.tree_map_with_path(
            lambda path, x: (
                x
                if path[-1].key in kernels
                else jax.ShapeDtypeStruct(x.shape, config.compute_dtype)
            ),
            variables,
        )
        ids, mask = (jax.ShapeDtypeStruct((1, length), dtype) for dtype in (jnp.int32, jnp.bool_))
        states = jax.ShapeDtypeStruct((1, length, config.d_model), config.compute_dtype)
        return {
            name: (variables, states if name == "decode" else ids, mask)
            for name in ("encode", "decode", "generate")
        }


def memory_rows(config: LocostConfig, length: int, new_tokens: int) -> Iterator[Row]:
    """What each program takes, in GB."""
    programs = Programs(config, new_tokens)
    for name, arguments in programs.inputs(length).items():
        start = time.perf_counter()
        memory = jax.jit(getattr(programs, name)).lower(*arguments).compile().memory_analysis()
        parts = {
            "arguments_gb": memory.argument_size_in_bytes / GB,
            "results_gb": memory.output_size_in_bytes / GB,
            "temp_gb": memory.temp_size_in_bytes / GB,
        }
        seconds = time.perf_counter() - start
        yield {
            "program": name,
            **parts,
            "total_gb": sum(parts.values()),
            "compile_seconds": seconds,
        }


def run_row(config: LocostConfig, length: int, new_tokens: int) -> Row:
    """Time of one call of the compiled program, with random weights."""
    programs, rng = Programs(config, new_tokens), np.random.default_rng(0)
    variables, *_ = programs.inputs(length)["generate"]

    def draw(path: Any, x: Any) -> jax.Array:
        fixed = {"log_dt": np.log(1e-2), "inv_A_real": np.log(0.5), "scale": 1.0}
        values = np.full(x.shape, fixed.get(path[-1].key, 0.0), np.float32)
        if path[-1].key not in fixed:
            values += 0.02 * rng.standard_normal(x.shape, np.float32)
        return jnp.asarray(values, x.dtype)

    variables = jax.tree_util.tree_map_with_path(draw, variables)
    ids, mask = (
        jnp.asarray(rng.integers(2, config.vocab_size, (1, length))),
        jnp.ones((1, length), bool),
    )
    run = jax.jit(programs.generate).lower(variables, ids, mask).compile()
    start, cpu = time.perf_counter(), time.process_time()
    jax.block_until_ready(run(variables, ids, mask))
    seconds = time.perf_counter() - start
    row = {"program": "generate, run", "seconds": seconds, "cpu_seconds": time.process_time() - cpu}
    device = jax.devices()[0].memory_stats() or {}
    # Of the process where the device keeps no count; Linux counts in KiB.
    peak = device.get(
        "peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return row | {"peak_gb": peak / GB, "tokens_per_second": length / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base", choices=PRESETS, help="default: base")
    parser.add_argument(
        "--lengths", default="131072,1048576", help="tokens; default: 131072,1048576"
    )
    parser.add_argument(
        "--strides", default="1,4", help="of Hepos, 1 being full cross-attention; default: 1,4"
    )
    parser.add_argument("--new_tokens", type=int, default=256, help="of the summary; default: 256")
    parser.add_argument(
        "--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="default: bfloat16"
    )
    parser.add_argument(
        "--run", default="", help="lengths of --lengths at which the program is run, too"
    )
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    rows = []
    for length in map(int, args.lengths.split(",")):
        for stride in map(int, args.strides.split(",")):
            cross = (
                {"cross_attention": "full"}
                if stride == 1
                else {"cross_attention": "hepos", "hepos_stride": stride}
            )
            config = dataclasses.replace(PRESETS[args.preset], dtype=args.dtype, **cross)
            where = {
                "length": length,
                "cross_attention": cross["cross_attention"],
                "stride": stride,
            }
            found = list(memory_rows(config, length, args.new_tokens))
            found += (
                [run_row(config, length, args.new_tokens)]
                if str(length) in args.run.split(",")
                else []
            )
            rows += [where | row for row in found]
            print_table(rows[-len(found) :])
            sys.stdout.flush()
            if args.out:
                write_report(
                    args.out, rows, dtype=args.dtype, preset=args.preset, new_tokens=args.new_tokens
                )


if __name__ == "__main__":
    main()
