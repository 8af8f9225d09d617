"""Decides which stops of a line end a sentence, by the text before and after each stop.

No model or dictionary is used: a stop ends a sentence unless its word is an
abbreviation that continues with the following word (``abbreviations``), a
number, an initial or a label, or unless the stop is inside a quotation or
brackets. Time is linear in the length of the line.
"""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator

from longsum_jax.text.abbreviation_rules import (
    AbbreviationRules,
    is_ordinary,
    rules_of,
)
from longsum_jax.text.abbreviations import (
    BEFORE_ORDINAL,
    LETTERED,
    MONTHS,
    SPEECH,
    UNITS,
)
from longsum_jax.text.languages import LANGUAGE_WORDS, Style, language_of

RULES_VERSION = 4  # increase whenever the sentences of any text change
MOST_PARTS = 4  # maximum parts of an abbreviation with white space in it

_LEFT, _RIGHT = 48, 64  # characters examined before and after a stop
# Stops of scripts that have no other use.
_OTHER_STOPS = (
    "\u3002\uff01\uff1f\uff61\u203c\u2047-\u2049\u061f\u06d4\u0589"
    "\u1362\u1367\u17d4\u17d5\u104b\u0964\u0965"
)
_CLOSING = (
    "\"'\u201d\u2019\u00ab\u00bb\u203a\u300d\u300f)\\]}\uff09\u3011\u300b"
)
_STOP_CHARACTERS = frozenset(".!?\u2026\u3002\uff01\uff1f;\u037e")
_AFTER_STOP = frozenset(
    "\"'\u201d\u2019\u201c\u00ab\u00bb\u203a\u300d\u300f)]\uff09\u300b \u00a0\u202f"
)
LONGEST_QUOTATION = 1500  # characters; marks further apart are not a pair
# The rest of a quotation for each opening mark. No pattern looks far beyond the
# next opening mark of its kind, so the time is linear. Groups are never repeated
# possessively: before Python 3.11.5, `re` matches such groups wrongly.
_QUOTATIONS = {
    "\u201c": r"[^\u201c\u201d]*+\u201d",
    "\u201e": r"[^\u201e\u201c\u201d]*+[\u201c\u201d]",
    "\u00ab": r"[^\u00ab\u00bb]*+\u00bb",
    "\u00bb": r"(?<![^\s(\[\u2014\u2013-]\u00bb)(?=\S)[^\u00ab\u00bb]*+\u00ab",
    "\u300c": r"[^\u300c\u300d]*+\u300d",
    "\u300e": r"[^\u300e\u300f]*+\u300f",
    "\u300a": r"[^\u300a\u300b]*+\u300b",
    "\uff08": r"[^\uff08\uff09]*+\uff09",
    "(": r"[^()]*+(?:\([^()]*+\)[^()]*+)*\)",
    "[": r"[^\[\]]*+\]",
    '"': r'(?<![\w.,!?]")[^"]*+(?:(?<=[\s(])"(?=\w)[^"]*+(?<!\s)"(?!\w)[^"]*+){0,40}(?<!\s)"(?!\w)',
    "\u2018": r"(?<!\w\u2018)[^\u2018\u2019]*+(?:\u2019(?=\w)[^\u2018\u2019]*+)*\u2019(?!\w)",
    "'": r"(?<!\w')(?=[A-Z])[^']*+(?:(?<=\w)'(?=\w)[^']*+)*(?<=[.,!?])'(?!\w)",
}
_REST_OF_QUOTATION = {
    mark: re.compile(rest) for mark, rest in _QUOTATIONS.items()
}
_OPENING_MARK = re.compile("[" + re.escape("".join(_QUOTATIONS)) + "]")
# Without apostrophes, which are frequent.
_OPENING_MARK_BUT_APOSTROPHE = re.compile(
    "[" + re.escape("".join({*_QUOTATIONS} - {"'"})) + "]"
)
_QUOTING_APOSTROPHE = re.compile(r"'(?<!\w')[A-Z]")
# Marks of notes after a stop, as in encyclopedias and Markdown: "[12]", "[a]",
# "[12]: 40", "[^1]"
NOTE_MARK = (
    r"\[(?:\d{1,3}|[a-z]|\^[\w-]{1,20}|(?:note|nb) \d{1,2}|[a-z]{4,13} needed)\]"
    r"(?::\s?\d{1,4}(?:[\u2013-]\d{1,4})?(?=\s|\[|\Z))?"
)
# Marks between a stop and white space that may belong to either: emphasis, signs
# of notes, zero-width and direction marks.
_INVISIBLE = "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff"
_NOTE_SIGNS = "\u2020\u2021\u00b9\u00b2\u00b3\u2070\u2074-\u2079"
_ATTACHED = rf"(?:[{_INVISIBLE}{_NOTE_SIGNS}]|[*_]++(?=\s+[^\sa-z]))"


