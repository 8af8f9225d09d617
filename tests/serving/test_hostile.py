"""Hostile requests: each is answered in one sentence with the right status, fast."""

import asyncio
import dataclasses
import gzip
import json
import logging
import sys
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from longsum_jax.commands import serve
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.models.registry import get_family
from longsum_jax.readers import Failure, ReadOptions, sandbox
from longsum_jax.serving import bodies, guard, uploads
from longsum_jax.serving.app import Limits, make_app
from longsum_jax.serving.engine import Engine
from longsum_jax.summarization.model import Model
from longsum_jax.summarization.summary_options import READING_OPTIONS
from longsum_jax.tokenizers.bytes import ByteTokenizer

TEXT = "The council met on Monday. It raised the budget by 5 percent."
SECRET = "zanzibar"
JSON = {"content-type": "application/json"}
FORM = {"content-type": "multipart/form-data; boundary=x"}
READING = [name for name in READING_OPTIONS if name != "batch_size"]
OPTIONS = [*READING, *(field.name for field in dataclasses.fields(GenerationOptions))]
SUMMARIES, CHAT, HUB = "/v1/summaries", "/v1/chat/completions", "/summarization"


@pytest.fixture(scope="module")
def client():
    limits = Limits(max_bytes=150_000, max_seconds=100)
    # The server reads in the child process in any case.
    options = ReadOptions(max_bytes=100_000, sandbox=False)
    with TestClient(make_app(Engine(max_tokens=500), limits=limits, options=options)) as client:
        yield client


@pytest.fixture(scope="module")
def model_client():
    """A model without weights: it never decodes."""
    family = get_family("t5")
    config = dataclasses.replace(family.presets["tiny"], vocab_size=384)
    model = Model(family, config, {}, ByteTokenizer(), {"max_new_tokens": 8})
    # Without its warm-up.
    return TestClient(make_app(Engine(model, max_tokens=100)))


def json_body(text):
    return {"content": text.encode() if isinstance(text, str) else text, "headers": JSON}


def part(disposition, content=b"a"):
    head = f"--x\r\nContent-Disposition: {disposition}\r\n\r\n".encode()
    return {"content": head + content + b"\r\n--x--\r\n", "headers": FORM}


def upload(name, content):
    return {"files": {"file": (name, content)}}


REQUESTS = [
    # JSON
    (SUMMARIES, json_body(""), 400, "not valid JSON"),
    (SUMMARIES, json_body("[" * 100_000), 400, "not valid JSON"),
    (SUMMARIES, json_body('{"text": "a"' * 9), 400, "not valid JSON"),
    (SUMMARIES, json_body('{"seed": NaN, "text": "a"}'), 400, "not valid JSON"),
    (SUMMARIES, json_body('{"text": ' + "1" * 9000 + "}"), 400, "not valid JSON"),
    (SUMMARIES, json_body(b'{"text": "\xff"}'), 400, "UTF-8"),
    (SUMMARIES, json_body('{"text": "a"}'.encode("utf-16")), 400, "UTF-8"),
    (SUMMARIES, json_body("null"), 400, "JSON object"),
    (SUMMARIES, json_body('"text"'), 400, "JSON object"),
    (SUMMARIES, json_body("{}"), 422, "either text"),
    (SUMMARIES, json_body('{"text": "\\ud800"}'), 422, "\\ud800"),
    (SUMMARIES, json_body('{"text": "a", "query": "\\ud800"}'), 422, "\\ud800"),
    (SUMMARIES, json_body('{"text": "a", "\\ud800": 1}'), 422, "is for a model"),
    (SUMMARIES, json_body('{"text": "a", "length": 1e400}'), 422, "inf"),
    (SUMMARIES, {"json": {"documents": {}}}, 422, "a list"),
    (SUMMARIES, {"json": {"documents": []}}, 422, "at least one"),
    (SUMMARIES, {"json": {"documents": [[TEXT]]}}, 422, "of type list"),
    (SUMMARIES, {"json": {"text": None}}, 422, "of type NoneType; give its text, a string"),
    (SUMMARIES, {"json": {"text": TEXT, "query": {}}}, 422, "of type dict"),
    (SUMMARIES, {"json": {"text": TEXT, "stream": "yes"}}, 422, "stream must be"),
    (SUMMARIES, {"json": {"documents": ["a"] * 1000}}, 422, "at most 64"),
    # Sizes
    (SUMMARIES, json_body('"' + "a" * 200_000), 413, "150,000 bytes"),
    (SUMMARIES, {"content": iter([b"a" * 100_000] * 9), "headers": JSON}, 413, "150,000"),
    (SUMMARIES, {"json": {"text": "a " * 600}}, 413, "600 words"),
    (SUMMARIES, upload("a.txt", b"a" * 200_000), 413, "150,000 bytes"),
    # Bombs
    (SUMMARIES, upload("a.txt.gz", gzip.compress(b"a " * 10**6)), 413, "a.txt.gz"),
    (
        SUMMARIES,
        {"content": gzip.compress(b"{}"), "headers": JSON | {"content-encoding": "gzip"}},
        415,
        "uncompressed",
    ),
    # Forms
    (SUMMARIES, {"content": b"", "headers": FORM}, 422, "no file"),
    (SUMMARIES, {"content": b"--y\r\n", "headers": FORM}, 400, "multipart"),
    (SUMMARIES, {"content": b"", "headers": {"content-type": "multipart/form-data"}}, 400, "multi"),
    (SUMMARIES, part("form-data"), 400, "multipart"),
    (SUMMARIES, part('form-data; name="file"'), 422, "no file"),
    (SUMMARIES, {"files": [("file", ("a.txt", b"a"))] * 101}, 400, "multipart"),
    (SUMMARIES, upload("a.txt", b""), 422, "a.txt"),
    (SUMMARIES, upload("../../a.pdf", b"%PDF-1.7\n"), 422, "a.pdf"),
    # Other content
    (SUMMARIES, {"content": b"a", "headers": {"content-type": "text/plain"}}, 415, "application"),
    (SUMMARIES, {"content": b"{}", "headers": {"content-type": b"\xff"}}, 415, "application"),
    # Other formats
    (CHAT, {"json": {}}, 422, "messages must be"),
    (CHAT, {"json": {"messages": [1]}}, 422, "messages must be"),
    (CHAT, {"json": {"messages": [{"role": "user", "content": 1}]}}, 422, "of type int"),
    (CHAT, {"json": {"messages": [{"role": "user", "content": [1]}]}}, 422, "of type text"),
    (CHAT, {"json": {"messages": [{"role": []}]}}, 422, "one user message"),
    (HUB, {"json": {"inputs": TEXT, "parameters": []}}, 200, ""),
    (HUB, {"json": {"inputs": TEXT, "parameters": [1]}}, 422, "an object"),
    (HUB, {"json": {"inputs": {}, "parameters": {}}}, 422, "of type dict"),
    (HUB, {"json": {"parameters": {}}}, 422, "give inputs"),
    (HUB, {"json": {"inputs": TEXT, "parameters": {"truncation": []}}}, 422, "truncation"),
    (HUB, {"json": {"inputs": TEXT, "parameters": {"generate_parameters": 1}}}, 422, "object"),
]


