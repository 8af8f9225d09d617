"""Rows that map parameter paths to names in state dicts."""

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

_NONE: Mapping[str, Any] = MappingProxyType({})
# maximum difference between float32 sinusoids of two libraries
_SINUSOID_ERROR = 1e-6


class WeightRow(NamedTuple):
    """One parameter and its name in state dicts.

    Attributes:
        path: path of the parameter, "decoder/layers/self_attention/q/kernel".
        key: key in the state dict. ``{i}`` in a key counts layers: the
            parameter is the stack of their arrays on its first axis.
        layout: layout of the PyTorch array relative to the Flax array (of one
            layer). "same": the same array. "linear": a weight [out, in]; the
            first ``inputs`` axes of the Flax kernel are input axes, the others
            output axes (q [d_model, heads, head_dim]: 1; o [heads, head_dim,
            d_model]: 2). "merged": all axes as one (a bias [heads, head_dim] is
            [heads * head_dim]). "row": an additional leading axis of size 1.
        inputs: number of input axes, for "linear".
        optional: True if a state dict may lack the array (in all layers); the
            parameter is then zeros.
        first: value of ``{i}`` for the first layer of the parameter.
        alternatives: keys in order of precedence, of which the first one that
            is present replaces ``key`` if it is absent; they contain ``{i}`` if
            ``key`` does.
    """

    path: str
    key: str
    layout: Literal["same", "linear", "merged", "row"] = "same"
    inputs: int = 1
    optional: bool = False
    first: int = 0
    alternatives: tuple[str, ...] = ()


class WeightMap(NamedTuple):
    """The contents of a family's state dicts.

    Attributes:
        rows: every parameter once.
        tied: key of a copy to the key of its original. Copies may be absent,
            and one may replace an absent original.
        ignored: regular expressions, searched for in keys, of checkpoint arrays
            that no model reads.
        constants: key to a function that computes the array. It is written on
            save and dropped on load; a different array is an error.
        prefix: prefix of the keys of the bare model. It is added to the keys of
            a state dict in which no key begins with it: checkpoints of models
            without a head leave it out.
        aliases: pairs (regular expression, replacement) that are applied to the
            keys of a state dict, for names in old files.
        exact: regular expressions, searched for in paths, of parameters that
            remain float32 because half precision would degrade them; by default
            the parameters of state-space kernels.
        copies: key of an array that the model does not read to the key of the
            array that is written as its value. It is dropped on load, unless it
            is an alternative of an absent key.
        modules: pairs (regular expression, replacement) from keys to the names
            of modules in the class, by which adapters name them, if they
            differ.
    """

    rows: Sequence[WeightRow]
    tied: Mapping[str, str] = _NONE
    ignored: tuple[str, ...] = ()
    constants: Mapping[str, Callable[[], np.ndarray]] = _NONE
    prefix: str = ""
    aliases: tuple[tuple[str, str], ...] = ()
    exact: tuple[str, ...] = (r"/(log_dt|inv_A_real|A_imag|B|C|D)$",)
    copies: Mapping[str, str] = _NONE
    modules: tuple[tuple[str, str], ...] = ()

    def ignores(self, key: str) -> bool:
        """Returns True for the key of an array that no model reads."""
        return any(re.search(pattern, key) for pattern in self.ignored)

    def dtype(self, path: str, model_dtype: Any) -> np.dtype:
        """Returns the dtype of a parameter in a model that is loaded in dtype ``model_dtype``."""
        is_exact = any(re.search(pattern, path) for pattern in self.exact)
        return jnp.dtype(jnp.float32 if is_exact else model_dtype)


def replace_all(key: str, pairs: Sequence[tuple[str, str]]) -> str:
    """Returns a key after the replacement of all regular expressions in order."""
    for pattern, replacement in pairs:
        key = re.sub(pattern, replacement, key)
    return key


def is_close_to_constant(stored: Any, computed: np.ndarray) -> bool:
    """Returns True if a stored table equals the computed one, up to rounding to half precision.

    Files in half precision may have been read as float32, or saved again in
    float32.
    """
    if stored.shape != computed.shape:
        return False
    table = np.asarray(stored).astype(np.float32)
    halves = [
        kind for kind in (jnp.bfloat16, jnp.float16) if _is_of(table, kind)
    ]
    if halves:
        rounding = float(jnp.finfo(halves[0]).eps) / 2
    else:
        rounding = 0.0
    return np.allclose(table, computed, rtol=0, atol=rounding + _SINUSOID_ERROR)


def _is_of(table: np.ndarray, kind: Any) -> bool:
    """Returns True if a dtype represents all values of a float32 table exactly."""
    return np.array_equal(table.astype(kind).astype(np.float32), table)


def linear(
    path: str, key: str, *, inputs: int = 1, bias: bool = False
) -> list[WeightRow]:
    """Returns the rows of one linear layer: its kernel, and its bias if it has one."""
    rows = [WeightRow(f"{path}/kernel", f"{key}.weight", "linear", inputs)]
    if bias:
        rows.append(WeightRow(f"{path}/bias", f"{key}.bias", "merged"))
    return rows


def linears(
    path: str, key: str, *names: str, inputs: int = 1, bias: bool = False
) -> list[WeightRow]:
    """Returns the rows of several linear layers with the same names on both sides."""
    rows = []
    for name in names:
        rows += linear(
            f"{path}/{name}", f"{key}.{name}", inputs=inputs, bias=bias
        )
    return rows


def fused_linears(
    path: str, key: str, *names: str, bias: bool = False
) -> list[WeightRow]:
    """Returns the rows of linear layers whose weights are stored as one, one after another.

    A key that ends with "[1/3]" is the second of three equal parts of an array
    on its first axis.

    Args:
        path: path of the module with the layers.
        key: key of the stored layer.
        *names: names of the layers in their order.
        bias: True if the layers have biases.
    """
    rows = []
    for index, name in enumerate(names):
        part = f"[{index}/{len(names)}]"
        rows.append(
            WeightRow(f"{path}/{name}/kernel", f"{key}.weight{part}", "linear")
        )
        if bias:
            rows.append(
                WeightRow(f"{path}/{name}/bias", f"{key}.bias{part}", "merged")
            )
    return rows


def layer_norm(path: str, key: str) -> list[WeightRow]:
    """Returns the rows of one layer norm: its scale and its bias."""
    return [
        WeightRow(f"{path}/scale", f"{key}.weight"),
        WeightRow(f"{path}/bias", f"{key}.bias"),
    ]
