"""Every kind of file: its text, title, headings and pages, and what is left out of it."""

import csv
import gzip
import io
import itertools
import json
import lzma
import tarfile
import time
import zipfile
from email.message import EmailMessage

import pytest

from longsum_jax import compressed
from longsum_jax.errors import InputError
from longsum_jax.readers import KINDS, ReadOptions, read_documents
from longsum_jax.text.sentences import LONGEST_WRAPPED_LINE, split_sentences

MANY_WORDS = "The quick brown fox jumps over the lazy dog and goes home again today"


def read(path, **options):
    return list(read_documents(path, options=ReadOptions(**options)))


@pytest.fixture
def read_one(tmp_path, make):
    """Writes a file and reads its only document."""

    def read_one(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        (document,) = read(path, **options)
        assert document.path == str(path)
        for heading in document.headings:
            assert document.text[heading.start : heading.end].strip()
        assert list(document.pages) == sorted(document.pages)
        return document

    return read_one


def headings(document):
    return [(document.text[start:end], level) for start, end, level in document.headings]


def pages(document):
    ends = [*document.pages[1:], len(document.text)]
    return [
        document.text[start:end].strip() for start, end in zip(document.pages, ends, strict=True)
    ]


# Text


DOUBLE_SPACED = """It was he who had been the first to find the body of Sir

Charles, and we had only his word for all the circumstances which

led up to the old man's death.

"Well?" said he.

"Is that all?"

"""


def test_double_spaced_text_has_whole_sentences(read_one):
    text = DOUBLE_SPACED * 20
    result = read_one("a.txt", text).text
    whole = DOUBLE_SPACED.replace("Sir\n\nC", "Sir\nC").replace("which\n\nled", "which\nled")
    assert result == (whole * 20).strip()
    assert read_one("b.txt", text, keep_all=True).text == text.strip()
    sentence = DOUBLE_SPACED.split('"')[0].split()
    assert split_sentences(result)[0].split() == sentence


def test_paragraphs_of_a_line_are_no_double_spacing(read_one):
    """A few that lack a stop are titles, captions or formulas between the parts of a sentence."""
    text = ("A line of more than forty characters, where\n\n" + "x = y holds.\n\n") * 19
    assert read_one("a.txt", text).text == text.strip()
    lower = "results of the analysis of many genes in the cells of mice\n\nthe genes " + "are " * 30
    assert read_one("b.txt", f"{lower}\n\n" * 30).text.startswith(lower.rstrip())


@pytest.mark.parametrize(
    "line",
    [
        "[12/03/2024, 09:15:32] Anna Berg: ",
        "[09:15] Anna Berg: ",
        "3/12/24, 9:15 PM - Anna Berg: ",
        "2024-03-12 09:15 <Anna Berg> ",
        "[09:15:32] <Anna Berg> ",
    ],
)
def test_messages_of_a_chat_are_turns(read_one, line):
    said = ["The meeting is at ten, as it was before", "Ok", "Who brings the numbers for it"]
    document = read_one("a.txt", "\n".join(line + text for text in said))
    assert document.text.split("\n\n") == [f"Anna Berg: {said[0]}", *said[1:]]
    assert document.notes == ("3 messages of an exported chat",)
    retained = read_one("b.txt", "\n".join(line + text for text in said), keep_all=True)
    assert retained.text.startswith(line)


def test_a_chat_of_names_alone(read_one):
    text = "<anna> is main broken?\n<bob> yes\nsince noon\n<anna> i will mend it"
    expected = ["anna: is main broken?", "bob: yes\nsince noon", "anna: i will mend it"]
    assert read_one("a.txt", text).text.split("\n\n") == expected


def test_a_few_times_are_no_chat(read_one):
    text = "[09:15] The doors open: come in\n" + "We go on in another line.\n" * 9
    document = read_one("a.txt", text)
    assert (document.text, document.notes) == (text.strip(), ())
    assert read_one("b.html", "<b> x\n<i> y\n<u> z").text == "x y z"


@pytest.mark.parametrize(
    "text",
    [
        "# A title\n\nSee [the page](a.html) for more.",
        "# A title\n\nSee the page for more.\n\n```bash\nls\n```",
        "# A title\n\nSee the page for more.\n\n| a | b |\n|---|:-:|",
    ],
)
def test_markdown_without_a_name_is_known_by_its_marks(read_one, text):
    document = read_one("notes", text)
    assert document.title == "A title"
    assert document.text.split("\n\n")[1] == "See the page for more."


@pytest.mark.parametrize("text", ["# a comment\nx = y[0](1) | z\n", "A list:\n\n--- | x\n# end"])
def test_one_mark_of_markdown_is_none(read_one, text):
    assert read_one("notes", text).text == text.strip()


def test_short_turns_are_paragraphs(read_one):
    turns = ["Anna Berg: Good morning", "Bob: Hello, shall we start?\nI have an hour.", "Anna: Yes"]
    assert read_one("a.txt", "\n".join(turns)).text.split("\n\n") == turns
    prose = "Note: this is prose\nthat was wrapped early\nand goes on for some lines."
    assert read_one("b.txt", prose).text == prose


def test_paragraphs_with_one_wide_line_have_whole_sentences(read_one):
    wide = "See the address " + "x" * 160 + ", which an"
    full = [f"{MANY_WORDS} until it comes to a"] * 4
    lines = [*full, wide, f"{MANY_WORDS}, and that is the", "end of it."]
    assert read_one("a.txt", "\n".join(lines)).text == " ".join(lines)
    paragraphs = [f"{MANY_WORDS} " * 6, "A title", f"{MANY_WORDS} " * 6 + "."]
    text = "\n".join(map(str.strip, paragraphs))
    assert read_one("b.txt", text).text == text


@pytest.mark.parametrize("end", ["\r\r\n", "\r\n", "\r"])
def test_line_ends_of_other_programs(read_one, end):
    assert read_one("a.txt", f"One{end}two.{end}{end}Three.").text == "One\ntwo.\n\nThree."


def test_text_is_left_as_it_is(read_one):
    text = "One line,\n  and an indented one.\n\nAnother paragraph - with a dash."
    document = read_one("a.txt", text)
    assert (document.text, document.notes, document.title) == (text, (), None)
    assert document.headings == document.pages == ()


def test_headings_of_text(read_one):
    text = (
        "PART ONE\n\nChapter 2. The sea\n\nIt was.\n\n3.1 Method\n\nWe did it.\n\nNo title, is it"
    )
    expected = [("PART ONE", 1), ("Chapter 2. The sea", 2), ("3.1 Method", 2)]
    assert headings(read_one("a.txt", text)) == expected


def test_pages_of_text(read_one):
    page = "Annual Report {}\n\nThis is what page {} says\nin three lines\nof text.\n\n{}"
    names = ("one", "two", "three", "four")
    text = "\f".join(page.format(i, name, i) for i, name in enumerate(names, 1))
    document = read_one("a.txt", text)
    assert pages(document) == [
        f"This is what page {n} says\nin three lines\nof text." for n in names
    ]
    assert document.notes == ("4 running headers left out", "4 page numbers left out")
    retained = read_one("b.txt", text, keep_all=True)
    assert pages(retained)[2].startswith("Annual Report 3")
    assert retained.notes == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("an exam-\nple here", "an example\nhere"),
        ("an exam-\nple, here", "an example,\nhere"),
        ("an exam-\nple\nhere", "an example\nhere"),
        ("a well-\nknown man, well-known indeed", "a well-known\nman, well-known indeed"),
        ("the state-of-the-\nart", "the state-of-the-art"),
        ("a well-estab-\nlished, well-established", "a well-established,\nwell-established"),
        ("the Anglo-\nSaxon", "the Anglo-Saxon"),
        ("from 1990-\n1995", "from 1990-1995"),
        ("a dash -\nhere", "a dash -\nhere"),
        ("a\nb", "a\nb"),
    ],
)
def test_hyphens_at_line_ends(read_one, text, expected):
    assert read_one("a.txt", text).text == expected
    assert read_one("b.txt", text, keep_all=True).text == text


def test_hyphens_by_the_words_of_other_pages(read_one, make):
    assert read_one("a.txt", "a well-\nknown man\fwell-known").text.startswith("a well-known")
    lines = ["A man who is well-", "known.", "", "", "He is well-known."]
    assert "is well-known." in read_one("a.pdf", make.pdf(lines)).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the har\xad\nbour dam", "the harbour\ndam"),
        ("the har\xad  \n  bour.\nIt", "the harbour.\nIt"),
        ("the har\xad bour dam, co\xadope\xadrate", "the harbour dam, cooperate"),
        ("two\xad and three\xad year plans", "two and threeyear plans"),
        ("\uf0b7 one\n\uf0a7\ttwo\n  \uf0d8three \uf0e0", "\u2022 one\n\u2022 two\n\u2022 three"),
        ("at \uf0b3 3 \uf06dm", "at \u2265 3 \u03bcm"),
    ],
)
def test_characters_of_typesetting(read_one, text, expected):
    assert read_one("a.txt", text).text.rstrip() == expected
    assert read_one("b.jsonl", json.dumps({"text": text})).text.rstrip() == expected


def test_soft_hyphens_of_other_kinds(read_one, make):
    assert read_one("a.md", "the har\xad\nbour dam").text == "the harbour dam"
    assert read_one("b.html", "<p>the har\xad\nbour dam").text == "the harbour dam"
    paragraph = "<w:p><w:r><w:t>the har\xad</w:t><w:br/><w:t>bour dam</w:t></w:r></w:p>"
    assert read_one("c.docx", make.docx(paragraph)).text == "the harbour\ndam"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("an intro- duction to it, the introduction", "an introduction to it, the introduction"),
        ("a well- known man, as well-known", "a well-known man, as well-known"),
        ("an intro- duction to it", "an intro- duction to it"),
        ("two- and three-year plans, twoand", "two- and three-year plans, twoand"),
        ("pre- and post- war, preand postwar", "pre- and postwar, preand postwar"),
        ("a high- quality product, quality", "a high- quality product, quality"),
        (
            "har- bour, dis- pute, meas- ure: harbour, dispute",
            "harbour, dispute, measure: harbour, dispute",
        ),
        (
            "har- bour, dis- pute, meas- ure of a high- quality: harbour, dispute, quality",
            "harbour, dispute, measure of a high- quality: harbour, dispute, quality",
        ),
    ],
)
def test_hyphens_before_spaces(read_one, make, text, expected):
    assert read_one("a.md", text).text == expected
    assert read_one("b.md", text.replace("- ", "-\n")).text.split() == expected.split()
    assert read_one("c.epub", make.epub([f"<h1>A</h1><p>{text}</p>"])).text == f"A\n\n{expected}"
    paragraph = f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"
    assert read_one("d.docx", make.docx(paragraph)).text == expected
    assert read_one("e.md", text, keep_all=True).text == text


NUMBERED = [f"{MANY_WORDS} and", "goes on with the line."] * 8


@pytest.mark.parametrize(
    "lines",
    [
        [f"{number} {line}" for number, line in enumerate(NUMBERED, 3)],
        [f"{number % 8 + 1} {line}" for number, line in enumerate(NUMBERED)],
        [f"  {number}   {line}" for number, line in enumerate(NUMBERED, 95)],
        [f"{line}   {number}" for number, line in enumerate(NUMBERED, 1)],
        [
            f"{number} {line}" if number % 5 == 0 else line
            for number, line in enumerate(NUMBERED, 5)
        ],
        [
            f"{line} {number}" if number % 5 == 0 else line
            for number, line in enumerate(NUMBERED, 5)
        ],
        [part for number, line in enumerate(NUMBERED, 1) for part in (line, str(number))],
        [*map(str, range(1, 17)), *NUMBERED],
    ],
)
def test_line_numbers_are_left_out(read_one, make, lines):
    whole = " ".join(NUMBERED)
    text = "\n".join(lines)
    document = read_one("a.txt", text)
    assert " ".join(document.text.split()) == whole
    assert "line numbers left out" in document.notes[0]
    assert read_one("b.txt", text, keep_all=True).text == text.strip("\n")
    if "   " not in text:
        assert " ".join(read_one("c.pdf", make.pdf(lines)).text.split()) == whole


@pytest.mark.parametrize(
    "lines",
    [
        [f"{number} Another item of the list" for number in range(1, 15)],
        [f"{number}. a step of the list" for number in range(1, 15)],
        [f"{year} {year % 7}.5" for year in range(1990, 2015)],
        [f"Chapter of the book {page}" for page in range(1, 15)],
        [f"A line that ends in {number}" for number in (5, 3, 10, 15, 1, 20)],
        [f"{number} eggs" for number in (1, 2, 3)],
    ],
)
def test_other_numbers_stay(read_one, lines):
    assert read_one("a.txt", "\n".join(lines)).text == "\n".join(lines)


def test_joined_hyphens_leave_the_lines_short(read_one):
    text = f"{MANY_WORDS} exam-\nple {MANY_WORDS}."
    assert max(map(len, read_one("a.txt", text).text.split("\n"))) <= LONGEST_WRAPPED_LINE


def test_a_break_of_pages_between_the_parts_of_a_word(read_one, make):
    first = [*body("one"), "and it goes on with an exam-"]
    document = read_one("a.pdf", make.pdf(first, ["ple of the next page.", *body("two")]))
    assert "an example of the next" in document.text
    assert pages(document)[1].startswith("ple of the next")


@pytest.mark.parametrize("char", ["\x0b", "\x0c", "\x85"])
def test_line_breaks_of_other_kinds_do_not_join_words(read_one, char):
    content = json.dumps({"text": f"{char}one{char}two"})
    document = read_one("a.jsonl", content)
    assert (document.text, document.notes) == ("one\ntwo", ())


def test_damaged_utf8_is_no_other_encoding(read_one):
    content = "Größe und Maß. ".encode() * 4 + b"A b\xe4d byte."
    document = read_one("a.txt", content)
    assert document.text == "Größe und Maß. " * 4 + "A b\ufffdd byte."
    assert document.notes == ("read as UTF-8 but for 1 damaged character",)


def test_dots_without_a_page_are_text(read_one):
    text = "And then.....\n\nIntroduction ..... 3\fThe end....."
    assert read_one("a.txt", text).text == "And then.....\n\nThe end....."


