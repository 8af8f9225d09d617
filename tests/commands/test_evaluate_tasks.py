"""longsum evaluate on named data sets; the model is a stand-in that compiles nothing."""

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from longsum_jax.commands import corpus, evaluate
from longsum_jax.data.examples.summarization import source_and_target
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.summarization import loading
from longsum_jax.summarization.summary import Summary

TFDS_SCRIPT = Path(__file__).parents[1] / "data" / "tfds_script.py"
ROWS = [
    {"id": f"r{i}", "document": f"One {i}. Two {i}.", "summary": f"One {i}.", "query": f"Why {i}?"}
    for i in range(3)
]


@dataclasses.dataclass
class Options:
    num_beams: int = 1


class FirstWords:
    """Summarizes a document by its first two words, and keeps what it was given."""

    fingerprint = "f"
    config_fingerprint = "c"
    trained_strategy = "direct"
    tokenizer = SimpleNamespace(fingerprint="pieces")

    def __init__(self):
        self.calls = []
        self.strategies = set()

    def summary_options(self, **options):
        return Options(**options)

    def summaries(self, texts, options, *, names, queries):
        self.strategies.add(options.strategy)
        self.calls += zip(names, texts, queries, strict=True)
        return [Summary(" ".join(text.split()[:2]), 4, 4, 0, 2, "eos") for text in texts]


@pytest.fixture
def model(monkeypatch):
    model = FirstWords()
    monkeypatch.setattr(loading, "load", lambda *_, **__: model)
    return model


@pytest.fixture
def evaluated(model, tmp_path):
    """Runs evaluate with the flags; returns predictions and metrics."""

    def evaluated(*flags, out="out"):
        evaluate.main(["--model=m", f"--out={tmp_path / out}", *flags])
        lines = (tmp_path / out / "predictions.jsonl").read_text().splitlines()
        metrics = json.loads((tmp_path / out / "metrics.json").read_text())
        return [json.loads(line) for line in lines], metrics

    return evaluated


@pytest.fixture
def source(tmp_path):
    """JSON lines of the splits test and validation."""
    for split, rows in (("test", ROWS), ("validation", ROWS[:1])):
        path = tmp_path / f"{split}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"json:{tmp_path}/{{split}}.jsonl"


def without_seconds(rows):
    return [row | {"seconds": 0} for row in rows]


def test_queries_and_ids_reach_the_model_as_those_of_files(evaluated, model, source, tmp_path):
    rows, metrics = evaluated("--task=qmsum", f"--source={source}")
    expected = [(f'document "{row["id"]}"', row["document"], row["query"]) for row in ROWS]
    assert model.calls == expected
    assert [row["id"] for row in rows] == ["r0", "r1", "r2"]
    assert metrics["task"] == "qmsum"
    assert metrics["source"] == source
    assert metrics["split"] == "test"
    of_file, _ = evaluated(f"--data={tmp_path / 'test.jsonl'}", out="of_file")
    assert without_seconds(rows) == without_seconds(of_file)
    assert model.calls == expected * 2
    of_source, metrics = evaluated(f"--data={source}", out="of_source")
    assert without_seconds(of_source) == without_seconds(rows)
    assert (metrics["source"], metrics["split"]) == (source, "test")


def test_documents_are_read_as_the_model_was_trained_unless_asked(evaluated, model, source):
    flags = ("--task=qmsum", f"--source={source}")
    evaluated(*flags)
    assert model.strategies == {"direct"}
    _, metrics = evaluated(*flags, "--strategy=hierarchical", out="other")
    assert model.strategies == {"direct", "hierarchical"}
    assert metrics["strategy"] == "hierarchical"
    with pytest.raises(InputError, match="holds predictions made with another strategy"):
        evaluated(*flags, "--strategy=refine", out="other")


