"""Every encoder attention and every cross-attention by name.

Any encoder attention works in any encoder, and any cross-attention in any
decoder.

Communication between devices if a mesh shards the sequence (preset
"fsdp+sequence"; ``ops.sequence_sharding``, ``ops.ssm.convolution``):

    local, transient_global, longformer, lsg, block_staggered,     neighboring blocks, and sums
    window, adaptive_span, global, and these joined by "+"         over a few rows
    linear, efficient, performer                                   sums of [features, head_dim]
    s4d                                                            all-to-all of length and channels
    full, disentangled, bigbird, lsh, sinkhorn,                    all-to-all of length and heads
    stride, random, and these joined by "+"                        (if devices divide the heads)
    linformer                                                      sums of the means
"""

from typing import TYPE_CHECKING

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.layer_groups import is_hybrid, parse_hybrid
from longsum_jax.lazy_classes import LazyClasses

if TYPE_CHECKING:
    from longsum_jax.layers.attention.base import EncoderAttention
    from longsum_jax.layers.attention.cross import CrossAttention

_PACKAGE = "longsum_jax.layers.attention"
_EXPERIMENTAL = "longsum_jax.experimental.attention"

ENCODER_ATTENTIONS: LazyClasses["type[EncoderAttention]"] = LazyClasses(
    {
        "full": f"{_PACKAGE}.full:FullAttention",
        "disentangled": f"{_PACKAGE}.disentangled:DisentangledAttention",
        "s4d": f"{_PACKAGE}.state_space:StateSpaceAttention",
        "local": f"{_PACKAGE}.local:LocalAttention",
        "transient_global": f"{_PACKAGE}.local:TransientGlobalAttention",
        "block_staggered": f"{_PACKAGE}.staggered:StaggeredAttention",
        "longformer": f"{_PACKAGE}.longformer:LongformerAttention",
        "lsg": f"{_PACKAGE}.lsg:LsgAttention",
        "bigbird": f"{_PACKAGE}.bigbird:BigBirdAttention",
        "window": f"{_EXPERIMENTAL}.patterns:PatternAttention",
        "adaptive_span": f"{_EXPERIMENTAL}.patterns:PatternAttention",
        "global": f"{_EXPERIMENTAL}.patterns:PatternAttention",
        "stride": f"{_EXPERIMENTAL}.patterns:PatternAttention",
        "random": f"{_EXPERIMENTAL}.patterns:PatternAttention",
        "linformer": f"{_EXPERIMENTAL}.linformer:LinformerAttention",
        "linear": f"{_EXPERIMENTAL}.linear:LinearAttention",
        "efficient": f"{_EXPERIMENTAL}.linear:EfficientAttention",
        "performer": f"{_EXPERIMENTAL}.performer:PerformerAttention",
        "lsh": f"{_EXPERIMENTAL}.lsh:LshAttention",
        "sinkhorn": f"{_EXPERIMENTAL}.sinkhorn:SinkhornAttention",
    }
)

CROSS_ATTENTIONS: LazyClasses["type[CrossAttention]"] = LazyClasses(
    {
        "full": f"{_PACKAGE}.cross:SourceAttention",
        "hepos": f"{_PACKAGE}.cross:HeposAttention",
        "linformer": f"{_EXPERIMENTAL}.linformer:LinformerCrossAttention",
        "nearest": f"{_EXPERIMENTAL}.nearest:NearestAttention",
    }
)


def get_encoder_attention(name: str) -> "type[EncoderAttention]":
    """Returns the module class of an encoder attention.

    Args:
        name: name in ``ENCODER_ATTENTIONS``, patterns joined by "+", or the
            attention of each layer ("window*9,full*3").

    Raises:
        InputError: an unknown name.
    """
    if not is_hybrid(name):
        return _uniform_attention(name)
    from longsum_jax.layers.attention.hybrid import HybridAttention

    names = [layer_name for layer_name, _ in parse_hybrid(name)]
    return HybridAttention.of(
        {name: _uniform_attention(name) for name in names}
    )


def get_cross_attention(name: str) -> "type[CrossAttention]":
    """Returns the module class of a cross-attention.

    Args:
        name: name in ``CROSS_ATTENTIONS``.

    Raises:
        InputError: an unknown name.
    """
    if name not in CROSS_ATTENTIONS:
        raise InputError(
            f'cross_attention "{name}" is unknown; {did_you_mean(name, CROSS_ATTENTIONS)}'
        )
    return CROSS_ATTENTIONS[name]


def _uniform_attention(name: str) -> "type[EncoderAttention]":
    """Returns the module class for a stack whose layers all have the attention ``name``."""
    if "+" in name:  # joined patterns
        return ENCODER_ATTENTIONS["window"]
    if name not in ENCODER_ATTENTIONS:
        raise InputError(
            f'encoder_attention "{name}" is unknown; {did_you_mean(name, ENCODER_ATTENTIONS)}'
        )
    return ENCODER_ATTENTIONS[name]
