"""Multi-head attention with parameters, and T5's relative position bias."""

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.dense import Dropout, Linear, RMSNorm, normal
from longsum_jax.layers.partitioning import (
    Initializer,
    active_sequence_sharding,
    logical,
    mesh_spec,
)
from longsum_jax.ops.attention.dense import (
    CappedScale,
    Scale,
    dot_product_attention,
    mix_states,
    repeat_heads,
)
from longsum_jax.ops.attention.fused import (
    AttentionBackend,
    Kernel,
    KernelChoice,
    KeyCounts,
    choose_kernel,
    fused_attention,
    fused_part,
    note_choice,
    row_size,
)
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    PartialSoftmax,
    WeightDropout,
)
from longsum_jax.ops.attention.relative_position import (
    StepBias,
    bucket_steps,
    relative_position_bucket,
)
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.positions import Rotary, rotated
from longsum_jax.ops.storage import Stored, stored_attention
from longsum_jax.typing import AnyArray


class ExtraKeyValues(NamedTuple):
    """States that every query reads in addition to the input: a memory, or important tokens.

    Attributes:
        keys, values: states before the key and value projections, often the
            same array.
        valid: True on states that are filled.
    """

    keys: Float[Array, "batch num_extra d_model"]
    values: Float[Array, "batch num_extra d_model"]
    valid: Bool[AnyArray, "batch num_extra"]


class HeadMap(Linear):
    """The projection of states to the queries, keys or values of every head.

    Attributes:
        norm_epsilon: epsilon of the RMS norm of every head's vectors, whose
            scale is 1 + a parameter (Gemma 3); None without the norm.
        rotary: rotary positions, applied last; None for none.
    """

    norm_epsilon: float | None = None
    rotary: Rotary | None = None

    @property
    def is_linear(self) -> bool:
        """True if the map is one product with a kernel, and a bias."""
        is_plain = self.norm_epsilon is None and self.rotary is None
        return is_plain and self._low_rank() is None

    def setup(self) -> None:
        super().setup()
        if self.norm_epsilon is not None:
            self.norm = RMSNorm(
                self.norm_epsilon, self.dtype, offset=1.0, axis="kv"
            )

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        positions: Int[AnyArray, "#batch length"] | None = None,
    ) -> Float[Array, "batch length heads head_dim"]:
        """Applies the map.

        Args:
            x: states.
            positions: positions of the states; None for 0, 1, ...
        """
        return self._with_positions(super().__call__(x), positions)

    def without_gradients(
        self,
        x: Float[AnyArray, "batch length d_model"],
        positions: Int[AnyArray, "#batch length"] | None = None,
    ) -> Float[Array, "batch length heads head_dim"]:
        """Applies the map, with gradients for ``x`` but none for the projection."""
        return self._with_positions(super().without_gradients(x), positions)

    def without_positions(
        self, x: Float[AnyArray, "batch length d_model"]
    ) -> Float[Array, "batch length heads head_dim"]:
        """Applies the map and the norm, but no rotary positions."""
        return self.normalized(super().__call__(x))

    def normalized(
        self, y: Float[AnyArray, "batch length heads head_dim"]
    ) -> Float[Array, "batch length heads head_dim"]:
        """Applies the norm to projected states, if the map has one."""
        return jnp.asarray(y if self.norm_epsilon is None else self.norm(y))

    def _with_positions(self, y: Array, positions: AnyArray | None) -> Array:
        # Norm first, as in Gemma 3: a rotation does not change the norm of a
        # head.
        y = self.normalized(y)
        if self.rotary is None:
            return y
        if positions is None:
            positions = jnp.arange(y.shape[1])[None]
        return rotated(y, positions, self.rotary)


