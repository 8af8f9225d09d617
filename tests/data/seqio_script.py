"""Run by test_seqio.py: does everything that needs TensorFlow and writes what came out as JSON."""

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np

from longsum_jax.commands import corpus
from longsum_jax.data import seqio_source
from longsum_jax.data.batches import Batches
from longsum_jax.data.examples.base import Counts
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleStream
from longsum_jax.data.tasks import TASKS, Task, get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import cut_text
from longsum_jax.tokenizers.loading import load_tokenizer

TOKENIZER = load_tokenizer("bytes")


def texts():
    """Twelve documents of 3 to 13 sentences; two of them are too short for a gap."""
    return [
        " ".join(f"Part {part} of {number} has {'x' * (part + 3)}." for part in range(2 + number))
        for number in range(1, 13)
    ]


def build(directory: Path) -> None:
    """Writes a small TFDS data set with reports, and one with dialogues."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    reports = {
        "number": list(range(100, 112)),
        "name": [f"n{i}" for i in range(12)],
        "document": texts(),
        "summary": [f"Summary {i}." for i in range(12)],
    }
    dialogues = {
        "speaker": [["A", "B"]] * 2,
        "utt": [["hello", "good day"]] * 2,
        "odd": [["one", "two", "three"]] * 2,
        "summary": ["s"] * 2,
    }
    kinds = {list: tfds.features.Sequence(tfds.features.Text()), int: np.int32}
    for name, columns in (("reports", reports), ("dialogues", dialogues)):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version="1.0.0",
            features=tfds.features.FeaturesDict(
                {k: kinds.get(type(v[0]), tfds.features.Text()) for k, v in columns.items()}
            ),
            split_datasets={"train": tf.data.Dataset.from_tensor_slices(columns)},
            data_dir=directory,
        )


def task_of(directory: Path, name: str, **overrides):
    return get_task(name, data_dir=str(directory), **overrides)


def check_documents(directory: Path) -> dict:
    task = task_of(
        directory, "billsum", source="tfds:reports", document_key="document", id_key="name"
    )
    read = [list(documents(task, "train")) for _ in range(2)]
    rows = [DataRow(f"n{i}", text, f"Summary {i}.", None) for i, text in enumerate(texts())]
    joined = task_of(directory, "mediasum", source="tfds:dialogues", id_key=None)
    nameless = dataclasses.replace(task, id_key=None)
    return {
        "first": read[0],
        "second": read[1],
        "piped": list(seqio_source.documents(task, "train")),
        "rows": rows,
        "joined": [d.document for d in documents(joined, "train")],
        "piped_joined": [d.document for d in seqio_source.documents(joined, "train")],
        "numbered": [d.id for d in documents(nameless, "train")][:2],
    }


def check_batches(directory: Path) -> dict:
    task = task_of(directory, "c4", source="tfds:reports", document_key="document", id_key="name")
    task = dataclasses.replace(task, max_source_length=128, max_target_length=32)
    write_prepared(directory / "prepared", task, TOKENIZER, "train", num_shards=3, progress=False)
    options = {
        "batch_size": 2,
        "source_lengths": (64, 128),
        "target_length": 32,
        "shuffle": 4,
        "epochs": 2,
    }
    stores = {
        "stream_batches": ExampleStream(task, TOKENIZER, "train", window=4),
        "prepared_batches": PreparedExamples(directory / "prepared"),
    }
    return {
        name: [{k: v.tolist() for k, v in batch.items()} for batch in Batches(store, **options)]
        for name, store in stores.items()
    }


def check_selection(directory: Path) -> dict:
    task = task_of(directory, "c4", source="tfds:reports", document_key="document", id_key="name")
    in_pipeline = list(seqio_source.documents(task, "train"))
    order = {f"n{i}": text for i, text in enumerate(texts())}
    in_python = [
        DataRow(id=d.id, document=order[d.id], summary=None, query=None) for d in in_pipeline
    ]
    result = made("pipeline", task, in_pipeline) | made("python", task, in_python)
    return result | made("direct", task, list(documents(task, "train")))


def made(name: str, task: Task, docs: list[DataRow]) -> dict:
    """The examples of the documents, and their counts."""
    counts = Counts()
    examples = make_examples(task, TOKENIZER, docs, counts=counts)
    pairs = [(e["id"], e["input_ids"].tolist(), e["labels"].tolist()) for e in examples]
    return {f"{name}_pairs": pairs, f"{name}_counts": dataclasses.asdict(counts)}


def piece_task(directory: Path, **overrides) -> Task:
    options = {
        "source": "tfds:reports",
        "document_key": "document",
        "id_key": "name",
        "piece_words": 20,
    }
    options["gap_sentences"] = {"ratio": 0.5, "strategy": overrides.pop("strategy", "independent")}
    return task_of(directory, "c4", **(options | overrides))


def check_pieces(directory: Path) -> dict:
    order = [d.id for d in documents(piece_task(directory, piece_words=None), "train")]
    numbered = piece_task(directory, id_key="number", piece_words=None)
    whole = [texts()[int(name.removeprefix("n"))] for name in order]
    in_python = [
        DataRow(f"{name}#{number}", piece, None, None)
        for name, text in zip(order, whole, strict=True)
        for number, piece in enumerate(cut_text(text, 20))
    ]
    result = {}
    for strategy in ("independent", "random"):
        task = piece_task(directory, strategy=strategy)
        result |= made(f"{strategy}_pipeline", task, list(seqio_source.documents(task, "train")))
        result |= made(f"{strategy}_direct", task, list(documents(task, "train")))
        result |= made(f"{strategy}_python", task, in_python)
    nameless = piece_task(directory, id_key=None)
    return {
        "pieces": result,
        "nameless_ids": [d.id for d in seqio_source.documents(nameless, "train")],
        "direct_nameless_ids": [d.id for d in documents(nameless, "train")],
        "digests": [
            (hashlib.sha256(text.encode()).hexdigest()[:16], len(cut_text(text, 20)))
            for text in whole
        ],
        "number_ids": [
            sorted(d.id for d in read(numbered, "train"))
            for read in (documents, seqio_source.documents)
        ],
    }


def check_cached_pieces(directory: Path) -> dict:
    """Runs the part of the pipeline that Beam runs, and reads its records back in another order."""
    task = piece_task(directory, id_key=None)
    pipeline = seqio_source.import_seqio().get_mixture_or_task(seqio_source.register(task))
    dataset = pipeline.preprocess_precache(
        pipeline.source.get_dataset("train", shuffle=False), seed=0
    )
    rows = list(dataset.as_numpy_iterator())
    cached = dataclasses.replace(task, cache_dir=str(directory / "cache"))
    write_cache(cached, rows[1::2] + rows[::2])
    counts = Counts()
    list(make_examples(cached, TOKENIZER, documents(cached, "train"), counts=counts))
    return {
        "uncached_pieces": list(seqio_source.documents(task, "train")),
        "cached_pieces": sorted(documents(cached, "train")),
        "cached_read": counts.read,
    }


def write_cache(task: Task, rows: list[dict[str, bytes]]) -> None:
    """Writes files as seqio_cache_tasks lays them out."""
    import seqio
    import tensorflow as tf

    place = Path(task.cache_dir) / seqio_source.register(dataclasses.replace(task, data_dir=None))
    place.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(place / "train.tfrecord-00000-of-00001")) as writer:
        for row in rows:
            values = {key: np.array(value) for key, value in row.items()}
            writer.write(seqio.dict_to_tfexample(values).SerializeToString())
    features = {key: {"shape": [], "dtype": "string"} for key in seqio_source.FIELDS}
    info = {"num_shards": 1, "features": features, "seqio_version": "0.0.20"}
    (place / "info.train.json").write_text(json.dumps(info))
    (place / "stats.train.json").write_text(json.dumps({"examples": len(rows)}))
    (place / "COMPLETED").touch()


def check_cache(directory: Path) -> dict:
    task = get_task("c4", cache_dir=str(directory / "cache"))
    rows = [
        {"id": b"c0", "document": b"kept", "summary": b"chosen", "query": b""},
        {"id": b"c1", "document": b"too short", "summary": b"", "query": b""},
    ]
    write_cache(task, rows)
    return {"cached": list(documents(task, "train"))}


def check_export(directory: Path) -> dict:
    """Writes a cached split of summaries as JSON lines; evaluate reads the same documents."""
    task = get_task("billsum", cache_dir=str(directory / "cache"))
    rows = [
        {"id": b"b0", "document": "A né.".encode(), "summary": b"A.", "query": b""},
        {"id": b"", "document": b"B.", "summary": b"C.", "query": b"Why?"},
    ]
    write_cache(task, rows)
    out = directory / "bills.jsonl"
    flags = ["--task=billsum", "--split=train", f"--cache_dir={task.cache_dir}", f"--out={out}"]
    corpus.main(["export", *flags])
    return {"exported": [json.loads(line) for line in out.read_text().splitlines()]}


def check_builders(directory: Path) -> dict:
    """Reads mock data of every builder that a task names; the fields, types and splits are the real
    ones."""
    return {
        "mocked": {
            t.name: check_builder(t, directory) for t in TASKS.values() if "tfds:" in t.source
        }
    }


def check_builder(task: Task, directory: Path) -> str:
    import tensorflow_datasets as tfds

    for key in task.document_key.split("+"):  # mock lists differ in length and cannot be joined
        task = dataclasses.replace(
            task,
            document_key=key,
            data_dir=str(directory / "mock"),
            leading_query=False,  # mock documents begin with none
        )
        for split in task.splits:
            first = split == next(iter(task.splits))  # one is enough: they have the same fields
            for read in (documents, seqio_source.documents)[: 1 + first]:
                # Mock data counts as not prepared, and nobody has fetched files for it by hand.
                builders = tfds.core.DatasetBuilder
                prepared = mock.patch.object(builders, "is_prepared", return_value=True)
                with tfds.testing.mock_data(num_examples=2), prepared:
                    docs = list(read(task, split))
                needs_summary = task.objective == "summarize"
                if len(docs) != 2 or not all(
                    d.document and (d.summary or not needs_summary) for d in docs
                ):
                    return f"{key}, {split}: {docs}"
    return "texts"


def check_registry(directory: Path) -> dict:
    import seqio

    seqio.TaskRegistry.reset()
    import longsum_jax.data.seqio_tasks  # noqa: F401

    changed = get_task("c4", gap_sentences={"ratio": 0.3})
    return {
        "registered": sorted(seqio.TaskRegistry.names()),
        "piece_names": [
            seqio_source.seqio_name(get_task("c4", piece_words=n)) for n in (None, 20, 30)
        ],
        "names": [
            seqio_source.seqio_name(t) for t in (TASKS["c4"], get_task("c4", prefix="x"), changed)
        ],
    }


def check_missing(directory: Path) -> dict:
    result = {}
    for name, overrides in (
        ("missing", {"source": "tfds:no_such_set"}),
        ("no_field", {"source": "tfds:reports", "document_key": "documnt"}),
        ("uneven", {"source": "tfds:dialogues", "document_key": "speaker+utt+odd"}),
    ):
        task = task_of(directory, "c4", **overrides)
        try:
            result[name] = list(documents(task, "train"))
        except InputError as error:
            result[name] = str(error)
    return result


OWN_TASKS = """
import functools
import seqio
import tensorflow as tf