def test_references_are_left_out(read_one):
    references = "References\n[1] A. Author. A title. 1999.\n[2] B. Writer. Another one, 2004."
    text = f"We found it.\n\n{references}\n\nAPPENDIX\n\nA proof."
    document = read_one("a.txt", text)
    assert document.text == "We found it.\n\nAPPENDIX\n\nA proof."
    assert document.notes[0].startswith('list of references ("References") of ')
    assert read_one("b.txt", text, keep_all=True).text.count("Author") == 1
    # A section of that name without years is none; nor is one that goes on as a text.
    assert (
        "pointers" in read_one("c.txt", "References\n\nIn C++ these are no pointers at all.").text
    )
    long = "References\n\n[1] A. B. 1999.\n\n" + "And so the text goes on. " * 40
    assert read_one("d.txt", long).text == long[len("References\n\n[1] A. B. 1999.\n\n") :].strip()


def test_licence_of_project_gutenberg(read_one):
    text = (
        "Produced by hand.\n\n*** START OF THE PROJECT GUTENBERG EBOOK 7 ***\n\nCall me "
        "Ishmael.\n\n*** END OF THE PROJECT GUTENBERG EBOOK 7 ***\n\nTerms of use."
    )
    document = read_one("a.txt", text)
    assert (document.text, document.notes) == (
        "Call me Ishmael.",
        ("Project Gutenberg's license left out",),
    )


def test_markdown(read_one):
    content = (
        "---\ntitle: 'The Title'\n---\n# One #\n\nSome **bold**, *slanted* `code` and a "
        "[link](http://x.y)\nwith snake_case_names and 2 * 3 * 4.\n\nTwo\n---\n> quoted\n\n"
        "- An item\n  of two lines\n- Another  \n  after a break\n\n"
        "![alt](a.png)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\n# no heading\nx = 1\n```\n"
        "<!-- gone -->\n[ref]: http://x.y\n"
    )
    document = read_one("a.md", content)
    assert document.text == (
        "One\n\nSome bold, slanted code and a link with snake_case_names and 2 * 3 * 4.\n\nTwo\n\n"
        "quoted\n\n- An item of two lines\n- Another\n  after a break\n\na | b\n1 | 2"
    )
    assert document.notes == ("front matter left out", "1 block of code left out")
    retained = read_one("b.md", content, keep_all=True)
    assert retained.text == f"{document.text}\n\n# no heading\nx = 1"
    assert headings(document) == [("One", 1), ("Two", 2)]
    assert document.title == "The Title"


# reStructuredText

RST = """:Author: Anna Berg
:Date: 1 May
   or later

==========
The Bridge
==========

Costs
-----

It took *twelve* months and **3.2** million :ref:`crowns <money>`, see
:pep:`8` and `the page <https://a.b>`_ [#n]_. Then::

    >>> pay(1)
    done

goes on with ``x = y``.

.. note:: Nobody knew why.
   It rained.

   - first::

       code()

   - second

.. code-block:: python

   hidden()

.. _label:

----

.. [#n] A footnote.

>>> doctest()

+------+-----+
| Iron | 1 M |
+------+-----+

Builders
--------

"Sand"  stays.
"""


def test_restructured_text(read_one):
    document = read_one("a.rst", RST)
    assert document.title == "The Bridge"
    assert headings(document) == [("The Bridge", 1), ("Costs", 2), ("Builders", 2)]
    assert document.text.split("\n\n") == [
        "The Bridge",
        "Costs",
        "It took twelve months and 3.2 million crowns, see PEP 8 and the page. Then:",
        "goes on with x = y.",
        "Nobody knew why. It rained.",
        "- first:",
        "- second",
        "Iron | 1 M",
        "Builders",
        '"Sand"  stays.',
    ]
    notes = ("front matter left out", "3 blocks of code left out", "3 pieces of markup left out")
    assert document.notes == notes


@pytest.mark.parametrize("indent", ["", "   "])
def test_simple_tables_of_restructured_text_have_rows(read_one, indent):
    rule = "=====  ======  ===="
    head = ["       Many columns", "-----  ------------", "Name   Value   Unit"]
    rows = ["Speed  12             ", "Mass   3       kg", "               or t"]
    table = "\n".join(indent + line for line in [rule, *head, rule, *rows, rule])
    text = read_one("a.rst", f"One.\n\n{table}\n\nTwo.").text
    lines = ["Many columns", "Name | Value | Unit", "Speed | 12", "Mass | 3 | kg or t"]
    assert text.split("\n\n") == ["One.", "\n".join(lines), "Two."]


def test_directives_with_text(read_one):
    rows = "   * - Iron\n     - 1 M\n   * -\n     - 2"
    table = f".. List-Table:: Costs\n   :header-rows: 1\n\n{rows}"
    tabs = ".. tab-set::\n\n   .. tab-item:: Linux\n\n      Call it."
    text = read_one("a.rst", f".. pull-quote::\n\n   Quoted.\n\n{table}\n\n{tabs}").text
    assert text.split("\n\n") == [
        "Quoted.",
        "Costs",
        "* Iron | 1 M\n* | 2",
        "Linux",
        "Call it.",
    ]


def test_a_line_above_a_heading_makes_a_level_of_its_own(read_one):
    document = read_one("a.rst", "====\nBook\n====\n\nPart\n====\n\nIt rained.\n")
    assert headings(document) == [("Book", 1), ("Part", 2)]
    assert document.text == "Book\n\nPart\n\nIt rained."


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        (":pep:`8` and :rfc:`1234`", "PEP 8 and RFC 1234"),
        (":pep:`8#naming` and :pep:`the guide <8>`", "PEP 8 and the guide"),
        (":class:`~a.b.C` and :py:class:`a.b.C`", "C and a.b.C"),
        (":class:`!a.b.C` and :func:`open() <a.open>`", "a.b.C and open()"),
        (":external+python:meth:`~object.run`", "run"),
        (":ref:`costs <money>` and :ref:`money`", "costs and money"),
        (":doc:`the guide </guide>` and :doc:`/guide`", "the guide and /guide"),
        (":math:`x^2 + y` and `text`:emphasis:", "x^2 + y and text"),
        (r"H\ :sub:`2`\ O and \*stars\* and ``a\n``", r"H2O and *stars* and a\n"),
        ("page_, `the page`_, _`this` and [Berg1999]_", "page, the page, this and [Berg1999]"),
        ("``from_`` and :attr:`in_` and x_y", "from_ and in_ and x_y"),
        ("``**one`` and ``two**`` and ``*a*``", "**one and two** and *a*"),
        ("https://a.b/c_ and snake_case_names", "https://a.b/c_ and snake_case_names"),
        ("*a_* and *b.__c__* and *d e*", "a_ and b.__c__ and d e"),
        ("a\n\n| *b*\n| c\n  d\n\n__ http://a.b\n\ne", "a\n\nb\nc d\n\ne"),
    ],
)
def test_roles_and_references_are_what_a_reader_sees(read_one, marked, shown):
    assert read_one("a.rst", f"See {marked}.").text == f"See {shown}."


def test_restructured_text_is_kept(read_one):
    retained = read_one("a.rst", RST, keep_all=True)
    assert retained.notes == ()
    for part in (":Author:", ">>> pay(1)", "hidden()", ".. [#n] A footnote.", ">>> doctest()"):
        assert part in retained.text


@pytest.mark.parametrize(
    ("comment", "text"),
    [("..\n\n", "- item\n\nA quote."), ("..\n", "- item"), (".. A note.\n\n", "- item")],
)
def test_a_quote_after_an_empty_comment(read_one, comment, text):
    assert read_one("a.rst", f"- item\n\n{comment}   A quote.\n").text == text


@pytest.mark.parametrize(
    "text",
    [
        "".join(" " * depth + ".. note::\n" for depth in range(2000)) + "end",
        "  x::\n\n" * 50_000 + "end",
        ":a`" * 100_000 + " end",
        "=====\n" * 50_000 + "end",
        "= " * 50_000 + "=\n" + "a\n" * 50_000 + "\nend",
        "    a\n\n" * 50_000 + "end",
        f".. list-table::\n\n   * - a{chr(10) * 50_000}     x\n\nend",
    ],
    ids=["directives", "code", "roles", "rules", "columns", "quotes", "cells"],
)
def test_odd_restructured_text_takes_little_time(read_one, text):
    start = time.process_time()
    assert read_one("a.rst", text).text.endswith("end")
    assert time.process_time() - start < 20


# XML


JATS = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) v1.2//EN" "JATS-archivearticle1.dtd">
<article xmlns:mml="http://www.w3.org/1998/Math/MathML" article-type="research-article">
<front><journal-meta><journal-title>Journal of Things</journal-title></journal-meta>
<article-meta><title-group><article-title>On <italic>big</italic>
 things</article-title></title-group><contrib><name>Ann</name></contrib>
<abstract><title>Summary</title><sec><title>Aims</title><p>We ask why.</p></sec></abstract>
</article-meta></front>
<body><p>Before sections.</p>
<sec><label>1</label><title>Methods</title>
<p>Cells<sup><xref ref-type="bibr">1</xref>,<xref>2</xref></sup> divide [<xref>3</xref>,
<xref>4</xref>] as in <xref ref-type="fig">Figure 1</xref> (<xref>Li, 2010</xref>).<fn><p>A
note.</p></fn> If <inline-formula><alternatives><tex-math>\\alpha</tex-math><mml:math>
<mml:mi>a</mml:mi></mml:math></alternatives></inline-formula> is one:<list>
<list-item><p>first,</p></list-item><list-item><p>second.</p></list-item></list></p>
<fig><label>Figure 1</label><caption><p>A picture.</p></caption></fig>
<sec><title>Data</title><table-wrap><label>Table 1</label><caption><p>Counts.</p></caption>
<table><tr><th>Kind</th><th>Count</th></tr><tr><td>big</td><td>3</td></tr></table></table-wrap></sec>
</sec></body>
<back><ack><p>Thanks.</p></ack><ref-list><ref><article-title>Other</article-title></ref></ref-list>
</back></article>"""


def test_jats(read_one):
    document = read_one("a.nxml", JATS)
    assert document.title == "On big things"
    assert document.text.split("\n\n") == [
        "On big things",
        "Summary",
        "Aims",
        "We ask why.",
        "Before sections.",
        "Methods",
        "Cells divide as in Figure 1 (Li, 2010). If a is one: first, second.",
        "Data",
        "Kind | Count",
        "big | 3",
    ]
    levels = [("On big things", 1), ("Summary", 2), ("Aims", 3), ("Methods", 2), ("Data", 3)]
    assert headings(document) == levels
    assert document.notes == (
        "1 footnote left out",
        "2 captions left out",
        "1 part after the text left out",
    )
    retained = read_one("a.xml", JATS, keep_all=True).text
    for part in ("Cells1,2 divide [3, 4]", "A note.", "A picture.", "Thanks.", "big | 3"):
        assert part in retained
    assert read_one("unnamed", JATS).text == document.text  # known by its look


TEI = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader><fileDesc><titleStmt>
<title level="a" type="main">On small things</title></titleStmt></fileDesc>
<profileDesc><abstract><div><p>We ask how.</p></div></abstract></profileDesc></teiHeader>
<text><body><div><head n="1">Introduction</head><p>Much is known <ref type="bibr">[1]</ref>
<ref type="bibr">(Li, 2010)</ref>.</p><formula>a = b<label>(1)</label></formula></div>
<figure><head>Figure 1</head><figDesc>A picture.</figDesc></figure>
<figure type="table"><head>Table 1</head><table><row><cell>big</cell><cell>3</cell></row></table>
</figure></body><back><div><p>Thanks.</p></div></back></text></TEI>"""


def test_tei(read_one):
    document = read_one("a.tei.xml", TEI)
    assert document.text.split("\n\n") == [
        "On small things",
        "We ask how.",
        "Introduction",
        "Much is known (Li, 2010).",
        "a = b",
        "big | 3",
    ]
    assert headings(document) == [("On small things", 1), ("Introduction", 2)]
    assert document.notes == ("1 caption left out", "1 part after the text left out")


def test_a_set_of_articles_and_other_xml(tmp_path, read_one):
    start, article = JATS.split("<article ", 1)
    both = f"<pmc-articleset><article {article}<article {article}</pmc-articleset>"
    path = tmp_path / "set.xml"
    path.write_text(start.split("<!DOCTYPE")[0] + both)
    documents = read(path)
    assert [document.name for document in documents] == [f"{path}:1", f"{path}:2"]
    assert documents[0].text == documents[1].text == read_one("a.xml", JATS).text
    book = "<book><info>2020</info><chapter><title>One</title><para>It <b>was</b> so.</para>"
    note = "<note><label>Mind</label><para>this.</para></note>"
    other = read_one("book.xml", f"{book}<para/>{note}</chapter></book>")
    assert other.text == "2020\n\nOne\n\nIt was so.\n\nMind\n\nthis."
    assert headings(other) == [("One", 1)]
    page = f"<html xmlns='http://www.w3.org/1999/xhtml'><body><p>{MANY_WORDS}</p></body></html>"
    assert read_one("page.xml", page).text == MANY_WORDS


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("<article><body><p>x</body></article>", "damaged XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "XML with entity declarations; not read"),
        (f"{'<a>' * 300}x{'</a>' * 300}", "nested deeper than 200"),
        ("words", "damaged XML"),
    ],
)
def test_xml_that_is_not_read(tmp_path, content, problem):
    path = tmp_path / "a.xml"
    path.write_text(content)
    with pytest.raises(InputError, match=f"{path}: .*{problem}"):
        read(path)


# HTML

PAGE = """<!doctype html><html><head><title>The page</title><style>p {{}}</style></head><body>
<header><a href="/">Site</a></header><nav><ul><li><a href="/a">A</a></ul></nav>
<div class="cookie-banner">We use cookies.</div>
<main><h1>Title<a href="#t">¶</a></h1><p>First &amp; <b>bold</b>
line.<br>Second line.<script>alert()</script><p>{words}
<ul><li>an item<li>one <a href="/b">linked</a> item</ul>
<table><tr><td>1<td>2</table><pre>a
  b</pre><ul><li><a href="/1">Related</a><li><a href="/2">Pages</a><li><a href="/3">Here</a></ul>
</main><footer>© Site</footer></body></html>"""


