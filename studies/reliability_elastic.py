"""Runs whose hosts, devices or processes change at random moments."""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import reliability_runs as runs
from reliability_kills import Wholes, differences, fresh, wait_for_moment
from reliability_runs import STEPS, Process
from reliability_trials import Case, Row

COUNTS = (1, 2, 4, 8)
CHANGES = 3  # of a run
ENDED_WITHIN = 120.0  # seconds, after one process of a run was killed
_CONFIG = "summaries,data.batch_size=8"
_MESHES = {
    "replicated": "",
    "sharded": ",mesh.preset=fsdp,mesh.batch=1,mesh.fsdp=-1",
}
_EPOCHS = 3
_BATCH_SIZE = 8


class Hosts(Case):
    """Batches of 1, 2, 4 and 8 hosts in turn: the order of the data alone.

    Every example must come exactly once in an epoch, on one host.
    """

    section = "elastic"
    name = "hosts (data alone)"
    wanted = 400
    in_a_row = 20

    def trial(self, rng: random.Random) -> Row:
        """Reads some epochs of random data with hosts that change."""
        from longsum_jax.data.batches import Batches
        from longsum_jax.data.stores import ExampleList
        from longsum_jax.typing import RowShards

        lengths = [rng.randint(1, 30) for _ in range(rng.randint(1, 90))]
        store = ExampleList([_example(number, length) for number, length in enumerate(lengths)])
        options: dict[str, Any] = {"batch_size": _BATCH_SIZE, "epochs": _EPOCHS}
        options |= {"source_lengths": rng.choice([(30,), (10, 20, 30), (7, 30)])}
        options |= {"shuffle": rng.choice(["all", 16, None]), "seed": rng.randrange(2**32)}
        seen = Counter()
        state, changes, is_done = None, 0, False
        while not is_done:
            count = rng.choice(COUNTS)
            hosts = [
                Batches(store, host_rows=RowShards((i,), count), **options) for i in range(count)
            ]
            for host in hosts:
                if state is not None:
                    host.restore(state)
            for _ in range(rng.randint(1, 12)):
                rows = [next(host, None) for host in hosts]
                is_done = rows[0] is None
                if is_done:
                    break
                seen.update(_numbers(rows))
            states = [host.state() for host in hosts]
            state = rng.choice(states)
            changes += 1
        expected = Counter({number: _EPOCHS for number in range(len(lengths))})
        failures = [] if seen == expected else ["an example came twice or not at all"]
        return {"changes": changes, "exact": int(not failures), "failures": failures}


def _example(number: int, length: int) -> dict[str, Any]:
    return {"id": str(number), "input_ids": np.full(length, number + 1, np.int32), "labels": []}


def _numbers(rows: list[dict[str, np.ndarray]]) -> Iterator[int]:
    """Yields the numbers of the examples of all hosts' rows."""
    for batch in rows:
        yield from (int(row[0]) - 1 for row in batch["input_ids"] if row[0])


class Devices(Case):
    """Runs that are killed, and go on with other numbers of devices.

    Args:
        mesh: a key of ``_MESHES``.
        counts: numbers of devices.
        wholes: see there.
    """

    section = "elastic"
    wanted = 6

    def __init__(self, mesh: str, counts: tuple[int, ...], wholes: Wholes) -> None:
        self.name = f"{', '.join(map(str, counts))} devices, {mesh}"
        self._config, self._counts, self._wholes = _CONFIG + _MESHES[mesh], counts, wholes

    def trial(self, rng: random.Random) -> Row:
        """Kills one run several times, each time before another number of devices."""
        whole, seconds = self._wholes.of(self._config, self._counts[0])
        workdir = fresh(self._wholes.folder / "moved" / "run")
        counts = list(self._counts)
        changes = 0
        for life in range(CHANGES):
            devices = rng.choice(counts)
            run = self._wholes.run(self._config, workdir, devices=devices, life=life)
            with Process(run) as process:
                wait_for_moment(process, rng, seconds)
                process.send(signal.SIGKILL)
                if process.finish().code == 0:
                    break
            changes += 1
        devices = rng.choice(counts)
        run = self._wholes.run(self._config, workdir, devices=devices, life=CHANGES)
        outcome = runs.complete(run)
        if outcome.code != 0:
            return {"failures": [f"exit code {outcome.code}: {outcome.said[-300:]}"]}
        if len(counts) == 1:  # the order of every sum is the same
            failures = differences(workdir, whole)
            return {"changes": changes, "exact": int(not failures), "failures": failures}
        return {"changes": changes} | _compared(workdir, whole)


