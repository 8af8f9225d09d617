"""Modules of sentence-transformers, with torch as the twin."""

import json

import numpy as np
import pytest
import torch

from longsum_jax.checkpoints import hub
from longsum_jax.checkpoints.sentence_modules import (
    DenseLayer,
    SentenceModules,
    read_sentence_modules,
    write_sentence_modules,
)
from longsum_jax.errors import InputError

RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(3, 5, 8)).astype(np.float32)
MASK = np.arange(5) < np.array([5, 3, 1])[:, None]
DENSE = DenseLayer(
    RNG.normal(size=(16, 6)).astype(np.float32), RNG.normal(size=6).astype(np.float32), "Tanh"
)


def pooled(name):
    """Returns the pooled states of every row, token by token."""
    rows = []
    for states, mask in zip(torch.tensor(STATES), MASK, strict=True):
        tokens = states[: mask.sum()]
        rows.append(
            {
                "cls": tokens[0],
                "max": tokens.max(0).values,
                "mean": tokens.mean(0),
                "mean_sqrt_len_tokens": tokens.sum(0) / len(tokens) ** 0.5,
            }[name]
        )
    return torch.stack(rows)


@pytest.mark.parametrize("name", ["cls", "max", "mean", "mean_sqrt_len_tokens"])
def test_poolings(name):
    modules = SentenceModules((name,), (None,))
    expected = torch.nn.functional.normalize(pooled(name), dim=-1)
    np.testing.assert_allclose(modules.vectors(STATES, MASK), expected, atol=1e-6)
    assert modules.size(8) == 8


@pytest.mark.parametrize(
    ("activation", "twin"),
    [
        ("Tanh", torch.tanh),
        ("Identity", lambda x: x),
        ("ReLU", torch.relu),
        ("GELU", torch.nn.functional.gelu),
    ],
)
@pytest.mark.parametrize("has_bias", [True, False])
def test_dense_layers(activation, twin, has_bias):
    layer = DENSE._replace(activation=activation, bias=DENSE.bias if has_bias else None)
    modules = SentenceModules(("cls", "mean"), (layer, None))
    x = torch.cat([pooled("cls"), pooled("mean")], -1) @ torch.tensor(layer.kernel)
    x = twin(x + torch.tensor(layer.bias) if has_bias else x)
    expected = torch.nn.functional.normalize(x, dim=-1)
    np.testing.assert_allclose(modules.vectors(STATES, MASK), expected, atol=1e-6)
    assert modules.size(8) == 6


def test_written_modules_are_read_again(tmp_path):
    layer = DENSE._replace(bias=None, activation="Identity")
    modules = SentenceModules(("max", "mean"), (layer, None), 128, True, "query: ")
    write_sentence_modules(tmp_path, modules, 8)
    directory, result = read_sentence_modules(tmp_path)
    assert directory == tmp_path
    assert result.fingerprint == modules.fingerprint
    assert result.fingerprint != modules._replace(steps=(layer,)).fingerprint
    np.testing.assert_array_equal(result.vectors(STATES, MASK), modules.vectors(STATES, MASK))
    assert result.prepare("A Cat") == "query: a cat"
    assert hub._module_directories(tmp_path) == ["1_Pooling", "2_Dense", "3_Normalize"]
    assert read_sentence_modules(tmp_path / "1_Pooling") == (tmp_path / "1_Pooling", None)


