"""Leaves out parts of an extracted sentence that point to what a summary does not show.

These are headings and list marks in front of a sentence, and references to
figures, tables, sections and notes that are not needed for its grammar.
"""

import re

from longsum_jax.ranking.wording import capitalized
from longsum_jax.text.boundaries import NOTE_MARK

_KIND = r"(?:supplementary|supplemental|suppl\.|supporting|extended data|additional)"
_PART = (
    rf"(?:{_KIND} (?:information|files?|materials?|methods|data|notes?)|(?:{_KIND} )?"
    r"(?:(?:sub-?)?sections?|sect?s?\.|chapters?|ch\.|parts?|appendi(?:x|ces)|annex(?:es)?|"
    r"attachments?|exhibits?|schedules?|tables?|tabs?\.|figures?|figs?\.?|box(?:es)?|"
    r"equations?|eqs?\.|items?|paragraphs?|examples?|listings?|algorithms?|notes?|pages?|"
    r"pp?\.))"
)
# Alternatives exclude each other and repetitions are few, so that the search
# takes linear time.
_NUMBER = (
    r"(?:(?:(?-i:[A-Z]{1,2}\.)|[A-Z]{1,2})?-?\d[\w.]*|[A-Z]\b(?![.-]?\d)|"
    r"[IVXL]{2,5}\b(?!-?\d)|<dig>[a-h]?)(?:\([a-z]\))?"
)
_NUMBERS = rf"{_NUMBER}(?:(?:, ?| ?[\u2013-] ?| ?& ?|,? and | to | or ){_NUMBER}){{0,4}}"
_PLACE = r"(?:above|below|overleaf|opposite|left|right|attached)"
_OF = (
    r" of (?:the|this) (?:last |previous |present |full )?"
    r"(?:minutes|report|document|paper|article|agreement|guide|manual)"
)
_REFERENCE = (
    rf"(?:{_PART}(?:\s|(?<=\.)){_NUMBERS}(?: {_PLACE}|{_OF})?|\u00a7{{1,2}}\s?{_NUMBERS}|"
    rf"{_PART} {_PLACE}|{_PLACE})"
)
_SEE = r"(?:please )?(?:see(?: also)?|cf\.|compare|refer to)"
_SHOWN = (
    r"as (?:also )?(?:shown|described|discussed|listed|noted|illustrated|given|mentioned|"
    r"summari[sz]ed|detailed|outlined|reported|presented|explained|defined|depicted)"
)
_ELSEWHERE = rf"(?:above|below|earlier|previously|in (?:the )?(?:{_REFERENCE}))"
_IN_BRACKETS = re.compile(
    rf"(?<!\s)\s*(?:[(\[](?:(?:{_SEE}|in|{_SHOWN} in) (?:the )?)?{_REFERENCE}"
    rf"(?:(?:[,;:] ?|,? and (?:in )?){_REFERENCE}){{0,4}}[)\]](?!\()|"
    # "(see the notes of the author)", "(screenshot attached)"
    rf"\({_SEE} [^()]{{1,80}}\)|"
    r"\((?!no )(?:[a-z]+ ){0,3}(?:attached|enclosed)\))",
    re.IGNORECASE,
)
# "... was refused; see the house rules.", "..., as shown in Table 2 below."
_AT_END = re.compile(
    rf"(?:;\s+{_SEE} [^;.()]{{1,60}}|, (?:{_SEE} {_REFERENCE}|{_SHOWN} {_ELSEWHERE}))"
    r"(?=\.?\Z)",
    re.IGNORECASE,
)
_INSIDE = re.compile(rf", {_SHOWN} {_ELSEWHERE},(?= )", re.IGNORECASE)
_AT_BEGINNING = re.compile(
    rf"{_SHOWN} {_ELSEWHERE},\s+(?=[^\W\d_])", re.IGNORECASE
)
_NOTE_MARKS = re.compile(
    rf"(?:(?<=[.,;!?])|(?<=[.,!?][\"\u201d]))(?:{NOTE_MARK})+"
)
# the mark of a note: of the sentence before, "(1) The", or of Markdown, "[^1]: The"
_LABEL = re.compile(r"\A(?:\(\d{1,2}\)|\[\^[\w-]{1,20}\]:)\s+(?=[^\W\d_a-z])")
# One of these is in every reference; faster to search.
_SIGNS = re.compile(
    r"[(\[][a-z\d\u00a7^]|[,;] (?:see|as|cf|please)\b|\Aas ", re.IGNORECASE
)
_FEWEST_WORDS = 3

MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
_MOST_HEADING_WORDS = 8
_SMALL_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "at",
        "by",
        "for",
        "from",
        "in",
        "of",
        "on",
        "or",
        "the",
        "to",
        "vs",
        "with",
    ]
)
_USUAL_BEGINNING = re.compile(
    r"(?:A|All|An|As|At|By|For|From|He|I|If|In|It|No|Our|She|Some|The|There|These|They|"
    r"This|To|We|When|You)\b"
)
_LETTER = r"(?:\((?:[a-z]|[ivx]{1,5})\)|(?:[a-z]|[ivx]{2,5})\))"
_LETTER_MARK = re.compile(rf"\A{_LETTER}\s+(?=\S)")
_LIST_MARK = re.compile(
    rf"(?:{_LETTER}|\(\d{{1,2}}\)|\d{{1,3}}[.)]|"
    r"[\u2022\u2023\u25e6\u25aa\u25cf*-])\s+(?=\S)"
)
_INNER_MARK = re.compile(r"\s\(?(?:[b-h]|i[iv]{1,2}|[2-9])\)\s")
# "2.1 The", and "[12] The" in judgments
_SECTION_NUMBER = re.compile(
    r"\A(?:\d{1,2}(?:\.\d{1,2}){1,3}\.?|\[\d{1,4}\])\s+(?=[^\W\d_a-z])"
)
_FEWEST_SECTIONS = 3


def without_references(sentence: str) -> str:
    """Leaves out references that a summary cannot follow: "(see Table 2)", "as noted above"."""
    if _SIGNS.search(sentence) is None:
        return sentence
    result = _LABEL.sub("", _NOTE_MARKS.sub("", sentence))
    result = _IN_BRACKETS.sub("", result)
    result = _INSIDE.sub("", result)
    result = _AT_END.sub("", result)
    beginning = _AT_BEGINNING.match(result)
    if beginning is not None:
        rest = result[beginning.end() :]
        if result[0].isupper():
            rest = capitalized(rest)
        result = rest
    return result if len(result.split()) >= _FEWEST_WORDS else sentence


def numbers_paragraphs(text: str) -> bool:
    """Returns True if several lines of a text begin with numbers such as "2.1" or "[12]"."""
    lines = (line.lstrip() for line in text.split("\n"))
    count = sum(_SECTION_NUMBER.match(line) is not None for line in lines)
    return count >= _FEWEST_SECTIONS


def body(passage: str, *, is_numbered: bool) -> str:
    """Returns the words of a passage without headings and list marks in front of them, as a line.

    Args:
        passage: whole lines of a document, with their line breaks.
        is_numbered: result of ``numbers_paragraphs`` for the document.
    """
    lines = [line.strip() for line in passage.split("\n") if line.strip()]
    while len(lines) > 1 and _is_heading(*lines[:2]):
        del lines[0]
    if lines and _INNER_MARK.search(lines[0]) is None:
        lines = _without_marks(lines, is_numbered)
    return " ".join(" ".join(lines).split())


def _is_heading(line: str, following: str) -> bool:
    """Returns True if a line is a heading, and the following one begins a sentence."""
    if MARKDOWN_HEADING.match(line):
        return True
    words = line.split()
    if len(words) > _MOST_HEADING_WORDS or not line[-1].isalnum():
        return False
    letters = [char for char in line if char.isalpha()]
    first = following.split()[0]
    begins = following[0].isupper() and not first.isupper()
    if len(letters) > 3 and all(map(str.isupper, letters)):
        return begins or _USUAL_BEGINNING.match(following) is not None
    titled = all(
        word[0].isupper() or word[0].isdigit() or word in _SMALL_WORDS
        for word in words
    )
    return (
        titled
        and _USUAL_BEGINNING.match(line) is None
        and _USUAL_BEGINNING.match(following) is not None
    )


def _without_marks(lines: list[str], is_numbered: bool) -> list[str]:
    """Returns lines without the marks of list items, and without the number of a paragraph.

    Later lines of other passages than list items may begin with a number of
    their sentence.
    """
    mark = _LIST_MARK.match(lines[0])
    if mark is not None:
        rest = [_LETTER_MARK.sub("", line) for line in lines[1:]]
        return [lines[0][mark.end() :], *rest]
    if is_numbered:
        return [_SECTION_NUMBER.sub("", lines[0]), *lines[1:]]
    return lines
