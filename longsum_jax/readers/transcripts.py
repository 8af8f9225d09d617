"""Transcripts and chats in plain text: speakers' turns without times.

Supports copies from Teams, Zoom, Meet, Slack, Otter, Rev and YouTube, exports
of WhatsApp and IRC, court transcripts and plain "Name: text". A turn begins
with one of
    [03.05.24, 09:15] Anna: text     message of a chat
    Anna  0:03                       head: line of name and time, in either order
    0:03                             line of a time, with a name in the line before or after
    [0:03] Anna: text                name and time before the text
    Anna: text                       name before the text
    [0:03] text                      time before the text
"""

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from longsum_jax.errors import counted
from longsum_jax.readers.document import Block
from longsum_jax.readers.speakers import (
    DIRECTION_MARKS,
    MOST_WORDS,
    is_label,
    plain_name,
    repeated_share,
    speakers_in,
    split_turn,
)
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import LONGEST_PIECE

_STOP = re.compile(r"[.!?…。\uff01\uff1f]")
_STOP_AT_END = re.compile(r"[.!?…:;。\uff01\uff1f][\"'\u2019”»)\]]*\Z")

_DATE = r"\d{1,4}[-/.] ?\d{1,2}[-/.] ?\d{1,4}\.?,?"
_TIME = (
    r"(?:[上下]午 ?|오[전후] ?)?\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?"
    r"(?:[ \u202f\xa0]?[ap]\.?[ \u202f\xa0]?m\.?(?!\w)| Uhr)?"
)
_STAMP = rf"(?:\[(?:{_DATE} ?)?{_TIME}\] ?|{_DATE} {_TIME}(?: ?[-\u2013:])? )"
# A stamp and a sender, "<nick> " (IRC) or "Name:" (WhatsApp); or "<nick> "
# without a stamp.
_MESSAGE = re.compile(
    rf"(?:{_STAMP})(?:<([^<>]{{1,60}})> |([^:<>\n]{{1,60}}):(?: |\Z))"
    r"|<([^\s<>/][^\s<>]{0,39})> (?=\S)",
    re.IGNORECASE,
)
_STAMPED = re.compile(_STAMP, re.IGNORECASE)
_DATED = re.compile(rf"\[?{_DATE} ?{_TIME}", re.IGNORECASE)
_FEWEST_TURNS = 3
_FEWEST_MESSAGES = 0.5  # share of lines
_FEWEST_DATED = 0.1  # share of lines, if messages have a date
_MOST_NOTICES = 1.0  # for each message
_FEWEST_REPEATED_SENDERS = 0.5  # share of messages whose senders write again
# Messages without spoken words; U+200E and angle brackets have been removed.
_MEDIA = re.compile(
    r"<[^<>\n]{4,60}>"
    r"|(?:image|photo|video|audio|sticker|gif|document|contact card|voice message|media) omitted"
    r"|(?:bild|video|audio|sticker|gif|dokument|kontaktkarte) weggelassen"
    r"|[^\s/]+\.\w{2,5} \([^()]{4,30}\)"
    r"|(?:this message was|you) deleted(?: this message)?\.?|diese nachricht wurde gelöscht\.?"
    r"|du hast diese nachricht gelöscht\.?"
    r"|(?:ce message a été|vous avez) supprimé(?: ce message)?\.?|se eliminó este mensaje\.?"
    r"|eliminaste este mensaje\.?|(?:esta )?mensagem (?:foi )?apagada\.?"
    r"|questo messaggio è stato eliminato\.?|dit bericht is verwijderd\.?"
    r"|(?:данное )?сообщение удалено\.?|missed (?:voice|video|group) call.{0,40}"
    r"|waiting for this message.{0,60}|null",
    re.IGNORECASE,
)
# The notice of WhatsApp about end-to-end encryption, and marks of edited
# messages.
_ENCRYPTED = re.compile(
    r"(?:messages|nachrichten|les messages|los mensajes|as mensagens|i messaggi|berichten|"
    r"сообщения|wiadomości).{0,60}(?:end-to-end|ende-zu-ende|bout en bout|extremo a extremo|"
    r"ponta a ponta|end-to-end|сквозн)",
    re.IGNORECASE,
)
_EDITED = re.compile(
    r" ?\u200e?<[^<>\n]*(?:edit|bearbeitet|modifi|edita|attached)[^<>\n]*>\s*\Z",
    re.I,
)

