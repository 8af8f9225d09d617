# ruff: noqa: F722, RUF100
"""BART and its relatives: PEGASUS, PEGASUS-X, LED and BigBird-PEGASUS.

One model, which computes what transformers computes from the published checkpoints. The relatives
differ in the place of their norms, in their positions, in biases, and in the encoder's attention.
Papers: BART (Lewis et al. 2020), PEGASUS (Zhang et al. 2020), PEGASUS-X (Phang et al. 2022), LED
(Beltagy et al. 2020), BigBird (Zaheer et al. 2020).
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
from jaxtyping import Array, Float, Int

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.registry import get_cross_attention, get_encoder_attention
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import ACTIVATIONS, LayerNorm, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer import check_memory
from longsum_jax.layers.memory import decoder_memory
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.config import (
    EncoderDecoderConfig,
    check_at_least_one,
    check_divisible,
    check_known,
    check_pages,
    read_fields,
)
from longsum_jax.models.encoder_decoder import EncoderDecoder, vocabulary_logits
from longsum_jax.models.family import Family
from longsum_jax.models.lsg_layout import GLOBALS
from longsum_jax.models.weight_map import (
    WeightMap,
    WeightRow,
    is_close_to_constant,
    layer_norm,
    linear,
)
from longsum_jax.ops.positions import (
    pegasus_frequencies,
    pegasus_x_frequencies,
    sinusoidal_positions,
)
from longsum_jax.typing import AnyArray

# Config fields that say how to compute; no checkpoint depends on them.
RUNTIME_FIELDS = ("dtype", "remat", "length_chunk")

Positions = Literal["learned", "pegasus", "pegasus_x"]
Side = Literal["encoder", "decoder"]
SIDES: tuple[Side, ...] = ("encoder", "decoder")
_TABLES = {"encoder": "source_positions", "decoder": "target_positions"}  # parameter names


@dataclass(frozen=True, kw_only=True)
class BartConfig(EncoderDecoderConfig):
    """The config of BART; keys as in config.json, defaults of BART large.

    Class attributes hold what a relative fixes:
        normalize_before: layers normalize their input (PEGASUS), not their output (BART).
        positions: "learned" tables, or sinusoids, which differ in their wave lengths.
        position_offset: unused rows at the start of a learned table.
        attention_bias: the linear maps of attention have biases.
        has_logits_bias: a stored bias is added to the logits.
        final_norm_name: name of the norm at the end of a stack in state dicts.
        stored_positions: stacks whose position table is a parameter although ``positions`` are
            sinusoids, see ``PegasusConfig``.
    """

    normalize_before: ClassVar[bool] = False
    positions: ClassVar[Positions] = "learned"
    position_offset: ClassVar[int] = 2
    attention_bias: ClassVar[bool] = True
    has_logits_bias: ClassVar[bool] = True
    final_norm_name: ClassVar[str] = "layer_norm"
    prefix: ClassVar[str] = "model"
    stored_positions: ClassVar[tuple[Side, ...]] = ()

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

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = ("vocab_size", "d_model", "encoder_layers", "decoder_layers")
        widths = ("encoder_ffn_dim", "decoder_ffn_dim")
        heads = ("encoder_attention_heads", "decoder_attention_heads")
        check_at_least_one(self, (*sizes, *widths, *heads, "max_position_embeddings"))
        for name in heads:
            check_divisible(self, "d_model", name)
        check_known(self, "activation_function", ACTIVATIONS)
        get_encoder_attention(self)
        get_cross_attention(self, self.decoder_attention_heads)
        check_memory(self, self.encoder_layers, self.decoder_layers)
        check_pages(self, self.source_rows)

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates; 0 if the model has no dropout at all."""
        return max(self.dropout, self.attention_dropout, self.activation_dropout)

    @property
    def source_rows(self) -> int:
        """Positions of the encoder's table."""
        return self.max_position_embeddings

    @property
    def target_rows(self) -> int:
        """Positions of the decoder's table."""
        return self.max_position_embeddings

    @property
    def max_source_length(self) -> int | None:
        """The longest source in tokens: one for each position; no limit if it is read in pages."""
        return None if self.page_length else self.source_rows

    @property
    def max_target_length(self) -> int | None:
        """The longest input of the decoder in tokens: one for each position."""
        return self.target_rows

    def with_max_source_length(self, length: int) -> "BartConfig":
        """Returns this config with positions for ``length`` tokens, in both stacks."""
        return dataclasses.replace(self, max_position_embeddings=length)

    def has_position_parameters(self, side: Side) -> bool:
        """Returns True if the position table of a stack is a parameter."""
        return self.positions == "learned" or side in self.stored_positions

    @property
    def encoder_stack(self) -> StackConfig:
        """The description of the encoder's layers."""
        sizes = (self.encoder_layers, self.encoder_attention_heads, self.encoder_ffn_dim)
        return dataclasses.replace(self._stack(*sizes), length_chunk=self.length_chunk)

    @property
    def decoder_stack(self) -> StackConfig:
        """The description of the decoder's layers."""
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
    """The config of PEGASUS; defaults of PEGASUS large.

    Attributes:
        stored_positions: stacks whose position table is a parameter. Checkpoints store the table of
            sinusoids, and transformers uses the stored one; where it differs from the computed
            table, ``infer_from_weights`` names its stack here.
    """

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
    stored_positions: tuple[Side, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stored_positions and self.positions != "pegasus":
            raise InputError(
                f"stored_positions is {self.stored_positions}, but only PEGASUS stores a table of "
                "sinusoids; leave it out"
            )

    def source_position_table(self) -> np.ndarray | None:
        """Returns the encoder's table of sinusoids, float32 [rows, d_model], if it is computed."""
        if self.has_position_parameters("encoder") or self.positions != "pegasus":
            return None
        return sinusoids(self)


@dataclass(frozen=True, kw_only=True)
class PegasusXConfig(PegasusConfig):
    """The config of PEGASUS-X; defaults of PEGASUS-X large."""

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
    """The config of LED; defaults of LED large.

    ``attention_window`` has one number for all layers or one for each.
    """

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
                f"attention_window has {len(windows)} numbers for {self.encoder_layers} layers; "
                "give one each"
            )
        if any(window < 2 or window % 2 for window in windows):
            raise InputError(f"attention_window is {windows}; windows must be even and at least 2")

    @property
    def source_rows(self) -> int:
        """Positions of the encoder's table."""
        return self.max_encoder_position_embeddings

    @property
    def target_rows(self) -> int:
        """Positions of the decoder's table."""
        return self.max_decoder_position_embeddings

    def with_max_source_length(self, length: int) -> "LedConfig":
        """Returns this config with positions for ``length`` tokens of the source."""
        return dataclasses.replace(self, max_encoder_position_embeddings=length)


