"""Makes small files of every kind; those of others are only read, never written here by a
library that the readers use."""

import io
import zipfile
import zlib
from types import SimpleNamespace

import pytest

LINE = 14  # points from line to line


def make_pdf(*pages, encrypted=False, title=None, image=False):
    """Returns a PDF.

    Args:
        *pages: lists of lines, each a text, (text, size), or a list of texts (with sizes and points
            to the right and up) that are drawn in one row; "" is an empty line.
        encrypted: whether it needs a password that nobody knows.
        title: in its information.
        image: whether pages have an image.
    """
    bodies = [b"<< /Type /Catalog /Pages 2 0 R >>", b""]
    bodies.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    bodies.append(
        b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray "
        b"/BitsPerComponent 8 /Length 1 >>\nstream\n\x80\nendstream"
    )
    kids = []
    for lines in pages:
        content = _page_content(lines) + (b"\nq 300 0 0 300 72 200 cm /I Do Q" if image else b"")
        packed = zlib.compress(content)
        bodies.append(
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed)
        )
        kids.append(len(bodies) + 1)
        bodies.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R /Resources "
            b"<< /Font << /F 3 0 R >> /XObject << /I 4 0 R >> >> >>" % len(bodies)
        )
    listed = b" ".join(b"%d 0 R" % kid for kid in kids)
    bodies[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (listed, len(kids))
    trailer = b"/Root 1 0 R"
    if title:
        bodies.append(b"<< /Title (%s) >>" % title.encode())
        trailer += b" /Info %d 0 R" % len(bodies)
    if encrypted:
        key = b"<" + b"5a" * 32 + b">"
        bodies.append(b"<< /Filter /Standard /V 1 /R 2 /O %s /U %s /P -4 >>" % (key, key))
        trailer += b" /Encrypt %d 0 R /ID [<00> <00>]" % len(bodies)
    return _pdf_file(bodies, trailer)


def _page_content(lines):
    y = 760
    parts = []
    for line in lines:
        text, size = line if isinstance(line, tuple) else (line, 11)
        pieces = line if isinstance(line, list) else [(text, size, 0, 0)]
        for text, size, right, up in pieces:
            escaped = text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
            parts.append(f"BT /F {size} Tf 1 0 0 1 {72 + right} {y + up} Tm ({escaped}) Tj ET")
        y -= LINE if size < 14 else 2 * LINE
    return "\n".join(parts).encode("latin-1")


def _pdf_file(bodies, trailer):
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    places = []
    for number, body in enumerate(bodies, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer\n<< /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n"
    out.write(end % (len(bodies) + 1, trailer, start))
    return out.getvalue()


def make_zip(members, *, encrypted=()):
    """Returns a zip archive of names and contents; some are marked as needing a password."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content = bytearray(out.getvalue())
    for name in encrypted:
        for signature, offset in ((b"PK\x03\x04", 30), (b"PK\x01\x02", 46)):
            place = content.find(signature)
            while content[place + offset :][: len(name)] != name.encode():
                place = content.find(signature, place + 1)
            content[place + (6 if offset == 30 else 8)] |= 1
    return bytes(content)


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_docx(body, **members):
    """Returns a DOCX; ``body`` is XML in the namespace w."""
    document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
    styles = (
        f'<w:styles xmlns:w="{WORD}"><w:style w:styleId="H1"><w:name w:val="heading 1"/></w:style>'
        '<w:style w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="H1"/></w:style></w:styles>'
    )
    files = {"[Content_Types].xml": "<Types/>", "word/document.xml": document}
    return make_zip(files | {"word/styles.xml": styles} | members)


def make_odt(body, **members):
    """Returns an ODT; ``body`` is XML in the namespaces text and table."""
    names = {"office": "office", "text": "text", "table": "table"}
    spaces = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for short, name in names.items()
    )
    content = (
        f"<office:document-content {spaces}><office:body><office:text>{body}</office:text>"
        "</office:body></office:document-content>"
    )
    files = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content}
    return make_zip(files | members)


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OPS/book.opf"/></rootfiles></container>'
)


def make_epub(chapters, *, toc="", **members):
    """Returns an EPUB of the bodies of its chapters; ``toc`` is XML of the navigation."""
    xhtml = 'media-type="application/xhtml+xml"'
    manifest = "".join(
        f'<item id="c{i}" href="text/c%20{i}.xhtml" {xhtml}/>' for i in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{i}"/>' for i in range(len(chapters)))
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">'
        f"<metadata><dc:title>A Book</dc:title></metadata><manifest>{manifest}"
        f'<item id="nav" href="nav.xhtml" properties="nav" {xhtml}/></manifest>'
        f"<spine>{spine}</spine></package>"
    )
    head = '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">'
    files = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OPS/book.opf": package,
        "OPS/nav.xhtml": f"{head}<body><nav><ol>{toc}</ol></nav></body></html>",
    }
    for i, body in enumerate(chapters):
        files[f"OPS/text/c {i}.xhtml"] = f"{head}<head><title/></head><body>{body}</body></html>"
    return make_zip(files | members)


@pytest.fixture(scope="session")
def make():
    """The functions above; tests that take them need the packages of the extra "files"."""
    for package in ("chardet", "pyarrow", "pypdfium2", "selectolax", "striprtf"):
        pytest.importorskip(package)
    return SimpleNamespace(pdf=make_pdf, zip=make_zip, docx=make_docx, odt=make_odt, epub=make_epub)
