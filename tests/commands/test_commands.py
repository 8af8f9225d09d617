"""The commands as a shell sees them: exit code, standard output, standard error, and what they
leave on disk."""

import base64
import dataclasses
import functools
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import flax.linen as nn
import jax
import ml_dtypes
import numpy as np
import pytest

import longsum_jax
from longsum_jax import checksums
from longsum_jax.commands import (
    console,
    convert,
    corpus,
    evaluate,
    extract,
    judge,
    plan,
    prepare,
    score,
    summarize,
    train,
    verify,
)
from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.registry import METRICS
from longsum_jax.evaluation.significance import bootstrap_intervals
from longsum_jax.models.registry import get_family
from longsum_jax.summarization import loading
from longsum_jax.summarization.model import Model
from longsum_jax.text.sentences import split_sentences
from longsum_jax.training.checkpointing import read_meta

pytestmark = pytest.mark.usefixtures("drawn_start")

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "summarize": summarize,
    "convert": convert,
    "prepare": prepare,
}
COMMANDS |= {"extract": extract, "corpus": corpus, "score": score, "judge": judge, "plan": plan}
COMMANDS |= {"verify": verify}
TEXT = "The cat sat on the mat. It slept the whole day long. Then a dog came by and barked."


@pytest.fixture(autouse=True, scope="module")
def small_model_is_loaded_once(small_model):
    """Keeps the small model loaded: what one command compiled for it serves the next."""
    read = loading.load
    retained = functools.cache(read)

    def load(path, **options):
        selected = retained if str(path) == str(small_model) else read
        return selected(str(path), **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(longsum_jax, "load", load)
        patch.setattr(loading, "load", load)
        yield


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command in this process as ``longsum NAME`` would: (exit code, stdout, stderr)."""

    def run(name, *arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            console.run(COMMANDS[name].main)
        return caught.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(run, tmp_path):
    """Runs a command that must fail with one sentence, leaving the disk as it was; returns the
    sentence."""

    def refused(name, *arguments, stdin=b""):
        before = contents(tmp_path)
        code, out, err = run(name, *arguments, stdin=stdin)
        errors = [
            line for line in err.splitlines() if not line.endswith(" ...")
        ]  # "reading DIR ..."
        assert (code, out, len(errors)) == (2, "", 1), (code, out, err)
        assert contents(tmp_path) == before
        return errors[0].removeprefix("error: ")

    return refused


def contents(directory):
    return {path: path.is_file() and path.read_bytes() for path in directory.rglob("*")}


@pytest.fixture
def data(tmp_path):
    """Four documents with summaries."""
    path = tmp_path / "data.jsonl"
    rows = [
        {"id": name, "document": f"{TEXT} {name}", "summary": f"Cat and dog {name}."}
        for name in "abcd"
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def in_a_shell(name, *arguments, cwd):
    """Runs a command in a process of its own."""
    own = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    environment = os.environ | own
    command = [sys.executable, "-W", "error", "-m", "longsum_jax", name, *map(str, arguments)]
    return subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_module_runs_from_another_directory(tmp_path):
    done = in_a_shell("train", "--config=configs/quickstart.py:tny", "--workdir=here", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.endswith('unknown mode "tny"; did you mean "tiny"? known: default, tiny\n')
    assert not any(tmp_path.iterdir())


# train


@pytest.mark.slow
def test_trained_workdir(trained):
    assert {path.name for path in trained.iterdir()} == {
        "README.md",
        "checkpoints",
        "evaluations.jsonl",
        "metrics.jsonl",
        "model",
        "report.html",
        "run.json",
    }
    records = read_lines(trained / "evaluations.jsonl")
    assert [record["step"] for record in records] == [2, 3]
    low, high = records[-1]["intervals"]["mean_rouge"]
    assert low <= records[-1]["scores"]["mean_rouge"] <= high
    assert len(records[-1]["samples"]) == min(3, records[-1]["documents"])
    assert "Step 3 of 3" in (trained / "report.html").read_text(encoding="utf-8")
    lines = read_lines(trained / "metrics.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "eval" in line] == [2, 3]
    assert {"mean_rouge", "lead_mean_rouge", "random_rouge1", "summary_tokens"} <= lines[-1][
        "eval"
    ].keys()
    latest = longsum_jax.load(trained, which="latest")
    best_step = read_meta(trained, which="best")["step"]
    scores = {line["step"]: line["eval"]["mean_rouge"] for line in lines if "eval" in line}
    assert best_step == max(scores, key=lambda step: (scores[step], step))
    assert (longsum_jax.load(trained).fingerprint == latest.fingerprint) == (best_step == 3)
    assert latest.generation_options().max_new_tokens == 4
    assert latest.tokenizer.vocab_size == 384


@pytest.mark.slow
def test_a_workdir_whose_model_lacks_its_sums_is_not_loaded(trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "run")
    (workdir / "model" / checksums.SUMS).unlink()
    with pytest.raises(InputError, match=r"SHA256SUMS is missing, .* --unverified"):
        longsum_jax.load(workdir)


@pytest.mark.slow
def test_same_command_continues(run, trained, tiny_run, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    before = read_lines(workdir / "metrics.jsonl")
    code, out, _ = run("train", f"--config={tiny_run}", f"--workdir={workdir}")
    assert code == 0
    assert out.startswith(f"3 steps done; checkpoints and metrics are in {workdir}\n")
    assert f"longsum summarize --model={workdir} FILE.txt" in out
    assert read_lines(workdir / "metrics.jsonl") == before
    code, out, _ = run(
        "train", f"--config={tiny_run}", f"--workdir={workdir}", "--config.training.steps", "4"
    )
    after = read_lines(workdir / "metrics.jsonl")
    assert (code, after[: len(before)]) == (0, before)
    assert [line["step"] for line in after[len(before) :]] == [4, 4]
    table = {line.split()[0]: line.split()[1:] for line in out.splitlines()[2:6]}
    assert table["lead"][-1] == f"{after[-1]['eval']['lead_mean_rouge']:.2f}"
    assert table["model"][-1] == f"{after[-1]['eval']['mean_rouge']:.2f}"


# A run whose step is compiled in a third of the time.
TINY_CLASSIFIER = (
    "configs/classify.py:tiny,model.hidden_size=16,model.num_hidden_layers=1,"
    "model.num_attention_heads=2,model.intermediate_size=16,tokenizer.path=bytes,"
    "model.vocab_size=300,task.max_source_length=32,evaluation.examples=0"
)


@pytest.mark.slow
def test_diverging_run_exits_with_1(run, tmp_path):
    flags = (
        "optimizer.learning_rate=1e6,optimizer.weight_decay=1e6,optimizer.warmup_steps=0,"
        "training.max_bad_steps=1,optimizer.decays_all=True"
    )
    config = f"{TINY_CLASSIFIER},{flags}"
    code, out, err = run("train", f"--config={config}", f"--workdir={tmp_path / 'run'}")
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith(
        "error: the loss or its gradient was not finite in steps "
    )


@pytest.mark.slow
def test_corrected_command_takes_a_failed_start_over(run, tmp_path):
    workdir = tmp_path / "run"
    (workdir / "model").mkdir(parents=True)
    (workdir / "model" / "config.json").write_text('{"model_type": "locost"}')
    config = f"{TINY_CLASSIFIER},training.steps=1"
    assert run("train", f"--config={config}", f"--workdir={workdir}")[0] == 0
    assert longsum_jax.load(workdir, which="latest").config.hidden_size == 16


# tests/experiment has what else a run refuses.
BAD_CONFIGS = {
    "no.py": "--config=no.py: no such file, neither here nor in ",
    "configs/quickstart.py:tniy": 'quickstart.py: unknown mode "tniy"; did you mean "tiny"?',
    "{run},data.batch_size=four": 'config.data.batch_size: "four" is not a whole number; give one',
    "{run},model.num_heads=3": "d_model 16 is not divisible by num_heads 3; change either",
    "{run},tokenizer.path=bytes,model.vocab_size=99": "bytes: the tokenizer has 259 pieces but",
    "{run},init_from=no-model": "no-model: no such directory; give a model directory or a training",
}


@pytest.mark.parametrize("config", BAD_CONFIGS)
def test_train_refuses(refused, tiny_run, tmp_path, config):
    flag = f"--config={config.replace('{run}', tiny_run)}"
    assert BAD_CONFIGS[config] in refused("train", flag, f"--workdir={tmp_path / 'run'}")


def test_train_refuses_a_malformed_line(refused, tiny_run, data, tmp_path):
    with data.open("a") as file:
        file.write('{"text": "cut')
    config = f"{tiny_run},task.source=json:{data},task.document_key=document,tokenizer.path=bytes"
    message = refused("train", f"--config={config}", f"--workdir={tmp_path / 'run'}")
    assert message.startswith(f"{data}:5: not valid JSON (")


def test_train_refuses_the_workdir_of_another_run(refused, trained, tiny_run, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    message = refused(
        "train", f"--config={tiny_run},model.d_ff=24", f"--workdir={tmp_path / 'run'}"
    )
    assert (
        "holds another run, differing in model.d_ff (16 there, 24 here); give another workdir"
        in message
    )


def test_train_refuses_to_start_from_another_model(refused, trained, tiny_run, tmp_path):
    config = f"{tiny_run},init_from={trained},model.d_kv=4"
    message = refused("train", f"--config={config}", f"--workdir={tmp_path / 'run'}")
    assert "differs from config.model in decoder/layers/cross_attention/k/kernel" in message


# evaluate


@pytest.fixture
def evaluated(run, small_model, data, tmp_path):
    """Runs evaluate on `data` into "out"; further flags as given."""

    def evaluated(*flags):
        return run(
            "evaluate",
            f"--model={small_model}",
            f"--data={data}",
            f"--out={tmp_path / 'out'}",
            *flags,
        )

    return evaluated


@pytest.mark.slow
def test_evaluate_writes_predictions_and_metrics(evaluated, tmp_path):
    report = tmp_path / "report.html"
    flags = ("--batch_size=3", "--stemmer", "--max_source_length=20", f"--report={report}")
    code, out, _ = evaluated(*flags)
    assert code == 0
    assert out.endswith(f"{report}: the report; open it in a browser\n")
    packed = re.search(r'id="index">(.*?)</script>', report.read_text())[1]
    index = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert [system["name"] for system in index["systems"]] == ["model", "lead", "random"]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "metrics.json",
        "predictions.jsonl",
        "settings.json",
        "SHA256SUMS",
    }
    rows = read_lines(tmp_path / "out" / "predictions.jsonl")
    assert [row["id"] for row in rows] == list("abcd")
    assert all(row["read_tokens"] == 20 < row["document_tokens"] for row in rows)
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["examples"] == 4
    assert metrics["scores"]["rouge1"] == pytest.approx(
        np.mean([row["scores"]["rouge1"] for row in rows])
    )
    assert metrics["dropped_tokens"] == sum(row["document_tokens"] - 20 for row in rows)
    assert metrics["rouge"]["stemmer"] is True
    assert metrics["rouge"]["signature"].startswith("rouge|stem:yes|split:longsum-")
    assert metrics["longsum_jax"] == longsum_jax.__version__
    assert metrics["generation"]["max_new_tokens"] == 6
    assert metrics["baselines"].keys() == {"lead", "random"}
    assert [system["values"] for system in index["systems"]] == [
        metrics["scores"],
        *metrics["baselines"].values(),
    ]
    assert f"{metrics['documents_per_second']} documents/s" in out
    assert f"{metrics['dropped_tokens']} of {metrics['document_tokens']} tokens not read" in out
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["model", "lead", "random"]


class Brevity(Metric):
    """Share of the reference's words that the summary has, at most 1."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        scale: float = 1.0

    columns = ("brevity",)

    def score(self, predictions, references, sources):
        assert all(TEXT in source for source in sources)
        counts = zip(map(str.split, predictions), map(str.split, references), strict=True)
        return [{"brevity": self.options.scale * min(len(a) / len(b), 1)} for a, b in counts]


def test_evaluate_by_other_metrics(evaluated, tmp_path, monkeypatch):
    monkeypatch.setitem(METRICS, "brevity", Brevity)
    code, out, _ = evaluated("--metrics=rouge,brevity", "--metric_option=brevity.scale=100")
    assert code == 0
    columns = ["rouge1", "rouge2", "rougeLsum", "mean_rouge", "brevity"]
    assert out.splitlines()[0].split() == columns
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    rows = read_lines(tmp_path / "out" / "predictions.jsonl")
    for name in columns:
        values = [row["scores"][name] for row in rows]
        assert metrics["scores"][name] == pytest.approx(np.mean(values))
        assert metrics["intervals"][name] == pytest.approx(bootstrap_intervals(values))
    assert metrics["intervals"]["brevity"][0] > 0
    assert metrics["brevity"] == {"scale": 100.0}
    assert metrics["baselines"]["lead"]["brevity"] == 100
    code, _, err = evaluated("--metrics=rouge,brevity")
    assert code == 2
    assert "holds predictions made with another brevity; give another --out" in err


def test_evaluate_writes_summaries_of_a_length(evaluated, tmp_path, monkeypatch):
    asked = []
    write = Model.summaries

    def summaries(model, texts, options, **names):
        asked.append(str(options.length))
        return write(model, texts, options, **names)

    monkeypatch.setattr(Model, "summaries", summaries)
    assert evaluated("--length=2 sentences")[0] == 0
    assert set(asked) == {"2 sentences"}
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["length"] == "2 sentences"
    code, _, err = evaluated("--length=3 sentences")
    assert code == 2
    assert "holds predictions made with another length; give another --out" in err
    code, _, err = evaluated("--length=tall")
    assert code == 2
    assert 'length="tall"; write short, medium, long' in err
    (tmp_path / "out" / "SHA256SUMS").unlink()
    (tmp_path / "out" / "predictions.jsonl").write_text("")  # as before the first prediction
    assert evaluated("--length=3 sentences")[0] == 0


@pytest.mark.slow
def test_evaluate_continues_where_it_stopped(evaluated, tmp_path):
    assert evaluated()[0] == 0
    path = tmp_path / "out" / "predictions.jsonl"
    whole, metrics = (
        path.read_text().splitlines(keepends=True),
        json.loads((tmp_path / "out" / "metrics.json").read_text()),
    )
    marked = json.dumps(json.loads(whole[0]) | {"prediction": "kept"}) + "\n"
    path.write_text(marked + whole[1] + whole[2][:30])  # the third is cut short, the fourth missing
    code, _, err = evaluated()
    assert code == 2
    assert f"{path}: changed since it was written" in err
    (tmp_path / "out" / "SHA256SUMS").unlink()  # as before the end of an evaluation
    assert evaluated()[0] == 0
    rows = read_lines(path)
    assert rows[0]["prediction"] == "kept"
    expected = [json.loads(line) for line in whole]
    for row, other in zip(rows[1:], expected[1:], strict=True):
        assert {**row, "seconds": 0} == {**other, "seconds": 0}
    again = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert again["scores"] == metrics["scores"]
    assert evaluated("--examples=2")[0] == 0
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["examples"] == 2
    assert read_lines(path) == rows


@pytest.mark.slow
def test_evaluate_refuses_a_directory_made_with_other_settings(
    evaluated, refused, small_model, published, data, tmp_path
):
    assert evaluated()[0] == 0
    arguments = [f"--model={small_model}", f"--data={data}", f"--out={tmp_path / 'out'}"]
    message = refused("evaluate", *arguments, "--num_beams=2", "--stemmer")
    assert (
        message
        == f"{tmp_path / 'out'}: holds predictions made with another rouge, num_beams; give "
        "another --out"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"document": "x"', ":5: not valid JSON ("),
        (
            '{"document": "x", "summry": "y"}',
            ':5: no key "summary"; did you mean "summry"? known: document, summry; name',
        ),
        (
            '{"text": "x", "summary": "y"}',
            ':5: no key "document"; known: summary, text; name another with --document_key',
        ),
        ('{"document": "", "summary": "y"}', ':5: "document" is empty; remove the line'),
        (
            '{"document": "x", "summary": "y", "id": "a"}',
            ': duplicate id "a"; give every row',
        ),
    ],
)
def test_evaluate_refuses(refused, small_model, data, tmp_path, line, problem):
    data.write_text(data.read_text() + line)
    arguments = (f"--model={small_model}", f"--data={data}", f"--out={tmp_path / 'out'}")
    assert problem in refused("evaluate", *arguments)