def _stops(marks: str = "") -> re.Pattern[str]:
    """Returns a pattern of stops, the closing marks after them, and white space.

    A character class at its beginning makes the search fast.

    Args:
        marks: stops of a script in addition to the usual ones.
    """
    stop = f"[.!?\u2026{_OTHER_STOPS}{marks}]"
    return re.compile(
        rf"({stop}(?:{stop}|[ \u00a0](?=\.(?!\d)))*)"
        rf"((?:[{_CLOSING}]|\u201c(?!\w)|[ \u00a0\u202f]\u00bb(?=[\s.,;:]|\Z)|{NOTE_MARK})*)"
        rf"((?:{_ATTACHED}*\s+)?)"
    )


_STOPS = _stops()
_GREEK_STOPS = _stops(";\u037e")  # its question mark
_OTHER = re.compile(f"[{_OTHER_STOPS}]")
_ELLIPSIS = re.compile(r"\.\W*\.|.*\u2026")
_OPENING = "\"'\u201c\u201e\u2018\u00ab\u00bb\u2039\u300c\u300e"
# The part before the first word of a sentence: marks, brackets, dashes.
_FOLLOWING = re.compile(
    rf"([{_OPENING}{_INVISIBLE}*_`(\[{{\u00bf\u00a1\u2014\u2013\-\s]*+)([^\W\d_]+(?:['\u2019][^\W\d_]+)?)?"
)
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_NO_TOKEN = re.compile(
    r"[\s\"\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d()\[\]{}<>,;:!?/|*`\u2013\u2014]"
)
_ELISION = re.compile(
    r"\A(?:[cdjlmnst]|qu|(?:d|n|s)?(?:a|e|u)?ll|un|quell)['\u2019](?=\w)", re.I
)
_BETWEEN_PARTS = frozenset({". ", ".\u00a0", ".\u202f"})
_AFTER_NUMBER = frozenset("0123456789>")  # ">" ends a placeholder for a number
_PART = re.compile(r"([^\W\d_]{1,4})\.")
_LABEL = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})*|[^\W\d_]|[IVXLC]+)\Z")
_BEFORE_LABEL = " \"'\u201c\u2018(*_"
# The beginning of a number, a currency, a code or a single letter after "No.",
# "Fig." and others.
_NUMBERED = re.compile(
    r"[\d\u00a7#\u2116\u00b6$\u20ac\u00a3<]|[A-Za-z]{1,5}-?\d|[IVXLC]{2,}\b|[^\W\d_]\b(?!['\u2019.])"
)
_LETTERED = frozenset(LETTERED.split())
_BEFORE_ORDINAL = frozenset(BEFORE_ORDINAL.split())
_MONTH = re.compile(f"(?:{MONTHS})".replace(" ", "|"))
_SPEECH = re.compile(
    rf"(?:I|(?:(?:Mr|Mrs|Ms|Miss|Dr)\.? )?[A-Z][\w'\u2019]+)(?: [A-Z]\w+)? (?:{SPEECH})\b"
)
_PRONOUNS = re.compile(r"(?:He|She|They|We|It|You)\b")
_ORDINAL_LANGUAGES = frozenset({"de", "cs", "tr", "sv", "pl"})
_FOOTNOTE = re.compile(r"\d{1,2}(?=\s+[\"\u201c]?[A-Z])\s+")


def _last_token(left: str) -> str:
    """Returns the last word of a text with its inner stops; "" after a space or mark."""
    pieces = left.rsplit(maxsplit=1)
    if not pieces or left[-1].isspace():
        return ""
    return _NO_TOKEN.split(pieces[-1])[-1]


