"""Summaries over HTTP: `longsum serve` compared with a server of transformers with static batches.

    python benchmarks/serving.py --out=serving.json [--data=DIR] [--documents=48] [--rounds=2]
        [--clients=16] [--peer_batch_sizes=1,4,8] [--model=led] [--max_source_length=4096]

Both servers are processes of their own that read the same directory: a model of --size with random
weights, and a tokenizer trained on the documents. --clients clients each send a document, wait for
its summary, and take the next one, in no order of lengths. Lengths are spread evenly over their
logarithms from --shortest to --longest words, from a news article to a meeting; the texts are
QMSum's meetings in --data, otherwise the documentation that Python carries. Of each document
--max_source_length tokens are read and the rest is dropped, by both. Both decode greedily. Random
weights hardly ever end a summary: in models whose logits have a stored bias (LED, BART, PEGASUS),
the end tokens, one of many (see many_documents.py), have the bias with which half of the summaries
end at --typical_new_tokens, as real summarizers end early.

The peer (serving_peer.py) fills batches in the order of the requests; every size of
--peer_batch_sizes has a turn in the first round, the one of most documents per second also in the
others. In every round ours and the peer take turns, followed by ours with all documents in one
request and by `Model.summaries(batch_size="auto")` in this process, whose difference is what the
server adds.

`documents_per_second` are of the best round without the seconds of compilation, which
`compile_seconds` has alone; percentiles of the seconds of an answer are of all rounds, `short_p95`
for documents of up to 1,500 words. `ratio` on a row of the peer is how many times as many documents
per second ours summarizes, `short_p95_ratio` how many times as long the peer takes for short ones,
`equal` the share of equal summaries. `overhead` on the row of one request is relative to
`Model.summaries`, whose row has the lengths of the summaries. Started again with the same --out,
the script goes on with what is missing.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import GIB, Deadline, numbers, print_table, write_report
from many_documents import COMPILING, model_of, options_of
from models import SIZES
from server_process import HOST, ServerProcess, serve_command

from longsum_jax.inference.padding import pad_rows
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model

OURS = "longsum serve"
ONE_REQUEST = "longsum serve, one request"
IN_PROCESS = "Model.summaries"
PEER = "transformers, batches of {}"
SHORT_WORDS = 1500
PIECES = 8000  # of the tokenizer
LONGEST_TIME = 10**5  # seconds of a request
# Documents, and tokens read of each, by which the bias of the end tokens is chosen.
NUM_CALIBRATED = 16
CALIBRATED_LENGTH = 1024


def source_texts(data: str | None) -> list[str]:
    """Returns QMSum's meetings in the folder of data sets; without one, Python's documentation."""
    if data is None:
        from pydoc_data.topics import topics

        return ["\n".join(topics.values())]
    import lzma

    with lzma.open(Path(data) / "qmsum/test.jsonl.xz", "rt", encoding="utf-8") as lines:
        return list(dict.fromkeys(json.loads(line)["document"] for line in lines))


def documents_of(sources: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Returns texts of the lengths of --shortest to --longest words, in no order."""
    words = " ".join(sources).split()
    rng = np.random.default_rng(0)
    spread = np.geomspace(args.shortest, args.longest, args.documents)
    lengths = rng.permutation(np.rint(spread)).astype(int)
    starts = rng.integers(0, max(len(words) - args.longest, 1), args.documents)
    return [
        " ".join(words[start : start + length])
        for start, length in zip(starts, lengths, strict=True)
    ]


def write_model(
    sources: Sequence[str], texts: Sequence[str], args: argparse.Namespace, directory: Path
) -> None:
    """Writes the directory that both servers read.

    Args:
        sources: texts of the tokenizer.
        texts: documents, by which the ends of summaries are chosen.
        args: flags.
        directory: directory to write.
    """
    from longsum_jax.tokenizers.train import train_sentencepiece

    (_, _, vocabulary), *_ = SIZES[args.size]
    pieces = min(PIECES, max(vocabulary, 1000))
    tokenizer = train_sentencepiece(sources, pieces, rows=max(vocabulary, pieces))
    model = model_of(args.model, args, rows=tokenizer.vocab_size)
    options = options_of(model, args)
    model = Model(model.family, model.config, model.params, tokenizer, options)
    if "final_logits_bias" in model.params:
        end_early(model, texts[:NUM_CALIBRATED], args)
    model.save(directory)