def test_evaluate_names_the_document_that_is_too_long(run, small_model, data, tmp_path):
    data.write_text(
        data.read_text() + json.dumps({"id": "long", "document": TEXT * 2, "summary": "s"})
    )
    flags = ("--on_overflow=error", "--max_source_length=50")
    code, _, err = run(
        "evaluate", f"--model={small_model}", f"--data={data}", f"--out={tmp_path / 'out'}", *flags
    )
    assert code == 2
    assert 'error: document "long" has ' in err
    assert [row["id"] for row in read_lines(tmp_path / "out" / "predictions.jsonl")] == list("abcd")
    assert not (tmp_path / "out" / "metrics.json").exists()


# summarize


@pytest.mark.slow
def test_summarize_a_file_and_standard_input(run, small_model, text):
    code, out, err = run("summarize", f"--model={small_model}", text)
    expected = longsum_jax.load(small_model).summarize(TEXT)[0]
    assert (code, out) == (0, expected + "\n")
    code, out, _ = run("summarize", f"--model={small_model}", "--json", text)
    report = json.loads(out)
    tokens = report["document_tokens"]
    about = (
        f"{text}: {tokens} of {tokens} tokens read; 6 tokens written, cut at the longest length; "
    )
    assert err.splitlines()[-1].startswith(about)
    counts = {"read_tokens": tokens, "dropped_tokens": 0, "summary_tokens": 6, "ended": "limit"}
    assert report == {
        "file": str(text),
        "summary": expected,
        "document_tokens": tokens,
        **counts,
        "unit": "tokens",
        "strategy": "direct",
        "coverage": report["coverage"],
        "seconds": report["seconds"],
    }
    assert len(report["coverage"]) == 10
    assert "were read" not in err
    code, out, err = run("summarize", f"--model={small_model}", stdin=TEXT.encode())
    assert (code, out) == (0, expected + "\n")
    assert err.splitlines()[-1].startswith("-: ")