_FIRST_OF_TIMES = frozenset("[(0123456789上下오")
# A line with only a time or a range of times.
_BARE_TIME = re.compile(
    rf"[\[(]?{_TIME}[\])]?"
    r"|\d{1,3}(?::\d{1,2}){1,2}(?:[.,]\d{1,3})? ?(?:-->|[-\u2013]) ?"
    r"\d{1,3}(?::\d{1,2}){1,2}(?:[.,]\d{1,3})?",
    re.IGNORECASE,
)
_NAME = r"[^\W_+][^:\uff1a\n?!;<>\[\]]{0,59}?|\+[\d \u2011\xa0-]{6,20}"
# A date or day before a time, as in "Today at 10:02".
_DAY = (
    rf"(?:{_DATE} |(?:today|yesterday|(?:mon|tues|wednes|thurs|fri|satur|sun)day|heute|gestern"
    r"|aujourd[\u2019']hui|hier|hoy|ayer|oggi|ieri)(?:,| at| um| à| a las| alle)? )?"
)
_HEAD = re.compile(
    rf"(?:\[?(?P<before>{_NAME})\]?(?:\s+|\s*[|,\u2013\u2014-]\s*)"
    rf"[\[(]?{_DAY}{_TIME}[\])]?"
    rf"|(?:\[{_DAY}{_TIME}\]|\({_DAY}{_TIME}\)|{_TIME})(?:\s+|\s*[|\u2013-]\s*)"
    rf"(?P<after>{_NAME})):?",
    re.IGNORECASE,
)
# A time before a turn ("[0:03] Anna: text"), or a time between name and colon.
_TIMED = re.compile(
    rf"(?:(?:\[{_TIME}\]|\({_TIME}\)|{_TIME})[\s|\u2013-]+"
    r"(?P<turn>\S.*)"
    rf"|(?P<name>{_NAME})\s*[\[(]?{_TIME}[\])]?\s*:\s+(?=\S))",
    re.IGNORECASE,
)
_TIME_FIRST = re.compile(
    rf"(?:\[{_TIME}\]|\({_TIME}\))[ \t]+(?=\S)", re.IGNORECASE
)
_COLON = re.compile(r"\d:\d")  # colon of a time
_COLON_TIME = re.compile(r"\d{1,3}(?::\d{1,2}){1,2}")
_LONGEST_HEAD, _LONGEST_TIME = 120, 40  # characters
_FEWEST_HEADS = 0.08  # share of lines
_FEWEST_REPEATED = 0.6  # share of heads with repeated names
_FEWEST_ORDERED = 0.7  # share of times; times start again on a new day
_FEWEST_FOLLOWED = 0.8  # share of heads before a line of text
_FEWEST_NAMED = 0.5  # share of lines or paragraphs that begin with a name
_FEWEST_SAID = 3.0  # average words after a time; chapters of a film have fewer
# "Q." and "A." of an examination in court.
_EXAMINED = re.compile(r"([QA])(?:\.|\u2024)?[ \t]{1,8}(?=\S)")
# Notices that programs write into transcripts.
_NOTICE = re.compile(
    r"this editable transcript was computer generated.*"
    r"|(?:meeting|transcription) (?:ended|started|stopped) (?:after|at)\b.{0,40}"
    r"|.{1,60} (?:started|stopped) (?:the )?transcription\.?"
    r"|transcribed by https?://\S+|.{0,40}\botter\.ai\b.{0,40}",
    re.IGNORECASE,
)


class TranscriptPart(NamedTuple):
    """A part of a transcript.

    Attributes:
        block: a turn (name, colon and spoken text), or an unchanged paragraph
            outside of turns.
        is_turn: True if the block is a turn.
    """

    block: Block
    is_turn: bool


class Transcript(NamedTuple):
    """A text recognized as a transcript or chat, and notes about removed content."""

    parts: list[TranscriptPart]
    notes: list[str]