@pytest.mark.parametrize(
    "flag", ["--strategy=hierarchical", "--segment_length=64", "--decoder_storage=int8"]
)
def test_a_flag_that_is_left_out_is_another_setting(evaluated, source, flag):
    flags = ("--task=qmsum", f"--source={source}")
    evaluated(*flags, flag)
    name = flag[2:].partition("=")[0]
    problem = f"holds predictions made with another {name}; give"
    with pytest.raises(InputError, match=problem):
        evaluated(*flags)


def test_an_option_of_generation_that_differs_is_named(evaluated, source):
    flags = ("--task=qmsum", f"--source={source}")
    evaluated(*flags, "--seed=5")
    with pytest.raises(InputError, match="made with another seed; give"):
        evaluated(*flags, "--seed=6")


def test_a_model_that_was_converted_again_is_another(evaluated, model, source):
    """It has the weights and the path of the one before."""
    evaluated("--task=qmsum", f"--source={source}")
    model.config_fingerprint = "d"
    with pytest.raises(InputError, match="holds predictions made with another config; give"):
        evaluated("--task=qmsum", f"--source={source}")


def test_predictions_of_documents_that_have_changed_are_refused(evaluated, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROWS[0]))
    evaluated(f"--data={path}")
    path.write_text(json.dumps(ROWS[0] | {"document": "Three. Four."}))
    with pytest.raises(InputError, match='query or reference of "r0" has changed since it was'):
        evaluated(f"--data={path}")


def test_fields_of_other_names_in_files(evaluated, model, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"report": "A b c.", "short": "A b.", "question": "Why?"}')
    keys = ("--document_key=report", "--summary_key=short", "--query_key=question")
    rows, _ = evaluated(f"--data={path}", *keys)
    assert model.calls == [('document "rows:1"', "A b c.", "Why?")]
    assert rows[0]["reference"] == "A b."


def test_a_stopped_evaluation_goes_on(evaluated, model, source, tmp_path):
    flags = ("--task=summaries", f"--source={source}", "--split=test")
    rows, _ = evaluated(*flags)
    path = tmp_path / "out" / "predictions.jsonl"
    path.write_text(path.read_text().partition("\n")[0] + "\n")
    (tmp_path / "out" / "SHA256SUMS").unlink()
    model.calls.clear()
    again, _ = evaluated(*flags)
    assert [name for name, *_ in model.calls] == ['document "r1"', 'document "r2"']
    assert without_seconds(again) == without_seconds(rows)
    with pytest.raises(InputError, match=r"out: holds predictions made with another split; give"):
        evaluated(*flags[:2], "--split=validation")
    with pytest.raises(InputError, match=r"made with another data, task, split, source; give"):
        evaluated(f"--data={tmp_path / 'test.jsonl'}")


def test_a_split_of_one_file_is_the_whole_file(evaluated, source, tmp_path, capsys):
    """Its documents may be the ones that were trained on, so a note says it."""
    flags = ("--task=summaries", f"--source=json:{tmp_path / 'test.jsonl'}")
    rows, _ = evaluated(*flags, "--split=validation")
    assert len(rows) == len(ROWS)
    assert "--split=validation has no effect on json:" in capsys.readouterr().err
    evaluated(*flags, out="default")
    evaluated(flags[0], f"--source={source}", "--split=validation", out="splits")
    assert "has no effect" not in capsys.readouterr().err


