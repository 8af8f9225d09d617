"""Sequences sharded over devices: halo exchange, sums over shards, ``shard_map`` over positions or
heads.

Functions of ``ops`` with an argument ``axes`` work on a whole sequence if it is
empty. If it names mesh axes, they run inside ``shard_map`` (see
``shard_map_sequence``) on one shard of the sequence; all shards have the same
length. Three kinds of data move between devices: blocks of neighboring shards
by a halo exchange (a window only needs the adjacent shards, whereas Liu et al.
2023 pass all keys around), single tokens by a sum, and a softmax over all
positions by its sums of exponentials (``ops.attention.key_sets.merge_shards``).

Attention to keys anywhere instead has all positions of a few heads
(``shard_map_heads``).

A halo exchange. Four devices share a sequence of eight blocks:

    device      0       1       2       3
    blocks     0 1     2 3     4 5     6 7

``halo_exchange(x, left=1, right=2)`` returns to each device its own blocks
between the blocks of its neighbors; zeros (.) fill positions beyond both ends
of the sequence:

    device 0      . | 0 1 | 2 3
    device 1      1 | 2 3 | 4 5
    device 2      3 | 4 5 | 6 7
    device 3      5 | 6 7 | . .

A halo wider than a shard takes one permutation for every hop. With ``left=3``,
device 2 gets blocks 2 and 3 from one hop away and block 1 from two hops away.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Int, PRNGKeyArray, Shaped

from longsum_jax.ops.padding import append_zeros
from longsum_jax.typing import AnyArray

Axes = tuple[str, ...]  # names of mesh axes
Output = Literal["text", "rows"]


class SequenceSharding(NamedTuple):
    """A sharding of arrays [batch, length, ...] over a mesh.

    Attributes:
        batch: mesh axes that shard the batch; may be empty.
        length: mesh axes that shard the positions of every sequence, at least
            one.
        num_shards: number of devices along ``length``.
    """

    batch: Axes
    length: Axes
    num_shards: int


def count_shards(axes: Axes) -> int:
    """Returns the number of shards of a sequence, 1 without ``axes``."""
    return lax.axis_size(axes) if axes else 1


def first_position(length: int, axes: Axes) -> Int[Array, ""] | int:
    """Returns the position of this shard's first token in the sequence.

    Args:
        length: number of tokens of a shard.
        axes: mesh axes that shard the sequence.
    """
    return lax.axis_index(axes) * length if axes else 0


def sum_over(x: Shaped[Array, "..."], axes: Axes) -> Shaped[Array, "..."]:
    """Sums ``x`` over all shards."""
    return lax.psum(x, axes) if axes else x


def halo_exchange(
    x: Shaped[AnyArray, "batch num_blocks ..."],
    left: int,
    right: int,
    axes: Axes = (),
) -> Shaped[Array, "batch num_blocks_and_halo ..."]:
    """Adds the blocks of neighboring shards before and after the blocks of this shard.

    Args:
        x: blocks (or tokens) of this shard.
        left, right: blocks to add before and after; both may exceed the length
            of a shard.
        axes: mesh axes that shard the sequence.

    Returns:
        ``left + num_blocks + right`` blocks; zeros (False) beyond both ends of
        the sequence.
    """
    if not axes:
        return jnp.pad(x, ((0, 0), (left, right)) + ((0, 0),) * (x.ndim - 2))
    size = x.shape[1]
    num_shards = count_shards(axes)

    def receive(blocks: AnyArray, hops: int) -> Array:
        """Returns the blocks sent from ``hops`` shards away, zeros if there is no sender."""
        routes = [
            (i, i + hops)
            for i in range(num_shards)
            if 0 <= i + hops < num_shards
        ]
        if routes:
            return lax.ppermute(blocks, axes, routes)
        return jnp.zeros_like(blocks)

    # Hop i brings ``size`` blocks, the last hop only the blocks that are still
    # missing.
    before = []
    for i in range(-(-left // size)):
        count = min(size, left - i * size)
        before.append(receive(x[:, -count:], i + 1))
    after = []
    for i in range(-(-right // size)):
        count = min(size, right - i * size)
        after.append(receive(x[:, :count], -i - 1))
    # Blocks from further away are further out on both sides.
    return jnp.concatenate([*before[::-1], x, *after], axis=1)


def shard_map_sequence(
    function: Callable[..., Any],
    sharding: SequenceSharding,
    *,
    text: Mapping[str, Any],
    rows: Mapping[str, Any] | None = None,
    shared: Mapping[str, Any] | None = None,
    block: int = 1,
    rng: PRNGKeyArray | None = None,
    outputs: tuple[Output, ...] | Output = "text",
    has_kernels: bool = False,
) -> Any:
    """Runs ``function(**text, **rows, **shared, axes=...)`` on every device for its shard.

    Args:
        function: function of the arrays of one shard.
        sharding: mesh axes of batch and length.
        text: arrays [batch, length, ...], sharded along both dimensions in
            shards of whole blocks; zeros (False) pad the length.
        rows: arrays [batch, ...], sharded along the batch.
        shared: arrays replicated on every device.
        block: number of tokens of a block.
        rng: PRNG key; ``function`` then gets a keyword ``rng`` with a different
            key on every device.
        outputs: kind of every array that ``function`` returns: "text" for
            [batch, length, ...], "rows" for [batch, ...] that are equal on all
            shards of a sequence.
        has_kernels: True if ``function`` calls Pallas kernels, for whose
            results JAX cannot check ``outputs``, because it does not know over
            which axes they vary.

    Returns:
        The results of ``function``, without the padding.
    """
    length = jax.tree.leaves(text)[0].shape[1]
    # Every shard gets the same number of whole blocks.
    padding = -length % (sharding.num_shards * block)

    def run(
        text: Mapping[str, Any],
        rows: Mapping[str, Any],
        shared: Mapping[str, Any],
        rng: Array | None,
    ) -> Any:
        options = _own_key(rng, sharding)
        return function(
            **text, **rows, **shared, **options, axes=sharding.length
        )

    def unpad(x: Array, output: Output) -> Array:
        return x[:, :length] if output == "text" else x

    text = dict(text)
    if padding:
        text = jax.tree.map(lambda x: append_zeros(x, padding), text)
    batch = sharding.batch or None
    specs = {"text": P(batch, sharding.length), "rows": P(batch), "shared": P()}
    out_specs: P | tuple[P, ...]
    if isinstance(outputs, str):
        out_specs = specs[outputs]
    else:
        out_specs = tuple(specs[name] for name in outputs)
    out = jax.shard_map(
        run,
        in_specs=(
            specs["text"],
            specs["rows"],
            specs["shared"],
            specs["shared"],
        ),
        out_specs=out_specs,
        check_vma=not has_kernels,
    )(text, dict(rows or {}), dict(shared or {}), rng)
    if not padding:
        return out
    if isinstance(outputs, str):
        return unpad(out, outputs)
    return tuple(unpad(x, name) for x, name in zip(out, outputs, strict=True))


def _own_key(
    rng: AnyArray | None, sharding: SequenceSharding
) -> dict[str, Array]:
    """Returns the keyword ``rng`` with a key for this device; an empty dict without ``rng``."""
    if rng is None:
        return {}
    device = lax.axis_index(sharding.batch + sharding.length)
    return {"rng": jax.random.fold_in(rng, device)}


class ByHead(NamedTuple):
    """Arrays with a dimension of heads, which is sharded over the devices.

    Attributes:
        arrays: pytree of arrays.
        names: names of their first dimensions: "heads", "batch", or None.
    """

    arrays: Any
    names: tuple[Literal["batch", "heads"] | None, ...] = ("heads",)


def shard_map_heads(
    function: Callable[..., Any],
    sharding: SequenceSharding,
    *,
    text: Mapping[str, Any],
    rows: Mapping[str, Any] | None = None,
    heads: Mapping[str, ByHead] | None = None,
    rng: PRNGKeyArray | None = None,
) -> Any:
    """Runs ``function(**text, **rows, **heads)`` on every device for some heads of whole sequences.

    One all-to-all gives a device its heads from all shards, another one sends
    the result back:

        device        0    1    2    3              0         1         2         3
        positions    01   23   45   67     ->    01234567  01234567  01234567  01234567
        heads       abcd abcd abcd abcd             a         b         c         d

    Source: DeepSpeed-Ulysses (Jacobs et al. 2023, section 3).

    Args:
        function: function of the arrays of some heads that returns [batch,
            length, heads, head_dim].
        sharding: mesh axes of batch and length; the shards divide the heads.
        text: arrays [batch, length, heads, head_dim], sharded along batch and
            length.
        rows: arrays [batch, ...], sharded along the batch.
        heads: arrays with a dimension of heads.
        rng: PRNG key; ``function`` then gets a keyword ``rng`` with a different
            key on every device.
    """
    axes, length = sharding.length, jax.tree.leaves(text)[0].shape[1]
    # All-to-alls need shards of equal size; ``gather`` removes the padding.
    padding = -length % sharding.num_shards

    def pad(x: AnyArray) -> AnyArray:
        return append_zeros(x, padding) if padding else x

    # [batch, shard_length, heads, ...] -> [batch, length, heads / num_shards,
    # ...]
    def gather(x: AnyArray) -> Array:
        return lax.all_to_all(x, axes, split_axis=2, concat_axis=1, tiled=True)[
            :, :length
        ]

    def run(
        text: dict[str, Any],
        rows: dict[str, Any],
        heads: dict[str, Any],
        rng: Array | None,
    ) -> Array:
        options = _own_key(rng, sharding)
        out = function(**jax.tree.map(gather, text), **rows, **heads, **options)
        # [batch, length, heads / num_shards, ...] -> [batch, shard_length,
        # heads, ...]
        return lax.all_to_all(
            pad(out), axes, split_axis=1, concat_axis=2, tiled=True
        )

    batch = sharding.batch or None
    mesh_axes = {"batch": batch, "heads": axes, None: None}
    heads_specs, heads_arrays = {}, {}
    for name, (arrays, names) in (heads or {}).items():
        heads_specs[name] = P(*(mesh_axes[dimension] for dimension in names))
        heads_arrays[name] = arrays
    out = jax.shard_map(
        run,
        in_specs=(P(batch, axes), P(batch), heads_specs, P()),
        out_specs=P(batch, axes),
        # The check takes the indices of an argsort as equal on all devices;
        # gradients would be wrong.
        check_vma=False,
    )(jax.tree.map(pad, dict(text)), dict(rows or {}), heads_arrays, rng)
    return out[:, :length] if padding else out
