"""Reads the QMSum release (Zhong et al. 2021): meetings, each with several queries and answers.

    QMSum/data/ALL/{train,val,test}/MEETING.json
        "meeting_transcripts"                          turns, with "speaker" and "content"
        "general_query_list", "specific_query_list"    queries, with "query" and "answer"

QMSum is the repository Yale-LILY/QMSum on GitHub.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.files import read_json
from longsum_jax.text.documents import DataRow, check_characters

# Name of a split -> its name in the release.
SPLITS = {"train": "train", "validation": "val", "test": "test"}
# Kind of queries -> key in the JSON files.
KINDS = {"general": "general_query_list", "specific": "specific_query_list"}


def read_qmsum(
    directory: str | Path,
    split: str,
    *,
    unreadable: list[InputError] | None = None,
) -> Iterator[DataRow]:
    """Yields the queries of a split, meeting by meeting, with ids such as "Bed003/general/0".

    The document is the transcript, one line per turn ("speaker: content"), the
    summary is the answer. Turns without content are omitted; noise markers such
    as "{vocalsound}" are kept.

    Args:
        directory: clone of the repository.
        split: train, validation or test.
        unreadable: list to which the errors of malformed meetings and queries
            are appended, which are then skipped; None raises the first error.

    Raises:
        InputError: a directory without meetings; a meeting that cannot be read,
            has no text or lacks a key; a query without text or answer. The
            message names file and key.
    """
    folder = Path(directory) / "data" / "ALL" / SPLITS[split]
    paths = sorted(folder.glob("*.json"))
    if not paths:
        raise InputError(
            f"{folder}: no meetings (*.json) there; check the path"
        )
    for path in paths:
        try:
            meeting = read_json(path)
            transcript = _transcript(meeting, path)
            queries = list(_queries(meeting, path))
        except InputError as error:
            if unreadable is None:
                raise
            unreadable.append(error)
            continue
        for name, entry in queries:
            where = f"{path}: {name}"
            try:
                query = _text(entry, "query", where)
                answer = _text(entry, "answer", where)
            except InputError as error:
                if unreadable is None:
                    raise
                unreadable.append(error)
                continue
            yield DataRow(f"{path.stem}/{name}", transcript, answer, query)


def _queries(meeting: dict[str, Any], path: Path) -> Iterator[tuple[str, Any]]:
    """Yields name and object of every query, general ones first."""
    for kind, key in KINDS.items():
        for number, entry in enumerate(_list(meeting, key, path)):
            yield f"{kind}/{number}", entry


def _transcript(meeting: dict[str, Any], path: Path) -> str:
    """Returns the text of a meeting, one line per turn.

    Raises:
        InputError: missing or malformed turns, or turns without any text.
    """
    key = "meeting_transcripts"
    lines = []
    for number, turn in enumerate(_list(meeting, key, path)):
        where = f"{path}: {key}/{number}"
        speaker = _text(turn, "speaker", where, may_be_blank=True)
        content = _text(turn, "content", where, may_be_blank=True)
        if content:
            lines.append(f"{speaker}: {content}" if speaker else content)
    if not lines:
        raise InputError(f"{path}: the meeting has no text; remove the file")
    return "\n".join(lines)


def _list(meeting: dict[str, Any], key: str, path: Path) -> list[Any]:
    if not isinstance(meeting.get(key), list):
        raise InputError(
            f'{path}: no list "{key}"; is this a file of the QMSum release?'
        )
    return meeting[key]


def _text(row: Any, key: str, where: str, *, may_be_blank: bool = False) -> str:
    """Returns a field as a single line.

    Raises:
        InputError: the field is missing, is not a string, or is blank although
            it must not be.
    """
    value = row.get(key) if isinstance(row, dict) else None
    if not isinstance(value, str):
        raise InputError(f'{where}: no text under "{key}"; copy the file again')
    check_characters(value, f'{where}: "{key}"', "copy the file again")
    text = " ".join(value.split())
    if not text and not may_be_blank:
        raise InputError(f'{where}: "{key}" is empty; remove the query')
    return text
