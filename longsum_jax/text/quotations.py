"""Quotations and brackets of a line, which are found in time linear in its length."""

import re
from collections.abc import Iterator

LONGEST_QUOTATION = 1500  # characters; marks further apart are not a pair
# The rest of a quotation for each opening mark. No pattern looks far beyond the
# next opening mark of its kind, so the time is linear. Groups are never repeated
# possessively: before Python 3.11.5, `re` matches such groups wrongly.
_QUOTATIONS = {
    "\u201c": r"[^\u201c\u201d]*+\u201d",
    "\u201e": r"[^\u201e\u201c\u201d]*+[\u201c\u201d]",
    "\u00ab": r"[^\u00ab\u00bb]*+\u00bb",
    "\u00bb": r"(?<![^\s(\[\u2014\u2013-]\u00bb)(?=\S)[^\u00ab\u00bb]*+\u00ab",
    "\u300c": r"[^\u300c\u300d]*+\u300d",
    "\u300e": r"[^\u300e\u300f]*+\u300f",
    "\u300a": r"[^\u300a\u300b]*+\u300b",
    "\uff08": r"[^\uff08\uff09]*+\uff09",
    "(": r"[^()]*+(?:\([^()]*+\)[^()]*+)*\)",
    "[": r"[^\[\]]*+\]",
    '"': r'(?<![\w.,!?]")[^"]*+(?:(?<=[\s(])"(?=\w)[^"]*+(?<!\s)"(?!\w)[^"]*+){0,40}(?<!\s)"(?!\w)',
    "\u2018": r"(?<!\w\u2018)[^\u2018\u2019]*+(?:\u2019(?=\w)[^\u2018\u2019]*+)*\u2019(?!\w)",
    "'": r"(?<!\w')(?=[A-Z])[^']*+(?:(?<=\w)'(?=\w)[^']*+)*(?<=[.,!?])'(?!\w)",
}
_REST_OF_QUOTATION = {
    mark: re.compile(rest) for mark, rest in _QUOTATIONS.items()
}
_OPENING_MARK = re.compile("[" + re.escape("".join(_QUOTATIONS)) + "]")
# Without apostrophes, which are frequent.
_OPENING_MARK_BUT_APOSTROPHE = re.compile(
    "[" + re.escape("".join({*_QUOTATIONS} - {"'"})) + "]"
)
_QUOTING_APOSTROPHE = re.compile(r"'(?<!\w')[A-Z]")


def quotations(line: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of quotations and brackets."""
    start = 0
    has_apostrophes = _QUOTING_APOSTROPHE.search(line) is not None
    if has_apostrophes:
        pattern = _OPENING_MARK
    else:
        pattern = _OPENING_MARK_BUT_APOSTROPHE
    while opening := pattern.search(line, start):
        start = opening.end()
        rest = _REST_OF_QUOTATION[opening[0]].match(line, start)
        if rest is not None and rest.end() - start < LONGEST_QUOTATION:
            yield opening.start(), rest.end()
            start = rest.end()
