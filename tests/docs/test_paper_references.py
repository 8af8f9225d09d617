"""References to sections, tables, figures and equations of the four papers name existing ones.

A reference belongs to the paper that is cited right before it ("LOCOST, section 3"), right after it
("table 4 of the Hepos paper") or together with the reference before it; otherwise to the paper that
the page is about or that the file cites last. References to other papers are not checked.
"""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    *sorted(ROOT.glob("longsum_jax/**/*.py")),
    *sorted(ROOT.glob("longsum_plan/*.py")),
    *sorted(ROOT.glob("configs/*.py")),
    *sorted(ROOT.glob("benchmarks/*.py")),
    *sorted(ROOT.glob("studies/*.py")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("docs/result_pages/*.py")),
    ROOT / "tests" / "test_configs.py",
)


class Paper(NamedTuple):
    """What a paper has: numbers of sections and appendices, and the last number of the rest."""

    sections: str
    tables: int
    figures: int
    equations: int
    algorithms: int = 0


PAPERS = {
    "locost": Paper(
        "1 2 3 4 4.1 4.2 5 5.1 5.2 5.3 5.4 5.5 5.6 6 7 8 A A.1 A.2 B C D E F G H I",
        tables=9,
        figures=7,
        equations=7,
    ),
    "lsg": Paper(
        "1 2 3 3.1 3.2 3.3 3.4 4 4.1 4.2 4.2.1 4.2.2 4.2.3 4.3 4.3.1 4.3.2 4.3.3 5 6 A B C D E",
        tables=15,
        figures=5,
        equations=0,
    ),
    "hepos": Paper(
        "1 2 2.1 2.2 2.3 2.4 3 4 5 6 6.1 6.2 6.3 6.4 6.5 7 8 A B C D",
        tables=11,
        figures=6,
        equations=1,
    ),
    "awesome": Paper(
        "1 2 2.1 2.2 3 3.1 3.2 4 5 6 A A.1 A.2 B B.1 B.2 B.3 B.4 B.5 B.6 C C.1 C.2 D E",
        tables=14,
        figures=4,
        equations=12,
        algorithms=1,
    ),
}


NAMES = {
    "locost": r"LOCOST|Le Bronnec et al\.?",
    "lsg": r"LSG|Condevaux (?:and|&) Harispe",
    "hepos": r"Hepos|Huang et al\.?",
    "awesome": r"AWESOME|Cao (?:and|&) Wang",
}
ANY = "|".join(f"(?P<{paper}>{names})" for paper, names in NAMES.items())
MENTION = re.compile(rf"\b(?:{ANY})\b")
# A citation right before or after a reference: one of the four, or a name or a year of another.
YEAR = r"(?:(?:,? \(?|\()(?:EACL |NAACL )?\d{4}\)?)"
BEFORE = re.compile(
    rf"(?:\b(?:{ANY})(?: paper)?{YEAR}?[,:]? \(?|(?P<other>[A-Z]\w+,|{YEAR}[,:]?) )$"
)
AFTER = re.compile(rf"^ of (?:the )?(?:{ANY}|(?P<other>[A-Z]\w+))\b")
KINDS = {"section": "sections", "sec.": "sections", "appendix": "sections", "table": "tables"}
KINDS |= {"figure": "figures", "fig.": "figures", "equation": "equations", "eq.": "equations"}
KINDS |= {"algorithm": "algorithms", "appendices": "sections"}
NUMBER = r"\(?(?:\d+(?:\.\d+)*|[A-I](?:\.\d+)*)\b\)?"
REFERENCE = re.compile(
    r"\b(?P<kind>section|sec\.|appendix|appendices|table|figure|fig\.|equation|eq\.|algorithm)s? "
    rf"(?P<numbers>{NUMBER}(?:(?:, | and |, and | or | to |-){NUMBER}(?![\w.-]*\w))*)",
    re.IGNORECASE,
)
CHAINED = re.compile(r"^(?:,| and|;|,? or|, and)? ?$")


