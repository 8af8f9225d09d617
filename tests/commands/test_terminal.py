"""No control character of a document, a name or an answer reaches a terminal, whatever command
shows it."""

import ast
import base64
import gzip
import io
import json
import re
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from longsum_jax.commands import (
    COMMANDS,
    console,
    convert,
    corpus,
    evaluate,
    extract,
    judge,
    plan,
    plots,
    prepare,
    push,
    score,
    serve,
    summarize,
    train,
    verify,
)
from longsum_jax.errors import InputError, terminal_text
from longsum_jax.files import json_text
from longsum_jax.text import rows

# A window title, a cleared screen, a color by C1, and an override that nothing ends.
HOSTILE = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202e \u2066 \x7f \u2028"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
TEXT = f"The committee met {HOSTILE} on Monday. It approved four million euros. He agreed."
ROW = {"id": f"a{HOSTILE}", "title": f"News {HOSTILE}", "document": TEXT, "summary": TEXT}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A file of every kind of input, in the working directory."""
    monkeypatch.chdir(tmp_path)
    documents = [ROW, ROW | {"id": f"b{HOSTILE}"}]
    predictions = [{"id": row["id"], "prediction": row["summary"]} for row in documents]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    Path("text.jsonl").write_text("".join(json.dumps(row) + "\n" for row in predictions))
    Path("bad.jsonl").write_text(json.dumps({f"key {HOSTILE}": HOSTILE}) + "\n")
    Path("page.html").write_text(f"<title>{HOSTILE}</title><h1>A {HOSTILE}</h1><p>{TEXT}</p>")
    Path("notes.md").write_text(f"# Report {HOSTILE}\n\n{TEXT}\n")
    # Directories of a model and of a run.
    Path("model").mkdir()
    Path("model/config.json").write_text(json.dumps({"model_type": HOSTILE}))
    Path("heads").mkdir()
    Path("heads/config.json").write_text(json.dumps({"model_type": "t5", HOSTILE: HOSTILE}))
    Path(f"run{HOSTILE}").mkdir()
    Path(f"run{HOSTILE}/metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    # The name of a file is shown, too; a slash ends it.
    Path(f"x{HOSTILE}.md").write_text(TEXT)
    Path(f"x{HOSTILE}.jsonl").write_text(Path("text.jsonl").read_text())
    return tmp_path


PREPARE = "--task=summaries --tokenizer=bytes --num_shards=1 --source=json:"
CASES = [
    *((summarize, f"--format={form} rows.jsonl page.html notes.md {{name}}.md") for form in
      ("text", "markdown", "html", "json", "jsonl")),
    (summarize, "--sources rows.jsonl page.html notes.md"),
    (summarize, "--sources --format=markdown notes.md"),
    (summarize, "--sources --format=jsonl notes.md"),
    (summarize, "bad.jsonl rows.jsonl no{name}.md"),
    (summarize, "--join --out=out{name} rows.jsonl"),
    (summarize, "bad.jsonl"),
    (summarize, "--model=no{name} rows.jsonl"),
    (summarize, "--format={name} rows.jsonl"),
    (score, "text.jsonl --references=rows.jsonl"),
    (score, "{name}.jsonl --references=rows.jsonl --out=scores{name}"),
    (score, "text.jsonl --references=bad.jsonl"),
    (corpus, "statistics rows.jsonl"),
    (corpus, "statistics {name}.jsonl --document_key=prediction --summary_key=prediction"),
    (corpus, "statistics bad.jsonl"),
    (extract, "--data=rows.jsonl --out=extract{name}"),
    (judge, "sheets text.jsonl {name}.jsonl --references=rows.jsonl --out=judge{name}"),
    (verify, "{name}.jsonl"),
    (convert, "model out{name}"),
    (convert, "heads out{name}"),
    (convert, "no{name} out --cross_attention={name}"),
    (evaluate, "--model=model --data=rows.jsonl --out=out{name}"),
    (evaluate, "--model=heads --data=no{name}.jsonl --out=out"),
    (evaluate, "--model=no{name} --task={name} --out=out"),
    (push, "model no{name}"),
    (push, "no{name} someone/model"),
    (serve, "--model=model"),
    (serve, "--model=no{name} --host={name}"),
    (plan, "--model=model --out=plan{name}"),
    (plan, "--config=no{name}.py"),
    (prepare, f"{PREPARE}rows.jsonl --out=shards{{name}}"),
    (prepare, f"{PREPARE}bad.jsonl --out=shards{{name}}"),
    (prepare, f"{PREPARE}rows.jsonl --split={{name}} --out=shards"),
    (plots, "curves run{control} --out=x{name}.png"),
    (plots, "{name} --out=x"),
    (train, "--config=no{name}.py --workdir=run{name}"),
    (train, "--config=no{name}.py --workdir=run --config.{name}={name}"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "arguments"), CASES)
def test_no_command_prints_control_characters(files, capsys, command, arguments):
    argv = [word.format(name=f"x{HOSTILE}", control=HOSTILE) for word in arguments.split(" ")]
    try:
        command.main(argv)
        error = ""
    except InputError as problem:
        error = str(problem)
    shown = "".join(capsys.readouterr()) + error
    assert shown
    assert OBEYED.search(shown) is None


def test_files_for_people_hold_no_control_characters(files):
    summarize.main(["--out=out", "rows.jsonl", "notes.md"])
    written = [path.read_text() for path in Path("out").iterdir()]
    assert len(written) == 6
    assert not any(OBEYED.search(text) for text in written)


def test_pages_for_people_hold_no_control_characters(files):
    arguments = "text.jsonl --references=rows.jsonl"
    judge.main(["sheets", *arguments.split(), "--out=judge", "--documents=2"])
    pages = [*Path("judge").rglob("*.html"), *Path("judge").rglob("*.txt")]
    assert len(pages) > 2
    assert not any(OBEYED.search(page.read_text()) for page in pages)
    score.main([*arguments.split(), "--metrics=length", "--report=page.html"])
    page = Path("page.html").read_text()
    packed = re.findall(r'type="text/plain" id="[^"]*">([^<]*)<', page)
    texts = [gzip.decompress(base64.b64decode(text)).decode() for text in packed]
    assert any("committee" in text for text in texts)
    for text in texts:
        assert OBEYED.search(text) is None
        assert re.search(r"\\u00[01]|\\[bf]", text) is None


def test_the_log_shows_no_control_characters(caplog):
    rows._log_choice(f"x{HOSTILE}.jsonl", "document", f"text {HOSTILE}")
    assert "is read as the document" in caplog.text
    assert OBEYED.search(caplog.text) is None


def test_json_keeps_what_it_escapes(files, capsys):
    summarize.main(["--format=jsonl", "rows.jsonl"])
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["id"] == ROW["id"]
    assert json.loads(json_text([HOSTILE, "é"])) == [HOSTILE, "é"]
    assert json_text("é") == '"é"'


def test_lines_tabs_and_letters_of_all_scripts_are_shown():
    text = "a\tb\n שלום مرحبا \u200f zwj\u200d é 漢字"
    assert terminal_text(text) == text
    assert terminal_text("a\x0cb\x85c\u2028d\r\n") == "a b c d\n"


class OneSecond:
    """An event that is set after the first time that is waited for it."""

    def __init__(self):
        self._answers = iter([False])

    def wait(self, seconds):
        return next(self._answers, True)

    def set(self):
        pass


def test_progress_shows_names_without_control_characters(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    parts = SimpleNamespace(Event=OneSecond, Thread=threading.Thread)
    monkeypatch.setattr(console, "threading", parts)
    with console.spinner(f"reading {HOSTILE}"):
        pass
    assert "reading" in terminal.getvalue()
    moves = ("\r\x1b[K", "\r")  # of the spinner
    shown = terminal.getvalue().replace(moves[0], "").replace(moves[1], "")
    assert OBEYED.search(shown) is None


def test_a_spinner_may_appear_late(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    with console.spinner("reading", 3):
        time.sleep(1.2)  # without a delay, it appears after a second
    assert "reading" not in terminal.getvalue()
    terminal.isatty = lambda: False
    with console.spinner("reading", 60):
        pass
    assert "reading" not in terminal.getvalue()


@pytest.mark.parametrize("command", [*COMMANDS, "noisy_pairs", "flags", "summary_output"])
def test_commands_print_by_the_console_alone(command):
    """What ``print`` shows is not cleaned."""
    module = Path(console.__file__).with_name(f"{command}.py")
    calls = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Call)]
    assert not [call.lineno for call in calls if getattr(call.func, "id", None) == "print"]
