"""Relatives of BART that label texts and find answers, beside transformers' PyTorch classes."""

import json

import numpy as np
import pytest
import torch
from reference import READERS, assert_close

import longsum_jax
from longsum_jax.errors import InputError

PAD, EOS = 1, 2


def make_batch(lengths=(61, 30, 2)):
    """Texts that begin with a token of their own and end with one, which others do not have."""
    rng = np.random.default_rng(3)
    lengths = np.array(lengths)[:, None]
    places = np.arange(61)
    ids = np.where(places < lengths - 1, rng.integers(8, 99, (3, 61)), PAD)
    ids = np.where(places == lengths - 1, EOS, ids)
    ids[:, 0] = 7
    return ids, places < lengths


def global_tokens(name, ids):
    """The first token of LED, as its published models are used."""
    is_first = np.arange(ids.shape[1]) == 0
    return {"global_attention_mask": is_first * np.ones_like(ids)} if "led" in name else {}


def output_of(model, ids, mask, **inputs):
    inputs |= {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        out = model(**{name: torch.tensor(x).long() for name, x in inputs.items()})
    if hasattr(out, "start_logits"):
        return torch.stack([out.start_logits, out.end_logits], -1).numpy()
    return out.logits.numpy()


@pytest.mark.parametrize("name", READERS)
def test_logits(name, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask = make_batch()
    extra = global_tokens(name, ids)
    expected, result = output_of(theirs, ids, mask, **extra), ours.logits(ids, mask, **extra)
    assert_close(result, expected) if expected.ndim == 2 else assert_close(
        result[mask], expected[mask]
    )


@pytest.mark.parametrize("name", READERS)
def test_saved_again_it_is_the_same_model_in_pytorch(name, saved, loaded, tmp_path):
    theirs = saved(name)[0]
    loaded(name).save(tmp_path / "ours")
    assert not (tmp_path / "ours" / "generation_config.json").exists()
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    expected, result = theirs.state_dict(), again.state_dict()
    assert expected.keys() == result.keys()
    assert all(torch.equal(result[key], expected[key]) for key in expected)
    np.testing.assert_array_equal(
        output_of(again.eval(), *make_batch()), output_of(theirs, *make_batch())
    )


def test_the_last_end_of_a_text_counts(saved, loaded):
    """Two texts in one row have an end each; transformers asks for as many in every row."""
    ids, mask = make_batch(lengths=(61, 30, 40))
    ids[:, 10] = EOS
    expected = output_of(saved("bart_labels")[0], ids, mask)
    assert_close(loaded("bart_labels").logits(ids, mask), expected)


def test_converted_to_lsg_it_labels_as_before(saved, loaded, tmp_path):
    """Up to two blocks of text; under the published name, which is not that of a model that
    writes."""
    theirs, ours = saved("bart_labels")[0], loaded("bart_labels")
    sizes = {"block_size": 32, "sparse_block_size": 32}
    ours = ours.to_lsg(first_id=7, mask_id=5, mask_first_token=True, **sizes)
    ids, mask = make_batch()
    expected = output_of(theirs, ids, mask)
    assert np.abs(ours.logits(ids, mask) - expected).max() <= 1e-5 * np.abs(expected).max()
    ours.save(tmp_path / "lsg")
    raw = json.loads((tmp_path / "lsg" / "config.json").read_text())
    assert raw["architectures"] == ["LSGBartForSequenceClassification"]
    again = longsum_jax.load(tmp_path / "lsg")
    assert (again.config, again.fingerprint) == (ours.config, ours.fingerprint)


def test_what_such_models_refuse(loaded):
    ours, (ids, mask) = loaded("bart_labels"), make_batch()
    with pytest.raises(InputError, match="row 1 has no end-of-sequence token"):
        ours.logits(np.where(np.arange(3)[:, None] == 1, 8, ids), mask)
    with pytest.raises(InputError, match=r"\(bart, head classification\) cannot generate"):
        ours.generate(ids, mask)
    with pytest.raises(InputError, match="computes logits from input_ids only; leave it out"):
        ours.logits(ids, mask, ids)
