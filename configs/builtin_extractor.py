"""The ranker behind `longsum summarize` without a model: how its weights were made.

    python configs/builtin_extractor.py --data=DATA --out=builtin_extractor.npz

DATA has a folder for each data set with train.jsonl, plain, .gz or .xz: rows of document, summary
and, of qmsum, query. Data sets are those whose licences let anybody use what is made from them:
ScisummNet (CC BY 4.0), documents of technical standards and proposals under CC0, MIT or Apache-2.0,
and QMSum (MIT). `--data_sets=NAME,NAME` trains on others. It takes minutes on one core.

Every sentence of a document is an example. Its target is the density of ROUGE-1 and ROUGE-2 hits of
the reference in it (`longsum_jax.ranking.gains`), a smooth relative of what the greedy search
takes; boosted trees learn it from features of the sentence and its document
(`longsum_jax.ranking.features`). Half of the documents without a query appear a second time with
one, made of words of their reference. The same seed gives the same weights.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from longsum_jax.ranking.boosting import BoostingOptions
from longsum_jax.ranking.training import RowOptions, Rows, draw_rows, train_trees
from longsum_jax.text.documents import Document, read_json_lines

DATA_SETS = ("qmsum", "scisummnet", "techspecs")
DOCUMENTS = 400  # of each data set, drawn
SEED = 0
ROWS = RowOptions(rows=40_000, seed=SEED)
BOOSTING = BoostingOptions(seed=SEED)


def documents(data: Path, name: str, split: str) -> list[Document]:
    """Returns the documents of a split of a data set."""
    return list(read_json_lines(str(data / name / f"{split}.jsonl*")))


def rows(data: Path, name: str) -> Rows:
    """Returns the sentences of a data set to learn from."""
    found = documents(data, name, "train")
    order = np.random.default_rng(SEED).permutation(len(found))[:DOCUMENTS]
    return draw_rows([found[i] for i in order], ROWS)


def main() -> None:
    """Trains the ranker and writes its weights."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True, help=".npz file to write")
    parser.add_argument("--data_sets", default=",".join(DATA_SETS), help="names, with commas")
    args = parser.parse_args()
    sets = []
    for name in args.data_sets.split(","):
        sets.append(rows(args.data, name))
        print(f"{name}: {len(sets[-1].table)} sentences", file=sys.stderr)
    train_trees(sets, BOOSTING).save(args.out)


if __name__ == "__main__":
    main()
