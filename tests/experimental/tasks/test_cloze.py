import itertools

import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.tasks.cloze import (
    MARK,
    ClozeOptions,
    ClozeQuestion,
    cloze_questions,
    question_context,
)
from longsum_jax.text.ngrams import words_of
from longsum_jax.text.oracle import recalled_sentences

OPTIONS = ClozeOptions()


def test_every_entity_of_every_sentence_is_asked_for():
    text = "Rome met Rome and Romeo (in 2019). Rome fell."
    assert cloze_questions(text, ["Rome", "2019", "Rome", "Oslo", " "], OPTIONS) == [
        ClozeQuestion(f"{MARK} met {MARK} and Romeo (in 2019).", "Rome"),
        ClozeQuestion(f"Rome met Rome and Romeo (in {MARK}).", "2019"),
        ClozeQuestion(f"{MARK} fell.", "Rome"),
    ]
    assert cloze_questions("", ["Rome"], OPTIONS) == []


@pytest.mark.parametrize(
    ("entity", "expected"),
    [("a1", f"{MARK} a2 a3 a4"), ("a4", f"a2 a3 {MARK} a5"), ("a8", f"a5 a6 a7 {MARK}")],
)
def test_long_questions_are_cut_around_the_gap(entity, expected):
    text = " ".join(f"a{number}" for number in range(1, 9))
    [question] = cloze_questions(text, [entity], ClozeOptions(question_words=4))
    assert question.question == expected


def slow_recall(sentences, summary):
    def bigrams(text):
        words = words_of(text)
        return [tuple(pair) for pair in itertools.pairwise(words)]

    expected = bigrams(summary)
    held = [bigram for sentence in sentences for bigram in bigrams(sentence)]
    return sum(min(held.count(each), expected.count(each)) for each in set(expected))


def slow_choice(sentences, summary, sizes, room):
    selected = []
    while True:
        now = slow_recall([sentences[i] for i in selected], summary)
        gains = {}
        for i in range(len(sentences)):
            used = sum(sizes[j] for j in [*selected, i])
            if i not in selected and used <= room:
                gains[i] = slow_recall([sentences[j] for j in [*selected, i]], summary) - now
        if not gains or max(gains.values()) == 0:
            return sorted(selected)
        selected.append(max(gains, key=gains.get))


@pytest.mark.parametrize("room", [0, 6, 11, 100])
def test_sentences_are_added_for_recall_while_they_fit(room):
    sentences = ["a b c d.", "c d e.", "x y.", "a b. a b.", "e f g h i j k.", "g h."]
    summary = "a b c d e f. g h a b."
    sizes = [len(sentence.split()) for sentence in sentences]
    expected = slow_choice(sentences, summary, sizes, room)
    assert recalled_sentences(sentences, summary, sizes=sizes, room=room) == expected
    document = "\n\n".join(sentences)
    assert question_context(document, summary, room) == " ".join(sentences[i] for i in expected)


def test_options_out_of_range():
    with pytest.raises(InputError, match=r"cloze\.question_words=0 must be at least 1"):
        ClozeOptions(question_words=0)
