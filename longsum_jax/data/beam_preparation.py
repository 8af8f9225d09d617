"""Makes the examples of ``longsum prepare`` on Apache Beam, with any runner.

The main process writes the documents, in parts, to files in the directory of
the preparation. Workers write the records of each part to the same directory.
The name of a part is a hash of its documents and all earlier ones:

    parts/HASH.documents    JSON lines, removed when the records are complete
    parts/HASH.records      records of the part's examples, and their counts

Files are written under temporary names and renamed, so that every file is
complete, and a part with records is never made again: even if the pipeline or a
worker is killed, the examples of each document occur exactly once. The main
process then reads the records in the order of the documents. The directory must
be shared by all machines.

Beam is imported inside the functions.
"""

import argparse
import dataclasses
import functools
import json
import logging
import os
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

from longsum_jax import atomic
from longsum_jax.data.example_records import pack
from longsum_jax.data.examples.base import Counts, example_lengths
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.parallel import DocumentChunk
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean, first_line
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer

DIRECTORY = "parts"  # in the directory of the preparation
# Minimum size of a part: hundreds of short documents, or one book. Larger parts
# would occupy fewer workers, smaller ones would cost more for their files.
PART_CHARACTERS = 2**20


class RecordChunk(NamedTuple):
    """The records of some consecutive documents.

    Attributes:
        num_documents: number of documents.
        digest: hash of these documents and all earlier ones.
        records: serialized examples, each with its lengths.
        counts: counts of these documents.
    """

    num_documents: int
    digest: str
    records: Iterable[tuple[bytes, Sequence[int]]]
    counts: Counts


def parse_flags(flags: str) -> list[str]:
    """Returns the flags of a runner as a list.

    Args:
        flags: flags of Beam's pipeline options, as in a shell.

    Raises:
        InputError: Beam is not installed, or has no such flag.
    """
    options = _import_beam().options.pipeline_options
    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise InputError(
            f"--beam={flags}: {error}; give flags as in a shell"
        ) from None
    parser = _FlagParser(
        add_help=False, allow_abbrev=False, conflict_handler="resolve"
    )
    for section in options.PipelineOptions.__subclasses__():
        section._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(words)
    if unknown:
        names = [name for name in parser._option_string_actions if name[2:]]
        raise InputError(
            f"--beam={flags}: Beam has no flag {unknown[0]}; "
            f"{_similar(unknown[0].partition('=')[0], names)}"
        )
    return words


def make_records(
    task: Task,
    work: Path,
    chunks: Iterable[DocumentChunk],
    flags: Sequence[str],
    *,
    seed: int,
    auxiliary: Auxiliary,
) -> Iterator[RecordChunk]:
    """Yields the records of all documents, in order, made by a pipeline of Beam.

    Args:
        task, seed, auxiliary: arguments of ``make_examples``, picklable.
        work: directory of the preparation, with the tokenizer.
        chunks: documents.
        flags: flags of Beam's pipeline options.

    Raises:
        atomic.UnfinishedError: the pipeline fails; the same call then makes
            only the missing parts.
    """
    directory = work / DIRECTORY
    directory.mkdir(exist_ok=True)
    names = _write_parts(directory, chunks)
    make = PartMaker(task, seed, auxiliary, str(directory))
    _run([name for name in names if not make.is_complete(name)], make, flags)
    for name in names:
        yield _read_records(_records_path(directory, name), name)


@dataclasses.dataclass(frozen=True)
class PartMaker:
    """A picklable function that writes the records of the part with a given name.

    Attributes:
        task, seed, auxiliary: arguments of ``make_examples``.
        directory: directory of the parts.
    """

    task: Task
    seed: int
    auxiliary: Auxiliary
    directory: str

    def is_complete(self, name: str) -> bool:
        """Returns True if the records of a part are written."""
        return _records_path(Path(self.directory), name).exists()

    def __call__(self, name: str) -> None:
        """Writes the records of a part, unless they are complete."""
        directory = Path(self.directory)
        source = _documents_path(directory, name)
        try:
            text = source.read_text(encoding="utf-8")
        except FileNotFoundError:
            if self.is_complete(name):  # by another attempt of the runner
                return
            raise
        docs = [_to_document(line) for line in text.splitlines()]
        counts = Counts()
        examples = make_examples(
            self.task,
            _worker_tokenizer(str(directory.with_name("tokenizer"))),
            docs,
            seed=self.seed,
            counts=counts,
            auxiliary=self.auxiliary,
        )
        records, lengths = [], []
        for example in examples:
            records.append(pack(example))
            lengths.append([int(n) for n in example_lengths(example)])
        header = {
            "documents": len(docs),
            "counts": dataclasses.asdict(counts),
            "sizes": [len(record) for record in records],
            "lengths": lengths,
        }
        content = [json.dumps(header).encode(), b"\n", *records]
        _write(_records_path(directory, name), content)
        source.unlink(missing_ok=True)


