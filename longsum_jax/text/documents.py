"""Reads documents from data files and text files, plain or compressed."""

import glob
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from longsum_jax.compressed import SUFFIXES
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.files import MAX_LINE_BYTES, beyond
from longsum_jax.remote import find_remote, is_remote
from longsum_jax.text.joining import join_documents
from longsum_jax.text.rows import (
    DOCUMENT_NAMES,
    MAX_BYTES,
    SUMMARY_NAMES,
    choose_keys,
    decode_utf8,
    open_bytes,
    read_rows,
)

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HALF_CHARACTER = re.compile(r"[\ud800-\udfff]")

Label = int | str | tuple[int | str, ...]  # a tuple for several labels


class DataRow(NamedTuple):
    """One row of a data file; several summaries, if requested, are a tuple.

    ``choices`` are texts, of which ``label`` identifies the correct one;
    ``rejected`` is a summary worse than ``summary``; ``borders`` are the offsets
    of all documents except the first, if ``document`` has several.
    """

    id: str
    document: str
    summary: str | tuple[str, ...] | None
    query: str | None
    label: Label | None = None
    choices: tuple[str, ...] | None = None
    rejected: str | None = None
    borders: tuple[int, ...] | None = None

    @property
    def only_summary(self) -> str:
        """The summary of a row that has one, if several summaries are not requested."""
        return cast(str, self.summary)


Document = DataRow  # public name before version 0.3


def split_row(row: DataRow, separator: str) -> DataRow:
    """Returns a row whose text is several documents, with their borders.

    Args:
        row: row whose text has ``separator`` between its documents.
        separator: text between documents; "" for rows of single documents.

    Raises:
        InputError: every document of the row is empty.
    """
    if not separator:
        return row
    texts = [text for text in row.document.split(separator) if text.strip()]
    if not texts:
        raise InputError(
            f'document "{row.id}" has no text between the separators "{separator}"; remove the row'
        )
    text, borders = join_documents(texts)
    return row._replace(document=text, borders=borders)


def read_json_lines(
    paths: str | Path | Sequence[str | Path],
    *,
    document_key: str = "document",
    summary_key: str = "summary",
    query_key: str = "query",
    id_key: str = "id",
    label_key: str = "",
    choices_key: str = "",
    rejected_key: str = "",
    require_document: bool = True,
    require_summary: bool = True,
    several_summaries: bool = False,
    list_separator: str = "\n",
    max_bytes: int = MAX_BYTES,
) -> Iterator[DataRow]:
    """Reads documents from JSON Lines, CSV, TSV, JSON arrays or Parquet, see ``rows.read_rows``.

    Files are read in the order of ``paths``; the files of a glob pattern are
    sorted. Blank lines are skipped. The default id of a row is "<file
    stem>:<number>"; an id other than a string becomes its JSON text. A query
    may be absent or blank. If the first row of a file lacks a required document
    or a summary under its default key, its first usual name is read in the file
    (``article``, ``report``, ``dialogue``, ...; ``highlights``, ``abstract``,
    ...), which is logged.

    Args:
        paths: one path or glob pattern, or several.
        document_key: key of the text, or of a list of its paragraphs;
            "text|document" is the first of these keys in a row.
        summary_key: key of the summary; "" reads none.
        query_key: key of the query; "" reads none.
        id_key: key of the id; "" reads none.
        label_key: key of the label, which is a non-negative integer, a string,
            or a list of either; "" reads no labels.
        choices_key: key of a list of texts to choose from; "" reads none.
        rejected_key: key of a rejected summary, which may be absent or blank;
            "" reads none.
        require_document: True if a missing or blank text is an error; otherwise
            it becomes "".
        require_summary: True if a missing or blank summary is an error;
            otherwise it becomes None.
        several_summaries: True if a list of summaries becomes a tuple;
            otherwise it is an error.
        list_separator: text that joins the items of a text that is a list.
        max_bytes: maximum size of a file in bytes, after decompression.

    Raises:
        InputError: a row is invalid (the message names file and line), a file
            is missing, unreadable, empty or damaged, or a file or line is too
            large.
    """
    keys = {
        "document": document_key,
        "summary": summary_key,
        "query": query_key,
        "id": id_key,
        "label": label_key,
        "choices": choices_key,
        "rejected": rejected_key,
    }
    for path in find_files(paths):
        is_first = True
        for number, row in read_rows(path, max_bytes):
            where = f"{path}:{number}"
            if is_first and require_document:
                keys["document"] = choose_keys(
                    row, document_key, DOCUMENT_NAMES, str(path)
                )
            if is_first and summary_key:
                names = set(row)
                if not require_summary:
                    # "target": 3 must not be read as a summary
                    names = {name for name in row if _may_be_text(row[name])}
                keys["summary"] = choose_keys(
                    names, summary_key, SUMMARY_NAMES, str(path)
                )
            is_first = False
            key = keys["summary"]
            summaries: tuple[str, ...] = ()
            if several_summaries and isinstance(row.get(key), list):
                summaries = _texts(row[key], key, where)
                row[key] = summaries[0]
            default_id = f"{_stem(path)}:{number}"
            for name in keys["document"].split("|"):
                if _is_list_of_strings(row.get(name)):
                    row[name] = list_separator.join(row[name])
            document = _document(
                row, keys, where, default_id, require_document, require_summary
            )
            yield (
                document._replace(summary=summaries) if summaries else document
            )