def paper_of(match):
    """The paper that a match of MENTION, BEFORE or AFTER names; "other" for another one."""
    return next((name for name in (*PAPERS, "other") if match.groupdict().get(name)), None)


def references(text, page=None):
    """Yields (paper, kind, numbers) of every reference to one of the four papers.

    Args:
        text: content of a file.
        page: paper that the file is about, if there is one.
    """
    text = re.sub(r"\s*\n\s*(?:# )?", " ", text)
    mentions = [(match.start(), paper_of(match)) for match in MENTION.finditer(text)]
    owner, end = None, 0
    for match in REFERENCE.finditer(text):
        before = BEFORE.search(text[max(0, match.start() - 60) : match.start()])
        after = AFTER.search(text[match.end() : match.end() + 60])
        is_chained = owner is not None and CHAINED.match(text[end : match.start()])
        if after:
            owner = paper_of(after)
        elif before:
            owner = paper_of(before)
        elif not is_chained:
            cited = [paper for start, paper in mentions if start < match.start()]
            owner = page or (cited or [paper for _, paper in mentions][:1] or [None])[-1]
        end = match.end()
        if owner in PAPERS:
            yield (
                owner,
                KINDS[match["kind"].lower()],
                re.findall(r"[\dA-I][\d.]*", match["numbers"]),
            )


def unknown(paper, kind, number):
    """True if a paper does not have what a reference names."""
    if kind == "sections":
        return number.rstrip(".") not in PAPERS[paper].sections.split()
    return not 1 <= int(number.rstrip(".")) <= getattr(PAPERS[paper], kind)


def all_references(path):
    page = path.stem if path.stem in PAPERS else None
    return list(references(path.read_text(), page))


def test_references_name_what_the_papers_have():
    wrong = {
        (str(path.relative_to(ROOT)), paper, kind, number)
        for path in FILES
        for paper, kind, numbers in all_references(path)
        for number in numbers
        if unknown(paper, kind, number)
    }
    assert wrong == set()


def test_all_papers_are_referred_to():
    """The search finds references at all, in every kind of file."""
    result = [(path, *reference) for path in FILES for reference in all_references(path)]
    assert {paper for _, paper, *_ in result} == set(PAPERS)
    assert {"section", "table", "figure"} <= {kind.removesuffix("s") for _, _, kind, _ in result}
    folders = {path.relative_to(ROOT).parts[0] for path, *_ in result}
    packages = {"longsum_jax", "longsum_plan"}
    assert folders == packages | {"configs", "benchmarks", "studies", "docs", "tests"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hepos (Huang et al. 2021, section 5.1)", [("hepos", "sections", ["5.1"])]),
        ("Huang et al.\n# 2021, section 3.1.", [("hepos", "sections", ["3.1"])]),
        ("AWESOME has it (see section 5.3)", [("awesome", "sections", ["5.3"])]),
        ("AWESOME, appendix A.3", [("awesome", "sections", ["A.3"])]),
        ("LSG, tables 4, 5 and 16", [("lsg", "tables", ["4", "5", "16"])]),
        ("of table 12 of the Hepos paper, unlike LSG's", [("hepos", "tables", ["12"])]),
        ("LOCOST, equations 1 to 9", [("locost", "equations", ["1", "9"])]),
        ("LSG and T5 (Raffel et al. 2020, section 9.9)", []),
        ("LSG beside PEGASUS, section 7.1, table 99", []),
        ("table 99 of nothing that is cited", []),
    ],
)
def test_the_paper_of_a_reference(text, expected):
    result = list(references(text))
    assert result == expected
    for paper, kind, numbers in expected:
        assert unknown(paper, kind, numbers[-1])


def test_a_page_about_a_paper_refers_to_it():
    text = "LSG beside it, as in section 9 (Rae et al. 2020, algorithm 2)."
    assert list(references(text, page="awesome")) == [("awesome", "sections", ["9"])]
