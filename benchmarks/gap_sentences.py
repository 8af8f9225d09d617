"""Documents per second of gap-sentence selection, ours beside rouge-score's.

    python benchmarks/gap_sentences.py --out=gap_sentences.json

Synthetic documents of 25 sentences of 12 to 28 words, drawn from a Zipf law over 20,000 words. Sentences are
given, so that scoring and selection are measured, in processor time of the one thread.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from common import print_table, write_report
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.text.gap_sentences import GapSentenceOptions, select_gap_sentences

NUM_SENTENCES = 25
NUM_WORDS = 20_000


def synthetic_documents(count: int, seed: int) -> list[list[str]]:
    """Returns ``count`` documents, each a list of sentences."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, NUM_WORDS + 1)
    names = np.array([f"word{index}" for index in range(NUM_WORDS)])

    def sentence() -> str:
        words = rng.choice(names, rng.integers(12, 29), p=weights / weights.sum())
        return " ".join(words).capitalize() + "."

    return [[sentence() for _ in range(NUM_SENTENCES)] for _ in range(count)]


def select_with_rouge_score(sentences: list[str], scorer: RougeScorer, count: int) -> list[int]:
    """The plain way: ROUGE-1 of each sentence against the text of all others."""
    scores = []
    for index, sentence in enumerate(sentences):
        rest = " ".join(sentences[:index] + sentences[index + 1 :])
        scores.append(scorer.score(rest, sentence)["rouge1"].fmeasure)
    return sorted(np.argsort(-np.array(scores), kind="stable")[:count].tolist())


def documents_per_second(select: Callable[[list[str]], list[int]], documents: list[list[str]]) -> float:
    """Returns the speed of one pass over ``documents``, in processor time, after a short warm-up."""
    for document in documents[:10]:
        select(document)
    start = time.process_time()
    for document in documents:
        select(document)
    return len(documents) / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="JSON report to write")
    parser.add_argument("--documents", type=int, default=5000, help="documents for ours; a twentieth for rouge-score")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    documents = synthetic_documents(flags.documents, flags.seed)
    rng = np.random.default_rng(flags.seed)
    rows = []
    for strategy in ("independent", "sequential"):
        for counting in ("original", "unique"):
            options = GapSentenceOptions(strategy=strategy, counting=counting)
            speed = documents_per_second(lambda d, o=options: select_gap_sentences(d, o, rng), documents)
            rows.append({"selection": f"{strategy}, {counting}", "documents_per_second": speed})
    scorer = RougeScorer(["rouge1"], use_stemmer=False)
    few = documents[: max(1, flags.documents // 20)]
    speed = documents_per_second(lambda d: select_with_rouge_score(d, scorer, NUM_SENTENCES // 5), few)
    rows.append({"selection": "rouge-score, independent", "documents_per_second": speed})
    print_table(rows)
    if flags.out:
        write_report(flags.out, rows, seed=flags.seed, num_documents=flags.documents)


if __name__ == "__main__":
    main()