def _may_be_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def read_text_file(path: str | Path, max_bytes: int = MAX_LINE_BYTES) -> str:
    """Reads a UTF-8 text file, plain or compressed; "-" is standard input.

    A byte order mark is removed.

    Args:
        path: path of the file.
        max_bytes: maximum size of the text after decompression, in bytes.

    Raises:
        InputError: the file is missing, unreadable, empty or damaged, contains
            NUL bytes, has another encoding, or exceeds ``max_bytes``.
    """
    if str(path) == "-":
        path, content = "standard input", sys.stdin.buffer.read(max_bytes + 1)
    else:
        with open_bytes(path) as stream:
            content = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(beyond(str(path), max_bytes))
    text = decode_utf8(content.removeprefix(_BYTE_ORDER_MARK), str(path))
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give a text")
    return text


def replace_half_characters(text: str) -> str:
    """Joins pairs of surrogates to characters, and replaces lone surrogates with U+FFFD.

    JSON and RTF can encode lone surrogates, but UTF-8 cannot, so no file could
    contain the text.
    """
    if text.isascii() or _HALF_CHARACTER.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "replace"
    )


def check_characters(text: str, what: str, remedy: str) -> None:
    """Raises InputError if a text contains a lone surrogate, which no tokenizer can encode.

    Args:
        text: any text.
        what, remedy: beginning and end of the error message.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = f"\\u{ord(text[error.start]):04x}"
        raise InputError(
            f"{what} contains a lone surrogate ({code}); {remedy}"
        ) from None


def document_rng(text: str, seed: int = 0) -> np.random.Generator:
    """Returns a generator that depends only on seed and text, not on file, order or shard."""
    digest = hashlib.sha256(text.encode()).digest()
    entropy = [seed, int.from_bytes(digest[:8], "little")]
    return np.random.Generator(np.random.PCG64(entropy))


def find_files(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    """Returns the files of paths, URLs of cloud storage, and glob patterns.

    Raises:
        InputError: a path does not exist or is a directory, or a pattern
            matches no file.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    files: list[str | Path] = []
    for path in paths:
        if is_remote(path):
            files.extend(find_remote(str(path)))
        elif os.path.isfile(path):
            files.append(path)
        elif os.path.isdir(path):
            from longsum_jax.text.arrow import pattern_of

            raise InputError(
                f"{path} is a directory; give files or a pattern such as "
                f"{path}/{pattern_of(os.listdir(path))}"
            )
        elif glob.has_magic(str(path)):
            matches = sorted(
                filter(os.path.isfile, glob.glob(str(path), recursive=True))
            )
            if not matches:
                raise InputError(
                    f"{path}: no file matches the pattern; check the path"
                )
            files.extend(matches)
        elif os.path.exists(path):  # a pipe
            files.append(path)
        else:
            raise InputError(f"{path}: no such file; check the path")
    return files


