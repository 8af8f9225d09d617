"""The HTTP application, over the bundled ranker or an engine that repeats its text."""

import asyncio
import contextlib
import dataclasses
import json
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.serving.app import Limits, make_app
from longsum_jax.serving.chat import parse_chat
from longsum_jax.serving.engine import Engine, _extract
from longsum_jax.serving.pieces import WholeJob
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_options import SummaryOptions

TEXT = "The council met on Monday. It raised the budget by 5 percent. Nobody objected to it."
JSON = {"content-type": "application/json"}


@pytest.fixture
def client():
    with TestClient(make_app(Engine(max_queue=3), limits=Limits(max_bytes=5000))) as client:
        for _ in range(500):
            if client.get("/health/ready").status_code == 200:
                break
            time.sleep(0.02)
        yield client


class Repeater(Engine):
    """Writes the document, word by word, as its summary."""

    def _preparation(self, options):
        def prepare(future, request, stream):
            def summarize(model):
                if stream is not None:
                    for end in range(len(request.text)):
                        stream.update(request.text[:end])
                if "fail" in request.text:
                    raise RuntimeError(request.text)
                return Summary(request.text, 9, 9, 0, 8, "eos")

            return [WholeJob(future, summarize, stream, time.monotonic())]

        return prepare


def events_of(response):
    """The names and data of server-sent events."""
    events = []
    for lines in response.text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in lines.split("\n"))
        events.append((fields.get("event"), json.loads(fields["data"])))
    return events


def test_stream():
    with TestClient(make_app(Repeater())) as client:
        body = {"documents": [TEXT, "fail now", "One 字 more."], "stream": True}
        response = client.post("/v1/summaries", json=body)
        *parts, (name, result) = events_of(response)
        assert response.headers["content-type"].startswith("text/event-stream")
        assert name == "result"
        assert {name for name, _ in parts} == {"delta"}
        assert len(parts) > 10
        texts = ["", "", ""]
        for _, part in parts:
            texts[part["document"]] += part["text"]
        assert (texts[0], texts[2]) == (TEXT, "One 字 more.")
        first, failed, last = result["summaries"]
        assert (first["summary"], last["summary"]) == (TEXT, "One 字 more.")
        assert "summary" not in failed
        assert failed["status"] == 500
        response = client.post("/v1/summaries", json={"text": "fail", "stream": True})
        [(name, error)] = events_of(response)
        assert (name, error["status"]) == ("error", 500)
        response = client.post("/v1/summaries", json={"text": " ", "stream": True})
        assert response.status_code == 422
        metrics = client.get("/metrics").text
        assert 'longsum_requests_total{status="200"} 1' in metrics
        assert 'longsum_requests_total{status="500"} 1' in metrics


