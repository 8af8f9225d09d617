"""Small documents on disk, and the three kinds of stores made from them."""

import json

import pytest

from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.stores import ExampleStream, load_examples
from longsum_jax.data.tasks import get_task
from longsum_jax.tokenizers.loading import load_tokenizer

WINDOW = 8


@pytest.fixture(scope="session")
def tokenizer():
    return load_tokenizer("bytes")


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """29 documents of very different lengths; every seventh is a single sentence, too short for a
    gap."""
    path = tmp_path_factory.mktemp("reports") / "train.jsonl"
    rows = []
    for number in range(29):
        count = 1 if number % 7 == 6 else 2 + number * 5 % 11
        sentences = [f"Part {number} has {'x' * (part + 3)}." for part in range(count)]
        rows.append({"id": f"r{number}", "text": " ".join(sentences)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def report_task(reports):
    return get_task(
        "c4",
        source=f"json:{reports}",
        max_source_length=64,
        max_target_length=12,
        gap_sentences={"ratio": 0.5},
    )


@pytest.fixture(scope="session")
def stores(report_task, tokenizer, tmp_path_factory):
    """Name to function; each call gives a fresh store with the same 25 examples."""
    directory = tmp_path_factory.mktemp("prepared") / "train"
    write_prepared(directory, report_task, tokenizer, "train", num_shards=4, progress=False)
    return {
        "list": lambda: load_examples(report_task, tokenizer, "train"),
        "prepared": lambda: PreparedExamples(directory, tokenizer.fingerprint),
        "stream": lambda: ExampleStream(report_task, tokenizer, "train", window=WINDOW),
    }
