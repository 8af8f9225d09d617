"""The interface of encoder attentions: a class of layers, and its context.

A context is made once per encoder. It computes what all layers share (masks, biases, global tokens
in front of the input), and removes afterwards what it added. A layer holds the projections and
computes the attention; it is called with the normalised states, the context, and its own share of
the context:

    x, context, layer_inputs = context_module.prepare(x, mask, ...)
    for i, layer in enumerate(layers):
        x = x + layer(norm(x), context, layer_inputs[i], deterministic)
    x = context_module.finish(x, length)
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from longsum_jax.layers.attention.global_tokens import split_tokens
from longsum_jax.layers.attention.multi_head import MultiHeadAttention, RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    NoOptions,
    check_num_windows,
    option_names,
)
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.key_sets import Dropout
from longsum_jax.ops.attention.local import local_block_size, local_distances
from longsum_jax.ops.sequence_sharding import ByHead, Output, shard_map_heads, shard_map_sequence
from longsum_jax.typing import AnyArray


class Context(nn.Module):
    """The base of all contexts; hands the mask to the layers."""

    stack: StackConfig

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        """Computes what the layers need besides their input.

        Contexts with further inputs (``EncoderAttention.inputs``) take them as keywords.

        Args:
            x: embeddings.
            mask: True on real tokens.
            relative_bias: T5's bias by distance, None for models without one.
            deterministic: False in training.

        Returns:
            The input of the first layer, with the global tokens of this context in front; a pytree
            for all layers; a pytree of arrays with one row per layer.
        """
        return x, mask, ()

    def for_group(self, context: Any, layer_inputs: Any, group: LayerGroup) -> tuple[Any, Any]:
        """Returns the share of ``group`` in the last two results of ``prepare``."""
        return context, group.rows(layer_inputs)

    def finish(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch output_length d_model"]:
        """Removes what ``prepare`` added to an input of ``length`` tokens."""
        return x


class EncoderAttention:
    """The interface of the module classes in ``registry.ENCODER_ATTENTIONS``.

    A module is called with (x, context, layer_input, deterministic), and with ``extra`` if it takes
    extra keys.

    Attributes:
        Options: dataclass of the options that the attention reads.
        context_class: class of its context.
        inputs: names of further arguments of ``context_class.prepare``. The encoder itself passes
            ``embedding_norm`` and ``embedding_map``: the norm of the token embeddings and the map
            to the size of the states (or None), for embeddings that the context adds.
        pads_to: name of the option that a padded length must be a multiple of, "" if the result
            does not depend on padding.
        max_input_length_option: name of the option with the longest input in tokens, "" without a
            limit.
        extra_keys: whether a layer takes ``extra: ExtraKeyValues``, keys and values that every
            token sees beside those of the input.
        can_be_causal: whether it has a form in which tokens see no later ones (``StackConfig``).
        own_tokens: whether its context puts tokens of its own in front of the text.
        options: a dataclass with the fields of ``Options``, of modules with tokens of their own.
    """

    Options: ClassVar[type] = NoOptions
    context_class: ClassVar[type[Context]] = Context
    inputs: ClassVar[tuple[str, ...]] = ()
    pads_to: ClassVar[str] = ""
    max_input_length_option: ClassVar[str] = ""
    extra_keys: ClassVar[bool] = False
    can_be_causal: ClassVar[bool] = False
    own_tokens: ClassVar[bool] = False
    options: Any

    @classmethod
    def option_names(cls, name: str) -> tuple[str, ...]:
        """Returns the names of the options that the attention reads.

        Args:
            name: the attention's name in a config; patterns and hybrids need it.
        """
        return option_names(cls.Options)

    @classmethod
    def check(cls, options: EncoderAttentionOptions) -> None:
        """Raises InputError for options that are out of range or do not fit together."""

    @classmethod
    def num_passed_tokens(cls, options: EncoderAttentionOptions) -> int:
        """Returns how many of its own tokens a decoder sees in front of the text."""
        return 0

    def text_states(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch length d_model"]:
        """Returns the states of a text of ``length`` tokens, without what the context added."""
        if self.own_tokens:
            _, x = split_tokens(x, self.options.num_global_tokens)
        return x[:, :length]

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        """Makes the attention of one layer of a stack."""
        raise NotImplementedError

    @classmethod
    def make_context(cls, stack: StackConfig) -> Context:
        """Makes the context of a stack."""
        return cls.context_class(stack)

    @classmethod
    def make_norm(cls, stack: StackConfig) -> nn.Module:
        """Makes the norm of a layer's input."""
        return stack.make_norm()


