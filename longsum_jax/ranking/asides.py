"""Finds sections whose sentences mislead when they are read without their heading.

"Support names of ports." below "Non-goals" is the opposite of what its document
says, and so is every sentence below "Rejected ideas".
"""

import re

import numpy as np

from longsum_jax.ranking.parsing import ParsedDocument

_ASIDE = re.compile(
    r"(?:non-?\s?goals?|out of scope|not in scope|(?:rejected|discarded|previous|earlier|"
    r"abandoned) (?:ideas?|alternatives?|approach(?:es)?|designs?|proposals?|options?)|"
    r"(?:rationale and )?alternatives?(?: considered| designs?| approach(?:es)?| solutions?)?|"
    r"(?:prerequisite )?test(?:ing)? plan|test cases|(?:unit|integration|e2e) tests?|"
    r"troubleshooting|upgrade ?/ ?downgrade strategy|downgrade|"
    r"rollout, upgrade and rollback planning|feature enablement and rollback|"
    r"monitoring requirements|release signoff checklist|graduation criteria)\Z",
    re.IGNORECASE,
)
# headings that often follow these sections on their level
_USUAL = re.compile(
    r"(?:abstract|acknowledge?ments?|appendix|backwards? compatibility|background|conclusions?|"
    r"copyright|(?:detailed )?design(?: details)?|discussion|drawbacks|footnotes|"
    r"future (?:possibilities|work)|goals|how to teach this|(?:reference )?implementation|"
    r"(?:implementation )?history|introduction|methods|motivation|(?:open|unresolved) "
    r"(?:issues|questions)|prior art|proposal|rationale|references.*|results|"
    r"risks and mitigations|scalability|security.*|specification|summary)\Z",
    re.IGNORECASE,
)
_LINK = re.compile(r"\s*\[[\w-]+\]:\s*#\S+\s*\Z")  # "[design]: #design"
_MARKS = "#=-~*_: \t"
_MOST = 0.5  # share of a document above which such sections are its content
_BEGINNING = 8  # sentences
_REJECTION = re.compile(
    r"(?:note: )?this (?:pep|rfc|kep|eip|proposal|document|draft|specification|standard)\b.{0,60}?"
    r"\b(?:was|is|has been|have been) (?:\w+ )?(?:rejected|withdrawn|superseded|deferred|"
    r"abandoned|obsoleted)\b",
    re.IGNORECASE,
)


def are_asides(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for sentences in sections on rejected ideas, tests and the like.

    A section ends before the next heading of its level or, if levels are
    unknown, of a usual kind. If such sections are most of a document, no
    sentence is an aside.
    """
    inside = np.zeros(len(document.sentences), bool)
    rows = np.flatnonzero(document.headings).tolist()
    for index, row in enumerate(rows):
        if _ASIDE.match(_title(document.sentences[row])) is None:
            continue
        level = _level(document.sentences[row])
        end = len(inside)
        for following in rows[index + 1 :]:
            heading = document.sentences[following]
            if level and _level(heading):
                is_end = _level(heading) <= level
            else:
                is_end = _USUAL.match(_title(heading)) is not None
            if is_end:
                end = following
                break
        inside[row:end] = True
    texts = ~document.headings
    if (inside & texts).sum() > _MOST * texts.sum():
        inside[:] = False
    return inside


def are_rejections(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for notices of rejection among the first sentences."""
    rejections = np.zeros(len(document.sentences), bool)
    for number, sentence in enumerate(document.sentences[:_BEGINNING]):
        words = sentence.strip(_MARKS)
        rejections[number] = _REJECTION.match(words) is not None
    return rejections


def _title(heading: str) -> str:
    """Returns the words of a heading."""
    return _LINK.sub("", heading).strip(_MARKS)


def _level(heading: str) -> int:
    """Returns the level of a heading of Markdown, from 1; 0 for others."""
    return len(heading) - len(heading.lstrip("#"))