def test_records_of_tensorflow_datasets(evaluated, model, tmp_path):
    pytest.importorskip("tensorflow_datasets")
    spec = importlib.util.spec_from_file_location("tfds_script", TFDS_SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.Reports(data_dir=tmp_path, file_format="array_record").download_and_prepare()
    flags = ("--source=tfds:reports", f"--data_dir={tmp_path}", "--split=train", "--examples=4")
    keys = ("--document_key=text", "--summary_key=abstract", "--query_key=speaker")
    rows, metrics = evaluated("--task=arxiv", *flags, *keys)
    assert [row["id"] for row in rows] == [f"arxiv/train:{i}" for i in range(4)]
    assert metrics["data_dir"] == str(tmp_path)
    for row, (_, text, query) in zip(rows, model.calls, strict=True):
        number = text.split()[1]
        assert text == f"Part {number} is né. It is short. It ends."
        assert row["reference"] == f"Summary {number}."
        assert query == "A\nB"


def test_parquet_without_the_rows_that_have_no_summary(evaluated, tmp_path, capsys):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    table = pyarrow.table({"document": ["A b.", "C d.", "E f."], "summary": ["A.", " ", "E."]})
    write_table(table, tmp_path / "test-0.parquet")
    write_table(table.slice(1, 1), tmp_path / "validation-0.parquet")
    flags = ("--task=multinews", f"--source=parquet:{tmp_path}/{{split}}-*.parquet")
    rows, _ = evaluated(*flags)
    assert [(row["id"], row["reference"]) for row in rows] == [
        ("test-0:0", "A."),
        ("test-0:2", "E."),
    ]
    assert "1 document without a text or a summary left out" in capsys.readouterr().err
    with pytest.raises(InputError, match=r'no document of split "validation" has a summary; give'):
        evaluated(*flags, "--split=validation")
    with pytest.raises(InputError, match=r"train-\*\.parquet: no file matches the pattern"):
        evaluated(*flags, "--split=train")


def test_queries_at_the_beginning_of_a_field(evaluated, model, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    columns = {"pid": ["tr-1"], "input": ["Who?\n\nA: hi\nB: ho"], "output": ["B."]}
    write_table(pyarrow.table(columns), tmp_path / "test.parquet")
    source = f"--source=parquet:{tmp_path / 'test.parquet'}"
    evaluated("--task=qmsum_scrolls", source)
    assert model.calls == [('document "tr-1"', "A: hi\nB: ho", "Who?")]
    out = tmp_path / "qmsum.jsonl"
    corpus.main(["export", "--task=qmsum_scrolls", "--split=test", source, f"--out={out}"])
    evaluated(f"--data={tmp_path / 'qmsum.jsonl'}", out="exported")
    assert model.calls[1] == model.calls[0]


def test_the_test_splits_of_releases_have_references(evaluated, model, tmp_path, monkeypatch):
    """Both are read from the working directory unless --source names another."""
    section = {"section_title": "Background", "paragraphs": ["It rains."], "subsections": []}
    meeting = {
        "general_query_list": [{"query": "What?", "answer": "Rain."}],
        "specific_query_list": [{"query": "Who?", "answer": "Ann."}],
        "meeting_transcripts": [{"speaker": "Ann", "content": "It rains."}],
    }
    files = {
        "QMSum/data/ALL/test/Bed003.json": json.dumps(meeting),
        "gov-report/split_ids/crs_test.ids": "R1",
        "gov-report/split_ids/gao_test.ids": "G1",
        "gov-report/crs/R1.json": json.dumps({"reports": section, "summary": ["Rain."]}),
        "gov-report/gao/G1.json": json.dumps({"report": [section], "highlight": [section]}),
    }
    for name, text in files.items():
        path = tmp_path / "releases" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path / "releases")
    rows, metrics = evaluated("--task=qmsum", "--split=test")
    assert [(row["id"], row["reference"]) for row in rows] == [
        ("Bed003/general/0", "Rain."),
        ("Bed003/specific/0", "Ann."),
    ]
    assert model.calls[1] == ('document "Bed003/specific/0"', "Ann: It rains.", "Who?")
    assert metrics["scores"]["rouge1"] == pytest.approx((0 + 2 / 3) / 2 * 100)
    rows, _ = evaluated("--task=govreport", "--split=test", out="reports")
    assert [(row["id"], row["reference"]) for row in rows] == [
        ("crs/R1", "Rain."),
        ("gao/G1", "It rains."),
    ]


def test_gap_sentences_are_the_references_of_their_tasks(evaluated, model):
    rows, _ = evaluated("--task=embedded", "--split=validation", "--examples=2")
    task = get_task("embedded")
    texts = [source_and_target(task, document) for document in documents(task, "validation")]
    expected = [pair for pair in texts if pair is not None][:2]
    result = [(text, row["reference"]) for (_, text, _), row in zip(model.calls, rows, strict=True)]
    assert result == expected


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "give exactly one of --data=FILE and --task=NAME; neither is given"),
        (("--data=a", "--task=arxiv"), "one of --data=FILE and --task=NAME; both are given"),
        (("--data=a", "--split=test"), "--split=test is for --task; leave it out"),
        (("--data=a", "--source=json:b"), "--source=json:b is for --task; leave it out"),
        (("--data=hf:a/b", "--source=json:b"), "--data=hf:a/b and --source=json:b are both"),
        (("--task=arxif",), 'unknown task "arxif"; did you mean "arxiv"? known: '),
        (("--task=scotus", "--num_beams=2"), "--num_beams has no effect with --task=scotus, which"),
        (("--task=tags", "--metrics=rouge"), "--metrics has no effect with --task=tags, which has"),
        (("--task=tags", "--split=dev"), 'task "tags" has no split "dev"; known: test, train, val'),
        (("--task=tags", "--batch_size=auto"), "--batch_size=auto is for summaries, which --task="),
        (("--task=billsum", "--split=tests"), 'no split "tests"; did you mean "test"? known: '),
        (("--task=arxiv", "--source=x:y"), 'task "arxiv": source "x:y" must be one of embedded, '),
        (("--task=summaries", "--source=json:no.jsonl"), "no.jsonl: no such file; check the path"),
    ],
)
def test_bad_input(evaluated, tmp_path, flags, problem):
    with pytest.raises(InputError) as caught:
        evaluated(*flags)
    assert problem in str(caught.value)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "flags"), [("tensorflow_datasets", ()), ("seqio", ("--cache_dir=cache",))]
)
def test_a_package_that_is_missing(evaluated, monkeypatch, package, flags):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf'need {package}: pip install "longsum_jax\[data\]"'):
        evaluated("--task=arxiv", *flags)


