"""Predictions with their scores, for evaluation during training and the evaluate command."""

import hashlib
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.data.examples.summarization import with_target
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.evaluation.baselines import lead, random_sentences
from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.evaluation.rows_file import Row, RowsFile
from longsum_jax.files import json_text
from longsum_jax.summarization.stream import window_size
from longsum_jax.text.documents import DataRow, read_json_lines, split_row
from longsum_jax.text.joining import split_documents
from longsum_jax.text.ngrams import num_words
from longsum_jax.tokenizers.sentencepiece import break_lines

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model
    from longsum_jax.summarization.summary import BatchSize
    from longsum_jax.summarization.summary_options import SummaryOptions

Metrics = Mapping[str, Metric]  # metrics by name


class Pair(NamedTuple):
    """A document with its reference summary, and a query if the summary answers one.

    Attributes:
        id: id of the document.
        source: text of the document.
        reference: reference summary.
        query: query that the summary answers.
        other_references: additional references, for metrics with several
            references.
        borders: offsets in the source of all documents except the first, if it
            consists of several that are read as one.
    """

    id: str
    source: str
    reference: str
    query: str | None = None
    other_references: tuple[str, ...] = ()
    borders: tuple[int, ...] = ()

    @property
    def documents(self) -> str | list[str]:
        """The source, or the documents that it consists of."""
        if self.borders:
            return split_documents(self.source, self.borders)
        return self.source

    @property
    def references(self) -> tuple[str, ...]:
        """All reference summaries."""
        return (self.reference, *self.other_references)

    @property
    def content(self) -> str:
        """A short hash of all texts."""
        return _hash([self.source, self.query, self.references])


def _hash(values: Sequence[Any]) -> str:
    """Returns a short hash of JSON values."""
    text = json.dumps(values)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def read_pairs(
    paths: str | Path | Sequence[str | Path],
    *,
    document_key: str = "document",
    summary_key: str = "summary",
    query_key: str = "query",
    document_separator: str = "",
    require_document: bool = True,
    examples: int | None = None,
) -> dict[str, Pair]:
    """Reads documents with one or several reference summaries, by id.

    Args:
        paths: JSON lines files, as for ``text.documents.read_json_lines``.
        document_key, summary_key, query_key: fields of the rows.
        document_separator: text between documents that are read as one; "" for
            single documents.
        require_document: True if a row without a document is an error.
        examples: number of documents to read; None for all.

    Raises:
        InputError: invalid rows, or a duplicate id.
    """
    rows = read_json_lines(
        paths,
        document_key=document_key,
        summary_key=summary_key,
        query_key=query_key,
        require_document=require_document,
        several_summaries=True,
        list_separator=document_separator or "\n",
    )
    rows = (split_row(row, document_separator) for row in rows)
    return pairs_by_id(itertools.islice(rows, examples), str(paths))


def read_task_pairs(
    task: Task, split: str, examples: int | None = None
) -> tuple[list[Pair], int]:
    """Reads the documents of a task that have a summary.

    Args:
        task: task whose models write summaries.
        split: key of ``task.splits``.
        examples: number of documents to read; None for all.

    Returns:
        The documents with their summaries, and the number of documents without
        a text or a summary.

    Raises:
        InputError: as ``data.sources.documents``; a duplicate id, or no
            document with a summary.
    """
    num_incomplete = 0

    def complete() -> Iterator[DataRow]:
        nonlocal num_incomplete
        for document in documents(task, split):
            with_summary = with_target(task, document)
            if with_summary is None:
                num_incomplete += 1
            else:
                yield with_summary

    pairs = pairs_by_id(itertools.islice(complete(), examples), task.source)
    if not pairs:
        raise InputError(
            f'task "{task.name}": no document of split "{split}" has a summary; give another '
            "--split"
        )
    return list(pairs.values()), num_incomplete


