"""Every encoder-decoder beside transformers' PyTorch class: states, logits, decoding, and the way
back."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from reference import (
    ENCODER_DECODERS,
    STORED,
    assert_close,
    further_inputs,
    image_keys,
    in_files,
    unused_keys,
)
from safetensors.torch import load_file, save_file

import longsum_jax
from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.models.embedding_tables import EmbeddingKeys
from longsum_jax.summarization.attended import cross_attention_weights

LENGTH, TARGET = 77, 9  # divides into no block of any model
FAMILIES = [
    pytest.param(name, id=name, marks=[pytest.mark.weekly] * (name in STORED))
    for name in ENCODER_DECODERS
]
# One of every kind of decoder; tests/models/test_families.py has stored beams of others.
WRITERS = ("bart", "mbart", "led", "t5gemma", "t5gemma2", "longformer2roberta")
BEAM = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3}
ANY_PADDING = ("longt5_global", "umt5", "led", "bigbird_pegasus", "t5gemma", "longformer2roberta")
ANY_PADDING += ("t5gemma2",)
# Short inputs of BigBird-PEGASUS are read with full attention.
SHORT = 31


def make_batch(pad_id, length=LENGTH, rows=(LENGTH, 41, 3)):
    """Ids, mask and decoder ids of rows of unequal lengths, padded on the right."""
    rng = np.random.default_rng(length)
    mask = np.arange(length) < np.minimum(rows, length)[:, None]
    ids = np.where(mask, rng.integers(5, 99, mask.shape), pad_id)
    return ids, mask, rng.integers(5, 99, (len(ids), TARGET))


def output_of(model, ids, mask, decoder_ids, **inputs):
    """Returns what a model of transformers makes of a batch of NumPy arrays."""
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    arrays = [torch.tensor(x).long() for x in (ids, mask, decoder_ids)]
    with torch.no_grad():
        return model(**dict(zip(names, arrays, strict=True)), **inputs)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_states_and_logits(name, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask, decoder_ids = make_batch(ours.config.pad_token_id)
    out = output_of(theirs, ids, mask, decoder_ids, **further_inputs(name, ids))
    assert_close(
        np.asarray(ours.encode(ids, mask))[mask], out.encoder_last_hidden_state.numpy()[mask]
    )
    assert_close(ours.logits(ids, mask, decoder_ids), out.logits)


def weekly(*values):
    return pytest.param(*values, marks=pytest.mark.weekly)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, BEAM) for name in WRITERS),
        ("t5", {}),
        *(weekly(name, BEAM) for name in ENCODER_DECODERS if name not in WRITERS),
        *(weekly(name, {}) for name in ("bart", "led", "t5gemma", "longformer2roberta")),
    ],
    ids=lambda value: value if isinstance(value, str) else "beam" if value else "greedy",
)
def test_generated_ids(name, options, saved, loaded):
    """Every family by beams, every kind of decoder without."""
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask, _ = make_batch(ours.config.pad_token_id)
    arguments = options | {"max_new_tokens": 16}
    expected = theirs.generate(
        torch.tensor(ids),
        attention_mask=torch.tensor(mask).long(),
        **arguments,
        **further_inputs(name, ids),
    )
    np.testing.assert_array_equal(ours.generate(ids, mask, **arguments), expected.numpy())


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("t5", {"encoder_no_repeat_ngram_size": 1}),
        pytest.param(
            "bart",
            {"encoder_no_repeat_ngram_size": 2, "num_beams": 3},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_ngrams_of_documents_are_not_written(name, options, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    free = ours.generate([[7, 8, 9]], max_new_tokens=16)[0]
    # Ends with what would be written without the option.
    ids = np.array([[*range(5, 12), *free[free > 4]]])
    assert len(ids[0]) > 8
    arguments = options | {"max_new_tokens": 16, "min_new_tokens": 6}
    expected = theirs.generate(torch.tensor(ids), **arguments, **further_inputs(name, ids))
    np.testing.assert_array_equal(ours.generate(ids, **arguments), expected.numpy())
    size = options["encoder_no_repeat_ngram_size"]
    windows = {tuple(row) for row in np.lib.stride_tricks.sliding_window_view(ids[0], size)}
    written = np.lib.stride_tricks.sliding_window_view(expected.numpy()[0, 1:], size)
    assert not windows.intersection(map(tuple, written))


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_again_it_is_the_same_model_in_pytorch(name, saved, loaded, tmp_path):
    theirs = saved(name)[0]
    loaded(name).save(tmp_path / "ours")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("unexpected_keys", "mismatched_keys"))
    expected, result = theirs.state_dict(), again.state_dict()
    assert expected.keys() == result.keys()
    images = image_keys(expected)
    assert set(report["missing_keys"]) == images
    for key in expected.keys() - unused_keys(name) - images:
        torch.testing.assert_close(
            result[key],
            expected[key],
            rtol=0,
            atol=1e-6 if name == "pegasus" and "embed_positions" in key else 0,
        )
    batch = make_batch(theirs.config.pad_token_id)
    result, expected = output_of(again.eval(), *batch), output_of(theirs, *batch)
    torch.testing.assert_close(result.logits, expected.logits)


@pytest.mark.slow
def test_bigbird_chooses_full_or_sparse_by_this_call_alone(saved, loaded):
    """transformers stays with full attention once it has seen a short input; ours does not."""
    from reference import make_reference

    ours = loaded("bigbird_pegasus")
    for length in (SHORT, LENGTH, SHORT):
        ids, mask, decoder_ids = make_batch(ours.config.pad_token_id, length)
        fresh = make_reference("bigbird_pegasus")
        expected = output_of(fresh, ids, mask, decoder_ids)
        assert_close(ours.logits(ids, mask, decoder_ids), expected.logits)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANY_PADDING)
def test_padding_may_stand_anywhere(name, saved, loaded):
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask, decoder_ids = make_batch(ours.config.pad_token_id)
    mask[0, 5::7] = False
    mask[1:] = mask[1:, ::-1]
    mask[:, 0] = True  # LED's global token
    expected = output_of(theirs, ids, mask, decoder_ids, **further_inputs(name, ids))
    assert_close(ours.logits(ids, mask, decoder_ids), expected.logits)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(0, 0, 0), (5, 1, 2)], ids=["none", "several"])
def test_led_global_attention_is_where_it_is_asked_for(counts, saved, loaded):
    theirs, ours = saved("led")[0], loaded("led")
    ids, mask, decoder_ids = make_batch(ours.config.pad_token_id)
    globals_ = np.zeros_like(ids)
    for row, count in enumerate(counts):
        globals_[row, : 7 * count : 7] = mask[row, : 7 * count : 7]
    expected = output_of(
        theirs, ids, mask, decoder_ids, global_attention_mask=torch.tensor(globals_)
    )
    assert_close(
        ours.logits(ids, mask, decoder_ids, global_attention_mask=globals_), expected.logits
    )
    states = np.asarray(ours.encode(ids, mask, global_attention_mask=globals_))
    assert_close(states[mask], expected.encoder_last_hidden_state.numpy()[mask])


@pytest.mark.slow
def test_led_with_separators_and_every_kth_token(saved):
    """As PRIMERA: separators are global, here with every 17th token and a query."""
    theirs, directory = saved("led")
    ours = longsum_jax.load(directory)
    options = {"global_tokens": (7, 11), "global_every": 17, "query_end_token_id": 5}
    options["max_global_tokens"] = 12
    config = dataclasses.replace(ours.config, **options)
    ours = longsum_jax.Model(ours.family, config, ours.params, None, ours.generation_config)
    ids, mask, decoder_ids = make_batch(config.pad_token_id)
    ids[ids == 5] = 6
    ids[0, [3, 40]], ids[1, 20] = 7, 11
    ids[0, [6, 30]], ids[1, 4] = 5, 5
    expected = np.isin(ids, (7, 11)) | (np.arange(LENGTH) % 17 == 0)
    expected[0, :7] = expected[1, :5] = True
    globals_ = torch.tensor(expected & mask).long()
    out = output_of(theirs, ids, mask, decoder_ids, global_attention_mask=globals_)
    assert_close(ours.logits(ids, mask, decoder_ids), out.logits)
    states = np.asarray(ours.encode(ids, mask))
    assert_close(states[mask], out.encoder_last_hidden_state.numpy()[mask])
    arrays = torch.tensor(ids), torch.tensor(mask).long()
    names = ("input_ids", "attention_mask")
    inputs = dict(zip(names, arrays, strict=True)) | {"global_attention_mask": globals_}
    for search in ({}, {"num_beams": 3}):
        expected = theirs.generate(**inputs, max_new_tokens=8, **search)
        result = ours.generate(ids, mask, max_new_tokens=8, **search)
        np.testing.assert_array_equal(result, expected.numpy())

    # Training finds the global tokens inside of the compiled step.
    theirs.zero_grad()
    logits = theirs(**inputs, decoder_input_ids=torch.tensor(decoder_ids)).logits
    (logits**2).mean().backward()
    expected = {key: x.grad.numpy() for key, x in theirs.named_parameters() if x.grad is not None}

    def loss(params):
        outputs = ours.module.apply({"params": params}, ids, mask, decoder_ids)
        return (outputs**2).mean()

    gradients = to_state_dict(jax.jit(jax.grad(loss))(ours.params), ours.family.weight_map(config))
    for key, gradient in gradients.items():
        if key in expected:
            assert_close(gradient, expected[key])


# Name, tables in the file (equal letters are equal tables; "-" is absent) of: shared, encoder,
# decoder, output; and the flag of tied weights in config.json.
TABLES = [
    ("t5", "a--b", True),
    pytest.param("t5_v1_1", "-a-b", False, marks=pytest.mark.slow),
    pytest.param("longt5_local", "--ab", False, marks=pytest.mark.slow),
    pytest.param("t5", "abcd", True, marks=pytest.mark.slow),
    ("bart", "abcd", False),
    pytest.param("bart", "aaab", True, marks=pytest.mark.slow),
    pytest.param("pegasus", "-aab", True, marks=pytest.mark.slow),
    pytest.param("led", "---a", True, marks=pytest.mark.slow),
    pytest.param("pegasus_x", "-a-a", True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "letters", "flag"), TABLES)
def test_embedding_tables_are_read_as_in_pytorch(name, letters, flag, saved, tmp_path):
    """In T5 the flag only determines whether states are scaled."""
    model, directory = saved(name)
    state = load_file(directory / "model.safetensors")
    prefixes = {"t5": "", "t5_v1_1": "", "longt5_local": "", "led": "led."}
    keys = EmbeddingKeys.with_prefix(prefixes.get(name, "model."))
    keys = [*keys, "lm_head.weight"]
    shape = state[keys[0]].shape
    for key, letter in zip(keys, letters, strict=True):
        state.pop(key, None)
        if letter != "-":
            generator = torch.Generator().manual_seed(ord(letter))
            state[key] = 0.3 * torch.randn(shape, generator=generator)
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text()) | {"tie_word_embeddings": flag}
    config.pop("scale_decoder_outputs", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs, ours = type(model).from_pretrained(tmp_path), longsum_jax.load(tmp_path)
    batch = make_batch(ours.config.pad_token_id)
    expected = output_of(theirs.eval(), *batch, **further_inputs(name, batch[0])).logits
    assert_close(ours.logits(*batch), expected)
    ours.save(tmp_path / "again")
    again, report = type(model).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    result = output_of(again.eval(), *batch, **further_inputs(name, batch[0])).logits
    torch.testing.assert_close(result, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bart", "t5", "t5gemma", "t5gemma2"])
def test_weights_of_cross_attention(saved, loaded, name):
    reference, model = saved(name)[0].eval(), loaded(name)
    reference.set_attn_implementation("eager")
    rng = np.random.default_rng(0)
    ids = rng.integers(3, 99, (2, 37)).astype(np.int32)
    ids[1, 30:] = model.config.pad_token_id
    targets = rng.integers(3, 99, (2, 9)).astype(np.int32)
    groups = rng.random((2, 9, 3)).astype(np.float32)
    start = np.full((2, 1), model.config.decoder_start_token_id)
    mask, decoder_ids = ids != model.config.pad_token_id, np.hstack([start, targets[:, :-1]])
    result = output_of(reference, ids, mask, decoder_ids, output_attentions=True)
    weights = torch.stack(result.cross_attentions).mean((0, 2)).numpy()
    expected = np.einsum("btl,btg->bgl", weights, groups)
    ours = cross_attention_weights(model, ids, targets, groups)
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5gemma", "t5gemma2_wide", "longformer2roberta"])
def test_gradients(name, saved, loaded):
    """Through soft caps, rotary positions, windows, grouped queries and both norms of sublayers;
    through one attention to source and target; through the map between unequal stacks."""
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask, decoder_ids = make_batch(ours.config.pad_token_id, 31)
    names = ("input_ids", "attention_mask", "decoder_input_ids")
    arrays = [torch.tensor(x).long() for x in (ids, mask, decoder_ids)]
    (theirs(**dict(zip(names, arrays, strict=True))).logits ** 2).mean().backward()
    expected = {
        in_files(key): x.grad.numpy() for key, x in theirs.named_parameters() if x.grad is not None
    }
    theirs.zero_grad(set_to_none=True)

    def loss(params):
        logits = ours.module.apply({"params": params}, ids, mask, decoder_ids)
        return jnp.mean(logits**2)

    gradients = to_state_dict(
        jax.jit(jax.grad(loss))(ours.params), ours.family.weight_map(ours.config)
    )
    assert expected.keys() <= gradients.keys()
    for key, gradient in expected.items():
        # Softmax ignores the bias of keys: its gradient is zero, and here a rounding error of the
        # size of the weights' errors.
        largest = np.abs(expected[key.replace("key.bias", "key.weight")]).max()
        # Rows of a batch that are only padding do not exist.
        np.testing.assert_allclose(
            gradients[key], gradient, atol=2e-5 * max(largest, 1e-3), err_msg=key
        )
