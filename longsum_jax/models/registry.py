"""The model families by name, and look-ups among them."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.registry import CROSS_ATTENTIONS, get_encoder_attention
from longsum_jax.models import bart, bert, locost, t5
from longsum_jax.models import lsg_layout as lsg
from longsum_jax.models.family import OWN_TYPE, Family


def _t5_family(name: str, architecture: str, **fields: Any) -> Family:
    return Family(
        **{
            "name": name,
            "architecture": architecture,
            "module_class": t5.T5,
            "runtime_fields": t5.RUNTIME_FIELDS,
            "names": t5.weight_map,
            "infer_from_weights": t5.infer_from_weights,
            "extra_config": t5.write_config,
        }
        | fields
    )


def _bart_family(
    name: str, architecture: str, config_class: type[bart.BartConfig], *attentions: str, **tiny: Any
) -> Family:
    return Family(
        name=name,
        architecture=f"{architecture}ForConditionalGeneration",
        config_class=config_class,
        module_class=bart.Bart,
        presets=bart.presets(config_class, **tiny),
        runtime_fields=bart.RUNTIME_FIELDS,
        read_config=partial(bart.read_config, config_class=config_class),
        names=bart.weight_map,
        attentions=attentions,
        extra_config=bart.write_config,
    )


def _bert_family(name: str, architecture: str, config_class: type[bert.BertConfig]) -> Family:
    return Family(
        name=name,
        kind="encoder",
        architecture=f"{architecture}ForMaskedLM",
        config_class=config_class,
        module_class=bert.Bert,
        presets=bert.presets(config_class),
        runtime_fields=bert.RUNTIME_FIELDS,
        read_config=partial(bert.read_config, config_class=config_class),
        names=bert.weight_map,
        attentions=("full", "lsg"),
        infer_from_weights=bert.infer_from_weights,
        extra_config=bert.write_config,
    )


_FAMILIES = (
    _t5_family(
        "locost",
        "LOCOSTForConditionalGeneration",
        config_class=locost.LocostConfig,
        presets=locost.PRESETS,
        read_config=locost.read_config,
        names=locost.weight_map,
        attentions=("s4d",),
        # The published evaluation generates greedily up to 512 tokens.
        generation={"max_new_tokens": 512},
        extra_config=locost.write_config,
    ),
    _t5_family(
        "t5",
        "T5ForConditionalGeneration",
        config_class=t5.T5Config,
        presets=t5.PRESETS,
        read_config=t5.read_config,
    ),
    _t5_family(
        "longt5",
        "LongT5ForConditionalGeneration",
        config_class=t5.LongT5Config,
        presets=t5.LONGT5_PRESETS,
        read_config=t5.read_longt5_config,
        attentions=("local", "transient_global"),
    ),
    _bart_family("bart", "Bart", bart.BartConfig, "full", "lsg", max_position_embeddings=512),
    _bart_family(
        "pegasus", "Pegasus", bart.PegasusConfig, "full", "lsg", max_position_embeddings=512
    ),
    _bart_family(
        "pegasus_x",
        "PegasusX",
        bart.PegasusXConfig,
        "block_staggered",
        block_size=32,
        num_global_tokens=8,
    ),
    _bart_family(
        "led",
        "LED",
        bart.LedConfig,
        "longformer",
        attention_window=(32,),
        max_encoder_position_embeddings=1024,
        max_decoder_position_embeddings=512,
    ),
    _bart_family(
        "bigbird_pegasus",
        "BigBirdPegasus",
        bart.BigBirdPegasusConfig,
        "bigbird",
        "full",
        block_size=16,
        max_position_embeddings=1024,
    ),
    _bert_family("bert", "Bert", bert.BertConfig),
    _bert_family("roberta", "Roberta", bert.RobertaConfig),
    _bert_family("distilbert", "DistilBert", bert.DistilBertConfig),
)

FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}


def get_family(name: str) -> Family:
    """The family called ``name``, or an InputError that lists the known ones."""
    if name not in FAMILIES:
        raise InputError(f'unknown model family "{name}"; {did_you_mean(name, FAMILIES)}')
    return FAMILIES[name]


def family_of(raw: Mapping[str, Any], where: str) -> Family:
    """The family that a config.json describes: by model_type, by architecture, or by its keys."""
    model_type = (raw.get("model_type") or "").removeprefix(OWN_TYPE)
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    for family in FAMILIES.values():
        if family.architecture in map(lsg.plain_architecture, raw.get("architectures") or []):
            return family
    if not model_type and {"d_state", "num_ssm_heads"} <= raw.keys():
        return FAMILIES["locost"]  # the published LOCOST config names neither
    raise InputError(
        f'{where}: model_type "{model_type}" is not supported; {did_you_mean(model_type, FAMILIES)}'
    )


def model_config(values: Mapping[str, Any], where: str = "model") -> tuple[Family, Any]:
    """Family and config of a run's "model" section: ``family`` beside the family's own keys."""
    family = get_family(values.get("family", ""))
    return family, family.config({k: v for k, v in values.items() if k != "family"}, where)


def max_input_length(config: Any) -> int | None:
    """Tokens that a model reads at most: its positions, and what its attentions have weights for;
    None without end."""
    names = [get_encoder_attention(config).max_input_length_option]
    if hasattr(config, "cross_attention"):
        names.append(CROSS_ATTENTIONS[config.cross_attention].max_input_length_option)
    limits = [getattr(config, name) for name in names if name]
    limits.append(config.max_source_length)
    return min((limit for limit in limits if limit is not None), default=None)


def preset(family: str, name: str, **overrides: Any) -> dict[str, Any]:
    """A "model" section for configs: the named preset with some keys replaced."""
    known = get_family(family).presets
    if name not in known:
        raise InputError(f'unknown {family} preset "{name}"; {did_you_mean(name, known)}')
    return {"family": family, **dataclasses.asdict(known[name]), **overrides}