class EncoderSelfAttention(EncoderAttention, MultiHeadAttention):
    """The base of encoder attentions with queries, keys and values.

    Attributes:
        options: a dataclass with the fields of ``Options``, usually a whole model config.
        causal: tokens see no later ones.
    """

    options: Any = NoOptions()
    causal: bool = False

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        return cls(**stack.attention_fields, options=stack.options, causal=stack.causal)

    def sparse_options(self, deterministic: bool) -> dict[str, Any]:
        """Returns ``scale`` and, in training, ``dropout``: arguments of the functions in
        ``ops.attention``."""
        options: dict[str, Any] = {"scale": self.scale}
        if not deterministic and self.dropout_rate:
            options["dropout"] = Dropout(self.make_rng("dropout"), self.dropout_rate)
        return options

    def random_key(self, layer: Int[AnyArray, ""], deterministic: bool) -> PRNGKeyArray:
        """Returns the key of what a layer draws: a new one in each training step, one for each
        ``layer`` otherwise."""
        if deterministic:
            return jax.random.fold_in(jax.random.key(0), layer)
        return self.make_rng("dropout")

    def attend_sharded(
        self,
        attention: Callable[..., Any],
        deterministic: bool,
        *,
        text: Mapping[str, Any],
        rows: Mapping[str, Any] | None = None,
        shared: Mapping[str, Any] | None = None,
        block: int = 1,
        outputs: tuple[Output, ...] | Output = "text",
        has_kernels: bool = False,
    ) -> Any:
        """Calls ``attention``, on every device with its shard where a mesh shards the sequence.

        Args:
            attention: function of ``ops.attention``, called with all arrays as keywords and with
                ``sparse_options``.
            deterministic: False in training.
            text, rows, shared, block, outputs, has_kernels: see
                ``ops.sequence_sharding.shard_map_sequence``.
        """
        options = self.sparse_options(deterministic)
        batch = jax.tree.leaves(text)[0].shape[0]
        sharding = active_sequence_sharding(batch)
        if sharding is None:
            return attention(**text, **(rows or {}), **(shared or {}), **options)
        run, rng = _with_own_key(attention, options)
        return shard_map_sequence(
            run,
            sharding,
            text=text,
            rows=rows,
            shared=shared,
            block=block,
            rng=rng,
            outputs=outputs,
            has_kernels=has_kernels,
        )

    def attend_by_heads(
        self,
        attention: Callable[..., Array],
        deterministic: bool,
        *,
        text: Mapping[str, Any],
        rows: Mapping[str, Any],
        heads: Mapping[str, ByHead],
    ) -> Float[Array, "batch length heads head_dim"]:
        """Calls ``attention``; where a mesh shards the sequence, every device does for some heads.

        Where devices do not divide the heads, the partitioner decides what they exchange.

        Args:
            attention: function of ``ops.attention``, called with all arrays as keywords and with
                ``sparse_options``.
            deterministic: False in training.
            text, rows, heads: see ``ops.sequence_sharding.shard_map_heads``.
        """
        options = self.sparse_options(deterministic)
        batch = jax.tree.leaves(text)[0].shape[0]
        sharding = active_sequence_sharding(batch)
        if sharding is None or self.num_heads % sharding.num_shards:
            whole = {name: of_heads.arrays for name, of_heads in heads.items()}
            return attention(**text, **rows, **whole, **options)
        run, rng = _with_own_key(attention, options)
        return shard_map_heads(run, sharding, text=text, rows=rows, heads=heads, rng=rng)


def _with_own_key(
    attention: Callable[..., Any], options: dict[str, Any]
) -> tuple[Callable[..., Any], Array | None]:
    """Returns ``attention`` as a function of arrays and of a device's own key.

    Args:
        attention: function of ``ops.attention``.
        options: of ``sparse_options``.

    Returns:
        The function, and the key that those of devices are made from; None without dropout.
    """
    dropout = options.get("dropout")
    if dropout is None:
        return functools.partial(attention, **options), None

    def run(rng: Array, **arrays: Any) -> Any:
        return attention(**arrays, **options | {"dropout": dropout._replace(rng=rng)})

    return run, dropout.rng


def layer_radii(windows: tuple[int, ...], num_layers: int) -> Int[Array, " layers"]:
    """Returns the tokens on either side that each layer sees.

    Args:
        windows: tokens on both sides together, one number or one for each layer.
        num_layers: of the stack.

    Raises:
        InputError: another number of windows.
    """
    check_num_windows(windows, num_layers)
    return jnp.broadcast_to(jnp.asarray(windows) // 2, (num_layers,))


def window_bias(
    relative_bias: RelativePositionBias | None, radius: int, block_size: int = 0
) -> Float[Array, "heads block_size window"] | None:
    """Returns T5's bias between the queries of a block and the keys of its window.

    Args:
        relative_bias: None gives None.
        radius: tokens that a query sees on either side.
        block_size: 0 for ``ops.attention.local.local_block_size``.
    """
    if relative_bias is None:
        return None
    distances = local_distances(block_size or local_block_size(radius), radius)
    return relative_bias.of_distances(jnp.asarray(distances))
