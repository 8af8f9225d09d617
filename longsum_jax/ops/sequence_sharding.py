"""Texts cut over devices: each holds one part of the positions, and gets from the others what it
has to see.

Operations that take ``axes`` work on a whole text where it is empty. Where it names the mesh axes
that cut the text, they run inside ``shard_map`` (``shard_map_sequence``) on the part of one device, all
parts equally long: blocks of neighbours come by a halo exchange (Liu et al. 2023 pass all keys
around; a window needs those next door alone), single tokens by a sum, and a softmax over all
positions is merged by its sums of exponentials (``key_sets.merge_shards``).
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from longsum_jax.typing import Array

Axes = tuple[str, ...]  # of a mesh


class SequenceSharding(NamedTuple):
    """Mesh axes that cut the rows of a batch and, at least one, the positions of every text;
    ``parts`` of a text."""

    batch: Axes
    length: Axes
    parts: int


def count_shards(axes: Axes) -> int:
    """Into how many parts the text is cut."""
    return lax.axis_size(axes) if axes else 1


def first_position(length: int, axes: Axes) -> Array | int:
    """The position in the whole text at which this part, of ``length`` positions, begins."""
    return lax.axis_index(axes) * length if axes else 0


def halo_exchange(x: Array, left: int, right: int, axes: Axes = ()) -> Array:
    """[B, N, ...] -> [B, left + N + right, ...] with what stands before and after; zeros (False)
    beyond both ends.

    Neighbours that are shorter than what is asked for are passed on from further away.
    """
    if not axes:
        return jnp.pad(x, ((0, 0), (left, right)) + ((0, 0),) * (x.ndim - 2))
    size, parts = x.shape[1], count_shards(axes)

    def received(rows: Array, hops: int) -> Array:
        pairs = [(i, i + hops) for i in range(parts) if 0 <= i + hops < parts]
        return lax.ppermute(rows, axes, pairs) if pairs else jnp.zeros_like(rows)

    before = [received(x[:, -min(size, left - i * size) :], i + 1) for i in range(-(-left // size))]
    after = [
        received(x[:, : min(size, right - i * size)], -i - 1) for i in range(-(-right // size))
    ]
    return jnp.concatenate([*before[::-1], x, *after], axis=1)


def sum_over(x: Array, axes: Axes) -> Array:
    """The sum of what all parts give."""
    return lax.psum(x, axes) if axes else x


def shard_map_sequence(
    function: Callable[..., Any],
    cut: SequenceSharding,
    *,
    text: Mapping[str, Any],
    rows: Mapping[str, Any] | None = None,
    shared: Mapping[str, Any] | None = None,
    block: int = 1,
    rng: Array | None = None,
    outputs: tuple[str, ...] | str = "text",
) -> Any:
    """What ``function(**text, **rows, **shared, axes=...)`` gives, computed by every device for its
    part.

    Args:
        text: arrays [B, L, ...], cut into parts of whole blocks; zeros (False) pad L.
        rows: arrays [B, ...] that all parts see.
        shared: arrays that all rows and parts see.
        block: tokens.
        rng: gives ``function`` another keyword, ``rng``, a key of each device's own.
        outputs: which of "text" [B, L, ...] and "rows" [B, ...] the function gives.
    """
    length = jax.tree.leaves(text)[0].shape[1]
    extra = -length % (cut.parts * block)
    pad = lambda x: jnp.pad(x, ((0, 0), (0, extra)) + ((0, 0),) * (x.ndim - 2))  # noqa: E731
    text = jax.tree.map(pad, dict(text)) if extra else dict(text)

    def run(
        text: dict[str, Any], rows: dict[str, Any], shared: dict[str, Any], rng: Array | None
    ) -> Any:
        more = (
            {}
            if rng is None
            else {"rng": jax.random.fold_in(rng, lax.axis_index(cut.batch + cut.length))}
        )
        return function(**text, **rows, **shared, **more, axes=cut.length)

    batch = cut.batch or None
    specs = {"text": P(batch, cut.length), "rows": P(batch), "shared": P()}
    out_specs = (
        specs[outputs] if isinstance(outputs, str) else tuple(specs[name] for name in outputs)
    )
    out = jax.shard_map(
        run,
        in_specs=(specs["text"], specs["rows"], specs["shared"], specs["shared"]),
        out_specs=out_specs,
    )(text, dict(rows or {}), dict(shared or {}), rng)
    if not extra:
        return out
    if isinstance(outputs, str):
        return out[:, :length] if outputs == "text" else out
    return tuple(
        x[:, :length] if name == "text" else x for name, x in zip(outputs, out, strict=True)
    )
