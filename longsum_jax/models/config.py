"""The base classes of model configs: the attributes that the library reads, and shared checks.

A family's config is a frozen dataclass. Most of its fields are keys of its
config.json. A few fields ("groups") hold an object with options: of the encoder
attention in use, of the cross-attention in use, of memories and of pages. In
config.json, in the "model" section of a run and in flags, options are flat:
they are keys on the same level as the fields. ``ModelConfig.from_flat`` makes a
config of flat values, and ``ModelConfig.flat`` returns them.

Other modules read a config through the attributes of ``ModelConfig`` (every
family) and ``EncoderDecoderConfig`` (families with a decoder).
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

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
    option_names,
    read_options,
)
from longsum_jax.layers.attention.registry import (
    get_cross_attention,
    get_encoder_attention,
)
from longsum_jax.layers.layer import check_memory
from longsum_jax.layers.memory import decoder_memory
from longsum_jax.layers.stack import (
    NO_MEMORY,
    NO_PAGES,
    MemoryOptions,
    PageOptions,
    StackConfig,
)
from longsum_jax.ops.attention.fused import AttentionBackend
from longsum_jax.ops.ssm.options import Backend
from longsum_jax.schema import (
    Count,
    LengthOrNone,
    Positive,
    check_ranges,
    from_dict,
    shortened,
)

MatmulPrecision = Literal["highest", "high", "default"]
# Keys of config.json and of old runs that have no effect.
_IGNORED = frozenset({"adaptive"})


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
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
        unused_options: pairs (key, value) of ``published_options`` that the
            encoder attention in use does not have, for ``flat``; configs that
            differ only in them are equal.
        attention_backend: kernel for attention without a bias or dropout, to
            all keys or in windows and blocks, in encoders and decoders; see
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
            of storing expensive results.
        length_chunk: number of positions that dense maps of the encoder compute
            at a time; 0 for all.
        prefix: class attribute; prefix that the keys of the model without its
            head have in state dicts of the model with a head.
        heads: class attribute; values of ``head`` that models of the family may
            have.
        has_token_types: class attribute; True if the model adds an embedding of
            ``token_type_ids``.
        absent: class attribute; value of a field, by name, if a config.json
            lacks it. transformers leaves out values that equal its defaults,
            while the defaults here are the values of published models; only
            fields for which they differ are listed.
        option_defaults: class attribute; default of options, by key, if it
            differs from the default of their class.
        option_classes: class attribute; classes of the options that a config
            may have.
        published_options: class attribute; keys of options that the published
            config.json has with any attention.
        groups: class attribute; names of the fields with objects of options.
        fixed: class attribute; fields whose value the class in transformers
            ignores in any config.json; here they keep their defaults, and other
            values are rejected.

    Raises:
        InputError: a value out of range, an unknown attention, or options of
            another attention.
    """

    prefix: ClassVar[str] = ""
    heads: ClassVar[tuple[str, ...]] = ("none",)
    has_token_types: ClassVar[bool] = False
    absent: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    fixed: ClassVar[tuple[str, ...]] = ()
    option_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    option_classes: ClassVar[tuple[type[FlatOptions], ...]] = ENCODER_OPTIONS
    published_options: ClassVar[tuple[str, ...]] = ()
    groups: ClassVar[tuple[str, ...]] = ("attention",)

    encoder_attention: str = "full"
    attention: EncoderAttentionOptions = ENCODER_DEFAULTS
    unused_options: tuple[Any, ...] = dataclasses.field(
        default=(), compare=False
    )
    attention_backend: AttentionBackend = "auto"
    ssm_backend: Backend | Literal["auto"] = "auto"

    vocab_size: Positive
    pad_token_id: Count = 0

    dtype: Literal["float32", "bfloat16"] = "float32"
    matmul_precision: MatmulPrecision = "highest"
    remat: bool = False
    length_chunk: LengthOrNone = 0

    def __post_init__(self) -> None:
        self._complete_options()
        check_ranges(self)
        _check_fixed(self)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Returns the config with these fields and options, by key of config.json.

        Keys that are absent have their defaults, the options as well.

        Args:
            **values: values of fields and options, such as ``d_model=512`` and
                ``block_size=64``. Options of attentions that are not in use are
                checked and have no effect.

        Raises:
            InputError: as ``from_flat``.
        """
        return cls.from_flat(values, "")

    @classmethod
    def from_flat(cls, values: Mapping[str, Any], where: str) -> Self:
        """Returns the config with the fields and options in ``values``, the inverse of ``flat``.

        Options of attentions that are not in use are checked and have no
        effect: config.json and the "model" section of a run may have them.

        Args:
            values: values of fields and options by key of config.json; the
                others have their defaults.
            where: name of the values in error messages, "" for none.

        Raises:
            InputError: an unknown key, or a value of the wrong type or out of
                range.
        """
        values = {key: values[key] for key in values if key not in _IGNORED}
        # Checks and converts all options, in use or not.
        options: dict[str, Any] = {}
        for options_class in cls.option_classes:
            options |= read_options(options_class, values, where).flat()
        values |= {key: options[key] for key in values if key in options}
        keys = cls.keys(values)
        for key in values:
            if key not in keys:
                prefix = f"{where}: " if where else ""
                raise InputError(
                    f'{prefix}unknown key "{key}"; {did_you_mean(key, keys)}'
                )
        fields = cls._field_keys()
        entries = {key: values[key] for key in values if key in fields}
        return from_dict(cls, entries | cls._read_objects(values, where), where)

    @classmethod
    def keys(cls, values: Mapping[str, Any]) -> set[str]:
        """Returns all keys that flat values may have.

        Args:
            values: flat values that select the attentions.
        """
        keys = {*cls._field_keys(), *cls.default_options()}
        selected = {
            name: values[name]
            for name in ("encoder_attention", "cross_attention")
            if name in values
        }
        # Attentions of other packages may have keys of their own.
        objects = cls._read_objects(selected, "")
        for group in objects.keys() & set(cls.groups):
            keys |= objects[group].flat().keys()
        return keys - _IGNORED

    @classmethod
    def _field_keys(cls) -> list[str]:
        """Returns the names of the fields that are keys of config.json."""
        left_out = (*cls.groups, "unused_options")
        return [name for name in option_names(cls) if name not in left_out]

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

    def replace(self, **changes: Any) -> Self:
        """Returns the config with other values of fields and options, by key of config.json.

        If the attention changes, the options that both attentions have keep
        their values, and the other options of the new one have their defaults.

        Args:
            **changes: new values, as for ``of``.

        Raises:
            InputError: as ``from_flat``.
        """
        return type(self).from_flat(self.flat() | changes, "")

    def flat(self) -> dict[str, Any]:
        """Returns all fields and the options in use, by key of config.json.

        They include fields that checkpoints do not store, such as ``dtype``;
        the config.json of a family may have further keys or other formats
        (``Family.config_json``).
        """
        values = {name: getattr(self, name) for name in self._field_keys()}
        for group in self.groups:
            values |= getattr(self, group).flat()
        return values | dict(self.unused_options)

    @classmethod
    def flat_defaults(cls) -> dict[str, Any]:
        """Returns the defaults of all fields and options, by key of config.json."""
        keys = cls._field_keys()
        defaults = {
            field.name: field.default
            for field in dataclasses.fields(cls)
            if field.name in keys and field.default is not dataclasses.MISSING
        }
        return defaults | cls.default_options()

    @classmethod
    def default_options(cls) -> dict[str, Any]:
        """Returns the defaults of all options, by key of config.json."""
        defaults: dict[str, Any] = {}
        for options in cls.option_classes:
            for field in dataclasses.fields(options):
                defaults[field.name] = field.default
        return {**defaults, **cls.option_defaults}

    def option(self, key: str) -> Any:
        """Returns the value of an option that is in use, or else its default.

        Args:
            key: key of the option in config.json.

        Raises:
            KeyError: configs of this family have no such option.
        """
        values = self.flat()
        return values[key] if key in values else self.default_options()[key]

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


def read_windows(value: int | Sequence[int]) -> tuple[int, ...]:
    """Returns ``attention_window`` of a config.json, one number if equal for all layers."""
    windows = (value,) if isinstance(value, int) else tuple(value)
    if len(set(windows)) == 1:
        return windows[:1]
    return windows


def write_windows(config: ModelConfig, num_layers: int) -> list[int]:
    """Returns ``attention_window`` for a config.json: one number per layer."""
    windows = config.option("attention_window")
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
    check_memory(
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


def read_fields(
    raw: Mapping[str, Any],
    config_class: type[ModelConfig],
    runtime_fields: Iterable[str],
    json_names: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Returns the flat values for ``config_class`` in a config.json.

    Values of ``config_class.absent`` are added for keys that the file lacks. If
    there are several end-of-sequence tokens, all of which end generation, the
    config gets the first.

    Args:
        raw: content of the config.json; its other keys, and keys with null
            values, are left out.
        config_class: config class of the family.
        runtime_fields: fields that are never read from a file, in addition to
            ``config_class.fixed``.
        json_names: field name to its key in the file, if they differ.
    """
    keys = config_class.keys(raw)
    values = dict(config_class.absent)
    for name in keys.difference(runtime_fields, config_class.fixed):
        key = (json_names or {}).get(name, name)
        if raw.get(key) is not None:
            values[name] = raw[key]
    ends = values.get("eos_token_id")
    if isinstance(ends, list) and ends:
        values["eos_token_id"] = ends[0]
    return values


def takes_token_types(config: Any) -> bool:
    """Returns True if a model distinguishes the tokens of two texts by token type ids."""
    return config.has_token_types and config.type_vocab_size > 1
