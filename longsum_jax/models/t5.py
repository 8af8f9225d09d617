"""T5 1.0 and 1.1 (Raffel et al. 2020; Shazeer 2020) and LongT5 (Guo et al. 2022), as their
checkpoints have them.

LOCOST is the same model with a state-space encoder; see ``models.locost``.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import CrossAttentionOptions, EncoderAttentionOptions
from longsum_jax.layers.attention.registry import get_cross_attention, get_encoder_attention
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import FEED_FORWARD_KINDS, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer import check_memory
from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.layers.memory import decoder_memory
from longsum_jax.layers.partitioning import logical
from longsum_jax.layers.stack import MemoryOptions, PageOptions, StackConfig
from longsum_jax.models.encoder_decoder import EncoderDecoder, check_pages, vocabulary_logits
from longsum_jax.models.weight_map import WeightMap, WeightRow, linears
from longsum_jax.typing import Array

# Config fields that say how to compute; no checkpoint depends on them.
RUNTIME_FIELDS = ("dtype", "remat", "length_chunk", "attention_init")


@dataclass(frozen=True, kw_only=True)
class T5Config(EncoderAttentionOptions, CrossAttentionOptions, MemoryOptions, PageOptions):
    """Keys as in config.json; defaults are T5 small.

    Attributes:
        tie_word_embeddings: the output weights are the embeddings. Decided by the tensors when a
            checkpoint is read.
        scale_decoder_outputs: states are multiplied by d_model**-0.5 before the output weights (T5
            1.0, not 1.1); None for "when the weights are tied".
        attention_init: "t5", or "torch" for PyTorch's default of linear maps.
    """

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int = 6
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0

    attention_init: Literal["torch", "t5"] = "t5"
    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    length_chunk: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in (
            "vocab_size",
            "d_model",
            "d_kv",
            "d_ff",
            "num_layers",
            "num_decoder_layers",
            "num_heads",
        ):
            if getattr(self, key) < 1:
                raise InputError(f"{key} is {getattr(self, key)}; it must be at least 1")
        if self.feed_forward_proj not in FEED_FORWARD_KINDS:
            hint = did_you_mean(self.feed_forward_proj, FEED_FORWARD_KINDS)
            raise InputError(f'feed_forward_proj "{self.feed_forward_proj}" is unknown; {hint}')
        if not 0 <= self.dropout_rate < 1:
            raise InputError(
                f"dropout_rate is {self.dropout_rate}; it must be at least 0 and below 1"
            )
        get_encoder_attention(self)
        get_cross_attention(self, self.num_heads)
        check_memory(self, self.num_layers, self.num_decoder_layers)
        check_pages(self, None)

    @property
    def max_source_length(self) -> None:
        """No limit: positions are relative."""

    max_target_length = max_source_length

    @property
    def compute_dtype(self) -> Any:
        return jnp.dtype(self.dtype)

    @property
    def scales_outputs(self) -> bool:
        return (
            self.tie_word_embeddings
            if self.scale_decoder_outputs is None
            else self.scale_decoder_outputs
        )

    @property
    def decoder_stack(self) -> StackConfig:
        return StackConfig(
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_kv=self.d_kv,
            d_ff=self.d_ff,
            num_layers=self.num_decoder_layers,
            feed_forward=self.feed_forward_proj,
            norm="rms",
            norm_epsilon=self.layer_norm_epsilon,
            pre_norm=True,
            final_norm=True,
            attention_init=self.attention_init,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=self.dropout_rate,
            activation_dropout_rate=self.dropout_rate,
            output_dropout_rate=self.dropout_rate,
            relative_attention=(
                self.relative_attention_num_buckets,
                self.relative_attention_max_distance,
            ),
            options=self,
            cross=self,
            memory=decoder_memory(self),
            dtype=self.compute_dtype,
            remat=self.remat,
        )

    @property
    def encoder_stack(self) -> StackConfig:
        kinds = set(layer_attentions(self.encoder_attention, self.num_layers))
        no_distances = kinds <= {"s4d", "linformer"}  # which see no two tokens side by side
        positions = None if no_distances else self.decoder_stack.relative_attention
        return dataclasses.replace(
            self.decoder_stack,
            num_layers=self.num_layers,
            relative_attention=positions,
            memory=self,
            length_chunk=self.length_chunk,
        )


@dataclass(frozen=True, kw_only=True)
class LongT5Config(T5Config):
    """T5 with one of LongT5's two encoder attentions."""

    encoder_attention: str = "local"
    feed_forward_proj: str = "gated-gelu"
    tie_word_embeddings: bool = False