class _TranscriptLine(NamedTuple):
    """A line that is not blank.

    Attributes:
        text: text without white space at its ends.
        page: number of the page.
        level: heading level; 0 if the line is not a heading.
        begins: True if the line begins a paragraph.
    """

    text: str
    page: int
    level: int
    begins: bool


class _Turn(NamedTuple):
    """The first line of a turn, or a notice.

    Attributes:
        name: name of the speaker; "" for an unnamed one; None if the line is
            not speech.
        text: spoken text in the rest of the line.
    """

    name: str | None
    text: str


_Turns = dict[int, _Turn]  # by the number of the line


def find_transcript(blocks: Iterable[Block]) -> Transcript | None:
    """Returns the turns of a text; None if the text is not a transcript.

    Args:
        blocks: paragraphs of the text with their line breaks.
    """
    lines = list(_lines(blocks))
    if len(lines) < _FEWEST_TURNS:
        return None
    messages = _messages(lines)
    if messages:
        count = sum(turn.name is not None for turn in messages.values())
        return _transcript(
            lines,
            messages,
            [f"{counted(count, 'message')} of an exported chat"],
        )
    num_times = sum(
        len(_COLON.findall(line.text[:_LONGEST_HEAD])) for line in lines
    )
    has_times = num_times >= max(_FEWEST_TURNS, _FEWEST_HEADS * len(lines))
    timed = (_heads, _names_near_times, _timed_names)
    for find in (*timed, _names, _times) if has_times else (_names,):
        turns = find(lines)
        if turns:
            return _transcript(lines, turns, [], is_chat=False)
    return None


def chat_blocks(messages: Iterable[tuple[str, str]]) -> list[Block]:
    """Returns the turns of a chat.

    Args:
        messages: name of the sender and text of each message.
    """
    builder = _Builder(is_chat=True)
    for name, text in messages:
        builder.begin(_Turn(name, text), _TranscriptLine(text, 0, 0, True))
    builder.end()
    return [part.block for part in builder.parts]


def joined_lines(lines: Sequence[str]) -> str:
    """Joins the lines of a turn; they remain lines if the text has no punctuation."""
    text = " ".join(lines)
    is_punctuated = LONGEST_PIECE * (1 + len(_STOP.findall(text))) >= num_words(
        text
    )
    return text if is_punctuated else "\n".join(lines)


def _lines(blocks: Iterable[Block]) -> Iterator[_TranscriptLine]:
    for block in blocks:
        begins = True
        for text in block.text.split("\n"):
            text = text.strip()
            if text:
                yield _TranscriptLine(text, block.page, block.level, begins)
                begins = False


def _transcript(
    lines: Sequence[_TranscriptLine],
    turns: _Turns,
    notes: list[str],
    *,
    is_chat: bool = True,
) -> Transcript:
    """Assembles turns: one for consecutive speech of the same speaker."""
    builder = _Builder(is_chat=is_chat)
    for number, line in enumerate(lines):
        turn = turns.get(number)
        if turn is not None:
            if turn.name is not None:
                builder.begin(turn, line)
            else:
                builder.num_notices += is_chat
        elif _NOTICE.fullmatch(line.text):
            builder.num_notices += 1
        elif is_chat or not _is_bare_time(line):
            builder.add(line)
    builder.end()
    if not is_chat:
        if builder.num_turns:
            turns_read = counted(builder.num_turns, "turn")
        else:
            turns_read = "text"
        notes = [*notes, f"{turns_read} of a transcript"]
    if builder.num_notices:
        notes = [*notes, f"{counted(builder.num_notices, 'notice')} left out"]
    return Transcript(builder.parts, notes)


