"""Files are read in a child process, which a file cannot make to fill the memory or to hang."""

import gzip
import io
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from longsum_jax.errors import InputError
from longsum_jax.readers import KINDS, ReadOptions, read_documents, sandbox, worker
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of other systems")

# A child process whose reader does what the file says.
READER = """
import os, resource, signal, sys, time, types
sys.path[:] = sys.argv[1:]
for name in ("joining", "documents"):  # they import NumPy, which takes long
    module = sys.modules[f"longsum_jax.text.{name}"] = types.ModuleType(name)
    module.join_documents = module.replace_half_characters = None
from longsum_jax.readers.document import Document

def read_source(source):
    word = source.content.decode()
    if word == "allocate":
        bytearray(2**33)
    elif word == "spin":
        while True:
            pass
    elif word == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif word == "fail":
        raise KeyError("heading")
    elif word == "limits":
        word = str([resource.getrlimit(which)[0] for which in
                    (resource.RLIMIT_DATA, resource.RLIMIT_CPU, resource.RLIMIT_CORE)])
    elif word == "many":
        for number in range(1000):
            yield Document(f"{number}" * 1000, source.name, source.path)
    elif word == "large":
        word = "x" * 2**21
    print("a message of a library")
    yield Document(word, source.name, source.path)

sys.modules["longsum_jax.readers.contents"] = contents = types.ModuleType("contents")
contents.read_source = contents.read_folder = read_source
from longsum_jax.readers.worker import main
main()
"""


@pytest.fixture
def read(monkeypatch, tmp_path):
    """A function that reads files with some content; returns texts and problems."""
    monkeypatch.setattr(sandbox, "_START", READER)
    monkeypatch.setattr(sandbox, "_GRACE_SECONDS", 0.1)
    sandbox._stop_all()

    def read(*words, **options):
        for i, word in enumerate(words):
            (tmp_path / f"{i}.txt").write_text(word)
        problems = []
        documents = read_documents(
            tmp_path,
            options=ReadOptions(**options),
            on_failure=lambda failure: problems.append(failure.problem),
        )
        texts = [document.text for document in documents]
        return texts, [problem.removeprefix(f"{tmp_path}/") for problem in problems]

    yield read
    sandbox._stop_all()


CRASH = r"0.txt: reading takes more memory than the size allows \(1 GiB plus 64 times .* 4 GiB\)"
CRASH += r"; split the document, or .*no_sandbox\)"


@pytest.mark.parametrize(
    ("word", "options", "problem"),
    [
        ("allocate", {}, f"{CRASH}$"),
        ("spin", {"max_seconds": 0.2}, r"0.txt: reading takes longer than max_seconds=0\.2; raise"),
        ("crash", {}, rf"{CRASH} \(the reader ended with SIGSEGV\)$"),
        ("fail", {}, r"0.txt: the reader fails \(KeyError: 'heading'\); please report this"),
        ("large", {"max_bytes": 10}, "0.txt: the file holds or expands to more than 10 bytes"),
    ],
)
def test_reading_continues_after_a_file_that_exceeds_a_limit(read, word, options, problem):
    texts, problems = read(word, "good", **options)
    assert texts == ["good"]
    assert len(problems) == 1
    assert re.match(problem, problems[0]), problems


def test_the_operating_system_sets_the_limits(read):
    [first, second], problems = read("limits", "limits", max_bytes=2**20, max_seconds=9.0)
    assert problems == []
    memory, seconds, core = eval(first)
    # what the process had already is added
    assert 2**30 < memory - 64 * len("limits") < 2**30 + 2**28
    assert core == 0
    assert 11 < seconds < 20
    assert first == second


@pytest.mark.parametrize(
    ("max_bytes", "size", "limit"),
    [
        (2**30, 2**20, 2**30 + 2**26),
        (2**30, 2**26, 2**32),  # not more than 2 GiB and twice max_bytes
        (2**20, 2**20, 2**30 + 2**26),
    ],
)
def test_memory_is_limited_by_the_size(max_bytes, size, limit):
    assert ReadOptions(max_bytes=max_bytes).memory_for(size) == limit


