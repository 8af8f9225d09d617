"""Single files of named tensors: reads and writes safetensors, reads PyTorch pickles.

Tensors are read on demand, with plain reads rather than a memory map: a tensor
that was read and dropped uses no memory. Nothing in a file is ever executed or
trusted: names, types and offsets are checked first.
"""

import json
import math
import tarfile
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
import numpy as np

from longsum_jax import checksums
from longsum_jax.checkpoints.state_dict import LazyArray, aligned_empty
from longsum_jax.errors import InputError, first_line
from longsum_jax.files import open_regular, parse_json

Tensors = dict[str, LazyArray]

_METADATA = "__metadata__"  # entry of a header that is not a tensor
_MAX_HEADER = 100_000_000  # bytes, the limit of the format's own library
_DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_NAMES = {jnp.dtype(dtype): name for name, dtype in _DTYPES.items()}


def read_safetensors(path: Path) -> Tensors:
    """Returns the tensors of a safetensors file by name.

    The format: https://huggingface.co/docs/safetensors, "Format".

    Raises:
        InputError: a missing, truncated or malformed file, or a file of this
            library without its sums; also raised later if a tensor cannot be
            read.
    """
    try:
        with open_regular(path) as file:
            size = file.seek(0, 2)
            file.seek(0)
            length = _header_length(file.read(8), size)
            header = parse_json(
                file.read(length), object_pairs_hook=_without_repeats
            )
        tensors = _tensors_of_header(path, header, 8 + length, size)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _damaged(path, error) from error
    # The Hub's cache proves its files by their names.
    if checksums.is_marked(header.get(_METADATA)) and not _is_fetched(path):
        checksums.require(path.parent)
    return tensors


def _is_fetched(path: Path) -> bool:
    """Returns True for a file in a snapshot of the Hub's cache."""
    return any(
        parent.name == "snapshots" and parent.parent.name.startswith("models--")
        for parent in path.absolute().parents
    )


