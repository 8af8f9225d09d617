"""GovReport as released (Huang et al. 2021): reports of two offices as JSON files with nested
sections.

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

SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # ours to that of the release
OFFICES = {
    "crs": ("reports", "summary"),
    "gao": ("report", "highlight"),
}  # to the keys of report and summary


def read_govreport(directory: str | Path, split: str) -> Iterator[Document]:
    """Yields the reports of a split, those of the CRS first, with ids such as "crs/R40562".

    Titles of sections stand on lines of their own, as do paragraphs. Summaries have no titles, as
    in the paper.

    Raises:
        InputError: a file that is missing, damaged or of another shape, or that has no text; names
            file and key.
    """
    directory = Path(directory)
    for office, keys in OFFICES.items():
        for name in read_text_file(
            directory / "split_ids" / f"{office}_{SPLITS[split]}.ids"
        ).split():
            path = directory / office / f"{name}.json"
            report, summary = (
                _section_lines(row, path, titles) for row, titles in _parts(path, keys)
            )
            yield Document(f"{office}/{name}", report, summary, None)


def _parts(path: Path, keys: tuple[str, str]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Report and summary as one section each, and whether titles are part of the text."""
    try:
        row = json.loads(read_text_file(path))
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); copy the file again") from None
    for key, titles in zip(keys, (True, False), strict=True):
        if not isinstance(row, dict) or key not in row:
            raise InputError(f'{path}: no key "{key}"; is this a file of the GovReport release?')
        value = row[key]
        if isinstance(value, list):
            plain = [part for part in value if isinstance(part, str)]
            value = {
                "paragraphs": plain,
                "subsections": [part for part in value if not isinstance(part, str)],
            }
        yield value, titles


def _section_lines(section: Any, path: Path, titles: bool) -> str:
    """The text of a section with its subsections, a paragraph a line; InputError where there is
    none."""
    text = "\n".join(
        line for part in _lines(section, path, titles) if (line := " ".join(part.split()))
    )
    if not text:
        raise InputError(f"{path}: report or summary has no text; take its id out of split_ids")
    return text


def _lines(section: Any, path: Path, titles: bool) -> Iterator[str]:
    if not isinstance(section, Mapping):
        raise InputError(
            f"{path}: a section is {type(section).__name__}, not an object; copy the file again"
        )
    title, paragraphs = section.get("section_title") or "", section.get("paragraphs") or []
    if not all(isinstance(text, str) for text in (title, *paragraphs)):
        raise InputError(
            f'{path}: "section_title" and "paragraphs" must be texts; copy the file again'
        )
    if titles:
        yield title
    yield from paragraphs
    for part in section.get("subsections") or []:
        yield from _lines(part, path, titles)
