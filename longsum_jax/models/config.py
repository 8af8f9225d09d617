"""The base classes of model configs: the attributes that the library reads, and shared checks.

Other modules read a config through the attributes of ``ModelConfig`` (every
family) and ``EncoderDecoderConfig`` (families with a decoder).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import (
    CROSS_DEFAULTS,
    CROSS_OPTIONS,
    ENCODER_DEFAULTS,
    ENCODER_OPTIONS,
    CrossAttentionOptions,
    EncoderAttentionOptions,
    FlatOptions,
    read_options,
)
from longsum_jax.layers.attention.registry import (
    get_cross_attention,
    get_encoder_attention,
)
from longsum_jax.layers.layer import check_memory_options
from longsum_jax.layers.memory import decoder_memory
from longsum_jax.layers.stack import (
    NO_MEMORY,
    NO_PAGES,
    MemoryOptions,
    PageOptions,
    StackConfig,
)
from longsum_jax.models.flat_config import FlatConfig
from longsum_jax.ops.attention.fused import AttentionBackend
from longsum_jax.ops.remat import Remat
from longsum_jax.ops.ssm.options import Backend
from longsum_jax.schema import (
    Count,
    LengthOrNone,
    Positive,
    check_ranges,
    shortened,
)

MatmulPrecision = Literal["highest", "high", "default"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(FlatConfig):
    """The attributes of every model config.

    There are two ways to make a config:

        T5Config(encoder_attention="lsg", attention=LsgOptions(block_size=64))
        T5Config.of(encoder_attention="lsg", block_size=64)

    The constructor takes fields, with objects of options; without them, the
    attention has its default options. ``of`` takes fields and options by their
    keys in config.json, and ``replace`` changes them in the same way.

    Class attributes are constants of a family. A value that is a constant in
    some families and a field in others is a Python property here.

    Attributes:
        encoder_attention: name in
            ``layers.attention.registry.ENCODER_ATTENTIONS``, patterns joined by
            "+" ("window+global"), or the attention of each layer, beginning
            with the first ("window*3,full").
        attention: options of the encoder attention, an object of its
            ``Options`` class (``layers.attention.options``);
            ``ENCODER_DEFAULTS`` is replaced by its default options.
        attention_backend: kernel for attention to all keys or in windows and
            blocks, in encoders and decoders; see
            ``ops.attention.fused.choose_kernel``. Checkpoints do not store it.
        ssm_backend: backend of convolutions, see
            ``ops.ssm.convolution.ssm_convolution``. Checkpoints do not store
            it.
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
            of storing expensive results; "attention" to store only the results
            of attentions and convolutions; "projections" to store all but the
            hidden states of the feed-forward.
        length_chunk: number of positions that dense maps of the encoder compute
            at a time; 0 for all.
        prefix: class attribute; prefix that the keys of the model without its
            head have in state dicts of the model with a head.
        heads: class attribute; values of ``head`` that models of the family may
            have.
        has_token_types: class attribute; True if the model adds an embedding of
            ``token_type_ids``.

    Raises:
        InputError: a value out of range, an unknown attention, or options of
            another attention.
    """

    prefix: ClassVar[str] = ""
    heads: ClassVar[tuple[str, ...]] = ("none",)
    has_token_types: ClassVar[bool] = False
    option_classes: ClassVar[tuple[type[FlatOptions], ...]] = ENCODER_OPTIONS
    groups: ClassVar[tuple[str, ...]] = ("attention",)

    encoder_attention: str = "full"
    attention: EncoderAttentionOptions = ENCODER_DEFAULTS
    attention_backend: AttentionBackend = "auto"
    ssm_backend: Backend | Literal["auto"] = "auto"

    vocab_size: Positive
    pad_token_id: Count = 0

    dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: MatmulPrecision = "highest"
    remat: Remat = False
    length_chunk: LengthOrNone = 0

    def __post_init__(self) -> None:
        self._complete_options()
        check_ranges(self)
        _check_fixed(self)

    @classmethod
    def _read_objects(
        cls, values: Mapping[str, Any], where: str
    ) -> dict[str, Any]:
        """Returns the options in use by field."""
        name = values.get("encoder_attention", cls.encoder_attention)
        if not isinstance(name, str):
            return {}  # ``from_dict`` reports the type
        defaults = {**cls.option_defaults, **values}
        attention = get_encoder_attention(name)
        options = attention.read_options(name, defaults, where)
        unused = [
            (key, values[key])
            for key in cls.published_options
            if key in values and key not in options.flat()
        ]
        return {"attention": options, "unused_options": tuple(unused)}

    def _complete_options(self) -> None:
        """Sets the options of the attention in use if they are not given.

        Raises:
            InputError: an unknown attention, or options of another one.
        """
        _check_class(self, "attention", EncoderAttentionOptions)
        attention = get_encoder_attention(self.encoder_attention)
        values = self.option_defaults
        if self.attention != ENCODER_DEFAULTS:
            values = self.attention.flat()
        options = attention.read_options(self.encoder_attention, values, "")
        if self.attention == ENCODER_DEFAULTS:
            object.__setattr__(self, "attention", options)
        elif self.attention != options:
            raise InputError(
                f'encoder_attention "{self.encoder_attention}" has other options than '
                f"{type(self.attention).__name__}; give {type(options).__name__}, or change both "
                "by replace"
            )

    @property
    def layer_options(self) -> dict[str, Any]:
        """The fields of ``StackConfig`` that have the same value in all families."""
        return {
            "encoder_attention": self.encoder_attention,
            "attention": self.attention,
            "attention_backend": self.attention_backend,
            "ssm_backend": self.ssm_backend,
            "dtype": self.compute_dtype,
            "remat": self.remat,
        }

    @property
    def head(self) -> str:
        """The model head; "language_model" generates, ``models.bert`` lists others."""
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
        """True if ids or positions select global tokens in addition to the first token."""
        return False

    def with_max_source_length(self, length: int) -> "ModelConfig":
        """Returns this config with positions for inputs of ``length`` tokens.

        Only configs with a ``max_source_length`` have this method.
        """
        raise NotImplementedError

    def source_position_table(self) -> np.ndarray | None:
        """Returns the encoder's position table if it is computed, not learned.

        Returns:
            float32 [max_source_length, d_model]; None if the positions are
            parameters, or if the model has no absolute positions.
        """
        return None

    @property
    def encoder_stack(self) -> StackConfig:
        """Config of the encoder's layers."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class EncoderDecoderConfig(ModelConfig):
    """The attributes of every config of a model with a decoder.

    Attributes:
        cross_attention: name in ``layers.attention.registry.CROSS_ATTENTIONS``.
        cross: options of the cross-attention, an object of its ``Options``
            class; ``CROSS_DEFAULTS`` is replaced by its default options. "full"
            has no options.
        memory: options of the memories that layers carry from segment to
            segment of a document.
        pages: options for dividing sources into pages that are encoded
            separately.
        eos_token_id: id of the token that ends a generated sequence.
        decoder_start_token_id: id of the first token of the decoder's input.
    """

    option_classes: ClassVar[tuple[type[FlatOptions], ...]] = (
        *ENCODER_OPTIONS,
        *CROSS_OPTIONS,
        MemoryOptions,
        PageOptions,
    )
    groups: ClassVar[tuple[str, ...]] = (
        "attention",
        "cross",
        "memory",
        "pages",
    )
    heads: ClassVar[tuple[str, ...]] = ("language_model",)

    cross_attention: str = "full"
    cross: CrossAttentionOptions = CROSS_DEFAULTS
    memory: MemoryOptions = NO_MEMORY
    pages: PageOptions = NO_PAGES

    eos_token_id: Count = 1
    decoder_start_token_id: Count = 0

    @classmethod
    def _read_objects(
        cls, values: Mapping[str, Any], where: str
    ) -> dict[str, Any]:
        objects = super()._read_objects(values, where)
        name = values.get("cross_attention", cls.cross_attention)
        if not isinstance(name, str):
            return {}  # ``from_dict`` reports the type
        cross = get_cross_attention(name)
        return objects | {
            "cross": read_options(cross.Options, values, where),
            "memory": read_options(MemoryOptions, values, where),
            "pages": read_options(PageOptions, values, where),
        }

    def _complete_options(self) -> None:
        super()._complete_options()
        _check_class(self, "cross", CrossAttentionOptions)
        _check_class(self, "memory", MemoryOptions)
        _check_class(self, "pages", PageOptions)
        options = get_cross_attention(self.cross_attention).Options
        if self.cross == CROSS_DEFAULTS:
            object.__setattr__(self, "cross", options())
        elif type(self.cross) is not options:
            raise InputError(
                f'cross_attention "{self.cross_attention}" has other options than '
                f"{type(self.cross).__name__}; give {options.__name__}, or change both by replace"
            )

    @property
    def layer_options(self) -> dict[str, Any]:
        return super().layer_options | {
            "cross_attention": self.cross_attention,
            "cross": self.cross,
            "memory": self.memory,
        }

    @property
    def decoder_memory(self) -> MemoryOptions:
        """The options of the memories of the decoder's layers."""
        return decoder_memory(self.memory)

    @property
    def head(self) -> str:
        """The model head: "language_model", unless the family has other heads."""
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
        return self.memory.is_used


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


