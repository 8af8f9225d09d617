"""The model that a training run starts from."""

import dataclasses

import flax.traverse_util
import numpy as np
import pytest

from longsum_jax import Model
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.warm_start import ENCODER_ATTENTION, WarmStart
from longsum_jax.models.registry import get_family

SIZES = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32}


def test_scale_of_embeddings_that_no_shape_shows(draw_params, tmp_path):
    family = get_family("big_bird")
    config = family.config(SIZES)
    Model(family, config, draw_params(family.init_params(config))).save(tmp_path / "model")
    other = dataclasses.replace(config, rescale_embeddings=True)
    assert WarmStart(tmp_path / "model", family, config).fresh == []
    with pytest.raises(InputError, match="computes with rescale_embeddings=False, "):
        WarmStart(tmp_path / "model", family, other)


def test_attention_that_is_drawn_anew(draw_params, tmp_path):
    """LOCOST takes over all of a T5 but its encoder's attention."""
    sizes = {"d_model": 16, "d_kv": 8, "num_heads": 2, "d_ff": 24, "num_layers": 2}
    sizes |= {"vocab_size": 32, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.0}
    t5, locost = get_family("t5"), get_family("locost")
    params = draw_params(t5.init_params(t5.config(sizes)))
    Model(t5, t5.config(sizes), params).save(tmp_path / "t5")
    config = locost.config(sizes | {"d_state": 4})
    with pytest.raises(InputError, match=r"initialize it by config\.init_fresh=encoder_attention"):
        WarmStart(tmp_path / "t5", locost, config)

    start = WarmStart(tmp_path / "t5", locost, config, draws_attention=True)
    before = flax.traverse_util.flatten_dict(params, sep="/")
    after = flax.traverse_util.flatten_dict(start.params, sep="/")
    assert after.keys() == locost.parameter_shapes(config).keys()
    assert "encoder/layers/self_attention/A_imag" in start.fresh
    assert start.fresh == [name for name in after if name.startswith(ENCODER_ATTENTION)]
    for name in after.keys() - start.fresh:
        np.testing.assert_array_equal(after[name], before[name])

    again = WarmStart(tmp_path / "t5", t5, t5.config(sizes), draws_attention=True)
    drawn = flax.traverse_util.flatten_dict(again.params, sep="/")
    for name in again.fresh:
        assert (drawn[name] != before[name]).any()
    with pytest.raises(InputError, match=r"differs from config\.model in .*feed_forward/wi_0"):
        WarmStart(
            tmp_path / "t5", locost, locost.config(sizes | {"d_ff": 32}), draws_attention=True
        )


def test_what_is_drawn_anew_has_a_start():
    sections = {"model": {"family": "t5"}, "task": {"source": "json:x"}, "training": {"steps": 1}}
    with pytest.raises(InputError, match='init_fresh="decoder"; give "encoder_attention"'):
        run_config(sections | {"init_from": "x", "init_fresh": "decoder"})
    with pytest.raises(InputError, match=r"no effect without config\.init_from; leave it out"):
        run_config(sections | {"init_fresh": "encoder_attention"})
