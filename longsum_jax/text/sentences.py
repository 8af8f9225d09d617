"""Sentence splitting: paragraphs first, then sentencex inside each, in time linear in the text."""

import itertools
import re
from collections.abc import Sequence
from importlib import metadata

import numpy as np

LONGEST_WRAPPED_LINE = 100  # characters; text with longer lines was not wrapped by hand
WINDOW = 8192  # characters that sentencex sees at a time
# sentencex 1.0 panics on white space of several bytes next to an initial, and cannot take lone
# surrogates.
_UNSAFE_CHARACTER = re.compile(r"[^\S ]|[\ud800-\udfff]")
_SPACES = np.array([chr(code).isspace() for code in range(0x3002)])  # white space ends at U+3000
_LIST_ITEM = re.compile(r"(?:[-*•‣◦]|\d{1,3}[.)])\s")


def split_sentences(text: str) -> list[str]:
    """Splits English text into sentences.

    Blank lines end a sentence. Within a block of lines a line break is white space when every line
    of the block is short (hard-wrapped prose), except before a list item; otherwise every line
    stands alone (one speaker's turn or one paragraph a line). No character is lost but white space
    around line breaks and sentences.

    Args:
        text: any length, any line ends.

    Returns:
        Sentences without surrounding white space, none empty; text without punctuation is one
        sentence.
    """
    found = []
    for paragraph in _paragraphs(text):
        marker = _LIST_ITEM.match(paragraph)
        start = (
            marker.end() if marker else 0
        )  # sentencex would make a sentence of the number of a list item
        first, *others = _split_paragraph(paragraph[start:])
        found.extend(sentence.strip() for sentence in (paragraph[:start] + first, *others))
    return [sentence for sentence in found if sentence]


def sentence_ends(text: str, sentences: Sequence[str]) -> np.ndarray:
    """Returns int [n], where each of the ``split_sentences`` of ``text`` ends in it.

    SequenceSharding there, the text falls into one slice a sentence; white space belongs to the sentence that
    follows it, and what is left at the end to the last one.
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    letters = np.flatnonzero(~_SPACES[np.minimum(codes, len(_SPACES) - 1)])
    counts = np.cumsum([len("".join(sentence.split())) for sentence in sentences], dtype=np.int64)
    ends = letters[counts - 1] + 1
    ends[-1:] = len(text)
    return ends


def splitter_name() -> str:
    """Returns what split the sentences, with its version, for reports."""
    return f"sentencex {metadata.version('sentencex')}"


def _paragraphs(text: str) -> list[str]:
    """Returns the paragraphs of ``text``, each on one line."""
    paragraphs, block = [], []
    for line in [*map(str.strip, text.splitlines()), ""]:
        if line:
            block.append(line)
        elif block:
            paragraphs.extend(_unwrap(block))
            block = []
    return paragraphs


def _unwrap(lines: list[str]) -> list[str]:
    if max(map(len, lines)) > LONGEST_WRAPPED_LINE:
        return lines
    paragraphs = [[lines[0]]]
    for line in lines[1:]:
        if _LIST_ITEM.match(line):
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
    return [" ".join(paragraph) for paragraph in paragraphs]


def _split_paragraph(paragraph: str) -> list[str]:
    """Splits one line, window by window.

    sentencex takes a time that grows with the square of a long line, and one unbalanced quotation
    mark hides every later boundary from it. A window bounds both. Its last sentence may be cut, so
    the next window starts there.
    """
    if len(paragraph) <= WINDOW:
        return _segment(paragraph)
    sentences = []
    sentence_start = start = 0
    while start < len(paragraph):
        stop = min(start + WINDOW, len(paragraph))
        parts = _segment(paragraph[start:stop])
        complete = parts if stop == len(paragraph) else parts[:-1]
        for part in complete:
            start += len(part)
            sentences.append(paragraph[sentence_start:start])
            sentence_start = start
        if not complete:  # one sentence fills the window: read on, without a second look
            start = stop
    sentences.append(paragraph[sentence_start:])
    return sentences


def _segment(line: str) -> list[str]:
    """Returns consecutive slices of ``line``, one a sentence."""
    from sentencex import segment

    safe = _UNSAFE_CHARACTER.sub(" ", line)
    parts = segment("en", safe)
    if safe == line:
        return parts
    ends = list(itertools.accumulate(map(len, parts)))
    return [line[start:end] for start, end in itertools.pairwise([0, *ends])]
