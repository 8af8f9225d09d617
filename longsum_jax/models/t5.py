"""T5 1.0 and 1.1 (Raffel et al. 2020; Shazeer 2020) and LongT5 (Guo et al. 2022).

The models reproduce the outputs of transformers for the published checkpoints.
LOCOST is a T5 with a state-space encoder; see ``models.locost``.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from jaxtyping import Array, Float, Int

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.decoder import Decoder
from longsum_jax.layers.dense import FEED_FORWARD_KINDS, normal
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import layer_attentions
from longsum_jax.layers.partitioning import logical, look_up
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.config import (
    check_attention,
    check_decoder_options,
    check_known,
    check_token_ids,
)
from longsum_jax.models.embedding_tables import (
    EmbeddingKeys,
    EmbeddingOptions,
    EmbeddingRows,
    embedding_rows,
    infer_embeddings,
)
from longsum_jax.models.encoder_decoder import EncoderDecoder
from longsum_jax.models.family import Family
from longsum_jax.models.flat_config import read_fields
from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.models.weight_map import WeightMap, WeightRow, linears
from longsum_jax.ops.precision import scaled
from longsum_jax.schema import (
    Layers,
    Length,
    Positive,
    PositiveFloat,
    Rate,
    Size,
)
from longsum_jax.typing import AnyArray

# Config fields that select how to compute; checkpoints do not depend on them.
RUNTIME_FIELDS = (
    "dtype",
    "matmul_precision",
    "remat",
    "length_chunk",
    "attention_init",
)

EMBEDDING_KEYS = EmbeddingKeys.with_prefix("")


@dataclass(frozen=True, kw_only=True)
class T5Config(EmbeddingOptions):
    """The config of T5; keys as in config.json, defaults of T5 small.

    Attributes:
        d_model: size of a hidden state.
        d_kv: size of one head; ``num_heads * d_kv`` may differ from
            ``d_model``.
        d_ff: size of the feed-forward's inner states.
        num_layers: number of encoder layers.
        num_heads: number of heads of every attention.
        relative_attention_num_buckets: number of buckets of the relative
            position bias, at least 4.
        relative_attention_max_distance: distance in tokens from which all
            positions share a bucket.
        dropout_rate: dropout rate of embeddings, feed-forwards and the outputs
            of layers.
        layer_norm_epsilon: constant added to the mean square in norms.
        feed_forward_proj: kind of the feed-forward, a key of
            ``layers.dense.FEED_FORWARD_KINDS`` such as "relu" (T5 1.0) or
            "gated-gelu" (T5 1.1).
        num_decoder_layers: number of decoder layers; None for ``num_layers``.
        scale_decoder_outputs: True to multiply states by d_model**-0.5 before
            the output weights (T5 1.0, not 1.1); None for the value of
            ``tie_word_embeddings``.
        attention_dropout_rate: dropout rate of attention weights; None for
            ``dropout_rate``, as published. With 0, accelerators also use fused
            kernels in training for attention without a position bias.
        attention_init: initialization of attention weights, "t5", or "torch"
            for PyTorch's default of linear layers.
        bias_per_layer: class attribute; True if every layer has a relative bias
            of its own, False if all share the bias of the first.

    Raises:
        InputError: a value out of range, or incompatible values.
    """

    bias_per_layer: ClassVar[bool] = False

    vocab_size: Positive = 32128
    d_model: Size = 512
    d_kv: Size = 64
    d_ff: Size = 2048
    num_layers: Layers = 6
    num_decoder_layers: Layers | None = None
    num_heads: Size = 8
    relative_attention_num_buckets: Size = 32
    relative_attention_max_distance: Length = 128
    dropout_rate: Rate = 0.1
    attention_dropout_rate: Rate | None = None
    layer_norm_epsilon: PositiveFloat = 1e-6
    feed_forward_proj: str = "relu"
    scale_decoder_outputs: bool | None = None

    attention_init: Literal["torch", "t5"] = "t5"

    def __post_init__(self) -> None:
        if self.num_decoder_layers is None:
            object.__setattr__(self, "num_decoder_layers", self.num_layers)
        super().__post_init__()
        check_token_ids(self)
        check_known(self, "feed_forward_proj", FEED_FORWARD_KINDS)
        self._check_relative_attention()
        check_attention(self)
        check_decoder_options(
            self, self.num_heads, self.num_layers, self.decoder_layers, None
        )

    def _check_relative_attention(self) -> None:
        buckets = self.relative_attention_num_buckets
        distance = self.relative_attention_max_distance
        # A quarter of the encoder's buckets and half of the decoder's buckets
        # are for exact distances.
        if buckets < 4 or distance <= buckets // 2:
            raise InputError(
                f"relative_attention_num_buckets is {buckets} with relative_attention_max_distance "
                f"{distance}; give at least 4 buckets, and a distance of more than half of them"
            )

    @property
    def decoder_layers(self) -> int:
        """``num_decoder_layers``, with None resolved."""
        return cast(int, self.num_decoder_layers)

    @property
    def scales_outputs(self) -> bool:
        """``scale_decoder_outputs``, with None resolved."""
        if self.scale_decoder_outputs is None:
            return self.tie_word_embeddings
        return self.scale_decoder_outputs

    @property
    def decoder_stack(self) -> StackConfig:
        attention_dropout = self.attention_dropout_rate
        if attention_dropout is None:
            attention_dropout = self.dropout_rate
        return StackConfig(
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_kv=self.d_kv,
            d_ff=self.d_ff,
            num_layers=self.decoder_layers,
            feed_forward=self.feed_forward_proj,
            norm="rms",
            norm_epsilon=self.layer_norm_epsilon,
            pre_norm=True,
            final_norm=True,
            attention_init=self.attention_init,
            dropout_rate=self.dropout_rate,
            attention_dropout_rate=attention_dropout,
            activation_dropout_rate=self.dropout_rate,
            output_dropout_rate=self.dropout_rate,
            relative_attention=(
                self.relative_attention_num_buckets,
                self.relative_attention_max_distance,
            ),
            bias_per_layer=self.bias_per_layer,
            **self.layer_options | {"memory": self.decoder_memory},
        )

    @property
    def encoder_stack(self) -> StackConfig:
        attentions = set(
            layer_attentions(self.encoder_attention, self.num_layers)
        )
        # These two do not compute scores of pairs of tokens to which a bias
        # could be added.
        has_no_pairs = attentions <= {"s4d", "linformer"}
        if has_no_pairs:
            positions = None
        else:
            positions = self.decoder_stack.relative_attention
        return dataclasses.replace(
            self.decoder_stack,
            num_layers=self.num_layers,
            relative_attention=positions,
            memory=self.memory,
            length_chunk=self.length_chunk,
        )


@dataclass(frozen=True, kw_only=True)
class LongT5Config(T5Config):
    """The config of LongT5: T5 with "local" or "transient_global" encoder attention."""

    absent: ClassVar[Mapping[str, Any]] = {
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
    }

    encoder_attention: str = "local"
    feed_forward_proj: str = "gated-gelu"
    tie_word_embeddings: bool = False


class T5(EncoderDecoder):
    """T5, LongT5 and LOCOST; see ``EncoderDecoder`` for the methods."""

    config: T5Config

    def setup(self) -> None:
        c = self.config
        shape = (c.vocab_size, c.d_model)
        init = logical(normal(1.0), "vocab", "embed")
        self.shared = self.param("shared", init, shape)
        if not c.shared_embeddings:
            self.target_embedding = self.param("target_embedding", init, shape)
        self.encoder = Encoder(c.encoder_stack)
        self.decoder = Decoder(c.decoder_stack)
        self.make_page_scores()
        if not c.tie_word_embeddings:
            init = logical(normal(c.d_model**-0.5), "vocab", "embed")
            self.lm_head = self.param("lm_head", init, shape)

    def embed_source(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the source."""
        return self._embed(ids, self.shared)

    def embed_target(
        self,
        ids: Int[AnyArray, "batch length"],
        positions: Int[AnyArray, "..."],
    ) -> Float[Array, "batch length d_model"]:
        """Returns the embeddings of the target; only the attention bias depends on positions."""
        if self.config.shared_embeddings:
            table = self.shared
        else:
            table = self.target_embedding
        return self._embed(ids, table)

    def _embed(
        self,
        ids: Int[AnyArray, "batch length"],
        table: Float[AnyArray, "vocab d_model"],
    ) -> Float[Array, "batch length d_model"]:
        return look_up(table.astype(self.config.compute_dtype), ids)

    def output_logits(
        self, x: Float[AnyArray, "*leading d_model"]
    ) -> Float[Array, "*leading vocab"]:
        """Returns float32 logits of decoder states."""
        c = self.config
        if c.scales_outputs:
            x = scaled(x, c.d_model**-0.5)
        return vocabulary_logits(x, self.logits_table())

    @property
    def logits_parameter(self) -> str:
        if self.config.tie_word_embeddings:
            return "shared"
        return "lm_head"


