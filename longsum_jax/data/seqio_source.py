"""TFDS data sets through seqio Tasks. Everything of TensorFlow is imported inside the functions."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from longsum_jax.data.pieces import in_pieces
from longsum_jax.data.tasks import TASKS, Task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document

FIELDS = ("id", "document", "summary", "query")


def documents(task: Task, split: str) -> Iterator[Document]:
    """Yields the documents (or pieces) of a TFDS-backed task in TFDS's own fixed order, unshuffled.

    Reads what ``seqio_cache_tasks`` wrote where the task names a ``cache_dir``.

    Raises:
        InputError: TensorFlow is not installed, or TFDS cannot give the data set.
    """
    dataset = _open(task, split)
    for number, record in enumerate(dataset.as_numpy_iterator()):
        texts = {field: record[field].decode("utf-8") for field in FIELDS}
        has_summary = task.needs_summary or selects_before_cache(task)
        yield Document(
            id=texts["id"] or f"{task.name}/{split}:{number}",
            document=texts["document"],
            summary=texts["summary"] if has_summary else None,
            query=texts["query"] or None,
        )


def register(task: Task) -> str:
    """Adds the seqio Task of ``task`` to seqio's registry, once, and returns its name.

    Its examples are texts: id, document, summary, query. What is costly and needs no tokenizer,
    pieces and gap sentences, comes before the cache placeholder, so that ``seqio_cache_tasks`` does
    it on a cluster.
    """
    seqio = import_seqio()
    name = seqio_name(task)
    if name in seqio.TaskRegistry.names():
        return name
    text = seqio.Feature(
        seqio.PassThroughVocabulary(size=1), add_eos=False, dtype=_string_type(), rank=0
    )
    cutting = [] if task.piece_words is None else [_cutter(task)]
    selection = [_selector(task)] if selects_before_cache(task) else []
    seqio.TaskRegistry.add(
        name,
        source=seqio.TfdsDataSource(
            tfds_name=_tfds_name(task),
            tfds_data_dir=task.data_dir,
            splits=dict(task.splits),
        ),
        preprocessors=[_reader(task), *cutting, *selection, seqio.CacheDatasetPlaceholder()],
        output_features=dict.fromkeys(FIELDS, text),
    )
    return name


def seqio_name(task: Task) -> str:
    """Returns longsum_jax_NAME; a changed task gets a name of its own, so that caches never mix."""
    changed = _content(task) != _content(TASKS.get(task.name))
    digest = hashlib.sha256(json.dumps(_content(task), sort_keys=True).encode()).hexdigest()[:8]
    return f"longsum_jax_{task.name}" + (f"_{digest}" if changed else "")


def selects_before_cache(task: Task) -> bool:
    """Whether the seqio Task selects the gap sentences; a random choice waits for the run's
    seed."""
    return task.objective == "gap_sentences" and task.gap_sentences.strategy != "random"


def import_seqio() -> Any:
    """Returns seqio, with TensorFlow kept away from the accelerators, which are JAX's."""
    try:
        import seqio
        import tensorflow as tf
    except ImportError as error:
        raise InputError(
            f'TFDS data sets need {error.name}: pip install "longsum_jax[data]", or read JSON lines (source=json:...)'
        ) from error
    with contextlib.suppress(RuntimeError):  # TensorFlow is running already: too late, and not ours
        for kind in ("GPU", "TPU"):
            tf.config.set_visible_devices([], kind)
    return seqio


def _open(task: Task, split: str) -> Any:
    seqio = import_seqio()
    if task.cache_dir is not None:
        seqio.add_global_cache_dirs([task.cache_dir])
        task = dataclasses.replace(task, data_dir=None)  # not read, and no part of the cache's name
    try:
        return seqio.get_mixture_or_task(register(task)).get_dataset(
            sequence_length=None,
            split=split,
            use_cached=task.cache_dir is not None,
            shuffle=False,
            num_epochs=1,
            try_in_mem_cache=False,
        )
    except Exception as error:  # TFDS raises whatever its downloaders do
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        place = task.data_dir or "the default TFDS directory"
        raise InputError(
            f'cannot open split "{split}" of {task.source} in {place}: {reason}; '
            "prepare it with `tfds build` or read JSON lines (source=json:...)"
        ) from error


