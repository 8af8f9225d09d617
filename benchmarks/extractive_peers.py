"""The built-in ranker beside sumy's summarizers: scores and time on the same documents.

    pip install sumy
    python benchmarks/extractive_peers.py --data=DATA --out=extractive_peers.json

DATA is what `builtin_extractor.py` reads. Both sides get the same text and the same budget of words
for each data set, the mean length of its training references, and choose whole sentences. sumy's
summarizers get our sentences and words (its own splitter downloads data), and take their best
sentences while there is room. Scores are means of stemmed ROUGE-1, -2 and -Lsum over the first
--documents of the test split. `seconds` are those of the processor for a document, from the text to
the summary; `ratio` is how many times as long the peer takes.
"""

import argparse
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from common import print_table, write_report

import longsum_jax
from longsum_jax.configs import builtin_extractor as recipe
from longsum_jax.evaluation.rouge import Rouge
from longsum_jax.text.sentences import join_wrapped_lines, split_sentences

DATA_SETS = ("scisummnet", "techspecs", "sumpubmed")  # LexRank takes minutes for a transcript
OURS = "longsum_jax, built-in"
WORDS = re.compile(r"[^\W_]+")


class Words:
    """Splits sentences for sumy as this library does."""

    def to_words(self, text: str) -> list[str]:
        """Returns the words of a text."""
        return WORDS.findall(text)


def peers() -> dict[str, Callable[[str, int], str]]:
    """Returns sumy's summarizers: (text, words) -> summary."""
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.nlp.stemmers import Stemmer
    from sumy.summarizers.lex_rank import LexRankSummarizer
    from sumy.summarizers.lsa import LsaSummarizer
    from sumy.summarizers.luhn import LuhnSummarizer
    from sumy.summarizers.sum_basic import SumBasicSummarizer
    from sumy.summarizers.text_rank import TextRankSummarizer
    from sumy.utils import get_stop_words

    words, stemmer = Words(), Stemmer("english")

    def call(summarizer: Any, text: str, budget: int) -> str:
        sentences = [
            Sentence(sentence, words) for sentence in split_sentences(join_wrapped_lines(text))
        ]

        def best(infos: Sequence[Any]) -> list[Any]:
            taken, room = [], budget
            for info in infos:
                length = len(str(info.sentence).split())
                if length <= room:
                    taken.append(info)
                    room -= length
            return taken

        document = ObjectDocumentModel([Paragraph(sentences)])
        return "\n".join(map(str, summarizer(document, best)))

    result = {}
    for kind in (
        LexRankSummarizer,
        TextRankSummarizer,
        LsaSummarizer,
        LuhnSummarizer,
        SumBasicSummarizer,
    ):
        summarizer = kind(stemmer)
        summarizer.stop_words = get_stop_words("english")
        name = f"sumy {kind.__name__.removesuffix('Summarizer')}"
        result[name] = partial(call, summarizer)
    return result


def ours(text: str, budget: int) -> str:
    """Returns the built-in ranker's summary."""
    return longsum_jax.summarize(text, length=budget).text


def rows_of(data: Path, name: str, count: int) -> list[dict[str, Any]]:
    """Returns a row for every system on a data set."""
    metric = Rouge(Rouge.Options(stemmer=True))
    references = recipe.documents(data, name, "train")
    budget = round(np.mean([len(row.summary.split()) for row in references]))
    documents = recipe.documents(data, name, "test")[:count]
    rows = []
    for system, summarize in {OURS: ours, **peers()}.items():
        summarize(documents[0].document, budget)  # what is made once
        start = time.process_time()
        texts = [summarize(row.document, budget) for row in documents]
        seconds = (time.process_time() - start) / len(documents)
        scores = metric.score(texts, [row.summary for row in documents], [""] * len(documents))
        mean = float(np.mean([values["mean_rouge"] for values in scores]))
        row = {"data_set": name, "system": system, "documents": len(documents)}
        row |= {"budget_words": budget, "mean_rouge": mean, "seconds": seconds}
        rows.append(row | {"ratio": seconds / (rows[0]["seconds"] if rows else seconds)})
        print_table(rows[-1:])
    return rows


def main() -> None:
    """Scores and times all systems, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--data_sets", default=",".join(DATA_SETS), help="to score, with commas")
    parser.add_argument("--documents", type=int, default=40, help="of each; default: 40")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    rows = []
    for name in args.data_sets.split(","):
        rows += rows_of(args.data, name, args.documents)
        if args.out:
            write_report(args.out, rows, sumy=version("sumy"))


if __name__ == "__main__":
    main()
