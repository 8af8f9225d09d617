"""Gradient boosting of regression trees (Friedman, 2001) for squared error, on histograms.

Features are binned at quantiles, so that the best split of a node follows from
sums over the bins of each feature (as in LightGBM; Ke et al., 2017). Trees are
complete: all nodes of a level are split together. With G and H the sums of
residuals and of weights over the rows of a node, a split gains (twice equation
7 of Chen & Guestrin, 2016)

    G_left^2 / (H_left + ridge) + G_right^2 / (H_right + ridge)
        - G^2 / (H + ridge)

and cumulative sums over the bins of a feature give G_left and H_left of all its
splits at once:

    bin               0    1    2    3
    sum of residuals  g0   g1   g2   g3
    split after bin 1: G_left = g0 + g1, G_right = g2 + g3
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.trees import BoostedTrees, tree_leaves

_SMALLEST_GAIN = 1e-6


@dataclasses.dataclass(frozen=True)
class BoostingOptions:
    """Options of boosting.

    Attributes:
        trees: number of trees.
        depth: splits from the root to a leaf.
        learning_rate: shrinkage of each tree's leaves.
        ridge: L2 regularization of the leaves (lambda of Chen & Guestrin, 2016,
            equation 5).
        smallest_leaf: minimum weight of rows on either side of a split.
        feature_share: fraction of the features that are drawn for each tree.
        row_share: fraction of the rows that are drawn for each tree.
        bins: maximum number of bins of a feature, at most 256.
        seed: random seed of both draws.
    """

    trees: int = 150
    depth: int = 5
    learning_rate: float = 0.1
    ridge: float = 20.0
    smallest_leaf: float = 50.0
    feature_share: float = 0.2
    row_share: float = 0.4
    bins: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.bins <= 256 or min(self.trees, self.depth) < 1:
            raise InputError(
                f"trees={self.trees} and depth={self.depth} must be at least 1, and "
                f"bins={self.bins} between 2 and 256"
            )


class _Split(NamedTuple):
    """The best split of each node of a level, [nodes] each: rows up to ``bin`` go left."""

    feature: np.ndarray
    bin: np.ndarray


def fit_trees(
    table: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    names: list[str],
    options: BoostingOptions = BoostingOptions(),
) -> BoostedTrees:
    """Fits trees whose sum predicts the targets; equal arguments give equal trees.

    Args:
        table: float32 [rows, features].
        targets: float [rows], with mean zero because trees have no constant.
        weights: float [rows], weights of the squared errors.
        names: names of the features.
        options: options of boosting.
    """
    rng = np.random.default_rng(options.seed)
    edges = [_quantiles(column, options.bins) for column in table.T]
    columns = [
        _bins(column, inner)
        for column, inner in zip(table.T, edges, strict=True)
    ]
    binned = np.stack(columns, 1)
    predicted = np.zeros(len(table))
    trees = []
    for _ in range(options.trees):
        rows = np.flatnonzero(rng.random(len(table)) < options.row_share)
        num_drawn = max(1, round(options.feature_share * len(columns)))
        drawn = rng.choice(len(columns), num_drawn, replace=False)
        residuals = (targets - predicted)[rows] * weights[rows]
        features, bins, leaves = _fit_tree(
            binned[rows], residuals, weights[rows], drawn, options
        )
        [leaf] = tree_leaves(binned, features[None], bins[None])
        predicted += leaves[leaf]
        trees.append((features, bins, leaves))
    all_features, all_bins, all_leaves = (
        np.stack(part) for part in zip(*trees, strict=True)
    )
    # A split at the last bin, or a missing one, has no edge: all rows go left.
    edge_table = np.full((len(edges), options.bins), np.inf, np.float32)
    for feature, inner in enumerate(edges):
        edge_table[feature, : len(inner)] = inner
    thresholds = edge_table[
        all_features, np.minimum(all_bins, options.bins - 1)
    ]
    return BoostedTrees(
        names,
        all_features.astype(np.int16),
        thresholds,
        all_leaves.astype(np.float32),
    )


def _quantiles(values: np.ndarray, bins: int) -> np.ndarray:
    """Returns at most ``bins`` - 1 distinct bin edges, float32, all below the largest value."""
    fractions = np.linspace(0, 1, bins + 1)[1:-1]
    edges = np.unique(
        np.quantile(values, fractions, method="lower").astype(np.float32)
    )
    return edges[edges < values.max()]


def _bins(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the bin of each value, the number of edges below it, uint8."""
    return np.searchsorted(edges, values, side="left").astype(np.uint8)


def _fit_tree(
    binned: np.ndarray,
    residuals: np.ndarray,
    weights: np.ndarray,
    features: np.ndarray,
    options: BoostingOptions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the features and bins of a tree's splits, level by level, and its leaves."""
    columns = {
        feature: binned[:, feature].astype(np.int64)
        for feature in features.tolist()
    }
    rows = np.arange(len(binned))
    # node of each row, counted within the level
    node = np.zeros(len(binned), np.int64)
    split_features, split_bins = [], []
    for level in range(options.depth):
        split = _best_split(
            columns, node, 2**level, residuals, weights, options
        )
        split_features.append(split.feature)
        split_bins.append(split.bin)
        goes_right = binned[rows, split.feature[node]] > split.bin[node]
        node = 2 * node + goes_right
    residual_sums = np.bincount(node, residuals, 2**options.depth)
    weight_sums = np.bincount(node, weights, 2**options.depth)
    leaves = (
        options.learning_rate * residual_sums / (weight_sums + options.ridge)
    )
    return np.concatenate(split_features), np.concatenate(split_bins), leaves


def _best_split(
    columns: dict[int, np.ndarray],
    node: np.ndarray,
    num_nodes: int,
    residuals: np.ndarray,
    weights: np.ndarray,
    options: BoostingOptions,
) -> _Split:
    """Returns the split of each node that lowers the squared error the most.

    If no split improves a node, all of its rows go left.
    """
    best_gain = np.full(num_nodes, _SMALLEST_GAIN)
    split = _Split(
        np.full(num_nodes, min(columns)), np.full(num_nodes, options.bins)
    )
    size, shape = num_nodes * options.bins, (num_nodes, options.bins)
    for feature, column in columns.items():
        # flat index in the histogram [num_nodes, bins]
        cell = node * options.bins + column
        # Sums to the left of a split after each bin, and to its right.
        g_left = np.bincount(cell, residuals, size).reshape(shape).cumsum(1)
        h_left = np.bincount(cell, weights, size).reshape(shape).cumsum(1)
        g_all, h_all = g_left[:, -1:], h_left[:, -1:]
        g_right, h_right = g_all - g_left, h_all - h_left
        gain = g_left**2 / (h_left + options.ridge) + g_right**2 / (
            h_right + options.ridge
        )
        gain -= g_all**2 / (h_all + options.ridge)
        gain[np.minimum(h_left, h_right) < options.smallest_leaf] = 0
        bins = gain.argmax(1)
        gains = gain[np.arange(num_nodes), bins]
        is_better = gains > best_gain
        best_gain[is_better] = gains[is_better]
        split.feature[is_better] = feature
        split.bin[is_better] = bins[is_better]
    return split
