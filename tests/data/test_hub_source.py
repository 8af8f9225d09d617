"""Data sets of the Hugging Face Hub, from a directory in place of the Hub."""

from types import SimpleNamespace

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from longsum_jax.data.hub_source import CONVERTED, parse_source, pin_source
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError

pyarrow = pytest.importorskip("pyarrow")
COMMIT = "0123456789" * 4
CARD = [
    {"config_name": "a", "data_files": [{"split": "train", "path": "x/one-*"}]},
    {
        "config_name": "b",
        "default": True,
        "data_files": [{"split": "train", "path": ["x/two.parquet", "x/one*"]}],
    },
]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """hub(names, card, problem): a data set with these files at main."""
    from pyarrow.parquet import write_table

    def serve(names, card=None, problem=None, main="main"):
        for name in names:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = {"article": [f"text of {name}"], "highlights": ["sum"], "other": [1]}
            write_table(pyarrow.table(rows), path)

        def dataset_info(repository, revision):
            assert repository == "org/name"
            if problem is not None:
                raise problem
            if revision not in (None, main, "v1", COMMIT):
                raise errors.RevisionNotFoundError("404", response=RESPONSE)
            has_files = revision is not None or main == "main"
            siblings = [SimpleNamespace(rfilename=name) for name in ("README.md", *names)]
            return SimpleNamespace(
                sha=COMMIT,
                siblings=siblings if has_files else siblings[:1],
                card_data=SimpleNamespace(configs=card),
            )

        def hf_hub_download(repository, name, *, repo_type, revision):
            assert (repository, repo_type, revision) == ("org/name", "dataset", COMMIT)
            return str(tmp_path / name)

        api = SimpleNamespace(dataset_info=dataset_info)
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
        monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)

    return serve


RESPONSE = SimpleNamespace(headers={}, request=None, status_code=404)


def texts(source, split="train"):
    task = get_task("summaries", source=source)
    rows = list(documents(task, split))
    assert {row.summary for row in rows} == {"sum"}
    return [row.document.removeprefix("text of ") for row in rows]


@pytest.mark.parametrize(
    ("source", "names", "expected"),
    [
        ("hf:org/name", ["data/train-00000-of-00001.parquet", "data/test-0.parquet"], [0]),
        ("hf:org/name@v1", ["train/1.parquet", "train/0.parquet", "train.parquet"], [2, 1, 0]),
        ("hf:org/name/b", ["a/train/0.parquet", "b/train/0.parquet"], [1]),
        ("hf:org/name", ["only/train-0.parquet", "only/training.parquet"], [0]),
        ("hf:org/name", ["data/train.parquet", "old/train.parquet"], [0]),
    ],
)
def test_files_of_a_split(hub, source, names, expected):
    hub(names)
    assert texts(source) == [names[index] for index in expected]


def test_files_in_the_card(hub):
    hub(["x/one-1.parquet", "x/two.parquet"], CARD)
    assert texts("hf:org/name/a") == ["x/one-1.parquet"]
    assert texts("hf:org/name") == ["x/one-1.parquet", "x/two.parquet"]
    with pytest.raises(InputError, match='no split "validation"'):
        texts("hf:org/name", "validation")


def test_conversion_of_other_formats(hub):
    hub(["default/train/0000.parquet"], main=CONVERTED)
    assert texts("hf:org/name") == ["default/train/0000.parquet"]


@pytest.mark.parametrize(
    ("source", "earlier", "expected"),
    [
        ("json:a.jsonl", "", "json:a.jsonl"),
        ("hf:org/name", "", f"hf:org/name@{COMMIT}"),
        ("hf:org/name/c@v1", "", f"hf:org/name/c@{COMMIT}"),
        ("hf:org/name", "hf:org/name@" + "a" * 40, "hf:org/name@" + "a" * 40),
        ("hf:org/name@" + "b" * 40, "hf:org/name@" + "a" * 40, "hf:org/name@" + "b" * 40),
        ("hf:org/name", "hf:org/name/c@" + "a" * 40, f"hf:org/name@{COMMIT}"),
        (  # the first name begins with the second
            "mix:1*hf:org/name/c+2*hf:org/name",
            "",
            f"mix:1*hf:org/name/c@{COMMIT}+2*hf:org/name@{COMMIT}",
        ),
        (
            "mix:1*hf:org/name+1*json:a.jsonl+1*hf:org/name",
            "",
            f"mix:1*hf:org/name@{COMMIT}+1*json:a.jsonl+1*hf:org/name@{COMMIT}",
        ),
    ],
)
def test_revisions_are_pinned(hub, source, earlier, expected):
    hub(["train.parquet"])
    assert pin_source(source, earlier) == expected


@pytest.mark.parametrize(
    ("source", "problem", "message"),
    [
        ("hf:org/name@v2", None, "hf:org/name@v2: no revision v2; give a branch, tag or commit"),
        ("hf:org/name", errors.OfflineModeIsEnabled("offline"), "Hub cannot be reached; connect"),
        ("hf:org/name", ConnectionError("refused"), "Hub cannot be reached; connect"),
        ("hf:org/name", httpx.ConnectError("no name"), "Hub cannot be reached; connect"),
        ("hf:org/name", ValueError("teapot"), r"cannot be read from .* \(teapot\)"),
        ("hf:org/name/c", None, 'no Parquet files of split "train" among'),
        ("hf:org/name", None, "has the configs a, b; give one, such as hf:org/name/a"),
    ],
)
def test_data_sets_that_cannot_be_read(hub, source, problem, message):
    hub(["a/train.parquet", "b/train.parquet"], problem=problem)
    with pytest.raises(InputError, match=message):
        texts(source)


def test_sources_of_another_form():
    with pytest.raises(InputError, match="must be hf:ORG/NAME"):
        parse_source("hf:name")
