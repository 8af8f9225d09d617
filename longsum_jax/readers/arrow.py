"""Arrow files through pyarrow, one document per row."""

import io
from collections.abc import Iterator
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.parquet import Rows, row_of
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source
from longsum_jax.text.arrow import ArrowFile, open_arrow


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a table.

    Raises:
        InputError: the file is damaged.
    """
    pyarrow = import_extra("pyarrow", source.name, "Arrow")
    try:
        file = open_arrow(io.BytesIO(source.content))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{source.name}: a damaged Arrow file ({error}); copy it again"
        ) from None
    columns = columns_read(file.names, source)
    return row_documents(source, _rows(file, columns, pyarrow, source))


def _rows(
    file: ArrowFile, columns: list[str], pyarrow: Any, source: Source
) -> Rows:
    number, name = 0, source.name
    try:
        for batch in file.batches:
            texts = batch.select(columns)
            texts.validate(full=True)  # damaged offsets would end the process
            # One row at a time, as for Parquet.
            for i in range(len(texts)):
                row = texts.slice(i, 1)
                number += 1
                source.count_bytes(row.nbytes)
                yield number, row_of(row, f"{name}:{number}")
    except (pyarrow.ArrowException, OSError) as error:
        yield (
            number + 1,
            InputError(
                f"{name}: damaged after row {number} ({error}); copy it again"
            ),
        )
