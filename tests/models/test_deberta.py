import functools

import flax.linen as nn
import jax
import numpy as np
import pytest

from longsum_jax.checkpoints.state_dict import to_params, to_state_dict
from longsum_jax.errors import InputError
from longsum_jax.models.registry import family_of

RAW = {
    "model_type": "deberta-v2",
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
}


def config_of(raw):
    return family_of(raw, "config.json").config_of_json(raw, "config.json")


def test_fields_that_a_file_lacks():
    config = config_of(RAW)
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (1536, 24, 128100)
    assert config.attention.max_relative_positions == 512  # the number of positions
    shorter = config_of(RAW | {"max_relative_positions": 300})
    assert shorter.attention.max_relative_positions == 300
    assert config_of(RAW | {"pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}) == config


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"relative_attention": None}, "relative_attention is False; only True is supported"),
        ({"share_att_key": False}, "share_att_key is False; only True is supported"),
        ({"share_att_key": None}, "share_att_key is False; only True is supported"),
        ({"norm_rel_ebd": "none"}, "norm_rel_ebd is 'none'; only 'layer_norm' is supported"),
        ({"position_biased_input": None}, "position_biased_input is True; only False is supported"),
        ({"conv_kernel_size": 3}, "conv_kernel_size is 3; only 0 is supported"),
        ({"type_vocab_size": 2}, "type_vocab_size is 2; only 0 is supported"),
        ({"pos_att_type": "c2p"}, "pos_att_type is 'c2p'; only \"p2c|c2p\" is supported"),
        ({"position_buckets": -1}, "position_buckets is -1; only relative positions in buckets"),
        ({"pooler_hidden_act": "gelus"}, 'pooler_hidden_act "gelus" is '),
    ],
)
def test_other_structures_are_refused(change, problem):
    raw = {key: value for key, value in (RAW | change).items() if value is not None}
    with pytest.raises(InputError) as caught:
        config_of(raw)
    assert str(caught.value).startswith(f"config.json: {problem}")


def test_the_vocabulary_head_of_published_files():
    """It has another name there than in the class of transformers."""
    family = family_of(RAW, "config.json")
    config = family.presets["tiny"]
    params = nn.unbox(family.init_params(config)(jax.random.key(0)))
    weight_map, shapes = family.weight_map(config), family.parameter_shapes(config)
    state = to_state_dict(params, weight_map)
    head = "cls.predictions."
    renamed = {
        key.replace(f"{head}transform.", "lm_predictions.lm_head.").replace(
            head, "lm_predictions.lm_head."
        ): value
        for key, value in state.items()
        if "decoder" not in key
    }
    assert len(renamed.keys() - state.keys()) == 5
    renamed["mask_predictions.dense.weight"] = np.zeros((2, 2), np.float32)
    read = to_params(renamed, weight_map, shapes, "file")
    for path, value in jax.tree_util.tree_leaves_with_path(params):
        np.testing.assert_array_equal(value, functools.reduce(lambda t, k: t[k.key], path, read))
