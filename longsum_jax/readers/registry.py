"""The kinds of files that can be read, and their detection by first bytes, suffix or content."""

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.files import ARROW_SUFFIXES
from longsum_jax.readers import (
    archives,
    arrow,
    comma_separated,
    docx,
    epub,
    html,
    json_lines,
    mail,
    markdown,
    notebook,
    odt,
    pandoc,
    parquet,
    pdf,
    plain_text,
    pptx,
    restructured_text,
    rtf,
    slack,
    subtitles,
    xlsx,
    xml_article,
)
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.source import Source
from longsum_jax.text.arrow import MAGIC


class Kind(NamedTuple):
    """A kind of file.

    Attributes:
        name: display name of the kind.
        suffixes: file name suffixes.
        magic: first bytes of such files; files that begin otherwise are of
            another kind. () for text formats.
        read: function that yields the documents of a file, and its attachments
            as sources.
        unpack: function that yields the files inside this one; replaces
            ``read``.
    """

    name: str
    suffixes: tuple[str, ...]
    magic: tuple[bytes, ...] = ()
    read: Callable[[Source], Iterator[Document | Failure | Source]] | None = (
        None
    )
    unpack: Callable[[Source], Iterator[Source | Failure]] | None = None


_ZIP = (b"PK\x03\x04", b"PK\x05\x06")

# Kinds by name; first bytes are compared in this order. Other packages add or
# replace entries.
KINDS: dict[str, Kind] = {
    "text": Kind("plain text", (".txt", ".text", ".log"), read=plain_text.read),
    "markdown": Kind(
        "Markdown",
        (".md", ".markdown", ".mkd", ".qmd", ".rmd"),
        read=markdown.read,
    ),
    "notebook": Kind("a Jupyter notebook", (".ipynb",), read=notebook.read),
    "rst": Kind(
        "reStructuredText", (".rst", ".rest"), read=restructured_text.read
    ),
    "html": Kind("HTML", (".html", ".htm", ".xhtml"), read=html.read),
    "xml": Kind("XML", (".xml", ".nxml"), read=xml_article.read),
    "pdf": Kind("PDF", (".pdf",), (b"%PDF-",), read=pdf.read),
    "epub": Kind("EPUB", (".epub",), _ZIP, read=epub.read),
    "docx": Kind("DOCX", (".docx", ".docm", ".dotx"), _ZIP, read=docx.read),
    "pptx": Kind(
        "PPTX", (".pptx", ".pptm", ".ppsx", ".potx"), _ZIP, read=pptx.read
    ),
    "xlsx": Kind("XLSX", (".xlsx", ".xlsm", ".xltx"), _ZIP, read=xlsx.read),
    "odt": Kind("ODT", (".odt", ".ott"), _ZIP, read=odt.read),
    "rtf": Kind("RTF", (".rtf",), (b"{\\rtf",), read=rtf.read),
    "subtitles": Kind("subtitles", (".srt", ".vtt"), read=subtitles.read),
    "mail": Kind("e-mail", (".eml",), read=mail.read),
    "mhtml": Kind(
        "a saved web page (MHTML)", (".mht", ".mhtml"), read=mail.read_page
    ),
    "mailbox": Kind("a mailbox", (".mbox",), unpack=mail.messages),
    "slack": Kind("a Slack export", (), read=slack.read),
    "json_lines": Kind(
        "JSON lines", (".jsonl", ".ndjson"), read=json_lines.read
    ),
    "json": Kind("JSON", (".json",), read=json_lines.read_json),
    "csv": Kind("CSV", (".csv", ".tsv"), read=comma_separated.read),
    "arrow": Kind("Arrow", ARROW_SUFFIXES, MAGIC, read=arrow.read),
    "parquet": Kind("Parquet", (".parquet",), (b"PAR1",), read=parquet.read),
    "gz": Kind(
        "gzip",
        (".gz",),
        (b"\x1f\x8b",),
        unpack=partial(archives.decompress, suffix=".gz"),
    ),
    "xz": Kind(
        "xz",
        (".xz",),
        (b"\xfd7zXZ\0",),
        unpack=partial(archives.decompress, suffix=".xz"),
    ),
    "bz2": Kind(
        "bzip2",
        (".bz2",),
        (b"BZh",),
        unpack=partial(archives.decompress, suffix=".bz2"),
    ),
    "zst": Kind(
        "Zstandard",
        (".zst",),
        (b"\x28\xb5\x2f\xfd",),
        unpack=partial(archives.decompress, suffix=".zst"),
    ),
    **{
        markup: Kind(
            name, suffixes, read=partial(pandoc.read, markup=markup, what=name)
        )
        for markup, (name, suffixes) in pandoc.MARKUPS.items()
    },
    "zip": Kind("a zip archive", (".zip",), _ZIP, unpack=archives.unzip),
    "tar": Kind("a tar archive", (".tar",), unpack=archives.untar),
}
_BUILT_IN = dict(KINDS)

