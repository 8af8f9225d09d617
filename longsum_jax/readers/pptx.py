"""PPTX (Office Open XML presentations): titles, paragraphs and tables, slide by slide."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from longsum_jax.errors import counted
from longsum_jax.readers.archives import open_zip
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import (
    local_name,
    office_title,
    read_xml,
    relationship_id,
    relationships,
    table_row,
)

PRESENTATION = "ppt/presentation.xml"
_LEVELS = {"ctrTitle": 1, "title": 2}  # heading levels by placeholder type
# placeholders of footers, numbers, dates
_RUNNING = frozenset({"ftr", "hdr", "sldNum", "dt"})
# Numbers and dates of a slide, and the alternative version of a shape.
_SKIPPED = frozenset({"fld", "Fallback"})


def read(source: Source) -> Iterator[Document]:
    """Reads one presentation; its slides are pages.

    Raises:
        InputError: the presentation is damaged or has too many slides.
    """
    archive = open_zip(source)
    members = set(archive.namelist())
    slides = relationships(archive, PRESENTATION, source)
    ids = [
        relationship_id(element)
        for element in read_xml(archive, PRESENTATION, source).iter()
        if local_name(element) == "sldId"
    ]
    paths = [slides[identifier] for identifier in ids if identifier in slides]
    source.check_pages(len(paths), "slides")
    blocks: list[Block] = []
    num_hidden = num_notes = 0
    for page, path in enumerate(paths, 1):
        source.check_time()
        slide = read_xml(archive, path, source)
        if slide.get("show") in ("0", "false") and not source.options.keep_all:
            num_hidden += 1
            continue
        blocks += _blocks(slide, page, keep_all=source.options.keep_all)
        # Data of SmartArt diagrams, and then notes.
        targets = sorted(
            relationships(archive, path, source).values(),
            key=lambda target: target.startswith("ppt/notesSlides/"),
        )
        for target in filter(members.__contains__, targets):
            if target.startswith("ppt/diagrams/data"):
                diagram = read_xml(archive, target, source)
                blocks += [
                    Block(text, 0, page) for text in _paragraphs(diagram)
                ]
            elif target.startswith("ppt/notesSlides/"):
                notes = list(
                    _blocks(
                        read_xml(archive, target, source), page, keep_all=False
                    )
                )
                num_notes += len(notes) > 0
                if source.options.keep_all:
                    blocks += notes
    remarks = []
    if num_hidden:
        remarks.append(f"{counted(num_hidden, 'hidden slide')} left out")
    if num_notes and not source.options.keep_all:
        remarks.append(
            f"speaker's notes of {counted(num_notes, 'slide')} left out"
        )
    title = office_title(archive, source)
    if title is None:
        title = next((block.text for block in blocks if block.level), None)
    has_pictures = any(member.startswith("ppt/media/") for member in members)
    yield source.document(
        blocks,
        title=title,
        num_pages=len(paths),
        has_pictures=has_pictures,
        notes=remarks,
    )


def _blocks(parent: Element, page: int, *, keep_all: bool) -> Iterator[Block]:
    """Yields headings, paragraphs and table rows below an element."""
    for child in parent:
        name = local_name(child)
        if name == "sp":
            kind = _placeholder(child)
            if keep_all or kind not in _RUNNING:
                yield from _shape(child, _LEVELS.get(kind, 0), page)
        elif name == "tr":
            row = table_row(" ".join(_paragraphs(cell)) for cell in child)
            if row:
                yield Block(row, 0, page)
        elif name not in _SKIPPED:
            yield from _blocks(child, page, keep_all=keep_all)


def _shape(shape: Element, level: int, page: int) -> Iterator[Block]:
    paragraphs = list(_paragraphs(shape))
    if level and paragraphs:
        yield Block(" ".join(" ".join(paragraphs).split()), level, page)
    else:
        for paragraph in paragraphs:
            yield Block(paragraph, 0, page)


def _placeholder(shape: Element) -> str:
    """Returns the placeholder type of a shape; "" for other shapes."""
    return next(
        (
            child.get("type", "")
            for child in shape.iter()
            if local_name(child) == "ph"
        ),
        "",
    )


def _paragraphs(parent: Element) -> Iterator[str]:
    for element in parent.iter():
        if local_name(element) == "p":
            text = _text(element).strip()
            if text:
                yield text


def _text(element: Element) -> str:
    parts = []
    for child in element:
        name = local_name(child)
        if name == "t":
            parts.append(child.text or "")
        elif name == "br":
            parts.append("\n")
        elif name not in _SKIPPED:
            parts.append(_text(child))
    return "".join(parts)