class T5(EncoderDecoder):
    """T5, LongT5 and LOCOST; see ``EncoderDecoder`` for the methods."""

    config: T5Config

    def setup(self) -> None:
        c = self.config
        self.shared = self.param(
            "shared", logical(normal(1.0), "vocab", "embed"), (c.vocab_size, c.d_model)
        )
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()
        if not c.tie_word_embeddings:
            head = logical(normal(c.d_model**-0.5), "vocab", "embed")
            self.lm_head = self.param("lm_head", head, (c.vocab_size, c.d_model))

    def embed_source(self, ids: Array) -> Array:
        return jnp.take(self.shared.astype(self.config.compute_dtype), ids, axis=0)

    def embed_target(self, ids: Array, positions: Array) -> Array:
        return self.embed_source(ids)

    def output_logits(self, x: Array) -> Array:
        x = x * self.config.d_model**-0.5 if self.config.scales_outputs else x
        return vocabulary_logits(
            x, self.shared if self.config.tie_word_embeddings else self.lm_head
        )


PRESETS: dict[str, T5Config] = {
    "base": T5Config(d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12),
    "small": T5Config(),
    "tiny": T5Config(
        vocab_size=512,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
    ),
}

LONGT5_PRESETS: dict[str, LongT5Config] = {
    "base": LongT5Config(d_model=768, num_layers=12, num_decoder_layers=12, num_heads=12),
    "tiny": LongT5Config(
        vocab_size=512,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
        dropout_rate=0.0,
    ),
}

# encoder_attention_type in config.json -> name here, and the name of the attention in state dicts.
_LONGT5_ATTENTIONS = {
    "local": ("local", "LocalSelfAttention"),
    "transient-global": ("transient_global", "TransientGlobalSelfAttention"),
}


def read_config(raw: Mapping[str, Any], config_class: type[T5Config] = T5Config) -> dict[str, Any]:
    """Fields of ``config_class`` in a config.json; keys that no model reads are left out."""
    names = {field.name for field in dataclasses.fields(config_class)} - set(RUNTIME_FIELDS)
    values = {name: raw[name] for name in names if raw.get(name) is not None}
    values.setdefault("num_decoder_layers", values.get("num_layers", config_class.num_layers))
    # In files of before transformers 5 the flag of tied weights says whether states are scaled, and
    # nothing else.
    values.setdefault("scale_decoder_outputs", raw.get("tie_word_embeddings") is not False)
    return values


def read_longt5_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Like ``read_config``, for LongT5."""
    kind = raw.get("encoder_attention_type", "local")
    if kind not in _LONGT5_ATTENTIONS:
        raise InputError(
            f'encoder_attention_type "{kind}" is unknown; {did_you_mean(kind, _LONGT5_ATTENTIONS)}'
        )
    return {"encoder_attention": _LONGT5_ATTENTIONS[kind][0]} | read_config(raw, LongT5Config)


def write_config(config: T5Config) -> dict[str, Any]:
    """Entries of config.json that transformers' T5 reads and that are not fields here."""
    values: dict[str, Any] = {"scale_decoder_outputs": config.scales_outputs}
    for name, (attention, _) in _LONGT5_ATTENTIONS.items():
        if config.encoder_attention == attention:
            values["encoder_attention_type"] = name
    return values