def pairs_by_id(rows: Iterable[DataRow], name: str) -> dict[str, Pair]:
    """Returns documents with summaries as pairs, by id.

    Raises:
        InputError: a duplicate id; the message names the ``name`` of the
            documents.
    """
    pairs: dict[str, Pair] = {}
    for document in rows:
        if document.id in pairs:
            raise InputError(
                f'{name}: duplicate id "{document.id}"; give every row a different id'
            )
        pairs[document.id] = pair_of(document)
    return pairs


def pair_of(document: DataRow) -> Pair:
    """Returns a document with one or several summaries as a pair.

    `<n>` in summaries becomes a line break, as in predictions.
    """
    summary = document.summary
    if not isinstance(summary, tuple):
        summary = (document.only_summary,)
    first, *others = map(break_lines, summary)
    return Pair(
        document.id,
        document.document,
        first,
        document.query,
        tuple(others),
        document.borders or (),
    )


class PredictionsFile(RowsFile):
    """The file predictions.jsonl; an interrupted evaluation continues after the last row."""

    columns = ("id", "scores")
    kind = "a line of predictions"

    def check_content(self, pairs: Iterable[Pair]) -> None:
        """Raises InputError if the texts of an id have changed since its row was written."""
        rows = {row["id"]: row for row in self.rows}
        for pair in pairs:
            row = rows.get(pair.id, {})
            stored = (
                row.get("reference", pair.reference),
                row.get("content", pair.content),
            )
            if stored != (pair.reference, pair.content):
                raise InputError(
                    f'{self.path}: the document, query or reference of "{pair.id}" has changed '
                    "since it was summarized; give another --out"
                )

    def write_again(self) -> None:
        """Rewrites the file with the current rows.

        Raises:
            InputError: the file cannot be written; it is not changed.
        """
        try:
            with atomic.open_text(self.path) as file:
                for row in self.rows:
                    file.write(json_text(row) + "\n")
        except OSError as error:
            raise InputError(
                f"{self.path}: cannot be written again ({error.strerror}); free up space and start "
                "again, finished rows are kept"
            ) from error