ROWS = {"reports": 6, "dialogues": 3}

def read(split, shuffle_files, seed=None, *, name):
    numbers = tf.data.Dataset.range(ROWS[name])
    text = tf.strings.as_string
    return numbers.map(lambda n: {"inputs": name + " " + text(n), "targets": "sum " + text(n)})

features = {
    name: seqio.Feature(seqio.ByteVocabulary(), add_eos=True) for name in ("inputs", "targets")
}
for name, preprocessors in (
    ("reports", [seqio.preprocessors.tokenize, seqio.preprocessors.append_eos]),
    ("dialogues", [functools.partial(seqio.preprocessors.tokenize, copy_pretokenized=False)]),
):
    source = seqio.FunctionDataSource(functools.partial(read, name=name), splits=["train"])
    seqio.TaskRegistry.add(
        f"own_{name}", source=source, preprocessors=preprocessors, output_features=features
    )
seqio.MixtureRegistry.add("own_mixture", [("own_reports", 2), ("own_dialogues", 1)])
"""


def check_registered(directory: Path) -> dict:
    """Tasks and a mixture of the user's own."""
    (directory / "own_seqio.py").write_text(OWN_TASKS, encoding="utf-8")
    sys.path.insert(0, str(directory))
    errors = {}
    for name, source, split in (
        ("not_imported", "own_reports", "train"),
        ("no_module", "no_such_module:own_reports", "train"),
        ("no_name", "own_seqio:own_report", "train"),
        ("no_split", "own_seqio:own_reports", "validation"),
    ):
        try:
            errors[name] = list(documents(get_task("summaries", source=f"seqio:{source}"), split))
        except InputError as error:
            errors[name] = str(error)

    def rows(source: str, start: int = 0) -> list:
        result = documents(get_task("summaries", source=source), "train", start)
        return [[row.id, row.document, row.summary] for row in result]

    mixture = "seqio:own_seqio:own_mixture"
    return {
        "own_errors": errors,
        "own_task": rows("seqio:own_seqio:own_reports"),
        "own_decoded": rows("seqio:own_seqio:own_dialogues"),
        "own_mixture": rows(mixture),
        "own_mixture_rest": rows(mixture, 7),
        "own_mix": rows("mix:2*seqio:own_seqio:own_reports+1*seqio:own_seqio:own_dialogues"),
    }


def check_devices(directory: Path) -> dict:
    import tensorflow as tf

    return {"devices": [device.device_type for device in tf.config.get_visible_devices()]}


def main() -> None:
    directory = Path(sys.argv[1])
    build(directory)
    answers = {}
    checks = (
        check_documents,
        check_batches,
        check_selection,
        check_pieces,
        check_cached_pieces,
        check_cache,
        check_export,
        check_builders,
        check_registry,
        check_missing,
        check_registered,
        check_devices,
    )
    for check in checks:
        answers |= check(directory)
    (directory / "answers.json").write_text(json.dumps(answers))
    os._exit(0)  # TensorFlow's threads are slow to go


if __name__ == "__main__":
    main()
