"""BART and its relatives: PEGASUS, PEGASUS-X, LED and BigBird-PEGASUS, as transformers' checkpoints
have them.

One model; the relatives differ in where they normalise, how they know positions, which maps have
biases, and what the encoder looks at. Papers: BART (Lewis et al. 2020), PEGASUS (Zhang et al.
2020), PEGASUS-X (Phang et al. 2022), LED (Beltagy et al. 2020), BigBird (Zaheer et al. 2020).
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import CrossAttentionOptions, EncoderAttentionOptions
from longsum_jax.layers.attention.registry import get_cross_attention, get_encoder_attention
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import ACTIVATIONS, LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer import check_memory
from longsum_jax.layers.memory import decoder_memory
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import MemoryOptions, PageOptions, StackConfig
from longsum_jax.models.encoder_decoder import EncoderDecoder, check_pages, vocabulary_logits
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.weight_map import WeightMap, WeightRow, layer_norm, linear
from longsum_jax.ops.positions import (
    pegasus_frequencies,
    pegasus_x_frequencies,
    sinusoidal_positions,
)
from longsum_jax.typing import Array

# Config fields that say how to compute; no checkpoint depends on them.
RUNTIME_FIELDS = ("dtype", "remat", "length_chunk")

Positions = Literal["learned", "pegasus", "pegasus_x"]


@dataclass(frozen=True, kw_only=True)
class BartConfig(EncoderAttentionOptions, CrossAttentionOptions, MemoryOptions, PageOptions):
    """Keys as in config.json; defaults are BART large.

    Class attributes hold what a relative fixes:
        normalize_before: layers normalise what they read (PEGASUS), not what they write (BART).
        positions: "learned" tables, or sinusoids that differ in their wave lengths.
        position_offset: unused rows at the start of a learned table.
        attention_bias: whether the maps of attention have biases.
        has_logits_bias: whether a stored bias is added to the logits.
        final_norm_name: of the norm at the end of a stack, in state dicts.
    """

    normalize_before: ClassVar[bool] = False
    positions: ClassVar[Positions] = "learned"
    position_offset: ClassVar[int] = 2
    attention_bias: ClassVar[bool] = True
    has_logits_bias: ClassVar[bool] = True
    final_norm_name: ClassVar[str] = "layer_norm"
    prefix: ClassVar[str] = "model"

    vocab_size: int = 50265
    max_position_embeddings: int = 1024
    d_model: int = 1024
    encoder_layers: int = 12
    encoder_ffn_dim: int = 4096
    encoder_attention_heads: int = 16
    decoder_layers: int = 12
    decoder_ffn_dim: int = 4096
    decoder_attention_heads: int = 16
    activation_function: str = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    init_std: float = 0.02
    scale_embedding: bool = False
    pad_token_id: int = 1
    bos_token_id: int = 0
    eos_token_id: int = 2
    decoder_start_token_id: int = 2

    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    length_chunk: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = (
            "vocab_size",
            "d_model",
            "encoder_layers",
            "decoder_layers",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
        )
        for key in (
            *sizes,
            "encoder_attention_heads",
            "decoder_attention_heads",
            "max_position_embeddings",
        ):
            if getattr(self, key) < 1:
                raise InputError(f"{key} is {getattr(self, key)}; it must be at least 1")
        for key in ("encoder_attention_heads", "decoder_attention_heads"):
            if self.d_model % getattr(self, key):
                raise InputError(
                    f"d_model {self.d_model} is not divisible by {key} {getattr(self, key)}; change either"
                )
        if self.activation_function not in ACTIVATIONS:
            hint = did_you_mean(self.activation_function, ACTIVATIONS)
            raise InputError(f'activation_function "{self.activation_function}" is unknown; {hint}')
        get_encoder_attention(self)
        get_cross_attention(self, self.decoder_attention_heads)
        check_memory(self, self.encoder_layers, self.decoder_layers)
        check_pages(self, self.source_rows)

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates: 0 when there is no dropout at all."""
        return max(self.dropout, self.attention_dropout, self.activation_dropout)

    @property
    def source_rows(self) -> int:
        """Rows of the encoder's position table."""
        return self.max_position_embeddings

    @property
    def max_source_length(self) -> int | None:
        """As many tokens as there are positions for; any number page by page."""
        return None if self.page_length else self.source_rows

    @property
    def max_target_length(self) -> int | None:
        """Rows of the decoder's position table."""
        return self.max_position_embeddings

    def with_max_source_length(self, length: int) -> "BartConfig":
        """This config with positions for ``length`` tokens."""
        return dataclasses.replace(self, max_position_embeddings=length)

    @property
    def compute_dtype(self) -> Any:
        return jnp.dtype(self.dtype)

    @property
    def encoder_stack(self) -> StackConfig:
        sizes = (self.encoder_layers, self.encoder_attention_heads, self.encoder_ffn_dim)
        return dataclasses.replace(self._stack(*sizes), length_chunk=self.length_chunk)

    @property
    def decoder_stack(self) -> StackConfig:
        sizes = (self.decoder_layers, self.decoder_attention_heads, self.decoder_ffn_dim)
        return dataclasses.replace(self._stack(*sizes), memory=decoder_memory(self))

    def _stack(self, layers: int, heads: int, d_ff: int) -> StackConfig:
        return StackConfig(
            d_model=self.d_model,
            num_heads=heads,
            d_kv=self.d_model // heads,
            d_ff=d_ff,
            num_layers=layers,
            feed_forward=self.activation_function,
            norm="layer",
            norm_epsilon=1e-5,
            pre_norm=self.normalize_before,
            final_norm=self.normalize_before,
            attention_bias=self.attention_bias,
            feed_forward_bias=True,
            attention_scale=(self.d_model // heads) ** -0.5,
            attention_init=self.init_std,
            dropout_rate=self.dropout,
            attention_dropout_rate=self.attention_dropout,
            activation_dropout_rate=self.activation_dropout,
            options=self,
            cross=self,
            memory=self,
            dtype=self.compute_dtype,
            remat=self.remat,
        )


@dataclass(frozen=True, kw_only=True)
class PegasusConfig(BartConfig):
    """Defaults are PEGASUS large."""

    normalize_before: ClassVar[bool] = True
    positions: ClassVar[Positions] = "pegasus"
    position_offset: ClassVar[int] = 0

    vocab_size: int = 96103
    encoder_layers: int = 16
    decoder_layers: int = 16
    activation_function: str = "relu"
    scale_embedding: bool = True
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0


@dataclass(frozen=True, kw_only=True)
class PegasusXConfig(PegasusConfig):
    """Defaults are PEGASUS-X large."""

    positions: ClassVar[Positions] = "pegasus_x"
    attention_bias: ClassVar[bool] = False
    has_logits_bias: ClassVar[bool] = False

    encoder_attention: str = "block_staggered"
    max_position_embeddings: int = 16384
    block_size: int = 512
    num_global_tokens: int = 32

    @property
    def max_source_length(self) -> None:
        """No limit: positions are computed."""

    max_target_length = max_source_length


@dataclass(frozen=True, kw_only=True)
class LedConfig(BartConfig):
    """Defaults are LED large; ``attention_window`` has one number for all layers or one for
    each."""

    position_offset: ClassVar[int] = 0
    prefix: ClassVar[str] = "led"

    encoder_attention: str = "longformer"
    max_encoder_position_embeddings: int = 16384
    max_decoder_position_embeddings: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        windows = self.attention_window
        if len(windows) not in (1, self.encoder_layers):
            raise InputError(
                f"attention_window has {len(windows)} numbers for {self.encoder_layers} layers; give one each"
            )
        if any(window < 2 or window % 2 for window in windows):
            raise InputError(f"attention_window is {windows}; windows must be even and at least 2")

    @property
    def source_rows(self) -> int:
        """Rows of the encoder's position table."""
        return self.max_encoder_position_embeddings

    @property
    def max_target_length(self) -> int:
        """Rows of the decoder's position table."""
        return self.max_decoder_position_embeddings

    def with_max_source_length(self, length: int) -> "LedConfig":
        """This config with positions for ``length`` tokens of the source."""
        return dataclasses.replace(self, max_encoder_position_embeddings=length)


@dataclass(frozen=True, kw_only=True)
class BigBirdPegasusConfig(PegasusConfig):
    """Defaults are BigBird-PEGASUS large; ``use_bias`` is for the maps of attention."""

    positions: ClassVar[Positions] = "learned"
    final_norm_name: ClassVar[str] = "layernorm_embedding"

    encoder_attention: str = "bigbird"
    max_position_embeddings: int = 4096
    activation_function: str = "gelu_new"
    use_bias: bool = False
    bos_token_id: int = 2
    decoder_start_token_id: int = 2

    @property
    def attention_bias(self) -> bool:
        return self.use_bias


class Bart(EncoderDecoder):
    """BART and its relatives; see ``EncoderDecoder`` for the methods."""

    config: BartConfig

    def setup(self) -> None:
        c = self.config
        init = normal(c.init_std)
        self.shared = self.param(
            "shared", logical(init, "vocab", "embed"), (c.vocab_size, c.d_model)
        )
        if c.positions == "learned":
            table = lambda name, rows: self.param(  # noqa: E731
                name, logical(init, "positions", "embed"), (rows + c.position_offset, c.d_model)
            )
            self.source_positions = table("source_positions", c.source_rows)
            self.target_positions = table("target_positions", c.max_target_length)
        if not c.normalize_before:
            self.source_norm, self.target_norm = (
                LayerNorm(1e-5, c.compute_dtype) for _ in range(2)
            )
        if c.has_logits_bias:
            zeros = logical(jax.nn.initializers.zeros, "vocab")
            self.final_logits_bias = self.param("final_logits_bias", zeros, (c.vocab_size,))
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()

    def embed_source(self, ids: Array) -> Array:
        x = self._embed(ids, jnp.arange(ids.shape[1]), "source_positions")
        return x if self.config.normalize_before else self.source_norm(x)

    def source_embedding_norm(self) -> nn.Module | None:
        return None if self.config.normalize_before else self.source_norm

    def embed_target(self, ids: Array, positions: Array) -> Array:
        x = self._embed(ids, positions, "target_positions")
        return x if self.config.normalize_before else self.target_norm(x)

    def _embed(self, ids: Array, positions: Array, table: str) -> Array:
        c = self.config
        x = jnp.take(self.shared, ids, axis=0) * (
            math.sqrt(c.d_model) if c.scale_embedding else 1.0
        )
        if c.positions == "learned":
            rows = jnp.take(getattr(self, table), positions + c.position_offset, axis=0)
        else:
            frequencies = {"pegasus": pegasus_frequencies, "pegasus_x": pegasus_x_frequencies}[
                c.positions
            ]
            rows = sinusoidal_positions(positions, frequencies(c.d_model))
        return (x + rows).astype(c.compute_dtype)

    def output_logits(self, x: Array) -> Array:
        logits = vocabulary_logits(x, self.shared)
        # A buffer in the published code: stored, never trained.
        return (
            logits + jax.lax.stop_gradient(self.final_logits_bias)
            if self.config.has_logits_bias
            else logits
        )


_SMALL = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
}
_SMALL |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_TINY = {
    "vocab_size": 512,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 128,
    "dropout": 0.0,
}
_TINY |= {"decoder_ffn_dim": 128, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
_BASE = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
}
_BASE |= {"encoder_attention_heads": 12, "decoder_attention_heads": 12}