def infer_from_weights(config: T5Config, tensors: Mapping[str, Any]) -> T5Config:
    """Output weights are tied where a state dict holds none of their own, whatever the config.json
    says."""
    head, shared = tensors.get("lm_head.weight"), tensors.get("shared.weight")
    own = (
        head is not None
        and shared is not None
        and not np.array_equal(np.asarray(head), np.asarray(shared))
    )
    return dataclasses.replace(
        config, tie_word_embeddings=not own, scale_decoder_outputs=config.scales_outputs
    )


def attention_rows(path: str, key: str) -> list[WeightRow]:
    """q, k, v and o of one attention."""
    return [*linears(path, key, "q", "k", "v"), *linears(path, key, "o", inputs=2)]


def feed_forward_rows(config: T5Config, path: str, key: str) -> list[WeightRow]:
    """The kernels of one feed-forward."""
    gated = FEED_FORWARD_KINDS[config.feed_forward_proj][1]
    return linears(
        path, f"{key}.DenseReluDense", *(("wi_0", "wi_1", "wo") if gated else ("wi", "wo"))
    )


def decoder_rows(config: T5Config) -> list[WeightRow]:
    """The decoder's parameters."""
    path, key = "decoder/layers", "decoder.block.{i}.layer"
    return [
        WeightRow(
            "decoder/relative_attention_bias/embedding",
            "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        ),
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_norm.weight"),
        *attention_rows(f"{path}/self_attention", f"{key}.0.SelfAttention"),
        WeightRow(f"{path}/cross_norm/scale", f"{key}.1.layer_norm.weight"),
        *attention_rows(f"{path}/cross_attention", f"{key}.1.EncDecAttention"),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.2.layer_norm.weight"),
        *feed_forward_rows(config, f"{path}/feed_forward", f"{key}.2"),
        WeightRow("decoder/final_norm/scale", "decoder.final_layer_norm.weight"),
    ]


def encoder_rows(config: T5Config) -> list[WeightRow]:
    """The encoder's parameters."""
    path, key = "encoder/layers", "encoder.block.{i}.layer"
    names = {attention: name for attention, name in _LONGT5_ATTENTIONS.values()}
    attention = names.get(config.encoder_attention, "SelfAttention")
    first = f"encoder.block.0.layer.0.{attention}"
    rows = [
        WeightRow(
            "encoder/relative_attention_bias/embedding", f"{first}.relative_attention_bias.weight"
        ),
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_norm.weight"),
        *attention_rows(f"{path}/self_attention", f"{key}.0.{attention}"),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.1.layer_norm.weight"),
        *feed_forward_rows(config, f"{path}/feed_forward", f"{key}.1"),
        WeightRow("encoder/final_norm/scale", "encoder.final_layer_norm.weight"),
    ]
    if config.encoder_attention == "transient_global":
        rows += [
            WeightRow(
                "encoder/attention/global_relative_attention_bias/embedding",
                f"{first}.global_relative_attention_bias.weight",
            ),
            WeightRow(
                f"{path}/self_attention/global_norm/scale",
                f"{key}.0.{attention}.global_input_layer_norm.weight",
            ),
        ]
    return rows


def embedding_rows(config: T5Config) -> tuple[list[WeightRow], dict[str, str]]:
    """Embeddings and output weights, and the keys of their copies."""
    copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
    rows = [WeightRow("shared", "shared.weight")]
    if config.tie_word_embeddings:
        copies.append("lm_head.weight")
    else:
        rows.append(WeightRow("lm_head", "lm_head.weight"))
    return rows, dict.fromkeys(copies, "shared.weight")


def weight_map(config: T5Config) -> WeightMap:
    """Every parameter beside its key in state dicts; ``{i}`` counts layers."""
    rows, tied = embedding_rows(config)
    # T5 1.0 was published with a cross-attention bias that no version of the model has ever read.
    ignored = (r"EncDecAttention\.relative_attention_bias",)
    return WeightMap(
        [*rows, *encoder_rows(config), *decoder_rows(config)], tied=tied, ignored=ignored
    )
