import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.baselines import lead, random_sentences

DOCUMENT = "One two three. Four five. Six seven eight nine. Ten. Eleven twelve."
SENTENCES = ["One two three.", "Four five.", "Six seven eight nine.", "Ten.", "Eleven twelve."]


@pytest.mark.parametrize(
    ("num_words", "expected"),
    [(1, 1), (3, 1), (4, 2), (5, 2), (6, 3), (9, 3), (10, 4), (11, 5), (99, 5)],
)
def test_lead_reaches_the_length_in_words(num_words, expected):
    assert lead(DOCUMENT, num_words=num_words) == "\n".join(SENTENCES[:expected])


def test_letters_of_scripts_without_spaces_are_words():
    assert lead("桥很老。猫睡觉。", num_words=3) == "桥很老。"


@pytest.mark.parametrize("num_sentences", [1, 3, 5, 9])
def test_lead_by_sentences(num_sentences):
    assert lead(DOCUMENT, num_sentences=num_sentences) == "\n".join(SENTENCES[:num_sentences])


def test_talk_without_punctuation_has_a_beginning():
    talk = " ".join(f"word{i}" for i in range(1000))
    beginning = lead(talk, num_words=20)
    assert talk.startswith(beginning)
    assert 20 <= len(beginning.split()) <= 60
    selected = random_sentences(talk, num_words=20)
    assert selected in talk
    assert len(selected.split()) < 100


def test_random_sentences_are_in_document_order():
    seen = set()
    for seed in range(20):
        selected = random_sentences(DOCUMENT, num_sentences=2, seed=seed).split("\n")
        assert selected == [sentence for sentence in SENTENCES if sentence in selected]
        assert len(selected) == 2
        seen.add(tuple(selected))
    assert len(seen) > 5


def test_random_sentences_stop_at_the_length():
    for seed in range(20):
        selected = random_sentences(DOCUMENT, num_words=4, seed=(seed, 1)).split("\n")
        lengths = [len(sentence.split()) for sentence in selected]
        assert sum(lengths) >= 4
        assert any(sum(lengths) - length < 4 for length in lengths)


def test_random_sentences_follow_the_seed():
    first = [random_sentences(DOCUMENT, num_sentences=2, seed=(3, i)) for i in range(10)]
    assert first == [random_sentences(DOCUMENT, num_sentences=2, seed=(3, i)) for i in range(10)]
    assert first != [random_sentences(DOCUMENT, num_sentences=2, seed=(4, i)) for i in range(10)]


def test_an_empty_document_gives_nothing():
    assert lead("", num_words=5) == ""
    assert random_sentences(" ", num_sentences=5) == ""


@pytest.mark.parametrize("baseline", [lead, random_sentences])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "either num_words or num_sentences"),
        ({"num_words": 3, "num_sentences": 3}, "either num_words or num_sentences"),
        ({"num_words": 0}, "must be at least 1, got 0"),
        ({"num_sentences": -2}, "must be at least 1, got -2"),
    ],
)
def test_bad_lengths(baseline, options, problem):
    with pytest.raises(InputError, match=problem):
        baseline(DOCUMENT, **options)
