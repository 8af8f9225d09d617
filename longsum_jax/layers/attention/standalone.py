"""LSG attention and Hepos cross-attention as layers for any model, without a ``StackConfig``.

They have the same parameters as the attentions in the models, ``q``, ``k``,
``v`` and ``o``, and return the same outputs. They work in Flax Linen and, through
``flax.nnx.bridge.ToNNX``, in NNX.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.cross import HeposAttention
from longsum_jax.layers.attention.global_tokens import (
    join_tokens,
    pad_to_shards,
    split_tokens,
)
from longsum_jax.layers.attention.lsg import (
    LsgAttention,
    draw_projections,
    uses_projections,
)
from longsum_jax.layers.attention.options import HeposOptions, LsgOptions
from longsum_jax.layers.dense import torch_uniform
from longsum_jax.ops.attention.hepos import strided_key_mask
from longsum_jax.ops.attention.lsg_selection import SparsityType
from longsum_jax.ops.padding import bool_mask, check_states
from longsum_jax.typing import AnyArray


class Lsg(nn.Module):
    """LSG self-attention: a window of three blocks, sparse keys beyond it, and global tokens.

    Source: Condevaux and Harispe 2022, section 3. Time and memory are linear in
    the length. Unlike the models' encoders, the layer adds no global tokens:
    the first tokens of its input are global.

    Attributes:
        num_heads: number of heads.
        head_dim: size of one head.
        block_size: number of tokens of a block; a token attends to its block
            and both neighbors.
        sparse_block_size: number of sparse keys on either side of the window; 0
            for none.
        sparsity_factor: number of tokens per sparse key, a divisor of
            ``block_size``; 0 for no sparse keys.
        sparsity_type: selection of the sparse keys: tokens whose keys have
            large norms ("norm"), every ``sparsity_factor``-th token ("stride"),
            a run of consecutive tokens of each block ("block_stride"), means of
            neighbors ("pooling", "bos_pooling"), means of similar tokens
            ("lsh"), or "none"; see ``ops.attention.lsg_selection``.
        num_global_tokens: number of tokens at the beginning of the input that
            attend to all tokens, and that all tokens attend to. They must not
            be padding.
        causal: True to mask later tokens. Global tokens then attend to nothing:
            their outputs are their queries after the output projection, as in
            the published code.
        use_bias: True to add a bias in ``q``, ``k``, ``v`` and ``o``.
        dropout_rate: dropout rate of the attention weights, with the PRNG
            stream "dropout".
        dtype: dtype of the computation; parameters are float32.
    """

    num_heads: int
    head_dim: int
    block_size: int = 128
    sparse_block_size: int = 128
    sparsity_factor: int = 2
    sparsity_type: SparsityType = "norm"
    num_global_tokens: int = 0
    causal: bool = False
    use_bias: bool = True
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "batch length d_model"]:
        """Applies the layer. Outputs outside the mask are arbitrary.

        Args:
            x: input states of any length, the global tokens first.
            mask: True on real positions; None for all.
            deterministic: False in training, with dropout and, for "lsh", new
                random directions at each call; both need the PRNG stream
                "dropout".

        Raises:
            InputError: incompatible options
                (``ops.attention.lsg.LsgSpec.selection``), more global tokens
                than positions, or arrays of other shapes.
        """
        check_states("x", x)
        mask = bool_mask(mask, x)
        if not 0 <= self.num_global_tokens <= x.shape[1]:
            raise InputError(
                f"num_global_tokens is {self.num_global_tokens}, but the input has {x.shape[1]} "
                f"positions; give 0 to {x.shape[1]}"
            )
        options = LsgOptions(
            block_size=self.block_size,
            sparse_block_size=self.sparse_block_size,
            sparsity_factor=self.sparsity_factor,
            sparsity_type=self.sparsity_type,
            num_global_tokens=self.num_global_tokens,
        )
        attention = LsgAttention(
            **_attention_fields(self, x.shape[-1]),
            options=options,
            causal=self.causal,
        )
        nn.share_scope(self, attention)
        count, length = self.num_global_tokens, x.shape[1]
        # the layout of the models' encoders, in which shards of a sequence have
        # whole blocks
        text = pad_to_shards(x[:, count:], self.block_size)
        text_mask = pad_to_shards(mask[:, count:], self.block_size)
        x = join_tokens(x[:, :count], text)
        projections: tuple[Array, ...] = ()
        # raises InputError for incompatible options
        if uses_projections(options):
            key = (
                jax.random.key(0) if deterministic else self.make_rng("dropout")
            )
            projections = draw_projections(
                options, self.num_heads, self.head_dim, key
            )
        # tokens, keys, no biases
        context = (text_mask, text_mask, None, ())
        out = attention(x, context, projections, deterministic)
        tokens, text = split_tokens(out, count)
        return jnp.concatenate([tokens, text], 1)[:, :length]


class HeposCrossAttention(nn.Module):
    """Hepos cross-attention: each head attends to every ``stride``-th position of the source.

    Head h begins at position h mod ``stride`` (Huang et al. 2021, equation 1).
    Each head has ``stride`` times fewer keys, values and scores than in full
    cross-attention, with the same parameters.

    Attributes:
        num_heads: number of heads.
        head_dim: size of one head.
        stride: distance between the positions of one head, at most
            ``num_heads``.
        use_bias: True to add a bias in ``q``, ``k``, ``v`` and ``o``.
        dropout_rate: dropout rate of the attention weights, with the PRNG
            stream "dropout".
        dtype: dtype of the computation; parameters are float32.
    """

    num_heads: int
    head_dim: int
    stride: int = HeposOptions.hepos_stride
    use_bias: bool = True
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[AnyArray, "batch target_length d_model"],
        source: Float[AnyArray, "batch source_length d_model"],
        mask: Bool[AnyArray, "batch source_length"] | None = None,
        *,
        deterministic: bool = True,
    ) -> Float[Array, "batch target_length d_model"]:
        """Applies the layer.

        Args:
            x: states of the target.
            source: states of the source, at least ``stride`` positions.
            mask: True on real positions of the source; None for all.
            deterministic: False in training, to apply dropout.

        Raises:
            InputError: a stride below 1, above the number of heads, or above
                the source's length; or arrays of other shapes.
        """
        check_states("x", x)
        check_states("source", source)
        mask = bool_mask(mask, source)
        if not 1 <= self.stride <= self.num_heads:
            raise InputError(
                f"stride is {self.stride}, but the layer has {self.num_heads} heads; give 1 to "
                f"{self.num_heads}, so that every position is read"
            )
        # parameters may be created from a source of any length
        if self.stride > source.shape[1] and not self.is_initializing():
            raise InputError(
                f"stride is {self.stride}, but the source has a length of {source.shape[1]}, so "
                "that some heads would read nothing; give a longer source or a smaller stride"
            )
        options = HeposOptions(hepos_stride=self.stride)
        attention = HeposAttention(
            **_attention_fields(self, x.shape[-1]), options=options
        )
        nn.share_scope(self, attention)
        # [batch, heads, 1, num_keys]
        key_mask = strided_key_mask(mask, self.num_heads, self.stride)[
            :, :, None
        ]
        # [batch, num_keys, heads, head_dim], for each head h the keys of the
        # positions h mod stride, h mod stride + stride, ...
        k, v = attention.project_kv(source)
        return attention.attend(
            x, k, v, mask=key_mask, deterministic=deterministic
        )


def _attention_fields(
    layer: Lsg | HeposCrossAttention, d_model: int
) -> dict[str, Any]:
    """Returns the attributes of a ``MultiHeadAttention`` for a layer of this module.

    Raises:
        InputError: a dropout rate outside of [0, 1).
    """
    if not 0 <= layer.dropout_rate < 1:
        raise InputError(
            f"dropout_rate is {layer.dropout_rate}; give a rate of at least 0 and below 1"
        )
    return {
        "d_model": d_model,
        "num_heads": layer.num_heads,
        "d_kv": layer.head_dim,
        "projection_init": torch_uniform(d_model),
        "output_init": torch_uniform(layer.num_heads * layer.head_dim),
        "scale": layer.head_dim**-0.5,
        "use_bias": layer.use_bias,
        "dropout_rate": layer.dropout_rate,
        "dtype": layer.dtype,
    }
