"""Prepared tasks: sharded ArrayRecord files of token ids, read in any order without TensorFlow.

A prepared directory contains one split of one task:

    train-00000-of-00008.array_record ...   example i is record i // 8 of shard i % 8
    lengths.npy                             int32 [n, 2], tokens of source and target
    tokenizer/                              tokenizer that produced the ids
    metadata.json                           description of the content and how it was made
    SHA256SUMS                              written last, see ``longsum_jax.checksums``
"""

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from longsum_jax import __version__, atomic, checksums
from longsum_jax.data import beam_preparation
from longsum_jax.data.beam_preparation import RecordChunk
from longsum_jax.data.example_records import pack, unpack
from longsum_jax.data.examples.base import Counts, Example, example_lengths
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.parallel import (
    DocumentChunk,
    document_chunks,
    make_chunks,
)
from longsum_jax.data.sources import documents
from longsum_jax.data.spool import (
    SHARD,
    Spool,
    SpoolProgress,
    finish_shards,
    read_progress,
    remove_progress,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, check_whole
from longsum_jax.files import (
    check_utf8_name,
    open_regular,
    parse_json,
    read_bytes,
)
from longsum_jax.progress import Bar
from longsum_jax.schema import Count, Positive, check_ranges, from_dict
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.text.sentences import splitter_name
from longsum_jax.tokenizers.base import Tokenizer

FORMAT_VERSION = 1
METADATA = "metadata.json"
LENGTHS = "lengths.npy"
_MAX_NAME = 200  # bytes; file systems allow 255, and shard names add a number
# Options of a task that do not affect examples: its name, places on this
# machine, and a field that segments do not use.
_PLACES = ("name", "data_dir", "cache_dir", "rejected_key")
# Options of a task that determine how the text of a document without segments
# is processed.
_OF_TEXTS = (
    "objective",
    "prefix",
    "max_source_length",
    "max_target_length",
    "piece_words",
    "gap_sentences",
    "claims",
    "cloze",
    "query_key",
    "leading_query",
    "document_separator",
)
# Options that have a value in every config, with their flags.
_FLAGS = {
    "prefix": "--config.task.prefix",
    "max_source_length": "--config.task.max_source_length",
    "max_target_length": "--config.task.max_target_length",
    "query_key": "--config.task.query_key",
    "document_separator": "--config.task.document_separator",
    "piece_words": "--config.task.piece_words",
    "held_out": "--config.task.held_out",
    "half": "--config.task.half",
    "split": "--config.data.split",
}


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
        InputError: the directory exists or cannot be written, the split has no
            usable document, or the data are malformed.
    """
    target = Path(directory).absolute()
    check_whole("num_shards", num_shards, 1)
    check_whole("workers", workers, 1)
    _check_target(target, overwrite)
    task.source_split(split)  # raises for an unknown split
    if task.objective in ("classify", "classify_pairs", "claims", "tag"):
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
    except (
        OSError,
        RuntimeError,
    ) as error:  # ArrayRecord raises RuntimeError if the disk is full
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot write {target}: {reason}; nothing was written; free up space or choose "
            "another directory"
        ) from error
    return metadata


@dataclasses.dataclass(frozen=True)
class _Entries:
    """The required entries of metadata.json."""

    split: str
    num_shards: Positive
    examples: Count
    counts: Counts
    tokenizer: Mapping[str, Any]
    checksums: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_ranges(self)
        if not isinstance(self.tokenizer.get("fingerprint"), str):
            raise InputError(
                "tokenizer.fingerprint is missing; prepare the data again"
            )
        if type(self.tokenizer.get("vocab_size", 1)) is not int:
            raise InputError(
                "tokenizer.vocab_size is not a number of ids; prepare the data again"
            )


class PreparedExamples(Sequence[Example]):
    """The examples of a prepared directory, by index, read from disk on demand.

    Args:
        directory: directory written by ``write_prepared``.
        tokenizer_fingerprint: hash of the tokenizer that must have produced the
            ids; None for any.

    Attributes:
        directory: path of the directory.
        metadata: content of metadata.json.
        lengths: int32 [n, 2], tokens of source and target; with segments see
            ``example_lengths``.
        counts: counts of the documents that were read.

    Raises:
        InputError: not a prepared directory, another format version or
            tokenizer, or damaged or missing files.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        tokenizer_fingerprint: str | None = None,
    ) -> None:
        self.directory = Path(directory)
        # Each record has its own checksum, which the ArrayRecord library
        # verifies.
        checksums.check(self.directory, lambda name: not name.endswith(SHARD))
        self.metadata = _read_metadata(self.directory)
        _check_tokenizer(self.directory, self.metadata, tokenizer_fingerprint)
        self.counts = Counts(**self.metadata["counts"])
        self.lengths = _read_lengths(self.directory, self.metadata["examples"])
        num_shards = self.metadata["num_shards"]
        self._paths: list[Path] = []
        self._shards = []
        for path in shard_paths(
            self.directory, self.metadata["split"], num_shards
        ):
            num_records = len(
                range(len(self._paths), len(self.lengths), num_shards)
            )
            self._shards.append(_open_shard(path, num_records))
            self._paths.append(path)
        checksums.require(self.directory)

    def check_content(self) -> None:
        """Reads everything once; raises InputError if a file does not match its checksum."""
        checksums.check(self.directory)

    def check_task(
        self, task: Task, split: str, fingerprints: Mapping[str, str]
    ) -> None:
        """Raises InputError unless a run would make the same examples from its documents.

        For segments, all options that affect them are compared, including the
        source of the documents and the sentence splitter; for other examples,
        the options for processing a document's text.

        Args:
            task: task of the run, completed with values of its model.
            split: training split of the run.
            fingerprints: hashes as for ``write_prepared``.
        """
        from longsum_jax.training.workdir import differing_keys

        there = _content(
            self.metadata["task"], self.metadata.get("auxiliary", {})
        )
        here = _content(dataclasses.asdict(task), fingerprints)
        there |= {"splitter": self.metadata.get("splitter")}
        here |= {"splitter": splitter_name()}
        if task.objective != "summarize_segments":
            names: tuple[str, ...] = _OF_TEXTS
            names += ("max_parts",) if task.objective == "extract" else ()
            names += ("held_out",) if task.holds_out else ()
            names += ("half",) if task.half or there.get("half") else ()
            there = {name: there[name] for name in names if name in there}
            here = {name: here[name] for name in names if name in here}
        there |= {"split": self.metadata["split"]}
        here |= {"split": split}
        if differing := differing_keys(there, here):
            raise InputError(
                f"{self.directory} was prepared with other settings than this run has: "
                f"{', '.join(differing)}; prepare it again, or {_change_of_config(there, here)}"
            )

    @property
    def num_shards(self) -> int:
        """The number of files, and the maximum number of hosts that can read them together."""
        return len(self._shards)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override] # no slices
        if not 0 <= index < len(self):
            raise IndexError(f"example {index} of {len(self)}")
        record, shard = divmod(index, len(self._shards))
        try:
            example = unpack(self._shards[shard][record])
            self._check_example(example, index)
            return example
        except (
            Exception
        ) as error:  # a manipulated record can raise any exception
            path = self._paths[shard]
            raise InputError(
                f"{path} is damaged ({error}); copy it again or prepare the data again"
            ) from error

    def _check_example(self, example: Example, index: int) -> None:
        """Raises ValueError unless an example has the recorded lengths and valid ids."""
        actual, expected = (
            example_lengths(example),
            tuple(self.lengths[index].tolist()),
        )
        if actual != expected:
            raise ValueError(
                f"example {index} has the lengths {actual}, but {LENGTHS} has {expected}"
            )
        ids = example["input_ids"]
        if not (
            isinstance(ids, np.ndarray)
            and ids.ndim == 1
            and ids.dtype == np.int32
        ):
            raise ValueError(
                f"example {index} has input_ids that are not a row of int32"
            )
        largest = (
            self.metadata["tokenizer"].get("vocab_size", np.iinfo(np.int32).max)
            - 1
        )
        if len(ids) and not (ids.min() >= 0 and ids.max() <= largest):
            raise ValueError(
                f"example {index} has ids outside of 0 to {largest}"
            )