def _check_class(config: ModelConfig, group: str, options: type) -> None:
    """Raises an InputError unless a group of options is an object of their class."""
    value = getattr(config, group)
    if not isinstance(value, options):
        raise InputError(
            f"{group} is {shortened(value)}; give an object of {options.__name__}, or flat "
            f"options to {type(config).__name__}.of"
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


def check_attention(config: ModelConfig) -> None:
    """Checks the options of the encoder attention.

    Raises:
        InputError: incompatible options.
    """
    attention = get_encoder_attention(config.encoder_attention)
    attention.check(config.attention, config.max_source_length)


def check_decoder_options(
    config: EncoderDecoderConfig,
    num_heads: int,
    encoder_layers: int,
    decoder_layers: int,
    num_positions: int | None,
) -> None:
    """Checks the options of the cross-attention, of memories and of pages.

    Args:
        num_heads: number of heads of the decoder.
        encoder_layers, decoder_layers: numbers of layers.
        num_positions: number of rows of the encoder's position table, None
            without one.

    Raises:
        InputError: options out of range or incompatible.
    """
    get_cross_attention(config.cross_attention).check(config.cross, num_heads)
    check_memory_options(
        config.memory, config.encoder_attention, encoder_layers, decoder_layers
    )
    _check_pages(config, num_positions)


def _check_pages(
    config: EncoderDecoderConfig, num_positions: int | None
) -> None:
    """Checks the options for dividing a source into pages.

    Raises:
        InputError: an empty page, a page longer than the encoder can read, or
            pages combined with memories.
    """
    pages = config.pages
    length = pages.page_length
    if not length:
        for name in ("page_decoding", "page_recompute"):
            if getattr(pages, name):
                raise InputError(
                    f"{name} is true, but page_length 0 makes no pages; give their length"
                )
        return
    if pages.page_body < 1 or not 0 <= pages.page_context <= pages.page_body:
        raise InputError(
            f"page_length is {length} with page_context {pages.page_context}; give "
            "a context of at most a third of the page"
        )
    if num_positions is not None and length > num_positions:
        raise InputError(
            f"page_length is {length}, but there are positions for {num_positions}; "
            "give at most that"
        )
    option = get_encoder_attention(
        config.encoder_attention
    ).max_input_length_option
    if option and length > config.option(option):
        raise InputError(
            f"page_length is {length}, but {option} {config.option(option)}; give at "
            "most that"
        )
    if config.has_memory:
        raise InputError(
            "page_length cuts a source that memories read segment by segment; give one or the other"
        )


def takes_token_types(config: Any) -> bool:
    """Returns True if a model distinguishes the tokens of two texts by token type ids."""
    return config.has_token_types and config.type_vocab_size > 1