class _Builder:
    """Assembles lines into turns.

    Args:
        is_chat: True if turns consist of messages, each of which ends its last
            sentence.

    Attributes:
        parts: turns, and paragraphs outside of turns.
        num_turns: number of turns with a name.
        num_notices: number of messages without words of the speaker.
    """

    def __init__(self, *, is_chat: bool) -> None:
        self.parts: list[TranscriptPart] = []
        self.num_turns = 0
        self.num_notices = 0
        self._is_chat = is_chat
        self._name: str | None = None  # None outside of turns
        self._page = 0
        self._level = 0
        self._texts: list[list[str]] = []  # lines of each message or first line

    def begin(self, turn: _Turn, line: _TranscriptLine) -> None:
        """Begins a turn, or continues the turn of the same speaker."""
        is_other = turn.name != self._name
        if not turn.name and self._texts:  # times only
            is_other |= (
                line.begins
                and _STOP_AT_END.search(self._texts[-1][-1][-9:]) is not None
            )
        if is_other:
            self.end()
            self._name, self._page = turn.name, line.page
        text = turn.text
        if self._is_chat:
            media = DIRECTION_MARKS.sub("", text).strip()
            # WhatsApp marks notices and media.
            if (
                text.startswith("\u200e")
                or _MEDIA.fullmatch(media)
                or _ENCRYPTED.match(media)
            ):
                self.num_notices += 1
                text = ""
            text = DIRECTION_MARKS.sub("", _EDITED.sub("", text)).strip()
        self._texts.append([text] if text else [])

    def add(self, line: _TranscriptLine) -> None:
        """Adds a line that continues a turn, or a paragraph outside of turns."""
        is_said = any(self._texts)
        is_paragraph = (
            line.begins
            and not self._is_chat
            and (is_said or self._name is None)
        )
        if (
            line.level
            or self._level
            or is_paragraph
            or (self._name is None and line.begins)
        ):
            self.end()
            self._page, self._level = line.page, line.level
        if not self._texts:
            self._texts.append([])
            self._page = line.page
        if self._is_chat:
            text = DIRECTION_MARKS.sub("", line.text)
        else:
            text = line.text
        if line.begins and self._texts[-1]:
            text = f"\n{text}"
        self._texts[-1].append(text)

    def end(self) -> None:
        """Ends a turn or a paragraph."""
        texts = [text for text in self._texts if text]
        if texts:
            if self._name is None:
                text = "\n".join(line for lines in texts for line in lines)
            elif self._is_chat:
                text = _joined_messages(["\n".join(lines) for lines in texts])
            else:
                text = joined_lines([line for lines in texts for line in lines])
            if self._name:
                named = f"{self._name}: {text}"
            else:
                named = text
            self.parts.append(
                TranscriptPart(
                    Block(named, self._level, self._page),
                    self._name is not None,
                )
            )
            self.num_turns += bool(self._name)
        self._name, self._level, self._texts = None, 0, []


def _joined_messages(messages: Sequence[str]) -> str:
    """Joins the messages of a speaker; a message without a final stop ends a paragraph."""
    text = messages[0]
    for message in messages[1:]:
        text += (" " if _STOP_AT_END.search(text[-9:]) else "\n\n") + message
    return text


