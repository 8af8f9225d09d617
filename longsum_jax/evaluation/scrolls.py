"""The released data sets of SCROLLS and ZeroSCROLLS, and their metrics.

Sources: Shaham et al., 2022; Shaham et al., 2023, section 3.3. A release is
TASK.zip with TASK/SPLIT.jsonl, rows of id, pid, input and output. Rows with the
same id are one example with several correct outputs. A submission is one CSV of
predictions for all tasks.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import (
    OnMissing,
    Prediction,
    common_documents,
    read_predictions,
)
from longsum_jax.evaluation.predictions import (
    Pair,
    corpus_scores,
    example_scores,
)
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.rouge import SCROLLS_TYPES
from longsum_jax.files import (
    DAMAGED_ZIP,
    bounded_lines,
    open_regular,
    parse_json,
)
from longsum_jax.schema import first_names
from longsum_jax.text.documents import replace_half_characters
from longsum_jax.text.rows import MAX_BYTES, read_rows

Row = dict[str, Any]


class ScrollsTask(NamedTuple):
    """The metric that scores a data set.

    Attributes:
        metric: a name in ``registry.METRICS``.
        column: column of the metric that is the score of the data set.
        options: options of the metric.
    """

    metric: str
    column: str
    options: dict[str, Any]


_ROUGE = ScrollsTask(
    "rouge",
    "geometric_rouge",
    {"types": list(SCROLLS_TYPES), "tokenizer": "default"},
)
_F1 = ScrollsTask("answers", "answer_f1", {})
_EXACT = ScrollsTask("answers", "exact_match", {})
SCROLLS_TASKS = {
    "gov_report": _ROUGE,
    "summ_screen_fd": _ROUGE,
    "qmsum": _ROUGE,
    "narrative_qa": _F1,
    "qasper": _F1,
    "quality": _EXACT,
    "contract_nli": _EXACT,
}
_ASCII_F1 = ScrollsTask("answers", "answer_f1", {"strip_accents": True})
ZERO_SCROLLS_TASKS = {
    "gov_report": _ROUGE,
    "summ_screen_fd": _ROUGE,
    "qmsum": _ROUGE,
    "squality": _ROUGE,
    "qasper": _ASCII_F1,
    "narrative_qa": _ASCII_F1,
    "quality": ScrollsTask("choice", "choice_accuracy", {}),
    "musique": _ASCII_F1,
    "space_digest": ScrollsTask("percentage", "exp_similarity", {}),
    "book_sum_sort": ScrollsTask("ordering", "concordance_index", {}),
}
Tasks = Mapping[str, ScrollsTask]
SUITES: Mapping[str, Tasks] = {
    "scrolls": SCROLLS_TASKS,
    "zero_scrolls": ZERO_SCROLLS_TASKS,
}
_TEXTS = ("id", "input", "output")
SUBMISSION_COLUMNS = ("Task", "ID", "Prediction")


def read_scrolls(
    path: str | Path, split: str = "validation"
) -> dict[str, Pair]:
    """Reads inputs and outputs of a data set by id.

    Args:
        path: released zip file, directory with SPLIT.jsonl, or JSON lines file.
        split: split in a zip file or a directory.

    Raises:
        InputError: no such split, invalid rows, or outputs that are not
            released, as for the test sets.
    """
    pairs: dict[str, Pair] = {}
    for where, row in _rows(Path(path), split):
        for key in _TEXTS:
            if not isinstance(row.get(key), str):
                if key == "output":
                    hint = ", which test sets lack"
                else:
                    hint = ""
                raise InputError(
                    f'{where}: no text under "{key}"{hint}; give another --split'
                )
        name, source, output = (
            replace_half_characters(row[key]) for key in _TEXTS
        )
        if name in pairs:
            others = (*pairs[name].other_references, output)
            pairs[name] = pairs[name]._replace(other_references=others)
        else:
            pairs[name] = Pair(name, source, output)
    return pairs


def read_ids(path: str | Path, split: str = "test") -> list[str]:
    """Reads the ids of a data set, in their order; outputs need not be released.

    Args:
        path: path, as for ``read_scrolls``.
        split: split in a zip file or a directory.

    Raises:
        InputError: no such split, or a row without id.
    """
    ids: dict[str, None] = {}
    for where, row in _rows(Path(path), split):
        if not isinstance(row.get("id"), str):
            raise InputError(
                f'{where}: no text under "id"; fetch the file again'
            )
        ids[replace_half_characters(row["id"])] = None
    return list(ids)


def read_all_predictions(
    directory: str | Path,
    tasks: Tasks = SCROLLS_TASKS,
    *,
    prediction_key: str = "prediction",
) -> dict[str, dict[str, Prediction]]:
    """Reads TASK.json or TASK.jsonl of every task from a directory, by task and id.

    Args:
        directory: directory with one file for each task.
        tasks: tasks of a suite.
        prediction_key: field of the prediction in JSON lines.

    Raises:
        InputError: a task has no file or two, or a file is invalid for
            ``read_predictions``.
    """
    predictions = {}
    for task in tasks:
        path = _task_file(Path(directory), task, (".json", ".jsonl"))
        predictions[task] = read_predictions(
            path, prediction_key=prediction_key
        )
    return predictions


def release_of(directory: str | Path, task: str) -> Path:
    """Returns TASK.zip or the directory TASK in a directory of releases.

    Raises:
        InputError: neither or both exist.
    """
    return _task_file(Path(directory), task, (".zip", ""))


def score_task(
    task: str,
    predictions: Mapping[str, Prediction],
    pairs: Mapping[str, Pair],
    on_missing: OnMissing = "error",
    *,
    tasks: Tasks = SCROLLS_TASKS,
) -> float:
    """Scores the predictions of a data set with its official metric, from 0 to 100.

    Args:
        task: a name in ``tasks``.
        predictions: predictions by id.
        pairs: inputs and outputs by id.
        on_missing: "error" to raise for ids without predictions, "skip" to
            leave them out.
        tasks: tasks of a suite.

    Raises:
        InputError: the ids differ.
    """
    name, column, options = tasks[task]
    metrics = make_metrics([name], {name: options})
    selected = common_documents(pairs, {task: predictions}, on_missing)
    texts = [predictions[pair.id].text for pair in selected]
    scores = example_scores(metrics, texts, selected)
    return corpus_scores(metrics, scores, texts, selected)[column]


def write_submission(
    path: Path,
    predictions: Mapping[str, Mapping[str, Prediction]],
    ids: Mapping[str, list[str]] | None = None,
    *,
    tasks: Tasks = SCROLLS_TASKS,
) -> int:
    """Writes a submission CSV for either suite: Task, ID, Prediction; verifies that it parses back.

    Args:
        path: path of the CSV.
        predictions: predictions by task and id, for all tasks.
        ids: ids of the submitted split, by task; None to skip the check.
        tasks: tasks of a suite.

    Returns:
        The number of rows.

    Raises:
        InputError: a task is missing, ids differ from ``ids``, or a text does
            not survive CSV.
        OSError: the file cannot be written.
    """
    absent = [task for task in tasks if task not in predictions]
    if absent:
        raise InputError(
            f"no predictions of {first_names(absent)}; a submission needs all tasks"
        )
    for task, expected in (ids or {}).items():
        _check_ids(task, predictions[task], expected)
    rows = [
        (task, name, prediction.text)
        for task in tasks
        for name, prediction in predictions[task].items()
    ]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(SUBMISSION_COLUMNS)
    writer.writerows(rows)
    _check_csv(text.getvalue(), rows)
    atomic.write_text(path, text.getvalue())
    return len(rows)


def _check_ids(
    task: str, predictions: Mapping[str, Prediction], expected: list[str]
) -> None:
    missing = [name for name in expected if name not in predictions]
    expected_set = set(expected)
    unknown = [name for name in predictions if name not in expected_set]
    for names, problem in (
        (missing, "have no prediction"),
        (unknown, "are not of this split"),
    ):
        if names:
            raise InputError(
                f"{task}: {len(names)} ids {problem}, {first_names(names)}; give predictions of "
                f"all {len(expected)} examples"
            )


def _check_csv(text: str, rows: list[tuple[str, str, str]]) -> None:
    """Raises InputError unless parsing the CSV returns the same rows."""
    try:
        head, *lines = csv.reader(io.StringIO(text, newline=""))
    except csv.Error as error:
        raise InputError(
            f"the predictions cannot be stored as CSV ({error}); correct them"
        ) from error
    for expected, row in zip(rows, lines, strict=False):
        task, name, _ = expected
        if tuple(row) != expected:
            raise InputError(
                f'{task}: the prediction of "{name}" changes if stored as CSV; correct it'
            )
    if tuple(head) != SUBMISSION_COLUMNS or len(lines) != len(rows):
        raise InputError(
            "the predictions change if stored as CSV; look for control characters"
        )


def _task_file(directory: Path, task: str, suffixes: tuple[str, ...]) -> Path:
    paths = [directory / f"{task}{suffix}" for suffix in suffixes]
    existing = [path for path in paths if path.exists()]
    if len(existing) != 1:
        number = "no" if not existing else "both"
        raise InputError(
            f"{directory}: {number} {' or '.join(path.name for path in paths)}; give one for each "
            "task, or score one task by its name"
        )
    return existing[0]


def _rows(path: Path, split: str) -> Iterator[tuple[str, Row]]:
    """Yields every row with its location."""
    if path.suffix == ".zip":
        yield from _zipped_rows(path, split)
        return
    file = path
    if path.is_dir():
        file = path / f"{split}.jsonl"
        if file.exists():
            open_regular(file).close()  # raises for a pipe, which would block
    for number, row in read_rows(file):
        yield f"{file}:{number}", row


def _zipped_rows(path: Path, split: str) -> Iterator[tuple[str, Row]]:
    try:
        with (
            open_regular(path) as packed_file,
            zipfile.ZipFile(packed_file) as archive,
        ):
            names = [
                name for name in archive.namelist() if name.endswith(".jsonl")
            ]
            matches = [
                name for name in names if Path(name).name == f"{split}.jsonl"
            ]
            if len(matches) != 1:
                raise InputError(
                    f"{path}: no {split}.jsonl inside, only {', '.join(names) or 'other files'}; "
                    "give another --split"
                )
            name, packed = f"{path}/{matches[0]}", path.stat().st_size
            with archive.open(matches[0]) as file:
                lines = bounded_lines(
                    io.BufferedReader(cast(io.RawIOBase, file)),
                    name,
                    max_bytes=MAX_BYTES,
                    packed=packed,
                )
                for number, line in lines:
                    yield f"{name}:{number}", _parsed(line, f"{name}:{number}")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, *DAMAGED_ZIP) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); fetch it again"
        ) from error


def _parsed(line: bytes, where: str) -> Row:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise InputError(
            f"{where}: not valid JSON ({error}); fetch the file again"
        ) from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a JSON object; fetch the file again")
    return row
