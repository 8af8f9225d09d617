"""Parquet through pyarrow, one document per row."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source

Rows = Iterator[tuple[int, Mapping[str, Any] | InputError]]


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a table.

    Raises:
        InputError: the file is damaged.
    """
    parquet = import_extra("pyarrow.parquet", source.name, "Parquet")
    arrow = import_extra("pyarrow", source.name, "Parquet")
    try:
        table = parquet.ParquetFile(io.BytesIO(source.content))
        metadata = table.metadata
        names = table.schema_arrow.names
        groups = range(metadata.num_row_groups)
        source.check_size(
            sum(metadata.row_group(i).total_byte_size for i in groups)
        )
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{source.name}: a damaged Parquet file ({error}); copy it again"
        ) from None
    columns = columns_read(names, source)
    return row_documents(source, _rows(table, columns, arrow, source))


def _rows(table: Any, columns: list[str], arrow: Any, source: Source) -> Rows:
    number, name = 0, source.name
    try:
        # One row at a time: a value that is stored once may be repeated in
        # every row.
        for batch in table.iter_batches(batch_size=1, columns=columns):
            number += 1
            source.count_bytes(batch.nbytes)
            yield number, row_of(batch, f"{name}:{number}")
    except (arrow.ArrowException, OSError) as error:
        yield (
            number + 1,
            InputError(
                f"{name}: damaged after row {number} ({error}); copy it again"
            ),
        )


def row_of(batch: Any, name: str) -> Mapping[str, Any] | InputError:
    """Returns the only row of a batch, or an error if Python cannot represent a value."""
    try:
        return batch.to_pylist()[0]
    except ValueError as error:  # invalid UTF-8, fractions of a microsecond
        return InputError(
            f"{name}: a damaged value ({error}); write the row again"
        )
