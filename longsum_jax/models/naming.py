"""How a parameter tree and a PyTorch state dict name the same arrays: rows of data, applied both ways."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import flax.traverse_util
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.typing import Params


class NameRow(NamedTuple):
    """One parameter.

    ``linear``: the PyTorch weight [out, in] is transposed, its axes split or merged as the Flax kernel has them.
    A key with ``{i}`` stands for the layers of a stacked parameter.
    """

    path: str
    key: str
    kind: Literal["same", "linear"] = "same"


def to_params(
    state: Mapping[str, np.ndarray],
    rows: list[NameRow],
    tied: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    where: str,
) -> Params:
    """Parameter tree (float32 numpy) of a state dict.

    Args:
        state: key to array; tied copies may be present.
        rows: the model's name table.
        tied: key to the key it copies.
        shapes: flat path ("a/b/kernel") to the shape the model wants.
        where: the file, for error messages.

    Raises:
        InputError: lists missing, left-over and misshapen keys, or a copy that differs from what it copies.
    """
    rest = dict(state)
    flat, missing, misshapen = {}, [], []
    for row in rows:
        stacked, shape = "{i}" in row.key, shapes[row.path]
        keys = [row.key.format(i=i) for i in range(shape[0])] if stacked else [row.key]
        shape = shape[1:] if stacked else shape
        found = {key: np.asarray(rest.pop(key), np.float32) for key in keys if key in rest}
        wanted = _torch_shape(row, shape)
        misfits = [f"{key} {x.shape}, not {wanted}" for key, x in found.items() if x.shape != wanted]
        missing += [key for key in keys if key not in found]
        misshapen += misfits
        if len(found) == len(keys) and not misfits:
            arrays = [_to_flax(x, row.kind, shape) for x in found.values()]
            flat[row.path] = np.stack(arrays) if stacked else arrays[0]
    left_over = [key for key in rest if key not in tied]
    kinds = {"missing": missing, "not known to this model": left_over, "of another shape": misshapen}
    problems = [f"{kind}: {_some(keys)}" for kind, keys in kinds.items() if keys]
    if problems:
        raise InputError(f"{where} does not fit the model of its config.json; {'; '.join(problems)}")
    for key in rest:
        if not np.array_equal(rest[key], state[tied[key]]):
            raise InputError(f'{where}: "{key}" should be a copy of "{tied[key]}" (tied weights) but differs')
    return flax.traverse_util.unflatten_dict(flat, sep="/")


def to_state_dict(params: Params, rows: list[NameRow]) -> dict[str, np.ndarray]:
    """State dict (float32 numpy, tied copies left out) of a parameter tree; the inverse of ``to_params``."""
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    state = {}
    for row in rows:
        value = np.asarray(flat[row.path], np.float32)
        if "{i}" in row.key:
            outputs = _outputs(row.path, value[0].shape)
            state |= {row.key.format(i=i): _to_torch(x, row.kind, outputs) for i, x in enumerate(value)}
        else:
            state[row.key] = _to_torch(value, row.kind, _outputs(row.path, value.shape))
    return state


def _outputs(path: str, shape: tuple[int, ...]) -> int:
    """Size of the output side of a kernel: q, k, v map [D] to [H, K]; o maps [H, K] to [D]."""
    return shape[-1] if len(shape) < 3 or path.endswith("/o/kernel") else shape[-2] * shape[-1]


def _torch_shape(row: NameRow, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a parameter (of one layer) in a state dict."""
    if row.kind == "same":
        return shape
    outputs = _outputs(row.path, shape)
    return outputs, int(np.prod(shape)) // outputs


def _to_flax(x: np.ndarray, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(x.T).reshape(shape) if kind == "linear" else x


def _to_torch(x: np.ndarray, kind: str, outputs: int) -> np.ndarray:
    return np.ascontiguousarray(x.reshape(-1, outputs).T) if kind == "linear" else x


def _some(names: list[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