# Documents that are zip archives, by a member that only they contain.
_ZIP_MEMBERS = {
    "META-INF/container.xml": "epub",
    pptx.PRESENTATION: "pptx",
    xlsx.WORKBOOK: "xlsx",
    "content.xml": "odt",
}
# Common files that no reader supports, by first bytes at an offset.
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # files of the old Office
_REFUSED: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"II*\0", "a TIFF image"),
    (0, b"MM\0*", "a TIFF image"),
    (4, b"ftyp", "an MP4 film or recording, or a HEIF image"),
    (0, b"\x1aE\xdf\xa3", "a Matroska film"),
    (0, b"OggS", "an Ogg recording"),
    *(
        (0, b"ID3" + bytes([version]), "an MP3 recording")
        for version in (2, 3, 4)
    ),
    (0, b"fLaC", "a FLAC recording"),
    (0, b"\x7fELF", "a program (ELF)"),
    (0, b"MZ\x90", "a program for Windows"),
    (0, b"\xca\xfe\xba\xbe", "a Java class or a program for macOS"),
    (0, b"\0asm", "a WebAssembly program"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive; unpack it"),
    (0, b"Rar!", "a RAR archive; unpack it"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x89HDF", "an HDF5 file"),
    (60, b"BOOKMOBI", "a Mobipocket or Kindle book; convert it to EPUB"),
    (0, b"%!PS", "PostScript; convert it to PDF"),
    (0, b"AT&TFORM", "a DjVu document; convert it to PDF"),
    (
        0,
        _OLE,
        "a Word, Excel or Outlook file of the old format, or an encrypted one; save it as .docx "
        "without a password",
    ),
)
# Files that begin with RIFF, by the bytes of their type.
_RIFF_PLACE = 8
_RIFF = {
    b"WEBP": "a WebP image",
    b"WAVE": "a WAV recording",
    b"AVI ": "an AVI film",
}
_TAR_PLACE, _TAR_MAGIC = 257, b"ustar"
_BEYOND_JUNK = 1024  # bytes before a PDF that viewers tolerate
_SNIFFED = 512
# Marks of Markdown, of which other text (such as a script with comments)
# contains at most one kind: headings, fences, links, table rules.
_BEGINNING = 2**16
_MARKDOWN = tuple(
    re.compile(mark, re.MULTILINE)
    for mark in (
        rb"^#{1,6} +\S",
        rb"^(?:```|~~~)[\w+-]*\r?$",
        rb"\[[^\[\]\n]+\]\([^()\s]*[./#:][^()\s]*\)",
        rb"^\|?[ ]*:?-{3,}:?[ ]*\|[-|: ]*\r?$",
    )
)
_FEWEST_MARKS = 2
# Marks of MediaWiki: headings, links, bold words, templates and tables,
# references.
_MEDIAWIKI = tuple(
    re.compile(mark, re.MULTILINE)
    for mark in (
        rb"^==+[^=\n]+==+[ \t]*\r?$",
        rb"\[\[[^\[\]\n]+\]\]",
        rb"'''[^'\n]+'''",
        rb"^(?:\{\||\{\{)",
        rb"<ref[ >]",
    )
)
_FEWEST_MEDIAWIKI_MARKS = 3
# Headers that Chromium and Internet Explorer write at the start of a saved
# page.
_MHTML_MARKS = (b"\nsnapshot-content-location:", b"<saved by ")
# First lines of pandoc's formats, after comments. A manual page begins with a
# comment, a request of two letters or an empty request.
_MAN_REQUEST = rb"\s*(?=[.'](?:\\\"|[a-zA-Z]{1,2}[ \t\n]|\n)).*?"
_BEGINNINGS = {
    "latex": re.compile(
        rb"(?:[ \t]*(?:[%\\][^\n]*)?\n)*?[ \t]*\\document(?:class|style)\b"
    ),
    "org": re.compile(
        rb"\s*#\+(?:title|author|date|options|language|startup):", re.IGNORECASE
    ),
    "typst": re.compile(
        rb"(?:\s*//[^\n]*\n)*\s*#(?:set (?:document|page|text|par|heading)\(|show: |import \"@)"
    ),
    "asciidoc": re.compile(
        rb"(?:(?://[^\n]*)?\n)*= \S[^\n]*\n(?:[^\n]+\n){0,3}?:[a-z][\w-]*:"
    ),
    "man": re.compile(_MAN_REQUEST + rb"^\.TH[ \t]", re.MULTILINE | re.DOTALL),
    "mdoc": re.compile(_MAN_REQUEST + rb"^\.Dd[ \t]", re.MULTILINE | re.DOTALL),
}
# Marks of pandoc's XML formats: a root, a namespace, a document type.
_XML_MARKS = {
    "fb2": (b"<fictionbook",),
    "opml": (b"<opml",),
    "docbook": (b"docbook.org/ns/docbook", b"dtd docbook"),
}
# The first cue of SubRip, also in files with a plain-text suffix.
_CUE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*\d+[ \t]*\r?\n\d{1,2}:\d\d:\d\d[,.]\d{1,3} *-->"
)
_XML_ROOTS = (b"<!doctype article", b"<article", b"<pmc-articleset", b"<tei")


def is_changed() -> bool:
    """Returns True if readers were registered in ``KINDS``, or removed."""
    return KINDS != _BUILT_IN


