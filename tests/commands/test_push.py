import json
import shutil
import types

import huggingface_hub
import pytest
from huggingface_hub import errors
from huggingface_hub.utils import filter_repo_objects

from longsum_jax import checksums, load
from longsum_jax.commands import push
from longsum_jax.errors import InputError


class Hub:
    """Takes the place of the Hub: records what is uploaded, raises ``failures`` by method."""

    def __init__(self):
        self.uploads, self.created, self.failures = [], [], {}
        self.public, self.private = set(), set()  # repositories that exist

    def _call(self, name):
        if name in self.failures:
            raise self.failures[name]

    def whoami(self):
        self._call("whoami")
        return {"name": "alice"}

    def create_repo(self, name, *, private, exist_ok):
        assert exist_ok
        self._call("create_repo")
        self.created.append((name, private))
        if not private and name not in self.private:
            self.public.add(name)
        return f"https://hub/{name}"

    def repo_info(self, name):
        return types.SimpleNamespace(private=name not in self.public)

    def upload_folder(
        self, *, repo_id, folder_path, allow_patterns, delete_patterns, commit_message
    ):
        self._call("upload_folder")
        self.deleted = delete_patterns
        card = ""
        if "README.md" in allow_patterns:
            with open(f"{folder_path}/README.md", encoding="utf-8") as file:
                card = file.read()
        self.uploads.append((repo_id, allow_patterns, card))
        return types.SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


@pytest.fixture
def hub(monkeypatch):
    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    return hub


@pytest.fixture
def model(tmp_path):
    """A directory with the files of a model, and others."""
    segments = {"extractor": "extractor"}
    config = {"task_specific_params": {"summarization": {"segments": segments}}}
    files = ("model.safetensors", "tokenizer.json", "README.md", "notes.txt", ".env", "run.json")
    directory = tmp_path / "reports"
    (directory / "extractor").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in (*files, "extractor/model.safetensors", "extractor/secret.txt"):
        (directory / name).write_text("x" * 2000, encoding="utf-8")
    return directory


FILES = [
    "README.md",
    "config.json",
    "extractor/model.safetensors",
    "model.safetensors",
    "tokenizer.json",
]


def test_files_of_the_model_go_to_a_private_repository(hub, model, capsys):
    push.main([str(model), "org/name"])
    assert hub.created == [("org/name", True)]
    [(name, files, _)] = hub.uploads
    assert (name, files) == ("org/name", FILES)
    out, err = capsys.readouterr()
    assert out == "org/name: https://hub/org/name/commit/1\n"
    first, *rest = err.splitlines()
    assert first.endswith("as alice to the private repository org/name:")
    assert first.startswith("uploading 5 files, 8.")
    assert [line.split()[0] for line in rest] == FILES
    assert "  model.safetensors  2.0 kB" in rest


def test_a_copy_of_the_repository_can_be_loaded(hub, small_model, tmp_path):
    model, copy = tmp_path / "model", tmp_path / "copy"
    shutil.copytree(small_model, model)
    (model / "README.md").write_text("A card.", encoding="utf-8")
    push.main([str(model), "org/name"])
    [(_, files, _)] = hub.uploads
    copy.mkdir()
    for name in files:
        shutil.copy(model / name, copy / name)
    assert load(copy).text_fingerprint == load(small_model).text_fingerprint
    # Sums that list a file which is not uploaded.
    (model / "notes.txt").touch()
    (model / "SHA256SUMS").unlink()
    checksums.write(model)
    push.main([str(model), "org/name"])
    assert hub.uploads[1][1] == [name for name in files if name != "SHA256SUMS"]
    remote = ["extractor/SHA256SUMS", *files]
    assert list(filter_repo_objects(remote, allow_patterns=hub.deleted)) == [
        "extractor/SHA256SUMS",
        "SHA256SUMS",
    ]


def test_public_repositories_are_only_written_when_told(hub, model):
    hub.public.add("org/name")
    with pytest.raises(InputError, match="org/name: exists and is public; give --public"):
        push.main([str(model), "org/name"])
    assert hub.uploads == []
    push.main([str(model), "org/name", "--public"])
    assert hub.created[-1] == ("org/name", False)
    assert len(hub.uploads) == 1


def test_private_repositories_stay_private(hub, model):
    hub.private.add("org/name")
    with pytest.raises(InputError, match="org/name: exists and is private; make it public in its"):
        push.main([str(model), "org/name", "--public"])
    assert hub.uploads == []


def refused(status):
    response = types.SimpleNamespace(status_code=status, headers={}, request=None)
    error = errors.HfHubHTTPError.__new__(errors.HfHubHTTPError)
    Exception.__init__(error, f"{status} Client Error\nlong text")
    error.response = response
    return error


@pytest.mark.parametrize(
    ("method", "error", "message"),
    [
        ("whoami", errors.LocalTokenNotFoundError("none"), "nobody is logged in; log in with `hf"),
        ("whoami", refused(401), r"\(401 Client Error\); log in with `hf auth login`"),
        ("create_repo", refused(403), r"org/name: .*\(403 Client Error\); this account may not"),
        ("upload_folder", OSError("no route"), r"\(no route\); check the connection"),
    ],
)
def test_errors_of_the_hub_are_one_sentence(hub, model, method, error, message):
    hub.failures[method] = error
    with pytest.raises(InputError, match=message) as caught:
        push.main([str(model), "org/name"])
    assert "\n" not in str(caught.value)
    assert hub.uploads == []


@pytest.mark.parametrize(
    ("directory", "name", "message"),
    [
        ("nothing", "org/name", "nothing: no such directory"),
        ("reports", "name", "name: the name of a repository is ORG/NAME"),
        ("reports", "org/name/more", "the name of a repository is ORG/NAME"),
        ("reports/empty", "org/name", "holds neither a training run nor safetensors"),
    ],
)
def test_bad_input_is_refused_before_anything_is_sent(hub, model, directory, name, message):
    (model / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        push.main([str(model.parent / directory), name])
    assert (hub.created, hub.uploads) == ([], [])


def test_a_missing_package_is_named(monkeypatch, model):
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"pip install 'longsum_jax\[hf\]'"):
        push.main([str(model), "org/name"])


@pytest.mark.slow
def test_the_best_checkpoint_of_a_run_with_its_card(hub, trained, capsys):
    push.main([str(trained), "org/name"])
    [(_, files, card)] = hub.uploads
    assert {"README.md", "config.json", "generation_config.json", "model.safetensors"} <= set(files)
    assert {"run.json", "metrics.jsonl", "report.html", "evaluations.jsonl"}.isdisjoint(files)
    assert card.startswith('---\nlibrary_name: "longsum_jax"\n')
    assert "Training replaces this card" not in card
    assert "uploading" in capsys.readouterr().err
