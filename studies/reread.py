"""A trained summariser that reads otherwise than it was trained: longer sources (LOCOST, tables 6
and 7), other blocks and selections of LSG attention (LSG, tables 11 and 12).

    python studies/reread.py --model=runs/arxiv --documents=test.jsonl --lengths=4096,8192 \
        --out=reread.json
    python studies/reread.py --model=runs/lsg --documents=test.jsonl \
        --attentions='trained,256/none,128/4 norm,64/4 norm' --out=reread.json
    python studies/reread.py --workdir=runs/small --config=FILE:mode,key=value \
        --documents=test.jsonl --lengths=512,1024 --config.training.steps=100

Nothing is trained any further. `lengths` are tokens that are read of a document, 0 for all of it.
"128/4 norm" is LSG attention with blocks of 128 tokens and every fourth token beyond them a sparse
key, "256/none" has blocks alone, "trained" is as the model was trained. With --config the model is
trained first, in --workdir, as `longsum train` does. Scores are ROUGE of generated summaries, with
the model's own options of generation; `bits` are bits per token of the references under teacher
forcing, `bits_other` the same with the document of the next one: where both are equal, the model
does not use what it reads. Started again with the same flags, it goes on where it stopped.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from common import lsg_options, numbers, print_table, rows_before, write_report

import longsum_jax
from longsum_jax.commands import console, train
from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import text_ids
from longsum_jax.evaluation.predictions import Pair, predict, read_pairs, summary_of
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.experiment.config_files import split_overrides
from longsum_jax.experimental.metrics.bartscore import mean_log_probs, target_ids
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary_options import SummaryOptions

TRAINED = "trained"


def read_otherwise(
    model: Model, attention: str, length: int, pairs: Sequence[Pair], args: argparse.Namespace
) -> dict[str, Any]:
    """The row of an attention and a length."""
    reader = model if attention == TRAINED else model.with_lsg_options(**lsg_options(attention))
    metrics = make_metrics(("rouge",), {"rouge": {"stemmer": args.stemmer}})
    options = SummaryOptions(batch_size=args.batch, max_source_length=length or None)
    rows = predict(reader, pairs, metrics, options)
    result = summary_of(rows, pairs, metrics)
    bits = bits_per_token(reader, pairs, length, args.batch)
    scores = {name: round(value, 2) for name, value in result["scores"].items()}
    return {
        "attention": attention,
        "length": length,
        "documents": len(rows),
        "read_share": result["read_tokens"] / max(result["document_tokens"], 1),
        **bits,
        **scores,
        "summary_tokens": result["summary_tokens"]["mean"],
    }


def bits_per_token(
    model: Model, pairs: Sequence[Pair], length: int, batch: int
) -> dict[str, float]:
    """Teacher-forced bits per token of the references, given their documents and given the next
    pair's."""
    prefix = model.summarization.get("prefix", "")
    sources = text_ids(model, [prefix + pair.source for pair in pairs], length or None).rows
    references = target_ids(model, [pair.reference for pair in pairs]).rows
    counts = [len(row) for row in references]
    bits = {}
    for name, given in (("bits", sources), ("bits_other", [*sources[1:], sources[0]])):
        means = mean_log_probs(model, list(zip(given, references, strict=True)), batch)
        bits[name] = round(float(-np.average(means, weights=counts) / np.log(2)), 4)
    return bits


def main(argv: Sequence[str] | None = None) -> None:
    rest, overrides = split_overrides(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="directory of a trained model")
    parser.add_argument("--config", help="of a model to train in --workdir")
    parser.add_argument("--workdir", help="of --config")
    parser.add_argument("--documents", required=True, help="JSON lines with summaries")
    parser.add_argument("--examples", type=int, help="only the first documents")
    parser.add_argument("--lengths", default="0", help="tokens; default: 0, all")
    parser.add_argument("--attentions", default=TRAINED, help=f"default: {TRAINED}")
    parser.add_argument("--batch", type=int, default=8, help="documents; default: 8")
    parser.add_argument("--stemmer", action="store_true", help="of ROUGE")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args(rest)
    if (args.model is None) == (args.config is None) or (args.config and not args.workdir):
        parser.error("give --model, or --config and --workdir")

    options = {key: value for key, value in vars(args).items() if key != "out"} | overrides
    rows = rows_before(args.out, options=options)
    if args.config:
        flags = [f"--config.{key}={value}" for key, value in overrides.items()]
        if train.main([f"--config={args.config}", f"--workdir={args.workdir}", *flags]):
            raise InputError(f"{args.workdir}: training diverged or was stopped")
    model = longsum_jax.load(args.model or args.workdir)
    pairs = list(read_pairs(args.documents, examples=args.examples).values())
    done = {(row["attention"], row["length"]) for row in rows}
    for attention in args.attentions.split(","):
        for length in numbers(args.lengths):
            if (attention, length) in done:
                continue
            rows.append(read_otherwise(model, attention, length, pairs, args))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if args.out:
                write_report(args.out, rows, options=options)
    print_table(rows)


if __name__ == "__main__":
    console.run(main)
