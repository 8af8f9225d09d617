"""PEGASUS checkpoints whose stored position tables are not the sinusoids.

``test_encoder_decoders`` compares such a model ("pegasus_tables") with transformers; here is what
becomes of its config and of single tables.
"""

import dataclasses
import json

import numpy as np
import pytest
import torch
from reference import assert_close
from safetensors.torch import load_file, save_file

import longsum_jax

KEYS = {side: f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")}


@pytest.fixture
def rewrite(saved, tmp_path):
    """rewrite(change): a directory with the tables of "pegasus" changed by ``change(state)``."""

    def write(change):
        directory = saved("pegasus")[1]
        state = {k: v.clone() for k, v in load_file(directory / "model.safetensors").items()}
        change(state)
        target = tmp_path / "changed"
        target.mkdir()
        save_file(state, target / "model.safetensors", metadata={"format": "pt"})
        (target / "config.json").write_text((directory / "config.json").read_text())
        return target

    return write


def make_batch():
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 99, (2, 33))
    return ids, np.ones(ids.shape, bool), rng.integers(5, 99, (2, 7))


def test_tables_of_both_stacks_are_kept(saved, loaded, tmp_path):
    theirs, ours = saved("pegasus_tables")[0], loaded("pegasus_tables")
    assert ours.config.stored_positions == ("encoder", "decoder")
    ours.save(tmp_path / "ours")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["model_type"] == "pegasus"
    assert config["stored_positions"] == ["encoder", "decoder"]
    state = load_file(tmp_path / "ours" / "model.safetensors")
    for key in KEYS.values():
        torch.testing.assert_close(state[key], theirs.state_dict()[key], rtol=0, atol=0)
    again = longsum_jax.load(tmp_path / "ours")
    assert again.config == ours.config
    assert again.fingerprint == ours.fingerprint


def test_sinusoids_are_computed(loaded):
    ours = loaded("pegasus")
    assert ours.config.stored_positions == ()
    assert not {"source_positions", "target_positions"} & ours.params.keys()
    assert "stored_positions" not in ours.family.config_json(ours.config)


@pytest.mark.parametrize("held_as", [None, torch.float32], ids=["half", "read as float32"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounded_sinusoids_are_computed(rewrite, dtype, held_as):
    def halve(state):
        for key in KEYS.values():
            state[key] = state[key].to(dtype).to(held_as or dtype)

    assert longsum_jax.load(rewrite(halve)).config.stored_positions == ()


def test_a_table_that_differs_by_little_is_kept(rewrite):
    def change(state):
        state[KEYS["encoder"]] += 5e-3

    assert longsum_jax.load(rewrite(change)).config.stored_positions == ("encoder",)


def test_absent_tables_are_computed(rewrite, loaded):
    def drop(state):
        for key in KEYS.values():
            del state[key]

    model = longsum_jax.load(rewrite(drop))
    assert model.config == loaded("pegasus").config
    assert model.fingerprint == loaded("pegasus").fingerprint


@pytest.mark.slow
def test_one_table_may_differ(rewrite, saved):
    def change(state):
        state[KEYS["decoder"]] = state[KEYS["decoder"]].flip(0)

    directory = rewrite(change)
    theirs, ours = type(saved("pegasus")[0]).from_pretrained(directory), longsum_jax.load(directory)
    assert ours.config.stored_positions == ("decoder",)
    ids, mask, decoder_ids = make_batch()
    with torch.no_grad():
        expected = theirs.eval()(
            input_ids=torch.tensor(ids), decoder_input_ids=torch.tensor(decoder_ids)
        )
    assert_close(ours.logits(ids, mask, decoder_ids), expected.logits)


def test_a_table_of_another_shape_is_refused(rewrite):
    def cut(state):
        state[KEYS["encoder"]] = state[KEYS["encoder"]][:-1].clone()

    with pytest.raises(longsum_jax.InputError, match="of a wrong shape"):
        longsum_jax.load(rewrite(cut))


def test_converted_models_continue_the_stored_table(loaded):
    ours = loaded("pegasus_tables")
    table = np.asarray(ours.params["source_positions"])
    longer = ours.extended(200)
    np.testing.assert_array_equal(
        longer.params["source_positions"], np.concatenate([table, table[:40]])
    )
    options = {"first_id": 7, "mask_id": 5, "block_size": 32, "sparse_block_size": 32}
    flat = dataclasses.replace(ours.config, stored_positions=("decoder",))
    assert ours.config.source_position_table() is None
    assert flat.source_position_table().shape == table.shape
    # Global tokens are the mask's embedding at every so many positions of the stored table.
    words = np.asarray(ours.params["shared"])[5] * np.sqrt(np.float32(32))
    globals_ = ours.to_lsg(**options).params["encoder"]["attention"]["global_embeddings"]
    positions = np.asarray(globals_)[1:160] - words
    distances = np.abs(positions[:, None] - table[None]).max(-1).min(1)
    assert np.sort(distances)[:50].max() < 1e-5