def presets(config_class: type[BartConfig], **tiny: Any) -> dict[str, BartConfig]:
    """large, base, small and tiny models of a relative; ``tiny`` shrinks what else it has."""
    return {
        "large": config_class(),
        "base": config_class(**_BASE),
        "small": config_class(**_SMALL),
        "tiny": config_class(**_TINY, **tiny),
    }


def read_config(raw: Mapping[str, Any], config_class: type[BartConfig]) -> dict[str, Any]:
    """Fields of ``config_class`` in a config.json; keys that no model reads are left out."""
    names = {field.name for field in dataclasses.fields(config_class)} - set(RUNTIME_FIELDS)
    values = {name: raw[name] for name in names if raw.get(name) is not None}
    if config_class is BartConfig:
        _check_structure(raw)
    if config_class is BigBirdPegasusConfig and "encoder_attention" not in values:
        kinds = {"block_sparse": "bigbird", "original_full": "full"}
        kind = raw.get("attention_type", "block_sparse")
        if kind not in kinds:
            raise InputError(f'attention_type "{kind}" is unknown; {did_you_mean(kind, kinds)}')
        values["encoder_attention"] = kinds[kind]
    window = values.get("attention_window")
    if window is not None:
        windows = (window,) if isinstance(window, int) else tuple(window)
        values["attention_window"] = windows[:1] if len(set(windows)) == 1 else windows
    return values


