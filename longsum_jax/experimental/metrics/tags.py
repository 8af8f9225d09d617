"""Accuracy and F1 of word labels, as in CoNLL-2003 (Tjong Kim Sang and De Meulder)."""

from collections.abc import Sequence

OUTSIDE = "O"


def entities(labels: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns the entities of a text: type, first word, and the word after the last one.

    "B-PER" begins an entity of type PER; "I-PER" continues it, or begins one if
    there is none before. "O" and "" are outside of entities; any other label is
    a single-word entity.
    """
    spans: set[tuple[str, int, int]] = set()
    kind, start = "", 0
    for i, label in enumerate([*labels, OUTSIDE]):
        mark, dash, name = label.partition("-")
        if not (dash and mark in ("B", "I")):
            mark, name = "B", "" if label == OUTSIDE else label
        if mark == "I" and name == kind:
            continue
        if kind:
            spans.add((kind, start, i))
        kind, start = name, i
    return spans


def tag_scores(
    predicted: Sequence[Sequence[str]], labels: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns accuracy over words, and f1, precision and recall over entities, 0 to 100.

    Args:
        predicted, labels: labels of the words of every text, with at least one
            word in total; "" for words that were not read.
    """
    pairs = [
        pair
        for texts in zip(predicted, labels, strict=True)
        for pair in zip(*texts, strict=True)
    ]
    predicted_spans = {
        (i, *entity)
        for i, text in enumerate(predicted)
        for entity in entities(text)
    }
    expected_spans = {
        (i, *entity)
        for i, text in enumerate(labels)
        for entity in entities(text)
    }
    hits, total = (
        len(predicted_spans & expected_spans),
        len(predicted_spans) + len(expected_spans),
    )
    num_right = sum(a == b for a, b in pairs)
    # Without spans there are no hits, and the scores are 0.
    return {
        "accuracy": 100 * num_right / len(pairs),
        "f1": 200 * hits / max(total, 1),
        "precision": 100 * hits / max(len(predicted_spans), 1),
        "recall": 100 * hits / max(len(expected_spans), 1),
    }
