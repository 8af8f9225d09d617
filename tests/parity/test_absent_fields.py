"""A config.json that leaves fields out means what transformers takes for them."""

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
