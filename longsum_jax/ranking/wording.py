"""Words extracted sentences for a reader: without marks, hesitations and loose connectives.

Nothing is added but a capital; the sentence of the document remains in the
sources of a summary.
"""

import html
import re
from collections.abc import Set

from longsum_jax.text.hyphens import hyphenated_words, keeps_hyphen

_ENTITY = re.compile(r"&(?:[a-z]{2,8}|#\d{1,6});")
_PLACEHOLDERS = re.compile(
    r"\s*[(\[]?<(?:cit|ref|citation|sup|sub)>(?:[\w,;\u2013-]{0,12}</(?:sup|sub)>)?[)\]]?"
)
# words after which a citation belongs to the sentence: "as in <cit>"
_BEFORE_CITATION = re.compile(
    r"\b(?:as|and|by|from|in|of|or|see|than|to|with)\Z", re.IGNORECASE
)
_DOUBLED = re.compile(r"([,;])\s*[,;]|(?<!\.)(\.)\s*\.(?!\.)")
_STOP_AFTER_STOP = re.compile(r"(?<=\w[!?])\.\Z")
_MARKS = re.compile(r"[`*_\[<>&:\u00b6\\]")
_REPLACEMENTS = (
    (re.compile(r":(?i:pep):`(\d+)`"), r"PEP \1"),
    (re.compile(r":(?i:rfc):`(\d+)`"), r"RFC \1"),
    # roles of reStructuredText: ":pep:`327`", ":py:data:`typing.TypeGuard`"
    (
        re.compile(
            r":[\w.+-]+:(?:[\w.+-]+:)*`~?([^`<]{1,200}?)\s*(?:<[^`>]{1,200}>)?`"
        ),
        r"\1",
    ),
    (re.compile(r"``([^`]{1,200})``"), r"`\1`"),
    (
        re.compile(r"`([^`<]{1,200}?)\s*(?:<[^`>]{1,300}>)?`__?(?!\w)"),
        r"\1",
    ),  # its links
    (
        re.compile(r"\A\[[\w#*.-]{1,40}\]_\s+|\s?\[[\w#*.-]{1,40}\]_(?!\w)"),
        "",
    ),  # its footnotes
)
# marks that are part of code where they stand inside of backticks
_MARKUP_OUTSIDE_CODE = (
    # links of Markdown
    (
        re.compile(
            r"!?\[(?!\d{1,3}\]\[)([^\[\]]{1,300})\](?:\([^()\s]{0,500}(?:\s+\"[^\"]{0,300}\")?\)|"
            r"\[[\w-]{0,40}\]| \(https?://[^()\s]{1,500}\))"
        ),
        r"\1",
    ),
    (re.compile(r"<(https?://[^<>\s]{1,300})>"), r"\1"),
    # terms of definitions: "**Node** A machine"
    (
        re.compile(r"\A\*\*([^*\n]{1,60}[^\W_])\*\*\s+(?=[A-Z])"),
        r"\1: ",
    ),
    # emphasis, and labels of notes: "> **Warning**", "[!NOTE]"
    (
        re.compile(
            r"\A[>\s]*(?:\*\*(?:warning|note|tip|important|caution)s?:?\*\*:?|"
            r"\[!(?:warning|note|tip|important|caution)\])\s*",
            re.IGNORECASE,
        ),
        "",
    ),
    (re.compile(r"\A>\s+"), ""),
    (
        re.compile(
            r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]{1,300})(?<=[^\s*])\1(?!\*)"
        ),
        r"\2",
    ),
    (
        re.compile(
            r"(?<![\w_])_(?=[^\s_])([^_\n]{1,300})(?<=[^\s_])_(?![\w_])"
        ),
        r"\1",
    ),
    # numbers of paragraphs in judgments
    (re.compile(r"\A\u00b6\s*\d{1,4}\.?\s+"), ""),
)
_CODE = re.compile(r"`[^`]{1,300}`")
# a number of a code span, between two characters of no meaning
_MASKED = re.compile("\ue000(\\d+)\ue001")
# Texts that were split into tokens: "well , I do n't know ."
_SPACED = re.compile(r"(?<=[\w)\]\"'\u2019%-])\s+([,.;:?!]+)(?=\s|\Z)")
_SPLIT_WORDS = re.compile(
    r"(?<=\w)\s(n't|'(?:s|re|ve|ll|d|m))\b|\b([Gg]on|[Ww]an|[Gg]ot|[Gg]im|[Ll]em)\s(na|"
    r"ta|me)\b"
)
# "intro- duction", but not "first- and second-order"
_HYPHENATED = re.compile(
    r"(?<!\w)(\w*[a-z]{2})- (?!(?:and|or|to|und|oder)\b)([a-z]{2,})"
)
_CUT = re.compile(r"(?<!\w)\w+-\s+\w+")
# Headings before a sentence in one line, as in text from PDF. Most also begin
# sentences ("Results show that ..."), so a usual first word has to follow.
_FIRST_OF_SENTENCE = (
    r"(?:A|All|Although|An|As|Both|By|For|Here|In|It|Many|Most|Our|Recent|Several|"
    r"Since|Some|The|There|These|This|To|Two|We|While|With)\b"
)
_GLUED_HEADING = re.compile(
    r"\A(?:\d{1,2}(?:\.\d{1,2})*\.? "
    rf"(?:[A-Z][\w-]* ){{1,5}}?(?={_FIRST_OF_SENTENCE})|"
    r"(?:\d{1,2}(?:\.\d{1,2})*\.? )?(?:"
    r"(?:Introduction|Conclusions?|BACKGROUND|RESULTS|CONCLUSIONS?|DISCUSSION|"
    r"INTRODUCTION|ABSTRACT|METHODS) (?=[A-Z][a-z]* [a-z])|"
    r"(?:Abstract|Summary|Background|Results|Discussion|Motivation|Overview) "
    rf"(?={_FIRST_OF_SENTENCE})|"
    r"(?:Introduction|Conclusions?|Discussion|Abstract|Summary|Background|Results|"
    r"Motivation|Overview|Methods|BACKGROUND|RESULTS|CONCLUSIONS?|DISCUSSION|"
    r"INTRODUCTION|ABSTRACT|METHODS)[:.] (?=[^\W\d_])))"
)
# Connectives without which a sentence can begin, if a comma follows.
_CONNECTIVE = re.compile(
    r"(?:however|moreover|furthermore|in addition|additionally|also|besides|similarly|"
    r"likewise|"
    r"finally|lastly|first|firstly|second|secondly|third|thirdly|consequently|therefore|"
    r"thus|"
    r"hence|indeed|in fact|of course|in particular|nevertheless|nonetheless|meanwhile|"
    r"accordingly|subsequently|as a result|in contrast|by contrast|on the other hand|"
    r"in turn|most of all|first of all|to (?:begin|start) with|for starters|after all|"
    r"in short|"
    r"partly because of (?:this|that)|for (?:this|that) reason|on the contrary|"
    r"as a consequence|still|again|and|but|so|anyway|in conclusion|in summary),\s+"
    r"(?=[^\W\d_])",
    re.IGNORECASE,
)
_HESITATION = re.compile(
    r"(?:(?<=\s)|\A)(?:um+|uh+|uhm|er|erm|mm-?hmm|hmm+|mm|mhm|eh)(?:\s*[,.\u2026](?=\s)|"
    r"\.\.\.)?(?=\s|\Z)[ ]?",
    re.IGNORECASE,
)
_TWICE = re.compile(
    r"\b(?!(?:that|had|very|really|so|no|ha|bye|"
    r"\d+)\b)([^\W\d_]+(?: [^\W\d_]+)?)(?:\s*,?\s+\1\b(?! know\b))+",
    re.IGNORECASE,
)
_STUTTER = re.compile(
    r"(?<=\s)([b-hj-z]|th|wh|sh|st|pr|tr|fl|wi|ha|ca)\s+(?=\1\w)"
)
# "if- if it", "in- inserts"
_CUT_SHORT = re.compile(r"(?<![\w-])([^\W\d_]+)-\s+(?=\1)", re.IGNORECASE)
_TAIL = re.compile(
    r"(?:\s*,\s*(?:yeah|okay|ok|right|you know|so|huh|like|i think|i guess|and|or|"
    r"but))+\s*(?=[.?!]?\Z)",
    re.IGNORECASE,
)
OPENERS = re.compile(
    r"(?:(?:and|so|but|well|okay|ok|o-kay|'?kay|yeah|yes|yep|oh|ah|uh|um|uhm|er|hmm|mm|"
    r"mm-hmm|"
    r"alright|all right|right|now|anyway|i mean|you know|like|actually|basically|sure|"
    r"hey|also|"
    r"then|because)\b[\s,.\u2026-]*)+",
    re.IGNORECASE,
)
_SHORTEST_REST = 20  # characters after an opener


