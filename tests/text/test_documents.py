import bz2
import gzip
import io
import json
import lzma

import pytest

from longsum_jax import compressed, files
from longsum_jax.errors import InputError
from longsum_jax.text import rows
from longsum_jax.text.documents import DataRow, read_json_lines, read_text_file

ROWS = [
    {"id": "a", "document": "First text.", "summary": "One.", "query": "What?"},
    {"id": 7, "document": "Zweiter Text: é", "summary": "Two.", "query": None, "other": [1]},
    {"document": "Third text.", "summary": "Three.", "query": " "},
]
EXPECTED = [
    DataRow("a", "First text.", "One.", "What?"),
    DataRow("7", "Zweiter Text: é", "Two.", None),
    DataRow("rows:3", "Third text.", "Three.", None),
]


def json_lines(rows=ROWS):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def zstandard(content):
    return pytest.importorskip(compressed.ZSTD).compress(content)


def failure(path, **options):
    """Returns the error message of reading ``path``, after as many good rows as there are."""
    with pytest.raises(InputError) as caught:
        list(read_json_lines(path, **options))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def write(tmp_path):
    """Writes a file and returns its path."""

    def write_file(content, name="rows.jsonl"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("rows.jsonl", bytes),
        ("rows.jsonl.gz", gzip.compress),
        ("rows.json.xz", lzma.compress),
        ("rows.jsonl.bz2", bz2.compress),
        ("rows.jsonl.zst", zstandard),
    ],
)
def test_plain_and_compressed_files(write, name, pack):
    assert list(read_json_lines(write(pack(json_lines()), name))) == EXPECTED


def test_paths_patterns_and_their_order(write, tmp_path):
    for name in ("b.jsonl", "a.jsonl", "c.txt"):
        write(json.dumps({"document": name, "summary": "s"}), name)
    read = read_json_lines([f"{tmp_path}/*.jsonl", tmp_path / "c.txt", f"{tmp_path}/a.jsonl"])
    assert [row.document for row in read] == ["a.jsonl", "b.jsonl", "c.txt", "a.jsonl"]


def test_a_file_with_pattern_characters_in_its_name(write):
    rows = list(read_json_lines(str(write(json_lines(), "rows.[1].jsonl"))))
    assert [row.id for row in rows] == ["a", "7", "rows.[1]:3"]


def test_zstandard_that_is_not_installed(write, monkeypatch):
    monkeypatch.setattr(compressed, "ZSTD", "not.installed")
    path = write(b"", "rows.jsonl.zst")
    assert failure(path) == f"{path}: to read Zstandard, pip install 'longsum_jax[files]'"


def test_renamed_keys(write):
    path = write('{"text": "t", "abstract": "s", "q": "q", "key": {"n": 1}}')
    keys = {"document_key": "text", "summary_key": "abstract", "query_key": "q", "id_key": "key"}
    assert list(read_json_lines(path, **keys)) == [DataRow('{"n": 1}', "t", "s", "q")]


def test_a_document_may_be_a_list_of_paragraphs(write):
    """As the cases of LexGLUE."""
    path = write('{"text": ["1. The facts.", "2. The law."], "labels": [4]}')
    keys = {"document_key": "text|document", "label_key": "labels", "require_summary": False}
    (document,) = read_json_lines(path, **keys)
    assert (document.document, document.label) == ("1. The facts.\n2. The law.", (4,))


@pytest.mark.parametrize("summary", ["", ', "summary": null', ', "summary": " "'])
def test_summaries_may_be_optional(write, summary):
    path = write('{"document": "t"' + summary + "}")
    assert list(read_json_lines(path, require_summary=False)) == [
        DataRow("rows:1", "t", None, None)
    ]


@pytest.mark.parametrize("require_summary", [True, False])
def test_every_file_may_have_its_own_usual_names(write, require_summary):
    paths = [
        write('{"article": "a", "highlights": "s"}', "a.jsonl"),
        write('{"document": "b", "summary": "t"}', "b.jsonl"),
    ]
    rows = list(read_json_lines(paths, require_summary=require_summary))
    assert [(row.document, row.summary) for row in rows] == [("a", "s"), ("b", "t")]
    (row,) = read_json_lines(paths[0], summary_key="", require_summary=False)
    assert row.summary is None


@pytest.mark.parametrize("value", ["3", '["x", "y"]', '{"a": 1}'])
def test_other_values_under_usual_names_are_no_optional_summaries(write, value):
    path = write('{"document": "t", "target": ' + value + "}")
    (row,) = read_json_lines(path, require_summary=False)
    assert (row.document, row.summary) == ("t", None)


def test_blank_lines_and_byte_order_mark(write):
    path = write(b"\xef\xbb\xbf" + json_lines(ROWS[:1]) + b"\n  \r\n" + json_lines(ROWS[2:]))
    assert [row.id for row in read_json_lines(path)] == ["a", "rows:4"]