def _word_before(left: str, token: str) -> str:
    """Returns the lowercase word before the last word of a text."""
    words = left[: len(left) - len(token)].rsplit(maxsplit=1)
    return words[-1].lower() if words else ""


def _parts(left: str, token: str) -> list[str]:
    """Returns the parts of an abbreviation that contains white space; all but the last have a stop.

    Args:
        left: text up to a stop.
        token: last word of ``left``.
    """
    parts = [token]
    end = len(left) - len(token)
    while len(parts) < MOST_PARTS and left[end - 2 : end] in _BETWEEN_PARTS:
        begin = end - 2
        while begin > 0 and left[begin - 1].isalpha() and end - begin < 7:
            begin -= 1
        if not 0 < end - 2 - begin < 5:
            break
        parts.insert(0, left[begin : end - 1])
        end = begin
    return parts


def split_line(
    line: str, style: Style, *, inside_marks: bool = False
) -> list[str]:
    """Splits a line into consecutive slices, one per sentence with the white space after it.

    Args:
        line: a paragraph or another text; line breaks in it are white space.
        style: style of the text that the line belongs to.
        inside_marks: True to split inside quotations and brackets as well.

    Returns:
        At least one slice; joined, they are the line.
    """
    first = _STOPS.search(line)
    if first is None or (first.end() == len(line) and ";" not in line):
        return [line]
    decider = _StopLine(line, style)
    if ";" in line and decider.rules.language == "el":
        stops = _GREEK_STOPS
    else:
        stops = _STOPS
    marks = () if inside_marks else quotations(line)
    ends = list(_ends(decider, stops, marks))
    return [
        line[start:end]
        for start, end in itertools.pairwise([0, *ends, len(line)])
    ]


def _ends(
    decider: "_StopLine",
    stops: re.Pattern[str],
    marks: Iterable[tuple[int, int]],
) -> Iterator[int]:
    """Yields the ends of sentences, including trailing white space, except for the last one."""
    line = decider.line
    length = len(line)
    marks = iter(marks)
    begin = close = start = end = 0
    while match := stops.search(line, end):
        stop = match.start()
        while close <= stop:
            begin, close = next(marks, (length, length))
        if begin < stop:
            # Inside a quotation, only the stops at its end count.
            match = stops.match(line, _last_stop(line, stop, close))
            if match is None:
                end = close
                continue
        end = match.end()
        if begin < match.end(2) < close:
            continue
        if end == length:
            break
        boundary = decider.end(match, start, begin if begin < stop else None)
        if boundary:
            yield boundary
            start = end = boundary


def _last_stop(line: str, stop: int, close: int) -> int:
    """Returns the start of the stops at the end of a quotation.

    Args:
        line: text of the line.
        stop: position of a stop inside the quotation.
        close: end of the quotation.

    Returns:
        The position of the last stops, or of the closing mark if there are
        none.
    """
    last = close - 1
    while last > stop and line[last - 1] in _AFTER_STOP:
        last -= 1
    while last > stop and line[last - 1] in _STOP_CHARACTERS:
        last -= 1
    return last