_BASE: dict[str, Any] = {
    "d_model": 768,
    "num_layers": 12,
    "num_heads": 12,
}
# Sizes of the tiny preset of every family of this architecture.
TINY: dict[str, Any] = {
    "vocab_size": 512,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 128,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
}

PRESETS: dict[str, T5Config] = {
    "base": T5Config(**_BASE, d_ff=3072),
    "small": T5Config(),
    "tiny": T5Config(**TINY),
}

LONGT5_PRESETS: dict[str, LongT5Config] = {
    "base": LongT5Config(**_BASE),
    "tiny": LongT5Config(**TINY),
}

# Suffixes of classes with heads for labels and answers.
_OTHER_HEADS = ("Classification", "QuestionAnswering")
# encoder_attention_type in config.json to the name here, and to the attention's
# name in state dicts.
_LONGT5_ATTENTIONS = {
    "local": ("local", "LocalSelfAttention"),
    "transient-global": ("transient_global", "TransientGlobalSelfAttention"),
}


def read_config(
    raw: Mapping[str, Any], config_class: type[T5Config] = T5Config
) -> dict[str, Any]:
    """Returns the fields of ``config_class`` in a config.json.

    Raises:
        InputError: a model with a head for labels or answers.
    """
    for name in raw.get("architectures") or ():
        if name.endswith(_OTHER_HEADS):
            raise InputError(
                f'architecture "{name}" has a head that is not supported; give a checkpoint of '
                "...ForConditionalGeneration or ...Model"
            )
    values = read_fields(raw, config_class, RUNTIME_FIELDS)
    # In files from before transformers 5, the flag of tied weights only
    # determines whether states are scaled.
    values.setdefault(
        "scale_decoder_outputs", raw.get("tie_word_embeddings") is not False
    )
    return values


