"""Reads GovReport as released (Huang et al. 2021): reports of two offices, with nested sections.

    gov-report/split_ids/{crs,gao}_{train,valid,test}.ids     an id a line
    gov-report/crs/ID.json   "reports": a section, "summary": paragraphs
    gov-report/gao/ID.json   "report": sections, "highlight": sections

A section has "section_title", "paragraphs" and "subsections".
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.text.documents import Document, read_text_file
from longsum_jax.text.sentences import split_sentences

# Names of splits to those of the release.
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
# Offices to the keys of report and summary.
OFFICES = {"crs": ("reports", "summary"), "gao": ("report", "highlight")}
# Titles of the sections of GAO summaries (Huang et al. 2021, section 4), in their order.
ASPECTS = ("Why GAO did this study", "What GAO found", "What GAO recommends")
OTHER_ASPECT = "other"


class SummarySection(NamedTuple):
    """A section of a summary.

    Attributes:
        aspect: a name in ``ASPECTS``, or ``OTHER_ASPECT`` for any other title and for none.
        text: text of the section without its title, a paragraph a line.
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
        aspects: takes the sections of the summary of every GAO report, by id; summaries of the CRS
            have no titles.

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
                summary_root = _section(row, summary_key, path)
                summary = _section_text(summary_root, path, titles=False)
            except InputError as error:
                if unreadable is None:
                    raise
                unreadable.append(error)
                continue
            if sections is not None:
                sections.setdefault(office, []).append(len(root.get("subsections") or [root]))
            if aspects is not None and office == "gao":
                aspects[f"{office}/{name}"] = _summary_sections(summary_root, path)
            yield Document(f"{office}/{name}", report, summary, None)


def aspect_shares(summaries: Iterable[Sequence[SummarySection]]) -> dict[str, AspectShare]:
    """Returns the shares of all aspects in summaries (Huang et al. 2021, section 4).

    Args:
        summaries: sections of each summary.

    Returns:
        Aspect -> share, in the order of ``ASPECTS``; ``OTHER_ASPECT`` only if it occurs.
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
    """Returns the sections of a summary that have text, subsections included in their section."""
    untitled = {"paragraphs": root.get("paragraphs") or []}
    sections = []
    for section in [untitled, *(root.get("subsections") or [])]:
        text = _joined(_lines(section, path, titles=False))
        if text:
            sections.append(SummarySection(_aspect(section.get("section_title") or ""), text))
    return sections


def _aspect(title: str) -> str:
    """Returns the aspect of a title, in any case and with any punctuation at its end."""
    normalized = " ".join(title.split()).rstrip(" .:").lower()
    aspects = {aspect.lower(): aspect for aspect in ASPECTS}
    return aspects.get(normalized, OTHER_ASPECT)


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
    text = _joined(_lines(section, path, titles))
    if not text:
        raise InputError(f"{path}: report or summary has no text; take its id out of split_ids")
    return text


def _joined(lines: Iterable[str]) -> str:
    """Returns lines without superfluous white space and without blank lines."""
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