def test_code_and_notes_in_markdown(read_one):
    """Code in a quote ends with the quote, and what begins like a definition may be prose."""
    quoted = "> ```\n> code\n> ```\n\nAfter it.\n\n> ```\n> open\n\nThe end."
    assert read_one("a.md", quoted).text == "After it.\n\nThe end."
    inline = "```pip install x``` installs it.\n\nNext."
    assert read_one("b.md", inline).text == "pip install x installs it.\n\nNext."
    spoken = "[Ann]: hello there everyone\n\n[^1]: A note.\n\n[a]: http://b.c 'title'\n\nEnd."
    result = read_one("c.md", spoken).text
    assert result == "[Ann]: hello there everyone\n\n[^1]: A note.\n\nEnd."


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        ("<p>One.</p><p>Two.</p>", "One.\n\nTwo."),
        ("<ul>\n<li>One</li>\n<li>Two</li>\n</ul>", "One\n\nTwo"),
        (
            "<table>\n<tr><th>A</th><th>B</th></tr>\n<TR><TD>|x|</TD>\n<td></td><td>2</td></tr>\n</table>",
            "A | B\n\n|x| | 2",
        ),
        ("One\n<style>\n\n.a {}\n</style>\n\n> <script>\n> x\n> </script>\n\nTwo", "One\n\nTwo"),
        ("One\n\n<script>\n\nTwo", "One\n\nTwo"),
        ('<script src="a"></script> One', "One"),
        ("- One<p>Two", "- One\n\n  Two"),
        ("<script-link>\nOne</script-link>\n\n</script>", "One"),
        ("- One\n-\n\nTwo\n\n1.\n\nThree", "- One\n\nTwo\n\nThree"),
        ("10<sup>6</sup>, 10<SUP>-6</SUP>, m<sup>2</sup>, 1<sup>st</sup>", "10^6, 10^-6, m2, 1st"),
    ],
)
def test_html_in_markdown(read_one, marked, shown):
    assert read_one("a.md", marked).text == shown


def test_scripts_in_code_of_markdown_are_kept_with_all(read_one):
    text = "<script>\nx\n</script>"
    assert read_one("a.md", f"```\n{text}\n```", keep_all=True).text == text


@pytest.mark.parametrize("tag", ["<script>\n", "> <style>\n\n", "<p>", "<td>"])
def test_html_in_markdown_is_read_in_linear_time(read_one, tag):
    before = time.process_time()
    assert read_one("a.md", f"One.\n\n{tag * 20_000}</style>\n\nEnd.").text.endswith("End.")
    assert time.process_time() - before < 10


NESTED = "\n".join(f"{'  ' * depth}- a" for depth in range(15))


@pytest.mark.parametrize(
    ("marked", "shown"),
    [
        ("See [a](http://b.c/d_(e)) now.", "See a now."),
        ("`__init__` and `a*b*c` and ``x ` y``.", "__init__ and a*b*c and x ` y."),
        (r"\*stars\* and \# and C:\new.", r"*stars* and # and C:\new."),
        (r"$x_1 \, y_1$ costs $5 or \$6, $$a\_b$$", r"$x_1 \, y_1$ costs $5 or $6, $$a\_b$$"),
        ("Salt &amp; pepper &#42;x&#42; &lt;b&gt; AT&T.", "Salt & pepper *x* <b> AT&T."),
        ("As said[^1] and ~~not~~ so.[^long-name]", "As said and not so."),
        ("- [ ] one\n- [x] two", "- one\n- two"),
        ("One\\\ntwo.", "One\ntwo."),
        ("> [!NOTE]\n> One *two*.\n\n> [!tip]- Three.", "One two.\n\nThree."),
        ("One<br>two, <b>three</b>.", "One\ntwo, three."),
        ("Ask <a@b.org> or <https://b.org>.", "Ask a@b.org or https://b.org."),
        ("**a** [b][c] ***d*** [e]\n\n[c]: http://c\n[e]: http://e", "a b d e"),
        ("- a\n  1) b\n     c\n- d", "- a\n  1) b c\n- d"),
        ("- a\n\n      code\n\n- b\n  > c\n  > 1. d", "- a\n\n- b\n\nc\n\n1. d"),
        (
            "<div>\n\n## *A*\n\n</div>\n<p>B\n| a | b |\n|-|-|\n|  | `c\\|d` |",
            "A\n\nB\n\na | b\nc|d",
        ),
        (
            "!!! note\n    a\n\n    b\n\n[^1]: c\n\n    d\n\n: e",
            "!!! note a\n\nb\n\n[^1]: c\n\nd\n\n: e",
        ),
        (f"{'>' * 99} a", f"{'>' * 69} a"),
        (f"{NESTED}\n{'  ' * 15}- b", f"{NESTED} - b"),
    ],
)
def test_text_of_markdown_is_what_a_reader_sees(read_one, marked, shown):
    assert read_one("a.md", marked).text == shown


def test_headings_of_markdown_lose_their_attributes(read_one):
    document = read_one("a.md", "# One {#first .big}\n\nTwo {.b}\n---\n\n## A {set}")
    assert headings(document) == [("One", 1), ("Two", 2), ("A {set}", 2)]


def test_code_without_a_fence_of_its_own_column(read_one):
    text = "One.\n\n    code()\n\n    more()\n\nTwo\n    goes on.\n\n- item\n\n    of two.\n\nEnd."
    document = read_one("a.md", text)
    assert document.text == "One.\n\nTwo goes on.\n\n- item\n\nof two.\n\nEnd."
    assert document.notes == ("1 block of code left out",)
    assert "code()\n\nmore()" in read_one("b.md", text, keep_all=True).text
    note = "!!! note\n    One.\n\n    Two."
    assert read_one("c.md", note).text == "!!! note One.\n\nTwo."
    fenced = "1. One:\n\n    ```bash\n    ls\n    ```\n\n2. Two."
    assert read_one("d.md", fenced).text == "1. One:\n\n2. Two."


def test_notebooks(read_one):
    """What nothing closes in a cell ends with it; code is what keep_all adds."""
    cells = [
        {"cell_type": "markdown", "source": ["# A study\n", "\n", "Rivers *rise*.\n"]},
        {"cell_type": "code", "source": ["plot(x)"], "outputs": [{"text": ["printed"]}]},
        {"cell_type": "markdown", "source": "It fell. <!-- open"},
        {"cell_type": "markdown", "source": "```\nf()"},
        {"cell_type": "markdown", "source": "--> The end."},
        {"cell_type": "raw", "source": "raw"},
        {"cell_type": "code", "source": []},
    ]
    notebook = json.dumps({"cells": cells, "nbformat": 4})
    document = read_one("a.ipynb", notebook)
    assert document.text == "A study\n\nRivers rise.\n\nIt fell. <!-- open\n\n--> The end."
    assert document.title == "A study"
    assert document.headings == ((0, 7, 1),)
    assert document.notes == ("3 blocks of code left out",)
    retained = read_one("b.ipynb", notebook, keep_all=True).text
    assert "plot(x)" in retained
    assert "raw" in retained
    assert "printed" not in retained


def test_front_matter_of_hugo(read_one):
    document = read_one("a.md", '+++\ntitle = "A Title"\ntags = []\n+++\n\nOne.')
    assert (document.text, document.title) == ("One.", "A Title")
    assert document.notes == ("front matter left out",)


def test_rules_around_prose_are_no_front_matter(read_one):
    text = read_one("a.md", "---\n\nThis is: prose.\n\n---\n\nMore.").text
    assert text == "This is: prose.\n\nMore."
    assert read_one("b.md", "---\n# Comment\ntags: []\n---\nMore.").text == "More."


def test_long_paragraphs_of_markdown_are_read_in_linear_time(read_one):
    lines = ["A line of a paragraph."] * 20_000
    before = time.process_time()
    assert read_one("a.md", "\n".join(lines)).text == " ".join(lines)
    assert time.process_time() - before < 10


@pytest.mark.parametrize("mark", ["`", "` ", "$a ", "&a", "[^", "[a](b(", "~~a"])
def test_marks_of_markdown_without_end_take_little_time(read_one, mark):
    before = time.process_time()
    assert read_one("a.md", f"One. {mark * 20_000} End.").text.endswith("End.")
    assert time.process_time() - before < 10


def test_a_comment_without_end_is_text(read_one):
    assert read_one("a.md", "One <!-- gone --> two <!-- three").text == "One  two <!-- three"


def test_times_and_names_of_speakers_are_no_definitions(read_one):
    spoken = "[00:01]: Yes...\n\n[Ann]: No."
    definitions = "[1]: http://b.c\n[a]: <b c>\n[b]: b.md 'Title'\n[c]: #part"
    assert read_one("a.md", f"{spoken}\n\n{definitions}").text == spoken


def test_html(read_one):
    content = PAGE.format(words=MANY_WORDS)
    document = read_one("a.html", content)
    assert document.text == (
        f"Title\n\nFirst & bold line.\nSecond line.\n\n{MANY_WORDS}\n\nan item\n\n"
        "one linked item\n\n1 | 2\n\na\n  b"
    )
    assert (document.title, headings(document)) == ("The page", [("Title", 1)])
    (note,) = document.notes
    assert note.startswith("boilerplate of ")
    retained = read_one("b.html", content, keep_all=True)
    assert all(text in retained.text for text in ("Site", "cookies", "Related", "©"))
    assert "alert" not in retained.text
    assert retained.notes == ()


@pytest.mark.parametrize("head", ["<!doctype html>", "  <HTML><body>", "<?xml?><html>"])
def test_html_without_its_suffix(read_one, head):
    assert read_one("page", f"{head}<p>Text.").text == "Text."


def test_quotes_of_windows_in_what_says_latin_1(read_one):
    page = b"<meta charset=iso-8859-1><p>It\x92s cats\x97dogs, caf\xe9.</p>"
    document = read_one("a.html", page)
    assert (document.text, document.notes) == ("It\u2019s cats\u2014dogs, caf\u00e9.", ())


def test_texts_that_begin_like_a_recording(read_one):
    for text in ("ID3 builds decision trees.", "The big WAVE is near."):
        assert read_one("a.txt", text).text == text


def test_encodings_of_html(read_one):
    page = '<html><meta charset="iso-8859-2"><p>Zażółć gęślą jaźń'.encode("iso-8859-2")
    assert read_one("a.html", page).text == "Zażółć gęślą jaźń"
    for lie in ("no-such", "hex", "utf-16"):
        page = f'<html><meta charset="{lie}"><p>Größe'.encode()
        assert read_one("b.html", page).text == "Größe"


CAPTION = "Figure 1: The bridge."


@pytest.mark.parametrize(
    "marked",
    [
        f"<figure><img/><figcaption>{CAPTION}</figcaption></figure>",
        f"<table><caption>{CAPTION}</caption><tr><td></td></tr></table>",
        f'<p class="caption">{CAPTION}</p>',
        f'<div class="wp-caption"><img/><p class="wp-caption-text">{CAPTION}</p></div>',
        f'<div class="big ImageCaption">{CAPTION}</div>',
    ],
)
def test_captions_of_books_and_pages(read_one, make, marked):
    page = f"<p>{MANY_WORDS}</p>{marked}"
    document = read_one("a.epub", make.epub([page]))
    assert (document.text, document.notes) == (MANY_WORDS, ("1 caption left out",))
    assert read_one("a.html", page).text == MANY_WORDS
    assert CAPTION in read_one("b.html", page, keep_all=True).text
    assert CAPTION in read_one("b.epub", make.epub([page]), keep_all=True).text


def test_classes_that_are_no_captions(read_one, make):
    page = f'<div class="caption"><h2>A part</h2>{MANY_WORDS}</div><p class="captioned">Two.</p>'
    page += f'<div class="caption">{MANY_WORDS * 20}</div>'
    assert len(read_one("a.epub", make.epub([page])).text) > 21 * len(MANY_WORDS)


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ('<p>One.</p><aside epub:type="footnote"><p>A note.</p></aside>', ("1 footnote left out",)),
        ('<p>One.</p><div role="doc-endnote"><p>A note.</p></div>', ("1 footnote left out",)),
        ('<p><span epub:type="pagebreak" title="5">5</span>One.</p>', ()),
        ('<section epub:type="toc"><p>Part 1</p></section><p>One.</p>', ()),
    ],
)
def test_what_is_beside_the_text_of_a_book(read_one, make, body, note):
    document = read_one("a.epub", make.epub([body]))
    assert (document.text, document.notes) == ("One.", note)
    assert len(read_one("b.epub", make.epub([body]), keep_all=True).text) > len("One.")


def test_captions_of_docx(read_one, make):
    def paragraph(style, text):
        return f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'

    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    styles = f'''<w:styles xmlns:w="{word}"><w:style w:styleId="Beschriftung">
        <w:name w:val="caption"/></w:style><w:style w:styleId="Mine"><w:name w:val="Mine"/>
        <w:basedOn w:val="Beschriftung"/></w:style><w:style w:styleId="TOC1">
        <w:name w:val="toc 1"/></w:style></w:styles>'''
    body = paragraph("TOC1", "Costs 3") + paragraph("Mine", CAPTION) + paragraph("Other", "Text.")
    content = make.docx(body + paragraph("Beschriftung", CAPTION), **{"word/styles.xml": styles})
    document = read_one("a.docx", content)
    assert document.text == "Text."
    assert document.notes == ("1 line of contents left out", "2 captions left out")
    retained = read_one("b.docx", content, keep_all=True)
    assert retained.text.split("\n\n") == ["Costs 3", CAPTION, "Text.", CAPTION]


def test_captions_of_odt(read_one, make):
    names = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "style")
    )
    based = '<style:style style:name="Figure" style:family="paragraph" {}/>'
    based = based.format('style:parent-style-name="Caption"')
    styles = f"<office:document-styles {names}>{based}</office:document-styles>"
    body = f'<text:p text:style-name="Figure">{CAPTION}</text:p><text:p>Text.</text:p>'
    content = make.odt(body, **{"styles.xml": styles})
    document = read_one("a.odt", content)
    assert (document.text, document.notes) == ("Text.", ("1 caption left out",))
    assert read_one("b.odt", content, keep_all=True).text == f"{CAPTION}\n\nText."


