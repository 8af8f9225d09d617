"""Decides which stops of a line end a sentence, by what is before and after each of them.

No model and no dictionary of a language: a stop ends a sentence unless its word is an abbreviation
that goes on with what follows (``abbreviations``), a number, an initial or a label, or unless it is
inside a quotation or brackets. Time is linear in the length of the line.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from longsum_jax.text.abbreviations import ABBREVIATIONS, STARTERS, WORDS

RULES_VERSION = 1  # to be raised whenever sentences of some text change
LONGEST_QUOTATION = 1500  # characters; a pair of marks further apart belongs to no quotation
SAMPLE = 50_000  # characters of a text that tell its language and its case
LANGUAGE_WORDS = 100  # words of a line that tell its language
FEWEST_WORDS = 3  # different ones of a language that a line in it has

_LEFT, _RIGHT = 48, 64  # characters around a stop that decide
# Stops of scripts that use them for nothing else.
_OTHER_STOPS = "\u3002\uff01\uff1f\uff61\u203c\u2047-\u2049\u061f\u06d4\u0589\u1362\u1367\u17d4\u17d5\u104b\u0964\u0965"
_CLOSING = "\"'\u201d\u2019\u201c\u00ab\u00bb\u203a\u300d\u300f)\\]}\uff09\u3011\u300b"
_CANDIDATE = rf"""
    (?: (?P<other>[{_OTHER_STOPS}][{_OTHER_STOPS}!?]*)
      | (?P<ellipsis>\.(?:[ \u00a0]?\.)+|\u2026+\.?)[!?]*
      | (?P<mark>[!?]STOPS[!?.\u2026{_OTHER_STOPS}]*)
      | \.[!?]*
    )
    (?P<closing>(?:[{_CLOSING}]|[ \u00a0\u202f]\u00bb(?=[\s.,;:]|$)|\[\d{{1,3}}\])*)
    (?P<space>\s*)