def test_summarize_with_a_query(run, refused, small_model, text):
    code, out, _ = run("summarize", f"--model={small_model}", "--query=Who won?", "--json", text)
    (expected,) = longsum_jax.load(small_model).summaries(TEXT, queries=["Who won?"])
    assert code == 0
    report = json.loads(out)
    assert (report["summary"], report["read_tokens"]) == (expected.text, expected.read_tokens)
    message = refused("summarize", f"--model={small_model}", "--query= ", text)
    assert message == "--query is blank; give a question or leave it out"


def test_summarize_without_a_model(run, refused, text):
    code, out, err = run("summarize", "--length=1 sentences", "--query=Who barked?", text)
    assert (code, out) == (0, "Then a dog came by and barked.\n")
    total = len(TEXT.split())
    assert re.fullmatch(rf"{text}: {total} of {total} words read; 7 words written; [\d.]+ s\n", err)
    code, out, _ = run("summarize", "--length=100%", "--sources", stdin=TEXT.encode())
    assert "    [sentence 1]\n" in out
    code, out, _ = run("summarize", "--json", "--sources", text)
    report = json.loads(out)
    sentences = split_sentences(TEXT)
    assert report["summary"].split("\n") == sentences
    sources = [source for statement in report["sources"] for source in statement["sources"]]
    assert [TEXT[source["start"] : source["end"]] for source in sources] == sentences
    for flag in ("num_beams=4", "dtype=bfloat16", "max_source_length=64", "strategy=direct"):
        name = flag.partition("=")[0]
        message = refused("summarize", f"--{flag}", text)
        assert message == f"--{name} is for a model; give one with --model or leave --{name} out"
    message = refused("summarize", "--length=tall", text)
    assert message.startswith('--length="tall"; write short, medium,')


