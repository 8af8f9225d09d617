"""Caches of a decoder during generation: of the encoded document, and of the decoded tokens."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.ops.device_memory import target_memory
from longsum_jax.ops.platform import LANES, target_platform
from longsum_jax.ops.storage import Storage, Stored, store
from longsum_jax.typing import AnyArray

MAX_CROSS_CACHE_BYTES = 2**31  # see ``max_cross_cache_bytes``


def max_cross_cache_bytes(is_slower: bool = False) -> int:
    """Returns the size above which keys and values of the encoder are not stored.

    Every step then attends to the encoder states instead. Accelerators with
    much memory store up to an eighth of it, or a quarter if steps would be much
    slower.

    Args:
        is_slower: True if steps would project the states again, or read states
            that are wider than their keys.
    """
    if target_platform() == "cpu":
        return MAX_CROSS_CACHE_BYTES
    part = 4 if is_slower else 8
    return max(MAX_CROSS_CACHE_BYTES, target_memory() // part)


class KeyValueCache(NamedTuple):
    """Keys and values in the layout of a decoding step, so that no step transposes them."""

    k: Float[Array, "*batch heads head_dim num_keys"]
    v: Float[Array, "*batch heads head_dim num_keys"]

    @classmethod
    def of(
        cls,
        k: Float[AnyArray, "*batch num_keys heads head_dim"],
        v: Float[AnyArray, "*batch num_keys heads head_dim"],
    ) -> "KeyValueCache":
        """Stores keys and values."""
        return cls(jnp.moveaxis(k, -3, -1), jnp.moveaxis(v, -3, -1))

    def read(
        self,
    ) -> tuple[
        Float[Array, "*batch num_keys heads head_dim"],
        Float[Array, "*batch num_keys heads head_dim"],
    ]:
        """Returns keys and values with the axis order of ``of``."""
        return jnp.moveaxis(self.k, -1, -3), jnp.moveaxis(self.v, -1, -3)

    def write(
        self,
        k: Float[AnyArray, "*batch num_new heads head_dim"],
        v: Float[AnyArray, "*batch num_new heads head_dim"],
        start: Int[AnyArray, "*batch"] | Int[AnyArray, ""],
    ) -> "KeyValueCache":
        """Returns a cache with new keys and values from index ``start``, one for all or per row."""

        def write_row(
            cached: AnyArray, new: AnyArray, start: AnyArray
        ) -> Array:
            return lax.dynamic_update_slice_in_dim(
                cached, new, start, new.ndim - 1
            )

        # With one start index the update is a slice; vmap over start indices
        # makes it a scatter.
        if start.ndim == 0:
            write = write_row
        else:
            write = jax.vmap(write_row)
        k, v = jnp.moveaxis(k, -3, -1), jnp.moveaxis(v, -3, -1)
        return KeyValueCache(write(self.k, k, start), write(self.v, v, start))


class SourceKeyValues(NamedTuple):
    """Keys and values of encoder states, with the head's dimensions last.

    Loops of TPUs read rows of 128 dimensions in place; a search would copy the
    layout of ``KeyValueCache`` to this one.
    """

    k: Float[Array, "batch heads num_keys head_dim"]
    v: Float[Array, "batch heads num_keys head_dim"]

    def read(
        self,
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """Returns keys and values with the axis order of attention."""
        return self.k.swapaxes(-2, -3), self.v.swapaxes(-2, -3)


def source_key_values(
    k: Float[AnyArray, "batch num_keys heads head_dim"],
    v: Float[AnyArray, "batch num_keys heads head_dim"],
) -> KeyValueCache | SourceKeyValues:
    """Stores keys and values of encoder states in the layout that steps read in place."""
    # Fewer dimensions than a TPU's vector register has would be padded.
    if target_platform() == "tpu" and k.shape[-1] % LANES == 0:
        return SourceKeyValues(jnp.swapaxes(k, -2, -3), jnp.swapaxes(v, -2, -3))
    return KeyValueCache.of(k, v)


class StoredKeyValues(NamedTuple):
    """Keys and values in a storage type and in the layouts of ``ops.storage.stored_attention``."""

    k: Stored
    v: Stored

    @classmethod
    def of(
        cls, cache: KeyValueCache | SourceKeyValues, storage: Storage
    ) -> "StoredKeyValues":
        """Rounds keys and values to a storage type, with one scale for each head and key."""
        k, v = (jnp.swapaxes(x, -2, -3) for x in cache.read())
        # Values [batch, heads, num_keys, head_dim], because their products sum
        # over the keys.
        k = k.swapaxes(-1, -2)
        return cls(store(k, storage, (-2,)), store(v, storage, (-1,)))


# Keys and values of a memory [batch, slots, ...] and a bool mask of its filled
# slots [batch, slots]; () without a memory.
MemorySource = tuple[KeyValueCache, AnyArray] | tuple[()]


class LayerSource(NamedTuple):
    """The encoded document as read by one layer, shared by all beams.

    Attributes:
        cross_kv: keys and values of the encoder states, [batch, ...]; None if
            steps attend to the states themselves.
        memory_kv: keys and values of the layer's memory.
    """

    cross_kv: KeyValueCache | SourceKeyValues | StoredKeyValues | None
    memory_kv: MemorySource


class DecoderSource(NamedTuple):
    """The encoded document as read by a decoder: the constant part of the decoding state.

    Made by ``Decoder.read_source``. The document is stored as cross-attention
    keys and values of every layer or, if they would take too much memory, only
    as its encoder states. A head may have fewer keys than the source has
    tokens, see ``layers.attention.cross``.

    Attributes:
        layers: keys and values of each layer.
        states: encoder states, None if keys and values are stored.
        mask: mask of the keys of the document that may be read.
        ids: ids of the document's tokens plus one, so that the zeros of padding
            are not tokens; None if neither drafts nor forbidden n-grams are
            looked up in the document.
        said: ids of the summaries of earlier segments plus one, with zeros
            between and after them; None if their n-grams may be repeated.
    """

    layers: tuple[LayerSource, ...]
    states: Float[AnyArray, "batch length d_model"] | None
    mask: Bool[AnyArray, "batch mask_heads 1 num_keys"]
    ids: Int[AnyArray, "documents length"] | None = None
    said: Int[AnyArray, "documents said"] | None = None

    def with_ids(
        self,
        ids: Int[AnyArray, "documents length"],
        mask: Shaped[AnyArray, "documents length"],
    ) -> "DecoderSource":
        """Returns the document with its tokens: ``ids`` where ``mask`` is nonzero."""
        return self._replace(
            ids=jnp.where(jnp.asarray(mask).astype(bool), ids + 1, 0)
        )

    @property
    def documents(self) -> Int[AnyArray, "documents length"] | None:
        """The ids in the format of ``decoding.decoder.CachedDecoder``: -1 for no token."""
        return None if self.ids is None else self.ids - 1

    @property
    def earlier(self) -> Int[AnyArray, "documents said"] | None:
        """``said`` in the format of ``decoding.decoder.CachedDecoder``: -1 for no token."""
        return None if self.said is None else self.said - 1

    def stored(self, storage: Storage) -> "DecoderSource":
        """Returns the document with keys and values of the encoder states in a storage type."""
        if storage == "float32" or self.states is not None:
            return self
        # Only the cross-attention is rounded: it is read in every step, and
        # written once.
        layers = []
        for layer in self.layers:
            cache = layer.cross_kv
            assert isinstance(cache, KeyValueCache | SourceKeyValues)
            stored = StoredKeyValues.of(cache, storage)
            layers.append(layer._replace(cross_kv=stored))
        return self._replace(layers=tuple(layers))


class DecoderCache(NamedTuple):
    """The self-attention cache of the decoded tokens, made by ``Decoder.init_cache``.

    When beam search replaces a beam by a copy of another, keys and values are
    not moved: ``sources`` records for every beam the columns of its tokens.
    Three beams, of which the last two continue the first one after two tokens,
    at the third:

        column   0  1  2 | 3  4  5 | 6  7  8          sources   0 0 0
        token    a  b  c | d  e  f | g  h  i                    0 0 1      beam 1 reads a d h
        written by beams 0, 1, 2 at each position               0 0 2

    The cache is a ring buffer: after the last slot, the first is overwritten. A
    row that starts a new document does so at the slot that all rows write next,
    and attends to nothing before it.

    Attributes:
        place: index of the slot to which the next tokens are written.
        positions: number of tokens decoded so far in each row.
        layers: keys and values of each layer [batch, ...], with capacity for
            all tokens of all beams; column p * beams + r was written by beam r
            at slot p. For a batch of one there is no batch axis: XLA would drop
            it in products, keep the cache in both shapes, and copy one to the
            other in every step.
        sources: index of the beam that wrote the tokens that each beam reads at
            each slot.
    """

    place: Int[Array, ""]
    positions: Int[Array, " batch"]
    layers: tuple[KeyValueCache, ...]
    sources: Int[Array, "batch beams length"]

    @property
    def length(self) -> int:
        """Capacity in tokens."""
        return self.sources.shape[-1]

    def reorder(self, beams: Int[AnyArray, "rows beams"]) -> "DecoderCache":
        """Continues other beams: beam r of row b continues the old beam ``beams[b, r]``.

        The cache may have several rows (pages) for each row of ``beams``.
        """
        # All pages of a document continue the same beams.
        # [rows, beams, 1], an index along the axis of beams.
        index = _of_pages(beams, len(self.sources))[:, :, None]
        sources = jnp.take_along_axis(
            self.sources, index, axis=1, mode="promise_in_bounds"
        )
        return self._replace(sources=sources)

    @property
    def column(self) -> Int[Array, ""]:
        """Column that the first beam writes next."""
        return self.place * self.sources.shape[1]

    @property
    def query_positions(self) -> Int[Array, "batch 1"]:
        """Positions of the next tokens in their sequences."""
        return self.positions[:, None]

    def started(self) -> "DecoderCache":
        """Returns the cache in which every beam reads its own tokens at the current slot."""
        beams = jnp.arange(self.sources.shape[1])[:, None]
        beams = jnp.broadcast_to(beams, (*self.sources.shape[:2], 1)).astype(
            jnp.int32
        )
        return self._replace(
            # [batch, beams, 1] at index ``place`` of [batch, beams, length]
            sources=lax.dynamic_update_slice_in_dim(
                self.sources, beams, self.place, 2
            )
        )

    def advanced(self, layers: tuple[KeyValueCache, ...]) -> "DecoderCache":
        """Returns the cache after a step, with keys and values of its tokens."""
        # Rows that wait for a document stay at the last position.
        positions = jnp.minimum(self.positions + 1, self.length - 1)
        return self._replace(
            place=(self.place + 1) % self.length,
            positions=positions,
            layers=layers,
        )

    def restarted(self, rows: Bool[AnyArray, " documents"]) -> "DecoderCache":
        """Returns the cache without decoded tokens in ``rows``.

        The cache may have several rows (pages) for each of ``rows``.
        """
        return self._replace(positions=_restarted(self.positions, rows))

    @property
    def ages(self) -> Int[Array, " length"]:
        """Number of steps since each slot was written."""
        # The slot of this step has age 0, its predecessor in the ring age 1.
        return (self.place - jnp.arange(self.length)) % self.length

    def distances(self) -> Int[Array, "1 1 num_columns"]:
        """Returns the position of each column's token relative to the next tokens, at most 0."""
        # the same for all beams
        return jnp.repeat(-self.ages, self.sources.shape[1])[None, None]

    def mask(self) -> Bool[Array, "batch 1 beams num_columns"]:
        """Returns a mask of the columns that each beam reads, including the current step's."""
        batch, beams, length = self.sources.shape
        # A beam reads the column that its source beam wrote, at slots of its
        # current document.
        is_source = self.sources[..., None] == jnp.arange(beams)
        # [batch, length]: slots that are older than the current document belong
        # to the row's previous one.
        is_decoded = self.ages <= self.positions[:, None]
        # [batch, beams, length, beams] -> one axis of columns, slot by slot
        return (is_source & is_decoded[:, None, :, None]).reshape(
            batch, 1, beams, length * beams
        )