def test_the_client_of_openai():
    """In this process; its errors are those of the server."""
    openai = pytest.importorskip("openai")
    httpx = pytest.importorskip("httpx2")

    async def run():
        transport = httpx.ASGITransport(app=make_app(Repeater()))
        http_client = httpx.AsyncClient(transport=transport)
        client = openai.AsyncOpenAI(
            base_url="http://server/v1", api_key="-", http_client=http_client, max_retries=0
        )
        create = client.chat.completions.create
        messages = [{"role": "user", "content": TEXT}]
        answer = await create(model="built-in", messages=messages)
        assert answer.choices[0].message.content == TEXT
        assert answer.choices[0].finish_reason == "stop"
        stream = await create(
            model="built-in",
            messages=messages,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        deltas = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
        assert len(deltas) > 5
        assert "".join(filter(None, deltas)) == TEXT
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage.completion_tokens == 8
        with pytest.raises(openai.UnprocessableEntityError, match="tools is not supported"):
            await create(model="built-in", messages=messages, tools=[{"type": "function"}])
        messages[0]["content"] = "fail"
        stream = await create(model="built-in", messages=messages, stream=True)
        with pytest.raises(openai.APIError, match="failed to summarize"):
            [chunk async for chunk in stream]
        assert [model.id async for model in client.models.list()] == ["built-in"]
        assert (await client.models.retrieve("built-in")).id == "built-in"

    asyncio.run(run())


def test_engines_have_names_of_their_own():
    with pytest.raises(InputError, match="at least one engine; got 0"):
        make_app()
    engines = Engine(), Engine()
    with pytest.raises(InputError, match="2 engines are named 'built-in'; give each its own"):
        make_app(*engines)
    for engine in engines:
        engine.close()


def test_requests_choose_a_model_by_name():
    engines = Repeater(name='the "first"'), Engine()
    with TestClient(make_app(*engines)) as client:
        entries = client.get("/v1/models").json()["data"]
        assert [entry["id"] for entry in entries] == ['the "first"', "built-in"]
        assert client.get("/v1/models/").json()["data"] == entries
        assert client.get("/v1/models/built-in").json() == entries[1]
        missing = client.get("/v1/models/other")
        assert missing.status_code == 404
        assert 'give one of the "first", built-in' in missing.json()["error"]["message"]
        long = TEXT * 20
        chat = {"messages": [{"role": "user", "content": long}]}
        for fields, repeats in (({}, True), ({"model": "built-in"}, False)):
            answer = client.post("/v1/summaries", json={"text": long, **fields}).json()
            assert answer["model"] == fields.get("model", 'the "first"')
            hub = client.post("/summarization", json={"inputs": long, **fields}).json()
            choice = client.post("/v1/chat/completions", json=chat | fields).json()["choices"][0]
            file = {"file": ("a.txt", long.encode())}
            form = client.post("/v1/summaries", data=fields, files=file)
            result = [answer["summaries"][0]["summary"], hub[0]["summary_text"]]
            result += [choice["message"]["content"], form.json()["summaries"][0]["summary"]]
            assert [text == long for text in result] == [repeats] * 4
        for path, body in (
            ("/v1/summaries", {"text": TEXT}),
            ("/summarization", {"inputs": TEXT}),
            ("/v1/chat/completions", chat),
        ):
            for name in ("gpt", ["built-in"]):
                answer = client.post(path, json={"model": name, **body})
                assert answer.status_code == 404
                assert 'give one of the "first", built-in' in answer.json()["error"]["message"]
        metrics = client.get("/metrics").text
        labels = 'model="the \\"first\\"",replica="replica-0"'
        for line in (labels, 'model="built-in",replica="replica-0"'):
            assert f"longsum_wait_seconds_count{{{line}}} " in metrics


@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_goes_away_frees_its_place(streams, monkeypatch):
    blocked = threading.Event()
    monkeypatch.setattr("longsum_jax.serving.engine._extract", lambda *_: blocked.wait(10))
    engine = Engine()
    app = make_app(engine)
    body = json.dumps({"documents": [TEXT] * 3, "stream": streams}).encode()

    async def run():
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            while not messages:
                if engine.num_open == 3:
                    return {"type": "http.disconnect"}
                await asyncio.sleep(0.01)
            return messages.pop()

        async def send(message):
            pass

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/summaries",
            "headers": [(b"content-type", b"application/json")],
            "query_string": b"",
        }
        await asyncio.wait_for(app(scope, receive, send), 10)

    asyncio.run(run())
    assert engine.num_open == 0
    blocked.set()
    engine.close()


