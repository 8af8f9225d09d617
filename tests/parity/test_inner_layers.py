"""States of inner encoder layers beside transformers' hidden states."""

import numpy as np
import pytest
import torch
from reference import assert_close, further_inputs

from longsum_jax.errors import InputError

# Norms that end the encoders of some families; transformers' hidden states of inner layers are
# those before.
FINAL_NORMS = {
    "bert": None,
    "bart": None,
    "distilbert": None,
    "electra": None,
    "albert": None,
    "longformer": None,
    "big_bird": None,
    "led_windows": None,
    "t5": "final_layer_norm",
    "longt5_global": "final_layer_norm",
    "mbart": "layer_norm",
    "pegasus": "layer_norm",
    "pegasus_x": "layer_norm",
    "bigbird_pegasus": "layernorm_embedding",
}


# Every kind of norm, and all layers of one; the others are tapped at the same place.
DAILY = ("bert", "led_windows", "t5", "mbart", "bigbird_pegasus")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.weekly] * (x not in DAILY)) for x in FINAL_NORMS]
)
def test_hidden_states(name, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    encoder = theirs.get_encoder() if ours.family.is_encoder_decoder else theirs.base_model
    mask = np.arange(61) < np.array([61, 30, 2])[:, None]
    rng = np.random.default_rng(3)
    ids = np.where(mask, rng.integers(5, 99, mask.shape), ours.config.pad_token_id)
    with torch.no_grad():
        expected = encoder(
            input_ids=torch.tensor(ids),
            attention_mask=torch.tensor(mask).long(),
            output_hidden_states=True,
            **further_inputs(name, ids),
        ).hidden_states
        if FINAL_NORMS[name]:
            norm = getattr(encoder, FINAL_NORMS[name])
            expected = [*map(norm, expected[:-1]), expected[-1]]
    assert len(expected) == ours.config.encoder_stack.num_layers + 1
    for layer in range(len(expected)) if name == "bert" else [1]:
        states = np.asarray(ours.encode(ids, mask, layer=layer))
        # Some encoders pad to whole blocks and take that off at the end.
        assert_close(states[mask], expected[layer].numpy()[:, : mask.shape[1]][mask])


def test_no_such_layer(loaded):
    ids = np.ones((1, 3), np.int32)
    with pytest.raises(InputError, match="layer=-1 must be at least 0"):
        loaded("bert").encode(ids, layer=-1)
    with pytest.raises(InputError, match="layer=3, but this bert encoder has 2 layers; give 0 to"):
        loaded("bert").encode(ids, layer=3)
