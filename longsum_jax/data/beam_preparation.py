"""Makes the examples of ``longsum prepare`` on Apache Beam, with any runner.

The main process writes the documents, in parts, to files in the directory of
the preparation. Workers write the records of each part to the same directory.
The name of a part is a hash of its documents and all earlier ones:

    parts/HASH.documents    JSON lines, removed when the records are complete
    parts/HASH.records      records of the part's examples, and their counts

Every file is complete, and a part with records is never made again; see
``beam_pipeline``. The main process then reads the records in the order of the
documents.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax import beam_pipeline
from longsum_jax.data.examples.base import Counts, example_lengths, pack
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.parallel import DocumentChunk
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.tokenizers.loading import load_tokenizer

DIRECTORY = "parts"  # in the directory of the preparation


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
    make = RecordMaker(task, seed, auxiliary, str(directory))
    incomplete = [name for name in names if not make.is_complete(name)]
    beam_pipeline.run(incomplete, make, flags)
    for name in names:
        yield _read_records(_records_path(directory, name), name)


@dataclasses.dataclass(frozen=True)
class RecordMaker:
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

    def setup(self) -> None:
        """Loads the tokenizer."""
        _worker_tokenizer(str(Path(self.directory).with_name("tokenizer")))

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
        beam_pipeline.write(_records_path(directory, name), content)
        source.unlink(missing_ok=True)


def _write_parts(directory: Path, chunks: Iterable[DocumentChunk]) -> list[str]:
    """Writes the documents of the parts without records; returns the names of all parts."""
    names: list[str] = []
    lines: list[str] = []
    size, digest = 0, ""
    for chunk in chunks:
        lines += [json.dumps(document) for document in chunk.documents]
        size += sum(len(document.document) for document in chunk.documents)
        digest = chunk.digest
        if size >= beam_pipeline.PART_CHARACTERS:
            names.append(_write_part(directory, digest, lines))
            lines, size = [], 0
    if lines:
        names.append(_write_part(directory, digest, lines))
    return names


def _write_part(directory: Path, digest: str, lines: Sequence[str]) -> str:
    paths = _records_path(directory, digest), _documents_path(directory, digest)
    if not any(path.exists() for path in paths):
        beam_pipeline.write(paths[1], [f"{line}\n".encode() for line in lines])
    return digest


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


def _documents_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.documents"


def _records_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.records"
