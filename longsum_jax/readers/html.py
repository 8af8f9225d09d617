"""HTML as parsed by browsers: reading a page, and its tree as the other readers change it."""

import re
from collections.abc import Iterator

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.html_boilerplate import drop_boilerplate
from longsum_jax.readers.html_boxes import box_tags
from longsum_jax.readers.html_marks import drop_captions, drop_note_marks
from longsum_jax.readers.html_tree import (
    blocks_of,
    outermost,
    remove,
    text_length,
    with_powers,
)
from longsum_jax.readers.source import Source

_NEVER_SHOWN = (
    "script, style, template, noscript, iframe, object, embed, svg, math annotation, canvas, "
    "audio, video, head, select, datalist, textarea"
)

_SCRIPT = re.compile(r"<script\b", re.IGNORECASE)
_META_CHARSET = re.compile(
    rb"<meta[^>]+charset\s*=\s*[\"']?\s*([\w-]+)", re.IGNORECASE
)
_XML_CHARSET = re.compile(rb"\A\s*<\?xml[^>]+encoding\s*=\s*[\"']([\w-]+)")
# In XHTML these may be self-closing; HTML would treat all following content as
# their children.
_SELF_CLOSED = re.compile(
    r"<(script|style|title|iframe|textarea|noscript|a|div|p|span|i|b)\b([^<>]*)/>",
    re.IGNORECASE,
)
# The time to build the tree is quadratic in the nesting depth of these
# elements.
_NESTED = re.compile(
    r"<(/?)(?:div|section|article|ul|ol|dl|blockquote|table|center|form|fieldset|details|main|"
    r"nav|aside|header|footer|figure|address|menu|pre|button|applet|marquee|object|select|"
    r"b|big|code|em|font|i|nobr|s|small|span|strike|strong|tt|u)\b",
    re.IGNORECASE,
)
_MAX_NESTED = 4000
# The time of lexbor is quadratic in the number of attributes of an element, and
# in the number of different names in a page.
_MAX_ATTRIBUTES = 500
_MAX_NAMES = 20_000
_NAME = r"[^\s/>=][^\s/>=]*+"
_VALUE = r"""(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?"""
_ATTRIBUTE = rf"[\s/]++{_NAME}{_VALUE}"
# A script or a style, or a tag (group 1) up to its last allowed attribute; group
# 2 is a further one. Nothing is read twice.
_TAG = re.compile(
    r"<(?:script|style)\b[^>]*+>.*?(?:</(?:script|style)|\Z)|"
    rf"(<[a-z][^\s/>]*+(?:{_ATTRIBUTE}){{0,{_MAX_ATTRIBUTES}}})({_ATTRIBUTE})?",
    re.IGNORECASE | re.DOTALL,
)
_NAMES = re.compile(rf"(?:<|[\s/]++)({_NAME}){_VALUE}")


def read(source: Source) -> Iterator[Document]:
    """Reads one page.

    Raises:
        InputError: the content is not HTML, or the page has no text.
    """
    yield page_document(source, declared_encoding(source.content))


def page_document(source: Source, declared: str | None) -> Document:
    """Returns the document of a page.

    Args:
        source: content of the page, as bytes.
        declared: encoding declared by the page or its message, or None.

    Raises:
        InputError: the content is not HTML, or the page has no text.
    """
    text, notes = source.decoded(declared)
    page = Page(text, source)
    title = page.title
    if not source.options.keep_all:
        notes += page.drop_boilerplate()
    blocks = page.blocks()
    if not blocks and not notes and _SCRIPT.search(text):
        raise InputError(
            f"{source.name}: has no text before its scripts run; open it in a browser and save the "
            "page as PDF or text"
        )
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    return source.document(
        blocks, title=title, has_pictures=page.has_pictures, notes=notes
    )


def declared_encoding(content: bytes) -> str | None:
    """Returns the encoding that a page declares near its beginning; None if it declares none."""
    match = _META_CHARSET.search(content[:4096]) or _XML_CHARSET.search(
        content[:200]
    )
    return match.group(1).decode() if match else None


