import dataclasses
import json
import os
import pickle
import shutil
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

import longsum_jax
from longsum_jax import checksums
from longsum_jax.checkpoints import huggingface, weights
from longsum_jax.checkpoints.state_dict import to_state_dict
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family

COPIES = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
D_KEY = "encoder.block.1.layer.0.ssm_layer.D"


def read(directory):
    family, config = huggingface.read_config(directory)
    config, params = huggingface.read_params(directory, family, config)
    return params, family, config


def read_state(directory):
    params, family, config = read(directory)
    return to_state_dict(params, family.weight_map(config))


def dropping(key):
    return lambda state: {name: value for name, value in state.items() if name != key}


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_state_dict_comes_back_bit_for_bit(published, golden, name):
    state = golden("c_full_state")
    result = read_state(published(weights=name))
    assert result.keys() == state.keys() - COPIES
    for key, value in result.items():
        np.testing.assert_array_equal(value, state[key], err_msg=key)


def test_bfloat16_weights_become_float32(published, golden):
    def halve(state):
        return {key: value.astype(ml_dtypes.bfloat16) for key, value in state.items()}

    state = halve(golden("c_full_state"))
    for key, value in read_state(published(change=halve)).items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, state[key].astype(np.float32), err_msg=key)


def test_safetensors_are_preferred_to_the_pickle(published):
    directory = published()
    (directory / "pytorch_model.bin").write_bytes(b"never read")
    read(directory)


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_truncated_safetensors(published, keep):
    path = published() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        InputError,
        match=r"model\.safetensors: damaged or truncated safetensors file \(.*\); fetch it",
    ):
        read(path.parent)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (dropping(D_KEY), rf"config\.json; missing: {D_KEY}$"),
        (lambda s: s | {"encoder.extra": s[D_KEY]}, r"not in this model: encoder\.extra$"),
        (lambda s: s | {D_KEY: s[D_KEY][:-1]}, rf"of a wrong shape: {D_KEY} \(31,\), not \(32,\)$"),
        (
            lambda s: (
                s
                | {
                    "encoder.block.0.layer.1.DenseReluDense.wo.weight": np.zeros(
                        (64, 32), np.float32
                    )
                }
            ),
            r"of a wrong shape: encoder\.block\.0\.layer\.1\.DenseReluDense\.wo\.weight "
            r"\(64, 32\), not \(32, 64\)$",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(published, change, problem):
    with pytest.raises(InputError, match=problem) as caught:
        read(published(change=change))
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [("shared.weight", np.nan), ("decoder.block.1.layer.2.layer_norm.weight", -np.inf)],
)
def test_weights_that_are_not_finite_are_named(published, key, value):
    def spoil(state):
        # Equal tables are one parameter, which is read under the name "shared.weight".
        state = {name: array for name, array in state.items() if name not in COPIES}
        state[key] = state[key].copy()
        state[key].flat[3] = value
        return state

    directory = published(change=spoil)
    with pytest.raises(InputError, match=f'"{key}" holds 1 numbers that are not finite'):
        read(directory)


def test_vocabulary_and_checkpoint_disagree(published):
    with pytest.raises(
        InputError, match=r"of a wrong shape: shared\.weight \(100, 32\), not \(120, 32\)"
    ):
        read(published(vocab_size=120))


