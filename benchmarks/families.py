"""Encoders of the pretrained families at base size, forward, float32, one document: ours beside transformers' PyTorch.

    python benchmarks/families.py --out=families.json [--families=led,longt5_global] [--lengths=1024,4096]

Random weights, written by transformers and loaded by ours. Every measurement is a process of its own, one after the
other: seconds are the fastest of --repeats calls after a warm-up, cpu_seconds those of all threads (other work on the
machine disturbs less), memory is what the process' peak grew by from just before the first call. The states of the two
must agree. Dense families stop at --dense_limit tokens.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table, write_report

BART = {"d_model": 768, "encoder_layers": 6, "decoder_layers": 1, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
BART |= {"encoder_attention_heads": 12, "decoder_attention_heads": 12, "vocab_size": 32000}
BART |= {"max_position_embeddings": 16384, "max_encoder_position_embeddings": 16384, "attention_window": 1024}
T5 = {"d_model": 768, "d_ff": 2048, "num_layers": 12, "num_decoder_layers": 1, "num_heads": 12, "vocab_size": 32000}
T5 |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
BERT = {"hidden_size": 768, "num_hidden_layers": 12, "vocab_size": 32000, "max_position_embeddings": 16384}

# name -> (class prefix, class suffix, config values, whether attention is dense)
FAMILIES: dict[str, tuple[str, str, dict[str, Any], bool]] = {
    "t5": ("T5", "ForConditionalGeneration", T5, True),
    "bart": ("Bart", "ForConditionalGeneration", BART, True),
    "bert": ("Bert", "Model", BERT, True),
    "longt5_local": ("LongT5", "ForConditionalGeneration", T5, False),
    "longt5_global": (
        "LongT5",
        "ForConditionalGeneration",
        T5 | {"encoder_attention_type": "transient-global"},
        False,
    ),
    "pegasus_x": ("PegasusX", "ForConditionalGeneration", BART, False),
    "led": ("LED", "ForConditionalGeneration", BART, False),
    "bigbird_pegasus": ("BigBirdPegasus", "ForConditionalGeneration", BART, False),
}


def make_ids(length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(5, 32000, (1, length))


def write_directory(name: str, directory: str) -> None:
    import torch
    import transformers

    prefix, suffix, values, _ = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{prefix}Config")(**values)
    getattr(transformers, prefix + suffix)(config).save_pretrained(directory)


def ours(name: str, directory: str, length: int) -> tuple[Callable[[], np.ndarray], Callable[[], Any]]:
    """What gives the states, and what is timed."""
    import jax
    import jax.numpy as jnp

    import longsum_jax

    model = longsum_jax.load(directory)
    ids, mask = jnp.asarray(make_ids(length)), jnp.ones((1, length), bool)
    apply = jax.jit(lambda params, ids, mask: model.module.apply({"params": params}, ids, mask, method="encode"))
    return lambda: np.asarray(apply(model.params, ids, mask)), lambda: apply(
        model.params, ids, mask
    ).block_until_ready()


def theirs(name: str, directory: str, length: int) -> tuple[Callable[[], np.ndarray], Callable[[], Any]]:
    import torch
    import transformers

    prefix, suffix, _, _ = FAMILIES[name]
    model = getattr(transformers, prefix + suffix).from_pretrained(directory).eval()
    encoder = model.get_encoder() if suffix != "Model" else model
    ids = torch.tensor(make_ids(length))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if prefix == "LED":
        inputs["global_attention_mask"] = (torch.arange(length) == 0).long()[None]

    @torch.no_grad()
    def run() -> Any:
        return encoder(**inputs).last_hidden_state

    return lambda: run().numpy(), run


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def current_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure(args: argparse.Namespace) -> None:
    """One process: states to a file, numbers to standard output."""
    states, run = {"longsum_jax": ours, "transformers": theirs}[args.who](args.family, args.directory, args.length)
    before, start = current_mib(), time.perf_counter()
    np.save(args.states, states())
    first = time.perf_counter() - start
    calls = []
    for _ in range(args.repeats):
        start, cpu_start = time.perf_counter(), time.process_time()
        run()
        calls.append((time.perf_counter() - start, time.process_time() - cpu_start))
    seconds, cpu_seconds = map(min, zip(*calls, strict=True))
    memory = {"mib": max(peak_mib() - before, 0)}
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "first_call": first, **memory}))


def run_process(who: str, name: str, directory: str, length: int, repeats: int, states: Path) -> dict[str, float]:
    values = {
        "who": who,
        "family": name,
        "directory": directory,
        "length": length,
        "repeats": repeats,
        "states": states,
    }
    command = [sys.executable, __file__, *(f"--{key}={value}" for key, value in values.items())]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str, directory: str, length: int, repeats: int, work: Path) -> dict[str, Any]:
    files = {who: work / f"{who}.npy" for who in ("longsum_jax", "transformers")}
    ours, theirs = (run_process(who, name, directory, length, repeats, file) for who, file in files.items())
    a, b = (np.load(file) for file in files.values())
    difference = float(np.abs(a - b).max() / np.abs(b).max())
    if not difference < 1e-3:
        raise SystemExit(f"{name}: the states differ by {difference:.2g}")
    return {
        "family": name,
        "length": length,
        "seconds": ours["seconds"],
        "peer_seconds": theirs["seconds"],
        "speedup": theirs["seconds"] / ours["seconds"],
        "cpu_seconds": ours["cpu_seconds"],
        "peer_cpu_seconds": theirs["cpu_seconds"],
        "cpu_speedup": theirs["cpu_seconds"] / ours["cpu_seconds"],
        "mib": ours["mib"],
        "peer_mib": theirs["mib"],
        "memory_ratio": theirs["mib"] / ours["mib"],
        "compile_seconds": ours["first_call"] - ours["seconds"],
        "difference": difference,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join(FAMILIES), help="comma-separated; default: all")
    parser.add_argument("--lengths", default="1024,4096,16384", help="tokens; default: 1024,4096,16384")
    parser.add_argument("--dense_limit", type=int, default=4096, help="longest input of dense families")
    parser.add_argument("--repeats", type=int, default=2, help="timed calls each, of which the fastest counts")
    parser.add_argument("--out", help="JSON report to write")
    for name in ("who", "family", "directory", "states"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--length", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.who:
        return measure(args)

    rows = []
    for name in args.families.split(","):
        with tempfile.TemporaryDirectory() as work:
            directory = f"{work}/model"
            write_directory(name, directory)
            for length in map(int, args.lengths.split(",")):
                if FAMILIES[name][3] and length > args.dense_limit:
                    continue
                rows.append(compare(name, directory, length, args.repeats, Path(work)))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                if args.out:
                    write_report(args.out, rows)
    print_table(rows)


if __name__ == "__main__":
    main()
