"""bfloat16: softmax, norms and logits stay float32, and nothing overflows where half precision
does."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import longsum_jax
from longsum_jax.layers.layer_groups import layer_params

FAMILIES = ("t5_v1_1", "longt5_global", "led", "t5gemma", "t5gemma2", "longformer2roberta")


def make_batch(pad_id):
    rng = np.random.default_rng(0)
    mask = np.arange(50) < np.array([50, 21])[:, None]
    return (
        np.where(mask, rng.integers(5, 99, mask.shape), pad_id),
        mask,
        rng.integers(5, 99, (2, 7)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_bfloat16_is_close_to_float32(name, saved, loaded):
    half = longsum_jax.load(saved(name)[1], dtype="bfloat16", param_dtype="bfloat16")
    layer = layer_params(half.params["decoder"], 0)
    assert layer["self_attention"]["q"]["kernel"].dtype == jnp.bfloat16
    batch = make_batch(half.config.pad_token_id)
    result, expected = np.asarray(half.logits(*batch)), np.asarray(loaded(name).logits(*batch))
    assert result.dtype == np.float32
    assert np.abs(result - expected).max() < 0.1 * np.abs(expected).max()
    assert (result.argmax(-1) == expected.argmax(-1)).mean() > 0.8


@pytest.mark.slow
def test_activations_beyond_half_precision_stay_finite(saved, tmp_path):
    """T5's feed-forwards grow beyond 65,504; bfloat16 has the range of float32."""
    from safetensors.torch import load_file, save_file

    directory = saved("t5_v1_1")[1]
    state = {
        key: value.clone() for key, value in load_file(directory / "model.safetensors").items()
    }
    state["encoder.block.1.layer.1.DenseReluDense.wo.weight"] *= 1e5
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    model = longsum_jax.load(tmp_path, dtype="bfloat16")
    ids, mask, decoder_ids = make_batch(0)
    states = model.module.apply({"params": model.params}, ids, mask, method="encode")
    assert states.dtype == jnp.bfloat16
    logits = np.asarray(model.logits(ids, mask, decoder_ids))
    expected = np.asarray(longsum_jax.load(tmp_path).logits(ids, mask, decoder_ids))
    assert np.isfinite(logits).all()
    assert np.abs(logits - expected).max() < 0.1 * np.abs(expected).max()

    x = torch.tensor(1e5).half()
    assert torch.isinf(x)  # what half precision would have made of it


def test_saved_in_bfloat16_it_loads_in_pytorch(saved, tmp_path):
    theirs, directory = saved("bart")
    longsum_jax.load(directory, param_dtype="bfloat16").save(tmp_path / "half")
    again = type(theirs).from_pretrained(tmp_path / "half", dtype=torch.bfloat16)
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(again.state_dict()[key], value.bfloat16(), rtol=0, atol=0)
