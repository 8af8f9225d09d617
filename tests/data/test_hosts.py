"""Real processes that share prepared shards: every document once per epoch, however many there
are."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from longsum_jax.data.prepared import write_prepared
from longsum_jax.data.stores import load_examples

WORKER = Path(__file__).with_name("reading_worker.py")


def read(directory, hosts, stop, state=None):
    """What ``hosts`` processes read at the same time, up to batch ``stop``: one report of each."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(WORKER.parents[2])}
    more = [] if state is None else [json.dumps(state)]
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                str(WORKER),
                str(directory),
                str(index),
                str(hosts),
                str(stop),
                *more,
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(hosts)
    ]
    reports = []
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        reports.append(json.loads(output))
    return reports


@pytest.mark.slow
def test_hosts_see_every_document_once_per_epoch_also_when_others_go_on(
    tmp_path, report_task, tokenizer
):
    """Two processes read the beginning, four go on into the second epoch, two read the rest."""
    write_prepared(tmp_path / "out", report_task, tokenizer, "train", num_shards=5, progress=False)
    seen, state = [], None
    for hosts, stop in ((2, 3), (4, 8), (2, 1000)):
        reports = read(tmp_path / "out", hosts, stop, state)
        states = [report["state"] for report in reports]
        assert states == states[:1] * hosts
        state = states[0]
        assert all(report["seen"] for report in reports)
        seen += [(epoch, tuple(ids)) for report in reports for epoch, ids in report["seen"]]
    documents = [
        tuple(example["input_ids"].tolist())
        for example in load_examples(report_task, tokenizer, "train")
    ]
    assert len(set(documents)) == len(documents)
    assert Counter(seen) == Counter((epoch, ids) for epoch in range(3) for ids in documents)
