"""Accuracy and F1 of single-label and multi-label classification."""

import numpy as np

from longsum_jax.errors import InputError


def classification_scores(
    predicted: np.ndarray, labels: np.ndarray, *, multi_label: bool = False
) -> dict[str, float]:
    """Returns accuracy, micro and macro F1, from 0 to 100.

    Accuracy is the share of documents with exactly the correct labels. Micro F1
    is 2 TP / (2 TP + FP + FN) with counts summed over all classes, which equals
    the accuracy for single labels; macro F1 is the mean of the per-class F1.
    (Manning, Raghavan & Schütze, 2008, sections 8.3 and 13.6.)

    With single labels, the mean is over the classes that occur among labels or
    predictions. With multiple labels it is over all classes, as in LexGLUE
    (Chalkidis et al. 2022, section 4): a class that never occurs counts as 0,
    and if documents may be unlabeled, "none" counts as a class.

    Args:
        predicted, labels: bool [documents, classes].
        multi_label: True if a document may have several labels or none.

    Returns:
        Keys accuracy, micro_f1, macro_f1.

    Raises:
        InputError: no documents, or arrays of different shapes.
    """
    predicted = np.asarray(predicted, bool)
    labels = np.asarray(labels, bool)
    if predicted.shape != labels.shape or labels.ndim != 2 or not len(labels):
        raise InputError(
            f"predictions of shape {predicted.shape} and labels of shape {labels.shape}; give two "
            "arrays [documents, classes] of at least one document"
        )
    accuracy = (predicted == labels).all(1).mean()
    if multi_label and not labels.any(1).all():
        predicted, labels = _with_none(predicted), _with_none(labels)
    hits = (predicted & labels).sum(0)
    sizes = predicted.sum(0) + labels.sum(0)  # 2 TP + FP + FN of each class
    f1_of_classes = 2 * hits / np.maximum(sizes, 1)
    if not multi_label:
        f1_of_classes = f1_of_classes[sizes > 0]
    scores = {
        "accuracy": accuracy,
        "micro_f1": 2 * hits.sum() / max(sizes.sum(), 1),
        "macro_f1": f1_of_classes.mean() if f1_of_classes.size else 0.0,
    }
    return {name: 100 * float(value) for name, value in scores.items()}


def _with_none(classes: np.ndarray) -> np.ndarray:
    """Returns bool [documents, classes + 1]; the last class means that there is no other."""
    return np.concatenate([classes, ~classes.any(1, keepdims=True)], axis=1)


def binary_scores(
    predicted: np.ndarray, labels: np.ndarray
) -> dict[str, float]:
    """Returns f1, precision and recall of the positive class, from 0 to 100.

    A score is 0 if its denominator is 0.

    Args:
        predicted, labels: bool [n].
    """
    predicted = np.asarray(predicted, bool)
    labels = np.asarray(labels, bool)
    hits = (predicted & labels).sum()
    sizes = {
        "f1": (predicted.sum() + labels.sum()) / 2,
        "precision": predicted.sum(),
        "recall": labels.sum(),
    }
    # Without labels there are no hits, and the scores are 0.
    return {
        name: float(100 * hits / max(size, 1)) for name, size in sizes.items()
    }


def majority(labels: np.ndarray, *, multi_label: bool) -> np.ndarray:
    """Returns the best constant prediction, bool [documents, classes]: a baseline.

    Args:
        labels: bool [documents, classes].
        multi_label: predict every class that most documents have, not the
            single most frequent one.
    """
    labels = np.asarray(labels, bool)
    shares = labels.mean(0)
    frequent = np.arange(labels.shape[1]) == shares.argmax()
    predicted = shares > 0.5 if multi_label else frequent
    return np.broadcast_to(predicted, labels.shape)
