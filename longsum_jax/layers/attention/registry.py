"""What an encoder can look with: every encoder attention by name, each a part that fits every
encoder.

What devices exchange where a mesh cuts texts (preset "fsdp+sequence"; ``ops.sequence_sharding``,
``ops.ssm.convolution``):

    local, transient_global, longformer, lsg, block_staggered,    neighbouring blocks, and sums of
    few rows window, adaptive_span, global, and these joined by "+"
    s4d                                                           length for channels and back
    full, bigbird, linformer, stride, random, lsh, sinkhorn       what the partitioner chooses: it
    may gather all keys
"""

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.base import EncoderAttention
from longsum_jax.layers.attention.bigbird import BIGBIRD
from longsum_jax.layers.attention.full import FULL, S4D_LAYER
from longsum_jax.layers.attention.hybrid import hybrid
from longsum_jax.layers.attention.linformer import LINFORMER
from longsum_jax.layers.attention.local import LOCAL, TRANSIENT_GLOBAL
from longsum_jax.layers.attention.longformer import LONGFORMER
from longsum_jax.layers.attention.lsg import LSG
from longsum_jax.layers.attention.lsh import LSH
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.attention.patterns import PARTS, combined
from longsum_jax.layers.attention.sinkhorn import SINKHORN
from longsum_jax.layers.attention.staggered import BLOCK_STAGGERED
from longsum_jax.layers.layer_groups import is_hybrid, kinds_of

ENCODER_ATTENTIONS: dict[str, EncoderAttention] = {
    "full": FULL,
    "s4d": S4D_LAYER,
    "local": LOCAL,
    "transient_global": TRANSIENT_GLOBAL,
    "block_staggered": BLOCK_STAGGERED,
    "longformer": LONGFORMER,
    "lsg": LSG,
    "bigbird": BIGBIRD,
    **{part: combined(part) for part in PARTS},
    "linformer": LINFORMER,
    "lsh": LSH,
    "sinkhorn": SINKHORN,
}


def get_encoder_attention(options: EncoderAttentionOptions) -> EncoderAttention:
    """The kind that ``options`` name; InputError lists the known ones, or says which options do not
    fit together."""
    name = options.encoder_attention
    kind = (
        hybrid({part: _kind(part) for part, _ in kinds_of(name)})
        if is_hybrid(name)
        else _kind(name)
    )
    kind.check(options)
    return kind


def _kind(name: str) -> EncoderAttention:
    """The kind of equal layers."""
    if "+" in name:
        return combined(name)
    if name not in ENCODER_ATTENTIONS:
        raise InputError(
            f'encoder_attention "{name}" is unknown; {did_you_mean(name, ENCODER_ATTENTIONS)}'
        )
    return ENCODER_ATTENTIONS[name]