def _document(
    row: dict[str, Any],
    keys: dict[str, str],
    where: str,
    default_id: str,
    require_document: bool,
    require_summary: bool,
) -> DataRow:
    document_key = keys["document"]
    for key in document_key.split("|"):
        if key in row:
            document_key = key
            break
    required = []
    if require_document:
        required.append((document_key, "--document_key"))
    if require_summary:
        required.append((keys["summary"], "--summary_key"))
    _check_keys(row, required, where)
    if require_document:
        document = _text(row, document_key, where, "--document_key")
    else:
        document = (
            _optional_text(row, document_key, where, "--document_key") or ""
        )
    read_summary = _text if require_summary else _optional_text
    summary = read_summary(row, keys["summary"], where, "--summary_key")
    query = _optional_text(row, keys["query"], where, "--query_key")
    name = row.get(keys["id"]) if keys["id"] else None
    if name is None:
        name = default_id
    label = None
    if keys["label"]:
        label = _label(row, keys["label"], where)
    if isinstance(name, str):
        name = replace_half_characters(name)
    else:
        name = json.dumps(name)
    choices = None
    if keys["choices"]:
        choices = _choices(row, keys["choices"], where)
    rejected = _optional_text(row, keys["rejected"], where, "--rejected_key")
    return DataRow(name, document, summary, query, label, choices, rejected)


def _is_list_of_strings(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, str) for item in value
    )


def _label(row: dict[str, Any], key: str, where: str) -> Label:
    """Returns the label under ``key``; a list becomes a tuple, which may be empty."""
    if key not in row:
        raise InputError(
            f'{where}: no key "{key}"; {did_you_mean(key, row)}; rename the field, or in training '
            "name another with task.label_key"
        )
    value = row[key]
    labels = value if isinstance(value, list) else [value]
    are_numbers = all(type(label) is int and label >= 0 for label in labels)
    are_names = all(
        isinstance(label, str) and label.strip() for label in labels
    )
    if not are_numbers and not are_names:
        raise InputError(
            f'{where}: "{key}" is {json.dumps(value)[:80]}; give a whole number from 0 on, '
            "a name, or a list of either"
        )
    if isinstance(value, list):
        return tuple(value)
    return value


def _optional_text(
    row: dict[str, Any], key: str, where: str, flag: str
) -> str | None:
    """Returns the text under ``key``, or None if it is absent, null or blank."""
    # spreadsheets call the column of row numbers ""
    value = row.get(key) if key else None
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return _text(row, key, where, flag)


def _choices(row: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key)
    if not value or not _is_list_of_strings(value):
        raise InputError(
            f'{where}: "{key}" is {json.dumps(value)[:80]}; give a list of texts to choose from, '
            "or in training name another key with task.choices_key"
        )
    return _texts(value, key, where)


def _texts(values: list[Any], key: str, where: str) -> tuple[str, ...]:
    """Returns the texts of a list; an empty list or an invalid text is an error."""
    if not values:
        raise InputError(
            f'{where}: "{key}" is an empty list; give at least one text'
        )
    return tuple(_text({key: value}, key, where, "") for value in values)


def _check_keys(
    row: dict[str, Any], required: Sequence[tuple[str, str]], where: str
) -> None:
    """Raises InputError, naming all missing keys, if a row lacks required keys.

    Args:
        row: object of the file.
        required: required keys, each with the flag that selects another key.
        where: file and line number.
    """
    absent = [(key, flag) for key, flag in required if key not in row]
    if not absent:
        return
    names = " and ".join(f'"{key}"' for key, _ in absent)
    flags = " and ".join(flag for _, flag in absent)
    if len(absent) == 1:
        problem = f"no key {names}; {did_you_mean(absent[0][0], row)}; name another with"
    else:
        problem = f"no keys {names}; known: {', '.join(sorted(row))}; name others with"
    in_config = flags.replace("--", "--config.task.")
    raise InputError(f"{where}: {problem} {flags}, in training {in_config}")


def _text(row: dict[str, Any], key: str, where: str, flag: str) -> str:
    """Returns the text under ``key``, which must be a string that is not blank."""
    _check_keys(row, [(key, flag)], where)
    value = row[key]
    if not isinstance(value, str):
        if value is None:
            kind = "null"
        else:
            kind = type(value).__name__
        raise InputError(
            f'{where}: "{key}" must be a string, got {kind}; correct or remove the line'
        )
    if not value.strip():
        raise InputError(f'{where}: "{key}" is empty; remove the line')
    if "\0" in value:
        raise InputError(
            f'{where}: "{key}" contains a NUL character; remove it'
        )
    check_characters(value, f'{where}: "{key}"', "write the file again")
    return value


def _stem(path: str | Path) -> str:
    path = Path(path)
    if path.suffix in SUFFIXES:
        return path.with_suffix("").stem
    return path.stem