def test_the_memory_limit_grows_with_what_is_unpacked(monkeypatch):
    limits = []
    monkeypatch.setattr(worker, "_set_limit", lambda which, value: limits.append(value))
    monkeypatch.setattr(worker, "_held_bytes", lambda: 2**24)
    content = gzip.compress(b"A cat sat. " * 2**20)
    request = sandbox.FileRequest("a.txt.gz", "a.txt.gz", ReadOptions(), None)
    counts = worker._Limits(request, len(content))
    assert limits[0] == 2**24 + 2**30 + 64 * len(content)
    [result] = worker._results(request, content, counts)
    assert len(result.text) == 11 * 2**20 - 1
    assert limits[-1] == 2**24 + 2**30 + 64 * (len(content) + 11 * 2**20)
    folder = sandbox.FileRequest("a", "a", ReadOptions(), "/")
    worker._Limits(folder, 0)
    assert limits[-2] == ReadOptions().max_memory


def test_the_limit_of_a_small_file_does_not_hold_for_the_content_of_the_next(monkeypatch):
    stream, limits = io.BytesIO(), []
    monkeypatch.setattr(worker, "_set_limit", lambda which, value: limits.append(value))
    request = sandbox.FileRequest("a.txt", "a.txt", ReadOptions(), None)
    sandbox.send(stream, pickle.dumps(request))
    sandbox.send(stream, b"A cat sat.")
    stream.seek(0)
    assert worker._receive_request(stream) == request
    assert limits == [ReadOptions().max_memory]  # before the content is received
    assert sandbox.receive(stream) == b"A cat sat."
    assert worker._receive_request(stream) is None


def test_a_page_that_unpacks_to_gigabytes_takes_one(tmp_path):
    """An honest page with many letters and a large picture is read; its pictures stay packed."""
    pytest.importorskip("pypdfium2")
    sandbox._stop_all()
    (tmp_path / "bomb.pdf").write_bytes(pdf_page(b"(aaa. ) Tj " * 20_000_000))
    (tmp_path / "page.pdf").write_bytes(pdf_page(b"(A cat sat. ) Tj " * 20_000, picture=2**26))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(InputError, match=r"bomb\.pdf: reading takes more memory than the size"):
        list(read_documents(tmp_path / "bomb.pdf"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 15
    # A child process counts the memory of this process, from which it is forked.
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after.ru_maxrss < max(1.5 * 2**20, before.ru_maxrss + 1, inherited + 1)  # KiB
    [document] = read_documents(tmp_path / "page.pdf")
    assert document.text.count("A cat sat.") == 20_000


def pdf_page(content: bytes, picture: int = 0) -> bytes:
    """Returns a PDF of one page that draws a text, and a gray picture of so many bytes."""
    stream = zlib.compress(b"BT /F 12 Tf " + content + b"ET /I Do", 9)
    pixels = zlib.compress(bytes(picture), 1)
    side = math.isqrt(picture)
    parts = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        b"/Resources<</Font<</F 5 0 R>>/XObject<</I 6 0 R>>>>>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Type/XObject/Subtype/Image/Width %d/Height %d/ColorSpace/DeviceGray"
        b"/BitsPerComponent 8/Filter/FlateDecode/Length %d>>stream\n%s\nendstream"
        % (side, side, len(pixels), pixels),
    )
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (i + 1, part) for i, part in enumerate(parts))
    return b"%PDF-1.7\n" + body + b"trailer<</Root 1 0 R/Size 9>>\n"


def test_one_process_reads_all_files(read, monkeypatch):
    started = []
    worker = sandbox._Worker
    monkeypatch.setattr(sandbox, "_Worker", lambda: started.append(1) or worker())
    assert read("a", "b") == (["a", "b"], [])
    assert read("c") == (["c", "b"], [])
    assert len(started) == 1


def test_a_process_that_was_killed_while_idle_is_replaced(read):
    assert read("a") == (["a"], [])
    [worker] = sandbox._idle
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()
    assert read("b", "c") == (["b", "c"], [])


