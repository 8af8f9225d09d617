"""A config.json that leaves fields out means what transformers takes for them."""

import copy
import functools
import operator

import pytest
import transformers

from longsum_jax.models.registry import get_family

CLASSES = {
    "t5": transformers.T5Config,
    "longt5": transformers.LongT5Config,
    "mt5": transformers.MT5Config,
    "umt5": transformers.UMT5Config,
    "t5gemma": transformers.T5GemmaConfig,
    "t5gemma2": transformers.T5Gemma2Config,
    "bart": transformers.BartConfig,
    "mbart": transformers.MBartConfig,
    "pegasus": transformers.PegasusConfig,
    "pegasus_x": transformers.PegasusXConfig,
    "led": transformers.LEDConfig,
    "bigbird_pegasus": transformers.BigBirdPegasusConfig,
    "bert": transformers.BertConfig,
    "roberta": transformers.RobertaConfig,
    "xlm-roberta": transformers.XLMRobertaConfig,
    "camembert": transformers.CamembertConfig,
    "distilbert": transformers.DistilBertConfig,
    "electra": transformers.ElectraConfig,
    "albert": transformers.AlbertConfig,
    "longformer": transformers.LongformerConfig,
    "big_bird": transformers.BigBirdConfig,
    "mpnet": transformers.MPNetConfig,
    "modernbert": transformers.ModernBertConfig,
}


@pytest.mark.parametrize("name", CLASSES)
def test_absent_fields(name):
    family = get_family(name)
    complete = CLASSES[name]().to_dict()
    result = family.config_of_json({"model_type": name}, "config.json")
    assert result == family.config_of_json(complete, "config.json")


@pytest.mark.parametrize("name", CLASSES)
def test_null_is_accepted_where_transformers_accepts_it(name):
    family = get_family(name)
    complete = CLASSES[name]().to_dict()
    for path in [*paths_of(complete), ("decoder_start_token_id",)]:
        config = copy.deepcopy(complete)
        section = functools.reduce(operator.getitem, path[:-1], config)
        section[path[-1]] = None
        try:
            CLASSES[name].from_dict(copy.deepcopy(config))
        except Exception:
            continue
        family.config_of_json(config, "config.json")


def paths_of(section):
    """Yields the keys of all values that are not sections."""
    for name, value in section.items():
        if name in ("encoder", "decoder", "text_config"):
            yield from ((name, *path) for path in paths_of(value))
        elif name != "model_type":
            yield (name,)


@pytest.mark.parametrize("name", ["t5gemma", "t5gemma2"])
def test_null_start_tokens_are_absent(name):
    config = CLASSES[name]().to_dict()
    config["decoder"]["bos_token_id"] = 9
    config["decoder_start_token_id"] = None
    assert get_family(name).config_of_json(config, "config.json").decoder_start_token_id == 9
