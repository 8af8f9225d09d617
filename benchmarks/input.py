"""Documents per second of one core on their way to a model: gap sentences, tokenizing, and the two
together.

    python benchmarks/input.py --out=input.json [--documents=FILE.jsonl[,FILE]] [--tokenizer=PATH] \
        [--count=2000]

Documents are the `text` or `document` of JSON lines, or drawn here: --sentences sentences of 12 to
28 words from a Zipf law over 20,000. The tokenizer is the one given, or a vocabulary of --vocab
pieces trained on the first 500 documents. Everything runs in this one thread, and seconds are of
its processor. "select" rows have sentences given, so that scoring and selection are measured beside
rouge-score's, the peer, on a twentieth of the documents; `ratio` is how many times as fast ours is.
"gap sentences" and "tokenize" also split into sentences and tokenize, and "both" is what
`longsum prepare` does to a document of a gap-sentence task: source and target ids, cut at 4,096
and 910 tokens.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from common import print_table, timed, write_report
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.data.examples.summarization import make_example
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow, read_json_lines
from longsum_jax.text.gap_sentences import (
    GapSentenceOptions,
    gap_sentence_example,
    select_gap_sentences,
)
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer
from longsum_jax.tokenizers.train import train_sentencepiece

NUM_WORDS = 20_000
PEER = "select: rouge-score, independent"


def synthetic_documents(count: int, sentences: int, seed: int) -> list[str]:
    """Texts of words drawn from a Zipf law."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, NUM_WORDS + 1)
    names = np.array(
        [_word(index + 16) for index in range(NUM_WORDS)]
    )  # one syllable may be an abbreviation

    def sentence() -> str:
        words = rng.choice(names, rng.integers(12, 29), p=weights / weights.sum())
        return " ".join(words).capitalize() + "."

    return [" ".join(sentence() for _ in range(sentences)) for _ in range(count)]


def _word(index: int) -> str:
    """Syllables that spell ``index``: a vocabulary finds common parts in them, as in words."""
    syllables = (
        "ba",
        "cel",
        "di",
        "fo",
        "gur",
        "ha",
        "lin",
        "mo",
        "nu",
        "pra",
        "re",
        "sti",
        "to",
        "ven",
        "wi",
        "zu",
    )
    return syllables[index % 16] + (_word(index // 16 - 1) if index >= 16 else "")


def read_documents(files: str, count: int) -> list[str]:
    """The first texts of JSON lines."""

    def texts() -> Iterator[str]:
        for path in files.split(","):
            for document in read_json_lines(
                path, document_key="text|document", require_summary=False
            ):
                yield document.document

    return list(islice(texts(), count))


def select_with_rouge_score(sentences: Sequence[str], scorer: RougeScorer) -> list[int]:
    """The plain way: ROUGE-1 of each sentence against the text of all others; a fifth of them."""
    scores = []
    for index, sentence in enumerate(sentences):
        rest = " ".join([*sentences[:index], *sentences[index + 1 :]])
        scores.append(scorer.score(rest, sentence)["rouge1"].fmeasure)
    return sorted(np.argsort(-np.array(scores), kind="stable")[: len(sentences) // 5].tolist())


def row_of(stage: str, work: Callable[[Any], Any], items: Sequence[Any]) -> dict[str, Any]:
    """Speed of one pass over ``items`` in processor time, after a short warm-up."""
    for item in items[:10]:
        work(item)
    seconds = timed(lambda: [work(item) for item in items]).cpu
    return {
        "stage": stage,
        "documents": len(items),
        "documents_per_second": len(items) / max(seconds, 1e-9),
    }


def stages(documents: Sequence[str], tokenizer: Tokenizer, seed: int) -> list[dict[str, Any]]:
    """Rows of the table."""
    rng = np.random.default_rng(seed)
    split = [split_sentences(text) for text in documents]
    rows = []
    for strategy in ("independent", "sequential"):
        for counting in ("original", "unique"):
            options = GapSentenceOptions(strategy=strategy, counting=counting)
            select = partial(select_gap_sentences, options=options, rng=rng)
            rows.append(row_of(f"select: {strategy}, {counting}", select, split))
    scorer = RougeScorer(["rouge1"], use_stemmer=False)
    few = split[: max(1, len(split) // 20)]
    rows.append(row_of(PEER, lambda sentences: select_with_rouge_score(sentences, scorer), few))
    rows[-1]["ratio"] = rows[0]["documents_per_second"] / rows[-1]["documents_per_second"]
    options = GapSentenceOptions()
    rows.append(
        row_of("gap sentences", lambda text: gap_sentence_example(text, options, rng), documents)
    )
    rows.append(row_of("tokenize", tokenizer.encode, documents))
    lengths = {"max_source_length": 4096, "max_target_length": 910}
    task = Task("input", "embedded", objective="gap_sentences", **lengths)
    numbered = [DataRow(str(index), text, None, None) for index, text in enumerate(documents)]
    rows.append(
        row_of("both", lambda document: make_example(task, tokenizer, document, seed), numbered)
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", help="JSON lines, comma-separated; default: drawn texts")
    parser.add_argument(
        "--tokenizer", help=".model file or directory; default: trained on the documents"
    )
    parser.add_argument("--count", type=int, default=2000, help="documents; default: 2000")
    parser.add_argument(
        "--sentences", type=int, default=25, help="of a drawn document; default: 25"
    )
    parser.add_argument(
        "--vocab", type=int, default=8000, help="pieces of the trained tokenizer; default: 8000"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    if args.documents:
        documents = read_documents(args.documents, args.count)
    else:
        documents = synthetic_documents(args.count, args.sentences, args.seed)
    tokenizer = (
        load_tokenizer(args.tokenizer)
        if args.tokenizer
        else train_sentencepiece(documents[:500], args.vocab)
    )
    rows = stages(documents, tokenizer, args.seed)
    print_table(rows)
    if args.out:
        words = float(np.mean([text.count(" ") + 1 for text in documents]))
        write_report(
            args.out, rows, seed=args.seed, words_per_document=words, pieces=tokenizer.vocab_size
        )


if __name__ == "__main__":
    main()