def _compared(workdir: Path, whole: Path) -> Row:
    """Compares runs whose sums have other orders."""
    final, expected = runs.final_of(workdir), runs.final_of(whole)
    largest = max(
        np.abs(np.subtract(final[name]["values"], expected[name]["values"])).max(initial=0.0)
        for name in expected
        if ".params" in name
    )
    failures = [] if largest <= 1e-6 else [f"parameters differ by {largest:.1e}"]
    if not _have_read_the_same(workdir, whole):
        failures.append("example ids")
    exact = int("example ids" not in failures)
    return {"exact": exact, "largest_difference": float(largest), "failures": failures}


def _have_read_the_same(workdir: Path, whole: Path) -> bool:
    """Tells whether every step has read what it should, each example once.

    Of a life that was ended during a step some processes have not written what they read.
    """
    expected, result = runs.readings_of(whole), runs.readings_of(workdir)
    if result.keys() != expected.keys():
        return False
    for step, lives in result.items():
        [ids] = expected[step]
        if ids not in lives or any(Counter(life) - Counter(ids) for life in lives):
            return False
    return True


class Processes(Case):
    """Runs of several processes, one of which is killed; all must end, and the command continues.

    Args:
        count: processes before; a random number of them after.
        wholes: see there.
    """

    section = "elastic"
    wanted = 4

    def __init__(self, count: int, wholes: Wholes) -> None:
        self.name = f"{count} processes, one killed"
        self._count, self._wholes = count, wholes

    def trial(self, rng: random.Random) -> Row:
        """Kills a process, waits for the others, and goes on with as many or fewer."""
        whole, _ = self._wholes.of(_CONFIG)
        workdir = fresh(self._wholes.folder / "joined" / "run")
        step, victim = rng.randint(1, STEPS - 2), rng.randrange(self._count)
        began = 0.0

        def kill(processes: list[Process]) -> None:
            nonlocal began
            processes[0].wait_for(f"step {step}")
            time.sleep(rng.uniform(0, 0.3))
            processes[victim].send(signal.SIGKILL)
            began = time.monotonic()

        ended = self._start(self._count, workdir, 0, kill)
        seconds = time.monotonic() - began
        was_killed = ended[victim].code == -signal.SIGKILL
        failures = []
        if not was_killed and any(outcome.code for outcome in ended):
            failures.append(f"ended by itself: {ended[victim].said[-200:]}")
        if seconds > ENDED_WITHIN:
            failures.append(f"the others ended after {seconds:.0f} s")
        outcomes = self._start(rng.choice([1, 2, self._count]), workdir, 1)
        if any(outcome.code != 0 for outcome in outcomes):
            said = [outcome.said[-200:] for outcome in outcomes if outcome.code]
            return {"failures": [*failures, f"did not continue: {said}"]}
        row = {"changes": int(was_killed), "largest_seconds": round(seconds, 1)}
        row |= _compared(workdir, whole)
        row["failures"] = failures + row["failures"]
        return row

    def _start(
        self, count: int, workdir: Path, life: int, meanwhile: Any = lambda processes: None
    ) -> list[runs.Outcome]:
        """Runs the command in so many processes to their end."""
        port = runs.free_port()
        run = self._wholes.run(_CONFIG, workdir, processes=count, port=port, life=life)
        processes = [Process(run._replace(process=index)) for index in range(count)]
        try:
            meanwhile(processes)
            return [process.finish(2 * ENDED_WITHIN) for process in processes]
        finally:
            for process in processes:
                process.__exit__()


def elastic_cases(wholes: Wholes) -> list[Case]:
    """Returns all runs that change."""
    return [
        Hosts(),
        Devices("replicated", (1,), wholes),
        Devices("sharded", (8,), wholes),
        Devices("replicated", COUNTS, wholes),
        Devices("sharded", COUNTS, wholes),
        Processes(2, wholes),
        Processes(4, wholes),
    ]
