"""One way to the documents of every task, wherever they lie."""

import hashlib
from collections.abc import Iterator

from longsum_jax.data.pieces import in_pieces
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import Document, read_json_lines


def documents(task: Task, split: str) -> Iterator[Document]:
    """Yields the documents of a split, every time the same ones in the same order; their pieces
    with ``piece_words``.

    Documents of gap-sentence tasks have no summary, unless they come from a seqio pipeline that has
    selected the sentences already.

    Raises:
        InputError: unknown split, or data that is missing or malformed (names file and line).
    """
    source_split = task.source_split(split)
    scheme, _, place = task.source.partition(":")
    if scheme == "tfds":
        from longsum_jax.data import seqio_source  # needs the extra "data"

        return seqio_source.documents(task, split)
    embedded = scheme == "embedded"
    docs = (
        _embedded_documents(source_split)
        if embedded
        else _json_documents(task, place, source_split)
    )
    return docs if task.piece_words is None else in_pieces(docs, task.piece_words)


def _embedded_documents(split: str) -> Iterator[Document]:
    """The language documentation of the running Python; a tenth of it, by hash, is for
    validation."""
    from pydoc_data.topics import topics

    by_hash = sorted(topics, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    held_out = set(by_hash[-(len(by_hash) // 10) :])
    for name in sorted(topics):
        if (name in held_out) == (split == "validation"):
            # A label for runs that only show that everything works: what kind of page it is.
            label = "statement" if "statement" in topics[name].partition("\n")[0] else "other"
            yield Document(
                id=f"pydoc:{name}", document=topics[name], summary=None, query=None, label=label
            )


def _json_documents(task: Task, place: str, split: str) -> Iterator[Document]:
    docs = read_json_lines(
        place.replace("{split}", split),
        document_key=task.document_key,
        summary_key=task.summary_key if task.needs_summary else "",  # a key that no row has
        query_key=task.query_key or "",
        id_key=task.id_key or "",
        label_key=task.label_key if task.objective == "classify" else "",
        require_summary=task.needs_summary,
    )
    if not task.holds_out:
        return docs
    return (
        document
        for document in docs
        if _is_held_out(document.id, task.held_out) != (split == "train")
    )


def _is_held_out(name: str, share: float) -> bool:
    """Whether the document of this id is not for training: a fixed draw, wherever in the file it
    stands."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) < share * 2**64
