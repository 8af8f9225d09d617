"""seqio: caches of TFDS data sets, and tasks and mixtures that users registered.

TFDS data sets are seqio Tasks for caches written by ``seqio_cache_tasks`` on a
cluster. Without a cache, the same documents are read by ``tfds_source``, which
does not need seqio. TensorFlow and seqio are imported inside the functions.
"""

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

from longsum_jax.data.mixture import mix
from longsum_jax.data.records import check_fields, to_document
from longsum_jax.data.tasks import TASKS, Task
from longsum_jax.data.tfds_source import (
    cannot_open,
    default_id,
    keep_tensorflow_off_accelerators,
    not_installed,
    tfds_name,
)
from longsum_jax.errors import InputError, did_you_mean, first_line
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import gap_sentence_texts, in_pieces
from longsum_jax.text.rows import DOCUMENT_NAMES, SUMMARY_NAMES, choose_keys

SCHEME = "seqio"
FIELDS = ("id", "document", "summary", "query")
# Features of users' tasks that are the document and the summary, in the order
# of preference. seqio stores the texts of tokenized features under the former.
_INPUTS = ("inputs_pretokenized", "inputs")
_TARGETS = ("targets_pretokenized", "targets")


def documents(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents (or pieces) of a seqio Task in its fixed order, unshuffled.

    Reads the cache in ``task.cache_dir``; without one, runs the pipeline on the
    data set. The first ``start`` documents are left out.

    Raises:
        InputError: TensorFlow is not installed, or TFDS cannot load the data
            set.
    """
    has_summary = task.needs_summary or selects_before_cache(task)
    records = _open(task, split).skip(start).as_numpy_iterator()
    for number, record in enumerate(records, start):
        texts = {field: record[field].decode("utf-8") for field in FIELDS}
        yield DataRow(
            id=texts["id"] or f"{task.name}/{split}:{number}",
            document=texts["document"],
            summary=texts["summary"] if has_summary else None,
            query=texts["query"] or None,
        )


def registered_documents(
    task: Task, split: str, start: int = 0
) -> Iterator[DataRow]:
    """Yields the documents of a Task or Mixture that a user registered with seqio.

    A Task is read in its order, unshuffled. The Tasks of a Mixture are mixed at
    its rates by ``data.mixture``; outside of training, each document occurs
    once. The document is the feature "inputs" and the summary "targets", unless
    the task names others; token ids are decoded by the feature's vocabulary,
    unless seqio has kept the text.

    Args:
        task: task whose source is "seqio:NAME" or "seqio:MODULE:NAME"; the
            module registers the name on import.
        split: key of ``task.splits``.
        start: number of documents to leave out; of a mixture, at once.

    Raises:
        InputError: seqio is not installed, the module cannot be imported, or no
            such name, split or field is registered.
    """
    seqio = import_seqio()
    provider = _registered(task.source)
    source_split = task.source_split(split)
    if source_split not in provider.splits:
        raise InputError(
            f'{task.source} has no split "{source_split}"; '
            f"{did_you_mean(source_split, provider.splits)}"
        )
    if not isinstance(provider, seqio.Mixture):
        yield from _of_registered(task, split, provider, start)
        return
    members = [one for one in provider.tasks if source_split in one.splits]
    readers = [partial(_of_registered, task, split, one) for one in members]
    rates = [Fraction(provider.get_rate(one)) for one in members]
    yield from mix(readers, rates, start=start, repeats=split == "train")


def _registered(source: str) -> Any:
    """Returns the Task or Mixture of a source "seqio:[MODULE:]NAME"."""
    seqio = import_seqio()
    module, _, name = source.removeprefix(f"{SCHEME}:").rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # the module is the user's
            remedy = "correct it"
            if isinstance(error, ModuleNotFoundError):
                remedy = "install it, or add its folder to PYTHONPATH"
            raise InputError(
                f'{source}: the module "{module}" cannot be imported ({type(error).__name__}: '
                f"{first_line(error)}); {remedy}"
            ) from error
    names = {*seqio.MixtureRegistry.names(), *seqio.TaskRegistry.names()}
    if name not in names:
        guess = f"; {did_you_mean(name, names)}" if names else ""
        if module:
            problem = f'the module "{module}" registers no seqio task or mixture "{name}"'
            remedy = "register it there, with seqio.TaskRegistry.add"
        else:
            problem = f'no seqio task or mixture "{name}" is registered'
            remedy = (
                f"name the module that does so, {SCHEME}:package.module:{name}"
            )
        raise InputError(f"{source}: {problem}; {remedy}{guess}")
    return seqio.get_mixture_or_task(name)


def _of_registered(
    task: Task, split: str, provider: Any, start: int
) -> Iterator[DataRow]:
    """Yields the documents of a registered Task from ``start`` on."""
    try:
        dataset = provider.get_dataset(
            sequence_length=None,
            split=task.source_split(split),
            use_cached=False,
            shuffle=False,
            num_epochs=1,
        )
    except Exception as error:  # the preprocessors are the user's
        raise InputError(
            f'{task.source}: the seqio task "{provider.name}" cannot be read '
            f"({first_line(error)}); correct the task"
        ) from error
    task = _with_usual_features(task, dataset.element_spec, provider.name)
    records = dataset.skip(start).as_numpy_iterator()
    for number, record in enumerate(records, start):
        document = to_document(task, _texts(record, provider.output_features))
        name = document.id or f"{provider.name}/{split}:{number}"
        yield document._replace(id=name)


def _with_usual_features(
    task: Task, features: Mapping[str, Any], name: str
) -> Task:
    """Returns the task with the features of usual names; InputError if there are none."""
    document_key = choose_keys(
        features,
        task.document_key,
        (DOCUMENT_NAMES[0], *_INPUTS, *DOCUMENT_NAMES[1:]),
        name,
    )
    summary_key = task.summary_key
    if task.needs_summary:
        summary_key = choose_keys(
            features,
            summary_key,
            (SUMMARY_NAMES[0], *_TARGETS, *SUMMARY_NAMES[1:]),
            name,
        )
    task = dataclasses.replace(
        task, document_key=document_key, summary_key=summary_key
    )
    required = dataclasses.replace(task, id_key=None, query_key=None)
    check_fields(required, features)
    return task


def _texts(
    record: Mapping[str, Any], features: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a record with decoded texts instead of token ids."""
    return {
        name: features[name].vocabulary.decode(value.tolist())
        if name in features and getattr(value, "dtype", None) == "int32"
        else value
        for name, value in record.items()
    }


def register(task: Task) -> str:
    """Registers the seqio Task of ``task`` with seqio, once, and returns its name.

    Its examples are texts: id, document, summary, query. Costly work that does
    not need a tokenizer, pieces and gap sentences, precedes the cache
    placeholder, so that ``seqio_cache_tasks`` runs it on a cluster.
    """
    seqio = import_seqio()
    name = seqio_name(task)
    if name in seqio.TaskRegistry.names():
        return name
    preprocessors = [_reader(task)]
    if task.piece_words is not None:
        preprocessors.append(_cutter(task, task.piece_words))
    if selects_before_cache(task):
        preprocessors.append(_selector(task))
    text = seqio.Feature(
        seqio.PassThroughVocabulary(size=1),
        add_eos=False,
        dtype=_string_type(),
        rank=0,
    )
    seqio.TaskRegistry.add(
        name,
        source=seqio.TfdsDataSource(
            tfds_name=tfds_name(task),
            tfds_data_dir=task.data_dir,
            splits=dict(task.splits),
        ),
        preprocessors=[*preprocessors, seqio.CacheDatasetPlaceholder()],
        output_features=dict.fromkeys(FIELDS, text),
    )
    return name


def seqio_name(task: Task) -> str:
    """Returns longsum_jax_NAME; a modified task gets a hash suffix, so that caches never mix."""
    name = f"longsum_jax_{task.name}"
    if _content(task) == _content(TASKS.get(task.name)):
        return name
    content = json.dumps(_content(task), sort_keys=True)
    return f"{name}_{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def selects_before_cache(task: Task) -> bool:
    """Returns True if the seqio Task selects the gap sentences.

    Random selection is deferred, because it depends on the run's seed.
    """
    return (
        task.base_objective == "gap_sentences"
        and task.gap_sentences.strategy != "random"
    )


def import_seqio() -> Any:
    """Returns seqio, with TensorFlow prevented from using the accelerators, which JAX uses."""
    try:
        import seqio

        keep_tensorflow_off_accelerators()
    except ImportError as error:
        raise not_installed(error.name) from error
    return seqio


def _open(task: Task, split: str) -> Any:
    seqio = import_seqio()
    if task.cache_dir is not None:
        seqio.add_global_cache_dirs([task.cache_dir])
        # unused, and not in the cache's name
        task = dataclasses.replace(task, data_dir=None)
    try:
        return seqio.get_mixture_or_task(register(task)).get_dataset(
            sequence_length=None,
            split=split,
            use_cached=task.cache_dir is not None,
            shuffle=False,
            num_epochs=1,
            try_in_mem_cache=False,
        )
    except Exception as error:  # TFDS raises any exception of its downloaders
        raise cannot_open(task, split, error) from error


def _content(task: Task | None) -> dict[str, Any] | None:
    """Returns the options that determine the texts of the seqio Task."""
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
    if task.base_objective == "gap_sentences":
        content["gap_sentences"] = dataclasses.asdict(task.gap_sentences)
        content["piece_words"] = task.piece_words
    return content | {"splits": dict(task.splits)}


def _string_type() -> Any:
    import tensorflow as tf

    return tf.string


def _reader(task: Task) -> Any:
    """Returns the preprocessor that renames a TFDS record's fields to ``FIELDS``."""
    import tensorflow as tf

    keys = {
        "id": task.id_key,
        "document": task.document_key,
        "query": task.query_key,
    }
    if task.needs_summary:
        keys["summary"] = task.summary_key

    def text(record: dict[str, Any], key: str | None) -> Any:
        if not key:
            return tf.constant("")
        if "+" in key:
            value = tf.strings.join(
                [record[name] for name in key.split("+")], ": "
            )
        else:
            value = record[key]
        if value.dtype != tf.string:  # a numeric id
            value = tf.strings.as_string(value)
        return (
            value
            if value.shape.rank == 0
            else tf.strings.reduce_join(value, separator="\n")
        )

    def read(record: dict[str, Any]) -> dict[str, Any]:
        return {field: text(record, keys.get(field)) for field in FIELDS}

    return lambda dataset: dataset.map(read)


def _cutter(task: Task, piece_words: int) -> Any:
    """Returns the preprocessor that replaces each document by its pieces."""
    import numpy as np
    import tensorflow as tf

    def cut(name: bytes, text: bytes) -> tuple[Any, Any]:
        document_text = text.decode("utf-8")
        document_id = name.decode("utf-8") or default_id(
            task, "", 0, document_text
        )
        document = DataRow(document_id, document_text, None, None)
        pieces = list(in_pieces([document], piece_words))
        ids = [piece.id.encode() for piece in pieces]
        texts = [piece.document.encode() for piece in pieces]
        return np.array(ids, object), np.array(texts, object)

    def cut_record(
        record: dict[str, Any],
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        ids, texts = tf.numpy_function(
            cut,
            [record["id"], record["document"]],
            [tf.string] * 2,
            stateful=False,
        )
        columns = {
            "id": tf.ensure_shape(ids, [None]),
            "document": tf.ensure_shape(texts, [None]),
        }
        return record, columns

    def spread(record: dict[str, Any], columns: dict[str, Any]) -> Any:
        return tf.data.Dataset.from_tensor_slices(columns).map(
            lambda piece: record | piece
        )

    def preprocess(dataset: Any) -> Any:
        cut_records = dataset.map(
            cut_record, num_parallel_calls=tf.data.AUTOTUNE
        )
        return cut_records.flat_map(spread)

    return preprocess


def _selector(task: Task) -> Any:
    """Returns the preprocessor that makes the source and target of gap sentences."""
    import tensorflow as tf

    def select(text: bytes) -> tuple[bytes, bytes]:
        document = text.decode("utf-8")
        texts = gap_sentence_texts(document, task.gap_sentences)
        # an empty target marks it as too short
        source, target = texts or (document, "")
        return source.encode(), target.encode()

    def select_record(record: dict[str, Any]) -> dict[str, Any]:
        # numpy_function, not py_function: only the former allows saving an
        # iterator's position.
        source, target = tf.numpy_function(
            select, [record["document"]], [tf.string] * 2, stateful=False
        )
        return record | {
            "document": tf.ensure_shape(source, []),
            "summary": tf.ensure_shape(target, []),
        }

    return lambda dataset: dataset.map(
        select_record, num_parallel_calls=tf.data.AUTOTUNE
    )
