"""Finds sentences that are not informative outside of their context.

These are headings, exclamations, captions, rows of numbers, unfinished
sentences, announcements and publishers' notices. Sentences that depend on the
previous one are found here as well.
"""

import re

import numpy as np

from longsum_jax.ranking.dependence import are_questions, first_words
from longsum_jax.ranking.lexicon import (
    FILLERS,
    STOP_WORDS,
    light_stem,
)
from longsum_jax.ranking.parsing import (
    LONGEST_HEADING,
    ParsedDocument,
    class_counts,
    is_stopped,
    is_story,
    without_speaker,
)
from longsum_jax.ranking.pointers import MARKDOWN_HEADING
from longsum_jax.ranking.signposts import are_signposts, are_verbless
from longsum_jax.ranking.wording import fluent, without_openers
from longsum_jax.text.boundaries import NOTE_MARK
from longsum_jax.text.captions import LONGEST_CAPTION, begins_caption
from longsum_jax.text.ngrams import unicode_words
from longsum_jax.text.sentences import without_list_mark

_SECTION = re.compile(r"\d{1,2}(?:\.\d{1,2})+\.?\s+(?=[^\W\d_])(?![a-z])")
_FEWEST_WORDS = 4
_FEWEST_CONTENT_WORDS = 2  # distinct; "Yes, I know that." has none
_FEWEST_CONTENT_WORDS_OF_TALK = 3
# words, with the speaker's name, above which a sentence has enough content
_LONG_IN_TALK = 24
_LONGEST_LEAD_IN = 12  # words
_COLONS = (":", "\uff1a")
_DIGITS = 0.1  # minimum share of digits in the characters of a row of numbers
# minimum share of words, with and without a final stop
_NUMBERS, _UNSTOPPED_NUMBERS = 0.5, 0.3
_NOTES = 0.5  # share of words in short lines above which a document is notes
# Share of finished sentences in a document above which unfinished ones are
# excluded: transcripts without stops or capitals have only unfinished
# sentences.
_FINISHED = 0.6
_ENDS = re.compile(
    r"[.!?\u2026\u0964\u061f\u3002\u06d4\uff01\uff1f][^\w\s]*"
    rf"(?:{NOTE_MARK})*\Z"
)
_FEWEST_WORDS_OF_ITEM = 8  # minimum of a list item that needs no stop
# but not an identifier
_FIRST_WORD = re.compile(r"[^\W\d_]+(?=[\s,;:.!?'\u2019-]|\Z)(?!\.\w)")
# beginnings of what stands inside a sentence, and ends of what breaks off
_INSIDE = re.compile(r"[,;)\]}]|[.:]\s|\([^)]*\Z")
_BREAKS_OFF = re.compile(r"(?:\u2014|--+)[.\u201d\"')]*\Z")
_TAIL = 20  # characters at the end of a sentence that are searched for its stop
# letters of words that break off, and sentences that do
_BROKEN = re.compile(
    r"(?:^|\s)[b-hj-np-z](?=\s)|(?:^|\s)\w+_ |"
    r"\b(?:the|an?|of|and|to|is|are|that|with|for|or|but|so|um|uh|my|your|its|because|"
    r"if)\s*[.\u2026-]*\Z|"
    r"(?:^|\s)(?:d|th|wh|o) "
)
# Images, badges, comments and rows of tables in Markdown and HTML,
# illustrations in plain text.
_MARKUP = re.compile(
    r"\[?!\[|<!--|<img\b|\[(?:Illustration|Image|Figure)\b", re.IGNORECASE
)
_FENCE = re.compile(r"```|~~~")  # start or end of a block of code in Markdown
# beginnings of comments and of lines of a shell
_CODE = re.compile(r"//+ |/\*|#!|(?:>>>|\$) ")
_LONGEST_ANNOUNCEMENT = 16  # words
_NAME = r"(?:(?:[A-Z]\.|[A-Z][\w'\u2019-]+)(?: (?=[A-Z])|(?=[,.!])))+"
_ANNOUNCEMENT = re.compile(
    r"(?i:(?:(?:and|so|now|okay|ok|well|all right|great|with that)\b[,.]? )*)(?:"
    # "And now here's Ann Lee.", "Here is our chief executive, Ann Lee."
    rf"(?i:here)(?:['\u2019]s| is) (?:(?i:our|your|the) [\w ,]+, )?{_NAME}[.!]?\Z|"
    r"(?i:"
    r"(?:many )?thank(?:s| you)\b|"
    r"(?:(?:dr|mr|ms|mrs)\. )?[\w'\u2019-]+(?: [\w'\u2019-]+)?, (?:many )?thank(?:s| you)"
    r"(?: (?:very|so) much| for (?:joining|being|coming|your time)\b.*)[.!]?\Z|"
    r"good (?:morning|afternoon|evening|day)\b|"
    r"welcome(?: back| everyone|,)|"
    r"ladies and gentlemen|"
    r"(?:our|your|the) (?:next|first|last|final|following) (?:question|caller|speaker|guest) "
    r"(?:is from|comes from|today|will)\b|"
    r"we(?:['\u2019]ll| will)? (?:now )?(?:take|have|go to) (?:our|the|your|a) "
    r"(?:next|first|last|final|follow-up) (?:question|caller)|"
    r"(?:please|you may) (?:go ahead|proceed|begin)\b|"
    r"go ahead\b|"
    r"(?:your|the) line is (?:now )?open\b|"
    r"the floor is yours\b|"
    r"(?:(?:i(?:['\u2019]d| would)(?: now)? like to|i(?:['\u2019]ll| will)|let me) )?"
    r"(?:now )?(?:turn|hand|pass) (?:the (?:call|conference|floor|meeting|program) |it |things )?"
    r"(?:back )?(?:over )?to\b"
    r"))"
)
# Greetings and advertisements of broadcasts, of any length.
_BROADCAST = re.compile(
    r"(?:hello|hi|hey|good (?:morning|evening|afternoon)|welcome(?: back)?)\b,? "
    r"(?:and welcome\b|everyone\b|everybody\b|all\b|folks\b|guys\b|listeners\b|viewers\b|"
    r"to (?:tonight|today|another|this|the))|"
    r".{0,80}\b(?:our|tonight['\u2019]s|today['\u2019]s|fantastic|first|second) "
    r"(?:\w+ ){0,2}sponsors?\b|"
    r".{0,80}\bbrought to you by\b|"
    r".{0,80}\b(?:some|few|of|our|these) (?:\w+ )?announcements\b|"
    r"before we (?:dive|get|go|hop|jump) (?:in|into|on|started)\b",
    re.IGNORECASE,
)
# Pleasantries of letters, newsletters and blogs.
_PLEASANTRY = re.compile(
    r"(?:what an? .{1,80}!\Z|(?:hi|hello|hey|dear)\b[^.!?]{0,40}!|"
    r"have an? (?:great|good|nice|wonderful|lovely|safe|happy|fantastic) (?:day|evening|night|"
    r"week|weekend|time|trip|break|summer|holidays?|one)\b|"
    r"happy (?:new year|holidays|\w+day)\b|see you (?:all |soon|there|next)|"
    r"(?:i|we) (?:do )?hope (?:that )?(?:you|your|this e-?mail|this letter)\b|"
    r"(?:i am|i['\u2019]m|we are|we['\u2019]re) (?:so |very |really |super )?"
    r"(?:excited|thrilled|delighted) to (?:finally )?share\b|"
    r"please (?:do not|don['\u2019]t) hesitate\b|(?:please )?feel free to\b|"
    r"(?:i |we )?(?:look|looking|am looking|are looking) forward to (?:hear|see|meet))",
    re.IGNORECASE,
)
# Notices of Project Gutenberg and of the magazines that first published its
# stories.
_NOTICE = re.compile(
    r"project gutenberg|distributed proofread|\[?transcriber['\u2019]s notes?\b|"
    r"this (?:e-?text|e-?book) (?:was|is)\b|u\.s\. copyright on this publication|"
    r"all rights reserved|no part of this publication may|reproduced,? (?:stored|transmitted)|"
    r"(?:continued|turn) (?:on|to|from) page \d|\A\W*(?:copyright\b|\u00a9)|"
    # contracts, reports, change logs, blogs and newsletters
    r"\bin witness whereof\b|\Arespectfully submitted\b|\bkeep a changelog\b|"
    r"\ball notable changes to this\b|\baffiliate links\b|"
    r"\bleave (?:a|your) (?:comment|review|rating)\b|"
    r"\bfollow (?:us|me) on\b|\bunsubscribe\b|\bsubscribe to (?:our|my|the) "
    r"(?:newsletter|blog|channel|podcast)\b|\bclick here to\b|"
    r"\bjump to (?:the )?recipe\b|\bwas this (?:page|article) (?:helpful|useful)\b|"
    r"\Alast (?:updated|modified|reviewed)\b|\bfor informational purposes only\b|"
    r"\bdoes not constitute [\w, ]{0,40}advice\b",
    re.IGNORECASE,
)
# One of these words is in every notice; faster to search.
_NOTICE_WORDS = (
    *(
        "gutenberg",
        "proofread",
        "transcriber",
        "etext",
        "e-text",
        "ebook",
        "e-book",
        "publication",
    ),
    *(
        "copyright",
        "\u00a9",
        "rights reserved",
        "reproduced",
        "transmitted",
        "continued",
        "turn ",
    ),
    *("witness", "submitted", "changelog", "notable", "affiliate", "leave "),
    *("follow ", "subscribe", "click here", "jump to"),
    *("helpful", "useful", "last ", "constitute", "informational"),
)
_STARTS_BOOK = re.compile(
    r"\*\*\* ?start of (?:the|this) project gutenberg", re.IGNORECASE
)
_ENDS_BOOK = re.compile(
    r"(?:\*\*\* ?)?end of (?:the |this )?project gutenberg(?:['\u2019]s)?\b",
    re.IGNORECASE,
)


