"""A linear ranker for documents that differ from the training data of the trees.

Trees use the size of features, which differs between kinds of text, and fail on
documents unlike the training data. The linear ranker reads features that are
relative to their document. Both are mixed by the distance of a document to the
nearest kind of the training data:

    distance   0 ........ NEAR ........ FAR ........
    scores     trees      mixed         linear
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.features import Features, feature_table

# Distances in standard deviations; most documents of the training kinds are
# nearer.
NEAR, FAR = 1.1, 1.6
_MOST_DEVIATIONS = 4.0  # bound to which features are clipped
_PREFIX = "fallback_"  # prefix of the arrays in a file


class Fallback(NamedTuple):
    """A linear ranker, and the kinds of text for which it is not needed.

    Attributes:
        names: names of the f features of the linear ranker.
        means, deviations: float32 [f], means and standard deviations of the
            features.
        weights: float32 [2, f], weights of the features, and their change if
            there is a query.
        document_names: names of the d features of whole documents.
        kinds: float32 [kinds, d], mean features of the documents of each kind.
        spreads: float32 [kinds, d], their standard deviations.
    """

    names: list[str]
    means: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray
    document_names: list[str]
    kinds: np.ndarray
    spreads: np.ndarray

    def distance(self, features: Mapping[str, np.ndarray]) -> float:
        """Returns the distance of a document to the nearest kind.

        The distance is the root mean square difference of its features in
        standard deviations.

        Args:
            features: features of the document's sentences.
        """
        document = feature_table(features, self.document_names)[0]
        differences = (document - self.kinds) / self.spreads
        return float(np.sqrt((differences**2).mean(1)).min())

    def mix(self, features: Features, scores: np.ndarray) -> np.ndarray:
        """Returns the mixed scores of the n sentences of a document, float64 [n].

        Args:
            features: features of the sentences.
            scores: float [n], scores by the trees.
        """
        share = self.share(features)
        if share == 0:
            return scores
        linear = self.predict(features)
        return (1 - share) * _standardized(scores) + share * _standardized(
            linear
        )

    def mix_contributions(
        self,
        features: Features,
        scores: np.ndarray,
        contributions: np.ndarray,
        rows: Sequence[int],
    ) -> np.ndarray:
        """Returns the contributions of features to k mixed scores, float64 [k, d + f].

        The first d columns are the contributions of the trees, scaled like
        their scores; the others are the contributions of the features of the
        linear ranker.

        Args:
            features: features of all n sentences.
            scores: float [n], scores by the trees.
            contributions: float [k, d], contributions of features to the scores
                of the trees.
            rows: indices of the k sentences.
        """
        share = self.share(features)
        terms = self._terms(features)
        terms = terms - terms.mean(0)
        if share == 0:
            return np.concatenate([contributions, 0 * terms[rows]], 1)
        by_trees = (1 - share) * _inverse_deviation(scores) * contributions
        by_linear = (
            share * _inverse_deviation(self.predict(features)) * terms[rows]
        )
        return np.concatenate([by_trees, by_linear], 1)

    def share(self, features: Features) -> float:
        """Returns the share of the linear ranker in the scores of a document, from 0 to 1."""
        return float(
            np.clip((self.distance(features) - NEAR) / (FAR - NEAR), 0, 1)
        )

    def predict(self, features: Features) -> np.ndarray:
        """Returns scores by the linear ranker, float64 [n]."""
        return self._terms(features).sum(1)

    def _terms(self, features: Features) -> np.ndarray:
        """Returns the summands of the scores of n sentences, float64 [n, f]."""
        table = _clipped(
            feature_table(features, self.names), self.means, self.deviations
        )
        weights = self.weights[0] + self.weights[1] * (
            features["query_known"][0] > 0
        )
        return table * weights.astype(np.float64)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays to save, by name."""
        return {
            _PREFIX + name: np.array(value)
            for name, value in self._asdict().items()
        }


def fit_linear(
    table: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    asks: np.ndarray,
    ridge: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns means, deviations and weights of a ridge regression, see ``Fallback``.

    Args:
        table: float32 [rows, features].
        targets: float [rows], with mean zero.
        weights: float [rows], weights of the squared errors.
        asks: bool [rows], True for sentences of documents with a query.
        ridge: L2 regularization as a share of the sum of all weights.
    """
    means = table.mean(0, np.float64).astype(np.float32)
    deviations = (table.std(0, dtype=np.float64) + 1e-9).astype(np.float32)
    inputs = _clipped(table, means, deviations)
    inputs = np.concatenate([inputs, inputs * asks[:, None]], 1)
    products = inputs.T @ (inputs * weights[:, None])
    products[np.diag_indices(len(products))] += ridge * weights.sum()
    solution = np.linalg.solve(products, inputs.T @ (weights * targets))
    return means, deviations, solution.reshape(2, -1).astype(np.float32)


def load_fallback(path: str | Path) -> Fallback | None:
    """Loads a fallback; None if the file has only trees.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if _PREFIX + "names" not in file:
                return None
            arrays = {name: file[_PREFIX + name] for name in Fallback._fields}
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path}: not the weights of a ranker ({error}); make them with "
            "configs/builtin_extractor.py"
        ) from None
    names = {
        name: arrays[name].tolist() for name in ("names", "document_names")
    }
    return Fallback(**arrays | names)


def kind_profiles(
    tables: Sequence[np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns means and deviations of kinds, see ``Fallback``.

    A deviation is at least the mean deviation of all kinds, because the few
    documents of a kind may agree in a feature by chance.

    Args:
        tables: float32 [rows, d] for each kind.
    """
    means = np.stack([table.mean(0, np.float64) for table in tables])
    deviations = np.stack([table.std(0, dtype=np.float64) for table in tables])
    deviations = np.maximum(deviations, deviations.mean(0)) + 0.02
    return means.astype(np.float32), deviations.astype(np.float32)


def _clipped(
    table: np.ndarray, means: np.ndarray, deviations: np.ndarray
) -> np.ndarray:
    standardized = (table.astype(np.float64) - means) / deviations
    return np.clip(standardized, -_MOST_DEVIATIONS, _MOST_DEVIATIONS)


def _standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) * _inverse_deviation(values)


def _inverse_deviation(values: np.ndarray) -> float:
    """Returns 1 / the standard deviation; 0 if the values are equal."""
    deviation = values.std()
    if deviation > 1e-9:
        return float(1 / deviation)
    return 0.0
