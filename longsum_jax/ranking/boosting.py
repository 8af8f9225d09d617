"""Gradient boosting of regression trees (Friedman, 2001) for squared error, on histograms.

Features are cut at quantiles, so that the best question of a node follows from sums over the bins
of each feature (as in LightGBM; Ke et al., 2017). Trees are complete: all nodes of a level are
split together.
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
        depth: questions from the root to a leaf.
        learning_rate: factor of what a tree adds.
        ridge: weight of zero in the mean of a leaf (Chen & Guestrin, 2016, equation 5).
        smallest_leaf: least weight of rows on both sides of a question.
        feature_share: share of the features that a tree may ask about, drawn for each.
        row_share: share of the rows that a tree learns from, drawn for each.
        bins: of a feature, at most 256.
        seed: of what is drawn.
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
    """The best questions of the nodes of a level, [nodes] each."""

    feature: np.ndarray
    bin: np.ndarray


def fit_trees(
    table: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    names: list[str],
    options: BoostingOptions = BoostingOptions(),
) -> BoostedTrees:
    """Returns trees whose sum predicts the targets; equal arguments give equal trees.

    Args:
        table: float32 [rows, features].
        targets: float [rows], of mean zero: trees have no constant.
        weights: float [rows], of the squared errors.
        names: of the features.
        options: of boosting.
    """
    rng = np.random.default_rng(options.seed)
    cuts = [_quantiles(column, options.bins) for column in table.T]
    columns = [_bins(column, cut) for column, cut in zip(table.T, cuts, strict=True)]
    binned = np.stack(columns, 1)
    predicted = np.zeros(len(table))
    trees = []
    for _ in range(options.trees):
        rows = np.flatnonzero(rng.random(len(table)) < options.row_share)
        drawn = max(1, round(options.feature_share * len(columns)))
        features = rng.choice(len(columns), drawn, replace=False)
        residuals = (targets - predicted)[rows] * weights[rows]
        tree = _fit_tree(binned[rows], residuals, weights[rows], features, options)
        predicted += tree[2][tree_leaves(binned, *tree[:2])]
        trees.append(tree)
    questions, bins, leaves = (np.stack(part) for part in zip(*trees, strict=True))
    # The bin after the last one has no cut: all rows go to the left.
    edges = np.full((len(cuts), options.bins), np.inf, np.float32)
    for number, cut in enumerate(cuts):
        edges[number, : len(cut)] = cut
    thresholds = edges[questions, np.minimum(bins, options.bins - 1)]
    return BoostedTrees(names, questions.astype(np.int16), thresholds, leaves.astype(np.float32))


def _quantiles(values: np.ndarray, bins: int) -> np.ndarray:
    """Returns at most ``bins`` - 1 distinct cuts, float32, the largest value not among them."""
    shares = np.linspace(0, 1, bins + 1)[1:-1]
    cuts = np.unique(np.quantile(values, shares, method="lower").astype(np.float32))
    return cuts[cuts < values.max()]


def _bins(values: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Returns the number of cuts below each value, uint8."""
    return np.searchsorted(cuts, values, side="left").astype(np.uint8)


def _fit_tree(
    binned: np.ndarray,
    residuals: np.ndarray,
    weights: np.ndarray,
    features: np.ndarray,
    options: BoostingOptions,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the features and bins of a tree's questions, and its leaves."""
    columns = {feature: binned[:, feature].astype(np.int64) for feature in features.tolist()}
    rows = np.arange(len(binned))
    place = np.zeros(len(binned), np.int64)  # in its level
    asked, bins = [], []
    for level in range(options.depth):
        split = _best_split(columns, place, 2**level, residuals, weights, options)
        asked.append(split.feature)
        bins.append(split.bin)
        place = 2 * place + (binned[rows, split.feature[place]] > split.bin[place])
    sums = np.bincount(place, residuals, 2**options.depth)
    totals = np.bincount(place, weights, 2**options.depth)
    leaves = options.learning_rate * sums / (totals + options.ridge)
    return np.concatenate(asked), np.concatenate(bins), leaves


def _best_split(
    columns: dict[int, np.ndarray],
    place: np.ndarray,
    nodes: int,
    residuals: np.ndarray,
    weights: np.ndarray,
    options: BoostingOptions,
) -> _Split:
    """Returns the questions that lower the squared error the most.

    A node that no question helps sends all rows to the left.
    """
    best = np.full(nodes, _SMALLEST_GAIN)
    split = _Split(np.full(nodes, min(columns)), np.full(nodes, options.bins))
    shape = (nodes, options.bins)
    for feature, column in columns.items():
        key = place * options.bins + column
        left = np.bincount(key, residuals, nodes * options.bins).reshape(shape).cumsum(1)
        mass = np.bincount(key, weights, nodes * options.bins).reshape(shape).cumsum(1)
        right, rest = left[:, -1:] - left, mass[:, -1:] - mass
        gain = left**2 / (mass + options.ridge) + right**2 / (rest + options.ridge)
        gain -= left[:, -1:] ** 2 / (mass[:, -1:] + options.ridge)
        gain[np.minimum(mass, rest) < options.smallest_leaf] = 0
        cut = gain.argmax(1)
        value = gain[np.arange(nodes), cut]
        better = value > best
        best[better] = value[better]
        split.feature[better] = feature
        split.bin[better] = cut[better]
    return split