def read_longt5_config(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of ``LongT5Config`` in a config.json."""
    name = raw.get("encoder_attention_type", "local")
    if name not in _LONGT5_ATTENTIONS:
        raise InputError(
            f'encoder_attention_type "{name}" is unknown; {did_you_mean(name, _LONGT5_ATTENTIONS)}'
        )
    attention, _ = _LONGT5_ATTENTIONS[name]
    return {"encoder_attention": attention} | read_config(raw, LongT5Config)


def write_config(config: T5Config) -> dict[str, Any]:
    """Returns the config.json entries that transformers reads and that are not fields here."""
    values: dict[str, Any] = {
        "scale_decoder_outputs": config.scales_outputs,
        "shared_embeddings": None if config.shared_embeddings else False,
    }
    for name, (attention, _) in _LONGT5_ATTENTIONS.items():
        if config.encoder_attention == attention:
            values["encoder_attention_type"] = name
    if not config.option("local_even"):
        values["local_even"] = None
    return values


def infer_from_weights(
    config: T5Config, tensors: Mapping[str, Any]
) -> T5Config:
    """Returns the config with the embedding tables that a state dict contains.

    The flag in config.json is ignored.
    """
    config = dataclasses.replace(
        config, scale_decoder_outputs=config.scales_outputs
    )
    return infer_embeddings(config, tensors, EMBEDDING_KEYS)


def attention_rows(path: str, key: str) -> list[WeightRow]:
    """Returns the rows of one attention's kernels: q, k, v and o."""
    return [
        *linears(path, key, "q", "k", "v"),
        *linears(path, key, "o", inputs=2),
    ]


def feed_forward_rows(config: T5Config, path: str, key: str) -> list[WeightRow]:
    """Returns the rows of one feed-forward's kernels."""
    is_gated = FEED_FORWARD_KINDS[config.feed_forward_proj][1]
    names = ("wi_0", "wi_1", "wo") if is_gated else ("wi", "wo")
    return linears(path, f"{key}.DenseReluDense", *names)


def bias_row(config: T5Config, side: str, attention: str) -> WeightRow:
    """Returns the row of a stack's relative bias, which the first layer or every layer has."""
    layer = "{i}" if config.bias_per_layer else "0"
    key = f"{side}.block.{layer}.layer.0.{attention}.relative_attention_bias.weight"
    return WeightRow(f"{side}/relative_attention_bias/embedding", key)


def decoder_rows(config: T5Config) -> list[WeightRow]:
    """Returns the rows of the decoder's parameters."""
    path, key = "decoder/layers", "decoder.block.{i}.layer"
    return [
        bias_row(config, "decoder", "SelfAttention"),
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_norm.weight"),
        *attention_rows(f"{path}/self_attention", f"{key}.0.SelfAttention"),
        WeightRow(f"{path}/cross_norm/scale", f"{key}.1.layer_norm.weight"),
        *attention_rows(f"{path}/cross_attention", f"{key}.1.EncDecAttention"),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.2.layer_norm.weight"),
        *feed_forward_rows(config, f"{path}/feed_forward", f"{key}.2"),
        WeightRow(
            "decoder/final_norm/scale", "decoder.final_layer_norm.weight"
        ),
    ]


def encoder_rows(config: T5Config) -> list[WeightRow]:
    """Returns the rows of the encoder's parameters."""
    path, key = "encoder/layers", "encoder.block.{i}.layer"
    names = {attention: name for attention, name in _LONGT5_ATTENTIONS.values()}
    attention = names.get(config.encoder_attention, "SelfAttention")
    rows = [
        bias_row(config, "encoder", attention),
        WeightRow(f"{path}/self_norm/scale", f"{key}.0.layer_norm.weight"),
        *attention_rows(f"{path}/self_attention", f"{key}.0.{attention}"),
        WeightRow(f"{path}/ff_norm/scale", f"{key}.1.layer_norm.weight"),
        *feed_forward_rows(config, f"{path}/feed_forward", f"{key}.1"),
        WeightRow(
            "encoder/final_norm/scale", "encoder.final_layer_norm.weight"
        ),
    ]
    if config.encoder_attention == "transient_global":
        rows += [
            WeightRow(
                "encoder/attention/global_relative_attention_bias/embedding",
                f"encoder.block.0.layer.0.{attention}.global_relative_attention_bias.weight",
            ),
            WeightRow(
                f"{path}/self_attention/global_norm/scale",
                f"{key}.0.{attention}.global_input_layer_norm.weight",
            ),
        ]
    return rows


def t5_embedding_rows(config: T5Config) -> EmbeddingRows:
    """Returns the rows of embeddings and output weights, and the keys of their copies."""
    return embedding_rows(config, EMBEDDING_KEYS, stores_shared=True)


def weight_map(config: T5Config) -> WeightMap:
    """Returns the key of every parameter in state dicts of transformers."""
    rows, tied, copies = t5_embedding_rows(config)
    # T5 1.0 was published with a cross-attention bias that no version of the
    # model has ever read.
    ignored = (r"EncDecAttention\.relative_attention_bias",)
    return WeightMap(
        [*rows, *encoder_rows(config), *decoder_rows(config)],
        tied=tied,
        copies=copies,
        ignored=ignored,
    )


# Options common to the families of this architecture, LOCOST included.
SHARED: dict[str, Any] = {
    "module_class": T5,
    "runtime_fields": RUNTIME_FIELDS,
    "infer_from_weights": infer_from_weights,
}

T5_FAMILY = Family(
    name="t5",
    architecture="T5ForConditionalGeneration",
    config_class=T5Config,
    presets=PRESETS,
    read_config=read_config,
    write_config=write_config,
    published_weight_map=weight_map,
    **SHARED,
)
LONGT5_FAMILY = Family(
    name="longt5",
    architecture="LongT5ForConditionalGeneration",
    config_class=LongT5Config,
    presets=LONGT5_PRESETS,
    read_config=read_longt5_config,
    write_config=write_config,
    published_weight_map=weight_map,
    attentions=("local", "transient_global"),
    **SHARED,
)
