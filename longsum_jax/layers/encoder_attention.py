"""What an encoder can look with: every encoder attention by name, each a part that fits every encoder."""

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.encoder_attentions.base import EncoderAttention
from longsum_jax.layers.encoder_attentions.bigbird import BIGBIRD
from longsum_jax.layers.encoder_attentions.combined import PARTS, combined
from longsum_jax.layers.encoder_attentions.full import FULL, S4D_LAYER
from longsum_jax.layers.encoder_attentions.linformer import LINFORMER
from longsum_jax.layers.encoder_attentions.local import LOCAL, TRANSIENT_GLOBAL
from longsum_jax.layers.encoder_attentions.longformer import LONGFORMER
from longsum_jax.layers.encoder_attentions.lsg import LSG
from longsum_jax.layers.encoder_attentions.lsh import LSH
from longsum_jax.layers.encoder_attentions.sinkhorn import SINKHORN
from longsum_jax.layers.encoder_attentions.staggered import BLOCK_STAGGERED
from longsum_jax.layers.stack import EncoderAttentionOptions

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
    """The kind that ``options`` name; InputError lists the known ones, or says which options do not fit together."""
    name = options.encoder_attention
    if name not in ENCODER_ATTENTIONS and "+" not in name:
        raise InputError(f'encoder_attention "{name}" is unknown; {did_you_mean(name, ENCODER_ATTENTIONS)}')
    kind = combined(name) if "+" in name else ENCODER_ATTENTIONS[name]
    kind.check(options)
    return kind
