"""Connections without complete headers are closed; others are not."""

import contextlib
import socket
import threading
import time

import pytest

pytest.importorskip("uvicorn")
import uvicorn
from starlette.responses import PlainTextResponse

from longsum_jax.serving import connections

REQUEST = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def connect(monkeypatch):
    """Opens connections to a server whose answers take longer than headers may."""
    monkeypatch.setattr(connections, "_HEADER_SECONDS", 0.1)

    async def app(scope, receive, send):
        await connections.asyncio.sleep(0.2)
        await PlainTextResponse("answer")(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=connections.TimedProtocol, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    with contextlib.ExitStack() as opened:

        def open_connection():
            address = listener.getsockname()
            return opened.enter_context(socket.create_connection(address, 10))

        yield open_connection
    server.should_exit = True
    thread.join(10)
    listener.close()


def answer_of(connection):
    answer = b""
    while not answer.endswith(b"answer"):
        received = connection.recv(4096)
        assert received, answer
        answer += received
    return answer


def test_slow_headers(connect):
    idle, halted, dribbling, good = (connect() for _ in range(4))
    halted.sendall(REQUEST[:9])
    good.sendall(REQUEST)
    started = time.monotonic()
    with contextlib.suppress(OSError):
        for index in range(20):  # a byte does not extend the time
            dribbling.sendall(REQUEST[index : index + 1])
            time.sleep(0.02)
        dribbling.recv(1)
    assert time.monotonic() - started < 5
    assert idle.recv(1) == halted.recv(1) == b""
    # An answer may take longer, and the next request of the connection has its own time.
    assert answer_of(good).startswith(b"HTTP/1.1 200")
    good.sendall(REQUEST)
    assert answer_of(good).startswith(b"HTTP/1.1 200")
    good.sendall(REQUEST[:9])
    assert good.recv(1) == b""
