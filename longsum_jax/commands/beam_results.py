"""Summarizes a corpus on Apache Beam, with any runner.

The main process writes the documents, in parts, to a hidden directory in --out.
Workers, each with a model, write the results of each part to the same
directory:

    HASH.inputs     a JSON array for each document
    HASH.results    keys of the documents, and an object for each of them

The key of a document is a hash of its content and all settings. After a kill or
a failed pipeline, documents whose key has a result are not summarized again. A
part consists of whole windows, the documents from which batches are formed, so
that batches are the same as without Beam.
"""

import dataclasses
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax import beam_pipeline

DIRECTORY = ".beam"  # in --out

Inputs = list[Any]  # a document, as JSON
Results = dict[str, Any]  # its result, as JSON
Summarize = Callable[[list[Inputs]], list[Results]]


class DocumentResult(NamedTuple):
    """The result of a document.

    Attributes:
        number: index of the document.
        inputs: document, as JSON.
        results: result, as JSON.
    """

    number: int
    inputs: Inputs
    results: Results


def corpus_results(
    out: Path,
    documents: Iterable[Inputs],
    load: Callable[[], Summarize],
    flags: Sequence[str],
    *,
    settings: Any,
    window: int,
) -> Iterator[DocumentResult]:
    """Yields the results of all documents, in order, made by a pipeline of Beam.

    The directory of the parts is removed after the last result.

    Args:
        out: directory that all machines share.
        documents: documents as JSON arrays.
        load: picklable function that loads a model in a worker, and returns the
            function from documents to results.
        flags: flags of Beam's pipeline options.
        settings: JSON value that the results depend on.
        window: number of documents from which batches are formed.

    Raises:
        atomic.UnfinishedError: the pipeline fails; the same call then makes
            only the missing parts.
    """
    directory = (out / DIRECTORY).absolute()
    directory.mkdir(exist_ok=True)
    parts = _finished_parts(directory)
    maker = ResultMaker(str(directory), load)
    names: list[str] = []
    keys: list[str] = []

    def new_rows() -> Iterator[tuple[str, Inputs]]:
        for document in documents:
            key = _hash([settings, document])
            keys.append(key)
            if key not in parts:
                yield key, document

    for part in _divided(new_rows(), window):
        name = _write_inputs(directory, part)
        names.append(name)
        parts |= dict.fromkeys([key for key, _ in part], name)
    try:
        beam_pipeline.run(names, maker, flags)
    finally:
        _loaded.clear()
    name, results = "", {}
    for number, key in enumerate(keys):
        if parts[key] != name:
            name = parts[key]
            results = _read_part(directory, name)
        yield DocumentResult(number, *results[key])
    shutil.rmtree(directory, ignore_errors=True)


@dataclasses.dataclass(frozen=True)
class ResultMaker:
    """A picklable function that writes the results of the part with a given name.

    Attributes:
        directory: directory of the parts.
        load: function that loads the model of a worker.
    """

    directory: str
    load: Callable[[], Summarize]

    def setup(self) -> None:
        """Loads the model, once per process."""
        self._summarize()

    def __call__(self, name: str) -> None:
        """Writes the results of a part, unless they are complete."""
        directory = Path(self.directory)
        if _results_path(directory, name).exists():  # a repeated attempt
            return
        rows = _read_inputs(directory, name)
        results = self._summarize()([document for _, document in rows])
        lines = [[key for key, _ in rows], *results]
        content = [f"{json.dumps(line)}\n".encode() for line in lines]
        beam_pipeline.write(_results_path(directory, name), content)

    def _summarize(self) -> Summarize:
        with _lock:  # runners may call from several threads
            if self.directory not in _loaded:
                _loaded[self.directory] = self.load()
            return _loaded[self.directory]


_lock = threading.Lock()
# The function with the model of this process, by the directory of the parts.
_loaded: dict[str, Summarize] = {}


def _finished_parts(directory: Path) -> dict[str, str]:
    """Returns the names of the parts with results, by the keys of their documents."""
    parts: dict[str, str] = {}
    for path in directory.glob("*.results"):
        with path.open(encoding="utf-8") as file:
            keys = json.loads(file.readline())
        parts |= dict.fromkeys(keys, path.stem)
    return parts


def _divided(
    rows: Iterable[tuple[str, Inputs]], window: int
) -> Iterator[list[tuple[str, Inputs]]]:
    """Yields the rows of each part: whole windows, except at the end."""
    part: list[tuple[str, Inputs]] = []
    size = 0
    for key, document in rows:
        part.append((key, document))
        size += len(json.dumps(document))
        is_whole = len(part) % window == 0
        if is_whole and size >= beam_pipeline.PART_CHARACTERS:
            yield part
            part, size = [], 0
    if part:
        yield part


def _write_inputs(directory: Path, rows: Sequence[tuple[str, Inputs]]) -> str:
    """Writes the documents of a part; returns its name."""
    name = _hash([key for key, _ in rows])
    path = _inputs_path(directory, name)
    if not path.exists():
        beam_pipeline.write(
            path, [f"{json.dumps(row)}\n".encode() for row in rows]
        )
    return name


def _read_inputs(directory: Path, name: str) -> list[tuple[str, Inputs]]:
    with _inputs_path(directory, name).open(encoding="utf-8") as file:
        return [tuple(json.loads(line)) for line in file]


def _read_part(directory: Path, name: str) -> dict[str, tuple[Inputs, Results]]:
    """Returns the documents and results of a part, by key."""
    rows = _read_inputs(directory, name)
    with _results_path(directory, name).open(encoding="utf-8") as file:
        file.readline()
        return {
            key: (document, json.loads(line))
            for (key, document), line in zip(rows, file, strict=True)
        }


def _hash(value: Any) -> str:
    return hashlib.blake2b(
        json.dumps(value).encode(), digest_size=16
    ).hexdigest()


def _inputs_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.inputs"


def _results_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.results"
