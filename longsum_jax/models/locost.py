"""LOCOST: a state-space encoder and a T5 decoder (Le Bronnec et al., EACL 2024).

Reproduces the outputs of the published code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longsum_jax.errors import InputError
from longsum_jax.models import t5
from longsum_jax.models.config import check_divisible
from longsum_jax.models.family import Family
from longsum_jax.models.weight_map import WeightMap, WeightRow, linears


@dataclass(frozen=True, kw_only=True)
class LocostConfig(t5.T5Config):
    """The config of LOCOST: T5 with ``encoder_attention="s4d"``.

    Keys as in the published config.json; the defaults are the published base
    model of 234,724,224 parameters. ``T5Config`` and its bases describe the
    fields. The inherited field ``attention`` holds options of ``layers.S4D``,
    most of them with the prefix ``ssm_``; their defaults follow the published
    code, which differs from the paper in some of them.

    Raises:
        InputError: a value out of range, or a ``d_model`` that ``num_heads``
            does not divide.
    """

    encoder_attention: str = "s4d"
    vocab_size: int = 32100
    d_model: int = 768
    d_ff: int = 2048
    num_layers: int = 12
    num_heads: int = 12
    dropout_rate: float = 0.0
    feed_forward_proj: str = "gated-gelu"
    attention_init: Literal["torch", "t5"] = "torch"
    length_chunk: int = 16384

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divisible(self, "d_model", "num_heads")


PRESETS: dict[str, LocostConfig] = {
    "base": LocostConfig(),
    "base_hepos": LocostConfig(cross_attention="hepos"),
    "small": LocostConfig.of(
        d_model=256, d_state=128, d_kv=64, d_ff=704, num_layers=6, num_heads=4
    ),
    "tiny": LocostConfig.of(
        vocab_size=512,
        d_model=64,
        d_state=32,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
    ),
}


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``LocostConfig`` in a config.json."""
    if raw.get("num_ssm_heads", 1) != 1:
        raise InputError(
            f"num_ssm_heads is {raw['num_ssm_heads']}; only 1, as in the published models, is "
            "supported"
        )
    return t5.read_config(raw, LocostConfig)


def write_config(config: LocostConfig) -> dict[str, Any]:
    """Returns the config.json entries that the published code reads and that are not fields."""
    return t5.write_config(config) | {
        "num_ssm_heads": 1,
        "use_fast_fft_conv": False,
    }


def encoder_rows(config: LocostConfig) -> list[WeightRow]:
    """Returns the rows of the encoder's parameters."""
    path = "encoder/layers"
    key = "encoder.block.{i}.layer"
    ssm = f"{key}.0.ssm_layer"
    projections: tuple[str, ...] = ("k_proj", "output_linear")
    if config.option("gating"):
        projections = ("q_proj", *projections)
    kernel = ("C", "B", "log_dt", "inv_A_real", "A_imag")
    return [
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_prenorm.weight"),
        WeightRow(f"{path}/self_attention/D", f"{ssm}.D"),
        *linears(f"{path}/self_attention", ssm, *projections, bias=True),
        *(
            WeightRow(f"{path}/self_attention/{name}", f"{ssm}.kernel.{name}")
            for name in kernel
        ),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.1.layer_norm.weight"),
        *t5.feed_forward_rows(config, f"{path}/feed_forward", f"{key}.1"),
        WeightRow(
            "encoder/final_norm/scale", "encoder.final_layer_norm.weight"
        ),
    ]


def weight_map(config: LocostConfig) -> WeightMap:
    """Returns the key of every parameter in the published state dict."""
    rows, tied, copies = t5.t5_embedding_rows(config)
    rows = [*rows, *encoder_rows(config), *t5.decoder_rows(config)]
    return WeightMap(rows, tied=tied, copies=copies)


FAMILY = Family(
    name="locost",
    architecture="LOCOSTForConditionalGeneration",
    config_class=LocostConfig,
    presets=PRESETS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    attentions=("s4d",),
    # The published evaluation generates greedily up to 512 tokens, without
    # counting the start token.
    generation={"max_length": 513},
    **t5.SHARED,
)
