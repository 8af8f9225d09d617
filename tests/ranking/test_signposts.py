import pytest

import longsum_jax
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.signposts import are_signposts, are_verbless


@pytest.mark.parametrize(
    "sentence",
    [
        "The results we obtained are presented in the experiments section.",
        "Section 3 describes the bridge.",
        "In this section, we present the bridge of oak.",
        "The rest of the paper is organized as follows.",
        "The bridge was measured as in.",
        "We describe other bridges in prior work in ?",
        "B-A-B-E-N-O-N.",
        "A. Lund and B. Ek, 2019, Bridges of oak, in Proceedings of Bridges, pages 1-9.",
    ],
)
def test_signposts(sentence):
    assert are_signposts(parse_document(sentence)).all()


@pytest.mark.parametrize(
    "sentence",
    [
        "The next section of the bridge is closed.",
        "Table 2 shows that oak rots.",
        "We saw 12 of them.",
    ],
)
def test_sentences_are_no_signposts(sentence):
    assert not are_signposts(parse_document(sentence)).any()


def test_phrases_have_no_verb():
    document = parse_document("Closing of old bridges. The mill of oak. The oak rotted. Oak rots.")
    assert are_verbless(document).tolist() == [True, True, False, False]
    document = parse_document(
        "The toll rises by two percent. The parts differ. All mills consist of oak."
    )
    assert not are_verbless(document).any()


def test_numbered_works_are_no_sentences_of_a_summary():
    works = [
        f"[{i}] A. Lund. The old bridge number {i}. Bridge Press, 20{i:02}." for i in range(1, 6)
    ]
    text = "The old bridge by the mill is in danger.\n\n" + "\n".join(works)
    assert longsum_jax.summarize(text).text == "The old bridge by the mill is in danger."
