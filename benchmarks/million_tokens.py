"""A million tokens in one pass: memory of the base LOCOST in bfloat16, from compiled programs
alone.

    python benchmarks/million_tokens.py --out=million_tokens.json [--lengths=131072,1048576]

Nothing is run and no array is made: programs are compiled for abstract shapes and asked what they
would take, arguments and results included. They are those of a loaded model: "encode" gives the
states; "read" encodes and gives what decoding reads of the document; "search" generates a summary
of ``--new_tokens`` from that, greedily. ``Model.generate`` runs the last two, one after the other.
Stride 1 is full cross-attention, others are Hepos. XLA on a CPU multiplies in float32, so that
programs compiled there hold copies that an accelerator does not make.

``--run=131072`` runs both at those lengths, too, once, with random weights, and adds their time and
the largest memory of the process.
"""

import argparse
import resource
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import print_table, write_report
from flax.core import meta

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.inference.abstract import summary_programs
from longsum_jax.inference.programs import Programs, layer_views
from longsum_jax.models.locost import PRESETS, LocostConfig
from longsum_jax.models.t5 import T5

GB = 1e9
Row = dict[str, Any]


def search_options(config: LocostConfig, new_tokens: int) -> GenerationOptions:
    """Greedy search without an end of sequence, so that every token is generated."""
    start, padding = config.decoder_start_token_id, config.pad_token_id
    return GenerationOptions(
        max_new_tokens=new_tokens, decoder_start_token_id=start, pad_token_id=padding
    )


def variable_shapes(module: T5) -> Any:
    """Shapes of the weights, in bfloat16 but for the state-space kernels', as
    ``load(param_dtype="bfloat16")`` has them."""
    ids = jnp.zeros((1, 16), jnp.int32)
    variables = meta.unbox(jax.eval_shape(module.init, jax.random.key(0), ids, ids, ids))
    kernels = ("log_dt", "inv_A_real", "A_imag", "B", "C", "D")

    def typed(path: Any, x: Any) -> Any:
        is_kernel = path[-1].key in kernels
        return x if is_kernel else jax.ShapeDtypeStruct(x.shape, module.config.compute_dtype)

    return jax.tree_util.tree_map_with_path(typed, variables)


def lowered(config: LocostConfig, length: int, new_tokens: int) -> Iterator[tuple[str, Any]]:
    """The programs for one document, by name, not compiled yet."""
    module = T5(config)
    variables = variable_shapes(module)
    ids, mask = (jax.ShapeDtypeStruct((1, length), dtype) for dtype in (jnp.int32, jnp.bool_))
    yield "encode", Programs(module).encode.lower(variables, ids, mask, {})
    options = search_options(config, new_tokens)
    sizes = {"batch_size": 1, "length": length, "options": options}
    for program in summary_programs(module, variables["params"], **sizes):
        yield program.name, program.lower()


def memory_rows(config: LocostConfig, length: int, new_tokens: int) -> Iterator[Row]:
    """What each program takes, in GB."""
    for name, program in lowered(config, length, new_tokens):
        start = time.perf_counter()
        memory = program.compile().memory_analysis()
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
    """Time of one call of both programs, with random weights."""
    module, rng = T5(config), np.random.default_rng(0)

    def draw(path: Any, x: Any) -> jax.Array:
        fixed = {"log_dt": np.log(1e-2), "inv_A_real": np.log(0.5), "scale": 1.0}
        values = np.full(x.shape, fixed.get(path[-1].key, 0.0), np.float32)
        if path[-1].key not in fixed:
            values += 0.02 * rng.standard_normal(x.shape, np.float32)
        return jnp.asarray(values, x.dtype)

    variables = jax.tree_util.tree_map_with_path(draw, variable_shapes(module))
    ids = jnp.asarray(rng.integers(2, config.vocab_size, (1, length)))
    mask = jnp.ones((1, length), bool)
    programs = {name: program.compile() for name, program in lowered(config, length, new_tokens)}
    layers = layer_views(variables["params"]["decoder"])
    start, cpu = time.perf_counter(), time.process_time()
    source = programs["read"](variables, ids, mask, {})
    jax.block_until_ready(programs["search"](variables["params"], layers, source, None))
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
            config = PRESETS[args.preset].replace(dtype=args.dtype, **cross)
            where = {
                "length": length,
                "cross_attention": cross["cross_attention"],
                "stride": stride,
            }
            result = list(memory_rows(config, length, args.new_tokens))
            result += (
                [run_row(config, length, args.new_tokens)]
                if str(length) in args.run.split(",")
                else []
            )
            rows += [where | row for row in result]
            print_table(rows[-len(result) :])
            sys.stdout.flush()
            if args.out:
                write_report(
                    args.out, rows, dtype=args.dtype, preset=args.preset, new_tokens=args.new_tokens
                )


if __name__ == "__main__":
    main()
