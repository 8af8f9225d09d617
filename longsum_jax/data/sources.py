"""Reads the documents of every task, from any source."""

import functools
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import islice

from longsum_jax.data.derived import DERIVED
from longsum_jax.data.mixture import SCHEME as MIXTURE
from longsum_jax.data.mixture import mix
from longsum_jax.data.tasks import RELEASES, Task, mixture_parts
from longsum_jax.errors import InputError, counted
from longsum_jax.lazy_classes import LazyClasses
from longsum_jax.text.documents import (
    DataRow,
    find_files,
    read_json_lines,
    split_row,
)
from longsum_jax.text.gap_sentences import in_pieces

_PACKAGE = "longsum_jax.data"

# Functions that read sources from any document on, by scheme; all need extras.
_SEEKABLE: LazyClasses[Callable[[Task, str, int], Iterator[DataRow]]] = (
    LazyClasses(
        {
            "seqio": f"{_PACKAGE}.seqio_source:registered_documents",
            "tfds": f"{_PACKAGE}.tfds_source:documents",
            "parquet": f"{_PACKAGE}.parquet_source:documents",
            "hf": f"{_PACKAGE}.hub_source:documents",
        }
    )
)
# Functions that read a split of other sources, by scheme.
_READERS: LazyClasses[Callable[..., Iterator[DataRow]]] = LazyClasses(
    {
        "cache": f"{_PACKAGE}.seqio_source:documents",
        "minutes": f"{_PACKAGE}.minutes:minutes",
        "govreport": f"{_PACKAGE}.govreport:read_govreport",
        "qmsum": f"{_PACKAGE}.qmsum:read_qmsum",
    }
)
# Documents of which duplicate ids are counted, a bound on the memory for them.
_MAX_CHECKED = 10**6


