"""A directory of summaries: NAME_summary.txt and NAME_summary.json for each document.

The JSON file also contains the summary and is written first, atomically. After
an interruption, each document is therefore either finished or not, and a
restart summarizes only unfinished ones.
"""

import hashlib
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.compressed import SUFFIXES
from longsum_jax.errors import InputError
from longsum_jax.files import json_text, parse_json, read_bytes
from longsum_jax.readers.document import Document
from longsum_jax.readers.paths import printable
from longsum_jax.summarization.summary import REPORTED, Summary
from longsum_jax.summarization.summary_formats import FORMATS, Entry
from longsum_jax.text.statements import Statement

_ENDING = "_summary"
_UNSAFE = re.compile(r"[^\w.()+ -]+")
# characters of up to four bytes each; file names have at most 255 bytes
_LONGEST_STEM = 80
_TEXT_OF_JSON = ("json", "jsonl")


class OutputFiles(NamedTuple):
    """The output files of a document's summary.

    Attributes:
        stem: stem of the file names, without "_summary".
        source: path of the document, independent of the working directory.
        content: hash of the document's text.
        key: hash of the content and all settings.
        finished: existing summary, or None.
    """

    stem: str
    source: str
    content: str
    key: str
    finished: Entry | None = None


class SummaryDirectory:
    """Assigns output files to documents and finds finished summaries.

    Args:
        path: path of the directory.
        format: format of the readable files, a key of ``FORMATS``.
        settings: all settings, apart from the documents, that summaries depend
            on.
    """

    def __init__(
        self, path: Path, format: str, settings: Mapping[str, Any]
    ) -> None:
        self._path = path
        self._format = format
        self._settings = dict(settings)
        self._claimed: dict[str, str] = {}

    def claim(self, document: Document) -> OutputFiles | None:
        """Returns the output files of a document; None if the document was already claimed.

        Documents with the same name get different files, the same ones in every
        run.

        Raises:
            InputError: the directory cannot be read or written.
        """
        # The real path identifies a document in any working directory.
        source = printable(os.path.realpath(document.path)) + _member(document)
        content = _digest(document.text)
        key = _digest(
            json.dumps(
                [content, document.query, self._settings], sort_keys=True
            )
        )
        # Names are UTF-8 on disk in any locale, in the form that os.listdir
        # returns.
        name = os.fsdecode(_stem(document).encode("utf-8", "surrogateescape"))
        # Try NAME, NAME-2, ... until the files are new or belong to this
        # document.
        for number in itertools.count(1):
            if number == 1:
                stem = name
            else:
                stem = f"{name}-{number}"
            claimed = _without_case(stem)
            # Another document claimed this name in this run.
            if self._claimed.get(claimed, source) != source:
                continue
            files = OutputFiles(
                self._spellings.get(claimed, stem), source, content, key
            )
            sidecar = self._sidecar(files)
            if sidecar is None and self._readable(files).exists():
                continue  # a file that was not written by this class
            # The files belong to another document of an earlier run.
            if sidecar is not None and sidecar.get("source") != source:
                continue
            if self._claimed.get(claimed) == source:
                return None  # a duplicate
            self._claimed[claimed] = source
            # Not summarized yet, or its text or the settings have changed.
            if sidecar is None or sidecar.get("key") != key:
                return files
            finished = _entry_of(sidecar)
            if not self._readable(files).exists():
                self._write_readable(files, finished)
            return files._replace(finished=finished)
        raise AssertionError("unreachable")

    def write(self, files: OutputFiles, entry: Entry) -> None:
        """Writes the files of a summary.

        Raises:
            InputError: the files cannot be written.
        """
        sidecar = {
            **entry.report(),
            "summary": entry.summary.text,
            "settings": self._settings,
            "source": files.source,
            "content": files.content,
            "key": files.key,
        }
        text = json_text(sidecar, indent=2) + "\n"
        # Remove readable files of all formats first, so that none is older than
        # the JSON file.
        previous = self._sidecar(files) or {}
        is_ours = previous.get("source") == files.source
        suffixes: set[str] = set()
        if is_ours:
            suffixes = {shown.suffix for shown in FORMATS.values()}
        try:
            for suffix in suffixes:
                (self._path / f"{files.stem}{_ENDING}{suffix}").unlink(
                    missing_ok=True
                )
            atomic.write_text(self._path / f"{files.stem}{_ENDING}.json", text)
        except OSError as error:
            raise InputError(_not_written(self._path, error)) from None
        self._write_readable(files, entry)

    @cached_property
    def _spellings(self) -> dict[str, str]:
        """The stems of files that existed at the first claim, by their case-folded form."""
        try:
            names = sorted(os.listdir(self._path))
        except OSError as error:
            raise InputError(_not_read(self._path, error)) from None
        stems = {}
        for name in names:
            stem, ending, _ = name.rpartition(_ENDING)
            if ending:
                stems[_without_case(stem)] = stem
        return stems

    def _readable(self, files: OutputFiles) -> Path:
        return (
            self._path / f"{files.stem}{_ENDING}{FORMATS[self._format].suffix}"
        )

    def _write_readable(self, files: OutputFiles, entry: Entry) -> None:
        shown = FORMATS[
            "text" if self._format in _TEXT_OF_JSON else self._format
        ]
        try:
            atomic.write_text(
                self._readable(files),
                shown.begin + shown.show(entry) + shown.end,
            )
        except OSError as error:
            raise InputError(_not_written(self._path, error)) from None

    def _sidecar(self, files: OutputFiles) -> dict[str, Any] | None:
        """Returns the content of a JSON file: None if missing, {} if it is not a summary's."""
        path = self._path / f"{files.stem}{_ENDING}.json"
        try:
            content = parse_json(read_bytes(path))
            _entry_of(content)
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):
            return {}
        except OSError as error:
            raise InputError(_not_read(path, error)) from None
        return content


