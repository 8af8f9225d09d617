"""EPUB 2 and 3: the chapters of the spine, in reading order."""

import posixpath
import urllib.parse
import zipfile
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from longsum_jax.errors import InputError, counted
from longsum_jax.readers.archives import open_zip, read_member
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.html import Page, declared_encoding
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import read_xml

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_NCX = "application/x-dtbncx+xml"
_DOCUMENTS = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_FOOTNOTES = (
    '[role="doc-footnote"], [role="doc-endnote"], '
    '[epub\\:type~="footnote"], [epub\\:type~="endnote"], [epub\\:type~="rearnote"]'
)
# Page numbers of the printed book, and tables of contents.
_BESIDE = (
    '[role="doc-pagebreak"], [epub\\:type~="pagebreak"], '
    'nav, [role="doc-toc"], [epub\\:type~="toc"]'
)
_FONT_METHODS = (
    "http://www.idpf.org/2008/embedding",
    "http://ns.adobe.com/pdf/enc#RC",
)


class _Item(NamedTuple):
    """A file of the book, as listed in its manifest."""

    path: str
    media_type: str
    properties: str


def read(source: Source) -> Iterator[Document]:
    """Reads one book.

    Raises:
        InputError: the book is damaged, is encrypted (DRM) or has too many
            chapters.
    """
    archive = open_zip(source)
    _check_rights(archive, source)
    package_path = _package_path(archive, source)
    package = read_xml(archive, package_path, source)
    items = _manifest(package, package_path)
    notes = []
    chapters = []
    for reference in _find_all(package, "itemref"):
        item = items.get(reference.get("idref", ""))
        if item is None or item.media_type not in _DOCUMENTS:
            continue
        is_aside = (
            reference.get("linear") == "no" or "nav" in item.properties.split()
        )
        if is_aside and not source.options.keep_all:
            notes.append(f"{item.path} left out, which is not part of the text")
        else:
            chapters.append(item.path)
    if not chapters:
        raise InputError(
            f"{source.name}: the book lists no chapters; it is damaged"
        )
    source.check_pages(len(chapters), "chapters")
    titles = _chapter_titles(archive, items, source)
    blocks: list[Block] = []
    num_captions = num_footnotes = 0
    has_pictures = False
    for path in chapters:
        source.check_time()
        page = _page(archive, path, source)
        has_pictures |= page.has_pictures
        if not source.options.keep_all:
            num_captions += page.drop_captions()
            num_footnotes += page.drop(_FOOTNOTES)[0]
            page.drop(_BESIDE)
            page.drop_note_marks()
        blocks += _chapter(page, titles.get(path))
    for count, kind in ((num_captions, "caption"), (num_footnotes, "footnote")):
        if count:
            notes.append(f"{counted(count, kind)} left out")
    title = next(
        (
            element.text
            for element in _find_all(package, "title")
            if element.text
        ),
        None,
    )
    yield source.document(
        blocks, title=title, has_pictures=has_pictures, notes=notes
    )


def _page(archive: zipfile.ZipFile, path: str, source: Source) -> Page:
    """Reads a chapter as is: books have no menus, and their class names are arbitrary."""
    name = f"{source.name}/{path}"
    content = read_member(archive, path, name, source)
    inner = source.inner(name, content)
    text, _ = inner.decoded(declared_encoding(content))
    return Page(text, inner)


def _chapter(page: Page, title: str | None) -> list[Block]:
    """Returns the blocks of a chapter, starting with its title."""
    blocks = page.blocks()
    has_heading = any(block.level for block in blocks[:3])
    if title and blocks and not has_heading:
        if _same(blocks[0].text, title):
            blocks = blocks[1:]
        blocks.insert(0, Block(title, 1))
    return blocks


def _same(first: str, second: str) -> bool:
    return first.casefold().split() == second.casefold().split()


def _check_rights(archive: zipfile.ZipFile, source: Source) -> None:
    if _ENCRYPTION not in archive.namelist():
        return
    for method in _find_all(
        read_xml(archive, _ENCRYPTION, source), "EncryptionMethod"
    ):
        if method.get("Algorithm") not in _FONT_METHODS:
            raise InputError(
                f"{source.name}: the book is encrypted by digital rights management; only books "
                "without it can be read"
            )


def _package_path(archive: zipfile.ZipFile, source: Source) -> str:
    for root in _find_all(read_xml(archive, _CONTAINER, source), "rootfile"):
        if root.get("full-path"):
            return root.get("full-path", "")
    raise InputError(
        f"{source.name}: {_CONTAINER} names no book; it is damaged"
    )


def _manifest(package: Element, package_path: str) -> dict[str, _Item]:
    items = {}
    for item in _find_all(package, "item"):
        path = _resolved(item.get("href", ""), package_path)
        properties = item.get("properties", "")
        items[item.get("id", "")] = _Item(
            path, item.get("media-type", ""), properties
        )
    return items


def _chapter_titles(
    archive: zipfile.ZipFile, items: dict[str, _Item], source: Source
) -> dict[str, str]:
    """Returns chapter titles by file, from the table of contents."""
    titles: dict[str, str] = {}
    for item in items.values():
        is_nav = "nav" in item.properties.split()
        if not is_nav and item.media_type != _NCX:
            continue
        try:
            root = read_xml(archive, item.path, source)
        except InputError:  # the table of contents is optional
            continue
        if is_nav:
            entries = _find_all(root, "a")
        else:
            entries = _find_all(root, "navPoint")
        for entry in entries:
            title, target = _entry(entry, is_nav)
            if title and target:
                titles.setdefault(_resolved(target, item.path), title)
    return titles


def _entry(entry: Element, is_nav: bool) -> tuple[str, str]:
    if is_nav:
        return " ".join("".join(entry.itertext()).split()), entry.get(
            "href", ""
        )
    labels = [
        text
        for label in _find_all(entry, "text")[:1]
        for text in label.itertext()
    ]
    target = next(
        (element.get("src", "") for element in _find_all(entry, "content")), ""
    )
    return " ".join("".join(labels).split()), target


def _resolved(href: str, base: str) -> str:
    """Returns the archive path of a link in the file ``base``."""
    path = urllib.parse.unquote(href.partition("#")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), path))


def _find_all(root: Element, tag: str) -> list[Element]:
    """Returns elements by their local name, in any namespace."""
    return [
        element
        for element in root.iter()
        if element.tag == tag or element.tag.endswith("}" + tag)
    ]