def _tfds_name(task: Task) -> str:
    """Returns the name with a version, which seqio asks for: the newest where the task names
    none."""
    name = task.source.removeprefix("tfds:")
    return name if ":" in name else f"{name}:*.*.*"


def _content(task: Task | None) -> dict[str, Any] | None:
    """What decides which texts the seqio Task gives."""
    if task is None:
        return None
    keys = (
        "source",
        "splits",
        "document_key",
        "summary_key",
        "query_key",
        "id_key",
        "objective",
        "data_dir",
    )
    content = {key: getattr(task, key) for key in keys}
    if task.objective == "gap_sentences":
        content |= {
            "gap_sentences": dataclasses.asdict(task.gap_sentences),
            "piece_words": task.piece_words,
        }
    return content | {"splits": dict(task.splits)}


def _string_type() -> Any:
    import tensorflow as tf

    return tf.string


def _reader(task: Task) -> Any:
    """Returns the preprocessor that renames a TFDS record's fields to ``FIELDS``."""
    import tensorflow as tf

    keys = {"id": task.id_key, "document": task.document_key, "query": task.query_key}
    if task.needs_summary:
        keys["summary"] = task.summary_key

    def text(record: dict, key: str | None) -> Any:
        if not key:
            return tf.constant("")
        value = (
            record[key]
            if "+" not in key
            else tf.strings.join([record[k] for k in key.split("+")], ": ")
        )
        if value.dtype != tf.string:  # a number as id
            value = tf.strings.as_string(value)
        return value if value.shape.rank == 0 else tf.strings.reduce_join(value, separator="\n")

    def read(dataset: Any) -> Any:
        return dataset.map(
            lambda record: {field: text(record, keys.get(field)) for field in FIELDS}
        )

    return read


def _cutter(task: Task) -> Any:
    """Returns the preprocessor that replaces each document by its pieces.

    A document without an id is named by its content: Beam caches records in any order, so that
    counting them would not give the same ids everywhere.
    """
    import numpy as np
    import tensorflow as tf

    def cut(name: bytes, text: bytes) -> tuple[Any, Any]:
        name = name.decode("utf-8") or f"{task.name}:{hashlib.sha256(text).hexdigest()[:16]}"
        found = list(
            in_pieces([Document(name, text.decode("utf-8"), None, None)], task.piece_words)
        )
        ids, texts = (
            [piece.id.encode() for piece in found],
            [piece.document.encode() for piece in found],
        )
        return np.array(ids, object), np.array(texts, object)

    def pieces(record: dict) -> tuple[dict, dict]:
        ids, texts = tf.numpy_function(
            cut, [record["id"], record["document"]], [tf.string] * 2, stateful=False
        )
        return record, {
            "id": tf.ensure_shape(ids, [None]),
            "document": tf.ensure_shape(texts, [None]),
        }

    def spread(record: dict, columns: dict) -> Any:
        return tf.data.Dataset.from_tensor_slices(columns).map(lambda piece: record | piece)

    return lambda dataset: dataset.map(pieces, num_parallel_calls=tf.data.AUTOTUNE).flat_map(spread)


def _selector(task: Task) -> Any:
    """Returns the preprocessor that puts source and target of the gap-sentence objective in
    place."""
    import tensorflow as tf

    from longsum_jax.data.examples.summarization import select_gap_sentences

    def select(text: bytes) -> tuple[bytes, bytes]:
        found = select_gap_sentences(task, text.decode("utf-8"))
        source, target = found or (text.decode("utf-8"), "")  # an empty target says: too short
        return source.encode(), target.encode()

    def apply(record: dict) -> dict:
        # numpy_function, not py_function: only the former lets an iterator's position be saved.
        source, target = tf.numpy_function(
            select, [record["document"]], [tf.string] * 2, stateful=False
        )
        return record | {
            "document": tf.ensure_shape(source, []),
            "summary": tf.ensure_shape(target, []),
        }

    return lambda dataset: dataset.map(apply, num_parallel_calls=tf.data.AUTOTUNE)
