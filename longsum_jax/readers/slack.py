"""Slack exports: a folder or zip archive with ``users.json`` and ``CHANNEL/YYYY-MM-DD.json``.

Every channel becomes one conversation, ordered by thread. A file of a single
day can be read without the others.
"""

import html
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from longsum_jax.errors import InputError, counted, in_one_line
from longsum_jax.files import parse_json
from longsum_jax.readers.archives import open_zip, read_member
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.source import Source, read_content
from longsum_jax.readers.transcripts import chat_blocks

_USERS = "users.json"
_DAY = re.compile(r"(?P<channel>[^/]+)/\d{4}-\d{2}-\d{2}\.json")
_IN_ROOT = re.compile(rf"(?:[^/]+/)?{re.escape(_USERS)}")
# Kinds of messages written by people or bots; the others are notices, such as
# joining a channel.
_WRITTEN = (
    None,
    "",
    "bot_message",
    "file_share",
    "me_message",
    "thread_broadcast",
)
# A user, channel, mention or link: <@U1|Ann>, <#C1|general>, <!here>,
# <https://x.org|label>.
_REFERENCE = re.compile(
    r"<(?P<kind>[@#!]?)(?P<target>[^<>|]*)(?:\|(?P<label>[^<>]*))?>"
)
_EMOJI = re.compile(
    r"(?<![\w:]):[a-z0-9_+'-]*[a-z+][a-z0-9_+'-]*:(?:skin-tone-\d:)?(?!\w) ?"
)
_REMEDY = "export the workspace again"

_Read = Callable[[str], bytes]  # returns the content of a member by name


def is_export(names: Collection[str]) -> bool:
    """Returns True if the members of an archive or folder form a Slack export."""
    root = _root(names)
    return root is not None and any(
        _DAY.fullmatch(name, len(root)) for name in names
    )


def _root(names: Collection[str]) -> str | None:
    """Returns the path prefix of members: "" or the packed folder; None if not an export."""
    roots = [
        name.removesuffix(_USERS) for name in names if _IN_ROOT.fullmatch(name)
    ]
    return min(roots, default=None)


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the channels of an export in a zip archive.

    Raises:
        InputError: the user list is damaged, or there are no messages.
    """
    archive = open_zip(source)
    names = archive.namelist()

    def read_file(name: str) -> bytes:
        return read_member(archive, name, f"{source.name}/{name}", source)

    return _channels(source, names, read_file)


def is_folder(path: str) -> bool:
    """Returns True if a folder is a Slack export."""
    try:
        return os.path.isfile(os.path.join(path, _USERS)) and is_export(
            _files(path)
        )
    except (
        OSError
    ):  # the folder is read as an ordinary one, which reports the error
        return False


def read_folder(source: Source) -> Iterator[Document | Failure]:
    """Reads the channels of an export in the folder ``source.path``.

    Raises:
        InputError: the user list is damaged, or there are no messages.
    """

    def read_file(name: str) -> bytes:
        path = os.path.join(source.path, name)
        return read_content(
            path, f"{source.name}/{name}", source.options.max_bytes
        )

    return _channels(source, _files(source.path), read_file)


def are_messages(value: Any) -> bool:
    """Returns True if a JSON value is a list of Slack messages."""
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(
            isinstance(item, dict)
            and item.get("type") == "message"
            and "ts" in item
            for item in value
        )
    )


def read_messages(
    source: Source, messages: Sequence[Mapping[str, Any]]
) -> Document:
    """Reads the messages of one day, with the user names they contain.

    Raises:
        InputError: no message has text.
    """
    return _document(source, messages, {}, None)


def _files(folder: str) -> list[str]:
    """Returns the files in a folder and its direct subfolders."""
    names = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_file():
                names.append(entry.name)
            elif not entry.name.startswith(".") and os.access(
                entry.path, os.R_OK | os.X_OK
            ):
                names += [
                    f"{entry.name}/{name}"
                    for name in sorted(os.listdir(entry.path))
                ]
    return names


def _channels(
    source: Source, names: Sequence[str], read_file: _Read
) -> Iterator[Document | Failure]:
    """Yields the conversation of every channel, and failures for unreadable files."""
    root = _root(names) or ""
    users = _user_names(
        _parsed(f"{source.name}/{root}{_USERS}", read_file(f"{root}{_USERS}"))
    )
    days: dict[str, list[str]] = {}
    for name in sorted(names):
        match = None
        if name.startswith(root):
            match = _DAY.fullmatch(name, len(root))
        if match is not None:
            days.setdefault(match["channel"], []).append(name)
    is_empty = True
    for channel, members in days.items():
        messages = []
        for member in members:
            source.check_time()
            name = in_one_line(f"{source.name}/{member}")
            try:
                messages += _messages(name, read_file(member))
            except InputError as error:
                is_empty = False
                yield Failure.of(name, error)
        if any(map(_is_written, messages)):
            is_empty = False
            inner = source.inner(
                in_one_line(f"{source.name}/{root}{channel}"), b""
            )
            yield _document(inner, messages, users, channel)
    if is_empty:
        raise InputError(
            f"{source.name}: a Slack export without messages; {_REMEDY}"
        )


def _parsed(name: str, content: bytes) -> list[Any]:
    """Returns the list in a file of an export.

    Raises:
        InputError: the file is not valid JSON or not a list.
    """
    try:
        value = parse_json(content)
    except ValueError as error:
        raise InputError(
            f"{name}: not valid JSON ({error}); {_REMEDY}"
        ) from None
    if not isinstance(value, list):
        raise InputError(
            f"{name}: expected a list, got {type(value).__name__}; {_REMEDY}"
        )
    return value


def _messages(name: str, content: bytes) -> list[Mapping[str, Any]]:
    messages = _parsed(name, content)
    if messages and not are_messages(messages):
        raise InputError(
            f'{name}: expected messages with the fields "type" and "ts" of Slack; {_REMEDY}'
        )
    return messages


def _user_names(users: Sequence[Any]) -> dict[str, str]:
    """Returns the name of every user by id."""
    names = {}
    for user in users:
        if isinstance(user, dict) and isinstance(user.get("id"), str):
            name = _name_in(user)
            if name:
                names[user["id"]] = name
    return names


def _name_in(user: Mapping[str, Any]) -> str | None:
    """Returns the most complete name in a user's entry or profile; None without one."""
    profile = user.get("profile")
    for entry in (user, profile if isinstance(profile, dict) else {}):
        for key in ("real_name", "display_name"):
            name = entry.get(key)
            if isinstance(name, str) and name.strip():
                return " ".join(name.split())
    name = user.get("name")
    if isinstance(name, str):
        return " ".join(name.split()) or None
    return None


