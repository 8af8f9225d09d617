import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from longsum_jax.checkpoints import weights
from longsum_jax.checkpoints.weights import read_weights, write_weights
from longsum_jax.errors import InputError

INDEX = "model.safetensors.index.json"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
STATE = {name: np.full((2, 3), i, np.float32) for i, name in enumerate("abc")}
WEIGHT_MAP = {"a": FIRST, "b": FIRST, "c": SECOND}


def write_index(directory, weight_map, name=INDEX):
    (directory / name).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.fixture
def sharded(tmp_path):
    """A directory of two shards with their index."""
    save_file({name: STATE[name] for name in "ab"}, tmp_path / FIRST)
    save_file({"c": STATE["c"]}, tmp_path / SECOND)
    write_index(tmp_path, WEIGHT_MAP)
    return tmp_path


def check(directory, where):
    result, path = read_weights(directory)
    assert path == directory / where
    assert result.keys() == STATE.keys()
    for name, value in STATE.items():
        np.testing.assert_array_equal(np.asarray(result[name]), value)


def test_safetensors_in_shards(sharded):
    check(sharded, INDEX)


def test_names_of_a_model_saved_inside_of_a_wrapper(tmp_path):
    wrapped = {f"module.{name}": value for name, value in STATE.items()}
    save_file(wrapped, tmp_path / "model.safetensors")
    check(tmp_path, "model.safetensors")


def test_pickles_in_shards(tmp_path):
    for name, keys in {"x-1.bin": "ab", "x-2.bin": "c"}.items():
        torch.save({key: torch.from_numpy(STATE[key]) for key in keys}, tmp_path / name)
    index = "pytorch_model.bin.index.json"
    write_index(tmp_path, {"a": "x-1.bin", "b": "x-1.bin", "c": "x-2.bin"}, index)
    check(tmp_path, index)


def test_order_of_preference(sharded):
    torch.save({}, sharded / "pytorch_model.bin")
    check(sharded, INDEX)
    save_file(STATE, sharded / "model.safetensors")
    check(sharded, "model.safetensors")


def test_shards_below_the_directory(sharded):
    (sharded / "parts").mkdir()
    (sharded / SECOND).rename(sharded / "parts" / SECOND)
    write_index(sharded, WEIGHT_MAP | {"c": f"parts/{SECOND}"})
    check(sharded, INDEX)


def test_snapshot_of_the_hub_s_cache_is_made_of_links(tmp_path):
    blobs, snapshot = (
        tmp_path / "models--org--name" / "blobs",
        tmp_path / "models--org--name" / "snapshots" / "1f2e",
    )
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    save_file({name: STATE[name] for name in "ab"}, blobs / "aa")
    save_file({"c": STATE["c"]}, blobs / "bb")
    (snapshot / FIRST).symlink_to("../../blobs/aa")
    (snapshot / SECOND).symlink_to("../../blobs/bb")
    write_index(snapshot, WEIGHT_MAP)
    check(snapshot, INDEX)
    other = tmp_path / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (blobs / "bb").rename(other / "bb")
    (snapshot / SECOND).unlink()
    (snapshot / SECOND).symlink_to("../../../models--org--other/blobs/bb")
    with pytest.raises(
        InputError, match=rf"shard '{SECOND}' is outside of the directory; it is not read"
    ):
        read_weights(snapshot)


@pytest.mark.parametrize(
    "kind", ["parent", "deep parent", "absolute", "windows", "link", "linked folder", "circle"]
)
def test_shards_outside_of_the_directory_are_not_read(sharded, tmp_path_factory, kind):
    outside = tmp_path_factory.mktemp("outside")
    (sharded / SECOND).rename(outside / SECOND)
    names = {
        "parent": f"../{outside.name}/{SECOND}",
        "deep parent": f"parts/../../{outside.name}/{SECOND}",
        "absolute": str(outside / SECOND),
        "windows": f"..\\{SECOND}",
        "link": SECOND,
        "linked folder": f"parts/{SECOND}",
        "circle": SECOND,
    }
    if kind == "link":
        (sharded / SECOND).symlink_to(outside / SECOND)
    if kind == "linked folder":
        (sharded / "parts").symlink_to(outside)
    if kind == "circle":
        (sharded / SECOND).symlink_to(sharded / SECOND)
    write_index(sharded, WEIGHT_MAP | {"c": names[kind]})
    problem = (
        r"index\.json: shard '.*' is outside of the directory"
        if kind != "circle"
        else r"index\.json: "
    )
    with pytest.raises(InputError, match=problem):
        read_weights(sharded)


@pytest.mark.parametrize("name", ["", ".", "a\0b", "x" * 300])
def test_shard_names_that_no_file_can_have(sharded, name):
    write_index(sharded, WEIGHT_MAP | {"c": name})
    with pytest.raises(
        InputError, match=r"index\.json: (shard '.*' is outside|lists shards that do not exist)"
    ):
        read_weights(sharded)


@pytest.mark.parametrize(
    ("weight_map", "problem"),
    [
        (
            WEIGHT_MAP | {"c": "model-3.safetensors"},
            rf"{INDEX}: lists shards that do not exist: model-3\.safetensors",
        ),
        (WEIGHT_MAP | {"d": SECOND}, rf"{SECOND}: lacks tensors that {INDEX} lists: d;"),
        (
            {"a": FIRST, "c": SECOND},
            rf"{FIRST}: holds tensors that {INDEX} lists elsewhere or not at all: b;",
        ),
        (
            WEIGHT_MAP | {"b": SECOND},
            rf"{FIRST}: holds tensors that {INDEX} lists elsewhere or not at all: b;",
        ),
        (["a"], rf'{INDEX}: expected "weight_map" from tensor names to file names'),
        ({"a": 1}, rf'{INDEX}: expected "weight_map"'),
        (None, rf'{INDEX}: expected "weight_map"'),
    ],
)
def test_index_that_does_not_fit_its_shards(sharded, weight_map, problem):
    write_index(sharded, weight_map)
    with pytest.raises(InputError, match=problem):
        read_weights(sharded)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_index_that_is_no_json_object(sharded, content):
    (sharded / INDEX).write_bytes(content)
    with pytest.raises(InputError, match=rf"{INDEX}: (not valid JSON|expected a JSON object)"):
        read_weights(sharded)


def test_truncated_shard(sharded):
    (sharded / SECOND).write_bytes((sharded / SECOND).read_bytes()[:-1])
    with pytest.raises(InputError, match=rf"{SECOND}: damaged or truncated safetensors file"):
        read_weights(sharded)


def test_no_weights(tmp_path):
    with pytest.raises(
        InputError,
        match=r"holds neither model\.safetensors nor pytorch_model\.bin, .*; copy them there, or",
    ):
        read_weights(tmp_path)


def test_written_in_one_file_or_in_shards(tmp_path, monkeypatch):
    write_weights(tmp_path, STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    check(tmp_path, "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    monkeypatch.setattr(weights, "MAX_SHARD_BYTES", 50)  # two arrays of 24 bytes
    write_weights(tmp_path, STATE)
    check(tmp_path, INDEX)
    assert json.loads((tmp_path / INDEX).read_text()) == {
        "metadata": {"total_size": 72},
        "weight_map": WEIGHT_MAP,
    }
    assert load_file(tmp_path / FIRST).keys() == {"a", "b"}


def test_array_larger_than_a_shard(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "MAX_SHARD_BYTES", 10)
    write_weights(tmp_path, STATE)
    assert len(list(tmp_path.glob("model-*-of-00003.safetensors"))) == 3
    check(tmp_path, INDEX)
