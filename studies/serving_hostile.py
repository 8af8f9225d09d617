"""Hostile requests of serving_soak.py, as bytes on a connection, and their outcomes."""

import gzip
import http.client
import io
import json
import select
import socket
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple

import benchmarks_path  # noqa: F401
import numpy as np
from server_process import HOST

TEXT = "The council met on Monday. It raised the budget by 5 percent."
JSON = {"content-type": "application/json"}
FORM = {"content-type": "multipart/form-data; boundary=x"}
# Flags of the server, which the requests exceed.
LIMITS = {
    "max_body_bytes": 200_000,
    "max_bytes": 1_000_000,
    "max_tokens": 5000,
    "max_request_seconds": 20,
}
PATIENCE = 45.0  # seconds for an answer; the server has 20 for a request, and 10 without any data
SENTENCE, CLOSED = "sentence", "closed"


class Attack(NamedTuple):
    """A request.

    Attributes:
        kind: kind of the table.
        parts: bytes in the order in which they are sent.
        pause: seconds after each part.
    """

    kind: str
    parts: Sequence[bytes]
    pause: float = 0.0


def message(
    body: bytes,
    headers: Mapping[str, str] = JSON,
    path: str = "/v1/summaries",
    length: int | None = None,
) -> bytes:
    """Returns a POST; ``length`` is what it claims to be the size of its body."""
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def malformed_json(rng: np.random.Generator) -> Attack:
    valid = json.dumps({"documents": [TEXT], "length": "1 sentences", "sources": True})
    bodies = [
        valid[: rng.integers(1, len(valid) - 1)].encode(),
        b"[" * int(rng.integers(1000, 100_000)),
        b'{"text": ' + b"1" * int(rng.integers(5000, 50_000)) + b"}",
        b'{"text": "a", "seed": NaN}',
        rng.bytes(200),
        b"null",
    ]
    return Attack("malformed JSON", [message(bodies[rng.integers(len(bodies))])])


def wrong_values(rng: np.random.Generator) -> Attack:
    names = ("strategy", "length", "num_beams", "max_new_tokens", "seed", "stream", "sources", "x")
    values: tuple[object, ...] = ({"a": 1}, [None], -(10**30))
    value = {names[rng.integers(len(names))]: values[rng.integers(len(values))]}
    documents: list[object] = [None, 3, {}, [], [TEXT] * 1000, [[TEXT]], "\ud800"]
    bodies = [{"text": TEXT, **value}, {"documents": documents[rng.integers(len(documents))]}, {}]
    return Attack("wrong values", [message(json.dumps(bodies[rng.integers(3)]).encode())])


def wrong_encodings(rng: np.random.Generator) -> Attack:
    body = json.dumps({"text": TEXT}).encode()
    packed = gzip.compress(body)
    kinds = ("gzip", "br", "deflate", "x")
    requests = [
        message(body.decode().encode("utf-16")),
        message(b'{"text": "\xff\xfe"}'),
        message(body, {"content-type": ("text/plain", "", "\x80")[rng.integers(3)]}),
        message(packed, {**JSON, "content-encoding": kinds[rng.integers(4)]}),
        message(packed),
    ]
    return Attack("wrong encodings", [requests[rng.integers(len(requests))]])


def large_sizes(rng: np.random.Generator) -> Attack:
    limit = LIMITS["max_body_bytes"]
    more = limit + int(rng.integers(1, 10 * limit))
    chunk = b"%x\r\n" % 50_000 + b"a" * 50_000 + b"\r\n"
    head = message(b"").replace(b"content-length: 0", b"transfer-encoding: chunked")
    parts = [
        [message(b"", length=more)],
        [message(b"", length=10 ** int(rng.integers(10, 300)))],
        [message(b'"' + b"a" * more)],
        [head, *[chunk] * 8],
        [message(json.dumps({"text": "word " * 20_000}).encode())],
    ]
    return Attack("sizes", parts[rng.integers(len(parts))])


