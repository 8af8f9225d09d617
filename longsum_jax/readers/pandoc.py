"""LaTeX, Typst, Org, AsciiDoc, MediaWiki, DocBook and other formats, read through pandoc.

Pandoc runs as a child process without file access, with memory and time limits.
It writes the tree of the document as JSON (pandoc-types 1.23,
``Text.Pandoc.Definition``).
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from longsum_jax.errors import InputError, counted, in_one_line
from longsum_jax.extra import missing_extra
from longsum_jax.files import MAX_RATIO, RATIO_FROM, expands
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.html import declared_encoding
from longsum_jax.readers.processes import time_limit
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import table_row

# Names and suffixes of pandoc's formats that have no other reader. Manual pages
# with a section number as their suffix are recognized by their content.
MARKUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "latex": ("LaTeX", (".tex", ".latex", ".ltx")),
    "typst": ("Typst", (".typ", ".typst")),
    "org": ("Org", (".org",)),
    "asciidoc": ("AsciiDoc", (".adoc", ".asciidoc")),
    "mediawiki": ("MediaWiki", (".wiki", ".mediawiki")),
    "docbook": ("DocBook", (".dbk", ".docbook")),
    "fb2": ("FictionBook", (".fb2",)),
    "opml": ("OPML", (".opml",)),
    "textile": ("Textile", (".textile",)),
    "man": ("a manual page", (".man",)),
    "mdoc": ("a manual page (mdoc)", (".mdoc",)),
    "pod": ("Pod", (".pod",)),
    "muse": ("Muse", (".muse",)),
    "t2t": ("txt2tags", (".t2t",)),
    "djot": ("djot", (".djot",)),
    "dokuwiki": ("DokuWiki", (".dokuwiki",)),
    "creole": ("Creole", (".creole",)),
}
_XML_MARKUPS = ("docbook", "fb2", "opml")
_MAN_MARKUPS = ("man", "mdoc")
# The declared encoding of a LaTeX document, and LaTeX's names of encodings
# unknown to Python.
_INPUT_ENCODING = re.compile(rb"\\usepackage\[([\w-]{1,20})\]\{inputenc\}")
_LATEX_ENCODINGS = {
    "ansinew": "cp1252",
    "applemac": "mac-roman",
    "utf8x": "utf-8",
}
# Commands that include other files, which are not read.
_INCLUDES = {
    "latex": re.compile(
        r"\\(?:input|include|subfile)[ \t]*\{[^{}\n]*\}|\\input[ \t]+[^\s{}\\%]+"
    ),
    "typst": re.compile(
        r"^[ \t]*#include[ \t]+\"[^\"\n]*\"[ \t]*$", re.MULTILINE
    ),
    "asciidoc": re.compile(
        r"^include::[^\[\n]+\[[^\]\n]*\][ \t]*$", re.MULTILINE
    ),
    "org": re.compile(r"^[ \t]*#\+include:.*$", re.MULTILINE | re.IGNORECASE),
}
_MAX_HEAP = "2g"  # maximum heap of pandoc; LaTeX of 2 MB takes .3 GB
# Time limit of pandoc, below max_seconds: its parsers need about 5 seconds for
# 1 MB, and years for some damaged documents of a few lines.
_BASE_SECONDS = 20.0
_SECONDS_PER_BYTE = 60 / 2**20
_HEAP_EXHAUSTED = 251  # exit status
_LONGEST_MESSAGE = 200  # characters of an error of pandoc
_SPACES = {"Space": " ", "SoftBreak": " ", "LineBreak": "\n"}
_QUOTES = {"DoubleQuote": ("“", "”"), "SingleQuote": ("‘", "’")}  # noqa: RUF001
_ENVIRONMENT = re.compile(r"\\begin\{(\w+\*?)\}(.*)\\end\{\1\}", re.DOTALL)
_LABEL = re.compile(r"\\label\{[^{}]*\}")
# Mark of a footnote or a reference, which is removed together with the space
# before it.
_MARK = "\x18"
# words after which a citation is a word of its sentence
_BEFORE_WORK = re.compile(
    r"\b(?:in|see|by|of|from|with|than|to|and|or|cf\.|e\.g\.,?)[\s\xa0]*\Z",
    re.IGNORECASE,
)
_ABSENT = re.compile(rf"[ \xa0]*{_MARK}")
_BLANKS = re.compile(r"[ \t\r\f\v\xa0]+")
# classes of states and tags in Org
_BESIDE_HEADINGS = frozenset({"todo", "done", "tag"})
_LETTER = re.compile(r"\w")
# A link into a namespace of a wiki, such as [[Category:Dams]].
_NAMESPACE = re.compile(r"[^\W\d_]+:\S")


def read(source: Source, markup: str, what: str) -> Iterator[Document]:
    """Reads one document.

    Args:
        source: file that is read.
        markup: pandoc's name of the format.
        what: name of the format in error messages.

    Raises:
        InputError: pandoc is not installed or cannot read the file, or no text
            remains.
    """
    executable = _find_executable()
    if executable is None:
        raise missing_extra(source.name, what, "pandoc")
    text, notes = source.decoded(_declared(source.content, markup))
    if markup in _INCLUDES:
        text, num_includes = _INCLUDES[markup].subn("", text)
        if num_includes:
            notes.append(f"{counted(num_includes, 'included file')} not read")
    output = _run_pandoc(executable, source, text.encode(), markup, what)
    reader = _TreeReader(source)
    try:
        tree = json.loads(output, object_hook=_compact)
        title = " ".join(
            reader.metadata_text(tree["meta"].get("title")).split()
        )
        blocks = list(reader.metadata_blocks(tree["meta"].get("abstract")))
        blocks += reader.blocks(tree["blocks"])
    except RecursionError:
        raise InputError(
            f"{source.name}: its parts are nested too deeply; the document is damaged"
        ) from None
    if reader.leaves_out_references and blocks and blocks[-1].level:
        blocks.pop()  # the heading of the references
    blocks += reader.footnotes
    # The title of a manual page is its name in capitals, and a book's often
    # repeats a heading.
    first_heading = next((block.text for block in blocks if block.level), "")
    if title and title != first_heading and markup not in _MAN_MARKUPS:
        blocks.insert(0, Block(title, 1))
    if not title:
        title = next((block.text for block in blocks if block.level == 1), "")
    yield source.document(
        blocks,
        title=title or None,
        has_pictures=reader.num_pictures > 0,
        notes=[*notes, *reader.notes()],
    )


def _find_executable() -> str | None:
    """Returns the path of pandoc in the package pypandoc_binary or on PATH; None if not found."""
    folders = [os.environ.get("PATH", os.defpath)]
    package = importlib.util.find_spec("pypandoc")
    if package is not None and package.origin is not None:
        folders.insert(0, str(Path(package.origin).parent / "files"))
    return shutil.which("pandoc", path=os.pathsep.join(folders))


def _declared(content: bytes, markup: str) -> str | None:
    """Returns the encoding that a document declares; None if it declares none."""
    if markup in _XML_MARKUPS:
        return declared_encoding(content)
    option = None
    if markup == "latex":
        option = _INPUT_ENCODING.search(content)
    if option is None:
        return None
    name = option[1].decode()
    return _LATEX_ENCODINGS.get(name, name)


def _run_pandoc(
    executable: str, source: Source, content: bytes, markup: str, what: str
) -> bytes:
    """Returns the tree of a document as JSON.

    Raises:
        InputError: pandoc cannot read the document within the limits.
    """
    # Pandoc's own memory limit, because an operating system limit needs code
    # between fork and exec, which is unsafe in a process with threads.
    limits = ["+RTS", f"-M{_MAX_HEAP}", "-RTS", "--sandbox"]
    command = [executable, *limits, "--quiet", f"--from={markup}", "--to=json"]
    max_bytes = min(
        source.options.max_bytes, max(RATIO_FROM, MAX_RATIO * len(content))
    )
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise InputError(
            f"{source.name}: pandoc cannot be run ({error.strerror}); reinstall it, for example by "
            "pip install 'longsum_jax[pandoc]'"
        ) from None
    seconds = _BASE_SECONDS + _SECONDS_PER_BYTE * len(content)
    feeder = threading.Thread(
        target=_feed, args=(process.stdin, content), daemon=True
    )
    process.stdin = None  # closed by the thread
    with (
        process,
        time_limit(
            process, min(seconds, source.options.max_seconds)
        ) as expired,
    ):
        assert process.stdout is not None
        feeder.start()
        output = b""
        try:
            output = process.stdout.read(max_bytes + 1)
        finally:  # also after a user interrupt
            # Reading was interrupted, or the output exceeds the limit.
            if not 0 < len(output) <= max_bytes:
                process.kill()
        process.wait()
    feeder.join()
    source.check_time()
    if expired.is_set():
        raise InputError(
            f"{source.name}: pandoc takes longer than {seconds:.0f} seconds to read it as {what}; "
            "correct the file, or convert it to HTML"
        )
    if len(output) > max_bytes:
        raise InputError(expands(source.name))
    if process.returncode == _HEAP_EXHAUSTED:
        raise InputError(
            f"{source.name}: pandoc needs more than {_MAX_HEAP} of memory; split the document"
        )
    if process.returncode != 0:
        message = in_one_line(" ".join(output.decode(errors="replace").split()))
        reason = (
            message[:_LONGEST_MESSAGE] or f"exit status {process.returncode}"
        )
        raise InputError(
            f"{source.name}: pandoc cannot read it as {what} ({reason}); correct the file, or "
            "convert it to HTML"
        )
    return output


def _feed(stream: BinaryIO, content: bytes) -> None:
    """Writes the input of a process, which may exit before it has read everything."""
    with contextlib.suppress(OSError), stream:
        stream.write(content)


def _compact(node: dict[str, Any]) -> Any:
    """Returns a node of the tree. Words and spaces become strings, a tenth of the memory."""
    kind = node.get("t")
    if kind == "Str":
        return node["c"]
    if isinstance(kind, str):
        return _SPACES.get(kind, node)
    return node


def _keys(citations: list[Any]) -> str:
    """Returns the keys of the works that are cited together."""
    return ", ".join(citation["citationId"] for citation in citations)


class _TreeReader:
    """Converts pandoc's blocks and inlines to blocks of a document.

    Args:
        source: file that is read.

    Attributes:
        footnotes: blocks of footnotes, in the order of the text.
        num_pictures: number of pictures.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._keep_all = source.options.keep_all
        self._left_out: Counter[str] = Counter()
        self.footnotes: list[Block] = []
        self.num_pictures = 0

    @property
    def leaves_out_references(self) -> bool:
        """True if a reference list was removed."""
        return self._left_out["list of references"] > 0

    def notes(self) -> list[str]:
        """Returns a note about each kind of removed element."""
        return [
            f"{counted(count, kind)} left out"
            for kind, count in self._left_out.items()
        ]

    def metadata_text(self, value: Mapping[str, Any] | None) -> str:
        """Returns a metadata field; "" if it is absent or has more than one paragraph."""
        if value is None:
            return ""
        content = value["c"]
        if value["t"] == "MetaString":
            return content
        if value["t"] == "MetaInlines":
            return self._text(content)
        return ""

    def metadata_blocks(
        self, value: Mapping[str, Any] | None
    ) -> Iterator[Block]:
        """Yields the paragraphs of a metadata field."""
        if value is not None and value["t"] == "MetaBlocks":
            yield from self.blocks(value["c"])
        else:
            yield from _paragraph(self.metadata_text(value))

    def blocks(self, nodes: list[Any]) -> Iterator[Block]:
        """Yields headings, paragraphs and table rows."""
        for node in nodes:
            self._source.check_time()
            yield from self._block(node["t"], node.get("c"))

    def _block(self, kind: str, content: Any) -> Iterator[Block]:
        if kind in ("Para", "Plain"):
            yield from _paragraph(self._text(content))
        elif kind == "Header":
            level, _, inlines = content
            yield from _paragraph(self._text(inlines), level)
        elif kind == "LineBlock":
            yield from _paragraph("\n".join(map(self._text, content)))
        elif kind == "BlockQuote":
            yield from self.blocks(content)
        elif kind in ("BulletList", "OrderedList"):
            for item in content if kind == "BulletList" else content[1]:
                yield from self.blocks(item)
        elif kind == "DefinitionList":
            for term, definitions in content:
                name = self._text(term)
                if _LETTER.search(name):  # manual pages have bullets as terms
                    yield from _paragraph(name)
                for definition in definitions:
                    yield from self.blocks(definition)
        elif kind == "CodeBlock":
            if self._is_kept("block of code"):
                yield from _paragraph(content[1].strip("\n"))
        elif kind == "Figure":
            yield from self.blocks(content[2])
            yield from self._caption(content[1])
        elif kind == "Table":
            yield from self._table(*content)
        elif kind == "Div":
            yield from self._division(*content)

    def _division(self, attributes: Any, nodes: list[Any]) -> Iterator[Block]:
        classes = attributes[1]
        if "thebibliography" in classes and not self._is_kept(
            "list of references"
        ):
            return
        if (
            nodes
            and nodes[0]["t"] == "Div"
            and nodes[0]["c"][0][1] == ["title"]
        ):
            title = list(self.blocks(nodes[:1]))
            nodes = nodes[1:]
            # An admonition may be titled by its kind: "Note".
            if [block.text.casefold() for block in title] != classes[:1]:
                yield from title
        yield from self.blocks(nodes)

    def _caption(self, caption: Any) -> Iterator[Block]:
        _, nodes = caption
        if nodes and self._is_kept("caption"):
            yield from self.blocks(nodes)

    def _table(
        self, _: Any, caption: Any, __: Any, head: Any, bodies: Any, foot: Any
    ) -> Iterator[Block]:
        rows = list(head[1])
        for body in bodies:
            rows += [*body[2], *body[3]]
        for row in [*rows, *foot[1]]:
            cells = [cell[4] for cell in row[1]]
            if len(cells) == 1:  # a frame around paragraphs
                yield from self.blocks(cells[0])
            else:
                yield from _paragraph(table_row(map(self._cell, cells)))
        yield from self._caption(caption)

    def _cell(self, nodes: list[Any]) -> str:
        return " ".join(block.text for block in self.blocks(nodes))

    def _text(self, inlines: list[Any]) -> str:
        """Returns the text of inlines, without spaces at the ends of its lines."""
        lines = _ABSENT.sub("", self._join(inlines)).split("\n")
        return "\n".join(
            filter(None, (_BLANKS.sub(" ", line).strip() for line in lines))
        )

    def _inline(self, kind: str, content: Any) -> str:
        if kind == "Code":
            return content[1]
        if kind == "Math":
            return self._formula(content)
        if kind == "Quoted":
            opening, closing = _QUOTES[content[0]["t"]]
            return f"{opening}{self._join(content[1])}{closing}"
        if kind == "Cite":
            return self._citation(*content)
        if kind == "Note":
            blocks = list(self.blocks(content))
            if self._is_kept("footnote"):
                self.footnotes += blocks
            return _MARK
        if kind == "Image":
            self.num_pictures += 1
            return ""
        if kind == "Link":
            return self._link(*content)
        if kind == "Span":
            attributes, inlines = content
            if _BESIDE_HEADINGS.intersection(attributes[1]):
                return ""
            return self._join(inlines)
        if kind == "RawInline":  # for another program
            return ""
        return self._join(content)  # emphasis and the like

    def _join(self, inlines: list[Any]) -> str:
        text = ""
        for inline in inlines:
            if isinstance(inline, str):
                text += inline
                continue
            part = self._inline(inline["t"], inline.get("c"))
            if (
                part == _MARK
                and inline["t"] == "Cite"
                and _BEFORE_WORK.search(text)
            ):
                # "as in [key]", because "as in." is not a sentence
                part = f"[{_keys(inline['c'][0])}]"
            text += part
        return text

    def _citation(self, citations: list[Any], inlines: list[Any]) -> str:
        """Returns the citation keys if they are words of a sentence; other keys are removed."""
        if citations[0]["citationMode"]["t"] == "AuthorInText":
            return _keys(citations)
        if self._keep_all:
            return self._join(inlines)
        return _MARK

    def _link(
        self, attributes: Any, inlines: list[Any], target: list[str]
    ) -> str:
        text = self._join(inlines)
        is_wiki = "wikilink" in attributes[1]
        if is_wiki and text == target[0] and _NAMESPACE.match(text):
            return ""
        return text

    def _formula(self, content: Any) -> str:
        """Returns a formula as TeX between dollar signs, on one line, without its label."""
        kind, formula = content
        environment = _ENVIRONMENT.fullmatch(formula.strip())
        if environment is not None:
            formula = environment[2]
        mark = "$$" if kind["t"] == "DisplayMath" else "$"
        return f"{mark}{' '.join(_LABEL.sub('', formula).split())}{mark}"

    def _is_kept(self, kind: str) -> bool:
        """Returns True if elements of this kind are kept; otherwise counts the removed element."""
        if not self._keep_all:
            self._left_out[kind] += 1
        return self._keep_all


def _paragraph(text: str, level: int = 0) -> Iterator[Block]:
    """Yields a block, unless the text is blank; headings are single lines."""
    if text.strip():
        yield Block(" ".join(text.split()) if level else text, level)
