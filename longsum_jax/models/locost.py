"""LOCOST: a state-space encoder and a T5 decoder (Le Bronnec et al., EACL 2024), as the published code computes it.

Read from top to bottom: config, encoder, model, presets, names in published checkpoints.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.common import (
    FEED_FORWARD_KINDS,
    FeedForward,
    RMSNorm,
    constrain,
    logical,
    map_over_length,
    normal,
)
from longsum_jax.layers.s4d import S4D, StepInit
from longsum_jax.models.naming import NameRow
from longsum_jax.models.t5 import Decoder, DecoderCache
from longsum_jax.ops.ssm import Discretization
from longsum_jax.typing import Array


@dataclass(frozen=True)
class LocostConfig:
    """Keys as in the published config.json; defaults are the published base model.

    The second block holds choices where the paper's text departs from its published code (defaults: the code), the
    third how to compute, which no checkpoint depends on.
    """

    vocab_size: int = 32100
    d_model: int = 768
    d_state: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 12
    num_decoder_layers: int = 12
    num_heads: int = 12
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.0
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "gated-gelu"
    bidirectional: bool = True
    gating: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0

    ssm_shared_dynamics: bool = True
    ssm_dt_min: float = 1e-3
    ssm_dt_max: float = 1e-1
    ssm_dt_init: StepInit = "log_uniform"
    ssm_discretization: Discretization = "zoh"
    attention_init: Literal["torch", "t5"] = "torch"

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    length_chunk: int = 16384

    def __post_init__(self) -> None:
        positive = ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads")
        for key in positive:
            if getattr(self, key) < 1:
                raise InputError(f"{key} is {getattr(self, key)}; it must be at least 1")
        if self.d_state < 2 or self.d_state % 2:
            raise InputError(f"d_state is {self.d_state}; it must be even, because modes stand for conjugate pairs")
        if self.d_model % self.num_heads:
            raise InputError(f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}; change either")
        if self.feed_forward_proj not in FEED_FORWARD_KINDS:
            hint = did_you_mean(self.feed_forward_proj, FEED_FORWARD_KINDS)
            raise InputError(f'feed_forward_proj "{self.feed_forward_proj}" is unknown; {hint}')
        if not 0 <= self.dropout_rate < 1:
            raise InputError(f"dropout_rate is {self.dropout_rate}; it must be at least 0 and below 1")

    @property
    def compute_dtype(self) -> Any:
        return jnp.dtype(self.dtype)


# Fields of LocostConfig that say how to compute; they are not written to checkpoints.
RUNTIME_FIELDS = ("dtype", "remat", "length_chunk")


class EncoderLayer(nn.Module):
    """Pre-norm state-space layer and feed-forward, each with a residual."""

    config: LocostConfig

    def setup(self) -> None:
        c = self.config
        self.ssm_norm = RMSNorm(c.layer_norm_epsilon, c.compute_dtype)
        self.ssm = S4D(
            c.d_model,
            c.d_state,
            bidirectional=c.bidirectional,
            gating=c.gating,
            shared_dynamics=c.ssm_shared_dynamics,
            dt_min=c.ssm_dt_min,
            dt_max=c.ssm_dt_max,
            dt_init=c.ssm_dt_init,
            discretization=c.ssm_discretization,
            length_chunk=c.length_chunk,
            dtype=c.compute_dtype,
        )
        self.ff_norm = RMSNorm(c.layer_norm_epsilon, c.compute_dtype)
        self.feed_forward = FeedForward(c.d_ff, c.feed_forward_proj, c.dropout_rate, c.compute_dtype)
        self.dropout = nn.Dropout(c.dropout_rate)

    def __call__(self, x: Array, mask: Array, deterministic: bool):
        """x [B, L, D], bool mask [B, L] -> [B, L, D] (and None, for the scan over layers)."""
        x = x + self.dropout(self.ssm(self.ssm_norm(x), mask), deterministic=deterministic)

        def feed_forward(layer: EncoderLayer, x: Array) -> Array:
            y = layer.feed_forward(layer.ff_norm(x), deterministic)
            return x + layer.dropout(y, deterministic=deterministic)

        x = map_over_length(self, feed_forward, self.config.length_chunk, x)
        return constrain(x, "batch", "length", "act_embed"), None


class Encoder(nn.Module):
    """Scanned layers and a final norm; no positions, since the state-space kernels carry order."""

    config: LocostConfig

    @nn.compact
    def __call__(self, x: Array, mask: Array, deterministic: bool = True) -> Array:
        """Embeddings [B, L, D], bool mask [B, L] -> states [B, L, D]."""
        c = self.config
        layer = nn.remat(EncoderLayer, static_argnums=(3,), prevent_cse=False) if c.remat else EncoderLayer
        layers = nn.scan(
            layer,
            variable_axes={"params": 0},
            split_rngs={"params": True, "dropout": True},
            in_axes=(nn.broadcast, nn.broadcast),
            length=c.num_layers,
            metadata_params={nn.PARTITION_NAME: "layers"},
        )
        dropout = nn.Dropout(c.dropout_rate)
        x = dropout(x, deterministic=deterministic)
        x, _ = layers(c, name="layers")(x, mask, deterministic)
        x = RMSNorm(c.layer_norm_epsilon, c.compute_dtype, name="final_norm")(x)
        return dropout(x, deterministic=deterministic)


class Locost(nn.Module):
    """Encoder-decoder over token ids.

    Methods take ids int [B, L] or [B, T] and ``attention_mask`` [B, L], nonzero on real tokens.
    """

    config: LocostConfig

    def setup(self) -> None:
        c = self.config
        self.shared = self.param("shared", logical(normal(1.0), "vocab", "embed"), (c.vocab_size, c.d_model))
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)
        if not c.tie_word_embeddings:
            head = logical(normal(c.d_model**-0.5), "vocab", "embed")
            self.lm_head = self.param("lm_head", head, (c.vocab_size, c.d_model))

    def __call__(
        self, input_ids: Array, attention_mask: Array, decoder_input_ids: Array, deterministic: bool = True
    ) -> Array:
        """Teacher-forced logits, float32 [B, T, V]."""
        states = self.encode(input_ids, attention_mask, deterministic)
        return self.decode(decoder_input_ids, states, attention_mask, deterministic)

    def encode(self, input_ids: Array, attention_mask: Array, deterministic: bool = True) -> Array:
        """Encoder states [B, L, D]; those of real tokens do not depend on padding."""
        x = constrain(self._embed(input_ids), "batch", "length", "act_embed")
        return self.encoder(x, attention_mask.astype(bool), deterministic)

    def decode(
        self, decoder_input_ids: Array, encoder_states: Array, attention_mask: Array, deterministic: bool = True
    ) -> Array:
        """Logits float32 [B, T, V] of every next token."""
        x = self._embed(decoder_input_ids)
        return self._logits(self.decoder(x, encoder_states, attention_mask.astype(bool), deterministic))

    def init_cache(self, encoder_states: Array, attention_mask: Array, beams: int, length: int) -> DecoderCache:
        """Empty cache for ``decode_step``: R ``beams`` per row, room for ``length`` tokens."""
        return self.decoder.init_cache(encoder_states, attention_mask.astype(bool), beams, length)

    def decode_step(self, ids: Array, cache: DecoderCache) -> tuple[Array, DecoderCache]:
        """Newest ids int [B, R] -> logits float32 [B, R, V] of the next token, and the longer cache."""
        x, cache = self.decoder.step(self._embed(ids), cache)
        return self._logits(x), cache

    def _embed(self, ids: Array) -> Array:
        return jnp.take(self.shared.astype(self.config.compute_dtype), ids, axis=0)

    def _logits(self, x: Array) -> Array:
        c = self.config
        if c.tie_word_embeddings:
            # T5 1.0 scales tied outputs; the state-space model keeps that although its feed-forward is T5 1.1's.
            x, head = x * c.d_model**-0.5, self.shared
        else:
            head = self.lm_head
        return jnp.einsum("...d,vd->...v", x, head.astype(x.dtype), preferred_element_type=jnp.float32)


PRESETS: dict[str, LocostConfig] = {
    # The published model: 234,724,224 parameters.
    "base": LocostConfig(),
    "small": LocostConfig(d_model=256, d_state=128, d_kv=64, d_ff=704, num_layers=6, num_decoder_layers=6, num_heads=4),
    "tiny": LocostConfig(
        vocab_size=512, d_model=64, d_state=32, d_kv=16, d_ff=128, num_layers=2, num_decoder_layers=2, num_heads=4
    ),
}


def read_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of LocostConfig in a config.json, published or ours; keys that no model reads are left out."""
    if raw.get("num_ssm_heads", 1) != 1:
        raise InputError(f"num_ssm_heads is {raw['num_ssm_heads']}; only 1, as in the published models, is supported")
    names = {field.name for field in dataclasses.fields(LocostConfig)} - set(RUNTIME_FIELDS)
    values = {name: raw[name] for name in names if raw.get(name) is not None}
    values.setdefault("num_decoder_layers", values.get("num_layers", LocostConfig.num_layers))
    return values


