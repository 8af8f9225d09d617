"""A file of JSON lines that grows row by row, and that a command started again continues."""

import os
from pathlib import Path
from typing import Any, ClassVar

from longsum_jax.errors import InputError
from longsum_jax.files import MAX_ROWS_BYTES, json_text, parse_json, read_bytes

Row = dict[str, Any]


class RowsFile:
    """A file of JSON lines: rows are appended as they are made.

    Args:
        path: path of the file, which need not exist.

    Attributes:
        path: path of the file.
        rows: rows of the file; a line cut short by a crash is dropped.
        columns: keys that each row has.
        kind: name of a row, for errors.

    Raises:
        InputError: a file that cannot be read, or a row without its columns.
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
            # Not splitlines: texts may hold other characters that it takes for the end of a line,
            # such as U+2028.
            *lines, cut_short = content.split(b"\n")
            self.rows = [self._parsed(line, i) for i, line in enumerate(lines, 1)]
            if cut_short:
                os.truncate(path, len(content) - len(cut_short))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give another --out"
            ) from error

    def append(self, row: Row) -> None:
        """Appends one row to the file.

        Raises:
            InputError: the file cannot be written; earlier rows stay in it.
        """
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json_text(row) + "\n")
        except OSError as error:
            raise self._not_written(error) from error
        self.rows.append(row)

    def _not_written(self, error: OSError) -> InputError:
        return InputError(
            f"{self.path}: cannot be written ({error.strerror}); make room and start again, "
            "finished rows are kept"
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
