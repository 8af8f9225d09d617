"""`longsum serve` for a long time: steady load, kills and restarts, hostile requests.

    python studies/serving_soak.py --out=serving_soak.json [--minutes=10] [--kills=20]
        [--hostile=200] [--connections=1000] [--clients=8] [--sections=load,kills,hostile]

The server is the command, in a process of its own on a loopback address, with a random tiny model.

    load     Clients ask for --minutes, each --wait seconds after its last answer. Rows are tenths
             of the time: answers, answers that differ from the first one for the same document,
             errors, the least resident memory of the tenth, open files, compiled programs. At the
             end the requests that the server counted are compared with the answers that arrived.
    kills    The server is ended while clients wait, by turns with SIGKILL and SIGTERM, and started
             again. After SIGTERM it has to answer all that it has (`cut` counts connections without
             an answer); what SIGKILL cuts is asked again and must have the same answer.
    hostile  --hostile requests of serving_hostile.py, --rate in a second, while --connections idle
             connections are open. `sentences` are refusals in one sentence, `closed` connections
             that the server closed, `failed` everything else. Two good clients ask before,
             meanwhile and after: their seconds stand in the last rows. A round compares their
             median during an attack with that of the --calm seconds before and after it; `ratio`
             is the median of --turns rounds, `lowest` and `highest` their range.

Rows are written as they come; with the same --out, sections that are there are not run again, and
missing kills are added.
"""

import argparse
import collections
import dataclasses
import http.client
import itertools
import json
import math
import multiprocessing
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, rows_before, write_report
from server_process import ServerProcess, serve_command
from serving_hostile import CLOSED, LIMITS, SENTENCE, Attack, attacks, send_all

SECTIONS = ("load", "kills", "hostile")
PARTS = 10
DOCUMENTS = 200
WORDS = (5, 400)  # shortest and longest document
LONGEST_TIME = 120.0  # seconds for an answer
GOOD_CLIENTS = 2
SLOW_KINDS = ("slow bodies", "slow headers")  # most of their time is waiting
SERVED = 'longsum_requests_total{status="200"}'


def write_model(directory: Path) -> None:
    """Writes a random tiny model whose summaries differ between documents."""
    from pydoc_data.topics import topics

    from models import make_config, make_model, read_louder

    from longsum_jax.summarization.model import Model
    from longsum_jax.tokenizers.train import train_sentencepiece

    tokenizer = train_sentencepiece(topics.values(), 1000)
    family, config = make_config("t5", "tiny", 1024)
    model = make_model(family, dataclasses.replace(config, vocab_size=tokenizer.vocab_size))
    read_louder(model)
    options = {"max_new_tokens": 48}  # a while, so that requests wait
    Model(family, model.config, model.params, tokenizer, options).save(directory)


def documents(count: int, seed: int) -> list[str]:
    """Returns texts of different lengths."""
    from pydoc_data.topics import topics

    words = " ".join(topics.values()).split()
    rng = np.random.default_rng(seed)
    lengths = np.exp(rng.uniform(*np.log(WORDS), count)).astype(int)
    starts = rng.integers(0, len(words) - WORDS[1], count)
    return [
        " ".join(words[start : start + length])
        for start, length in zip(starts, lengths, strict=True)
    ]


