"""Claims of FactCC: every transformation by itself, and the claims of a text."""

import dataclasses

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.tasks.claims import (
    CORRECT,
    INCORRECT,
    TRANSFORMATIONS,
    Claim,
    ClaimOptions,
    ClaimSentence,
    add_noise,
    claims_of,
)
from longsum_jax.text.entities import find_entities

TEXT = (
    "On May 3, 2019, Ann Lee told the council of Rome that the dam would not hold for long. "
    "She had seen 14 cracks in March 2018, and her report cost $2 million that year. "
    "Bob Ray and his engineers were sent there, but they couldn't find more than 9 of them. "
    "It rained."
)
QUIET = ClaimOptions(noisy=0.0)


def results(name, sentence, others=TEXT, draws=200):
    """All results of a transformation."""
    entities, more = find_entities([sentence, others])
    given = ClaimSentence(sentence, entities, [*entities, *more])
    rng = np.random.default_rng(0)
    result = [TRANSFORMATIONS[name](given, rng) for _ in range(draws)]
    return {claim and claim.text for claim in result}


@pytest.mark.parametrize(
    ("name", "sentence", "expected"),
    [
        ("name", "He met Bob Ray.", {"He met Ann Lee.", "He met Rome."}),
        ("name", "He met Bob Ray Senior.", {"He met Ann Lee.", "He met Rome."}),
        ("date", "It was in March 2018.", {"It was in May 3, 2019."}),
        ("number", "It had 9 and more.", {"It had 14 and more.", "It had $2 million and more."}),
        ("name", "Nobody came.", {None}),
        ("pronoun", "Saw him.", {"Saw me.", "Saw you.", "Saw her.", "Saw us.", "Saw them."}),
        ("pronoun", "We saw.", {"You saw.", "He saw.", "She saw.", "They saw."}),
        ("pronoun", "Rome saw it.", {None}),
        ("negation", "It was new.", {"It was not new.", "It wasn't new."}),
        ("negation", "It could have been.", {"It could not have been.", "It couldn't have been."}),
        ("negation", "It will come.", {"It will not come."}),
        ("negation", "It won't come.", {"It will come."}),
        ("negation", "They can't or cannot.", {"They can or cannot.", "They can't or can."}),
        ("negation", "It is not so.", {"It is so."}),
        ("negation", "It isn\u2019t so.", {"It is so."}),
        ("negation", "There is no dam.", {None}),
        ("negation", "Mayors came.", {None}),
    ],
)
def test_transformations(name, sentence, expected):
    assert results(name, sentence) == expected


def test_what_was_changed_is_marked():
    entities, more = find_entities(["He met Bob Ray there.", TEXT])
    given = ClaimSentence("He met Bob Ray there.", entities, more)
    for name, transformation in TRANSFORMATIONS.items():
        claim = transformation(given, np.random.default_rng(1))
        if claim is not None:
            start, stop = claim.changed
            assert claim.text[:start] == given.text[:start], name
            assert given.text.endswith(claim.text[stop:])
            assert claim.label == INCORRECT


def test_claims_of_a_text():
    claims = claims_of(TEXT, dataclasses.replace(QUIET, per_text=5))
    right, wrong = claims[::2], claims[1::2]
    assert {claim.label for claim in right} == {CORRECT}
    assert {claim.label for claim in wrong} == {INCORRECT}
    assert len(right) == len(wrong) == 3  # the last sentence is short
    for good, bad in zip(right, wrong, strict=True):
        assert good.text in TEXT
        assert bad.text not in TEXT
        assert bad.text[: bad.changed[0]] == good.text[: bad.changed[0]]
    assert len(claims_of(TEXT, QUIET)) == 4
    assert claims_of("It rained.", QUIET) == claims_of("", QUIET) == []


def test_claims_depend_on_text_and_seed_alone():
    assert claims_of(TEXT, ClaimOptions()) == claims_of(TEXT, ClaimOptions())
    seeds = {tuple(claims_of(TEXT, ClaimOptions(seed=seed))) for seed in range(5)}
    assert len(seeds) == 5


def test_noise_deletes_and_doubles_words_beside_the_change():
    text = " ".join(str(number) for number in range(1000))
    claim = Claim(text, INCORRECT, (text.index(" 500"), text.index(" 600")))
    options = ClaimOptions(noisy=1.0, noise=0.3, deleted=0.75)
    words = add_noise(claim, options, np.random.default_rng(0)).text.split()
    counts = np.bincount([int(word) for word in words], minlength=1000)
    assert (counts[500:600] == 1).all()
    assert counts.max() == 2
    outside = np.delete(counts, np.arange(500, 600))
    assert (outside == 0).mean() == pytest.approx(0.225, abs=0.05)
    assert (outside == 2).mean() == pytest.approx(0.075, abs=0.03)
    unchanged = dataclasses.replace(options, noisy=0.0)
    assert add_noise(claim, unchanged, np.random.default_rng(0)) == claim


@pytest.mark.parametrize("values", [{"per_text": 0}, {"noise": 1.5}, {"piece_words": 0}])
def test_options_out_of_range(values):
    [(name, value)] = values.items()
    with pytest.raises(InputError, match=f"claims.{name}={value} must"):
        ClaimOptions(**values)