def test_sigterm_finishes_requests(free_port, monkeypatch):
    uvicorn = pytest.importorskip("uvicorn")
    port = free_port()
    config = uvicorn.Config(make_app(Engine()), port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    url = f"http://127.0.0.1:{port}"
    for _ in range(500):
        with contextlib.suppress(OSError), urlopen(f"{url}/health/ready") as answer:
            assert answer.status == 200
            break
        time.sleep(0.02)
    entered, blocked = threading.Event(), threading.Event()

    def extract(*arguments):
        entered.set()
        blocked.wait(10)
        return _extract(*arguments)

    monkeypatch.setattr("longsum_jax.serving.engine._extract", extract)
    body = json.dumps({"text": TEXT}).encode()
    with ThreadPoolExecutor() as threads:
        answering = threads.submit(urlopen, HttpRequest(f"{url}/v1/summaries", body, JSON))
        assert entered.wait(10)
        server.handle_exit(signal.SIGTERM, None)
        blocked.set()
        with answering.result(30) as answer:
            assert json.load(answer)["summaries"][0]["summary"]
    thread.join(30)
    assert not thread.is_alive()


def test_openapi(client):
    document = client.get("/openapi.json").json()
    options = {
        field.name
        for config in (SummaryOptions, GenerationOptions)
        for field in dataclasses.fields(config)
        if field.name not in ("batch_size", "generation")
    }
    bodies = document["paths"]["/v1/summaries"]["post"]["requestBody"]["content"]
    page = client.get("/docs").text
    for body, documents in zip(bodies.values(), ({"text", "documents"}, {"file"}), strict=True):
        properties = body["schema"]["properties"]
        answer = {"sources", "document_text", "stream", "model", "query"}
        assert properties.keys() == options | documents | answer
        assert properties["strategy"]["enum"][0] == "auto"
        assert properties["segment_length"]["description"]
    assert all(name in page for name in [*options, *document["paths"]])
    assert "://" not in page
    assert client.get("/nothing").json()["error"]["message"].startswith("there is no such")
    answer = client.get("/v1/summaries")
    assert answer.status_code == 405
    assert answer.json()["error"]["message"].startswith("this endpoint does not accept GET; see")


def test_openapi_describes_answers(client):
    document = client.get("/openapi.json").json()
    chat = {"messages": [{"role": "user", "content": TEXT}]}
    bodies = {
        "/v1/summaries": {"documents": [TEXT, ""], "sources": True, "document_text": True},
        "/v1/chat/completions": chat,
        "/summarization": {"inputs": TEXT},
    }
    for path, body in bodies.items():
        operation = document["paths"][path]["post"]
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        check_schema(client.post(path, json=body).json(), schema)
        schema = operation["responses"]["422"]["content"]["application/json"]["schema"]
        check_schema(client.post(path, json={}).json(), schema)
        streams = (
            "stream"
            in operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
        )
        assert ("text/event-stream" in operation["responses"]["200"]["content"]) == streams
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


def check_schema(value, schema):
    """Fails for a value of another type than its schema, or with other fields."""
    kinds = {"array": list, "object": dict, "string": str, "integer": int, "number": float}
    if "enum" in schema:
        assert value in schema["enum"]
        return
    assert isinstance(value, kinds[schema["type"]])
    if isinstance(value, list):
        for item in value:
            check_schema(item, schema["items"])
    elif "properties" in schema:
        assert value.keys() <= schema["properties"].keys()
        for name, item in value.items():
            check_schema(item, schema["properties"][name])


def test_cors_only_if_named():
    headers = {"Origin": "https://example.org"}
    for origins in ((), ("https://example.org",)):
        with TestClient(make_app(Engine(), limits=Limits(origins=origins))) as client:
            answer = client.get("/health/live", headers=headers)
            assert ("access-control-allow-origin" in answer.headers) == bool(origins)


def test_answers(client):
    body = {"text": TEXT, "length": "1 sentences", "sources": True}
    answer = client.post("/v1/summaries", json=body)
    assert answer.status_code == 200, answer.text
    (summary,) = answer.json()["summaries"]
    assert summary["summary"] in TEXT
    assert summary["dropped_tokens"] == 0
    assert summary["sources"]
    assert (
        len(client.post("/v1/summaries", json={"documents": [TEXT] * 2}).json()["summaries"]) == 2
    )
    for null in ({"length": None}, {"query": ""}, {"sources": None}):
        assert client.post("/v1/summaries", json={"text": TEXT} | null).status_code == 200
    body = {"inputs": TEXT, "parameters": {"length": "1 sentences"}}
    assert client.post("/summarization", json=body).json() == [{"summary_text": summary["summary"]}]
    files = {"file": ("../a.html", f"<p>{TEXT}</p>".encode())}
    answer = client.post("/v1/summaries", files=files, data={"length": "1 sentences"}).json()
    assert answer["summaries"][0]["summary"] == summary["summary"]
    assert answer["summaries"][0]["document"] == "a.html"
    assert client.get("/health/live").status_code == 200
    assert 'longsum_requests_total{status="200"} 7' in client.get("/metrics").text


def test_chat(client):
    """The messages of OpenAI's clients, read by hand."""
    body = {"model": "built-in", "messages": [{"role": "user", "content": TEXT}]}
    answer = client.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["prompt_tokens"] > 0
    events = client.post("/v1/chat/completions", json=body | {"stream": True})
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.text.endswith("data: [DONE]\n\n")
    parts = [{"type": "text", "text": TEXT}]
    message = {"role": "user", "content": parts}
    again = client.post("/v1/chat/completions", json={"messages": [message]}).json()
    assert again["choices"] == answer["choices"]
    assert client.get("/v1/models").json()["data"][0]["id"] == "built-in"
    # Fields that clients often send; the ranker counts words and does not sample.
    usual = {"max_tokens": 6, "temperature": 0.7, "top_p": 0.9, "seed": 1, "n": 1}
    usual |= {"frequency_penalty": 0, "stop": None, "user": "someone"}
    short = client.post("/v1/chat/completions", json=body | usual).json()
    assert short["usage"]["completion_tokens"] <= 6 < answer["usage"]["completion_tokens"]
    nulls = {"stream": None, "stream_options": {"include_usage": None}, "length": None}
    assert client.post("/v1/chat/completions", json=body | nulls).json()["choices"]
    body["messages"] *= 2
    assert client.post("/v1/chat/completions", json=body).status_code == 422


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, {}),
        ({"temperature": None}, {}),
        ({"temperature": 0}, {"do_sample": False}),
        (  # of a model whose config has beams
            {"temperature": 0.7},
            {
                "temperature": 0.7,
                "do_sample": True,
                "num_beams": 1,
                "prompt_lookup_num_tokens": 0,
            },
        ),
        (
            {"temperature": 1, "num_beams": 3, "prompt_lookup_num_tokens": 2},
            {"temperature": 1, "do_sample": True, "num_beams": 3, "prompt_lookup_num_tokens": 2},
        ),
    ],
)
def test_temperatures_of_chats(fields, options):
    messages = [{"role": "user", "content": TEXT}]
    assert parse_chat({"messages": messages} | fields, has_model=True).options == options


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ({"content": b"{", "headers": JSON}, 400, "not valid JSON"),
        ({"content": b"[]", "headers": JSON}, 400, "JSON object"),
        ({"content": b"x"}, 415, "application/json"),
        ({"json": {"text": "a" * 6000}}, 413, "more than 5,000 bytes"),
        ({"json": {"text": TEXT, "documents": []}}, 422, "either text"),
        ({"json": {"text": 3}}, 422, "of type int"),
        ({"json": {"text": " "}}, 422, "is empty"),
        ({"json": {"text": TEXT, "sources": 1}}, 422, "sources must be"),
        ({"json": {"text": TEXT, "length": "much"}}, 422, "much"),
        ({"json": {"text": TEXT, "num_beams": 2}}, 422, "num_beams is for a model"),
        ({"json": {"documents": [TEXT] * 5}}, 422, "send at most 3 at a time"),
    ],
)
def test_bad_input(client, arguments, status, message):
    answer = client.post("/v1/summaries", **arguments)
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]