class MultiHeadAttention(nn.Module):
    """Multi-head attention in three steps (keys and values, queries, output), so that decoding can
    store keys and values.

    Class attributes:
        repeats_heads: True if keys and values are repeated for all heads of
            their group; otherwise they have ``num_kv_heads`` heads.

    Attributes:
        d_model: size of the states that become queries, and of the output.
        num_heads: number of heads of the queries.
        num_kv_heads: number of heads of keys and values, see ``StackConfig``;
            None for ``num_heads``.
        d_kv: size of one head.
        source_size: size of the states that become keys and values; None for
            ``d_model``.
        norm_epsilon: epsilon of the norm of queries and keys, see ``HeadMap``.
        rotary: rotary positions of queries and keys.
        projection_init: initializer of k and v, and of q unless ``query_init``
            is given.
        output_init: initializer of the output map.
        scale: factor of the query-key products (T5: 1, most others d_kv**-0.5),
            possibly with a soft cap.
        use_bias: True to add a bias to all four maps.
        dropout_rate: dropout rate of the attention weights in training.
        dtype: dtype of the computation.
        backend: kernel selection, see ``ops.attention.fused.choose_kernel``.
        maps: attention whose four maps this attention uses; None for maps that
            it makes.
    """

    repeats_heads: ClassVar[bool] = False

    d_model: int
    num_heads: int
    d_kv: int
    projection_init: Initializer
    output_init: Initializer
    num_kv_heads: int | None = None
    source_size: int | None = None
    norm_epsilon: float | None = None
    rotary: Rotary | None = None
    scale: Scale = 1.0
    query_init: Initializer | None = None
    use_bias: bool = False
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32
    backend: AttentionBackend = "auto"
    maps: "MultiHeadAttention | None" = None

    def setup(self) -> None:
        self.dropout = Dropout(self.dropout_rate)
        maps: Any = self.maps
        if maps is None:
            self.q = self.query_map()
            self.k = self.key_map()
            self.v = self.value_map()
            self.o = self.output_map()
        else:
            self.q, self.k, self.v, self.o = maps.q, maps.k, maps.v, maps.o

    def query_map(self, init: Initializer | None = None) -> HeadMap:
        """Makes a projection of states to queries; ``init`` is ``query_init`` by default."""
        init = init or self.query_init or self.projection_init
        return self._head_map(
            self.d_model, self.num_heads, init, **self._norm_and_rotary
        )

    def output_map(self) -> Linear:
        """Makes the output projection, from the attended values of all heads to states."""
        return Linear(
            (self.num_heads, self.d_kv, self.d_model),
            ("heads", "kv", "embed"),
            self.output_init,
            self._bias_init,
            inputs=2,
            dtype=self.dtype,
        )

    def key_map(self) -> HeadMap:
        """Makes a projection of states to keys."""
        return self._kv_map(**self._norm_and_rotary)

    def value_map(self) -> HeadMap:
        """Makes a projection of states to values."""
        return self._kv_map()

    @property
    def _norm_and_rotary(self) -> dict[str, Any]:
        return {"norm_epsilon": self.norm_epsilon, "rotary": self.rotary}

    def _kv_map(self, **options: Any) -> HeadMap:
        heads = self.num_kv_heads or self.num_heads
        size = self.source_size or self.d_model
        return self._head_map(size, heads, self.projection_init, **options)

    def _head_map(
        self, size: int, heads: int, init: Initializer, **options: Any
    ) -> HeadMap:
        # A mesh need not divide the heads of groups.
        axis = "heads" if heads == self.num_heads else "kv_heads"
        return HeadMap(
            (size, heads, self.d_kv),
            ("embed", axis, "kv"),
            init,
            self._bias_init,
            dtype=self.dtype,
            **options,
        )

    @property
    def _bias_init(self) -> Initializer | None:
        return nn.initializers.zeros if self.use_bias else None

    def project_kv(
        self,
        x: Float[AnyArray, "batch key_length d_model"],
        positions: Int[AnyArray, "#batch key_length"] | None = None,
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """Returns keys and values, one for every position unless a subclass reads fewer.

        Args:
            x: states.
            positions: positions of the states; None for 0, 1, ...
        """
        return self.all_heads(self.k(x, positions), self.v(x))

    def all_heads(self, k: AnyArray, v: AnyArray) -> tuple[Any, Any]:
        """Repeats keys and values for all heads, if the class does."""
        if not self.repeats_heads:
            return k, v
        return repeat_heads(k, self.num_heads), repeat_heads(v, self.num_heads)

    def project_extra(
        self, extra: ExtraKeyValues
    ) -> tuple[
        Float[Array, "batch num_extra heads head_dim"],
        Float[Array, "batch num_extra heads head_dim"],
    ]:
        """Returns keys and values of extra states.

        With rotary positions they are at position 0, as the memory of Focused
        Transformers (Tworkowski et al. 2023, section 3.1).
        """
        positions = jnp.zeros((1, extra.keys.shape[1]), jnp.int32)
        return self.all_heads(
            self.k(extra.keys, positions), self.v(extra.values)
        )

    def project_kv_frozen(
        self, x: Float[AnyArray, "batch num_keys d_model"]
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """Returns ``project_kv`` with gradients for ``x``, but not for the projections."""
        # as in ``project_extra``
        positions = jnp.zeros((1, x.shape[1]), jnp.int32)
        return self.all_heads(
            self.k.without_gradients(x, positions), self.v.without_gradients(x)
        )

    def attend(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
        bias: Float[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
        steps: StepBias | None = None,
        positions: Int[AnyArray, "#batch query_length"] | None = None,
        segment_ids: SegmentIds | None = None,
        causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """Attends from ``x`` to the given keys and values.

        Args:
            x: states that become queries.
            k, v: result of ``project_kv``.
            mask: boolean mask, broadcastable to [batch, heads, query_length,
                num_keys]; True on keys to read.
            bias: bias of the scores, of the same shape.
            steps: the same bias by distance, for kernels; None if it does not
                depend on the distance only.
            positions: positions of ``x``; None for 0, 1, ...
            segment_ids: segments of the keys (source) and of ``x`` (target) of
                packed rows; None for one segment.
            causal: True if queries see no later keys; requires as many queries
                as keys.
            deterministic: False in training.
        """
        kernel = self.fused_kernel(
            x,
            k,
            mask=mask,
            bias=bias,
            steps=steps,
            is_packed=segment_ids is not None,
            causal=causal,
            deterministic=deterministic,
        )
        if kernel is not None:
            # Kernels only take masks of keys, [batch, heads, num_keys].
            key_mask = None if mask is None else mask[:, :, 0]
            k, v = (repeat_heads(y, self.num_heads) for y in (k, v))
            y = attend_fused(
                self.q(x, positions),
                k,
                v,
                key_mask,
                kernel=kernel,
                causal=causal,
                biases=[] if steps is None else [steps],
                segment_ids=segment_ids,
                **self.sparse_options(deterministic),
            )
            return self.o(y)
        if causal:
            mask = joint_mask(mask, causal_mask(x.shape[1]))
        if segment_ids is not None:
            mask = joint_mask(mask, segment_ids.mask())
        dropout = None
        if not deterministic:
            dropout = partial(self.dropout, deterministic=False)
        y = dot_product_attention(
            self.q(x, positions),
            k,
            v,
            mask=mask,
            bias=bias,
            scale=self.scale,
            dropout=dropout,
        )
        return self.o(y)

    def sparse_options(self, deterministic: bool) -> dict[str, Any]:
        """Returns arguments of ``ops.attention``: ``scale`` and, in training, ``dropout``."""
        options: dict[str, Any] = {"scale": self.scale}
        if not deterministic and self.dropout_rate:
            options["dropout"] = WeightDropout(
                self.make_rng("dropout"), self.dropout_rate
            )
        return options

    def fused_kernel(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"] | None,
        bias: AnyArray | None,
        steps: StepBias | None = None,
        is_packed: bool = False,
        causal: bool,
        deterministic: bool,
        by_heads: bool = False,
        by_keys: bool = False,
    ) -> Kernel | None:
        """Returns the kernel for these arguments of ``attend``, or None.

        Args:
            is_packed: True if there are segment ids.
            by_heads: True if devices compute some heads of whole sequences when
                a mesh shards them.
            by_keys: True if they compute attention to their part of the keys.
        """
        if mask is not None and mask.shape[2] > 1:
            self.without_kernel("a mask that differs by query")
            return None
        if bias is not None and steps is None:
            self.without_kernel("position biases")
            return None
        num_keys = k.shape[1]
        sharding = active_sequence_sharding(len(x))
        has_parts = by_keys and sharding is not None
        if sharding is not None and has_parts:
            num_keys = -(-num_keys // sharding.num_shards)
        return self._kernel(
            len(x),
            deterministic=deterministic,
            by_heads=by_heads,
            by_shards=has_parts,
            has_bias=steps is not None,
            has_segments=is_packed,
            has_parts=has_parts,
            num_queries=x.shape[1],
            num_keys=num_keys,
            causal=causal,
            has_mask=mask is not None,
        )

    def fused_rows(
        self,
        batch: int,
        num_queries: int,
        num_keys: int | None = None,
        *,
        has_bias: bool,
        deterministic: bool,
        is_packed: bool = False,
        has_parts: bool = False,
        has_pattern: bool = False,
        margin: int | None = None,
        multiple: int = 8,
        by_heads: bool = False,
    ) -> Any:
        """Returns the kernel for sparse attention in rows (``ops.attention.fused``), or None.

        Args:
            batch: number of sequences.
            num_queries, num_keys: numbers per row; by default as many keys as
                queries. With a ``margin``, ``num_queries`` is the length of a
                text that is split into rows.
            has_bias: True if scores have a bias by distance.
            deterministic: False in training.
            is_packed: True if there are segment ids.
            has_parts: True for a ``FusedPart``, False for a ``FusedAttention``.
            has_pattern: True if queries of a row read different keys, as with a
                ``margin``.
            margin, multiple: see ``ops.attention.fused.row_size``; None for
                rows that are not parts of a text, and whose queries read the
                same keys.
            by_heads: see ``fused_kernel``.
        """
        if margin is not None:
            sharding = active_sequence_sharding(batch)
            # Devices split their parts of the text.
            if sharding is not None:
                num_queries = -(-num_queries // sharding.num_shards)
            num_queries = row_size(
                num_queries, margin=margin, multiple=multiple
            )
        kernel = self._kernel(
            batch,
            deterministic=deterministic,
            by_heads=by_heads,
            by_shards=not by_heads,
            has_bias=has_bias,
            has_segments=is_packed,
            has_parts=has_parts,
            num_queries=num_queries,
            num_keys=num_queries if num_keys is None else num_keys,
            causal=False,
            has_mask=True,
            has_pattern=has_pattern or margin is not None,
        )
        if kernel is None:
            return None
        attend = attend_fused_part if has_parts else attend_fused
        return partial(attend, kernel=kernel)

    def _kernel(
        self,
        batch: int,
        *,
        deterministic: bool,
        by_heads: bool = False,
        by_shards: bool = False,
        **properties: Any,
    ) -> Kernel | None:
        """Returns the result of ``choose_kernel`` if a kernel can compute the layer's scores.

        Args:
            by_heads, by_shards: True if devices compute some heads of whole
                sequences, or all heads of their part, when a mesh shards the
                sequences.
            **properties: further arguments of ``choose_kernel``.
        """
        drops_weights = self.dropout_rate > 0 and not deterministic
        sharding = active_sequence_sharding(batch)
        # Kernels need whole sequences, unless devices exchange heads or compute
        # rows of their part.
        is_sharded = sharding is not None and not by_shards
        if sharding is not None and is_sharded and by_heads:
            is_sharded = self.num_heads % sharding.num_shards > 0
        if is_sharded:
            choice = KernelChoice(None, "a mesh shards its sequences")
        else:
            choice = choose_kernel(
                self.backend,
                self.dtype,
                head_dim=self.d_kv,
                has_cap=isinstance(self.scale, CappedScale),
                has_dropout=drops_weights,
                **properties,
            )
        self._note(choice)
        return choice.kernel

    def without_kernel(self, reason: str) -> None:
        """Records for plans why no fused kernel computes this layer."""
        self._note(KernelChoice(None, reason))

    def _note(self, choice: KernelChoice) -> None:
        note_choice(
            ".".join(self.path) if self.scope is not None else "", choice
        )

    def attend_stored(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Stored,
        v: Stored,
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
        positions: Int[AnyArray, "#batch query_length"] | None = None,
        others: Sequence[KeySet] = (),
    ) -> Float[Array, "batch query_length d_model"]:
        """Computes ``attend`` in float32 with keys and values in a storage type.

        Args:
            x: states that become queries.
            k, v: keys and values, see ``ops.storage.stored_attention``.
            mask: boolean mask, broadcastable to [batch, heads, 1, num_keys];
                True on keys to read.
            positions: positions of ``x``; None for 0, 1, ...
            others: further keys under the same softmax, not in a storage type.
        """
        y = stored_attention(
            self.q(x, positions),
            k,
            v,
            mask=mask,
            scale=self.scale,
            others=others,
        )
        return self.o(y)

    def attend_absorbed(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        states: Float[AnyArray, "batch key_length source_size"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
    ) -> Float[Array, "batch query_length d_model"]:
        """Computes ``attend`` with the keys and values of ``states``, without forming them.

        The key projection is absorbed into the queries, and the value
        projection is applied to the weighted sum of the states, in each head:

            q . (W_k s) = (W_k^T q) . s          sum_i w_i (W_v s_i) = W_v (sum_i w_i s_i)

        This takes ``heads`` times as many multiplications, but no arrays
        [batch, length, heads, head_dim], for decoding over very long inputs. A
        bias of the keys adds the same to every score of a query, so that the
        softmax cancels it; the weights sum to one, so that a bias of the values
        is added at the end.
        """
        # Means of states by head, [batch, query_length, heads, d_model].
        mixed = mix_states(
            self.absorbed_queries(x), states, mask, scale=self.scale
        )
        return self.project_mixed(mixed, mask)

    def absorbed_queries(
        self, x: Float[AnyArray, "batch query_length d_model"]
    ) -> Float[Array, "batch query_length heads source_size"]:
        """Returns queries times the key map, which multiply states instead of keys."""
        return self.absorb(self.q(x), self.k)

    def absorb(
        self,
        q: Float[AnyArray, "batch query_length heads head_dim"],
        key_map: HeadMap,
    ) -> Float[Array, "batch query_length heads source_size"]:
        """Returns queries times a map of states to keys."""
        kernel = key_map.updated_kernel.astype(self.dtype)
        # [batch, query_length, kv_heads, heads of a group, head_dim]
        groups = q.reshape(*q.shape[:2], kernel.shape[1], -1, self.d_kv)
        # W_k^T q for all heads r of a group g, which share their key map.
        absorbed = jnp.einsum("btgrk,dgk->btgrd", groups, kernel)
        return absorbed.reshape(*q.shape[:3], -1)

    def project_mixed(
        self,
        mixed: Float[AnyArray, "batch query_length heads source_size"],
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"] | None,
    ) -> Float[Array, "batch query_length d_model"]:
        """Applies the value map and the output map to weighted means of states.

        Args:
            mixed, mask: see ``values_of``.
        """
        return self.o(self.values_of(mixed, mask, self.v))

    def values_of(
        self,
        mixed: Float[AnyArray, "batch query_length heads source_size"],
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"] | None,
        value_map: HeadMap,
    ) -> Float[Array, "batch query_length heads head_dim"]:
        """Applies a map of states to values to weighted means of states.

        Args:
            mixed: weighted means of states.
            mask: mask of ``attend``; a head whose mask is all False gets zeros.
            value_map: map of states to values.
        """
        kernel = value_map.updated_kernel.astype(self.dtype)
        groups = mixed.reshape(
            *mixed.shape[:2], kernel.shape[1], -1, mixed.shape[3]
        )
        # W_v times the mean of states of each head.
        values = jnp.einsum("btgrd,dgk->btgrk", groups, kernel).reshape(
            *mixed.shape[:3], -1
        )
        if self.use_bias:
            bias = value_map.bias.astype(self.dtype)
            bias = jnp.repeat(bias, self.num_heads // len(bias), axis=0)
            if mask is not None:
                # A query without a key gets no bias either.
                reads_any = jnp.any(mask, -1).swapaxes(1, 2)[..., None]
                bias = jnp.where(reads_any, bias, 0)
            values += bias
        return values


def attend_fused(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length heads head_dim"],
    v: Float[AnyArray, "batch key_length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #key_length"] | KeyCounts | None,
    **options: Any,
) -> Float[Array, "batch query_length heads head_dim"]:
    """Calls ``ops.attention.fused.fused_attention`` with the mesh axes of rows and heads."""
    spec = mesh_spec(q.shape, ("batch", None, "act_heads", None))
    return fused_attention(q, k, v, mask, spec=spec, **options)


def attend_fused_part(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length heads head_dim"],
    v: Float[AnyArray, "batch key_length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #key_length"] | None,
    **options: Any,
) -> PartialSoftmax:
    """Calls ``ops.attention.fused.fused_part`` with the mesh axes of rows and heads."""
    spec = mesh_spec(q.shape, ("batch", None, "act_heads", None))
    return fused_part(q, k, v, mask, spec=spec, **options)


def joint_mask(
    mask: Bool[AnyArray, "..."] | None, other: Bool[AnyArray, "..."]
) -> Bool[AnyArray, "..."]:
    """Returns the mask of the keys in both masks; None has all keys."""
    return other if mask is None else mask & other


def causal_mask(length: int) -> Bool[Array, "1 1 length length"]:
    """Returns the mask under which no query sees later keys."""
    positions = jnp.arange(length)
    return (positions[:, None] >= positions[None, :])[None, None]


class RelativePositionBias(nn.Module):
    """T5's learned bias for each head and bucket of distances.

    Attributes:
        num_layers: number of layers if each has a bias (umT5); the results then
            have a leading axis of layers. None for one bias.
    """

    num_heads: int
    num_buckets: int
    max_distance: int
    bidirectional: bool
    num_layers: int | None = None

    def setup(self) -> None:
        shape: tuple[int, ...] = (self.num_buckets, self.num_heads)
        names: tuple[str, ...] = ("buckets", "heads")
        if self.num_layers is not None:
            shape, names = (self.num_layers, *shape), ("layers", *names)
        self.embedding = self.param(
            "embedding", logical(normal(1.0), *names), shape
        )

    def __call__(
        self,
        query_positions: Int[AnyArray, " query_length"],
        key_positions: Int[AnyArray, " key_length"],
    ) -> Float[Array, "*layers 1 heads query_length key_length"]:
        """Returns the bias between all queries and keys."""
        bias = self.of_distances(
            key_positions[None, :] - query_positions[:, None]
        )
        return jnp.expand_dims(bias, -4)

    def of_distances(
        self, distances: Int[AnyArray, "*distances"]
    ) -> Float[Array, "..."]:
        """Returns the bias for distances (key position minus query position): [heads,
        *distances], or [layers, heads, *distances].
        """
        # Half of the buckets are exact distances, the others grow with their
        # logarithm (Raffel et al. 2020, section 2.1).
        return self._of_buckets(
            relative_position_bucket(distances, **self._buckets)
        )

    def steps(self) -> StepBias:
        """Returns the bias of all distances, for fused kernels."""
        starts, buckets = bucket_steps(**self._buckets)
        return StepBias(self._of_buckets(jnp.array(buckets)), starts)

    @property
    def _buckets(self) -> dict[str, Any]:
        return {
            "bidirectional": self.bidirectional,
            "num_buckets": self.num_buckets,
            "max_distance": self.max_distance,
        }

    def _of_buckets(self, buckets: Int[AnyArray, "*shape"]) -> Array:
        """Returns [heads, *shape], or [layers, heads, *shape]."""
        if target_platform() == "tpu" and buckets.ndim > 1:
            return _select_entries(
                jnp.moveaxis(self.embedding, -1, -2), buckets
            )
        head_axis = 0 if self.num_layers is None else 1
        return jnp.moveaxis(
            jnp.take(self.embedding, buckets, axis=-2), -1, head_axis
        )


@jax.checkpoint  # comparisons are made again for the gradient, not stored
def _select_entries(
    table: Float[AnyArray, "*rows entries"], ids: Int[AnyArray, "*shape"]
) -> Float[Array, "..."]:
    """Returns the entries of every row of a small table with these ids, [*rows, *shape].

    A TPU compares every id with every entry instead of gathering: a gather has
    the rows of the table in its last axis, and XLA unrolls its transposition,
    which takes long to compile.
    """
    num_entries = table.shape[-1]
    is_read = ids[..., None] == jnp.arange(num_entries)
    rows = table.reshape(*table.shape[:-1], *(1,) * ids.ndim, num_entries)
    return jnp.where(is_read, rows, 0).sum(-1)