class Page:
    """The tree of a page.

    Args:
        text: HTML or XHTML.
        source: source of the page.

    Attributes:
        title: title in the page's head, or None.
        has_pictures: True if the page contains pictures.

    Raises:
        InputError: elements are nested too deeply.
    """

    def __init__(self, text: str, source: Source) -> None:
        lexbor = import_extra("selectolax.lexbor", source.name, "HTML")
        _check_nesting(text, source.name)
        _check_names(text, source.name)
        self._source = source
        is_xml = (
            text[:200].lstrip().startswith("<?xml") or "/xhtml" in text[:1000]
        )
        if is_xml:
            text = _SELF_CLOSED.sub(r"<\1\2></\1>", text)
        tree = lexbor.LexborHTMLParser(with_powers(text))
        head_title = tree.css_first("title")
        if head_title:
            self.title = head_title.text().strip() or None
        else:
            self.title = None
        self.has_pictures = tree.css_first("img, image") is not None
        self._root = tree.body or tree.root
        if self._root is not None:
            remove(self._root.css(_NEVER_SHOWN))
        self._box_tags = box_tags(text)
        self._tree = tree  # nodes are valid only as long as the tree

    def drop_boilerplate(self) -> list[str]:
        """Removes the surroundings of the text; returns notes with the number of characters."""
        if self._root is None:
            return []
        before = text_length(self._root)
        self._root = drop_boilerplate(
            self._root, self.title, self._box_tags, self._source.check_time
        )
        dropped = before - text_length(self._root)
        if dropped > 0:
            return [f"boilerplate of {dropped:,} characters left out"]
        return []

    def has_adjacent_text(self, selector: str) -> bool:
        """Returns True if the page has elements of this selector, and text outside of them."""
        if self._root is None:
            return False
        inside = sum(map(text_length, outermost(self._root.css(selector))))
        return 0 < inside < text_length(self._root)

    def drop(self, selector: str) -> tuple[int, int]:
        """Removes elements; returns the number of elements and of their characters."""
        if self._root is None:
            return 0, 0
        nodes = outermost(self._root.css(selector))
        length = sum(map(text_length, nodes))
        for node in nodes:
            node.decompose()
        return len(nodes), length

    def replace_quotations(self, selector: str, boxes: str, mark: str) -> int:
        """Replaces quotations with a line that contains a mark; returns their character count.

        Args:
            selector: CSS selector of quotations.
            boxes: CSS selector of elements that are quotations if they contain
                no ``blockquote``.
            mark: content of the new line.
        """
        if self._root is None:
            return 0
        whole = [
            node
            for node in self._root.css(boxes)
            if node.css_first("blockquote") is None
        ]
        nodes = outermost([*self._root.css(selector), *whole])
        length = sum(map(text_length, nodes))
        for node in nodes:
            node.replace_with(
                f"\v{mark}\v"
            )  # a line break, see html_tree.blocks_of
        return length

    def drop_captions(self) -> int:
        """Removes captions of pictures and tables; returns the number of captions with text."""
        if self._root is None:
            return 0
        return drop_captions(self._root)

    def drop_note_marks(self) -> None:
        """Removes footnote numbers, which would look like parts of the preceding words."""
        if self._root is not None:
            drop_note_marks(self._root)

    def blocks(self) -> list[Block]:
        """Returns headings and paragraphs."""
        if self._root is not None:
            return list(blocks_of(self._root))
        return []


def _check_nesting(text: str, name: str) -> None:
    depth = 0
    for match in _NESTED.finditer(text):
        if match.group(1):
            depth = max(0, depth - 1)
        else:
            depth = depth + 1
        if depth > _MAX_NESTED:
            raise InputError(
                f"{name}: more than {_MAX_NESTED} nested elements; the page is damaged"
            )


def _check_names(text: str, name: str) -> None:
    names: set[str] = set()
    for match in _TAG.finditer(text):
        tag, further = match.groups()
        if further:
            raise InputError(
                f"{name}: an element with more than {_MAX_ATTRIBUTES} attributes; the "
                "page is damaged"
            )
        if tag:
            names.update(_NAMES.findall(tag))
        if len(names) > _MAX_NAMES:
            raise InputError(
                f"{name}: more than {_MAX_NAMES} different names of elements and attributes; "
                "the page is damaged"
            )
