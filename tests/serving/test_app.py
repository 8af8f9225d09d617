"""The HTTP application, over the bundled ranker."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from longsum_jax.serving.app import Limits, make_app
from longsum_jax.serving.engine import Engine, _extract

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
    body = {"inputs": TEXT, "parameters": {"length": "1 sentences"}}
    assert client.post("/summarization", json=body).json() == [{"summary_text": summary["summary"]}]
    files = {"file": ("../a.html", f"<p>{TEXT}</p>".encode())}
    answer = client.post("/v1/summaries", files=files, data={"length": "1 sentences"}).json()
    assert answer["summaries"][0]["summary"] == summary["summary"]
    assert answer["summaries"][0]["document"] == "a.html"
    assert client.get("/health/live").status_code == 200
    assert 'longsum_requests_total{status="200"} 4' in client.get("/metrics").text


def test_chat(client):
    """The messages of OpenAI's clients, read by hand."""
    body = {"model": "longsum", "messages": [{"role": "user", "content": TEXT}]}
    answer = client.post("/v1/chat/completions", json=body).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["prompt_tokens"] > 0
    events = client.post("/v1/chat/completions", json=body | {"stream": True})
    assert events.headers["content-type"].startswith("text/event-stream")
    assert events.text.endswith("data: [DONE]\n\n")
    assert client.get("/v1/models").json()["data"][0]["id"] == "longsum"
    body["messages"] *= 2
    assert client.post("/v1/chat/completions", json=body).status_code == 422


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
        while "longsum_open_documents 3" not in client.get("/metrics").text:
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