@pytest.mark.parametrize(("path", "arguments", "status", "message"), REQUESTS)
def test_requests(client, path, arguments, status, message, caplog):
    caplog.set_level(logging.DEBUG)
    answer = client.post(path, **arguments)
    assert answer.status_code == status, answer.text
    if status != 200:
        text = answer.json()["error"]["message"]
        assert message in text
        assert "\n" not in text
        assert "Traceback" not in caplog.text
    assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize("name", OPTIONS)
def test_wrong_types_of_options(model_client, name):
    for value in ({"a": 1}, [None], "no"):
        answer = model_client.post(SUMMARIES, json={"text": TEXT, name: value})
        assert answer.status_code == 422, (value, answer.text)
        assert name in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"batch_size": 4}, 422),
        ({"num_beams": 17}, 422),
        ({"num_beams": 10**30}, 422),
        ({"max_new_tokens": 5000}, 422),
        ({"length": "9000 words"}, 422),
        ({"seed": 10**30}, 422),
        ({"seed": True}, 422),
        ({"names": ["a"]}, 422),
        ({"num_return_sequences": 2}, 422),
        ({"trust_remote_code": True}, 422),
        ({"text": "a" * 200}, 413),
    ],
)
def test_values_beyond_the_limits(model_client, options, status):
    answer = model_client.post(SUMMARIES, json={"text": TEXT, **options})
    assert answer.status_code == status, answer.text


def test_limits_of_readers_are_413():
    for problem, status in (
        ("a.pdf: 30 pages, more than max_pages=20; raise it (--max_pages)", 413),
        ("a.gz: the file expands to more than 9 bytes; raise max_bytes", 413),
        ("a.gz: expands to more than 999 times its size; decompress it first", 413),
        ("a.pdf: damaged", 422),
    ):
        error = bodies.failure_error(Failure("a", problem))
        assert error.status_code == status
        assert "raise" not in error.detail


def test_slow_bodies(client, monkeypatch):
    monkeypatch.setattr(uploads, "_IDLE_SECONDS", 0.05)
    answers = []

    async def receive():
        await asyncio.sleep(60)

    async def send(message):
        answers.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": SUMMARIES,
        "headers": [(b"content-type", b"application/json")],
        "query_string": b"",
    }
    started = time.monotonic()
    asyncio.run(client.app(scope, receive, send))
    assert answers[0]["status"] == 408
    assert b"no data of the body" in answers[1]["body"]
    assert time.monotonic() - started < 5


