"""Parquet files as the Hugging Face Hub has them: LexGLUE's lists, one label or several."""

import sys

import pytest

from longsum_jax.data.labels import collect_labels
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError

pyarrow = pytest.importorskip("pyarrow")


def write(path, **columns):
    from pyarrow.parquet import write_table

    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(pyarrow.table(columns), path)


def test_cases_with_several_labels_or_none(tmp_path):
    paragraphs = [["1. The facts.", "2. The law."], ["1. Né."], ["1. x"]]
    for part, rows in enumerate((slice(0, 2), slice(2, 3))):
        path = tmp_path / "ecthr_a" / f"train-{part:05}-of-00002.parquet"
        write(path, text=paragraphs[rows], labels=[[4, 9], [], [0]][rows])
    task = get_task("ecthr_a", source=f"parquet:{tmp_path}/ecthr_a/{{split}}-*.parquet")
    assert [tuple(document)[:5] for document in documents(task, "train")] == [
        ("train-00000-of-00002:0", "1. The facts.\n2. The law.", None, None, (4, 9)),
        ("train-00000-of-00002:1", "1. Né.", None, None, ()),
        ("train-00001-of-00002:0", "1. x", None, None, (0,)),
    ]
    task = collect_labels(task, "train")
    assert (len(task.labels), task.multi_label) == (10, True)


def test_columns_of_usual_names(tmp_path):
    path = tmp_path / "test.parquet"
    write(path, article=["a"], highlights=["x"])
    [row] = documents(get_task("summaries", source=f"parquet:{path}"), "test")
    assert (row.document, row.summary) == ("a", "x")


def test_one_label_and_a_summary(tmp_path):
    path = tmp_path / "test.parquet"
    write(path, text=["a", "b"], label=[12, 3], summary=["x", "y"], id=[7, 8], more=[1.0, 2.0])
    labeled = get_task("scotus", source=f"parquet:{path}", id_key="id")
    assert [(d.id, d.label) for d in documents(labeled, "test")] == [("7", 12), ("8", 3)]
    own = get_task("labels", source=f"parquet:{path}")
    assert [d.document for d in documents(own, "test")] == ["a", "b"]
    summaries = get_task("multinews", source=f"parquet:{path}", document_key="text")
    assert [(d.summary, d.label) for d in documents(summaries, "test")] == [
        ("x", None),
        ("y", None),
    ]


def test_whole_books_in_the_version_of_unlimiformer(tmp_path, monkeypatch):
    """Several rows have the same book, each with another summary."""
    for split, count in (("train", 2), ("test", 1)):
        path = tmp_path / "booksum-fullbooks" / "data" / f"{split}-00000-of-00001-0a1b.parquet"
        texts = {"title": ["T"] * count, "summary": ["x", "y"][:count], "book": ["b"] * count}
        write(path, bid=["9"] * count, source=["s"] * count, **texts)
    monkeypatch.chdir(tmp_path)
    assert [tuple(row)[:4] for row in documents(get_task("booksum_fullbooks"), "train")] == [
        ("train-00000-of-00001-0a1b:0", "b", "x", None),
        ("train-00000-of-00001-0a1b:1", "b", "y", None),
    ]
    source = f"parquet:{tmp_path}/booksum-fullbooks/data/{{split}}-*.parquet"
    (book,) = documents(get_task("booksum_fullbooks", source=source), "test")
    assert (book.document, book.summary) == ("b", "x")


def test_a_share_of_one_file_is_held_out(tmp_path):
    write(tmp_path / "rows.parquet", text=[f"{i}" for i in range(20)], label=[0, 1] * 10)
    task = get_task("labels", source=f"parquet:{tmp_path}/rows.parquet", held_out=0.3)
    splits = ("train", "validation")
    train, rest = ({d.document for d in documents(task, split)} for split in splits)
    assert train | rest == {f"{i}" for i in range(20)}
    assert not train & rest
    assert 0 < len(rest) < 14


def test_files_that_do_not_fit(tmp_path):
    path = tmp_path / "train.parquet"

    def read(**columns):
        write(path, **columns)
        return list(documents(get_task("scotus", source=f"parquet:{path}"), "train"))

    with pytest.raises(InputError, match=r'has no field "label"; did you mean "labels"\?'):
        read(text=["a"], labels=[1])
    with pytest.raises(InputError, match='field "label" holds -1, which is not a label'):
        read(text=["a"], label=[-1])
    path.write_bytes(b"PAR1 cut short")
    with pytest.raises(InputError, match=r"train\.parquet: cannot be read as parquet \(.*copy it"):
        list(documents(get_task("scotus", source=f"parquet:{path}"), "train"))
    with pytest.raises(InputError, match="no file matches the pattern"):
        list(documents(get_task("scotus"), "train"))


def test_without_pyarrow(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", text=["a"], label=[0])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match="need pyarrow: pip install pyarrow"):
        list(documents(get_task("scotus", source=f"parquet:{tmp_path}/a.parquet"), "train"))


def test_empty_cells_are_no_text(tmp_path):
    path = tmp_path / "train.parquet"
    columns = {"id": ["a", None], "query": [None, "Why?"], "summary": [None, "y"]}
    write(path, document=["x", "z"], **columns)
    task = get_task("summaries", source=f"parquet:{path}", query_key="query", id_key="id")
    result = list(documents(task, "train"))
    assert [(d.query, d.summary) for d in result] == [(None, ""), ("Why?", "y")]
    assert [d.id for d in result] == ["a", "train:1"]


def test_reading_from_any_row(tmp_path):
    from pyarrow.parquet import write_table

    for part in range(2):
        table = pyarrow.table({"document": [f"{part}.{row}" for row in range(7)]})
        path = tmp_path / f"train-{part}.parquet"
        write_table(table, path, row_group_size=3)
    task = get_task("masked_tokens", source=f"parquet:{tmp_path}/{{split}}-*.parquet")
    whole = list(documents(task, "train"))
    assert len(whole) == 14
    for start in range(16):
        assert list(documents(task, "train", start)) == whole[start:]


def test_splits_without_texts(tmp_path):
    """Also of a split whose files have different types."""
    source = f"parquet:{tmp_path}/{{split}}-*.parquet"

    def read():
        return list(documents(get_task("summaries", source=source), "train"))

    write(tmp_path / "train-0.parquet", document=pyarrow.array([], pyarrow.string()), summary=[])
    with pytest.raises(InputError, match="the files have no rows; give files with documents"):
        read()
    write(tmp_path / "train-1.parquet", document=["x"], summary=["y"])
    assert len(read()) == 1
    write(tmp_path / "train-2.parquet", document=["x"], summary=[3])
    with pytest.raises(InputError, match=r'train-2.parquet: column "summary" holds int64, not te'):
        read()