def end_early(model: Model, texts: Sequence[str], args: argparse.Namespace) -> None:
    """Adds the bias of the end tokens, with which half of the summaries end in time.

    Args:
        model: model whose bias is replaced.
        texts: documents by which the bias is chosen.
        args: flags.
    """
    tokenizer = model.tokenizer
    limit = min(args.max_source_length, CALIBRATED_LENGTH)
    rows = [tokenizer.add_special_tokens(tokenizer.encode(text), limit) for text in texts]
    ids, mask = pad_rows(rows, len(rows), model.config.pad_token_id)
    # Without an end, up to the token that is to be the last one.
    length = args.typical_new_tokens
    written = model.generate(ids, mask, min_new_tokens=length, max_new_tokens=length)
    logits = np.asarray(model.logits(ids, mask, written[:, :-1]))  # [rows, tokens, vocabulary]
    of_written = np.take_along_axis(logits, written[:, 1:, None], 2)[..., 0]
    ends = np.array(model.generation_config["eos_token_id"])
    # A summary ends at the first token at which the bias exceeds this distance.
    distances = of_written - logits[:, :, ends].max(2)
    bias = np.zeros(model.config.vocab_size, np.float32)
    bias[ends] = np.median(distances[:, args.min_new_tokens :].min(1))
    model.params = {**model.params, "final_logits_bias": bias}


class Sides(contextlib.ExitStack):
    """What is compared, each started when it is first needed.

    Args:
        directory: directory of the model.
        texts: all documents.
        args: flags.
    """

    def __init__(self, directory: Path, texts: Sequence[str], args: argparse.Namespace) -> None:
        super().__init__()
        self._directory, self._texts, self._args = directory, texts, args
        # Ours reads of a document what the peer reads.
        self._reading = {"strategy": "direct", "max_source_length": args.max_source_length}
        self._processes: dict[str, ServerProcess] = {}
        self._model: Model | None = None
        self._compiling: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: (
                self._compiling.append(seconds) if event == COMPILING else None
            )
        )

    def measure(self, by: str) -> dict[str, Any]:
        """Returns the seconds of all documents by one side, and of each answer."""
        if by == IN_PROCESS:
            return self._in_process()
        if by in (OURS, ONE_REQUEST):
            server = self._process("ours", self._our_command())
            options = self._reading
        else:
            server = self._process("peer", self._peer_command())
            server.post("/batch_size", {"batch_size": int(by.rsplit(" ", 1)[1])})
            options = {}
        before = server.cpu_seconds
        compiled = _compilation_seconds(server) if options else 0.0
        if by == ONE_REQUEST:
            result = self._one_request(server)
        else:
            result = ask(
                self._texts, self._args.clients, lambda text: _answer(server, text, options)
            )
        if before is not None:
            result["cpu_seconds"] = server.cpu_seconds - before
        if server.peak_bytes is not None:
            result["peak_gib"] = server.peak_bytes / GIB
        if options:
            result["compile_seconds"] = _compilation_seconds(server) - compiled
        return result

    def _our_command(self) -> list[str]:
        return serve_command(
            self._directory,
            max_queue=max(64, 2 * self._args.documents),
            max_request_seconds=LONGEST_TIME,
            max_body_bytes=2**30,
            warm_up_tokens=self._args.max_source_length,
        )

    def _peer_command(self) -> list[str]:
        script = str(Path(__file__).with_name("serving_peer.py"))
        limit = f"--max_source_length={self._args.max_source_length}"
        return [sys.executable, script, f"--model={self._directory}", limit]

    def _process(self, name: str, command: Sequence[str]) -> ServerProcess:
        """Returns a server that is ready and has summarized the shortest and longest document."""
        if name not in self._processes:
            log = self._directory.parent / f"{name}.log"
            server = self.enter_context(ServerProcess(command, log))
            server.wait_until_ready(3600)
            options = self._reading if name == "ours" else {}
            for text in (min(self._texts, key=len), max(self._texts, key=len)):
                _answer(server, text, options)
            self._processes[name] = server
        return self._processes[name]

    def _one_request(self, server: ServerProcess) -> dict[str, Any]:
        start = time.perf_counter()
        body = {"documents": list(self._texts), **self._reading}
        status, answer = server.post("/v1/summaries", body, LONGEST_TIME)
        seconds = time.perf_counter() - start
        if status != 200:
            raise SystemExit(f"{server.port}: {status}, {answer}")
        texts = [summary["summary"] for summary in answer["summaries"]]
        return {"seconds": seconds, "checksums": checksums(texts)}

    def _in_process(self) -> dict[str, Any]:
        self._model = self._model or load(self._directory)
        self._compiling.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        result = self._model.summaries(list(self._texts), batch_size="auto", **self._reading)
        return {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - cpu,
            "compile_seconds": sum(self._compiling),
            "checksums": checksums([summary.text for summary in result]),
            "summary_tokens": [summary.summary_tokens for summary in result],
        }