def test_slow_bodies_take_no_place_of_the_queue():
    """200 connections of one or many clients that send nothing, or a byte and then nothing."""
    app = make_app(Engine(max_queue=2))
    body = json.dumps({"text": TEXT}).encode()

    async def post(client, messages, statuses):
        async def receive():
            if not messages:
                await asyncio.sleep(60)
            return messages.pop(0)

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": SUMMARIES, "headers": headers}
        await app(scope | {"query_string": b"", "client": (client, 1)}, receive, send)

    async def run():
        slow, good = [], []
        tasks = []
        for number in range(200):
            first = [{"type": "http.request", "body": b"{", "more_body": True}]
            messages = first if number % 2 else []
            client = f"10.0.0.{number % 3}" if number < 100 else "127.0.0.1"
            tasks.append(asyncio.create_task(post(client, messages, slow)))
            await asyncio.sleep(0)
            if number % 20 == 0:
                half = [body[:9], body[9:]]
                parts = [
                    {"type": "http.request", "body": part, "more_body": part is half[0]}
                    for part in half
                ]
                await post("127.0.0.1", parts, good)
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return slow, good

    slow, good = asyncio.run(run())
    assert good == [200] * 10
    # All but the four that are read at once had to make room.
    assert slow == [408] * 196


def test_nothing_is_opened_as_path_or_url(client, tmp_path, caplog):
    """Neither files nor connections, and no text in the log."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / f"{SECRET}.txt"
    path.write_text("Content of the file.")
    opened = []
    active = True

    def watch(event, arguments):
        if active and event in ("open", "socket.connect", "socket.getaddrinfo", "os.listdir"):
            opened.append(str(arguments))

    sys.addaudithook(watch)
    names = [str(path), f"file://{path}", f"http://{SECRET}/"]
    for name in names:
        requests = [
            (SUMMARIES, {"json": {"documents": [name], "query": name}}),
            (SUMMARIES, {"data": {"text": name, "query": name}, "files": {"a": (name, b"One.")}}),
            (CHAT, {"json": {"messages": [{"role": "user", "content": name}]}}),
            (HUB, {"json": {"inputs": name}}),
        ]
        for endpoint, arguments in requests:
            answer = client.post(endpoint, **arguments)
            assert answer.status_code in (200, 422), answer.text
            assert "Content of the file" not in answer.text
    image = {"type": "image_url", "image_url": {"url": names[0]}}
    message = {"role": "user", "content": [image]}
    assert client.post(CHAT, json={"messages": [message]}).status_code == 422
    active = False
    assert not [arguments for arguments in opened if SECRET in arguments]
    assert SECRET not in caplog.text


def test_uploads_are_read_in_the_child_process(client, monkeypatch):
    read, sources = sandbox.read, []
    monkeypatch.setattr(
        sandbox,
        "read",
        lambda source, **options: sources.append(source) or read(source, **options),
    )
    assert client.post(SUMMARIES, **upload("a.txt", TEXT.encode())).status_code == 200
    assert [(source.name, source.options.sandbox) for source in sources] == [("a.txt", True)]


def test_limits_are_flags(monkeypatch):
    """Of bytes, tokens, pages, the queue and time."""
    made = {}

    def make(engine, **options):
        made.update(options)

    pytest.importorskip("uvicorn")
    monkeypatch.setattr("longsum_jax.serving.app.make_app", make)
    monkeypatch.setattr(
        "longsum_jax.serving.engine.Engine", lambda *_, **limits: made.update(limits)
    )
    monkeypatch.setattr("uvicorn.run", lambda *_, **options: made.update(port=options["port"]))
    monkeypatch.setattr("longsum_jax.commands.serve._check_port", lambda *_: None)
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    values = {"max_body_bytes": 1000, "max_request_seconds": 7.0, "max_queue": 3}
    values |= {"max_tokens": 50, "max_new_tokens": 9, "max_pages": 5, "port": 8001}
    serve.main([f"--{name}={value}" for name, value in values.items()])
    assert (made["limits"].max_bytes, made["limits"].max_seconds) == (1000, 7)
    assert (made["max_queue"], made["max_tokens"], made["max_new_tokens"]) == (3, 50, 9)
    options = made["options"]
    assert (options.max_bytes, options.max_seconds, options.max_pages) == (8000, 7, 5)
    assert options.sandbox
    assert made["port"] == 8001


def test_keys_are_compared_in_constant_time(monkeypatch):
    """Every key, also after one that fits, by the function of the standard library."""
    results = []
    compare = guard.hmac.compare_digest

    def counted(*digests):
        results.append(compare(*digests))
        return results[-1]

    monkeypatch.setattr(guard, "hmac", SimpleNamespace(compare_digest=counted))
    with TestClient(make_app(Engine(), limits=Limits(api_keys=["one", "two"]))) as client:
        for key, status in (("one", 422), ("other", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            assert client.post(SUMMARIES, json={}, headers=headers).status_code == status
    assert results == [True, False, False, False]
