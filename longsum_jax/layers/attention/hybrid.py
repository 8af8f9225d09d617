"""Hybrids: another attention from layer to layer, "window*3,full"."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import Context, EncoderAttention
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.stack import StackConfig, with_attention


class HybridContext(Context):
    """The contexts of all kinds side by side, begun once for the whole encoder."""

    kinds: tuple[tuple[str, EncoderAttention], ...] = ()

    def setup(self) -> None:
        for name, kind in self.kinds:
            options = with_attention(self.stack.options, name)
            setattr(self, name, kind.make_context(dataclasses.replace(self.stack, options=options)))

    def begin(self, x, mask, relative_bias, deterministic, **inputs):
        contexts, layer_inputs = {}, {}
        for name, kind in self.kinds:
            own = {key: value for key, value in inputs.items() if key in kind.inputs}
            begun, *parts = getattr(self, name).begin(x, mask, relative_bias, deterministic, **own)
            if begun is not x:
                raise InputError(
                    f'encoder_attention "{self.stack.options.encoder_attention}": {name} puts tokens of its own in '
                    "front of the text, which the other layers do not know; use it in all layers or in none"
                )
            contexts[name], layer_inputs[name] = parts
        return x, contexts, layer_inputs

    def part(self, context: Any, layer_inputs: Any, group: LayerGroup) -> tuple[Any, Any]:
        name = group.kind.attention
        return super().part(context[name], layer_inputs[name], group)


def hybrid(kinds: Mapping[str, EncoderAttention]) -> EncoderAttention:
    """The kind whose layers are of ``kinds``; each layer is made by its own."""

    def make_layer(stack: StackConfig) -> Any:
        raise TypeError("a layer of a hybrid is made by the kind of that layer")

    def make_context(stack: StackConfig) -> HybridContext:
        return HybridContext(stack, tuple(kinds.items()))

    def check(options: EncoderAttentionOptions) -> None:
        for name, kind in kinds.items():
            kind.check(with_attention(options, name))

    def union(field: str) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(value for kind in kinds.values() for value in getattr(kind, field))
        )

    pads_to, limit = (
        next(filter(None, (getattr(kind, key) for kind in kinds.values())), "")
        for key in ("pads_to", "limit")
    )
    return EncoderAttention(
        make_layer,
        make_context,
        union("options"),
        inputs=union("inputs"),
        pads_to=pads_to,
        check=check,
        limit=limit,
    )
