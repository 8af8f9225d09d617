"""Boosted regression trees: a sum of complete trees, evaluated level by level with NumPy."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError

_AT_ONCE = 16384  # leaves that are computed at once


class BoostedTrees(NamedTuple):
    """Trees of depth d, each with 2^d - 1 splits and 2^d leaves, numbered as in a heap.

    The children of split i are nodes 2i + 1 (left: the feature is at most the
    threshold) and 2i + 2 (right); the leaves are numbered after the splits.
    Depth 2:

                 split 0
             split 1    split 2
           leaf 3  4   leaf 5  6

    Attributes:
        names: names of the features.
        features: int16 [trees, 2^d - 1], feature of each split.
        thresholds: float32 [trees, 2^d - 1]; infinite if all rows go left.
        leaves: float32 [trees, 2^d], values of the leaves.
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
        return self.sums(self.reached(table))

    def reached(self, table: np.ndarray) -> np.ndarray:
        """Returns the leaf of every tree that each row reaches, int16 [trees, rows].

        Args:
            table: float32 [rows, features], in the order of ``names``.
        """
        together = max(1, _AT_ONCE // max(1, len(table)))
        result = np.empty((len(self.features), len(table)), np.int16)
        for start in range(0, len(self.features), together):
            trees = slice(start, start + together)
            result[trees] = tree_leaves(
                table, self.features[trees], self.thresholds[trees]
            )
        return result

    def sums(self, reached: np.ndarray) -> np.ndarray:
        """Returns the sum of the leaves that each row reaches, float64 [rows].

        Args:
            reached: int16 [trees, rows], leaves of the rows.
        """
        total = np.zeros(reached.shape[1])
        for leaves, indices in zip(self.leaves, reached, strict=True):
            total += leaves[indices]
        return total

    def contributions(
        self, reached: np.ndarray, rows: Sequence[int]
    ) -> np.ndarray:
        """Returns the contribution of each feature to the scores of k rows, float64 [k, features].

        The value of a node is the mean of the leaves that all rows reach below
        it, and a split adds the value of the child taken by a row minus its own
        (Saabas, "Interpreting random forests", 2014, with means over the
        training data). So the contributions to a row sum to its score minus the
        mean score, and features that are equal in all rows add nothing.

        Args:
            reached: int16 [trees, rows], leaves of all rows.
            rows: indices of the k rows.
        """
        row_indices = np.asarray(rows, np.int64)
        result = np.zeros((len(row_indices), len(self.names)))
        for features, leaves, indices in zip(
            self.features, self.leaves, reached, strict=True
        ):
            values = _node_values(
                leaves, np.bincount(indices, minlength=len(leaves))
            )
            node = indices[row_indices].astype(np.int64) + len(features)
            while node.any():  # all leaves have the same depth
                parent = (node - 1) // 2
                result[np.arange(len(row_indices)), features[parent]] += (
                    values[node] - values[parent]
                )
                node = parent
        return result

    def save(
        self, path: str | Path, others: Mapping[str, np.ndarray] | None = None
    ) -> None:
        """Writes an .npz file.

        Args:
            path: file to write.
            others: arrays to save with the trees, by name.
        """
        arrays = (
            self._asdict()
            | {"names": np.array(self.names)}
            | dict(others or {})
        )
        np.savez_compressed(path, **arrays)


def _node_values(leaves: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the mean of the leaves below each node, weighted by their counts, as a heap.

    Args:
        leaves: [2^d], values of the leaves.
        counts: [2^d], number of rows that reach each leaf; nodes without rows
            get 0.
    """
    leaves = leaves.astype(np.float64)
    sums, numbers = [leaves * counts], [counts]
    while len(sums[0]) > 1:
        sums.insert(0, sums[0].reshape(-1, 2).sum(1))
        numbers.insert(0, numbers[0].reshape(-1, 2).sum(1))
    means = [
        total / np.maximum(count, 1)
        for total, count in zip(sums, numbers, strict=True)
    ]
    return np.concatenate([*means[:-1], leaves])


def tree_leaves(
    table: np.ndarray, features: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """Returns the leaf of every tree that each row reaches, int64 [trees, rows].

    Args:
        table: [rows, features], features of the rows.
        features, thresholds: [trees, 2^d - 1], the splits.
    """
    num_trees, num_splits = features.shape
    # Flat indices are several times as fast as pairs of indices.
    first_split = num_splits * np.arange(num_trees)[:, None]
    first_value = table.shape[1] * np.arange(len(table))
    node = np.zeros((num_trees, len(table)), np.int64)
    for _ in range(num_splits.bit_length()):
        split = first_split + node
        values = table.take(first_value + features.take(split))
        node = 2 * node + 1 + (values > thresholds.take(split))
    return node - num_splits


def load_trees(path: str | Path) -> BoostedTrees:
    """Loads trees written by ``BoostedTrees.save``.

    Raises:
        InputError: the file is missing, or contains something else.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in BoostedTrees._fields}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: not the weights of a ranker ({error}); make them with "
            "configs/builtin_extractor.py"
        ) from None
    return BoostedTrees(**arrays | {"names": arrays["names"].tolist()})


def same_features(names: Sequence[str], expected: Sequence[str]) -> None:
    """Raises InputError if some names are unknown."""
    if missing := sorted(set(names) - set(expected)):
        raise InputError(
            f"the ranker asks for features that this version does not have ({', '.join(missing)}); "
            "train it again with configs/builtin_extractor.py"
        )
