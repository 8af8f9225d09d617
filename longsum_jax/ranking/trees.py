"""Boosted regression trees: a sum of complete trees, read level by level with NumPy."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError


class BoostedTrees(NamedTuple):
    """Trees of depth d, each with 2^d - 1 splits and 2^d leaves, numbered as in a heap.

    The children of split i are nodes 2i + 1 (left: the feature is at most the threshold) and 2i + 2
    (right); the leaves are numbered after the splits. Depth 2:

                 split 0
             split 1    split 2
           leaf 3  4   leaf 5  6

    Attributes:
        names: of the features.
        features: int16 [trees, 2^d - 1], the feature of each split.
        thresholds: float32 [trees, 2^d - 1]; infinite where all rows go to the left.
        leaves: float32 [trees, 2^d], the values that a tree adds.
    """

    names: list[str]
    features: np.ndarray
    thresholds: np.ndarray
    leaves: np.ndarray

    def predict(self, table: np.ndarray) -> np.ndarray:
        """Returns the sum over all trees, float64 [rows].

        Args:
            table: float32 [rows, features], in the order of ``names``.
        """
        total = np.zeros(len(table))
        for features, thresholds, leaves in zip(
            self.features, self.thresholds, self.leaves, strict=True
        ):
            total += leaves[tree_leaves(table, features, thresholds)]
        return total

    def save(self, path: str | Path) -> None:
        """Writes an .npz file."""
        arrays = self._asdict() | {"names": np.array(self.names)}
        np.savez_compressed(path, **arrays)


def tree_leaves(table: np.ndarray, features: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Returns the leaf of one tree that each row reaches, int64 [rows].

    Args:
        table: [rows, features].
        features, thresholds: [2^d - 1], the splits of a tree.
    """
    rows = np.arange(len(table))
    node = np.zeros(len(table), np.int64)
    while len(node) and node[0] < len(features):
        node = 2 * node + 1 + (table[rows, features[node]] > thresholds[node])
    return node - len(features)


def load_trees(path: str | Path) -> BoostedTrees:
    """Reads what ``BoostedTrees.save`` wrote.

    Raises:
        InputError: a file that is not there or holds something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in BoostedTrees._fields}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: no weights of a ranker ({error}); make them with configs/builtin_extractor.py"
        ) from None
    return BoostedTrees(**arrays | {"names": arrays["names"].tolist()})


def same_features(names: Sequence[str], known: Sequence[str]) -> None:
    """Raises InputError unless all names are known."""
    if missing := sorted(set(names) - set(known)):
        raise InputError(
            f"the ranker asks for features that this version does not have ({', '.join(missing)}); "
            "train it again with configs/builtin_extractor.py"
        )
