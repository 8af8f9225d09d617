"""Tokens per second of greedy and beam search, ours beside transformers' generate.

    python benchmarks/decode.py --out=decode.json [--models=locost,bart] [--lengths=1024,4096] \
        [--beams=1,4] [--batches=1,4,16] [--storages=bfloat16,int8]

Both generate exactly --new_tokens of each document of a batch, in turns, on the same weights where
they are the same model; LOCOST's peer is LongT5, whose decoder has the same sizes. With --storages,
peers are also ours with the decoder's weights and keys in other types (`decoder_storage`).
`seconds` are of a whole call of the public `generate`, the encoder included. `tokens_per_second` is
of decoding alone: documents are encoded before, and the time of a quarter of the tokens, with what
a first step does besides, is subtracted; beams are not counted.
`ratio` and `decode_ratio` on the peer's row are how many times as fast ours is in the one and in
the other, `cpu_ratio` is that of whole calls in processor seconds, `equal` the share of generated
ids that are the same; `note` is the error of a peer that failed. The fastest of --repeats turns
counts, with --median their median. Started again with the same --out, the script measures what is
missing.
"""

import argparse
import gc
import itertools
import json
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
from common import (
    Deadline,
    add_median_flag,
    fastest,
    numbers,
    print_table,
    rows_before,
    write_report,
)
from models import MODELS, PUBLISHED, SIZES, make_config, make_ids, make_model
from sweep import OURS, failure

from longsum_jax.decoding.search import trim
from longsum_jax.inference.padding import check_inputs
from longsum_jax.summarization.model import Model

SECONDS = ("seconds", "cpu_seconds")
STATIC = ", static cache"  # of a peer's name


class Case(NamedTuple):
    """What is measured: one model, tokens of a document, beams, and documents of a batch."""

    model: str
    length: int
    beams: int
    batch: int


class Timed(NamedTuple):
    """Calls that are timed: each makes ids of so many new tokens.

    Attributes:
        whole: encodes and decodes.
        decode: decodes documents that have been encoded.
    """

    whole: Callable[[int], np.ndarray]
    decode: Callable[[int], np.ndarray]


def timed_calls(case: Case, args: argparse.Namespace) -> dict[str, Callable[[], Timed]]:
    """Functions that make the calls of ours and of its peers, by what their rows say."""
    name, length = case.model, case.length
    options = {"dtype": args.dtype, "attention_backend": args.attention_backend}
    model = make_model(*make_config(name, args.size, length, **options), args.dtype)
    ids = make_ids(model.config, case.batch, length)
    names = {OURS: "float32"} | {
        f"{OURS}, {name}": name for name in args.storages.split(",") if name
    }
    made = {}
    for by, storage in names.items():
        stored = Model(model.family, model.config, model.params, decoder_storage=storage)
        made[by] = partial(_calls_of_ours, stored, ids, case.beams)
    if args.peers == "none":
        return made
    peer_name = next(peer for peer in MODELS[name].peers if peer not in PUBLISHED)

    @cache
    def peer() -> Any:
        import torch_peers

        same = peer_name == name
        other = model if same else Model(*make_config(peer_name, args.size, length), None)
        return torch_peers.make_peer(other, same_weights=same, dtype=args.dtype)

    by = f"PyTorch {peer_name}"
    if args.static:
        # transformers compiles the steps of a cache of fixed size on GPUs.
        static = {"cache_implementation": "static"}
        made[by + STATIC] = lambda: _calls_of_peer(peer(), ids, case.beams, **static)
    made[by] = lambda: _calls_of_peer(peer(), ids, case.beams)
    return made


def _calls_of_ours(model: Model, ids: np.ndarray, beams: int) -> Timed:
    def options(count: int) -> dict[str, Any]:
        return _search_options(beams) | {"min_new_tokens": count, "max_new_tokens": count}

    # What `generate` does, with the encoded documents kept.
    runner = model._runner
    padded = model.padded_document(*check_inputs(ids, None, model.config))
    source = runner.programs.read(runner.variables(padded), *padded)

    def decode(count: int) -> np.ndarray:
        search, generation = runner.programs.search, model.generation_options(**options(count))
        return trim(search(model.params, source, None, batch_size=len(ids), options=generation))

    return Timed(lambda count: model.generate(ids, **options(count)), decode)


