"""mT5 (Xue et al. 2021) and umT5 (Chung et al. 2023): multilingual T5 1.1.

Both reproduce transformers' outputs for their published checkpoints. They
differ from T5 1.1 only in sizes; umT5 also has a relative bias in every layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from longsum_jax.errors import InputError
from longsum_jax.models import t5
from longsum_jax.models.family import Family
from longsum_jax.schema import Layers, Positive, Size


@dataclass(frozen=True, kw_only=True)
class MT5Config(t5.T5Config):
    """The config of mT5; keys as in config.json, defaults of mT5 small."""

    absent: ClassVar[Mapping[str, Any]] = {"tie_word_embeddings": True}

    vocab_size: Positive = 250112
    d_ff: Size = 1024
    num_layers: Layers = 8
    num_heads: Size = 6
    feed_forward_proj: str = "gated-gelu"
    tie_word_embeddings: bool = False
    scale_decoder_outputs: bool | None = False


@dataclass(frozen=True, kw_only=True)
class UMT5Config(MT5Config):
    """The config of umT5; keys as in config.json, defaults of umT5 small.

    ``scale_decoder_outputs`` is true, as in transformers 5, whatever the flag
    of tied weights.
    """

    bias_per_layer: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, Any]] = {
        **MT5Config.absent,
        "vocab_size": 250112,
    }

    vocab_size: Positive = 256384
    scale_decoder_outputs: bool | None = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.encoder_attention != "full":
            raise InputError(
                f'encoder_attention is "{self.encoder_attention}", but umT5 has a relative bias in '
                'every layer, which only "full" supports; start from mT5 for others'
            )


def presets(config_class: type[MT5Config]) -> dict[str, MT5Config]:
    """Returns the published small and base models, and a tiny one."""
    return {
        "base": config_class(
            d_model=768, d_ff=2048, num_layers=12, num_heads=12
        ),
        "small": config_class(),
        "tiny": config_class(**t5.TINY),
    }


def read_config(
    raw: Mapping[str, Any], config_class: type[MT5Config]
) -> dict[str, Any]:
    """Returns the fields of ``config_class`` in a config.json."""
    default = {"scale_decoder_outputs": config_class.scale_decoder_outputs}
    return t5.read_config({**default, **raw}, config_class)


def _family(
    name: str, architecture: str, config_class: type[MT5Config]
) -> Family:
    return Family(
        name=name,
        architecture=f"{architecture}ForConditionalGeneration",
        config_class=config_class,
        presets=presets(config_class),
        read_config=partial(read_config, config_class=config_class),
        write_config=t5.write_config,
        published_weight_map=t5.weight_map,
        **t5.SHARED,
    )


MT5 = _family("mt5", "MT5", MT5Config)
UMT5 = _family("umt5", "UMT5", UMT5Config)