@pytest.mark.slow
def test_summarize_by_strategies(run, refused, small_model, text):
    model = longsum_jax.load(small_model)
    flags = ("summarize", f"--model={small_model}", "--max_new_tokens=6", text)
    options = {"max_new_tokens": 6, "segment_length": 24}
    code, out, err = run(*flags, "--segment_length=24")
    [result] = model.summaries(TEXT, **options)
    assert (code, out) == (0, result.text + "\n")
    tokens = result.document_tokens
    about = f"{text}: {tokens} of {tokens} tokens read (hierarchical); "
    assert err.splitlines()[-1].startswith(about)
    assert "were read" not in err
    _, out, err = run(*flags, "--segment_length=24", "--json")
    assert json.loads(out)["strategy"] == "hierarchical"
    about = f"{text}: {tokens} of {tokens} tokens were read (--strategy=hierarchical)"
    assert err.splitlines()[-1] == about
    code, out, err = run(*flags, "--segment_length=24", "--strategy=extract", "--length=2 words")
    [result] = model.summaries(TEXT, strategy="extract", length="2 words", **options)
    assert (code, out) == (0, result.text + "\n")
    assert result.dropped_tokens > 0
    code, out, err = run(*flags, "--segment_length=24", "--strategy=segments", "--stream")
    [result] = model.summaries(TEXT, strategy="segments", **options)
    assert (code, out.split()) == (0, result.text.split())
    message = refused(*flags, "--stream")
    assert 'on_segment (--stream) is for strategy="segments" or "memory", not for ' in message
    message = refused(*flags, "--strategy=memory")
    assert message.startswith('strategy="memory" needs a model with settings')
    assert refused(*flags, "--length=tall").startswith('--length="tall"; write short, medium,')


