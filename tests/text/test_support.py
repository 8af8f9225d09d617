import json

import pytest

from longsum_jax.text.alignment import SUPPORTED, align
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.statements import Flag, Outline, Statement
from longsum_jax.text.support import find_flags, find_statements

DOCUMENT = """Bridges

The old bridge was built by Anna Berg in 1874. It is of stone,
and 1,200 people cross it on a day.

Costs

Its repair took 3.2 million crowns and twelve months. The Ministry of Transport paid half of it
on 4 May 1999, the town the rest.
"""


def test_statements_name_sources_with_their_places():
    heading = DOCUMENT.index("Costs")
    outline = Outline([(0, 7), (heading, heading + 5)], [0, heading])
    summary = "Anna Berg built the old bridge in 1874.\nThe repair took twelve months.  Cats purr."
    built, repaired, cats = find_statements(summary, DOCUMENT, outline)
    assert [each.text for each in (built, repaired, cats)] == split_sentences(summary)
    for each in (built, repaired, cats):
        assert summary[each.start : each.end] == each.text
    expected = align(split_sentences(summary), split_sentences(DOCUMENT))
    for each, result in zip((built, repaired, cats), expected, strict=True):
        assert [source.number for source in each.sources] == result.indices
        assert [source.score for source in each.sources] == pytest.approx(result.scores, abs=1e-4)
        assert each.support == pytest.approx(result.total, abs=1e-4)
    [source] = built.sources
    assert DOCUMENT[source.start : source.end].startswith("The old bridge was built by Anna")
    assert DOCUMENT[source.start : source.end].endswith("1874.")
    assert (source.number, source.heading, source.page) == (1, "Bridges", 1)
    assert (repaired.sources[0].heading, repaired.sources[0].page) == ("Costs", 2)
    assert built.is_supported
    assert built.support >= SUPPORTED > cats.support
    assert (cats.sources, cats.is_supported) == ((), False)


def test_places_without_an_outline_and_texts_without_sentences():
    [statement] = find_statements("It is of stone.", DOCUMENT)
    assert (statement.sources[0].heading, statement.sources[0].page) == (None, None)
    # The sentence stands on two lines.
    assert "\n" in DOCUMENT[statement.sources[0].start : statement.sources[0].end]
    assert find_statements(" \n", DOCUMENT) == []
    [alone] = find_statements("It is of stone.", "")
    assert (alone.sources, alone.support) == ((), 0)


def test_a_heading_is_not_under_itself():
    [statement] = find_statements("Bridges", DOCUMENT, Outline([(0, 7)], [5, 5, 9]))
    assert (statement.sources[0].heading, statement.sources[0].page) == (None, None)
    [statement] = find_statements("It is of stone.", DOCUMENT, Outline([], [0, 0, 9]))
    assert statement.sources[0].page == 3  # the first is empty


@pytest.mark.parametrize(
    ("sentence", "missing"),
    [
        ("He met Anna Berg in 1874.", []),
        ("He met ANNA BERG and Paul Berg.", ["Paul Berg"]),
        ("It was paid for by the Transport Ministry.", []),
        ("It was paid for by the Ministry of Defence.", ["Ministry of Defence"]),
        ("Some 1200 people and 3,200,000 crowns.", []),
        ("Some 1300 people and $3.2 billion.", ["1300", "$3.2 billion"]),
        ("It took 12 months and 3.2 % more.", []),
        ("It took 13 months, version 1.2.3 of it.", ["13", "1.2.3"]),
        ("Paid on 4 May 1999.", []),
        ("Paid in May 1999 and June 1999.", ["June 1999"]),
        ("Paid on May 4, 1999, not May 5, 1999.", ["May 5, 1999"]),
        ("Nothing of the kind.", []),
    ],
)
def test_flags_are_what_the_document_lacks(sentence, missing):
    document = split_sentences(DOCUMENT)
    [flags] = find_flags([sentence], document)
    assert find_flags([sentence], document, [range(len(document))]) == [flags]
    assert [flag.text for flag in flags] == missing
    for flag in flags:
        assert sentence[flag.start :].startswith(flag.text)
        assert flag.missing == "document"


def test_scaled_numbers_equal_those_in_digits():
    """8.3 times a million is not quite 8,300,000 in floating point."""
    document = ["It cost 8,300,000 crowns.", "Later it was 4,100,000."]
    sentences = ["It cost 8.3 million crowns.", "Later it was 4.1 million."]
    assert find_flags(sentences, document) == [[], []]


def test_flags_of_what_only_the_sources_lack():
    sentences = ["Anna Berg paid 3.2 million for 9 months.", "She was Anna Berg."]
    paid, was = find_flags(sentences, split_sentences(DOCUMENT), [[4], []])
    assert [(flag.text, flag.missing) for flag in paid] == [
        ("Anna Berg", "sources"),
        ("9", "document"),
    ]
    assert [(flag.text, flag.missing) for flag in was] == [("Anna Berg", "sources")]


def test_flags_of_statements_and_their_report():
    statements = find_statements("The bridge  is of stone.  Paul Olsen built it.", DOCUMENT)
    assert statements[1].flags == (Flag("name", "Paul Olsen", 0, "document"),)
    assert statements[0].text == "The bridge is of stone."
    for statement in statements:
        report = json.loads(json.dumps(statement.report()))
        assert Statement.from_report(report) == statement
