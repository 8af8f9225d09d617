"""Preparation of a task: its examples are made and written to a prepared directory."""

import dataclasses
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from longsum_jax import __version__, atomic, checksums
from longsum_jax.data import beam_preparation
from longsum_jax.data.beam_preparation import RecordChunk
from longsum_jax.data.examples.base import Counts, example_lengths, pack
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.parallel import (
    DocumentChunk,
    document_chunks,
    make_chunks,
)
from longsum_jax.data.prepared import (
    FORMAT_VERSION,
    LENGTHS,
    METADATA,
    PreparedExamples,
    shard_paths,
)
from longsum_jax.data.sources import documents
from longsum_jax.data.spool import (
    Spool,
    SpoolProgress,
    finish_shards,
    read_progress,
    remove_progress,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, check_whole
from longsum_jax.files import allow_open_files, check_utf8_name
from longsum_jax.progress import Bar
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.text.sentences import splitter_name
from longsum_jax.tokenizers.base import Tokenizer


def write_prepared(
    directory: str | os.PathLike[str],
    task: Task,
    tokenizer: Tokenizer,
    split: str,
    num_shards: int = 8,
    *,
    seed: int = 0,
    workers: int = 1,
    overwrite: bool = False,
    beam: Sequence[str] | None = None,
    progress: bool = True,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
    fingerprints: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Makes the examples of one split of a task and writes them in the order of the documents.

    Everything is written to a temporary directory next to ``directory`` and
    renamed at the end, so that a directory with the final name is complete. If
    the process is killed or interrupted (Ctrl-C), the same call continues after
    the last checkpoint, one of which is written per minute, with the same
    result; see ``data.spool``.

    Args:
        directory: directory to create, including its parents.
        task: task to prepare; label names are collected from ``split`` unless
            the task has them.
        tokenizer: tokenizer that produces the ids; saved with the examples.
        split: split of the task.
        num_shards: number of files.
        seed: random seed of gap-sentence strategy "random".
        workers: number of processes that make examples; does not affect the
            result.
        overwrite: whether to replace an existing prepared directory.
        beam: flags of Apache Beam's pipeline options, to make the examples with
            one of its runners; None to make them without it. Does not affect
            the result. See ``data.beam_preparation``.
        progress: whether to show a progress bar on standard error.
        auxiliary: functions as for ``make_examples``; picklable if there are
            several workers, or Beam.
        fingerprints: hashes of the models in ``auxiliary``, by their names in
            ``task.segments``.

    Returns:
        The content of metadata.json.

    Raises:
        InputError: a package is not installed, the directory exists or cannot
            be written, the split has no usable document, or the data are
            malformed.
    """
    if importlib.util.find_spec("array_record") is None:
        raise InputError("to write shards, pip install 'longsum_jax[shards]'")
    target = Path(directory).absolute()
    check_whole("num_shards", num_shards, 1)
    check_whole("workers", workers, 1)
    # a spool for every shard
    allow_open_files(num_shards, f"num_shards={num_shards}", "give fewer")
    _check_target(target, overwrite)
    task.source_split(split)  # raises for an unknown split
    if task.base_objective in ("classify", "classify_pairs", "claims", "tag"):
        task = collect_labels(task, split)
    metadata = _settings(task, tokenizer, split, num_shards, seed)
    metadata["auxiliary"] = dict(fingerprints)
    preparation = _Preparation(
        task, tokenizer, split, seed, workers, auxiliary, beam
    )
    try:
        with atomic.new_directory(
            target, overwrite=overwrite, resume=True
        ) as work:
            paths = list(shard_paths(work, split, num_shards))
            counts = preparation.spool(
                paths, _digest(metadata), progress=progress
            )
            lengths = finish_shards(paths, _write_shard)
            _check_not_empty(lengths, task, split, counts)
            np.save(work / LENGTHS, lengths)
            remove_progress(work)
            shutil.rmtree(work / beam_preparation.DIRECTORY, ignore_errors=True)
            metadata |= {
                "examples": len(lengths),
                "counts": dataclasses.asdict(counts),
            }
            text = json.dumps(metadata, indent=2) + "\n"
            (work / METADATA).write_text(text, encoding="utf-8")
            checksums.write(work)
            # detects a full disk now, not much later
            PreparedExamples(work, tokenizer.fingerprint)
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"cannot write {target}: {reason}; nothing was written; free up space or choose "
            "another directory"
        ) from error
    return metadata


def _check_target(target: Path, overwrite: bool) -> None:
    check_utf8_name(target)
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(
            f"{target} is a file; give a directory that does not exist yet"
        )
    if (target / METADATA).exists():
        if not overwrite:
            raise InputError(
                f"{target} is prepared already; use it, name another directory, or give --overwrite"
            )
    elif any(target.iterdir()):
        raise InputError(
            f"{target} holds other files; give a directory that does not exist yet"
        )


def _settings(
    task: Task, tokenizer: Tokenizer, split: str, num_shards: int, seed: int
) -> dict[str, Any]:
    """Returns the entries of metadata.json that are known before the documents are read."""
    return {
        "format_version": FORMAT_VERSION,
        "longsum_jax": __version__,
        "task": dataclasses.asdict(task),
        "split": split,
        "seed": seed,
        "tokenizer": {
            "fingerprint": tokenizer.fingerprint,
            "vocab_size": tokenizer.vocab_size,
        },
        "splitter": splitter_name(),
        "num_shards": num_shards,
    }


def _digest(settings: Mapping[str, Any]) -> str:
    """Returns a hash of JSON values."""
    text = json.dumps(settings, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _check_not_empty(
    lengths: np.ndarray, task: Task, split: str, counts: Counts
) -> None:
    if len(lengths) == 0:
        raise InputError(
            f'task "{task.name}", split "{split}": none of {counts.read} documents gives an '
            "example, all are too short; for short documents use "
            'gap_sentences.short_documents="one" or a larger ratio'
        )


def _write_shard(path: Path, records: Iterable[bytes]) -> None:
    """Writes the records of a shard.

    Raises:
        OSError: the disk is full.
    """
    from array_record.python.array_record_module import ArrayRecordWriter

    try:
        writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
        try:
            for record in records:
                writer.write(record)
        finally:
            writer.close()
    except RuntimeError as error:
        raise OSError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class _Preparation:
    """The examples to make; see ``write_prepared`` for the attributes."""

    task: Task
    tokenizer: Tokenizer
    split: str
    seed: int
    workers: int
    auxiliary: Auxiliary
    beam: Sequence[str] | None

    def spool(
        self, shards: Sequence[Path], settings: str, *, progress: bool
    ) -> Counts:
        """Makes all examples, or the remaining ones, and writes them to spools.

        Args:
            shards: paths of the shards.
            settings: hash of the settings of the preparation.
            progress: whether to show a progress bar.

        Returns:
            The counts of all documents.
        """
        chunks = document_chunks(documents(self.task, self.split))
        state = read_progress(shards, settings)
        # the documents have changed
        if state is not None and not _skip(chunks, state):
            chunks = document_chunks(documents(self.task, self.split))
            state = None
        work = shards[0].parent
        if state is None:
            state = SpoolProgress(settings, 0, "", 0, {}, [])
            atomic.empty(work)
            self.tokenizer.save(work / "tokenizer")
        counts = Counts(**state.counts)
        if state.is_complete:
            return counts
        num_documents, digest = state.documents, state.digest
        with (
            Spool(shards, state) as spool,
            self._bar(state.examples, progress) as bar,
        ):
            # at the start of a preparation, so that a restart finds it
            spool.checkpoint(num_documents, digest, dataclasses.asdict(counts))
            for chunk in self._make(work, chunks):
                num_examples = 0
                for record, lengths in chunk.records:
                    spool.append(record, lengths)
                    num_examples += 1
                counts.merge(chunk.counts)
                num_documents += chunk.num_documents
                digest = chunk.digest
                spool.checkpoint(
                    num_documents, digest, dataclasses.asdict(counts)
                )
                _show(bar, num_examples, counts)
            spool.checkpoint(
                num_documents,
                digest,
                dataclasses.asdict(counts),
                is_complete=True,
            )
        return counts

    def _make(
        self, work: Path, chunks: Iterable[DocumentChunk]
    ) -> Iterator[RecordChunk]:
        if self.beam is not None:
            yield from beam_preparation.make_records(
                self.task,
                work,
                chunks,
                self.beam,
                seed=self.seed,
                auxiliary=self.auxiliary,
            )
            return
        made = make_chunks(
            self.task,
            self.tokenizer,
            work / "tokenizer",
            chunks,
            seed=self.seed,
            workers=self.workers,
            auxiliary=self.auxiliary,
        )
        for chunk in made:
            records = (
                (pack(example), example_lengths(example))
                for example in chunk.examples
            )
            yield RecordChunk(
                chunk.num_documents, chunk.digest, records, chunk.counts
            )

    def _bar(self, num_examples: int, is_shown: bool) -> Bar:
        name = f"preparing {self.task.name}/{self.split}"
        return Bar(
            desc=name,
            unit=" examples",
            initial=num_examples,
            disable=not is_shown,
        )


def _skip(chunks: Iterator[DocumentChunk], state: SpoolProgress) -> bool:
    """Reads the documents that were prepared before; returns False if they have changed."""
    num_documents, digest = 0, ""
    while num_documents < state.documents:
        chunk = next(chunks, None)
        if chunk is None:
            return False
        num_documents += len(chunk.documents)
        digest = chunk.digest
    has_more = state.is_complete and next(chunks, None) is not None
    is_same = (num_documents, digest) == (state.documents, state.digest)
    return is_same and not has_more


def _show(bar: Bar, num_examples: int, counts: Counts) -> None:
    """Adds examples to a progress bar."""
    bar.set_postfix(
        too_short=counts.too_short,
        truncated=counts.truncated_sources,
        refresh=False,
    )
    bar.update(num_examples)
