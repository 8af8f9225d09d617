"""PDF: text layers of pages, their scans and bookmarks, and the document made of them."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from longsum_jax.errors import InputError, counted
from longsum_jax.extra import import_extra
from longsum_jax.readers.cleaning import (
    lines_to_leave_out,
    without_line_numbers,
)
from longsum_jax.readers.document import Document
from longsum_jax.readers.pdf_blocks import MAX_LEVEL, Assembler, bookmark_key
from longsum_jax.readers.pdf_footnotes import with_digits, without_footnotes
from longsum_jax.readers.pdf_lines import PageLine, lines_of
from longsum_jax.readers.source import Source

# Maximum lines of a scanned page that has a stamp of a library or web site.
_STAMP_LINES = 4

_pdfium_lock = threading.Lock()  # PDFium is not thread-safe


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file is damaged or encrypted, is a scan without a text
            layer, or has too many pages.
    """
    with _pdfium_lock:
        pages, title, bookmarks, pages_with_images = _read_pages(source)
    texts, dropped = _without_line_numbers(pages)
    marks, notes = lines_to_leave_out(
        [[line.text for line in page] for page in texts]
    )
    dropped += notes
    texts = [
        [
            line
            for line, is_left_out in zip(page, marked, strict=True)
            if not is_left_out
        ]
        for page, marked in zip(texts, marks, strict=True)
    ]
    # The stamp of a library does not count as text of a page.
    scans = [number + 1 for number in pages_with_images if not texts[number]]
    notes = []
    if scans:
        _check_scans(source, len(scans), sum(map(bool, texts)), len(pages))
        notes.append(_about_images(scans, len(pages)))
    if not source.options.keep_all:
        pages, footnotes = without_footnotes(texts)
        notes += [*dropped, *footnotes]
    pages = [[with_digits(line) for line in page] for page in pages]
    assembler = Assembler(pages, bookmarks, keep_all=source.options.keep_all)
    blocks = assembler.blocks()
    if assembler.num_captions:
        notes.append(f"{counted(assembler.num_captions, 'caption')} left out")
    yield source.document(
        blocks, title=title, num_pages=len(pages), notes=notes
    )


def _without_line_numbers(
    pages: Sequence[Sequence[PageLine]],
) -> tuple[list[list[PageLine]], list[str]]:
    texts, notes = without_line_numbers(
        [[line.text for line in page] for page in pages]
    )
    if not notes:
        return list(map(list, pages)), []
    results = []
    for page, page_texts in zip(pages, texts, strict=True):
        lines = zip(page, page_texts, strict=True)
        results.append(
            [line._replace(text=text) for line, text in lines if text]
        )
    return results, notes


def _check_scans(
    source: Source, num_scans: int, num_texts: int, num_pages: int
) -> None:
    """Raises InputError if more pages are images than text."""
    if num_scans <= num_texts or (num_texts and source.options.keep_all):
        return
    others = "; --keep_all reads the other pages" if num_texts else ""
    raise InputError(
        f"{source.name}: a scan ({num_scans} of {num_pages} pages are images without a text "
        "layer); run an OCR program on it, for example ocrmypdf, or register a reader with OCR "
        f'as longsum_jax.readers.KINDS["pdf"]{others}'
    )


def _read_pages(
    source: Source,
) -> tuple[
    list[list[PageLine]], str | None, dict[tuple[int, str], int], list[int]
]:
    """Returns lines by page, title, bookmarks, and indices of pages with an image and few lines."""
    pdfium = import_extra("pypdfium2", source.name, "PDF")
    document = _open(pdfium, source)
    try:
        num_pages = len(document)
        source.check_pages(num_pages, "pages")
        pages = []
        with_images = []
        for number in range(num_pages):
            source.check_time()
            lines, has_images = _read_page(
                pdfium, document, number, source.name
            )
            pages.append(lines)
            if has_images:
                with_images.append(number)
        title = (document.get_metadata_dict().get("Title") or "").strip()
        return pages, title or None, _bookmarks(document), with_images
    finally:
        document.close()


def _open(pdfium: Any, source: Source) -> Any:
    try:
        return pdfium.PdfDocument(source.content)
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise InputError(
                f"{source.name}: the PDF is encrypted and needs a password; save it without one"
            ) from None
        raise InputError(
            f"{source.name}: a damaged PDF ({error}); copy it again"
        ) from None


def _read_page(
    pdfium: Any, document: Any, number: int, name: str
) -> tuple[list[PageLine], bool]:
    """Returns the lines of a page, and True if it has few lines and an image."""
    try:
        page = document[number]
    except pdfium.PdfiumError as error:
        raise InputError(
            f"{name}: page {number + 1} is damaged ({error}); copy the file again"
        ) from None
    try:
        lines = lines_of(pdfium.raw, page.get_textpage())
        image = pdfium.raw.FPDF_PAGEOBJ_IMAGE
        has_few_lines = len(lines) <= _STAMP_LINES
        has_images = has_few_lines and any(
            page.get_objects(filter=[image], max_depth=3)
        )
        return lines, has_images
    finally:
        page.close()


def _bookmarks(document: Any) -> dict[tuple[int, str], int]:
    """Returns levels of the table of contents by page index and title."""
    levels = {}
    try:
        for bookmark in document.get_toc(max_depth=MAX_LEVEL):
            target = bookmark.get_dest()
            page = None if target is None else target.get_index()
            if page is not None:
                key = bookmark_key(bookmark.get_title())
                levels[page, key] = bookmark.level + 1
    except (RuntimeError, ValueError):
        # The table of contents is damaged; the headings remain.
        return {}
    return levels


def _about_images(pages: Sequence[int], num_pages: int) -> str:
    shown = ", ".join(map(str, pages[:10]))
    if len(pages) > 10:
        shown += ", ..."
    return f"{len(pages)} of {num_pages} pages are images without a text layer ({shown})"
