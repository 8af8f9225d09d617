"""Arrow files, as written by ``datasets.Dataset.save_to_disk`` and for Feather; needs pyarrow."""

from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, NamedTuple

from longsum_jax.files import ARROW_SUFFIXES

# First bytes of a file with an index, and of a stream, which has none.
MAGIC = (b"ARROW1", b"\xff\xff\xff\xff")
_OF_SPLITS = "dataset_dict.json"
_OF_ROWS = {"state.json", "dataset_info.json"}


class ArrowFile(NamedTuple):
    """Columns and contents of a file.

    Attributes:
        names: names of the columns.
        batches: batches of rows, ``pyarrow.RecordBatch``.
    """

    names: list[str]
    batches: Iterator[Any]


def open_arrow(stream: BinaryIO) -> ArrowFile:
    """Opens an Arrow file or a saved Arrow stream.

    Raises:
        pyarrow.ArrowException: the file is damaged.
    """
    import pyarrow.ipc

    has_index = stream.read(len(MAGIC[0])) == MAGIC[0]
    stream.seek(0)
    if not has_index:
        reader = pyarrow.ipc.open_stream(stream)
        return ArrowFile(reader.schema.names, iter(reader))
    file = pyarrow.ipc.open_file(stream)
    batches = map(file.get_batch, range(file.num_record_batches))
    return ArrowFile(file.schema.names, batches)


def datasets_metadata(files: Collection[str]) -> set[str]:
    """Returns the files of a folder in which ``save_to_disk`` describes its Arrow files."""
    names = {_OF_SPLITS}
    if any(name.endswith(ARROW_SUFFIXES) for name in files):
        names |= _OF_ROWS
    return names & set(files)


def pattern_of(files: Collection[str]) -> str:
    """Returns a pattern of data in a folder with such files."""
    if _OF_SPLITS in files:
        return "train/*.arrow"
    return "*.arrow" if datasets_metadata(files) else "*.jsonl"
