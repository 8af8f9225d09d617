"""Input that is empty, strange, damaged, hostile or no document: each is read, or named with the
reason, and what lies beside it is read all the same."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import sys
import tarfile
import zipfile
from typing import NamedTuple

import pytest

from longsum_jax.errors import InputError
from longsum_jax.readers import ReadOptions, read_documents
from longsum_jax.readers.archives import DAMAGED_ARCHIVE

GOOD = "A good document.\n"


class Case(NamedTuple):
    """Files of a folder, and what becomes of them.

    Attributes:
        name: of the case.
        files: (make, folder) -> contents by names; or writes them itself.
        problem: expression that the only failure matches; None where all is read.
        text: of the document; None where there is none but the good one beside it.
        options: of the readers.
        paths: below the folder; the folder itself by default.
    """

    name: str
    files: object
    problem: str | None = None
    text: str | None = None
    options: dict = {}  # noqa: RUF012
    paths: tuple | None = None


def one(name, content):
    """A folder with one file, whose content may need the functions that make files."""
    return lambda make, folder: {name: content(make) if callable(content) else content}


SLACK_USERS = '[{"id": "U1", "real_name": "Eva"}]'
SLACK_DAY = '[{"type": "message", "ts": "x", "user": "U1", "text": "Good."}]'


def slack(days):
    """A folder with an export of Slack."""
    return one("a.zip", lambda make: make.zip({"users.json": SLACK_USERS} | days))


def link_loop(make, folder):
    (folder / "below").mkdir()
    (folder / "below" / "up").symlink_to(folder)
    return {"below/only.txt": "Only once."}


def link_to_nothing(make, folder):
    (folder / "link.txt").symlink_to(folder / "gone.txt")
    return {}


def links_of_a_circle(make, folder):
    (folder / "one.txt").symlink_to(folder / "two.txt")
    (folder / "two.txt").symlink_to(folder / "one.txt")
    (folder / "two.txt").unlink()
    return {}


def pipe(make, folder):
    os.mkfifo(folder / "pipe")
    return {}


def unreadable_memory(make, folder):
    # Opens, and fails when it is read; permissions mean nothing to the superuser.
    (folder / "memory.txt").symlink_to("/proc/self/mem")
    return {}


def tar_of(name, content):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


def nested_zip(make):
    content = b"Deep inside."
    for depth in range(5):
        content = make.zip({f"{depth}.txt" if depth == 0 else f"{depth}.zip": content})
    return content


def deep_mail(make):
    content = "x"
    for i in range(600):
        kind = f"Content-Type: multipart/mixed; boundary=b{i}"
        content = f"{kind}\n\n--b{i}\n{content}\n--b{i}--\n"
    return content


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    "<w:body><w:p><w:r><w:t>&b;</w:t></w:r></w:p></w:body></w:document>"
)
OUTSIDE = BOMB.replace('"aaaaaaaaaa"', 'SYSTEM "file:///etc/passwd"')
PARAGRAPH = "<w:p><w:r><w:t>Words.</w:t></w:r></w:p>"
ENCRYPTED_ODT = (
    '<m:manifest xmlns:m="urn:x"><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>'
)
ENCRYPTED_EPUB = (
    '<e:x xmlns:e="urn:x"><e:EncryptionMethod Algorithm="http://www.w3.org/aes256"/></e:x>'
)


def workbook(make, content):
    return make.zip({"xl/workbook.xml": content})


PICTURE = '<p><img src="a.png"/></p>'
PICTURES = "has pictures and no text; .* ocrmypdf"
CASES = [
    # Text
    Case("empty", one("a.txt", ""), "the file is empty; give a text"),
    Case("white space", one("a.txt", " \n\t \n"), "the file is empty; give a text"),
    Case("empty Markdown", one("a.md", "<!-- nothing -->"), "the file is empty"),
    Case("one word", one("a.txt", "Word"), text="Word"),
    Case("one character", one("a.txt", "x"), text="x"),
    Case("no ends of sentences", one("a.txt", "word " * 50_000), text=("word " * 50_000).strip()),
    Case("one long word", one("a.txt", "x" * 500_000), text="x" * 500_000),
    Case("a million lines", one("a.txt", "a\n" * 300_000), text=("a\n" * 300_000).strip()),
    Case("control characters", one("a.txt", "a\x01b\x1b\x7f\x86c"), text="abc"),
    Case(
        "colors",
        one("a.txt", "\x1b[1;31mError\x1b[0m: \x1b[2Kno [31m disk"),
        text="Error: no [31m disk",
    ),
    Case("control characters alone", one("a.txt", "\x01\x02\x1b"), "3 control characters left out"),
    Case("right to left", one("a.txt", "שלום עולם. זה טקסט."), text="שלום עולם. זה טקסט."),
    Case("marks of direction", one("a.txt", "a \u202eb\u202c c"), text="a \u202eb\u202c c"),
    Case("mixed scripts", one("a.txt", "Привет 世界 hello"), text="Привет 世界 hello"),
    Case("emoji", one("a.txt", "👩‍👩‍👧 🇫🇷 ok"), text="👩‍👩‍👧 🇫🇷 ok"),
    Case("byte order mark alone", one("a.txt", b"\xef\xbb\xbf"), "the file is empty"),
    Case("half a byte order mark", one("a.txt", "\ufefftext".encode()[:-1]), text="tex"),
    Case("UTF-16", one("a.txt", "Hé, two.".encode("utf-16")), text="Hé, two."),
    Case("UTF-16 unmarked", one("a.txt", "Hello, you.".encode("utf-16-le")), text="Hello, you."),
    Case("half a UTF-16 unit", one("a.txt", b"\xff\xfea\0b"), "is not UTF-16-LE; convert the file"),
    Case("UTF-32", one("a.txt", "Hé.".encode("utf-32")), text="Hé."),
    Case("Windows", one("a.txt", "“Naïve” café".encode("cp1252")), text="“Naïve” café"),
    Case("no encoding fits", one("a.txt", bytes(range(128, 256))), "no other encoding fits"),
    Case("a NUL", one("a.txt", b"some\0text"), "NUL byte at position 4; give text, not a binary"),
    Case("NULs alone", one("a.txt", bytes(100)), "NUL byte at position 0"),
    Case("old Mac line ends", one("a.txt", "one\rtwo\r\rthree"), text="one\ntwo\n\nthree"),
    Case("random bytes", one("a.bin", bytes([0, 200, 17, 254] * 99)), "NUL byte at position 0"),
    # Binaries
    Case("a picture", one("a.png", b"\x89PNG\r\n\x1a\n" + bytes(64)), "is a PNG image"),
    Case("a picture named text", one("a.txt", b"\xff\xd8\xff\xe0"), "is a JPEG image"),
    Case("a recording", one("a.wav", b"RIFF\1\0\0\0WAVEfmt "), "is a WAV recording"),
    Case("a film", one("a.mp4", b"\0\0\0 ftypisom"), "is an MP4 film"),
    Case("a program", one("run", b"\x7fELF\2\1\1"), "is a program"),
    Case("an old Word file", one("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "save it as .docx"),
    Case("a damaged workbook", one("a.xlsx", lambda make: workbook(make, "")), "damaged XML"),
    Case("an empty workbook", one("a.xlsx", lambda make: workbook(make, "<w/>")), "has no rows"),
    Case("a bomb of a workbook", one("a.xlsx", lambda make: workbook(make, BOMB)), "with entity"),
    Case(
        "a presentation of pictures",
        one("a.pptx", lambda make: make.zip({"ppt/presentation.xml": "<p/>", "ppt/media/a": ""})),
        PICTURES,
    ),
    Case("PostScript", one("a.ps", b"%!PS-Adobe"), "convert it to PDF"),
    # PDF
    Case("no PDF at all", one("a.pdf", "just text"), "does not begin as PDF does"),
    Case("a PDF cut short", one("a.pdf", lambda make: make.pdf(["x"])[:120]), "a damaged PDF"),
    Case("head of a PDF", one("a.pdf", b"%PDF-1.7\n"), "a damaged PDF"),
    Case(
        "an encrypted PDF", one("a.pdf", lambda make: make.pdf(["x"], encrypted=True)), "password"
    ),
    Case("a scan", one("a.pdf", lambda make: make.pdf([], [], image=True)), "a scan .* ocrmypdf"),
    Case("a book of pictures", one("a.epub", lambda make: make.epub([PICTURE])), PICTURES),
    Case("a page of pictures", one("a.html", PICTURE), PICTURES),
    Case(
        "a DOCX of pictures",
        one("a.docx", lambda make: make.docx("", **{"word/media/a.png": ""})),
        PICTURES,
    ),
    Case(
        "an ODT of pictures",
        one("a.odt", lambda make: make.odt("", **{"Pictures/a.png": ""})),
        PICTURES,
    ),
    Case("a PDF without text", one("a.pdf", lambda make: make.pdf([])), "the file is empty"),
    Case(
        "too many pages",
        one("a.pdf", lambda make: make.pdf(*[["x"]] * 5)),
        "5 pages, more than max_pages=4",
        options={"max_pages": 4},
    ),
    Case("junk before a PDF", one("a.pdf", lambda make: b"junk\n" + make.pdf(["Hi."])), text="Hi."),
    # Archives and what is made of them
    Case(
        "a zip cut short", one("a.zip", lambda make: make.zip({"a.txt": "x"})[:-9]), "damaged zip"
    ),
    Case("an empty zip", one("a.zip", lambda make: make.zip({})), "holds no files"),
    Case(
        "a zip bomb",
        one("a.zip", lambda make: make.zip({"a.txt": bytes(20_000_000)})),
        "expands to more than 200 times its size",
    ),
    Case(
        "a large zip",
        one("a.zip", lambda make: make.zip({"a.txt": "x" * 4000, "b.txt": "y" * 4000})),
        "more than 5000 bytes",
        options={"max_bytes": 5000},
    ),
    Case("zips inside zips", one("a.zip", nested_zip), "deeper than max_depth=4"),
    Case(
        "a zip with a password",
        one("a.zip", lambda make: make.zip({"b.txt": "x"}, encrypted=["b.txt"])),
        "a.zip/b.txt: needs a password",
    ),
    Case(
        "a way out of a zip", one("a.zip", lambda make: make.zip({"../b.txt": "Out."})), text="Out."
    ),
    Case(
        "a zip with a file of no name",
        one("a.zip", lambda make: make.zip({"_.txt": "No name."}).replace(b"_.txt", b"\0.txt")),
        text="No name.",
    ),
    Case("a gzip bomb", one("a.gz", gzip.compress(bytes(20_000_000))), "200 times its size"),
    Case("a gzip cut short", one("a.txt.gz", gzip.compress(b"text" * 99)[:-9]), "cut short"),
    Case("an xz cut short", one("a.txt.xz", lzma.compress(b"text" * 99)[:-9]), "cut short"),
    Case("no gzip at all", one("a.txt.gz", "text"), "does not begin as gzip does"),
    Case(
        "a damaged bz2", one("a.bz2", bz2.compress(b"text")[:-4] + b"abcd"), "damaged or cut short"
    ),
    Case("gzip in gzip in gzip", one("a.gz", gzip.compress(gzip.compress(b"Two."))), text="Two."),
    Case("a link in a tar", one("a.tar", tar_of("b.txt", b"In it.")), text="In it."),
    Case("a tar cut short", one("a.tar", tar_of("b.txt", b"x" * 2000)[:900]), "damaged tar"),
    Case("a DOCX cut short", one("a.docx", lambda make: make.docx(PARAGRAPH)[:300]), "damaged zip"),
    Case("an empty DOCX", one("a.docx", lambda make: make.docx("")), "the file is empty"),
    Case("damaged XML", one("a.docx", lambda make: make.docx("<w:p>")), "damaged XML"),
    Case(
        "a bomb of entities",
        one("a.docx", lambda make: make.docx("", **{"word/document.xml": BOMB})),
        "entity declarations",
    ),
    Case(
        "an entity from outside",
        one("a.docx", lambda make: make.docx("", **{"word/document.xml": OUTSIDE})),
        "entity declarations",
    ),
    Case(
        "deep XML",
        one("a.docx", lambda make: make.docx("<w:x>" * 400 + "</w:x>" * 400)),
        "nested deeper than",
    ),
    Case(
        "an encrypted ODT",
        one("a.odt", lambda make: make.odt("", **{"META-INF/manifest.xml": ENCRYPTED_ODT})),
        "the document is encrypted",
    ),
    Case(
        "a book with rights management",
        one("a.epub", lambda make: make.epub([""], **{"META-INF/encryption.xml": ENCRYPTED_EPUB})),
        "digital rights management",
    ),
    Case("a book of nothing", one("a.epub", lambda make: make.epub([])), "lists no chapters"),
    Case(
        "a book without its package",
        one("a.epub", lambda make: make.zip({"META-INF/container.xml": "<container/>"})),
        "names no book",
    ),
    Case("damaged RTF", one("a.rtf", r"{\rtf1 Some {\b words"), text="Some words"),
    # HTML, subtitles, mail, tables
    Case("an empty page", one("a.html", "<html><body></body></html>"), "the file is empty"),
    Case("a page of scripts", one("a.html", "<script>alert(1)</script>"), "before its scripts"),
    Case(
        "an Outlook message",
        one("a.msg", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
        "Outlook message; save",
    ),
    Case("a page of menus", one("a.html", "<nav>Home</nav>"), "no text remains .*boilerplate"),
    Case("an instruction in a page", one("a.html", "<p>One<?x><p>Two"), text="One\n\nTwo"),
    Case("tags never closed", one("a.html", "<p>One<p>Two<b><i>"), text="One\n\nTwo"),
    Case(
        "an element with many attributes",
        one("a.html", "<p>" + "<b " + "".join(f" a{n}=1" for n in range(501)) + ">x"),
        "an element with more than 500 attributes",
    ),
    Case(
        "tags of many names",
        one("a.html", "<p>" + "".join(f"<t{n} a{n}=1>" for n in range(10_001)) + "x"),
        "more than 20000 different names of elements and attributes",
    ),
    Case("deep bold text", one("a.html", "<b>" * 4001 + "x"), "nested elements"),
    Case("a deep page", one("a.html", "<div>" * 4001 + "x"), "nested elements"),
    Case("no cue", one("a.srt", "Nothing is timed here."), "no text remains"),
    Case(
        "endless hours", one("a.srt", f"{'9' * 5000}:00:01,000 --> 00:02,000\nA"), "no text remains"
    ),
    Case("mail without a body", one("a.eml", "Subject: Nothing\n\n"), "the file is empty"),
    Case("no mailbox", one("a.mbox", "Just text."), "no message in the mailbox"),
    Case("no JSON", one("a.json", "{nothing"), "not valid JSON"),
    Case("no JSON in a notebook", one("a.ipynb", "{nothing"), "not valid JSON"),
    Case(
        "no notebook", one("a.ipynb", '{"text": "x"}'), "not a notebook: its cells must have a type"
    ),
    Case(
        "cells of numbers", one("a.ipynb", '{"cells": [1]}'), "not a notebook: its cells must have"
    ),
    Case(
        "a cell that is no text",
        one("a.ipynb", '{"cells": [{"cell_type": "markdown", "source": [3]}]}'),
        "not a notebook: its cells must have",
    ),
    Case("no cells", one("a.ipynb", '{"cells": []}'), "the file is empty"),
    Case(
        "a bad line", one("a.jsonl", '{"text": "Good."}\n{bad\n'), "a.jsonl:2: not valid", "Good."
    ),
    Case("a line of another kind", one("a.jsonl", "[1, 2]"), "expected a JSON object, got list"),
    Case(
        "numbers in a list",
        one("a.json", "[3]"),
        'a.json:1: .*got int; give each document as {"document"',
    ),
    Case("an empty text in a list", one("a.json", '["Good.", ""]'), "is empty; remove", "Good."),
    Case("null", one("a.jsonl", '{"text": null}'), '"text" is empty; remove the row'),
    Case("no such field", one("a.jsonl", '{"txt": "x"}'), 'no field "document".*--document_key'),
    Case("a number for a text", one("a.jsonl", '{"text": 3}'), '"text" must be a string, got int'),
    Case(
        "fields in a field", one("a.json", '{"text": {"a": "x"}}'), "got dict; write what it holds"
    ),
    Case("an empty field", one("a.jsonl", '{"text": " "}'), '"text" is empty; remove the row'),
    Case("half a character", one("a.jsonl", r'{"text": "a\ud800b"}'), text="a\ufffdb"),
    Case("very deep JSON", one("a.jsonl", "[" * 100_000), "not valid JSON"),
    Case(
        "a damaged day of Slack",
        slack({"a/2024-05-01.json": "{bad", "a/2024-05-02.json": SLACK_DAY}),
        r"a.zip/a/2024-05-01.json: not valid JSON .*; export the workspace again",
        "Eva: Good.",
    ),
    Case(
        "another list in a day of Slack",
        slack({"a/2024-05-01.json": "[1]", "b/2024-05-02.json": SLACK_DAY}),
        'expected messages with the fields "type" and "ts" of Slack; export',
        "Eva: Good.",
    ),
    Case(
        "users of Slack that are not a list",
        slack({"users.json": "{}", "a/2024-05-01.json": SLACK_DAY}),
        "users.json: expected a list, got dict; export",
    ),
    Case(
        "an export of Slack without messages",
        slack({"a/2024-05-01.json": "[]"}),
        "a.zip: a Slack export without messages; export the workspace again",
    ),
    Case("an empty table", one("a.csv", ""), "the file is empty"),
    Case("names of columns alone", one("a.csv", "id,text\n"), "the file is empty; give rows"),
    Case("no such column", one("a.csv", "a,b\n1,2\n3,4\n"), '/a.csv: no field "document"'),
    Case("a row cut short", one("a.csv", "id,text\n1\n"), 'no field "document"'),
    Case(
        "a comma without quotes",
        one("a.csv", "id,text\n1,One, two.\n2,Good.\n"),
        "a.csv:2: 3 cells in 2 columns; quote texts that hold ','",
        "Good.",
    ),
    Case("no Parquet", one("a.parquet", b"PAR1" + bytes(40) + b"PAR1"), "damaged Parquet"),
    Case("no Arrow", one("a.arrow", b"ARROW1" + bytes(40) + b"ARROW1"), "damaged Arrow"),
    Case("an empty stream", one("b.arrow", b"\xff" * 4 + bytes(4)), "damaged Arrow"),
    # Paths
    Case("a name with a line end", one("a\nb.txt", "Text."), text="Text."),
    Case("a bad file with such a name", one("a\nb.txt", ""), r"a\\nb.txt: the file is empty"),
    Case("a name that is no UTF-8", one(os.fsdecode(b"\xff.txt"), ""), r"\\xff.txt: the file"),
    Case("a loop of links", link_loop, text="Only once."),
    Case("a link to nothing", link_to_nothing, "a link that leads nowhere"),
    Case("a link to itself", links_of_a_circle, "a link that leads nowhere"),
    Case("a pipe in a folder", pipe, "no regular file"),
    Case("a file that cannot be read", unreadable_memory, "cannot read the file"),
    Case("an empty folder", lambda make, folder: {}, "holds no files", paths=("empty",)),
    Case("no such file", lambda make, folder: {}, "no such file", paths=("", "gone.txt")),
    Case("no file matches", lambda make, folder: {}, "no file matches", paths=("", "*.pdf")),
    Case("no pattern", one("[a].txt", "Text."), text="Text.", paths=("", "[a].txt")[:1]),
    Case("a page elsewhere", lambda make, folder: {}, "fetch it first", paths=("", "http://a/b")),
    Case(
        "another machine",
        lambda make, folder: {},
        "lies on a;.*file:///",
        paths=("", "file://a/b.txt"),
    ),
    Case("a character of RTF beyond all", one("a.rtf", rb"{\rtf1 \u99999999999? }"), "damaged RTF"),
    # Mail that takes long or goes deep
    Case(
        "messages in messages",
        one("a.eml", "Content-Type: message/rfc822\n\n" * 400 + "A: b\n\nx"),
        "nested too deeply",
    ),
    Case(
        "brackets in a header",
        one("a.eml", "Content-Type: " + "(" * 100_000 + "\n\nx"),
        "nested too deeply",
    ),
    Case("parts of parts", one("a.eml", deep_mail), text="x"),
    Case("parts of parts of a page", one("a.mht", deep_mail), "holds no web page"),
    Case("a page without a page", one("a.mht", "Subject: S\n\nx"), "holds no web page"),
    Case(
        "a long subject",
        one("a.eml", "Subject: " + "=?utf-8?q?a?= " * 100_000 + "\n\nx"),
        text="a" * 142 + " =?utf-8?q?a?\n\nx",
    ),
    Case("a parameter without end", one("a.eml", "Content-Type: a/b; a*0*\n\nx"), text="x"),
    Case(
        "ten thousand parameters",
        one("a.eml", "Content-Type: text/plain; " + "a*0*=b; " * 10_000 + "\n\nx"),
        text="x",
    ),
    Case(
        "no time",
        one("a.docx", lambda make: make.docx(PARAGRAPH)),
        "takes longer",
        options={"max_seconds": 1e-9},
    ),
]


@pytest.mark.skipif(sys.platform == "win32", reason="names and links of other systems")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_is_read_or_named(case, make, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "empty").mkdir()
    (folder / "zz_good.txt").write_text(GOOD)
    for name, content in case.files(make, folder).items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    paths = [
        path if "://" in path else os.path.join(folder, path) for path in (case.paths or ("",))
    ]
    failures = []
    options = ReadOptions(**case.options)
    documents = list(read_documents(*paths, options=options, on_failure=failures.append))

    good = [] if case.paths == ("empty",) else [GOOD.strip()]
    expected = sorted([*filter(None, [case.text]), *good])
    assert sorted(document.text for document in documents) == expected
    assert len(failures) == (case.problem is not None), failures
    for failure in failures:
        assert re.search(case.problem, failure.problem), failure.problem
        assert failure.problem.isprintable()
        assert failure.problem.startswith(failure.name)
        with pytest.raises(InputError, match=re.escape(failure.problem)):
            list(read_documents(*paths, options=options))


@pytest.mark.parametrize("error", DAMAGED_ARCHIVE)
def test_whatever_a_damaged_zip_raises_is_named(monkeypatch, tmp_path, error):
    def fail(*_):
        raise error(*("utf-8", b"", 0, 1, "x") if error is UnicodeDecodeError else ("x",))

    path = tmp_path / "a.docx"
    path.write_bytes(b"PK\x03\x04")
    monkeypatch.setattr(zipfile, "ZipFile", fail)
    with pytest.raises(InputError, match="a damaged zip archive"):
        list(read_documents(path, options=ReadOptions(sandbox=False)))


def test_a_missing_package_is_named(tmp_path, monkeypatch, make):
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    (tmp_path / "a.pdf").write_bytes(make.pdf(["x"]))
    (tmp_path / "b.txt").write_text("Text.")
    failures = []
    options = ReadOptions(sandbox=False)
    (document,) = read_documents(tmp_path, options=options, on_failure=failures.append)
    assert document.text == "Text."
    problem = "a.pdf: to read PDF, pip install 'longsum_jax[files]'"
    assert [failure.problem.endswith(problem) for failure in failures] == [True]


@pytest.mark.parametrize(
    "options",
    [
        {"max_bytes": 0},
        {"max_depth": 0},
        {"max_pages": -1},
        {"max_seconds": 0},
        {"document_key": ""},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(InputError, match=next(iter(options))):
        ReadOptions(**options)


def all_of(path, **options):
    """Documents of a file, and problems of what could not be read."""
    failures = []
    result = read_documents(path, options=ReadOptions(**options), on_failure=failures.append)
    return list(result), [failure.problem for failure in failures]


@pytest.mark.parametrize("path", [["a.txt", "b.txt"], b"a.txt", None])
def test_paths_of_another_type_are_named(path):
    kind = type(path).__name__
    with pytest.raises(InputError, match=f"a path is of type {kind}; give paths one by one"):
        list(read_documents(path))


def test_archives_inside_one_another_have_one_limit(tmp_path, make):
    """Each may be small, and all of them together larger than any disk."""
    content = make.zip({"a.txt": "word " * 2000})
    for _ in range(2):
        content = make.zip({f"{i}.zip": content for i in range(10)})
    (tmp_path / "a.zip").write_bytes(content)
    documents, problems = all_of(tmp_path / "a.zip", max_bytes=200_000)
    assert 10 < len(documents) < 20
    assert len(problems) < 40
    assert all("more than 200000 bytes; raise max_bytes" in problem for problem in problems)
    assert len(all_of(tmp_path / "a.zip", max_bytes=2_000_000)[0]) == 100


def test_members_of_archives_inside_one_another_are_counted_together(tmp_path, make, monkeypatch):
    monkeypatch.setattr("longsum_jax.readers.source.MAX_MEMBERS", 25)
    inner = make.zip({f"{i}.txt": "A word." for i in range(9)})
    (tmp_path / "a.zip").write_bytes(make.zip({f"{i}.zip": inner for i in range(4)}))
    documents, problems = all_of(tmp_path / "a.zip", sandbox=False)
    assert len(documents) == 18
    assert problems
    assert all("more than 25 members; unpack the archive" in problem for problem in problems)


def test_members_of_archives_are_not_written(tmp_path, make):
    inner = make.zip({"secret.txt": "A word."})
    (tmp_path / "a.zip").write_bytes(make.zip({"b.txt": "A word.", "inner.zip": inner}))
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_of("c.txt", b"A word.")))
    written, active = [], True

    def watch(event, arguments):
        if active and event == "open" and isinstance(arguments[1], str):
            written.extend([arguments[0]] * bool(set(arguments[1]) & set("wax+")))
        elif active and event in ("os.mkdir", "os.rename", "tempfile.mkstemp", "tempfile.mkdtemp"):
            written.append(event)

    sys.addaudithook(watch)
    documents, problems = all_of(tmp_path, sandbox=False)
    (tmp_path / "seen").write_text("")  # the hook sees it
    active = False
    assert (len(documents), problems) == (3, [])
    assert [str(path) for path in written] == [str(tmp_path / "seen")]


def test_holes_in_a_tar_archive_are_not_filled(tmp_path):
    """A GNU tar file of a kilobyte may hold a file of a gigabyte of zeros."""
    info = tarfile.TarInfo("holes.txt")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[386:398], header[398:410] = b"%011o\0" % 0, b"%011o\0" % 0
    header[483:495] = b"%011o\0" % 2**29  # its size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    (tmp_path / "a.tar").write_bytes(bytes(header) + tar_of("a.txt", b"Words."))
    [document], [problem] = all_of(tmp_path / "a.tar")
    assert document.text == "Words."
    assert problem == f"{tmp_path}/a.tar/holes.txt: a file with holes; unpack the archive"


def test_chapters_that_come_again_count_again(tmp_path, make):
    book = make.epub(["<p>word word word</p>" * 200])
    with zipfile.ZipFile(io.BytesIO(book)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    reference = b'<itemref idref="c0"/>'
    members["OPS/book.opf"] = members["OPS/book.opf"].replace(reference, reference * 1000)
    (tmp_path / "a.epub").write_bytes(make.zip(members))
    documents, [problem] = all_of(tmp_path / "a.epub", max_bytes=500_000)
    assert documents == []
    assert "more than 500000 bytes; raise max_bytes" in problem


def test_a_value_that_a_table_stores_once_counts_in_every_row(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"text": ["word " * 2000] * 100}), path)
    assert path.stat().st_size < 20_000
    documents, problems = all_of(path, max_bytes=100_000)
    assert len(documents) == 9
    assert "more than 100000 bytes; raise max_bytes" in problems[-1]


def test_a_column_whose_name_is_no_text(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    parquet.write_table(arrow.table({"n\u00e9": ["A text."]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"n\xc3\xa9", b"n\xe9\xe9"))
    documents, [problem] = all_of(path)
    assert documents == []
    assert "a damaged Parquet file" in problem


@pytest.mark.slow
def test_thousands_of_small_files(tmp_path):
    for number in range(3000):  # more than a process may have open
        (tmp_path / f"{number:05}.txt").write_text(f"The text of file {number}.")
    num_open = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    texts = [document.text for document in read_documents(tmp_path)]
    assert texts == [f"The text of file {number}." for number in range(3000)]
    if num_open:
        assert len(os.listdir("/proc/self/fd")) == num_open


def test_a_file_beyond_the_cap(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 200}))
    with pytest.raises(InputError, match="more than 100 bytes; raise max_bytes"):
        list(read_documents(path, options=ReadOptions(max_bytes=100)))
