"""Documents per second of summaries of many documents of mixed lengths, ours beside transformers'.

    python benchmarks/many_documents.py --out=many_documents.json [--models=bart,led,longt5] \
        [--documents=200] [--max_source_length=4096]

Ours is `Model.summarize(texts, batch_size="auto")`. The peer is `generate` over batches of
documents sorted by length, each padded to its longest, at the batch size of --peer_batch_sizes that
is fastest for the first documents. Both decode greedily with the same weights.

Lengths are spread evenly over their logarithms from --shortest to --longest tokens, from a news
article to a book, and the model reads --max_source_length of each, or as many as it has positions
for. Weights are random, so one of many tokens ends a summary: their lengths then vary from
--min_new_tokens to --max_new_tokens. A text is its ids as numbers: tokenizers are measured by
input.py.

Both take turns over parts of --part documents. `seconds` are of all parts, with the compilation,
which `compile_seconds` has alone; `ratio` on the peer's row is how many times as many documents per
second ours summarizes, `warm_ratio` the same without compilation, `equal` the share of equal
summaries. Started again with the same flags, the script goes on after the last part in --out.
Models may be measured one after another, with other flags each.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import torch_peers
from common import Deadline, fastest, numbers, print_table, timed, write_report
from models import SIZES, make_config, make_model, read_louder
from sweep import OURS

from longsum_jax.models.registry import max_input_length
from longsum_jax.summarization.model import Model

COMPILING = "/jax/core/compile/backend_compile_duration"
# One token in so many ends a summary.
TOKENS_PER_END = 128


class Numbers:
    """A tokenizer whose texts are ids."""

    prefix_ids = ()
    unk_id = 3
    chat_template = None

    @property
    def plain(self) -> "Numbers":
        return self

    def encode(self, text: str) -> list[int]:
        return [int(word) if word.isdecimal() else self.unk_id for word in text.split()]

    def add_special_tokens(self, ids: Sequence[int], limit: int | None = None) -> list[int]:
        return list(ids)[:limit]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(map(str, ids))


def model_of(name: str, args: argparse.Namespace, rows: int = 0) -> Model:
    """A model with random weights that tells documents apart; ``rows`` is the least size of its
    vocabulary."""
    family, config = make_config(name, args.size, args.max_source_length)
    model = make_model(family, dataclasses.replace(config, vocab_size=max(config.vocab_size, rows)))
    read_louder(model)
    model.tokenizer = Numbers()
    return model


def documents_of(model: Model, args: argparse.Namespace) -> list[list[int]]:
    """Ids of documents in no order of lengths, as many as the model reads."""
    rng = np.random.default_rng(0)
    spread = np.geomspace(args.shortest, args.longest, args.documents)
    limit = min(args.max_source_length, max_input_length(model.config) or args.max_source_length)
    lengths = np.minimum(rng.permutation(spread).astype(int), limit)
    return [rng.integers(5, model.config.vocab_size, length).tolist() for length in lengths]


def options_of(model: Model, args: argparse.Namespace) -> dict[str, Any]:
    """Options of both sides."""
    size = model.config.vocab_size
    ends = np.random.default_rng(1).choice(
        np.arange(5, size), size // TOKENS_PER_END, replace=False
    )
    return {
        "eos_token_id": sorted(ends.tolist()),
        "forced_eos_token_id": None,
        "min_new_tokens": args.min_new_tokens,
        "max_new_tokens": args.max_new_tokens,
        "no_repeat_ngram_size": 3,
        "num_beams": 1,
        "do_sample": False,
    }


def ours(
    model: Model, documents: Sequence[list[int]], options: Mapping[str, Any]
) -> list[list[int]]:
    """Summaries, as ids."""
    texts = [model.tokenizer.decode(document) for document in documents]
    result = model.summarize(texts, batch_size="auto", **options)
    return [model.tokenizer.encode(text) for text in result]


def theirs(
    peer: torch.nn.Module,
    pad: int,
    documents: Sequence[list[int]],
    batch_size: int,
    options: Mapping[str, Any],
) -> list[list[int]]:
    """Summaries, as ids, the last of which ends them."""
    order = sorted(range(len(documents)), key=lambda i: -len(documents[i]))
    result: dict[int, list[int]] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        ids = np.full((len(batch), len(documents[batch[0]])), pad)
        mask = np.zeros(ids.shape, np.int64)
        for row, i in enumerate(batch):
            ids[row, : len(documents[i])] = documents[i]
            mask[row, : len(documents[i])] = 1
        inputs = torch_peers.inputs_of(peer, ids)
        inputs["attention_mask"] = torch.from_numpy(mask).to(inputs["input_ids"].device)
        out = peer.generate(**inputs, pad_token_id=pad, **options).tolist()
        result |= {
            i: until_end(row[1:], options["eos_token_id"])
            for i, row in zip(batch, out, strict=True)
        }
    return [result[i] for i in range(len(documents))]


def until_end(ids: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Ids without the padding after their end."""
    lengths = [i + 1 for i, token in enumerate(ids) if token in set(ends)]
    return list(ids[: min(lengths, default=len(ids))])