class DraftCache(NamedTuple):
    """The self-attention cache of a search that reads several tokens of a sequence at once.

    The first of them is confirmed, the others are a draft. Each is written to
    the column of its position; rejected tokens are overwritten by the next
    step. A row whose sequence has two tokens in the cache, at a step of three:

        column   0  1 | 2  3  4 | 5 ...
        token    a  b | c  d  e |           query d reads a b c d
        kept     a  b | c  d              of the draft d e, d was right: the next step begins at 4

    Attributes:
        positions: number of accepted tokens in each row.
        offsets: offsets 0, 1, ... in every row, one for each token that a step
            reads.
        layers: keys and values of each layer as in ``DecoderCache``, with
            capacity for the tokens of a sequence followed by a draft.
    """

    positions: Int[Array, " batch"]
    offsets: Int[Array, "batch queries"]
    layers: tuple[KeyValueCache, ...]

    @property
    def length(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self.layers[0].k.shape[-1] - self.offsets.shape[1]

    @property
    def column(self) -> Int[Array, "*batch"]:
        """Columns to which the first tokens of the rows are written; () for a single row."""
        if len(self.positions) > 1:
            return self.positions
        return self.positions[0]

    @property
    def query_positions(self) -> Int[Array, "batch queries"]:
        """Positions of the next tokens in their sequences.

        Draft tokens beyond the last position of a sequence, which are never
        accepted, are read as if they were at the last position.
        """
        return jnp.minimum(
            self.positions[:, None] + self.offsets, self.length - 1
        )

    def started(self) -> "DraftCache":
        """Returns the cache unchanged: its mask does not depend on the tokens that are written."""
        return self

    def distances(self) -> Int[Array, "batch queries num_columns"]:
        """Returns the position of each column's token relative to the next tokens."""
        columns = jnp.arange(self.layers[0].k.shape[-1])
        # Rows may have accepted different numbers of tokens, so that distances
        # differ by row.
        return columns - (self.positions[:, None] + self.offsets)[..., None]

    def mask(self) -> Bool[Array, "batch 1 queries num_columns"]:
        """Returns a mask of the columns that each token reads: previous tokens, and its own."""
        return (self.distances() <= 0)[:, None]

    def advanced(self, layers: tuple[KeyValueCache, ...]) -> "DraftCache":
        """Returns the cache with keys and values of a step, none of which is accepted yet."""
        return self._replace(layers=layers)

    def kept(self, counts: Int[AnyArray, " documents"]) -> "DraftCache":
        """Returns the cache with the first ``counts`` tokens of the last step accepted.

        The cache may have several rows (pages) for each document.
        """
        # Rejected tokens remain in their columns until the next step overwrites
        # them.
        positions = self.positions + _of_pages(counts, len(self.positions))
        return self._replace(positions=jnp.minimum(positions, self.length))

    def restarted(self, rows: Bool[AnyArray, " documents"]) -> "DraftCache":
        """Returns the cache without decoded tokens in ``rows``; see ``DecoderCache``."""
        return self._replace(positions=_restarted(self.positions, rows))


def _restarted(positions: AnyArray, rows: AnyArray) -> Array:
    """Returns the positions of a cache with 0 for the documents ``rows``."""
    return jnp.where(_of_pages(rows, len(positions)), 0, positions)


def _of_pages(x: AnyArray, num_rows: int) -> Array:
    """Repeats entries of documents for their pages, which are the rows of a cache."""
    return jnp.repeat(x, num_rows // len(x), axis=0)
