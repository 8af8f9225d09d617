"""LSG: global tokens, a window of blocks, sparse keys beyond it (Condevaux and Harispe 2022)."""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import (
    Context,
    EncoderAttention,
    SparseAttention,
    join_tokens,
    pad_to_shards,
    split_tokens,
    window_bias,
)
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.dense import normal
from longsum_jax.layers.partitioning import logical, sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.lsg import lsg_attention, lsg_selection
from longsum_jax.ops.attention.lsg_selection import Selection, lsh_projections
from longsum_jax.typing import Array

GLOBAL_ROWS = 512  # of every published table, whatever the number in use


def selection_of(options: EncoderAttentionOptions) -> Selection | None:
    """How sparse keys are selected, None without any; InputError for options that do not fit
    together."""
    return lsg_selection(
        options.sparsity_type,
        block_size=options.block_size,
        sparse_block_size=options.sparse_block_size,
        sparsity_factor=options.sparsity_factor,
        reference_quirks=options.reference_quirks,
    )


def check_options(options: EncoderAttentionOptions) -> None:
    """InputError for options that LSG attention cannot work with."""
    selection_of(options)
    if not 1 <= options.num_global_tokens <= GLOBAL_ROWS:
        raise InputError(
            f"num_global_tokens is {options.num_global_tokens}, but the table of LSG's global tokens has {GLOBAL_ROWS} "
            f"rows; give 1 to {GLOBAL_ROWS}"
        )
    if options.lsh_num_pre_rounds < 0:
        raise InputError(
            f"lsh_num_pre_rounds is {options.lsh_num_pre_rounds}; it must be 0 or more"
        )


class LsgContext(Context):
    """Learned global tokens in front of the text, and what may be seen of the text.

    Global tokens have no positions. They go through the norm and the dropout of the embeddings, as
    tokens do.
    """

    def setup(self) -> None:
        s = self.stack
        init = normal(s.attention_init if isinstance(s.attention_init, float) else 1.0)
        shape = (GLOBAL_ROWS, s.d_model)
        self.global_embeddings = self.param(
            "global_embeddings", logical(init, "globals", "embed"), shape
        )
        self.dropout = nn.Dropout(s.dropout_rate)

    def begin(
        self,
        x,
        mask,
        relative_bias,
        deterministic,
        *,
        embedding_norm=None,
        lsh_projections: tuple[Array, ...] = (),
    ):
        """``lsh_projections``: [N, H, K, n] for N layers, instead of those that are drawn."""
        o, length = self.stack.options, x.shape[1]
        if (
            o.reference_quirks and length > 2 * o.block_size
        ):  # as published; it shows where padding is seen
            extra = (0, -length % o.block_size)
            x, mask = jnp.pad(x, ((0, 0), extra, (0, 0))), jnp.pad(mask, ((0, 0), extra))
        x, mask = pad_to_shards(x, o.block_size), pad_to_shards(mask, o.block_size)
        key_mask = mask & (jnp.arange(mask.shape[1]) > 0) if o.mask_first_token else mask
        whole = sequence_sharding(x.shape[0]) is None
        context = (
            mask,
            key_mask,
            self._bias(relative_bias, length, dense=whole and length <= 2 * o.block_size),
        )
        x = join_tokens(self._tokens(x, embedding_norm, deterministic), x)
        return x, context, tuple(lsh_projections) or self._projections(deterministic)

    def end(self, x: Array, length: int) -> Array:
        """Without the globals in front, the first of which may stand in for the first token; or
        with them."""
        o = self.stack.options
        tokens, text = split_tokens(x, o.num_global_tokens)
        text = text[:, :length]
        if o.pass_global_tokens_to_decoder:
            return jnp.concatenate([tokens, text], 1)
        if o.pool_with_global or o.mask_first_token:
            text = jnp.where(jnp.arange(length)[:, None] == 0, tokens[:, :1], text)
        return text

    def _tokens(self, x: Array, embedding_norm: nn.Module | None, deterministic: bool) -> Array:
        tokens = self.global_embeddings[: self.stack.options.num_global_tokens].astype(x.dtype)
        tokens = tokens if embedding_norm is None else embedding_norm(tokens)
        tokens = jnp.broadcast_to(tokens, (x.shape[0], *tokens.shape))
        return self.dropout(tokens, deterministic=deterministic)

    def _bias(self, relative_bias: Any, length: int, dense: bool) -> Array | None:
        """T5's bias inside the window of three blocks, or everywhere; globals and sparse keys have
        none."""
        size = self.stack.options.block_size
        if relative_bias is None or not dense:
            return window_bias(relative_bias, size, size)
        position = jnp.arange(length)
        return relative_bias.of_distances(position - position[:, None])

    def _projections(self, deterministic: bool) -> tuple[Array, ...]:
        """Random directions of every layer: new ones in each training step, always the same ones
        otherwise."""
        s, selection = self.stack, selection_of(self.stack.options)
        if selection is None or selection.kind != "lsh":
            return ()
        rng = jax.random.key(0) if deterministic else self.make_rng("dropout")
        sizes = {
            "chunk": selection.chunk,
            "factor": selection.factor,
            "pre_rounds": s.options.lsh_num_pre_rounds,
        }
        draw = lambda key: lsh_projections(key, s.num_heads, s.d_kv, **sizes)  # noqa: E731
        return jax.vmap(draw)(jax.random.split(rng, s.num_layers))


class LsgAttention(SparseAttention):
    """Globals, window and sparse keys in one softmax; one set of projections for all (section
    3)."""

    options: EncoderAttentionOptions = EncoderAttentionOptions()

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        o, (mask, key_mask, bias) = self.options, context
        # SequenceSharding before they are projected: one copy of the text instead of three.
        tokens, text = split_tokens(x, o.num_global_tokens)
        arrays = dict(zip("qkv", (self.q(text), *self.project_kv(text)), strict=True))
        rows = (self.q(tokens), *self.project_kv(tokens))
        attend = functools.partial(
            lsg_attention,
            block_size=o.block_size,
            sparse_block_size=o.sparse_block_size,
            sparsity_factor=o.sparsity_factor,
            sparsity_type=o.sparsity_type,
            reference_quirks=o.reference_quirks,
        )
        text, tokens = self.over_text(
            attend,
            deterministic,
            text=arrays | {"mask": mask, "key_mask": key_mask},
            rows=dict(zip(("global_q", "global_k", "global_v"), rows, strict=True)),
            shared={"bias": bias, "projections": layer_input},
            block=o.block_size,
            outputs=("text", "rows"),
        )
        return self.o(join_tokens(tokens, text))


def _make_lsg(stack: StackConfig) -> LsgAttention:
    return LsgAttention(**stack.attention_fields, options=stack.options)


LSG = EncoderAttention(
    _make_lsg,
    LsgContext,
    (
        "block_size",
        "sparse_block_size",
        "sparsity_factor",
        "sparsity_type",
        "num_global_tokens",
        "mask_first_token",
        "pool_with_global",
        "pass_global_tokens_to_decoder",
        "lsh_num_pre_rounds",
        "adaptive",
        "reference_quirks",
    ),
    inputs=("embedding_norm", "lsh_projections"),
    check=check_options,
)
