"""Tiny runs of `longsum train` in processes of their own, which studies/reliability.py ends.

Processes are forked from one that has imported everything and computed nothing, so that a start is
cheap; each is the real command in all else. On the way it says what it does, so that it can be
ended there, and keeps for every step what it read and what came of it.
"""

import functools
import hashlib
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

CONFIG = Path(__file__).parent / "reliability_config.py"
STEPS = 10  # of every run
PATIENCE = 240.0  # seconds after which a process counts as hanging
FINAL, EXAMPLES = "final.json", "examples.{}.{}.jsonl"  # of a life and a process
_WORDS = ["cat", "dog", "bird", "sat", "ran", "slept", "under", "over", "table", "river", "old"]
_PRELOADED = (
    "longsum_jax.commands.train",
    "longsum_jax.data.prefetch",
    "longsum_jax.experiment.experiment",
    "longsum_jax.inference.loading",
    "longsum_jax.training.loop",
)
# Compiling is most of the work; later starts find what the first has compiled.
_COMPILATION = {
    "jax_platforms": "cpu",
    "jax_disable_most_optimizations": True,
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


class Run(NamedTuple):
    """A command that trains.

    Attributes:
        config: mode of reliability_config.py and overrides, joined by commas.
        rows: file of the documents.
        workdir: of the run.
        compiled: directory of the compiled programs of all runs.
        devices: virtual ones of a process.
        process, processes, port: of a run of several.
        life: number of this start of the run.
    """

    config: str
    rows: Path
    workdir: Path
    compiled: Path
    devices: int = 1
    process: int = 0
    processes: int = 1
    port: int = 0
    life: int = 0

    @property
    def arguments(self) -> list[str]:
        """Of ``longsum``."""
        mode, *overrides = self.config.split(",")
        config = ",".join([f"{CONFIG}:{mode}", f"rows={self.rows}", *overrides])
        result = ["train", f"--config={config}", f"--workdir={self.workdir}"]
        if self.processes > 1:
            result += [f"--coordinator=127.0.0.1:{self.port}", f"--num_processes={self.processes}"]
            result.append(f"--process_id={self.process}")
        return result


class Outcome(NamedTuple):
    """The end of a process.

    Attributes:
        code: exit code; minus the number of a signal that ended it; None if it hung.
        said: what it printed.
        seconds: that it took.
    """

    code: int | None
    said: str
    seconds: float


class Process:
    """A training in a process of its own, as a context that leaves none behind."""

    def __init__(self, run: Run) -> None:
        run.workdir.parent.mkdir(parents=True, exist_ok=True)
        self.run = run
        self._said = run.workdir.with_suffix(f".{run.process}.txt")
        self._began = time.monotonic()
        self._events, told = _context().Pipe(duplex=False)
        self._process = _context().Process(target=_train, args=(run, told, self._said))
        self._process.start()
        told.close()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._events.close()

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    def wait_for(self, event: str, patience: float = PATIENCE) -> bool:
        """Waits for what the process says: "start", "first", "step 3", "save 3", "evaluate 4".

        Returns:
            False if it ended before.
        """
        end = time.monotonic() + patience
        try:
            while self._events.poll(max(0.0, end - time.monotonic())):
                if self._events.recv() == event:
                    return True
        except EOFError:
            pass
        return False

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if the process is still there."""
        if self._process.is_alive():
            os.kill(self._process.pid, number)

    def finish(self, patience: float = PATIENCE) -> Outcome:
        """Waits for the end."""
        self._process.join(patience)
        said = self._said.read_text(errors="replace") if self._said.exists() else ""
        return Outcome(self._process.exitcode, said, time.monotonic() - self._began)


@functools.cache
def _context() -> Any:
    """Returns what starts processes; the first one that is started imports everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOADED))
    return context


def complete(run: Run) -> Outcome:
    """Runs a command to its end."""
    with Process(run) as process:
        return process.finish()


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def write_rows(path: Path, seed: int = 0, count: int = 20) -> None:
    """Writes documents of four sentences with summaries and labels, for all objectives."""
    rng = random.Random(seed)
    with path.open("w") as file:
        for number in range(count):
            sentences = [" ".join(rng.choices(_WORDS, k=4)).capitalize() + "." for _ in range(4)]
            text = f"{number} {' '.join(sentences)}"
            row = {"id": f"d{number}", "document": text, "text": text, "summary": sentences[1]}
            file.write(json.dumps(row | {"label": rng.choice("ab")}) + "\n")


# What a run leaves


