"""Data sets as tables of papers have them: lengths and copying (Hepos, table 2; AWESOME, table 2),
and where in documents the n-grams of their summaries first stand (Hepos, figure 2).

    python studies/corpora.py statistics --data=reports/test.jsonl,pubmed/test.jsonl \
        --out=corpora.json
    python studies/corpora.py ngrams --data=reports/test.jsonl --ngrams=1,2 --out=ngrams.json

`data` are JSON lines, of named data sets those of `longsum corpus export --task=NAME`. Words,
compression, coverage and density are means over documents, as `longsum corpus statistics` prints
them. `seen` is the share of the summary's distinct n-grams in the first `read` percent of the
document, of those in all of it, as `longsum plots bigrams` draws it.
"""

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import benchmarks_path  # noqa: F401
from common import numbers, print_table, write_report

from longsum_jax.readers.paths import short_names
from longsum_jax.text.documents import read_json_lines
from longsum_jax.text.extractive import mean_extractiveness, mean_salient_ngrams

NAMES = {1: "unigrams", 2: "bigrams", 3: "trigrams"}


def pairs_of(path: str, examples: int | None) -> list[tuple[str, str]]:
    """Document and summary of the rows of a file."""
    rows = itertools.islice(read_json_lines(path), examples)
    return [(row.document, row.summary) for row in rows]


def statistics(name: str, pairs: list[tuple[str, str]], args: argparse.Namespace) -> Iterator[dict]:
    """The row of a data set."""
    yield {"data": name, "documents": len(pairs), **mean_extractiveness(pairs)._asdict()}


def ngrams(name: str, pairs: list[tuple[str, str]], args: argparse.Namespace) -> Iterator[dict]:
    """A row for every tenth of the documents of a data set, and every length of n-grams."""
    for size in numbers(args.ngrams):
        curve = mean_salient_ngrams(pairs, size=size)
        line = f"{name}, {NAMES.get(size, f'{size}-grams')}"
        for tenth, seen in enumerate(curve, 1):
            yield {"data": line, "read": 100 * tenth // len(curve), "seen": 100 * float(seen)}


STUDIES = {"statistics": statistics, "ngrams": ngrams}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", required=True, help="JSON lines, comma-separated")
    parser.add_argument("--examples", type=int, help="only the first documents of each")
    parser.add_argument("--ngrams", default="1,2", help="words of an n-gram; default: 1,2")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    paths = args.data.split(",")
    rows: list[dict[str, Any]] = []
    for path, name in zip(paths, short_names(paths), strict=True):
        rows += STUDIES[args.study](name, pairs_of(path, args.examples), args)
    print_table(rows)
    if args.out:
        write_report(args.out, rows)


if __name__ == "__main__":
    main()
