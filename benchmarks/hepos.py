"""Decoder memory of the base LOCOST with Hepos at 16K to 1M tokens and strides 1 to 8, from
compiled programs alone; of BART large at the 10K tokens of a footnote of Huang et al. (2021).

    python benchmarks/hepos.py --out=hepos.json [--lengths=16384,131072] [--strides=1,4] \
        [--dtype=bfloat16]
    python benchmarks/hepos.py --model=bart --lengths=10240 --strides=1,4 --summary=1024

Nothing is run and no array is made: programs are compiled for abstract shapes and asked what they
would take. "keys" keeps keys and values of every layer whatever their size, "states" keeps the
encoder states alone (what the library does beyond layers.decoder.max_cross_cache_bytes).
`cache` is what decoding holds of one document, `fill_temp` what making it takes besides,
`step_temp` what one decoding step takes besides. Stride 1 is full cross-attention. XLA on a CPU
computes in float32, so that --dtype=bfloat16 has temporary copies there that an accelerator does
not make.
"""

import argparse
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from common import compiled, print_table, write_report
from flax.core import meta

from longsum_jax.layers import decoder as decoder_module
from longsum_jax.models.family import Family
from longsum_jax.models.registry import get_family

GB = 1e9
MODELS = {"locost": "base", "bart": "large"}  # family -> preset


def make_config(family: Family, length: int, stride: int, dtype: str) -> Any:
    """The config of a model that reads ``length`` tokens."""
    config = family.presets[MODELS[family.name]].replace(
        cross_attention="full" if stride == 1 else "hepos",
        hepos_stride=stride,
        dtype=dtype,
        length_chunk=0,
    )
    limited = config.max_source_length is not None
    return config.with_max_source_length(length) if limited else config


def measure(family: Family, config: Any, length: int, beams: int, summary: int) -> dict[str, float]:
    """Numbers of one decoder that reads one document of ``length`` tokens."""
    module = family.module_class(config)
    apply = partial(module.apply)
    params = jax.eval_shape(family.init_params(config), jax.random.key(0))
    variables = {"params": meta.unbox(params)}
    states = jax.ShapeDtypeStruct((1, length, config.d_model), config.compute_dtype)
    mask = jax.ShapeDtypeStruct((1, length), jnp.bool_)
    read = partial(apply, method="read_source")
    source = jax.eval_shape(read, variables, states, mask)
    filling = compiled(read, variables, states, mask)
    cache = jax.eval_shape(
        lambda v, source: apply(v, source, beams, summary, method="init_cache"), variables, source
    )
    ids = jax.ShapeDtypeStruct((1, beams), jnp.int32)
    step = compiled(
        lambda v, *arguments: apply(v, *arguments, method="decode_step")[0],
        variables,
        ids,
        cache,
        source,
    )
    retained = jax.tree.leaves((source.states, [layer.cross_kv for layer in source.layers]))
    return {
        "cache_gb": sum(x.size * x.dtype.itemsize for x in retained) / GB,
        "fill_temp_gb": filling.work_bytes / GB,
        "step_temp_gb": step.work_bytes / GB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="locost", help="default: locost")
    parser.add_argument(
        "--lengths", default="16384,131072,600000,1000000", help="tokens of the document"
    )
    parser.add_argument("--strides", default="1,2,4,8", help="of Hepos; 1 is full cross-attention")
    parser.add_argument(
        "--dtype", default="float32", choices=("float32", "bfloat16"), help="of the computation"
    )
    parser.add_argument("--beams", type=int, default=4, help="beams; default: 4")
    parser.add_argument(
        "--summary", type=int, default=512, help="tokens of the summary; default: 512"
    )
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    family, rows = get_family(args.model), []
    for length in map(int, args.lengths.split(",")):
        for stride in map(int, args.strides.split(",")):
            config = make_config(family, length, stride, args.dtype)
            for retained, limit in (("keys", 2**62), ("states", 0)):
                # Accelerators raise the constant by their memory, so the function is replaced.
                decoder_module.max_cross_cache_bytes = partial(int, limit)
                numbers = measure(family, config, length, args.beams, args.summary)
                rows.append({"length": length, "stride": stride, "kept": retained, **numbers})
                if args.out:
                    write_report(
                        args.out, rows, beams=args.beams, summary=args.summary, dtype=args.dtype
                    )
    print_table(rows)


if __name__ == "__main__":
    main()
