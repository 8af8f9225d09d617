"""LOCOST: a state-space encoder and a T5 decoder (Le Bronnec et al., EACL 2024), as the published
code computes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from longsum_jax.errors import InputError
from longsum_jax.models import t5
from longsum_jax.models.weight_map import WeightMap, WeightRow, linears


@dataclass(frozen=True, kw_only=True)
class LocostConfig(t5.T5Config):
    """Keys as in the published config.json; defaults are the published base model: 234,724,224
    parameters.

    T5 with ``encoder_attention="s4d"``. Fields that begin with ``ssm_`` are choices where the
    paper's text departs from its published code (defaults: the code).
    """

    encoder_attention: str = "s4d"
    vocab_size: int = 32100
    d_model: int = 768
    d_ff: int = 2048
    num_layers: int = 12
    num_decoder_layers: int = 12
    num_heads: int = 12
    dropout_rate: float = 0.0
    feed_forward_proj: str = "gated-gelu"
    attention_init: Literal["torch", "t5"] = "torch"
    length_chunk: int = 16384

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model % self.num_heads:
            raise InputError(
                f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}; change either"
            )


PRESETS: dict[str, LocostConfig] = {
    "base": LocostConfig(),
    "base_hepos": LocostConfig(cross_attention="hepos", hepos_stride=4),
    "small": LocostConfig(
        d_model=256, d_state=128, d_kv=64, d_ff=704, num_layers=6, num_decoder_layers=6, num_heads=4
    ),
    "tiny": LocostConfig(
        vocab_size=512,
        d_model=64,
        d_state=32,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
    ),
}


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of LocostConfig in a config.json, published or ours; keys that no model reads are left
    out."""
    if raw.get("num_ssm_heads", 1) != 1:
        raise InputError(
            f"num_ssm_heads is {raw['num_ssm_heads']}; only 1, as in the published models, is supported"
        )
    return t5.read_config(raw, LocostConfig)


def write_config(config: LocostConfig) -> dict[str, Any]:
    """Entries of config.json that the published code reads and that are not fields here."""
    return t5.write_config(config) | {"num_ssm_heads": 1, "use_fast_fft_conv": False}


def encoder_rows(config: LocostConfig) -> list[WeightRow]:
    """The encoder's parameters beside their keys in the published state dict."""
    path, key, ssm = (
        "encoder/layers",
        "encoder.block.{i}.layer",
        "encoder.block.{i}.layer.0.ssm_layer",
    )
    projections = (
        ("q_proj", "k_proj", "output_linear") if config.gating else ("k_proj", "output_linear")
    )
    kernel = ("C", "B", "log_dt", "inv_A_real", "A_imag")
    return [
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_prenorm.weight"),
        WeightRow(f"{path}/self_attention/D", f"{ssm}.D"),
        *linears(f"{path}/self_attention", ssm, *projections, bias=True),
        *(WeightRow(f"{path}/self_attention/{name}", f"{ssm}.kernel.{name}") for name in kernel),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.1.layer_norm.weight"),
        *t5.feed_forward_rows(config, f"{path}/feed_forward", f"{key}.1"),
        WeightRow("encoder/final_norm/scale", "encoder.final_layer_norm.weight"),
    ]


def weight_map(config: LocostConfig) -> WeightMap:
    """Every parameter beside its key in the published state dict; ``{i}`` counts layers."""
    rows, tied = t5.embedding_rows(config)
    return WeightMap([*rows, *encoder_rows(config), *t5.decoder_rows(config)], tied=tied)