def _check_structure(raw: Mapping[str, Any]) -> None:
    """Old BART files could describe other models (mBART, Marian) under the same model_type."""
    plain = {
        "normalize_before": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": False,
        "normalize_embedding": True,
        "extra_pos_embeddings": 2,
    }
    for key, value in plain.items():
        if raw.get(key, value) != value:
            raise InputError(
                f"{key} is {raw[key]}; only BART's own structure ({key}={value}) is supported"
            )


def write_config(config: BartConfig) -> dict[str, Any]:
    """Entries of config.json that transformers reads and that are not fields here."""
    values: dict[str, Any] = {"tie_word_embeddings": True}
    if isinstance(config, LedConfig):
        windows = config.attention_window
        values["attention_window"] = list(
            windows if len(windows) > 1 else windows * config.encoder_layers
        )
    if isinstance(config, BigBirdPegasusConfig):
        values["attention_type"] = {"bigbird": "block_sparse"}.get(
            config.encoder_attention, "original_full"
        )
    return values


# Encoder attention -> the names of its maps in state dicts: (where, q, k, v, output).
_PLAIN = ("", "q_proj", "k_proj", "v_proj", "out_proj")
_LONGFORMER = ("longformer_self_attn.", "query", "key", "value", "output")
_BIGBIRD = ("self.", "query", "key", "value", "output")


