import json

import numpy as np
import pytest

from longsum_jax.commands import corpus
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.evaluation.predictions import read_pairs

ROWS = [
    {"id": "a", "report": "The cat sat on the mat.", "abstract": "The cat slept."},
    {"id": "b", "report": "A dog barked.", "abstract": "A dog barked."},
]
KEYS = ("--document_key=report", "--summary_key=abstract")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def test_statistics_of_files_as_a_table_and_as_json(data, tmp_path, capsys):
    out = tmp_path / "statistics.json"
    corpus.main(["statistics", data, data, *KEYS, f"--out={out}"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[-4:] == ["words", "compression", "coverage", "density"]
    assert [line.split() for line in lines] == [
        [data, "2", "4.5", "3.0", "1.50", "0.833", "2.17"]
    ] * 2
    first, _ = json.loads(out.read_text())
    assert first["documents"] == 2
    assert first["density"] == pytest.approx((4 / 3 + 3) / 2)


@pytest.fixture
def long_data(tmp_path):
    """41 documents of 1 to 41 words, with summaries of 1 to 3; and their lengths."""
    lengths = [(7 * number % 41 + 1, number % 3 + 1) for number in range(41)]
    path = tmp_path / "long.jsonl"
    rows = [{"document": "né " * words, "summary": "cat's " * few} for words, few in lengths]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path), lengths


@pytest.mark.parametrize(
    ("tokenizer", "document_tokens", "summary_tokens"), [("whitespace", 1, 1), ("bytes", 4, 6)]
)
def test_statistics_in_tokens(
    long_data, tmp_path, capsys, tokenizer, document_tokens, summary_tokens
):
    """Means, medians, 90th percentiles and maxima equal NumPy's."""
    path, lengths = long_data
    out = tmp_path / "statistics.json"
    corpus.main(["statistics", path, f"--tokenizer={tokenizer}", f"--out={out}"])
    *_, head, documents_line, summaries_line = capsys.readouterr().out.splitlines()
    assert head.split() == f"tokens ({tokenizer}) mean median 90th percentile largest".split()
    (row,) = json.loads(out.read_text())
    assert row["documents"] == 41
    assert row["tokenizer"] == tokenizer
    lines = {"document": documents_line, "summary": summaries_line}
    factors = {"document": document_tokens, "summary": summary_tokens}
    for column, (kind, line) in enumerate(lines.items()):
        values = factors[kind] * np.array(lengths)[:, column]
        expected = {
            "mean": values.mean(),
            "median": np.median(values),
            "percentile_90": np.percentile(values, 90, method="linear"),
            "largest": values.max(),
        }
        assert row[f"{kind}_tokens"] == pytest.approx(expected, rel=1e-12)
        mean, median, percentile, largest = expected.values()
        cells = [f"{mean:,.2f}", f"{median:,.1f}", f"{percentile:,.1f}", f"{largest:,}"]
        assert line.split() == [path, kind, *cells]


def test_statistics_of_all_splits_and_of_data_without_summaries(tmp_path, capsys):
    for split, texts in (("train", ["a b", "a b c d"]), ("test", ["a b c"])):
        rows = (json.dumps({"text": text, "label": 0}) + "\n" for text in texts)
        (tmp_path / f"{split}.jsonl").write_text("".join(rows))
    pattern, out = f"{tmp_path}/t*.jsonl", tmp_path / "statistics.json"
    keys = ("--document_key=text", "--summary_key=", "--tokenizer=whitespace")
    corpus.main(["statistics", pattern, f"{tmp_path}/test.jsonl", *keys, f"--out={out}"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == [pattern, "3", "3.0", *"----"]
    assert [line.split()[2:] for line in lines[-2:]] == [
        ["3.00", "3.0", "3.8", "4"],
        ["3.00", "3.0", "3.0", "3"],
    ]
    both, test = json.loads(out.read_text())
    assert both["summary_words"] is both["density"] is None
    assert both["document_tokens"] == pytest.approx(
        {"mean": 3, "median": 3, "percentile_90": 3.8, "largest": 4}
    )
    assert "summary_tokens" not in test


def test_statistics_show_their_progress(data, monkeypatch):
    calls = []

    def bar(rows, *arguments, **options):
        calls.append((arguments, options))
        return rows

    monkeypatch.setattr(corpus, "Bar", bar)
    corpus.main(["statistics", data, *KEYS, "--examples=2"])
    assert calls == [((data, 2), {"unit": "document"})]


def test_statistics_of_the_first_documents(data, capsys):
    corpus.main(["statistics", data, *KEYS, "--examples=1"])
    assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["1", "6.0", "3.0"]


def test_govreport_becomes_a_data_set_of_its_own(tmp_path, capsys):
    release, target = tmp_path / "gov-report", tmp_path / "reports"
    section = {"section_title": "Title", "paragraphs": ["Text é."], "subsections": []}
    for office, row in (
        ("crs", {"reports": section, "summary": ["S."]}),
        ("gao", {"report": [], "highlight": []}),
    ):
        (release / office).mkdir(parents=True)
        (release / "split_ids").mkdir(exist_ok=True)
        for split in ("train", "valid", "test"):
            (release / office / "1.json").write_text(json.dumps(row))
            (release / "split_ids" / f"{office}_{split}.ids").write_text(
                "1\n1\n" if office == "crs" else ""
            )
    with pytest.raises(InputError, match=r"gao_train\.ids: the file is empty"):
        corpus.main(["govreport", str(release), str(target)])
    assert not target.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["gov-report"]
    for split in ("train", "valid", "test"):
        (release / "split_ids" / f"gao_{split}.ids").write_text("1\n")
    (release / "gao" / "1.json").write_text(
        json.dumps({"report": [section], "highlight": [section]})
    )
    corpus.main(["govreport", str(release), str(target)])
    assert f"{target}/validation.jsonl: 3 reports" in capsys.readouterr().out
    titled = section | {"section_title": "What GAO Found"}
    (release / "gao" / "1.json").write_text(
        json.dumps({"report": [section], "highlight": [section, titled]})
    )
    corpus.main(["govreport", str(release), str(target)])
    out = capsys.readouterr().out
    table = out[out.index("aspects of 1 GAO summary in %, all splits\n") :].splitlines()[1:]
    assert [line.split() for line in table] == [
        ["summaries", "sentences"],
        ["Why", "GAO", "did", "this", "study", "0.00", "0.00"],
        ["What", "GAO", "found", "100.00", "50.00"],
        ["What", "GAO", "recommends", "0.00", "0.00"],
        ["other", "100.00", "50.00"],
    ]
    rows = [json.loads(line) for line in (target / "test.jsonl").read_text().splitlines()]
    aspects = [{"aspect": name, "text": "Text é."} for name in ("other", "What GAO found")]
    assert [row.get("aspects") for row in rows] == [None, None, aspects]
    # One of the ids names no file: it is told, and counted.
    (release / "split_ids" / "gao_train.ids").write_text("1\n2\n")
    corpus.main(["govreport", str(release), str(target)])
    out, err = capsys.readouterr()
    assert f"{target}/train.jsonl: 3 reports, 1 left out; sections of a report: " in out
    assert f"{target}/test.jsonl: 3 reports; sections of a report: 1.0 (crs), 1.0 (gao)\n" in out
    assert f"left out: {release}/gao/2.json: no such file; check the path" in err
    # Where nothing can be read, nothing is written.
    for office in ("crs", "gao"):
        (release / "split_ids" / f"{office}_test.ids").write_text("3\n")
    with pytest.raises(InputError, match=r"crs/3\.json: no such file"):
        corpus.main(["govreport", str(release), str(target)])
    task = get_task("govreport", source=f"json:{target}/{{split}}.jsonl")
    result = [(row.id, row.document, row.summary) for row in documents(task, "test")]
    assert result == [("crs/1", "Title\nText é.", "S.")] * 2 + [
        ("gao/1", "Title\nText é.", "Text é.\nText é.")
    ]


@pytest.fixture
def meetings(tmp_path):
    """JSON lines of two splits: questions, ids that are numbers or absent, lines of a meeting."""
    rows = [
        {"id": 7, "report": "A né.\u2028B.", "abstract": "Né.", "question": "Who?"},
        {"report": ["One.", "Two."], "abstract": "One."},
    ]
    for split, part in (("train", rows), ("test", rows[1:])):
        path = tmp_path / f"{split}.rows"
        path.write_text("".join(json.dumps(row) + "\n" for row in part))
    return {
        "source": f"json:{tmp_path}/{{split}}.rows",
        "document_key": "report",
        "summary_key": "abstract",
        "query_key": "question",
    }


def export(task, out, *flags, **options):
    named = (f"--{key}={value}" for key, value in options.items())
    corpus.main(["export", f"--task={task}", f"--out={out}", *named, *flags])


@pytest.mark.parametrize("out", ["new/set", "new/{split}.jsonl.gz", "new-{split}.jsonl.xz"])
def test_exported_splits_are_read_back_to_the_same_documents(meetings, tmp_path, out, capsys):
    export("qmsum", tmp_path / out, "--split=train,test", **meetings)
    printed, shown = capsys.readouterr()
    assert "\r" not in shown  # no bar moves in a file
    task = get_task("qmsum", **meetings)
    pattern = str(tmp_path / (out if "{split}" in out else f"{out}/{{split}}.jsonl"))
    assert f"{pattern.replace('{split}', 'train')}: 2 documents\n" in printed
    trained_on = get_task("summaries", source=f"json:{pattern}")  # as configs/finetune.py does
    for split in ("train", "test"):
        expected = list(documents(task, split))
        assert list(documents(trained_on, split)) == expected
        path = pattern.replace("{split}", split)
        evaluated = read_pairs(path).values()
        assert [(p.id, p.source, p.reference, p.query) for p in evaluated] == [
            row[:4] for row in expected
        ]
    corpus.main(["statistics", path])
    assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["1", "2.0", "1.0"]
    with pytest.raises(InputError, match="already exists; remove it or give another --out"):
        export("qmsum", tmp_path / out, "--split=train", **meetings)


def test_an_export_of_the_first_documents(meetings, tmp_path):
    path = tmp_path / "a.jsonl"
    export("qmsum", path, "--split=train", "--examples=1", **meetings)
    row = {"id": "7", "document": "A né.\u2028B.", "summary": "Né.", "query": "Who?"}
    assert [json.loads(line) for line in path.read_text().split("\n")[:-1]] == [row]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("choices", {"context": "A.", "question": "Wet?", "label": 0, "choices": ["a", "b"]}),
        ("answers", {"context": "It rains.", "question": "What?", "answer": "rains"}),
        ("pairs", {"document": "It rains.", "claim": "It is wet.", "label": "CORRECT"}),
        ("tags", {"document": "It rains.", "label": ["O", "B"]}),
        ("extracts", {"document": "It rains.", "summary": "Rain.", "query": "What?"}),
    ],
)
def test_an_export_is_read_back_by_its_task(name, row, tmp_path):
    row = {"id": "a"} | row
    source, out = (tmp_path / "rows.jsonl", tmp_path / "out.jsonl")
    source.write_text(json.dumps(row) + "\n")
    export(name, out, "--split=train", source=f"json:{source}")
    assert json.loads(out.read_text()) == row
    expected, result = (get_task(name, source=f"json:{path}") for path in (source, out))
    assert list(documents(result, "train")) == list(documents(expected, "train"))


def test_an_export_of_labels(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    columns = {"text": [["1. a", "2. b"], ["1. c"], [""]], "labels": [[4, 9], [], [1]]}
    write_table(pyarrow.table(columns), tmp_path / "train-0.parquet")
    source = f"parquet:{tmp_path}/{{split}}-*.parquet"
    export("ecthr_a", tmp_path / "cases.jsonl", "--split=train", source=source)
    back = get_task("labels", source=f"json:{tmp_path / 'cases.jsonl'}")
    *expected, empty = documents(get_task("ecthr_a", source=source), "train")
    assert list(documents(back, "train")) == expected
    assert empty.document == ""


def test_an_export_for_gap_sentences_is_cut_by_its_reader(tmp_path):
    text = " ".join(f"This is sentence {number} of a novel." for number in range(20))
    (tmp_path / "novels.jsonl").write_text(json.dumps({"id": "n", "text": text}))
    source = f"json:{tmp_path / 'novels.jsonl'}"
    export("pg19", tmp_path / "out.jsonl.gz", "--split=test", source=source)
    tasks = [
        get_task("pg19", source=place, piece_words=50)
        for place in (source, f"json:{tmp_path / 'out.jsonl.gz'}")
    ]
    expected, result = (list(documents(task, "test")) for task in tasks)
    assert len(expected) > 1
    assert result == expected


def test_an_export_that_fails_leaves_nothing(tmp_path):
    rows = tmp_path / "rows"
    rows.write_text('{"document": "a", "summary": "b"}\n{"document": "a"}\n')
    with pytest.raises(InputError, match=r'rows:2: no key "summary"'):
        export("arxiv", tmp_path / "out.jsonl", "--split=test", source=f"json:{rows}")
    rows.unlink()
    assert not any(tmp_path.iterdir())


def test_an_existing_file_is_not_replaced(meetings, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("My own words.")
    with pytest.raises(InputError, match=f"{out} already exists; remove it"):
        export("qmsum", out, "--split=test", **meetings)
    assert out.read_text() == "My own words."


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "give --task=NAME; longsum prepare --help-all lists the names"),
        (("--task=arxif",), 'unknown task "arxif"; did you mean "arxiv"? known: '),
        (
            ("--task=billsum", "--split=dev"),
            'task "billsum" has no split "dev"; known: test, train',
        ),
        (("--task=arxiv", "--examples=0"), "--examples=0 must be at least 1"),
        (
            ("--task=billsum", "--out=a.jsonl"),
            '--out=a.jsonl is one file for 2 splits; put "{split}" into its name or give one as '
            "--split=train",
        ),
        (
            ("--task=arxiv", "--out=a.csv"),
            "--out=a.csv: end it in .jsonl, .jsonl.gz, .jsonl.xz, or",
        ),
        (("--task=c4", "--cache_dir=c"), "--cache_dir=c holds pieces of documents, without their"),
        (("--task=scotus", "--source=parquet:no/*"), "no/*: no file matches the pattern"),
    ],
)
def test_bad_exports(flags, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        corpus.main(["export", "--out=out", *flags])
    assert problem in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_split_without_summaries_is_not_exported(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table({"document": ["a", "b"], "summary": ["", " "]})
    write_table(table, tmp_path / "test.parquet")
    source = f"parquet:{tmp_path / 'test.parquet'}"
    with pytest.raises(InputError, match=r'split "test" has no document with a text and a summary'):
        export("multinews", tmp_path / "out", "--split=test", source=source)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["statistics", "nowhere.jsonl"], "nowhere.jsonl: no such file; check the path"),
        (
            ["statistics", "DATA", "--document_key=chapter", "--summary_key=notes"],
            'rows.jsonl:1: no keys "chapter" and "notes"; ',
        ),
        (["statistics", "DATA", "--examples=0"], "--examples=0 must be at least 1"),
        (["statistics", "DATA", *KEYS, "--tokenizer=no.model"], "no.model: "),
        (
            ["statistics", "DATA", *KEYS, "--out=DATA/x"],
            "cannot be written (Not a directory); give another path",
        ),
        (
            ["govreport", "nowhere", "DATA/x"],
            "cannot be written (Not a directory); give another DST",
        ),
    ],
)
def test_bad_input(arguments, problem, data, capsys):
    with pytest.raises(InputError) as caught:
        corpus.main([argument.replace("DATA", data) for argument in arguments])
    assert problem in str(caught.value)


