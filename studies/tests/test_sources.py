"""The benchmark of sources: its parts beside slow twins, and a small run."""

import itertools

import numpy as np
import pytest

import longsum_jax
from longsum_jax.summarization.attended import attended_sources
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.text.alignment import align

SENTENCES = [
    f"In {1900 + i} the {name} of the town built {i + 3} bridges over the river."
    for i, name in enumerate(("mayor", "baker", "smith", "miller", "weaver", "hatter"))
]


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("sources")


def test_auc_counts_pairs(script):
    rng = np.random.default_rng(0)
    higher, lower = rng.integers(0, 5, 9), rng.integers(0, 4, 7)
    pairs = list(itertools.product(higher.tolist(), lower.tolist()))
    expected = np.mean([(a > b) + 0.5 * (a == b) for a, b in pairs])
    assert script.auc(higher, lower) == pytest.approx(expected)


def test_agreement(script):
    assert script.agreement([3, 1, 2], (2, 7)) == pytest.approx((1 / 3, 1 / 2))
    assert script.agreement([], (2,)) == (0, 0)


def test_settings_are_those_of_align(script):
    written = ["The mayor built 3 bridges and the smith of the town 5.", "Hatters of the river."]
    every = align(written, SENTENCES, max_sources=5, min_gain=0)
    for sources, gain in script.SETTINGS:
        expected = align(written, SENTENCES, max_sources=sources, min_gain=gain)
        result = [script._within(each, sources, gain) for each in every]
        assert result == [each.indices for each in expected]


def test_rules_keep_their_sources(script):
    made = script.rewrite(SENTENCES, np.random.default_rng(0))
    words = [set(sentence.rstrip(".").split()) for sentence in SENTENCES]
    for rule in ("drop", "shorten", "merge"):
        for text, known in made[rule]:
            written = set(text.replace(", and", "").rstrip(".").split())
            assert written <= set().union(*(words[i] for i in known))
            assert len(known) == 1 + (rule == "merge")
    [number] = made["drop"][0].known
    retained = len(SENTENCES[number].split()) - round(len(SENTENCES[number].split()) / 3)
    assert len(made["drop"][0].text.split()) == retained


def test_nearest_by_rouge(script):
    method = script.nearest_by_rouge(1)
    assert method(["the baker built bridges", "Zebras"], SENTENCES) == [[1], []]


@pytest.mark.slow
def test_attention_names_sentences_of_each_written_one(script, small_model):
    model = longsum_jax.load(small_model)
    written = ["The mayor built 3 bridges. In 1900!", "The hatter did."]
    named = script.by_attention(model)(written, SENTENCES)
    text = "\n\n".join(SENTENCES)
    summary = Summary("\n\n".join(written), 0, 0, 0, 0, "eos").of(Request(text, "a", None))
    first, second, third = [
        [SENTENCES.index(source.text) for source in statement.sources]
        for statement in attended_sources(model, summary)
    ]
    assert named == [list(dict.fromkeys(first + second)), third]


def test_a_small_run(script, report, monkeypatch):
    monkeypatch.delenv("LONGSUM_JAX_DATA", raising=False)
    rows = report("sources", "--documents=2")["rows"]
    assert {row["part"] for row in rows} == {"methods", "settings", "corrupted", "flagged"}
    methods = [row for row in rows if row["part"] == "methods" and row["data_set"] == "mean"]
    assert {row["method"] for row in methods} == set(script.METHODS)
    assert all(row["precision"] > 0.9 for row in methods if row["method"] == "alignment")
    swapped = [row for row in rows if row.get("kind") == "number" and row["swap"] == "other"]
    assert all(row["document flags"] > 0.9 for row in swapped)
