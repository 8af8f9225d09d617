import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

import longsum_jax
from longsum_jax import checksums
from longsum_jax.checkpoints.hub import check_blobs, local_directory, model_files
from longsum_jax.errors import InputError

REPOSITORY = [
    "README.md",
    "config.json",
    "flax_model.msgpack",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "modeling_evil.py",
    "onnx/model.safetensors",
    "pytorch_model.bin",
    "rust_model.ot",
    "spiece.model",
    "tf_model.h5",
    "tokenizer.json",
    "training_args.bin",
]
ALWAYS = {"config.json", "generation_config.json", "spiece.model", "tokenizer.json"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """hub(files): a repository; the files that were fetched from it end up in the returned
    directory."""

    def serve(files):
        def snapshot_download(name, *, revision, allow_patterns, ignore_patterns):
            assert (name, revision) == ("org/name", "v1")
            expected = filter_repo_objects(
                files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
            )
            for file in expected:
                (tmp_path / file).touch()
            return str(tmp_path)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)

    return serve


def names(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_safetensors_and_nothing_that_is_not_read(hub):
    hub(REPOSITORY)
    result = names(local_directory("org/name", "v1"))
    assert result == ALWAYS | {
        name for name in REPOSITORY if name.startswith("model") and "safetensors" in name
    }


def test_pickle_where_there_are_no_safetensors(hub):
    hub([name for name in REPOSITORY if not name.startswith("model")])
    assert names(local_directory("org/name", "v1")) == ALWAYS | {"pytorch_model.bin"}


def test_models_that_a_model_needs_come_with_it(hub, tmp_path):
    inside = ["config.json", "model.safetensors", "spiece.model", "onnx/model.safetensors"]
    folders = ("extractor", "sentence_encoder", "other")
    hub([*REPOSITORY, *(f"{folder}/{name}" for folder in folders for name in inside)])
    for folder in folders:
        (tmp_path / folder).mkdir()
    names_models = {"segments": {"extractor": "extractor", "sentence_encoder": "../other"}}
    tasks = {"summarization": names_models}
    (tmp_path / "config.json").write_text(json.dumps({"task_specific_params": tasks}))
    result = {name for name in names(local_directory("org/name", "v1")) if "/" in name}
    assert result == {f"extractor/{name}" for name in inside[:3]}


def test_files_of_a_directory_are_those_that_a_download_would_fetch(tmp_path):
    for name in REPOSITORY:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    weights = {name for name in REPOSITORY if name.startswith("model") and "safetensors" in name}
    assert model_files(tmp_path) == sorted(ALWAYS | weights)


def test_damaged_modules_name_no_files(tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "modules.json").write_text("{oops")
    assert model_files(tmp_path) == ["config.json", "model.safetensors", "modules.json"]


def fail(monkeypatch, kind):
    error = kind.__new__(kind)  # their constructors want an answer of the server
    error.args = ("first line\nsecond line",)

    def snapshot_download(*args, **kwargs):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (
            errors.GatedRepoError,
            "org/name: this repository .* is gated; accept its conditions on its page, then log in",
        ),
        (
            errors.RepositoryNotFoundError,
            "org/name: neither a directory nor a repository .*; check the spelling",
        ),
        (
            errors.RevisionNotFoundError,
            "org/name: the repository has no revision v1; give a branch, tag or commit",
        ),
        (
            errors.LocalEntryNotFoundError,
            "org/name at revision v1: no such directory, not complete in the local cache",
        ),
        (
            TimeoutError,
            r"org/name at revision v1: cannot be fetched from the Hugging Face Hub "
            r"\(.*\); try again later",
        ),
    ],
)
def test_failures_of_the_hub(monkeypatch, kind, problem):
    fail(monkeypatch, kind)
    with pytest.raises(InputError, match=problem) as caught:
        local_directory("org/name", "v1")
    assert "\n" not in str(caught.value)


def test_without_huggingface_hub(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        InputError, match=r"org/name: no such directory; .*pip install 'longsum_jax\[hf\]'"
    ):
        longsum_jax.load("org/name")


