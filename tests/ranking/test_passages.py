import numpy as np

import longsum_jax
from longsum_jax.ranking import passages
from longsum_jax.ranking.parsing import parse_document


def test_long_texts_have_a_passage_of_each_part(monkeypatch):
    monkeypatch.setattr(passages, "LONG_WORDS", 1_000)
    monkeypatch.setattr(passages, "_SHORT_SHARE", 0.3)
    chapters = []
    for chapter in range(1, 5):
        lines = [
            f"The w{chapter}x{i} keeper saw w{chapter}y{i} near w{chapter}z{i}. "
            f"It was a w{chapter}v{i} of the old kind."
            for i in range(30)
        ]
        chapters.append(f"CHAPTER {chapter}\n\n" + "\n\n".join(lines))
    text = "\n\n".join(chapters)
    summary = longsum_jax.summarize(text, length="300 words")
    lines = summary.text.split("\n")
    assert [line for line in lines if line.startswith("[")] == [
        f"[CHAPTER {chapter}]" for chapter in range(1, 5)
    ]
    assert lines.count("") == 3  # between passages
    numbers = [statement.sources[0].number for statement in summary.sources]
    firsts = [number for number in numbers if number - 1 not in numbers]
    assert len(firsts) == 4
    for statement in summary.sources:
        assert summary.text[statement.start : statement.end] == statement.text
        assert not statement.text.startswith("It") or statement.sources[0].number - 1 in numbers


def test_passages_begin_with_a_sentence_that_needs_no_other():
    document = parse_document("Oak rots. It was old. Stone stays. Iron rusts.")
    scores = np.array([0.0, 9.0, 1.0, -np.inf])
    dependent = np.array([False, True, False, False])
    selected = passages.select_passages(
        document, scores, document.lengths, 6, dependent=dependent, is_talk=False, count=1
    )
    assert selected == [0, 1]


def test_number_of_passages():
    assert passages.num_passages(15_000, 300) == 0
    assert passages.num_passages(100_000, 600) == 8
    assert passages.num_passages(100_000, 5_000) == 0  # an excerpt, not a short summary
