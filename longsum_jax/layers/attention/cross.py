"""Cross-attentions: the attention of decoders to the encoder states."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.multi_head import (
    MultiHeadAttention,
    attend_fused,
    joint_mask,
)
from longsum_jax.layers.attention.options import (
    CrossAttentionOptions,
    HeposOptions,
)
from longsum_jax.layers.dense import Linear
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blocks import to_blocks
from longsum_jax.ops.attention.blockwise import (
    attend_partially,
    attend_shared_keys,
    attend_shared_partially,
    max_score_bytes,
)
from longsum_jax.ops.attention.dense import (
    CappedScale,
    dot_product_attention,
    mix_states,
    repeat_heads,
)
from longsum_jax.ops.attention.fused import (
    Kernel,
    KernelChoice,
    KeyCounts,
    choose_kernel,
    fused_part,
    move_keys_first,
)
from longsum_jax.ops.attention.hepos import (
    mix_strided,
    project_strided,
    strided_key_mask,
    strided_length,
)
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    PartialSoftmax,
    WeightDropout,
    attend_jointly,
    merge_partial_softmaxes,
    merge_shards,
    split_dropout,
)
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.sequence_sharding import Axes, Output, shard_map_sequence
from longsum_jax.typing import AnyArray


class CrossAttention(MultiHeadAttention):
    """The base class of cross-attentions: attention to all positions of a source, without a bias.

    Subclasses override ``project_kv``, ``attend``, ``attend_with`` and
    ``attend_absorbed``.

    Attributes:
        Options: subclass of ``CrossAttentionOptions`` with the options that the
            attention reads.
        max_input_length_option: name of the option with the maximum source
            length in tokens, "" if unlimited.
        packs: True if every key is one token, so that a mask can keep the
            segments of packed rows apart.
        options: instance of ``Options``.
    """

    Options: ClassVar[type[CrossAttentionOptions]] = CrossAttentionOptions
    max_input_length_option: ClassVar[str] = ""
    packs: ClassVar[bool] = False

    options: Any = CrossAttentionOptions()

    @classmethod
    def check(cls, options: CrossAttentionOptions, num_heads: int) -> None:
        """Raises InputError for options out of range in a decoder with ``num_heads`` heads."""

    @classmethod
    def from_stack(
        cls, stack: StackConfig, maps: MultiHeadAttention | None = None
    ) -> "CrossAttention":
        """Makes the cross-attention of one layer of a stack.

        Args:
            stack: config of the stack.
            maps: self-attention of the layer if both have the same maps
                (``StackConfig.merged_attention``).
        """
        return cls(
            **stack.attention_fields,
            source_size=stack.source_size,
            options=cls.Options.of(stack.cross),
            maps=maps,
        )

    @classmethod
    def prepare(
        cls,
        stack: StackConfig,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> tuple[
        Float[AnyArray, "batch length d_model"],
        Bool[AnyArray, "batch mask_heads 1 num_keys"],
    ]:
        """Returns the inputs from a source that all layers share, computed once per document.

        Args:
            stack: config of the decoder.
            states: encoder states.
            mask: True on real tokens.

        Returns:
            The states, and a mask of the keys, for all heads or for each head.
        """
        return states, mask[:, None, None, :]

    @classmethod
    def arrange(
        cls,
        stack: StackConfig,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch mask_heads 1 num_keys"],
        num_queries: int,
    ) -> tuple[
        Float[AnyArray, "batch new_length d_model"],
        Bool[AnyArray, "batch mask_heads 1 num_keys"] | KeyCounts,
    ]:
        """Returns states and mask in the order that the kernel takes in training.

        Args:
            stack: config of the decoder.
            states, mask: result of ``prepare``.
            num_queries: number of target positions, of one segment.
        """
        return states, mask

    @classmethod
    def num_keys(cls, stack: StackConfig, length: int) -> int:
        """Returns the number of keys to store per head for a source of ``length``."""
        return length

    @classmethod
    def stored_heads(cls, stack: StackConfig) -> int:
        """Returns the number of heads of the stored keys."""
        return stack.kv_heads

    def project_kv(
        self,
        x: Float[AnyArray, "batch key_length d_model"],
        positions: Int[AnyArray, "#batch key_length"] | None = None,
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """See ``MultiHeadAttention.project_kv``; keys of a source have no rotary positions."""
        return self.k.without_positions(x), self.v(x)

    def attend_with(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        others: Sequence[KeySet],
        *,
        mask: Bool[AnyArray, "#batch #q_heads #query_length #num_keys"],
        positions: Int[AnyArray, "#batch query_length"] | None = None,
        causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """Attends to the keys of a source and to other keys under one softmax.

        Args:
            x: states that become queries.
            k, v: result of ``project_kv``.
            others: keys of the target and of a memory, see
                ``ops.attention.key_sets.attend_jointly``.
            mask: mask of the keys of the source.
            positions: positions of ``x``; None for 0, 1, ...
            causal: True if ``others`` are only the keys of ``x``, without
                a bias, and queries see no later keys of them; kernels do not
                read their mask.
            deterministic: False in training.
        """
        self._note_joint_softmax()
        dropout = None
        if self.dropout_rate and not deterministic:
            dropout = WeightDropout(self.make_rng("dropout"), self.dropout_rate)
        y = attend_jointly(
            self.q(x, positions),
            [*others, KeySet(k, v, mask)],
            scale=self.scale,
            dropout=dropout,
        )
        return self.o(y)

    def _note_joint_softmax(self) -> None:
        self.without_kernel("one softmax over source and target")


class _EarlierTargets(NamedTuple):
    """The pattern of a source and a target (``fused.Pattern``): no later keys of the target.

    Attributes:
        num_sources: number of keys of the source, which come first and are all
            read.
    """

    num_sources: int

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        return keys - self.num_sources <= queries


# Decoding has at most this many queries at a time, the beams of a document;
# their scores are few.
MAX_QUERIES_AT_ONCE = 32


class SourceAttention(CrossAttention):
    """Full cross-attention to a source that a mesh may shard.

    Every device attends to its shard of keys, values and states, which are not
    moved; one softmax merges the results. Queries and outputs are on every
    device. Scores of a target and a long source are computed in pieces, see
    ``ops.attention.blockwise``.
    """

    packs = True

    @classmethod
    def arrange(
        cls,
        stack: StackConfig,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch mask_heads 1 num_keys"],
        num_queries: int,
    ) -> tuple[
        Float[AnyArray, "batch new_length d_model"],
        Bool[AnyArray, "batch mask_heads 1 num_keys"] | KeyCounts,
    ]:
        """See ``CrossAttention.arrange``.

        For cuDNN, states are moved once, instead of the keys and values of every
        layer. Subclasses without ``packs`` read keys by their position.
        """
        is_sharded = active_sequence_sharding(len(states)) is not None
        if is_sharded or stack.merged_attention or not cls.packs:
            return states, mask
        choice = choose_kernel(
            stack.attention_backend,
            stack.dtype,
            num_queries=num_queries,
            num_keys=states.shape[1],
            head_dim=stack.d_kv,
            causal=False,
            has_mask=True,
            has_cap=isinstance(stack.attention_scale, CappedScale),
            has_dropout=stack.attention_dropout_rate > 0,
        )
        if choice.kernel != "cudnn":
            return states, mask
        return move_keys_first(states, mask[:, 0, 0])

    def attend(  # type: ignore[override]  # without a bias
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | KeyCounts
        | None = None,
        segment_ids: SegmentIds | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend``; ``mask`` may be from ``arrange``."""
        if isinstance(mask, KeyCounts):
            self._note(KernelChoice("cudnn"))
            k, v = (repeat_heads(y, self.num_heads) for y in (k, v))
            options = self.sparse_options(deterministic)
            return self.o(
                attend_fused(self.q(x), k, v, mask, kernel="cudnn", **options)
            )
        sharding = active_sequence_sharding(x.shape[0])
        in_pieces = self._needs_pieces(
            x, k, 1 if sharding is None else sharding.num_shards
        )
        # On a mesh, packed rows are a mask that differs by query.
        if sharding is not None and segment_ids is not None:
            mask, segment_ids = joint_mask(mask, segment_ids.mask()), None
        kernel = None
        if in_pieces or sharding is not None:
            kernel = self.fused_kernel(
                x,
                k,
                mask=mask,
                bias=None,
                is_packed=segment_ids is not None,
                causal=False,
                deterministic=deterministic,
                by_keys=True,
            )
        if sharding is None and (kernel is not None or not in_pieces):
            return super().attend(
                x,
                k,
                v,
                mask=mask,
                segment_ids=segment_ids,
                deterministic=deterministic,
            )
        if segment_ids is not None:
            mask = joint_mask(mask, segment_ids.mask())
        rate = 0.0 if deterministic else self.dropout_rate

        def attend(
            q: AnyArray,
            k: AnyArray,
            v: AnyArray,
            mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
            | None,
            rng: Array | None = None,
            axes: Axes = (),
        ) -> Array:
            dropout = None if rng is None else WeightDropout(rng, rate)
            options: dict[str, Any] = {
                "scale": self.scale,
                "dropout": dropout,
                "axes": axes,
            }
            if kernel is not None:
                softmax = self._fused_shard(
                    q, k, v, mask, dropout, axes, kernel
                )
                return softmax.out.astype(v.dtype)
            if in_pieces:
                k, v = (repeat_heads(y, self.num_heads) for y in (k, v))
                key_mask = None if mask is None else mask[:, None]
                return attend_shared_keys(
                    q, [KeySet(k, v, key_mask)], **options
                )
            return dot_product_attention(q, k, v, mask=mask, **options)

        rng = self.make_rng("dropout") if rate else None
        if sharding is None:
            return self.o(attend(self.q(x), k, v, mask, rng))
        y = _attend_to_shards(
            attend,
            self.q(x),
            mask,
            {"k": k, "v": v},
            rng,
            has_kernels=kernel is not None,
        )
        return self.o(y)

    def attend_with(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        others: Sequence[KeySet],
        *,
        mask: Bool[AnyArray, "#batch #q_heads #query_length #num_keys"],
        positions: Int[AnyArray, "#batch query_length"] | None = None,
        segment_ids: SegmentIds | None = None,
        causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``CrossAttention.attend_with``, and ``attend`` for ``segment_ids``."""
        sharding = active_sequence_sharding(x.shape[0])
        if causal and sharding is None:
            kernel = self._kernel(
                len(x),
                deterministic=deterministic,
                num_queries=x.shape[1],
                num_keys=k.shape[1] + x.shape[1],
                causal=False,
                has_mask=True,
                has_pattern=True,
                has_segments=segment_ids is not None,
            )
            if kernel is not None:
                y = self._attend_fused_with(
                    self.q(x, positions),
                    KeySet(k, v, mask),
                    others[0],
                    segment_ids,
                    kernel,
                    deterministic,
                )
                return self.o(y)
        if segment_ids is not None:
            mask = mask & segment_ids.mask()
        if sharding is None and not self._needs_pieces(x, k, 1):
            return super().attend_with(
                x,
                k,
                v,
                others,
                mask=mask,
                positions=positions,
                deterministic=deterministic,
            )
        kernel = None
        if sharding is None:
            self._note_joint_softmax()
        else:
            kernel = self.fused_kernel(
                x,
                k,
                mask=mask,
                bias=None,
                causal=False,
                deterministic=deterministic,
                by_keys=True,
            )
        rate = 0.0 if deterministic else self.dropout_rate
        rng = self.make_rng("dropout") if rate else None
        of_source, of_others = split_dropout(
            None if rng is None else WeightDropout(rng, rate)
        )

        def attend(
            q: AnyArray,
            k: AnyArray,
            v: AnyArray,
            mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"],
            rng: Array | None = None,
            axes: Axes = (),
        ) -> tuple[Array, Array]:
            dropout = None if rng is None else WeightDropout(rng, rate)
            if kernel is not None:
                softmax = self._fused_shard(
                    q, k, v, mask, dropout, axes, kernel
                )
            else:
                k, v = (repeat_heads(y, self.num_heads) for y in (k, v))
                softmax = attend_shared_partially(
                    q,
                    [KeySet(k, v, mask[:, None])],
                    scale=self.scale,
                    dropout=dropout,
                    axes=axes,
                )
            return softmax.out, softmax.log_sum_exp

        q = self.q(x, positions)
        rng = None if of_source is None else of_source.rng
        if sharding is None:
            source = attend(q, k, v, mask, rng)
        else:
            source = _attend_to_shards(
                attend,
                q,
                mask,
                {"k": k, "v": v},
                rng,
                ("rows", "rows"),
                has_kernels=kernel is not None,
            )
        target = attend_partially(
            q[:, None],
            [_in_one_block(keys, self.num_heads) for keys in others],
            scale=self.scale,
            dropout=of_others,
        )
        y = merge_partial_softmaxes(
            [target.map(lambda y: y[:, 0]), PartialSoftmax(*source)]
        )
        return self.o(y.astype(v.dtype))

    def _fused_shard(
        self,
        q: Float[AnyArray, "batch query_length heads head_dim"],
        k: Float[AnyArray, "batch num_keys kv_heads head_dim"],
        v: Float[AnyArray, "batch num_keys kv_heads head_dim"],
        mask: Bool[AnyArray, "#batch #heads 1 num_keys"] | None,
        dropout: WeightDropout | None,
        axes: Axes,
        kernel: Kernel,
    ) -> PartialSoftmax:
        """Attends by a kernel to the keys of this shard; merges the softmaxes of all shards."""
        k, v = (repeat_heads(y, self.num_heads) for y in (k, v))
        softmax = fused_part(
            q,
            k,
            v,
            None if mask is None else mask[:, :, 0],
            kernel=kernel,
            scale=self.scale,
            dropout=dropout,
        )
        return merge_shards(softmax, axes)

    def _attend_fused_with(
        self,
        q: Float[AnyArray, "batch query_length heads head_dim"],
        source: KeySet,
        target: KeySet,
        segment_ids: SegmentIds | None,
        kernel: Kernel,
        deterministic: bool,
    ) -> Float[Array, "batch query_length heads head_dim"]:
        """Attends by a kernel to the keys of the source, followed by the keys of the target."""
        k, v = (
            repeat_heads(jnp.concatenate(x, 1), self.num_heads)
            for x in ((source.k, target.k), (source.v, target.v))
        )
        assert source.mask is not None
        # [batch, mask_heads, num_keys + query_length]
        added = ((0, 0), (0, 0), (0, q.shape[1]))
        mask = jnp.pad(source.mask[:, :, 0], added, constant_values=True)
        if segment_ids is not None:
            ids = jnp.concatenate(segment_ids, 1)
            segment_ids = segment_ids._replace(source=ids)
        return attend_fused(
            q,
            k,
            v,
            mask,
            kernel=kernel,
            pattern=_EarlierTargets(source.k.shape[1]),
            segment_ids=segment_ids,
            **self.sparse_options(deterministic),
        )

    def _needs_pieces(self, x: AnyArray, k: AnyArray, num_shards: int) -> bool:
        """Returns True if the scores on a device are too many for one array."""
        batch, num_queries, _ = x.shape
        # float32 scores [batch, heads, num_queries, num_keys / num_shards]
        score_bytes = (
            4 * batch * self.num_heads * num_queries * k.shape[1] // num_shards
        )
        return (
            num_queries > MAX_QUERIES_AT_ONCE
            and score_bytes > max_score_bytes()
        )

    def attend_absorbed(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        states: Float[AnyArray, "batch key_length source_size"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend_absorbed``."""
        if active_sequence_sharding(x.shape[0]) is None:
            return super().attend_absorbed(x, states, mask=mask)
        mix = functools.partial(mix_states, scale=self.scale)
        mixed = _attend_to_shards(
            mix, self.absorbed_queries(x), mask, {"states": states}
        )
        return self.project_mixed(mixed, mask)


def _in_one_block(keys: KeySet, num_heads: int) -> KeySet:
    """Returns keys of ``attend_jointly`` for ``attend_partially`` with one block of queries."""
    mask, bias = jax.tree.map(lambda y: y[:, None], (keys.mask, keys.bias))
    k, v = (repeat_heads(y, num_heads) for y in (keys.k, keys.v))
    return KeySet(k, v, mask, bias)


def _attend_to_shards(
    attend: Callable[..., Any],
    q: AnyArray,
    mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"] | None,
    source: dict[str, AnyArray],
    rng: Array | None = None,
    outputs: tuple[Output, ...] | Output = "rows",
    *,
    has_kernels: bool = False,
) -> Any:
    """Calls ``attend`` on every device with its shard of a source.

    Args:
        attend: function of ``q``, ``mask``, the arrays of ``source``, the mesh axes
            ``axes`` of the sequence, and ``rng`` that returns [batch, query_length,
            ...], merged over the axes; several such arrays if ``outputs`` are.
        q: queries [batch, query_length, ...].
        mask: boolean mask [batch, 1 or heads, 1 or query_length, num_keys],
            None for all keys.
        source: arrays [batch, num_keys, ...].
        rng: PRNG key for dropout.
        outputs, has_kernels: see ``shard_map_sequence``.
    """
    batch, num_keys = next(iter(source.values())).shape[:2]
    sharding = active_sequence_sharding(batch)
    assert sharding is not None
    if mask is None:
        mask = jnp.ones((batch, 1, 1, num_keys), bool)

    def run(mask: AnyArray, **arrays: Any) -> Any:
        # The axis of keys is the last one again.
        return attend(mask=jnp.moveaxis(mask, 1, -1), **arrays)

    # ``shard_map_sequence`` shards the second axis, which must be the axis of
    # keys.
    text = source | {"mask": jnp.moveaxis(mask, -1, 1)}
    return shard_map_sequence(
        run,
        sharding,
        text=text,
        rows={"q": q},
        rng=rng,
        outputs=outputs,
        has_kernels=has_kernels,
    )


class HeposAttention(SourceAttention):
    """Head-wise positional strides: head h attends to the positions i of the source with
    (i - h) mod ``hepos_stride`` == 0 (Huang et al. 2021, equation 1).

    It has the parameters of full cross-attention, so that it can replace full
    cross-attention in a checkpoint. Keys, values and scores are
    ``hepos_stride`` times smaller.
    """

    Options = HeposOptions
    packs = False

    options: HeposOptions = HeposOptions()

    @classmethod
    def check(cls, options: CrossAttentionOptions, num_heads: int) -> None:
        options = HeposOptions.of(options)
        if options.hepos_stride > num_heads:
            raise InputError(
                f"hepos_stride is {options.hepos_stride}, but the decoder has {num_heads} heads, "
                f"so that no head would read some positions; give at most {num_heads}"
            )

    @classmethod
    def prepare(
        cls,
        stack: StackConfig,
        states: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
    ) -> tuple[
        Float[AnyArray, "batch length d_model"],
        Bool[AnyArray, "batch mask_heads 1 num_keys"],
    ]:
        stride = HeposOptions.of(stack.cross).hepos_stride
        key_mask = strided_key_mask(mask, stack.num_heads, stride)
        return states, key_mask[:, :, None]

    @classmethod
    def num_keys(cls, stack: StackConfig, length: int) -> int:
        return strided_length(length, HeposOptions.of(stack.cross).hepos_stride)

    @classmethod
    def stored_heads(cls, stack: StackConfig) -> int:
        return stack.num_heads

    def project_kv(
        self,
        x: Float[AnyArray, "batch key_length d_model"],
        positions: Int[AnyArray, "#batch key_length"] | None = None,
    ) -> tuple[
        Float[Array, "batch num_keys heads head_dim"],
        Float[Array, "batch num_keys heads head_dim"],
    ]:
        """Returns the ceil(key_length / stride) keys and values of each head.

        Args:
            x: encoder states.
            positions: not used; keys of a source have no rotary positions.

        Raises:
            InputError: the source has fewer tokens than the stride.
        """
        stride = self.options.hepos_stride
        if stride > x.shape[1] and not self.is_initializing():
            raise InputError(
                f"hepos_stride is {stride}, but the source has {x.shape[1]} tokens, so that some "
                "heads would read nothing; give a longer source or a smaller stride"
            )
        k = self.k.normalized(self._project(self.k, x))
        return k, self._project(self.v, x)

    def _project(self, projection: Linear, x: AnyArray) -> Array:
        # Only the positions that each head reads: [batch, num_keys, heads,
        # head_dim].
        kernel = projection.updated_kernel.astype(self.dtype)
        # Heads of a group read different positions, so that each has its own
        # keys.
        repeats = self.num_heads // kernel.shape[1]
        kernel = jnp.repeat(kernel, repeats, axis=1) if repeats > 1 else kernel
        y = project_strided(
            x.astype(self.dtype), kernel, self.options.hepos_stride
        )
        if not self.use_bias:
            return y
        return y + jnp.repeat(
            projection.bias.astype(self.dtype), repeats, axis=0
        )

    def attend_absorbed(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        states: Float[AnyArray, "batch key_length source_size"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend_absorbed``; ``mask`` is the result of ``prepare``."""
        stride = self.options.hepos_stride
        assert mask is not None  # ``prepare`` makes one
        # [batch, query_length, heads, d_model]
        q = self.absorbed_queries(x)
        if active_sequence_sharding(x.shape[0]) is None:
            mixed = mix_strided(
                q, states, mask, stride=stride, scale=self.scale
            )
            return self.project_mixed(mixed, mask)

        def mix(rows: AnyArray, **arrays: Any) -> Array:
            # undoes ``to_blocks``
            shard = rows.reshape(rows.shape[0], -1, rows.shape[-1])
            return mix_strided(
                states=shard, **arrays, stride=stride, scale=self.scale
            )

        # Shards must begin at a multiple of the stride.
        mixed = _attend_to_shards(
            mix, q, mask, {"rows": to_blocks(states, stride)}
        )
        return self.project_mixed(mixed, mask)