def test_captions_of_pdf(read_one, make):
    caption = [
        "Figure 1: The bridge of stone and oak, which nobody has inspected since the",
        "war.",
    ]
    lines = [*body("a"), "It goes on", "", *caption, "", "behind the figure.", "", "Table 1 lists."]
    document = read_one("a.pdf", make.pdf(lines))
    assert document.text.endswith("It goes on behind the figure.\n\nTable 1 lists.")
    assert document.notes == ("1 caption left out",)
    assert " ".join(caption) in read_one("b.pdf", make.pdf(lines), keep_all=True).text
    long = [*body("a"), "", "Figure 1: The bridge.", *body("b") * 9]
    assert "bridge" not in read_one("c.pdf", make.pdf(long)).text
    long = [*body("a"), "", f"Figure 1: The bridge. {MANY_WORDS}", *[MANY_WORDS] * 15]
    assert "bridge" in read_one("d.pdf", make.pdf(long)).text


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ('Word<sup><a href="#n1">1</a></sup>.', "Word."),
        ('Word<sup>[<a href="#n1">1</a>, <a href="#n2">2</a>]</sup>.', "Word."),
        ('Word<a href="notes.xhtml#n1"><sup>1</sup></a>.', "Word."),
        ('Word<a role="doc-noteref" href="#n1">1</a>.', "Word."),
        ('Word<a epub:type="noteref" href="#n1">1</a>.', "Word."),
        ("A word.<sup>[1]</sup> It ended.<sup>2</sup>", "A word. It ended."),
        (
            "10<sup>2</sup>, 10<sup>&minus;2</sup> and 2<sup>n</sup>",
            "10^2, 10^\u22122 and 2n",
        ),
        ('In 2019<sup><a href="#n1">1</a></sup> or 2020.<sup>2</sup>', "In 2019 or 2020."),
        ('<a href="#day">the 1<sup>st</sup></a>', "the 1st"),
    ],
)
def test_marks_of_footnotes_are_left_out(read_one, make, marked, text):
    assert read_one("a.html", f"<p>{marked}</p>").text == text
    assert read_one("a.epub", make.epub([f"<p>{marked}</p>"])).text == text


def test_marks_of_footnotes_are_kept_with_all(read_one, make):
    marked = '<p>Word<sup><a href="#n1">1</a></sup>.</p>'
    assert read_one("a.html", marked, keep_all=True).text == "Word1."
    assert read_one("a.epub", make.epub([marked]), keep_all=True).text == "Word1."


def test_ids_made_of_their_headings_are_no_boxes(read_one):
    part = '<section id="recommendations"><h2>Recommendations</h2><p>Build a dam.</p></section>'
    result = read_one("a.html", f"<p>{MANY_WORDS}</p>{part}")
    assert result.text.split("\n\n") == [MANY_WORDS, "Recommendations", "Build a dam."]


def test_pages_of_comments_keep_them(read_one):
    comments = "".join(f'<div class="comment-list"><p>{MANY_WORDS}</p></div>' for _ in range(3))
    page = f"<h1>A question</h1><p>{MANY_WORDS}</p>{comments}"
    assert read_one("a.html", page).text.count(MANY_WORDS) == 4
    few = f"<h1>News</h1><p>{MANY_WORDS * 4}</p>{comments}"
    assert read_one("b.html", few).text.count(MANY_WORDS) == 4


LINKS = "".join(f'<li><a href="/{i}">Another page of this site</a></li>' for i in range(4))
BOXES = """
cookieConsentBanner onetrust-banner-sdk cookienotice eu-cookie-bar mainNav siteFooter topMenu
skipToContent shareTools articleShareBar relatedStories readNext most-read newsletterBox adSlot_2
ad-container outbrain promoBox authorBio reader-comments commentList post-meta sr-only
visuallyhidden screen-reader-text ad ad-slot hatnote noprint
"""
BOXES_BY_ID = "related-posts social-share sidebar nav-menu-2 cookieConsentBanner post-meta"
TEXTS = """
share-price advertising-law comments-enabled no-sidebar has-cookies post relatedWork address
shareholder navigate adoption socialCosts reading-next-chapter
"""
NAMES = {
    **{f'div class="{name}"': False for name in [*BOXES.split(), "reflist columns"]},
    **{f'div id="{name}"': False for name in BOXES_BY_ID.split()},
    **{f'div class="{name}"': True for name in TEXTS.split()},
    # As programs make them of headings.
    **{f'section id="{name}"': True for name in ("related-work", "social-costs", "share-of-votes")},
}


@pytest.mark.parametrize(("box", "is_text"), NAMES.items())
def test_names_of_boxes_are_split_into_words(read_one, box, is_text):
    page = f"<p>{MANY_WORDS}</p><{box}><p>Some text.</p></{box.split()[0]}>"
    expected = [MANY_WORDS, *["Some text."] * is_text]
    assert read_one("a.html", page).text.split("\n\n") == expected


def test_a_class_name_does_not_take_the_text_away(read_one):
    page = f'<body><div class="has sidebar"><p>{MANY_WORDS}</p></div><div id="sidebar">Ad</div>'
    assert read_one("a.html", page).text == MANY_WORDS


def test_marks_inside_of_a_line_may_be_boxes(read_one):
    page = f'<p>{MANY_WORDS}<sup class="noprint">[x]</sup></p>'
    assert read_one("a.html", page).text == MANY_WORDS


CARDS = "".join(
    f'<div class="c"><h3><a href="/{i}">A headline elsewhere</a></h3><p>Its teaser.</p></div>'
    for i in range(3)
)
PROGRAM = "".join(f'<p class="acme-{name}"></p>' for name in ("one", "two", "six", "ten", "red"))


@pytest.mark.parametrize(
    "box",
    [
        '<section aria-label="Cookie banner"><p>Some text.</p></section>',
        '<div data-testid="inline-newsletter"><p>Some text.</p></div>',
        f'{PROGRAM}<div class="acme-share-buttons"><p>Some text.</p></div>',
        '<div class="acme-ad"><p>Some text.</p></div>',
        "<amp-ad><div>Some text.</div></amp-ad>",
        f"<div><h2>You may also like</h2></div><ul>{LINKS}<li>Some text.</li></ul>",
        "<div><h2>Comments (2)</h2><ul><li><p>Some text.</p></li><li>More text.</li></ul></div>",
        "<h3>Subscribe to our newsletter</h3><p>Some text.</p>",
        '<div><p>Some text.</p><div><input type="email"></div></div>',
        "<div><p>We use cookies.</p><button>Accept all</button></div>",
        CARDS,
        f"<div>{LINKS.replace('li>', 'span>')}</div>",
        '<div><p><a href="/next">An article that is somewhere else.</a></p></div>',
        "<p>© 2020 Some Company</p>",
        "<div>__________<br>Some text.</div>",
        '<article class="teaser"><p>Some text.</p></article>',
    ],
)
def test_boxes_of_web_pages_by_their_structure(read_one, box):
    article = f"<article class='a'><h1>A title</h1>{f'<p>{MANY_WORDS}</p>' * 5}</article>"
    page = f"<body><div>Before it.</div>{article}{box}</body>"
    assert read_one("a.html", page).text.split("\n\n") == ["A title", *[MANY_WORDS] * 5]


@pytest.mark.parametrize(
    "part",
    [
        "<form><div>{}</div></form>",
        '<form><input name="q"><p>{0}</p><p>{0}</p><p>{0}</p><p>{0}</p></form>',
        '<ul role="tablist"><li role="tab">One</li></ul><div role="tabpanel" hidden>{}</div>',
        '<div role="tablist"><div role="tabpanel">{}</div></div>',
        '<i aria-controls="p1">One</i><div id="p1" aria-hidden="true">{}</div>',
        '<i aria-controls="p1">One</i><div id="p1" class="modal-body">{}</div>',
        '<aside class="admonition tip">{}</aside>',
        '<main><div class="alert" role="alert">{}</div></main>',
        "<h2>Comments</h2><p>{}</p>",
        "<h2>2. Related articles</h2><p>{}</p>",
        "<h2>Recommended Message Style</h2><p>{}</p>",
        "<h2>Chocolate cookies</h2><p>{}</p>",
        "<p>{0}</p><p>{0}</p><p>{0} <b>Sign up now</b></p>",
        '<ul><li>{0}</li><li><p><a href="/a">{0}</a></p></li><li>{0}</li></ul>',
        '<div class="toc-section"><h2>Methods</h2>{}</div>',
        '<div class="signature">{}</div>',
        '<div id="reviews"><div id="comments">{}</div></div>',
        '<table><tr><td width="50">One<td><p>{}</p></table>',
    ],
)
def test_parts_of_the_text_that_look_like_boxes(read_one, part):
    page = f"<body><p>{MANY_WORDS}</p>{part.format(MANY_WORDS)}</body>"
    if "<main>" in part:
        page = part.format(f"<p>{MANY_WORDS}</p>{MANY_WORDS}")
    text = read_one("a.html", page).text
    assert text.count(MANY_WORDS) == 1 + part.count("{")


def test_narrow_columns_of_layout_tables_are_left_out(read_one):
    row = f'<tr><td width="150"><b>Ann</b><br>Member<td>{MANY_WORDS * 6}</tr>'
    assert read_one("a.html", f"<table>{row * 2}</table>").text.count("Member") == 0


def test_deleted_text_of_pages_is_left_out(read_one):
    page = f"<p>{MANY_WORDS} It is <del>red</del> <ins>blue</ins>.</p>"
    assert "red" not in read_one("a.html", page).text


EMOJI = "\U0001f600"


def test_pairs_of_surrogates_are_characters_and_halves_are_replaced(read_one):
    pair = r"{\rtf1\ansi Smile \u-10179?\u-8704? here. Half \u-10179? here.\par}"
    assert read_one("a.rtf", pair).text == f"Smile {EMOJI} here. Half \ufffd here."
    cells = [{"cell_type": "markdown", "source": f"Half \ud83d here. {EMOJI}"}]
    notebook = json.dumps({"cells": cells, "nbformat": 4})
    assert read_one("a.ipynb", notebook).text == f"Half \ufffd here. {EMOJI}"
    assert read_one("a.jsonl", json.dumps({"text": "Half \ud83d."})).text == "Half \ufffd."


def test_paragraphs_in_cells_of_a_row(read_one):
    row = "<tr><td><p>One</p><p>two</p><td><div>Three<br>four</div><ul><li>five</ul><td>six"
    assert read_one("a.html", f"<table>{row}</table>").text == "One two | Three four five | six"
    layout = f"<table><tr><td><p>{MANY_WORDS * 9}</p><p>Two.</p><td><h2>A part</h2><p>Three."
    result = read_one("b.html", layout)
    assert result.text.split("\n\n") == [MANY_WORDS * 9, "Two.", "A part", "Three."]
    beside = f"<table><tr><td>1<td><p>{MANY_WORDS * 9}</table>"
    assert read_one("d.html", beside).text == f"1\n\n{MANY_WORDS * 9}"
    one = "<table><tr><td><p>One.</p><p>Two.</p></table>"
    assert read_one("c.html", one).text == "One.\n\nTwo."


def test_two_line_breaks_end_a_paragraph(read_one):
    page = "<div>Dear all<br><br>We meet.<br> <br/><br>1. A<br>2. B<br><br></div>"
    assert read_one("a.html", page).text == "Dear all\n\nWe meet.\n\n1. A\n2. B"


def test_legends_are_paragraphs(read_one):
    page = f"<p>{MANY_WORDS}</p><fieldset><legend>Legend</legend>Text.</fieldset>"
    assert read_one("a.html", page).text.split("\n\n") == [MANY_WORDS, "Legend", "Text."]


def test_line_breaks_in_preformatted_text(read_one):
    assert read_one("a.html", "<pre>a<br>b<br/>c</pre>").text == "a\nb\nc"


# PDF


def test_texts_about_pdf_are_text(read_one):
    text = "Such files begin with %PDF-1.7 and a line end."
    assert read_one("a.md", text).text == text


def body(page):
    return [f"This page {page} has some lines of text that go on to the", "end of the line here."]


def test_pdf(read_one, make):
    content = make.pdf(
        [
            "Running title 1",
            "",
            ("A Heading", 18),
            *body("one"),
            "A line that is hyphen-",
            "ated.",
            "1",
        ],
        ["Running title 2", "", *body("two"), "It is never finished on this", "2"],
        [
            "Running title 3",
            "",
            "page but on the next one.",
            *body("three"),
            "More text of it.",
            "3",
        ],
        title="Its Title",
    )
    document = read_one("a.pdf", content)
    assert headings(document) == [("A Heading", 1)]
    assert document.title == "Its Title"
    assert "is hyphenated." in document.text
    assert "finished on this page but on the next one." in document.text
    assert "Running" not in document.text
    assert pages(document)[1].startswith("This page two")
    assert pages(document)[2].startswith("page but on the next one.")
    assert document.notes == ("3 running headers left out", "3 page numbers left out")
    retained = read_one("b.pdf", content, keep_all=True)
    assert retained.text.count("Running title") == 3
    assert "hyphen-ated" in retained.text


def test_a_tenth_of_the_lines_of_pdf_is_of_full_width(read_one, make):
    sentences = [*(f"Sentence {number} is short." for number in range(1, 10)), f"{MANY_WORDS}."]
    assert read_one("a.pdf", make.pdf(sentences)).text.split("\n\n") == sentences


@pytest.mark.parametrize(
    ("second", "expected"),
    [("and Materials", ["Costs of and Materials"]), ("1.1 Builders", ["Costs of", "1.1 Builders"])],
)
def test_headings_of_pdf_that_have_two_lines(read_one, make, second, expected):
    content = make.pdf([("Costs of", 18), (second, 18), *body("one"), *body("two"), *body("three")])
    assert [text for text, _ in headings(read_one("a.pdf", content))] == expected


def test_paragraphs_of_pdf(read_one, make):
    content = make.pdf([*body("a"), "", *body("b"), "- an item", "- another item"])
    whole = " ".join(body("a")), " ".join(body("b"))
    expected = "\n\n".join([*whole, "- an item", "- another item"])
    assert read_one("a.pdf", content).text == expected


LONG = "A line that is as long as most of the lines of this page are"


@pytest.mark.parametrize(
    ("lines", "is_joined"),
    [
        ([LONG, "Paris and its rivers, which are long."], True),
        ([f"{LONG}.", "The next sentence of the same paragraph."], True),
        (["A short last line.", "The first line of the next paragraph."], False),
        # A wider gap
        ([LONG, "", "than any other, and goes on behind the gap."], True),
        ([LONG, "", "Paris and its rivers, which are long."], False),
        ([f"{LONG}.", "", "and a small letter behind a stop."], False),
        # A gap of 17 points, where lines are 14 points apart: 1.35 times as much is a paragraph.
        ([LONG, [("Paris and its rivers, which are long.", 11, 0, -3)]], True),
        ([LONG, [("Paris and its rivers, which are long.", 11, 0, -6)]], False),
        # Another size
        ([LONG, ("Paris in small letters, which are short.", 8)], False),
        ([LONG, ("and small letters, which are short.", 8)], True),
        ([f"{LONG}.", ("and small letters behind a stop.", 8)], False),
    ],
)
def test_lines_of_pdf_become_paragraphs(read_one, make, lines, is_joined):
    content = make.pdf([*body("a"), *body("b"), "", *lines, "", *body("c"), *body("d")])
    paragraphs = read_one("a.pdf", content).text.split("\n\n")
    texts = [line if isinstance(line, str) else line[0] for line in lines if line]
    texts = [text if isinstance(text, str) else text[0] for text in texts]
    expected = [" ".join(texts)] if is_joined else texts
    assert [text for text in paragraphs if not text.startswith("This page")] == expected


