"""The numbers that ``/metrics`` reports, in the text format of Prometheus."""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import jax
import jax.monitoring

from longsum_jax.serving.engine import Engine
from longsum_jax.serving.statistics import BOUNDS, SecondsHistogram

# name of the event in JAX
_COMPILATION = "/jax/core/compile/backend_compile_duration"


# Counts of a replica: field of its statistics, name, kind.
_REPLICA_VALUES = (
    ("num_batches", "longsum_open_batches", "gauge"),
    ("num_rows", "longsum_batch_rows", "gauge"),
    ("running_rows", "longsum_batch_running_rows", "gauge"),
    ("row_turns", "longsum_row_turns_total", "counter"),
    ("running_row_turns", "longsum_running_row_turns_total", "counter"),
    ("read_tokens", "longsum_read_tokens_total", "counter"),
    ("written_tokens", "longsum_written_tokens_total", "counter"),
)

Labels = Mapping[str, str]


class Metrics:
    """Counts of requests and compilations, with the state of an engine.

    Args:
        engine: engine that summarizes.

    Attributes:
        is_warm: True after the warm-up; later compilations are counted as
            such.
    """

    def __init__(self, engine: Engine) -> None:
        self.is_warm = False
        self._engine = engine
        self._requests: Counter[int] = Counter()
        self._request_seconds = SecondsHistogram()
        # by the name of the thread, and True after the warm-up
        self._compilations: dict[tuple[str, bool], SecondsHistogram] = {
            (name, False): SecondsHistogram() for name in engine.statistics
        }
        jax.monitoring.register_event_duration_secs_listener(
            self._count_compilation
        )

    def _count_compilation(
        self, event: str, duration_secs: float, **_: str | int
    ) -> None:
        if event != _COMPILATION:
            return
        name = threading.current_thread().name
        if name not in self._engine.statistics:
            name = "other"
        key = name, self.is_warm
        self._compilations.setdefault(key, SecondsHistogram()).add(
            duration_secs
        )

    def count(self, status: int, seconds: float) -> None:
        """Counts a finished request."""
        self._requests[status] += 1
        self._request_seconds.add(seconds)

    def text(self) -> str:
        """Returns all numbers, one per line."""
        engine, replicas = self._engine, self._engine.statistics
        compilations = {
            (
                ("replica", name),
                ("phase", "serving" if is_warm else "warm-up"),
            ): counts
            for (name, is_warm), counts in sorted(self._compilations.items())
        }
        lines = _values(
            "longsum_requests_total",
            "counter",
            [
                ({"status": str(status)}, count)
                for status, count in sorted(self._requests.items())
            ],
        )
        lines += _histogram(
            "longsum_request_seconds", [({}, self._request_seconds)]
        )
        for name, value in (
            ("longsum_open_documents", engine.num_open),
            ("longsum_waiting_inputs", engine.num_waiting),
            ("longsum_memory_bytes", _memory_bytes()),
        ):
            lines += _values(name, "gauge", [({}, value)])
        for field, name, kind in _REPLICA_VALUES:
            lines += _values(
                name,
                kind,
                [
                    ({"replica": replica}, getattr(counts, field))
                    for replica, counts in replicas.items()
                ],
            )
        lines += _histogram(
            "longsum_wait_seconds",
            [
                ({"replica": replica}, counts.waits)
                for replica, counts in replicas.items()
            ],
        )
        lines += _values(
            "longsum_compilations_total",
            "counter",
            [(dict(key), counts.total) for key, counts in compilations.items()],
        )
        lines += _values(
            "longsum_compilation_seconds_total",
            "counter",
            [
                (dict(key), counts.seconds)
                for key, counts in compilations.items()
            ],
        )
        lines += _values(
            "longsum_device_memory_bytes", "gauge", _device_bytes()
        )
        return "\n".join(lines) + "\n"


def _values(
    name: str, kind: str, values: Iterable[tuple[Labels, float]]
) -> list[str]:
    """Returns the lines of a metric."""
    return [
        f"# TYPE {name} {kind}",
        *(f"{name}{_labels(labels)} {value}" for labels, value in values),
    ]


def _histogram(
    name: str, histograms: Iterable[tuple[Labels, SecondsHistogram]]
) -> list[str]:
    """Returns the lines of a histogram."""
    lines = [f"# TYPE {name} histogram"]
    for labels, histogram in histograms:
        for bound, count in zip(BOUNDS, histogram.counts, strict=True):
            bounded = _labels({**labels, "le": f"{bound:g}"})
            lines.append(f"{name}_bucket{bounded} {count}")
        largest = _labels({**labels, "le": "+Inf"})
        lines += [
            f"{name}_bucket{largest} {histogram.total}",
            f"{name}_sum{_labels(labels)} {histogram.seconds:.6f}",
            f"{name}_count{_labels(labels)} {histogram.total}",
        ]
    return lines


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{{{pairs}}}" if pairs else ""


def _memory_bytes() -> int:
    """Returns the resident memory of this process on Linux; 0 elsewhere."""
    try:
        pages = int(
            Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        )
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _device_bytes() -> list[tuple[Labels, int]]:
    """Returns the memory in use on each local device; 0 for CPUs."""
    values: list[tuple[Labels, int]] = []
    for device in jax.local_devices():
        counts = device.memory_stats() or {}
        labels = {"device": str(device.id)}
        values.append((labels, int(counts.get("bytes_in_use", 0))))
    return values
