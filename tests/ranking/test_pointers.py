import time

import pytest

from longsum_jax.ranking.pointers import body, numbers_paragraphs, without_references
from longsum_jax.ranking.ranker import builtin_ranker


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A lexicon (see figure 2): a list of words (section 5).", "A lexicon: a list of words."),
        ("It fell in all years (Figs. 3A-C, Table 1).", "It fell in all years."),
        (
            "It fell (fig. <dig>; additional file 1: table s2).",
            "It fell (fig. <dig>; additional file 1: table s2).",
        ),
        ("The lift works again (item 4.2 of the last minutes).", "The lift works again."),
        ("Every entry is doubled (screenshot attached).", "Every entry is doubled."),
        ("The dog was refused; see the house rules, section 7.", "The dog was refused."),
        ("Five bids were received, as shown in Table 2 below.", "Five bids were received."),
        ("Costs, as noted above, rose by a tenth.", "Costs rose by a tenth."),
        ("[^1]: The costs rose by a tenth.[^note-2]", "The costs rose by a tenth."),
        ("As noted above, costs rose by a tenth.", "Costs rose by a tenth."),
        ("It rose,[2] then fell.[5]: 14 [a]", "It rose, then fell. [a]"),
        ('It was "old."[5]: 14[b] Now it is new.[citation needed]', 'It was "old." Now it is new.'),
        ("(1) The old bridge is closed.", "The old bridge is closed."),
        ("as noted above, costs rose by a tenth.", "costs rose by a tenth."),
    ],
)
def test_references_are_not_shown(sentence, expected):
    assert without_references(sentence) == expected


@pytest.mark.parametrize(
    "sentence",
    [
        "The gene (p53) and the town (Box Hill) have names.",
        "The offer is free (no strings attached).",
        "The range [0, 1] and the entry x[1] are code.",
        "Table 2 shows the costs of section 5.",
        "To learn more about the costs, see the guide.",
        "The algorithm proceeds as described above.",
        "(See Table 2.)",
        "Smith (2004) and others (Lee et al., 2003) disagree.",
        'The services described in Exhibit A (the "Services") end.',
    ],
)
def test_needed_words_are_shown(sentence):
    assert without_references(sentence) == sentence


@pytest.mark.parametrize(
    "unit",
    ["1a, ", "A1, ", "I, ", "IV-1, ", "1 and table ", "A.1; fig. ", "p.5, ", "-1", "A-1 and "],
)
@pytest.mark.parametrize("begin", ["(table ", "(see ", "It fell, as shown in table "])
def test_time_of_references_is_linear(begin, unit):
    before = time.process_time()
    for count in (20, 2000):
        without_references(f"The bridge {begin}{unit * count}x")
    assert time.process_time() - before < 1


def test_time_of_references_is_linear_in_white_space():
    before = time.process_time()
    sentence = f"The bridge (at{' ' * 50_000}the lake) fell (see Table 2)."
    assert without_references(sentence) == sentence.removesuffix(" (see Table 2).") + "."
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    ("passage", "expected"),
    [
        ("### Not goals\nThis plan covers\nthe bridge.", "This plan covers the bridge."),
        ("LOST AND FOUND\nThe box is full.", "The box is full."),
        ("Node Network\nAn IP space of nodes.", "An IP space of nodes."),
        ("(b) raise the budget; and\n(c) sign it.", "raise the budget; and sign it."),
        ("c) When it knows the object.", "When it knows the object."),
        ("[12] The appeal is allowed.", "The appeal is allowed."),
        ("2.2 In the plan, it is new.", "In the plan, it is new."),
        # neither headings nor marks
        ("The Bridge of the Town\nThe mill is old.", "The Bridge of the Town The mill is old."),
        ("They met on page\n12) and left.", "They met on page 12) and left."),
        ("(a) the bridge and (b) the mill.", "(a) the bridge and (b) the mill."),
        ("In 1990 the\nTown grew.", "In 1990 the Town grew."),
        ("NASA said\nThe bridge is old.", "NASA said The bridge is old."),
    ],
)
def test_headings_and_marks_before_a_sentence_are_not_shown(passage, expected):
    assert body(passage, is_numbered=True) == expected


def test_numbers_of_paragraphs_need_several():
    assert numbers_paragraphs("2.1 A\n2.2 The\n 3.1 In")
    assert numbers_paragraphs("[1] The\n[2] An\n[3] In")
    assert not numbers_paragraphs("1.5 Tesla was\n2.2 per cent\n3.1 In")
    assert body("1.5 Tesla was used.", is_numbered=False) == "1.5 Tesla was used."


def test_summary_of_a_report_shows_sentences_only():
    text = (
        "## Goals\nThe old bridge by the mill has to be replaced (see Table 1).\n\n"
        "(b) the council pays for the stone of the new bridge; and\n"
        "(c) the mill pays for the road to the new bridge.\n"
    )
    extract = builtin_ranker().summarize(text, length="100%")
    assert extract.text.split("\n") == [
        "The old bridge by the mill has to be replaced.",
        "The council pays for the stone of the new bridge; and the mill pays for the road to the "
        "new bridge.",
    ]
    [first, _] = extract.statements
    assert first.sources[0].text.endswith("(see Table 1).")
