"""Articles in XML: JATS, as in PubMed Central, and TEI, as written by GROBID.

All elements of other XML are read: elements that contain words become
paragraphs.
"""

import re
from collections import Counter
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from longsum_jax.errors import counted
from longsum_jax.readers import html
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import local_name, parse_xml, table_row

_COLLECTIONS = frozenset({"pmc-articleset", "teiCorpus"})
# root of an article -> parent of its title
_FRONTS = {"article": "front", "TEI": "titleStmt"}
_TITLES = frozenset({"article-title", "title"})
_PARTS = {"abstract": 2, "body": 1}  # -> level of a heading directly inside
_AFTER_THE_TEXT = "back"
_SECTIONS = frozenset({"sec", "div", "boxed-text", "app"})
_HEADINGS = frozenset({"title", "head"})
# only their table rows are text
_FLOATS = frozenset({"fig", "figure", "table-wrap"})
_CAPTIONS = frozenset({"caption", "figDesc"})
_NOTES = frozenset({"fn", "note"})
_ROWS = frozenset({"tr", "row"})
_REFERENCES = frozenset({"xref", "ref"})
# Numbers of sections and formulas, alternative forms of formulas, and
# supplementary files.
_NEVER_SHOWN = frozenset(
    {"label", "tex-math", "annotation", "object-id", "supplementary-material"}
)
_BLOCKS = frozenset(
    {"p", "list", "item", "list-item", "disp-formula", "disp-quote", "td", "th"}
)
_LETTER = re.compile(r"[^\W\d_]")
# Remainder of "[1, 2]" without its references.
_EMPTY_BRACKETS = re.compile(
    "[ \xa0]?(?:\\[[\\s,;\u2013-]*\\]|\\([\\s,;\u2013-]*\\))"
)


def read(source: Source) -> Iterator[Document]:
    """Reads the articles of a file: title, abstract and text, by sections.

    Raises:
        InputError: the XML is damaged.
    """
    root = parse_xml(source.content, source.name)
    if local_name(root) == "html":
        yield from html.read(source)
        return
    if local_name(root) in _COLLECTIONS:
        articles = list(root)
    else:
        articles = [root]
    for number, article in enumerate(articles, 1):
        document = _document(article, source)
        if len(articles) > 1:
            name = f"{source.name}:{number}"
        else:
            name = document.name
        yield document._replace(name=name)


def _document(root: Element, source: Source) -> Document:
    """Returns an article, or the text of all elements below another root."""
    is_article = local_name(root) in _FRONTS
    reader = _ArticleReader(source, is_article=is_article)
    if not is_article:
        return source.document(list(reader.blocks(root, 1)))
    front, title = _first(root, _FRONTS[local_name(root)]), None
    if front is not None:
        titles = (
            reader.text(element)
            for element in front.iter()
            if local_name(element) in _TITLES
        )
        title = next(filter(None, titles), None)
    blocks = [Block(title, 1)] if title else []
    for name, level in _PARTS.items():
        part = _first(root, name)
        if part is not None:
            blocks += reader.blocks(part, level)
    back = _first(root, _AFTER_THE_TEXT)
    if back is not None:
        if source.options.keep_all:
            blocks += reader.blocks(back, 1)
        else:
            reader.left_out["part after the text"] += 1
    notes = [
        f"{counted(number, kind)} left out"
        for kind, number in reader.left_out.items()
    ]
    return source.document(blocks, title=title, notes=notes)


def _first(root: Element, name: str) -> Element | None:
    """Returns the first element with a name; None if there is none."""
    return next(
        (element for element in root.iter() if local_name(element) == name),
        None,
    )


class _ArticleReader:
    """Converts elements to blocks.

    Args:
        source: source to read.
        is_article: True if element names have their meaning in articles;
            otherwise all are read.

    Attributes:
        left_out: number of removed elements by kind.
    """

    def __init__(self, source: Source, *, is_article: bool) -> None:
        self._source = source
        self._keep_all = source.options.keep_all or not is_article
        if is_article:
            self._never_shown = _NEVER_SHOWN
        else:
            self._never_shown = frozenset()
        self.left_out: Counter[str] = Counter()

    def blocks(self, element: Element, level: int) -> Iterator[Block]:
        """Yields paragraphs, headings and rows of an element.

        Args:
            element: element of an article.
            level: level of its heading.
        """
        self._source.check_time()
        name = local_name(element)
        if self._is_left_out(element):
            return
        if name in _FLOATS and not self._keep_all:
            yield from self._float(element)
        elif name in _ROWS:
            row = table_row(map(self.text, element))
            yield from [Block(row)] if row else []
        elif name in _HEADINGS or _has_words(element):
            text = self.text(element)
            if text:
                yield Block(text, level if name in _HEADINGS else 0)
        else:
            for child in element:
                yield from self.blocks(
                    child, level + (local_name(child) in _SECTIONS)
                )

    def _float(self, element: Element) -> Iterator[Block]:
        """Yields the table rows of a figure or table, and counts its caption."""
        if any(
            local_name(descendant) in _CAPTIONS for descendant in element.iter()
        ):
            self.left_out["caption"] += 1
        for descendant in element.iter():
            if local_name(descendant) in _ROWS:
                yield from self.blocks(descendant, 0)

    def _is_left_out(self, element: Element) -> bool:
        """Returns True if an element is removed; counts notes and captions.

        References are removed if they consist only of numbers.
        """
        name = local_name(element)
        if name in self._never_shown:
            return True
        if self._keep_all:
            return False
        if name in _NOTES or name in _CAPTIONS:
            self.left_out["footnote" if name in _NOTES else "caption"] += 1
            return True
        return _is_reference(element) and not _LETTER.search(
            "".join(element.itertext())
        )

    def text(self, element: Element) -> str:
        """Returns the words of an element on one line."""
        return _EMPTY_BRACKETS.sub(
            "", " ".join("".join(self._pieces(element)).split())
        )

    def _pieces(self, element: Element) -> Iterator[str]:
        yield element.text or ""
        for child in element:
            if local_name(child) in _BLOCKS:
                between = " "
            else:
                between = ""
            yield between
            is_float = local_name(child) in _FLOATS and not self._keep_all
            if not is_float and not self._is_left_out(child):
                yield from self._pieces(child)
            yield between
            yield child.tail or ""


def _is_reference(element: Element) -> bool:
    """Returns True if an element is a reference, or a superscript that contains one."""
    if local_name(element) == "sup":
        return any(local_name(child) in _REFERENCES for child in element)
    return local_name(element) in _REFERENCES


def _has_words(element: Element) -> bool:
    """Returns True if an element directly contains words, in addition to its children."""
    pieces = [element.text, *(child.tail for child in element)]
    return any(piece and not piece.isspace() for piece in pieces)
