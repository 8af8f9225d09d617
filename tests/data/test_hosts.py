"""Real processes that share prepared shards: every document once per epoch, however many there
are."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.stores import load_examples

WORKER = Path(__file__).with_name("reading_worker.py")


@contextmanager
def processes_of(directory, count):
    """So many processes that read ``directory``; each is asked by a line of its input."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(WORKER.parents[2])}
    command = [sys.executable, "-W", "error", str(WORKER), str(directory)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        started = [subprocess.Popen(command, env=environment, **pipes) for _ in range(count)]
        for process in started:
            stack.enter_context(process)
            stack.callback(process.kill)
        yield started
        for process in started:
            process.stdin.close()
            assert process.wait(timeout=60) == 0


def read(processes, stop, state):
    """What processes read at the same time as the only hosts, up to batch ``stop``: a report of
    each."""
    for index, process in enumerate(processes):
        print(json.dumps([index, len(processes), stop, state]), file=process.stdin, flush=True)
    return [json.loads(process.stdout.readline()) for process in processes]


@pytest.mark.slow
def test_hosts_see_every_document_once_per_epoch_also_when_others_go_on(
    tmp_path, report_task, tokenizer
):
    """Two processes read the beginning, four go on into the second epoch, two read the rest."""
    write_prepared(tmp_path / "out", report_task, tokenizer, "train", num_shards=5, progress=False)
    seen, state = [], None
    with processes_of(tmp_path / "out", 4) as started:
        for hosts, stop in ((started[:2], 3), (started, 8), (started[2:], 1000)):
            reports = read(hosts, stop, state)
            states = [report["state"] for report in reports]
            assert states == states[:1] * len(hosts)
            state = states[0]
            assert all(report["seen"] for report in reports)
            seen += [(epoch, tuple(ids)) for report in reports for epoch, ids in report["seen"]]
    documents = [
        tuple(example["input_ids"].tolist())
        for example in load_examples(report_task, tokenizer, "train")
    ]
    assert len(set(documents)) == len(documents)
    assert Counter(seen) == Counter((epoch, ids) for epoch in range(3) for ids in documents)
