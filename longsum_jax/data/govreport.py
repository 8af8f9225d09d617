"""Reads GovReport as released (Huang et al. 2021): reports of two offices, with nested sections.

    gov-report/split_ids/{crs,gao}_{train,valid,test}.ids     an id a line
    gov-report/crs/ID.json   "reports": a section, "summary": paragraphs
    gov-report/gao/ID.json   "report": sections, "highlight": sections

A section has "section_title", "paragraphs" and "subsections".
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document, read_text_file

# Names of splits to those of the release.
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
# Offices to the keys of report and summary.
OFFICES = {"crs": ("reports", "summary"), "gao": ("report", "highlight")}


def read_govreport(
    directory: str | Path,
    split: str,
    *,
    unreadable: list[InputError] | None = None,
    sections: dict[str, list[int]] | None = None,
) -> Iterator[Document]:
    """Yields the reports of a split, those of the CRS first, with ids such as "crs/R40562".

    Titles of sections stand on lines of their own, as do paragraphs. Summaries have no titles, as
    in the paper.

    Args:
        directory: the release.
        split: train, validation or test.
        unreadable: takes the errors of reports that cannot be read, which are then left out; None
            raises the first of them.
        sections: takes for every office the number of sections of each report, without their
            subsections.

    Raises:
        InputError: a list of ids that is missing, or a report that is missing, damaged or of
            another shape, or that has no text; names file and key.
    """
    directory = Path(directory)
    for office, (report_key, summary_key) in OFFICES.items():
        names = read_text_file(directory / "split_ids" / f"{office}_{SPLITS[split]}.ids")
        for name in names.split():
            path = directory / office / f"{name}.json"
            try:
                row = _read_row(path)
                root = _section(row, report_key, path)
                report = _section_text(root, path, titles=True)
                summary = _section_text(_section(row, summary_key, path), path, titles=False)
            except InputError as error:
                if unreadable is None:
                    raise
                unreadable.append(error)
                continue
            if sections is not None:
                sections.setdefault(office, []).append(len(root.get("subsections") or [root]))
            yield Document(f"{office}/{name}", report, summary, None)


def _read_row(path: Path) -> Any:
    text = read_text_file(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); copy the file again") from None


def _section(row: Any, key: str, path: Path) -> Any:
    """Returns a field as one section; a list may hold sections and plain paragraphs."""
    if not isinstance(row, dict) or key not in row:
        raise InputError(f'{path}: no key "{key}"; is this a file of the GovReport release?')
    value = row[key]
    if not isinstance(value, list):
        return value
    return {
        "paragraphs": [item for item in value if isinstance(item, str)],
        "subsections": [item for item in value if not isinstance(item, str)],
    }


def _section_text(section: Any, path: Path, titles: bool) -> str:
    """Returns the text of a section with its subsections, a paragraph a line.

    Raises:
        InputError: there is no text.
    """
    lines = [" ".join(line.split()) for line in _lines(section, path, titles)]
    text = "\n".join(line for line in lines if line)
    if not text:
        raise InputError(f"{path}: report or summary has no text; take its id out of split_ids")
    return text


def _lines(section: Any, path: Path, titles: bool) -> Iterator[str]:
    if not isinstance(section, Mapping):
        raise InputError(
            f"{path}: a section is {type(section).__name__}, not an object; copy the file again"
        )
    title = section.get("section_title") or ""
    paragraphs = section.get("paragraphs") or []
    if not all(isinstance(text, str) for text in (title, *paragraphs)):
        raise InputError(
            f'{path}: "section_title" and "paragraphs" must be texts; copy the file again'
        )
    if titles:
        yield title
    yield from paragraphs
    for subsection in section.get("subsections") or []:
        yield from _lines(subsection, path, titles)
