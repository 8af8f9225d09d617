"""Reads the GovReport release (Huang et al. 2021): reports of two offices, in nested sections.

    gov-report/split_ids/{crs,gao}_{train,valid,test}.ids     one id per line
    gov-report/crs/ID.json   "reports": a section, "summary": paragraphs
    gov-report/gao/ID.json   "report": sections, "highlight": sections

A section has "section_title", "paragraphs" and "subsections".
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow, read_text_file
from longsum_jax.text.sentences import split_sentences

# Name of a split -> its name in the release.
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
# Office -> keys of report and summary.
OFFICES = {"crs": ("reports", "summary"), "gao": ("report", "highlight")}
# Section titles of GAO summaries (Huang et al. 2021, section 4), in their
# order.
ASPECTS = ("Why GAO did this study", "What GAO found", "What GAO recommends")
OTHER_ASPECT = "other"


class SummarySection(NamedTuple):
    """A section of a summary.

    Attributes:
        aspect: name in ``ASPECTS``, or ``OTHER_ASPECT`` for any other or no
            title.
        text: text of the section without its title, one line per paragraph.
    """

    aspect: str
    text: str


class AspectShare(NamedTuple):
    """The share of one aspect in a set of summaries.

    Attributes:
        summaries: percentage of summaries with a section of this aspect.
        sentences: percentage of the sentences of all summaries.
    """

    summaries: float
    sentences: float


def read_govreport(
    directory: str | Path,
    split: str,
    *,
    unreadable: list[InputError] | None = None,
    sections: dict[str, list[int]] | None = None,
    aspects: dict[str, list[SummarySection]] | None = None,
) -> Iterator[DataRow]:
    """Yields the reports of a split, CRS first, with ids such as "crs/R40562".

    Section titles and paragraphs are on separate lines. Summaries have no
    titles, as in the paper.

    Args:
        directory: directory of the release.
        split: train, validation or test.
        unreadable: list to which the errors of unreadable reports are appended,
            which are then skipped; None raises the first error.
        sections: dictionary to which the number of top-level sections of each
            report is added, by office.
        aspects: dictionary to which the summary sections of every GAO report
            are added, by id; CRS summaries have no titles.

    Raises:
        InputError: a missing list of ids, or a report that is missing, damaged,
            of another structure or without text; the message names file and
            key.
    """
    directory = Path(directory)
    for office, (report_key, summary_key) in OFFICES.items():
        names = read_text_file(
            directory / "split_ids" / f"{office}_{SPLITS[split]}.ids"
        )
        for name in names.split():
            path = directory / office / f"{name}.json"
            try:
                row = _read_row(path)
                root = _section(row, report_key, path)
                report = _section_text(root, path, titles=True)
                summary_root = _section(row, summary_key, path)
                summary = _section_text(summary_root, path, titles=False)
            except InputError as error:
                if unreadable is None:
                    raise
                unreadable.append(error)
                continue
            if sections is not None:
                sections.setdefault(office, []).append(
                    len(root.get("subsections") or [root])
                )
            if aspects is not None and office == "gao":
                aspects[f"{office}/{name}"] = _summary_sections(
                    summary_root, path
                )
            yield DataRow(f"{office}/{name}", report, summary, None)


def aspect_shares(
    summaries: Iterable[Sequence[SummarySection]],
) -> dict[str, AspectShare]:
    """Returns the shares of all aspects in summaries (Huang et al. 2021, section 4).

    Args:
        summaries: sections of each summary.

    Returns:
        Aspect -> share, in the order of ``ASPECTS``; ``OTHER_ASPECT`` only if
        it occurs.
    """
    num_summaries = 0
    with_aspect = dict.fromkeys((*ASPECTS, OTHER_ASPECT), 0)
    num_sentences = dict.fromkeys(with_aspect, 0)
    for sections in summaries:
        num_summaries += 1
        for aspect in {section.aspect for section in sections}:
            with_aspect[aspect] += 1
        for section in sections:
            num_sentences[section.aspect] += len(split_sentences(section.text))
    all_sentences = max(sum(num_sentences.values()), 1)
    return {
        aspect: AspectShare(
            100 * with_aspect[aspect] / max(num_summaries, 1),
            100 * num_sentences[aspect] / all_sentences,
        )
        for aspect in with_aspect
        if aspect in ASPECTS or with_aspect[aspect]
    }


def _summary_sections(root: Any, path: Path) -> list[SummarySection]:
    """Returns the sections of a summary that have text, including the text of subsections."""
    untitled = {"paragraphs": root.get("paragraphs") or []}
    sections = []
    for section in [untitled, *(root.get("subsections") or [])]:
        text = _joined(_lines(section, path, titles=False))
        if text:
            sections.append(
                SummarySection(
                    _aspect(section.get("section_title") or ""), text
                )
            )
    return sections


def _aspect(title: str) -> str:
    """Returns the aspect of a title, ignoring case and punctuation at its end."""
    normalized = " ".join(title.split()).rstrip(" .:").lower()
    aspects = {aspect.lower(): aspect for aspect in ASPECTS}
    return aspects.get(normalized, OTHER_ASPECT)


def _read_row(path: Path) -> Any:
    text = read_text_file(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(
            f"{path}: not valid JSON ({error}); copy the file again"
        ) from None


def _section(row: Any, key: str, path: Path) -> Any:
    """Returns a field as one section; a list may contain sections and plain paragraphs."""
    if not isinstance(row, dict) or key not in row:
        raise InputError(
            f'{path}: no key "{key}"; is this a file of the GovReport release?'
        )
    value = row[key]
    if not isinstance(value, list):
        return value
    return {
        "paragraphs": [item for item in value if isinstance(item, str)],
        "subsections": [item for item in value if not isinstance(item, str)],
    }


def _section_text(section: Any, path: Path, titles: bool) -> str:
    """Returns the text of a section with its subsections, one line per paragraph.

    Raises:
        InputError: there is no text.
    """
    text = _joined(_lines(section, path, titles))
    if not text:
        raise InputError(
            f"{path}: report or summary has no text; remove its id from split_ids"
        )
    return text


def _joined(lines: Iterable[str]) -> str:
    """Returns lines joined without superfluous white space and blank lines."""
    stripped = (" ".join(line.split()) for line in lines)
    return "\n".join(line for line in stripped if line)


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
