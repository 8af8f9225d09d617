"""The configs of BART and related models: fields, presets, and their config.json.

These models differ in the position of their norms, in their position
embeddings, in biases, and in the encoder's attention.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Bool, Int

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import check_num_windows
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.dense import ACTIVATIONS
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.config import (
    EncoderDecoderConfig,
    check_attention,
    check_decoder_options,
    check_divisible,
    check_known,
    check_token_ids,
)
from longsum_jax.models.embedding_tables import EmbeddingOptions
from longsum_jax.models.flat_config import (
    read_bigbird_attention,
    read_fields,
    read_windows,
    write_bigbird_attention,
    write_windows,
)
from longsum_jax.models.heads import (
    LabelOptions,
    check_labels,
    head_of,
    read_labels,
    write_labels,
)
from longsum_jax.ops.positions import pegasus_frequencies
from longsum_jax.schema import (
    Count,
    Layers,
    Length,
    Positive,
    Rate,
    Size,
    Weight,
)
from longsum_jax.typing import AnyArray

# Config fields that select how to compute; checkpoints do not depend on them.
RUNTIME_FIELDS = ("dtype", "matmul_precision", "remat", "length_chunk", "head")

Head = Literal["language_model", "classification", "question_answering"]
Positions = Literal["learned", "pegasus", "pegasus_x"]
Side = Literal["encoder", "decoder"]
SIDES: tuple[Side, ...] = ("encoder", "decoder")


@dataclass(frozen=True, kw_only=True)
class BartConfig(EmbeddingOptions, LabelOptions):
    """The config of BART; keys as in config.json, defaults of BART large.

    Fields that are not described here have their meaning in transformers.

    Class attributes define properties that are fixed per model type:
        normalize_before: True if layers normalize their input (PEGASUS) instead
            of their output (BART), and a norm follows the last layer.
        normalize_embedding: True if a norm follows the embeddings.
        positions: "learned" for tables, or the model whose sinusoids are used:
            "pegasus" or "pegasus_x".
        position_offset: number of unused rows at the start of a learned table.
        has_logits_bias: True if a stored bias is added to the logits.
        final_norm_name: name of the norm at the end of a stack in state dicts.
        wraps_source: True if, with the heads whose decoder reads the source,
            the decoder input begins with the source's last token instead of
            ``decoder_start_token_id``.

    Attributes:
        head: model head; "language_model" generates text, the other heads also
            read the source with the decoder (Lewis et al. 2020, section 3). In
            checkpoints it is given by the architecture's name.

    Raises:
        InputError: a value out of range, or incompatible values.
    """

    heads: ClassVar[tuple[str, ...]] = get_args(Head)
    normalize_before: ClassVar[bool] = False
    normalize_embedding: ClassVar[bool] = True
    positions: ClassVar[Positions] = "learned"
    position_offset: ClassVar[int] = 2
    has_logits_bias: ClassVar[bool] = True
    final_norm_name: ClassVar[str] = "layer_norm"
    prefix: ClassVar[str] = "model"
    wraps_source: ClassVar[bool] = False

    vocab_size: Positive = 50265
    max_position_embeddings: Length = 1024
    d_model: Size = 1024
    encoder_layers: Layers = 12
    encoder_ffn_dim: Size = 4096
    encoder_attention_heads: Size = 16
    decoder_layers: Layers = 12
    decoder_ffn_dim: Size = 4096
    decoder_attention_heads: Size = 16
    activation_function: str = "gelu"
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    init_std: Weight = 0.02
    scale_embedding: bool = False
    pad_token_id: int = 1
    bos_token_id: Count = 0
    eos_token_id: int = 2
    decoder_start_token_id: int = 2
    classifier_dropout: Rate = 0.0

    head: Head = "language_model"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known(self, "head", self.heads)
        check_labels(self)
        check_token_ids(self)
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            check_divisible(self, "d_model", name)
        check_known(self, "activation_function", ACTIVATIONS)
        check_attention(self)
        check_decoder_options(
            self,
            self.decoder_attention_heads,
            self.encoder_layers,
            self.decoder_layers,
            self.source_rows,
        )

    @property
    def attention_bias(self) -> bool:
        """True if the linear layers of attention have biases."""
        return True

    @property
    def stored_positions(self) -> tuple[Side, ...]:
        """Stacks whose position table is a parameter although ``positions`` are
        sinusoids, see ``PegasusConfig``.
        """
        return ()

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates; 0 if the model has no dropout."""
        rates = (self.dropout, self.attention_dropout, self.activation_dropout)
        return max(*rates, self.classifier_dropout)

    @property
    def source_rows(self) -> int:
        """Number of positions of the encoder's table."""
        return self.max_position_embeddings

    @property
    def target_rows(self) -> int:
        """Number of positions of the decoder's table."""
        return self.max_position_embeddings

    @property
    def max_source_length(self) -> int | None:
        """Maximum source length in tokens, one per position; None if the source is read in pages.

        With heads other than "language_model", the decoder also reads the
        source and needs as many positions.
        """
        if self.head != "language_model":
            if self.pages.page_length:
                return self.target_rows
            return min(self.source_rows, self.target_rows)
        if self.pages.page_length:
            return None
        return self.source_rows

    @property
    def max_target_length(self) -> int | None:
        """Maximum length of the decoder input in tokens, one per position."""
        return self.target_rows

    def with_max_source_length(self, length: int) -> "BartConfig":
        """Returns this config with positions for ``length`` tokens, in both stacks."""
        return dataclasses.replace(self, max_position_embeddings=length)

    def has_position_parameters(self, side: Side) -> bool:
        """Returns True if the position table of a stack is a parameter."""
        return self.positions == "learned" or side in self.stored_positions

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        sizes = (
            self.encoder_layers,
            self.encoder_attention_heads,
            self.encoder_ffn_dim,
        )
        return dataclasses.replace(
            self._stack(*sizes), length_chunk=self.length_chunk
        )

    @property
    def decoder_stack(self) -> StackConfig:
        """Config of the decoder's layers."""
        sizes = (
            self.decoder_layers,
            self.decoder_attention_heads,
            self.decoder_ffn_dim,
        )
        return dataclasses.replace(
            self._stack(*sizes), memory=self.decoder_memory
        )

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
            **self.layer_options,
        )