def _calls_of_peer(peer: Any, ids: np.ndarray, beams: int, **options: Any) -> Timed:
    import torch_peers
    from transformers.modeling_outputs import BaseModelOutput

    inputs = torch_peers.inputs_of(peer, ids)
    states = torch_peers.encode(peer, inputs)

    def generate(count: int, **given: Any) -> np.ndarray:
        limits = {"min_new_tokens": count, "max_new_tokens": count, "forced_eos_token_id": None}
        return peer.generate(**given, **limits, **_search_options(beams), **options).cpu().numpy()

    def decode(count: int) -> np.ndarray:
        # New for every call, which repeats its rows for the beams.
        encoded = BaseModelOutput(last_hidden_state=states)
        mask = inputs["attention_mask"]
        return generate(count, encoder_outputs=encoded, attention_mask=mask)

    return Timed(lambda count: generate(count, **inputs), decode)


def _search_options(beams: int) -> dict[str, Any]:
    return {"num_beams": beams, "do_sample": False, "early_stopping": False}


def measure(case: Case, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of ours and of its peers."""
    many, few = args.new_tokens, max(args.new_tokens // 4, 1)
    calls: dict[tuple[str, str], Callable[[], np.ndarray]] = {}
    results: dict[tuple[str, str], np.ndarray] = {}
    rows = {}
    for by, make in timed_calls(case, args).items():
        if (by + STATIC, "whole") in calls:
            continue
        rows[by] = case._asdict() | {"by": by}
        try:
            whole, decode = make()
            made = {
                (by, "whole"): partial(whole, many),
                (by, "many"): partial(decode, many),
                (by, "few"): partial(decode, few),
            }
            results |= {key: call() for key, call in made.items()}  # the warm-up
        except Exception as error:
            if by.startswith(OURS):
                raise
            rows[by]["note"] = failure(error)
            continue
        calls |= made
        if not np.array_equal(results[by, "whole"], results[by, "many"]):
            raise SystemExit(f"{by}: other ids from documents that were encoded before")
    taken = fastest(calls, args.repeats, warm_ups=0, statistic=args.statistic)
    first = rows[OURS]
    for by, row in rows.items():
        if "note" in row:
            continue
        whole = taken[by, "whole"]
        row |= {"seconds": whole.wall, "cpu_seconds": whole.cpu}
        seconds = taken[by, "many"].wall - taken[by, "few"].wall
        if seconds > 0:
            row["tokens_per_second"] = case.batch * (many - few) / seconds
        if by == OURS:
            continue
        row |= {key.replace("seconds", "ratio"): row[key] / first[key] for key in SECONDS}
        if "tokens_per_second" in first and "tokens_per_second" in row:
            row["decode_ratio"] = first["tokens_per_second"] / row["tokens_per_second"]
        if by.startswith((f"PyTorch {case.model}", OURS)):
            row["equal"] = _equal(results[OURS, "whole"], results[by, "whole"])
    return list(rows.values())


def _equal(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float((ours == theirs).mean()) if ours.shape == theirs.shape else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--models", default="locost,bart,longt5", help="comma-separated, of those with a decoder"
    )
    parser.add_argument("--lengths", default="1024", help="tokens of a document; default: 1024")
    parser.add_argument("--beams", default="1,4", help="default: 1,4")
    parser.add_argument("--new_tokens", type=int, default=64, help="of each summary; default: 64")
    parser.add_argument("--batches", default="1", help="documents of a batch; default: 1")
    parser.add_argument(
        "--storages", default="", help="types of the decoder's weights and keys; default: none"
    )
    parser.add_argument("--peers", choices=("all", "none"), default="all", help="none: ours alone")
    parser.add_argument(
        "--static",
        action="store_true",
        help="peers with a cache of fixed size, if they have it, instead of one that grows",
    )
    parser.add_argument(
        "--attention_backend", default="auto", help="of our models; reference: without kernels"
    )
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="default: bfloat16, float32 on a CPU"
    )
    parser.add_argument("--repeats", type=int, default=3, help="timed turns; default: 3")
    add_median_flag(parser)
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    args.dtype = args.dtype or ("float32" if jax.default_backend() == "cpu" else "bfloat16")
    settings = {"new_tokens": args.new_tokens, "size": args.size, "dtype": args.dtype}
    if args.storages:
        settings["storages"] = args.storages
    rows = rows_before(args.out, **settings)
    done = {tuple(row[key] for key in Case._fields) for row in rows}
    flags = args.lengths, args.beams, args.batches
    for case in itertools.starmap(
        Case, itertools.product(args.models.split(","), *map(numbers, flags))
    ):
        if case in done or deadline.is_over:
            continue
        result = measure(case, args)
        rows += result
        gc.collect()
        print(*map(json.dumps, result), sep="\n", file=sys.stderr, flush=True)
        if args.out:
            write_report(args.out, rows, **settings, load=os.getloadavg()[0])
    print_table(rows)


if __name__ == "__main__":
    main()
