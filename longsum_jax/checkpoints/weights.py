"""The weights of a directory in Hugging Face layout: one file, or shards with an index.

An index is not trusted: its shards must be in the directory and contain exactly
the listed tensors.
"""

import json
from collections.abc import Callable, Mapping, Set
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import Any

from longsum_jax.checkpoints.tensor_files import (
    Tensors,
    num_bytes,
    read_safetensors,
    read_torch,
    write_safetensors,
)
from longsum_jax.errors import InputError
from longsum_jax.files import read_json
from longsum_jax.schema import first_names

SAFETENSORS, TORCH_BIN = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"  # suffix of either name
# attribute of torch's DistributedDataParallel that holds the model
WRAPPER = "module."
MAX_SHARD_BYTES = 5_000_000_000

_READERS: dict[str, Callable[[Path], Tensors]] = {
    SAFETENSORS: read_safetensors,
    TORCH_BIN: read_torch,
}


def read_weights(directory: Path) -> tuple[Tensors, Path]:
    """Returns the tensors of a directory by name, and the file or index that lists them.

    Tensors are read on demand. Safetensors take precedence over pickles, and
    single files over shards, as in transformers. Names of a model saved inside
    of torch's DistributedDataParallel are returned without its prefix.

    Raises:
        InputError: missing or damaged weights, or an index that does not match
            its shards.
    """
    for name, read in _READERS.items():
        single, index = directory / name, directory / (name + INDEX)
        if single.exists():
            return _without_wrapper(read(single)), single
        if index.exists():
            return _without_wrapper(_read_shards(directory, index, read)), index
    raise InputError(
        f"{directory}: holds neither {SAFETENSORS} nor {TORCH_BIN}, whole or in shards with an "
        "index; copy them there, or write them with save_pretrained of transformers"
    )


def has_weights(directory: Path) -> bool:
    """Returns True if a directory contains weights, whole or in shards."""
    return any(
        (directory / (name + suffix)).exists()
        for name in _READERS
        for suffix in ("", INDEX)
    )


def _without_wrapper(tensors: Tensors) -> Tensors:
    """Removes the prefix that all names of a wrapped model begin with."""
    if not all(name.startswith(WRAPPER) for name in tensors):
        return tensors
    return {
        name.removeprefix(WRAPPER): tensor for name, tensor in tensors.items()
    }


def write_weights(
    directory: Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Writes safetensors: one file, or shards of at most ``MAX_SHARD_BYTES`` and their index.

    Args:
        directory: directory that exists.
        tensors, metadata: arguments as for ``write_safetensors``.

    Raises:
        OSError: a file cannot be written.
    """
    shards = _split(tensors)
    if len(shards) == 1:
        return write_safetensors(directory / SAFETENSORS, tensors, metadata)
    stem = SAFETENSORS.removesuffix(".safetensors")
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file_name = f"{stem}-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(
            directory / file_name,
            {name: tensors[name] for name in names},
            metadata,
        )
        weight_map |= dict.fromkeys(names, file_name)
    total = sum(num_bytes(tensor) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / (SAFETENSORS + INDEX)).write_text(
        json.dumps(index, indent=2, sort_keys=True) + "\n", "utf-8"
    )


def _split(tensors: Mapping[str, Any]) -> list[list[str]]:
    """Divides names into shards, in order; a tensor larger than a shard gets a separate one."""
    shards: list[list[str]] = [[]]
    room = MAX_SHARD_BYTES
    for name, tensor in tensors.items():
        size = num_bytes(tensor)
        if size > room and shards[-1]:
            shards.append([])
            room = MAX_SHARD_BYTES
        shards[-1].append(name)
        room -= size
    return shards


def _read_shards(
    directory: Path, index: Path, read: Callable[[Path], Tensors]
) -> Tensors:
    """Returns the tensors of all shards of an index."""
    file_names = read_json(index).get("weight_map")
    if not isinstance(file_names, dict) or not all(
        isinstance(name, str) for name in file_names.values()
    ):
        raise InputError(
            f'{index}: expected "weight_map" from tensor names to file names'
        )
    paths = {
        name: _shard_path(directory, index, name)
        for name in sorted(set(file_names.values()))
    }
    absent = [name for name, path in paths.items() if not _is_file(path)]
    if absent:
        raise InputError(
            f"{index}: lists shards that do not exist: {first_names(absent)}; fetch them"
        )
    tensors: Tensors = {}
    for name, path in paths.items():
        shard = read(path)
        promised = {
            key for key, file_name in file_names.items() if file_name == name
        }
        _check_shard(index, path, shard.keys(), promised)
        tensors |= shard
    return tensors


def _check_shard(
    index: Path, path: Path, stored: Set[str], promised: Set[str]
) -> None:
    """Raises an InputError unless a shard contains the tensors that the index lists."""
    missing, extra = sorted(promised - stored), sorted(stored - promised)
    if missing:
        raise InputError(
            f"{path}: lacks tensors that {index.name} lists: {first_names(missing)}; "
            "copy both again"
        )
    if extra:
        raise InputError(
            f"{path}: holds tensors that {index.name} lists elsewhere or not at all: "
            f"{first_names(extra)}; copy both again"
        )


def _shard_path(directory: Path, index: Path, name: str) -> Path:
    """Returns the file of a shard.

    Raises:
        InputError: the file is neither in the directory nor, by a link, in the
            blobs of the same Hub cache.
    """
    if not (_is_relative(name) and _lies_inside(directory, directory / name)):
        raise InputError(
            f"{index}: shard {name!r} is outside of the directory; it is not read"
        )
    return directory / name


def _is_relative(name: str) -> bool:
    """Returns True for a name below a directory, by the rules of POSIX and of Windows."""
    if not name or "\0" in name:
        return False
    paths = (PurePosixPath(name), PureWindowsPath(name))
    return not any(path.anchor or ".." in path.parts for path in paths)


def _lies_inside(directory: Path, path: Path) -> bool:
    """Returns True if a file is in a directory, following links.

    A snapshot in the Hub's cache is a directory "snapshots/REVISION" of links
    into "blobs".
    """
    root = directory.resolve()
    try:
        path = path.resolve()
    except (
        OSError,
        RuntimeError,
        ValueError,
    ):  # circular links, an invalid file name
        return False
    roots = [root]
    if root.parent.name == "snapshots":
        roots.append(root.parent.parent / "blobs")
    return any(path.is_relative_to(root) for root in roots)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # an invalid file name
        return False