def bombs(rng: np.random.Generator) -> Attack:
    size = int(rng.integers(2, 20)) * LIMITS["max_bytes"]
    packed = gzip.compress(b"a " * (size // 2), 9)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("word/document.xml", b"<a>" * (size // 3))
    files = [
        ("a.txt.gz", packed),
        ("a.txt.gz.gz", gzip.compress(packed)),
        ("a.docx", archive.getvalue()),
        ("a.zip", archive.getvalue()),
    ]
    name, content = files[rng.integers(len(files))]
    return Attack("bombs", [message(form_body(name, content), FORM)])


def malformed_forms(rng: np.random.Generator) -> Attack:
    whole = form_body("a.pdf", b"%PDF-1.7\n" + rng.bytes(300))
    bodies = [
        whole[: rng.integers(1, len(whole) - 10)],
        whole,
        whole.replace(b"--x", b"--y"),
        whole.replace(b'name="file"', b""),
        b"--x\r\n" * 1000,
        form_body("a.txt", b"a").removesuffix(b"--x--\r\n") * 101 + b"--x--\r\n",
        rng.bytes(500),
    ]
    headers = FORM if rng.integers(5) else {"content-type": "multipart/form-data"}
    return Attack("malformed forms", [message(bodies[rng.integers(len(bodies))], headers)])


def form_body(name: str, content: bytes) -> bytes:
    """Returns a form with a file, whose boundary is x."""
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


def slow_bodies(rng: np.random.Generator) -> Attack:
    body = json.dumps({"text": TEXT}).encode()
    halted = Attack("slow bodies", [message(body[:10], length=len(body))])
    dribbled = Attack("slow bodies", [message(b"", length=1000), *[b" "] * 60], pause=1.0)
    return dribbled if rng.integers(2) else halted


def slow_headers(rng: np.random.Generator) -> Attack:
    head = message(b"{}")
    return Attack("slow headers", [head[: rng.integers(1, head.index(b"\r\n\r\n"))]])


def malformed_http(rng: np.random.Generator) -> Attack:
    body = message(json.dumps({"text": TEXT}).encode())
    heads = [
        rng.bytes(100) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.bytes(100),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/x.y\r\nhost: a\r\n\r\n",
        b"GET /%ff\x00 HTTP/1.1\r\nhost: a\r\n\r\n",
        body.replace(b"content-length: ", b"content-length: -"),
        body.replace(b"host: ", b"content-length: 3\r\nhost: "),
        body.replace(b"host: ", b"a: " + b"b" * 200_000 + b"\r\nhost: "),
        message(b"zz\r\n").replace(b"content-length: 4", b"transfer-encoding: chunked"),
    ]
    return Attack("malformed HTTP", [heads[rng.integers(len(heads))]])


def other_paths(rng: np.random.Generator) -> Attack:
    paths = ("/../../etc/passwd", "/v1/summaries/..", "/v1/models", "/file:///etc/passwd", "/%00")
    return Attack("other paths", [message(b"{}", path=paths[rng.integers(len(paths))])])


# Two of these kinds wait for their end, so they are fewer.
MAKERS: tuple[tuple[Callable[[np.random.Generator], Attack], int], ...] = (
    (malformed_json, 3),
    (wrong_values, 3),
    (wrong_encodings, 2),
    (large_sizes, 2),
    (bombs, 2),
    (malformed_forms, 3),
    (malformed_http, 3),
    (other_paths, 1),
    (slow_bodies, 1),
    (slow_headers, 1),
)


def attacks(count: int, seed: int) -> Iterator[Attack]:
    """Yields requests of all kinds in turn."""
    rng = np.random.default_rng(seed)
    makers = [maker for maker, weight in MAKERS for _ in range(weight)]
    order = np.concatenate([rng.permutation(len(makers)) for _ in range(count // len(makers) + 1)])
    for index in order[:count]:
        yield makers[index](rng)


def send(port: int, attack: Attack, patience: float = PATIENCE) -> tuple[str, float]:
    """Returns the outcome of a request and its seconds.

    Returns:
        ``SENTENCE``, ``CLOSED``, or a description of something else.
    """
    start = time.monotonic()
    answer = b""
    try:
        with socket.create_connection((HOST, port), timeout=patience) as connection:
            for part in attack.parts:
                connection.sendall(part)
                if attack.pause and select.select([connection], [], [], attack.pause)[0]:
                    break  # answered, or closed
            while time.monotonic() - start < patience:
                connection.settimeout(max(start + patience - time.monotonic(), 0.01))
                received = connection.recv(65536)
                if not received:
                    break
                answer += received
    except TimeoutError:
        if not answer:
            return f"open after {patience:g} s", time.monotonic() - start
    except OSError:
        pass  # closed while the rest was sent; what came before counts
    return outcome(answer), time.monotonic() - start


def send_all(
    port: int, requests: Sequence[Attack], connections: int, rate: float
) -> list[tuple[str, float]]:
    """Returns the outcomes of requests in their order.

    Args:
        port: port of the server.
        requests: requests.
        connections: number of connections that are open meanwhile, without a request.
        rate: requests per second.
    """
    with ExitStack() as idle, ThreadPoolExecutor(len(requests) or 1) as threads:
        for _ in range(connections):
            idle.enter_context(socket.create_connection((HOST, port), PATIENCE))
        results = []
        for request in requests:
            results.append(threads.submit(send, port, request))
            time.sleep(1 / rate)
        return [result.result() for result in results]


def outcome(answer: bytes) -> str:
    """Returns the outcome of an answer as it came over the connection; a second answer may follow,
    to bytes that the server took for another request."""
    if not answer:
        return CLOSED
    try:
        response = http.client.HTTPResponse(_Received(answer))
        response.begin()
        text = response.read().decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer in HTTP ({error}): {answer[:200]!r}"
    if response.getheader("content-type", "").startswith("application/json"):
        try:
            text = json.loads(text)["error"]["message"]
        except (ValueError, TypeError, KeyError):
            return f"status {response.status}, no error: {text[:200]}"
    is_refusal = 400 <= response.status < 500 or response.status == 504
    if is_refusal and text and "\n" not in text and "Traceback" not in text:
        return SENTENCE
    return f"status {response.status}: {text[:200]}"


class _Received:
    """A connection whose bytes are all there."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        """Returns the bytes as a file."""
        return io.BytesIO(self._content)