def _linears(path: str, key: str, *names: str) -> list[NameRow]:
    return [NameRow(f"{path}/{name}/kernel", f"{key}.{name}.weight", "linear") for name in names]


def name_table(config: LocostConfig) -> list[NameRow]:
    """Every parameter beside its key in the published state dict; ``{i}`` counts scanned layers."""
    encoder, ssm = "encoder/layers", "encoder.block.{i}.layer.0.ssm_layer"
    decoder, block = "decoder/layers", "decoder.block.{i}.layer"
    projections = ("q_proj", "k_proj", "output_linear") if config.gating else ("k_proj", "output_linear")
    feed_forward = ("wi_0", "wi_1", "wo") if FEED_FORWARD_KINDS[config.feed_forward_proj][1] else ("wi", "wo")
    rows = [
        NameRow("shared", "shared.weight"),
        NameRow(f"{encoder}/ssm_norm/scale", "encoder.block.{i}.layer.0.layer_prenorm.weight"),
        NameRow(f"{encoder}/ssm/D", f"{ssm}.D"),
        *_linears(f"{encoder}/ssm", ssm, *projections),
        *(NameRow(f"{encoder}/ssm/{name}/bias", f"{ssm}.{name}.bias") for name in projections),
        *(
            NameRow(f"{encoder}/ssm/{name}", f"{ssm}.kernel.{name}")
            for name in ("C", "B", "log_dt", "inv_A_real", "A_imag")
        ),
        NameRow(f"{encoder}/ff_norm/scale", "encoder.block.{i}.layer.1.layer_norm.weight"),
        *_linears(f"{encoder}/feed_forward", "encoder.block.{i}.layer.1.DenseReluDense", *feed_forward),
        NameRow("encoder/final_norm/scale", "encoder.final_layer_norm.weight"),
        NameRow(
            "decoder/relative_attention_bias/embedding",
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        NameRow(f"{decoder}/self_norm/scale", f"{block}.0.layer_norm.weight"),
        *_linears(f"{decoder}/self_attention", f"{block}.0.SelfAttention", "q", "k", "v", "o"),
        NameRow(f"{decoder}/cross_norm/scale", f"{block}.1.layer_norm.weight"),
        *_linears(f"{decoder}/cross_attention", f"{block}.1.EncDecAttention", "q", "k", "v", "o"),
        NameRow(f"{decoder}/ff_norm/scale", f"{block}.2.layer_norm.weight"),
        *_linears(f"{decoder}/feed_forward", f"{block}.2.DenseReluDense", *feed_forward),
        NameRow("decoder/final_norm/scale", "decoder.final_layer_norm.weight"),
    ]
    if not config.tie_word_embeddings:
        rows.append(NameRow("lm_head", "lm_head.weight"))
    return rows


def tied_keys(config: LocostConfig) -> dict[str, str]:
    """Keys that a state dict may hold as further copies of another key."""
    copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    if config.tie_word_embeddings:
        copies.append("lm_head.weight")
    return dict.fromkeys(copies, "shared.weight")