@dataclass(frozen=True, kw_only=True)
class BigBirdPegasusConfig(PegasusConfig):
    """The config of BigBird-PEGASUS; defaults of BigBird-PEGASUS large.

    Attributes:
        use_bias: the linear maps of attention have biases.
    """

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
        """``use_bias``, by the name that its relatives have."""
        return self.use_bias


def sinusoids(config: BartConfig) -> np.ndarray:
    """Returns the table of PEGASUS' positions as state dicts hold it: float32 [rows, d_model].

    It equals ``ops.positions.sinusoidal_positions`` up to the rounding of float32.
    """
    positions = np.arange(config.max_position_embeddings)
    angles = positions[:, None] * pegasus_frequencies(config.d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(np.float32)


def _init_sinusoids(
    config: BartConfig, rng: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> Array:
    """Returns the computed table, as an initializer of stored ones."""
    return jnp.asarray(sinusoids(config), dtype)


class Bart(EncoderDecoder):
    """BART and its relatives; see ``EncoderDecoder`` for the methods."""

    config: BartConfig

    def setup(self) -> None:
        c = self.config
        init = logical(normal(c.init_std), "vocab", "embed")
        self.shared = self.param("shared", init, (c.vocab_size, c.d_model))
        if c.has_position_parameters("encoder"):
            self.source_positions = self._position_table("source_positions", c.source_rows)
        if c.has_position_parameters("decoder"):
            self.target_positions = self._position_table("target_positions", c.target_rows)
        if not c.normalize_before:
            self.source_norm = LayerNorm(1e-5, c.compute_dtype)
            self.target_norm = LayerNorm(1e-5, c.compute_dtype)
        if c.has_logits_bias:
            zeros = logical(jax.nn.initializers.zeros, "vocab")
            self.final_logits_bias = self.param("final_logits_bias", zeros, (c.vocab_size,))
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()

    def _position_table(self, name: str, rows: int) -> Float[Array, "rows d_model"]:
        """Makes the position table of one stack; to be called in ``setup``."""
        c = self.config
        init = normal(c.init_std) if c.positions == "learned" else partial(_init_sinusoids, c)
        shape = (rows + c.position_offset, c.d_model)
        return self.param(name, logical(init, "positions", "embed"), shape)

    def embed_source(
        self, ids: Int[AnyArray, "batch length"]
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the source at positions 0, 1, ..."""
        x = self._embed(ids, jnp.arange(ids.shape[1]), "encoder")
        return x if self.config.normalize_before else self.source_norm(x)

    def source_embedding_norm(self) -> nn.Module | None:
        """Returns the norm that ends ``embed_source``, None without one."""
        return None if self.config.normalize_before else self.source_norm

    def embed_target(
        self, ids: Int[AnyArray, "batch length"], positions: Int[AnyArray, "..."]
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the target at ``positions`` (one for each column, or one)."""
        x = self._embed(ids, positions, "decoder")
        return x if self.config.normalize_before else self.target_norm(x)

    def _embed(
        self, ids: Int[AnyArray, "batch length"], positions: Int[AnyArray, "..."], side: Side
    ) -> Float[Array, "batch length d_model"]:
        c = self.config
        scale = math.sqrt(c.d_model) if c.scale_embedding else 1.0
        x = jnp.take(self.shared, ids, axis=0) * scale
        return (x + self._positions(positions, side)).astype(c.compute_dtype)

    def _positions(
        self, positions: Int[AnyArray, "*length"], side: Side
    ) -> Float[Array, "*length d_model"]:
        """Returns the embeddings of positions: rows of a table, or sinusoids."""
        c = self.config
        if c.has_position_parameters(side):
            table = getattr(self, _TABLES[side])
            if c.positions != "learned":
                # The published code never trains a table of sinusoids.
                table = jax.lax.stop_gradient(table)
            return jnp.take(table, positions + c.position_offset, axis=0)
        if c.positions == "pegasus":
            return sinusoidal_positions(positions, pegasus_frequencies(c.d_model))
        return sinusoidal_positions(positions, pegasus_x_frequencies(c.d_model))

    def output_logits(self, x: Float[Array, "*leading d_model"]) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        logits = vocabulary_logits(x, self.shared)
        if not self.config.has_logits_bias:
            return logits
        # A buffer in the published code: stored, never trained.
        return logits + jax.lax.stop_gradient(self.final_logits_bias)


_SMALL = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_TINY = {
    "vocab_size": 512,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "dropout": 0.0,
}
_BASE = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
}


def presets(config_class: type[BartConfig], **tiny: Any) -> dict[str, BartConfig]:
    """Returns the large, base, small and tiny models of a relative.

    ``tiny`` holds further fields of the tiny one, such as smaller blocks.
    """
    return {
        "large": config_class(),
        "base": config_class(**_BASE),
        "small": config_class(**_SMALL),
        "tiny": config_class(**_TINY, **tiny),
    }


def read_config(raw: Mapping[str, Any], config_class: type[BartConfig]) -> dict[str, Any]:
    """Returns the fields of ``config_class`` that a config.json holds.

    Raises:
        InputError: the file describes a model of another structure.
    """
    values = read_fields(raw, config_class, RUNTIME_FIELDS)
    if config_class is BartConfig:
        _check_structure(raw)
    if config_class is BigBirdPegasusConfig and "encoder_attention" not in values:
        values["encoder_attention"] = _bigbird_attention(raw)
    window = values.get("attention_window")
    if window is not None:
        windows = (window,) if isinstance(window, int) else tuple(window)
        values["attention_window"] = windows[:1] if len(set(windows)) == 1 else windows
    return values


def _bigbird_attention(raw: Mapping[str, Any]) -> str:
    """Returns the encoder attention of a BigBird-PEGASUS."""
    attentions = {"block_sparse": "bigbird", "original_full": "full"}
    name = raw.get("attention_type", "block_sparse")
    if name not in attentions:
        raise InputError(f'attention_type "{name}" is unknown; {did_you_mean(name, attentions)}')
    return attentions[name]


def _check_structure(raw: Mapping[str, Any]) -> None:
    """Raises an InputError unless a config.json of model_type "bart" describes a BART.

    Old files could describe mBART or Marian under the same model_type.
    """
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
    """Returns the entries of config.json that transformers reads and that are not fields here."""
    values: dict[str, Any] = {"tie_word_embeddings": True}
    if isinstance(config, PegasusConfig):
        values["stored_positions"] = config.stored_positions or None
    if isinstance(config, LedConfig):
        windows = config.attention_window
        if len(windows) == 1:
            windows = windows * config.encoder_layers
        values["attention_window"] = list(windows)
    if isinstance(config, BigBirdPegasusConfig):
        is_sparse = config.encoder_attention == "bigbird"
        values["attention_type"] = "block_sparse" if is_sparse else "original_full"
    return values


def infer_from_weights(config: BartConfig, tensors: Mapping[str, Any]) -> BartConfig:
    """Returns the config of a PEGASUS with the position tables that differ from computed ones.

    A table that differs by no more than the rounding of a half-precision file is computed.
    """
    if config.positions != "pegasus":
        return config
    stored = tuple(side for side in SIDES if _differs(_stored_table(config, tensors, side), config))
    return dataclasses.replace(config, stored_positions=stored)


def _stored_table(config: BartConfig, tensors: Mapping[str, Any], side: Side) -> Any | None:
    """Returns the position table of a state dict, with or without the prefix of the bare model."""
    key = _table_key(config, side)
    return tensors.get(key, tensors.get(key.removeprefix(f"{config.prefix}.")))


def _differs(table: Any | None, config: BartConfig) -> bool:
    """Returns True for a stored table that is not the computed one."""
    return table is not None and not is_close_to_constant(table, sinusoids(config))


def _table_key(config: BartConfig, side: Side) -> str:
    return f"{config.prefix}.{side}.embed_positions.weight"


# Encoder attention -> the names of its maps in state dicts: (prefix, q, k, v, output).
_PLAIN = ("", "q_proj", "k_proj", "v_proj", "out_proj")
_LONGFORMER = ("longformer_self_attn.", "query", "key", "value", "output")
_BIGBIRD = ("self.", "query", "key", "value", "output")


def _attention_rows(
    path: str, key: str, bias: bool, names: tuple[str, ...] = _PLAIN
) -> list[WeightRow]:
    """Returns the rows of one attention's kernels and biases."""
    inner, *maps, output = names
    rows = linear(f"{path}/o", f"{key}.{output}", inputs=2, bias=bias)
    for name, torch_name in zip("qkv", maps, strict=True):
        rows += linear(f"{path}/{name}", f"{key}.{inner}{torch_name}", bias=bias)
    return rows


def _self_attention_rows(config: BartConfig, path: str, key: str) -> list[WeightRow]:
    """Returns the rows of the encoder's self-attention; names differ from family to family."""
    names = {LedConfig: _LONGFORMER, BigBirdPegasusConfig: _BIGBIRD}.get(type(config), _PLAIN)
    rows = _attention_rows(path, key, config.attention_bias, names)
    if config.encoder_attention == "longformer":
        inner, *maps, _ = _LONGFORMER
        for name, torch_name in zip("qkv", maps, strict=True):
            torch_key = f"{key}.{inner}{torch_name}_global"
            rows += linear(f"{path}/{name}_global", torch_key, bias=config.attention_bias)
    return rows


def _stack_rows(config: BartConfig, side: Side) -> list[WeightRow]:
    """Returns the rows of a stack's norms, feed-forwards and positions."""
    path, key = f"{side}/layers", f"{config.prefix}.{side}.layers.{{i}}"
    rows = [
        *layer_norm(f"{path}/ff_norm", f"{key}.final_layer_norm"),
        *linear(f"{path}/feed_forward/wi", f"{key}.fc1", bias=True),
        *linear(f"{path}/feed_forward/wo", f"{key}.fc2", bias=True),
    ]
    if config.normalize_before:
        rows += layer_norm(f"{side}/final_norm", f"{config.prefix}.{side}.{config.final_norm_name}")
    else:
        norm = {"encoder": "source_norm", "decoder": "target_norm"}[side]
        rows += layer_norm(norm, f"{config.prefix}.{side}.layernorm_embedding")
    if config.has_position_parameters(side):
        rows.append(WeightRow(_TABLES[side], _table_key(config, side)))
    return rows


def _encoder_rows(config: BartConfig) -> list[WeightRow]:
    """Returns the rows of the encoder's attention and its norms."""
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
    """Returns the rows of the decoder's attentions and their norms."""
    path, key = "decoder/layers", f"{config.prefix}.decoder.layers.{{i}}"
    return [
        *_attention_rows(f"{path}/self_attention", f"{key}.self_attn", config.attention_bias),
        *layer_norm(f"{path}/self_norm", f"{key}.self_attn_layer_norm"),
        *_attention_rows(f"{path}/cross_attention", f"{key}.encoder_attn", config.attention_bias),
        *layer_norm(f"{path}/cross_norm", f"{key}.encoder_attn_layer_norm"),
    ]


def weight_map(config: BartConfig) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    prefix = config.prefix
    shared = f"{prefix}.shared.weight"
    rows = [WeightRow("shared", shared), *_encoder_rows(config), *_decoder_rows(config)]
    for side in SIDES:
        rows += _stack_rows(config, side)
    if config.has_logits_bias:
        rows.append(WeightRow("final_logits_bias", "final_logits_bias", "row", optional=True))
    copies = ["lm_head.weight"]
    copies += [f"{prefix}.{side}.embed_tokens.weight" for side in SIDES]
    constants = {}
    if config.positions == "pegasus":
        computed = [side for side in SIDES if not config.has_position_parameters(side)]
        constants = {_table_key(config, side): partial(sinusoids, config) for side in computed}
    return WeightMap(rows, dict.fromkeys(copies, shared), constants=constants, prefix=f"{prefix}.")


def _family(
    name: str,
    architecture: str,
    config_class: type[BartConfig],
    attentions: tuple[str, ...],
    **tiny: Any,
) -> Family:
    """Returns a family of this architecture; ``tiny`` as in ``presets``."""
    return Family(
        name=name,
        architecture=f"{architecture}ForConditionalGeneration",
        config_class=config_class,
        module_class=Bart,
        presets=presets(config_class, **tiny),
        runtime_fields=RUNTIME_FIELDS,
        read_config=partial(read_config, config_class=config_class),
        write_config=write_config,
        published_weight_map=weight_map,
        infer_from_weights=infer_from_weights,
        attentions=attentions,
    )


FAMILIES = (
    _family("bart", "Bart", BartConfig, ("full", "lsg"), max_position_embeddings=512),
    _family("pegasus", "Pegasus", PegasusConfig, ("full", "lsg"), max_position_embeddings=512),
    _family(
        "pegasus_x",
        "PegasusX",
        PegasusXConfig,
        ("block_staggered",),
        block_size=32,
        num_global_tokens=8,
    ),
    _family(
        "led",
        "LED",
        LedConfig,
        ("longformer",),
        attention_window=(32,),
        max_encoder_position_embeddings=1024,
        max_decoder_position_embeddings=512,
    ),
    _family(
        "bigbird_pegasus",
        "BigBirdPegasus",
        BigBirdPegasusConfig,
        ("bigbird", "full"),
        block_size=16,
        max_position_embeddings=1024,
    ),
)
