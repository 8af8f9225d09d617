"""DOCX (Office Open XML): paragraphs, headings by style, table rows, footnotes."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from longsum_jax.errors import InputError, counted
from longsum_jax.readers.archives import open_zip
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.transcripts import find_transcript
from longsum_jax.readers.xml_tree import (
    inherited,
    local_name,
    office_title,
    read_xml,
    table_row,
    whole_number,
)

# Transitional documents and strict ones.
_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_NOTES = {"footnotes": "footnote", "endnotes": "endnote"}
_HEADING = re.compile(r"heading\s*([1-9])", re.IGNORECASE)
# Styles of paragraphs that are not text, by their names, which are the same in
# every language.
_LEFT_OUT = {
    "caption": "caption",
    "table of figures": "line of contents",
    "toc heading": "line of contents",
    **{f"toc {level}": "line of contents" for level in range(1, 10)},
}
_BOX = "txbxContent"  # content of a text box
_TEXT_OF = {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
# Deleted text, field codes, the alternative version of a drawing, and
# pronunciation (ruby) text.
_SKIPPED = frozenset(
    {"del", "moveFrom", "instrText", "Fallback", "rt", "pPr", "rPr", "sectPr"}
)
_OFF = ("0", "false", "off")


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the document is damaged.
    """
    archive = open_zip(source)
    members = set(archive.namelist())

    def part(path: str) -> Element:
        return read_xml(archive, path, source)

    main = part_path(members, "document") or "word/document.xml"
    styles_path = part_path(members, "styles")
    if styles_path is not None:
        styles = _read_styles(part(styles_path))
    else:
        styles = _Styles()
    body = next(
        (
            element
            for element in part(main).iter()
            if local_name(element) == "body"
        ),
        None,
    )
    if body is None:
        raise InputError(
            f"{source.name}: {main} has no body; the document is damaged"
        )
    reader = _DocxReader(styles, source)
    blocks = list(reader.blocks(body))
    notes = reader.notes()
    if source.options.keep_all:
        transcript = None
    else:
        transcript = find_transcript(blocks)
    if transcript is not None:
        blocks = [part.block for part in transcript.parts]
        notes += transcript.notes
    if any(name.startswith(("word/header", "word/footer")) for name in members):
        notes.append("headers and footers left out")
    for name, noun in _NOTES.items():
        path = part_path(members, name)
        if path is None:
            continue
        part_blocks = list(_DocxReader(_Styles(), source).blocks(part(path)))
        if source.options.keep_all:
            blocks += part_blocks
        elif part_blocks:
            notes.append(f"{counted(len(part_blocks), noun)} left out")
    title = office_title(archive, source)
    if title is None:
        title = next((block.text for block in blocks if block.level == 1), None)
    has_pictures = any(name.startswith("word/media/") for name in members)
    yield source.document(
        blocks, title=title, has_pictures=has_pictures, notes=notes
    )


def part_path(members: Iterable[str], name: str) -> str | None:
    """Returns the path of a part, or None.

    Word for the web numbers parts: "word/document2.xml".
    """
    path = re.compile(rf"word/{name}\d*\.xml")
    return min(filter(path.fullmatch, members), default=None)


class _Styles(NamedTuple):
    """The meaning of paragraph styles by their ids, including inherited styles.

    Attributes:
        levels: heading levels; titles have level 1.
        left_out: names of styles that are not text, such as captions and
            table-of-contents entries.
    """

    levels: Mapping[str, int] = {}
    left_out: Mapping[str, str] = {}


def _read_styles(styles: Element) -> _Styles:
    levels: dict[str, int] = {}
    left_out: dict[str, str] = {}
    bases: dict[str, str] = {}
    for style in styles.iter():
        if local_name(style) != "style":
            continue
        identifier = _attribute(style, "styleId")
        for child in style.iter():
            value = _attribute(child, "val")
            level = whole_number(value)
            if (
                local_name(child) == "outlineLvl"
                and level is not None
                and level < 9
            ):
                levels[identifier] = level + 1
            elif local_name(child) == "name":
                numbered = _HEADING.fullmatch(value)
                if numbered is not None:
                    levels[identifier] = int(numbered.group(1))
                elif value.casefold() == "title":
                    levels[identifier] = 1
                elif _LEFT_OUT.get(value.casefold()):
                    left_out[identifier] = _LEFT_OUT[value.casefold()]
            elif local_name(child) == "basedOn":
                bases[identifier] = value
    return _Styles(inherited(levels, bases), inherited(left_out, bases))


