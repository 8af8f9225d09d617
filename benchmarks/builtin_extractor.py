"""The built-in ranker vs. unsupervised extraction on eight kinds of text, and its speed.

    python configs/builtin_extractor.py --data=DATA --out=ranker.npz      # the weights themselves
    python benchmarks/builtin_extractor.py --data=DATA --work=WORK --out=builtin_extractor.json

DATA is what `configs/builtin_extractor.py` reads. All systems choose whole sentences within one
budget of words for each kind, which is the mean length of its training references; of all but lead
and SumBasic a sentence too much like one taken before is left out, and only the rankers read
queries. Scores are means of stemmed ROUGE-1, -2 and -Lsum, over all references of a document, on
the whole test part. Rankers are

- "built-in": the weights of the package, see `configs/builtin_extractor.py`;
- "left out": trees and a linear ranker that were trained without the data set of the kind.

p-values are of paired randomization tests of each ranker against each unsupervised system; the
unit is a document with all of its queries. WORK keeps rows, models and scores, so that the command
continues where it stopped. Times are CPU seconds: "start" is a process that imports the package and
summarises one paragraph, "book" a text of --words words.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import fastest, print_table, write_report
from input import synthetic_documents
from scipy import sparse

from longsum_jax.configs import builtin_extractor as recipe
from longsum_jax.evaluation.rouge import Rouge
from longsum_jax.evaluation.significance import randomization_test
from longsum_jax.ranking.features import sentence_features
from longsum_jax.ranking.gains import reference_gains
from longsum_jax.ranking.parsing import ParsedDocument, parse_document
from longsum_jax.ranking.ranker import (
    Ranker,
    builtin_ranker,
    load_ranker,
    summary_sentences,
    without_fragments,
)
from longsum_jax.ranking.selection import select_sentences
from longsum_jax.ranking.training import Rows, train_trees
from longsum_jax.text.documents import DataRow
from longsum_jax.text.lengths import Length
from longsum_jax.text.sentences import join_wrapped_lines

UNSEEN = ("sumpubmed", "crd3")
DATA_SETS = (*recipe.DATA_SETS, *UNSEEN)
RANKERS = ("built-in", "left out")
START = "import longsum_jax; print(longsum_jax.summarize('One sentence. Another one.').text)"

Scores = dict[str, list[float]]  # of the documents, by system


def _matrix(document: ParsedDocument, weights: np.ndarray) -> sparse.csr_array:
    words = document.words
    return sparse.csr_array(
        (weights, (words.row, words.word)), (words.num_sentences, words.size), np.float64
    )


def _power_iteration(links: sparse.csr_array, damping: float = 0.85) -> np.ndarray:
    """Returns PageRank of a symmetric graph with weights, [n]."""
    count = links.shape[0]
    degree = np.maximum(links.sum(1), 1e-12)
    rank = np.full(count, 1 / count)
    for _ in range(50):
        rank = (1 - damping) / count + damping * (links @ (rank / degree))
    return rank


def lead(document: ParsedDocument) -> np.ndarray:
    """Scores sentences by their place: the first is best."""
    return -np.arange(len(document.sentences), dtype=np.float64)


def centroid(document: ParsedDocument) -> np.ndarray:
    """Scores by the cosine with the sum of all TF-IDF vectors (Radev et al., 2004)."""
    vectors = _matrix(document, document.weights)
    return vectors @ vectors.sum(0)


def lexrank(document: ParsedDocument) -> np.ndarray:
    """LexRank with a threshold of 0.1 (Erkan & Radev, 2004)."""
    vectors = _matrix(document, document.weights)
    cosines = vectors @ vectors.T
    cosines.data = (cosines.data > 0.1).astype(np.float64)
    return _power_iteration(cosines)


def textrank(document: ParsedDocument) -> np.ndarray:
    """TextRank by the words in common (Mihalcea & Tarau, 2004)."""
    words = document.words
    has = _matrix(document, document.content[words.word].astype(np.float64))
    common = (has @ has.T).tocoo()
    logs = np.log(np.maximum(np.bincount(words.rows, minlength=words.num_sentences), 1))
    norms = np.maximum(logs[common.row] + logs[common.col], 1)
    retained = common.row != common.col
    links = (common.data[retained] / norms[retained], (common.row[retained], common.col[retained]))
    return _power_iteration(sparse.csr_array(links, common.shape))


def sumbasic(document: ParsedDocument) -> np.ndarray:
    """SumBasic (Nenkova & Vanderwende, 2005), as minus the turn at which a sentence is taken."""
    words, limit = document.words, 300
    retained = document.content[words.word]
    total = words.by_word(words.counts * retained)
    probability = total / max(total.sum(), 1)
    length = np.maximum(words.by_sentence(words.counts * retained), 1)
    scores = np.full(words.num_sentences, -np.inf)
    bounds = np.searchsorted(words.row, np.arange(words.num_sentences + 1))
    for turn in range(min(limit, words.num_sentences)):
        mean = words.by_sentence(words.counts * retained * probability[words.word]) / length
        mean[scores > -np.inf] = -1
        best = int(mean.argmax())
        scores[best] = -turn
        held = words.word[bounds[best] : bounds[best + 1]]
        probability[held] **= 2
    return scores


def lsa(document: ParsedDocument) -> np.ndarray:
    """LSA by the lengths of sentences in the strongest topics (Steinberger & Jezek, 2004)."""
    vectors = _matrix(document, document.weights)
    topics = min(10, *(size - 1 for size in vectors.shape))
    if topics < 1:
        return lead(document)
    left, strengths, _ = sparse.linalg.svds(vectors, topics, random_state=0)
    strong = strengths >= strengths.max() / 2
    return np.sqrt((left**2 * strengths**2)[:, strong].sum(1))


PEERS: Mapping[str, Callable[[ParsedDocument], np.ndarray]] = {
    "lead": lead,
    "centroid": centroid,
    "LexRank": lexrank,
    "TextRank": textrank,
    "SumBasic": sumbasic,
    "LSA": lsa,
}
REPEATING = ("lead", "SumBasic")


class Workplace:
    """Rows, models and scores, each made once and kept in a folder.

    Args:
        data: folder of the data sets.
        folder: to keep what was made.
    """

    def __init__(self, data: Path, folder: Path) -> None:
        self.data = data
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def rows(self, name: str, ranker: str) -> Rows:
        """Returns the training sentences of a data set or kind.

        Args:
            name: name of the data set or kind.
            ranker: "trees" or "linear".
        """
        path = self.folder / f"{ranker}_rows_{name}.npz"
        if not path.exists():
            draw = {"trees": recipe.rows, "linear": recipe.kind_rows}[ranker]
            np.savez(path, **draw(self.data, name)._asdict())
        with np.load(path) as file:
            rows = Rows(*(file[key] for key in Rows._fields))
        return rows._replace(names=rows.names.tolist())

    def rankers(self, name: str) -> dict[str, Ranker]:
        """Returns the rankers to be scored on a kind."""
        rankers = {"built-in": builtin_ranker()}
        if name not in UNSEEN:
            rankers["left out"] = self.ranker_without(folder_of(name))
        return rankers

    def ranker_without(self, folder: str) -> Ranker:
        """Returns a ranker that was trained without a data set."""
        path = self.folder / f"without_{folder}.npz"
        if not path.exists():
            data_sets = [name for name in recipe.DATA_SETS if folder_of(name) != folder]
            trees = train_trees([self.rows(name, "trees") for name in data_sets], recipe.BOOSTING)
            kinds = [name for name in recipe.KINDS if folder_of(name) != folder]
            rows = {name: self.rows(name, "linear") for name in kinds}
            Ranker(trees, recipe.fallback(rows, data_sets)).save(path)
        return load_ranker(path)

    def scores(self, name: str) -> dict[str, Any]:
        """Returns the budget of a kind and the scores of all systems on its test part."""
        path = self.folder / f"scores_{name}.json"
        if not path.exists():
            references = recipe.documents(self.data, name, "train")
            budget = round(np.mean([num_words(row) for row in references]))
            documents = recipe.documents(self.data, name, "test")
            texts = list(dict.fromkeys(row.document for row in documents))
            scores = score_documents(documents, budget, self.rankers(name))
            numbers = [texts.index(row.document) for row in documents]
            path.write_text(json.dumps({"budget": budget, "texts": numbers, "scores": scores}))
        return json.loads(path.read_text())


def folder_of(name: str) -> str:
    """Returns the folder of a kind of text."""
    return recipe.OTHER_KINDS[name].folder if name in recipe.OTHER_KINDS else name


def references_of(row: DataRow) -> tuple[str, ...]:
    """Returns the references of a document."""
    return row.summary if isinstance(row.summary, tuple) else (row.only_summary,)


def num_words(row: DataRow) -> float:
    """Returns the mean number of words of the references of a document."""
    return float(np.mean([len(reference.split()) for reference in references_of(row)]))


def score_documents(
    documents: Sequence[DataRow], budget: int, rankers: Mapping[str, Ranker]
) -> Scores:
    """Returns the mean ROUGE of every system on every document."""
    metric = Rouge(Rouge.Options(stemmer=True))
    length = Length(budget)
    result: Scores = {}
    parsed, extracts = None, {}
    for number, row in enumerate(documents):
        if parsed is None or documents[number - 1].document != row.document:
            parsed = parse_document(join_wrapped_lines(row.document))
            extracts = {name: _by_peer(parsed, name, length) for name in PEERS}
        references = references_of(row)
        features = sentence_features(parsed, row.query)
        for name, ranker in rankers.items():
            scores = without_fragments(parsed, ranker.feature_scores(features))
            selected, _ = summary_sentences(parsed, scores, length, has_query=row.query is not None)
            extracts[name] = "\n".join(parsed.sentences[i] for i in selected)
        gains = np.mean([reference_gains(parsed.sentences, text) for text in references], 0)
        extracts["reference"] = _joined(parsed, gains, length)
        for name, text in extracts.items():
            scored = metric.score(
                [text] * len(references), list(references), [""] * len(references)
            )
            mean = float(np.mean([values["mean_rouge"] for values in scored]))
            result.setdefault(name, []).append(mean)
    return result


def _by_peer(parsed: ParsedDocument, name: str, length: Length) -> str:
    alike = {"alike": 1.0} if name in REPEATING else {}
    return _joined(parsed, PEERS[name](parsed), length, **alike)


def _joined(parsed: ParsedDocument, scores: np.ndarray, length: Length, **options: Any) -> str:
    selected = select_sentences(parsed, scores, length, **options)
    return "\n".join(parsed.sentences[i] for i in selected)


def rows_of(name: str, kept: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for every system on a kind of text."""
    scores = {system: np.array(values) for system, values in kept["scores"].items()}
    texts = np.array(kept["texts"])
    rows = []
    for system, values in scores.items():
        row = {"data_set": name, "system": system, "documents": int(texts.max()) + 1}
        row["rows"] = len(values)
        row |= {"budget_words": kept["budget"], "mean_rouge": float(values.mean())}
        if system in RANKERS:
            tests = {
                peer: float(
                    randomization_test(by_text(values, texts), by_text(scores[peer], texts))
                )
                for peer in PEERS
            }
            best = max(PEERS, key=lambda peer: scores[peer].mean())
            row |= {"p_values": tests, "p_best": tests[best], "best_peer": best}
            row["is_unseen"] = system == "left out" or name in UNSEEN
            row["gain"] = float(values.mean() - scores[best].mean())
            row["gain_over_lead"] = float(values.mean() - scores["lead"].mean())
        rows.append(row)
    return rows


