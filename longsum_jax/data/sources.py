"""One way to the documents of every task, whatever the source."""

import hashlib
import logging
from collections.abc import Iterable, Iterator

from longsum_jax.data.derived import with_claims, with_cloze_questions
from longsum_jax.data.govreport import read_govreport
from longsum_jax.data.minutes import minutes
from longsum_jax.data.pieces import in_pieces
from longsum_jax.data.qmsum import read_qmsum
from longsum_jax.data.tasks import RELEASES, Task
from longsum_jax.errors import InputError, counted
from longsum_jax.text.claims import ClaimOptions
from longsum_jax.text.cloze import ClozeOptions
from longsum_jax.text.documents import Document, find_files, read_json_lines
from longsum_jax.text.gap_sentences import GapSentenceOptions, gap_sentence_texts


def documents(task: Task, split: str) -> Iterator[Document]:
    """Yields the documents of a split, or their pieces, always the same ones in the same order.

    Documents of gap-sentence tasks have no summary, unless they come from a seqio cache, for which
    the sentences were selected before. Those of "claims" and "cloze" are made by rules, see
    ``derived``.

    Args:
        task: its ``source`` and ``cache_dir`` say where to read; with ``piece_words`` long
            documents are cut.
        split: a key of ``task.splits``.

    Raises:
        InputError: unknown split, or data that is missing or malformed (names file and line), or
            of which nothing is left for training.
    """
    source_split = task.source_split(split)
    docs = _read(task, split, source_split)
    if task.leading_query:
        docs = map(_split_query, docs)
    if task.objective == "claims":
        return _checked(task, split, with_claims(docs, task.claims or ClaimOptions()))
    if task.objective == "cloze":
        summarized = _with_summaries(docs, task.gap_sentences)
        questions = with_cloze_questions(summarized, task.cloze or ClozeOptions())
        return _checked(task, split, questions)
    return docs


def _read(task: Task, split: str, source_split: str) -> Iterator[Document]:
    scheme, _, place = task.source.partition(":")
    if scheme == "tfds" and task.cache_dir is not None:
        from longsum_jax.data import seqio_source  # needs the extra "data"

        return seqio_source.documents(task, split)  # in pieces already
    if scheme == "tfds":
        from longsum_jax.data import tfds_source  # needs the extra "data"

        docs = tfds_source.documents(task, split)
    elif scheme == "parquet":
        from longsum_jax.data import parquet_source  # needs the extra "data"

        docs = _hold_out(task, split, parquet_source.documents(task, split))
    elif scheme == "embedded":
        docs = _embedded_documents(source_split)
    elif scheme == "minutes":
        _refuse_labels(task)
        docs = minutes(source_split)
    elif scheme in RELEASES:
        docs = _released_documents(task, split)
    else:
        docs = _hold_out(task, split, _json_documents(task, place, source_split))
    if task.half and split == "train":
        docs = _take_half(task, docs)
    return docs if task.piece_words is None else in_pieces(docs, task.piece_words)


def _checked(task: Task, split: str, made: Iterator[Document]) -> Iterator[Document]:
    """Yields documents that rules made; InputError where they made none for training."""
    problem = (
        f'{task.source}: the rules of objective "{task.objective}" find no names, dates or '
        "numbers to ask for; give documents in English that have some"
    )
    return _some_for_training(split, made, problem)


def _some_for_training(split: str, docs: Iterator[Document], problem: str) -> Iterator[Document]:
    """Yields documents; InputError with ``problem`` where there are none to train on."""
    is_empty = True
    for document in docs:
        is_empty = False
        yield document
    if is_empty and split == "train":
        raise InputError(problem)


def _with_summaries(docs: Iterable[Document], options: GapSentenceOptions) -> Iterator[Document]:
    """Yields documents that have a summary, and others in two: gap sentences, and the rest."""
    for document in docs:
        if document.summary is not None:
            yield document
        elif (texts := gap_sentence_texts(document.document, options)) is not None:
            source, target = texts
            yield document._replace(document=source, summary=target)


