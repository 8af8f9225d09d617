import gzip
import json
import os

import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow, read_json_lines
from longsum_jax.text.rows import read_rows

TABLE = 'article,highlights,id\n"First\n\ntext, é.",One.,a\nSecond text.,Two.,7\n'
EXPECTED = [
    DataRow("a", "First\n\ntext, é.", "One.", None),
    DataRow("7", "Second text.", "Two.", None),
]


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.csv", TABLE),
        ("rows.CSV", f"\ufeff{TABLE}"),
        ("rows.csv.gz", gzip.compress(TABLE.encode(), mtime=0)),
        (
            "excel.csv",
            f"sep=;\r\n{TABLE.replace('text, é', 'text@ é').replace(',', ';')}".replace("@", ","),
        ),
        ("rows.tsv", TABLE.replace("text, é", "text@ é").replace(",", "\t").replace("@", ",")),
        (
            "rows.json",
            json.dumps(
                [
                    {"article": "First\n\ntext, é.", "highlights": "One.", "id": "a"},
                    {"article": "Second text.", "highlights": "Two.", "id": "7"},
                ],
                indent=1,
            ),
        ),
    ],
)
def test_tables_and_arrays_are_data(write, name, content):
    assert list(read_json_lines(write(name, content))) == EXPECTED


def test_parquet_is_data(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = {"dialogue": ["A: Hi.", "B: Bye."], "summary": ["One.", "Two."]}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    documents = list(read_json_lines(path))
    assert documents[1] == DataRow("rows:2", "B: Bye.", "Two.", None)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"rows.parquet: damaged Parquet after row 0"):
        list(read_rows(path))


@pytest.mark.parametrize(
    "names", [("input", "output"), ("prompt", "completion"), ("prompt", "chosen")]
)
def test_names_of_instructions_and_preferences(write, names):
    path = write("rows.jsonl", json.dumps(dict(zip(names, ("A text.", "Short."), strict=True))))
    [row] = read_json_lines(path)
    assert (row.document, row.summary) == ("A text.", "Short.")


@pytest.mark.parametrize("has_index", [True, False])
def test_arrow_is_data(has_index, tmp_path):
    """Files with an index, as for Feather, and streams, as ``save_to_disk`` writes them."""
    pyarrow = pytest.importorskip("pyarrow")
    ipc = pytest.importorskip("pyarrow.ipc")
    texts = [f"Text {i}." for i in range(100)]
    table = pyarrow.table({"article": texts, "highlights": ["Short."] * 100})
    path = tmp_path / "data-00000-of-00001.arrow"
    open_file = ipc.new_file if has_index else ipc.new_stream
    with open_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=70)
    documents = list(read_json_lines(path))
    assert [document.document for document in documents] == texts
    assert documents[99].id == f"{path.stem}:100"
    path.write_bytes(path.read_bytes()[:-600])
    with pytest.raises(InputError, match=r"arrow: damaged Arrow after row"):
        list(read_rows(path))


def test_usual_names_are_logged_once(write, caplog):
    path = write("rows.csv", TABLE)
    list(read_json_lines(path))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        f'{path}: column "article" is read as the document',
        f'{path}: column "highlights" is read as the summary',
    ]


def test_other_names_are_not_guessed(write):
    path = write("rows.csv", TABLE)
    with pytest.raises(InputError, match=r'rows.csv:2: no key "body_text"; known: article'):
        list(read_json_lines(path, document_key="body_text"))


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("rows.csv", "document,summary\na,b,c\n", r"rows.csv:2: 3 cells in 2 columns; quote"),
        ("rows.csv", "document,summary\n", "rows.csv: the file is empty"),
        (
            "rows.csv",
            "document,summary,document\na,b,c\n",
            r'rows.csv:2: no key "document"; .*known: document.1, document.2, summary',
        ),
        ("rows.csv", b"document,summary\n\xe9,b\n", "rows.csv:2: byte 0xe9 .* is not UTF-8"),
        ("rows.csv", 'document,summary\n"a\n', r'rows.csv:2: no key "summary"'),
        ("rows.json", "[1]", "rows.json:1: expected a JSON object, got int"),
        ("rows.json", '[{"document": "a"}', "rows.json: not a valid JSON array"),
        ("rows.json", "[]", "rows.json: the file is empty"),
    ],
)
def test_damaged_files_are_named(write, name, content, problem):
    with pytest.raises(InputError, match=problem):
        list(read_json_lines(write(name, content)))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv.gz", "a.parquet"])
def test_a_named_pipe_is_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(InputError, match=f"{name}: a named pipe, which may never be written to"):
        list(read_rows(tmp_path / name))


def test_a_pipe_of_a_shell_is_read():
    reading, writing = os.pipe()
    os.write(writing, b'{"document": "A cat sat."}\n')
    os.close(writing)
    assert list(read_rows(f"/dev/fd/{reading}")) == [(1, {"document": "A cat sat."})]
    os.close(reading)
