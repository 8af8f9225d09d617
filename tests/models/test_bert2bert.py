"""Encoder-decoders made of two encoders: config.json, state dicts, and warm starts."""

import json

import jax
import numpy as np
import pytest

import longsum_jax
from longsum_jax import Model, checksums
from longsum_jax.checkpoints.state_dict import LazyArray, to_params, to_state_dict
from longsum_jax.errors import InputError
from longsum_jax.models.bert2bert import Bert2BertConfig, BertStack
from longsum_jax.models.registry import get_family

FAMILY = get_family("encoder-decoder")
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 12, "max_position_embeddings": 16}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "rain", "##s", "it", "."]
BERT = SIZES | {"model_type": "bert", "vocab_size": len(PIECES)}
IDS = {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 2}


def raw_config(encoder=None, decoder=None, **entries):
    sections = {"encoder": BERT | (encoder or {}), "decoder": BERT | (decoder or {})}
    return {"model_type": "encoder-decoder", **sections, **IDS, **entries}


def read(*sections, **entries):
    return FAMILY.config_of_json(raw_config(*sections, **entries), "config.json")


def draw(family, config):
    """Returns random parameters, without running the initializers."""
    rng = np.random.default_rng(0)
    shapes = family.parameter_shapes(config)
    flat = {path: rng.normal(size=shape).astype(np.float32) for path, shape in shapes.items()}
    weight_map = family.weight_map(config)
    params = {}
    for path, value in flat.items():
        *parents, name = path.split("/")
        tree = params
        for parent in parents:
            tree = tree.setdefault(parent, {})
        tree[name] = value
    return params, to_state_dict(params, weight_map)


def is_equal(tree, other):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, tree, other)))


def test_config_json_is_read_back():
    longformer = {"model_type": "longformer", "attention_window": [4, 8], "pad_token_id": 1}
    config = read(longformer, {"model_type": "roberta", "hidden_size": 12, "pad_token_id": 1})
    assert config.encoder_attention == "longformer"
    assert config.attention.attention_window == (4, 8)
    assert (config.max_source_length, config.max_target_length) == (14, 14)
    assert config.decoder_stack.mapped_source_size == 8
    raw = json.loads(json.dumps(FAMILY.config_json(config)))
    assert raw["model_type"] == "encoder-decoder"
    assert "encoder_attention" not in raw
    assert raw["encoder"]["attention_window"] == [4, 8]
    assert raw["decoder"]["add_cross_attention"]
    assert FAMILY.config_of_json(raw, "config.json") == config


@pytest.mark.parametrize(("bos", "start"), [(7, 7), (0, 0), (None, 4)])
def test_without_a_start_token_the_first_token_of_texts_is_it(bos, start):
    """The entry of the model precedes the decoder's, as in transformers."""
    decoder = {"model_type": "roberta", "pad_token_id": 1, "bos_token_id": 4}
    config = read(None, decoder, decoder_start_token_id=None, bos_token_id=bos)
    assert config.decoder_start_token_id == start


def test_an_attention_of_another_encoder_is_not_published():
    config = read(encoder_attention="longformer", attention_window=[4])
    raw = FAMILY.config_json(config)
    assert raw["model_type"] == "longsum_jax/encoder-decoder"
    assert FAMILY.config_of_json(raw, "config.json") == config


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"decoder": {"model_type": "gpt2"}},
            'decoder.model_type "gpt2" is not supported as the decoder; known: bert, ',
        ),
        (
            {"encoder": {"model_type": "robeta"}},
            'encoder.model_type "robeta" is not supported as the encoder; did you mean "roberta"?',
        ),
        ({"decoder": {"model_type": "longformer"}}, 'decoder.model_type "longformer" is not'),
        ({"encoder": {"model_type": ["bert"]}}, "encoder.model_type: expected str"),
        ({"encoder": {"attention_type": []}}, "encoder.attention_type: expected str"),
        ({"encoder": {"hidden_size": 9}}, "encoder.hidden_size 9 is not divisible by num_attent"),
        ({"decoder": {"hidden_act": "sine"}}, 'decoder.hidden_act "sine" is unknown'),
        ({"decoder": {"hidden_size": "8"}}, "decoder.hidden_size: expected int, got '8'"),
        ({"decoder": {"vocab_size": 7}}, "encoder.vocab_size is 10, decoder.vocab_size 7; only"),
        ({"encoder": {"is_decoder": True}}, "encoder.is_decoder is true, but encoders read in"),
        (
            {"decoder": {"cross_attention_hidden_size": 6}},
            "decoder.cross_attention_hidden_size is 6, but its layers read states of hidden_size 8",
        ),
        ({"eos_token_id": None}, "eos_token_id is missing, also in generation_config.json; add"),
        ({"decoder_start_token_id": 10}, "decoder_start_token_id is 10, but vocab_size is 10"),
    ],
)
def test_refused(changes, problem):
    with pytest.raises(InputError) as error:
        read(changes.pop("encoder", None), changes.pop("decoder", None), **changes)
    assert str(error.value).startswith(f"config.json: {problem}")


def test_a_missing_section_is_named():
    with pytest.raises(InputError, match='"encoder" must be a mapping with the config'):
        FAMILY.config_of_json(IDS, "config.json")