def predict(
    model: "Model",
    pairs: Sequence[Pair],
    metrics: Metrics,
    options: "SummaryOptions",
    *,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Summarizes the source of every pair and scores the summary.

    With batches, the longest documents come first, so that a batch has
    documents of similar length; the model tokenizes ahead while it decodes.
    Rows are completed several batches at a time.

    Args:
        model: model that summarizes.
        pairs: documents with their references.
        metrics: metrics by name; metrics that are ``scored_last`` are left to
            ``score_last``.
        options: options of the summaries.
        on_row: callback with every finished row.

    Returns:
        The rows in the order of ``pairs``.
    """
    at_once = {
        name: metric
        for name, metric in metrics.items()
        if not metric.scored_last
    }
    rows: dict[int, Row] = {}
    window = window_size(options.batch_size)
    order = prediction_order(pairs, options.batch_size)
    for start in range(0, len(order), window):
        indices = order[start : start + window]
        batch = [pairs[i] for i in indices]
        began = time.perf_counter()
        summaries = model.summaries(
            [pair.documents for pair in batch],
            options,
            names=[f'document "{pair.id}"' for pair in batch],
            queries=[pair.query for pair in batch],
        )
        seconds = (time.perf_counter() - began) / len(batch)
        scores = example_scores(
            at_once, [summary.text for summary in summaries], batch
        )
        for i, pair, summary, values in zip(
            indices, batch, summaries, scores, strict=True
        ):
            row = {
                "id": pair.id,
                "prediction": summary.text,
                "reference": pair.reference,
                **(
                    {"references": pair.references}
                    if pair.other_references
                    else {}
                ),
                "content": pair.content,
                "scores": values,
                **summary.report(),
                "seconds": round(seconds, 4),
            }
            on_row(row)
            rows[i] = row
    return [rows[i] for i in range(len(pairs))]


def prediction_order(
    pairs: Sequence[Pair], batch_size: "BatchSize"
) -> list[int]:
    """Returns the indices of the pairs in the order in which ``predict`` reads them."""
    order = list(range(len(pairs)))
    if batch_size != 1:
        order.sort(key=lambda i: -len(pairs[i].source))
    return order


def _hash_of_documents(pairs: Sequence[Pair], metrics: Iterable[Metric]) -> str:
    """Returns a hash of all documents if a metric is ``scored_last``, otherwise ""."""
    if any(metric.scored_last for metric in metrics):
        return _hash([pair.content for pair in pairs])
    return ""


def unscored_rows(
    rows: Sequence[Row], pairs: Sequence[Pair], metrics: Metrics
) -> dict[str, list[int]]:
    """Returns the indices of the rows that metrics have yet to score, by name of the metric.

    A metric that is ``scored_last`` scores all rows, and again if the documents
    have changed, because its values may depend on all references.
    """
    documents = _hash_of_documents(pairs, metrics.values())
    unscored: dict[str, list[int]] = {}
    for name, metric in metrics.items():
        indices = [
            i
            for i, row in enumerate(rows)
            if not row["scores"].keys() >= set(metric.columns)
            or (
                metric.scored_last
                and row.get("scored_documents", {}).get(name) != documents
            )
        ]
        if indices and metric.scored_last:
            indices = list(range(len(rows)))
        if indices:
            unscored[name] = indices
    return unscored


def score_last(
    rows: Sequence[Row], pairs: Sequence[Pair], metrics: Metrics
) -> bool:
    """Adds the scores that rows lack, see ``unscored_rows``.

    Rows record the documents with which metrics that are ``scored_last`` scored
    them, as a hash under "scored_documents".

    Args:
        rows: all rows of the evaluation.
        pairs: pairs of the rows, in the same order.
        metrics: metrics by name.

    Returns:
        True if a row has changed; False if all rows already have all scores.

    Raises:
        InputError: a score that is not finite, or an error of a metric; rows
            are then unchanged.
    """
    unscored = unscored_rows(rows, pairs, metrics)
    if not unscored:
        return False
    scores_by_metric: dict[str, list[Scores]] = {}
    for name, indices in unscored.items():
        selected = [pairs[i] for i in indices]
        scores = example_scores(
            {name: metrics[name]},
            [rows[i]["prediction"] for i in indices],
            selected,
        )
        check_finite(scores, selected)
        scores_by_metric[name] = scores
    documents = _hash_of_documents(pairs, [metrics[name] for name in unscored])
    for name, scores in scores_by_metric.items():
        for i, values in zip(unscored[name], scores, strict=True):
            rows[i]["scores"] |= values
            if metrics[name].scored_last:
                rows[i].setdefault("scored_documents", {})[name] = documents
    return True


def check_finite(scores: Sequence[Scores], pairs: Sequence[Pair]) -> None:
    """Raises InputError for scores that are not finite."""
    for pair, values in zip(pairs, scores, strict=True):
        for column, value in values.items():
            if not math.isfinite(value):
                raise InputError(
                    f'{column} of "{pair.id}" is {value}; leave out the document '
                    "or correct the metric"
                )


def example_scores(
    metrics: Metrics, predictions: Sequence[str], pairs: Sequence[Pair]
) -> list[Scores]:
    """Returns one dictionary for each prediction, with its scores by all metrics.

    With several references, metrics that use references combine the scores of
    all of them.
    """
    scores: list[Scores] = [{} for _ in pairs]
    for metric in metrics.values():
        metric_scores = _scores_by(metric, predictions, pairs)
        for values, more in zip(scores, metric_scores, strict=True):
            values.update(more)
    return scores


def _scores_by(
    metric: Metric, predictions: Sequence[str], pairs: Sequence[Pair]
) -> list[Scores]:
    if not metric.reads_references or not any(
        pair.other_references for pair in pairs
    ):
        references, sources = _texts(pairs)
        return metric.score(predictions, references, sources)
    rows = [
        (prediction, reference, pair.source)
        for prediction, pair in zip(predictions, pairs, strict=True)
        for reference in pair.references
    ]
    scores = iter(metric.score(*map(list, zip(*rows, strict=True))))
    return [
        metric.over_references(
            list(itertools.islice(scores, len(pair.references)))
        )
        for pair in pairs
    ]


def corpus_scores(
    metrics: Metrics,
    scores: Sequence[Scores],
    predictions: Sequence[str],
    pairs: Sequence[Pair],
) -> Scores:
    """Returns corpus-level values of all metrics.

    Args:
        metrics: metrics by name.
        scores: scores of every prediction, from ``example_scores``.
        predictions: predicted summaries.
        pairs: their documents and references.
    """
    references, sources = _texts(pairs)
    values: Scores = {}
    for metric in metrics.values():
        columns = [
            {key: example[key] for key in metric.columns} for example in scores
        ]
        values |= metric.corpus_values(
            columns, predictions, references, sources
        )
    return values


def _texts(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Returns references and sources."""
    references = [pair.reference for pair in pairs]
    sources = [pair.source for pair in pairs]
    return references, sources


def summary_of(
    rows: Sequence[Row], pairs: Sequence[Pair], metrics: Metrics
) -> dict[str, Any]:
    """Returns scores, lengths and throughput over all rows.

    Args:
        rows: rows from ``predict``.
        pairs: pairs of the rows, in the same order.
        metrics: metrics by name.
    """
    lengths = [row["summary_tokens"] for row in rows]
    seconds = _total(rows, "seconds")
    read_tokens = _total(rows, "read_tokens")
    scores = [row["scores"] for row in rows]
    predictions = [row["prediction"] for row in rows]
    return {
        "examples": len(rows),
        "scores": corpus_scores(metrics, scores, predictions, pairs),
        "summary_tokens": {
            "mean": round(statistics.fmean(lengths), 1),
            "min": min(lengths),
            "max": max(lengths),
        },
        "ended_by_limit": sum(row["ended"] == "limit" for row in rows),
        "document_tokens": _total(rows, "document_tokens"),
        "read_tokens": read_tokens,
        "dropped_tokens": _total(rows, "dropped_tokens"),
        "seconds": round(seconds, 2),
        "documents_per_second": round(len(rows) / max(seconds, 1e-9), 3),
        "read_tokens_per_second": round(read_tokens / max(seconds, 1e-9), 1),
    }


def _total(rows: Sequence[Row], name: str) -> Any:
    return sum(row[name] for row in rows)


def baseline_predictions(
    pairs: Sequence[Pair], *, seed: int = 0
) -> dict[str, list[str]]:
    """Returns the lead and random sentences of every document, as baselines.

    Their length is the average length of the references in words.

    Args:
        pairs: documents with their references.
        seed: random seed of the random sentences.

    Returns:
        {"lead": texts, "random": texts}, in the order of ``pairs``.
    """
    lengths = [num_words(pair.reference) for pair in pairs]
    words = max(1, round(statistics.fmean(lengths)))
    leads = []
    selections = []
    for i, pair in enumerate(pairs):
        leads.append(lead(pair.source, num_words=words))
        selections.append(
            random_sentences(pair.source, num_words=words, seed=(seed, i))
        )
    return {"lead": leads, "random": selections}


def baseline_scores(
    pairs: Sequence[Pair], metrics: Metrics, *, seed: int = 0
) -> dict[str, Scores]:
    """Returns the scores of ``baseline_predictions`` by name.

    Args:
        pairs: documents with their references.
        metrics: metrics by name.
        seed: random seed of the random sentences.
    """
    values = {}
    for name, texts in baseline_predictions(pairs, seed=seed).items():
        scores = example_scores(metrics, texts, pairs)
        values[name] = corpus_scores(metrics, scores, texts, pairs)
    return values