class _StopLine:
    """A line whose stops are classified."""

    def __init__(self, line: str, style: Style) -> None:
        self.line = line
        self.is_lowered = style.is_lowered
        self._style = style

    @functools.cached_property
    def rules(self) -> AbbreviationRules:
        """The rules of the line's or its text's language; lazy, because many lines need none."""
        language = self._style.language
        return rules_of(
            language_of(self.line, LANGUAGE_WORDS, language) or language
        )

    def end(self, match: re.Match[str], start: int, opened: int | None) -> int:
        """Returns the end of the sentence at a stop; 0 if the sentence continues.

        Args:
            match: match of the stop.
            start: start of the sentence.
            opened: start of the quotation that ends with the stop; None without
                one.
        """
        line, end = self.line, match.end()
        marks, closing, space = match.groups()
        if marks != "." and _OTHER.search(marks):
            return self._after_other(closing, space, end, opened)
        if not space:
            return self._without_space(match, start)
        following = _FOLLOWING.match(line, end, end + _RIGHT)
        assert following is not None  # the empty text matches
        before, word = following.groups()
        begin = following.end(1)
        is_small = word is not None and word.islower() and not self.is_lowered
        if marks == ".":
            if not is_small and word is not None:
                stop = match.start()
                tail = line[
                    line.rfind(" ", stop - 6, stop) + 1 or stop - 6 : stop
                ]
                if tail.isalpha() and is_ordinary(tail):
                    return end
            text = line[begin : begin + _RIGHT]
            if self._is_end(match, start, text, word, before):
                return end
            return 0
        if _ELLIPSIS.match(marks):
            is_counted = (
                line[begin : begin + 1].isdigit()
                and line[match.start() - 1].isspace()
            )
            return 0 if is_small or is_counted else end
        if is_small and not self._is_mixed(line[begin : begin + _RIGHT]):
            return 0
        if closing:
            text = line[begin : begin + _RIGHT]
            if _SPEECH.match(text) and not _PRONOUNS.match(text):
                return 0
        return end

    def _after_other(
        self, closing: str, space: str, end: int, opened: int | None
    ) -> int:
        """Classifies a stop of a script without capitals; text after a quotation belongs to it."""
        if not closing or space or end == len(self.line) or opened is None:
            return end
        if opened and self.line[opened - 1] in ":\uff1a":
            return end
        is_quoted = self.line[opened] not in "(\uff08["
        if is_quoted and self.line[end].isalpha():
            return 0
        return end

    def _without_space(self, match: re.Match[str], start: int) -> int:
        """Classifies a stop with no space after it: before a footnote or a missing space."""
        line, stop, end = self.line, match.start(), match.end()
        if match[1] != "." or match[2]:
            return 0
        token = _last_token(line[max(start, stop - _LEFT) : stop])
        if not token.isalpha() or not token.islower():
            return 0
        if line[end].isdigit():
            footnote = _FOOTNOTE.match(line, end)
            is_word = len(token) > 2 and self.rules.class_of(token) is None
            if footnote and is_word:
                return footnote.end()
            return 0
        word = _WORD.match(line, end, end + _RIGHT)
        if (
            word is None
            or not word[0][0].isupper()
            or not line[word.end() : word.end() + 1].isspace()
        ):
            return 0
        starters = self.rules.starters
        if token in starters or word[0].lower() in starters:
            return end
        return 0

    def _is_mixed(self, following: str) -> bool:
        """Returns True if a word is a name or code with a lowercase first letter ("iPhone")."""
        word = re.match(r"[^\s,;:]+", following)
        return (
            word is not None
            and not word[0].rstrip(".,;:!?)\"'\u201d\u2019").islower()
        )

    def _is_end(
        self,
        match: re.Match[str],
        start: int,
        following: str,
        word: str | None,
        before: str,
    ) -> bool:
        """Returns True if a plain stop followed by a space ends the sentence."""
        line, stop = self.line, match.start()
        left = line[max(start, stop - _LEFT) : stop]
        token = _last_token(left)
        if not token:  # after a space, a bracket or a quotation mark
            return not (
                match[2] and self._continues("name", following, word, before)
            )
        is_small = word is not None and word.islower() and not self.is_lowered
        if match[2] and is_small and not self._is_mixed(following):
            return False
        is_first = (
            not left[: -len(token)].strip(_BEFORE_LABEL) and len(left) < _LEFT
        )
        if is_first and not match[2] and _LABEL.match(token):
            return False
        if token[-1].isdigit():
            return self._ends_number(left, token, following, word)
        token = token.lstrip("'\u2018\u2019-.")
        if self._is_inside(left, token, following):
            return False
        kind = self._kind(left, token)
        if kind is None:
            return True
        # After a closing quotation mark, a capitalized word begins a sentence.
        if match[2] and any(mark not in ")]" for mark in match[2]):
            kind = "lower" if kind != "number" else None
        return kind is None or not self._continues(
            kind, following, word, before
        )

    def _kind(self, left: str, token: str) -> str | None:
        """Returns the class of the word before a stop; None for an ordinary word."""
        rules = self.rules
        before = left[: len(left) - len(token)].rstrip()[-1:]
        if before.isdigit() and (token in rules.units or token in UNITS):
            return "lower"
        parts = _parts(left, token)
        # not initials
        if not all(len(part) < 3 and part.isupper() for part in parts):
            for first in range(len(parts) - 1):
                kind = rules.classes.get("".join(parts[first:]))
                if kind is not None:
                    return kind
        if len(token) == 1 and token.isupper():
            kind = rules.classes.get(token)
            return kind or (
                "letter"
                if _word_before(left, token) in _LETTERED
                else "initial"
            )
        if self.is_lowered and len(token) == 1 and token.isalpha():
            # The name of a species ("e. coli") unless it is a unit.
            if before in _AFTER_NUMBER:
                return "lower"
            return "name"
        kind = rules.class_of(token)
        if kind is None and (elision := _ELISION.match(token)):
            token = token[elision.end() :]
            kind = rules.class_of(token)
        return kind or rules.guess(token)

    def _is_inside(self, left: str, token: str, following: str) -> bool:
        """Returns True if a stop is inside an abbreviation of several parts ("EE. UU.")."""
        next_part = _PART.match(following)
        if next_part is None:
            return False
        parts = _parts(left, token)
        joined = ("".join(parts[first:]) for first in range(len(parts)))
        return any(
            f"{part}.{next_part[1]}" in self.rules.beginnings for part in joined
        )

    def _ends_number(
        self, left: str, token: str, following: str, word: str | None
    ) -> bool:
        """Returns True if a stop after a number, which may be an ordinal, ends the sentence."""
        has_ordinals = self.rules.language in _ORDINAL_LANGUAGES
        is_short = token.isdigit() and len(token) <= 3
        if word is None:
            # "3. 10. 2024" is a date.
            is_date = (
                has_ordinals
                and is_short
                and len(token) < 3
                and following[:1].isdigit()
            )
            return not is_date
        if word.islower():
            if self._is_mixed(following) or self.is_lowered:
                return True
            return not token.isdigit() or (not has_ordinals and not is_short)
        if not is_short or not has_ordinals:
            return (
                _word_before(left, token) not in _BEFORE_ORDINAL
                or _MONTH.match(following) is None
            )
        if _MONTH.match(following):
            return False
        if self.rules.is_starter(word, following):
            return True
        return (
            _word_before(left, token) not in _BEFORE_ORDINAL
            and self.rules.language != "tr"
        )

    def _continues(
        self, kind: str, following: str, word: str | None, before: str
    ) -> bool:
        """Returns True if a sentence continues after an abbreviation of a class."""
        # Further classes, not in ``abbreviations``: "initial", "roman",
        # "letter" ("vitamin C.").
        if kind == "always":
            return True
        is_quoted = any(mark in before for mark in _OPENING)
        is_bracketed = "(" in before or "[" in before
        if kind == "number":
            if (
                word is None
                or not word.islower()
                or len(word) == 1
                or self.is_lowered
            ):
                return _NUMBERED.match(following) is not None and not (
                    word is not None and self.rules.is_starter(word, following)
                )
            return False
        if word is None:
            return kind != "letter" and not is_quoted
        if word.islower() and not self.is_lowered:
            return not (
                self._is_mixed(following) and kind in {"lower", "letter"}
            )
        if is_bracketed and kind != "letter":
            return True
        if kind in {"letter", "roman"}:
            return False
        if kind == "lower":
            return _NUMBERED.match(
                following
            ) is not None and not self.rules.is_starter(word, following)
        if is_quoted and kind == "initial":
            return True
        return not self.rules.is_starter(word, following) and not is_quoted


def quotations(line: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end of quotations and brackets."""
    start = 0
    has_apostrophes = _QUOTING_APOSTROPHE.search(line) is not None
    if has_apostrophes:
        pattern = _OPENING_MARK
    else:
        pattern = _OPENING_MARK_BUT_APOSTROPHE
    while opening := pattern.search(line, start):
        start = opening.end()
        rest = _REST_OF_QUOTATION[opening[0]].match(line, start)
        if rest is not None and rest.end() - start < LONGEST_QUOTATION:
            yield opening.start(), rest.end()
            start = rest.end()