def test_an_export_of_claims_and_cloze_questions_is_data_of_pairs_and_of_answers(tmp_path, capsys):
    story = "Bob Ray of Paris paid $5 million for the old dam that was near Rome."
    row = {"id": "a", "document": story, "summary": "Bob Ray of Paris paid $5 million."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = f"json:{tmp_path / 'rows.jsonl'}"
    for task, reader in (("claims", "pairs"), ("cloze", "answers")):
        out = tmp_path / f"{task}.jsonl"
        export(task, out, "--split=train", source=source)
        result = list(documents(get_task(reader, source=f"json:{out}"), "train"))
        assert result == list(documents(get_task(task, source=source), "train"))
        assert [each.id for each in result] == ["a#0", "a#1"]
        assert all(each.query and each.label for each in result)
    assert "2 documents" in capsys.readouterr().out


def test_overlap_counts_every_document_once(tmp_path, monkeypatch, capsys):
    """Rows of two files of a glob may have the same id."""
    monkeypatch.chdir(tmp_path)
    texts = {"test-a": "one two three four", "test-b": "five six seven eight nine zero"}
    texts["train"] = "one two three four five six seven"
    for name, text in texts.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "1", "document": text}))
    flags = ["--train=train.jsonl", "--ngram=3", "--out=shares.json"]
    corpus.main(["overlap", "test-*.jsonl", "test-b.jsonl", "test-b.jsonl", *flags])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert lines == [["test-*.jsonl", "2", "2", "1"], ["test-b.jsonl", "1", "1", "0"]]
    shares = json.loads((tmp_path / "shares.json").read_text())
    assert shares == {"test-*.jsonl": {"1": 1.0}, "test-b.jsonl": {"1": 0.25}}
