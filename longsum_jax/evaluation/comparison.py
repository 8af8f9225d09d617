"""Prediction files of arbitrary systems, scored on the same documents and compared."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from longsum_jax import checksums
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.predictions import (
    Metrics,
    Pair,
    check_finite,
    corpus_scores,
    example_scores,
)
from longsum_jax.evaluation.significance import (
    ROUNDS,
    TESTS,
    Statistic,
    bootstrap_intervals,
    holm,
    percentile_interval,
    resampled_differences,
    smallest_difference,
)
from longsum_jax.files import parse_json
from longsum_jax.schema import first_names
from longsum_jax.text.documents import read_text_file, replace_half_characters
from longsum_jax.text.rows import read_rows
from longsum_jax.tokenizers.sentencepiece import break_lines

OnMissing = Literal["error", "skip"]


class Prediction(NamedTuple):
    """One row of a prediction file, with its references, if any."""

    text: str
    references: tuple[str, ...] = ()


class System(NamedTuple):
    """The predictions of one system for all documents, with their scores.

    Attributes:
        name: name of the system.
        predictions: predictions in the order of the documents.
        scores: scores of every document.
        values: scores of the whole data set.
        intervals: column -> bounds of its confidence interval.
    """

    name: str
    predictions: list[str]
    scores: list[Scores]
    values: Scores
    intervals: dict[str, tuple[float, float]]


class Difference(NamedTuple):
    """The difference of two systems in one column, with its significance.

    Attributes:
        difference: value of the compared system minus value of the other one.
        low, high: bounds of its confidence interval.
        p_value: p-value of the null hypothesis of equal systems, adjusted for
            the number of other systems (Holm).
        smallest: smallest difference that this many documents detect with a
            power of 0.8.
    """

    difference: float
    low: float
    high: float
    p_value: float
    smallest: float


class Sampling(NamedTuple):
    """Resampling options of intervals and tests.

    Attributes:
        test: a name in ``significance.TESTS``.
        rounds: number of rounds of tests and intervals.
        level: share of resamples inside an interval.
        seed: random seed of the rounds.
    """

    test: str = "randomization"
    rounds: int = ROUNDS
    level: float = 0.95
    seed: int = 0


def read_predictions(
    path: str | Path, *, prediction_key: str = "prediction"
) -> dict[str, Prediction]:
    """Reads predictions, which may be empty, by id.

    Lone surrogates become U+FFFD, and `<n>`, which PEGASUS and others write for
    a line break, becomes one, as in the output of the models here.

    Files are JSON lines with an id and a prediction. References are read from
    "references", a list, or "reference", if a row has them. A file named .json
    is one object of predictions by id, as in SCROLLS. If the directory has
    SHA256SUMS, the file is verified first.

    Args:
        path: path of the file.
        prediction_key: field of the prediction; for several comma-separated
            fields, the first one that a row has.

    Raises:
        InputError: a row without id or prediction, a duplicate id, or a file
            that does not match its checksum.
    """
    checksums.check(Path(path).parent, lambda name: name == Path(path).name)
    if Path(path).suffix == ".json":
        return _read_object(path)
    keys = prediction_key.split(",")
    predictions: dict[str, Prediction] = {}
    for number, row in read_rows(path):
        where = f"{path}:{number}"
        text_key = next((key for key in keys if key in row), keys[0])
        for key in ("id", text_key):
            if not isinstance(row.get(key), str | int) or isinstance(
                row[key], bool
            ):
                names = ", ".join(sorted(row)) or "nothing"
                if key in row:
                    what = f"but {json.dumps(row[key])[:80]}"
                else:
                    what = f"only {names}"
                raise InputError(
                    f'{where}: no text under "{key}", {what}; write rows '
                    f'{{"id": ..., "{text_key}": ...}} or give --prediction_key'
                )
        name = replace_half_characters(str(row["id"]))
        if name in predictions:
            raise InputError(
                f'{where}: duplicate id "{name}"; keep one of the rows'
            )
        predictions[name] = Prediction(
            _text(str(row[text_key])), _references(row, where)
        )
    return predictions


def _read_object(path: str | Path) -> dict[str, Prediction]:
    def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(items)
        if len(content) < len(items):
            [(name, _), *_] = Counter(name for name, _ in items).most_common(1)
            raise InputError(
                f'{path}: duplicate id "{name}"; keep one of its predictions'
            )
        return content

    try:
        values = parse_json(read_text_file(path), object_pairs_hook=once)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{path}: not valid JSON ({error}); give an object of texts"
        ) from None
    if not isinstance(values, dict) or not all(
        isinstance(text, str) for text in values.values()
    ):
        raise InputError(
            f'{path}: give an object of texts, {{"id": "prediction", ...}}'
        )
    return {
        replace_half_characters(name): Prediction(_text(text))
        for name, text in values.items()
    }


def _references(row: dict[str, Any], where: str) -> tuple[str, ...]:
    references = row.get("references")
    # Cells of tables may be empty.
    if references in (None, [], ""):
        reference = row.get("reference")
        references = [] if reference is None else [reference]
    if not isinstance(references, list) or not all(
        isinstance(text, str) for text in references
    ):
        raise InputError(
            f'{where}: "references" must be a list of texts, not '
            f"{json.dumps(references, default=str)[:80]}; correct the row"
        )
    return tuple(map(_text, references))


def _text(text: str) -> str:
    """Returns a prediction or reference with whole characters and real line breaks."""
    return break_lines(replace_half_characters(text))


def own_references(
    predictions: Mapping[str, Prediction], path: str | Path
) -> dict[str, Pair]:
    """Returns the references contained in a prediction file, without documents.

    Raises:
        InputError: a row without references.
    """
    pairs = {}
    for name, prediction in predictions.items():
        if not prediction.references:
            raise InputError(
                f'{path}: the prediction of "{name}" has no "reference"; give '
                "--references=FILE"
            )
        first, *others = prediction.references
        pairs[name] = Pair(name, "", first, None, tuple(others))
    return pairs


def common_documents(
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
    on_missing: OnMissing = "error",
) -> list[Pair]:
    """Returns the documents for which every system has a prediction, in their order.

    Args:
        pairs: documents with references, by id.
        systems: predictions by id, by system name.
        on_missing: "error" to raise for ids that are missing in a file, "skip"
            to leave them out.

    Raises:
        InputError: the ids differ, or no document remains.
    """
    for name, predictions in systems.items():
        if on_missing == "skip":
            continue
        for ids, others, what in (
            (predictions, pairs, "references"),
            (pairs, predictions, "predictions"),
        ):
            absent = [
                document_id for document_id in ids if document_id not in others
            ]
            if absent:
                raise InputError(
                    f"{name}: {len(absent)} of {len(ids)} ids have no {what}, "
                    f"{first_names(absent)}; give files of the same documents, or --on_missing=skip"
                )
    common = set(pairs).intersection(*systems.values())
    selected = [pair for name, pair in pairs.items() if name in common]
    if not selected:
        raise InputError(
            f"no id is in all of the files: {first_names(list(pairs), 2)} among references, "
            f"{first_names(list(next(iter(systems.values()))), 2)} among predictions"
        )
    return selected


def score_system(
    name: str,
    predictions: Mapping[str, Prediction],
    pairs: Sequence[Pair],
    metrics: Metrics,
    sampling: Sampling,
) -> System:
    """Scores the predictions of one system.

    Args:
        name: name of the system.
        predictions: predictions by id.
        pairs: documents with references; each has a prediction.
        metrics: metrics by name.
        sampling: sampling options of the intervals.

    Raises:
        InputError: a score that is not finite.
    """
    texts = [predictions[pair.id].text for pair in pairs]
    scores = example_scores(metrics, texts, pairs)
    try:
        check_finite(scores, pairs)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    values = corpus_scores(metrics, scores, texts, pairs)
    return System(
        name, texts, scores, values, intervals(metrics, scores, sampling)
    )


def intervals(
    metrics: Metrics, scores: Sequence[Scores], sampling: Sampling
) -> dict[str, tuple[float, float]]:
    """Returns the confidence intervals of all columns.

    Metrics whose values are not functions of means over documents have no
    intervals.
    """
    columns = _columns(metrics)
    if not columns:
        return {}
    ends = bootstrap_intervals(
        _table(scores, columns),
        level=sampling.level,
        rounds=sampling.rounds,
        seed=sampling.seed,
        statistic=_statistic(metrics),
    )
    return dict(zip(columns, zip(*ends.tolist(), strict=True), strict=True))


def compare(
    system: System,
    others: Sequence[System],
    metrics: Metrics,
    sampling: Sampling,
) -> dict[str, dict[str, Difference]]:
    """Compares a system with others on the same documents.

    Args:
        system: compared system, from which the others are subtracted; result
            of ``score_system``.
        others: systems scored on the same documents.
        metrics: metrics with which the systems were scored.
        sampling: test, rounds, level and seed.

    Returns:
        Name of the other system -> column -> difference, for columns that have
        intervals (``Metric.is_function_of_means``).

    Raises:
        InputError: an unknown test.
    """
    if sampling.test not in TESTS:
        raise InputError(
            f'test "{sampling.test}" is unknown; {did_you_mean(sampling.test, TESTS)}'
        )
    columns = _columns(metrics)
    if not columns or not others:
        return {}
    draws: dict[str, Any] = {
        "rounds": sampling.rounds,
        "seed": sampling.seed,
        "statistic": _statistic(metrics),
    }
    values = _table(system.scores, columns)
    tables = [_table(other.scores, columns) for other in others]
    p_values = holm(
        np.stack(
            [TESTS[sampling.test](values, table, **draws) for table in tables]
        )
    )
    differences = {}
    for other, table, row in zip(
        others, tables, p_values.tolist(), strict=True
    ):
        resampled = resampled_differences(values, table, **draws)
        low, high = percentile_interval(resampled, sampling.level).tolist()
        smallest = smallest_difference(resampled.std(0)).tolist()
        differences[other.name] = {
            column: Difference(
                system.values[column] - other.values[column], *numbers
            )
            for column, *numbers in zip(
                columns, low, high, row, smallest, strict=True
            )
        }
    return differences


def _columns(metrics: Metrics) -> tuple[str, ...]:
    """Returns the columns of all metrics whose values are functions of means over documents."""
    selected = [
        metric for metric in metrics.values() if metric.is_function_of_means
    ]
    return tuple(name for metric in selected for name in metric.columns)


def _statistic(metrics: Metrics) -> Statistic:
    """Returns the function from means to values, for the columns of ``_columns``."""
    columns = _columns(metrics)

    def statistic(means: np.ndarray) -> np.ndarray:
        by_column = dict(zip(columns, np.moveaxis(means, -1, 0), strict=True))
        values: dict[str, np.ndarray] = {}
        for metric in metrics.values():
            if metric.is_function_of_means:
                values |= metric.from_means(
                    {name: by_column[name] for name in metric.columns}
                )
        return np.stack([values[name] for name in columns], -1)

    return statistic


def _table(scores: Sequence[Scores], columns: Sequence[str]) -> np.ndarray:
    """Returns scores as float64 [documents, columns]."""
    return np.array(
        [[values[column] for column in columns] for values in scores]
    )
