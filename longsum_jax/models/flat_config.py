"""Translation between configs and the flat keys of config.json.

A family's config is a frozen dataclass. Most of its fields are keys of its
config.json. A few fields ("groups") hold an object with options: of the encoder
attention in use, of the cross-attention in use, of memories and of pages. In
config.json, in the "model" section of a run and in flags, options are flat:
they are keys on the same level as the fields. ``FlatConfig.from_flat`` makes a
config of flat values, and ``FlatConfig.flat`` returns them. ``read_fields``
takes the flat values from a published config.json, whose other entries have the
types of ``PublishedEntries``.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.options import (
    FlatOptions,
    option_names,
    read_options,
)
from longsum_jax.schema import Positive, from_dict

# Keys of config.json and of old runs that have no effect.
_IGNORED = frozenset({"adaptive"})


@dataclass(frozen=True, kw_only=True)
class FlatConfig:
    """A config with flat keys; the base class of ``ModelConfig``.

    Attributes:
        unused_options: pairs (key, value) of ``published_options`` that the
            encoder attention in use does not have, for ``flat``; configs that
            differ only in them are equal.
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
    """

    absent: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    fixed: ClassVar[tuple[str, ...]] = ()
    option_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    option_classes: ClassVar[tuple[type[FlatOptions], ...]] = ()
    published_options: ClassVar[tuple[str, ...]] = ()
    groups: ClassVar[tuple[str, ...]] = ()

    unused_options: tuple[Any, ...] = dataclasses.field(
        default=(), compare=False
    )

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
        """Returns the fields with objects of options, for the attentions that ``values`` select."""
        raise NotImplementedError

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


def read_windows(value: int | Sequence[int]) -> tuple[int, ...]:
    """Returns ``attention_window`` of a config.json, one number if equal for all layers."""
    windows = (value,) if isinstance(value, int) else tuple(value)
    if len(set(windows)) == 1:
        return windows[:1]
    return windows


def write_windows(config: FlatConfig, num_layers: int) -> list[int]:
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


def write_bigbird_attention(encoder_attention: str) -> str:
    """Returns ``attention_type`` for the config.json of a BigBird."""
    if encoder_attention == "bigbird":
        return "block_sparse"
    return "original_full"


def read_fields(
    raw: Mapping[str, Any],
    config_class: type[FlatConfig],
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