def are_fragments(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for sentences that a summary should avoid."""
    return (
        document.headings
        | _are_unfinished(document)
        | _are_uninformative(document)
    )


def are_notes(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for short lines that may fill a summary up.

    In slides, curricula vitae and other notes, most words are in short lines
    without a stop, which are headings in other documents.
    """
    words = document.lengths[document.headings].sum()
    if words <= _NOTES * document.lengths.sum():
        return np.zeros(len(document.sentences), bool)
    return document.headings & ~_are_uninformative(document)


def are_interruptions(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for what is not running text: headings, captions, pictures, code."""
    return (
        document.headings
        | _are_numbers(document)
        | _in_captions(document)
        | _are_markup(document)
        | _are_code(document)
        | _are_notices(document)
    )


def are_running_text(document: ParsedDocument) -> np.ndarray:
    """Returns bool [n], True for finished sentences, such as questions, that are not greetings."""
    return ~(
        are_interruptions(document)
        | _are_unfinished(document)
        | _are_pleasantries(document)
    )


def _are_uninformative(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences without content, whether finished or not."""
    return (
        _are_short(document)
        | _are_marked_headings(document)
        | _lead_in(document)
        | _are_numbers(document)
        | _in_captions(document)
        | _are_markup(document)
        | _are_code(document)
        | _are_announcements(document)
        | _are_notices(document)
        | _are_pleasantries(document)
        | _are_open_quotations(document)
        | are_signposts(document)
        | are_verbless(document)
        | _are_loose_questions(document)
        | _are_broken_talk(document)
    )


def _are_short(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences of fewer than ``_FEWEST_WORDS`` words; a URL counts as one word.

    So are sentences of fewer than ``_FEWEST_CONTENT_WORDS`` words that are not
    stop words, such as answers. They are not informative out of context, and
    would often be selected because they always fit.
    """
    words = np.bincount(document.words.rows, minlength=len(document.sentences))
    content = document.words.by_sentence(document.content[document.words.word])
    few = content < _FEWEST_CONTENT_WORDS
    short = (np.minimum(words, document.lengths) < _FEWEST_WORDS) | few
    in_talk = np.array([name != "" for name in document.speakers])
    for number in np.flatnonzero(in_talk & (words < _LONG_IN_TALK)):
        short[number] = _is_short_in_talk(document.sentences[number])
    return short


def _is_short_in_talk(sentence: str) -> bool:
    """Returns True if a sentence of talk has few words besides the speaker's name and fillers."""
    stems = [
        light_stem(word) for word in unicode_words(without_speaker(sentence))
    ]
    num_content = len(set(stems) - STOP_WORDS - FILLERS)
    return (
        len(stems) < _FEWEST_WORDS
        or num_content < _FEWEST_CONTENT_WORDS_OF_TALK
    )


def _are_marked_headings(document: ParsedDocument) -> np.ndarray:
    """Returns True for headings with a stop: "3.1 Results." or, in Markdown, "## Why this one?"."""
    numbered, marked = (
        np.array(
            [
                pattern.match(sentence) is not None
                for sentence in document.sentences
            ]
        )
        for pattern in (_SECTION, MARKDOWN_HEADING)
    )
    # Without a blank line after it, a heading begins the next sentence.
    marked &= class_counts(document, document.characters.line_end) == 0
    return marked | (numbered & (document.lengths <= LONGEST_HEADING))


def _lead_in(document: ParsedDocument) -> np.ndarray:
    """Returns True for short sentences that end in a colon ("The steps are:")."""
    opens = np.array(
        [sentence.endswith(_COLONS) for sentence in document.sentences]
    )
    return opens & (document.lengths <= _LONGEST_LEAD_IN)


def _are_numbers(document: ParsedDocument) -> np.ndarray:
    """Returns True for table rows, as in text from PDF: more than half of the words are numbers.

    Fewer numbers are sufficient if the row has no final stop.
    """
    digits = class_counts(document, document.characters.digit)
    is_number = digits > _DIGITS * (document.ends - document.starts)
    for number in np.flatnonzero(is_number):
        sentence = document.sentences[number]
        words = [
            word for word in sentence.split() if any(map(str.isalnum, word))
        ]
        numbers = sum(not any(map(str.isalpha, word)) for word in words)
        if is_stopped(sentence):
            most = _NUMBERS
        else:
            most = _UNSTOPPED_NUMBERS
        is_number[number] = numbers > most * len(words)
    return is_number


def _in_captions(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences that begin like captions, and the rest of their paragraph.

    If a paragraph is longer than a caption, text follows its caption. Then only
    the beginning is marked, and the sentence after a label ("Figure 1.").
    """
    is_caption = np.array(
        [begins_caption(sentence) for sentence in document.sentences]
    )
    words = np.cumsum(document.lengths)
    for first in np.flatnonzero(is_caption):
        paragraph = document.paragraphs[first]
        end = int(np.searchsorted(document.paragraphs, paragraph, side="right"))
        if (
            words[end - 1] - words[first] + document.lengths[first]
            > LONGEST_CAPTION
        ):
            is_label = document.lengths[first] < _FEWEST_WORDS
            end = min(end, first + 1 + is_label)
        is_caption[first:end] = True
    return is_caption


def _are_unfinished(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences without a final stop or with a lowercase first letter.

    Each criterion applies only to documents in which most sentences have a stop
    or a capital, respectively. List items of several words need no stop.
    Sentences that begin with a comma or the like, or end with a dash, are
    unfinished in any document.
    """
    sentences = document.sentences
    stopped = np.array(
        [_ENDS.search(sentence[-_TAIL:]) is not None for sentence in sentences]
    )
    items = np.array(
        [without_list_mark(sentence) != sentence for sentence in sentences]
    )
    is_long = document.lengths >= _FEWEST_WORDS_OF_ITEM
    beginnings = [
        _FIRST_WORD.match(first_words(sentence)) for sentence in sentences
    ]
    small = np.array(
        [word is not None and word[0].islower() for word in beginnings]
    )
    capital = np.array(
        [word is not None and word[0][0].isupper() for word in beginnings]
    )
    unfinished = np.array(
        [
            _INSIDE.match(sentence) is not None
            or _BREAKS_OFF.search(sentence[-_TAIL:]) is not None
            for sentence in sentences
        ],
        bool,
    )
    texts = ~document.headings
    if stopped[texts].sum() > _FINISHED * texts.sum():
        unfinished |= ~stopped & ~(items & is_long)
    if capital.sum() > _FINISHED * (capital | small).sum():
        unfinished |= small
    return unfinished


def _are_markup(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences that begin with an image, a comment or an illustration."""
    return np.array(
        [_MARKUP.match(sentence) is not None for sentence in document.sentences]
    )


def _are_code(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences in fenced blocks of code, and for comments of code.

    If the last block has no end, only the sentences that contain a fence are
    marked.
    """
    sentences = document.sentences
    code = np.array(
        [_CODE.match(sentence) is not None for sentence in sentences]
    )
    fences = np.array([len(_FENCE.findall(sentence)) for sentence in sentences])
    total = np.cumsum(fences)
    if total[-1] % 2 == 0:
        is_inside = (total - fences) % 2 == 1
    else:
        is_inside = np.zeros(len(code), bool)
    opens = np.array(
        [_FENCE.match(sentence) is not None for sentence in sentences]
    )
    return code | is_inside | opens | (fences % 2 == 1)


def _are_open_quotations(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences with half of a quotation, whose speaker is unknown."""
    return np.array(
        [
            sentence.count("\u201c") != sentence.count("\u201d")
            or sentence.count('"') % 2 == 1
            for sentence in document.sentences
        ],
        bool,
    )


def _are_loose_questions(document: ParsedDocument) -> np.ndarray:
    """Returns True for questions, except in stories."""
    if is_story(document):
        return np.zeros(len(document.sentences), bool)
    return are_questions(document)


def _are_broken_talk(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences of talk with a word that breaks off ("the colour and s")."""
    broken = np.zeros(len(document.sentences), bool)
    for number, name in enumerate(document.speakers):
        if name:
            words = fluent(without_speaker(document.sentences[number]))
            broken[number] = _BROKEN.search(words) is not None
    return broken


def _are_announcements(document: ParsedDocument) -> np.ndarray:
    """Returns True for sentences that greet, thank, advertise or introduce the next speaker.

    Outside of talk, only short sentences are announcements: longer ones that
    begin like them contain information.
    """
    announces = np.zeros(len(document.sentences), bool)
    for number in np.flatnonzero(document.lengths <= _LONGEST_ANNOUNCEMENT):
        words = without_speaker(document.sentences[number])
        announces[number] = _ANNOUNCEMENT.match(words) is not None
    for row, name in enumerate(document.speakers):
        if name:
            words = without_openers(without_speaker(document.sentences[row]))
            announces[row] |= _BROADCAST.match(words) is not None
    return announces


def _are_pleasantries(document: ParsedDocument) -> np.ndarray:
    """Returns True for exclamations and wishes of letters ("What a week!"); none in talk."""
    if any(document.speakers) or is_story(document):
        return np.zeros(len(document.sentences), bool)
    return np.array(
        [
            _PLEASANTRY.match(first_words(sentence)) is not None
            for sentence in document.sentences
        ],
        bool,
    )


def _are_notices(document: ParsedDocument) -> np.ndarray:
    """Returns True for publishers' notices, and everything outside a Project Gutenberg text."""
    sentences = document.sentences
    notices = np.array([_is_notice(sentence) for sentence in sentences])
    first, last = 0, len(sentences)
    for number in np.flatnonzero(notices).tolist():
        if _STARTS_BOOK.search(sentences[number]):
            first = number + 1
        elif _ENDS_BOOK.search(sentences[number]) and number > first:
            last = number
            break
    notices[:first] = True
    notices[last:] = True
    return notices


def _is_notice(sentence: str) -> bool:
    lowered = sentence.lower()
    if not any(word in lowered for word in _NOTICE_WORDS):
        return False
    return _NOTICE.search(sentence) is not None