@dataclass(frozen=True, kw_only=True)
class MbartConfig(BartConfig):
    """The config of mBART, mBART-50 and BARThez; defaults of mBART large.

    A text of the decoder begins with the token of its language, given by
    ``decoder_start_token_id`` (mBART) or by ``forced_bos_token_id`` of
    generation_config.json (mBART-50); otherwise with `<s>`.
    """

    normalize_before: ClassVar[bool] = True
    wraps_source: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, Any]] = {
        "vocab_size": 50265,
        "scale_embedding": False,
    }

    vocab_size: Positive = 250027
    scale_embedding: bool = True
    decoder_start_token_id: int = 0


@dataclass(frozen=True, kw_only=True)
class PegasusConfig(BartConfig):
    """The config of PEGASUS; defaults of PEGASUS large.

    Attributes:
        stored_positions: stacks whose position table is a parameter.
            Checkpoints store the table of sinusoids, and transformers uses the
            stored table; if it differs from the computed table,
            ``infer_from_weights`` adds its stack here.
    """

    heads: ClassVar[tuple[str, ...]] = EncoderDecoderConfig.heads
    normalize_before: ClassVar[bool] = True
    normalize_embedding: ClassVar[bool] = False
    positions: ClassVar[Positions] = "pegasus"
    position_offset: ClassVar[int] = 0
    absent: ClassVar[Mapping[str, Any]] = {
        **MbartConfig.absent,
        "encoder_layers": 12,
        "decoder_layers": 12,
        "activation_function": "gelu",
    }

    vocab_size: Positive = 96103
    encoder_layers: Layers = 16
    decoder_layers: Layers = 16
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
        if self.positions != "learned" and self.d_model % 2:
            raise InputError(
                f"d_model is {self.d_model}, but positions are pairs of sine and cosine; make it "
                "even"
            )

    def source_position_table(self) -> np.ndarray | None:
        """Returns the encoder's table of sinusoids, float32 [rows, d_model], if it is computed."""
        if (
            self.has_position_parameters("encoder")
            or self.positions != "pegasus"
        ):
            return None
        return sinusoids(self)


