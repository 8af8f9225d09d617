"""Nodes of a page's tree: their order, their lengths, and the blocks of text they form."""

import re
from collections.abc import Iterator
from typing import Any, Literal

from longsum_jax.readers.document import Block

HEADING_TAGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
HEADINGS = ", ".join(sorted(HEADING_TAGS))
MOST_OF_PAGE = 0.5  # maximum share of a page's text that one rule removes
BLOCK = re.compile(
    r"address|article|aside|blockquote|body|caption|center|dd|details|dialog|div|dl|dt|fieldset|"
    r"figcaption|figure|footer|form|h[1-6]|header|hgroup|hr|html|legend|li|main|nav|ol|p|pre|"
    r"section|summary|table|tbody|tfoot|thead|tr|ul"
)
_POWER = re.compile(
    r"(?<=\d)<sup>((?:&minus;|[-\u2212\u2013])?\d{1,3})</sup>", re.IGNORECASE
)
_SPACES = re.compile(r"[ \t\n\r\f\xa0]+")
_LONGEST_CELL = 300  # characters of a cell whose paragraphs are one text
_MOST_ANCESTORS = 12  # maximum ancestors examined of a heading or field


def text_length(node: Any) -> int:
    """Returns the number of characters of a node that are not white space."""
    return len("".join(node.text().split()))


def letters(text: str) -> str:
    """Returns the letters and digits of a text, without brackets and commas of notes."""
    return "".join(filter(str.isalnum, text))


def with_powers(text: str) -> str:
    """Returns HTML in which "10<sup>6</sup>", which would become "106", is "10^6"."""
    return _POWER.sub(r"^\1", text)


def remove(nodes: list[Any]) -> None:
    """Removes nodes with everything inside them; a node may be listed twice."""
    for node in outermost(nodes):
        node.decompose()


def outermost(nodes: list[Any]) -> list[Any]:
    """Returns the distinct nodes without those nested in another; removing them removes all."""
    by_id = {node.mem_id: node for node in nodes}
    result = []
    for node in by_id.values():
        parent = node.parent
        while parent is not None and parent.mem_id not in by_id:
            parent = parent.parent
        if parent is None:
            result.append(node)
    return result


def ancestors(node: Any, root: Any) -> Iterator[Any]:
    """Yields the nearest ancestors of an element, below the root of the text."""
    for _ in range(_MOST_ANCESTORS):
        node = node.parent
        if node is None or node.mem_id == root.mem_id:
            return
        yield node


def sibling(node: Any, step: Literal["prev", "next"]) -> Any:
    """Returns the nearest element before or after a node in its parent, or None."""
    result = getattr(node, step)
    while result is not None and not result.is_element_node:
        result = getattr(result, step)
    return result


def walk(root: Any) -> Iterator[tuple[Any, bool]]:
    """Yields every node at its start, and every element again at its end."""
    node = root
    while True:
        yield node, True
        child = None
        if node.is_element_node:
            child = node.first_child
        if child is not None:
            node = child
            continue
        while True:
            if node.is_element_node:
                yield node, False
            if node.mem_id == root.mem_id:
                return
            if node.next is not None:
                node = node.next
                break
            node = node.parent


def blocks_of(root: Any) -> Iterator[Block]:
    """Yields the blocks of a tree without recursion."""
    parts: list[str] = []  # texts of the current block
    level = 0
    in_pre = 0
    # id of the current table cell, whose paragraphs do not form blocks
    cell = None
    for node, is_start in walk(root):
        tag = node.tag
        if tag is None:  # comments and processing instructions
            continue
        if tag == "-text":
            parts.append(node.text_content or "")
        elif cell is not None and (tag == "br" or BLOCK.fullmatch(tag)):
            parts.append(" ")
        elif tag == "br":
            if is_start:
                parts.append("\n" if in_pre else "\v")
        elif tag in ("td", "th"):
            if is_start and any(map(str.strip, parts)):
                parts.append(" | ")
            if is_start and cell is None and _is_short_cell(node):
                cell = node.mem_id
            elif node.mem_id == cell:
                cell = None
        elif BLOCK.fullmatch(tag):
            text = _block_text(parts, keep_lines=in_pre > 0)
            if level:  # a heading is one paragraph
                text = re.sub("\n{2,}", "\n", text)
            parts.clear()
            if text:
                yield Block(text, level)
            if tag == "pre":
                in_pre += 1 if is_start else -1
            if tag in HEADING_TAGS:
                level = int(tag[1]) if is_start else 0
    text = _block_text(parts, keep_lines=False)
    if text:
        yield Block(text, level)


def _is_short_cell(cell: Any) -> bool:
    """Returns True if a cell is data of a table row, not part of a page's layout table."""
    if (
        not _has_neighbor(cell)
        or cell.css_first(f"{HEADINGS}, table, pre") is not None
    ):
        return False
    return len(cell.text()) <= _LONGEST_CELL


def _has_neighbor(cell: Any) -> bool:
    """Returns True if the row of a cell has another cell."""
    return (
        sibling(cell, "prev") is not None or sibling(cell, "next") is not None
    )


def _block_text(parts: list[str], *, keep_lines: bool) -> str:
    text = "".join(parts)
    if keep_lines:
        return text.strip("\n").rstrip()
    lines = [
        _SPACES.sub(" ", line).strip().removesuffix(" |")
        for line in text.split("\v")
    ]
    # Two line breaks in a row end a paragraph.
    return re.sub("\n{2,}", "\n\n", "\n".join(lines).strip("\n"))
