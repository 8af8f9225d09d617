"""The interface of encoder attentions: a class of layers, and its context.

A context is made once per encoder. It computes what all layers share (masks,
biases, global tokens prepended to the input), and finally removes what it
added. A layer holds the projections and computes the attention; it is called
with the normalized states, the context, and its slice of the per-layer inputs:

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
from longsum_jax.layers.attention.multi_head import (
    MultiHeadAttention,
    RelativePositionBias,
)
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    check_num_windows,
    read_options,
)
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.partitioning import active_sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.local import local_block_size, local_distances
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.sequence_sharding import (
    ByHead,
    Output,
    shard_map_heads,
    shard_map_sequence,
)
from longsum_jax.typing import AnyArray


class Context(nn.Module):
    """The base class of contexts; passes only the mask to the layers."""

    stack: StackConfig

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        """Computes the shared inputs of the layers.

        Contexts with additional inputs (``EncoderAttention.inputs``) take them
        as keywords.

        Args:
            x: token embeddings.
            mask: True on real tokens.
            relative_bias: T5's relative position bias, None for models without
                one.
            deterministic: False in training.

        Returns:
            The input of the first layer, with the global tokens of this context
            prepended; a pytree for all layers; a pytree of arrays with one row
            per layer.
        """
        return x, mask, ()

    def for_group(
        self, context: Any, layer_inputs: Any, group: LayerGroup
    ) -> tuple[Any, Any]:
        """Returns the part for ``group`` of the last two results of ``prepare``."""
        return context, group.rows(layer_inputs)

    def finish(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch output_length d_model"]:
        """Removes the tokens that ``prepare`` added to an input of ``length`` tokens."""
        return x


class EncoderAttention:
    """The interface of the module classes in ``registry.ENCODER_ATTENTIONS``.

    A module is called with (x, context, layer_input, deterministic), and
    additionally with ``extra`` if it takes extra keys.

    Attributes:
        Options: subclass of ``EncoderAttentionOptions`` with the options that
            the attention reads.
        context_class: class of its context.
        inputs: names of additional arguments of ``context_class.prepare``. The
            encoder passes ``embedding_norm`` and ``embedding_map``: the norm of
            the token embeddings and the map to the size of the states (or
            None), for embeddings that the context adds. An attention with
            ``segment_ids`` keeps the segments of packed rows apart.
        pads_to: name of the option of which a padded length must be a multiple,
            "" if the result does not depend on padding.
        max_input_length_option: name of the option with the maximum input
            length in tokens, "" if unlimited.
        extra_keys: True if a layer takes ``extra: ExtraKeyValues``, keys and
            values that every token reads in addition to the input.
        can_be_causal: True if it has a form in which tokens see no later tokens
            (``StackConfig``).
        own_tokens: True if its context prepends additional tokens to the text.
        options: instance of ``Options``; only modules that prepend tokens have
            it.
    """

    Options: ClassVar[type[EncoderAttentionOptions]] = EncoderAttentionOptions
    context_class: ClassVar[type[Context]] = Context
    inputs: ClassVar[tuple[str, ...]] = ()
    pads_to: ClassVar[str] = ""
    max_input_length_option: ClassVar[str] = ""
    extra_keys: ClassVar[bool] = False
    can_be_causal: ClassVar[bool] = False
    own_tokens: ClassVar[bool] = False
    options: Any

    @classmethod
    def read_options(
        cls, name: str, values: Mapping[str, Any], where: str
    ) -> EncoderAttentionOptions:
        """Returns the options of the attention in flat values.

        Args:
            name: name of the attention in a config; needed by patterns and
                hybrids.
            values: values by key of config.json; others are ignored.
            where: name of the values in error messages.

        Raises:
            InputError: a value of the wrong type or out of range.
        """
        return read_options(cls.Options, values, where)

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        """Checks options against each other and against the longest input of a model.

        Args:
            options: instance of ``Options``.
            max_length: maximum input length in tokens, None if unlimited.

        Raises:
            InputError: incompatible options.
        """

    @classmethod
    def penalty(
        cls, options: EncoderAttentionOptions, params: Mapping[str, Any]
    ) -> Float[Array, ""]:
        """Returns the penalty on the loss of each target token in training with ``span_penalty``.

        Args:
            options: instance of ``Options``.
            params: parameters of the model.
        """
        return jnp.zeros(())

    @classmethod
    def num_passed_tokens(cls, options: EncoderAttentionOptions) -> int:
        """Returns the number of prepended tokens that a decoder sees before the text."""
        return 0

    def text_states(
        self, x: Float[AnyArray, "batch extended_length d_model"], length: int
    ) -> Float[AnyArray, "batch length d_model"]:
        """Returns the states of the text's ``length`` tokens, without tokens of the context."""
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
    """The base class of encoder attentions with queries, keys and values.

    Attributes:
        options: instance of ``Options``.
        causal: True if tokens see no later tokens.
    """

    repeats_heads: ClassVar[bool] = True

    options: Any = EncoderAttentionOptions()
    causal: bool = False

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        return cls(
            **stack.self_attention_fields,
            options=cls.Options.of(stack.attention),
            causal=stack.causal,
        )

    def random_key(
        self, layer: Int[AnyArray, ""], deterministic: bool
    ) -> PRNGKeyArray:
        """Returns the PRNG key of a layer's random draws: a new one in each training
        step, otherwise a fixed one for each ``layer``.
        """
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
        """Calls ``attention``, on every device with its shard if a mesh shards the sequence.

        Args:
            attention: function of ``ops.attention``, called with all arrays as
                keywords and with ``sparse_options``.
            deterministic: False in training.
            text, rows, shared, block, outputs, has_kernels: see
                ``ops.sequence_sharding.shard_map_sequence``.
        """
        options = self.sparse_options(deterministic)
        batch = jax.tree.leaves(text)[0].shape[0]
        sharding = active_sequence_sharding(batch)
        if sharding is None:
            return attention(
                **text, **(rows or {}), **(shared or {}), **options
            )
        # Every device draws different dropout, from a key that it derives from
        # ``rng``.
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
        """Calls ``attention``; if a mesh shards the sequence, on every device for some of the
        heads.

        If the number of devices does not divide the heads, XLA's partitioner
        decides what is exchanged.

        Args:
            attention: function of ``ops.attention``, called with all arrays as
                keywords and with ``sparse_options``.
            deterministic: False in training.
            text, rows, heads: see ``ops.sequence_sharding.shard_map_heads``.
        """
        options = self.sparse_options(deterministic)
        batch = jax.tree.leaves(text)[0].shape[0]
        sharding = active_sequence_sharding(batch)
        if sharding is None or self.num_heads % sharding.num_shards:
            # No exchange: one device has everything, or XLA partitions the
            # computation.
            whole = {name: of_heads.arrays for name, of_heads in heads.items()}
            return attention(**text, **rows, **whole, **options)
        run, rng = _with_own_key(attention, options)
        return shard_map_heads(
            run, sharding, text=text, rows=rows, heads=heads, rng=rng
        )


