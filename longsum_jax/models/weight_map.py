"""Rows that map parameter paths to names in state dicts."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

_NONE: Mapping[str, Any] = MappingProxyType({})


class WeightRow(NamedTuple):
    """One parameter.

    Attributes:
        path: of the parameter, "decoder/layers/self_attention/q/kernel".
        key: in the state dict; one with ``{i}`` stands for the layers of a parameter stacked on its
            first axis.
        kind: what the PyTorch array is to the Flax one (of one layer).
            "same": the same array.
            "linear": a weight [out, in]; the first ``inputs`` axes of the Flax kernel are input
            axes, the others output axes (q [D, H, K]: 1; o [H, K, D]: 2).
            "merged": all axes as one (a bias [H, K] is [H * K]).
            "row": one more axis of size 1 in front.
        inputs: for "linear".
        optional: zeros stand for an array that the state dict lacks (in all layers).
        first: what ``{i}`` is for the first layer of the parameter.
    """

    path: str
    key: str
    kind: Literal["same", "linear", "merged", "row"] = "same"
    inputs: int = 1
    optional: bool = False
    first: int = 0


class WeightMap(NamedTuple):
    """All that a family's state dicts hold.

    Attributes:
        rows: every parameter once.
        tied: key to the key it copies. Copies may be present, one may even stand for what it
            copies.
        ignored: regular expressions, searched for in keys: arrays that checkpoints hold and nothing
            reads.
        constants: key to a function that computes the array; dropped on load (a differing one is an
            error), written on save.
        prefix: of the keys of the bare model. Where no key of a state dict has it, it is
            normalize_config: checkpoints of the model without a head leave it out.
        aliases: (regular expression, replacement) applied to the keys of a state dict: names of old
            files.
        exact: regular expressions, searched for in paths: parameters that half precision would
            spoil, by default those of state-space kernels.
    """

    rows: Sequence[WeightRow]
    tied: Mapping[str, str] = _NONE
    ignored: tuple[str, ...] = ()
    constants: Mapping[str, Callable[[], np.ndarray]] = _NONE
    prefix: str = ""
    aliases: tuple[tuple[str, str], ...] = ()
    exact: tuple[str, ...] = (r"/(log_dt|inv_A_real|A_imag|B|C|D)$",)

    def dtype(self, path: str, wanted: Any) -> np.dtype:
        """The type of a parameter of a model whose parameters are to be ``wanted``."""
        return jnp.dtype(jnp.float32 if any(re.search(x, path) for x in self.exact) else wanted)


def linear(path: str, key: str, *, inputs: int = 1, bias: bool = False) -> list[WeightRow]:
    """The kernel of one linear map, and its bias if it has one."""
    rows = [WeightRow(f"{path}/kernel", f"{key}.weight", "linear", inputs)]
    return [*rows, WeightRow(f"{path}/bias", f"{key}.bias", "merged")] if bias else rows


def linears(
    path: str, key: str, *names: str, inputs: int = 1, bias: bool = False
) -> list[WeightRow]:
    """Several maps that are called the same on both sides."""
    return [
        row
        for name in names
        for row in linear(f"{path}/{name}", f"{key}.{name}", inputs=inputs, bias=bias)
    ]


def layer_norm(path: str, key: str) -> list[WeightRow]:
    """Scale and bias of one layer norm."""
    return [WeightRow(f"{path}/scale", f"{key}.weight"), WeightRow(f"{path}/bias", f"{key}.bias")]
