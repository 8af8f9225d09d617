"""Replacement of a trained decoder's cross-attention with the same parameters (Hepos)."""

from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.models.config import EncoderDecoderConfig
from longsum_jax.models.family import Family


def with_cross_attention(
    family: Family,
    config: EncoderDecoderConfig,
    cross_attention: str,
    **options: Any,
) -> EncoderDecoderConfig:
    """Returns the config of a model with a different cross-attention in its decoder.

    The parameters are unchanged.

    Args:
        cross_attention: name in ``layers.attention.registry.CROSS_ATTENTIONS``,
            of one without additional parameters.
        **options: fields of the cross-attention's options, such as
            ``hepos_stride``.

    Raises:
        InputError: a model without a decoder, an unknown cross-attention or one
            that needs other parameters, or an option out of range.
    """
    if not family.is_encoder_decoder:
        raise InputError(
            f"cross_attention={cross_attention}: {family.name} has no decoder; leave it out"
        )
    changed = config.replace(cross_attention=cross_attention, **options)
    if family.parameter_shapes(changed) != family.parameter_shapes(config):
        raise InputError(
            f"cross_attention={cross_attention}: it needs other parameters than this model has; "
            f"train one with --config.model.cross_attention={cross_attention}"
        )
    return changed
