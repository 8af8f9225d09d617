"""The base classes of model configs: the attributes that the library reads, and shared checks.

A family's config is a frozen dataclass whose fields are the keys of its
config.json. Other modules read a config through the attributes of
``ModelConfig`` (every family) and ``EncoderDecoderConfig`` (families with a
decoder), and through the options of its attentions.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import (
    CrossAttentionOptions,
    EncoderAttentionOptions,
)
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.stack import MemoryOptions, PageOptions, StackConfig
from longsum_jax.schema import Count, LengthOrNone, Positive, from_dict

MatmulPrecision = Literal["highest", "high", "default"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(EncoderAttentionOptions):
    """The attributes of every model config.

    In addition to these fields and properties a config has the options of all
    encoder attentions (``EncoderAttentionOptions``), so that any attention
    works in any encoder.

    Class attributes define properties that are fixed in every family.
    Properties that are fixed in some families and fields in others are Python
    properties here.

    Attributes:
        vocab_size: number of rows of the embedding table; ids are below it.
        pad_token_id: id that pads rows to a common length.
        dtype: dtype of the computation; parameters are stored in float32 unless
            loaded otherwise.
        matmul_precision: precision of float32 matmuls. "highest" is full
            float32 precision on every device; "default" is the device's
            default: factors rounded to bfloat16 on TPUs, to TF32 on GPUs;
            "high" is between them on TPUs. Matmuls of bfloat16 arrays and on
            CPUs are not affected.
        remat: True to recompute layers from their inputs for gradients instead
            of storing expensive results.
        length_chunk: number of positions that dense maps of the encoder compute
            at a time; 0 for all.
        prefix: prefix of the bare model's keys in state dicts.
        heads: heads that models of the family may have.
        has_token_types: True if the model adds an embedding of
            ``token_type_ids``.
        absent: meaning of fields that a config.json lacks, if it differs from
            the default here. Defaults are the values of published models;
            transformers' defaults differ.
        fixed: fields whose value the class in transformers ignores in any
            config.json; here they keep their defaults, and other values are
            rejected.
    """

    prefix: ClassVar[str] = ""
    heads: ClassVar[tuple[str, ...]] = ("none",)
    has_token_types: ClassVar[bool] = False
    absent: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    fixed: ClassVar[tuple[str, ...]] = ()

    vocab_size: Positive
    pad_token_id: Count = 0

    dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: MatmulPrecision = "highest"
    remat: bool = False
    length_chunk: LengthOrNone = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_fixed(self)

    @property
    def head(self) -> str:
        """The model head; "language_model" generates with a decoder, ``models.bert``
        lists others.
        """
        return "none"

    @property
    def position_offset(self) -> int:
        """Number of rows of the position table before the row of the first token."""
        return 0

    @property
    def scale_embedding(self) -> bool:
        """True if embeddings of tokens are multiplied by sqrt(d_model)."""
        return False

    @property
    def bos_token_id(self) -> int | None:
        """Id of the first token of a text, None if the config does not define one."""
        return None

    @property
    def eos_token_id(self) -> int | None:
        """Id of the last token of a text, None if the config does not define one."""
        return None

    @property
    def d_model(self) -> int:
        """Size of a hidden state."""
        raise NotImplementedError

    @property
    def dropout_rate(self) -> float:
        """The largest of the dropout rates; 0 if the model has no dropout."""
        raise NotImplementedError

    @property
    def compute_dtype(self) -> Any:
        """``dtype`` as a dtype object."""
        return jnp.dtype(self.dtype)

    @property
    def max_source_length(self) -> int | None:
        """Maximum input length in tokens, special tokens included; None if unlimited.

        This is only the limit of the positions; ``registry.max_input_length``
        adds the limits of the attentions.
        """
        return None

    @property
    def has_more_globals(self) -> bool:
        """True if global tokens besides the first one are selected by their ids or places."""
        return False

    def with_max_source_length(self, length: int) -> "ModelConfig":
        """Returns this config with positions for inputs of ``length`` tokens.

        Only configs with a ``max_source_length`` have this method.
        """
        raise NotImplementedError

    def source_position_table(self) -> np.ndarray | None:
        """Returns the encoder's position table, float32 [max_source_length, d_model], if computed.

        None if the positions are parameters, or if the model has no absolute
        positions.
        """
        return None

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(
    ModelConfig, CrossAttentionOptions, MemoryOptions, PageOptions
):
    """The attributes of every config of a model with a decoder.

    The options of cross-attentions, of memories and of pages are also fields.

    Attributes:
        eos_token_id: id of the token that ends a generated sequence.
        decoder_start_token_id: id of the first token of the decoder's input.
    """

    heads: ClassVar[tuple[str, ...]] = ("language_model",)

    eos_token_id: Count = 1
    decoder_start_token_id: Count = 0

    @property
    def head(self) -> str:
        """Returns "language_model", unless a family has other heads."""
        return "language_model"

    @property
    def max_target_length(self) -> int | None:
        """Maximum length of the decoder input in tokens; None if unlimited."""
        return None

    @property
    def decoder_stack(self) -> StackConfig:
        """Config of the decoder's layers."""
        raise NotImplementedError

    @property
    def has_memory(self) -> bool:
        """True if states are carried from one segment of a document to the next."""
        return self.memory != "none" or self.salient_vectors > 0