"""


def _candidates(marks: str) -> re.Pattern[str]:
    return re.compile(_CANDIDATE.replace("[!?]STOPS", f"[!?{marks}]"), re.VERBOSE)


_STOPS = _candidates("")
_GREEK_STOPS = _candidates(";\u037e")  # its question mark
_OPENING = "\"'\u201c\u201e\u2018\u00ab\u00bb\u2039\u300c\u300e"
# What is before the first word of a sentence: marks, brackets, dashes.
_BEFORE_WORD = re.compile(rf"[{_OPENING}*_`(\[{{\u00bf\u00a1\u2014\u2013\-\s]*")
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_TOKEN = re.compile(r"[^\s\"\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d()\[\]{}<>,;:!?/|*`\u2013\u2014]+\Z")
_SPACED = re.compile(r"(?:[^\W\d_]{1,4}\.(?:-|[ \u00a0\u202f]))+[^\W\d_]{1,4}\Z")
_ELISION = re.compile(r"\A(?:[cdjlmnst]|qu|(?:d|n|s)?(?:a|e|u)?ll|un|quell)['\u2019](?=\w)", re.I)
_DOTTED = re.compile(r"(?:[^\W\d_]{1,3}\.)+-?[^\W\d_]{1,4}\Z")
_INITIALS = re.compile(r"(?:[A-Z]\.\s?)+[A-Z]\Z")
_PART = re.compile(r"([^\W\d_]{1,4})\.")
# Units and years, after a number.
_UNITS_EVERYWHERE = frozenset("\u0433 \u0433\u0433 r w".split())
_ROMAN = re.compile(r"(?=[IVXLC])(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})\Z")
_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz]{2,5}\Z")
_LABEL = re.compile(r"(?:\d{1,3}(?:\.\d{1,3})*|[^\W\d_]|[IVXLC]+)\Z")
_NUMBERED = re.compile(
    r"[\d\u00a7#\u2116\u00b6$\u20ac\u00a3<]|[A-Za-z]{1,2}\d|[IVXLC]{2,}\b|[^\W\d_]\b(?!['\u2019.])"
)
# Nouns with a letter after them, which is no initial.
_LETTERED = re.compile(
    r"\b(?:vitamin|type|group|class|grade|plan|team|hepatitis|section|part|figure|table|appendix|"
    r"exhibit|option|phase|point|case|level|row|column|step|block|unit|version|series|category|"
    r"room|set|model|schedule|panel|box|zone|platform|Klasse|Typ|Gruppe|Vitamin|Teil|groupe|clase|"
    r"grupo|gruppo|vitamine|vitamina|groep)\s\w\Z",
    re.I,
)
# Starters that are parts of names in other languages.
_PARTICLES = frozenset("los las den der des del die van von dos das san ter ten".split())
_BEFORE_ORDINAL = re.compile(
    r"\b(?:am|im|vom|zum|zur|beim|ins|de[rmns]|die|das|eine?[nmrs]?|[dsm]?eine[nmrs]?|ihre[nmrs]?|"
    r"unsere[nmrs]?|jede[nmrs]?|diese[nmrs]?|seit|bis|ab|und|oder|erste[nmr]?|dne|ve?|od|do)\s\d{1,3}\Z",
    re.I,
)
# Letters that few other languages have.
_LETTERS = {
    "de": frozenset("\u00df\u00e4\u00fc"),
    "es": frozenset("\u00f1\u00bf\u00a1"),
    "fr": frozenset("\u0153\u00ea\u00fb\u00ee"),
    "pt": frozenset("\u00e3\u00f5"),
    "pl": frozenset("\u0142\u0119\u0105\u017c\u015b\u0107"),
    "sv": frozenset("\u00e5"),
    "cs": frozenset("\u0159\u011b\u016f"),
    "tr": frozenset("\u0131\u011f\u015f"),
}
_MONTH = re.compile(
    r"(?:Jan(?:uar|\.)|J\u00e4nner|Feb(?:ruar|\.)|M\u00e4rz|Apr(?:il|\.)|Mai|Juni|Juli|Aug(?:ust|\.)|Sept(?:ember|\.)|"
    r"Okt(?:ober|\.)|Nov(?:ember|\.)|Dez(?:ember|\.)|Jahrhundert|Jh)"
)
_SPEECH = re.compile(
    r"(?:I|[A-Z][\w'\u2019]+|(?:Mr|Mrs|Ms|Miss|Dr)\.? [A-Z]\w+)(?: [A-Z]\w+)? (?:said|asked|cried|replied|answered|"
    r"exclaimed|shouted|whispered|inquired|enquired|murmured|muttered|demanded|called|repeated|"
    r"continued|returned|added|began|wondered|screamed|yelled|growled|remarked|interrupted|snapped|"
    r"sighed|laughed|gasped)\b"
)
_PRONOUNS = re.compile(r"(?:He|She|They|We|It|You)\b")
_ORDINAL_LANGUAGES = frozenset({"de", "cs", "tr", "sv", "pl"})
_FOOTNOTE = re.compile(r"\d{1,2}(?=\s+[\"\u201c]?[A-Z])\s+")
_UPPER_AFTER_STOP = re.compile(r"[^\W\d_]{4}[.!?][\"'\u201d\u2019]?\s+[\"'\u201c\u2018]?[A-Z]")
_LOWER_AFTER_STOP = re.compile(r"[^\W\d_]{4}\s?[.!?]\s+[a-z]")
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_GREEK = re.compile("[\u0370-\u03ff\u1f00-\u1fff]")
_QUOTATION = re.compile(
    r"""
      \u201c[^\u201c\u201d]*+\u201d
    | \u201e[^\u201e\u201c\u201d]*+[\u201c\u201d]
    | \u00ab[^\u00ab\u00bb]*+\u00bb
    | (?<![^\s(\[\u2014\u2013-])\u00bb(?=\S)[^\u00ab\u00bb]*+\u00ab
    | \u300c[^\u300c\u300d]*+\u300d
    | \u300e[^\u300e\u300f]*+\u300f
    | \u300a[^\u300a\u300b]*+\u300b
    | \uff08[^\uff08\uff09]*+\uff09
    | \([^()]*+(?:\([^()]*+\)[^()]*+)*+\)
    | \[[^\[\]]*+\]
    | (?<![\w.,!?])"[^"]*+(?<!\s)"(?!\w)
    | (?<!\w)\u2018(?:[^\u2018\u2019]|\u2019(?=\w))*+\u2019(?!\w)
    | (?<![\w.,!?])'(?=[A-Z])[^']*+(?:(?<=\w)'(?=\w)[^']*+)*+(?<=[.,!?])'(?!\w)
    """,
    re.VERBOSE,
)


def _parts(text: str) -> list[str]:
    """Returns the parts of an abbreviation with white space in it, stops included."""
    return re.split(r"\s+|(?<=\.)(?=-)", text)


class Style(NamedTuple):
    """What a text shows of how it is written.

    Attributes:
        language: code of the language, "" if in doubt.
        is_lowered: True if sentences begin with small letters.
    """

    language: str = ""
    is_lowered: bool = False


def text_style(text: str) -> Style:
    """Returns the style of a text, by its beginning."""
    sample = text[:SAMPLE]
    small = sum(1 for _ in _LOWER_AFTER_STOP.finditer(sample))
    is_lowered = small > 0 and sample.lower() == sample
    if small > 2 and not is_lowered:
        is_lowered = small > 2 * sum(1 for _ in _UPPER_AFTER_STOP.finditer(sample))
    return Style(_language(sample, 20 * LANGUAGE_WORDS), is_lowered)


def split_line(line: str, style: Style, *, inside_marks: bool = False) -> list[str]:
    """Splits a line into consecutive slices, one a sentence, with the white space after it.

    Args:
        line: a paragraph or another text; a line break in it is white space.
        style: style of the text that the line belongs to.
        inside_marks: True to find sentences inside of quotations and brackets as well.

    Returns:
        At least one slice; joined they are the line.
    """
    language = _language(line, LANGUAGE_WORDS) or style.language
    rules = _rules(language)
    marks = () if inside_marks else _quotations(line)
    slices = []
    start = 0
    pattern = _GREEK_STOPS if language == "el" else _STOPS
    for end in _ends(line, pattern, _Line(line, rules, style.is_lowered), marks):
        slices.append(line[start:end])
        start = end
    if start < len(line) or not slices:
        slices.append(line[start:])
    return slices


def _quotations(line: str) -> Iterator[tuple[int, int]]:
    """Yields where quotations and brackets begin and end."""
    for found in _QUOTATION.finditer(line):
        start, end = found.span()
        if end - start <= LONGEST_QUOTATION:
            yield start, end


class _Rules(NamedTuple):
    """The data of ``abbreviations`` for a language.

    Attributes:
        language: code of the language, "" if it is not known.
        classes: class of each abbreviation.
        units: abbreviations of class "unit".
        beginnings: first parts of abbreviations of several parts ("i.d" of "i.d.R").
        starters: words that begin many sentences.
    """

    language: str
    classes: dict[str, str]
    units: frozenset[str]
    beginnings: frozenset[str]
    starters: frozenset[str]


def _words(table: str) -> list[str]:
    return [word.removesuffix(".") for word in table.split()]


@functools.cache
def _rules(language: str) -> _Rules:
    """Returns the rules of a language: its own abbreviations, and others that are no words in it."""
    own = ABBREVIATIONS[language or "en"]
    starters = set(STARTERS[language or "en"].split())
    excluded = starters.union(_words(WORDS[language or "en"]))
    classes: dict[str, str] = {}
    for table in ABBREVIATIONS.values():
        for kind, words in table.items():
            for word in _words(words):
                if kind != "unit" and len(word) > 1 and word not in excluded:
                    classes.setdefault(word, kind)
    for kind, words in own.items():
        if kind != "unit":
            classes.update(dict.fromkeys(_words(words), kind))
    if not language:
        for words in STARTERS.values():
            starters.update(word for word in words.split() if len(word) > 2)
        starters.difference_update(_PARTICLES)
    beginnings = set()
    for word in classes:
        parts = word.split(".")
        beginnings.update(".".join(parts[:count]) for count in range(2, len(parts) + 1))
    return _Rules(
        language, classes, frozenset(_words(own["unit"])), frozenset(beginnings), frozenset(starters)
    )


def _language(line: str, most: int) -> str:
    """Returns the code of a line's language, "" if its frequent words leave a doubt."""
    letters: set[str] = set()
    if not line.isascii():
        if len(_CYRILLIC.findall(line)) > len(line) / 3:
            return "ru"
        if len(_GREEK.findall(line)) > len(line) / 3:
            return "el"
        letters = set(line)
    words = set(line.lower().split(maxsplit=most)[:most])
    counts = {code: len(known & words) for code, known in _language_words().items()}
    if letters:
        for code, own in _LETTERS.items():
            counts[code] += 2 * bool(own & letters)
    best, second, *_ = sorted(counts, key=counts.__getitem__, reverse=True)
    is_sure = counts[best] >= FEWEST_WORDS or (counts[best] == 2 and not counts[second])
    return best if is_sure else ""


