"""Splits texts into sentences: first into paragraphs, then at stops, in linear time."""

import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from longsum_jax.text.boundaries import RULES_VERSION, split_line
from longsum_jax.text.languages import Style, text_style
from longsum_jax.text.ngrams import num_words, word_spans

# characters; texts with longer lines are not hard-wrapped
LONGEST_WRAPPED_LINE = 100
WIDEST_WRAP = 160  # characters of lines that ``join_wrapped_lines`` joins
SHORTEST_WRAP = 60  # characters of a line that was broken because it was full
# Limits of a block that is wrapped at one width: lines, characters of its
# width, and shares of full lines and of lines that begin with a lowercase
# letter.
_FEWEST_LINES, _NARROWEST_WRAP, _FEWEST_FULL, _FEWEST_SMALL = 4, 30, 0.6, 0.3
# Maximum words of a sentence in ``bounded_sentences``. In novels 1 sentence in
# 150 is longer, and most of these are quotations of several sentences.
LONGEST_SENTENCE = 150
# Words of the pieces of longer sentences; the last also limits sentences
# without a final stop.
SHORTEST_PIECE, MEAN_PIECE, LONGEST_PIECE = 15, 30, 60
_FIRST_OF_THAI = "\u0e00"
# often between clauses of talk
_CONJUNCTIONS = frozenset(("and", "but", "so", "because"))
# no white space above U+3000
_SPACES = np.array([chr(code).isspace() for code in range(0x3002)])
_MARKER = re.compile(r"\s*(?:[-*•‣◦+]\s|\d{1,3}[.)]\s|#|\||>|```)")
_LIST_ITEM = re.compile(r"(?:[-*•‣◦]|\d{1,3}[.)])\s")
# first characters, faster to look up
_LIST_STARTS = frozenset("-*•‣◦0123456789")
_STOP_AT_END = re.compile(r"[.!?…:;।؟。\u06d4\uff01\uff1b\uff1f]\W*\Z")


def split_sentences(text: str) -> list[str]:
    """Splits text into sentences, by the stops and abbreviations of its language.

    Blank lines end a sentence; the lines between them are a block. If no line
    of a block is longer than ``LONGEST_WRAPPED_LINE``, or if the block is prose
    that is wrapped at one width except for a few lines, its line breaks count
    as spaces, except before list items. In other blocks, every line is a
    paragraph, such as a speaker's turn. All characters are kept except white
    space around line breaks and sentences.

    Args:
        text: text of any length, with any line ends.

    Returns:
        Non-empty sentences without surrounding white space. A paragraph
        without punctuation is one sentence.
    """
    sentences: list[str] = []
    style = text_style(text)
    for paragraph in _paragraphs(text):
        sentences.extend(map(str.strip, split_line(paragraph, style)))
    return [sentence for sentence in sentences if sentence]


def bounded_sentences(text: str) -> list[str]:
    """Splits text into sentences short enough to be extracted or cited.

    A sentence of more than ``LONGEST_SENTENCE`` words, or of more than
    ``LONGEST_PIECE`` without a final stop, is split at the stops inside its
    quotation marks and brackets. Parts that are still too long, such as a talk
    transcribed without punctuation, are cut into pieces: at nearby semicolons,
    commas or line breaks, otherwise before an English conjunction or between
    any words.

    Args:
        text: text of any length, with any line ends.

    Returns:
        Sentences of ``split_sentences``, and pieces of them.
    """
    sentences = split_sentences(text)
    if not any(map(_is_too_long, sentences)):
        return sentences
    result: list[str] = []
    style = text_style(text)
    starts, ends = sentence_spans(text, sentences)
    for sentence, start, end in zip(
        sentences, starts.tolist(), ends.tolist(), strict=True
    ):
        if _is_too_long(sentence):
            # The sentence with the line breaks of the text.
            result += map(_in_line, _bounded(text[start:end], style))
        else:
            result.append(sentence)
    return result


def join_wrapped_lines(text: str) -> str:
    """Returns a text of the same length with spaces for line breaks inside sentences.

    ``split_sentences`` joins blocks of lines up to 100 characters. Here the
    lines of wider blocks are joined, up to ``WIDEST_WRAP``, if a long line ends
    without a stop and the next line does not begin a list item, heading, table
    or quotation.
    """
    lines = text.split("\n")
    joined = [lines[0]]
    for line, following, is_wrapped in zip(
        lines, lines[1:], _in_wide_blocks(lines), strict=False
    ):
        inside = is_wrapped and breaks_sentence(line, following)
        joined.append((" " if inside else "\n") + following)
    return "".join(joined)


def breaks_sentence(line: str, following: str) -> bool:
    """Returns True if a line of a wide block ends inside a sentence.

    The line is long and has no final stop, and the following line does not
    begin a list item, heading, table or quotation.
    """
    if len(line) < SHORTEST_WRAP or line.rstrip()[-1:] in ".!?:;|":
        return False
    return bool(following.strip()) and not _MARKER.match(following)


def _in_wide_blocks(lines: Sequence[str]) -> list[bool]:
    """Returns a flag per line, True if the longest line of its block is a wide wrap."""
    results = []
    for filled, group in itertools.groupby(
        lines, lambda line: bool(line.strip())
    ):
        block = list(group)
        wide = (
            filled
            and LONGEST_WRAPPED_LINE < max(map(len, block)) <= WIDEST_WRAP
        )
        # ``split_sentences`` joins blocks of one width.
        results += [wide and not _has_one_width(block)] * len(block)
    return results


def without_list_mark(sentence: str) -> str:
    """Returns a sentence without the dash or number of a list item in front of it."""
    mark = _LIST_ITEM.match(sentence)
    if mark:
        return sentence[mark.end() :].lstrip()
    return sentence


