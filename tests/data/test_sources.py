import gzip
import json
import sys
from pydoc_data.topics import topics

import pytest

from longsum_jax.data.records import to_document
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_embedded_splits_share_nothing_and_miss_nothing():
    task = get_task("embedded")
    train, validation = (list(documents(task, split)) for split in ("train", "validation"))
    assert sorted(d.document for d in train + validation) == sorted(topics.values())
    assert len(validation) == len(topics) // 10
    assert len({d.id for d in train + validation}) == len(topics)
    assert list(documents(task, "train")) == train


def test_json_lines_in_the_order_of_files_and_lines(tmp_path):
    for part in "ba":
        write(
            tmp_path / f"{part}.jsonl",
            [{"document": f"{part}{n}", "summary": "s"} for n in range(2)],
        )
    result = documents(get_task("arxiv", source=f"json:{tmp_path}/*.jsonl"), "train")
    assert [d.document for d in result] == ["a0", "a1", "b0", "b1"]


def test_split_in_the_glob(tmp_path):
    for split in ("train", "test"):
        write(tmp_path / f"{split}.jsonl", [{"id": split, "document": "d", "summary": "s"}])
    task = get_task("arxiv", source=f"json:{tmp_path}/{{split}}.jsonl")
    assert [d.id for d in documents(task, "test")] == ["test"]


def test_c4_as_released(tmp_path):
    path = tmp_path / "c4-train.00000-of-01024.json.gz"
    path.write_bytes(gzip.compress(b'{"text": "One page.", "url": "u", "timestamp": "t"}\n'))
    (document,) = documents(get_task("c4", source=f"json:{tmp_path}/c4-train.*.json.gz"), "train")
    assert (document.document, document.summary, document.query) == ("One page.", None, None)


def test_gap_sentence_tasks_do_not_take_a_summary_that_is_there(tmp_path):
    write(tmp_path / "a.jsonl", [{"document": "d", "summary": "s"}])
    task = get_task("embedded", source=f"json:{tmp_path}/a.jsonl", document_key="document")
    assert next(documents(task, "train")).summary is None


def test_a_column_without_a_name_is_no_summary_and_no_query(tmp_path):
    write(tmp_path / "a.jsonl", [{"": 1, "text": "d"}, {"": "2", "text": "d"}])
    for document in documents(get_task("c4", source=f"json:{tmp_path}/a.jsonl"), "train"):
        assert (document.summary, document.query) == (None, None)


def test_keys_can_be_renamed(tmp_path):
    write(tmp_path / "a.jsonl", [{"report": "d", "highlight": "s", "question": "q", "number": 7}])
    keys = {
        "document_key": "report",
        "summary_key": "highlight",
        "query_key": "question",
        "id_key": "number",
    }
    task = get_task("qmsum", source=f"json:{tmp_path}/a.jsonl", **keys)
    assert next(documents(task, "train")) == DataRow("7", "d", "s", "q")


def test_a_query_before_a_blank_line_is_taken_from_the_text(tmp_path):
    text = "What of the budget?\n\n\nA: Nothing.\n\nB: No."
    write(tmp_path / "a.jsonl", [{"input": text, "output": "s"}])
    keys = {"document_key": "input", "summary_key": "output", "source": f"json:{tmp_path}/a.jsonl"}
    (document,) = documents(get_task("qmsum", **keys, leading_query=True), "train")
    assert (document.query, document.document) == ("What of the budget?", "A: Nothing.\n\nB: No.")
    (whole,) = documents(get_task("qmsum", **keys), "train")
    assert (whole.query, whole.document) == (None, text)


@pytest.mark.parametrize("text", ["A.\nB. ||||| |||||C.", ["A.\nB.", "C."]])
def test_several_documents_with_one_summary(tmp_path, text):
    write(tmp_path / "a.jsonl", [{"id": "m1", "document": text, "summary": "s"}])
    source = f"json:{tmp_path}/a.jsonl"
    task = get_task("summaries", source=source, document_separator="|||||")
    (row,) = documents(task, "train")
    assert row == DataRow("m1", "A.\nB.\n\nC.", "s", None, borders=(7,))
    if isinstance(text, list):
        assert to_document(task, {"id": "m1", "document": text, "summary": "s"}) == row._replace(
            document="A.\nB.|||||C.", borders=None
        )


