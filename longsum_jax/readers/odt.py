"""ODT (OpenDocument text): paragraphs, headings by outline level, table rows."""

from collections.abc import Collection, Iterator
from xml.etree.ElementTree import Element

from longsum_jax.errors import InputError, counted
from longsum_jax.readers.archives import open_zip
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import (
    inherited,
    read_xml,
    table_row,
    whole_number,
)

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_TITLE = "{http://purl.org/dc/elements/1.1/}title"
_MANIFEST = "META-INF/manifest.xml"
# Earlier versions of the text, pronunciation (ruby) text, titles and
# descriptions of pictures, empty form fields, and tables of contents and
# indexes, which repeat parts of the text.
_SKIPPED = frozenset(
    {
        f"{_TEXT}tracked-changes",
        f"{_TEXT}ruby-text",
        f"{_TEXT}table-of-content",
        f"{_TEXT}illustration-index",
        f"{_TEXT}table-index",
        f"{_TEXT}object-index",
        f"{_TEXT}user-index",
        f"{_TEXT}alphabetical-index",
        f"{_TEXT}sequence-decls",
        f"{_OFFICE}annotation",
        f"{_OFFICE}forms",
        f"{_TEXT}placeholder",
        f"{_SVG}title",
        f"{_SVG}desc",
    }
)
_CAPTION = "Caption"  # base of all caption styles
_NOTE = f"{_TEXT}note"
_BOX = f"{_DRAW}text-box"
_MAX_SPACES = 100


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the document is damaged or encrypted.
    """
    archive = open_zip(source)
    members = set(archive.namelist())

    def part(path: str) -> Element:
        return read_xml(archive, path, source)

    if _MANIFEST in members:
        manifest = part(_MANIFEST)
        if any(
            element.tag.endswith("}encryption-data")
            for element in manifest.iter()
        ):
            raise InputError(
                f"{source.name}: the document is encrypted; save it without a password"
            )
    content = part("content.xml")
    body = next(
        (
            element
            for element in content.iter()
            if element.tag == f"{_OFFICE}text"
        ),
        None,
    )
    if body is None:
        raise InputError(
            f"{source.name}: content.xml has no text; give a text document (.odt)"
        )
    bases = _bases(content) | (
        _bases(part("styles.xml")) if "styles.xml" in members else {}
    )
    reader = _OdtReader(inherited({_CAPTION: True}, bases), source)
    blocks = list(reader.blocks(body))
    counts = {"footnote": reader.num_notes, "caption": reader.num_captions}
    notes = [
        f"{counted(count, kind)} left out"
        for kind, count in counts.items()
        if count
    ]
    title = None
    if "meta.xml" in members:
        title = next(
            (
                element.text
                for element in part("meta.xml").iter(_TITLE)
                if element.text
            ),
            None,
        )
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    has_pictures = any(name.startswith("Pictures/") for name in members)
    yield source.document(
        blocks, title=title, has_pictures=has_pictures, notes=notes
    )


def _bases(root: Element) -> dict[str, str]:
    """Returns the base style of each paragraph style, by name."""
    return {
        style.get(f"{_STYLE}name", ""): style.get(
            f"{_STYLE}parent-style-name", ""
        )
        for style in root.iter(f"{_STYLE}style")
        if style.get(f"{_STYLE}family") == "paragraph"
    }


class _OdtReader:
    """Converts elements to blocks.

    Args:
        captions: names of caption styles.
        source: source to read.

    Attributes:
        num_notes, num_captions: numbers of removed footnotes and captions.
    """

    def __init__(self, captions: Collection[str], source: Source) -> None:
        self._captions = captions
        self._source = source
        self.num_notes = 0
        self.num_captions = 0

    def blocks(self, parent: Element) -> Iterator[Block]:
        """Yields paragraphs, headings and rows below an element, each followed by its boxes."""
        for child in parent:
            if child.tag in (f"{_TEXT}p", f"{_TEXT}h"):
                self._source.check_time()
                text = self._text(child).strip()
                level = whole_number(child.get(f"{_TEXT}outline-level", "1"))
                is_heading = child.tag == f"{_TEXT}h" and level is not None
                if text and not self._is_left_out(child):
                    yield Block(text, max(1, level or 0) if is_heading else 0)
            elif child.tag == f"{_TABLE}table-row":
                cells = [
                    cell for cell in child if cell.tag == f"{_TABLE}table-cell"
                ]
                if len(cells) == 1:  # a frame around paragraphs
                    yield from self.blocks(cells[0])
                    continue
                row = table_row(map(self._text, cells))
                if row:
                    yield Block(row)
            elif child.tag not in _SKIPPED:
                yield from self.blocks(child)
                continue
            for box in _boxes(child):
                yield from self.blocks(box)

    def _is_left_out(self, paragraph: Element) -> bool:
        is_caption = paragraph.get(f"{_TEXT}style-name") in self._captions
        if not is_caption or self._source.options.keep_all:
            return False
        self.num_captions += 1
        return True

    def _text(self, element: Element) -> str:
        parts = [element.text or ""]
        for child in element:
            parts.append(self._inner(child))
            parts.append(child.tail or "")
        return "".join(parts)

    def _inner(self, child: Element) -> str:
        if child.tag == f"{_TEXT}s":
            count = whole_number(child.get(f"{_TEXT}c", "1"))
            if count is None:
                count = 1
            return " " * min(count, _MAX_SPACES)
        if child.tag == f"{_TEXT}tab":
            return " "
        if child.tag == f"{_TEXT}line-break":
            return "\n"
        if child.tag == _NOTE and not self._source.options.keep_all:
            self.num_notes += 1
            return ""
        if child.tag in _SKIPPED or child.tag == _BOX:
            return ""
        text = self._text(child)
        # Paragraphs of a cell become lines.
        if child.tag in (f"{_TEXT}p", f"{_TEXT}h"):
            return f"{text}\n"
        return text


def _boxes(element: Element) -> Iterator[Element]:
    """Yields the text boxes below an element, without nested ones."""
    for child in element:
        if child.tag == _BOX:
            yield child
        elif child.tag not in _SKIPPED:
            yield from _boxes(child)