def by_text(values: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Returns the mean of the rows of each document."""
    return np.bincount(texts, values) / np.bincount(texts)


def mean_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the means over the kinds of text.

    Kinds that the package never saw count with the built-in weights among those left out.
    """
    result = []
    kinds = dict.fromkeys(row["data_set"] for row in rows)
    scores = {(row["data_set"], row["system"]): row["mean_rouge"] for row in rows}
    for system in dict.fromkeys(row["system"] for row in rows):
        values = [scores.get((kind, system), scores[kind, "built-in"]) for kind in kinds]
        result.append({"data_set": "mean", "system": system, "mean_rouge": float(np.mean(values))})
    return result


def time_rows(words: int) -> list[dict[str, Any]]:
    """Returns CPU seconds of a start and of a book."""
    [book] = synthetic_documents(1, words // 20, seed=0)
    calls = {
        "start": lambda: subprocess.run([sys.executable, "-c", START], check=True, text=True),
        "book": lambda: builtin_ranker().summarize(book, length="1%"),
    }
    size = {"start": 4, "book": len(book.split())}
    result = fastest(calls, 3)
    return [
        {"what": what, "words": size[what], "seconds": round(seconds.cpu, 3)}
        for what, seconds in result.items()
    ]


def main() -> None:
    """Scores all systems and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--work", type=Path, required=True, help="folder for what is kept")
    parser.add_argument("--data_sets", default=",".join(DATA_SETS), help="to score, with commas")
    parser.add_argument("--words", type=int, default=100_000, help="of the book; default: 100,000")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    place = Workplace(args.data, args.work)
    rows = []
    for name in args.data_sets.split(","):
        rows += rows_of(name, place.scores(name))
    rows += mean_rows(rows)
    shown = ("data_set", "system", "mean_rouge", "p_best", "gain")
    print_table([{key: row.get(key) for key in shown} for row in rows])
    rows += time_rows(args.words)
    print_table(rows[-2:])
    if args.out:
        write_report(args.out, rows)


if __name__ == "__main__":
    main()
