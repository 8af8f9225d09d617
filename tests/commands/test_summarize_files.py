"""longsum summarize on files and folders, with a model that takes no time."""

import contextlib
import errno
import io
import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from longsum_jax import atomic
from longsum_jax.checkpoints import hub
from longsum_jax.commands import console, summarize
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.evaluation import report, summac
from longsum_jax.evaluation.comparison import read_predictions
from longsum_jax.summarization import attended, loading
from longsum_jax.summarization.stream import StreamFunctions, summarize_stream
from longsum_jax.summarization.summary import Request, Summary
from longsum_jax.summarization.summary_options import SummaryOptions


class FirstWords:
    """A model that repeats the first words of a document; counts what it was asked for."""

    fingerprint = "w1"
    config_fingerprint = "c1"
    tokenizer = SimpleNamespace(fingerprint="pieces")
    separator = "\n\n"

    def __init__(self):
        self.asked = []
        self.options = {}
        self.fails_at = None
        self.text = None  # of every summary

    def on_all_devices(self):
        return contextlib.nullcontext(self)

    def summary_options(self, **options):
        return GenerationOptions(**{"max_new_tokens": 3, "decoder_start_token_id": 0} | options)

    def stream(self, requests, options, *, on_segment):
        self.options = options

        def read(request):
            if "too long" in request.text:
                raise InputError(f"{request.name} has 9 tokens, more than it may")
            return request

        def write(documents, batch_size):
            for place, each in enumerate(documents):
                yield [(place, self.summary(each, on_segment))]

        work = StreamFunctions(read, lambda each: len(each.text), write, False)
        return summarize_stream(work, requests, options.batch_size)

    def summary(self, request, on_segment):
        self.asked.append(request)
        if len(self.asked) == self.fails_at:
            raise KeyboardInterrupt
        words = request.text.split()
        for word in words[:3] if on_segment else ():
            on_segment(word)
        text = " ".join([*filter(None, [request.query]), *words[:3]])
        text = text if self.text is None else self.text
        return Summary(text, len(words), len(words), 0, 3, "limit")


@pytest.fixture
def model(monkeypatch, tmp_path):
    """What every --model loads."""
    result = FirstWords()
    monkeypatch.setattr(loading, "load", lambda path, **options: result)
    monkeypatch.setattr(hub, "local_directory", lambda path, revision: path)
    return result