def _messages(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns the messages of a chat exported from WhatsApp, IRC or a similar program."""
    turns: _Turns = {}
    num_dated = 0
    for number, line in enumerate(lines):
        text = line.text.lstrip("\u200e\u200f\u202a\ufeff")
        first = text[:1]
        # A fast check; like "\d", it accepts the digits of all scripts.
        if first not in ("[", "<") and not first.isdecimal():
            continue
        match = _MESSAGE.match(text)
        if match is not None:
            name = plain_name(next(filter(None, match.groups())))
            turns[number] = _Turn(name, text[match.end() :])
            num_dated += _DATED.match(text) is not None
        elif _STAMPED.match(text):
            turns[number] = _Turn(None, "")
    names = Counter(turn.name or "" for turn in turns.values())
    for number, turn in turns.items():
        # "Anna changed the subject to: ..."
        name = turn.name or ""
        if names[name] == 1 and (len(name.split()) > 4 or '"' in name):
            turns[number] = _Turn(None, "")
    senders = [turn.name for turn in turns.values() if turn.name is not None]
    count = len(senders)
    is_enough = count >= _FEWEST_MESSAGES * len(
        lines
    ) or num_dated >= _FEWEST_DATED * len(lines)
    is_chat = repeated_share(senders) >= _FEWEST_REPEATED_SENDERS
    # Log levels and other labels look like senders.
    is_log = sum(map(is_label, senders)) > count / 2
    if count < _FEWEST_TURNS or not (is_enough and is_chat) or is_log:
        return {}
    if len(turns) - count <= max(2, _MOST_NOTICES * count):
        return turns
    return {}


def _heads(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns turns that begin with a line of a name and a time."""
    turns: _Turns = {}
    for number, line in enumerate(lines):
        may_be_head = (
            len(line.text) <= _LONGEST_HEAD
            and _COLON.search(line.text) is not None
        )
        match = None
        if may_be_head and not line.level:
            match = _HEAD.fullmatch(line.text)
        if match is not None and not _is_bare_time(line):
            name = plain_name(match["before"] or match["after"])
            if _is_name(name):
                turns[number] = _Turn(name, "")
    is_ordered = _ordered_share(turns, lines) >= _FEWEST_ORDERED
    if is_ordered and _are_speakers(turns, lines):
        return turns
    return {}


def _names_near_times(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns turns that begin with a line of a time, before or after a line of a name."""
    times = [i for i, line in enumerate(lines) if _is_bare_time(line)]
    if len(times) < max(_FEWEST_TURNS, _FEWEST_HEADS * len(lines)):
        return {}
    is_time = set(times)
    for step in (1, -1):
        turns: _Turns = {}
        heads = []  # last lines of a name and a time
        for i in times:
            number = i + step
            is_inside = 0 <= number < len(lines) and number not in is_time
            if not is_inside or (step < 0 and number - 1 in is_time):
                continue
            name = plain_name(lines[number].text)
            if _is_name(name):
                turns[number] = _Turn(name, "")
                heads.append(max(i, number))
        is_followed = _are_followed(heads, lines, is_time | set(turns))
        if is_followed and _are_speakers(turns, lines, has_text=True):
            return dict.fromkeys(times, _Turn(None, "")) | turns
    return {}


def _timed_names(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns turns that begin with a time and a name, followed by the spoken text."""
    turns: _Turns = {}
    for number, line in enumerate(lines):
        match = None
        if _COLON.search(line.text, 0, _LONGEST_HEAD):
            match = _TIMED.match(line.text)
        if match is None:
            continue
        if match["turn"]:
            parts = split_turn(match["turn"])
            if parts is not None:
                turns[number] = _Turn(*parts)
        else:
            name = plain_name(match["name"])
            if _is_name(name):
                turns[number] = _Turn(name, line.text[match.end() :].strip())
    if _are_speakers(turns, lines, has_text=True):
        return turns
    return {}


def _names(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns turns that begin with a name and a colon, or with Q. and A. of an examination."""
    turns: _Turns = {}
    examined = [_EXAMINED.match(line.text) for line in lines]
    letters = Counter(match[1] for match in examined if match is not None)
    is_examination = min(letters["Q"], letters["A"]) > 1
    for number, line in enumerate(lines):
        match = None
        if is_examination:
            match = examined[number]
        parts = None
        if not line.level:
            parts = split_turn(line.text)
        if match is not None:
            parts = match[1], line.text[match.end() :]
        if parts is not None:
            turns[number] = _Turn(*parts)
    line_parts = {
        # A name may be on a separate line.
        number: (
            turn.name or "",
            turn.text or _text_after(number, lines, turns),
        )
        for number, turn in turns.items()
    }
    first = [
        parts for number, parts in line_parts.items() if lines[number].begins
    ]
    num_lines = sum(not _is_bare_time(line) for line in lines)
    num_paragraphs = sum(
        line.begins and not _is_bare_time(line) for line in lines
    )
    speakers: set[str] = set()
    for begun, count in (
        (list(line_parts.values()), num_lines),
        (first, num_paragraphs),
    ):
        speakers = speakers or speakers_in(begun, count, _FEWEST_NAMED)
    repeated = Counter(
        turn.name for turn in turns.values() if turn.name in speakers
    )
    if sum(count > 1 for count in repeated.values()) < 2:
        return {}
    return {
        number: turn for number, turn in turns.items() if turn.name in speakers
    }


def _text_after(
    number: int, lines: Sequence[_TranscriptLine], turns: _Turns
) -> str:
    """Returns the line after a line with only a name; "" if that line begins a turn."""
    has_next = number + 1 < len(lines) and number + 1 not in turns
    return lines[number + 1].text if has_next else ""


def _times(lines: Sequence[_TranscriptLine]) -> _Turns:
    """Returns the lines of a recording without names, with times before or between the lines."""
    bare = {
        i: _Turn(None, "")
        for i, line in enumerate(lines)
        if _is_bare_time(line)
    }
    inline = {}
    for number, line in enumerate(lines):
        match = _TIME_FIRST.match(line.text)
        if match is not None and not is_label(
            line.text[match.end() :].partition(":")[0]
        ):
            inline[number] = _Turn("", line.text[match.end() :])
    for turns, share in ((inline, 0.5), (bare, 0.25)):
        if len(turns) < max(_FEWEST_TURNS, share * len(lines)):
            continue
        first = min(turns)
        num_said = 0
        for i in range(first, len(lines)):
            if i in turns:
                text = turns[i].text
            else:
                text = lines[i].text
            num_said += num_words(text)
        # Times of a recording begin in the first minute or have hours and
        # seconds, and ascend; the times of an agenda do not.
        is_recording = (
            _seconds(lines[first].text) < 60 or lines[first].text.count(":") > 1
        )
        is_ordered = _ordered_share(turns, lines) == 1.0
        if (
            is_recording
            and is_ordered
            and num_said >= _FEWEST_SAID * len(turns)
        ):
            rest = {
                i: _Turn("", lines[i].text) for i in range(first, len(lines))
            }
            return rest | turns
    return {}


def _ordered_share(
    turns: Collection[int], lines: Sequence[_TranscriptLine]
) -> float:
    """Returns the share of lines with times whose time is not before the previous one."""
    seconds = [_seconds(lines[number].text) for number in sorted(turns)]
    pairs = list(itertools.pairwise(seconds))
    return sum(first <= second for first, second in pairs) / max(1, len(pairs))


def _seconds(text: str) -> float:
    """Returns the first time of a line in seconds: minutes and seconds, optionally hours."""
    match = _COLON_TIME.search(text)
    total = 0.0
    for part in match[0].split(":") if match is not None else ():
        total = 60 * total + int(part)
    return total


def _is_bare_time(line: _TranscriptLine) -> bool:
    is_short = (
        len(line.text) <= _LONGEST_TIME and line.text[0] in _FIRST_OF_TIMES
    )
    return is_short and _BARE_TIME.fullmatch(line.text) is not None


def _is_name(name: str) -> bool:
    """Returns True if a text is short enough for a name and not a sentence or a label."""
    is_short = len(name.split()) <= MOST_WORDS and any(
        map(str.isalpha, name + "a")
    )
    return (
        is_short and not is_label(name) and not name.endswith((",", "…", "。"))
    )


def _are_speakers(
    turns: _Turns, lines: Sequence[_TranscriptLine], *, has_text: bool = False
) -> bool:
    """Returns True if there are enough turns and most of their names are repeated.

    Args:
        turns: candidate turns.
        lines: lines of the text.
        has_text: True if the text of a turn may follow on the same line.
    """
    if len(turns) < max(_FEWEST_TURNS, _FEWEST_HEADS * len(lines)):
        return False
    names = [turn.name or "" for turn in turns.values()]
    if (
        repeated_share(names) < _FEWEST_REPEATED
        or sum(map(_is_stopped, names)) > len(names) / 2
    ):
        return False
    return has_text or _are_followed(turns, lines, set(turns))


def _are_followed(
    heads: Collection[int], lines: Sequence[_TranscriptLine], others: set[int]
) -> bool:
    """Returns True if most heads are followed by a line that is not in ``others``."""
    count = sum(
        number + 1 < len(lines) and number + 1 not in others for number in heads
    )
    return count >= _FEWEST_FOLLOWED * len(heads)


def _is_stopped(name: str) -> bool:
    return name.endswith(".") and not name.endswith(
        ("Jr.", "Sr.", "jr.", "sr.")
    )
