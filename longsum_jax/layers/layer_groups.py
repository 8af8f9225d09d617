"""Groups of equal layers in a stack, and their parameters.

A stack of equal layers stores its parameters under "layers", stacked on their
first axis. Otherwise every run of equal layers is scanned separately and has a
separate entry, "layers_0_5" for the first six:

    encoder_attention "full*2,s4d"     encoder/layers_0_1/...  [2, ...]
                                       encoder/layers_2_2/...  [1, ...]
    encoder_attention "full"           encoder/layers/...      [3, ...]

Layers that share their parameters (ALBERT) store them once, without that axis:

    shares_layers                      encoder/layer/...       [...]
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.ops.positions import Rotary

SHARED = "layer"  # name of a group whose layers share their parameters
_MOST_LAYERS = 1000
_COUNT = re.compile(r"[1-9]\d{0,3}", re.ASCII)  # number of consecutive layers
# Name of a group: first and last layer, or neither for a stack of equal layers.
_GROUP = re.compile(r"layers(?:_(\d+)_(\d+))?")
# A flat path: path of the stack, first and last layer, path inside the layer.
_LAYER_PATH = re.compile(r"(.*/)?layers(?:_(\d+)_(\d+))?/(.*)")


class LayerSpec(NamedTuple):
    """Properties in which the layers of one stack may differ.

    Attributes:
        attention: name of the encoder attention, "" in decoders.
        memory: True if the layer has a memory.
        window: number of tokens that a token of a decoder sees, itself
            included; 0 for all.
        rotary: rotary positions of self-attention, None for none.
        normalizes: False if the layer does not normalize the input of its
            self-attention.
    """

    attention: str
    memory: bool = False
    window: int = 0
    rotary: Rotary | None = None
    normalizes: bool = True


class LayerGroup(NamedTuple):
    """A run of equal layers.

    Attributes:
        name: name of the group's parameters.
        first: index of the first layer.
        size: number of layers.
        spec: ``LayerSpec`` of all layers of the group.
    """

    name: str
    first: int
    size: int
    spec: Any

    def rows(self, tree: Any) -> Any:
        """Returns the rows of these layers in a pytree with one row per layer of the stack."""
        return jax.tree.map(
            lambda x: x[self.first : self.first + self.size], tree
        )

    def below(self, layer: int) -> "LayerGroup":
        """Returns the group of its layers whose index is below ``layer``."""
        return self._replace(size=min(max(layer - self.first, 0), self.size))


def layer_groups(
    specs: Sequence[Hashable], is_shared: bool = False
) -> tuple[LayerGroup, ...]:
    """Splits a stack into runs of equal layers.

    Args:
        specs: properties of each layer.
        is_shared: True if the layers, which are all equal, share their
            parameters.
    """
    # layers   0 1 2 3 4 5       specs  a a a b b a
    # starts   0     3   5       groups "layers_0_2", "layers_3_4", "layers_5_5"
    starts = [
        i for i in range(len(specs)) if i == 0 or specs[i] != specs[i - 1]
    ]
    if len(starts) == 1:
        return (
            LayerGroup(
                SHARED if is_shared else "layers", 0, len(specs), specs[0]
            ),
        )
    groups = []
    # Names hold the range of the layers, so that checkpoints of models with
    # other groups can be regrouped (``regroup``).
    for start, stop in zip(starts, [*starts[1:], len(specs)], strict=True):
        name = f"layers_{start}_{stop - 1}"
        groups.append(LayerGroup(name, start, stop - start, specs[start]))
    return tuple(groups)


def is_hybrid(name: str) -> bool:
    """Returns True if ``encoder_attention`` lists the attention of each layer: "window*3,full"."""
    return "," in name or "*" in name


def parse_hybrid(name: str) -> Iterator[tuple[str, int]]:
    """Yields attentions and numbers of layers: ("window", 3), ("full", 1) for "window*3,full".

    Raises:
        InputError: a number of layers that is not a positive integer.
    """
    items = name.split(",", _MOST_LAYERS)
    if len(items) > _MOST_LAYERS:
        raise InputError(
            f"encoder_attention names more than {_MOST_LAYERS} layers; give fewer"
        )
    for item in items:
        attention, star, count = item.strip().partition("*")
        if star and not _COUNT.fullmatch(count):
            raise InputError(
                f'encoder_attention "{name}": "{item}" gives no number of layers; write KIND or '
                'KIND*NUMBER, "window*3,full"'
            )
        yield attention, int(count or 1)


def layer_attentions(name: str, num_layers: int) -> tuple[str, ...]:
    """Returns the name of the encoder attention of every layer.

    Args:
        name: ``encoder_attention`` of a config.
        num_layers: number of layers of the encoder.

    Raises:
        InputError: a hybrid with a different number of layers.
    """
    if not is_hybrid(name):
        return (name,) * num_layers
    groups = list(parse_hybrid(name))
    named = sum(count for _, count in groups)
    if named != num_layers:
        raise InputError(
            f'encoder_attention "{name}" describes {named} layers, but the encoder '
            f"has {num_layers}; name every layer once, KIND*NUMBER for several in a row"
        )
    return tuple(attention for attention, count in groups for _ in range(count))


def num_layers(params: Mapping[str, Any]) -> int:
    """Returns the number of layers in the parameters of a stack; see ``layer_params``.

    Layers that share their parameters count as one.
    """
    if SHARED in params:
        return 1
    sizes = [len(leaves[0]) for leaves in _group_leaves(params) if leaves]
    return sum(sizes)


def layer_params(params: Mapping[str, Any], layer: int) -> Any:
    """Returns the parameters of one layer of a stack, without the axis of layers.

    Args:
        params: parameters of an encoder or decoder: "layers", or groups such as
            "layers_0_5", among others.
        layer: index of the layer.

    Raises:
        IndexError: the stack does not have the layer.
    """
    if SHARED in params:
        return params[SHARED]
    for name, group in params.items():
        match = _GROUP.fullmatch(name)
        if match is None:
            continue
        first = int(match[1] or 0)
        leaves = jax.tree.leaves(group)
        # Every array of a group has a leading axis of its layers.
        if leaves and first <= layer < first + len(leaves[0]):
            return jax.tree.map(lambda x: x[layer - first], group)  # noqa: B023
    raise IndexError(
        f"no layer {layer} among the parameters {', '.join(params)}"
    )


def unstacked_layers(params: Mapping[str, Any]) -> tuple[Any, ...]:
    """Returns ``layer_params`` of every layer; slices of NumPy arrays are views, not copies."""
    return tuple(
        layer_params(params, layer) for layer in range(num_layers(params))
    )


def _group_leaves(params: Mapping[str, Any]) -> list[list[Any]]:
    return [
        jax.tree.leaves(group)
        for name, group in params.items()
        if _GROUP.fullmatch(name)
    ]


def parse_layer_path(path: str) -> tuple[str, int] | None:
    """Splits the path of a parameter of a group of layers.

    Args:
        path: "encoder/layers_6_11/ff_norm/scale".

    Returns:
        The path in a stack of equal layers and the first layer of the group:
        ("encoder/layers/ff_norm/scale", 6). None for parameters outside of
        layers.
    """
    match = _LAYER_PATH.fullmatch(path)
    if match is None:
        return None
    prefix, first, _, rest = match.groups()
    return f"{prefix or ''}layers/{rest}", int(first or 0)


def regroup(
    params: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    """Moves parameters to the paths of a model whose layers are grouped differently.

    Args:
        params: flat path ("encoder/layers/ff_norm/scale") to array [layers,
            ...].
        shapes: flat path to shape.

    Returns:
        Flat path to array: the parameters of ``shapes`` that ``params`` has for
        every layer, and, unchanged, the parameters of ``params`` that have no
        path in ``shapes``.
    """
    # (path in a stack of equal layers, layer) -> (path, row)
    locations: dict[tuple[str, int], tuple[str, int]] = {}
    for path, value in params.items():
        parsed = parse_layer_path(path)
        if parsed is not None:
            uniform_path, first = parsed
            for row in range(value.shape[0]):
                locations[uniform_path, first + row] = path, row

    result: dict[str, Any] = {}
    used: set[str] = set()
    for path, shape in shapes.items():
        if path in params:
            parsed = None
        else:
            parsed = parse_layer_path(path)
        if parsed is None:
            continue
        uniform_path, first = parsed
        # A group is only filled if all of its layers were found.
        wanted_rows = [(uniform_path, first + row) for row in range(shape[0])]
        if wanted_rows and all(row in locations for row in wanted_rows):
            sources = [locations[row] for row in wanted_rows]
            # Rows of several groups may become one group, and the reverse.
            result[path] = jnp.stack(
                [params[name][row] for name, row in sources]
            )
            used |= {name for name, _ in sources}
    unchanged = {
        path: value for path, value in params.items() if path not in used
    }
    return unchanged | result