def without_openers(words: str) -> str:
    """Returns a sentence of talk without the fillers and connectives in front of it."""
    opener = OPENERS.match(words)
    if opener is None or len(words) - opener.end() < _SHORTEST_REST:
        return words
    return words[opener.end() :]


def connective_end(words: str) -> int:
    """Returns the length of a connective and its comma before a sentence that can begin without."""
    match = _CONNECTIVE.match(words)
    if match is None or len(words) - match.end() < _SHORTEST_REST:
        return 0
    return match.end()


def plain(sentence: str) -> str:
    """Returns a sentence without marks of markup, and with spaces as in print."""
    if _MARKS.search(sentence):
        if _ENTITY.search(sentence):
            sentence = html.unescape(sentence)
        sentence = _without_placeholders(sentence)
        for pattern, replacement in _REPLACEMENTS:
            sentence = pattern.sub(replacement, sentence)
        sentence = _without_markup(sentence)
    sentence = _SPLIT_WORDS.sub(r"\1\2\3", sentence)
    sentence = _GLUED_HEADING.sub("", sentence)
    sentence = _STOP_AFTER_STOP.sub("", sentence)
    return _SPACED.sub(r"\1", sentence)


def _without_placeholders(sentence: str) -> str:
    """Removes placeholders of citations, unless a preposition needs them."""

    def kept(match: re.Match[str]) -> str:
        before = sentence[: match.start()]
        return match[0] if _BEFORE_CITATION.search(before) else ""

    result = _PLACEHOLDERS.sub(kept, sentence)
    if result == sentence:
        return sentence
    return _DOUBLED.sub(r"\1\2", result)


