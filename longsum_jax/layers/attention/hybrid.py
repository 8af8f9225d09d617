"""Hybrids: a different attention from layer to layer, "window*3,full"."""

from collections.abc import Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import Context, EncoderAttention
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    PartOptions,
)
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.stack import StackConfig
from longsum_jax.typing import AnyArray


class HybridContext(Context):
    """The contexts of all attentions of a hybrid, made once for the whole encoder.

    Attributes:
        attentions: name and class of each attention.
    """

    attentions: tuple[tuple[str, type[EncoderAttention]], ...] = ()

    def setup(self) -> None:
        for name, attention in self.attentions:
            stack = self.stack.with_attention(name)
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

    Options = PartOptions
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
    def read_options(
        cls, name: str, values: Mapping[str, Any], where: str
    ) -> PartOptions:
        for part, attention in cls.attentions.items():
            if attention.own_tokens:
                raise InputError(
                    f'encoder_attention "{name}": {part} adds tokens in '
                    "front of the text, which other attentions do not support; give "
                    f'only "{part}", for all layers, or leave it out'
                )
        parts = [
            (part, attention.read_options(part, values, where))
            for part, attention in cls.attentions.items()
        ]
        return PartOptions(parts=tuple(parts))

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        for part, part_options in PartOptions.of(options).parts:
            cls.attentions[part].check(part_options, max_length)

    @classmethod
    def penalty(
        cls, options: EncoderAttentionOptions, params: Mapping[str, Any]
    ) -> Float[Array, ""]:
        # A class counts all of its layers at once, in all groups.
        parts: dict[type[EncoderAttention], list[Any]] = {}
        for name, part in PartOptions.of(options).parts:
            parts.setdefault(cls.attentions[name], []).append((name, part))
        penalties = [
            attention.penalty(PartOptions(parts=tuple(of_class)), params)
            for attention, of_class in parts.items()
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
