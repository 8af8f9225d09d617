"""The weights of a directory in Hugging Face layout: one file, or shards with an index.

An index is not trusted: its shards must lie in the directory and hold exactly the tensors that it
promises.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from longsum_jax.checkpoints.tensor_files import (
    Tensors,
    num_bytes,
    read_safetensors,
    read_torch,
    write_safetensors,
)
from longsum_jax.errors import InputError
from longsum_jax.schema import first_names

SAFETENSORS, TORCH_BIN = "model.safetensors", "pytorch_model.bin"
INDEX = ".index.json"  # after either name
MAX_SHARD_BYTES = 5_000_000_000

_READERS: dict[str, Callable[[Path], Tensors]] = {
    SAFETENSORS: read_safetensors,
    TORCH_BIN: read_torch,
}


def read_weights(directory: Path) -> tuple[Tensors, Path]:
    """Tensors by name, read when asked for, and the file (or index) that they come from.

    Safetensors go before pickles and whole files before shards, as in transformers.

    Raises:
        InputError: no weights, damaged ones, or an index that does not fit its shards.
    """
    for name, read in _READERS.items():
        whole, index = directory / name, directory / (name + INDEX)
        if whole.exists():
            return read(whole), whole
        if index.exists():
            return _read_shards(directory, index, read), index
    raise InputError(
        f"{directory}: holds neither {SAFETENSORS} nor {TORCH_BIN}, whole or in shards with an index"
    )


def write_weights(directory: Path, tensors: Mapping[str, Any]) -> None:
    """Writes safetensors: one file, or shards of at most ``MAX_SHARD_BYTES`` and their index.

    Raises:
        OSError: a file cannot be written.
    """
    shards = _split(tensors)
    if len(shards) == 1:
        return write_safetensors(directory / SAFETENSORS, tensors)
    stem, weight_map = SAFETENSORS.removesuffix(".safetensors"), {}
    for number, names in enumerate(shards, 1):
        file_name = f"{stem}-{number:05}-of-{len(shards):05}.safetensors"
        write_safetensors(directory / file_name, {name: tensors[name] for name in names})
        weight_map |= dict.fromkeys(names, file_name)
    total = sum(num_bytes(tensor) for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / (SAFETENSORS + INDEX)).write_text(
        json.dumps(index, indent=2, sort_keys=True) + "\n", "utf-8"
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; InputError for an unreadable or malformed one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def _split(tensors: Mapping[str, Any]) -> list[list[str]]:
    """Names in shards: filled in order, a tensor larger than a shard alone in one."""
    shards, room = [[]], MAX_SHARD_BYTES
    for name, tensor in tensors.items():
        size = num_bytes(tensor)
        if size > room and shards[-1]:
            shards.append([])
            room = MAX_SHARD_BYTES
        shards[-1].append(name)
        room -= size
    return shards


def _read_shards(directory: Path, index: Path, read: Callable[[Path], Tensors]) -> Tensors:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(name, str) for name in weight_map.values()
    ):
        raise InputError(f'{index}: expected "weight_map" from tensor names to file names')
    paths = {name: _shard_path(directory, index, name) for name in sorted(set(weight_map.values()))}
    absent = [name for name, path in paths.items() if not _is_file(path)]
    if absent:
        raise InputError(
            f"{index}: names shards that are not there: {first_names(absent)}; fetch them"
        )
    tensors: Tensors = {}
    for name, path in paths.items():
        found = read(path)
        _check_shard(
            index, path, found, [key for key, shard in weight_map.items() if shard == name]
        )
        tensors |= found
    return tensors


def _check_shard(index: Path, path: Path, found: Iterable[str], promised: Iterable[str]) -> None:
    found, promised = set(found), set(promised)
    if promised - found:
        raise InputError(
            f"{path}: lacks tensors that {index.name} promises: {first_names(sorted(promised - found))}"
        )
    if found - promised:
        raise InputError(
            f"{path}: holds tensors that {index.name} does not list there: {first_names(sorted(found - promised))}"
        )


def _shard_path(directory: Path, index: Path, name: str) -> Path:
    """The file of a shard, which must be in the directory, or a link into the blobs of the same hub
    cache."""
    paths = PurePosixPath(name), PureWindowsPath(name)
    named_inside = (
        name and "\0" not in name and not any(path.anchor or ".." in path.parts for path in paths)
    )
    if not (named_inside and _lies_inside(directory, directory / name)):
        raise InputError(f"{index}: shard {name!r} is outside of the directory; it is not read")
    return directory / name


def _lies_inside(directory: Path, path: Path) -> bool:
    """Follows links. A snapshot of the hub's cache is a folder "snapshots/REVISION" of links into
    "blobs"."""
    root = directory.resolve()
    try:
        path = path.resolve()
    except (OSError, RuntimeError):  # links in a circle
        return False
    roots = [root]
    if root.parent.name == "snapshots":
        roots.append(root.parent.parent / "blobs")
    return any(path.is_relative_to(root) for root in roots)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False
