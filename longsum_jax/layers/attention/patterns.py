"""Patterns of keys, alone or joined by "+": window, adaptive_span, global, stride, random (Huang et
al. 2021)."""

import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.base import EncoderAttention, SparseAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.patterns import KeyPattern, pattern_attention
from longsum_jax.typing import Array

# Part -> the options that it reads.
PARTS: dict[str, tuple[str, ...]] = {
    "window": ("attention_window",),
    "adaptive_span": ("attention_window", "span_ramp", "span_penalty"),
    "global": ("num_global_tokens",),
    "stride": ("attention_stride",),
    "random": ("block_size", "num_random_blocks"),
}
_SPAN_START = 1.0  # logit of the share of the window that a head reaches at first


def parts_of(name: str) -> tuple[str, ...]:
    """The parts that a name joins by "+"; InputError lists the known ones."""
    parts = tuple(name.split("+"))
    for part in parts:
        if part not in PARTS:
            raise InputError(
                f'encoder_attention "{name}": there is no part "{part}"; {did_you_mean(part, PARTS)}'
            )
        if parts.count(part) > 1:
            raise InputError(
                f'encoder_attention "{name}" names "{part}" twice; name every part once'
            )
    if {"window", "adaptive_span"} <= set(parts):
        raise InputError(
            f'encoder_attention "{name}": an adaptive span is a window already; leave out "window"'
        )
    return parts


class CombinedContext(FullContext):
    """The mask, T5's bias by distance, and for each layer its window and the key of what it draws
    in evaluation."""

    def begin(self, x, mask, relative_bias, deterministic):
        x, context, _ = super().begin(x, mask, relative_bias, deterministic)
        layers, windows = self.stack.num_layers, self.stack.options.attention_window
        if len(windows) not in (1, layers):
            raise InputError(
                f"attention_window has {len(windows)} numbers for {layers} layers; give one, or one each"
            )
        radius = jnp.broadcast_to(jnp.asarray(windows) // 2, (layers,))
        return x, context, (radius, jnp.arange(layers))


class CombinedAttention(SparseAttention):
    """One softmax over the keys of all parts, each key once; see ``ops.attention.patterns``.

    Random blocks are drawn anew in every training step, and from a fixed seed for each layer
    otherwise.
    """

    options: EncoderAttentionOptions = EncoderAttentionOptions()

    def setup(self) -> None:
        super().setup()
        if "adaptive_span" in parts_of(self.options.encoder_attention):
            init = logical(nn.initializers.constant(_SPAN_START), "heads")
            self.span_logit = self.param("span_logit", init, (self.num_heads,))

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        mask, bias = context
        pattern = self._pattern(*layer_input, x.shape[1], deterministic)
        text = dict(
            zip(("q", "k", "v", "mask"), (self.q(x), *self.project_kv(x), mask), strict=True)
        )
        if not pattern.is_shardable:
            options = self.sparse_options(deterministic)
            return self.o(pattern_attention(**text, pattern=pattern, distance_bias=bias, **options))

        def attend(fields: dict[str, Array], **arrays: Any) -> Array:
            return pattern_attention(**arrays, pattern=pattern._replace(**fields))

        fields = {
            name: value for name, value in pattern._asdict().items() if isinstance(value, jax.Array)
        }
        shared = {"distance_bias": bias, "fields": fields}
        return self.o(
            self.over_text(attend, deterministic, text=text, shared=shared, block=pattern.query_block_size)
        )

    def _pattern(self, radius: Array, layer: Array, length: int, deterministic: bool) -> KeyPattern:
        o, parts = self.options, parts_of(self.options.encoder_attention)
        pattern = KeyPattern(block_size=o.block_size)
        if {"window", "adaptive_span"} & set(parts):
            widest = max(o.attention_window) // 2
            # One window for all layers is known while compiling.
            known = widest if len(set(o.attention_window)) == 1 else radius
            pattern = pattern._replace(radius=known, max_radius=widest)
        if "adaptive_span" in parts:
            span = jax.nn.sigmoid(self.span_logit.astype(jnp.float32)) * pattern.radius
            pattern = pattern._replace(span=span, ramp=o.span_ramp)
        if "global" in parts:
            pattern = pattern._replace(num_global=min(o.num_global_tokens, length))
        if "stride" in parts:
            pattern = pattern._replace(stride=o.attention_stride)
        if "random" in parts:
            pattern = pattern._replace(draws=self._draws(layer, length, deterministic))
        return pattern

    def _draws(self, layer: Array, length: int, deterministic: bool) -> Array:
        """[1, N, H, R]; those of a block do not depend on how many blocks there are."""
        key = (
            jax.random.fold_in(jax.random.key(0), layer)
            if deterministic
            else self.make_rng("dropout")
        )
        blocks = jnp.arange(-(-length // self.options.block_size))
        draw = lambda b: jax.random.uniform(  # noqa: E731
            jax.random.fold_in(key, b), (self.num_heads, self.options.num_random_blocks)
        )
        return jax.vmap(draw)(blocks)[None]


def span_penalty(options: EncoderAttentionOptions, params: Mapping[str, Any]) -> Array:
    """What adaptive spans add to the loss of every token: ``span_penalty`` times their mean length
    in tokens.

    Sukhbaatar et al. (2019, equation 7), over the heads of all layers; 0 for models without spans.

    Args:
        options: a model config.   params: the model's parameters.
    """
    layers = params.get("encoder", {}).get("layers", {}).get("self_attention", {})
    if not options.span_penalty or "span_logit" not in layers:
        return jnp.zeros(())
    logits = jnp.asarray(layers["span_logit"])  # [N, H]
    radius = jnp.broadcast_to(jnp.asarray(options.attention_window) // 2, (len(logits),))
    return options.span_penalty * (jax.nn.sigmoid(logits) * radius[:, None]).mean()


def _check(options: EncoderAttentionOptions) -> None:
    parts = parts_of(options.encoder_attention)
    if {"window", "adaptive_span"} & set(parts) and any(
        w < 2 or w % 2 for w in options.attention_window
    ):
        raise InputError(
            f"attention_window is {options.attention_window}; windows must be even and at least 2"
        )
    longest = getattr(options, "max_source_length", None)
    if (
        {"window", "adaptive_span"} & set(parts)
        and longest
        and max(options.attention_window) > 2 * longest
    ):
        raise InputError(
            f"attention_window is {options.attention_window}, but the model reads {longest} tokens, all of which a "
            f"window of {2 * longest} shows already; give at most that"
        )
    counts = {
        "global": "num_global_tokens",
        "stride": "attention_stride",
        "random": "num_random_blocks",
    }
    for key in [counts[part] for part in parts if part in counts] + ["block_size", "span_ramp"]:
        if getattr(options, key) < 1:
            raise InputError(f"{key} is {getattr(options, key)}; it must be at least 1")
    if options.span_penalty < 0:
        raise InputError(f"span_penalty is {options.span_penalty}; it must be 0 or more")


def _make_combined(stack: StackConfig) -> CombinedAttention:
    return CombinedAttention(**stack.attention_fields, options=stack.options)


@functools.cache
def combined(name: str) -> EncoderAttention:
    """The kind that joins the parts of ``name``."""
    options = tuple(dict.fromkeys(option for part in parts_of(name) for option in PARTS[part]))
    return EncoderAttention(_make_combined, CombinedContext, options, check=_check)