def _is_written(message: Mapping[str, Any]) -> bool:
    text = message.get("text")
    is_text = isinstance(text, str) and bool(text.strip())
    return is_text and message.get("subtype") in _WRITTEN


def _document(
    source: Source,
    messages: Sequence[Mapping[str, Any]],
    users: Mapping[str, str],
    channel: str | None,
) -> Document:
    """Returns the conversation of messages, each thread in one piece."""
    written = sorted(filter(_is_written, messages), key=_position)
    names = dict(users)
    for message in written:
        profile = message.get("user_profile")
        user = message.get("user")
        if (
            isinstance(profile, dict)
            and isinstance(user, str)
            and user not in names
        ):
            name = _name_in(profile)
            if name:
                names[user] = name
    keep_all = source.options.keep_all
    turns = [
        (
            _sender(message, names),
            _plain(message["text"], names, keep_emoji=keep_all),
        )
        for message in written
    ]
    notes = [f"{counted(len(written), 'message')} of an exported chat"]
    if len(messages) > len(written):
        notes.append(
            f"{counted(len(messages) - len(written), 'notice')} left out"
        )
    nameless = {
        str(message.get("user")) for message in written if message.get("user")
    } - set(names)
    if nameless:
        notes.append(f"no name for {counted(len(nameless), 'user id')}")
    return source.document(chat_blocks(turns), title=channel, notes=notes)


def _position(message: Mapping[str, Any]) -> tuple[float, float]:
    """Returns the sort key of a message: the times of its thread and of the message."""
    time = _time(message.get("ts"))
    thread = message.get("thread_ts")
    return (time if thread is None else _time(thread), time)


def _time(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _sender(message: Mapping[str, Any], names: Mapping[str, str]) -> str:
    user = message.get("user")
    if isinstance(user, str):
        return names.get(user, user)
    bot = message.get("username") or message.get("bot_id")
    if isinstance(bot, str) and bot.strip():
        return " ".join(bot.split())
    return "unknown"


def _plain(text: str, names: Mapping[str, str], *, keep_emoji: bool) -> str:
    """Returns the text of a message as Slack displays it, with user names and link labels.

    Emoji codes are removed unless ``keep_emoji``.
    """

    def shown(match: re.Match[str]) -> str:
        kind, target, label = match["kind"], match["target"], match["label"]
        if kind == "@":
            return f"@{names.get(target) or label or target}"
        if kind == "#":
            return f"#{label or target}"
        if kind == "!":
            return label or f"@{target.partition('^')[0]}"
        return label or target

    text = _REFERENCE.sub(shown, text)
    if not keep_emoji:
        text = _EMOJI.sub("", text)
    return html.unescape(text).strip()