class _DocxReader:
    """Converts elements to blocks.

    Args:
        styles: paragraph styles of the document.
        source: source to read.
    """

    def __init__(self, styles: _Styles, source: Source) -> None:
        self._styles = styles
        self._source = source
        self._left_out: Counter[str] = Counter()

    def blocks(self, parent: Element) -> Iterator[Block]:
        """Yields paragraphs and table rows below an element, each followed by its text boxes."""
        for child in parent:
            name = local_name(child)
            if name == "p":
                self._source.check_time()
                text = _text(child).strip()
                if text and not self._is_left_out(child):
                    yield Block(text, _level(child, self._styles.levels))
            elif name == "tr":
                cells = [
                    cell for cell in child if local_name(cell) in ("tc", "sdt")
                ]
                if len(cells) == 1:  # a frame around paragraphs
                    yield from self.blocks(cells[0])
                    continue
                row = table_row(map(_text, cells))
                if row:
                    yield Block(row)
            elif name not in _SKIPPED and not _is_empty(child):
                yield from self.blocks(child)
                continue
            for box in _boxes(child):
                yield from self.blocks(box)

    def notes(self) -> list[str]:
        """Returns a note about each kind of removed paragraph."""
        return [
            f"{counted(count, kind)} left out"
            for kind, count in self._left_out.items()
        ]

    def _is_left_out(self, paragraph: Element) -> bool:
        kind = self._styles.left_out.get(_style(paragraph))
        if kind is None or self._source.options.keep_all:
            return False
        self._left_out[kind] += 1
        return True


def _boxes(element: Element) -> Iterator[Element]:
    """Yields the text boxes below an element, without nested ones."""
    for child in element:
        if local_name(child) == _BOX:
            yield child
        elif local_name(child) not in _SKIPPED:
            yield from _boxes(child)


def _level(paragraph: Element, levels: Mapping[str, int]) -> int:
    properties = next(
        (child for child in paragraph if local_name(child) == "pPr"), None
    )
    if properties is None:
        return 0
    for child in properties:
        level = whole_number(_attribute(child, "val"))
        if local_name(child) == "outlineLvl" and level is not None:
            return level + 1 if level < 9 else 0
    style = _style(paragraph)
    numbered = _HEADING.fullmatch(style)
    return levels.get(style, int(numbered.group(1)) if numbered else 0)


def _style(paragraph: Element) -> str:
    """Returns the style id of a paragraph; "" if it has none."""
    properties = next(
        (child for child in paragraph if local_name(child) == "pPr"), ()
    )
    return next(
        (
            _attribute(element, "val")
            for element in properties
            if local_name(element) == "pStyle"
        ),
        "",
    )


def _text(element: Element) -> str:
    """Returns the text of an element without text boxes; nested paragraphs become lines."""
    parts = []
    for child in element:
        name = local_name(child)
        if name == "t":
            parts.append(child.text or "")
        elif name == "sym":
            parts.append(_symbol(_attribute(child, "char")))
        elif name in _TEXT_OF:
            parts.append(_TEXT_OF[name])
        elif (
            name not in _SKIPPED
            and name != _BOX
            and not (_is_hidden(child) or _is_empty(child))
        ):
            parts.append(_text(child))
            if name == "p":
                parts.append("\n")
    return "".join(parts)


def _symbol(code: str) -> str:
    """Returns a character of a symbol font; ``cleaning`` replaces its code by Unicode."""
    if re.fullmatch(r"[0-9A-Fa-f]{4}", code):
        character = chr(int(code, 16))
        # Codes of symbol fonts are in a private area.
        if character.isprintable() or "\uf000" <= character <= "\uf0ff":
            return character
    return ""


def _is_hidden(element: Element) -> bool:
    """Returns True if an element is a run of hidden text."""
    return _has_property(element, "rPr", "vanish")


def _is_empty(element: Element) -> bool:
    """Returns True if an element is a form field that shows its placeholder."""
    return _has_property(element, "sdtPr", "showingPlcHdr")


def _has_property(element: Element, group: str, name: str) -> bool:
    """Returns True if a switch in a group of an element's properties is on."""
    properties = next(
        (child for child in element if local_name(child) == group), ()
    )
    return any(
        local_name(child) == name and _attribute(child, "val") not in _OFF
        for child in properties
    )


def _attribute(element: Element, name: str) -> str:
    for namespace in _NAMESPACES:
        value = element.get(f"{{{namespace}}}{name}")
        if value is not None:
            return value
    return ""