@pytest.mark.parametrize(
    "path", ["name", "./org/name", "/org/name", "org/name/more", "org/", "../name", "o/n\n", ""]
)
def test_paths_that_are_no_repository(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given in (path, Path("org/name")):  # a Path is always a path
        if str(given) == ".":
            continue
        with pytest.raises(
            InputError,
            match="no such directory; give a model directory or a training workdir, or ORG",
        ):
            local_directory(given or "nowhere")


@pytest.mark.parametrize("path", [None, b"org/name", 3, ["org/name"]])
def test_what_is_no_path_at_all(path):
    with pytest.raises(InputError, match=f"the model is of type {type(path).__name__}; give"):
        local_directory(path)


def test_directories_stay_what_they_are(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert local_directory("org/name") == Path("org/name")
    with pytest.raises(
        InputError, match=r"revision='v1' is for Hub repositories, but org/name is a directory"
    ):
        local_directory("org/name", "v1")


def test_a_file_is_not_looked_for_on_the_hub(tmp_path, monkeypatch):
    (tmp_path / "bart").mkdir()
    (tmp_path / "bart" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^bart/config.json: is a file; give its directory"):
        local_directory("bart/config.json")


OFFLINE = """
import sys
from longsum_jax.checkpoints.hub import local_directory
from longsum_jax.errors import InputError
try:
    print(local_directory(sys.argv[1]))
except InputError as error:
    sys.exit(str(error))
"""


def test_offline_the_cache_is_used(tmp_path):
    cache = tmp_path / "models--org--name"
    snapshot = cache / "snapshots" / ("0123456789" * 4)
    snapshot.mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(snapshot.name)
    (snapshot / "config.json").write_text(json.dumps({}))
    (snapshot / "model.safetensors").write_bytes(b"")
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_CACHE": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    def run(name):
        command = [sys.executable, "-c", OFFLINE, name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert run("org/name").stdout.strip() == str(snapshot)
    absent = run("org/other")
    assert absent.returncode == 1
    assert absent.stderr.startswith(
        "org/other: no such directory, not complete in the local cache, and the Hugging"
    )
    assert len(absent.stderr.splitlines()) == 1


@pytest.fixture
def snapshot(small_model, tmp_path):
    """A saved model in the cache's layout: the weights by SHA-256, other files by Git's SHA-1, and
    no sums.
    """
    repository = tmp_path / "models--org--name"
    folder = repository / "snapshots" / ("0123456789" * 4)
    folder.mkdir(parents=True)
    (repository / "blobs").mkdir()
    for path in small_model.iterdir():
        content = path.read_bytes()
        name = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        if path.suffix == ".safetensors":
            name = hashlib.sha256(content).hexdigest()
        if path.name != checksums.SUMS:
            (repository / "blobs" / name).write_bytes(content)
            (folder / path.name).symlink_to(f"../../blobs/{name}")
    return folder


def test_files_of_the_cache_are_compared_with_their_names(snapshot, small_model):
    saved = longsum_jax.load(small_model)
    assert longsum_jax.load(snapshot).fingerprint == saved.fingerprint
    for path in snapshot.iterdir():
        blob = path.resolve()
        content = blob.read_bytes()
        blob.write_bytes(content[:-20] + bytes([content[-20] ^ 1]) + content[-19:])
        with pytest.raises(InputError, match=f"{blob}: its SHA-.* differs from its name"):
            check_blobs(snapshot)
        if path.suffix == ".safetensors":
            with pytest.raises(InputError, match="differs from its name; delete it and fetch"):
                longsum_jax.load(snapshot)
        blob.write_bytes(content)
    check_blobs(snapshot)


def test_files_that_are_not_loaded_are_not_compared(snapshot):
    for name in ("pytorch_model.bin", "flax_model.msgpack"):  # the safetensors are loaded
        blob = snapshot.parents[1] / "blobs" / hashlib.sha256(name.encode()).hexdigest()
        blob.write_bytes(b"other")
        (snapshot / name).symlink_to(blob)
    check_blobs(snapshot)


def test_a_server_may_name_small_files_by_their_plain_sha1(tmp_path):
    blob = tmp_path / "blobs" / hashlib.sha1(b"{}").hexdigest()
    blob.parent.mkdir()
    blob.write_bytes(b"{}")
    checksums.check_blob(checksums.blob_of(blob))
