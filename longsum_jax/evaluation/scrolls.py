"""The data sets of SCROLLS (Shaham et al., 2022) as they are released, and their metrics.

A release is TASK.zip with TASK/SPLIT.jsonl, rows of id, pid, input and output. Rows with the same
id are one example with several right outputs.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.evaluation.rouge import SCROLLS_TYPES
from longsum_jax.text.documents import read_json_objects

Row = dict[str, Any]


class ScrollsTask(NamedTuple):
    """How a data set is scored.

    Attributes:
        metric: a name in ``registry.METRICS``.
        column: of the metric, the one number of the data set.
        options: of the metric.
    """

    metric: str
    column: str
    options: dict[str, Any]


_ROUGE = ScrollsTask("rouge", "geometric_rouge", {"types": list(SCROLLS_TYPES)})
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


def read_scrolls(path: str | Path, split: str = "validation") -> dict[str, Pair]:
    """Reads inputs and outputs of a data set by id.

    Args:
        path: the released zip, a directory with SPLIT.jsonl, or a file of JSON lines.
        split: of a zip or a directory.

    Raises:
        InputError: no such split, rows that do not fit, or outputs that were not released, as those
            of the test sets.
    """
    pairs: dict[str, Pair] = {}
    for where, row in _rows(Path(path), split):
        for key in ("id", "input", "output"):
            if not isinstance(row.get(key), str):
                hint = "; test sets have none" if key == "output" else ""
                raise InputError(f'{where}: no text under "{key}"{hint}; give another --split')
        name = row["id"]
        if name in pairs:
            others = (*pairs[name].other_references, row["output"])
            pairs[name] = pairs[name]._replace(other_references=others)
        else:
            pairs[name] = Pair(name, row["input"], row["output"])
    return pairs


def _rows(path: Path, split: str) -> Iterator[tuple[str, Row]]:
    """Yields every row with the place where it stands."""
    if path.suffix == ".zip":
        yield from _zipped_rows(path, split)
        return
    file = path / f"{split}.jsonl" if path.is_dir() else path
    for number, row in read_json_objects(file):
        yield f"{file}:{number}", row


def _zipped_rows(path: Path, split: str) -> Iterator[tuple[str, Row]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith(".jsonl")]
            chosen = [name for name in names if Path(name).name == f"{split}.jsonl"]
            if len(chosen) != 1:
                raise InputError(
                    f"{path}: no {split}.jsonl inside, only {', '.join(names) or 'other files'}; "
                    "give another --split"
                )
            with archive.open(chosen[0]) as lines:
                for number, line in enumerate(lines, 1):
                    where = f"{path}/{chosen[0]}:{number}"
                    yield where, _parsed(line, where)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read ({error}); fetch it again") from error


def _parsed(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON ({error}); fetch the file again") from None
    if not isinstance(row, dict):
        raise InputError(f"{where}: not a JSON object; fetch the file again")
    return row