@pytest.fixture
def run(model, monkeypatch, capsys, tmp_path):
    """Runs the command in a folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, stdin="", model=True):
        with_model = ["--model=m"] if model else []
        monkeypatch.setattr(sys, "argv", ["summarize", *with_model, *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            console.run(summarize.main)
        return caught.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def folder(tmp_path):
    """A folder of documents with one in a folder below."""
    files = tmp_path / "files"
    (files / "below").mkdir(parents=True)
    for name in ("b", "a", "below/c"):
        (files / f"{name}.txt").write_text(f"The file {name} has a text. " * 3)
    return files


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_folder_on_standard_output(run, folder):
    code, out, err = run("files")
    assert code == 0
    summaries = [f"==> files/{name}.txt <==\nThe file {name}\n" for name in ("a", "b", "below/c")]
    assert out == "\n".join(summaries)
    files = [line.split(": ")[0] for line in err.splitlines()]
    assert files == ["files/a.txt", "files/b.txt", "files/below/c.txt"]


def test_a_source_is_read_after_the_files(run, folder, tmp_path):
    rows = tmp_path / "validation.csv"
    rows.write_text("article,highlights\nAn article of some words.,Its summary.\n")
    code, out, _ = run("json:{split}.csv", "files/a.txt", "--split=validation", "--format=jsonl")
    assert code == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["summary"] for row in rows] == ["The file a", "An article of"]
    code, _, err = run("files/a.txt", "--split=validation")
    assert (code, "--split=validation is for sources" in err) == (2, True)


@pytest.mark.parametrize("batch_size", [2, "auto"])
def test_output_has_the_order_of_the_files(run, folder, batch_size):
    (folder / "a.txt").write_text("Longest of all. " * 40)
    (folder / "b.txt").write_text("Short. One.")
    _, out, _ = run(f"--batch_size={batch_size}", "--format=jsonl", "files/b.txt", "files")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["file"][6:] for row in rows] == ["b.txt", "a.txt", "b.txt", "below/c.txt"]
    assert [row["summary"] for row in rows[:2]] == ["Short. One.", "Longest of all."]


def test_empty_summaries_are_named(run, folder, model):
    assert "empty" not in run("--out=out", "files")[2]
    model.text = " "
    remedy = "raise --min_new_tokens, or give another --model"
    _, _, err = run("files/a.txt")
    assert err.splitlines()[-1] == f"1 summary is empty: files/a.txt; {remedy}"
    _, _, err = run("--out=others", "files")
    named = "files/a.txt, files/b.txt, files/below/c.txt"
    last = [f"3 summaries are empty: {named}; {remedy}", "3 summaries in others"]
    assert err.splitlines()[-2:] == last


def test_formats(run, folder):
    (folder / "below" / "c.txt").unlink()
    _, lines, _ = run("--json", "files")
    rows = [json.loads(line) for line in lines.splitlines()]
    code, array, _ = run("--format=json", "files")
    assert (code, [row["summary"] for row in json.loads(array)]) == (
        0,
        ["The file a", "The file b"],
    )
    assert len(rows) == 2
    assert rows[0].keys() == json.loads(array)[0].keys()
    _, markdown, _ = run("--format=markdown", "files/a.txt")
    assert markdown == (
        "## files/a.txt\n\nThe file a\n\n*files/a.txt: 18 of 18 tokens read; 3 tokens written, "
        "cut at the longest length*\n"
    )
    (folder / "a.txt").write_text("<b> & so on")
    _, page, _ = run("--format=html", "files")
    assert page.startswith("<!DOCTYPE html>")
    assert page.endswith("</body></html>\n")
    assert "&lt;b&gt; &amp; so" in page
    assert "<b>" not in page


def test_documents_as_one(run, extract, folder, tmp_path, model):
    (folder / "a.txt").write_text("")
    code, out, err = run("--join", "--query=Why?", "files", "no.txt")
    assert (code, out) == (3, "Why? The file b\n")
    [asked] = model.asked
    texts = ["The file b has a text. " * 3, "The file below/c has a text. " * 3]
    assert asked.text == "\n\n".join(text.strip() for text in texts)
    assert asked.text[asked.borders[0] :].startswith("The file below/c")
    assert asked.name == "files/b.txt and 1 more"
    first, about, *_ = err.splitlines()
    assert first == "summarizing files/a.txt and others ..."
    assert about.startswith("files/b.txt and 1 more: ")
    assert run("--join", "--out=out", "files/b.txt", "files/below")[0] == 0
    assert names(tmp_path / "out") == [f"b_and 1 more_summary.{end}" for end in ("json", "txt")]
    model.asked.clear()
    assert run("--join", "--out=out", "files/b.txt", "files/below")[0] == 0
    assert model.asked == []
    assert run("--join", "files/b.txt")[:2] == (0, "The file b\n")
    assert model.asked[0].borders == ()
    (folder / "a.txt").write_text("Much rain fell on these hills.")
    result = extract("--join", "files/a.txt", "files/b.txt")[1].splitlines()
    assert result == ["Much rain fell on these hills.", "The file b has a text."]


def test_what_cannot_be_read_is_named_at_the_end(run, folder):
    (folder / "a.txt").write_text("")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "z.txt").write_text("This is too long for it.")
    code, out, err = run("files", "no.txt")
    summaries = [f"==> files/{name}.txt <==\nThe file {name}\n" for name in ("b", "below/c")]
    assert (code, out) == (3, "\n".join(summaries))
    *_, head, first, second, third, fourth = err.splitlines()
    assert head == "4 documents could not be summarized:"
    assert sorted([first, second, third, fourth]) == [
        "  files/a.txt: the file is empty; give a text",
        "  files/picture.png: is a PNG image; give a document with text (scans need OCR first)",
        "  files/z.txt has 9 tokens, more than it may",
        "  no.txt: no such file; check the path",
    ]


def test_a_problem_of_many_rows_is_said_once(run, tmp_path):
    rows = [*['{"body": "A text."}'] * 3, '{"text": ""}', '{"text": "A."}', '{"body": "x"}', "[]"]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    (tmp_path / "b.jsonl").write_text("\n".join(["{}", '{"text": "B."}'] * 12))
    code, _, err = run("--document_key=text", "--out=out", "a.jsonl", "b.jsonl")
    (tmp_path / "c.csv").write_text("a,b\n1,2\n3,4\n")
    remedy = "name the one with the document (--document_key)"
    assert (code, err.splitlines()[-5:]) == (
        3,
        [
            "18 documents could not be summarized:",
            f'  a.jsonl:1-3, 6 (4 documents): no field "text"; known: body; {remedy}',
            '  a.jsonl:4: "text" is empty; remove the row',
            "  a.jsonl:7: expected a JSON object, got list; give one object per line",
            "  b.jsonl:1, 3, 5, 7, 9, 11, 13, 15, 17, 19, ... (12 documents): "
            "has no fields; remove it",
        ],
    )
    error = f'error: c.csv: no field "text"; known: a, b; {remedy}\n'
    assert run("--document_key=text", "c.csv") == (2, "", error)


def test_a_single_document_that_fails_is_an_error(run, folder, model):
    assert run("gone.txt") == (2, "", "error: gone.txt: no such file; check the path\n")
    (folder / "a.txt").write_text("too long")
    code, out, err = run("files/a.txt")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1] == "error: files/a.txt has 9 tokens, more than it may"


def test_a_directory_of_summaries(run, folder, tmp_path, model):
    code, out, err = run("--out=out", "--seed=3", "files")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1] == "3 summaries in out"
    expected = [f"{name}_summary.{suffix}" for name in "abc" for suffix in ("json", "txt")]
    assert names(tmp_path / "out") == expected
    assert (tmp_path / "out" / "a_summary.txt").read_text() == "The file a\n"
    about = json.loads((tmp_path / "out" / "a_summary.json").read_text())
    assert about["summary"] == "The file a"
    assert (about["read_tokens"], about["dropped_tokens"]) == (18, 0)
    settings = about["settings"]
    assert (settings["model"], settings["weights"]) == ("m", "w1")
    assert settings["generation"]["seed"] == 3
    assert settings["files"]["keep_all"] is False


def test_finished_documents_are_skipped_unless_something_changed(run, folder, tmp_path, model):
    def asked(*arguments):
        model.asked.clear()
        assert run("--out=out", *arguments, "files")[0] == 0
        return [request.name for request in model.asked]

    everything = ["files/a.txt", "files/b.txt", "files/below/c.txt"]
    assert asked() == everything
    before = (tmp_path / "out" / "b_summary.json").read_bytes()
    assert asked() == []
    assert (tmp_path / "out" / "b_summary.json").read_bytes() == before
    (folder / "a.txt").write_text("Another text altogether.")
    assert asked() == ["files/a.txt"]
    assert (tmp_path / "out" / "a_summary.txt").read_text() == "Another text altogether.\n"
    assert asked("--max_new_tokens=4") == everything
    assert asked("--max_new_tokens=4", "--batch_size=auto", "--max_pages=9") == []
    assert asked("--max_new_tokens=4", "--keep_all") == everything
    assert asked("--max_new_tokens=4") == everything
    assert asked("--max_new_tokens=4", "--query=Why?") == everything
    model.fingerprint = "w2"
    assert asked("--max_new_tokens=4", "--query=Why?") == everything
    model.config_fingerprint = "c2"  # converted again, with other options
    assert asked("--max_new_tokens=4", "--query=Why?") == everything
    assert len(names(tmp_path / "out")) == 6
    # The text is made anew of what the other file holds.
    (tmp_path / "out" / "c_summary.txt").unlink()
    assert asked("--max_new_tokens=4", "--query=Why?") == []
    assert (tmp_path / "out" / "c_summary.txt").read_text() == "Why? The file below/c\n"


def test_readable_files_of_other_formats_go_with_the_summary_that_they_show(run, folder, tmp_path):
    run("--out=out", "files/a.txt")
    run("--out=out", "--format=markdown", "files/a.txt")
    assert names(tmp_path / "out") == [f"a_summary.{end}" for end in ("json", "md", "txt")]
    (folder / "a.txt").write_text("Another text altogether.")
    run("--out=out", "--format=html", "files/a.txt")
    assert names(tmp_path / "out") == [f"a_summary.{end}" for end in ("html", "json")]


def test_two_documents_of_one_name(run, folder, tmp_path, model):
    (folder / "below" / "a.txt").write_text("Below is another a.")
    (folder / "a.md").write_text("# A in Markdown")
    code, _, _ = run("--out=out", "files", "files/a.txt")
    assert code == 0
    texts = {path.read_text() for path in (tmp_path / "out").glob("a*.txt")}
    assert texts == {"The file a\n", "Below is another\n", "A in Markdown\n"}
    model.asked.clear()
    # The same ones in another order have the same files.
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    run("--out=out", "files/below", "files/a.txt", "files")
    assert model.asked == []
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("a", "A"), ("\u00e9", "e\u0301")])
def test_names_that_some_file_systems_take_for_one(run, tmp_path, model, one, other):
    for name in (one, other):
        (tmp_path / f"{name}.txt").write_text(f"The file {name} has a text.")
    run("--out=out", f"{one}.txt", f"{other}.txt")
    made = names(tmp_path / "out")
    assert made == sorted(
        f"{stem}_summary.{suffix}" for stem in (one, f"{other}-2") for suffix in ("json", "txt")
    )
    model.asked.clear()
    run("--out=out", f"{other}.txt")
    run("--out=out", f"{other}.txt", f"{one}.txt")
    assert (model.asked, names(tmp_path / "out")) == ([], made)


def test_files_of_others_in_capitals_are_not_overwritten(run, folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "A_summary.txt").write_text("My own words.")
    assert run("--out=out", "files/a.txt")[0] == 0
    assert names(out) == ["A_summary.txt", "a-2_summary.json", "a-2_summary.txt"]


def test_files_of_others_are_not_overwritten(run, folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "a_summary.txt").write_text("My own words.")
    (out / "b_summary.json").write_text("[]")
    assert run("--out=out", "files")[0] == 0
    assert (out / "a_summary.txt").read_text() == "My own words."
    assert (out / "b_summary.json").read_text() == "[]"
    assert (out / "a-2_summary.txt").read_text() == "The file a\n"
    assert (out / "b-2_summary.txt").read_text() == "The file b\n"


def test_a_table_has_headings_if_it_has_several_rows(run, tmp_path):
    rows = ['{"text": "One row."}\n', '{"text": "Two rows."}\n']
    for number, expected in (
        (1, "One row.\n"),
        (2, "==> rows.jsonl:1 <==\nOne row.\n\n==> rows.jsonl:2 <==\nTwo rows.\n"),
    ):
        (tmp_path / "rows.jsonl").write_text("".join(rows[:number]))
        assert run("rows.jsonl")[:2] == (0, expected)
    assert run("--join", "rows.jsonl")[1] == "One row. Two\n"
    assert "==>" not in run("--format=markdown", "rows.jsonl")[1]


def test_rows_and_members_have_files_of_their_own(run, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "One row."}\n{"text": "Two", "query": "Q?"}\n')
    code, _, _ = run("--out=out", "rows.jsonl")
    assert code == 0
    assert (tmp_path / "out" / "rows_1_summary.txt").read_text() == "One row.\n"
    assert (tmp_path / "out" / "rows_2_summary.txt").read_text() == "Q? Two\n"


def test_strange_names(run, tmp_path):
    strange = tmp_path / ("a\nb " + "x" * 200 + ".txt")
    strange.write_text("Some text.")
    (tmp_path / "...txt").write_text("Dots.")
    assert run("--out=out", strange, "...txt")[0] == 0
    result = [name for name in names(tmp_path / "out") if name.endswith(".txt")]
    assert result[1] == "document_summary.txt"
    assert result[0].startswith("a_nb xxx")
    assert len(result[0]) < 100


def test_marks_of_letters_stay_in_names(run, tmp_path):
    (tmp_path / "हिन्दी: e\u0301.txt").write_text("Some text.")
    assert run("--out=out", "हिन्दी: e\u0301.txt")[0] == 0
    assert names(tmp_path / "out") == [f"हिन्दी_ e\u0301_summary.{end}" for end in ("json", "txt")]


def test_the_output_inside_of_the_input_is_not_read(run, folder, model):
    assert run("--out=files/out", "files")[0] == 0
    model.asked.clear()
    code, _, err = run("--out=files/out", "files")
    assert (code, model.asked) == (0, [])
    assert err.splitlines()[-1] == "3 summaries in files/out, 3 of them from an earlier run"


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def test_the_bar_counts_what_was_finished_before(run, folder, model, monkeypatch):
    (folder / "empty.txt").write_text("")
    files = ("files", "files/a.txt")
    model.fails_at = 3
    run("--out=files/out", *files)
    model.fails_at = None
    monkeypatch.setattr(sys, "stderr", Terminal(io.BytesIO(), write_through=True))
    for _ in range(2):  # the second time all are finished
        sys.stderr.buffer.truncate(0)
        run("--out=files/out", *files)
        drawn = sys.stderr.buffer.getvalue().decode()
        counts = re.findall(r"(\d+/\d+) \[", drawn)
        assert (counts[0], counts[-1]) == ("0/5", "4/4")


def test_ctrl_c_keeps_what_is_finished(run, folder, tmp_path, model):
    model.fails_at = 3
    code, _, err = run("--out=out", "files")
    assert (code, err.splitlines()[-1]) == (130, "interrupted")
    assert len(names(tmp_path / "out")) == 4
    model.asked.clear()
    model.fails_at = None
    assert run("--out=out", "files")[0] == 0
    assert len(model.asked) == 1


def test_a_full_disk_keeps_what_is_finished(run, folder, tmp_path, model, monkeypatch):
    (folder / "0.txt").write_text("")
    write, calls = atomic.write_text, []

    def full(path, text):
        calls.append(path)
        if len(calls) > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    monkeypatch.setattr(atomic, "write_text", full)
    code, _, err = run("--out=out", "files")
    assert code == 2
    *_, head, named, error = err.splitlines()
    assert (head, named) == (
        "1 document could not be summarized:",
        "  files/0.txt: the file is empty; give a text",
    )
    assert error == (
        "error: out: cannot be written (No space left on device); free up space and start again, "
        "finished documents are kept"
    )
    monkeypatch.undo()
    assert json.loads((tmp_path / "out" / "a_summary.json").read_text())["summary"] == "The file a"


def test_segments_are_printed_as_they_come(run, tmp_path):
    (tmp_path / "a.txt").write_text("One two three four.")
    code, out, err = run("--stream", "a.txt")
    assert (code, out) == (0, "One\ntwo\nthree\n")
    assert err.splitlines()[-1].startswith("a.txt: ")


SPOKEN = "Anna Berg met Paul Olsen in May 1999. It rained."


def test_sources_of_a_model(run, tmp_path, model):
    (tmp_path / "a.txt").write_text(SPOKEN)
    model.text = "Anna Berg met Paul Olsen. Lena Lund sang for 12 years."
    code, out, err = run("--sources", "a.txt")
    assert code == 0
    first, place, second, unsupported, missing = out.splitlines()
    assert (first, second) == ("Anna Berg met Paul Olsen.", "Lena Lund sang for 12 years.")
    assert re.fullmatch(r"    \[\d\d%: sentence 1\]|    \[sentence 1\]", place)
    assert unsupported == "    [unsupported]"
    assert missing == '    [not in the document: "Lena Lund", "12"]'
    assert err.splitlines()[-1].startswith("a.txt: ")
    _, out, _ = run("--sources", "--json", "a.txt")
    met, sang = json.loads(out)["sources"]
    assert (met["is_supported"], sang["is_supported"]) == (True, False)
    assert SPOKEN[met["sources"][0]["start"] : met["sources"][0]["end"]].startswith("Anna Berg")
    assert [flag["text"] for flag in sang["flags"]] == ["Lena Lund", "12"]
    _, out, _ = run("--sources", "--format=markdown", "a.txt")
    assert "1. Lena Lund sang for 12 years.\n   - unsupported\n   - not in the docu" in out
    _, out, _ = run("--sources", "--format=html", "a.txt")
    assert 'title="unsupported; not in the document: &quot;Lena Lund&quot;' in out
    assert '<q dir="auto">Anna Berg met Paul Olsen in May 1999.</q>' in out
    _, out, _ = run("--format=html", "a.txt")
    assert "<details" not in out


def test_sources_name_pages_and_headings(run, tmp_path, model):
    (tmp_path / "a.md").write_text(f"# Before\n\nNothing.\n\n# At & home\n\n{SPOKEN}")
    model.text = "It rained."
    _, out, _ = run("--sources", "a.md")
    assert out == 'It rained.\n    [sentence 5, under "At & home"]\n'
    (tmp_path / "a.txt").write_text(f"One page.\f{SPOKEN}")
    _, out, _ = run("--sources", "a.txt")
    assert out == "It rained.\n    [sentence 3, page 2]\n"
    _, out, _ = run("--sources", "--format=html", "a.md")
    assert "under &quot;At &amp; home&quot;" in out


def test_sources_are_kept_in_directories(run, tmp_path, model):
    (tmp_path / "a.txt").write_text(SPOKEN)
    model.text = "It rained."
    run("--out=out", "a.txt")
    assert "sources" not in json.loads((tmp_path / "out" / "a_summary.json").read_text())
    run("--out=out", "--sources", "a.txt")
    assert len(model.asked) == 2
    written = (tmp_path / "out" / "a_summary.txt").read_text()
    assert written == "It rained.\n    [sentence 2]\n"
    [statement] = json.loads((tmp_path / "out" / "a_summary.json").read_text())["sources"]
    assert statement["sources"][0]["text"] == "It rained."
    (tmp_path / "out" / "a_summary.txt").unlink()
    run("--out=out", "--sources", "a.txt")
    assert len(model.asked) == 2
    assert (tmp_path / "out" / "a_summary.txt").read_text() == written


@pytest.fixture
def reported(monkeypatch):
    """The documents of every report with their summaries, in its order."""
    shown = []

    def keep(path, content):
        names = [pair.id for pair in content.pairs]
        shown.append(list(zip(names, content.systems[0].predictions, strict=True)))
        write_report(path, content)

    write_report = report.write_report
    monkeypatch.setattr(report, "write_report", keep)
    return shown


def test_a_report_shows_finished_documents_too(run, folder, tmp_path, reported):
    assert run("--out=out", "files/b.txt")[0] == 0
    code, out, _ = run("--out=out", "--report=report.html", "files/a.txt", "files")
    assert (code, out) == (0, "report.html: the report; open it in a browser\n")
    expected = [
        ("files/a.txt", "The file a"),
        ("files/b.txt", "The file b"),
        ("files/below/c.txt", "The file below/c"),
    ]
    assert reported == [expected]
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_outputs_in_a_folder_are_not_read_again(run, folder):
    for _ in range(2):
        code, out, _ = run("--json", "--report=files/report.html", "files")
        assert (code, len(out.splitlines())) == (0, 3)


def test_a_report_needs_no_directory(run, folder, tmp_path, reported):
    code, out, err = run("--json", "--report=report.html", "files/a.txt")
    assert code == 0
    assert json.loads(out)["summary"] == "The file a"
    assert "report.html: the report; open it in a browser\n" in err
    assert reported == [[("files/a.txt", "The file a")]]


def test_a_report_shows_rows_with_the_same_id(run, tmp_path, reported):
    for name in ("a", "b"):
        row = {"id": "1", "document": f"The row {name} has a text."}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
    assert run("--out=out", "--report=report.html", "json:a.jsonl", "json:b.jsonl")[0] == 0
    [shown] = reported
    assert [summary for _, summary in shown] == ["The row a", "The row b"]


@pytest.mark.parametrize("finished", [(), ("files/below/c.txt",), ("files/a.txt", "files/b.txt")])
def test_a_report_has_the_order_of_the_command_line(run, folder, reported, finished):
    (folder / "a.txt").write_text("Short. One.")
    (folder / "b.txt").write_text("Longest of all. " * 40)  # is summarized first
    if finished:
        assert run("--out=out", *finished)[0] == 0
    given = ("files/a.txt", "files/b.txt", "files/below/c.txt")
    assert run("--out=out", "--report=report.html", "--batch_size=2", *given)[0] == 0
    [shown] = reported
    assert [name for name, _ in shown] == list(given)


def test_a_model_of_entailment_judges_sources(run, tmp_path, monkeypatch):
    class Judge:
        Options = dict
        user_model = SimpleNamespace(describe=lambda: {"weights": "n1"})

        def __init__(self, options):
            assert options == {"model": "nli"}

        def judge(self, statements):
            return [each._replace(support=-0.5, is_supported=False) for each in statements]

    monkeypatch.setattr(summac, "SummaC", Judge)
    (tmp_path / "a.txt").write_text(SPOKEN)
    code, out, _ = run("--sources", "--support_model=nli", "--json", "--out=out", "a.txt")
    assert (code, out) == (0, "")
    about = json.loads((tmp_path / "out" / "a_summary.json").read_text())
    assert [each["support"] for each in about["sources"]] == [-0.5]
    assert about["settings"]["support"] == {"weights": "n1"}


def test_sources_by_attention(run, tmp_path, model, monkeypatch):
    checked = []

    def attend(model, summary):
        return [each._replace(support=0.25) for each in summary.sources]

    monkeypatch.setattr(attended, "check_attends", checked.append)
    monkeypatch.setattr(attended, "attended_sources", attend)
    (tmp_path / "a.txt").write_text(SPOKEN)
    flags = ("--sources", "--source_method=attention", "--out=out")
    assert run(*flags, "a.txt")[0] == 0
    assert checked == [model]
    about = json.loads((tmp_path / "out" / "a_summary.json").read_text())
    assert [each["support"] for each in about["sources"]] == [0.25]
    assert about["settings"]["sources"] == "attention"

    def fail(model, summary):
        if summary.request.name == "b.txt":
            raise InputError("b.txt was read in parts")
        return list(summary.sources)

    monkeypatch.setattr(attended, "attended_sources", fail)
    for name in ("b", "c"):
        (tmp_path / f"{name}.txt").write_text(SPOKEN)
    code, _, err = run(*flags, "a.txt", "b.txt", "c.txt")
    assert (code, err.count("b.txt was read in parts")) == (3, 1)
    assert names(tmp_path / "out") == [
        "a_summary.json",
        "a_summary.txt",
        "c_summary.json",
        "c_summary.txt",
    ]
    problem = "error: --source_method is for a model; give one with --model or leave"
    assert run(*flags, "a.txt", model=False)[2].startswith(problem)


def test_names_and_titles_that_are_no_text_are_written_in_characters(run, tmp_path):
    name = os.fsdecode(b"r\xe9sum\xe9.txt")
    (tmp_path / name).write_text("One two three four.")
    row = {"text": "One two three four.", "title": "a \ud83d b", "id": "\ud83d"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    assert run("--out=out", name, "rows.jsonl")[0] == 0
    *_, err = run("--out=out", name, "rows.jsonl")
    assert err.splitlines()[-1] == "2 summaries in out, 2 of them from an earlier run"
    sources = [json.loads(path.read_text())["source"] for path in (tmp_path / "out").glob("*.json")]
    assert any(source.endswith(r"r\xe9sum\xe9.txt") for source in sources)


def test_a_file_that_is_given_twice_counts_once(run, tmp_path):
    (tmp_path / "a.txt").write_text("One two three four.")
    *_, err = run("--out=out", "a.txt", "a.txt")
    assert err.splitlines()[-1] == "1 summary in out"


def test_summaries_do_not_go_into_the_folder_that_is_read(run, folder):
    code, _, err = run("--out=files", "files")
    assert code == 2
    assert "files: summaries would be written into this folder; name another for them" in err


@pytest.fixture
def extract(run):
    """Runs the command without a model."""

    def extract(*arguments, **options):
        return run(*arguments, model=False, **options)

    return extract


def test_directories_without_a_model(extract, folder, tmp_path):
    code, out, err = extract("--out=out", "--sources", "files")
    assert (code, out, err.splitlines()[-1]) == (0, "", "3 summaries in out")
    assert "    [sentence 1]" in (tmp_path / "out" / "a_summary.txt").read_text()
    about = json.loads((tmp_path / "out" / "a_summary.json").read_text())
    assert (about["unit"], about["document_tokens"]) == ("words", 18)
    assert (about["strategy"], about["coverage"][0]) == ("extract", 1)
    assert about["settings"]["model"] is None
    assert about["settings"]["length"] == "auto"
    *_, err = extract("--out=out", "--sources", "files")
    assert err.splitlines()[-1] == "3 summaries in out, 3 of them from an earlier run"
    *_, err = extract("--out=out", "--sources", "--length=1 sentence", "files")
    assert err.splitlines()[-1] == "3 summaries in out"


@pytest.mark.parametrize("with_model", [True, False])
def test_nothing_to_read_leaves_no_directory(run, tmp_path, with_model):
    code, _, err = run("--out=out", "no.txt", model=with_model)
    assert (code, "no.txt: no such file" in err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_lines_of_a_table_keep_their_ids(extract, tmp_path):
    rows = [{"id": f"d{i}", "document": f"Report {i} is short. It rains."} for i in range(2)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = extract("--format=jsonl", "--length=1 sentence", path)
    result = [json.loads(line) for line in out.splitlines()]
    assert (code, [line["id"] for line in result]) == (0, ["d0", "d1"])
    written = tmp_path / "extracts.jsonl"
    written.write_text(out)
    predictions = read_predictions(written, prediction_key="summary")
    assert {name: each.text for name, each in predictions.items()} == {
        "d0": "Report 0 is short.",
        "d1": "Report 1 is short.",
    }


def test_nothing_summarized_is_exit_code_2(extract, folder):
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("")
    code, out, err = extract("files/a.txt", "files/b.txt")
    assert (code, out) == (2, "")
    assert "2 documents could not be summarized" in err


def test_another_language_than_the_rankers_is_noted(extract, folder):
    (folder / "a.txt").write_text(
        "Der Minister sagte am Dienstag, die alte Straße werde gebaut. " * 20
    )
    _, _, err = extract("files/a.txt", "files/b.txt")
    german, english = err.splitlines()
    note = "few of its words are English, the language that the ranker was made for"
    assert re.fullmatch(rf"files/a.txt: .* written; {note}; [\d.]+ s", german)
    assert re.fullmatch(r"files/b.txt: .* written; [\d.]+ s", english)


@pytest.mark.parametrize(("query", "noted"), [("the texts of a", False), ("bridges", True)])
def test_a_query_without_a_word_of_the_document_is_noted(extract, folder, query, noted):
    _, _, err = extract(f"--query={query}", "files/b.txt")
    assert ("; no word of the query occurs in it; " in err) == noted


def test_a_terminal_that_is_waited_for_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(b"The old bridge is of stone.")))
    assert summarize.main([]) == 0
    out, err = capsys.readouterr()
    assert out == "The old bridge is of stone.\n"
    assert err.startswith("reading the text that you type or paste; Ctrl-D ends it\n-: ")


def test_formats_without_a_model(extract, folder):
    (folder / "a.txt").write_text("")
    code, out, err = extract("--format=json", "--length=1 sentence", "files")
    assert code == 3
    assert [row["summary"] for row in json.loads(out)] == [
        "The file b has a text.",
        "The file below/c has a text.",
    ]
    assert err.splitlines()[-1] == "  files/a.txt: the file is empty; give a text"
    _, out, _ = extract("--format=markdown", "--length=1 sentence", "files/b.txt")
    assert out.endswith("*files/b.txt: 18 of 18 words read; 6 words written*\n")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--support_model=nli"], "--support_model is about sources; ask for them with --sources"),
        (["--sources", "--support_model=nli"], "--support_model: "),
        (["--source_method=attention"], "--source_method is about sources; ask for them with"),
        (["--stream", "--sources"], "--stream prints text as it comes; leave --sources out"),
        (["--stream", "--json"], "--stream prints text as it comes; leave --format=jsonl out"),
        (["--stream", "--out=o"], "--stream prints text as it comes; leave --out out"),
        (["--json", "--format=html"], "--json is --format=jsonl, but --format=html"),
        (["--batch_size=0"], "--batch_size=0 must be at least 1"),
        (["--max_pages=0"], "--max_pages=0 must be at least 1"),
        (["--max_pages=x"], "argument --max_pages: 'x' is not a whole number; run longsum"),
        (["--max_seconds=x"], "argument --max_seconds: 'x' is not a number; run longsum"),
        (["-l", "-5"], '--length="-5"; write short, medium, long, a number of words such as 150,'),
        (["--query= "], "--query is blank"),
        (["--generation_option=top_k"], "--generation_option=top_k: write NAME=VALUE"),
        (["--generation_option=top_k=3"], "--generation_option=top_k=3: has its own flag"),
    ],
)
def test_flags_that_do_not_fit(run, tmp_path, flags, problem):
    (tmp_path / "a.txt").write_text("Text.")
    code, out, err = run(*flags, "a.txt")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {problem}")
    assert names(tmp_path) == ["a.txt"]


def test_out_that_is_a_file(run, folder, tmp_path):
    (tmp_path / "out").write_text("A file.")
    code, _, err = run("--out=out", "files")
    assert (code, err) == (2, "error: out: cannot be used (File exists); give another --out\n")


def test_flags_reach_the_model(run, folder, model, monkeypatch):
    loaded = {}
    monkeypatch.setattr(loading, "load", lambda path, **options: loaded.update(options) or model)
    run(
        "--revision=v1",
        "--which=latest",
        "--param_dtype=bfloat16",
        "--decoder_storage=int8",
        "--architecture=BartModel",
        "--early_stopping=never",
        "--generation_option=suppress_tokens=[3]",
        "--max_source_length=9",
        "--on_overflow=error",
        "--strategy=refine",
        "--segment_length=64",
        "--length=short",
        "files",
    )
    assert loaded == {
        "dtype": "float32",
        "param_dtype": "bfloat16",
        "decoder_storage": "int8",
        "which": "latest",
        "revision": "v1",
        "architecture": "BartModel",
    }
    expected = {
        "max_source_length": 9,
        "on_overflow": "error",
        "strategy": "refine",
        "segment_length": 64,
        "length": "short",
        "generation": {"early_stopping": "never", "suppress_tokens": [3]},
    }
    assert model.options == SummaryOptions(**expected)


def test_a_card_for_notebooks():
    summary = Summary("a < b\nc", 1000, 900, 100, 5, "eos")
    card = summary._repr_html_()
    assert "a &lt; b<br>c" in card
    assert "900 of 1,000 tokens read; 5 tokens written" in card
    assert "<details" not in card
    assert summary.sources == ()
    assert Summary("a", 1000, 900, 100, 1, "eos").about().endswith("; 1 token written")


def test_a_card_with_sources():
    request = Request("Cats <b>purr</b> & sleep all day.", "a", None)
    summary = Summary("Cats <b>purr</b>.\n\nDogs bark.", 9, 9, 0, 6, "eos").of(request)
    purr, bark = summary.sources
    assert (purr.is_supported, bark.is_supported) == (True, False)
    assert summary.sources is summary.sources  # found once
    card = summary._repr_html_()
    assert "Cats &lt;b&gt;purr&lt;/b&gt;.</span><sup" in card
    assert '<q dir="auto">Cats &lt;b&gt;purr&lt;/b&gt; &amp; sleep all day.</q>' in card
    assert card.count("unsupported") == 2  # on the sentence, and in the list
    assert "<b>" not in card
    assert summary.with_sources().splitlines()[-1] == "    [unsupported]"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such locale")
def test_names_and_texts_beyond_ascii_in_the_c_locale(tmp_path):
    """Python then takes ASCII for files and streams, unless the locale is coerced."""
    (tmp_path / "Brücke.txt").write_text("Der Damm bei Brünn ist alt. Er wird neu gebaut.", "utf-8")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "longsum_jax", "summarize", "Brücke.txt"]
    for options in (["--length=1 sentence"], ["--out=Auszüge"], ["--out=Auszüge"]):
        done = subprocess.run(
            [*command, *options],
            cwd=tmp_path,
            env=os.environ | locale,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
    names = sorted(path.name for path in (tmp_path / "Auszüge").iterdir())
    assert names == ["Brücke_summary.json", "Brücke_summary.txt"]
