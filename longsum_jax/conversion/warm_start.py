"""Encoder-decoders made from two pre-trained encoders (Rothe et al. 2020)."""

import flax.linen as nn
import flax.traverse_util
import jax

from longsum_jax.errors import InputError
from longsum_jax.models.bert2bert import (
    DECODERS,
    ENCODERS,
    FAMILY,
    Bert2BertConfig,
    make_config,
    stack_path,
)
from longsum_jax.models.bert_config import VOCABULARY_HEADS, BertConfig
from longsum_jax.models.family import Family
from longsum_jax.typing import Params

Parts = tuple[Family, BertConfig, Params]


def warm_start(
    encoder: Parts,
    decoder: Parts,
    *,
    start_id: int | None,
    end_id: int | None,
    seed: int = 0,
) -> tuple[Bert2BertConfig, Params]:
    """Returns an encoder-decoder with the parameters of two encoders.

    The decoder also keeps its vocabulary head. Cross-attentions, the map
    between stacks of different sizes, and a vocabulary head that the decoder
    lacks are initialized randomly, as by ``from_encoder_decoder_pretrained`` of
    transformers. Fine-tune the model before you use it.

    Args:
        encoder: family, config and parameters of the encoder, with any encoder
            attention.
        decoder: family, config and parameters of the encoder that becomes the
            decoder.
        start_id: id of the token that begins a summary; None for the encoder's
            bos_token_id.
        end_id: id of the token that ends a summary; None for the encoder's
            eos_token_id.
        seed: seed of the random parameters.

    Raises:
        InputError: a family that cannot be the encoder or the decoder,
            different vocabularies, a decoder without full attention, or a
            missing id.
    """
    for side, (family, _, _), families in (
        ("encoder", encoder, ENCODERS),
        ("decoder", decoder, DECODERS),
    ):
        if family.name not in families:
            raise InputError(
                f"{family.name} cannot become the {side}; give one of {', '.join(families)}"
            )
    attention = decoder[1].encoder_attention
    if attention not in ("full", "lsg"):
        raise InputError(
            f"the decoder has {attention} attention, but decoders need full attention; give "
            "another encoder"
        )
    if start_id is None:
        start_id = encoder[1].bos_token_id
    if end_id is None:
        end_id = encoder[1].eos_token_id
    if start_id is None or end_id is None:
        raise InputError(
            "the encoder defines no tokens that begin and end a summary; load it with "
            "tokenizer=PATH, or give start_id and end_id"
        )
    config = make_config(
        {
            "encoder": (encoder[0].name, encoder[1]),
            "decoder": (decoder[0].name, decoder[1]),
        },
        pad_token_id=encoder[1].pad_token_id,
        decoder_start_token_id=start_id,
        eos_token_id=end_id,
        encoder_pooler=encoder[1].head == "pooler",
    )
    drawn = nn.meta.unbox(FAMILY.init_params(config)(jax.random.key(seed)))
    flat = flax.traverse_util.flatten_dict(drawn, sep="/")
    for side, (_, source, params) in (
        ("encoder", encoder),
        ("decoder", decoder),
    ):
        transferred = ("pooler",) if side == "encoder" else VOCABULARY_HEADS
        for path, value in flax.traverse_util.flatten_dict(
            params, sep="/"
        ).items():
            target = stack_path(side, path)
            is_other_head = (
                path.startswith("head/") and source.head not in transferred
            )
            # A decoder with full attention has no global tokens of LSG.
            if target in flat and not is_other_head:
                flat[target] = value
    return config, flax.traverse_util.unflatten_dict(flat, sep="/")
