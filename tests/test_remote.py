"""Files of cloud storage; fsspec's storage in memory takes its place."""

import gzip
import json
import sys

import pytest

from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task, source_of
from longsum_jax.errors import InputError

fsspec = pytest.importorskip("fsspec")
ROWS = [{"id": f"r{i}", "article": f"Text {i}.", "summary": f"Sum {i}."} for i in range(3)]


@pytest.fixture
def bucket():
    """A function that stores the bytes of a file; returns the URL of the bucket."""
    url = "memory://bucket"

    def store(name, content):
        fsspec.filesystem("memory").pipe(f"{url}/{name}", content)
        return url

    yield store
    fsspec.filesystem("memory").rm("/bucket", recursive=True)


def test_lines_of_a_pattern_plain_and_compressed(bucket):
    first, *others = (json.dumps(row).encode() + b"\n" for row in ROWS)
    bucket("test-0.jsonl.gz", gzip.compress(first))
    url = bucket("test-1.jsonl", b"".join(others))
    task = get_task("summaries", source=source_of(f"{url}/{{split}}-*"))
    rows = [(row.id, row.document, row.summary) for row in documents(task, "test")]
    assert rows == [(row["id"], row["article"], row["summary"]) for row in ROWS]


def test_parquet_from_any_row(bucket, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    url = bucket("rows.parquet", (tmp_path / "rows.parquet").read_bytes())
    task = get_task("summaries", source=source_of(f"{url}/rows.parquet"))
    assert [row.document for row in documents(task, "test", 1)] == ["Text 1.", "Text 2."]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://bucket/no-*.jsonl", "no file matches; check the bucket"),
        ("storage://bucket/a.jsonl", r"cannot be read \(Protocol not known: storage\)"),
    ],
)
def test_files_that_cannot_be_read(bucket, url, problem):
    bucket("rows.jsonl", b"{}")
    with pytest.raises(InputError, match=f"{url.replace('*', '.')}: {problem}"):
        list(documents(get_task("summaries", source=source_of(url)), "test"))


def test_a_storage_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    task = get_task("summaries", source=source_of("gs://bucket/a.jsonl"))
    with pytest.raises(InputError, match=r"gs://bucket/a\.jsonl: needs .* 'longsum_jax\[cloud\]'"):
        list(documents(task, "test"))
