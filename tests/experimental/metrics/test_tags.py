import pytest

from longsum_jax.experimental.metrics.tags import entities, tag_scores


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ("B-PER I-PER O B-LOC", {("PER", 0, 2), ("LOC", 3, 4)}),
        ("B-PER B-PER I-PER", {("PER", 0, 1), ("PER", 1, 3)}),
        ("I-PER I-LOC I-LOC", {("PER", 0, 1), ("LOC", 1, 3)}),  # each begins where none goes before
        ("O O", set()),
        ("NOUN VERB VERB O", {("NOUN", 0, 1), ("VERB", 1, 2), ("VERB", 2, 3)}),
        ("B-X-Y I-X-Y", {("X-Y", 0, 2)}),
    ],
)
def test_entities(labels, found):
    assert entities(labels.split()) == found


def test_scores():
    """Two of three entities found, one of them with its right end; a word was not read."""
    labels = [["B-PER", "I-PER", "O"], ["B-LOC", "O", "B-PER"]]
    predicted = [["B-PER", "I-PER", "O"], ["B-LOC", "I-LOC", ""]]
    expected = {"accuracy": 100 * 4 / 6, "f1": 100 * 2 / 5, "precision": 50, "recall": 100 / 3}
    assert tag_scores(predicted, labels) == pytest.approx(expected)
    assert tag_scores([["O"]], [["O"]]) == {"accuracy": 100, "f1": 0, "precision": 0, "recall": 0}