class Load:
    """Clients that ask without pause, each for one document at a time until it has an answer.

    Args:
        texts: documents.
        clients: number of clients.
        post: function that sends a text and returns status and answer; it raises OSError or
            HTTPException if the connection is cut.
        wait: seconds between an answer and the client's next question.

    Attributes:
        counts: answers, different ones, connections that were cut, and errors.
        first: first summary of each document that was asked for, by its index.
        asking: number of clients that wait for an answer.
    """

    def __init__(
        self,
        texts: Sequence[str],
        clients: int,
        post: Callable[[str], tuple[int, Any]],
        wait: float = 0.0,
    ) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.first: dict[int, str] = {}
        self.asking = 0
        self._texts, self._post, self._wait = texts, post, wait
        self._lock = threading.Lock()
        self._may_ask, self._ended = threading.Event(), threading.Event()
        self._indices = itertools.cycle(range(len(texts)))
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def start(self) -> None:
        """Begins."""
        self.go_on()
        for thread in self._threads:
            thread.start()

    def hold(self) -> None:
        """Lets no client send another request."""
        self._may_ask.clear()

    def go_on(self) -> None:
        """Lets clients send requests again."""
        self._may_ask.set()

    def end(self) -> int:
        """Ends all clients; returns the number of documents that were asked for in vain."""
        self._ended.set()
        self.go_on()
        for thread in self._threads:
            thread.join(2 * LONGEST_TIME)
        return self.counts["lost"] + sum(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while not self._ended.is_set():
            with self._lock:
                index = next(self._indices)
            self._ask(index)
            self._ended.wait(self._wait)

    def _ask(self, index: int) -> None:
        deadline = time.monotonic() + LONGEST_TIME
        while time.monotonic() < deadline:
            self._may_ask.wait()
            with self._lock:
                self.asking += 1
            try:
                status, answer = self._post(self._texts[index])
            except (OSError, http.client.HTTPException, ValueError):
                self._count("cut")
                if self._ended.is_set():
                    return
                time.sleep(0.05)
                continue
            finally:
                with self._lock:
                    self.asking -= 1
            if status == 200:
                self._compare(index, answer["summaries"])
                return
            self._count("errors")
            time.sleep(0.05)
        self._count("lost")

    def _count(self, name: str) -> None:
        with self._lock:
            self.counts[name] += 1

    def _compare(self, index: int, summaries: Sequence[dict[str, Any]]) -> None:
        text = " ".join(summary["summary"] for summary in summaries)
        with self._lock:
            self.counts["answers"] += 1
            is_first = self.first.setdefault(index, text)
            if len(summaries) != 1 or text != is_first:
                self.counts["different"] += 1


@contextmanager
def served(directory: Path, log: Path, **flags: Any) -> Iterator[ServerProcess]:
    """A server that is ready."""
    limits = {"warm_up_tokens": 1024, **flags}
    with ServerProcess(serve_command(directory, **limits), log) as server:
        server.wait_until_ready()
        yield server


def soak(server: ServerProcess, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the rows of the steady load."""
    load = Load(documents(DOCUMENTS, args.seed), args.clients, partial(ask, server), args.wait)
    load.start()
    part = 60 * args.minutes / PARTS
    before = load.counts.copy()
    for number in range(1, PARTS + 1):
        start, least = time.monotonic(), math.inf
        while (rest := start + part - time.monotonic()) > 0:
            least = min(least, server.resident_bytes or 0)
            time.sleep(min(rest, 1.0))
        seconds = time.monotonic() - start
        counts = load.counts - before
        before = load.counts.copy()
        yield {
            "section": "load",
            "part": number,
            "answers": counts["answers"],
            "different": counts["different"],
            "errors": counts["errors"] + counts["cut"],
            "per_second": round(counts["answers"] / seconds, 1),
            "compiled": int(server.metric("longsum_compilations_total")),
            "resident_mib": round(least / 2**20, 1),
            "files": server.num_files,
        }
    load.hold()
    lost = load.end()
    yield {
        "section": "load",
        "part": "all",
        "answers": load.counts["answers"],
        "different": load.counts["different"],
        "lost": lost,
        # Requests that the server answered and no client has, or the other way round.
        "uncounted": int(server.metric(SERVED)) - load.counts["answers"],
        "distinct": len(set(load.first.values())),
    }


def ask(server: ServerProcess, text: str) -> tuple[int, Any]:
    """Returns status and answer for a text."""
    return server.post("/v1/summaries", {"text": text}, LONGEST_TIME)


def kill(
    directory: Path, log: Path, args: argparse.Namespace, count: int
) -> Iterator[dict[str, Any]]:
    """Yields a row for each of ``count`` ends of a server."""
    servers: list[ServerProcess] = []
    texts = documents(DOCUMENTS, args.seed)
    load = Load(texts, args.clients, lambda text: ask(servers[-1], text))
    rng = np.random.default_rng(args.seed)
    lost = 0
    with ExitStack() as running:
        servers.append(running.enter_context(served(directory, log)))
        load.start()
        try:
            for number in range(count):
                time.sleep(rng.uniform(0.2, args.pause))
                before = load.counts.copy()
                signal_number = (signal.SIGKILL, signal.SIGTERM)[number % 2]
                if signal_number == signal.SIGTERM:
                    load.hold()
                    time.sleep(0.05)  # what is sent has arrived
                waiting = load.asking
                start = time.monotonic()
                servers[-1].stop(signal_number)
                seconds = time.monotonic() - start
                load.hold()
                while load.asking:
                    time.sleep(0.01)
                counts = load.counts - before
                servers.append(running.enter_context(served(directory, log)))
                ready = time.monotonic() - start - seconds
                load.go_on()
                yield {
                    "section": "kills",
                    "signal": signal_number.name,
                    "waiting": waiting,
                    "answered": counts["answers"],
                    "cut": counts["cut"],
                    "different": counts["different"],
                    "seconds_to_end": round(seconds, 2),
                    "seconds_to_ready": round(ready, 2),
                }
        finally:
            time.sleep(args.pause)
            lost = load.end()
    yield {
        "section": "kills",
        "signal": "all",
        "answered": load.counts["answers"],
        "cut": load.counts["cut"],
        "different": load.counts["different"],
        "lost": lost,
        "distinct": len(set(load.first.values())),
    }


def attack(
    server: ServerProcess, args: argparse.Namespace, failures: list[str]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of the hostile requests; descriptions of failures are appended."""
    text = documents(1, args.seed)[0]
    requests = list(attacks(args.hostile, args.seed))
    outcomes: dict[str, list[tuple[str, float]]] = {}

    slow = [request for request in requests if request.kind in SLOW_KINDS]
    fast = [request for request in requests if request.kind not in SLOW_KINDS]
    seconds: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    # In a process of its own, which does not slow the good clients here.
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as attacker:

        def run(requests: Sequence[Attack]) -> None:
            sent = attacker.submit(send_all, server.port, requests, args.connections, args.rate)
            for request, result in zip(requests, sent.result(), strict=True):
                outcomes.setdefault(request.kind, []).append(result)

        attacker.submit(send_all, server.port, [], 0, args.rate).result()  # it has started
        calm = latencies(server, text, partial(time.sleep, args.calm))
        seconds["nothing else"] = [*calm]
        # In turns, because other work on the machine changes meanwhile.
        for turn in range(args.turns):
            for name, group in (("hostile requests", fast), ("slow bodies and headers", slow)):
                values = latencies(server, text, partial(run, group[turn :: args.turns]))
                before, calm = calm, latencies(server, text, partial(time.sleep, args.calm))
                seconds["nothing else"] += calm
                seconds.setdefault(name, []).extend(values)
                ratio = np.median(values) / np.median([*before, *calm])
                ratios.setdefault(name, []).append(float(ratio))
    for kind, results in outcomes.items():
        names = [name for name, _ in results]
        failures += [f"{kind}: {name}" for name in names if name not in (SENTENCE, CLOSED)]
        yield {
            "section": "hostile",
            "kind": kind,
            "requests": len(results),
            "sentences": names.count(SENTENCE),
            "closed": names.count(CLOSED),
            "failed": len(names) - names.count(SENTENCE) - names.count(CLOSED),
            "largest_seconds": round(max(seconds for _, seconds in results), 2),
        }
    for name, values in seconds.items():
        p50, p95 = np.percentile(values, (50, 95))
        row = {"section": "neighbours", "beside": name, "answers": len(values)}
        row |= {"p50": float(p50), "p95": float(p95)}
        if name in ratios:
            lowest, ratio, highest = map(float, np.percentile(ratios[name], (0, 50, 100)))
            row |= {"ratio": ratio, "lowest": lowest, "highest": highest}
        yield row


def latencies(server: ServerProcess, text: str, meanwhile: Callable[[], None]) -> list[float]:
    """Returns the seconds of the answers that good clients get during a call, at least one each.

    Raises:
        SystemExit: a good client got another answer.
    """
    ended = threading.Event()
    seconds: list[float] = []

    def client() -> None:
        while True:
            start = time.monotonic()
            status, answer = ask(server, text)
            if status != 200:
                raise SystemExit(f"a good client got {status}: {answer}")
            seconds.append(time.monotonic() - start)
            if ended.is_set():
                return

    with ThreadPoolExecutor(GOOD_CLIENTS) as threads:
        clients = [threads.submit(client) for _ in range(GOOD_CLIENTS)]
        try:
            meanwhile()
        finally:
            ended.set()
        for future in clients:
            future.result()
    return seconds


def allow_files(count: int) -> None:
    """Raises the limit of open files of this process and of those that it starts.

    Raises:
        SystemExit: the system does not allow as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        raise SystemExit(f"the system allows {hard} open files; give fewer --connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))


def main() -> None:
    """Prints the tables and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", metavar="FILE")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--minutes", type=float, default=10.0, help="of load; default: 10")
    parser.add_argument("--kills", type=int, default=20, help="default: 20")
    parser.add_argument("--pause", type=float, default=3.0, help="seconds before a kill, at most")
    parser.add_argument("--hostile", type=int, default=200, help="requests; default: 200")
    parser.add_argument("--connections", type=int, default=1000, help="idle ones; default: 1,000")
    parser.add_argument(
        "--calm", type=float, default=5.0, help="seconds of a turn without hostile requests"
    )
    parser.add_argument("--rate", type=float, default=5.0, help="hostile requests per second")
    parser.add_argument("--turns", type=int, default=8, help="default: 8")
    parser.add_argument("--clients", type=int, default=8, help="default: 8")
    parser.add_argument(
        "--wait", type=float, default=0.0, help="seconds between answer and question; default: 0"
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sections = args.sections.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--sections: {', '.join(unknown)} is none of {', '.join(SECTIONS)}")
    names = ("minutes", "wait", "hostile", "connections", "rate", "clients", "seed")
    settings = {name: getattr(args, name) for name in names}
    rows = rows_before(args.out, **settings)
    failures: list[str] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
        if args.out:
            date = time.strftime("%Y-%m-%d")
            write_report(args.out, rows, **settings, date=date, failures=failures)

    allow_files(2 * args.connections + 500)
    with tempfile.TemporaryDirectory() as folder:
        directory, log = Path(folder, "model"), Path(folder, "log")
        write_model(directory)
        done = collections.Counter(row["section"] for row in rows)
        if "load" in sections and not done["load"]:
            with served(directory, log) as server:
                for row in soak(server, args):
                    add(row)
        missing = args.kills - sum("waiting" in row for row in rows)
        if "kills" in sections and missing > 0:
            for row in kill(directory, log, args, missing):
                add(row)
        if "hostile" in sections and not done["hostile"]:
            with served(directory, log, **LIMITS) as server:
                for row in attack(server, args, failures):
                    add(row)
    for section in dict.fromkeys(row["section"] for row in rows):
        print_table([row for row in rows if row["section"] == section])
    for failure in failures:
        print(failure)


if __name__ == "__main__":
    main()
