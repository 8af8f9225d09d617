"""The model that a training run starts from."""

import dataclasses

import pytest

from longsum_jax import Model
from longsum_jax.errors import InputError
from longsum_jax.experiment.warm_start import WarmStart
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
