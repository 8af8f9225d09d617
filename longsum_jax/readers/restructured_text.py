"""reStructuredText: headings become structure; directives, code and markup are removed."""

import itertools
import re
import textwrap
from collections.abc import Iterator, Sequence

from longsum_jax.errors import counted
from longsum_jax.readers.apart import put_back, set_apart
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

# A line of at least three equal punctuation characters, above and below or only
# below a title.
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}[ \t]*")
# Directives, targets, footnotes and comments; "__ http://a.b" is a target.
_EXPLICIT = re.compile(r"\.\.(?:[ \t]|$)|__[ \t]+\S")
_DIRECTIVE = re.compile(
    r"\.\.[ \t]+(?:\|[^|]+\|[ \t]+)?([\w:+.-]+?)::[ \t]*(.*)"
)
# Directives with text as content.
_ADMONITIONS = (
    "note",
    "tip",
    "important",
    "hint",
    "warning",
    "caution",
    "danger",
    "attention",
)
_CHANGES = ("versionadded", "versionchanged", "deprecated")
_BODIES = (
    "error",
    "admonition",
    "seealso",
    "topic",
    "sidebar",
    "epigraph",
    "pull-quote",
    "highlights",
    "compound",
    "container",
    "list-table",
    "tab-set",
    "tab-item",
    "dropdown",
    "rubric",
)
_TEXT = frozenset((*_ADMONITIONS, *_CHANGES, *_BODIES))
# Start of a cell of a list table, except the first of a row.
_CELL = re.compile(r"(?<!\n)\n+ +-(?: |(?=\n|$))")
_DEEPEST = 20  # maximum nesting depth of directives that are read
_OPTION = re.compile(r"[ \t]*:[\w -]+:")
# ":Author: Anna Berg" in front of a document
_FIELD = re.compile(r":[A-Za-z][^:\n]*:(?:[ \t]|$)")
_DOCTEST = re.compile(r"[ \t]*>>> ")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\(?(?:\d{1,3}|#|[A-Za-z])[.)])[ \t]")
_TABLE_RULE = re.compile(r"[ \t]*(?:\+[-=+]+\+|=+(?: +=+)+)[ \t]*")
_GAP = re.compile(r"(?<==) +(?==)")  # between the columns of a simple table
_ROW = re.compile(r"[ \t]*\|[ \t].*\|[ \t]*")
_LINE = re.compile(r"[ \t]*\|(?:[ \t]+|$)")  # a line of verse or of an address

# Bounded, so that unclosed marks are cheap.
_FOOTNOTE = re.compile(r"[ \t]*\[(?:\d{1,4}|#[\w.-]{0,80}|\*)\]_")
_CITATION = re.compile(r"(\[[A-Za-z][\w.-]{0,80}\])_(?!\w)")
_ROLE = re.compile(
    r":([\w.+-]{1,40}(?::[\w.+-]{1,40}){0,2}):`([^`<]{1,1000}?)([ \t\n]*<[^`<>]{1,1000}>)?`"
)
_LINK = re.compile(
    r"(?<!`)`([^`<]{1,1000}?)[ \t\n]*(?:<[^`<>]{1,1000}>)?`__?(?!\w)"
)
_STRONG = re.compile(r"\*\*(?=\S)([^*]{1,1000}?)(?<=\S)\*\*")
_EMPHASIS = re.compile(
    r"(?<![\w*])\*(?=[^\s*])([^*]{1,1000}?)(?<=[^\s*])\*(?![\w*])"
)
_INTERPRETED = re.compile(
    r"(?<![\w`])`([^`]{1,1000})`(?::[\w.+-]{1,40}:)?(?![\w`])"
)
_TARGET = re.compile(r"(?<![\w`])_`([^`]{1,1000})`(?![\w`])")
# "name_" outside backquotes and emphasis.
_REFERENCE = re.compile(
    rf"`[^`]{{1,1000}}`|{_EMPHASIS.pattern}"
    r"|(?<![\w.:/\\-])([A-Za-z](?:[\w.+-]{0,80}[A-Za-z0-9])?)__?(?!\w)",
    re.DOTALL,
)
# A backslash escapes the next character, or removes a space, except in
# literals.
_ESCAPED = re.compile(r"``(.{1,1000}?)``(?!`)|\\(.)", re.DOTALL)
_NUMBERED_PAPERS = ("pep", "rfc")


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file has no text.
    """
    text, notes = source.decoded()
    lines = text.expandtabs(8).split("\n")
    reader = _RestructuredReader(keep_all=source.options.keep_all)
    if source.options.keep_all:
        start = 0
    else:
        start = _end_of_fields(lines)
    blocks = list(reader.blocks(lines[start:]))
    if start:
        notes.append("front matter left out")
    if reader.num_code:
        notes.append(f"{counted(reader.num_code, 'block')} of code left out")
    if reader.num_marks:
        notes.append(f"{counted(reader.num_marks, 'piece')} of markup left out")
    # The only heading of the highest level is the document's title.
    titles = [block.text for block in blocks if block.level == 1]
    title = titles[0] if len(titles) == 1 else None
    yield source.document(blocks, title=title, notes=notes)


def _end_of_fields(lines: Sequence[str]) -> int:
    """Returns the end of a field list at the start of a document; 0 if there is none."""
    index = next(
        (number for number, line in enumerate(lines) if line.strip()), 0
    )
    if not lines or _FIELD.match(lines[index]) is None:
        return 0
    while index < len(lines) and (
        _FIELD.match(lines[index]) or lines[index][:1].isspace()
    ):
        index += 1
    return index


class _RestructuredReader:
    """Reads the lines of a document.

    Attributes:
        num_code: number of removed code blocks.
        num_marks: number of removed directives, targets, footnotes and
            comments.
    """

    def __init__(self, *, keep_all: bool) -> None:
        self.num_code = 0
        self.num_marks = 0
        self._keep_all = keep_all
        # adornments of headings, highest level first
        self._adornments: list[tuple[str, bool]] = []

    def blocks(self, lines: Sequence[str], depth: int = 0) -> Iterator[Block]:
        """Yields headings and paragraphs; ``depth`` is the number of enclosing directives."""
        index = 0
        while index < len(lines):
            heading = self._heading(lines, index)
            if heading is not None:
                index, block = heading
                yield block
            elif _EXPLICIT.match(lines[index]):
                end = index + 1
                if not _is_empty_comment(lines, index):
                    end = _end_of_indented(lines, end)
                yield from self._explicit(lines[index:end], depth)
                index = end
            elif lines[index].strip() and not _ADORNMENT.fullmatch(
                lines[index]
            ):
                end = _end_of_paragraph(lines, index)
                paragraph = lines[index:end]
                yield from self._paragraph(paragraph)
                index = end
                if _opens_code(paragraph):
                    index = _end_of_indented(
                        lines, end, _indentation(paragraph[-1])
                    )
                    yield from self._code(lines[end:index])
            else:
                index += 1

    def _heading(
        self, lines: Sequence[str], index: int
    ) -> tuple[int, Block] | None:
        """Returns the end of the heading at a line, and the heading; None if there is none."""
        above = _ADORNMENT.fullmatch(lines[index])
        title = index + 1 if above else index
        if title + 1 >= len(lines) or not lines[title].strip():
            return None
        below = _ADORNMENT.fullmatch(lines[title + 1])
        if below is None or len(lines[title + 1].rstrip()) < len(
            lines[title].strip()
        ):
            return None
        if _ADORNMENT.fullmatch(lines[title]) or _is_other(above, below):
            return None
        adornment = (below.group(1), above is not None)
        if adornment not in self._adornments:
            self._adornments.append(adornment)
        level = min(1 + self._adornments.index(adornment), 9)
        return title + 2, Block(_plain(lines[title]).strip(), level)

    def _explicit(self, lines: Sequence[str], depth: int) -> Iterator[Block]:
        """Yields the text of a directive; targets, footnotes and comments have none."""
        directive = _DIRECTIVE.match(lines[0])
        if self._keep_all or depth == _DEEPEST:
            yield Block("\n".join(lines).strip())
        elif directive is None or directive.group(1).lower() not in _TEXT:
            self.num_marks += 1
        else:
            text = textwrap.dedent("\n".join(lines[1:]))
            if directive.group(1).lower() == "list-table":
                text = _CELL.sub(" | ", text).replace("* - ", "* ")
            body = text.split("\n")
            options = 0
            while options < len(body) and _OPTION.match(body[options]):
                options += 1
            yield from self.blocks(
                [directive.group(2), *body[options:]], depth + 1
            )

    def _paragraph(self, lines: Sequence[str]) -> Iterator[Block]:
        if _DOCTEST.match(lines[0]):
            yield from self._code(lines)
            return
        text = _plain(_unwrapped(lines)).strip()
        # one of the two colons is text, none after a space
        if _opens_code(lines):
            if text[-3:-2].strip() == "":
                text = text[:-2].rstrip()
            else:
                text = text[:-1]
        if text:
            yield Block(text)

    def _code(self, lines: Sequence[str]) -> Iterator[Block]:
        if not any(map(str.strip, lines)):
            return
        if self._keep_all:
            yield Block("\n".join(lines).strip("\n"))
        else:
            self.num_code += 1


def _is_empty_comment(lines: Sequence[str], index: int) -> bool:
    """Returns True if a comment is empty: indented lines after it are a quote."""
    return (
        lines[index].strip() == ".."
        and not "".join(lines[index + 1 : index + 2]).strip()
    )


def _is_other(above: re.Match[str] | None, below: re.Match[str]) -> bool:
    return above is not None and above.group(1) != below.group(1)


def _opens_code(lines: Sequence[str]) -> bool:
    return lines[-1].rstrip().endswith("::")


def _end_of_paragraph(lines: Sequence[str], index: int) -> int:
    while index < len(lines) and lines[index].strip():
        index += 1
    return index


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end_of_indented(lines: Sequence[str], index: int, beyond: int = 0) -> int:
    """Returns the end of further indented lines, without trailing empty lines."""
    end = index
    for number in range(index, len(lines)):
        if lines[number].strip():
            if _indentation(lines[number]) <= beyond:
                break
            end = number + 1
    return end


def _unwrapped(lines: Sequence[str]) -> str:
    """Joins the lines of a paragraph; list items, table rows and fields start new lines."""
    parts: list[str] = []
    columns: list[int] = []  # starts of the columns of a simple table
    for line in lines:
        if _TABLE_RULE.fullmatch(line):
            if line.lstrip().startswith("="):
                columns = [0, *(gap.end() for gap in _GAP.finditer(line))]
            continue
        if columns:
            if not line.strip(" -"):  # line below a head of several columns
                continue
            # A cell of several columns has no space in front of a column.
            starts = [
                start
                for start in itertools.takewhile(len(line).__gt__, columns)
                if not line[start - 1 : start].strip()
            ]
            cells = [
                line[start:end].strip()
                for start, end in itertools.pairwise([*starts, None])
            ]
            # A row without a first cell continues the row above.
            if parts:
                parts.append("\n" if cells[0] else " ")
            parts.append(" | ".join(filter(None, cells)))
            continue
        is_row = _ROW.fullmatch(line) is not None
        is_line = not is_row and _LINE.match(line) is not None
        if is_line:
            line = _LINE.sub("", line, count=1)
        begins = is_row or is_line or _ITEM.match(line) or _FIELD.match(line)
        if parts:
            parts.append("\n" if begins else " ")
        if is_row:
            cells = line.strip(" |").split("|")
            parts.append(" | ".join(cell.strip() for cell in cells))
        else:
            parts.append(line.strip())
    return "".join(parts)


def _plain(text: str) -> str:
    """Returns running text without markup of roles, links, literals, emphasis and footnotes."""
    text = _ESCAPED.sub(_as_text, text)
    text = _REFERENCE.sub(lambda match: match[match.lastindex or 0], text)
    text = _ROLE.sub(_shown, text)
    for pattern, replacement in (
        (_FOOTNOTE, ""),
        (_CITATION, r"\1"),
        (_TARGET, r"\1"),
        (_LINK, r"\1"),
        (_STRONG, r"\1"),
        (_EMPHASIS, r"\1"),
        (_INTERPRETED, r"\1"),
    ):
        text = pattern.sub(replacement, text)
    return put_back(text)


def _shown(role: re.Match[str]) -> str:
    """Returns the visible text of a role: its text, "PEP 8", or the last part of "~os.path"."""
    name, text, target = role.groups()
    if target is not None:
        return text
    if name in _NUMBERED_PAPERS:
        return f"{name.upper()} {text.partition('#')[0]}"
    if text.startswith("~"):
        return text[1:].rpartition(".")[2]
    return text.removeprefix("!")


def _as_text(match: re.Match[str]) -> str:
    literal, char = match.groups()
    if literal is not None:
        return set_apart(literal)
    return "" if char.isspace() else set_apart(char)
