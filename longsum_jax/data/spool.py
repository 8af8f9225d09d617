"""Records of a data set while it is prepared, which a restart continues.

A file of the shards' format cannot be continued. Until all examples are made,
the records of each shard are therefore appended to a plain file, its spool, and
progress.json contains the sizes of the spools at the last checkpoint. At the
end, one spool after the other is rewritten as a shard and deleted, so that the
disk holds at most one shard twice.
"""

import json
import math
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from longsum_jax.files import parse_json, read_bytes

SHARD = ".array_record"  # suffix of shards
SECONDS = 60.0  # between checkpoints
_PROGRESS = "progress.json"
_LENGTHS = "lengths.spool"
_SIZE = struct.Struct("<Q")  # bytes of a record, before each of them


class SpoolProgress(NamedTuple):
    """The state of an interrupted preparation.

    Attributes:
        settings: hash of everything that the examples depend on, except for the
            documents.
        documents: number of documents whose examples are in the spools.
        digest: hash of these documents.
        examples: number of their examples.
        counts: counts of these documents.
        sizes: bytes of the spools of the lengths and of each shard.
        is_complete: True if these are all documents.
    """

    settings: str
    documents: int
    digest: str
    examples: int
    counts: dict[str, int]
    sizes: list[int]
    is_complete: bool = False


def read_progress(
    shards: Sequence[Path], settings: str
) -> SpoolProgress | None:
    """Returns the state of an interrupted preparation with the same settings.

    None if there is none that can be continued.

    Args:
        shards: paths of the shards that the preparation writes.
        settings: hash of the settings of this preparation.
    """
    path = shards[0].with_name(_PROGRESS)
    with suppress(OSError, ValueError, TypeError):
        progress = SpoolProgress(**parse_json(read_bytes(path)))
        if progress.settings != settings:
            return None
        spools = _spools_of(shards)
        for spool, size in zip(spools, progress.sizes, strict=True):
            if progress.is_complete and spool.with_suffix(SHARD).exists():
                continue  # rewritten already
            if spool.stat().st_size < size:
                return None
        return progress
    return None


class Spool:
    """Appends records to the spools of shards.

    Args:
        shards: paths of the shards; record i belongs to shard i % n.
        progress: incomplete state to continue from, as read.

    Raises:
        OSError: files cannot be written.
    """

    def __init__(self, shards: Sequence[Path], progress: SpoolProgress) -> None:
        self._progress = progress
        self._paths = _spools_of(shards)
        # A new preparation writes its first checkpoint immediately.
        is_new = not progress.sizes
        self._written = -math.inf if is_new else time.monotonic()
        self._num_examples = progress.examples
        self._files: list[BinaryIO] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Spool":
        sizes = self._progress.sizes or [0] * len(self._paths)
        with ExitStack() as stack:
            for path, size in zip(self._paths, sizes, strict=True):
                file = stack.enter_context(path.open("ab"))
                file.truncate(size)
                file.seek(size)
                self._files.append(file)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def append(self, record: bytes, lengths: Sequence[int]) -> None:
        """Appends the record of the next example.

        Args:
            record: serialized example.
            lengths: tokens of its source and target.
        """
        # The first spool contains the lengths.
        shard = self._num_examples % (len(self._files) - 1)
        file = self._files[1 + shard]
        file.write(_SIZE.pack(len(record)))
        file.write(record)
        self._files[0].write(np.array(lengths, "<i4").tobytes())
        self._num_examples += 1

    def checkpoint(
        self,
        documents: int,
        digest: str,
        counts: dict[str, int],
        *,
        is_complete: bool = False,
    ) -> None:
        """Makes the appended records permanent, at first and after ``SECONDS``.

        Args:
            documents, digest, counts: values of ``SpoolProgress``.
            is_complete: whether these are all documents; always written then.
        """
        if not is_complete and time.monotonic() - self._written < SECONDS:
            return
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
        sizes = [file.tell() for file in self._files]
        self._progress = self._progress._replace(
            documents=documents,
            digest=digest,
            examples=self._num_examples,
            counts=counts,
            sizes=sizes,
            is_complete=is_complete,
        )
        path = self._paths[0].with_name(_PROGRESS)
        new = path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as text:
            json.dump(self._progress._asdict(), text)
            text.flush()
            os.fsync(text.fileno())
        new.replace(path)
        self._written = time.monotonic()


def finish_shards(
    shards: Sequence[Path], write: Callable[[Path, Iterable[bytes]], None]
) -> np.ndarray:
    """Rewrites the spools as shards, and deletes them.

    Args:
        shards: paths of the shards.
        write: function that writes records to a file.

    Returns:
        The lengths of the examples, int32 [n, 2].
    """
    lengths_spool, *spools = _spools_of(shards)
    for shard, spool in zip(shards, spools, strict=True):
        if spool.exists():
            new = shard.with_suffix(".new")
            new.unlink(missing_ok=True)
            write(new, _records(spool))
            new.replace(shard)
            spool.unlink()
    lengths = np.fromfile(lengths_spool, "<i4").astype(np.int32)
    return lengths.reshape(-1, 2)


def remove_progress(directory: Path) -> None:
    """Removes what only the continuation of a preparation needs."""
    for name in (_PROGRESS, _LENGTHS):
        (directory / name).unlink()


def _spools_of(shards: Sequence[Path]) -> list[Path]:
    """Returns the paths of the spools of the lengths and of each shard."""
    spools = [shard.with_suffix(".spool") for shard in shards]
    return [shards[0].with_name(_LENGTHS), *spools]


def _records(spool: Path) -> Iterator[bytes]:
    """Yields the records of a spool."""
    with spool.open("rb") as file:
        while header := file.read(_SIZE.size):
            yield file.read(_SIZE.unpack(header)[0])
