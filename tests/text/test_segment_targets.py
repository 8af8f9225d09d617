import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from longsum_jax.errors import InputError
from longsum_jax.text.segment_targets import assign_sentences, segment_targets


def some_texts(rng, count, words):
    """Texts over few words, so that they overlap, and ties occur."""
    names = ["alpha", "Beta", "gamma's", "delta-2", "EPSILON", "zeta", "\u00e9ta", "theta"]
    names += ["flies", "fly", "running", "run", "ties", "tied", "die", "dies"]
    return [" ".join(rng.choice(names, rng.integers(0, words))) + "." for _ in range(count)]


def slow_assignment(segments, sentences, metric, stemmer):
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=stemmer)
    side = "fmeasure" if metric == "f1" else metric
    selected = []
    for sentence in sentences:
        scores = [
            sum(getattr(s, side) for s in scorer.score(segment, sentence).values())
            for segment in segments
        ]
        best = max(scores)
        selected.append(next(i for i, score in enumerate(scores) if score > best - 1e-9))
    return selected


@pytest.mark.parametrize("stemmer", [True, False])
@pytest.mark.parametrize("metric", ["precision", "f1"])
def test_assignment_equals_rouge_score(metric, stemmer):
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(40):
        segments, sentences = (
            some_texts(rng, rng.integers(1, 9), 30),
            some_texts(rng, rng.integers(0, 6), 8),
        )
        result = assign_sentences(segments, sentences, metric=metric, stemmer=stemmer).tolist()
        assert result == slow_assignment(segments, sentences, metric, stemmer)
        seen |= set(result)
    assert len(seen) > 4


def test_precision_does_not_favour_short_segments():
    segments = ["The cat sat on the mat. " + "Many other words follow here. " * 9, "The cat came."]
    assert assign_sentences(segments, ["The cat sat."]).tolist() == [0]
    assert assign_sentences(segments, ["The cat sat."], metric="f1").tolist() == [1]


def test_words_count_by_their_stems():
    segments = ["They fly.", "A plane flies there and lands."]
    assert assign_sentences(segments, ["The landing planes."]).tolist() == [1]
    assert assign_sentences(segments, ["The landing planes."], stemmer=False).tolist() == [0]


@pytest.mark.parametrize(
    ("segments", "sentence"),
    [
        (["Мосты построены из дуба.", "Кошки спят днём."], "Кошки спят."),
        (["桥是用木头造的。", "猫白天睡觉。"], "猫睡觉。"),
    ],
)
def test_sentences_of_any_script_are_assigned(segments, sentence):
    assert assign_sentences(segments, [sentence]).tolist() == [1]


def test_targets_keep_the_order_of_the_summary():
    segments = ["Cats purr and sleep.", "Nothing of interest.", "Dogs bark at night."]
    summary = "Dogs bark. Cats sleep. Cats purr. Nobody knows."
    assert segment_targets(segments, summary) == [
        "Cats sleep. Cats purr. Nobody knows.",
        "",
        "Dogs bark.",
    ]


def test_ties_go_to_the_earliest():
    assert assign_sentences(["a b c", "b a c", "c b a"], ["a", "c b", "x", "..."]).tolist() == [
        0,
        2,
        0,
        0,
    ]


def test_bad_input():
    with pytest.raises(
        InputError,
        match="there are no segments to give the sentences of a summary to; cut the docum",
    ):
        assign_sentences([], ["a"])
    with pytest.raises(InputError, match=r'segments.target_metric: "f" is not allowed; '):
        assign_sentences(["a"], ["a"], metric="f")
