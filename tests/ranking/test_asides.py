import numpy as np

from longsum_jax.ranking.asides import are_asides, are_rejections
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import builtin_ranker

PROSE = "The old bridge by the mill is in danger. The council repairs it in winter."
ASIDE = "The council closes the old bridge to all cars in winter."


def asides(text):
    document = parse_document(text)
    rows = np.flatnonzero(are_asides(document) & ~document.headings)
    return [document.sentences[row] for row in rows]


def test_sections_end_at_the_next_heading_of_their_level():
    text = (
        f"# Bridge\n\n{PROSE}\n\n## Non-Goals\n\n{ASIDE}\n\n### Cars\n\n{ASIDE}\n\n"
        f"## Costs\n\n{PROSE}\n\n{PROSE}"
    )
    assert asides(text) == [ASIDE, ASIDE]


def test_sections_without_levels_end_at_a_usual_heading():
    text = (
        f"Bridge\n\n{PROSE}\n\nRejected Ideas\n\nCars\n\n{ASIDE}\n\nCopyright\n\n{PROSE}\n\n{PROSE}"
    )
    assert asides(text) == [ASIDE]


def test_a_document_of_alternatives_has_no_asides():
    assert asides(f"Alternatives\n\n{ASIDE} {PROSE}") == []


def test_a_rejection_is_told():
    text = (
        f"# Bridge\n\nThis proposal was rejected.\n\n{PROSE}\n\n"
        f"## Alternatives\n\n{ASIDE}\n\n## Costs\n\n{PROSE} Stones of the bridge cost a lot."
    )
    document = parse_document(text)
    assert np.flatnonzero(are_rejections(document)).tolist() == [1]
    summary = builtin_ranker().summarize(text, length="2 sentences").text
    assert summary.startswith("This proposal was rejected.")
    assert ASIDE not in summary
