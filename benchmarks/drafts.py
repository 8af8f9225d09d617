"""What drafts from the document save: tokens that a step keeps, and what a step with a draft costs.

    python benchmarks/drafts.py kept --tokenizer=spiece.model --data=sumpubmed/test.jsonl \
        --out=drafts.json
    python benchmarks/drafts.py steps --models=bart,t5 --lengths=1024,4096 --out=drafts.json

`kept` writes the summaries of data sets by `prompt_lookup_num_tokens` and counts `tokens per step`:
as if a model wrote the summary that people wrote, or the best sentences of the document. `steps`
measures greedy search with drafts of which next to nothing is kept (no token comes twice) beside
the same without: `times as long` is what a step costs more. A search with drafts is as many times
as fast as its tokens per step are more than that.
"""

import argparse
import itertools
from typing import Any

import numpy as np
from common import fastest, numbers, print_table, rows_before, write_report
from models import SIZES, make_config, make_ids, make_model

import longsum_jax
from longsum_jax.text.documents import read_json_lines
from longsum_jax.tokenizers.loading import load_tokenizer

WRITERS = ("people", "best sentences")


def tokens_per_step(document: list[int], summary: list[int], count: int, longest: int) -> float:
    """Tokens of a summary over the steps of a search that writes it with drafts."""
    first: dict[tuple[int, ...], int] = {}  # n-gram -> place of its last token, in both texts
    for size, place in itertools.product(range(1, longest + 1), range(len(document))):
        first.setdefault(tuple(document[max(0, place + 1 - size) : place + 1]), place)
    text = list(document)
    written = steps = known = 0
    while written < len(summary):
        draft: list[int] = []
        for size in range(min(longest, written), 0, -1):
            place = first.get(tuple(summary[written - size : written]))
            if place is not None:
                draft = text[place + 1 : place + 1 + count]
                break
        rest = summary[written : written + len(draft)]
        right = list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(draft, rest)))  # noqa: B905
        steps += 1
        written = min(len(summary), written + len(right) + 1)
        text = [*document, *summary[:written]]
        # What stands before the newest token is a place in the sequence.
        for place, size in itertools.product(range(known, written - 1), range(1, longest + 1)):
            if size <= place + 1:
                ngram = tuple(summary[place + 1 - size : place + 1])
                first.setdefault(ngram, len(document) + place)
        known = max(known, written - 1)
    return len(summary) / max(steps, 1)


def kept(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every data set, writer and length of drafts."""
    tokenizer = load_tokenizer(args.tokenizer)
    rows = []
    for path in args.data.split(","):
        result: dict[tuple[str, int], list[float]] = {}
        for row in itertools.islice(read_json_lines(path), args.examples):
            document = tokenizer.encode(row.document)
            words = f"{max(20, len(row.summary.split()))} words"
            texts = row.summary, longsum_jax.summarize(row.document, length=words).text
            for (by, text), count in itertools.product(
                zip(WRITERS, texts, strict=True), numbers(args.drafted)
            ):
                summary = tokenizer.encode(text)
                tokens = tokens_per_step(document, summary, count, args.longest)
                result.setdefault((by, count), []).append(tokens)
        name = path.split("/")[-2] if "/" in path else path
        rows += [
            {
                "data": name,
                "written by": by,
                "drafted": count,
                "documents": len(values),
                "tokens per step": float(np.mean(values)),
            }
            for (by, count), values in result.items()
        ]
    return rows


def steps(args: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for every model, length of documents, and length of drafts."""
    rows = []
    cases = itertools.product(args.models.split(","), numbers(args.lengths))
    for name, length in cases:
        model = make_model(*make_config(name, args.size, length, dtype="float32"))
        ids = make_ids(model.config, 1, length)
        limits = {"min_new_tokens": args.new_tokens, "max_new_tokens": args.new_tokens}
        options = {"num_beams": 1, "no_repeat_ngram_size": 1} | limits
        one = {"min_new_tokens": 1, "max_new_tokens": 1}

        def call(drafted: int, changes: dict[str, int], model=model, ids=ids, options=options):
            all_options = {**options, **changes, "prompt_lookup_num_tokens": drafted}
            return lambda: model.generate(ids, **all_options)

        drafts = [0, *numbers(args.drafted)]
        calls = {(d, few): call(d, one if few else {}) for d in drafts for few in (False, True)}
        taken = fastest(calls, args.repeats)
        of_steps = {d: taken[d, False].wall - taken[d, True].wall for d in drafts}
        rows += [
            {
                "model": name,
                "tokens": length,
                "drafted": d,
                "steps/s": (args.new_tokens - 1) / of_steps[d],
                "times as long": of_steps[d] / of_steps[0],
            }
            for d in drafts
        ]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=("kept", "steps"))
    parser.add_argument("--drafted", default="4,8", help="tokens of drafts; default: 4,8")
    parser.add_argument(
        "--longest", type=int, default=2, help="max_matching_ngram_size; default: 2"
    )
    parser.add_argument("--data", help="JSON lines, comma-separated")
    parser.add_argument("--examples", type=int, help="only the first documents of each")
    parser.add_argument("--tokenizer", help="file of a tokenizer")
    parser.add_argument("--models", default="bart,t5")
    parser.add_argument("--lengths", default="1024,4096")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--new_tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", help="JSON report to write, or to put rows into")
    args = parser.parse_args()
    if args.study == "kept" and not (args.data and args.tokenizer):
        parser.error("kept needs --data and --tokenizer")
    rows = [row | {"study": args.study} for row in {"kept": kept, "steps": steps}[args.study](args)]
    print_table(rows)
    if args.out:
        before = [row for row in rows_before(args.out) if row["study"] != args.study]
        write_report(args.out, [*before, *rows])


if __name__ == "__main__":
    main()
