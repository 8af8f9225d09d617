"""Reads documents from parquet files, the format of data sets on the Hugging Face Hub."""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from longsum_jax.data.records import (
    check_fields,
    to_document,
    with_usual_fields,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, first_line
from longsum_jax.remote import is_remote, open_remote
from longsum_jax.text.documents import DataRow, find_files

_ROWS = 256  # rows in memory at a time


def documents(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents of all files of a split, file by file in sorted order.

    As in JSON lines, the fields of id and query may be absent; the default id
    of a row is "<file stem>:<row>".

    Args:
        task: task whose source is "parquet:GLOB".
        split: key of ``task.splits``.
        start: number of documents to leave out, without reading them.

    Raises:
        InputError: pyarrow is not installed, a file is missing or damaged, or
            it lacks a field.
    """
    pattern = task.source.removeprefix("parquet:").replace(
        "{split}", task.source_split(split)
    )
    paths = find_files(pattern)
    yield from documents_of(with_usual_keys(task, paths[0]), paths, start)


def documents_of(
    task: Task, paths: Iterable[str | Path], start: int = 0
) -> Iterator[DataRow]:
    """Yields the documents of files, see ``documents``."""
    total_rows = 0
    for path in paths:
        with _opened(path) as file:
            num_rows = file.metadata.num_rows
        total_rows += num_rows
        first, start = min(start, num_rows), max(0, start - num_rows)
        if first and first == num_rows:
            continue
        for number, record in enumerate(_records(task, path, first), first):
            document = to_document(task, record)
            yield document._replace(
                id=document.id or f"{Path(path).stem}:{number}"
            )
    if not total_rows:
        raise InputError(
            f"{task.source}: the files have no rows; give files with documents"
        )


def with_usual_keys(task: Task, path: str | Path) -> Task:
    """Returns the task with columns of a file that have usual names, see ``rows.choose_keys``."""
    with _opened(path) as file:
        return with_usual_fields(task, file.schema_arrow.names, str(path))


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """Opens a Parquet file; errors become InputErrors."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise InputError(
            f"parquet files need {error.name}: pip install pyarrow, which is in the extra "
            '"data", or read JSON lines (source=json:...)'
        ) from error
    try:
        with contextlib.ExitStack() as stack:
            source: Any = path
            if is_remote(path):
                source = stack.enter_context(open_remote(path))
            yield stack.enter_context(pyarrow.parquet.ParquetFile(source))
    except (pyarrow.ArrowException, OSError) as error:
        reason = first_line(error)
        raise InputError(
            f"{path}: cannot be read as parquet ({reason}); copy it again"
        ) from None


def _check_types(
    path: str | Path, schema: Any, names: Iterable[str | None]
) -> None:
    """Raises InputError if a column of texts holds numbers, dates or truth values."""
    import pyarrow

    for name in set(names) & set(schema.names):
        kind = schema.field(name).type
        if pyarrow.types.is_primitive(kind):
            raise InputError(
                f'{path}: column "{name}" holds {kind}, not texts; name another column, or write '
                "texts into it"
            )


def _records(
    task: Task, path: str | Path, start: int
) -> Iterator[dict[str, Any]]:
    """Yields the rows of one file from ``start`` on, reading only the columns of the task."""
    with _opened(path) as file:
        names = file.schema_arrow.names
        check_fields(
            dataclasses.replace(task, id_key=None, query_key=None), names
        )
        texts = re.split(r"[+|]", task.document_key)
        _check_types(path, file.schema_arrow, (*texts, task.summary_key))
        others = (task.summary_key, task.query_key, task.id_key, task.label_key)
        selected = {*texts, *others, task.choices_key, task.rejected_key}
        columns = [name for name in names if name in selected]
        group = 0  # the row group with the first row
        while start and start >= (
            size := file.metadata.row_group(group).num_rows
        ):
            group, start = group + 1, start - size
        groups = list(range(group, file.metadata.num_row_groups))
        for batch in file.iter_batches(
            _ROWS, row_groups=groups, columns=columns
        ):
            yield from batch.slice(start).to_pylist()
            start = max(0, start - len(batch))
