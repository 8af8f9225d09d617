"""The base LOCOST encoder, forward, float32, one document: ours beside the published computation in PyTorch.

    python benchmarks/encode.py --out=encode.json [--length=16384]

Both run in this process, one after the other, on the same weights and ids, and must agree; the peer is described in
torch_encoder.py.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import torch
from common import print_table, write_report
from flax.core import meta
from torch_encoder import TorchEncoder

from longsum_jax.models.locost import PRESETS, LocostConfig, name_table
from longsum_jax.models.naming import to_state_dict
from longsum_jax.models.t5 import T5

AGREEMENT = 1e-4  # relative L2 distance of the states; float32 phases of the peer account for most of it


def encoder_params(config: LocostConfig) -> Any:
    """Initial parameters of the encoder alone, the embedding included."""
    ids = jnp.zeros((1, 8), jnp.int32)
    init = jax.jit(lambda key: T5(config).init(key, ids, ids, method="encode"))
    return meta.unbox(init(jax.random.key(0)))["params"]


def encoder_state(config: LocostConfig, params: Any) -> dict[str, np.ndarray]:
    """The same parameters under their published names."""
    paths = flax.traverse_util.flatten_dict(params, sep="/")
    table = name_table(config)
    return to_state_dict(params, table._replace(rows=[row for row in table.rows if row.path in paths]))


def seconds(fn: Callable[[], Any]) -> float:
    start = time.perf_counter()
    fn()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096, help="tokens of the document; default: 4096")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls each, of which the fastest counts")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()

    config = PRESETS["base"]
    params = encoder_params(config)
    ids = np.random.default_rng(0).integers(2, config.vocab_size, (1, args.length))
    apply = jax.jit(lambda params, ids: T5(config).apply({"params": params}, ids, jnp.ones_like(ids), method="encode"))
    peer = TorchEncoder(encoder_state(config, params), config.num_layers, config.layer_norm_epsilon)
    run_ours, run_peer = lambda: jax.block_until_ready(apply(params, ids)), lambda: peer(ids)

    expected = run_peer()  # this call and the next are also the warm-up
    difference = float(np.linalg.norm(run_ours() - expected) / np.linalg.norm(expected))
    ours, theirs = ([seconds(fn) for _ in range(args.repeats)] for fn in (run_ours, run_peer))
    rows = [
        {"what": name, "length": args.length, "seconds": min(taken), "tokens_per_second": args.length / min(taken)}
        for name, taken in (("longsum_jax", ours), ("PyTorch, two-level kernel", theirs))
    ]
    rows[0] |= {"speedup": min(theirs) / min(ours), "difference": difference}
    print_table(rows)
    if args.out:
        load = os.getloadavg()[0]
        write_report(args.out, rows, layers=config.num_layers, torch_threads=torch.get_num_threads(), load=load)
    if not difference <= AGREEMENT:
        raise SystemExit(f"the two encoders differ by {difference:.2g}, more than {AGREEMENT}")


if __name__ == "__main__":
    main()
