"""studies/serving_soak.py: its counts, and every kind of hostile request against a server."""

import socket
import threading
import time

import numpy as np
import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("multipart")


@pytest.fixture(scope="module")
def soak(scripts):
    return scripts("serving_soak")


@pytest.fixture(scope="module")
def hostile(scripts):
    return scripts("serving_hostile")


def test_answers_are_compared_with_the_first(soak):
    answers = {"a": iter("xxyx"), "b": iter("zzzz")}
    load = None

    def post(text):
        summary = next(answers[text], None)
        if summary is None:
            raise OSError("cut")
        return 200, {"summaries": [{"summary": summary}]}

    load = soak.Load(["a", "b"], 1, post)
    load.start()
    while not load.counts["cut"]:
        time.sleep(0.001)
    assert load.end() == 0
    assert load.counts["answers"] == 8
    assert load.counts["different"] == 1
    assert load.first == {0: "x", 1: "z"}


def test_what_is_cut_is_asked_again(soak):
    asked, down = [], threading.Event()
    down.set()

    def post(text):
        asked.append(text)
        if down.is_set():
            raise ConnectionResetError
        return 200, {"summaries": [{"summary": text}]}

    load = soak.Load(["a"], 1, post)
    load.start()
    while load.counts["cut"] < 2:
        time.sleep(0.001)
    load.hold()
    down.clear()
    load.go_on()
    while not load.counts["answers"]:
        time.sleep(0.001)
    assert load.end() == 0
    assert load.counts["different"] == load.counts["lost"] == 0


JSON = b"content-type: application/json\r\n"
TEXT = b"content-type: text/plain\r\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "closed"),
        (b"422 a\r\n" + JSON + b'\r\n{"error": {"message": "send less"}}', "sentence"),
        (b"404 a\r\ncontent-length: 7\r\n" + TEXT + b"\r\nInvalidHTTP/1.1 200", "sentence"),
        (b"400 a\r\ntransfer-encoding: chunked\r\n\r\n7\r\nInvalid\r\n0\r\n\r\n", "sentence"),
        (b"500 a\r\n" + JSON + b'\r\n{"error": {"message": "the server failed"}}', "status 500"),
        (b"200 a\r\n" + JSON + b'\r\n{"summaries": []}', "status 200, no error"),
        (b"400 a\r\n" + TEXT + b"\r\nTraceback\n a", "status 400"),
        (b"\xff", "no answer in HTTP"),
    ],
)
def test_outcomes(hostile, answer, expected):
    assert hostile.outcome(answer and b"HTTP/1.1 " + answer).startswith(expected)


def test_all_kinds_have_their_turns(hostile):
    kinds = [attack.kind for attack in hostile.attacks(42, 0)]
    assert len(kinds) == 42
    assert len(set(kinds)) == len(hostile.MAKERS)
    assert kinds == [attack.kind for attack in hostile.attacks(42, 0)]


def test_a_connection_without_an_answer_stays_open(hostile):
    with socket.create_server((hostile.HOST, 0)) as server:
        attack = hostile.Attack("slow", [b"GET"])
        name, seconds = hostile.send(server.getsockname()[1], attack, patience=0.2)
    assert (name, seconds < 5) == ("open after 0.2 s", True)


@pytest.mark.slow
def test_a_small_run(report, soak, hostile, monkeypatch):
    """With the ranker in place of a model, which starts at once."""
    command = soak.serve_command
    monkeypatch.setattr(soak, "write_model", lambda directory: None)
    monkeypatch.setattr(
        soak,
        "serve_command",
        lambda model, **flags: [x for x in command(model, **flags) if "--model" not in x],
    )
    slow = (hostile.slow_bodies, hostile.slow_headers)
    quick = [make for make, _ in hostile.MAKERS if make not in slow]
    rng = np.random.default_rng(0)
    monkeypatch.setattr(soak, "attacks", lambda *_: [make(rng) for make in quick])
    flags = ["--minutes=0.02", "--kills=2", "--pause=0.3", "--calm=0.2", "--turns=2", "--rate=20"]
    result = report("serving_soak", *flags, "--clients=2", "--connections=20", "--hostile=8")
    rows = result["rows"]
    load = [row for row in rows if row["section"] == "load"]
    assert len(load) == soak.PARTS + 1
    assert load[-1]["answers"] > 0
    assert load[-1]["different"] == load[-1]["lost"] == load[-1]["uncounted"] == 0
    assert load[-1]["distinct"] > 1
    kill, term, end = [row for row in rows if row["section"] == "kills"]
    assert (kill["signal"], term["signal"], term["cut"]) == ("SIGKILL", "SIGTERM", 0)
    assert end["different"] == end["lost"] == 0
    assert result["failures"] == []
    attacks = [row for row in rows if row["section"] == "hostile"]
    assert [row["failed"] for row in attacks] == [0] * len(quick)
    nothing, *attacks = [row for row in rows if row["section"] == "neighbours"]
    assert "ratio" not in nothing
    assert len(attacks) == 2
    assert all(row["lowest"] <= row["ratio"] <= row["highest"] for row in attacks)
