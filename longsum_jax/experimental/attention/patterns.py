"""Patterns of keys, separate or joined by "+": window, adaptive_span, global, stride,
random (Huang et al. 2021).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError, check_whole, did_you_mean
from longsum_jax.experimental.ops.patterns import KeyPattern, pattern_attention
from longsum_jax.layers.attention.base import (
    EncoderSelfAttention,
    layer_radii,
    step_biases,
)
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    AdaptiveSpanOptions,
    EncoderAttentionOptions,
    GlobalTokenOptions,
    Options,
    PartOptions,
    RandomBlockOptions,
    StrideOptions,
    WindowOptions,
    check_windows,
    read_options,
)
from longsum_jax.layers.layer_groups import layer_params, num_layers
from longsum_jax.layers.partitioning import logical
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray

# Pattern name to the class of its options.
PATTERNS: dict[str, type[EncoderAttentionOptions]] = {
    "window": WindowOptions,
    "adaptive_span": AdaptiveSpanOptions,
    "global": GlobalTokenOptions,
    "stride": StrideOptions,
    "random": RandomBlockOptions,
}
# Dimensions of heads in fields of a ``KeyPattern``.
_HEADS_OF_FIELDS: dict[str, tuple[Literal["heads"] | None, ...]] = {
    "span": ("heads",),
    "draws": (None, None, "heads"),
}
SPAN_INIT = 1.0  # initial span of a head: logit of its fraction of the window


def pattern_names(name: str) -> tuple[str, ...]:
    """Splits "window+global" into the names of its patterns.

    Raises:
        InputError: an unknown or repeated pattern, or a window together with an
            adaptive span.
    """
    names = tuple(name.split("+"))
    for pattern in names:
        if pattern not in PATTERNS:
            raise InputError(
                f'encoder_attention "{name}": unknown part "{pattern}"; '
                f"{did_you_mean(pattern, PATTERNS)}"
            )
        if names.count(pattern) > 1:
            raise InputError(
                f'encoder_attention "{name}" names "{pattern}" twice; name every part once'
            )
    if {"window", "adaptive_span"} <= set(names):
        raise InputError(
            f'encoder_attention "{name}": an adaptive span is a window already; leave out "window"'
        )
    return names


def pattern_options(
    options: EncoderAttentionOptions,
) -> Iterator[EncoderAttentionOptions]:
    """Yields the options of each pattern of an attention."""
    if not isinstance(options, PartOptions):
        yield options
        return
    for _, part in options.parts:
        yield from pattern_options(part)


def find_options(
    options: EncoderAttentionOptions, kind: type[Options]
) -> Options | None:
    """Returns the options of this kind among joined patterns, None if none has them."""
    for pattern in pattern_options(options):
        if isinstance(pattern, kind):
            return pattern
    return None


class PatternContext(FullContext):
    """The mask and T5's bias for each distance, also for kernels; for each layer the
    radius of its window, and the index that seeds its random blocks in evaluation.
    """

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        x, context, _ = super().prepare(x, mask, relative_bias, deterministic)
        num_layers = self.stack.num_layers
        window = find_options(self.stack.attention, WindowOptions)
        windows = (0,) if window is None else window.attention_window
        return (
            x,
            (*context, step_biases(relative_bias)),
            (layer_radii(windows, num_layers), jnp.arange(num_layers)),
        )


class PatternAttention(EncoderSelfAttention):
    """One softmax over the keys of all patterns, each counted once (``experimental.ops.patterns``).

    Random blocks are drawn again in every training step, and otherwise from a
    fixed seed for each layer.
    """

    context_class = PatternContext

    options: EncoderAttentionOptions = WindowOptions()

    @classmethod
    def read_options(
        cls, name: str, values: Mapping[str, Any], where: str
    ) -> EncoderAttentionOptions:
        parts = [
            (pattern, read_options(PATTERNS[pattern], values, where))
            for pattern in pattern_names(name)
        ]
        if len(parts) == 1:
            return parts[0][1]
        return PartOptions(parts=tuple(parts))

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        for pattern in pattern_options(options):
            if isinstance(pattern, WindowOptions):
                _check_windows(pattern.attention_window, max_length)
            for name in ("num_global_tokens", "num_random_blocks"):
                if hasattr(pattern, name):
                    check_whole(name, getattr(pattern, name), 1)

    @classmethod
    def penalty(
        cls, options: EncoderAttentionOptions, params: Mapping[str, Any]
    ) -> Float[Array, ""]:
        """Returns ``span_penalty`` times the mean length of adaptive spans in tokens.

        The mean is over the heads of all layers with adaptive spans (Sukhbaatar
        et al. 2019, equation 7); 0 without such layers.
        """
        spans = find_options(options, AdaptiveSpanOptions)
        if spans is None or not spans.span_penalty:
            return jnp.zeros(())
        encoder = params.get("encoder", {})
        windows = spans.attention_window
        logits, radii = [], []
        # Layers of a hybrid may have other attentions, without spans.
        for layer in range(num_layers(encoder)):
            attention = layer_params(encoder, layer).get("self_attention", {})
            if "span_logit" in attention:
                logits.append(attention["span_logit"])
                # one window for all layers, or one per layer
                radii.append(windows[layer if len(windows) > 1 else 0] // 2)
        if not logits:
            return jnp.zeros(())
        share = jax.nn.sigmoid(jnp.stack(logits))  # [layers, heads]
        radius = jnp.asarray(radii)
        return spans.span_penalty * (share * radius[:, None]).mean()

    def setup(self) -> None:
        super().setup()
        if find_options(self.options, AdaptiveSpanOptions) is not None:
            init = logical(nn.initializers.constant(SPAN_INIT), "heads")
            self.span_logit = self.param("span_logit", init, (self.num_heads,))

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        mask, bias, steps = context
        radius, layer = layer_input
        pattern = self._pattern(radius, layer, x.shape[1], deterministic)
        q = self.q(x)
        k, v = self.project_kv(x)
        text = {"q": q, "k": k, "v": v}
        # Arrays are passed as arguments, so that ``shard_map`` gives them to
        # every device.
        fields = {}
        for name, value in pattern._asdict().items():
            if isinstance(value, jax.Array):
                fields[name] = value

        fused = None
        if pattern.is_fusable:
            fused = self.fused_rows(
                *mask.shape,
                has_bias=bool(steps),
                deterministic=deterministic,
                margin=2 * pattern.radius_bound,
            )
        else:
            self.without_kernel("more than one window for all layers")

        def attend(
            q: Array, k: Array, v: Array, mask: Array, **arrays: Any
        ) -> Array:
            full_pattern = pattern._replace(
                **{name: arrays.pop(name) for name in fields}
            )
            return pattern_attention(
                q, k, v, mask, full_pattern, fused=fused, **arrays
            )

        if pattern.is_shardable:
            y = self.attend_sharded(
                attend,
                deterministic,
                text=text | {"mask": mask},
                shared=fields | {"distance_bias": bias, "steps": steps},
                block=pattern.query_block_size,
                has_kernels=fused is not None,
            )
            return self.o(y)

        # Strides and random blocks read distant keys: devices exchange heads
        # instead of a halo.
        heads = {"distance_bias": ByHead(bias)}
        for name, value in fields.items():
            heads[name] = ByHead(value, _HEADS_OF_FIELDS.get(name, ()))
        y = self.attend_by_heads(
            attend, deterministic, text=text, rows={"mask": mask}, heads=heads
        )
        return self.o(y)

    def _pattern(
        self, radius: Array, layer: AnyArray, length: int, deterministic: bool
    ) -> KeyPattern:
        pattern = KeyPattern()
        for options in pattern_options(self.options):
            if isinstance(options, WindowOptions):
                max_radius = max(options.attention_window) // 2
                # A single window for all layers is static.
                is_static = len(set(options.attention_window)) == 1
                reach = max_radius if is_static else radius
                pattern = pattern._replace(radius=reach, max_radius=max_radius)
                if isinstance(options, AdaptiveSpanOptions):
                    # The span is learned as a fraction of the window.
                    share = jax.nn.sigmoid(self.span_logit.astype(jnp.float32))
                    pattern = pattern._replace(
                        span=share * reach, ramp=options.span_ramp
                    )
            elif isinstance(options, GlobalTokenOptions):
                pattern = pattern._replace(
                    num_global=min(options.num_global_tokens, length)
                )
            elif isinstance(options, StrideOptions):
                pattern = pattern._replace(stride=options.attention_stride)
            elif isinstance(options, RandomBlockOptions):
                pattern = pattern._replace(
                    block_size=options.block_size,
                    draws=self._draws(options, layer, length, deterministic),
                )
        return pattern

    def _draws(
        self,
        options: RandomBlockOptions,
        layer: AnyArray,
        length: int,
        deterministic: bool,
    ) -> Float[Array, "1 num_blocks heads num_random_blocks"]:
        """Draws random numbers for each block, independently of the number of blocks."""
        key = self.random_key(layer, deterministic)
        shape = (self.num_heads, options.num_random_blocks)

        # Every block has a separate key.
        def draw(block: Array) -> Array:
            return jax.random.uniform(
                jax.random.fold_in(key, block), shape, jnp.float32
            )

        # Longer inputs extend the draws, and do not change the draws of the
        # first blocks.
        num_blocks = -(-length // options.block_size)
        return jax.vmap(draw)(jnp.arange(num_blocks))[None]


def _check_windows(windows: tuple[int, ...], max_length: int | None) -> None:
    check_windows(windows)
    if max_length and max(windows) > 2 * max_length:
        raise InputError(
            f"attention_window is {windows}, but the model reads {max_length} tokens, all of which "
            f"a window of {2 * max_length} shows already; give at most that"
        )
