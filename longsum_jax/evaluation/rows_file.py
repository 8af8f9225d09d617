"""A JSON lines file that grows row by row, and is continued when a command is restarted."""

import os
from pathlib import Path
from typing import Any, ClassVar

from longsum_jax.errors import InputError
from longsum_jax.files import MAX_ROWS_BYTES, json_text, parse_json, read_bytes

Row = dict[str, Any]


class RowsFile:
    """A JSON lines file: rows are appended when they are finished.

    Args:
        path: path of the file, which may be missing.

    Attributes:
        path: path of the file.
        rows: rows of the file; an incomplete line after a crash is dropped.
        columns: keys that each row must have.
        kind: name of a row, for errors.

    Raises:
        InputError: the file cannot be read, or a row lacks a column.
    """

    columns: ClassVar[tuple[str, ...]] = ("id",)
    kind: ClassVar[str] = "a row"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        if not path.exists():
            return
        try:
            content = read_bytes(path, MAX_ROWS_BYTES)
            # Not splitlines, which would also split at other characters in
            # texts, such as U+2028.
            *lines, cut_short = content.split(b"\n")
            self.rows = [
                self._parsed(line, i) for i, line in enumerate(lines, 1)
            ]
            if cut_short:
                os.truncate(path, len(content) - len(cut_short))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give another --out"
            ) from error

    def append(self, row: Row) -> None:
        """Appends one row to the file.

        Raises:
            InputError: the file cannot be written; earlier rows are kept.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json_text(row) + "\n")
        except OSError as error:
            raise self._not_written(error) from error
        self.rows.append(row)

    def _not_written(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path}: cannot be written ({error.strerror}); free up space and "
            "start again, finished rows are kept"
        )

    def _parsed(self, line: bytes, number: int) -> Row:
        try:
            row: Row = parse_json(line)
            for column in self.columns:
                row[column]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{self.path}:{number}: not {self.kind}; remove the file or give another --out"
            ) from None
        return row
