"""Hybrids: a different attention from layer to layer, "window*3,full"."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import Context, EncoderAttention
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.stack import StackConfig, with_attention
from longsum_jax.typing import AnyArray


class HybridContext(Context):
    """The contexts of all attentions of a hybrid, made once for the whole encoder.

    Attributes:
        attentions: name and class of each attention.
    """

    attentions: tuple[tuple[str, type[EncoderAttention]], ...] = ()

    def setup(self) -> None:
        for name, attention in self.attentions:
            options = with_attention(self.stack.options, name)
            stack = dataclasses.replace(self.stack, options=options)
            setattr(self, name, attention.make_context(stack))

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
        **inputs: Any,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        """See ``Context.prepare``; both pytrees are dicts keyed by attention name."""
        contexts, layer_inputs = {}, {}
        for name, attention in self.attentions:
            # Every attention gets only the inputs that it declares.
            own_inputs = {
                key: inputs[key] for key in inputs if key in attention.inputs
            }
            module = getattr(self, name)
            _, contexts[name], layer_inputs[name] = module.prepare(
                x, mask, relative_bias, deterministic, **own_inputs
            )
        return x, contexts, layer_inputs

    def for_group(
        self, context: Any, layer_inputs: Any, group: LayerGroup
    ) -> tuple[Any, Any]:
        name = group.spec.attention
        return super().for_group(context[name], layer_inputs[name], group)


class HybridAttention(EncoderAttention):
    """The base class of combinations of several attentions, one for each group of layers.

    Attributes:
        attentions: classes of the attentions by name.
    """

    attentions: ClassVar[Mapping[str, type[EncoderAttention]]] = {}

    @classmethod
    def of(
        cls, attentions: Mapping[str, type[EncoderAttention]]
    ) -> type["HybridAttention"]:
        """Returns the class that combines ``attentions``."""
        inputs: dict[str, None] = {}
        pads_to, max_input_length_option = "", ""
        for attention in attentions.values():
            inputs |= dict.fromkeys(attention.inputs)
            pads_to = pads_to or attention.pads_to
            max_input_length_option = (
                max_input_length_option or attention.max_input_length_option
            )
        attributes = {
            "attentions": dict(attentions),
            "inputs": tuple(inputs),
            "pads_to": pads_to,
            "max_input_length_option": max_input_length_option,
        }
        return type(cls.__name__, (cls,), attributes)

    @classmethod
    def option_names(cls, name: str) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for layer_name, attention in cls.attentions.items():
            names |= dict.fromkeys(attention.option_names(layer_name))
        return tuple(names)

    @classmethod
    def check(cls, options: EncoderAttentionOptions) -> None:
        for name, attention in cls.attentions.items():
            if attention.own_tokens:
                raise InputError(
                    f'encoder_attention "{options.encoder_attention}": {name} adds tokens in '
                    "front of the text, which other attentions do not support; give "
                    f'only "{name}", for all layers, or leave it out'
                )
            attention.check(with_attention(options, name))

    @classmethod
    def penalty(
        cls, options: EncoderAttentionOptions, params: Mapping[str, Any]
    ) -> Float[Array, ""]:
        # An attention of several groups counts all of its layers at once.
        penalties = [
            attention.penalty(options, params)
            for attention in dict.fromkeys(cls.attentions.values())
        ]
        return jnp.stack(penalties).sum()

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        raise TypeError(
            "a layer of a hybrid is made by the attention of that layer"
        )

    @classmethod
    def make_context(cls, stack: StackConfig) -> HybridContext:
        return HybridContext(stack, tuple(cls.attentions.items()))
