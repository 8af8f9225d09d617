"""Removes the marks of Markdown from a text for display, without moving its sentences.

Documents from data files may contain Markdown that no reader has parsed. The
rules are cautious: formulas, names with underscores and code remain unchanged.
"""

import re
from collections.abc import Iterator, Sequence

_ANY_MARK = re.compile(r"[*_`~\\#|=>]|\]\(|^[ \t]*[-+]", re.MULTILINE)

# Marks of lines. Possessive quantifiers keep the time linear in the length of
# a line.
_FENCE = re.compile(r"[ \t]*(`{3,}+|~{3,}+)[^`]*$")
# also the underline of a heading
_RULE = re.compile(r" {0,3}([-*_=])(?:[ \t]*\1){2,}\s*$")
_TABLE_RULE = re.compile(
    r"(?=[^|]*\|)[ \t]*+\|?[ \t]*+:?-++:?[ \t]*+"
    r"(?:\|[ \t]*+:?-++:?[ \t]*+)*\|?\s*$"
)
_LINE_MARKS = (
    # quotation
    re.compile(r" {0,3}(?P<mark>(?:>[ \t]?)+)(?=[^\W\d]|[#*_`\[-])"),
    re.compile(r"[ \t]*(?P<mark>#{1,6}[ \t]+)(?=\S)"),  # heading
    re.compile(r"[ \t]*(?P<mark>\|[ \t]*)(?=\S)"),  # first cell of a row
)
_LINE_ENDS = (
    re.compile(r"^[ \t]*#{1,6}[ \t].*?(?<![ \t])(?P<mark>[ \t]+#+)\s*$"),
    re.compile(r"^[ \t]*\|.*?(?<![ \t])(?P<mark>[ \t]*\|)\s*$"),
)
_ITEM = re.compile(r"[ \t>]*([-*+])[ \t]+(?P<mark>\[[ xX]\][ \t]+)?(?=\S)")
BULLET = "\u2022"

# Marks in lines. Their texts are of limited length, so that unclosed marks are
# cheap.
_CODE = re.compile(
    r"(?<!`)(?P<open>`{1,2})(?!`)(?:[^`\n]|(?<!`)`(?!`)){1,300}?(?P<close>(?P=open))(?!`)"
)
_ESCAPE = re.compile(r"(?P<open>\\)[*_`#]")
_LINK = re.compile(
    r"(?P<open>!?\[)[^\[\]\n]{1,300}(?P<close>\]\((?=[^\s()]*[/.#:])[^\s()]{1,500}"
    r"(?:\([^\s()]{0,100}\)[^\s()]{0,100})?(?:[ \t]+\"[^\"\n]{0,200}\")?\))"
)
_STARS = re.compile(
    r"(?<![\w*])(?P<open>\*{1,3})(?=[^\s*])(?:[^*\n]|\n(?![ \t]*\n)){1,500}?(?<=[^\s*])"
    r"(?P<close>(?P=open))(?!\*)"
)
_UNDERSCORES = re.compile(
    r"(?<!\w)(?P<open>_{1,2})(?=[^\s_])(?:[^_\n]|\n(?![ \t]*\n)|(?<=\w)_(?=\w)){1,500}?(?<=[^\s_])"
    r"(?P<close>(?P=open))(?!\w)"
)
# of the cells of a table
_PADDING = re.compile(r"(?<=[^ \t\n|])(?P<open>[ \t]+)(?=[ \t]\|)")
_PYTHON_NAME = re.compile(r"__[a-z0-9]+__")  # not emphasis
# Emphasis is searched twice, for emphasis inside emphasis.
_INLINE_MARKS = (
    _CODE,
    _ESCAPE,
    _LINK,
    _STARS,
    _STARS,
    _UNDERSCORES,
    _UNDERSCORES,
    _PADDING,
)


def pieces_without_marks(text: str, ends: Sequence[int]) -> list[str]:
    """Splits a text at positions, and removes the marks of Markdown from the pieces.

    A mark may begin in one piece and end in another. The mark of a list item is
    replaced by a bullet.

    Args:
        text: text to split.
        ends: ascending end positions of the pieces, in characters of the text.

    Returns:
        One piece for every end.
    """
    starts = [0, *ends][:-1]
    if _ANY_MARK.search(text) is None:
        return [
            text[start:end] for start, end in zip(starts, ends, strict=True)
        ]
    characters = list(text)
    # In the copy, code and removed marks are replaced by characters that are
    # not marks.
    copy = list(text)
    for start, end in _code_lines(text, characters, copy):
        copy[start:end] = "x" * (end - start)
    for pattern in _INLINE_MARKS:
        for match in pattern.finditer("".join(copy)):
            if _PYTHON_NAME.fullmatch(match.group()):
                continue
            if pattern is _CODE or pattern is _ESCAPE:
                copy[match.start() : match.end()] = "x" * len(match.group())
            for name in match.re.groupindex:
                _remove(characters, copy, *match.span(name))
    return [
        "".join(characters[start:end])
        for start, end in zip(starts, ends, strict=True)
    ]


def _remove(
    characters: list[str], copy: list[str], start: int, end: int
) -> None:
    length = end - start
    characters[start:end] = [""] * length
    copy[start:end] = "." * length


def _code_lines(
    text: str, characters: list[str], copy: list[str]
) -> Iterator[tuple[int, int]]:
    """Removes the marks of lines, and yields the positions of lines of code blocks."""
    fence = ""  # of the current code block
    start = 0
    for line in text.splitlines(keepends=True):
        end = start + len(line)
        opening = _FENCE.match(line.rstrip())
        if fence:
            is_end = opening is not None and opening.group(1).startswith(fence)
            if is_end:
                _remove(characters, copy, start, end)
                fence = ""
            else:
                yield start, end
        elif opening is not None:
            _remove(characters, copy, start, end)
            fence = opening.group(1)
        elif _RULE.match(line) or _TABLE_RULE.match(line):
            _remove(characters, copy, start, end)
        else:
            _remove_line_marks(line, start, characters, copy)
        start = end


def _remove_line_marks(
    line: str, start: int, characters: list[str], copy: list[str]
) -> None:
    """Removes the marks of a quotation, heading, table row or list item."""
    for pattern in (*_LINE_ENDS, *_LINE_MARKS):
        match = pattern.match(line)
        if match is not None:
            _remove(
                characters,
                copy,
                start + match.start("mark"),
                start + match.end("mark"),
            )
    item = _ITEM.match(line)
    if item is not None:
        characters[start + item.start(1)] = BULLET
        copy[start + item.start(1)] = BULLET
        if item["mark"]:
            _remove(
                characters,
                copy,
                start + item.start("mark"),
                start + item.end("mark"),
            )
