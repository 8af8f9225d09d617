import itertools

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.classification import binary_scores, classification_scores, majority


def one_hot(classes, count):
    return np.eye(count, dtype=bool)[classes]


def f1(pairs):
    """F1 of (predicted, wanted) truth values by precision and recall, the slow way."""
    hits = sum(p and w for p, w in pairs)
    predicted, expected = sum(p for p, _ in pairs), sum(w for _, w in pairs)
    if hits == 0:
        return 0.0
    precision, recall = hits / predicted, hits / expected
    return 2 * precision * recall / (precision + recall)


def slow_scores(predicted, labels, multi_label=False):
    columns = [list(zip(p, w, strict=True)) for p, w in zip(predicted.T, labels.T, strict=True)]
    if multi_label:
        rows = list(zip(predicted, labels, strict=True))
        if not all(any(expected) for _, expected in rows):
            columns.append([(not any(result), not any(expected)) for result, expected in rows])
        occurring = columns
    else:
        occurring = [column for column in columns if any(p or w for p, w in column)]
    return {
        "accuracy": 100
        * sum(tuple(p) == tuple(w) for p, w in zip(predicted, labels, strict=True))
        / len(labels),
        "micro_f1": 100 * f1(list(itertools.chain(*columns))),
        "macro_f1": 100 * sum(map(f1, occurring)) / max(len(occurring), 1),
    }


def test_by_hand_with_one_label_each():
    # Class 0: 2 right of 3 predicted, 2 wanted: F1 4/5. Class 1: 1 right, 1 predicted, 2 wanted:
    # 2/3. Class 2: 1.
    scores = classification_scores(one_hot([0, 0, 0, 1, 2], 3), one_hot([0, 0, 1, 1, 2], 3))
    assert scores == pytest.approx(
        {"accuracy": 80, "micro_f1": 80, "macro_f1": 100 * (4 / 5 + 2 / 3 + 1) / 3}
    )


def test_by_hand_with_several_labels():
    predicted = np.array([[1, 1, 0], [0, 0, 0], [0, 1, 1]])
    labels = np.array([[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    # 3 hits and that of "none", 5 predicted, 4 wanted; F1 of the classes: 1, 2/3, 1, 1.
    scores = classification_scores(predicted, labels, multi_label=True)
    expected = {"accuracy": 200 / 3, "micro_f1": 800 / 9, "macro_f1": 1100 / 12}
    assert scores == pytest.approx(expected)
    # Where every document has a label, "none" is no class, whatever is predicted.
    scores = classification_scores(predicted[[0, 1, 2]], labels[[0, 0, 2]], multi_label=True)
    assert scores == pytest.approx(
        {"accuracy": 100 / 3, "micro_f1": 600 / 8, "macro_f1": 100 * (2 / 3 + 2 / 3 + 1) / 3}
    )


@pytest.mark.parametrize(("classes", "macro"), [(1, (18 / 19) / 2), (10, (18 / 19) / 11)])
def test_documents_without_a_label_have_a_class_as_in_lexglue(classes, macro):
    """One of ten documents has a label and nothing is predicted: nine are right in having none."""
    nothing = np.zeros((10, classes), bool)
    labels = nothing.copy()
    labels[3, 0] = True
    scores = classification_scores(nothing, labels, multi_label=True)
    assert scores == pytest.approx({"accuracy": 90, "micro_f1": 90, "macro_f1": 100 * macro})


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_as_precision_and_recall_say(seed, multi_label):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 8, 2)
    share = rng.random()
    predicted, labels = rng.random((2, *shape)) < share
    scores = classification_scores(predicted, labels, multi_label=multi_label)
    assert scores == pytest.approx(slow_scores(predicted, labels, multi_label))


def test_classes_that_never_occur_do_not_count():
    labels = one_hot([0, 1], 5)
    assert classification_scores(labels, labels) == {
        "accuracy": 100,
        "micro_f1": 100,
        "macro_f1": 100,
    }
    nothing = np.zeros((3, 2), bool)
    assert classification_scores(nothing, nothing) == {
        "accuracy": 100,
        "micro_f1": 0,
        "macro_f1": 0,
    }


def test_majority():
    labels = one_hot([2, 0, 2, 1], 3)
    np.testing.assert_array_equal(majority(labels, multi_label=False), one_hot([2] * 4, 3))
    several = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(majority(several, multi_label=True), [[True, False, False]] * 3)


@pytest.mark.parametrize(
    ("predicted", "labels"), [((0, 2), (0, 2)), ((3, 2), (2, 2)), ((3,), (3,))]
)
def test_arrays_that_make_no_scores(predicted, labels):
    with pytest.raises(InputError, match="give two arrays"):
        classification_scores(np.zeros(predicted), np.zeros(labels))


def test_binary_scores():
    predicted, labels = np.array([1, 1, 0, 0, 1]), np.array([1, 0, 1, 0, 0])
    assert binary_scores(predicted, labels) == pytest.approx(
        {"f1": 40.0, "precision": 100 / 3, "recall": 50.0}
    )
    assert binary_scores(predicted, predicted) == {"f1": 100.0, "precision": 100.0, "recall": 100.0}
    assert binary_scores(np.zeros(3), np.zeros(3)) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
