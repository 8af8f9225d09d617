"""Entity precision and entity graphs with taggers of one's own and with the rules."""

import itertools
import random

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.experimental.metrics.entities import EntityPrecision
from longsum_jax.experimental.metrics.entity_graph import EntityGraph, entity_graph
from longsum_jax.experimental.metrics.taggers import rule_entities, rule_nouns


def names(texts):
    """Words in capitals."""
    return [[word for word in text.split() if word.isupper()] for text in texts]


def test_entities_that_the_document_has():
    metric = EntityPrecision(tagger=names)
    predictions = ["NASA and ESA met NASA", "nobody met", "X"]
    sources = ["Nasa met.", "", "x-ray"]
    scores = metric.score(predictions, ["", "", ""], sources)
    assert scores == [
        {"entity_precision": 50, "entities": 2, "found_entities": 1},
        {"entity_precision": 0, "entities": 0, "found_entities": 0},
        {"entity_precision": 100, "entities": 1, "found_entities": 1},
    ]
    result = metric.corpus_values(scores, predictions, sources, sources)
    assert result == pytest.approx(
        {"entity_precision": 200 / 3, "entities": 1, "found_entities": 2 / 3}
    )
    assert metric.corpus_values(scores[1:2], [""], [""], [""])["entity_precision"] == 0
    assert metric.describe() == {"signature": "entities|tagger:names", "tagger": "names"}
    assert EntityPrecision().describe()["signature"] == "entities|tagger:rules"


def test_entities_of_several_words_stand_in_a_row():
    metric = EntityPrecision(tagger=lambda texts: [["New York", "York New", "New", "..."]])
    [score] = metric.score(["x"], [""], ["He left new\nYork."])
    assert score == {
        "entity_precision": pytest.approx(200 / 3),
        "entities": 3,
        "found_entities": 2,
    }


def slow_graph(nouns):
    ties = np.zeros((len(nouns), len(nouns)))
    for noun in set(itertools.chain(*nouns)):
        places = [place for place, result in enumerate(nouns) if noun in result]
        for i, j in itertools.combinations(places, 2):
            ties[i, j] = 1 / (j - i)  # assigned, not added
    return ties


def test_graphs_equal_their_definition():
    rng = random.Random(0)
    for size in (0, 1, 2, 5, 20):
        nouns = [rng.choices("abcdefghijkl", k=rng.randrange(4)) for _ in range(size)]
        np.testing.assert_allclose(entity_graph(nouns), slow_graph(nouns))


def test_coherence_is_the_sum_of_ties_over_sentences():
    metric = EntityGraph(tagger=lambda texts: [text.split()[:1] for text in texts])
    text = "cats ran. dogs ran. cats sat. dogs sat. cats left."
    [score, nothing] = metric.score([text, ""], ["", ""], ["", ""])
    # cats: 1/2, 1/2 and 1/4; dogs: 1/2
    assert score == {"entity_graph": pytest.approx((0.5 + 0.5 + 0.25 + 0.5) / 5)}
    assert nothing == {"entity_graph": 0}
    assert metric.describe()["tagger"] == "<lambda>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The Department of Health and Human Services spent $1,200 million, 4.5 percent.",
            ["Department of Health and Human Services", "$1,200 million", "4.5 percent"],
        ),
        ("On March 3, 2021, and in May 2020 it rained.", ["March 3, 2021", "May 2020"]),
        ("However, GAO saw errors. Errors grew.", ["GAO"]),
        ("Smith left. It was Smith's Rover. I met O'Neil.", ["Smith", "Smith", "Rover", "O'Neil"]),
        ("John Smith and Mary Jones had 30% in 2020.", ["John Smith", "Mary Jones", "30%", "2020"]),
        ("The WHO told us of 12 March 2020 and 5 June.", ["WHO", "12 March 2020", "5 June"]),
        ("US troops left; who paid for it?", ["US"]),
        ("ABOUT US", []),
        ("The 1940s had fX1 and 31st.", []),
        ("", []),
    ],
)
def test_rules_for_entities(text, expected):
    assert rule_entities([text]) == [expected]


def test_rules_for_nouns():
    sentences = [
        "The old cat sat on the mats.",
        "Cats like a national review of agencies.",
        "Management of the agency's boxes in Paris failed.",
    ]
    assert rule_nouns(sentences) == [
        ["cat", "mat"],
        ["cat", "review", "agency"],
        ["management", "agency", "paris"],  # nothing tells that boxes are things
    ]
    assert rule_nouns([]) == []


def test_the_rules_are_the_default():
    metrics = make_metrics(["entities", "entity_graph"])
    [score] = metrics["entities"].score(["GAO met NASA."], [""], ["The GAO report."])
    assert score == {"entity_precision": 50, "entities": 2, "found_entities": 1}
    text = "The agency met. Rain fell. The agency left."
    [score] = metrics["entity_graph"].score([text], [""], [""])
    assert score == {"entity_graph": pytest.approx(0.5 / 3)}


@pytest.mark.parametrize("name", ["entities", "entity_graph"])
def test_unknown_taggers(name):
    problem = f'metrics.{name}.tagger="rulez" is unknown; did you mean "rules"'
    with pytest.raises(InputError, match=problem):
        make_metrics([name], {name: {"tagger": "rulez"}})


@pytest.mark.parametrize("found", [[], [[1]], [["a"], ["b"]]])
def test_taggers_that_give_something_else(found):
    def broken(texts):
        return found

    metric = EntityPrecision(tagger=broken)
    with pytest.raises(InputError, match="tagger broken: give a list of strings for each of 1"):
        metric.score(["x"], [""], [""])