def test_rows_before_a_bad_line_are_read(write):
    rows = read_json_lines(write(json_lines() + b"{"))
    assert [next(rows) for _ in range(3)] == EXPECTED
    with pytest.raises(InputError, match=r"rows\.jsonl:4: not valid JSON"):
        next(rows)


def test_a_ten_megabyte_line(write):
    text = "long line. " * 909_091
    path = write(json.dumps({"document": text, "summary": "s"}))
    assert next(read_json_lines(path)).document == text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"document": "x", ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"document": ' + "1" * 5000 + "}", "not valid JSON"),
        ('["x"]', "expected a JSON object, got list; give one object per line"),
        ("null", "expected a JSON object, got NoneType"),
        (
            '{"documents": "x", "summary": "s"}',
            'no key "document"; did you mean "documents"? known: documents, summary',
        ),
        (
            '{"document": "x"}',
            'no key "summary"; known: document; name another with --summary_key, in training '
            "--config.task.summary_key",
        ),
        (
            '{"chapter": "x", "notes": "y"}',
            'no keys "document" and "summary"; known: chapter, notes; name others with '
            "--document_key and --summary_key, in training --config.task.document_key and "
            "--config.task.summary_key",
        ),
        ('{"document": ["x", 3], "summary": "s"}', '"document" must be a string, got list'),
        ('{"document": 3, "summary": "s"}', '"document" must be a string, got int'),
        ('{"document": "x", "summary": null}', '"summary" must be a string, got null; correct or'),
        ('{"document": "x", "summary": "s", "query": 1}', '"query" must be a string, got int'),
        ('{"document": " \\n ", "summary": "s"}', '"document" is empty; remove the line'),
        ('{"document": "x", "summary": ""}', '"summary" is empty; remove the line'),
        ('{"document": "a\\u0000b", "summary": "s"}', '"document" contains a NUL character'),
        (
            '{"document": "a\\ud800b", "summary": "s"}',
            r'"document" contains a lone surrogate (\ud800)',
        ),
        (
            b'{"document": "caf\xe9", "summary": "s"}',
            "byte 0xe9 at position 17 is not UTF-8; convert",
        ),
        (b'{"document": "a\0b", "summary": "s"}', "NUL byte at position 15; give UTF-8 text"),
    ],
)
def test_bad_lines_name_file_and_line(write, line, problem):
    line = line if isinstance(line, bytes) else line.encode()
    path = write(json_lines() + line + b"\n" + json_lines())
    message = failure(path)
    assert message.startswith(f"{path}:4: ")
    assert problem in message


@pytest.mark.parametrize("content", [b"", b" \n\n", b"\xef\xbb\xbf"])
def test_empty_files(write, content):
    assert failure(write(content)).endswith(
        "rows.jsonl: the file is empty; give a file with one JSON object per line"
    )
    with pytest.raises(InputError, match=r"rows\.jsonl: the file is empty; give a text"):
        read_text_file(write(content))


def test_a_table_without_rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("document,summary\n")
    with pytest.raises(InputError, match="empty; give a file with rows below the names of its col"):
        list(read_json_lines(path))


def test_missing_files(tmp_path):
    assert failure(tmp_path / "none.jsonl").endswith("none.jsonl: no such file; check the path")
    assert "no file matches the pattern" in failure(f"{tmp_path}/*.jsonl")
    assert failure(tmp_path).startswith(f"{tmp_path} is a directory; give files")
    (tmp_path / "dataset_dict.json").write_text("{}")
    assert failure(tmp_path).endswith(f"such as {tmp_path}/train/*.arrow")
    with pytest.raises(InputError, match="no such file"):
        read_text_file(tmp_path / "none.txt")
    with pytest.raises(InputError, match="cannot read the file"):
        read_text_file(tmp_path)