@dataclass(frozen=True)
class PublishedEntries:
    """The types of config.json entries that are not config fields, or have other types there."""

    model_type: str | None = None
    architectures: tuple[str, ...] | None = None
    base_model_prefix: str | None = None
    attention_type: str | None = None
    encoder_attention_type: str | None = None
    attention_window: int | tuple[int, ...] | None = None
    global_attn_every_n_layers: Positive | None = None
    id2label: Mapping[str, Any] | None = None
    layer_types: tuple[str, ...] | None = None
    local_attention: Positive | None = None
    num_global_tokens: int | None = None
    num_ssm_heads: int | None = None
    problem_type: str | None = None
    rope_parameters: Mapping[str, Any] | None = None
    rope_scaling: Mapping[str, Any] | None = None
    sliding_window: int | None = None
    sliding_window_pattern: int | None = None
    sparsity_type: str | None = None
    tie_word_embeddings: bool | None = None
    vocab_size: int | None = None

    def __post_init__(self) -> None:
        labels = self.id2label or {}
        wrong = next((x for x in labels if not str(x).isdecimal()), None)
        if wrong is not None:
            raise InputError(
                f'id2label has the key "{wrong}"; keys are the numbers of labels'
            )


def check_entries(raw: Mapping[str, Any], where: str) -> None:
    """Checks the types of config.json entries that are not fields; fields are checked separately.

    Raises:
        InputError: an entry of the wrong type.
    """
    names = {field.name for field in dataclasses.fields(PublishedEntries)}
    from_dict(
        PublishedEntries,
        {name: raw[name] for name in names if name in raw},
        where,
    )


def check_token_ids(config: ModelConfig) -> None:
    """Raises an InputError if the vocabulary does not contain the id of a special token."""
    for name in (
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
    ):
        index = getattr(config, name, None)
        if index is not None and not 0 <= index < config.vocab_size:
            raise InputError(
                f"{name} is {index}, but vocab_size is {config.vocab_size}; give an id below it"
            )


def _check_fixed(config: ModelConfig) -> None:
    """Raises an InputError for a field of ``fixed`` that differs from its default."""
    for name in config.fixed:
        value, default = getattr(config, name), getattr(type(config), name)
        if value != default:
            raise InputError(
                f"{name} is {value}, but models of this family have {default}; leave it out"
            )


def check_divisible(config: ModelConfig, name: str, divisor: str) -> None:
    """Raises an InputError unless the size ``name`` is a multiple of the size ``divisor``."""
    size, by = getattr(config, name), getattr(config, divisor)
    if size % by:
        raise InputError(
            f"{name} {size} is not divisible by {divisor} {by}; change either"
        )