def measure(name: str, before: Sequence[dict[str, Any]], args: argparse.Namespace) -> Any:
    """Yields a row for each part that ``before`` does not have."""
    model = model_of(name, args)
    peer = torch_peers.make_peer(model, same_weights=True)
    documents, options = documents_of(model, args), options_of(model, args)
    pad = model.config.pad_token_id
    done = {row["first"]: row for row in before if row["model"] == name}
    sizes = {row["peer_batch_size"] for row in done.values()}
    batch_size = sizes.pop() if sizes else best_batch_size(peer, pad, documents, options, args)
    compiling: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiling.append(seconds) if event == COMPILING else None
    )
    for first in range(0, len(documents), args.part):
        if first in done:
            continue
        part = documents[first : first + args.part]
        found: dict[str, list[list[int]]] = {}

        def of_ours(part: Sequence[list[int]] = part, found: dict = found) -> None:
            found["ours"] = ours(model, part, options)

        def of_theirs(part: Sequence[list[int]] = part, found: dict = found) -> None:
            found["theirs"] = theirs(peer, pad, part, batch_size, options)

        compiling.clear()
        mine, other = timed(of_ours), timed(of_theirs)
        yield {
            "model": name,
            "first": first,
            "documents": len(part),
            "read_tokens": sum(map(len, part)),
            "summary_tokens": sum(map(len, found["ours"])),
            "seconds": mine.wall,
            "cpu_seconds": mine.cpu,
            "compile_seconds": sum(compiling),
            "peer_seconds": other.wall,
            "peer_cpu_seconds": other.cpu,
            "peer_batch_size": batch_size,
            "equal": sum(a == b for a, b in zip(found["ours"], found["theirs"], strict=True)),
            "load": os.getloadavg()[0],
        }


def best_batch_size(
    peer: torch.nn.Module,
    pad: int,
    documents: Sequence[list[int]],
    options: Mapping[str, Any],
    args: argparse.Namespace,
) -> int:
    """The batch size of the peer that takes the least time for the first documents."""
    sizes = numbers(args.peer_batch_sizes)
    first = documents[: max(sizes)]
    calls: dict[str, Callable[[], Any]] = {
        str(size): lambda size=size: theirs(peer, pad, first, size, options) for size in sizes
    }
    taken = fastest(calls, 1, warm_ups=0)
    return int(min(taken, key=lambda size: taken[size].wall))


def totals(parts: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Two rows for each model, of ours and of the peer."""
    rows = []
    for name in dict.fromkeys(part["model"] for part in parts):
        of_model = [part for part in parts if part["model"] == name]

        def total(key: str, of_model: Sequence[Mapping[str, Any]] = of_model) -> Any:
            return sum(part[key] for part in of_model)

        documents = total("documents")
        seconds, compiling, other = map(total, ("seconds", "compile_seconds", "peer_seconds"))
        rows.append(
            {
                "model": name,
                "by": OURS,
                "documents": documents,
                "tokens_per_document": total("read_tokens") / documents,
                "tokens_per_summary": total("summary_tokens") / documents,
                "seconds": seconds,
                "compile_seconds": compiling,
                "cpu_seconds": total("cpu_seconds"),
                "documents_per_second": documents / seconds,
            }
        )
        rows.append(
            {
                "model": name,
                "by": f"PyTorch {name}",
                "documents": documents,
                "batch_size": of_model[0]["peer_batch_size"],
                "seconds": other,
                "cpu_seconds": total("peer_cpu_seconds"),
                "documents_per_second": documents / other,
                "ratio": other / seconds,
                "warm_ratio": other / (seconds - compiling),
                "cpu_ratio": total("peer_cpu_seconds") / total("cpu_seconds"),
                "equal": total("equal") / documents,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="bart,led,longt5", help="comma-separated")
    parser.add_argument("--documents", type=int, default=200, help="default: 200")
    parser.add_argument("--part", type=int, default=50, help="documents of a turn; default: 50")
    parser.add_argument("--shortest", type=int, default=300, help="tokens; default: 300")
    parser.add_argument("--longest", type=int, default=100_000, help="tokens; default: 100,000")
    parser.add_argument(
        "--max_source_length", type=int, default=4096, help="tokens to read; default: 4,096"
    )
    parser.add_argument("--min_new_tokens", type=int, default=16, help="default: 16")
    parser.add_argument("--max_new_tokens", type=int, default=128, help="default: 128")
    parser.add_argument("--peer_batch_sizes", default="1,4,8,16", help="of which the best counts")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    others = ("out", "models", "minutes")
    settings = {key: value for key, value in vars(args).items() if key not in others}
    before = {"settings": {}, "parts": []}
    if args.out and Path(args.out).exists():
        before = json.loads(Path(args.out).read_text())
    of_models, parts = before["settings"], before["parts"]
    for name in args.models.split(","):
        if of_models.setdefault(name, settings) != settings:
            sys.exit(f"{args.out} has {name} with other settings; give another --out")
        if deadline.is_over:
            break
        for part in measure(name, parts, args):
            print(json.dumps(part), file=sys.stderr, flush=True)
            parts.append(part)
            if args.out:
                write_report(args.out, totals(parts), settings=of_models, parts=parts)
            if deadline.is_over:
                break
    print_table(totals(parts))


if __name__ == "__main__":
    main()
