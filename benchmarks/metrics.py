"""Metrics of summaries beside their reference implementations: largest difference, pairs/s.

    python benchmarks/metrics.py --out=metrics.json [--pairs=40] [--words=500] [--models=tiny,base]

Pairs are summaries of --words words drawn from a Zipf law, in sentences of 12 to 28, one a line, of
which the second has half of its sentences from the first; "ROUGE-L of long texts" has 9,000 and 600
words. Both sides take turns on one core, the faster of two turns counts, and seconds are of the
processor. Differences are of scores from 0 to 100. Peers are rouge-score, NLTK with a WordNet that
knows no synonyms, and for tests of significance over --documents documents scipy. Metrics whose
definition no package computes stand below with their speed alone; tests/evaluation has their twins.
--summaries summaries are scored once by ROUGE alone.

--models adds metrics over random models of these sizes, written by transformers, beside the
packages that are installed (model_metrics.py). Their summaries have --model_words words in the
middle, and lengths spread as those of real ones: padding is what both sides save differently. With
many more pairs, or summaries of one length, base models take both sides about equally long.
Differences are of scores from 0 to 100, and of log-probabilities.
"""

import argparse
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from common import fastest, print_table, timed, write_report
from input import synthetic_documents
from model_metrics import Case, Texts, model_cases
from nltk.translate.meteor_score import single_meteor_score
from rouge_score.rouge_scorer import RougeScorer
from scipy import stats

from longsum_jax.evaluation.meteor import Meteor
from longsum_jax.evaluation.registry import METRICS
from longsum_jax.evaluation.rouge import Rouge
from longsum_jax.evaluation.significance import bootstrap_intervals, randomization_test
from longsum_jax.text.ngrams import words_of
from longsum_jax.text.sentences import split_sentences

TYPES = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeLsum")
SENTENCE = 20  # words on average
LONG = (9_000, 600)  # words
ROUNDS = 10_000
DISTINCT = 200  # of many summaries; drawing them takes longer than scoring them
# Metrics without a package -> whose definition they compute.
DEFINITIONS = {
    "novelty": "SummEval",
    "repetition": "SummEval",
    "extractiveness": "Grusky et al. (2018)",
    "length": "",
    "salience": "Huang et al. (2021)",
    "support": "",
    "entities": "Nan et al. (2021)",
    "entity_graph": "DiscoScore",
    "answers": "SCROLLS",
    "choice": "ZeroSCROLLS",
    "percentage": "ZeroSCROLLS",
    "ordering": "ZeroSCROLLS",
}
# Short answers, and right ones, for metrics that score no summaries.
ANSWERS = {"choice": ("B", "A"), "percentage": ("50%", "40%"), "ordering": ("2, 3, 1", "1, 2, 3")}


class NoSynonyms:
    """A WordNet without words."""

    def synsets(self, word: str) -> list[Any]:
        del word
        return []


