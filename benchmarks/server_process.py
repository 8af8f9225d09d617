"""Servers in processes of their own, on loopback addresses: started, asked, measured, stopped."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

HOST = "127.0.0.1"
JSON = {"content-type": "application/json"}


class ServerProcess:
    """A server on a free port of the loopback address.

    Args:
        command: command of the server, which gets --port=N.
        log: file for its output.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.port = free_port()
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*command, f"--port={self.port}"], stdout=out, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGKILL)

    def wait_until_ready(self, seconds: float = 600.0) -> float:
        """Waits for /health/ready; returns the seconds that it took.

        Raises:
            SystemExit: the process ended, or the time is over.
        """
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health/ready", 5)[0] == 200:
                    return time.monotonic() - start
            time.sleep(0.05)
        text = self._log.read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"the server is not ready:\n{text[-2000:]}")

    def get(self, path: str, seconds: float = 60.0) -> tuple[int, bytes]:
        """Returns status and body of a GET."""
        return self._request("GET", path, None, {}, seconds)

    def post(self, path: str, value: Any, seconds: float = 3600.0) -> tuple[int, Any]:
        """Returns status and JSON of the answer to a value in JSON, on a connection of its own."""
        body = json.dumps(value).encode()
        status, answer = self._request("POST", path, body, JSON, seconds)
        return status, json.loads(answer)

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        try:
            connection.request(method, path, body, {**headers, "connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """Returns a number of /metrics, the sum of all labels that it has."""
        text = self.get("/metrics")[1].decode()
        pattern = rf"^{re.escape(name)}(?:{{.*}})? (\S+)$"
        return sum(map(float, re.findall(pattern, text, re.MULTILINE)))

    @property
    def cpu_seconds(self) -> float | None:
        """Processor seconds so far of all threads; None if the system does not tell them."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return None

    @property
    def peak_bytes(self) -> int | None:
        """Largest resident memory so far."""
        return self._memory("VmHWM")

    @property
    def resident_bytes(self) -> int | None:
        """Resident memory."""
        return self._memory("VmRSS")

    @property
    def num_files(self) -> int:
        """Number of open files and connections."""
        with contextlib.suppress(OSError):
            return len(os.listdir(f"/proc/{self._process.pid}/fd"))
        return 0

    def _memory(self, name: str) -> int | None:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{self._process.pid}/status").read_text()
            if result := re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE):
                return 1024 * int(result[1])
        return None

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120.0) -> int:
        """Ends the process; returns its exit status, negative for a signal.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        if self._process.poll() is None:
            self._process.send_signal(number)
        return self._process.wait(seconds)


def serve_command(model: Path, **flags: Any) -> list[str]:
    """Returns the command of `longsum serve`, without its port."""
    values = [f"--{name}={value}" for name, value in flags.items()]
    return [sys.executable, "-m", "longsum_jax", "serve", f"--model={model}", *values]


def free_port() -> int:
    """Returns a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
