"""Drafts change no summary of any family."""

import numpy as np
import pytest

from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model

SIZES = {"d_model": 16, "num_heads": 2, "d_kv": 8, "d_ff": 16, "num_layers": 1}
BART = {"d_model": 16}
BART |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
BART |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "init_std": 0.5}
GEMMA = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 8}
GEMMA |= {"num_attention_heads": 2, "num_key_value_heads": 1}
FAMILIES = {
    "t5": ("t5", SIZES | {"num_decoder_layers": 1}),
    "bart": ("bart", BART),
    "bart, pages": ("bart", BART | {"page_length": 16, "page_decoding": True}),
    "locost, Hepos": (
        "locost",
        SIZES
        | {"num_decoder_layers": 2}
        | {"d_state": 4, "cross_attention": "hepos", "hepos_stride": 2},
    ),
    "bart, memory": ("bart", BART | {"memory": "attentive", "memory_size": 4}),
    "t5gemma2": (
        "t5gemma2",
        {"encoder": GEMMA, "decoder": GEMMA, "encoder_attention": "full", "initializer_range": 0.5},
    ),
}


@pytest.mark.parametrize(("name", "batch"), [(name, i % 2 + 1) for i, name in enumerate(FAMILIES)])
def test_drafts_change_no_ids(draw_params, name, batch):
    family, sizes = FAMILIES[name]
    family = get_family(family)
    config = family.config({"vocab_size": 24} | sizes)
    model = Model(family, config, draw_params(family.init_params(config)))
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 24, (batch, 40))
    mask = np.ones_like(ids)
    mask[-1, 30:] = 0
    options = {
        "max_new_tokens": 20,
        "min_new_tokens": 12,
        "num_beams": 1,
        "no_repeat_ngram_size": 4,
    }
    expected = model.generate(ids, mask, **options)
    result = model.generate(ids, mask, prompt_lookup_num_tokens=3, **options)
    np.testing.assert_array_equal(result, expected)
    assert len(np.unique(expected)) > 4