def _entry_of(sidecar: Mapping[str, Any]) -> Entry:
    file = sidecar["file"]
    values = {name: sidecar[name] for name in REPORTED if name in sidecar}
    sources = sidecar.get("sources")
    if sources is not None:
        sources = [Statement.from_report(fields) for fields in sources]
    return Entry(
        file=file,
        title=sidecar.get("title"),
        notes=tuple(sidecar.get("notes", ())),
        summary=Summary(text=sidecar["summary"], **values),
        seconds=sidecar["seconds"],
        statements=sources,
    )


def _stem(document: Document) -> str:
    """Returns the stem of a document's files: its file's stem, and its name within that file."""
    path = Path("stdin" if document.path == "-" else printable(document.path))
    # Strip suffixes of compression, such as .gz.
    while path.suffix.casefold() in SUFFIXES:
        path = path.with_suffix("")
    member = _member(document)
    # The member is a path in an archive, or the row of a table.
    if member.startswith("/"):
        inner = Path(member).stem
    else:
        inner = member.removeprefix(":").strip()
    stem = path.stem + (f"_{inner}" if inner else "")
    # Without leading dots, which would hide the files.
    return (
        _UNSAFE.sub(_replacement, stem).strip(". ")[:_LONGEST_STEM]
        or "document"
    )


def _replacement(unsafe: re.Match[str]) -> str:
    """Returns "_" for each run of unsafe characters, but keeps combining marks among them, such
    as vowel signs, which ``re`` does not count as word characters.
    """
    replacement = ""
    for is_mark, chars in itertools.groupby(unsafe[0], _is_mark):
        replacement += "".join(chars) if is_mark else "_"
    return replacement


def _is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M")


def _without_case(stem: str) -> str:
    """Returns the case-folded, normalized stem; some file systems do not distinguish more."""
    return unicodedata.normalize("NFC", stem.casefold())


def _member(document: Document) -> str:
    """Returns a document's name within its file: "/member" or ":row"; "" for the file itself."""
    if document.path == "-":
        return document.name.removeprefix("standard input")
    return document.name.removeprefix(printable(document.path))


def _digest(text: str) -> str:
    return hashlib.blake2b(
        text.encode(errors="surrogatepass"), digest_size=16
    ).hexdigest()


def _not_read(path: Path, error: OSError) -> str:
    return f"{path}: cannot be read ({error.strerror}); give another --out"


def _not_written(path: Path, error: OSError) -> str:
    return (
        f"{path}: cannot be written ({error.strerror}); free up space and start again, "
        "finished documents are kept"
    )