def shard_paths(directory: Path, split: str, num_shards: int) -> Iterator[Path]:
    """Yields the paths of the shards in order."""
    for shard in range(num_shards):
        yield directory / f"{split}-{shard:05d}-of-{num_shards:05d}{SHARD}"


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


def _write_shard(path: Path, records: Iterable[bytes]) -> None:
    """Writes the records of a shard."""
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    try:
        for record in records:
            writer.write(record)
    finally:
        writer.close()


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


def _content(
    task: Mapping[str, Any], fingerprints: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the options of a task that determine its examples, in JSON types.

    Places are ignored, except for the source; auxiliary models are identified
    by their weights.
    """
    options = {key: value for key, value in task.items() if key not in _PLACES}
    options["segments"] = {
        **options["segments"],
        **dict.fromkeys(fingerprints, ""),
    }
    return json.loads(json.dumps(options | {"auxiliary": dict(fingerprints)}))


def _change_of_config(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Returns a remedy for a run whose documents differ from the prepared ones: flags if possible.

    Args:
        there, here: options of the prepared task and of the run's task.
    """
    flags = []
    for name in sorted(there.keys() | here.keys()):
        value = there.get(name)
        if value == here.get(name):
            continue
        # None in a config selects the task's value
        if name not in _FLAGS or value is None:
            return "change the config"
        flags.append(f"{_FLAGS[name]}={shlex.quote(str(value))}")
    return f"give {' '.join(flags)}"


def _check_not_empty(
    lengths: np.ndarray, task: Task, split: str, counts: Counts
) -> None:
    if len(lengths) == 0:
        raise InputError(
            f'task "{task.name}", split "{split}": none of {counts.read} documents gives an '
            "example, all are too short; for short documents use "
            'gap_sentences.short_documents="one" or a larger ratio'
        )


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


def _read_metadata(directory: Path) -> dict[str, Any]:
    path = directory / METADATA
    try:
        metadata = parse_json(read_bytes(path))
    except FileNotFoundError:
        raise InputError(
            f"{directory} is not a prepared directory (no {METADATA}); make one with longsum "
            "prepare"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}); prepare the data again"
        ) from error
    version = (
        metadata.get("format_version") if isinstance(metadata, dict) else None
    )
    if type(version) is not int or version != FORMAT_VERSION:  # True equals 1
        raise InputError(
            f"{path}: format_version is {version}, this version of longsum_jax reads "
            f"{FORMAT_VERSION}; prepare the data again"
        )
    entries = [field.name for field in dataclasses.fields(_Entries)]
    from_dict(
        _Entries,
        {name: metadata[name] for name in entries if name in metadata},
        str(path),
    )
    for name in (metadata["split"], *(metadata.get("checksums") or {})):
        if (
            Path(name).name != name
            or len(name.encode(errors="replace")) > _MAX_NAME
        ):
            shown = name if len(name) < 80 else f"{name[:80]}..."
            raise InputError(
                f"{path}: {shown!r} is not a file name in it; prepare the data again"
            )
    return metadata