@pytest.mark.parametrize("stored", ["encoder.", "decoder."])
def test_weights_of_both_stacks_are_stored_once(stored):
    """Files with ``tie_encoder_decoder`` may contain them under the names of either stack."""
    config = read(tie_encoder_decoder=True)
    _, state = draw(FAMILY, config)
    only = {key: x for key, x in state.items() if key.startswith(stored)}
    cross = {key: x for key, x in state.items() if "cross" in key or "cls" in key}
    # As in files, an array that was taken is not read again.
    only = {key: LazyArray(x.shape, x.dtype, x.copy) for key, x in only.items()}
    config = FAMILY.infer_from_weights(config, only | cross)
    shapes = FAMILY.parameter_shapes(config)
    params = to_params(only | cross, FAMILY.weight_map(config), shapes, "x")
    assert is_equal(params["shared"], params["target_embedding"])
    encoder, decoder = params["encoder"]["layers"], params["decoder"]["layers"]
    assert is_equal(encoder, {name: decoder[name] for name in encoder})
    # All weights are written, and an incomplete file is an error again.
    again = FAMILY.config_of_json(FAMILY.config_json(config), "config.json")
    assert not again.tie_encoder_decoder
    assert to_state_dict(params, FAMILY.weight_map(config)).keys() == state.keys()
    with pytest.raises(InputError, match="missing: "):
        to_params(only | cross, FAMILY.weight_map(again), shapes, "x")


def test_output_weights_and_poolers_are_inferred():
    config = read()
    _, state = draw(FAMILY, config)
    copy, table = (
        "decoder.cls.predictions.decoder.{}",
        "decoder.bert.embeddings.word_embeddings.weight",
    )
    bias = "decoder.cls.predictions.bias"
    tied = state | {copy.format("weight"): state[table], copy.format("bias"): state[bias]}
    assert FAMILY.infer_from_weights(config, tied) == config
    for name in ("weight", "bias"):
        changed = tied | {copy.format(name): tied[copy.format(name)] + 1}
        untied = FAMILY.infer_from_weights(config, changed)
        assert not untied.tie_word_embeddings
        weight_map, shapes = FAMILY.weight_map(untied), FAMILY.parameter_shapes(untied)
        params = to_params(changed, weight_map, shapes, "x")
        assert is_equal(params["lm_head"], changed[copy.format("weight")])
        assert is_equal(params["head"]["bias"], changed[copy.format("bias")])
    pooled = state | {"encoder.pooler.dense.weight": np.zeros((8, 8), np.float32)}
    assert FAMILY.infer_from_weights(config, pooled).encoder_pooler


def test_a_directory_with_a_tokenizer(tmp_path):
    """Special tokens are in generation_config.json only, and summaries contain none of them."""
    config = read()
    Model(FAMILY, config, draw(FAMILY, config)[0]).save(tmp_path / "model")
    raw = raw_config(**dict.fromkeys(IDS))
    (tmp_path / "model" / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(IDS))
    (tmp_path / "model" / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    checksums.write(tmp_path / "model")
    model = longsum_jax.load(tmp_path / "model")
    assert model.config == config
    assert model.tokenizer.add_special_tokens(model.tokenizer.encode("It rains.")) == [
        2, 8, 6, 7, 9, 3,
    ]  # fmt: skip
    assert model.tokenizer.decode([2, 2, 8, 6, 7, 9, 3, 0]) == "it rains."


def encoder_model(name, head="masked_lm", **values):
    family = get_family(name)
    sizes = {key: value for key, value in (BERT | values).items() if key != "model_type"}
    config = family.config(sizes | {"head": head})
    return Model(family, config, draw(family, config)[0])


def test_two_encoders_become_an_encoder_decoder():
    encoder = encoder_model("bert", "pooler")
    decoder = encoder_model("roberta", hidden_size=12, max_position_embeddings=20)
    model = encoder.with_decoder(decoder, start_id=2, end_id=3)
    assert model.family is FAMILY
    assert model.config == Bert2BertConfig(
        vocab_size=10,
        encoder=BertStack(**SIZES),
        decoder=BertStack.of("roberta", decoder.config),
        encoder_pooler=True,
        **IDS,
    )
    assert is_equal(model.params["encoder"], encoder.params["encoder"])
    assert is_equal(model.params["pooler"], encoder.params["head"])
    state = to_state_dict(model.params, FAMILY.weight_map(model.config))
    expected = to_state_dict(decoder.params, decoder.family.weight_map(decoder.config))
    for key, value in expected.items():
        np.testing.assert_array_equal(state[f"decoder.{key}"], value)
    cross = "decoder.roberta.encoder.layer.1.crossattention.self.query.weight"
    assert 0.01 < state[cross].std() < 0.03  # as initialized


@pytest.mark.parametrize(
    ("encoder", "decoder", "ids", "problem"),
    [
        ("bert", "distilbert", IDS, "distilbert cannot become the decoder; give one of bert, rob"),
        ("bert", "bert", {}, "the encoder defines no tokens that begin and end a summary; load"),
    ],
)
def test_encoders_that_cannot_be_joined(encoder, decoder, ids, problem):
    options = {"start_id": ids.get("decoder_start_token_id"), "end_id": ids.get("eos_token_id")}
    with pytest.raises(InputError) as error:
        encoder_model(encoder).with_decoder(encoder_model(decoder), **options)
    assert str(error.value).startswith(problem)