def write_safetensors(
    path: Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Writes tensors (arrays or ``LazyArray``) one by one, in the format that transformers reads.

    Args:
        path: file to write.
        tensors: tensors by name.
        metadata: further strings for the header.

    Raises:
        OSError: the file cannot be written.
    """
    dtypes = {name: jnp.dtype(tensor.dtype) for name, tensor in tensors.items()}
    # Wide types first, so that every tensor is aligned.
    names = sorted(tensors, key=lambda name: (-dtypes[name].itemsize, name))
    # transformers rejects a file without a format.
    header: dict[str, Any] = {_METADATA: {"format": "pt", **metadata}}
    end = 0
    for name in names:
        begin, end = end, end + num_bytes(tensors[name])
        header[name] = {
            "dtype": _NAMES[dtypes[name]],
            "shape": list(tensors[name].shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(
                np.ascontiguousarray(tensors[name])
                .reshape(-1)
                .view(np.uint8)
                .data
            )


def num_bytes(tensor: Any) -> int:
    """Returns the size of an array or ``LazyArray`` in a file."""
    return math.prod(tensor.shape) * jnp.dtype(tensor.dtype).itemsize


def read_torch(path: Path) -> Tensors:
    """Returns the tensors of a ``pytorch_model.bin``; floats of any width become float32.

    Files in torch's zip format are memory-mapped; files from before 2020 are
    read as a whole.

    Raises:
        InputError: torch is missing, or the file is damaged or contains
            anything but tensors.
    """
    try:
        import torch
    except ImportError:
        raise InputError(
            f"{path}: reading this pickle needs torch; install it, or convert the checkpoint to "
            "model.safetensors elsewhere"
        ) from None
    try:
        is_zip = _check_torch_file(path)
        state = torch.load(
            path, map_location="cpu", weights_only=True, mmap=is_zip
        )
    except (
        Exception
    ) as error:  # a damaged or malicious pickle can make torch raise anything
        reason = first_line(error)
        raise InputError(
            f"{path}: not a file of plain tensors, nothing in it was run ({reason})"
        ) from error

    def is_dense(x: Any) -> bool:
        is_plain = (
            isinstance(x, torch.Tensor)
            and x.layout == torch.strided
            and not x.is_quantized
        )
        # A view may repeat a few bytes indefinitely.
        return (
            is_plain
            and x.numel() * x.element_size() <= x.untyped_storage().nbytes()
        )

    if not isinstance(state, dict) or not all(map(is_dense, state.values())):
        raise InputError(f"{path}: expected a dictionary of tensors")
    return {str(key): _of_torch(value) for key, value in state.items()}


def _check_torch_file(path: Path) -> bool:
    """Returns True if a file has torch's zip format, False for the format from before 2020.

    Raises:
        ValueError: a zip archive that torch does not write: compressed, so that
            a few megabytes may expand to any size, or with a pickle that
            contains more than names.
    """
    with open_regular(path) as file:
        if not zipfile.is_zipfile(file):
            file.seek(0)
            if tarfile.is_tarfile(file):
                raise ValueError("a tar archive, as torch wrote before 2017")
            return False
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(
                        f"{member.filename} is compressed, which torch never does"
                    )
                if (
                    member.filename.endswith("data.pkl")
                    and member.file_size > _MAX_HEADER
                ):
                    raise ValueError(
                        f"{member.filename} has {member.file_size} bytes"
                    )
    return True


def _of_torch(tensor: Any) -> LazyArray:
    """Returns a torch tensor as an array."""
    if tensor.is_floating_point():
        dtype = np.dtype(np.float32)
    else:
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))

    def read() -> np.ndarray:
        return _copy_of(tensor, dtype)

    def read_rows(first: int, last: int) -> np.ndarray:
        return _copy_of(tensor[first:last], dtype)

    return LazyArray(tensor.shape, dtype, read, read_rows)


def _copy_of(tensor: Any, dtype: np.dtype) -> np.ndarray:
    """Returns the values of a torch tensor in memory that a device can use."""
    import torch

    out = aligned_empty(tensor.shape, dtype)
    torch.from_numpy(out).copy_(tensor.detach())
    return out


def _header_length(first: bytes, size: int) -> int:
    """Returns the length of the header from the first 8 bytes of a file of ``size`` bytes."""
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > size - 8:
        raise ValueError(
            f"a header of {length} bytes does not fit in a file of {size}"
        )
    if length > _MAX_HEADER:
        raise ValueError(
            f"its header has {length} bytes, more than {_MAX_HEADER}"
        )
    return length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the dictionary of a JSON object; raises a ValueError for repeated names."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name occurs twice in its header")
    return dict(pairs)


def _tensors_of_header(
    path: Path, header: Any, start: int, size: int
) -> Tensors:
    """Returns the tensors described by a header.

    Args:
        start: offset of the first byte of the data.
        size: size of the file in bytes.

    Raises:
        ValueError: tensors that do not fill the data without gaps or overlaps.
    """
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    entries = {
        name: _entry(name, value)
        for name, value in header.items()
        if name != _METADATA
    }
    end = 0
    for name, (_, _, first, last) in sorted(
        entries.items(), key=lambda item: item[1][2:]
    ):
        if first != end:
            raise ValueError(
                f'tensor "{name}" begins at byte {first} of the data, not at {end}'
            )
        end = last
    if start + end != size:
        raise ValueError(
            f"its tensors need {start + end} bytes, the file has {size}"
        )
    tensors = {}
    for name, (dtype, shape, first, _) in entries.items():
        read = partial(_read, path, shape, dtype, start + first)
        rows = partial(_read_rows, path, shape, dtype, start + first)
        tensors[name] = LazyArray(shape, dtype, read, rows)
    return tensors


def _entry(name: str, value: Any) -> tuple[np.dtype, list[int], int, int]:
    """Returns dtype, shape, and first and last byte of one tensor."""
    try:
        is_known = value["dtype"] in _DTYPES
        shape = value["shape"]
        first, last = value["data_offsets"]
        numbers = [*shape, first, last]
    except (TypeError, KeyError, ValueError):
        raise ValueError(
            f'tensor "{name}" is not described by dtype, shape and data_offsets'
        ) from None
    if not is_known:
        raise ValueError(
            f'tensor "{name}" has type {value["dtype"]!r}; known: {", ".join(_DTYPES)}'
        )
    if any(type(number) is not int or number < 0 for number in numbers):
        raise ValueError(
            f'tensor "{name}" has a shape or offset with other than whole numbers'
        )
    dtype = jnp.dtype(_DTYPES[value["dtype"]])
    if last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f'tensor "{name}" takes {last - first} bytes, which does not fit its shape {shape}'
        )
    return dtype, shape, first, last


def _read(
    path: Path, shape: list[int], dtype: np.dtype, offset: int
) -> np.ndarray:
    """Reads one tensor from byte ``offset`` of a file."""
    data = aligned_empty(shape, dtype)
    try:
        with open_regular(path) as file:
            file.seek(offset)
            count = file.readinto(data.reshape(-1).view(np.uint8).data)
    except OSError as error:
        raise _damaged(path, error) from error
    if count < data.nbytes:
        raise _damaged(path, "it was truncated while it was read")
    return data


def _read_rows(
    path: Path,
    shape: list[int],
    dtype: np.dtype,
    offset: int,
    first: int,
    last: int,
) -> np.ndarray:
    """Reads some rows of a tensor that begins at byte ``offset`` of a file."""
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    part = [last - first, *shape[1:]]
    return _read(path, part, dtype, offset + first * row_bytes)


def _damaged(path: Path, reason: object) -> InputError:
    return InputError(
        f"{path}: damaged or truncated safetensors file ({reason}); fetch it again"
    )
