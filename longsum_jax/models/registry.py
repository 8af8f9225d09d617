"""The model families by name, and lookup functions."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.registry import (
    get_cross_attention,
    get_encoder_attention,
)
from longsum_jax.lazy_classes import LazyClasses
from longsum_jax.models import lsg_layout
from longsum_jax.models.config import EncoderDecoderConfig, ModelConfig
from longsum_jax.models.family import LIBRARY_PREFIX, Family
from longsum_jax.models.flat_config import check_entries

_PACKAGE = "longsum_jax.models"

# A family's module is imported on first use, as a model needs one of them.
FAMILIES: LazyClasses[Family] = LazyClasses(
    {
        "locost": f"{_PACKAGE}.locost:FAMILY",
        "t5": f"{_PACKAGE}.t5:T5_FAMILY",
        "longt5": f"{_PACKAGE}.t5:LONGT5_FAMILY",
        "mt5": f"{_PACKAGE}.mt5:MT5",
        "umt5": f"{_PACKAGE}.mt5:UMT5",
        "t5gemma": f"{_PACKAGE}.t5gemma:FAMILY",
        "t5gemma2": f"{_PACKAGE}.t5gemma2:FAMILY",
        "bart": f"{_PACKAGE}.bart:BART",
        "mbart": f"{_PACKAGE}.bart:MBART",
        "pegasus": f"{_PACKAGE}.bart:PEGASUS",
        "pegasus_x": f"{_PACKAGE}.bart:PEGASUS_X",
        "led": f"{_PACKAGE}.bart:LED",
        "bigbird_pegasus": f"{_PACKAGE}.bart:BIGBIRD_PEGASUS",
        "encoder-decoder": f"{_PACKAGE}.bert2bert:FAMILY",
        "bert": f"{_PACKAGE}.bert:BERT",
        "roberta": f"{_PACKAGE}.bert:ROBERTA",
        "xlm-roberta": f"{_PACKAGE}.bert:XLM_ROBERTA",
        "camembert": f"{_PACKAGE}.bert:CAMEMBERT",
        "mpnet": f"{_PACKAGE}.bert:MPNET",
        "distilbert": f"{_PACKAGE}.bert:DISTILBERT",
        "electra": f"{_PACKAGE}.bert:ELECTRA",
        "albert": f"{_PACKAGE}.bert:ALBERT",
        "longformer": f"{_PACKAGE}.bert:LONGFORMER",
        "big_bird": f"{_PACKAGE}.bert:BIG_BIRD",
        "modernbert": f"{_PACKAGE}.modernbert:FAMILY",
        "deberta-v2": f"{_PACKAGE}.deberta:FAMILY",
    }
)

# Suffix of class names in ``architectures`` to the kind of models that no
# family reads.
_UNSUPPORTED_CLASSES = (
    ("ForCausalLM", "a decoder"),
    ("LMHeadModel", "a decoder"),
    ("ForImageClassification", "a vision model"),
    ("ForMaskedImageModeling", "a vision model"),
    ("ForObjectDetection", "a vision model"),
)

# First letters of model_type to the same kinds, for configs that name no class
# with these suffixes.
_UNSUPPORTED_TYPES = {
    **dict.fromkeys(
        (
            "bloom",
            "cohere",
            "deepseek",
            "falcon",
            "gemma",
            "gpt",
            "llama",
            "mistral",
            "mixtral",
            "olmo",
            "opt",
            "phi",
            "qwen",
            "t5gemma2_decoder",
        ),
        "a decoder",
    ),
    **dict.fromkeys(
        ("clip", "dino", "siglip", "swin", "vision-encoder-decoder", "vit"),
        "a vision model",
    ),
    **dict.fromkeys(
        ("speech-encoder-decoder", "speech_to_text", "wav2vec2", "whisper"),
        "a speech model",
    ),
}


def get_family(name: str) -> Family:
    """Returns the family called ``name``.

    Raises:
        InputError: the name is unknown; lists the known names.
    """
    if name not in FAMILIES:
        raise InputError(
            f'unknown model family "{name}"; {did_you_mean(name, FAMILIES)}'
        )
    return FAMILIES[name]


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """Returns the family described by a config.json.

    It is determined by ``model_type``, else by ``architectures``, else by keys
    that only LOCOST has.

    Args:
        raw: content of the config.json.
        where: path of the file, for error messages.

    Raises:
        InputError: an unknown family; suggests the closest one. Or half of an
            encoder-decoder.
    """
    check_entries(raw, where)
    model_type = (raw.get("model_type") or "").removeprefix(LIBRARY_PREFIX)
    for name in raw.get("architectures") or []:
        if name.endswith("EncoderModel"):
            raise InputError(
                f'{where}: architecture "{name}" is the encoder of an encoder-decoder without its '
                "decoder; give a checkpoint with both"
            )
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    architectures = [
        lsg_layout.plain_architecture(x) for x in raw.get("architectures") or []
    ]
    for family in FAMILIES.values():
        if family.architecture in architectures:
            return family
    # The published LOCOST config has neither of the two keys.
    if not model_type and {"d_state", "num_ssm_heads"} <= raw.keys():
        return FAMILIES["locost"]
    name = architectures[0] if architectures else ""
    kinds = [
        kind for suffix, kind in _UNSUPPORTED_CLASSES if name.endswith(suffix)
    ]
    if kinds:
        raise InputError(
            f'{where}: model_type "{model_type}" is {kinds[0]}; this library reads '
            "encoder-decoders and encoders for text; give one of them"
        )
    for prefix, kind in _UNSUPPORTED_TYPES.items():
        if model_type.startswith(prefix):
            raise InputError(
                f'{where}: model_type "{model_type}" is not supported; it is {kind}; '
                "this library reads encoder-decoders and encoders for text"
            )
    raise InputError(
        f'{where}: model_type "{model_type}" is not supported; {did_you_mean(model_type, FAMILIES)}'
    )


def model_config(
    values: Mapping[str, Any], where: str = "model"
) -> tuple[Family, ModelConfig]:
    """Returns the family and config of a run's "model" section.

    Args:
        values: mapping with the key ``family`` and fields of that family's
            config. Fields that are None or left out have their defaults;
            options of ``lsg`` have the defaults of the published code.
        where: name of the section, for error messages.

    Raises:
        InputError: an unknown family or key, or an invalid value.
    """
    family = get_family(values.get("family", ""))
    fields = {key: value for key, value in values.items() if key != "family"}
    defaults = _defaults(family, fields.get("encoder_attention"))
    for key, value in fields.items():
        if value is None:
            fields[key] = defaults.get(key)
    return family, family.config(defaults | fields, where)


def _defaults(family: Family, encoder_attention: str | None) -> dict[str, Any]:
    """Returns the default of every key of a "model" section that has one."""
    defaults = family.config_class.flat_defaults()
    if (encoder_attention or defaults["encoder_attention"]) == "lsg":
        defaults |= lsg_layout.DEFAULTS
    return defaults


def max_input_length(config: ModelConfig) -> int | None:
    """Returns the maximum input length in tokens, None if unlimited.

    The limit is set by the positions, and by the parameters of attentions that
    need a fixed length. The encoder attention of a model with pages reads at
    most one page.
    """
    attention = get_encoder_attention(config.encoder_attention)
    limits = [config.max_source_length]
    has_pages = (
        isinstance(config, EncoderDecoderConfig)
        and config.pages.page_length > 0
    )
    if attention.max_input_length_option and not has_pages:
        limits.append(config.option(attention.max_input_length_option))
    if isinstance(config, EncoderDecoderConfig):
        option = get_cross_attention(
            config.cross_attention
        ).max_input_length_option
        if option:
            passed = attention.num_passed_tokens(config.attention)
            limits.append(config.option(option) - passed)
    return min((limit for limit in limits if limit is not None), default=None)


def flat_section(config: ModelConfig) -> dict[str, Any]:
    """Returns a config as a "model" section: all keys, also of attentions that are not in use.

    Nested dataclasses are dictionaries, as in files.
    """
    values = config.flat_defaults() | config.flat()
    return {
        key: dataclasses.asdict(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type)
        else value
        for key, value in values.items()
        if key in config.keys({})
    }


def preset(family: str, name: str, **overrides: Any) -> dict[str, Any]:
    """Returns a "model" section for run configs: a preset with some keys replaced.

    If ``overrides`` select LSG attention, its options have the defaults of the
    published code, as in ``model_config``, unless overridden.
    ``num_decoder_layers`` is None if the preset has as many as ``num_layers``,
    which it then follows.

    Args:
        family: name in ``FAMILIES``.
        name: name of a preset of the family, such as "base".
        **overrides: fields and options by their keys in config.json.

    Raises:
        InputError: an unknown family or preset.
    """
    presets = get_family(family).presets
    if name not in presets:
        raise InputError(
            f'unknown {family} preset "{name}"; {did_you_mean(name, presets)}'
        )
    values = flat_section(presets[name])
    if (
        "num_decoder_layers" in values
        and values["num_decoder_layers"] == values["num_layers"]
    ):
        values["num_decoder_layers"] = None
    if overrides.get("encoder_attention") == "lsg":
        options = lsg_layout.DEFAULTS
    else:
        options = {}
    return {"family": family, **values, **options, **overrides}