def test_pages_of_a_pdf_that_are_scans_are_named(read_one, make):
    whole = make.pdf([*body("a")], image=True)
    assert read_one("a.pdf", whole).notes == ()
    document = read_one("b.pdf", make.pdf([*body("a")] * 3, [], image=True))
    assert document.notes == ("1 of 2 pages are images without a text layer (2)",)
    assert len(document.pages) == 2


def test_a_cover_with_scanned_pages_is_a_scan(read_one, make):
    scan = make.pdf([*body("a")] * 9, [], ["From the library"], *[["From the library"]] * 3)
    assert "This page a" in read_one("a.pdf", scan).text  # without images
    scan = make.pdf([*body("a")] * 9, [], *[["From the library"]] * 4, image=True)
    with pytest.raises(InputError, match=r"a scan \(5 of 6 .* ocrmypdf, or .*KINDS.*keep_all"):
        read_one("b.pdf", scan)
    retained = read_one("c.pdf", scan, keep_all=True)
    assert retained.notes == ("5 of 6 pages are images without a text layer (2, 3, 4, 5, 6)",)


def prose(name):
    """Returns a sentence of 20 lines that begin with small letters but for the first."""
    lines = [f"and the {name} goes on in line {number}" for number in range(2, 20)]
    return [f"The {name} begins in its first line", *lines, f"until it has an end in {name} 20."]


def in_rows(*columns, distance=240, up=0):
    rows = zip(*columns, strict=True)
    return [[(text, 10, i * distance, i * up) for i, text in enumerate(row)] for row in rows]


@pytest.mark.parametrize(
    ("names", "up"),
    [(("left", "right"), 0), (("left", "right"), -5), (("first", "second", "third"), 0)],
)
def test_columns_of_pdf_that_are_drawn_row_by_row(read_one, make, names, up):
    columns = [prose(name) for name in names]
    title = "A line of the page that is as wide as all of the columns below it, and above it, too,"
    rows = in_rows(*columns, distance=240 if len(names) == 2 else 175, up=up)
    document = read_one("a.pdf", make.pdf([title, *rows]))
    text = " ".join(document.text.split())
    assert text == " ".join([title, *itertools.chain(*columns)])


def test_a_last_line_of_pdf_below_columns_of_other_lengths(read_one, make):
    left, right = prose("left"), prose("right")
    last = "A line of the page that is as wide as both of the columns above it, and ends the page."
    rows = [*in_rows(left[:-1], right[:-1]), [(left[-1], 10, 0, 0)]]
    text = " ".join(read_one("a.pdf", make.pdf([*rows, last])).text.split())
    assert text == " ".join([*left, *right[:-1], last])


def test_tables_and_wide_gaps_of_pdf_stay_in_rows(read_one, make):
    cells = [["Cost of the dam", "12.5"], ["of it, wood", "3.5"], ["and stone for it", "9.0"]] * 5
    words = [
        ["red apples", "to eat"],
        ["pears of the north", "for wine and oil"],
        ["nuts", "a"],
    ] * 5
    columns = zip(prose("text"), range(20), strict=True)
    gaps = [
        [(f"{line} of some words", 10, 0, 0), ("goes on", 10, 250 + 3 * i, 0)]
        for line, i in columns
    ]
    for rows in (in_rows(*zip(*cells, strict=True)), in_rows(*zip(*words, strict=True)), gaps):
        text = " ".join(read_one("a.pdf", make.pdf(rows)).text.split())
        assert text == " ".join(piece[0] for row in rows for piece in row)


def test_footnotes_of_pdf_are_left_out(read_one, make):
    marked = [
        [
            ("The dam was built of stone,", 11, 0, 0),
            ("12", 6, 135, 4),
            (" not of wood*", 11, 142, 0),
        ],
        [
            ("and covers 3 km", 11, 0, 0),
            ("2", 6, 79, 4),
            (" of the bay, see Figure 12, which has", 11, 83, 0),
        ],
    ]
    notes = [
        [("12", 5, 0, 3), ("A note on the stone.", 8, 6, 0)],
        ("that goes on.", 8),
        ("* Oak.", 8),
    ]
    following = ["been drawn in the year in which it was built. It is the", "end of it."]
    content = make.pdf([*body("a"), "", *marked, "", *notes], [*following, *body("b")])
    document = read_one("a.pdf", content)
    whole = (
        "The dam was built of stone, not of wood and covers 3 km2 of the bay, see Figure 12, which "
        f"has {' '.join(following)}"
    )
    assert whole in document.text
    assert "note" not in document.text
    assert document.notes == ("2 footnotes left out",)
    retained = read_one("b.pdf", content, keep_all=True).text
    assert "stone,12 not of wood*" in retained
    assert "A note on the stone." in retained
    small = [*body("a"), "", ("1 A small line in the middle", 8), *body("b")]
    assert "A small line" in read_one("c.pdf", make.pdf(small)).text


def test_contents_with_dots_are_left_out_of_pdf(read_one, make):
    lines = ["1 Introduction . . . . . . . . . 3", "2 Method . . . . . . . . . . . 17"]
    document = read_one("a.pdf", make.pdf([*lines, "", *body("a"), *body("b")]))
    assert document.text.startswith("This page a")
    assert document.notes == ("2 lines of contents left out",)


# Books and office files


def test_epub(read_one, make):
    toc = '<li><a href="text/c%201.xhtml#x">Second</a></li>'
    chapters = ["<h1>First</h1><p>Words&#160;one.</p>", '<p>Words two.<a id="x"/></p><p>Three.</p>']
    document = read_one("a.epub", make.epub(chapters, toc=toc))
    assert document.text == "First\n\nWords one.\n\nSecond\n\nWords two.\n\nThree."
    assert headings(document) == [("First", 1), ("Second", 1)]
    assert document.title == "A Book"


def test_docx(read_one, make):
    document = read_one(
        "a.docx",
        make.docx(
            '<w:p><w:pPr><w:pStyle w:val="Own"/></w:pPr><w:r><w:t>Heading</w:t></w:r></w:p>'
            '<w:p><w:r><w:t xml:space="preserve">One </w:t></w:r><w:r><w:t>two.</w:t><w:br/>'
            "<w:t>Three</w:t></w:r><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"
            '<w:p><w:pPr><w:outlineLvl w:val="2"/></w:pPr><w:r><w:t>Low</w:t></w:r></w:p>'
            "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r>"
            "<w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>",
            **{"word/header1.xml": "<x/>"},
        ),
    )
    assert document.text == "Heading\n\nOne two.\nThree\n\nLow\n\na | b"
    assert headings(document) == [("Heading", 1), ("Low", 3)]
    assert document.notes == ("headers and footers left out",)


@pytest.mark.parametrize("name", ["a.docx", "a"])
def test_docx_of_word_for_the_web(read_one, make, name):
    """Its parts have numbers."""
    paragraph = '<w:p><w:pPr><w:pStyle w:val="H"/></w:pPr><w:r><w:t>{}</w:t></w:r></w:p>'
    style = '<w:style w:styleId="H"><w:name w:val="heading 1"/></w:style>'
    parts = {
        "document": f"<w:body>{paragraph.format('Heading')}</w:body>",
        "styles": style,
        "footnotes": paragraph.format("A note."),
    }
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    members = {
        f"word/{part}2.xml": f'<w:{part} xmlns:w="{word}">{content}</w:{part}>'
        for part, content in parts.items()
    }
    document = read_one(name, make.zip({"[Content_Types].xml": "<Types/>", **members}))
    assert (document.text, headings(document)) == ("Heading", [("Heading", 1)])
    assert document.notes == ("1 footnote left out",)


def test_titles_and_footnotes_of_docx(read_one, make):
    def paragraph(text):
        return f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>"

    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    note = f'<w:footnotes xmlns:w="{word}"><w:footnote>{paragraph("A note.")}</w:footnote>'
    members = {
        "docProps/core.xml": "<p><title/><title>On dams</title></p>",
        "word/footnotes.xml": f"{note}</w:footnotes>",
    }
    content = make.docx(paragraph("Text."), **members)
    document = read_one("a.docx", content)
    assert (document.title, document.text) == ("On dams", "Text.")
    assert document.notes == ("1 footnote left out",)
    assert read_one("b.docx", content, keep_all=True).text == "Text.\n\nA note."


def test_transcripts_in_docx_are_turns(read_one, make):
    paragraphs = ["Weekly meeting"]
    for number, (name, said) in enumerate([("Eva", "One."), ("Jan", "Two."), ("Eva", "Three.")]):
        paragraphs += [
            f"0:{number}:3.420 --&gt; 0:{number}:41.90",
            f"{name}</w:t></w:r><w:r><w:br/></w:r><w:r><w:t>{said} Yes.",
        ]
    paragraphs += ["0:4:3.420 --&gt; 0:4:41.90", "Jan</w:t><w:br/><w:t>Four."]
    body = "".join(f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" for text in paragraphs)
    document = read_one("a.docx", make.docx(body))
    assert document.text.split("\n\n") == [
        *("Weekly meeting", "Eva: One. Yes.", "Jan: Two. Yes.", "Eva: Three. Yes.", "Jan: Four.")
    ]
    assert document.notes == ("4 turns of a transcript",)
    assert "-->" in read_one("b.docx", make.docx(body), keep_all=True).text


@pytest.mark.parametrize("level", ["²", "9" * 5000, "-1", ""])
def test_levels_that_are_no_numbers_make_no_headings(read_one, make, level):
    properties = f'<w:pPr><w:outlineLvl w:val="{level}"/></w:pPr>'
    paragraph = f"<w:p>{properties}<w:r><w:t>Text.</w:t></w:r></w:p>"
    assert headings(read_one("a.docx", make.docx(paragraph))) == []
    heading = f'<text:h text:outline-level="{level}">Text<text:s text:c="{level}"/>.</text:h>'
    document = read_one("a.odt", make.odt(heading))
    assert (document.text, headings(document)) == ("Text .", [])


TEXT_BOX = (
    "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>In a box.</w:t></w:r></w:p></w:txbxContent>"
    "</w:pict></w:r>"
)


def test_text_boxes_of_docx_are_paragraphs(read_one, make):
    paragraph = f"<w:p><w:r><w:t>One </w:t></w:r>{TEXT_BOX}<w:r><w:t>two.</w:t></w:r></w:p>"
    assert read_one("a.docx", make.docx(paragraph)).text == "One two.\n\nIn a box."
    table = f"<w:tbl><w:tr><w:tc>{paragraph}</w:tc></w:tr></w:tbl>"
    assert read_one("b.docx", make.docx(table)).text == "One two.\n\nIn a box."


def run(text, properties=""):
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def form_field(text, properties):
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{run(text)}</w:sdtContent></w:sdt>"


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (run("Seen. ") + run("Hidden.", "<w:vanish/>"), "Seen."),
        (run("Seen. ") + run("Seen, too.", '<w:vanish w:val="0"/>'), "Seen. Seen, too."),
        (f"<w:r><w:ruby><w:rt>{run('kan')}</w:rt>{run('漢')}</w:ruby></w:r>", "漢"),
        (
            f"{run('One ')}<w:ins>{run('two.')}</w:ins><w:moveFrom>{run('x')}</w:moveFrom>",
            "One two.",
        ),
        (
            f"{run('Name: ')}{form_field('Click here', '<w:showingPlcHdr/>')}{run('End.')}",
            "Name: End.",
        ),
        (run("Name: ") + form_field("Ann", '<w:showingPlcHdr w:val="0"/>'), "Name: Ann"),
        (run("Name: ") + form_field("Ann", ""), "Name: Ann"),
        (f'{run("Angle ")}<w:r><w:sym w:font="Symbol" w:char="F061"/></w:r>', "Angle \u03b1"),
        (f'{run("Angle")}<w:r><w:sym w:char="x"/><w:sym/></w:r>', "Angle"),
    ],
)
def test_what_docx_shows(read_one, make, runs, text):
    assert read_one("a.docx", make.docx(f"<w:p>{runs}</w:p>")).text == text


def test_a_table_of_one_cell_is_a_frame_around_paragraphs(read_one, make):
    heading = '<w:p><w:pPr><w:pStyle w:val="H1"/></w:pPr><w:r><w:t>Title</w:t></w:r></w:p>'
    cell = f"<w:tbl><w:tr><w:tc>{heading}<w:p>{run('One.')}</w:p></w:tc></w:tr></w:tbl>"
    document = read_one("a.docx", make.docx(cell))
    assert (document.text, headings(document)) == ("Title\n\nOne.", [("Title", 1)])
    row = "<text:h>Title</text:h><text:p>One.</text:p>"
    cells = f"<table:table-cell>{row}</table:table-cell><table:covered-table-cell/>"
    content = make.odt(f"<table:table><table:table-row>{cells}</table:table-row></table:table>")
    document = read_one("a.odt", content)
    assert (document.text, headings(document)) == ("Title\n\nOne.", [("Title", 1)])


def test_indexes_and_pronunciation_of_odt_are_left_out(read_one, make):
    read_as = "<text:ruby-text>kan</text:ruby-text>"
    ruby = f"<text:ruby><text:ruby-base>漢</text:ruby-base>{read_as}</text:ruby>"
    index = "<text:alphabetical-index><text:p>One, 3</text:p></text:alphabetical-index>"
    assert read_one("a.odt", make.odt(f"<text:p>{ruby}</text:p>{index}")).text == "漢"


def test_pictures_and_empty_fields_of_odt_leave_no_words(read_one, make):
    names = 'xmlns:svg="urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"'
    picture = (
        f"<text:span {names}><svg:title>Dam</svg:title><svg:desc>A wall</svg:desc></text:span>"
    )
    field = "<text:placeholder>&lt;Name&gt;</text:placeholder>"
    content = make.odt(f"<text:p>A link follows{picture}. Name: {field}</text:p>")
    assert read_one("a.odt", content).text == "A link follows. Name:"


