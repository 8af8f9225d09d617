"""Linformer's limit: what its projection has weights for, whatever an input is padded to."""

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family, max_input_length
from longsum_jax.summarization.model import Model

LIMITS = {
    "linformer_size": 4,
    "linformer_max_length": 70,
    "cross_linformer_size": 4,
    "cross_linformer_max_length": 69,
}
SIZES = {
    "vocab_size": 30,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 8,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
}
LSG = {"encoder_attention": "lsg", "num_global_tokens": 5, "cross_attention": "linformer"}


@pytest.mark.parametrize(
    ("kinds", "limit"),
    [
        ({}, None),
        ({"encoder_attention": "linformer"}, 70),
        ({"cross_attention": "linformer"}, 69),
        ({"encoder_attention": "linformer", "cross_attention": "linformer"}, 69),
        ({"encoder_attention": "full,linformer", "num_layers": 2}, 70),
        # The decoder reads the global tokens in front of the text, too.
        (LSG | {"pass_global_tokens_to_decoder": True}, 64),
        (LSG | {"pass_global_tokens_to_decoder": False}, 69),
    ],
)
def test_the_longest_source_is_that_of_the_shortest_projection(kinds, limit):
    assert max_input_length(get_family("t5").config(SIZES | LIMITS | kinds)) == limit


def test_the_longest_source_is_at_most_the_table_of_positions():
    tiny = get_family("bart").presets["tiny"]
    long = tiny.replace(encoder_attention="linformer", linformer_max_length=1024)
    assert max_input_length(long) == tiny.max_position_embeddings == 512
    assert max_input_length(get_family("bert").presets["tiny"]) == 512


@pytest.mark.slow
def test_padding_does_not_make_an_input_too_long(draw_params):
    """66 tokens would be padded to 128."""
    family = get_family("t5")
    kinds = {"encoder_attention": "linformer", "cross_attention": "linformer"}
    config = family.config(SIZES | LIMITS | kinds)
    model = Model(family, config, draw_params(family.init_params(config)))
    ids = np.arange(140).reshape(2, 70) % 29 + 1
    states = model.encode(ids[:, :66])
    assert states.shape == (2, 66, 8)
    padded = np.pad(ids[:, :66], ((0, 0), (0, 3)))
    np.testing.assert_allclose(model.encode(padded)[:, :66], states, atol=1e-6)
    assert model.generate(ids[:, :69], max_new_tokens=2).shape[0] == 2
    with pytest.raises(
        InputError,
        match="an input of 70 tokens is longer than the 69 tokens that the Linformer proj",
    ):
        model.generate(ids, max_new_tokens=2)
    with pytest.raises(
        InputError,
        match="an input of 71 tokens is longer than the 70 tokens that the Linformer proj",
    ):
        model.encode(np.ones((1, 71), int))
