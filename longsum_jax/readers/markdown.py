"""Markdown (CommonMark and GitHub's extensions), parsed by markdown-it-py: headings
become structure, markup is removed.
"""

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from longsum_jax.errors import counted
from longsum_jax.readers.document import PARAGRAPH, Block, Document
from longsum_jax.readers.html_tree import BLOCK, with_powers
from longsum_jax.readers.source import Source

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

    _BlockRule = Callable[[StateBlock, int, int, bool], bool]

_FRONT_MATTER = re.compile(
    r"\A(---|\+\+\+)[ \t]*\n(.*?\n)(?:\1|\.\.\.)[ \t]*\n", re.DOTALL
)
# after comments
_KEY = re.compile(r"(?:\s*#.*\n)*\s*[\w.\"'-]+(?::|[ \t]*=)\s")
_TITLE = re.compile(
    r"^title(?::|[ \t]*=)[ \t]*[\"']?(.*?)[\"']?[ \t]*$", re.MULTILINE
)
# The first line of a note of GitHub or Obsidian: "> [!NOTE]"
_ALERT = re.compile(r"\A\[!\w+\][+-]?[ \t]*\n?")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)

# A link target looks like an address or a path; "[Ann]: Yes" and "[00:01]: Yes"
# are speech.
_DEFINITION = re.compile(r"\[(?!\^)[^\]]+\]:\s*(?:<[^<>]*>|(?=\S*?[/.#:]\w)\S)")
# Admonitions, definitions and footnotes, to which indented lines after them
# belong.
_HOLDS_INDENTED = re.compile(r"!!!|\?\?\?|:[ \t]|\[\^")
# Maximum depth of blocks (30 quotes, 15 lists) and of brackets in the text of a
# link; deeper marks are text. The time to parse brackets without end is
# proportional to the latter.
_MAX_BLOCKS = 30
_MAX_BRACKETS = 5
# Characters without which a paragraph has no markup.
_MARK = re.compile(r"[\\`*_\[<&$~]|  \n")
# A formula, or the mark of a footnote. Bounded, so that unclosed marks are
# cheap.
_LITERAL = re.compile(
    r"(?P<formula>\$\$.{1,1000}?\$\$|\$(?=\S)[^$\n]{1,200}(?<=\S)\$(?!\d))"
    r"|\[\^[^\[\]\s]{1,80}\](?!:)",
    re.DOTALL,
)
_BOX = re.compile(r"\[[ xX]\][ \t]+")  # checkbox of a task
# attributes of a heading
_ATTRIBUTES = re.compile(r"[ \t]+\{[ \t]*[#.][^{}]*\}[ \t]*\Z")
_LIST_STARTS = ("bullet_list_open", "ordered_list_open")
_LIST_ENDS = ("bullet_list_close", "ordered_list_close")
_CODE = ("fence", "code_block")
_BLOCK_BORDERS = frozenset(
    (
        "paragraph_open",
        "paragraph_close",
        "heading_open",
        "blockquote_open",
        "table_open",
        *_CODE,
    )
)
_BREAKS = {"softbreak": " ", "hardbreak": "\n"}
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z1-6]*)")
_NEW_CELL = "\uffff"  # a noncharacter, which is not in texts
# An element that is not text, unless text follows it in its line.
_NO_TEXT = re.compile(
    r"<(?:script|style)[\s>](?!.*</(?:script|style)>.*\S)", re.IGNORECASE
)
_NO_TEXT_END = re.compile(r"</(?:script|style)>", re.IGNORECASE)


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
    yield markdown_document(
        source, markdown_blocks(text), title=title, notes=notes
    )


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
    # After the last comment end, a search from each comment start would scan
    # the rest of the text.
    before, end, after = text.rpartition("-->")
    return _COMMENT.sub("", before + end) + after


def markdown_blocks(text: str) -> Iterator[tuple[Block, bool]]:
    """Yields headings, paragraphs, lists and tables with False, and code blocks with True."""
    text = _without_comments(text.replace("\r\n", "\n"))
    references: dict[str, Any] = {}
    tokens = iter(_parser(_MAX_BLOCKS + 2).parse(text, references))
    lines: list[str] = []  # lines of the current block
    mark = ""  # indentation and mark of a list item, until its first paragraph
    depth = 0  # number of enclosing lists
    for token in tokens:
        kind = token.type
        if kind in _LIST_ENDS:
            depth -= 1
        # A list without empty lines between its items is one block.
        if (
            lines
            and not token.hidden
            and (depth == 0 or kind in _BLOCK_BORDERS)
        ):
            yield Block("\n".join(lines).strip()), False
            lines = []
        if kind in _LIST_STARTS:
            depth += 1
        elif kind == "list_item_close":
            mark = ""  # unused if the item is empty
        elif kind == "list_item_open":
            mark = f"{'  ' * (depth - 1)}{token.info}{token.markup} "
        elif kind == "paragraph_open":
            content = _ALERT.sub("", next(tokens).content)
            if mark:
                content = _BOX.sub("", content)
            line = _plain(content, references)
            if line.strip():
                indented = re.sub(r"\n(?!\n)", "\n" + " " * len(mark), line)
                lines.append(mark + indented)
                mark = ""
        elif kind == "heading_open":
            title = _plain(
                _ATTRIBUTES.sub("", next(tokens).content), references
            )
            if title.strip():
                yield Block(" ".join(title.split()), int(token.tag[1])), False
        elif kind == "table_open":
            yield Block("\n".join(_rows(tokens, references))), False
        elif kind in _CODE:
            yield Block(token.content.strip("\n")), True