def check_known(
    config: ModelConfig, name: str, supported: Iterable[str]
) -> None:
    """Raises an InputError that lists ``supported`` if it lacks the value of field ``name``."""
    value = getattr(config, name)
    if value not in supported:
        raise InputError(
            f'{name} "{value}" is unknown; {did_you_mean(value, supported)}'
        )


def read_windows(value: int | Sequence[int]) -> tuple[int, ...]:
    """Returns ``attention_window`` of a config.json, one number if equal for all layers."""
    windows = (value,) if isinstance(value, int) else tuple(value)
    if len(set(windows)) == 1:
        return windows[:1]
    return windows


def write_windows(config: ModelConfig, num_layers: int) -> list[int]:
    """Returns ``attention_window`` for a config.json: one number per layer."""
    windows = config.attention_window
    return list(windows * num_layers if len(windows) == 1 else windows)


# attention_type in config.json to encoder attention.
_BIGBIRD_ATTENTIONS = {"block_sparse": "bigbird", "original_full": "full"}


def read_bigbird_attention(raw: Mapping[str, Any]) -> str:
    """Returns the encoder attention given by the config.json of a BigBird.

    Raises:
        InputError: an unknown attention type.
    """
    name = raw.get("attention_type", "block_sparse")
    if name not in _BIGBIRD_ATTENTIONS:
        suggestion = did_you_mean(name, _BIGBIRD_ATTENTIONS)
        raise InputError(f'attention_type "{name}" is unknown; {suggestion}')
    return _BIGBIRD_ATTENTIONS[name]


def write_bigbird_attention(config: ModelConfig) -> str:
    """Returns ``attention_type`` for the config.json of a BigBird."""
    if config.encoder_attention == "bigbird":
        return "block_sparse"
    return "original_full"


def check_pages(
    config: EncoderDecoderConfig, num_positions: int | None
) -> None:
    """Checks the options for dividing a source into pages.

    Args:
        num_positions: number of rows of the encoder's position table, None
            without one.

    Raises:
        InputError: an empty page, a page longer than the encoder can read, or
            pages combined with memories.
    """
    if not config.page_length:
        for name in ("page_decoding", "page_recompute"):
            if getattr(config, name):
                raise InputError(
                    f"{name} is true, but page_length 0 makes no pages; give their length"
                )
        return
    if config.page_body < 1 or not 0 <= config.page_context <= config.page_body:
        raise InputError(
            f"page_length is {config.page_length} with page_context {config.page_context}; give "
            "a context of at most a third of the page"
        )
    if num_positions is not None and config.page_length > num_positions:
        raise InputError(
            f"page_length is {config.page_length}, but there are positions for {num_positions}; "
            "give at most that"
        )
    option = get_encoder_attention(config).max_input_length_option
    if option and config.page_length > getattr(config, option):
        raise InputError(
            f"page_length is {config.page_length}, but {option} {getattr(config, option)}; give at "
            "most that"
        )
    if config.has_memory:
        raise InputError(
            "page_length cuts a source that memories read segment by segment; give one or the other"
        )


def read_fields(
    raw: Mapping[str, Any],
    config_class: type[ModelConfig],
    runtime_fields: Iterable[str],
    json_names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the fields of ``config_class`` in a config.json, and its defaults for absent fields
    if they differ from the values of ``config_class``.

    If there are several end-of-sequence tokens, all of which end generation,
    the config gets the first.

    Args:
        raw: content of the config.json; its other keys, and keys with null
            values, are left out.
        runtime_fields: fields that are never read from a file, like
            ``config_class.fixed``.
        json_names: field name to its key in the file, if they differ.
    """
    fields = {field.name for field in dataclasses.fields(config_class)}
    values = dict(config_class.absent)
    for name in fields.difference(runtime_fields, config_class.fixed):
        key = (json_names or {}).get(name, name)
        if raw.get(key) is not None:
            values[name] = raw[key]
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and ends:
        values["eos_token_id"] = ends[0]
    return values
