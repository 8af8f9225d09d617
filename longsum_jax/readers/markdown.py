"""Markdown (CommonMark and GitHub tables): headings become structure, markup is removed."""

import html
import re
from collections.abc import Iterable, Iterator

from longsum_jax.errors import counted
from longsum_jax.readers.apart import put_back, set_apart
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

_FENCE = re.compile(r"[ \t]*(`{3,}(?!.*`)|~{3,})")
_INDENTED = re.compile(r"(?: {4}| {0,3}\t)[ \t]*\S")
# Blocks that indented lines belong to: items, admonitions, definitions, footnotes.
_HOLDS_INDENTED = re.compile(r"(?:[-*+]|\d{1,9}[.)])[ \t]|!!!|\?\?\?|:|\[\^")
_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})")
_QUOTE = re.compile(r"^(?: {0,3}>[ \t]?)+")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-*:?[ \t]*)+")
# A link target looks like an address or a path; "[Ann]: Yes" and "[00:01]: Yes" are speech.
_DEFINITION = re.compile(
    r" {0,3}\[(?!\^)[^\]]+\]:[ \t]*(?:<[^<>]*>|(?=\S*?[/.#:]\w)\S++)"
    r"(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?[ \t]*"
)
_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(.*?\n)(?:\1|\.\.\.)[ \t]*\n", re.DOTALL)
_KEY = re.compile(r"(?:\s*#.*\n)*\s*[\w.\"'-]+(?::|[ \t]*=)\s")  # after comments
_TITLE = re.compile(r"^title(?::|[ \t]*=)[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)

_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
_ROW = re.compile(r"[ \t]*\|")
_HARD_BREAK = re.compile(r"(?:  |\\|\|[ \t]*)$")  # by two spaces, a backslash, or the end of a row

_IMAGE = re.compile(r"!\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])")
_LINK = re.compile(r"\[([^\[\]]*)\](?:\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\])")
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]{1,80}\](?!:)")
_BOX = re.compile(rf"^({_ITEM.pattern}+)\[[ xX]\][ \t]", re.MULTILINE)  # checkbox of a task
_ATTRIBUTES = re.compile(r"[ \t]+\{[ \t]*[#.][^{}]*\}[ \t]*\Z")  # attributes of a heading
_AUTOLINK = re.compile(r"<((?:https?|mailto):[^<>\s]+)>")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
# Bounded, so that unclosed marks are cheap.
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.{1,1000}?)(?<=\S)\1", re.DOTALL)
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*]{1,1000}?)(?<=[^\s*])\*(?![\w*])")
_UNDERSCORES = re.compile(r"(?<![\w_])_(?=[^\s_])([^_]{1,1000}?)(?<=[^\s_])_(?![\w_])")
_STRUCK = re.compile(r"~~(?=\S)(.{1,1000}?)(?<=\S)~~", re.DOTALL)
# Code, a formula, an escaped character or line break, or a character entity.
_LITERAL = re.compile(
    r"(?<!`)(`{1,20})(?!`)(?P<code>.{1,1000}?)(?<!`)\1(?!`)"
    r"|(?P<formula>\$\$.{1,1000}?\$\$|\$(?=\S)[^$\n]{1,200}(?<=\S)\$(?!\d))"
    r"|\\(?P<escaped>[!-/:-@\[-`{-~\n])"
    r"|(?P<entity>&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});)"
)


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file has no text.
    """
    text, notes = source.decoded()
    title = None
    front = _FRONT_MATTER.match(text)
    if front is not None and _KEY.match(front.group(2)):
        text = text[front.end() :]
        named = _TITLE.search(front.group(2))
        title = named.group(1) if named else None
        notes.append("front matter left out")
    yield markdown_document(source, markdown_blocks(text), title=title, notes=notes)


def markdown_document(
    source: Source,
    parts: Iterable[tuple[Block, bool]],
    *,
    notes: list[str],
    title: str | None = None,
) -> Document:
    """Returns the document of blocks, without code blocks.

    Args:
        source: source of the blocks.
        parts: blocks and code flags, as yielded by ``markdown_blocks``.
        notes: notes about the document.
        title: title of the document; None uses the first heading of level 1.

    Raises:
        InputError: no text remains.
    """
    blocks = []
    num_code = 0
    for block, is_code in parts:
        if is_code and not source.options.keep_all:
            num_code += 1
        else:
            blocks.append(block)
    if num_code:
        notes = [*notes, f"{counted(num_code, 'block')} of code left out"]
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    return source.document(blocks, title=title, notes=notes)


def _without_comments(text: str) -> str:
    """Returns a text without comments; an unclosed comment is text."""
    # After the last comment end, a search from each comment start would scan the rest of the text.
    before, end, after = text.rpartition("-->")
    return _COMMENT.sub("", before + end) + after


def markdown_blocks(text: str) -> Iterator[tuple[Block, bool]]:
    """Yields headings, paragraphs and tables with False, and code blocks with True."""
    paragraph: list[str] = []

    def flush() -> Iterator[tuple[Block, bool]]:
        joined = _plain(_unwrapped(paragraph)).strip()
        paragraph.clear()
        if joined:
            yield Block(joined), False

    fence = None
    in_quote = False
    code: list[str] = []
    indented = _IndentedCode()
    for line in _without_comments(text).split("\n"):
        is_quoted = _QUOTE.match(line) is not None
        if fence is not None and in_quote and not is_quoted:  # the quote ends, and code in it
            fence = None
            yield Block("\n".join(code).strip("\n")), True
        if fence is not None:
            line = _QUOTE.sub("", line) if in_quote else line
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
                yield Block("\n".join(code).strip("\n")), True
            else:
                code.append(line)
            continue
        if not is_quoted and indented.takes(line, inside=bool(paragraph)):
            continue
        yield from indented.flush()
        line = _QUOTE.sub("", line)
        opening = _FENCE.match(line)
        heading = _ATX.fullmatch(line)
        if opening is not None:
            yield from flush()
            fence, code, in_quote = opening.group(1), [], is_quoted
        elif heading is not None:
            yield from flush()
            yield Block(_heading(heading.group(2) or ""), len(heading.group(1))), False
        elif paragraph and _SETEXT.fullmatch(line):
            title = _heading(" ".join(paragraph))
            paragraph.clear()
            yield Block(title, 1 if "=" in line else 2), False
        elif not line.strip() or _RULE.fullmatch(line):
            yield from flush()
        elif not _TABLE_RULE.fullmatch(line) and not _DEFINITION.fullmatch(line):
            paragraph.append(line)
    yield from flush()
    yield from indented.flush()
    if fence is not None:  # an unclosed fence
        yield Block("\n".join(code).strip("\n")), True


class _IndentedCode:
    """Collects code without a fence: indented lines that do not belong to an item above them."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._is_held = False

    def takes(self, line: str, *, inside: bool) -> bool:
        """Consumes a line of code; ``inside`` is True if the line may continue a paragraph."""
        goes_on = self._lines and not line.strip()
        if goes_on or (_INDENTED.match(line) and not (inside or self._is_held)):
            self._lines.append(line)
            return True
        if _ITEM.match(line) or (line.strip() and not (inside or line[0].isspace())):
            self._is_held = _HOLDS_INDENTED.match(line.lstrip()) is not None
        return False

    def flush(self) -> Iterator[tuple[Block, bool]]:
        """Yields the collected code."""
        if self._lines:
            yield Block("\n".join(self._lines).rstrip()), True
            self._lines = []


