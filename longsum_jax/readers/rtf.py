"""RTF through striprtf; programs do not agree on a markup of headings."""

import re
from collections.abc import Iterator

from longsum_jax.errors import InputError, counted
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Document
from longsum_jax.readers.plain_text import text_blocks
from longsum_jax.readers.source import Source

# A control word with its number, another control symbol, a brace, or plain
# text.
_PART = re.compile(
    r"\\([a-z]{1,32})(-?\d{1,10})? ?|\\'[0-9a-fA-F]{2}|\\.|[{}]|[^\\{}]+|\\",
    re.S,
)
_HIDES = re.compile(r"\\(v|deleted)(?![a-z])")
# Destinations that striprtf removes.
_LEFT_OUT = {r"\footnote": "footnote", r"\shptxt": "shape text"}
# Control words for characters; all others format text or start a destination
# that is not text.
_CHARACTERS = re.compile(
    "par|sect|page|line|tab|em(dash|space)|en(dash|space)|qmspace|bullet|[lr](dbl)?quote|row"
    "|(nest)?cell|u"
)


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the document is damaged or has no text.
    """
    striprtf = import_extra("striprtf.striprtf", source.name, "RTF")
    # RTF escapes all non-ASCII characters; unescaped bytes are in the most
    # common code page.
    content = _without_hidden(source.content.decode("cp1252", errors="replace"))
    # The space has no meaning, but keeps striprtf from adding the address of the
    # last link of a line.
    content = content.replace(r"{\field{", r"{\field {")
    try:
        text = striprtf.rtf_to_text(content, errors="replace")
    except (
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise InputError(
            f"{source.name}: damaged RTF ({error}); save it again"
        ) from None
    # A line is a paragraph or a table row.
    lines = [
        _row(line) if line.endswith("|") else line for line in text.split("\n")
    ]
    notes = [
        f"{counted(content.count(word), noun)} left out"
        for word, noun in _LEFT_OUT.items()
        if word in content
    ]
    yield source.document(
        (block for line in lines for block in text_blocks(line)), notes=notes
    )


def _row(line: str) -> str:
    """Returns the cells of a row, which striprtf ends with bars, in the form of other readers."""
    return " | ".join(filter(None, map(str.strip, line.split("|"))))


def _without_hidden(content: str) -> str:
    """Returns RTF without characters formatted as hidden or deleted."""
    if not _HIDES.search(content):
        return content
    parts = []
    hiding: frozenset[str] = frozenset()
    # hiding control words of the enclosing groups
    outer: list[frozenset[str]] = []
    position = 0
    while position < len(content):
        part = _PART.match(content, position)
        assert part is not None  # any character is one
        position = part.end()
        text, word, number = part[0], part[1], part[2]
        if text == "{":
            outer.append(hiding)
        elif text == "}":
            hiding = outer.pop() if outer else frozenset()
        elif word == "bin":  # arbitrary bytes
            position += max(int(number or 0), 0)
            continue
        elif word == "plain":
            hiding = frozenset()
        elif word in ("v", "deleted"):
            if number == "0":
                hiding = hiding - {word}
            else:
                hiding = hiding | {word}
        elif (
            hiding
            and text != "\\*"
            and (word is None or _CHARACTERS.fullmatch(word))
        ):
            continue
        parts.append(text)
    return "".join(parts)
