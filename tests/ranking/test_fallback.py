import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ranking.boosting import BoostingOptions
from longsum_jax.ranking.fallback import (
    FAR,
    NEAR,
    Fallback,
    fit_linear,
    kind_profiles,
    load_fallback,
)
from longsum_jax.ranking.features import is_relative, sentence_features
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import Ranker, load_ranker
from longsum_jax.ranking.training import RowOptions, draw_rows, train_fallback, train_trees
from longsum_jax.text.documents import DataRow


def standardized(values):
    return (values - values.mean()) / values.std()


def test_linear_ranker_is_a_ridge_regression():
    rng = np.random.default_rng(0)
    table = rng.normal(2, 3, (50, 3)).astype(np.float32)
    targets, weights = rng.normal(size=50), rng.uniform(1, 2, 50)
    asks = rng.random(50) < 0.5
    means, deviations, result = fit_linear(table, targets, weights, asks, 0.1)
    inputs = np.clip((table - table.mean(0)) / table.std(0), -4, 4)
    inputs = np.concatenate([inputs, inputs * asks[:, None]], 1)
    # The penalty as rows of their own.
    penalty = np.sqrt(0.1 * weights.sum()) * np.eye(6)
    rows = np.concatenate([inputs * np.sqrt(weights)[:, None], penalty])
    expected = np.linalg.lstsq(rows, np.append(targets * np.sqrt(weights), np.zeros(6)))[0]
    np.testing.assert_allclose(result.ravel(), expected, rtol=1e-4)
    np.testing.assert_allclose(means, table.mean(0), rtol=1e-5)
    np.testing.assert_allclose(deviations, table.std(0), rtol=1e-5)


def test_deviations_of_kinds_are_not_below_their_mean():
    tables = [np.array([[0.0], [4.0]]), np.array([[9.0], [9.0]])]
    means, deviations = kind_profiles(tables)
    np.testing.assert_allclose(means, [[2], [9]])
    np.testing.assert_allclose(deviations, [[2.02], [1.02]])


@pytest.mark.parametrize(
    ("distance", "share"), [(0, 0), (NEAR, 0), ((NEAR + FAR) / 2, 0.5), (FAR + 9, 1)]
)
def test_scores_are_mixed_by_the_distance_of_the_document(text, distance, share):
    features = sentence_features(parse_document(text))
    words = features["document_words"][0]
    kinds = np.array([[words + 99.0], [words + distance]])
    weights = np.array([[1.0], [5.0]])
    ones = np.ones(1)
    fallback = Fallback(
        ["words"], 0 * ones, ones, weights, ["document_words"], kinds, 1 + 0 * kinds
    )
    assert fallback.distance(features) == pytest.approx(distance, abs=1e-4)
    scores = features["position"] ** 2
    linear = np.minimum(features["words"], 4)
    np.testing.assert_allclose(fallback.predict(features), linear)
    expected = (1 - share) * standardized(scores) + share * standardized(linear)
    if share == 0:
        expected = scores
    np.testing.assert_allclose(fallback.mix(features, scores), expected, atol=1e-4)
    asked = sentence_features(parse_document(text), "oak")
    np.testing.assert_allclose(fallback.predict(asked), 6 * linear)


def test_fallback_is_saved_with_the_trees(text, tmp_path):
    rows = [
        draw_rows([DataRow("a", body, "The old bridge is in danger.", None)], RowOptions(rows=20))
        for body in (text, text[: len(text) // 2])
    ]
    options = BoostingOptions(trees=2, depth=1, smallest_leaf=1)
    ranker = Ranker(train_trees(rows, options), train_fallback(rows, rows))
    assert all(map(is_relative, ranker.fallback.names))
    assert ranker.fallback.kinds.shape == (2, len(ranker.fallback.document_names))
    ranker.save(tmp_path / "a.npz")
    again = load_ranker(tmp_path / "a.npz")
    document = parse_document("A text that is unlike the others. It has two sentences.")
    assert again.scores(document).tolist() == ranker.scores(document).tolist()
    assert again.fingerprint == ranker.fingerprint != Ranker(ranker.trees).fingerprint
    ranker.trees.save(tmp_path / "trees.npz")
    assert load_ranker(tmp_path / "trees.npz").fallback is None
    with pytest.raises(InputError, match="not the weights of a ranker"):
        load_fallback(tmp_path / "none.npz")
    with pytest.raises(InputError, match=r"features that this version does not have \(size\)"):
        Ranker(ranker.trees, ranker.fallback._replace(names=["size"]))
