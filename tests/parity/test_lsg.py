"""Converted models beside transformers' originals: equal on texts of up to two blocks."""

import json

import numpy as np
import pytest
import torch

import longsum_jax
from longsum_jax.summarization.model import Model

EXACT = {
    "mask_first_token": True,
    "block_size": 32,
    "sparse_block_size": 32,
    "first_id": 7,
    "mask_id": 5,
}


def make_batch(length=61):
    rng = np.random.default_rng(3)
    mask = np.arange(length) < np.array([length, 30, 2])[:, None]
    ids = np.where(mask, rng.integers(8, 99, mask.shape), 1)
    ids[:, 0] = 7  # which the first global token stands for
    return ids, mask


# Every kind of head, and every family.
ENCODERS = ["bert", "roberta_answers", "distilbert_tokens", "electra_choices", "albert_labels"]
WEEKLY = ["bert_labels", "roberta", "distilbert", "electra", "xlm_roberta", "camembert_choices"]


@pytest.mark.parametrize(
    "name", [*ENCODERS, *(pytest.param(name, marks=pytest.mark.weekly) for name in WEEKLY)]
)
def test_encoders(name, saved, loaded, tmp_path):
    theirs, ours = saved(name)[0], loaded(name)
    ours = ours.to_lsg(-(-ours.config.max_source_length // 32) * 32, **EXACT)
    ids, mask = make_batch()
    if name.endswith("choices"):
        ids, mask = ids[None], mask[None]
    with torch.no_grad():
        out = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long())
    answers = "start_logits" in out
    expected = torch.stack([out.start_logits, out.end_logits], -1) if answers else out.logits
    expected, result = expected.numpy(), np.asarray(ours.logits(ids, mask))
    real = mask if expected.ndim == 3 else slice(None)
    assert np.abs(result - expected)[real].max() <= 1e-5 * np.abs(expected).max()
    # The published converter gives it this name.
    ours.save(tmp_path / "lsg")
    raw = json.loads((tmp_path / "lsg" / "config.json").read_text())
    assert raw["architectures"] == [f"LSG{type(theirs).__name__}"]
    assert longsum_jax.load(tmp_path / "lsg").config == ours.config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "mbart", "barthez"])
def test_bart(name, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    ours = ours.to_lsg(**EXACT)
    ids, mask = make_batch()
    decoder_ids = np.tile(np.arange(2, 9), (3, 1))
    inputs = {"input_ids": ids, "decoder_input_ids": decoder_ids}
    with torch.no_grad():
        inputs = {key: torch.tensor(value) for key, value in inputs.items()}
        expected = theirs(**inputs, attention_mask=torch.tensor(mask).long()).logits.numpy()
    result = np.asarray(ours.logits(ids, mask, decoder_ids))
    assert np.abs(result - expected).max() <= 1e-5 * np.abs(expected).max()
    # What the decoder sees of the globals matters: without them it has lost the first token.
    config = ours.config.replace(pass_global_tokens_to_decoder=False)
    result = np.asarray(Model(ours.family, config, ours.params).logits(ids, mask, decoder_ids))
    assert np.abs(result - expected).max() > 1e-3