def test_text_boxes_of_odt_are_paragraphs(read_one, make):
    box = "<draw:frame><draw:text-box><text:p>In a box.</text:p></draw:text-box></draw:frame>"
    drawing = 'xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    content = make.odt(f"<text:p {drawing}>One {box}two.</text:p>")
    assert read_one("a.odt", content).text == "One two.\n\nIn a box."


def test_odt(read_one, make):
    note = "<text:note><text:note-body><text:p>A note.</text:p></text:note-body></text:note>"
    content = make.odt(
        '<text:h text:outline-level="2">Heading</text:h>'
        f'<text:p>One<text:s text:c="2"/>two<text:span>three</text:span>{note}.</text:p>'
        "<table:table><table:table-row><table:table-cell><text:p>a</text:p></table:table-cell>"
        "<table:table-cell><text:p>b</text:p></table:table-cell></table:table-row></table:table>"
    )
    document = read_one("a.odt", content)
    assert document.text == "Heading\n\nOne  twothree.\n\na | b"
    assert headings(document) == [("Heading", 2)]
    assert document.notes == ("1 footnote left out",)
    assert "A note." in read_one("b.odt", content, keep_all=True).text


OFFICE_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def links(**targets):
    return "".join(
        f'<Relationship Id="{name}" Target="{target}"/>' for name, target in targets.items()
    ).join(["<Relationships>", "</Relationships>"])


def shape(text, kind=None):
    placeholder = f'<p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>' if kind else ""
    return f"<p:sp>{placeholder}<p:txBody>{slide_paragraphs(text)}</p:txBody></p:sp>"


def slide_paragraphs(text):
    runs = (f"<a:r><a:t>{line}</a:t></a:r>" for line in text.split("\n"))
    return "".join(f"<a:p>{run}</a:p>" for run in runs)


def slide(*shapes, attributes=""):
    names = 'xmlns:p="urn:p" xmlns:a="urn:a"'
    return f"<p:sld {names} {attributes}><p:spTree>{''.join(shapes)}</p:spTree></p:sld>"


def make_pptx(make, *slides, **members):
    ids = "".join(f'<sldId r:id="r{number}"/>' for number in range(len(slides)))
    targets = {f"r{number}": f"slides/{number}.xml" for number in range(len(slides))}
    files = {
        "ppt/presentation.xml": f'<presentation xmlns:r="{OFFICE_LINKS}">{ids}</presentation>',
        "ppt/_rels/presentation.xml.rels": links(**targets),
    }
    contents = {f"ppt/slides/{number}.xml": content for number, content in enumerate(slides)}
    return make.zip(files | contents | members)


def test_pptx(read_one, make):
    cells = "".join(f"<a:tc>{slide_paragraphs(text)}</a:tc>" for text in ("a", "b\nc"))
    table = f"<p:graphicFrame><a:tbl><a:tr>{cells}</a:tr></a:tbl></p:graphicFrame>"
    number = "<p:sp><p:txBody><a:p><a:fld><a:t>7</a:t></a:fld></a:p></p:txBody></p:sp>"
    first = slide(shape("The dam", "ctrTitle"), shape("One.\nTwo.", "body"))
    running = shape("A footer", "ftr") + shape("2", "sldNum")
    group = f"<p:grpSp>{shape('Inside.')}</p:grpSp>"
    second = slide(shape("Costs", "title"), group, table, number, running)
    hidden = slide(shape("Hidden."), attributes='show="0"')
    notes = {
        "ppt/slides/_rels/1.xml.rels": links(n="../notesSlides/1.xml"),
        "ppt/notesSlides/1.xml": slide(shape("Tell it.", "body")),
    }
    content = make_pptx(make, first, second, hidden, **notes)
    document = read_one("a.pptx", content)
    assert pages(document) == ["The dam\n\nOne.\n\nTwo.", "Costs\n\nInside.\n\na | b c", ""]
    assert headings(document) == [("The dam", 1), ("Costs", 2)]
    assert document.title == "The dam"
    assert document.notes == ("1 hidden slide left out", "speaker's notes of 1 slide left out")
    retained = read_one("b.pptx", content, keep_all=True)
    assert pages(retained)[1:] == [
        "Costs\n\nInside.\n\na | b c\n\nA footer\n\n2\n\nTell it.",
        "Hidden.",
    ]


def test_diagrams_of_pptx_are_read(read_one, make):
    """SmartArt is not in the slide, which only refers to it."""
    points = f'<x xmlns:a="urn:a"><pt>{slide_paragraphs("Buy buses")}</pt><pt/></x>'
    members = {
        "ppt/slides/_rels/0.xml.rels": links(
            n="../notesSlides/0.xml", d="../diagrams/data1.xml", m="../diagrams/data2.xml"
        ),
        "ppt/diagrams/data1.xml": points,
        "ppt/notesSlides/0.xml": slide(shape("Tell it.", "body")),
    }
    content = make_pptx(make, slide(shape("Plan", "title")), slide(shape("End.")), **members)
    assert pages(read_one("a.pptx", content)) == ["Plan\n\nBuy buses", "End."]
    retained = read_one("b.pptx", content, keep_all=True)
    assert pages(retained)[0] == "Plan\n\nBuy buses\n\nTell it."


def make_xlsx(make, *sheets, strings=""):
    """A workbook; a sheet is (attributes, XML of its rows)."""
    entries = "".join(
        f'<sheet name="S{number}" r:id="r{number}" {attributes}/>'
        for number, (attributes, _) in enumerate(sheets)
    )
    files = {
        "xl/workbook.xml": f'<workbook xmlns:r="{OFFICE_LINKS}">{entries}</workbook>',
        "xl/_rels/workbook.xml.rels": links(
            **{f"r{number}": f"/xl/sheets/{number}.xml" for number in range(len(sheets))}
        ),
        "xl/sharedStrings.xml": f"<sst>{strings}</sst>",
    }
    return make.zip(
        files
        | {
            f"xl/sheets/{number}.xml": f"<worksheet>{rows}</worksheet>"
            for number, (_, rows) in enumerate(sheets)
        }
    )


def inline_row(*texts):
    cells = (f'<c t="inlineStr"><is><t>{text}</t></is></c>' for text in texts)
    return f"<row>{''.join(cells)}</row>"


def test_xlsx(tmp_path, make):
    strings = "<si><t>text</t></si><si><r><t>One </t></r><r><t>two.</t></r><rPh><t>x</t></rPh></si>"
    rows = (
        '<row r="1"/><row r="2"><c r="B2"><v>id</v></c><c r="AA2" t="s"><v>0</v></c></row>'
        '<row r="4"><c r="B4"><v>7</v></c><c r="Z4" t="e"><v>#N/A</v></c>'
        '<c r="AA4" t="s"><v>1</v></c></row><row r="5"><c r="B5"><v>8</v></c></row>'
    )
    other = inline_row("count", "document") + inline_row("1", "Three.")
    path = tmp_path / "a.xlsx"
    sheets = (
        ("", rows),
        ("", inline_row("sum")),
        ("", ""),
        ('state="hidden"', other),
        ('state="visible"', other),
    )
    path.write_bytes(make_xlsx(make, *sheets, strings=strings))
    failures = []
    documents = list(read_documents(path, on_failure=failures.append))
    assert [(document.text, document.id) for document in documents] == [
        ("One two.", "7"),
        ("Three.", None),
    ]
    assert [document.name for document in documents] == [f"{path}/S0:4", f"{path}/S4:2"]
    assert [failure.problem for failure in failures] == [
        f'{path}/S0:5: "text" is empty; remove the row'
    ]
    [document] = read(path, document_key="count")
    assert document.text == "1"


def test_rtf(read_one):
    content = rb"{\rtf1\ansi{\fonttbl\f0 Times;}\f0 Caf\'e9 {\b bold} \u8364?.\par Two.\par}"
    assert read_one("a.rtf", content).text == "Café bold €.\n\nTwo."
    row = rb"{\rtf1\ansi One.\par\trowd\cellx9\cellx99\intbl A\cell\cell B\cell\row\pard End.\par}"
    assert read_one("b.rtf", row).text == "One.\n\nA | B\n\nEnd."


@pytest.mark.parametrize(
    "content",
    [
        rb"A \v hid\'e9\u8364?\emdash den\par\v0 B",
        rb"A {\v hidden {\b and} bold \{ \deleted both\v0 }B",
        rb"A \v1 hidden\plain B",
        rb"A {\deleted\revauthdel1 deleted}{\v\deleted0 hidden}B",
        rb"A {\v{\*\bkmkstart place}\bin3 }}}hidden}B",
        rb"A \v{\fldinst PAGE }{\fldrslt 7}\v0 B",
    ],
)
def test_rtf_leaves_out_what_it_hides(read_one, content):
    assert read_one("a.rtf", rb"{\rtf1\ansi\viewkind4 " + content + b"\\par}").text == "A B"


def test_links_of_rtf_are_text(read_one):
    link = r'{{\field{{\*\fldinst{{HYPERLINK "http://{0}"}}}}{{\fldrslt{{\ul {0}}}}}}}'
    content = rf"{{\rtf1\ansi See {link.format('a.b')} and {link.format('c.d')} now.\par}}"
    assert read_one("a.rtf", content).text == "See a.b and c.d now."


def test_notes_of_rtf_name_what_is_left_out(read_one):
    note, box = r"{\super\chftn{\footnote A note.}}", r"{\shp{\*\shpinst{\shptxt In a box.\par}}}"
    document = read_one("a.rtf", rf"{{\rtf1\ansi One{note} two{note}.{box}\par}}")
    assert document.text == "One two."
    assert document.notes == ("2 footnotes left out", "1 shape text left out")


# What is said and written to one another


def test_subtitles(read_one):
    srt = (
        "1\n00:00:01,000 --> 00:00:02,000\n<i>Hello</i>\n\n2\n00:00:02,500 --> 00:00:03,000\n"
        "there.\n\n3\n00:00:20,000 --> 00:00:21,000\n{\\an8}After a pause.\n"
    )
    assert read_one("a.srt", srt).text == "Hello there.\n\nAfter a pause."
    vtt = (
        "WEBVTT\n\nNOTE a note\n\n00:01.000 --> 00:02.000 align:start\n<v Ann>Yes</v>\n\n"
        "00:02.000 --> 00:03.000\nrolling\n\n00:03.000 --> 00:04.000\nrolling\non\n\n"
        "00:04.000 --> 00:05.000\n<v Bob>No</v>\n"
    )
    assert read_one("a.vtt", vtt).text == "Ann: Yes rolling on\n\nBob: No"
    escaped = "WEBVTT\n\n00:01.000 --> 00:02.000\n&gt;&gt; Salt &amp; pepper\n"
    assert read_one("b.vtt", escaped).text == ">> Salt & pepper"


@pytest.mark.parametrize("name", ["a.txt", "transcript"])
def test_subtitles_under_other_names(read_one, name):
    srt = "1\n00:00:01,000 --> 00:00:02,000\nHello\n\n2\n00:00:02,500 --> 00:00:03,000\nthere."
    assert read_one(name, srt).text == "Hello there."
    assert read_one(name, "WEBVTT\n\n00:01.000 --> 00:02.000\nHello").text == "Hello"


def cues_of(*cues):
    times = [f"00:{i:02d}.000 --> 00:{i + 1:02d}.000\n{cue}\n" for i, cue in enumerate(cues)]
    return "\n".join(["WEBVTT\n", *times])


@pytest.mark.parametrize(
    ("cues", "expected"),
    [
        (
            ("<v Ann>We should", "<v Ann>go home.", "<v Bob>Yes."),
            ["Ann: We should go home.", "Bob: Yes."],
        ),
        (("<v Ann>Go.</v>\n<v Bob>No.</v>",), ["Ann: Go.", "Bob: No."]),
        (
            ("Ann Berg: We go", "Ann Berg: home.", "The plan: sleep."),
            ["Ann Berg: We go home. The plan: sleep."],
        ),
        (("We go.", "BOB: No.", "Why not?"), ["We go.", "BOB: No. Why not?"]),
        (("- Hi there.\n- Hello, is it\nyou?",), ["- Hi there.", "- Hello, is it you?"]),
        ((">> One.", ">> One.", "Two."), [">> One. Two."]),
        (
            ("Speaker 1: We go", "Speaker 1: home.", "Speaker 2: No.", "Speaker 2: Why is it so?"),
            ["Speaker 1: We go home.", "Speaker 2: No. Why is it so?"],
        ),
        (
            (
                "Eva (she/her): We go",
                "Eva (she/her): home.",
                "iPhone of Jan: Why not?",
                "iPhone of Jan: We must go.",
            ),
            ["Eva: We go home.", "iPhone of Jan: Why not? We must go."],
        ),
    ],
)
def test_what_speakers_say_is_a_paragraph(read_one, cues, expected):
    assert read_one("a.vtt", cues_of(*cues)).text.split("\n\n") == expected


def test_rolling_captions_of_several_lines_are_read_once(read_one):
    rolled = cues_of("We", "We\ngo", "We\ngo\nhome", "go\nhome\ntoday.")
    assert read_one("a.vtt", rolled).text == "We go home today."
    song = cues_of("Go,\nGo!", "Go,\nGo!\nNow.")
    assert read_one("b.vtt", song).text == "Go, Go! Now."
    late = "00:30.000 --> 00:31.000\nhome\ntoday.\nNow.\n"
    assert read_one("c.vtt", f"{rolled}\n{late}").text == "We go home today.\n\nNow."


def test_pauses_of_a_speaker_are_in_the_turn(read_one):
    times = [f"00:{i}0.000 --> 00:{i}1.000" for i in range(1, 4)]
    said = ["<v Ann>One.", "<v Ann>Two.", "<v Bob>Three."]
    vtt = "WEBVTT\n\n" + "\n\n".join(map("\n".join, zip(times, said, strict=True)))
    assert read_one("a.vtt", vtt).text == "Ann: One.\n\nTwo.\n\nBob: Three."


def test_cues_without_empty_lines_and_with_them_inside(read_one):
    time = "00:00:0{},000 --> 00:00:0{},500"
    cues = [f"{i}\n{time.format(i, i)}\n{text}" for i, text in enumerate(["One", "5\ntwo", "end."])]
    assert read_one("a.srt", "\n".join(cues)).text == "One 5 two end."
    inside = "\n\n".join(cues).replace("5\ntwo", "5\n\ntwo")
    assert read_one("b.srt", inside).text == "One 5 two end."