def test_a_full_queue(client, monkeypatch):
    """Requests of other threads while the engine is busy."""
    blocked = threading.Event()

    def extract(*arguments):
        blocked.wait(10)
        return _extract(*arguments)

    monkeypatch.setattr("longsum_jax.serving.engine._extract", extract)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(client.post, "/v1/summaries", json={"documents": [TEXT] * 3})
        while 'longsum_open_documents{model="built-in"} 3' not in client.get("/metrics").text:
            assert not first.done()
        answer = client.post("/v1/summaries", json={"text": TEXT})
        blocked.set()
        assert first.result().status_code == 200
    assert answer.status_code == 429
    assert "queue is full" in answer.json()["error"]["message"]
    assert int(answer.headers["retry-after"]) > 0


def test_keys_and_time_limit(monkeypatch):
    limits = Limits(max_seconds=0.2, api_keys=["secret"])
    with TestClient(make_app(Engine(), limits=limits)) as client:
        assert client.post("/v1/summaries", json={"text": TEXT}).status_code == 401
        monkeypatch.setattr("longsum_jax.serving.engine._extract", lambda *_: time.sleep(0.5))
        headers = {"Authorization": "Bearer secret"}
        answer = client.post("/v1/summaries", json={"text": TEXT}, headers=headers)
        assert answer.status_code == 504, answer.text
        assert client.get("/health/live").status_code == 200
