"""Formats that pandoc reads: their text, how they are recognized, and the limits of pandoc."""

import pytest

from longsum_jax.readers import ReadOptions, pandoc, read_documents
from longsum_jax.readers.registry import KINDS, kind_of
from longsum_jax.readers.source import Source

needs_pandoc = pytest.mark.skipif(
    pandoc._find_executable() is None, reason='needs the extra "pandoc"'
)

LATEX = r"""% a comment
\documentclass{article}
\newcommand{\dam}{harbour dam}
\title{On\thanks{A note.} \\ Dams}
\begin{document}
\maketitle
\begin{abstract}Short.\end{abstract}
\section{One}\label{c}
The ``old'' \dam{} of $x^2$~\cite{a,b}, as in \cite{a,b}.\footnote{A note.} See \citet{ann}.
\begin{equation}\label{e} a = b \end{equation}
\begin{itemize}\item First. \item Second.\end{itemize}
\input{/etc/hostname}
\begin{figure}\caption{A wall.}\end{figure}
\begin{tabular}{ll}A & B\end{tabular}
\begin{verbatim}
code
\end{verbatim}
\section{Sources}
\begin{thebibliography}{9}\bibitem{a} A. Author.\end{thebibliography}
\end{document}
"""
LATEX_TEXT = """On Dams

Short.

One

The “old” harbour dam of $x^2$, as in [a, b]. See ann. $$a = b$$

First.

Second.

A | B"""
TYPST = '#include "/etc/hostname"\n= One\nA *bold* word @key.#footnote[A note.]\n- First.\n'
ORG = """#+TITLE: Dams
#+INCLUDE: "/etc/hostname"
* TODO One :tag:
:PROPERTIES:
:ID: x
:END:
A /word/.[fn:1]

[fn:1] A note.
"""
ASCIIDOC = """= Dams
:toc:

== One

include::/etc/hostname[]

NOTE: A _word_.

.A caption
|===
|A |B
|===
"""
MEDIAWIKI = """{{Infobox|height=12}}
'''The dam''' is [[wall|a wall]].<ref>A note.</ref>

== One ==
{|
| A || B
|}
[[Category:Dams]]
"""
DOCBOOK = """<?xml version="1.0"?>
<article xmlns="http://docbook.org/ns/docbook"><info><title>Dams</title></info>
<section><title>One</title><note><para>A word.<footnote><para>N.</para></footnote></para></note>
<note><title>Careful</title><para>It is deep.</para></note></section></article>"""
FICTION_BOOK = """<?xml version="1.0" encoding="windows-1251"?>
<FictionBook xmlns="http://www.gribuser.ru/xml/fictionbook/2.0"><description><title-info>
<book-title>Книга</book-title></title-info></description><body><title><p>Книга</p></title>
<section><title><p>One</p></title><p>Книга.</p></section></body></FictionBook>"""
MAN = r""".\" A comment
.nr x 0
.TH LS 1
.SH NAME
ls \- list files
.TP
\fB\-a\fR
All files.
.TP
\(bu
Bullet.
"""
MDOC = ".Dd May 1, 2024\n.Dt LS 1\n.Os\n.Sh NAME\n.Nm ls\n.Nd list files\n"
NOTE, CODE, CAPTION = "1 footnote left out", "1 block of code left out", "1 caption left out"
INCLUDED = "1 included file not read"


def read(tmp_path, name, content, **options):
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    failures = []
    documents = list(
        read_documents(
            path, options=ReadOptions(sandbox=False, **options), on_failure=failures.append
        )
    )
    return documents, [failure.problem for failure in failures]


CASES = [
    (
        "a.tex",
        LATEX,
        LATEX_TEXT,
        (INCLUDED, "2 footnotes left out", CAPTION, CODE, "1 list of references left out"),
    ),
    (
        "b.tex",
        r"\documentclass{article}\usepackage[latin1]{inputenc}\begin{document}Café".encode("latin1")
        + rb"\end{document}",
        "Café",
        (),
    ),
    ("a.typ", TYPST, "One\n\nA bold word.\n\nFirst.", (INCLUDED, NOTE)),
    ("a.org", ORG, "Dams\n\nOne\n\nA word.", (INCLUDED, NOTE)),
    ("a.adoc", ASCIIDOC, "Dams\n\nOne\n\nA word.\n\nA | B", (INCLUDED, CAPTION)),
    ("a.wiki", MEDIAWIKI, "The dam is a wall.\n\nOne\n\nA | B", (NOTE,)),
    ("a.dbk", DOCBOOK, "Dams\n\nOne\n\nA word.\n\nCareful\n\nIt is deep.", (NOTE,)),
    ("a.fb2", FICTION_BOOK.encode("cp1251"), "Книга\n\nOne\n\nКнига.", ()),  # noqa: RUF001
    ("ls.1", MAN, "NAME\n\nls - list files\n\n-a\n\nAll files.\n\nBullet.", ()),
    ("ls.2", MDOC, "NAME\n\nls — list files", ()),
    ("a.textile", "h1. One\n\nA _word_[1].\n\nfn1. A note.\n", "One\n\nA word.", (NOTE,)),
    ("a.pod", "=head1 One\n\nA B<word>.\n", "One\n\nA word.", ()),
]