def test_sounds_of_subtitles_are_left_out(read_one):
    vtt = cues_of("[Applause]", "Yes [sic] we do.", "BOB: (laughs)", "\u266a")
    document = read_one("a.vtt", vtt)
    assert document.text == "Yes [sic] we do."
    assert document.notes == ("numbers and times left out", "3 sounds left out")
    assert "[Applause]" in read_one("b.vtt", vtt, keep_all=True).text


def test_lines_of_subtitles_stay_where_no_stops_divide_them(read_one):
    said = [f"they say {i} words of a long talk" for i in range(40)]
    cues = [f"00:{i:02d}.000 --> 00:{i + 1:02d}.000\n{line}\n" for i, line in enumerate(said)]
    vtt = "\n".join(["WEBVTT\n", *cues])
    assert read_one("a.vtt", vtt).text == "\n".join(said)
    stopped = vtt.replace("talk", "talk.")
    assert read_one("b.vtt", stopped).text == ". ".join(said) + "."


MESSAGE = """From: a@b.c
Subject: =?utf-8?q?Caf=C3=A9?= plans
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

It opens at n=FCn.

On Monday, Bob wrote:
> Does it open?
--\x20
Ann
"""


@pytest.mark.parametrize(
    "quoted",
    [
        f"{'_' * 32}\nFrom: Bob <b@c.d>\nSent: Friday, 2 May 2025\nTo: Ann\n\nDoes it open?\n",
        "Von: Bob\nGesendet: Freitag, 2. Mai 2025\n\nÖffnet es?\n",
        "De : Bob\nEnvoyé : vendredi\n\nEst-ce ouvert ?\n",
        "-----Original Message-----\nFrom: Bob\n\nDoes it open?\n",
    ],
)
def test_what_outlook_answers_is_left_out(read_one, quoted):
    headers = "From: a@b.c\nSubject: Plans\nContent-Type: text/plain; charset=utf-8\n"
    message = f"{headers}\nIt opens.\n\n{quoted}"
    assert read_one("a.eml", message).text == "Plans\n\nIt opens."
    letter = "From: the first day on\nit was open.\n"
    retained = read_one("b.eml", message.replace(quoted, letter)).text
    assert "From: the first day on it was open." in retained.replace("\n", " ")


@pytest.mark.parametrize(
    "added",
    [
        "From: Bob\nSent: Friday, 2 May 2025\nTo: Ann\nSubject: Plans\n\nOld.",
        "Da: Bob <b@c.d>\nInviato: venerdì 2 maggio\nA: Ann\nOggetto: Piani\n\nOld.",
        "*Van:* Bob\n*Verzonden:* vrijdag 2 mei\n*Aan:* Ann\n\nOld.",
        "-----Mensagem original-----\nDe: Bob\nEnviada em: sexta-feira\n\nOld.",
        "\u53d1\u4ef6\u4eba\uff1aBob\n\u53d1\u9001\u65f6\u95f4\uff1a5\n\nOld.",
        "Date: Friday\nFrom: Bob <b@c.d>\nTo: Ann\n\nOld.",
        "-----Bob/ACME wrote: -----\nTo: Ann\n\nOld.",
        "On 2 May 2025, Bob Berg of the Harbour <\nb@c.d> wrote:\n\n> Old.",
        "Am 2. Mai 2025 um 8:00 schrieb Bob\n<b@c.d>:\n> Old.",
        "Em sex., 2 de mai. de 2025, Bob <b@c.d>\nescreveu:\n\n> Old.",
        "pt., 2 maj 2025 o 08:00 Bob <b@c.d> napisał(a):\n\n> Old.",
        "Bob <b@c.d> wrote (at 2 May):\n> Old.",
        "On Fri, 2 May 2025, Bob <b@c.d> wrote:\n\nOld.",
        "pt., 2 maj 2025 o 08:00 Bob <b@c.d> napisał(a):\n\nOld.",
        "2025. 5. 2. \uc624\uc804 8:00 Bob <b@c.d> \uc791\uc131:\n\nOld.",
        "2025-05-02 8:00 GMT+02:00 Bob <b@c.d>: \n\nOld.",
        "Sent from my iPhone\n\n> On 2 May 2025, at 08:00, Bob wrote:\n>\n> Old.",
        "Von meinem iPhone gesendet",
        "Get Outlook for iOS<https://a.b>\n________________________________\nFrom: Bob\nSent: May",
        "--\nAnn\n\n____________________\nplans mailing list\nhttps://a.b/listinfo/plans",
        "To unsubscribe from this list, write to a@b.c with the word unsubscribe in it.",
        "This mail is confidential. If you are not the intended recipient, delete it.",
        "This mail is confidential and\nintended only for Ann.\n\n"
        "Please consider the environment before printing this e-mail.",
    ],
)
def test_what_programs_and_lists_add_is_left_out(read_one, added):
    assert read_one("a.eml", f"Subject: S\n{PLAIN}\n\nMine.\n\n{added}\n").text == "S\n\nMine."


@pytest.mark.parametrize(
    "own",
    [
        "From: Lund\nTo: Malmö\nDate: 6 May\n\nPlease book it.",
        "The offers are confidential and privileged; delete the copies.",
        "To unsubscribe from that newsletter took me an hour.",
        "Sent from my iPhone? Yes.",
        "My answers to what you asked on 6 May 2025:",
    ],
)
def test_what_looks_like_an_addition_stays(read_one, own):
    text = read_one("a.eml", f"Subject: S\n{PLAIN}\n\nMine.\n\n{own}\n\n> Old.\n").text
    assert text.split() == f"S Mine. {own}".split()


@pytest.mark.parametrize(
    "asked",
    [
        "For the 2025 meeting, please send Bob (b@c.d) the following:",
        "At 10:30 on 6 May, ask Bob <b@c.d> for these:",
    ],
)
def test_lines_after_a_sentence_with_an_address_stay(read_one, asked):
    own = f"Dear all,\n\n{asked}\n\n- your title\n\nThe venue is new."
    assert read_one("a.eml", f"Subject: S\n{PLAIN}\n\n{own}\n").text == f"S\n\n{own}"


def test_answers_between_quoted_lines_stay(read_one):
    plain = (
        "On Monday Bob wrote:\n> One?\n\nYes.\n\n> Two?\n\nNo.\n-- \nAnn\n\n> Three?\n\nPerhaps."
    )
    assert read_one("a.eml", f"Subject: S\n\n{plain}").text == "S\n\nYes.\n\nNo.\n\nPerhaps."
    quote = '<blockquote class="gmail_quote">Old.</blockquote>'
    page = (
        f'<div class="gmail_quote"><div>On Monday Bob wrote:</div>{quote}<p>Yes.</p>{quote}</div>'
    )
    assert read_one("b.eml", f"Subject: S\n{HTML}\n\n{page}").text == "S\n\nYes."


OUTLOOK = "<b>From:</b> Bob<br><b>Sent:</b> May 2<br><b>Subject:</b> Plans"


@pytest.mark.parametrize(
    "page",
    [
        f'<p>Mine.</p><hr><div id="divRplyFwdMsg">{OUTLOOK}</div><p>Old.</p>',
        f"<p>Mine.</p><div><p>{OUTLOOK}</p></div><table><tr><td>Old.</td></tr></table>",
        '<div>Mine.</div><div class="protonmail_signature_block">Ann</div><div '
        'class="protonmail_quote">On Monday, Bob wrote:<br><blockquote>Old.</blockquote></div>',
        '<div>Mine.<div class="gmail_signature">Ann</div></div>',
    ],
)
def test_what_programs_add_to_pages_is_left_out(read_one, page):
    assert read_one("a.eml", f"Subject: S\n{HTML}\n\n{page}").text == "S\n\nMine."


def test_signed_mail_lacks_its_armor(read_one):
    begin, signature, end = (
        f"-----{part}-----"
        for part in ("BEGIN PGP SIGNED MESSAGE", "BEGIN PGP SIGNATURE", "END PGP SIGNATURE")
    )
    mail = f"Subject: S\n\n{begin}\nHash: SHA256\n\nMine.\n{signature}\n\niQ\n{end}\n"
    assert read_one("a.eml", mail).text == "S\n\nMine."


def test_mail(read_one, tmp_path):
    document = read_one("a.eml", MESSAGE)
    assert document.text == "Café plans\n\nIt opens at nün."
    assert document.title == "Café plans"
    assert [note.split(" of ")[0] for note in document.notes] == [
        "signature left out",
        "quoted mail",
    ]
    assert "> Does it open?" in read_one("b.eml", MESSAGE, keep_all=True).text
    mailbox = tmp_path / "a.mbox"
    mailbox.write_text(f"From a@b.c Mon\n{MESSAGE}\nFrom d@e.f Tue\nSubject: Two\n\n>From here.\n")
    first, second = read(mailbox)
    assert (first.text, second.text) == (document.text, "Two\n\nFrom here.")
    assert second.name == f"{mailbox}:2"


def test_mail_of_several_parts(read_one):
    parts = (
        'Subject: S\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="B"\n\n--B\n'
        "Content-Type: text/html\n\n<p>Hello</p><p>you</p>\n--B\nContent-Type: image/png\n"
        'Content-Disposition: attachment; filename="a.png"\n\nxx\n--B--\n'
    )
    document = read_one("a.eml", parts)
    assert document.text == "S\n\nHello\n\nyou"
    assert document.notes == ("attachments not read: a.png",)


def mail_of(kind, *parts):
    """A message whose parts are (headers, text)."""
    whole = "".join(f"--{kind}\n{head}\n\n{text}\n" for head, text in parts)
    return f"Content-Type: multipart/{kind}; boundary={kind}\n\n{whole}--{kind}--\n"


PLAIN, HTML = "Content-Type: text/plain", "Content-Type: text/html"
NOTES_FILE = f"{PLAIN}\nContent-Disposition: attachment; filename=notes.txt"


def inner(message):
    """Headers and text of a message, as a part of another one."""
    return tuple(message.split("\n\n", 1))


def test_texts_around_a_picture_are_one_body(read_one):
    picture = "Content-Type: image/png; name=a.png"
    parts = (PLAIN, "One."), (picture, "xx"), (PLAIN, "Two.")
    assert read_one("a.eml", mail_of("mixed", *parts)).text == "One.\n\nTwo."


@pytest.mark.parametrize("kind", ["alternative", "signed"])
def test_attachments_in_inner_parts_are_read(tmp_path, kind):
    mixed = inner(mail_of("mixed", (PLAIN, "See the notes."), (NOTES_FILE, "The notes.")))
    path = tmp_path / "a.eml"
    path.write_text(mail_of(kind, mixed))
    assert [document.text for document in read(path)] == ["See the notes.", "The notes."]


def test_a_blank_form_of_a_body_is_not_read(read_one):
    forms = (PLAIN, " "), (HTML, "<p>A page.</p>")
    assert read_one("a.eml", mail_of("alternative", *forms)).text == "A page."


@pytest.mark.parametrize(
    ("plain", "is_read"),
    [
        ("Read this mail at https://a.b", False),
        ("Your program shows no HTML.", False),
        ("We meet at noon.", True),
        ("See https://a.b. " + MANY_WORDS * 10, True),
    ],
)
def test_a_plain_form_that_refers_to_the_html_is_not_read(read_one, plain, is_read):
    page = f"<!--{MANY_WORDS * 9}--><style>{'p {}' * 999}</style>{f'<p>{MANY_WORDS}</p>' * 6}"
    mail = mail_of("alternative", (PLAIN, plain), (HTML, page))
    assert (plain in read_one("a.eml", mail).text) == is_read
    short = mail_of("alternative", (PLAIN, plain), (HTML, page[: page.index("<p>")]))
    assert plain in read_one("b.eml", short).text


def test_both_forms_of_a_body_without_their_mark_are_read_once(read_one):
    plain = (PLAIN, "See you & Bob.")
    same, other = (
        (HTML, f"<style>p {{}}</style><p>See {text}</p>") for text in ("you &amp; Bob.", "Bob.")
    )
    picture = "Content-Type: image/png; name=a.png", "xx"
    assert read_one("a.eml", mail_of("mixed", plain, same, picture)).text == "See you & Bob."
    text = read_one("b.eml", mail_of("mixed", plain, other, picture)).text
    assert text == "See you & Bob.\n\nSee Bob."


def test_hidden_text_of_html_mail_is_left_out(read_one):
    page = '<div style="Display: None">Preview.</div><p>Mine.</p>'
    mail = f"Subject: S\n{HTML}\n\n{page}"
    assert read_one("a.eml", mail).text == "S\n\nMine."
    assert "Preview." in read_one("b.eml", mail, keep_all=True).text


def test_other_forms_of_a_body_are_not_attached(read_one):
    forms = (PLAIN, "Come."), ("Content-Type: text/calendar", "BEGIN:VCALENDAR")
    document = read_one("a.eml", mail_of("alternative", *forms))
    assert (document.text, document.notes) == ("Come.", ())


QUOTE = '<div class="gmail_quote">On Monday Bob wrote:<blockquote>Old.</blockquote></div>'


def test_quoted_mail_of_html_is_left_out(read_one):
    mail = f"Subject: Re: S\n{HTML}\n\n<p>Yes.</p>{QUOTE}"
    document = read_one("a.eml", mail)
    assert document.text == "Re: S\n\nYes."
    assert document.notes == ("quoted mail of 27 characters left out",)
    assert "Old." in read_one("b.eml", mail, keep_all=True).text
    assert "Old." in read_one("c.eml", f"Subject: S\n{HTML}\n\n{QUOTE}").text


def test_quoted_lines_between_line_breaks_of_html_leave_no_gap(read_one):
    page = "<div>One.<br><br>&gt; Old.<br><br>Two.</div>"
    assert read_one("a.eml", f"Subject: S\n{HTML}\n\n{page}").text == "S\n\nOne.\n\nTwo."


def test_forwarded_mail_is_read(read_one):
    outlook = "FYI.\n\nFrom: Bob\nSent: Friday\n\nWe won."
    assert "We won." in read_one("a.eml", f"Subject: FW: S\n{PLAIN}\n\n{outlook}").text
    assert "We won." not in read_one("b.eml", f"Subject: RE: S\n{PLAIN}\n\n{outlook}").text
    page = f"<p>FYI.</p>{QUOTE}"
    assert "Old." in read_one("c.eml", f"Subject: Fwd: S\n{HTML}\n\n{page}").text


