"""LSG attention: global tokens, a window of blocks, sparse keys beyond (Condevaux and
Harispe 2022).
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import (
    Context,
    EncoderSelfAttention,
    step_biases,
    window_bias,
)
from longsum_jax.layers.attention.global_tokens import (
    join_tokens,
    pad_to_shards,
    split_tokens,
)
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    LsgOptions,
)
from longsum_jax.layers.dense import Dropout, normal
from longsum_jax.layers.partitioning import active_sequence_sharding, logical
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.lsg import LsgSpec, lsg_attention
from longsum_jax.ops.attention.lsg_selection import lsh_projections
from longsum_jax.ops.padding import append_zeros
from longsum_jax.typing import AnyArray

# rows of the table of global tokens in every published checkpoint
GLOBAL_ROWS = 512


def _is_dense(spec: LsgSpec, batch: int, length: int) -> bool:
    """Returns True if texts are computed as full attention: short, and not sharded."""
    return spec.is_dense(length) and active_sequence_sharding(batch) is None


def spec_of(options: LsgOptions, causal: bool = False) -> LsgSpec:
    """Returns the static options of the operation."""
    return LsgSpec(
        options.block_size,
        options.sparse_block_size,
        options.sparsity_factor,
        options.sparsity_type,
        causal=causal,
        reference_quirks=options.reference_quirks,
    )


class LsgContext(Context):
    """Prepares the inputs that all LSG layers of an encoder share.

    ``prepare`` is called once per encoder, before the first layer:

        x         [batch, length, d_model]
        result    [batch, num_global_tokens + length', d_model]

    It prepends learned global tokens, which have no positions, and pads the
    length to whole blocks where necessary (length'). For the layers it returns
    the mask of the tokens; the mask of the tokens that serve as keys, which may
    exclude the first one; T5's relative bias, or None, also for kernels; and, if
    sparse keys are selected by LSH, random directions for each layer. The
    embeddings of global tokens pass through the same norm, dropout and map to
    ``d_model`` as the embeddings of other tokens. ``finish`` is called once,
    after the last layer.
    """

    @property
    def options(self) -> LsgOptions:
        """The options of the attention."""
        return LsgOptions.of(self.stack.attention)

    def setup(self) -> None:
        stack = self.stack
        init = normal(1.0 if stack.kernel_std is None else stack.kernel_std)
        self.global_embeddings = self.param(
            "global_embeddings",
            logical(init, "globals", "embed"),
            (GLOBAL_ROWS, stack.embedding_size or stack.d_model),
        )
        self.dropout = Dropout(stack.dropout_rate)

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
        *,
        embedding_norm: nn.Module | None = None,
        embedding_map: nn.Module | None = None,
        lsh_projections: tuple[AnyArray, ...] = (),
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        """Prepends the global tokens and computes the masks, see ``Context.prepare``.

        Args:
            x, mask, relative_bias, deterministic: see ``Context.prepare``.
            embedding_norm: norm of the token embeddings, None for models
                without one.
            embedding_map: map from the size of embeddings to ``d_model``, None
                if they agree.
            lsh_projections: directions float [layers, heads, head_dim, n] to
                use instead of random ones.
        """
        options, length = self.options, x.shape[1]
        spec = spec_of(options)
        if options.reference_quirks and not spec.is_dense(length):
            # The published code pads to whole blocks, and attends to its
            # padding.
            extra = -length % options.block_size
            x = append_zeros(x, extra)
            mask = append_zeros(mask, extra)
        x = pad_to_shards(x, options.block_size)
        mask = pad_to_shards(mask, options.block_size)
        key_mask = mask
        # The first token is hidden; ``finish`` puts the first global token in
        # its place.
        if options.mask_first_token:
            key_mask = mask & (jnp.arange(mask.shape[1]) > 0)
        bias = self._bias(
            relative_bias, length, dense=_is_dense(spec, len(x), length)
        )
        tokens = self._global_tokens(x, embedding_norm, deterministic)
        tokens = tokens if embedding_map is None else embedding_map(tokens)
        projections = tuple(lsh_projections) or self._draw_projections(
            deterministic
        )
        context = (mask, key_mask, bias, step_biases(relative_bias))
        return join_tokens(tokens, x), context, projections

    def finish(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch output_length d_model"]:
        """Removes the global tokens and the padding after the last layer.

        With ``pass_global_tokens_to_decoder``, the global tokens stay in front,
        and the decoder attends to them.

        Args:
            x: states of the last layer.
            length: length of the encoder's input, without global tokens and
                padding.

        Returns:
            The states of the input's tokens. With ``pool_with_global`` or
            ``mask_first_token``, the state of the first global token stands in
            place of the first input token's, which classifiers read.
        """
        options = self.options
        tokens, text = split_tokens(x, options.num_global_tokens)
        text = text[:, :length]
        if options.pass_global_tokens_to_decoder:
            return jnp.concatenate([tokens, text], 1)
        if options.pool_with_global or options.mask_first_token:
            is_first = jnp.arange(length)[:, None] == 0
            text = jnp.where(is_first, tokens[:, :1], text)
        return text

    def _global_tokens(
        self, x: AnyArray, embedding_norm: nn.Module | None, deterministic: bool
    ) -> Float[AnyArray, "batch num_globals embedding_size"]:
        count = self.options.num_global_tokens
        # [num_globals, embedding_size], the same for every document until the
        # first layer.
        tokens = self.global_embeddings[:count].astype(x.dtype)
        if embedding_norm is not None:
            tokens = embedding_norm(tokens)
        tokens = jnp.broadcast_to(tokens, (x.shape[0], *tokens.shape))
        return self.dropout(tokens, deterministic=deterministic)

    def _bias(
        self,
        relative_bias: RelativePositionBias | None,
        length: int,
        dense: bool,
    ) -> Array | None:
        """Returns T5's bias inside the window of three blocks, or between all tokens
        for ``dense`` attention; global tokens and sparse keys have no bias.
        """
        block_size = self.options.block_size
        if relative_bias is None or not dense:
            return window_bias(relative_bias, block_size, block_size)
        positions = jnp.arange(length)
        return relative_bias.of_distances(positions - positions[:, None])

    def _draw_projections(self, deterministic: bool) -> tuple[Array, ...]:
        """Draws random directions for every layer: new ones in each training step,
        otherwise always the same ones.
        """
        stack = self.stack
        if not uses_projections(self.options):
            return ()  # without a draw from the stream "dropout"
        rng = jax.random.key(0) if deterministic else self.make_rng("dropout")

        def draw(key: Array) -> tuple[Array, ...]:
            return draw_projections(
                self.options, stack.num_heads, stack.d_kv, key
            )

        # One key per layer: the arrays get a leading axis of layers.
        return jax.vmap(draw)(jax.random.split(rng, stack.num_layers))


def uses_projections(options: LsgOptions) -> bool:
    """Returns True if the selection of sparse keys needs random directions ("lsh")."""
    selection = spec_of(options).selection()
    return selection is not None and selection.sparsity_type == "lsh"


def draw_projections(
    options: LsgOptions, num_heads: int, head_dim: int, key: PRNGKeyArray
) -> tuple[Float[Array, "heads head_dim _"], ...]:
    """Draws the random directions of one layer.

    Args:
        options: options of the attention, see ``uses_projections``.
        num_heads: number of heads.
        head_dim: size of one head.
        key: PRNG key.
    """
    selection = spec_of(options).selection()
    assert selection is not None
    return lsh_projections(
        key,
        num_heads,
        head_dim,
        chunk=selection.chunk,
        factor=selection.factor,
        pre_rounds=options.lsh_num_pre_rounds,
    )


class LsgAttention(EncoderSelfAttention):
    """Global tokens, window and sparse keys in one softmax, with the same projections
    for all (Condevaux and Harispe 2022, section 3).
    """

    Options = LsgOptions
    context_class = LsgContext
    inputs = ("embedding_norm", "embedding_map", "lsh_projections")
    can_be_causal = True
    own_tokens = True

    options: LsgOptions = LsgOptions()

    @classmethod
    def num_passed_tokens(cls, options: EncoderAttentionOptions) -> int:
        options = LsgOptions.of(options)
        if options.pass_global_tokens_to_decoder:
            return options.num_global_tokens
        return 0

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        options = LsgOptions.of(options)
        # raises InputError for incompatible options
        spec_of(options).selection()
        if not 1 <= options.num_global_tokens <= GLOBAL_ROWS:
            raise InputError(
                f"num_global_tokens is {options.num_global_tokens}, but the table of LSG's global "
                f"tokens has {GLOBAL_ROWS} rows; give 1 to {GLOBAL_ROWS}"
            )

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        options = self.options
        spec = spec_of(options, self.causal)
        mask, key_mask, bias, steps = context
        # Split before the projections, which copies the sequence once instead
        # of three times.
        tokens, text = split_tokens(x, options.num_global_tokens)
        q = self.q(text)
        k, v = self.project_kv(text)
        global_q = self.q(tokens)
        global_k, global_v = self.project_kv(tokens)
        fused = None
        if _is_dense(spec, *mask.shape):
            self.without_kernel("texts of at most two blocks")
        else:
            fused = self.fused_rows(
                *mask.shape,
                has_bias=bool(steps),
                deterministic=deterministic,
                margin=spec.margin,
                multiple=spec.block_size,
            )
        text, tokens = self.attend_sharded(
            functools.partial(lsg_attention, spec=spec, fused=fused),
            deterministic,
            text={"tokens": QKV(q, k, v), "mask": mask, "key_mask": key_mask},
            rows={"global_tokens": QKV(global_q, global_k, global_v)},
            shared={"bias": bias, "steps": steps, "projections": layer_input},
            block=options.block_size,
            outputs=("text", "rows"),
            has_kernels=fused is not None,
        )
        return self.o(join_tokens(tokens, text))