@needs_pandoc
@pytest.mark.parametrize(
    ("name", "content", "text", "notes"), CASES, ids=[case[0] for case in CASES]
)
def test_formats(tmp_path, name, content, text, notes):
    [document], failures = read(tmp_path, name, content)
    assert (document.text, document.notes, failures) == (text, notes, [])


@needs_pandoc
def test_everything_is_kept_on_request(tmp_path):
    [document], _ = read(tmp_path, "a.tex", LATEX, keep_all=True)
    assert document.text.endswith("A. Author.\n\nA note.\n\nA note.")
    assert "A wall." in document.text
    assert "code" in document.text
    assert document.title == "On Dams"
    assert [level for _, _, level in document.headings] == [1, 1, 1]


@needs_pandoc
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (r"\documentclass{article}\newcommand{\a}{\a}\begin{document}\a", "Loop encountered"),
        (r"\begin{quote}" * 1200 + "x" + r"\end{quote}" * 1200, "nested too deeply"),
        ("% nothing", "the file is empty"),
        (r"\includegraphics{wall}", "has pictures and no text"),
    ],
)
def test_damaged_documents(tmp_path, content, problem):
    documents, failures = read(tmp_path, "a.tex", content)
    assert documents == []
    assert problem in failures[0]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("-", LATEX, "latex"),
        ("-", ORG, "org"),
        ("-", ASCIIDOC, "asciidoc"),
        ("-", '#set page(width: 9cm)\n"A word."', "typst"),
        ("-", MAN, "man"),
        ("-", MEDIAWIKI, "mediawiki"),
        ("ls.1", MDOC, "mdoc"),
        ("-", DOCBOOK, "docbook"),
        ("a.xml", DOCBOOK, "docbook"),
        ("a.xml", FICTION_BOOK, "fb2"),
        ("a.xml", "<article><body/></article>", "xml"),
        # Texts that mention the words of a format.
        ("a.txt", LATEX, "text"),
        ("notes", f"A document begins with:\n{LATEX}", "text"),
        ("notes", "The macro .TH 1 begins a page.\n.TH", "text"),
        ("server.1", "2024-05-01 The server has started.", "text"),
        ("notes", "See [[a page]] and '''another one'''.", "text"),
        ("notes", "= 3\n= 4\n", "text"),
        ("notes", "\n" * 10_000 + "%\n" * 10_000 + "Words.", "text"),
    ],
)
def test_recognized_formats(name, content, kind):
    encoded = content.encode() if isinstance(content, str) else content
    assert kind_of(Source(name, name, encoded, ReadOptions())) is KINDS[kind]


def test_without_pandoc(tmp_path, monkeypatch):
    monkeypatch.setattr(pandoc, "_find_executable", lambda: None)
    (tmp_path / "b.txt").write_text("A good document.")
    (tmp_path / "a.tex").write_text(LATEX)
    failures = []
    options = ReadOptions(sandbox=False)
    [document] = read_documents(tmp_path, options=options, on_failure=failures.append)
    assert document.text == "A good document."
    expected = f"{tmp_path / 'a.tex'}: to read LaTeX, pip install 'longsum_jax[pandoc]'"
    assert [failure.problem for failure in failures] == [expected]


@pytest.mark.parametrize(
    ("script", "options", "problem"),
    [
        ("exec sleep 60", {"max_seconds": 0.1}, "longer than max_seconds=0.1"),
        ("cat /dev/zero", {"max_bytes": 2000}, "expands to more than"),
        ("exit 251", {}, "needs more than 2g of memory"),
        ("echo wrong; exit 64", {}, "cannot read it as LaTeX (wrong)"),
        (None, {}, "pandoc cannot be run (No such file or directory)"),
    ],
)
def test_limits_of_pandoc(tmp_path, monkeypatch, script, options, problem):
    replace_pandoc(tmp_path, monkeypatch, script)
    documents, failures = read(tmp_path, "a.tex", LATEX, **options)
    assert documents == []
    assert problem in failures[0]


def replace_pandoc(folder, monkeypatch, script):
    executable = folder / "pandoc"
    if script is not None:
        executable.write_text(f"#!/bin/sh\n{script}\n")
        executable.chmod(0o755)
    monkeypatch.setattr(pandoc, "_find_executable", lambda: str(executable))


def test_small_documents_have_less_time(tmp_path, monkeypatch):
    replace_pandoc(tmp_path, monkeypatch, "exec sleep 60")
    monkeypatch.setattr(pandoc, "_BASE_SECONDS", 0.1)
    _, failures = read(tmp_path, "a.tex", LATEX)
    assert "pandoc takes longer than 0 seconds to read it as LaTeX" in failures[0]


@needs_pandoc
def test_pandoc_runs_in_its_sandbox(tmp_path):
    """Commands that no pattern removes cannot read files either."""
    secret = tmp_path / "secret.txt"
    secret.write_text("Secret.")
    for name, content in (
        ("a.typ", f'Words. #read("{secret}")'),
        ("a.tex", rf"Words. \lstinputlisting{{{secret}}}"),
        ("b.tex", rf"\def\include#1{{x}} Words. \InputIfFileExists{{{secret}}}{{}}{{}}"),
    ):
        documents, failures = read(tmp_path, name, content)
        assert not any("Secret" in document.text for document in documents)
        assert documents or "not found in resource path" in failures[0]
