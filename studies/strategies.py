"""What strategies keep of documents longer than an input, with a writer in a model's place.

    python studies/strategies.py --data=DATA --out=strategies.json

DATA is that of `builtin_extractor.py`. A token is a word here, and an input has --input of them.
The writer summarizes one input: "lead" copies its first sentences, "ranker" its best ones by the
built-in ranker. So this compares how strategies read and join, and says nothing of how well a model
writes. Of every test split the first --examples documents are taken that do not fit into an input,
without queries. Summaries of all strategies have at most --length words, those of segments that are
read again --written. Scores are means of stemmed ROUGE-1, -2 and -Lsum; "read" is the share of
words that the writer sees, "second half" the part of what the summary rests on that is in the
document's second half.
"""

import argparse
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, write_report

from longsum_jax.evaluation.rouge import ROUGE_TYPES, Rouge
from longsum_jax.ranking.ranker import builtin_ranker
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.registry import STRATEGIES
from longsum_jax.summarization.rounds import Plan, run_plans
from longsum_jax.summarization.strategies import Reader, StrategyInput
from longsum_jax.summarization.strategy_engine import summarize_steps
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.text.documents import DataRow, read_json_lines
from longsum_jax.text.joining import Joiner
from longsum_jax.text.lengths import Length

DATA_SETS = ("scisummnet", "techspecs", "qmsum", "sumpubmed", "crd3")

MEASURED = ("rouge", "read", "second half", "words")

Write = Callable[[str, int], str]  # (input, words) -> summary


class Words:
    """A tokenizer of words, each with the white space after it."""

    @property
    def plain(self) -> "Words":
        return self

    def encode(self, text: str) -> list[str]:
        return re.findall(r"\S+\s*", text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[str]]:
        return list(map(self.encode, texts))

    def add_special_tokens(self, ids: Sequence[str], limit: int | None = None) -> list[str]:
        return list(ids[:limit])


def lead(text: str, num_words: int) -> str:
    """Copies the first sentences."""
    return Joiner(num_words).add(text)


def ranker(text: str, num_words: int) -> str:
    """Copies the best sentences."""
    return builtin_ranker().summarize(text, length=Length(num_words)).text


WRITERS: dict[str, Write] = {"lead": lead, "ranker": ranker}
# All but the strategy of models that were trained to read segments.
READING = [name for name in STRATEGIES if name != "memory"]


def summarize(name: str, reader: Reader, document: DataRow, write: Write) -> Summary:
    """Returns the summary of a document by a strategy."""

    def decode(
        documents: Iterable[TokenizedDocument], limit: int | None
    ) -> Iterator[tuple[int, Summary]]:
        for place, each in enumerate(documents):
            text = write("".join(each.ids), limit or reader.max_new_tokens)
            yield place, Summary(text, 0, 0, 0, 0, "eos")

    request = Request(document.document, document.id, None)
    ids = reader.tokenizer.encode(request.text)
    limit = reader.longest_input if name == "direct" else None
    source = StrategyInput(reader, request, TokenizedDocument(ids[:limit], len(ids)))
    [(_, result)] = run_plans([Plan(summarize_steps(source, name))], decode)
    return result


def measure(documents: Sequence[DataRow], found: Sequence[Summary]) -> dict[str, float]:
    """Returns scores of summaries, and what was read."""
    texts = [summary.text for summary in found]
    references = [document.summary for document in documents]
    sources = [document.document for document in documents]
    scores = Rouge(Rouge.Options(stemmer=True)).score(texts, references, sources)
    coverage = np.array([summary.coverage for summary in found])
    halves = coverage[:, 5:].sum(1) / np.maximum(coverage.sum(1), 1e-9)
    read = [summary.read_tokens / summary.document_tokens for summary in found]
    values = {
        "rouge": np.mean([[score[name] for name in ROUGE_TYPES] for score in scores]),
        "read": np.mean(read),
        "second half": np.mean(halves),
        "words": np.mean([len(text.split()) for text in texts]),
    }
    return {name: round(float(values[name]), 3) for name in MEASURED}


def means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the means over all data sets, for every writer and strategy."""
    result = []
    for writer, name in itertools.product(WRITERS, READING):
        alike = [row for row in rows if (row["writer"], row["strategy"]) == (writer, name)]
        values = {key: np.mean([row[key] for row in alike]) for key in MEASURED}
        about = {"data": "mean", "writer": writer, "strategy": name}
        result.append(about | {key: round(float(value), 3) for key, value in values.items()})
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sets", nargs="+", default=DATA_SETS, metavar="NAME")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--input", type=int, default=768)
    parser.add_argument("--written", type=int, default=75)
    parser.add_argument("--length", type=int, default=150)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    length = Length(args.length)
    reader = Reader(Words(), longest_input=args.input, max_new_tokens=args.written, length=length)
    rows: list[dict[str, Any]] = []
    for data_set in args.sets:
        every = read_json_lines(str(args.data / data_set / "test.jsonl*"))
        long = (each for each in every if len(each.document.split()) > args.input)
        documents = list(itertools.islice(long, args.examples))
        for (writer, write), name in itertools.product(WRITERS.items(), READING):
            result = [summarize(name, reader, document, write) for document in documents]
            about = {"data": data_set, "documents": len(documents), "writer": writer}
            rows.append({**about, "strategy": name, **measure(documents, result)})
            print_table(rows[-1:])
    rows += means(rows)
    if args.out:
        write_report(args.out, rows)
    print_table(rows)


if __name__ == "__main__":
    main()