def _unwrapped(lines: list[str]) -> str:
    """Joins the lines of a paragraph if Markdown ignores the line break."""
    parts: list[str] = []
    last = ""
    for line in lines:
        starts_new = _ITEM.match(line) or _ROW.match(line) or _HARD_BREAK.search(last)
        if parts:
            parts.append("\n" if starts_new else " ")
        last = line if starts_new else line.lstrip()
        parts.append(last)
    return "".join(parts)


def _plain(text: str) -> str:
    """Returns running text without markup of emphasis, links, images, code and tags."""
    text = _LITERAL.sub(_as_text, text)
    for pattern, replacement in (
        (_BOX, r"\1"),
        (_IMAGE, ""),
        (_FOOTNOTE, ""),
        (_LINK, r"\1"),
        (_AUTOLINK, r"\1"),
        (_TAG, ""),
        (_STRONG, r"\2"),
        (_EMPHASIS, r"\1"),
        (_UNDERSCORES, r"\1"),
        (_STRUCK, r"\1"),
    ):
        text = pattern.sub(replacement, text)
    lines = [line.strip(" \t|") if "|" in line else line for line in text.split("\n")]
    return put_back("\n".join(lines))


def _as_text(literal: re.Match[str]) -> str:
    code, formula, escaped, entity = literal.group("code", "formula", "escaped", "entity")
    if code is not None:
        return set_apart(code.strip())
    return set_apart(formula or escaped or html.unescape(entity))


def _heading(text: str) -> str:
    return _plain(_ATTRIBUTES.sub("", text)).strip()