def _rows(
    tokens: "Iterator[Token]", references: dict[str, Any]
) -> Iterator[str]:
    """Yields the rows of a table, and consumes its tokens."""
    cells: list[str] = []
    for token in tokens:
        if token.type == "inline":
            cells.append(_plain(token.content, references))
        elif token.type == "tr_close":
            yield " ".join(" | ".join(cells).split()).strip(" |")
            cells.clear()
        elif token.type == "table_close":
            return


def _plain(text: str, references: dict[str, Any]) -> str:
    """Returns running text without markup, on one line unless it contains hard line breaks."""
    if _MARK.search(text) is None:
        return " ".join(line.strip(" \t") for line in text.split("\n"))
    parser = _parser(_MAX_BRACKETS)
    tokens: list[Token] = []
    parser.inline.parse(with_powers(text), parser, references, tokens)
    parts = []
    for token in tokens:
        if token.type in ("text", "text_special"):
            parts.append(token.content)
        elif token.type == "code_inline":
            parts.append(token.content.strip())
        elif token.type in _BREAKS:
            parts.append(_BREAKS[token.type])
        elif token.type == "html_inline":
            parts.append(_separator(token.content))
    paragraphs = (
        " | ".join(filter(None, map(str.strip, cells.split(_NEW_CELL))))
        for cells in "".join(parts).split(PARAGRAPH)
    )
    return PARAGRAPH.join(filter(None, paragraphs))


def _separator(tag: str) -> str:
    """Returns the characters between the texts before and after a tag of HTML."""
    match = _TAG.match(tag)
    if match is None:
        return ""
    name = match.group(1).lower()
    if name == "br":
        return "\n"
    if name in ("td", "th"):
        return _NEW_CELL
    return PARAGRAPH if BLOCK.fullmatch(name) else ""


@functools.cache
def _parser(max_nesting: int) -> "MarkdownIt":
    """Returns a parser of blocks and, separately, of their running text."""
    from markdown_it import MarkdownIt, rules_block  # only for Markdown: 50 ms

    def limited(rule: "_BlockRule") -> "_BlockRule":
        return lambda state, *where: (
            state.level < _MAX_BLOCKS and rule(state, *where)
        )

    def definition(
        state: "StateBlock", start: int, end: int, silent: bool
    ) -> bool:
        is_definition = _DEFINITION.match(
            state.src, state.bMarks[start] + state.tShift[start]
        )
        return is_definition is not None and rules_block.reference(
            state, start, end, silent
        )

    def indented_code(
        state: "StateBlock", start: int, end: int, silent: bool
    ) -> bool:
        if state.is_code_block(start):
            is_text = state.env.get("holds_indented", False)
            return not is_text and rules_block.code(state, start, end, silent)
        offset = state.bMarks[start] + state.tShift[start]
        state.env["holds_indented"] = (
            _HOLDS_INDENTED.match(state.src, offset) is not None
        )
        return False

    def element_without_text(
        state: "StateBlock", start: int, end: int, silent: bool
    ) -> bool:
        offset = state.bMarks[start] + state.tShift[start]
        if _NO_TEXT.match(state.src, offset) is None:
            return False
        if "last_end" not in state.env:
            ends = [tag.start() for tag in _NO_TEXT_END.finditer(state.src)]
            state.env["last_end"] = max(ends, default=0)
        # An element without an end is text.
        return offset < state.env["last_end"] and rules_block.html_block(
            state, start, end, silent
        )

    parser = MarkdownIt("commonmark", {"maxNesting": max_nesting})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.enableOnly(["block"])
    others = ["paragraph", "reference", "blockquote"]
    blocks = parser.block.ruler
    blocks.at("list", limited(rules_block.list_block), {"alt": others})
    blocks.at(
        "blockquote",
        limited(rules_block.blockquote),
        {"alt": [*others, "list"]},
    )
    # Other tags of blocks are inline tags: they are removed, and their text
    # remains.
    blocks.at("html_block", element_without_text, {"alt": others})
    blocks.at("reference", definition)
    blocks.at("code", indented_code)
    parser.inline.ruler.before("escape", "literal", _literal)
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


def _literal(state: "StateInline", silent: bool) -> bool:
    """Reads a formula as text, and removes the mark of a footnote."""
    literal = _LITERAL.match(state.src, state.pos)
    if literal is None:
        return False
    if not silent and literal["formula"]:
        state.push("text", "", 0).content = " ".join(literal["formula"].split())
    state.pos = literal.end()
    return True
