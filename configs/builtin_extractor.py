"""Training of the ranker that `longsum summarize` uses without a model.

    python configs/builtin_extractor.py --data=DATA --out=builtin_extractor.npz

DATA has a folder for each data set with train.jsonl, plain, .gz or .xz: rows of document, summary
and query, if there is one. Only data sets are used whose licences allow anyone to use derived
weights: ScisummNet and ACI-Bench (CC BY 4.0), QMSum (MIT), SQuALITY (stories in the public domain,
summaries CC BY 4.0), and documents of technical standards and proposals under CC0, MIT or
Apache-2.0. `--data_sets=NAME,NAME` trains on others. It takes minutes on one core.

Every sentence of a document is an example. Its target is the density of ROUGE-1 and ROUGE-2 hits of
the reference in it (`longsum_jax.ranking.gains`), a smooth version of the greedy search's
selection; boosted trees learn it from features of the sentence and its document
(`longsum_jax.ranking.features`). A linear ranker, over features relative to the document, replaces
the trees for documents unlike their training data (`longsum_jax.ranking.fallback`); it needs fewer
documents, of more kinds. Half of the documents without a query are used a second time with a query
made of words of their reference. `--trees=FILE` reads the trees from a file and trains only the
linear ranker. The same seed gives the same weights.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.ranking.boosting import BoostingOptions
from longsum_jax.ranking.fallback import Fallback
from longsum_jax.ranking.ranker import Ranker
from longsum_jax.ranking.training import RowOptions, Rows, draw_rows, train_fallback, train_trees
from longsum_jax.ranking.trees import load_trees
from longsum_jax.text.documents import DataRow, read_json_lines


class Kind(NamedTuple):
    """A kind of text.

    Attributes:
        folder: folder of its data set.
        has_query: True for rows with a query only, False for rows without, None for all.
        is_whole: True for rows about a whole meeting, whose query names no subject and is left out.
        test_share: one of so many documents of train.jsonl is for testing; 0 if there is a file
            test.jsonl.
    """

    folder: str
    has_query: bool | None = None
    is_whole: bool = False
    test_share: int = 0


OTHER_KINDS = {
    "meetings": Kind("qmsum", is_whole=True),
    "acibench": Kind("acibench", test_share=3),
    "plots": Kind("squality", has_query=False, test_share=3),
    "questions": Kind("squality", has_query=True, test_share=3),
}
# Data sets and kinds of the trees.
DATA_SETS = ("qmsum", "scisummnet", "techspecs", "acibench", "plots", "questions")
# Factor of the weights of a kind; full weights of stories lower the scores of other kinds.
FACTORS = {"plots": 0.3, "questions": 0.3}
KINDS = (*DATA_SETS, "meetings")  # kinds of the linear ranker
DOCUMENTS, KIND_DOCUMENTS = 400, 60  # of each data set and of each kind, drawn
MOST_WEIGHT = 3.0  # of a sentence of a small data set or kind
SEED = 0
ROWS = RowOptions(rows=40_000, seed=SEED)
KIND_ROWS = RowOptions(rows=20_000, seed=SEED)
BOOSTING = BoostingOptions(trees=300, learning_rate=0.06, seed=SEED)


def documents(data: Path, name: str, split: str) -> list[DataRow]:
    """Returns the documents of a split of a data set or kind; several summaries are a tuple."""
    kind = OTHER_KINDS.get(name, Kind(name))
    file = "train" if kind.test_share else split
    rows = list(read_json_lines(str(data / kind.folder / f"{file}.jsonl*")))
    if kind.is_whole:
        rows = [row._replace(query=None) for row in rows if _is_whole(row)]
    if kind.has_query is not None:
        rows = [row for row in rows if (row.query is not None) == kind.has_query]
    rows = _with_all_summaries(rows)
    if kind.test_share:
        numbers = {text: i for i, text in enumerate(dict.fromkeys(row.document for row in rows))}
        is_test = split == "test"
        last = kind.test_share - 1
        rows = [row for row in rows if (numbers[row.document] % kind.test_share == last) == is_test]
    return rows


def _is_whole(row: DataRow) -> bool:
    """Returns True if the query asks for a summary of the whole meeting."""
    words = (row.query or "").lower().strip(" .").split()
    return words[:1] == ["summarize"] and words[-1] == "meeting" and len(words) <= 4


def _with_all_summaries(rows: list[DataRow]) -> list[DataRow]:
    """Returns one row for each document and query, with all of its summaries."""
    groups: dict[tuple[str, str | None], list[DataRow]] = {}
    for row in rows:
        groups.setdefault((row.document, row.query), []).append(row)
    merged = []
    for group in groups.values():
        summaries = tuple(row.only_summary for row in group)
        merged.append(group[0] if len(group) == 1 else group[0]._replace(summary=summaries))
    return merged


def rows(data: Path, name: str) -> Rows:
    """Returns the training sentences of a data set for the trees."""
    drawn = _with_limited_weights(draw_rows(_drawn(data, name, DOCUMENTS), ROWS))
    return drawn._replace(weights=FACTORS.get(name, 1.0) * drawn.weights)


def kind_rows(data: Path, name: str) -> Rows:
    """Returns the training sentences of a kind of text for the linear ranker."""
    return _with_limited_weights(draw_rows(_drawn(data, name, KIND_DOCUMENTS), KIND_ROWS))


def _with_limited_weights(drawn: Rows) -> Rows:
    return drawn._replace(weights=np.minimum(drawn.weights, MOST_WEIGHT))


def _drawn(data: Path, name: str, count: int) -> list[DataRow]:
    candidates = documents(data, name, "train")
    order = np.random.default_rng(SEED).permutation(len(candidates))[:count]
    # Rows of one document are next to each other, so that it is parsed once.
    return sorted((candidates[i] for i in order), key=lambda row: row.document)


def fallback(kinds: Mapping[str, Rows], seen: Sequence[str]) -> Fallback:
    """Returns the linear ranker.

    Args:
        kinds: sentences of each kind of text, by name.
        seen: names of the kinds that the trees were trained on.
    """
    return train_fallback(kinds.values(), [kinds[name] for name in seen])


def main() -> None:
    """Trains the ranker and writes its weights."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help=".npz file to write")
    parser.add_argument("--data_sets", default=",".join(DATA_SETS), help="names, with commas")
    parser.add_argument("--kinds", default=",".join(KINDS), help="names, with commas")
    parser.add_argument("--trees", type=Path, help=".npz file of trees to keep; default: new ones")
    args = parser.parse_args()
    data_sets = args.data_sets.split(",")
    kinds = {name: kind_rows(args.data, name) for name in args.kinds.split(",")}
    if args.trees:
        trees = load_trees(args.trees)
    else:
        trees = train_trees([rows(args.data, name) for name in data_sets], BOOSTING)
    Ranker(trees, fallback(kinds, data_sets)).save(args.out)


if __name__ == "__main__":
    main()
