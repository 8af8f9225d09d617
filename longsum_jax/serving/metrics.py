"""The numbers that ``/metrics`` reports, in the text format of Prometheus."""

import os
from collections import Counter
from pathlib import Path

import jax
import jax.monitoring

from longsum_jax.serving.engine import Engine

# name of the event in JAX
_COMPILATION = "/jax/core/compile/backend_compile_duration"
_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # seconds


class Metrics:
    """Counts of requests and compilations, with the state of an engine.

    Args:
        engine: engine that summarizes.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._counts: Counter[int] = Counter()
        self._seconds = 0.0
        self._histogram = [0] * len(_BUCKETS)
        self._num_compilations = 0
        self._compilation_seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(
            self._count_compilation
        )

    def _count_compilation(
        self, event: str, duration_secs: float, **_: str | int
    ) -> None:
        if event == _COMPILATION:
            self._num_compilations += 1
            self._compilation_seconds += duration_secs

    def count(self, status: int, seconds: float) -> None:
        """Counts a finished request."""
        self._counts[status] += 1
        self._seconds += seconds
        for index, bound in enumerate(_BUCKETS):
            self._histogram[index] += seconds <= bound

    def text(self) -> str:
        """Returns all numbers, one per line."""
        engine, statistics = self._engine, self._engine.statistics
        lines = ["# TYPE longsum_requests_total counter"]
        for status, count in sorted(self._counts.items()):
            lines.append(f'longsum_requests_total{{status="{status}"}} {count}')
        lines.append("# TYPE longsum_request_seconds histogram")
        for bound, count in zip(_BUCKETS, self._histogram, strict=True):
            lines.append(
                f'longsum_request_seconds_bucket{{le="{bound:g}"}} {count}'
            )
        total = self._counts.total()
        lines += [
            f'longsum_request_seconds_bucket{{le="+Inf"}} {total}',
            f"longsum_request_seconds_sum {self._seconds:.6f}",
            f"longsum_request_seconds_count {total}",
        ]
        values: list[tuple[str, str, float]] = [
            ("longsum_open_documents", "gauge", engine.num_open),
            ("longsum_waiting_inputs", "gauge", engine.num_waiting),
            ("longsum_batch_rows", "gauge", statistics.num_rows),
            ("longsum_batch_running_rows", "gauge", statistics.running_rows),
            ("longsum_read_tokens_total", "counter", statistics.read_tokens),
            (
                "longsum_written_tokens_total",
                "counter",
                statistics.written_tokens,
            ),
            ("longsum_compilations_total", "counter", self._num_compilations),
            (
                "longsum_compilation_seconds_total",
                "counter",
                self._compilation_seconds,
            ),
            ("longsum_memory_bytes", "gauge", _memory_bytes()),
            ("longsum_device_memory_bytes", "gauge", _device_bytes()),
        ]
        for name, kind, value in values:
            lines += [f"# TYPE {name} {kind}", f"{name} {value}"]
        return "\n".join(lines) + "\n"


def _memory_bytes() -> int:
    """Returns the resident memory of this process on Linux; 0 elsewhere."""
    try:
        pages = int(
            Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        )
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _device_bytes() -> int:
    """Returns the memory in use on all local devices; 0 for CPUs."""
    statistics = [device.memory_stats() or {} for device in jax.local_devices()]
    return sum(int(values.get("bytes_in_use", 0)) for values in statistics)