def documents(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents of a split, or their pieces, in a fixed order.

    Documents of gap-sentence tasks have no summary, unless they come from a
    seqio cache, for which the sentences were already selected. Documents of
    "claims" and "cloze" are derived by rules, see ``derived``.

    Args:
        task: task, whose ``source`` and ``cache_dir`` locate the data; with
            ``piece_words``, long documents are cut.
        split: key of ``task.splits``.
        start: number of documents (or pieces) to skip. Sources with random
            access, and mixtures, skip them immediately; others read them.

    Raises:
        InputError: an unknown split, missing or malformed data (the message
            names file and line), or no documents left for training.
    """
    task.source_split(split)  # raises for an unknown split
    if task.base_objective in DERIVED:
        derived = DERIVED[task.base_objective](_read(task, split), task)
        return islice(_checked(task, split, derived), start, None)
    return _read(task, split, start)


def _read(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents of a source, or of a mixture, from ``start`` on."""
    if task.source.startswith(f"{MIXTURE}:"):
        return _mixed(task, split, start)
    is_cached = task.cache_dir is not None and task.source.startswith("tfds:")
    is_filtered = task.holds_out or (task.half and split == "train")
    first = start
    if is_filtered or (task.piece_words is not None and not is_cached):
        # The source has other positions than its selected documents and pieces.
        first = 0
    docs: Iterator[DataRow] = islice(
        _read_source(task, split, first), start - first, None
    )
    if task.leading_query:
        docs = map(_split_query, docs)
    if task.document_separator:
        docs = (split_row(row, task.document_separator) for row in docs)
    return docs


def _mixed(task: Task, split: str, start: int) -> Iterator[DataRow]:
    """Yields the documents of a mixture; outside of training, each of them once."""
    rates: list[Fraction] = []
    readers = []
    for rate, part in mixture_parts(task):
        part.source_split(split)  # raises for an unknown split
        rates.append(rate)
        readers.append(functools.partial(_read, part, split))
    return mix(readers, rates, start=start, repeats=split == "train")


def _read_source(task: Task, split: str, start: int) -> Iterator[DataRow]:
    """Yields the documents of a single source."""
    source_split = task.source_split(split)
    scheme, _, location = task.source.partition(":")
    # documents that the source leaves out by itself
    num_skipped = start if scheme in _SEEKABLE else 0
    if scheme == "tfds" and task.cache_dir is not None:
        # already cut into pieces
        return _READERS["cache"](task, split, start)
    if scheme in _SEEKABLE:
        docs = _SEEKABLE[scheme](task, split, start)
        if scheme == "parquet":
            docs = _hold_out(task, split, docs)
    elif scheme == "embedded":
        docs = _embedded_documents(source_split)
    elif scheme == "minutes":
        _refuse_labels(task)
        docs = _READERS["minutes"](source_split)
    elif scheme in RELEASES:
        docs = _released_documents(task, split)
    else:
        docs = _hold_out(
            task, split, _json_documents(task, location, source_split)
        )
    if task.half and split == "train":
        docs = _take_half(task, docs)
    docs = (
        islice(docs, start - num_skipped, None)
        if start
        else _counted_oddities(task, split, docs)
    )
    return (
        docs if task.piece_words is None else in_pieces(docs, task.piece_words)
    )


def _counted_oddities(
    task: Task, split: str, docs: Iterable[DataRow]
) -> Iterator[DataRow]:
    """Yields documents; logs once per process how many are odd, after the last one.

    Odd are ids that an earlier document has (among the first
    ``_MAX_CHECKED``), and summaries that are longer than their documents.
    """
    ids: set[int] = set()
    num_duplicates = num_longer = 0
    for document in docs:
        if len(ids) < _MAX_CHECKED:
            code = hash(document.id)
            num_duplicates += code in ids
            ids.add(code)
        summary = document.summary
        num_longer += isinstance(summary, str) and (
            len(summary) > len(document.document)
        )
        yield document
    if num_duplicates or num_longer:
        _log_oddities(task.source, split, num_duplicates, num_longer)


@functools.cache
def _log_oddities(
    source: str, split: str, num_duplicates: int, num_longer: int
) -> None:
    """Logs the numbers once per process."""
    oddities = []
    if num_duplicates:
        oddities.append(
            f"{counted(num_duplicates, 'document')} with the id of an earlier one"
        )
    if num_longer:
        oddities.append(
            f"{counted(num_longer, 'summary')} longer than the document"
        )
    logging.getLogger(__name__).warning(
        '%s: split "%s" has %s', source, split, " and ".join(oddities)
    )


def _checked(
    task: Task, split: str, made: Iterator[DataRow]
) -> Iterator[DataRow]:
    """Yields documents generated by rules; InputError if there are none for training."""
    problem = (
        f'{task.source}: the rules of objective "{task.objective}" find no names, dates or '
        "numbers to ask for; give English documents that contain some"
    )
    return _some_for_training(split, made, problem)


def _some_for_training(
    split: str, docs: Iterator[DataRow], problem: str
) -> Iterator[DataRow]:
    """Yields documents; InputError with ``problem`` if there are none for training."""
    is_empty = True
    for document in docs:
        is_empty = False
        yield document
    if is_empty and split == "train":
        raise InputError(problem)


def _split_query(document: DataRow) -> DataRow:
    """Returns a document whose text begins with its query, split into both."""
    query, blank_line, text = document.document.partition("\n\n")
    if not blank_line or not query.strip() or not text.strip():
        raise InputError(
            f'document "{document.id}" has no blank line between a query and a text, which '
            "leading_query=true requires; give leading_query=false, or name the field of the "
            "query with query_key"
        )
    return document._replace(document=text.lstrip("\n"), query=query)


def _embedded_documents(split: str) -> Iterator[DataRow]:
    """Yields the language documentation of the running Python.

    One tenth of it, selected by hash, is for validation.
    """
    from pydoc_data.topics import topics

    by_hash = sorted(
        topics, key=lambda name: hashlib.sha256(name.encode()).hexdigest()
    )
    held_out = set(by_hash[-(len(by_hash) // 10) :])
    for name in sorted(topics):
        if (name in held_out) == (split == "validation"):
            text = topics[name]
            title = text.partition("\n")[0]
            # Label and rejected summary for runs that only demonstrate that
            # everything works.
            label = "statement" if "statement" in title else "other"
            choices = ("statement", "other")
            yield DataRow(
                f"pydoc:{name}", text, None, None, label, choices, title
            )


def _refuse_labels(task: Task) -> None:
    if task.needs_label:
        raise InputError(
            f'task "{task.name}": {task.source} has summaries but no labels, which '
            f'objective="{task.objective}" needs; give another source or objective'
        )


def _released_documents(task: Task, split: str) -> Iterator[DataRow]:
    """Yields the documents of a release, and logs the number of unreadable entries.

    Raises:
        InputError: the release is missing, none of its entries can be read, or
            the task needs labels.
    """
    scheme, _, directory = task.source.partition(":")
    _refuse_labels(task)
    unreadable: list[InputError] = []
    count = 0
    try:
        for document in _READERS[scheme](
            directory, split, unreadable=unreadable
        ):
            count += 1
            yield (
                document
                if task.needs_summary
                else document._replace(summary=None)
            )
    except InputError as error:
        raise InputError(
            f'{error}, or name the directory of the release: task.source="{scheme}:DIR" '
            f"(commands: --source={scheme}:DIR)"
        ) from None
    if unreadable and not count:
        raise unreadable[0]
    if unreadable:
        logging.getLogger(__name__).warning(
            '%s: split "%s" has %s; entries left out as unreadable: %d; the first: %s',
            task.source,
            split,
            counted(count, "document"),
            len(unreadable),
            unreadable[0],
        )


def _json_documents(task: Task, pattern: str, split: str) -> Iterator[DataRow]:
    try:
        paths = find_files(pattern.replace("{split}", split))
    except InputError as error:
        raise InputError(
            f"{error}, or give another as task.source (configs for your own documents: data=)"
        ) from None
    return read_json_lines(
        paths,
        document_key=task.document_key,
        summary_key=task.summary_key if task.needs_summary else "",
        query_key=task.query_key or "",
        id_key=task.id_key or "",
        label_key=task.label_key if task.needs_label else "",
        choices_key=task.choices_key if task.base_objective == "choose" else "",
        rejected_key=task.rejected_key
        if task.base_objective == "prefer"
        else "",
        require_summary=task.needs_summary,
        list_separator=task.document_separator or "\n",
    )


def _hold_out(
    task: Task, split: str, docs: Iterator[DataRow]
) -> Iterator[DataRow]:
    """Returns the share of the documents that belongs to ``split``.

    Raises:
        InputError: no documents remain for training, as for a few documents, or
            for many with the same id.
    """
    if not task.holds_out:
        return docs
    for_training = split == "train"
    share = (
        document
        for document in docs
        if _is_held_out(document.id, task.held_out) != for_training
    )
    problem = (
        f"{task.source}: every document is held out for evaluation, a draw of "
        f"task.held_out={task.held_out} by their ids; give more documents, each with a "
        'different id, or "{split}" in the names of the files'
    )
    return _some_for_training(split, share, problem)


def _is_held_out(document_id: str, share: float) -> bool:
    """Returns True if a document is held out: a random choice that depends only on its id."""
    return (
        int.from_bytes(hashlib.sha256(document_id.encode()).digest()[:8])
        < share * 2**64
    )


def _take_half(task: Task, docs: Iterator[DataRow]) -> Iterator[DataRow]:
    """Returns the half of the training documents selected by ``task.half``.

    Raises:
        InputError: no document belongs to that half.
    """
    in_first = task.half == "first"
    half = (
        document
        for document in docs
        if _is_in_first_half(document.id) == in_first
    )
    problem = (
        f"{task.source}: no training document belongs to task.half={task.half}, a draw by the "
        "documents' ids; give more documents, each with a different id"
    )
    return _some_for_training("train", half, problem)


def _is_in_first_half(document_id: str) -> bool:
    """Returns True for half of all ids; the draw is independent of ``_is_held_out``."""
    return hashlib.sha256(f"half {document_id}".encode()).digest()[0] < 128