def _attention_rows(
    path: str, key: str, bias: bool, names: tuple[str, ...] = _PLAIN
) -> list[WeightRow]:
    inner, *maps, output = names
    rows = linear(f"{path}/o", f"{key}.{output}", inputs=2, bias=bias)
    for name, torch_name in zip("qkv", maps, strict=True):
        rows += linear(f"{path}/{name}", f"{key}.{inner}{torch_name}", bias=bias)
    return rows


def _self_attention_rows(config: BartConfig, path: str, key: str) -> list[WeightRow]:
    """The encoder's self-attention, whose names differ from family to family."""
    names = {LedConfig: _LONGFORMER, BigBirdPegasusConfig: _BIGBIRD}.get(type(config), _PLAIN)
    rows = _attention_rows(path, key, config.attention_bias, names)
    if config.encoder_attention == "longformer":
        inner, *maps, _ = _LONGFORMER
        for name, torch_name in zip("qkv", maps, strict=True):
            torch_key = f"{key}.{inner}{torch_name}_global"
            rows += linear(f"{path}/{name}_global", torch_key, bias=config.attention_bias)
    return rows


def _stack_rows(config: BartConfig, side: str) -> list[WeightRow]:
    """Norms and feed-forwards of ``encoder`` or ``decoder``."""
    path, key = f"{side}/layers", f"{config.prefix}.{side}.layers.{{i}}"
    rows = [
        *layer_norm(f"{path}/ff_norm", f"{key}.final_layer_norm"),
        *linear(f"{path}/feed_forward/wi", f"{key}.fc1", bias=True),
        *linear(f"{path}/feed_forward/wo", f"{key}.fc2", bias=True),
    ]
    where = {"encoder": "source", "decoder": "target"}[side]
    if config.normalize_before:
        rows += layer_norm(f"{side}/final_norm", f"{config.prefix}.{side}.{config.final_norm_name}")
    else:
        rows += layer_norm(f"{where}_norm", f"{config.prefix}.{side}.layernorm_embedding")
    if config.positions == "learned":
        rows.append(
            WeightRow(f"{where}_positions", f"{config.prefix}.{side}.embed_positions.weight")
        )
    return rows


