import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ranking.boosting import BoostingOptions, fit_trees
from longsum_jax.ranking.trees import BoostedTrees, load_trees, same_features, tree_leaves

EVERYTHING = {"feature_share": 1.0, "row_share": 1.0}


def drawn_trees(depth=3, trees=4, features=5, seed=0):
    rng = np.random.default_rng(seed)
    questions = 2**depth - 1
    return BoostedTrees(
        [f"f{i}" for i in range(features)],
        rng.integers(0, features, (trees, questions)).astype(np.int16),
        rng.normal(size=(trees, questions)).astype(np.float32),
        rng.normal(size=(trees, questions + 1)).astype(np.float32),
    )


def walk(trees, row):
    """The sum over trees, question by question."""
    total = 0.0
    for features, thresholds, leaves in zip(*trees[1:], strict=True):
        node = 0
        while node < len(features):
            node = 2 * node + (2 if row[features[node]] > thresholds[node] else 1)
        total += leaves[node - len(features)]
    return total


def test_prediction_walks_from_question_to_question():
    trees = drawn_trees()
    table = np.random.default_rng(1).normal(size=(50, 5)).astype(np.float32)
    table[0] = trees.thresholds[0, 0]  # equal to a threshold: to the left
    expected = [walk(trees, row) for row in table]
    np.testing.assert_allclose(trees.predict(table), expected, rtol=1e-6)
    many = np.tile(table, (400, 1))  # of which trees are walked one by one
    np.testing.assert_allclose(trees.predict(many), np.tile(expected, 400), rtol=1e-6)
    assert trees.predict(table[:0]).shape == (0,)


def contributions_of(trees, table, row):
    """The contributions of features to one row, from sets of rows that reach a node."""
    result = np.zeros(table.shape[1])
    for features, thresholds, leaves in zip(*trees[1:], strict=True):
        one = BoostedTrees(trees.names, features[None], thresholds[None], leaves[None])
        values = one.predict(table)
        together, node = np.ones(len(table), bool), 0
        while node < len(features):
            column = table[:, features[node]]
            is_right = column > thresholds[node]
            below = together & (is_right == is_right[row])
            result[features[node]] += values[below].mean() - values[together].mean()
            together, node = below, 2 * node + (2 if is_right[row] else 1)
    return result


def test_contributions_are_differences_of_means_along_the_path():
    trees = drawn_trees()
    table = np.random.default_rng(1).normal(size=(50, 5)).astype(np.float32)
    table[:, 2] = 0.5  # the same everywhere
    result = trees.contributions(trees.reached(table), [3, 49, 3])
    expected = [contributions_of(trees, table, row) for row in (3, 49, 3)]
    np.testing.assert_allclose(result, expected, atol=1e-12)
    assert not result[:, 2].any()
    scores = trees.predict(table)
    np.testing.assert_allclose(result.sum(1), scores[[3, 49, 3]] - scores.mean(), atol=1e-12)
    assert trees.contributions(trees.reached(table), []).shape == (0, 5)


def test_saved_trees_are_the_same(tmp_path):
    trees = drawn_trees()
    trees.save(tmp_path / "trees.npz")
    result = load_trees(tmp_path / "trees.npz")
    assert result.names == trees.names
    for first, second in zip(trees[1:], result[1:], strict=True):
        assert first.dtype == second.dtype
        assert np.array_equal(first, second)


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=1)
    (tmp_path / "text.npz").write_text("text")
    for name in ("other.npz", "text.npz", "none.npz"):
        with pytest.raises(InputError, match=f"{name}: not the weights of a ranker"):
            load_trees(tmp_path / name)
    with pytest.raises(InputError, match=r"does not have \(b\); train it again"):
        same_features(["a", "b"], ["a"])


def slow_split(table, residuals, options):
    """The question with the largest gain over all features and cuts between values."""
    best, result = 0.0, None
    for feature, column in enumerate(table.T):
        for cut in np.unique(column)[:-1]:
            left = column <= cut
            sums = [residuals[side].sum() for side in (left, ~left)]
            sizes = [side.sum() for side in (left, ~left)]
            if min(sizes) < options.smallest_leaf:
                continue
            gain = sum(s**2 / (k + options.ridge) for s, k in zip(sums, sizes, strict=True))
            gain -= residuals.sum() ** 2 / (len(column) + options.ridge)
            if gain > best + 1e-9:
                best, result = gain, (feature, cut)
    return result


def test_first_tree_is_the_greedy_one():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (80, 3)).astype(np.float32)
    targets = (table[:, 1] > 4) * (table[:, 2] - 3.0) + rng.normal(size=80) * 0.1
    targets -= targets.mean()
    options = BoostingOptions(
        trees=1, depth=2, ridge=1.0, smallest_leaf=3, learning_rate=0.5, **EVERYTHING
    )
    trees = fit_trees(table, targets, np.ones(80), ["a", "b", "c"], options)
    feature, cut = slow_split(table, targets, options)
    assert (trees.features[0, 0], trees.thresholds[0, 0]) == (feature, cut)
    for child, side in ((1, table[:, feature] <= cut), (2, table[:, feature] > cut)):
        below = slow_split(table[side], targets[side], options)
        assert (trees.features[0, child], trees.thresholds[0, child]) == below
    [leaf] = tree_leaves(table, trees.features, trees.thresholds)
    for number in range(4):
        mine = targets[leaf == number]
        expected = 0.5 * mine.sum() / (len(mine) + 1.0)
        assert trees.leaves[0, number] == pytest.approx(expected, rel=1e-6)


def test_boosting_learns_and_repeats():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 6)).astype(np.float32)
    targets = np.sin(table[:, 0]) + (table[:, 1] > 0)
    targets -= targets.mean()
    names = list("abcdef")
    options = BoostingOptions(trees=40, depth=3, ridge=1.0, smallest_leaf=5, learning_rate=0.2)
    trees = fit_trees(table, targets, np.ones(400), names, options)
    rest = targets - trees.predict(table)
    assert (rest**2).mean() < 0.2 * (targets**2).mean()
    again = fit_trees(table, targets, np.ones(400), names, options)
    assert all(np.array_equal(a, b) for a, b in zip(trees[1:], again[1:], strict=True))


def test_rows_count_as_their_weights():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 2)).astype(np.float32)
    targets = table[:, 0] + rng.normal(size=60)
    weights = rng.integers(1, 4, 60)
    options = BoostingOptions(trees=3, depth=2, ridge=1.0, smallest_leaf=6, bins=256, **EVERYTHING)
    weighted = fit_trees(table, targets, weights.astype(float), ["a", "b"], options)
    copies = np.repeat(np.arange(60), weights)
    repeated = fit_trees(table[copies], targets[copies], np.ones(len(copies)), ["a", "b"], options)
    np.testing.assert_allclose(weighted.predict(table), repeated.predict(table), rtol=1e-5)


def test_constant_features_ask_nothing():
    options = BoostingOptions(trees=2, depth=2, smallest_leaf=1, **EVERYTHING)
    table = np.ones((10, 2), np.float32)
    trees = fit_trees(table, np.zeros(10), np.ones(10), ["a", "b"], options)
    assert np.isinf(trees.thresholds).all()
    assert trees.predict(table).tolist() == [0.0] * 10


@pytest.mark.parametrize("change", [{"bins": 1}, {"bins": 300}, {"trees": 0}, {"depth": 0}])
def test_options_out_of_range(change):
    with pytest.raises(InputError, match="must be at least 1, and bins="):
        BoostingOptions(**change)