@dataclass(frozen=True, kw_only=True)
class PegasusXConfig(PegasusConfig):
    """The config of PEGASUS-X; defaults of PEGASUS-X large."""

    positions: ClassVar[Positions] = "pegasus_x"
    attention_bias: ClassVar[bool] = False
    has_logits_bias: ClassVar[bool] = False
    absent: ClassVar[Mapping[str, Any]] = {"activation_function": "gelu"}
    option_defaults: ClassVar[Mapping[str, Any]] = {"block_size": 512}

    encoder_attention: str = "block_staggered"
    max_position_embeddings: Length = 16384

    @property
    def max_source_length(self) -> None:
        """None, because positions are computed and therefore unlimited."""

    max_target_length = max_source_length


@dataclass(frozen=True, kw_only=True)
class LedConfig(BartConfig):
    """The config of LED; defaults of LED large.

    ``attention_window`` has one number for all layers or one per layer.

    Attributes:
        global_tokens: ids of tokens with global attention, in addition to the
            first token of a source. PRIMERA (Xiao et al. 2022, section 3.1) has
            the separator of documents here.
        global_every: distance of further tokens with global attention, from the
            first token on; 0 for none.
        query_end_token_id: id of the token after a query, which precedes the
            document: the line break. All tokens up to it have global attention,
            for models whose sources all begin with a query; None for none.
        max_global_tokens: maximum number of global tokens from
            ``global_tokens`` and queries in training; later ones are not
            global.
    """

    fixed: ClassVar[tuple[str, ...]] = ("scale_embedding",)
    published_options: ClassVar[tuple[str, ...]] = ("attention_window",)
    position_offset: ClassVar[int] = 0
    prefix: ClassVar[str] = "led"

    encoder_attention: str = "longformer"
    max_encoder_position_embeddings: Length = 16384
    max_decoder_position_embeddings: Length = 1024
    global_tokens: tuple[int, ...] = ()
    global_every: Count = 0
    query_end_token_id: Count | None = None
    max_global_tokens: Size = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for index in self.global_tokens:
            if not 0 <= index < self.vocab_size:
                raise InputError(
                    f"global_tokens contains {index}, but ids are from 0 to "
                    f"{self.vocab_size - 1}; remove it"
                )
        end = self.query_end_token_id
        if end is not None and end >= self.vocab_size:
            raise InputError(
                f"query_end_token_id={end}, but ids are from 0 to "
                f"{self.vocab_size - 1}; correct it, or leave it out"
            )
        check_num_windows(self.option("attention_window"), self.encoder_layers)

    @property
    def source_rows(self) -> int:
        """Number of positions of the encoder's table."""
        return self.max_encoder_position_embeddings

    @property
    def target_rows(self) -> int:
        """Number of positions of the decoder's table."""
        return self.max_decoder_position_embeddings

    @property
    def has_more_globals(self) -> bool:
        attention = get_encoder_attention(self.encoder_attention)
        has_globals = "global_indices" in attention.inputs
        return has_globals and (
            bool(self.global_tokens or self.global_every)
            or self.query_end_token_id is not None
        )

    def is_global_token(
        self, ids: Int[AnyArray, "batch length"], numpy: Any
    ) -> Bool[AnyArray, "batch length"]:
        """Returns True for the tokens of sources with global attention.

        Args:
            ids: ids of the sources; of padding, only a first token can be
                global.
            numpy: module that computes, ``numpy`` or ``jax.numpy``.
        """
        positions = numpy.arange(ids.shape[1])
        is_global = numpy.isin(
            ids, numpy.array(self.global_tokens, numpy.int32)
        )
        if self.global_every:
            is_global |= positions % self.global_every == 0
        if self.query_end_token_id is not None:
            is_end = ids == self.query_end_token_id
            num_ends = is_end.cumsum(1)
            is_query = (num_ends == 0) | (is_end & (num_ends == 1))
            is_global |= is_query & is_end.any(1, keepdims=True)
        return (positions == 0) | (is_global & (ids != self.pad_token_id))

    def with_max_source_length(self, length: int) -> "LedConfig":
        """Returns this config with positions for ``length`` tokens of the source."""
        if self.head == "language_model":
            return dataclasses.replace(
                self, max_encoder_position_embeddings=length
            )
        return dataclasses.replace(
            self,
            max_encoder_position_embeddings=max(length, self.source_rows),
            max_decoder_position_embeddings=max(length, self.target_rows),
        )


