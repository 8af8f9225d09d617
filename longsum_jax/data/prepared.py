"""Prepared tasks: sharded ArrayRecord files of token ids, read in any order without TensorFlow.

A prepared directory contains one split of one task:

    train-00000-of-00008.array_record ...   example i is record i // 8 of shard i % 8
    lengths.npy                             int32 [n, 2], tokens of source and target
    tokenizer/                              tokenizer that produced the ids
    metadata.json                           description of the content and how it was made
    SHA256SUMS                              written last, see ``longsum_jax.checksums``
"""

import dataclasses
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from longsum_jax import checksums
from longsum_jax.data.examples.base import (
    Counts,
    Example,
    example_lengths,
    unpack,
)
from longsum_jax.data.spool import SHARD
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.files import (
    allow_open_files,
    check_utf8_name,
    open_regular,
    parse_json,
    read_bytes,
)
from longsum_jax.schema import Count, Positive, check_ranges, from_dict
from longsum_jax.text.sentences import splitter_name

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
        directory: directory written by ``data.write_prepared``.
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
        # every shard is opened when its first example is read
        allow_open_files(
            num_shards, str(self.directory), "prepare fewer shards"
        )
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
            fingerprints: hashes as for ``data.write_prepared``.
        """
        from longsum_jax.training.workdir import differing_keys

        there = _content(
            self.metadata["task"], self.metadata.get("auxiliary", {})
        )
        here = _content(dataclasses.asdict(task), fingerprints)
        there |= {"splitter": self.metadata.get("splitter")}
        here |= {"splitter": splitter_name()}
        if task.base_objective != "summarize_segments":
            names: tuple[str, ...] = _OF_TEXTS
            names += ("max_parts",) if task.base_objective == "extract" else ()
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
    grain = import_extra("grain", str(path), "shards", extra="shards")
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