def _compilation_seconds(server: ServerProcess) -> float:
    return server.metric("longsum_compilation_seconds_total")


def _answer(server: ServerProcess, text: str, options: Mapping[str, Any]) -> str:
    """Returns the summary of a text.

    Raises:
        SystemExit: another answer.
    """
    status, answer = server.post("/v1/summaries", {"text": text, **options}, LONGEST_TIME)
    if status != 200:
        raise SystemExit(f"http://{HOST}:{server.port}: {status}, {answer}")
    return answer["summaries"][0]["summary"]


def ask(texts: Sequence[str], clients: int, answer: Callable[[str], str]) -> dict[str, Any]:
    """Returns the seconds of all answers together and of each, for clients that ask at once.

    Raises:
        SystemExit: a question without an answer.
    """
    rest = iter(range(len(texts)))
    lock = threading.Lock()
    latencies: dict[int, float] = {}
    answers: dict[int, str] = {}
    errors: list[BaseException] = []

    def client() -> None:
        while not errors:
            with lock:
                index = next(rest, None)
            if index is None:
                return
            start = time.perf_counter()
            try:
                answers[index] = answer(texts[index])
            except (Exception, SystemExit) as error:
                errors.append(error)
            latencies[index] = time.perf_counter() - start

    threads = [threading.Thread(target=client) for _ in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    if errors:
        raise SystemExit(f"a document has no summary: {errors[0]}")
    order = range(len(texts))
    return {
        "seconds": seconds,
        "latencies": [latencies[index] for index in order],
        "checksums": checksums([answers[index] for index in order]),
    }


def checksums(texts: Sequence[str]) -> list[int]:
    """Returns a number for each text, equal for equal texts."""
    return [zlib.crc32(text.encode()) for text in texts]


def turns(args: argparse.Namespace, entries: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yields round and side of what ``entries`` lacks; the caller adds each before the next."""
    done = {(entry["round"], entry["by"]) for entry in entries}
    peers = [PEER.format(size) for size in numbers(args.peer_batch_sizes)]
    for number in range(args.rounds):
        first = [entry for entry in entries if entry["round"] == 0 and entry["by"] in peers]
        best = [min(first, key=lambda entry: entry["seconds"])["by"]] if number else peers
        for by in (OURS, *best, ONE_REQUEST, IN_PROCESS):
            if (number, by) not in done:
                yield number, by


def totals(
    entries: Sequence[Mapping[str, Any]], lengths: Sequence[int], clients: int
) -> list[dict[str, Any]]:
    """Returns a row for each side.

    Args:
        entries: what was measured.
        lengths: words of the documents.
        clients: number of clients.
    """
    rows: dict[str, dict[str, Any]] = {}
    reference = [entry["checksums"] for entry in entries if entry["by"] == OURS]
    for by in dict.fromkeys(entry["by"] for entry in entries):
        of_side = [entry for entry in entries if entry["by"] == by]
        best = min(of_side, key=_warm_seconds)
        row = {
            "by": by,
            "documents": len(lengths),
            "rounds": len(of_side),
            "seconds": best["seconds"],
            "compile_seconds": best.get("compile_seconds"),
            "cpu_seconds": best.get("cpu_seconds"),
            "documents_per_second": len(lengths) / _warm_seconds(best),
            "peak_gib": best.get("peak_gib"),
        }
        if "latencies" in best:
            is_short = np.array(lengths) <= SHORT_WORDS
            seconds = np.array([entry["latencies"] for entry in of_side])
            row |= {"clients": clients, **percentiles(seconds, "")}
            row |= percentiles(seconds[:, is_short], "short_")
        if "summary_tokens" in best:
            row |= percentiles([best["summary_tokens"]], "summary_tokens_")
        pairs = zip(best["checksums"], reference[0] if reference else (), strict=False)
        row["equal"] = sum(a == b for a, b in pairs) / len(lengths)
        rows[by] = {key: value for key, value in row.items() if value is not None}
    ours = rows.get(OURS)
    for row in rows.values():
        if ours and row["by"].startswith("transformers"):
            row["ratio"] = ours["documents_per_second"] / row["documents_per_second"]
            row["cpu_ratio"] = row.get("cpu_seconds", 0) / max(ours.get("cpu_seconds", 0), 1e-9)
            if "short_p95" in ours:
                row["short_p95_ratio"] = row["short_p95"] / ours["short_p95"]
    if ONE_REQUEST in rows and IN_PROCESS in rows:
        speeds = [rows[by]["documents_per_second"] for by in (IN_PROCESS, ONE_REQUEST)]
        rows[ONE_REQUEST]["overhead"] = speeds[0] / speeds[1] - 1
    return list(rows.values())


def _warm_seconds(entry: Mapping[str, Any]) -> float:
    return max(entry["seconds"] - entry.get("compile_seconds", 0.0), 1e-9)


def percentiles(values: Any, prefix: str) -> dict[str, float]:
    """Returns percentiles of numbers, with names that begin with a prefix; {} without numbers."""
    percents = (50, 95) if np.size(values) else ()
    return {f"{prefix}p{percent}": float(np.percentile(values, percent)) for percent in percents}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="DIR", help="folder of data sets; default: none")
    parser.add_argument("--model", default="led", help="of models.py; default: led")
    parser.add_argument("--size", choices=SIZES, default="base", help="default: base")
    parser.add_argument("--documents", type=int, default=48, help="default: 48")
    parser.add_argument("--clients", type=int, default=16, help="default: 16")
    parser.add_argument("--rounds", type=int, default=2, help="default: 2")
    parser.add_argument("--peer_batch_sizes", default="1,4,8", help="default: 1,4,8")
    parser.add_argument("--shortest", type=int, default=400, help="words; default: 400")
    parser.add_argument("--longest", type=int, default=10_000, help="words; default: 10,000")
    parser.add_argument(
        "--max_source_length", type=int, default=4096, help="tokens to read; default: 4,096"
    )
    parser.add_argument("--min_new_tokens", type=int, default=16, help="default: 16")
    parser.add_argument("--max_new_tokens", type=int, default=128, help="default: 128")
    parser.add_argument(
        "--typical_new_tokens", type=int, default=64, help="median of summaries; default: 64"
    )
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    settings = {key: value for key, value in vars(args).items() if key not in ("out", "minutes")}
    settings["data"] = "Python's documentation" if args.data is None else "QMSum"
    entries: list[dict[str, Any]] = []
    if args.out and Path(args.out).exists():
        before = json.loads(Path(args.out).read_text())
        if before["settings"] != settings:
            sys.exit(f"{args.out} has other settings; give another --out")
        entries = before["entries"]
    sources = source_texts(args.data)
    texts = documents_of(sources, args)
    lengths = [len(text.split()) for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        write_model(sources, texts, args, directory)
        with Sides(directory, texts, args) as sides:
            for number, by in turns(args, entries):
                if deadline.is_over:
                    break
                entry = {"round": number, "by": by, **sides.measure(by)}
                entries.append(entry)
                shown = {key: value for key, value in entry.items() if not isinstance(value, list)}
                print(json.dumps(shown), file=sys.stderr, flush=True)
                if args.out:
                    rows = totals(entries, lengths, args.clients)
                    write_report(args.out, rows, size=args.size, settings=settings, entries=entries)
    print_table(totals(entries, lengths, args.clients))


if __name__ == "__main__":
    main()
