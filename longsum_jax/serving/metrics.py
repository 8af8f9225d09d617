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
_OTHER = "other"  # label of compilations in other threads

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
    """Counts of requests and compilations, with the state of engines.

    Args:
        *engines: engines that summarize.

    Attributes:
        is_warm: True after the warm-up; later compilations are counted as
            such.
    """

    def __init__(self, *engines: Engine) -> None:
        self.is_warm = False
        self._engines = engines
        # labels by the name of a thread
        self._threads: dict[str, Labels] = {
            thread: {"model": engine.name, "replica": replica}
            for engine in engines
            for thread, replica in engine.thread_names.items()
        }
        self._requests: Counter[int] = Counter()
        self._request_seconds = SecondsHistogram()
        # by the name of the thread, and True after the warm-up
        self._compilations: dict[tuple[str, bool], SecondsHistogram] = {
            (name, False): SecondsHistogram() for name in self._threads
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
        if name not in self._threads:
            name = _OTHER
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
        replicas = [
            ({"model": engine.name, "replica": name}, counts)
            for engine in self._engines
            for name, counts in engine.statistics.items()
        ]
        compilations = [
            (
                {
                    **self._threads.get(name, {"replica": _OTHER}),
                    "phase": "serving" if is_warm else "warm-up",
                },
                counts,
            )
            for (name, is_warm), counts in sorted(self._compilations.items())
        ]
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
        for field, name in (
            ("num_open", "longsum_open_documents"),
            ("num_waiting", "longsum_waiting_inputs"),
        ):
            values = [
                ({"model": engine.name}, getattr(engine, field))
                for engine in self._engines
            ]
            lines += _values(name, "gauge", values)
        lines += _values(
            "longsum_memory_bytes", "gauge", [({}, _memory_bytes())]
        )
        for field, name, kind in _REPLICA_VALUES:
            lines += _values(
                name,
                kind,
                [
                    (labels, getattr(counts, field))
                    for labels, counts in replicas
                ],
            )
        lines += _histogram(
            "longsum_wait_seconds",
            [(labels, counts.waits) for labels, counts in replicas],
        )
        lines += _values(
            "longsum_compilations_total",
            "counter",
            [(labels, counts.total) for labels, counts in compilations],
        )
        lines += _values(
            "longsum_compilation_seconds_total",
            "counter",
            [(labels, counts.seconds) for labels, counts in compilations],
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
    pairs = ",".join(
        f'{name}="{_escaped(value)}"' for name, value in labels.items()
    )
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    """Escapes the name of a model, which may contain any character."""
    # backslashes first, because the others are escaped by one
    for character, escape in (("\\", r"\\"), ('"', r"\""), ("\n", r"\n")):
        value = value.replace(character, escape)
    return value


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
