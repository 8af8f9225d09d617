"""Layers of a stack that are not all alike: runs of equal layers, each scanned by itself, and their
parameters.

A stack of equal layers keeps its parameters under ``layers``, stacked on their first axis.
Otherwise every run of equal layers has its own, ``layers_0_5`` for the first six.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError

_PART = re.compile(
    r"(.*/)?layers(?:_(\d+)_(\d+))?/(.*)"
)  # of a flat path: where, first and last layer, which parameter


class LayerKind(NamedTuple):
    """What tells layers apart: the encoder attention (a decoder's layers have none), and whether
    there is a memory."""

    attention: str
    memory: bool = False


class LayerGroup(NamedTuple):
    """A run of equal layers.

    Attributes:
        name: of its parameters.
        first: index of its first layer.
        size: number of its layers.
        kind: what they have in common, ``LayerKind``.
    """

    name: str
    first: int
    size: int
    kind: Any

    def rows(self, tree: Any) -> Any:
        """These layers' rows of a pytree with one row per layer of the stack."""
        return jax.tree.map(lambda x: x[self.first : self.first + self.size], tree)


def layer_groups(kinds: Sequence[Hashable]) -> tuple[LayerGroup, ...]:
    """The runs of a stack whose layer i is of ``kinds[i]``."""
    starts = [i for i in range(len(kinds)) if i == 0 or kinds[i] != kinds[i - 1]]
    if len(starts) == 1:
        return (LayerGroup("layers", 0, len(kinds), kinds[0]),)
    stops = [*starts[1:], len(kinds)]
    return tuple(
        LayerGroup(f"layers_{a}_{b - 1}", a, b - a, kinds[a])
        for a, b in zip(starts, stops, strict=True)
    )


def is_hybrid(name: str) -> bool:
    """Whether ``name`` of an encoder attention says what each layer has: "window*3,full"."""
    return "," in name or "*" in name


def kinds_of(name: str) -> Iterator[tuple[str, int]]:
    """("window", 3), ("full", 1) for "window*3,full".

    Raises:
        InputError: a number of layers that is none.
    """
    for part in name.split(","):
        kind, star, count = part.strip().partition("*")
        if star and not (count.isdecimal() and int(count)):
            raise InputError(
                f'encoder_attention "{name}": "{part}" gives no number of layers; write KIND or KIND*NUMBER, '
                '"window*3,full"'
            )
        yield kind, int(count or 1)


def layer_kinds(name: str, num_layers: int) -> tuple[str, ...]:
    """The encoder attention of every layer.

    Raises:
        InputError: a hybrid for another number of layers.
    """
    if not is_hybrid(name):
        return (name,) * num_layers
    kinds = tuple(kind for kind, count in kinds_of(name) for _ in range(count))
    if len(kinds) != num_layers:
        raise InputError(
            f'encoder_attention "{name}" says what {len(kinds)} layers have, but the encoder has {num_layers}; '
            "name every layer once, KIND*NUMBER for several in a row"
        )
    return kinds


def layers_of_path(path: str) -> tuple[str, int] | None:
    """("encoder/layers/ff_norm/scale", 6) for "encoder/layers_6_11/ff_norm/scale": the path of a
    stack of equal layers, and the index of the first layer; None for parameters of no layer."""
    match = _PART.fullmatch(path)
    if match is None:
        return None
    where, first, _, rest = match.groups()
    return f"{where or ''}layers/{rest}", int(first or 0)


def regroup(params: Mapping[str, Any], wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """The parameters of a model under the paths of one whose layers fall into other groups.

    Args:
        params: flat path ("encoder/layers/ff_norm/scale") to array [layers, ...].
        wanted: flat path to shape.

    Returns:
        Flat path to array: those of ``wanted`` that ``params`` has for every layer, and as it is
        what ``wanted`` has no place for.
    """
    rows: dict[
        tuple[str, int], tuple[str, int]
    ] = {}  # (path in a stack of equal layers, layer) -> where it is
    for path, value in params.items():
        if (found := layers_of_path(path)) is not None:
            rows |= {(found[0], found[1] + i): (path, i) for i in range(value.shape[0])}
    result, used = {}, set()
    for path, shape in wanted.items():
        found = None if path in params else layers_of_path(path)
        places = [rows.get((found[0], found[1] + i)) for i in range(shape[0])] if found else []
        if places and None not in places:
            result[path] = jnp.stack([params[name][i] for name, i in places])
            used |= {name for name, _ in places}
    return {path: value for path, value in params.items() if path not in used} | result