def test_unreadable_file(write, monkeypatch):
    def deny(path, mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(
        rows, "open", deny, raising=False
    )  # permissions do not bind an administrator
    assert failure(write(json_lines())).endswith(
        "rows.jsonl: cannot read the file (Permission denied); check it"
    )


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".zst", zstandard),
    ],
)
class TestCompressed:
    def test_truncated(self, write, suffix, pack):
        rows = [{"document": f"text {i}", "summary": "s" * (i % 7 + 1)} for i in range(5000)]
        path = write(pack(json_lines(rows))[:-30], "cut.jsonl" + suffix)
        assert failure(path).startswith(f"{path}:")
        assert "damaged or cut short" in failure(path)

    def test_not_compressed(self, write, suffix, pack):
        path = write(json_lines(), "plain.jsonl" + suffix)
        assert failure(path).startswith(f"{path}:1: the compressed file is damaged")

    def test_corrupt_in_the_middle(self, write, suffix, pack):
        packed = bytearray(
            pack(json_lines([{"document": f"{i * i}", "summary": "s"} for i in range(20_000)]))
        )
        packed[len(packed) // 2] ^= 0xFF
        message = failure(write(bytes(packed), "bad.jsonl" + suffix))
        assert "bad.jsonl" in message

    def test_expanding_past_the_cap(self, write, suffix, pack):
        path = write(pack(b" " * 3_000_000), "bomb.jsonl" + suffix)
        assert path.stat().st_size < 10_000
        expected = "holds or expands to more than 1000000 bytes; raise max_bytes"
        assert expected in failure(path, max_bytes=1_000_000)
        with pytest.raises(InputError, match=expected):
            read_text_file(path, max_bytes=1_000_000)

    def test_expanding_past_the_cap_over_many_lines(self, write, suffix, pack):
        path = write(pack(json_lines(ROWS[:1]) * 1000), "many.jsonl" + suffix)
        assert len(list(read_json_lines(path, max_bytes=len(json_lines(ROWS[:1])) * 1000))) == 1000
        assert "raise max_bytes" in failure(path, max_bytes=len(json_lines(ROWS[:1])) * 1000 - 1)


def test_a_line_beyond_memory(write, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 1000)
    path = write(json_lines() + b'"' + b"x" * 2000)
    assert failure(path) == f"{path}:4: the line exceeds 1000 bytes; split the document"


def test_text_files(write):
    assert read_text_file(write("\ufeffHéllo\r\nworld\n", "a.txt")) == "Héllo\r\nworld\n"
    assert read_text_file(write(gzip.compress(b"text"), "a.txt.gz")) == "text"
    assert read_text_file(write("x" * 100), max_bytes=100) == "x" * 100


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a\0b", "NUL byte at position 1"),
        (b"caf\xe9", "byte 0xe9 at position 3 is not UTF-8"),
        ("text".encode("utf-16"), "is not UTF-8|NUL byte"),
    ],
)
def test_bad_text_files(write, content, problem):
    with pytest.raises(InputError, match=rf"bad\.txt: .*({problem})"):
        read_text_file(write(content, "bad.txt"))


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"From a pipe.")))
    assert read_text_file("-") == "From a pipe."
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="standard input: the file is empty"):
        read_text_file("-")


@pytest.mark.shared_data
def test_real_documents(shared_data):
    rows = list(read_json_lines(shared_data / "qmsum" / "test.jsonl.xz"))
    assert len(rows) == 281
    assert all(row.query and row.summary for row in rows)
    novels = read_json_lines(
        str(shared_data / "novels" / "val*.xz"), document_key="text", require_summary=False
    )
    assert len(list(novels)) == 4


@pytest.mark.parametrize(
    ("value", "label"),
    [("3", 3), ('"pos"', "pos"), ('["b", "a"]', ("b", "a")), ("[1, 0]", (1, 0)), ("[]", ())],
)
def test_labels(write, value, label):
    path = write(f'{{"document": "x", "stars": {value}}}'.encode())
    (row,) = read_json_lines(path, require_summary=False, label_key="stars")
    assert row.label == label


@pytest.mark.parametrize(
    "value", ["-1", "1.5", "true", "null", '""', '["a", 1]', "[[1]]", '{"a": 1}']
)
def test_labels_that_are_none(write, value):
    path = write(f'{{"document": "x", "label": {value}}}'.encode())
    with pytest.raises(
        InputError, match=r':1: "label" is .*; give a whole number from 0 on, a name, or a list of'
    ):
        list(read_json_lines(path, require_summary=False, label_key="label"))


def test_missing_label(write):
    path = write(b'{"document": "x", "lable": 1}')
    with pytest.raises(
        InputError,
        match=r':1: no key "label"; did you mean "lable"\? .* rename the field, or in training '
        "name another with task.label_key",
    ):
        list(read_json_lines(path, require_summary=False, label_key="label"))


def test_the_first_key_that_a_row_has(write):
    path = write(b'{"text": "a", "document": "b"}\n{"document": "c"}\n{"chapter": "d"}')
    rows = read_json_lines(path, document_key="text|document", require_summary=False)
    assert [next(rows).document, next(rows).document] == ["a", "c"]
    with pytest.raises(InputError, match=r':3: no key "text\|document"; known: chapter'):
        next(rows)


def test_several_summaries_and_no_document(write):
    path = write(json_lines([{"summary": ["One.", "Two."]}, {"summary": "A.", "document": "D."}]))
    result = list(read_json_lines(path, require_document=False, several_summaries=True))
    assert [(row.document, row.summary) for row in result] == [("", ("One.", "Two.")), ("D.", "A.")]


@pytest.mark.parametrize(
    ("summary", "problem"),
    [
        ([], 'rows.jsonl:1: "summary" is an empty list; give at least one text'),
        (["One.", ""], 'rows.jsonl:1: "summary" is empty; remove the line'),
        (["One.", 2], 'rows.jsonl:1: "summary" must be a string, got int'),
    ],
)
def test_lists_that_are_no_summaries(write, summary, problem):
    path = write(json_lines([{"document": "D.", "summary": summary}]))
    assert problem in failure(path, several_summaries=True)
    assert '"summary" must be a string, got list' in failure(path)