def sentence_ends(text: str, sentences: Sequence[str]) -> np.ndarray:
    """Returns int [n], the end position in ``text`` of each sentence.

    The ends cut the text into one slice per sentence. White space belongs to
    the sentence after it, and at the end of the text to the last sentence.

    Args:
        text: text of the sentences.
        sentences: result of ``split_sentences`` for the text.
    """
    letters = _letters(text)
    counts = np.cumsum(
        [len("".join(sentence.split())) for sentence in sentences],
        dtype=np.int64,
    )
    ends = letters[counts - 1] + 1
    ends[-1:] = len(text)
    return ends


def sentence_spans(
    text: str, sentences: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the starts and ends of sentences without white space, int [n] each.

    Args:
        text: text of the sentences.
        sentences: result of ``split_sentences`` for the text; at least one.
    """
    ends = sentence_ends(text, sentences)
    letters = _letters(text)
    ends[-1] = letters[-1] + 1
    before = np.concatenate([[0], ends[:-1]])
    return letters[np.searchsorted(letters, before)], ends


def _letters(text: str) -> np.ndarray:
    """Returns the positions of all characters except white space."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.flatnonzero(~_SPACES[np.minimum(codes, len(_SPACES) - 1)])


def splitter_name() -> str:
    """Returns the name and version of the sentence splitter, for reports."""
    return f"longsum {RULES_VERSION}"


def _paragraphs(text: str) -> list[str]:
    """Returns the paragraphs of ``text``, each as one line."""
    paragraphs, block = [], []
    for line in [*map(str.strip, text.splitlines()), ""]:
        if line:
            block.append(line)
        elif block:
            paragraphs.extend(_unwrap(block))
            block = []
    return paragraphs


def _unwrap(lines: list[str]) -> list[str]:
    if max(map(len, lines)) > LONGEST_WRAPPED_LINE and not _has_one_width(
        lines
    ):
        return lines
    paragraphs = [[lines[0]]]
    for line in lines[1:]:
        if line[0] in _LIST_STARTS and _LIST_ITEM.match(line):
            paragraphs.append([line])
        else:
            paragraphs[-1].append(line)
    return [" ".join(paragraph) for paragraph in paragraphs]


def _has_one_width(lines: Sequence[str]) -> bool:
    """Returns True if a block is prose wrapped at one width, except for a few longer lines.

    Most of its lines end because the first word of the next one did not fit,
    and some begin in the middle of a sentence. This excludes turns, verses,
    items and code; table rows have gaps.
    """
    lengths = sorted(
        len(line) for line in lines if len(line) <= LONGEST_WRAPPED_LINE
    )
    if len(lines) < _FEWEST_LINES or len(lines) - len(lengths) > max(
        1, len(lines) // 10
    ):
        return False
    width = lengths[len(lengths) * 9 // 10]
    num_full = num_small = num_rows = 0
    for line, following in itertools.pairwise(lines):
        word = following.split(None, 1)[0]
        is_full = len(line.rstrip()) + 1 + len(word) > 0.9 * width
        num_full += is_full and line.rstrip()[-1] not in ":;{}|"
        num_small += word[0].islower()
        num_rows += "\t" in line.strip() or "  " in line.strip() or "|" in line
    pairs = len(lines) - 1
    is_prose = num_small >= _FEWEST_SMALL * pairs and num_rows < 0.5 * pairs
    return (
        width >= _NARROWEST_WRAP
        and num_full >= _FEWEST_FULL * pairs
        and is_prose
    )


def _is_too_long(sentence: str) -> bool:
    if len(sentence) <= LONGEST_PIECE:
        return False
    is_stopped = _STOP_AT_END.search(sentence[-20:]) is not None
    return num_words(sentence) > (
        LONGEST_SENTENCE if is_stopped else LONGEST_PIECE
    )


def _in_line(text: str) -> str:
    return " ".join(map(str.strip, text.splitlines()))


def _bounded(text: str, style: Style) -> Iterator[str]:
    """Yields the sentences inside a long one, and the pieces of sentences that are long as well."""
    for part in split_line(text, style, inside_marks=True):
        sentence = part.strip()
        yield from (
            _pieces(sentence)
            if _is_too_long(sentence)
            else filter(None, [sentence])
        )


def _pieces(text: str) -> Iterator[str]:
    """Cuts a text into pieces of about ``MEAN_PIECE`` words."""
    spans = word_spans(text)
    strengths = [_strength(text, *gap) for gap in itertools.pairwise(spans)]
    start = first = 0
    while len(spans) - first > LONGEST_PIECE:
        last = min(first + LONGEST_PIECE, len(spans) - SHORTEST_PIECE)
        middle = first + MEAN_PIECE
        # The strongest boundary within the allowed lengths; ties go to the one
        # nearest to the mean.
        first = max(
            range(first + SHORTEST_PIECE, last + 1),
            key=lambda word: (strengths[word - 1], -abs(word - middle)),
        )
        end = spans[first][0]
        yield text[start:end].strip()
        start = end
    yield text[start:]


def _strength(
    text: str, before: tuple[int, int], after: tuple[int, int]
) -> int:
    """Returns the strength of the boundary between two words: 0 for a space, up to 4."""
    mark = text[before[1] - 1]
    if mark in ";:\u2014\u2013\uff1b\uff1a":
        return 4
    if mark in ",،、\uff0c":
        return 3
    between = text[before[1] : after[0]]
    if len(f".{between}.".splitlines()) > 1:
        return 2
    # Thai and Khmer have spaces between clauses only: words are characters.
    if between and before[1] - before[0] == 1 and mark >= _FIRST_OF_THAI:
        return 2
    return int(text[after[0] : after[1]].lower() in _CONJUNCTIONS)