class Hostile:
    """Unpickled carelessly, it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_pickle_with_code_is_never_run(published, tmp_path, writer):
    import torch

    directory = published()
    (directory / "model.safetensors").unlink()
    path = directory / "pytorch_model.bin"
    content = {"shared.weight": Hostile(tmp_path / "marker")}
    if writer == "torch":
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(content))
    problem = r"pytorch_model\.bin: not a file of plain tensors, nothing in it was run"
    with pytest.raises(InputError, match=problem) as caught:
        read(directory)
    assert not (tmp_path / "marker").exists()
    assert len(str(caught.value).splitlines()) == 1


def test_pickle_of_something_else_than_tensors(published):
    import torch

    directory = published(weights="pytorch_model.bin")
    torch.save({"state_dict": {"a": torch.zeros(1)}}, directory / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: expected a dictionary of tensors"):
        read(directory)


def test_pickle_without_torch(published, monkeypatch):
    directory = published(weights="pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InputError,
        match=r"needs torch; install it, or convert the checkpoint to model\.safetensors",
    ):
        read(directory)


def test_weights_that_are_missing_or_a_directory(published):
    directory = published()
    (directory / "model.safetensors").unlink()
    with pytest.raises(
        InputError, match=r"holds neither model\.safetensors nor pytorch_model\.bin"
    ):
        read(directory)
    (directory / "model.safetensors").mkdir()
    with pytest.raises(InputError, match=r"model\.safetensors: is a directory, pipe or device"):
        read(directory)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, r"config\.json: no such file; a model directory holds config\.json and weights"),
        (b"", r"config\.json: not valid JSON"),
        (b'{"d_model": 32', r"config\.json: not valid JSON"),
        (b"\xff\xfe", r"config\.json: not valid JSON"),
        (b"[1]", r"config\.json: expected a JSON object, got list"),
        (b"{}", r'config\.json: model_type "" is not supported; known: .*locost'),
        (
            b'{"model_type": "locst"}',
            r'model_type "locst" is not supported; did you mean "locost"\?',
        ),
        (
            b'{"model_type": "locost", "d_state": 31}',
            r"config\.json: d_state is 31; it must be even",
        ),
        (
            b'{"model_type": "locost", "num_heads": 5}',
            r"config\.json: d_model 768 is not divisible by num_heads 5;",
        ),
        (
            b'{"model_type": "locost", "d_model": "big"}',
            r"config\.json\.d_model: expected int, got 'big'",
        ),
        (b'{"model_type": "locost", "num_ssm_heads": 8}', r"num_ssm_heads is 8; only 1"),
    ],
)
def test_config_that_cannot_be_used(tmp_path, content, problem):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=problem) as caught:
        huggingface.read_config(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_config_that_is_a_directory(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(InputError, match=r"config\.json: is a directory, pipe or device"):
        huggingface.read_config(tmp_path)


@pytest.mark.parametrize(("version", "is_reported"), [("9.0.0", True), ("5.23.0", False)])
def test_newer_versions_of_transformers_are_reported(tmp_path, caplog, version, is_reported):
    raw = {"model_type": "t5", "transformers_version": version}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    huggingface.read_config(tmp_path)
    assert ("written by transformers '9.0.0'" in caplog.text) == is_reported


def test_embeddings_stored_under_another_name(published):
    params, *_ = read(published(change=dropping("shared.weight")))
    assert params["shared"].shape == (100, 32)


def test_code_that_a_config_names_is_ignored(published, tmp_path):
    code = {"auto_map": {"AutoModel": "evil.Model"}, "custom_pipelines": {"x": {"impl": "evil.P"}}}
    directory = published(**code, architectures=["evil.Model"], tokenizer_class="evil.Tokenizer")
    for name in ("evil.py", "__init__.py", "config.py"):
        (directory / name).write_text(f"open({str(tmp_path / 'marker')!r}, 'w')")
    read(directory)
    assert not (tmp_path / "marker").exists()


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # Not transformers' 20, which config.json names; and not as max_new_tokens, which would go
        # before a max_length that somebody asks transformers for.
        ({}, {"max_length": 513, "eos_token_id": 1}),
        ({"max_new_tokens": 7, "num_beams": 4}, {"max_new_tokens": 7, "num_beams": 4}),
        ({"max_length": 9, "eos_token_id": [1, 5]}, {"max_length": 9, "eos_token_id": [1, 5]}),
        ({"max_new_tokens": None, "max_length": None}, {"max_length": 513}),
    ],
)
def test_generation_defaults(published, found, expected):
    directory = published(generation=found)
    family, config = huggingface.read_config(directory)
    values = family.generation_config(config, huggingface.read_generation_config(directory))
    ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    assert values == ids | expected


def write_config(directory, **values):
    (directory / "config.json").write_text(json.dumps(values))


LEGACY = {
    "num_beams": 4,
    "max_length": 142,
    "min_length": 56,
    "length_penalty": 2.0,
    "no_repeat_ngram_size": 3,
}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LEGACY | {"d_model": 8, "early_stopping": True}, LEGACY | {"early_stopping": True}),
        (
            {"forced_eos_token_id": 2, "bos_token_id": 0, "forced_bos_token_id": None},
            {"forced_eos_token_id": 2} | {"bos_token_id": 0},
        ),
        ({"max_length": 20, "num_beams": 1, "top_k": 50, "do_sample": False}, {}),
        ({"top_p": 1.0, "typical_p": 1.0, "temperature": 1.0, "min_length": 0}, {}),
        ({"repetition_penalty": 1.0, "length_penalty": 1.0, "diversity_penalty": 0.0}, {}),
        ({"num_beam_groups": 1, "num_return_sequences": 1, "no_repeat_ngram_size": 0}, {}),
        ({"max_new_tokens": 64, "min_new_tokens": 8}, {"max_new_tokens": 64, "min_new_tokens": 8}),
        (
            {"force_bos_token_to_be_generated": True, "bos_token_id": 3},
            {"bos_token_id": 3, "forced_bos_token_id": 3},
        ),
        ({"force_bos_token_to_be_generated": True}, {}),
        ({"force_bos_token_to_be_generated": False, "bos_token_id": 3}, {"bos_token_id": 3}),
    ],
)
def test_generation_options_in_config_json_of_old(tmp_path, config, expected):
    write_config(tmp_path, **config)
    assert huggingface.read_generation_config(tmp_path) == expected
    (tmp_path / "generation_config.json").write_text("{}")
    assert huggingface.read_generation_config(tmp_path) == {}


def test_generation_options_of_a_decoder(tmp_path):
    decoder = {"max_length": 9, "num_beams": 3, "min_length": 0, "bos_token_id": 2}
    config = {"model_type": "encoder-decoder", "num_beams": 1, "eos_token_id": 5}
    write_config(tmp_path, **config, decoder=decoder)
    expected = {"max_length": 9, "bos_token_id": 2, "eos_token_id": 5}
    assert huggingface.read_generation_config(tmp_path) == expected
    write_config(tmp_path, **config | {"model_type": "t5gemma"}, decoder=decoder)
    assert huggingface.read_generation_config(tmp_path) == {"eos_token_id": 5}


@pytest.mark.parametrize(
    "tasks", [{}, {"task_specific_params": None}, {"task_specific_params": {"translation": {}}}]
)
def test_no_word_on_summarising(tmp_path, tasks):
    write_config(tmp_path, **tasks)
    assert huggingface.read_summarization(tmp_path) == {}


@pytest.mark.parametrize("tasks", [3, ["summarization"], {"summarization": "yes"}])
def test_malformed_word_on_summarising(tmp_path, tasks):
    write_config(tmp_path, task_specific_params=tasks)
    with pytest.raises(
        InputError,
        match=r"config\.json: (task_specific_params|summarization) must be a JSON object, got",
    ):
        huggingface.read_summarization(tmp_path)


@pytest.mark.parametrize(
    "value", [None, True, -1, 2.5, 10**400, "text", ["text"], {"key": "text"}, [[1]]], ids=range(9)
)
def test_settings_of_summaries_with_a_wrong_type(tmp_path, value):
    """Every setting is accepted or refused with a sentence."""
    for name in ("prefix", "segments", "max_length", "num_beams", "eos_token_id"):
        write_config(tmp_path, task_specific_params={"summarization": {name: value}})
        try:
            settings = huggingface.read_summarization(tmp_path)
            general = {"max_new_tokens": 9, "decoder_start_token_id": 0, "eos_token_id": 1}
            options = huggingface.summary_generation_config(general, settings)
            GenerationOptions.from_config(options)
        except InputError as error:
            message = str(error)
            assert message.isprintable()
            # A max_length is converted to max_new_tokens.
            assert name.partition("_")[2] in message or "max_new_tokens" in message
        else:
            assert isinstance(settings.get("prefix", ""), str)


def test_options_for_summarising_come_in_and_out(published, tmp_path):
    task = {"prefix": "summarize: ", "num_beams": 4}
    model = longsum_jax.load(
        published(task_specific_params={"summarization": task, "translation": {"x": 1}})
    )
    assert model.summarization == task
    model.save(tmp_path / "copy")
    assert longsum_jax.load(tmp_path / "copy").summarization == task


def test_parameters_in_half_precision(published, golden):
    directory = published()
    model = longsum_jax.load(directory, param_dtype="bfloat16")
    result = to_state_dict(model.params, model.family.weight_map(model.config))
    exact = {key for key in result if ".ssm_layer.kernel." in key or key.endswith(".D")}
    assert {key for key, value in result.items() if value.dtype == np.float32} == exact != set()
    for key, value in golden("c_full_state").items():
        if key in result:
            np.testing.assert_array_equal(result[key], value.astype(result[key].dtype), err_msg=key)
    assert model.fingerprint != longsum_jax.load(directory).fingerprint
    for name, value, choices in (
        ("dtype", "float16", '"float32" or "bfloat16"'),
        ("param_dtype", "float16", '"float32" or "bfloat16"'),
        ("matmul_precision", "low", '"highest" or "high" or "default"'),
        ("which", "last", '"best" or "latest"'),
    ):
        with pytest.raises(InputError, match=f"{name}='{value}' is not supported; give {choices}"):
            longsum_jax.load(directory, **{name: value})


def test_half_precision_survives_saving(published, tmp_path):
    model = longsum_jax.load(published(), param_dtype="bfloat16")
    model.save(tmp_path / "copy")
    assert (
        longsum_jax.load(tmp_path / "copy", param_dtype="bfloat16").fingerprint == model.fingerprint
    )
    with safe_open(tmp_path / "copy" / "model.safetensors", "numpy") as file:
        assert file.get_slice("shared.weight").get_dtype() == "BF16"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_written_in_half_precision(published, golden, tmp_path, dtype):
    model = longsum_jax.load(published())
    model.save(tmp_path / "half", dtype=dtype)
    state = golden("c_full_state")
    for key, value in read_state(tmp_path / "half").items():
        is_exact = ".ssm_layer.kernel." in key or key.endswith(".D")
        expected = state[key] if is_exact else state[key].astype(dtype).astype(np.float32)
        np.testing.assert_array_equal(value, expected, err_msg=key)
    assert json.loads((tmp_path / "half" / "config.json").read_text())["torch_dtype"] == dtype


def test_tensors_may_decide_the_config(published):
    """Output weights that differ from the embeddings are untied, whatever config.json says."""

    def refine(config, tensors):
        tied = np.array_equal(tensors["lm_head.weight"], tensors["shared.weight"])
        return dataclasses.replace(config, tie_word_embeddings=tied)

    def change(state):
        return state | {"lm_head.weight": state["shared.weight"] + 1}

    family, config = huggingface.read_config(directory := published(change=change))
    config, params = huggingface.read_params(
        directory, dataclasses.replace(family, infer_from_weights=refine), config
    )
    assert not config.tie_word_embeddings
    np.testing.assert_allclose(params["lm_head"], params["shared"] + 1)


class Tokenizer:
    """Writes one file, or fails as a full disk does."""

    def __init__(self, full=False):
        self.full = full

    def save(self, directory):
        (directory / "spiece.model").write_bytes(b"x")
        if self.full:
            raise OSError(28, "No space left on device")


def write(target, published_directory, tokenizer=None):
    params, family, config = read(published_directory)
    huggingface.write_model(target, family, config, params, {"max_new_tokens": 3}, tokenizer)


def test_written_directory(published, tmp_path):
    target = tmp_path / "a" / "b"
    write(target, published(), Tokenizer())
    names = {"config.json", "generation_config.json", "model.safetensors", "spiece.model"}
    assert {path.name for path in target.iterdir()} == names | {checksums.SUMS}
    assert {name for name, problem in checksums.compare(target) if not problem} == names
    assert [path.name for path in target.parent.iterdir()] == ["b"]
    config = json.loads((target / "config.json").read_text())
    assert config["model_type"] == "locost"
    assert config["architectures"] == ["LOCOSTForConditionalGeneration"]
    assert (config["d_state"], config["num_ssm_heads"], config["use_fast_fft_conv"]) == (
        32,
        1,
        False,
    )
    assert "remat" not in config


@pytest.mark.parametrize("content", ["file", "directory with a file"])
def test_writing_over_something_is_refused(published, tmp_path, content):
    target = tmp_path / "target"
    if content == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    with pytest.raises(
        InputError, match=r"target: exists and is not an empty directory; give another path"
    ):
        write(target, published())
    assert {path.name for path in tmp_path.iterdir()} == {"target", "published"}


def test_a_name_that_no_directory_can_have(tmp_path):
    with pytest.raises(InputError, match=r"n: cannot be written \(File name too long\); give"):
        huggingface.check_target(tmp_path / ("n" * 300))


def test_written_in_shards(published, tmp_path, monkeypatch):
    params, *_ = read(published())
    monkeypatch.setattr(weights, "MAX_SHARD_BYTES", 20_000)
    write(tmp_path / "target", tmp_path / "published")
    assert len(list((tmp_path / "target").glob("model-*.safetensors"))) > 2
    again, *_ = read(tmp_path / "target")
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_failed_write_leaves_nothing(published, tmp_path):
    with pytest.raises(
        InputError,
        match=r"target: cannot be written \(No space left on device\); give another path",
    ):
        write(tmp_path / "target", published(), Tokenizer(full=True))
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_target_below_a_file(published, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/target: cannot be written"):
        write(tmp_path / "file" / "target", published())


def test_names_cover_every_parameter():
    family = get_family("locost")
    for changes in (
        {},
        {"gating": False, "tie_word_embeddings": False, "feed_forward_proj": "relu"},
    ):
        config = family.config({"num_layers": 2, "num_decoder_layers": 1, **changes})
        paths = [row.path for row in family.weight_map(config).rows]
        assert sorted(paths) == sorted(family.parameter_shapes(config))


def without_sums(directory):
    """Deletes the sums, and renames the mark in the weights as if it were another program's."""
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes().replace(b'"checksums":', b'"unmarked_":'))
    (directory / checksums.SUMS).unlink()


def test_a_saved_model_without_its_sums_is_refused(small_model, tmp_path, monkeypatch):
    model = tmp_path / "model"
    shutil.copytree(small_model, model)
    (model / checksums.SUMS).unlink()
    for read in (longsum_jax.load, weights.read_weights):
        with pytest.raises(InputError, match=f"SHA256SUMS is missing, .* --unverified {model} to"):
            read(model)
    checksums.write(model)  # as longsum verify --unverified
    weights.read_weights(model)
    without_sums(model)
    weights.read_weights(model)  # of an older version, or of another program

    monkeypatch.setattr(weights, "MAX_SHARD_BYTES", 2000)
    longsum_jax.load(small_model).save(tmp_path / "shards")
    (tmp_path / "shards" / checksums.SUMS).unlink()
    with pytest.raises(InputError, match="SHA256SUMS is missing"):
        weights.read_weights(tmp_path / "shards")