def _with_own_key(
    attention: Callable[..., Any], options: dict[str, Any]
) -> tuple[Callable[..., Any], Array | None]:
    """Returns ``attention`` as a function of arrays and of a key per device.

    Args:
        attention: function of ``ops.attention``.
        options: result of ``sparse_options``.

    Returns:
        The function, and the key from which the devices derive theirs; None
        without dropout.
    """
    dropout = options.get("dropout")
    if dropout is None:
        return functools.partial(attention, **options), None

    def run(rng: Array, **arrays: Any) -> Any:
        return attention(
            **arrays, **options | {"dropout": dropout._replace(rng=rng)}
        )

    return run, dropout.rng


def layer_radii(
    windows: tuple[int, ...], num_layers: int
) -> Int[Array, " layers"]:
    """Returns the number of tokens on either side that each layer sees.

    Args:
        windows: numbers of tokens on both sides together, one for all layers or
            one per layer.
        num_layers: number of layers of the stack.

    Raises:
        InputError: the number of windows is neither one nor ``num_layers``.
    """
    check_num_windows(windows, num_layers)
    # Half of a window is on either side of a token.
    return jnp.broadcast_to(jnp.asarray(windows) // 2, (num_layers,))


def step_biases(*modules: RelativePositionBias | None) -> list[StepBias]:
    """Returns T5's biases for fused kernels; modules may be missing."""
    return [module.steps() for module in modules if module is not None]


def window_bias(
    relative_bias: RelativePositionBias | None, radius: int, block_size: int = 0
) -> Float[Array, "heads block_size window"] | None:
    """Returns T5's bias between the queries of a block and the keys of its window.

    Args:
        relative_bias: T5's relative position bias; None returns None.
        radius: number of tokens that a query sees on either side.
        block_size: number of tokens of a block; 0 for
            ``ops.attention.local.local_block_size``.
    """
    if relative_bias is None:
        return None
    distances = local_distances(block_size or local_block_size(radius), radius)
    return relative_bias.of_distances(jnp.asarray(distances))