def test_files_of_sentence_transformers(tmp_path):
    """An old directory, whose encoder is in a subdirectory."""
    (tmp_path / "0_Transformer").mkdir()
    (tmp_path / "1_Pooling").mkdir()
    kind = "sentence_transformers.models."
    entries = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": f"{kind}Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}Pooling"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    lengths = {"max_seq_length": 75, "do_lower_case": False}
    (tmp_path / "0_Transformer" / "sentence_bert_config.json").write_text(json.dumps(lengths))
    pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True}
    pooling |= {"pooling_mode_mean_tokens": False, "include_prompt": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    expected = SentenceModules(("cls",), (), 75)
    assert read_sentence_modules(tmp_path) == (tmp_path / "0_Transformer", expected)


def test_files_of_newer_and_older_versions(tmp_path):
    """The newer ones have a list of poolings, whose order counts, and the maximum length in the
    config of the tokenizer."""
    modules = SentenceModules(("mean", "cls"), (DENSE,))
    write_sentence_modules(tmp_path, modules, 8)
    assert read_sentence_modules(tmp_path)[1].poolings == ("mean", "cls")
    x = torch.cat([pooled("mean"), pooled("cls")], -1) @ torch.tensor(DENSE.kernel)
    expected = torch.tanh(x + torch.tensor(DENSE.bias))
    np.testing.assert_allclose(modules.vectors(STATES, MASK), expected, atol=1e-6)
    for length, limit in ((75, 75), (int(1e30), None)):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": length}))
        assert read_sentence_modules(tmp_path)[1].max_length == limit
    lengths = {"max_seq_length": 9, "do_lower_case": True}
    (tmp_path / "sentence_bert_config.json").unlink()
    (tmp_path / "sentence_roberta_config.json").write_text(json.dumps(lengths))
    result = read_sentence_modules(tmp_path)[1]
    assert (result.max_length, result.lowercase) == (9, True)
    assert "sentence_roberta_config.json" in hub.model_files(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("2_Dense/config.json", '{"use_residual": true}', "use_residual=True is not supported"),
        (
            "2_Dense/config.json",
            '{"module_input_name": "token_embeddings"}',
            "module_input_name='token_embeddings' is not supported",
        ),
        ("3_Normalize/config.json", '{"module_output_name": "x"}', "module_output_name='x'"),
        ("1_Pooling/config.json", '{"include_prompt": false}', "include_prompt=false"),
        ("modules.json", "{oops", r"modules\.json: cannot be read \(.*\); copy the file again"),
        ("modules.json", "[]", "first modules must be Transformer and Pooling"),
        ("modules.json", '{"a": 1}', "first modules must be Transformer and Pooling"),
        ("1_Pooling/config.json", '{"pooling_mode": "lasttoken"}', '"lasttoken" is not supported'),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_weightedmean_tokens": true}',
            '"weightedmean_tokens" is not supported',
        ),
        ("1_Pooling/config.json", "{}", "no pooling is selected"),
        ("2_Dense/config.json", '{"activation_function": "x.Softmax"}', '"Softmax" is not supp'),
        ("2_Dense/config.json", '{"in_features": 3, "out_features": 6}', r"have shape \(6, 3\)"),
        ("sentence_bert_config.json", '{"max_seq_length": 0}', "must be at least 1"),
        ("config_sentence_transformers.json", '{"default_prompt_name": "q", "prompts": {}}', '"q"'),
    ],
)
def test_damaged_directories(tmp_path, file, content, problem):
    modules = SentenceModules(("cls", "mean"), (DENSE, None), prompt="query: ")
    write_sentence_modules(tmp_path, modules, 8)
    (tmp_path / file).write_text(content)
    with pytest.raises(InputError, match=problem):
        read_sentence_modules(tmp_path)


@pytest.mark.parametrize(
    ("index", "change", "problem"),
    [
        (1, {"path": "../other"}, "is not a directory next to it"),
        (1, {"path": "/etc"}, "is not a directory next to it"),
        (2, {"type": "sentence_transformers.models.LSTM"}, '"LSTM" is not supported'),
        (2, {"type": "my.Module"}, "'my.Module' is not a module of sentence-transformers"),
    ],
)
def test_other_modules(tmp_path, index, change, problem):
    write_sentence_modules(tmp_path, SentenceModules(("cls", "mean"), (DENSE,)), 8)
    entries = json.loads((tmp_path / "modules.json").read_text())
    entries[index] |= change
    (tmp_path / "modules.json").write_text(json.dumps(entries))
    with pytest.raises(InputError, match=problem):
        read_sentence_modules(tmp_path)