def test_a_process_that_was_stopped_while_idle_is_replaced(read):
    assert read("a") == (["a"], [])
    [worker] = sandbox._idle
    worker.stop()
    assert read("b", "c") == (["b", "c"], [])


def test_a_caller_may_stop_early(read, tmp_path):
    (tmp_path / "0.txt").write_text("many")
    documents = read_documents(tmp_path)
    assert next(documents).text == "0" * 1000
    documents.close()
    assert read("good")[0] == ["good"]


def test_two_callers_may_read_at_the_same_time(read, tmp_path):
    (tmp_path / "0.txt").write_text("many")
    pairs = zip(read_documents(tmp_path), read_documents(tmp_path), strict=True)
    assert all(first.text == second.text for first, second in pairs)


def test_a_process_that_cannot_be_started(read, monkeypatch):
    monkeypatch.setattr(sandbox, "_START", "raise SystemExit(7)")
    texts, [problem] = read("good")
    assert texts == []
    assert "cannot be started (the reader ended with status 7); install the package" in problem
    assert "(sandbox=False, --no_sandbox)" in problem
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert "cannot be started (No such file or directory)" in read("good")[1][0]


def test_results_are_the_same_without_the_child_process(tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("# One\n\nText of \u00e9t\u00e9.\n\n## Two\n\nMore text.\n")
    (tmp_path / "b.jsonl").write_text('{"text": "A row.", "query": "Q?", "id": 7}\n')
    (tmp_path / "c.txt").write_text("Old text \u00e9t\u00e9.", encoding="latin-1")
    monkeypatch.chdir(tmp_path)
    retained = list(read_documents("a.md", "b.jsonl", "c.txt"))
    options = ReadOptions(sandbox=False)
    assert retained == list(read_documents("a.md", "b.jsonl", "c.txt", options=options))
    assert retained[0].headings


def test_messages_keep_all_fields():
    document = Document(
        "text\udc80", "n", "p\udc80", "t", (), (0, 3), ("note",), "query", (2,), "id"
    )
    assert sandbox._result(sandbox.as_message(document)) == document
    assert sandbox._result(sandbox.as_message(None)) is None


def test_registered_readers_run_in_this_process(tmp_path, monkeypatch):
    def read(source: Source):
        yield source.document([Block(f"Read by process {os.getpid()}.")])

    monkeypatch.setitem(KINDS, "text", KINDS["text"]._replace(read=read))
    (tmp_path / "a.txt").write_text("x")
    [document] = read_documents(tmp_path / "a.txt")
    assert document.text == f"Read by process {os.getpid()}."


def test_modules_are_not_imported_from_the_current_folder(tmp_path, monkeypatch):
    for name in ("json", "pickle", "longsum_jax"):
        (tmp_path / f"{name}.py").write_text("open('canary', 'w').close()")
    (tmp_path / "a.txt").write_text("A text.")
    monkeypatch.chdir(tmp_path)
    sandbox._stop_all()
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert [document.text for document in read_documents("a.txt")] == ["A text."]
    sandbox._stop_all()
    assert not Path("canary").exists()


def test_a_process_ends_while_documents_are_unread(tmp_path):
    """No thread can be started when Python has begun to end."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("A text.")
    lines = ["from longsum_jax.readers import read_documents"]
    lines += [
        "documents = read_documents('a.txt', 'b.txt')",
        "next(documents)",
        "raise SystemExit(3)",
    ]
    command = [sys.executable, "-W", "error", "-c", "; ".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "")


def test_the_first_failure_raises(read, tmp_path):
    read("fail")
    with pytest.raises(InputError, match="the reader fails"):
        list(read_documents(tmp_path))


def test_a_named_pipe_is_refused_and_one_of_a_shell_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(InputError, match=r"pipe\.txt: a named pipe, which may never be written"):
        list(read_documents(tmp_path / "pipe.txt"))
    reading, writing = os.pipe()
    os.write(writing, b"A text.")
    os.close(writing)
    options = ReadOptions(sandbox=False)
    [document] = read_documents(f"/dev/fd/{reading}", options=options)
    os.close(reading)
    assert document.text == "A text."
