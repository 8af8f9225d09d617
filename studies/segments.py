"""How fast documents are cut into segments and their summaries are dealt out to these, on one
thread.

    python studies/segments.py --tokenizer=spiece.model --out=segments.json

Synthetic documents of 10,000 and of 80,000 words in sentences of 12 to 28, drawn from a Zipf law
over 20,000 words; the summary is a sentence of 30 words for every 500 of the document. Tokens are
given, a word being one and a half, so that splitting, vectors, algorithm 1 and ROUGE are measured;
tokenizing by --tokenizer has rows of its own. Seconds are processor time.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, write_report
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.segment_targets import segment_targets
from longsum_jax.text.segmentation import SegmentedDocument, segment_document
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.loading import load_tokenizer

NUM_WORDS = 20_000
SIZES = (10_000, 80_000)  # words of a document


class Synthetic(NamedTuple):
    document: str
    summary: str


class GivenTokens:
    """A tokenizer that has been there before: three tokens for every two words."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[0] * (text.count(" ") * 3 // 2) for text in texts]


def synthetic(words: int, rng: np.random.Generator) -> Synthetic:
    """Returns a document of about ``words`` words with its summary."""
    weights = 1 / np.arange(1, NUM_WORDS + 1)
    names = np.array([f"word{index}" for index in range(NUM_WORDS)])
    drawn = rng.choice(names, words * 3 // 2, p=weights / weights.sum()).tolist()

    def sentences(lengths: Sequence[int]) -> str:
        return " ".join(" ".join(drawn.pop() for _ in range(n)).capitalize() + "." for n in lengths)

    return Synthetic(
        sentences(rng.integers(12, 29, words // 20).tolist()), sentences([30] * (words // 500))
    )


def slow_targets(document: SegmentedDocument, summary: str) -> list[int]:
    """The plain way: ROUGE-1 and ROUGE-2 of every sentence against every segment by rouge-score."""
    scorer = RougeScorer(["rouge1", "rouge2"])
    segments = [document.segment_text(index) for index in range(len(document.segments))]
    return [
        int(
            np.argmax(
                [
                    sum(s.precision for s in scorer.score(segment, sentence).values())
                    for segment in segments
                ]
            )
        )
        for sentence in split_sentences(summary)
    ]


def per_second(work: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Returns items per second of processor time."""
    work(items[0])
    start = time.process_time()
    for item in items:
        work(item)
    return len(items) / (time.process_time() - start)


def rows_of(words: int, count: int, seed: int, tokenizer: Any) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    documents = [synthetic(words, rng) for _ in range(count)]
    segmented = [segment_document(x.document, GivenTokens()) for x in documents]
    pairs = list(zip(segmented, documents, strict=True))

    def targets(pair: tuple[SegmentedDocument, Synthetic]) -> list[str]:
        return segment_targets(
            [pair[0].segment_text(i) for i in range(len(pair[0].segments))], pair[1].summary
        )

    def both(x: Synthetic) -> list[str]:
        return targets((segment_document(x.document, GivenTokens()), x))

    parts: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]] = {
        "segments and targets": (both, documents),
        "segments": (lambda x: segment_document(x.document, GivenTokens()), documents),
        "targets": (targets, pairs),
        "targets by rouge-score": (
            lambda pair: slow_targets(pair[0], pair[1].summary),
            pairs[: max(count // 50, 1)],
        ),
        "greedy oracle": (lambda pair: greedy_oracle(pair[0].sentences, pair[1].summary), pairs),
    }
    if tokenizer is not None:
        parts["tokenizing the sentences"] = (
            lambda x: tokenizer.encode_batch(x.sentences),
            segmented,
        )
    return [
        {
            "part": name,
            "words": words,
            "documents_per_second": per_second(*part),
            "documents": len(part[1]),
        }
        for name, part in parts.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON report to write")
    parser.add_argument("--tokenizer", help=".model file or directory, to measure tokenizing, too")
    parser.add_argument(
        "--documents", type=int, default=100, help="of 10,000 words; an eighth of 80,000"
    )
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    tokenizer = load_tokenizer(flags.tokenizer) if flags.tokenizer else None
    rows = []
    for words in SIZES:
        rows += rows_of(words, max(flags.documents * SIZES[0] // words, 1), flags.seed, tokenizer)
    print_table(rows)
    if flags.out:
        write_report(flags.out, rows, seed=flags.seed)


if __name__ == "__main__":
    main()