@pytest.mark.parametrize(
    ("subject", "own"), [("Fwd: S", ""), ("Fwd: S", "FYI."), ("[a] Fwd: S", "FYI."), ("S", "")]
)
@pytest.mark.parametrize(
    "header",
    [
        "---------- Forwarded message ---------\nFrom: Bob\nDate: May 2\nTo: Ann\n\nWe won.",
        "Begin forwarded message:\n\n> From: Bob\n> Date: May 2\n>\n> We won.",
        "From: Bob\nSent: Friday\nSubject: S\n\nWe won.",
    ],
)
def test_forwarded_mail_lacks_its_header(read_one, subject, own, header):
    text = read_one("a.eml", f"Subject: {subject}\n{PLAIN}\n\n{own}\n\n{header}\n").text
    assert text.split() == f"{subject} {own} We won.".split()


def test_lines_like_headers_in_forwarded_mail_stay(read_one):
    header = "---------- Forwarded message ---------\nFrom: Bob\nDate: May 2\nTo: Ann,\n C D"
    body = "Hello.\nDate: we meet in May\n\nTo: the lake."
    for gap in ("\n", "\n\n"):
        text = read_one("a.eml", f"Subject: Fwd: S\n{PLAIN}\n\n{header}{gap}{body}\n").text
        assert text.split() == f"Fwd: S {body}".split()


def test_two_dashes_far_from_the_end_are_a_rule(read_one):
    body = "One.\n--\n" + "More.\n" * 20
    assert "More." in read_one("a.eml", f"Subject: S\n\n{body}").text
    assert read_one("b.eml", "Subject: S\n\nOne.\n--\nAnn\n").text == "S\n\nOne."


def test_old_line_ends_in_mail(read_one):
    assert (
        read_one("a.eml", b"Subject: S\n\nOne\rtwo.\r\rThree.").text == "S\n\nOne\ntwo.\n\nThree."
    )


SAVED_PAGE = """From: <Saved by Blink>
Snapshot-Content-Location: https://a.example/dam
Subject: A page
MIME-Version: 1.0
Content-Type: multipart/related; type="text/html"; boundary="B"

--B
Content-Type: text/html
Content-Transfer-Encoding: quoted-printable

<html><head><meta charset=3D"iso-8859-1"><title>The dam</title></head><body><nav>Home =
Men=FC</nav><p>The caf=E9 is open.</p></body></html>
--B
Content-Type: text/html

<p>An advertisement in a frame.</p>
--B
Content-Type: image/png
Content-Transfer-Encoding: base64

iVBORw0KGgo=
--B--
"""


@pytest.mark.parametrize("name", ["a.mht", "a.MHTML", "saved"])
def test_saved_pages(read_one, name):
    document = read_one(name, SAVED_PAGE)
    assert (document.text, document.title) == ("The café is open.", "The dam")
    assert document.notes == ("boilerplate of 8 characters left out",)


def test_attachments_are_documents(tmp_path):
    inner = EmailMessage()
    inner["Subject"] = "Inner"
    inner.set_content("A message within.")
    message = EmailMessage()
    message["Subject"] = "Outer"
    message.set_content("See below.")
    message.add_attachment("<p>A page.</p>", subtype="html", filename="page.html")
    message.add_attachment(b"PK\x03\x04", maintype="application", subtype="zip", filename="a.zip")
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="logo.png")
    message.add_attachment(inner)
    path = tmp_path / "a.eml"
    path.write_bytes(bytes(message))
    failures = []
    result = list(read_documents(path, on_failure=failures.append))
    assert [each.text for each in result] == [
        "Outer\n\nSee below.",
        "A page.",
        "Inner\n\nA message within.",
    ]
    assert result[0].notes == ("attachments not read: logo.png",)
    assert [each.name for each in result[1:]] == [f"{path}/page.html", f"{path}/attachment 4"]
    [failure] = failures
    assert failure.problem.startswith(f"{path}/a.zip: a damaged zip archive")
    shallow = ReadOptions(max_depth=1)
    failures.clear()
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(path, "a.eml")
    [outer] = read_documents(archive, options=shallow, on_failure=failures.append)
    assert outer.title == "Outer"
    assert len(failures) == 3
    assert all("deeper than max_depth=1" in failure.problem for failure in failures)


def test_attachments_without_a_message(tmp_path):
    message = EmailMessage()
    for text in ("Only this.", "And that."):
        message.add_attachment(text, filename="a.txt")
    path = tmp_path / "a.eml"
    path.write_bytes(bytes(message))
    result = [(document.name, document.text) for document in read(path)]
    assert result == [(f"{path}/a.txt", "Only this."), (f"{path}/2-a.txt", "And that.")]


def slack_export(**days):
    """Members of an export of Slack, by the last digit of each day."""
    users = [
        {"id": "U1", "real_name": "Eva Roth"},
        {"id": "U2", "name": "jan", "profile": {"display_name": "Jan"}},
    ]
    members = {"users.json": json.dumps(users), "channels.json": "[]"}
    for number, day in days.items():
        members[f"cellar/2024-05-0{number[1]}.json"] = json.dumps(day)
    return members


def message(time, user, text, **fields):
    return {"type": "message", "ts": f"{time}.0", "user": user, "text": text, **fields}


SLACK = slack_export(
    d1=[
        message(1, "U1", "The pump is <https://a.b|broken>. :cry:"),
        message(2, "U2", "joined", subtype="channel_join"),
        message(3, "U2", "Again &amp; again, <@U1>?", thread_ts="1.0"),
        message(4, "U1", "Who buys another"),
    ],
    d2=[message(9, "U1", "Yes.", thread_ts="1.0"), message(10, "U1", "<!here> <#C1|cellar>")],
)
SLACK_TEXT = (
    "Eva Roth: The pump is broken.\n\nJan: Again & again, @Eva Roth?\n\n"
    "Eva Roth: Yes. Who buys another\n\n@here #cellar"
)


@pytest.mark.parametrize("root", ["", "export/"])
def test_exports_of_slack_are_conversations(tmp_path, read_one, make, root):
    packed = {f"{root}{name}": content for name, content in SLACK.items()}
    document = read_one("a.zip", make.zip(packed))
    assert (document.text, document.title) == (SLACK_TEXT, "cellar")
    assert document.name == f"{tmp_path / 'a.zip'}/{root}cellar"
    assert document.notes == ("5 messages of an exported chat", "1 notice left out")
    for name, content in packed.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    [document] = read(tmp_path / "folder")
    assert document.text == SLACK_TEXT
    assert document.name == f"{tmp_path / 'folder' / root}".rstrip("/") + "/cellar"


def test_one_day_of_slack_is_a_conversation(read_one):
    day = [message(1, "U1", "Yes."), message(2, "U3", "No.", user_profile={"real_name": "Jan"})]
    document = read_one("a.json", json.dumps(day))
    assert document.text == "U1: Yes.\n\nJan: No."
    assert document.notes == ("2 messages of an exported chat", "no name for 1 user id")


# Tables


def test_rows_are_documents(tmp_path, make):
    rows = [{"text": "One.", "query": "Why?", "title": "T", "id": 7}, {"text": ["Two", "parts."]}]
    lines = tmp_path / "a.jsonl"
    lines.write_text("\n".join(map(json.dumps, rows)))
    result = read(lines)
    assert [(each.text, each.query, each.title, each.id) for each in result] == [
        ("One.", "Why?", "T", "7"),
        ("Two\nparts.", None, None, None),
    ]
    assert [each.name for each in result] == [f"{lines}:1", f"{lines}:2"]
    whole = tmp_path / "a.json"
    whole.write_text(json.dumps(rows))
    assert [each.text for each in read(whole)] == ["One.", "Two\nparts."]
    whole.write_text('["One.", {"text": "Two."}, "Three."]')
    assert [each.text for each in read(whole)] == ["One.", "Two.", "Three."]
    assert [each.text for each in read(whole, document_key="text")] == ["One.", "Two.", "Three."]
    ends = tmp_path / "c.jsonl"
    ends.write_text(json.dumps({"text": "One.\r\n\r\nTwo\rlines."}))
    assert [(each.text, each.notes) for each in read(ends)] == [("One.\n\nTwo\nlines.", ())]
    other = tmp_path / "b.jsonl"
    other.write_text('{"text": "no", "own": "Own."}')
    assert [each.text for each in read(other, document_key="none|own")] == ["Own."]


def test_csv(tmp_path):
    limit = csv.field_size_limit()
    table = tmp_path / "a.csv"
    long = "x" * (limit + 1)
    table.write_text(f"id;text\n1;{long}\n")
    assert [each.text for each in read(table)] == [long]
    assert csv.field_size_limit() == limit  # of the process, which other code may rely on
    table.write_text('id;text\n1;"One, and\nmore."\n2;Two.\n')
    assert [each.text for each in read(table)] == ["One, and\nmore.", "Two."]
    table.write_text('id;text\n1;"One, and\nmore."\n\n2;"Three\nlines\nhere."\n3;\n4;\n')
    failures = []
    documents = [*read_documents(table, on_failure=failures.append)]
    assert [document.id for document in documents] == ["1", "2"]
    # named by the first lines of their rows
    assert [failure.name for failure in failures] == [f"{table}:8", f"{table}:9"]
    tabs = tmp_path / "a.tsv"
    tabs.write_text("id\tbody\n1\tOne.\n")
    assert [each.text for each in read(tabs)] == ["One."]


@pytest.mark.parametrize("delimiter", [";", ",", "|", "\t", "^"])
def test_first_line_of_csv_declares_the_delimiter(tmp_path, delimiter):
    table = tmp_path / "a.csv"
    rows = (("id", "text"), ("1", "One; and, more."), ("2", ""))
    lines = [f"sep={delimiter}", *(delimiter.join(f'"{cell}"' for cell in row) for row in rows)]
    table.write_text("\r\n".join(lines) + "\r\n", newline="")
    failures = []
    [document] = read_documents(table, on_failure=failures.append)
    assert (document.id, document.text) == ("1", "One; and, more.")
    assert failures[0].problem.startswith(f"{table}:4: ")  # the line of the file


def test_columns_of_tsv_end_at_tabs(tmp_path):
    table = tmp_path / "a.tsv"
    table.write_text("text\nOne, and more.\n")
    assert [each.text for each in read(table)] == ["One, and more."]


def test_empty_cells_beyond_the_columns_of_csv(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("id,text\n1,One.,,\n")
    assert [each.text for each in read(table)] == ["One."]


def test_damaged_values_of_parquet(tmp_path, make):
    """They fail their row in a column that is read, and do no harm in another one."""
    import pyarrow
    from pyarrow import parquet

    damaged = pyarrow.array([b"\xff", b"Two."]).view(pyarrow.string())
    times = pyarrow.array([1, 1], pyarrow.timestamp("ns"))
    whole = ["One.", "Two."]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": whole, "time": times, "other": damaged}), path)
    assert [each.text for each in read(path)] == whole
    parquet.write_table(pyarrow.table({"text": damaged}), path)
    failures = []
    [document] = read_documents(path, on_failure=failures.append)
    assert document.text == "Two."
    assert failures[0].problem.startswith(f"{path}:1: a damaged value")


def test_parquet(tmp_path, make):
    from pyarrow import parquet, table

    rows = table({"article": ["One.", "Two."], "n": [1, 2]})
    parquet.write_table(rows, tmp_path / "a.parquet")
    assert [each.text for each in read(tmp_path / "a.parquet")] == ["One.", "Two."]


def test_a_folder_saved_by_datasets(tmp_path):
    """``save_to_disk`` writes streams of Arrow, and JSON files that are not documents."""
    from pyarrow import ipc, table

    rows = table({"article": ["One.", "Two."], "n": [1, 2]})
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    folder = tmp_path / "train"
    folder.mkdir()
    for name in ("state.json", "dataset_info.json"):
        (folder / name).write_text('{"text": "Not this."}')
    path = folder / "data-00000-of-00001.arrow"
    with ipc.new_stream(path, rows.schema) as writer:
        writer.write_table(rows)
    assert [each.text for each in read(tmp_path)] == ["One.", "Two."]
    path.rename(folder / "rows.feather")
    assert [each.text for each in read(folder / "rows.feather")] == ["One.", "Two."]


# Archives and paths


def test_compressed_files(read_one):
    assert read_one("a.md.gz", gzip.compress(b"# *One*")).text == "One"
    assert read_one("A.TXT.GZ", gzip.compress(b"One")).text == "One"
    assert read_one("a.txt.xz", lzma.compress(b"One")).text == "One"
    zstd = pytest.importorskip(compressed.ZSTD)
    assert read_one("a.txt.zst", zstd.compress(b"One")).text == "One"


def test_archives(tmp_path, make):
    inner = make.zip({"c.md": "# C"})
    path = tmp_path / "a.zip"
    path.write_bytes(make.zip({"b.txt": "B.", "d/inner.zip": inner, "__MACOSX/._b.txt": "x"}))
    result = read(path)
    assert [each.name for each in result] == [f"{path}/b.txt", f"{path}/d/inner.zip/c.md"]
    assert [each.text for each in result] == ["B.", "C"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(path, "x.zip")
    packed = tmp_path / "all.tgz"
    packed.write_bytes(out.getvalue())
    assert [each.text for each in read(packed)] == ["B.", "C"]


def test_folders_patterns_and_urls(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden.txt", "sub/c.txt", "out/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    def texts(*paths, **options):
        return [each.text for each in read_documents(*paths, **options)]

    (tmp_path / "sub" / "report.html").write_text("An output.")
    outputs = [tmp_path / "out", tmp_path / "sub" / "report.html"]
    assert texts(f"{tmp_path}/sub/*", exclude=outputs) == ["sub/c.txt"]
    assert texts(tmp_path, exclude=outputs) == [
        "a.txt",
        "b.txt",
        "sub/c.txt",
    ]
    assert texts(f"{tmp_path}/*.txt") == ["a.txt", "b.txt"]
    outputs[1].unlink()
    assert texts(f"{tmp_path}/**/c.txt") == ["sub/c.txt"]
    assert texts((tmp_path / "a.txt").as_uri(), tmp_path / "sub") == ["a.txt", "sub/c.txt"]


def test_every_kind_is_read_or_unpacked():
    suffixes = [suffix for kind in KINDS.values() for suffix in kind.suffixes]
    assert len(set(suffixes)) == len(suffixes)
    for kind in KINDS.values():
        assert (kind.read is None) != (kind.unpack is None)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_of_one_name_are_all_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a.txt", "An old bridge fell.")
        file.writestr("a.txt", "A new one stands.")
    texts = [document.text for document in read_documents(tmp_path / "a.zip")]
    assert texts == ["An old bridge fell.", "A new one stands."]
