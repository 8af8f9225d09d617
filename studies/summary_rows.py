"""Rows that teach a small model to summarize: what the built-in ranker chooses, and the summary.

    python studies/summary_rows.py --data=qmsum/train.jsonl.xz --words=320-480 --times=2 \
        --out=meetings.jsonl.gz
    python studies/summary_rows.py --data=crd3/train.jsonl.xz --words=5000-7500 --times=3 \
        --segment_length=1152 --tokenizer=small/mix_600/model --out=episodes.jsonl.gz

A document of --data has `document` and `summary`, and `query` if it is asked something. Each gives
--times extracts, of as many words as are drawn between the bounds of --words, and each of them a
row.

Summaries of a transcript of hours are longer than a model writes at once. --segment_length cuts
their extracts as `longsum summarize --strategy=segments` does, and gives each sentence of the
summary to the segment that covers it best (AWESOME, appendix A.2); a segment that gets none is left
out:

    transcript   ->   extract   ->   segment 0  |  segment 1  |  segment 2
    summary      ->   sentences      0, 1, 4    |  2, 3       |  (left out)

The same flags give the same rows. They are in the order of the documents; training shuffles them.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from longsum_jax.atomic import open_text
from longsum_jax.errors import InputError
from longsum_jax.ranking.ranker import builtin_ranker
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.strategies import Reader, StrategyInput
from longsum_jax.summarization.summary import Request
from longsum_jax.text.documents import DataRow, read_json_lines
from longsum_jax.text.lengths import Length
from longsum_jax.text.segment_targets import segment_targets
from longsum_jax.tokenizers import load_tokenizer
from longsum_jax.tokenizers.base import Tokenizer

Row = dict[str, str]


def extract_of(document: DataRow, words: int) -> str:
    """Returns what the built-in ranker chooses of a document, a sentence a line."""
    length = Length(words, "words")
    return builtin_ranker().summarize(document.document, length=length, query=document.query).text


def segments_of(text: str, query: str | None, tokenizer: Tokenizer, length: int) -> list[str]:
    """Returns a text cut into inputs of a number of tokens, as the strategy "segments" cuts it."""
    reader = Reader(tokenizer, longest_input=length, max_new_tokens=1)
    unread = TokenizedDocument([], 0)
    return StrategyInput(reader, Request(text, "extract", query), unread).cut()


def rows_of(
    document: DataRow, words: int, tokenizer: Tokenizer | None, segment_length: int
) -> Iterator[Row]:
    """Yields the rows of one extract, without ids: one, or one for each segment with a target.

    Args:
        document: with its summary.
        words: of the extract.
        tokenizer: of the model; None if nothing is cut.
        segment_length: tokens of a segment, query and special ones included.
    """
    extract = extract_of(document, words)
    summary = " ".join(document.only_summary.split())
    pairs = [(extract, summary)]
    if tokenizer is not None:
        segments = segments_of(extract, document.query, tokenizer, segment_length)
        pairs = list(zip(segments, segment_targets(segments, summary), strict=True))
    query = {"query": document.query} if document.query else {}
    for source, target in pairs:
        if target:
            yield {"document": source, "summary": target} | query


def rows(args: argparse.Namespace, fewest: int, most: int) -> Iterator[Row]:
    """Yields the rows of all documents.

    Raises:
        InputError: a file that cannot be read, or a document without a summary.
    """
    rng = np.random.default_rng(args.seed)
    tokenizer = load_tokenizer(args.tokenizer) if args.segment_length else None
    for document in read_json_lines(args.data):
        for time in range(args.times):
            words = int(rng.integers(fewest, most + 1))
            made = rows_of(document, words, tokenizer, args.segment_length)
            for number, row in enumerate(made):
                yield {"id": f"{document.id}-{time}-{number}"} | row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="JSON lines with document and summary")
    parser.add_argument("--words", default="320-480", metavar="A-B", help="default: 320-480")
    parser.add_argument("--times", type=int, default=1, help="extracts of a document; default: 1")
    parser.add_argument(
        "--segment_length",
        type=int,
        default=0,
        metavar="TOKENS",
        help="cut extracts into segments of so many; default: do not",
    )
    parser.add_argument("--tokenizer", metavar="PATH", help="of the model, to cut extracts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True, help="file to write, also .gz or .xz")
    args = parser.parse_args()
    match = re.fullmatch(r"(\d+)-(\d+)", args.words)
    if not match or not 0 < int(match[1]) <= int(match[2]):
        parser.error(f'--words: "{args.words}" is no A-B with A from 1 to B, such as 320-480')
    if args.times < 1:
        parser.error(f"--times: {args.times} gives no row; give 1 or more")
    if bool(args.segment_length) != bool(args.tokenizer):
        parser.error("--segment_length and --tokenizer go together; give both or neither")
    number = 0
    try:
        with open_text(Path(args.out)) as file:
            for row in rows(args, int(match[1]), int(match[2])):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                number += 1
                if number % 1000 == 0:
                    print(f"{number:,} rows", file=sys.stderr)
    except InputError as error:
        parser.error(str(error))
    print(f"{args.out}: {number:,} rows", file=sys.stderr)


if __name__ == "__main__":
    main()