def test_documents_without_text_or_for_other_objectives_are_refused(tmp_path):
    write(tmp_path / "a.jsonl", [{"id": "m1", "document": "| |", "summary": "s"}])
    task = get_task("summaries", source=f"json:{tmp_path}/a.jsonl", document_separator="|")
    with pytest.raises(InputError, match=r'"m1" has no text between the separators "\|"'):
        list(documents(task, "train"))
    with pytest.raises(InputError, match=r'document_separator="\|" is for objective="summarize"'):
        get_task("extracts", document_separator="|")


@pytest.mark.parametrize("text", ["One line.", "One line.\nAnother.", "Query\n\n \n", "\n\nText."])
def test_a_text_without_its_query_is_refused(tmp_path, text):
    write(tmp_path / "a.jsonl", [{"id": "m1", "document": text, "summary": "s"}])
    task = get_task("qmsum", source=f"json:{tmp_path}/a.jsonl", leading_query=True)
    with pytest.raises(InputError, match='"m1" has no blank line between a query and a text'):
        list(documents(task, "train"))


def test_unknown_split():
    with pytest.raises(InputError, match='no split "test"'):
        documents(get_task("embedded"), "test")


def test_tfds_without_tensorflow_says_what_to_install(monkeypatch):
    for package, options in (("tensorflow_datasets", {}), ("seqio", {"cache_dir": "cache"})):
        monkeypatch.setitem(sys.modules, package, None)
        problem = rf'TFDS data sets need {package}: pip install "longsum_jax\[data\]"'
        with pytest.raises(InputError, match=problem):
            next(documents(get_task("c4", **options), "train"))


def test_halves_of_the_training_documents_have_none_in_common(tmp_path):
    rows = [{"id": f"report {i}", "document": "Text.", "summary": "S."} for i in range(400)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def ids(split="train", **options):
        task = get_task("summaries", source=f"json:{path}", **options)
        return [document.id for document in documents(task, split)]

    first, second = ids(half="first"), ids(half="second")
    assert sorted(first + second) == sorted(ids())
    assert 160 < len(first) < 240
    # Other splits are whole, and what is held out is drawn independently of the halves.
    held_out = ids("validation", held_out=0.5)
    assert ids("validation", held_out=0.5, half="first") == held_out
    assert 60 < len(set(held_out) & set(first)) < 140
    assert set(ids(held_out=0.5, half="first")) == set(first) - set(held_out)
    few = tmp_path / "few.jsonl"
    few.write_text(json.dumps(rows[0]) + "\n")
    (name,) = {"first", "second"} - {"first" if "report 0" in first else "second"}
    task = get_task("summaries", source=f"json:{few}", half=name)
    with pytest.raises(InputError, match=f"no training document belongs to task.half={name}"):
        list(documents(task, "train"))
    with pytest.raises(InputError, match="half=first is a choice of documents, but a seqio cache"):
        get_task("c4", half="first", cache_dir="cache")
    with pytest.raises(InputError, match="a seqio cache holds no rejected summaries"):
        get_task("c4", objective="prefer", cache_dir="cache")


def test_odd_documents_are_counted_and_said_once(tmp_path, caplog):
    rows = [
        {"id": "a", "document": "A long text.", "summary": "Short."},
        {"id": "a", "document": "Another text.", "summary": "Short."},
        {"id": "b", "document": "Short.", "summary": "A long text."},
    ]
    write(tmp_path / "odd.jsonl", rows)
    task = get_task("summaries", source=f"json:{tmp_path}/odd.jsonl")
    for _ in range(2):
        assert len(list(documents(task, "train"))) == 3
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f'{task.source}: split "train" has 1 document with the id of an earlier one and 1 summary '
        "longer than the document"
    ]