@pytest.mark.slow
def test_summarize_as_json_from_another_directory(run, small_model, text, monkeypatch):
    monkeypatch.chdir(text.parent)
    shutil.copytree(small_model, "model")
    Path("two.txt").write_text("Another text.")
    code, out, _ = run(
        "summarize", "--model=model", "--json", "--max_new_tokens=3", text.name, "two.txt"
    )
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [row["file"] for row in rows] == [text.name, "two.txt"]
    assert [row["summary_tokens"] for row in rows] == [3, 3]
    assert (
        rows[1]["summary"]
        == longsum_jax.load("model").summarize("Another text.", max_new_tokens=3)[0]
    )


def test_summarize_says_what_it_dropped(run, small_model, text):
    code, out, err = run("summarize", f"--model={small_model}", "--max_source_length=10", text)
    *_, aloud, about = err.splitlines()
    [total] = longsum_jax.load(small_model).read_lengths([TEXT])
    assert (code, bool(out)) == (0, True)
    assert aloud == f"{text}: only the first 10 of {total} tokens were read (--max_source_length)"
    assert about.startswith(f"{text}: 10 of {total} tokens read; ")


@pytest.mark.slow
def test_summarize_one_line_of_ten_megabytes(run, small_model, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text(TEXT * (10_000_000 // len(TEXT) + 1))
    flags = "--max_source_length=64", "--json"
    code, out, _ = run("summarize", f"--model={small_model}", *flags, path)
    report = json.loads(out)
    assert (code, report["read_tokens"]) == (0, 64)
    assert report["document_tokens"] > 1_000_000
    assert report["summary"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the file is empty; give a text"),
        (b" \n\t", "the file is empty; give a text"),
        (b"a\0b", "NUL byte at position 1; give text, not a binary file"),
    ],
)
def test_summarize_refuses(refused, small_model, text, content, problem):
    text.write_bytes(content)
    assert refused("summarize", f"--model={small_model}", text) == f"{text}: {problem}"
    message = refused("summarize", f"--model={small_model}", stdin=content)
    assert message == f"standard input: {problem}"


def test_summarize_refuses_what_expands_beyond_the_cap(refused, small_model, tmp_path):
    path = tmp_path / "bomb.txt.gz"
    path.write_bytes(gzip.compress(b"a" * 100_000))
    message = refused("summarize", f"--model={small_model}", "--max_bytes=1000", path)
    assert "bomb.txt.gz: the file holds or expands to more than 1000 bytes" in message


def test_summarize_says_at_once_that_there_is_no_model(text):
    """Before jax is imported, which takes a second."""
    script = (
        "import sys; from longsum_jax.commands import summarize; "
        f"sys.modules['jax'] = None; summarize.main(['--model=no-model', {str(text)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert "InputError: no-model: no such directory" in done.stderr.splitlines()[-1]


def test_summarize_stops_at_overflow(refused, small_model, text):
    message = refused(
        "summarize", f"--model={small_model}", "--on_overflow=error", "--max_source_length=9", text
    )
    assert message.startswith(f"{text} has ")
    assert message.endswith(
        " tokens, more than max_source_length=9; raise it, or allow on_overflow=truncate"
    )


def test_summarize_refuses_a_model_that_is_damaged(refused, small_model, text, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(small_model, model)
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert f"{weights}: changed since it was written (its SHA-256 differs)" in refused(
        "summarize", f"--model={model}", text
    )
    (model / "SHA256SUMS").unlink()
    assert f"{weights}: damaged or truncated safetensors" in refused(
        "summarize", f"--model={model}", text
    )
    weights.unlink()
    assert f"{model}: holds neither model.safetensors nor" in refused(
        "summarize", f"--model={model}", text
    )
    shutil.copy(small_model / "model.safetensors", weights)
    for name in ("spiece.model", "tokenizer_config.json"):
        (model / name).unlink()
    checksums.write(model)
    assert "holds no tokenizer; load it with tokenizer=PATH" in refused(
        "summarize", f"--model={model}", text
    )


def test_summarize_refuses_the_checkpoint_of_another_model(refused, trained, text, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    path = workdir / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"d_ff": 24}))
    checksums.write(workdir / "model")
    message = refused("summarize", f"--model={workdir}", text)
    assert message.startswith(
        f"{workdir}: the parameters of the checkpoint do not fit this model: misshapen"
    )
    shutil.rmtree(workdir / "checkpoints")
    assert "there is no checkpoint in it" in refused("summarize", f"--model={workdir}", text)


def test_summarize_refuses_a_run_whose_model_lost_its_sums(refused, trained, text, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "model" / "SHA256SUMS").unlink()
    message = refused("summarize", f"--model={tmp_path / 'run'}", text)
    assert message.startswith(f"{tmp_path / 'run' / 'model' / 'SHA256SUMS'} is missing")


@pytest.mark.slow
def test_summarize_refuses_a_damaged_checkpoint(refused, trained, text, tmp_path):
    workdir = tmp_path / "run"
    shutil.copytree(trained, workdir)
    for step in (workdir / "checkpoints").iterdir():
        shutil.rmtree(step / "params" / "d")
        checksums.write(step)
    # In a process of its own: what reads the arrays goes on failing in the background after the
    # first error.
    done = in_a_shell("summarize", f"--model={workdir}", text, cwd=tmp_path)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith(f"error: {workdir / 'checkpoints'}, step ")
    assert "the parameters are missing or damaged" in done.stderr
    assert done.stderr.endswith("; copy the checkpoint again\n")
    for step in (workdir / "checkpoints").iterdir():
        shutil.rmtree(step / "params")
        checksums.write(step)
    assert "are missing or damaged" in refused("summarize", f"--model={workdir}", text)


# convert


@pytest.mark.slow
def test_converted_run_gives_the_same_summaries(run, trained, tmp_path):
    target = tmp_path / "model"
    code, out, _ = run("convert", trained, target)
    before, after = longsum_jax.load(trained), longsum_jax.load(target)
    assert (code, out) == (0, f"{target}: locost, {before.num_parameters:,} parameters\n")
    assert after.fingerprint == before.fingerprint
    assert after.tokenizer.fingerprint == before.tokenizer.fingerprint
    assert after.generation_config == before.generation_config
    assert after.summarize(TEXT) == before.summarize(TEXT)
    assert "ROUGE-Lsum" in (target / "README.md").read_text(encoding="utf-8")  # the run's card


def test_convert_a_published_pickle(run, published, golden, tmp_path):
    source, target = published(weights="pytorch_model.bin"), tmp_path / "model"
    code, out, _ = run("convert", source, target)
    assert code == 0
    assert "it holds no tokenizer, add one with --tokenizer" in out
    assert not (target / "pytorch_model.bin").exists()
    np.testing.assert_array_equal(
        longsum_jax.load(target).params["shared"], golden("c_full_state")["shared.weight"]
    )


def test_convert_refuses(refused, small_model, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").write_text("mine")
    message = refused("convert", tmp_path / "no", tmp_path / "there")  # before it reads
    assert (
        message == f"{tmp_path / 'there'}: exists and is not an empty directory; give another path"
    )
    assert "no such directory" in refused("convert", tmp_path / "no", tmp_path / "target")
    message = refused("convert", small_model, tmp_path / "target", "--tokenizer=no.model")
    assert message.startswith("no.model: cannot read the tokenizer file")
    flags = ("--position_extension=random",)
    message = refused("convert", small_model, tmp_path / "target", *flags)
    assert message == "--position_extension=random needs --max_source_length; give both or neither"
    flags += ("--max_source_length=64", "--encoder_attention=lsg")
    message = refused("convert", small_model, tmp_path / "target", *flags)
    assert message.startswith(
        "--position_extension=random cannot be combined with --encoder_attention=lsg, whose "
    )


def test_convert_continues_positions_as_asked(run, tmp_path):
    family = get_family("bart")
    config = dataclasses.replace(family.presets["tiny"], max_position_embeddings=5, vocab_size=20)
    shapes = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    params = jax.tree.map(lambda x: np.arange(x.size, dtype=np.float32).reshape(x.shape), shapes)
    Model(family, config, params).save(tmp_path / "short")
    for extension, row in (("tiled", 2), ("last_row", 6)):
        flags = ("--max_source_length=6", f"--position_extension={extension}")
        assert run("convert", tmp_path / "short", tmp_path / extension, *flags)[0] == 0
        table = longsum_jax.load(tmp_path / extension).params["source_positions"]
        np.testing.assert_array_equal(
            table, np.r_[params["source_positions"], params["source_positions"][[row]]]
        )


def test_convert_to_half_precision(run, refused, tmp_path):
    transformers = pytest.importorskip("transformers")
    family = get_family("bart")
    config = dataclasses.replace(family.presets["tiny"], vocab_size=20)
    shapes = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    params = jax.tree.map(lambda x: np.full(x.shape, 70_003, np.float32), shapes)
    source, target = tmp_path / "source", tmp_path / "target"
    Model(family, config, params).save(source)

    message = refused("convert", source, target, "--dtype=float16")
    assert message.endswith("holds 7e+04, beyond the range of float16; give bfloat16")
    assert not target.exists()
    flags = ("--dtype=float16", "--encoder_attention=lsg", "--run_test")
    message = refused("convert", source, target, *flags)
    assert message.startswith("--run_test compares exactly, which --dtype=float16 does not allow")

    assert run("convert", source, target, "--dtype=bfloat16")[0] == 0
    sizes = [(path / "model.safetensors").stat().st_size for path in (source, target)]
    assert sizes[1] < 0.7 * sizes[0]
    assert run("verify", target)[0] == 0
    rounded = float(ml_dtypes.bfloat16(70_003))
    for leaf in jax.tree.leaves(longsum_jax.load(target).params):
        np.testing.assert_array_equal(leaf, np.full(leaf.shape, rounded, np.float32))
    theirs = transformers.BartForConditionalGeneration.from_pretrained(target)
    assert str(theirs.dtype) == "torch.bfloat16"
    assert {x.item() for x in theirs.model.shared.weight.unique()} == {rounded}


# corpus


def test_corpus_says_what_data_are_like(run, refused, data, tmp_path):
    code, out, _ = run("corpus", "statistics", data)
    assert (code, out.split()[-6:-3]) == (0, ["4", "20.0", "4.0"])
    assert "no such file; check the path" in refused(
        "corpus", "govreport", tmp_path / "no", tmp_path / "target"
    )


# extract

TINY_EXTRACTOR = (
    "model.hidden_size=16,model.num_hidden_layers=1,model.num_attention_heads=2,model.intermediate_size=16,"
    "model.vocab_size=300,tokenizer.path=bytes,task.max_source_length=32,task.max_parts=8,data.source_lengths=8,"
    "data.batch_size=4,training.accumulation=1,training.steps=1,evaluation.examples=1,evaluation.split=train"
)


@pytest.mark.slow
def test_extract_with_a_trained_model(run, data, tmp_path):
    workdir, out = tmp_path / "run", tmp_path / "short" / "data.jsonl"
    config = f"configs/extractor.py:data={data},{TINY_EXTRACTOR},task.held_out=0.0"
    code, said, _ = run("train", f"--config={config}", f"--workdir={workdir}")
    assert code == 0
    assert f"longsum extract --model={workdir} --data=FILE.jsonl --out=SHORTER.jsonl" in said
    assert "best 1" in said
    code, said, _ = run(
        "extract", f"--model={workdir}", f"--data={data}", f"--out={out}", "--top_k=2"
    )
    assert (code, said) == (0, f"{out}: 4 documents\n")
    model, rows = longsum_jax.load(workdir), read_lines(out)
    for row, given in zip(rows, read_lines(data), strict=True):
        (selected,) = model.extract(given["document"], top_k=2)
        sentences = split_sentences(given["document"])
        expected = given | {
            "document": " ".join(sentences[i] for i in selected),
            "sentences": selected,
        }
        assert row == expected
    assert [path.name for path in out.parent.iterdir()] == ["data.jsonl"]


def test_extract_by_the_reference(run, data, tmp_path):
    data.write_text(
        data.read_text()
        + json.dumps({"document": f"{TEXT}", "summary": "Xyz.", "query": "Why?"})
        + "\n"
    )
    code, out, _ = run("extract", "--oracle", f"--data={data}", f"--out={tmp_path / 'short.jsonl'}")
    assert (code, out) == (0, f"{tmp_path / 'short.jsonl'}: 5 documents\n")
    rows = read_lines(tmp_path / "short.jsonl")
    assert rows[0] == {
        "id": "a",
        "document": "Then a dog came by and barked.",
        "summary": "Cat and dog a.",
        "sentences": [2],
    }
    # What shares no word with its summary keeps its first sentence: a document must not be empty.
    last = {
        "id": "data:5",
        "document": TEXT[:23],
        "summary": "Xyz.",
        "query": "Why?",
        "sentences": [0],
    }
    assert rows[-1] == last


def test_extract_by_the_built_in_ranker(run, refused, data, tmp_path):
    out = tmp_path / "short.jsonl"
    code, said, _ = run("extract", "--length=1 sentence", f"--data={data}", f"--out={out}")
    assert (code, said) == (0, f"{out}: 4 documents\n")
    for row, given in zip(read_lines(out), read_lines(data), strict=True):
        [number] = row.pop("sentences")
        assert row == given | {"document": split_sentences(given["document"])[number]}
    text = (
        "The harbour was built in 1888 by the city. Ships brought coffee and tea from the south. "
        "A fire took the great store in the spring. The new store was built of stone."
    )
    asked = {"document": text, "query": "What did ships bring?"}
    data.write_text(json.dumps(asked) + "\n")
    arguments = ("extract", "--length=3 words", f"--data={data}", f"--out={tmp_path / 'b.jsonl'}")
    assert run(*arguments)[0] == 0
    [row] = read_lines(tmp_path / "b.jsonl")
    assert row["document"] == "Ships brought coffee and tea from the south."
    assert 'length="much"; write short' in refused(
        "extract", "--length=much", f"--data={data}", f"--out={tmp_path / 'c.jsonl'}"
    )
    assert not (tmp_path / "c.jsonl").exists()
    assert "--top_k has no effect with --length" in refused(*arguments, "--top_k=4")


def test_extract_teaches_references_for_training_and_predictions_for_the_rest(run):
    """As AWESOME's Extract-Abstract, see configs/extract_abstract.py."""
    _, out, _ = run("extract", "--help")
    for split, chooser in (("train", "--oracle"), ("validation", "--model=runs/extractor")):
        assert f"longsum extract {chooser} --data=reports/{split}.jsonl" in out
    assert "--model=runs/extractor --data=reports/train.jsonl" not in out


def test_extract_refuses(refused, small_model, data, tmp_path):
    out = f"--out={tmp_path / 'out.jsonl'}"
    problem = refused("extract", f"--model={small_model}", f"--data={data}", out)
    assert (
        "this locost model has no head that chooses sentences; train one with configs/extractor.py"
        in problem
    )
    assert "already exists; remove it" in refused(
        "extract", "--oracle", f"--data={data}", f"--out={data}"
    )
    problem = refused("extract", "--oracle", f"--data={data}", out, "--summary_key=abstract")
    assert 'data.jsonl:1: no key "abstract"' in problem
    data.write_text(json.dumps({"document": "Text."}) + "\n")
    assert 'data.jsonl:1: no key "summary"' in refused("extract", "--oracle", f"--data={data}", out)
    problem = refused(
        "extract", "--oracle", f"--data={data}", f"--out={data}/out.jsonl", "--summary_key=document"
    )
    assert "cannot be written (File exists); give another --out" in problem