def _split_query(document: Document) -> Document:
    """Returns a document whose text begins with its query as two texts."""
    query, blank_line, text = document.document.partition("\n\n")
    if not blank_line or not query.strip() or not text.strip():
        raise InputError(
            f'document "{document.id}" has no blank line between a query and a text, which '
            "leading_query=true asks for; give leading_query=false, or query_key for a field of "
            "its own"
        )
    return document._replace(document=text.lstrip("\n"), query=query)


def _embedded_documents(split: str) -> Iterator[Document]:
    """Yields the language documentation of the running Python.

    A tenth of it, chosen by hash, is for validation.
    """
    from pydoc_data.topics import topics

    by_hash = sorted(topics, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    held_out = set(by_hash[-(len(by_hash) // 10) :])
    for name in sorted(topics):
        if (name in held_out) == (split == "validation"):
            text = topics[name]
            title = text.partition("\n")[0]
            # A label and a rejected summary for runs that only show that everything works.
            label = "statement" if "statement" in title else "other"
            choices = ("statement", "other")
            yield Document(f"pydoc:{name}", text, None, None, label, choices, title)


def _refuse_labels(task: Task) -> None:
    if task.needs_label:
        raise InputError(
            f'task "{task.name}": {task.source} has summaries but no labels, which '
            f'objective="{task.objective}" needs; give another source or objective'
        )


def _released_documents(task: Task, split: str) -> Iterator[Document]:
    """Yields the documents of a release, and logs how many entries cannot be read.

    Raises:
        InputError: the release is missing, or none of its entries can be read, or the task needs
            labels.
    """
    scheme, _, directory = task.source.partition(":")
    _refuse_labels(task)
    read = {"govreport": read_govreport, "qmsum": read_qmsum}[scheme]
    unreadable: list[InputError] = []
    count = 0
    try:
        for document in read(directory, split, unreadable=unreadable):
            count += 1
            yield document if task.needs_summary else document._replace(summary=None)
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


def _json_documents(task: Task, place: str, split: str) -> Iterator[Document]:
    try:
        paths = find_files(place.replace("{split}", split))
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
        choices_key=task.choices_key if task.objective == "choose" else "",
        rejected_key=task.rejected_key if task.objective == "prefer" else "",
        require_summary=task.needs_summary,
    )


def _hold_out(task: Task, split: str, docs: Iterator[Document]) -> Iterator[Document]:
    """Returns the share of the documents that belongs to ``split``.

    Raises:
        InputError: nothing is left for training, as of a few documents, or of many with one id.
    """
    if not task.holds_out:
        return docs
    for_training = split == "train"
    share = (
        document for document in docs if _is_held_out(document.id, task.held_out) != for_training
    )
    problem = (
        f"{task.source}: every document is held out for evaluation, a draw of "
        f"task.held_out={task.held_out} by their ids; give more documents, each with an id of "
        'its own, or "{split}" in the names of the files'
    )
    return _some_for_training(split, share, problem)


def _is_held_out(document_id: str, share: float) -> bool:
    """Tells whether a document is not for training: a draw that depends on its id alone."""
    return int.from_bytes(hashlib.sha256(document_id.encode()).digest()[:8]) < share * 2**64


def _take_half(task: Task, docs: Iterator[Document]) -> Iterator[Document]:
    """Returns the half of the training documents that ``task.half`` names.

    Raises:
        InputError: no document belongs to that half.
    """
    in_first = task.half == "first"
    half = (document for document in docs if _is_in_first_half(document.id) == in_first)
    problem = (
        f"{task.source}: no training document belongs to task.half={task.half}, a draw by the "
        "documents' ids; give more documents, each with a different id"
    )
    return _some_for_training("train", half, problem)


def _is_in_first_half(document_id: str) -> bool:
    """Returns True for half of all ids; the draw is independent of ``_is_held_out``."""
    return hashlib.sha256(f"half {document_id}".encode()).digest()[0] < 128
