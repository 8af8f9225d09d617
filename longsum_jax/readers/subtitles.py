"""Subtitles, SubRip (.srt) and WebVTT (.vtt): what is said, without numbers and times."""

import html
import re
from collections.abc import Iterator, Sequence

from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import LONGEST_PIECE

_CUE = re.compile(
    r"(?:(\d{1,9}):)?(\d{1,2}):(\d{2})[.,](\d{1,3})\s*-->"
    r"\s*(?:(\d{1,9}):)?(\d{1,2}):(\d{2})[.,](\d{1,3}).*"
)
_VOICE = re.compile(r"<v(?:\.[^ >]*)?\s+([^>]+)>")
_TAG = re.compile(r"</?[^<>]*>|\{\\[^{}]*\}")
_STOP = re.compile(r"[.!?…。\uff01\uff1f]")
_COMMENTS = ("NOTE", "STYLE", "REGION")
_PAUSE = 4.0  # seconds of silence that end a paragraph


def read(source: Source) -> Iterator[Document]:
    """Reads the words of a film or a talk.

    Raises:
        InputError: a file without text.
    """
    text, notes = source.decoded()
    if not source.options.keep_all:
        notes.append("numbers and times left out")
    yield source.document(_paragraphs(text), notes=notes)


def _paragraphs(text: str) -> Iterator[Block]:
    lines: list[str] = []
    end_before = 0.0
    for start, end, cue in _cues(text):
        if lines and (start - end_before > _PAUSE or _VOICE.search(cue)):
            yield Block(_joined(lines))
            lines = []
        for line in _shown(cue):
            # Captions that roll show every line twice.
            if not lines or lines[-1] != line:
                lines.append(line)
        end_before = end
    if lines:
        yield Block(_joined(lines))


def _joined(lines: Sequence[str]) -> str:
    """Joins the lines of a paragraph, which stay lines where no stops divide what is said."""
    text = " ".join(lines)
    is_punctuated = LONGEST_PIECE * (1 + len(_STOP.findall(text))) >= num_words(text)
    return text if is_punctuated else "\n".join(lines)


def _shown(cue: str) -> list[str]:
    named = _VOICE.sub(r"\1: ", cue)
    lines = [html.unescape(_TAG.sub("", line)).strip() for line in named.split("\n")]
    return [" ".join(line.split()) for line in lines if line]


def _cues(text: str) -> Iterator[tuple[float, float, str]]:
    """Yields start and end in seconds, and the text of every cue."""
    for paragraph in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = paragraph.strip("\n").split("\n")
        if lines[0].split(" ")[0] in _COMMENTS:
            continue
        for i, line in enumerate(lines[:2]):
            times = _CUE.fullmatch(line.strip())
            if times is not None:
                start, end = _seconds(times.groups()[:4]), _seconds(times.groups()[4:])
                yield start, end, "\n".join(lines[i + 1 :])
                break


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")