def kind_of(source: Source) -> Kind:
    """Returns the kind of a file: by its first bytes, else its suffix, else its content.

    Raises:
        InputError: the file is an image, a program or another file without
            readable text.
    """
    head = source.content[:_BEYOND_JUNK]
    suffix = PurePath(source.file_name).suffix.casefold()
    refused = _refused(head, suffix)
    if refused is not None:
        if ";" not in refused:  # no remedy yet
            refused += "; give a document with text (scans need OCR first)"
        raise InputError(f"{source.name}: is {refused}")
    if head.startswith(_ZIP):
        return _kind_of_zip(source)
    for kind in KINDS.values():
        if head.startswith(kind.magic):
            return kind
    named = next(
        (kind for kind in KINDS.values() if suffix in kind.suffixes), None
    )
    # A text may be about PDF.
    if b"%PDF-" in head and named in (None, KINDS["pdf"]):
        return KINDS["pdf"]
    if head[_TAR_PLACE:].startswith(_TAR_MAGIC):
        return KINDS["tar"]
    if named in (None, KINDS["text"]) and _are_subtitles(source.content):
        return KINDS["subtitles"]
    if named is None:
        return KINDS[_look(source.content)]
    if named is KINDS["xml"]:
        named = KINDS[_xml_markup(source.content) or "xml"]
    return _named(named, suffix, source)


def _refused(head: bytes, suffix: str) -> str | None:
    """Returns the description of an unsupported file type; None for others."""
    for offset, magic, what in _REFUSED:
        if head[offset:].startswith(magic):
            if magic == _OLE and suffix == ".msg":
                return "an Outlook message; save it as .eml, .html or .txt"
            return what
    if head.startswith(b"RIFF"):
        return _RIFF.get(head[_RIFF_PLACE:][:4])
    return None


def _named(kind: Kind, suffix: str, source: Source) -> Kind:
    """Returns the kind that a suffix names, after checking that it has no required first bytes."""
    if kind.magic and source.content:
        raise InputError(
            f"{source.name}: does not begin as {kind.name} does, although its name ends in "
            f"{suffix}; the file is damaged or has the wrong name"
        )
    return kind if source.content else KINDS["text"]


def _are_subtitles(content: bytes) -> bool:
    """Returns True if a text begins like subtitles."""
    is_vtt = content.removeprefix(b"\xef\xbb\xbf").startswith(b"WEBVTT")
    return is_vtt or _CUE.match(content[:_SNIFFED]) is not None


def _look(content: bytes) -> str:
    text = content[:_SNIFFED].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    is_markup = text.startswith((b"<?xml", b"<!--"))
    if text.startswith((b"<!doctype html", b"<html")) or (
        is_markup and b"<html" in text
    ):
        return "html"
    markup = None
    if is_markup or text.startswith(b"<"):
        markup = _xml_markup(content)
    if markup is not None:
        return markup
    if is_markup and any(root in text for root in _XML_ROOTS):
        return "xml"
    if text.startswith(b"from: <") and any(
        mark in text for mark in _MHTML_MARKS
    ):
        return "mhtml"
    beginning = (
        content[:_BEGINNING]
        .removeprefix(b"\xef\xbb\xbf")
        .replace(b"\r\n", b"\n")
    )
    for markup, pattern in _BEGINNINGS.items():
        if pattern.match(beginning):
            return markup
    if _count_marks(_MEDIAWIKI, beginning) >= _FEWEST_MEDIAWIKI_MARKS:
        return "mediawiki"
    if _count_marks(_MARKDOWN, beginning) >= _FEWEST_MARKS:
        return "markdown"
    return "text"


def _count_marks(marks: Sequence[re.Pattern[bytes]], content: bytes) -> int:
    """Returns the number of patterns that match a content."""
    return sum(mark.search(content) is not None for mark in marks)


def _xml_markup(content: bytes) -> str | None:
    """Returns pandoc's format of an XML file; None for other XML."""
    text = content[:_BEYOND_JUNK].lower()
    for markup, marks in _XML_MARKS.items():
        if any(mark in text for mark in marks):
            return markup
    return None


def _kind_of_zip(source: Source) -> Kind:
    """Returns the kind of a zip archive by its members."""
    try:
        with zipfile.ZipFile(io.BytesIO(source.content)) as archive:
            names = set(archive.namelist())
    except archives.DAMAGED_ARCHIVE:
        return _damaged_zip(source)
    for member, kind in _ZIP_MEMBERS.items():
        if member in names:
            return KINDS[kind]
    if docx.part_path(names, "document") is not None:
        return KINDS["docx"]
    if "Index/Document.iwa" in names:
        raise InputError(
            f"{source.name}: is a document of Apple's iWork; save it as .docx or PDF"
        )
    return KINDS["slack" if slack.is_export(names) else "zip"]


def _damaged_zip(source: Source) -> Kind:
    suffix = PurePath(source.file_name).suffix.casefold()
    for kind in KINDS.values():
        if kind.magic == _ZIP and suffix in kind.suffixes:
            return kind  # its reader reports the damage
    return KINDS["zip"]