def metrics_of(workdir: Path) -> list[dict[str, Any]]:
    """Returns the lines of metrics.jsonl but for what depends on the clock."""
    lines = [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
    clock = {"tokens_per_second", "seconds_left", "mfu"}
    return [{k: v for k, v in line.items() if k not in clock} for line in lines]


def readings_of(workdir: Path) -> dict[int, list[list[str]]]:
    """Returns the ids that every step has read, in every life that came to it, sorted.

    The processes of a life are taken together.
    """
    result: dict[int, dict[str, list[str]]] = {}
    for path in sorted(workdir.glob(EXAMPLES.format("*", "*"))):
        life = path.name.split(".")[1]
        for line in path.read_text().splitlines():
            step, ids = json.loads(line)
            result.setdefault(step, {}).setdefault(life, []).extend(ids)
    return {step: [sorted(ids) for ids in lives.values()] for step, lives in result.items()}


def final_of(workdir: Path) -> dict[str, Any]:
    """Returns the arrays of the final state by name: {"sha256": ..., "values": ...}."""
    return json.loads((workdir / FINAL).read_text())


def saved_steps(workdir: Path) -> list[int]:
    """Returns the steps of the checkpoints, in order."""
    result = workdir / "checkpoints"
    names = [path.name for path in result.iterdir()] if result.is_dir() else []
    return sorted(int(name) for name in names if name.isdecimal())


def saves_under_way(workdir: Path) -> set[tuple[str, int]]:
    """Returns names and inodes of checkpoints that are being written."""
    result = set()
    for path in (workdir / "checkpoints").glob("*.orbax-checkpoint-tmp*"):
        try:
            result.add((path.name, path.stat().st_ino))
        except FileNotFoundError:  # it has got its name
            continue
    return result


# Inside of a process


def _train(run: Run, events: Connection, said: Path) -> None:
    """Runs the command; the process ends with it."""
    output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={run.devices}"
    _configure(run.compiled)
    _watch(run, events.send)
    sys.argv = ["longsum", *run.arguments]
    events.send("start")

    from longsum_jax.__main__ import main

    main()


def _configure(compiled: Path) -> None:
    """Sets jax up; it has been imported, so it reads no environment any more."""
    import jax

    for name, value in {**_COMPILATION, "jax_compilation_cache_dir": str(compiled)}.items():
        jax.config.update(name, value)


def _watch(run: Run, tell: Callable[[str], None]) -> None:
    """Puts reports around the reading of batches, steps, evaluations and saves."""
    from longsum_jax.data import batches
    from longsum_jax.experiment.experiment import Evaluator
    from longsum_jax.training import loop
    from longsum_jax.training.checkpointing import TrainingCheckpoints

    ids_of: dict[int, list[str]] = {}  # of batches that nobody has taken, by their identity
    pad, save, evaluate, fit = (
        batches.pad_batch,
        TrainingCheckpoints.save,
        Evaluator.__call__,
        loop.fit,
    )

    def pad_batch(examples: Sequence[Mapping[str, Any]], **options: Any) -> dict[str, Any]:
        batch = pad(examples, **options)
        ids_of[id(batch)] = [str(example["id"]) for example in examples]
        return batch

    def saving(self: TrainingCheckpoints, step: int, *args: Any, **options: Any) -> None:
        save(self, step, *args, **options)
        tell(f"save {step}")

    def evaluating(self: Evaluator, params: Any, step: int) -> dict[str, float]:
        tell(f"evaluate {step}")
        return evaluate(self, params, step)

    def fitting(**options: Any) -> Any:
        reader = _Reader(options["batches"], ids_of, tell)
        run.workdir.mkdir(parents=True, exist_ok=True)  # the first process may not be there yet
        with (run.workdir / EXAMPLES.format(run.life, run.process)).open("a") as file:

            def hook(step: int, state: Any, metrics: Any) -> None:
                del state, metrics
                file.write(json.dumps([step, reader.last]) + "\n")
                file.flush()
                tell(f"step {step}")

            result = fit(**options | {"batches": reader, "hooks": [hook]})
        if result.stopped_by == "steps" and run.process == 0:
            _write_final(run.workdir / FINAL, result.state)
        return result

    batches.pad_batch = pad_batch
    TrainingCheckpoints.save = saving
    Evaluator.__call__ = evaluating
    loop.fit = fitting


class _Reader(Iterator):
    """Batches that remember the ids of the last one.

    Attributes:
        last: these ids.
    """

    def __init__(
        self, batches: Any, ids_of: dict[int, list[str]], tell: Callable[[str], None]
    ) -> None:
        self._batches, self._ids_of, self._tell = batches, ids_of, tell
        self.last: list[str] | None = None
        self.state, self.restore = batches.state, batches.restore

    def __next__(self) -> dict[str, Any]:
        batch = next(self._batches)
        if self.last is None:
            self._tell("first")  # its step will be compiled
        self.last = self._ids_of.pop(id(batch))
        return batch


def _write_final(path: Path, state: Any) -> None:
    """Writes every array of a state: its sum, and its values."""
    import jax
    import numpy as np

    leaves, _ = jax.tree_util.tree_flatten_with_path(state)

    def values(leaf: jax.Array) -> np.ndarray:
        # Runs of several processes have replicated states.
        return np.asarray(leaf if leaf.is_fully_addressable else leaf.addressable_data(0))

    arrays = {jax.tree_util.keystr(at): values(leaf) for at, leaf in leaves}
    result = {
        name: {
            "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
            "values": array.astype(float).ravel().tolist(),
        }
        for name, array in arrays.items()
    }
    path.write_text(json.dumps(result))
