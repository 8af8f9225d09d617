"""BERT and its relatives beside transformers' PyTorch classes: states, logits of all heads,
and the way back."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import torch
from reference import (
    ENCODERS,
    HEADS,
    STORED,
    assert_close,
    further_inputs,
    make_reference,
    unused_keys,
)

import longsum_jax
from longsum_jax.checkpoints.sentence_modules import (
    SentenceModules,
    read_sentence_modules,
    write_sentence_modules,
)
from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.errors import InputError
from longsum_jax.inference.sentences import sentence_encoder
from longsum_jax.models.registry import max_input_length
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer


def daily_or_weekly(names, is_weekly):
    marks = {True: [pytest.mark.weekly], False: []}
    return [pytest.param(name, id=name, marks=marks[is_weekly(name)]) for name in names]


FAMILIES = daily_or_weekly(ENCODERS, STORED.__contains__)


def make_batch(pad_id, length=61):
    rng = np.random.default_rng(3)
    mask = np.arange(length) < np.array([length, 30, 2])[:, None]
    return np.where(mask, rng.integers(5, 99, mask.shape), pad_id), mask


def output_of(model, ids, mask, **inputs):
    """Logits of a model of transformers, states where it has no head."""
    with torch.no_grad():
        out = model(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long(), **inputs)
    if hasattr(out, "start_logits"):
        return torch.stack([out.start_logits, out.end_logits], -1).numpy()
    return (out.logits if hasattr(out, "logits") else out.last_hidden_state).numpy()


def inputs_of(name, ids, mask):
    """Ids and mask, with the separators that Longformer finds a question or choice by; three rows
    as one of three choices, for models that choose."""
    if name in ("longformer_answers", "longformer_choices"):
        ids = ids.copy()
        ids[:, [10, 11, 25]] = 2
    return [x[None] if name.endswith("choices") else x for x in (ids, mask)]


# Their heads differ from RoBERTa's by name alone; weights and keys are tested below.
ROBERTAS = ("xlm_roberta_", "camembert_")
# Every head on BERT, and on those whose heads are others; every family with a head of its own.
WITH_ALL_HEADS = ("bert_", "modernbert_", "longformer_", "electra_choices")
KINDS_OF_HEADS = ("_answers", "_tokens", "_choices", "_causal")


def shows_no_more(name):
    """Whether its outputs are stored, or its family and its head are shown by others."""
    is_pair = name.endswith(KINDS_OF_HEADS) and not name.startswith(WITH_ALL_HEADS)
    return name in STORED or is_pair


@pytest.mark.parametrize(
    "name",
    daily_or_weekly([x for x in ENCODERS if not x.startswith(ROBERTAS)], shows_no_more),
)
def test_states_and_logits(name, saved, loaded):
    """Logits, and states where no head over labels or later tokens shows them already."""
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask = make_batch(ours.config.pad_token_id)
    if name not in HEADS and not name.endswith(("_labels", "_causal")):
        base = getattr(theirs, theirs.base_model_prefix, theirs)
        expected = output_of(base, ids, mask, **further_inputs(name, ids))
        assert_close(np.asarray(ours.encode(ids, mask))[mask], expected[mask])
    if not name.endswith("states"):
        inputs = inputs_of(name, ids, mask)
        expected, result = output_of(theirs, *inputs), np.asarray(ours.logits(*inputs))
        assert_close(result, expected) if expected.ndim == 2 else assert_close(
            result[mask], expected[mask]
        )


@pytest.mark.parametrize("name", FAMILIES)
def test_saved_again_it_is_the_same_model_in_pytorch(name, saved, loaded, tmp_path):
    theirs = saved(name)[0]
    loaded(name).save(tmp_path / "ours")
    again, report = type(theirs).from_pretrained(tmp_path / "ours", output_loading_info=True)
    unused = unused_keys(name)
    assert set(report["missing_keys"]) == unused
    assert not any(report[kind] for kind in ("unexpected_keys", "mismatched_keys"))
    expected, result = theirs.state_dict(), again.state_dict()
    assert expected.keys() == result.keys()
    assert all(torch.equal(result[key], expected[key]) for key in expected.keys() - unused)
    inputs = inputs_of(name, *make_batch(theirs.config.pad_token_id))
    result, expected = output_of(again.eval(), *inputs), output_of(theirs, *inputs)
    if name.endswith("choices"):  # a single score, whose sum depends on where the weights lie
        assert_close(result, expected)
    else:
        np.testing.assert_array_equal(result, expected)


def test_arrays_of_choices(loaded):
    """They have three axes, padding is told from ids, and token types go with them."""
    ours = loaded("bert_choices")
    ids, mask = make_batch(0)
    result = ours.logits(np.stack([ids, ids[::-1]], 1))
    assert result.shape == (3, 2)
    np.testing.assert_allclose(result[::-1, 1], result[:, 0], rtol=1e-5)
    np.testing.assert_allclose(result[:, 0], ours.logits(ids[None], mask[None])[0], rtol=1e-5)
    types = np.ones_like(ids)[None]
    assert np.abs(ours.logits(ids[None], token_type_ids=types)[0] - result[:, 0]).max() > 1e-2
    with pytest.raises(InputError, match=r"\(3, 61\), but this model chooses among texts; give"):
        ours.logits(ids)
    with pytest.raises(
        InputError, match=r"attention_mask has shape \(1, 61\), input_ids \(1, 3, 61"
    ):
        ours.logits(ids[None], mask[:1])


def test_gradients_of_shared_layers(saved, loaded):
    """ALBERT: of its embeddings of another size, and of the one layer that is applied thrice."""
    theirs, ours = saved("albert")[0], loaded("albert")
    ids, mask = make_batch(0)
    theirs.zero_grad()
    out = theirs(input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long()).logits
    (out[torch.tensor(mask)] ** 2).mean().backward()

    def loss(params):
        logits = ours.module.apply({"params": params}, ids, mask)
        return (logits**2).mean(where=mask[..., None])

    gradients = jax.jit(jax.grad(loss))(ours.params)
    result = to_state_dict(gradients, ours.family.weight_map(ours.config))
    expected = {key: parameter.grad for key, parameter in theirs.named_parameters()}
    assert result.keys() == expected.keys() - {"predictions.decoder.bias"}
    largest = max(gradient.abs().max() for gradient in expected.values() if gradient is not None)
    for key, value in result.items():
        np.testing.assert_allclose(value, expected[key], rtol=0, atol=1e-5 * largest, err_msg=key)


def test_an_electra_discriminator_is_read_as_a_bare_model(saved, tmp_path):
    import transformers

    config = saved("electra")[0].config
    torch.manual_seed(0)
    theirs = transformers.ElectraForPreTraining(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = longsum_jax.load(tmp_path)
    assert ours.config.head == "none"
    ids, mask = make_batch(0)
    expected = output_of(theirs.electra, ids, mask)
    assert_close(np.asarray(ours.encode(ids, mask))[mask], expected[mask])


@pytest.mark.parametrize("key", ["num_hidden_groups", "inner_group_num"])
def test_alberts_of_several_layers_are_refused(key, saved, tmp_path):
    config = json.loads((saved("albert")[1] / "config.json").read_text()) | {key: 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=f"{key} is 2; only 1 is supported"):
        longsum_jax.load(tmp_path)


@pytest.mark.slow
def test_longformer_global_attention_is_where_it_is_asked_for(saved, loaded):
    theirs, ours = saved("longformer")[0], loaded("longformer")
    ids, mask = make_batch(1)
    globals_ = np.zeros_like(ids)
    for row, columns in enumerate([[0, 7, 50], [29], []]):
        globals_[row, columns] = 1
    expected = output_of(theirs, ids, mask, global_attention_mask=torch.tensor(globals_))
    result = np.asarray(ours.logits(ids, mask, global_attention_mask=globals_))
    assert_close(result[mask], expected[mask])


@pytest.mark.parametrize("name", ["longformer_answers", "longformer_choices"])
def test_questions_and_choices_of_longformer_have_room_among_global_tokens(name, loaded):
    """In the first row 10 tokens stand before the first separator, 49 after the second."""
    ours = loaded(name)
    config = dataclasses.replace(ours.config, max_global_tokens=9)
    short = Model(ours.family, config, ours.params)
    ids, mask = inputs_of(name, *make_batch(1))
    kind, count = ("question", 10) if name.endswith("answers") else ("choice", 49)
    problem = f"row 0 has {count} tokens of a {kind}, .* at most max_global_tokens=9"
    with pytest.raises(InputError, match=problem):
        short.logits(ids, mask)
    first = np.zeros_like(ids)
    first[..., 0] = 1
    assert np.isfinite(ours.logits(ids, mask, global_attention_mask=first)).all()


def test_short_inputs_of_big_bird_have_full_attention(loaded):
    """In this call alone; transformers stays with full attention from then on."""
    ours = loaded("big_bird")
    for length in (33, 61):
        ids, mask = make_batch(0, length)
        expected = output_of(make_reference("big_bird"), ids, mask)
        assert_close(np.asarray(ours.logits(ids, mask))[mask], expected[mask])


def test_token_types_reach_bert(saved, loaded):
    theirs, ours = saved("bert")[0], loaded("bert")
    ids, mask = make_batch(0)
    types = (np.arange(ids.shape[1]) > 20).astype(np.int32) * np.ones_like(ids)
    expected = output_of(theirs, ids, mask, token_type_ids=torch.tensor(types).long())
    assert_close(np.asarray(ours.logits(ids, mask, token_type_ids=types))[mask], expected[mask])


def test_positions_of_roberta_begin_behind_its_padding_token(tmp_path):
    """The longest input ends at the last row of the table."""
    import transformers

    _, config_class, values = ENCODERS["roberta"]
    config = config_class(**values | {"pad_token_id": 3, "max_position_embeddings": 20})
    torch.manual_seed(0)
    theirs = transformers.RobertaModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = longsum_jax.load(tmp_path)
    assert max_input_length(ours.config) == 16
    ids, mask = make_batch(3, length=16)
    expected = output_of(theirs, ids, mask)
    assert_close(np.asarray(ours.encode(ids, mask))[mask], expected[mask])


def test_the_pooler_of_a_bare_model_is_kept(saved, loaded):
    theirs, ours = saved("bert_states")[0], loaded("bert_states")
    ids, mask = make_batch(0)
    states = ours.encode(ids, mask)
    with torch.no_grad():
        expected = theirs(
            input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long()
        ).pooler_output
    assert_close(
        ours.module.apply({"params": ours.params}, states, method="pool"), expected.numpy()
    )


def test_names_of_old_files_are_understood(saved, loaded, tmp_path):
    """gamma and beta, stored copies and position ids, and heads that masked language modelling does
    not use."""
    from safetensors.torch import load_file, save_file

    directory = saved("bert")[1]
    state = load_file(directory / "model.safetensors")
    old = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for key, value in state.items()
    }
    old["cls.predictions.decoder.weight"] = state["bert.embeddings.word_embeddings.weight"].clone()
    old["cls.predictions.decoder.bias"] = state["cls.predictions.bias"].clone()
    old["bert.embeddings.position_ids"] = torch.arange(100)[None]
    old["cls.seq_relationship.weight"], old["bert.pooler.dense.bias"] = (
        torch.zeros(2, 32),
        torch.zeros(32),
    )
    save_file(old, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((directory / "config.json").read_text())
    ids, mask = make_batch(0)
    result = longsum_jax.load(tmp_path).logits(ids, mask)
    np.testing.assert_array_equal(result, loaded("bert").logits(ids, mask))


@pytest.mark.parametrize(
    "name",
    ["bert_tokens", "roberta_answers", "distilbert_labels", "electra_choices", "big_bird_answers"],
)
def test_a_head_over_labels_is_left_out_of_a_bare_model(name, saved, loaded):
    theirs, directory = saved(name)
    bare = longsum_jax.load(directory, architecture=type(theirs.base_model).__name__)
    assert bare.config.head in ("none", "pooler")
    expected, result = ({**model.params, "head": None} for model in (loaded(name), bare))
    assert jax.tree.all(jax.tree.map(np.array_equal, result, expected))


def test_a_stored_table_of_sinusoids_is_a_table_like_others(saved, loaded, tmp_path):
    """Files of DistilBERT may say that training began with sinusoids; transformers reads what they
    hold."""
    theirs, directory = saved("distilbert")
    config = json.loads((directory / "config.json").read_text()) | {"sinusoidal_pos_embds": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shutil.copy(directory / "model.safetensors", tmp_path)
    ids, mask = make_batch(0)
    result = longsum_jax.load(tmp_path).logits(ids, mask)
    np.testing.assert_array_equal(result, loaded("distilbert").logits(ids, mask))
    again = type(theirs).from_pretrained(tmp_path).eval()
    np.testing.assert_array_equal(output_of(again, ids, mask), output_of(theirs, ids, mask))


def test_label_names_and_problem_type_come_along(saved, tmp_path):
    directory = shutil.copytree(saved("bert_labels")[1], tmp_path / "theirs")
    config = json.loads((directory / "config.json").read_text())
    config |= {
        "id2label": {"0": "bad", "1": "so so", "2": "good"},
        "problem_type": "multi_label_classification",
    }
    (directory / "config.json").write_text(json.dumps(config))
    ours = longsum_jax.load(directory)
    assert (ours.config.num_labels, ours.config.id2label) == (3, ("bad", "so so", "good"))
    assert ours.config.problem_type == "multi_label_classification"
    ours.save(tmp_path / "ours")
    assert longsum_jax.load(tmp_path / "ours").config == ours.config


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_vectors_of_mpnet(pooling, saved, tmp_path):
    """A directory of sentence-transformers, beside MPNetModel, pooling and normalization in
    torch."""
    theirs, directory = saved("mpnet_states")
    modules = SentenceModules((pooling,), (None,), 20)
    shutil.copytree(directory, tmp_path / "files")
    write_sentence_modules(tmp_path / "files", modules, 32)
    load_tokenizer("bytes", vocab_size=300).save(tmp_path / "files")
    ours = longsum_jax.load(tmp_path / "files")
    sentences = ["Cats sleep.", "It rained all day long, and the night too.", "Why?"]
    result = sentence_encoder(ours)(sentences)
    for sentence, vector in zip(sentences, result, strict=True):
        ids = ours.tokenizer.add_special_tokens(ours.tokenizer.encode(sentence), 20)
        with torch.no_grad():
            states = theirs(input_ids=torch.tensor([ids])).last_hidden_state[0]
        expected = {"mean": states.mean(0), "cls": states[0], "max": states.max(0).values}[pooling]
        expected = torch.nn.functional.normalize(expected, dim=0)
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    ours.save(tmp_path / "again")
    assert read_sentence_modules(tmp_path / "again")[1] == modules