@functools.cache
def _language_words() -> dict[str, frozenset[str]]:
    return {
        code: frozenset(words.split())
        for code, words in STARTERS.items()
        if code not in {"ru", "el"}
    }


def _ends(
    line: str, pattern: re.Pattern[str], decider: "_Line", marks: Iterator[tuple[int, int]] | Sequence
) -> Iterator[int]:
    """Yields the places where sentences end, after their white space, but for the last one."""
    marks = iter(marks)
    begin, close = next(marks, (len(line), len(line)))
    start = 0
    for found in pattern.finditer(line):
        end = found.end()
        place = found.end("closing")
        while close <= found.start() or close < place:
            begin, close = next(marks, (len(line) + 1, len(line) + 1))
        if begin < place < close:
            continue
        opened = begin if begin < found.start() and place == close else None
        if end == len(line):
            break
        end = decider.end(found, start, opened)
        if end:
            yield end
            start = end


class _Line(NamedTuple):
    """A line whose stops are decided."""

    line: str
    rules: _Rules
    is_lowered: bool

    def end(self, found: re.Match[str], start: int, opened: int | None) -> int:
        """Returns where the sentence ends that a stop may end, 0 if it goes on.

        Args:
            found: the stop.
            start: where its sentence starts.
            opened: where the quotation begins that the stop is the last character of, if any.
        """
        line, end = self.line, found.end()
        if found["other"]:
            return self._after_other(found, end, opened)
        if not found["space"]:
            return self._without_space(found, start)
        place = _BEFORE_WORD.match(line, end, end + _RIGHT).end()
        following = line[place : place + _RIGHT]
        word = _WORD.match(following)
        is_small = word is not None and word[0].islower() and not self.is_lowered
        if found["ellipsis"]:
            if is_small or (following[:1].isdigit() and line[found.start() - 1].isspace()):
                return 0
            return end
        if found["mark"]:
            if is_small and not self._is_mixed(following):
                return 0
            if found["closing"] and _SPEECH.match(following) and not _PRONOUNS.match(following):
                return 0
            return end
        return end if self._is_end(found, start, following, word, line[end:place]) else 0

    def _after_other(self, found: re.Match[str], end: int, opened: int | None) -> int:
        """Decides a stop of a script without capitals: what follows a quotation belongs to it."""
        if not found["closing"] or found["space"] or end == len(self.line) or opened is None:
            return end
        if opened and self.line[opened - 1] in ":\uff1a":
            return end
        is_quoted = self.line[opened] not in "(\uff08["
        return 0 if is_quoted and self.line[end].isalpha() else end

    def _without_space(self, found: re.Match[str], start: int) -> int:
        """Decides a stop with no space after it: a footnote or a space that is missing."""
        line, stop, end = self.line, found.start(), found.end()
        if found["ellipsis"] or found["closing"]:
            return 0
        token = _TOKEN.search(line[max(start, stop - _LEFT) : stop])
        if token is None or not token[0].isalpha() or not token[0].islower():
            return 0
        if line[end].isdigit():
            footnote = _FOOTNOTE.match(line, end)
            is_word = len(token[0]) > 2 and self._class(token[0]) is None
            return footnote.end() if footnote and is_word else 0
        word = _WORD.match(line, end, end + _RIGHT)
        if word is None or not word[0][0].isupper() or not line[word.end() : word.end() + 1].isspace():
            return 0
        starters = self.rules.starters
        return end if token[0] in starters or word[0].lower() in starters else 0

    def _is_mixed(self, following: str) -> bool:
        """Tells whether a word is a name or code that begins with a small letter ("iPhone")."""
        word = re.match(r"[^\s,;:]+", following)
        return word is not None and not word[0].rstrip(".,;:!?)\"'\u201d\u2019").islower()

    def _class(self, token: str) -> str | None:
        """Returns the class of an abbreviation, None of another word."""
        classes = self.rules.classes
        if token in classes:
            return classes[token]
        small = token[:1].lower() + token[1:]
        if small in classes:
            return classes[small]
        if len(token) > 1 and token.isupper() and "." not in token:
            return classes.get(token.lower()) or classes.get(token.capitalize())
        return None

    def _is_end(
        self, found: re.Match[str], start: int, following: str, word: re.Match[str] | None, before: str
    ) -> bool:
        """Decides a plain stop with a space after it."""
        line, stop = self.line, found.start()
        left = line[max(start, stop - _LEFT) : stop]
        token_found = _TOKEN.search(left)
        if token_found is None:  # after a space, a bracket or a quotation mark
            return not (found["closing"] and self._continues("name", following, word, before))
        token = token_found[0]
        if not left[: token_found.start()].strip(" \"'\u201c\u2018(*_") and len(left) < _LEFT:
            if _LABEL.match(token) and not found["closing"]:
                return False
        if token[-1].isdigit():
            return self._ends_number(left, token, following, word)
        token = token.lstrip("'\u2018\u2019-.")
        is_small = word is not None and word[0].islower() and not self.is_lowered
        if found["closing"] and is_small and not self._is_mixed(following):
            return False
        if self._is_inside(left, token, following):
            return False
        kind = self._kind(left, token)
        if kind is None:
            return True
        if found["closing"] and any(mark not in ")]" for mark in found["closing"]):
            kind = "lower" if kind != "number" else None
        return kind is None or not self._continues(kind, following, word, before)

    def _kind(self, left: str, token: str) -> str | None:
        """Returns the class of the word before a stop, None if it is an ordinary word."""
        rules = self.rules
        if token in rules.units or token[:1].isalpha() and token in _UNITS_EVERYWHERE:
            if left[: len(left) - len(token)].rstrip()[-1:].isdigit():
                return "lower"
        spaced = _SPACED.search(left)
        if spaced is not None and not _INITIALS.match(spaced[0]):
            parts = _parts(spaced[0])
            for first in range(len(parts) - 1):
                kind = rules.classes.get("".join(parts[first:]))
                if kind is not None:
                    return kind
        if len(token) == 1 and token.isupper():
            kind = rules.classes.get(token)
            return kind or ("letter" if _LETTERED.search(left) else "initial")
        kind = self._class(token)
        if kind is None and (elision := _ELISION.match(token)):
            token = token[elision.end() :]
            kind = self._class(token)
        return kind or self._guess(token)

    def _is_inside(self, left: str, token: str, following: str) -> bool:
        """Tells whether a stop is inside an abbreviation of several parts ("a. M.", "EE. UU.")."""
        next_part = _PART.match(following)
        if next_part is None:
            return False
        spaced = _SPACED.search(left)
        parts = [token] if spaced is None else _parts(spaced[0])
        return any(
            f"{''.join(parts[first:])}.{next_part[1]}" in self.rules.beginnings
            for first in range(len(parts))
        ) and not left.isupper()

    def _guess(self, token: str) -> str | None:
        """Returns the class of what looks like an abbreviation."""
        if _DOTTED.match(token):
            return "name"
        if _ROMAN.match(token):
            return "roman"
        if len(token) == 1 and token.isalpha():
            return "lower"
        if _CONSONANTS.match(token.lower()) and not token.isupper():
            return "name"
        if token.endswith("str") and self.rules.language == "de":
            return "name"
        if "-" in token:
            return self._class(token.rpartition("-")[2])
        return None

    def _ends_number(
        self, left: str, token: str, following: str, word: re.Match[str] | None
    ) -> bool:
        """Decides a stop after a number, which is an ordinal in some languages."""
        has_ordinals = self.rules.language in _ORDINAL_LANGUAGES
        is_short = token.isdigit() and len(token) <= 3
        if word is None:
            is_date = has_ordinals and is_short and len(token) < 3 and following[:1].isdigit()
            return not is_date
        if word[0].islower():
            if self._is_mixed(following) or self.is_lowered:
                return True
            return not token.isdigit() or (not has_ordinals and not is_short)
        if not is_short or not has_ordinals:
            return _BEFORE_ORDINAL.search(left) is None or _MONTH.match(following) is None
        if _MONTH.match(following):
            return False
        if self._is_starter(word[0], following):
            return True
        return _BEFORE_ORDINAL.search(left) is None and self.rules.language != "tr"

    def _is_starter(self, word: str, following: str) -> bool:
        """Tells whether a word begins many sentences."""
        starters = self.rules.starters
        if len(word) == 1:
            return word.lower() in starters and following[1:2].isspace()
        lowered = word.lower()
        if lowered in starters:
            return True
        head, apostrophe, rest = lowered.replace("\u2019", "'").partition("'")
        return bool(apostrophe) and head in starters and word[len(head) + 1 :].islower()

    def _continues(
        self, kind: str, following: str, word: re.Match[str] | None, before: str
    ) -> bool:
        """Tells whether a sentence goes on after an abbreviation of a class."""
        if kind == "always":
            return True
        is_quoted = any(mark in before for mark in _OPENING)
        is_bracketed = "(" in before or "[" in before
        if kind == "number":
            if word is None or not word[0].islower() or len(word[0]) == 1 or self.is_lowered:
                return _NUMBERED.match(following) is not None and not (
                    word is not None and self._is_starter(word[0], following)
                )
            return False
        if word is None:
            return kind != "letter" and not is_quoted
        first = word[0]
        if first.islower() and not self.is_lowered:
            return not (self._is_mixed(following) and kind in {"lower", "letter"})
        if is_bracketed and kind != "letter":
            return True
        if kind in {"letter", "roman"}:
            return False
        if kind == "lower":
            return _NUMBERED.match(following) is not None and not self._is_starter(first, following)
        if is_quoted and kind == "initial":
            return True
        return not self._is_starter(first, following) and not is_quoted