def _check_tokenizer(
    directory: Path, metadata: dict[str, Any], expected: str | None
) -> None:
    actual = metadata["tokenizer"]["fingerprint"]
    if expected is not None and actual != expected:
        raise InputError(
            f"{directory} was prepared with tokenizer {actual}, this run uses {expected}; "
            f"use the tokenizer in {directory / 'tokenizer'}, with its number of ids as "
            "model.vocab_size, or prepare the data again"
        )


def _read_lengths(directory: Path, num_examples: int) -> np.ndarray:
    path = directory / LENGTHS
    try:
        open_regular(path).close()
        lengths = np.load(path, mmap_mode="r")
    except (
        Exception
    ) as error:  # a damaged header can make NumPy raise any exception
        raise InputError(
            f"{path} is missing or damaged ({error}); prepare the data again"
        ) from error
    if lengths.shape != (num_examples, 2):
        raise InputError(
            f"{path} has shape {lengths.shape}, not {(num_examples, 2)}; prepare the data again"
        )
    if lengths.dtype != np.int32 or lengths.min(initial=0) < 0:
        raise InputError(
            f"{path} contains numbers that are not lengths; prepare the data again"
        )
    return lengths


def _open_shard(path: Path, num_records: int) -> Any:
    import grain

    check_utf8_name(path)
    if not path.is_file():  # the ArrayRecord library would block on a pipe
        raise InputError(
            f"{path} is missing; copy all the shards or prepare the data again"
        )
    try:
        shard = grain.sources.ArrayRecordDataSource(str(path))
    except RuntimeError as error:
        raise InputError(
            f"{path} is damaged ({error}); copy it again or prepare the data again"
        ) from error
    if len(shard) != num_records:
        raise InputError(
            f"{path} holds {len(shard)} examples, but {METADATA} lists {num_records}; "
            "copy it again or prepare the data again"
        )
    return shard