def test_a_prompt_and_a_length_are_compared_with_earlier_predictions(evaluated, source):
    """The metric "length" does not hide the flag."""
    flags = ["--metrics=rouge,length", "--prompt=Briefly: {document}", "--length=3 words"]
    _, metrics = evaluated(f"--data={source}", *flags)
    assert (metrics["length"], metrics["prompt"]) == ("3 words", "Briefly: {document}")
    assert "length_metric" in metrics
    evaluated(f"--data={source}", *flags)
    for name, change in (
        ("prompt", "--prompt=At length: {document}"),
        ("length", "--length=9 words"),
    ):
        with pytest.raises(InputError, match=f"made with another {name}; give another --out"):
            evaluated(f"--data={source}", *flags, change)


def test_metrics_that_some_predictions_lack_are_scored(evaluated, source):
    flags = (f"--data={source}", "--metrics=rouge,novelty")
    evaluated(*flags, "--examples=2")
    evaluated(f"--data={source}", "--metrics=rouge")
    rows, metrics = evaluated(*flags)
    assert all("novel_1" in row["scores"] for row in rows)
    assert metrics["scores"] == evaluated(*flags, out="whole")[1]["scores"]


def test_a_refused_evaluation_keeps_the_checksums(evaluated, source, model, tmp_path, monkeypatch):
    evaluated(f"--data={source}", "--examples=1")
    sums = tmp_path / "out" / "SHA256SUMS"
    content = sums.read_bytes()

    def refuse(*_, **__):
        raise InputError("a document is too long")

    with monkeypatch.context() as patch:
        patch.setattr(model, "summaries", refuse)
        with pytest.raises(InputError, match="too long"):
            evaluated(f"--data={source}")
    path = tmp_path / "test.jsonl"
    path.write_text(path.read_text().replace("One 0.", "Another."))
    with pytest.raises(InputError, match=r'reference of "r0" has changed'):
        evaluated(f"--data={source}")
    assert sums.read_bytes() == content