def _encoder_rows(config: BartConfig) -> list[WeightRow]:
    path, key = "encoder/layers", f"{config.prefix}.encoder.layers.{{i}}"
    rows = _self_attention_rows(config, f"{path}/self_attention", f"{key}.self_attn")
    if config.encoder_attention == "lsg":
        rows.append(WeightRow(GLOBALS, f"{config.prefix}.encoder.global_embeddings.weight"))
    if config.encoder_attention != "block_staggered":
        return [*rows, *layer_norm(f"{path}/self_norm", f"{key}.self_attn_layer_norm")]
    return [
        *rows,
        *layer_norm(f"{path}/self_norm/text", f"{key}.self_attn_layer_norm"),
        *layer_norm(f"{path}/self_norm/globals", f"{key}.global_self_attn_layer_norm"),
        WeightRow("encoder/attention/embed_global", f"{config.prefix}.encoder.embed_global.weight"),
    ]


def _decoder_rows(config: BartConfig) -> list[WeightRow]:
    path, key = "decoder/layers", f"{config.prefix}.decoder.layers.{{i}}"
    return [
        *_attention_rows(f"{path}/self_attention", f"{key}.self_attn", config.attention_bias),
        *layer_norm(f"{path}/self_norm", f"{key}.self_attn_layer_norm"),
        *_attention_rows(f"{path}/cross_attention", f"{key}.encoder_attn", config.attention_bias),
        *layer_norm(f"{path}/cross_norm", f"{key}.encoder_attn_layer_norm"),
    ]


def weight_map(config: BartConfig) -> WeightMap:
    """Every parameter beside its key in state dicts; ``{i}`` counts layers."""
    prefix = config.prefix
    shared = f"{prefix}.shared.weight"
    rows = [WeightRow("shared", shared), *_encoder_rows(config), *_decoder_rows(config)]
    rows += [row for side in ("encoder", "decoder") for row in _stack_rows(config, side)]
    if config.has_logits_bias:
        rows.append(WeightRow("final_logits_bias", "final_logits_bias", "row", optional=True))
    tied = (
        "lm_head.weight",
        f"{prefix}.encoder.embed_tokens.weight",
        f"{prefix}.decoder.embed_tokens.weight",
    )
    constants = {}
    if config.positions == "pegasus":
        table = partial(_sinusoids, config.max_position_embeddings, config.d_model)
        constants = {
            f"{prefix}.{side}.embed_positions.weight": table for side in ("encoder", "decoder")
        }
    return WeightMap(rows, dict.fromkeys(tied, shared), constants=constants, prefix=f"{prefix}.")


def _sinusoids(rows: int, d_model: int) -> np.ndarray:
    """The table of positions that PEGASUS' state dicts hold: float32 [rows, D]."""
    angles = np.arange(rows)[:, None] * pegasus_frequencies(d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)