class _FlagParser(argparse.ArgumentParser):
    """A parser that raises InputError, without printing all flags."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"--beam: {message}; correct the flag")


def _import_beam() -> Any:
    try:
        # Beam warns of packages that only some of its transforms need.
        logging.disable(logging.WARNING)
        import apache_beam
        import apache_beam.options.pipeline_options
    except ImportError:
        raise InputError(
            "--beam needs Apache Beam: pip install 'longsum_jax[beam]', or leave it out and give "
            "--workers"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return apache_beam


def _similar(name: str, names: Iterable[str]) -> str:
    """Returns a suggestion, without the list of Beam's hundreds of flags."""
    guess, _, _ = did_you_mean(name, names).partition("? ")
    return f"{guess}?" if guess.startswith("did") else "see Beam's guide"


def _write_parts(directory: Path, chunks: Iterable[DocumentChunk]) -> list[str]:
    """Writes the documents of the parts without records; returns the names of all parts."""
    names: list[str] = []
    lines: list[str] = []
    size, digest = 0, ""
    for chunk in chunks:
        lines += [json.dumps(document) for document in chunk.documents]
        size += sum(len(document.document) for document in chunk.documents)
        digest = chunk.digest
        if size >= PART_CHARACTERS:
            names.append(_write_part(directory, digest, lines))
            lines, size = [], 0
    if lines:
        names.append(_write_part(directory, digest, lines))
    return names


def _write_part(directory: Path, digest: str, lines: Sequence[str]) -> str:
    paths = _records_path(directory, digest), _documents_path(directory, digest)
    if not any(path.exists() for path in paths):
        _write(paths[1], [f"{line}\n".encode() for line in lines])
    return digest


def _run(names: Sequence[str], make: PartMaker, flags: Sequence[str]) -> None:
    """Makes parts with a pipeline, and waits until it ends."""
    if not names:
        return
    beam = _import_beam()
    all_options = beam.options.pipeline_options
    options = all_options.PipelineOptions(list(flags))
    # A pipeline that allows these triggers (this one has none) is run by
    # DirectRunner itself; others, by a program that it first downloads.
    options.view_as(all_options.TypeOptions).allow_unsafe_triggers = True
    worker = options.view_as(all_options.WorkerOptions)
    if worker.default_sdk_harness_log_level is None:
        worker.default_sdk_harness_log_level = "WARNING"
    try:
        with beam.Pipeline(options=options) as pipeline:
            parts = pipeline | "names of parts" >> beam.Create(names)
            spread = parts | "to workers" >> beam.Reshuffle()
            _ = spread | "examples" >> beam.Map(make)
    except Exception as error:  # runners raise any exception
        logging.getLogger(__name__).debug("%s", error)
        raise atomic.UnfinishedError(
            f"the Beam pipeline failed ({_reason(error)}); the same command goes on with the parts "
            "that are complete"
        ) from error


def _reason(error: Exception) -> str:
    """Returns the message of a worker's exception, the last line of its traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else first_line(error)


@functools.cache
def _worker_tokenizer(path: str) -> Tokenizer:
    return load_tokenizer(path)


def _to_document(line: str) -> DataRow:
    """Returns a document from JSON, whose lists become tuples."""
    values: list[Any] = json.loads(line)
    return DataRow._make(
        tuple(value) if isinstance(value, list) else value for value in values
    )


def _read_records(path: Path, digest: str) -> RecordChunk:
    with path.open("rb") as file:
        header = json.loads(file.readline())
    return RecordChunk(
        header["documents"],
        digest,
        _records(path, header),
        Counts(**header["counts"]),
    )


def _records(
    path: Path, header: dict[str, Any]
) -> Iterator[tuple[bytes, Sequence[int]]]:
    with path.open("rb") as file:
        file.readline()
        for size, lengths in zip(
            header["sizes"], header["lengths"], strict=True
        ):
            yield file.read(size), lengths


def _write(path: Path, content: Iterable[bytes]) -> None:
    """Writes a file atomically; several processes may write it at the same time."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_all(file, content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_all(file: BinaryIO, content: Iterable[bytes]) -> None:
    file.writelines(content)
    file.flush()
    os.fsync(file.fileno())


def _documents_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.documents"


def _records_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.records"
