"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the spoken text without numbers and times."""

import html
import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from longsum_jax.errors import counted
from longsum_jax.readers.document import PARAGRAPH, Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.speakers import (
    looks_like_name,
    plain_name,
    speakers_in,
    split_turn,
)
from longsum_jax.readers.transcripts import joined_lines

_CUE = re.compile(
    r"(?:(\d{1,9}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})\s*-->"
    r"\s*(?:(\d{1,9}):)?(\d{1,2}):(\d{2})[.,](\d{1,3}).*"
)
_VOICE = re.compile(r"<v(?:\.[^ >]*)?\s+([^>]+)>")
_TAG = re.compile(r"</?[^<>]*>|\{\\[^{}]*\}")
_CHANGE = re.compile(r"(?:[-\u2013\u2014] ?|>>+ ?)(?=\w)")  # change of speaker
_SOUND = re.compile(r"\[[^\[\]]{1,60}\]|\([^()]{1,60}\)|[\u266a\u266b# ]+")
_COMMENTS = ("NOTE", "STYLE", "REGION")
_Cue = tuple[float, float, list[str]]  # start and end in seconds, and lines
_PAUSE = 4.0  # seconds of silence that end a paragraph
_MOST_ROLLING = 4  # lines of rolling captions
_FEWEST_NAMED = 0.4  # share of cues that begin with a name in a meeting


def read(source: Source) -> Iterator[Document]:
    """Reads the spoken text of a film or talk.

    Raises:
        InputError: the file has no text.
    """
    text, notes = source.decoded()
    cues = [(start, end, _shown(cue)) for start, end, cue in _cues(text)]
    speakers = _speakers([lines for *_, lines in cues])
    speakers.update(
        plain_name(html.unescape(name)) for name in _VOICE.findall(text)
    )
    reader = _SubtitleReader(speakers, keep_sounds=source.options.keep_all)
    blocks = list(reader.blocks(cues))
    if not source.options.keep_all:
        notes.append("numbers and times left out")
    if reader.num_sounds:
        notes.append(f"{counted(reader.num_sounds, 'sound')} left out")
    yield source.document(blocks, notes=notes)


class _SubtitleReader:
    """Assembles cues into paragraphs.

    Args:
        speakers: names that precede spoken text.
        keep_sounds: True to keep lines that only describe a sound.

    Attributes:
        num_sounds: number of removed lines.
    """

    def __init__(self, speakers: Collection[str], *, keep_sounds: bool) -> None:
        self._speakers = speakers
        self._keep_sounds = keep_sounds
        self.num_sounds = 0

    def blocks(self, cues: Iterable[_Cue]) -> Iterator[Block]:
        """Yields the text between pauses, or the text of one speaker with a name.

        A pause of a named speaker starts a new paragraph within the turn.
        """
        paragraphs: list[list[str]] = []
        speaker = last = None
        end_before = 0.0
        before: Sequence[str] = ()
        for start, end, shown in cues:
            is_new = start - end_before > _PAUSE
            end_before = end
            num_repeated = _num_repeated(before, shown)
            before = shown or before
            for line in shown[num_repeated:]:
                name, speech = self._turn(line)
                # Rolling captions repeat every line.
                if (line == last and not is_new) or self._is_sound(speech):
                    continue
                last = line
                is_other = name is not None and name != speaker
                if is_other or (is_new and name is None):
                    if paragraphs:
                        yield _block(paragraphs)
                    paragraphs = []
                if not paragraphs or is_new:
                    paragraphs.append([])
                is_first = (
                    name is not None and paragraphs == [[]] and speech != line
                )
                paragraphs[-1].append(
                    f"{name}: {speech}" if is_first else speech
                )
                speaker = name or speaker
                is_new = False
        if paragraphs:
            yield _block(paragraphs)

    def _turn(self, line: str) -> tuple[str | None, str]:
        """Returns the speaker who begins in a line, or None, and the spoken text."""
        if _CHANGE.match(line):  # an unnamed speaker
            return line, line
        parts = split_turn(line)
        if parts is not None and parts[0] in self._speakers:
            return parts
        return (None, line)

    def _is_sound(self, speech: str) -> bool:
        is_sound = (
            not self._keep_sounds and _SOUND.fullmatch(speech) is not None
        )
        self.num_sounds += is_sound
        return is_sound


def _num_repeated(before: Sequence[str], shown: Sequence[str]) -> int:
    """Returns the number of lines that rolling captions repeat before a new line.

    Args:
        before: lines of the previous cue.
        shown: lines of a cue, which may begin with the last lines of ``before``.
    """
    for count in range(min(_MOST_ROLLING, len(before), len(shown) - 1), 0, -1):
        if before[-count:] == shown[:count]:
            return count
    return 0


def _block(paragraphs: Sequence[Sequence[str]]) -> Block:
    return Block(PARAGRAPH.join(map(joined_lines, paragraphs)))


def _speakers(cues: Sequence[Sequence[str]]) -> set[str]:
    """Returns the names in a meeting; in a film, names that are repeated or in capitals."""
    parts = [split_turn(line) for lines in cues for line in lines]
    turns = [part for part in parts if part is not None and part[1]]
    speakers = speakers_in(turns, len(cues), _FEWEST_NAMED)
    if speakers:
        return speakers
    names = Counter(name for name, _ in turns)
    return {
        name
        for name, count in names.items()
        if name.isupper() or (count > 1 and looks_like_name(name))
    }


def _shown(cue: str) -> list[str]:
    named = _VOICE.sub(r"\n\1: ", cue)
    lines = [
        html.unescape(_TAG.sub("", line)).strip() for line in named.split("\n")
    ]
    return [" ".join(line.split()) for line in lines if line]


def _cues(text: str) -> Iterator[tuple[float, float, str]]:
    """Yields start and end in seconds, and the text of every cue."""
    times = None
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].split(" ")[0] in _COMMENTS:
            continue
        # Some files lack empty lines between cues, so any line may contain new
        # times.
        matches = enumerate(_CUE.fullmatch(line.strip()) for line in lines)
        cues = {i: match.groups() for i, match in matches if match is not None}
        if not cues and times is not None:  # an empty line within a cue
            yield *times, "\n".join(lines)
        for start, following in itertools.pairwise([*cues, len(lines)]):
            parts = cues[start]
            times = _seconds(parts[:4]), _seconds(parts[4:])
            cue_lines = lines[start + 1 : following]
            is_last = following == len(lines)
            if (
                not is_last and cue_lines and cue_lines[-1].strip().isdigit()
            ):  # the next cue's number
                cue_lines.pop()
            yield *times, "\n".join(cue_lines)


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return (
        3600 * int(hours)
        + 60 * int(minutes)
        + int(seconds)
        + float(f"0.{fraction}")
    )