@dataclass(frozen=True, kw_only=True)
class BigBirdPegasusConfig(PegasusConfig):
    """The config of BigBird-PEGASUS; defaults of BigBird-PEGASUS large.

    Attributes:
        use_bias: True if the linear layers of attention have biases.
    """

    heads: ClassVar[tuple[str, ...]] = BartConfig.heads
    positions: ClassVar[Positions] = "learned"
    final_norm_name: ClassVar[str] = "layernorm_embedding"
    absent: ClassVar[Mapping[str, Any]] = {}

    encoder_attention: str = "bigbird"
    max_position_embeddings: Length = 4096
    activation_function: str = "gelu_new"
    use_bias: bool = False
    bos_token_id: Count = 2
    decoder_start_token_id: int = 2

    @property
    def attention_bias(self) -> bool:
        """``use_bias``, under the name used by related models."""
        return self.use_bias


def sinusoids(config: BartConfig) -> np.ndarray:
    """Returns PEGASUS' position table as stored in state dicts: float32 [rows, d_model].

    It equals ``ops.positions.sinusoidal_positions`` up to the rounding of
    float32.
    """
    positions = np.arange(config.max_position_embeddings)
    angles = positions[:, None] * pegasus_frequencies(config.d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], -1).astype(
        np.float32
    )


_SMALL: dict[str, Any] = {
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
}
_TINY: dict[str, Any] = {
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
_BASE: dict[str, Any] = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
}


def presets(
    config_class: type[BartConfig], **tiny: Any
) -> dict[str, BartConfig]:
    """Returns the large, base, small and tiny models of a config class.

    ``tiny`` contains additional fields of the tiny model, such as smaller
    blocks.
    """
    return {
        "large": config_class(),
        "base": config_class(**_BASE),
        "small": config_class(**_SMALL),
        "tiny": config_class.of(**_TINY, **tiny),
    }


_LABEL_FIELDS = tuple(field.name for field in dataclasses.fields(LabelOptions))
# Suffix of class names in ``architectures`` to head.
_HEADS: dict[str, Head] = {
    "ForConditionalGeneration": "language_model",
    "ForSequenceClassification": "classification",
    "ForQuestionAnswering": "question_answering",
    "Model": "language_model",
}


def read_config(
    raw: Mapping[str, Any], config_class: type[BartConfig]
) -> dict[str, Any]:
    """Returns the fields of ``config_class`` in a config.json.

    Raises:
        InputError: the file describes a model with a different structure.
    """
    head = head_of(raw, _HEADS, "Model")
    # Files of models without labels contain default labels.
    left_out = () if head == "classification" else _LABEL_FIELDS
    values = read_fields(raw, config_class, (*RUNTIME_FIELDS, *left_out)) | {
        "head": head
    }
    if head == "classification":
        values |= read_labels(raw)
    if config_class is BartConfig:
        _check_structure(raw)
    if (
        config_class is BigBirdPegasusConfig
        and "encoder_attention" not in values
    ):
        values["encoder_attention"] = read_bigbird_attention(raw)
    if "attention_window" in values:
        values["attention_window"] = read_windows(values["attention_window"])
    return values


def _check_structure(raw: Mapping[str, Any]) -> None:
    """Raises an InputError unless a config.json with model_type "bart" describes a BART.

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


def write_config(config: BartConfig, name: str) -> dict[str, Any]:
    """Returns the entries of config.json that replace fields, or that only transformers reads.

    Args:
        config: config of the model.
        name: common prefix of the class names in transformers.
    """
    suffixes = {head: suffix for suffix, head in reversed(_HEADS.items())}
    values: dict[str, Any] = {
        "architectures": [name + suffixes[config.head]],
        # transformers ties either all tables or none.
        "tie_word_embeddings": config.tie_word_embeddings
        and config.shared_embeddings,
        "shared_embeddings": None if config.shared_embeddings else False,
    }
    if config.head == "classification":
        values |= write_labels(config)
    else:
        values |= dict.fromkeys(_LABEL_FIELDS)
    if isinstance(config, PegasusConfig):
        values["stored_positions"] = config.stored_positions or None
    if isinstance(config, LedConfig):
        values["attention_window"] = write_windows(
            config, config.encoder_layers
        )
    if isinstance(config, BigBirdPegasusConfig):
        values["attention_type"] = write_bigbird_attention(
            config.encoder_attention
        )
    return values