def drawn_pairs(count: int, words: int, seed: int) -> list[Texts]:
    """Returns pairs of texts that have half of their sentences in common, one a line."""
    texts = synthetic_documents(2 * count, max(words // SENTENCE, 2), seed)
    lines = [split_sentences(text) for text in texts]
    return [
        Texts("\n".join(first), "\n".join(first[::2] + second[1::2]), "\n".join(second))
        for first, second in zip(lines[::2], lines[1::2], strict=True)
    ]


def rouge_case(name: str, pairs: Sequence[Texts], types: Sequence[str], stemmer: bool) -> Case:
    metric = Rouge(Rouge.Options(types=tuple(types), stemmer=stemmer, splitter="lines"))
    scorer = RougeScorer(types, use_stemmer=stemmer)

    def ours(pairs: Sequence[Texts]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True))
        return np.array([[score[name] for name in types] for score in scores])

    def theirs(pairs: Sequence[Texts]) -> np.ndarray:
        scores = [scorer.score(each.reference, each.summary) for each in pairs]
        return np.array([[100 * score[name].fmeasure for name in types] for score in scores])

    return Case(name, "rouge_score", ours, theirs, pairs)


def meteor_case(pairs: Sequence[Texts]) -> Case:
    metric = Meteor()

    def ours(pairs: Sequence[Texts]) -> np.ndarray:
        scores = metric.score(*zip(*pairs, strict=True))
        return np.array([score["meteor"] for score in scores])

    def theirs(pairs: Sequence[Texts]) -> np.ndarray:
        words = [
            [[word.decode() for word in words_of(text)] for text in pair[:2]] for pair in pairs
        ]
        scores = [single_meteor_score(b, a, wordnet=NoSynonyms()) for a, b in words]
        return 100 * np.array(scores)

    return Case("METEOR, words and stems", "nltk", ours, theirs, pairs)


def row_of(case: Case) -> dict[str, Any]:
    """Returns differences and speeds of one case."""
    result = {"ours": case.ours(case.texts)}  # the programs of models are compiled here

    def theirs() -> None:
        result["peer"] = case.theirs(case.texts)

    calls = {"ours": lambda: case.ours(case.texts), "peer": theirs}
    seconds = fastest(calls, 2, warm_ups=0)
    speeds = {name: len(case.texts) / max(taken.cpu, 1e-9) for name, taken in seconds.items()}
    note = f", {case.note}" if case.note else ""
    return {
        "metric": case.name,
        "peer": f"{case.peer} {metadata.version(case.peer)}{note}",
        "pairs": len(case.texts),
        "largest_difference": float(np.abs(result["ours"] - result["peer"]).max()),
        "pairs_per_second": speeds["ours"],
        "peer_pairs_per_second": speeds["peer"],
        "ratio": speeds["ours"] / speeds["peer"],
    }


def definition_rows(pairs: Sequence[Texts]) -> list[dict[str, Any]]:
    """Returns the speeds of metrics whose definition no package computes."""
    calls = {}
    for name in DEFINITIONS:
        metric = METRICS[name]()
        texts = [Texts(*ANSWERS[name])] * len(pairs) if name in ANSWERS else pairs
        calls[name] = lambda metric=metric, texts=texts: metric.score(*zip(*texts, strict=True))
    seconds = fastest(calls, 2, warm_ups=0)
    return [
        {
            "definition": name,
            "of": DEFINITIONS[name],
            "pairs": len(pairs),
            "pairs_per_second": len(pairs) / max(taken.cpu, 1e-9),
        }
        for name, taken in seconds.items()
    ]


def many_row(count: int, words: int, seed: int) -> dict[str, Any]:
    """Returns the seconds of ROUGE-1, -2 and -Lsum, stemmed, of many summaries."""
    drawn = drawn_pairs(min(count, DISTINCT), words, seed)
    pairs = [drawn[i % len(drawn)] for i in range(count)]
    metric = Rouge(Rouge.Options(stemmer=True))
    taken = timed(lambda: metric.score(*zip(*pairs, strict=True)))
    return {"many": "ROUGE-1, -2, -Lsum, stemmed", "summaries": count, "seconds": taken.cpu}


def significance_rows(documents: int, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Returns seconds of tests and intervals of one column of scores."""
    rng = np.random.default_rng(seed)
    first = rng.normal(40, 10, documents)
    second = first + rng.normal(0.3, 5, documents)
    options = {"n_resamples": rounds, "vectorized": True, "rng": seed}

    def mean_difference(x: np.ndarray, y: np.ndarray, axis: int) -> np.ndarray:
        return (x - y).mean(axis)

    calls = {
        "randomization": lambda: randomization_test(first, second, rounds=rounds),
        "peer of randomization": lambda: (
            stats.permutation_test(
                (first, second), mean_difference, permutation_type="samples", batch=100, **options
            ).pvalue
        ),
        "interval": lambda: bootstrap_intervals(first, rounds=rounds),
        "peer of interval": lambda: (
            stats.bootstrap(
                (first,), np.mean, method="percentile", batch=100, **options
            ).confidence_interval
        ),
    }
    seconds = fastest(calls, 2, warm_ups=0)
    return [
        {
            "test": name,
            "peer": f"scipy {metadata.version('scipy')}",
            "documents": documents,
            "rounds": rounds,
            "seconds": seconds[name].cpu,
            "peer_seconds": seconds[f"peer of {name}"].cpu,
            "ratio": seconds[f"peer of {name}"].cpu / seconds[name].cpu,
        }
        for name in ("randomization", "interval")
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help="JSON report to write")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--words", type=int, default=500, help="of a summary")
    parser.add_argument("--documents", type=int, default=1000, help="of tests of significance")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of tests of significance")
    parser.add_argument("--long", type=int, default=LONG[0], help="words of the longest text")
    parser.add_argument("--summaries", type=int, default=5000, help="scored by ROUGE alone")
    parser.add_argument(
        "--models", default="", help="sizes of random models for metrics over models: tiny,base"
    )
    parser.add_argument("--model_words", type=int, default=100, help="of a summary for models")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    with on_one_core():
        measure(flags)


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """Keeps this process on one core: threads that wait for one another cost time of either."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(flags: argparse.Namespace) -> None:
    pairs = drawn_pairs(flags.pairs, flags.words, flags.seed)
    [long_pair] = drawn_pairs(1, flags.long, flags.seed)
    few = "\n".join(
        long_pair.reference.split("\n")[: flags.long // LONG[0] * LONG[1] // SENTENCE or 2]
    )
    cases = [
        rouge_case("ROUGE-1, -2, -3, -L, -Lsum", pairs, TYPES, False),
        rouge_case("the same, stemmed", pairs, TYPES, True),
        rouge_case("ROUGE-L of long texts", [Texts(long_pair.summary, few)], ["rougeL"], False),
        meteor_case(pairs),
    ]
    groups = [
        [row_of(case) for case in cases],
        definition_rows(pairs),
        [many_row(flags.summaries, flags.words, flags.seed)],
        significance_rows(flags.documents, flags.rounds, flags.seed),
    ]
    for group in groups:
        print_table(group)
    rows = [row for group in groups for row in group]
    write(flags, rows)
    for size in filter(None, flags.models.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            makers = model_cases(size, flags.pairs, flags.model_words, flags.seed, Path(directory))
            for make in makers:
                rows.append(row_of(make()))
                print_table(rows[-1:])
                write(flags, rows)


def write(flags: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> None:
    """Writes the report, as far as it has come."""
    if flags.out:
        write_report(flags.out, rows, seed=flags.seed, words=flags.words)


if __name__ == "__main__":
    main()