def _without_markup(sentence: str) -> str:
    """Removes links and emphasis of Markdown, but no character of code in backticks."""
    spans: list[str] = []

    def masked(match: re.Match[str]) -> str:
        spans.append(match[0])
        return f"\ue000{len(spans) - 1}\ue001"

    sentence = _CODE.sub(masked, _MASKED.sub("", sentence))
    for pattern, replacement in _MARKUP_OUTSIDE_CODE:
        sentence = pattern.sub(replacement, sentence)
    return _MASKED.sub(lambda match: spans[int(match[1])], sentence)


def is_hyphenated(sentence: str) -> bool:
    """Returns True if a hyphen and a space cut a word, as at the end of a line."""
    return _HYPHENATED.search(sentence) is not None


def whole_words(text: str) -> set[str]:
    """Returns ``hyphenated_words`` of a text without parts of words that line ends cut."""
    return hyphenated_words(_CUT.sub(" ", text))


def without_line_hyphens(sentence: str, words: Set[str]) -> str:
    """Joins words that the end of a line cut: "intro- duction", "hour- hand".

    The hyphen also stays if both parts are words of the document and their
    compound is not; see ``keeps_hyphen``.

    Args:
        sentence: words of one sentence.
        words: result of ``whole_words`` for the document.
    """

    def joined(match: re.Match[str]) -> str:
        first, second = match[1], match[2]
        parts_are_words = {first.casefold(), second} <= words
        is_compound = (
            parts_are_words and (first + second).casefold() not in words
        )
        if is_compound or keeps_hyphen(first, second, words):
            return f"{first}-{second}"
        return first + second

    return _HYPHENATED.sub(joined, sentence)


def fluent(words: str) -> str:
    """Returns a sentence of talk without hesitations, repeated words and openers."""
    words = _HESITATION.sub("", words)
    words = _CUT_SHORT.sub("", words)
    words = _TWICE.sub(r"\1", words)
    words = _STUTTER.sub("", words)
    words = _TWICE.sub(r"\1", words)
    words = _SPACED.sub(r"\1", words)
    words = re.sub(r",(?:\s*,)+", ",", words)
    words = without_openers(words.lstrip(" ,."))
    words = _TAIL.sub("", words)
    return words


def capitalized(words: str) -> str:
    """Returns words with a capital letter, unless the first word has one inside ("iPhone")."""
    first = words.split(maxsplit=1)[0] if words.strip() else ""
    if first[1:].islower() or len(first) == 1 or "'" in first:
        return words[:1].upper() + words[1:]
    return words
