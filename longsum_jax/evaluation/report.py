"""An HTML report with the scores of systems, and every document with its summaries.

The report is a single file. It contains the documents in compressed chunks,
which a browser decompresses when it shows them, so that thousands of documents
fit.
"""

import base64
import gzip
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from longsum_jax import atomic
from longsum_jax.errors import without_controls
from longsum_jax.evaluation.aligners import Aligner, WordAligner
from longsum_jax.evaluation.comparison import Difference, Sampling, System
from longsum_jax.evaluation.pages import fill, read_part
from longsum_jax.evaluation.predictions import Metrics, Pair
from longsum_jax.evaluation.published import PublishedBlock
from longsum_jax.evaluation.registry import columns_of
from longsum_jax.text.alignment import MAX_SOURCES, Support
from longsum_jax.text.markdown_marks import pieces_without_marks
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import sentence_ends, split_sentences

# JSON characters of the documents that are compressed together
CHUNK_CHARACTERS = 1 << 19
BINS = 20  # bins of every histogram
DIGITS = 3  # decimals of support scores
OPENING = 120  # characters of a document that the table shows
SCRIPTS = (
    "report.js",
    "report_scores.js",
    "report_plots.js",
    "report_viewer.js",
    "report_documents.js",
    "report_start.js",
)
# preferred for the column shown first
MAIN_COLUMNS = ("mean_rouge", "geometric_rouge")


class ReportContent(NamedTuple):
    """The content of a report.

    Attributes:
        pairs: documents with references; empty references are treated as
            missing.
        systems: scored systems; the first one is compared with the others.
        metrics: metrics of the scores.
        differences: differences of the first system from each other one, from
            ``comparison.compare``.
        sampling: sampling options of intervals and tests.
        main_column: column shown first; by default a mean of ROUGE, otherwise
            the first column.
        aligner: aligner that finds the sources of sentences; None for
            ``WordAligner``.
        published: rows of papers for a comparison, as returned by
            ``published.find_published``.
    """

    pairs: Sequence[Pair]
    systems: Sequence[System]
    metrics: Metrics
    differences: Mapping[str, Mapping[str, Difference]]
    sampling: Sampling
    main_column: str | None = None
    aligner: Aligner | None = None
    published: Sequence[PublishedBlock] = ()


def write_report(path: Path, content: ReportContent) -> None:
    """Writes a page of scores, plots, and documents with all of their summaries.

    Args:
        path: path of the HTML file.
        content: content of the page.

    Raises:
        OSError: the file cannot be written.
        InputError: the aligner cannot determine support.
    """
    parts = {
        "style": read_part("report.css"),
        "script": "\n".join(map(read_part, SCRIPTS)),
    }
    head, _, tail = fill(read_part("report.html"), **parts).partition(
        "{{data}}"
    )
    statistics = _Statistics(len(content.systems))
    aligner = content.aligner or WordAligner()
    with aligner.on_device(), atomic.open_text(path) as file:
        file.write(head)
        chunks = _Chunks(file)
        for number, pair in enumerate(content.pairs):
            texts = [system.predictions[number] for system in content.systems]
            summaries = list(map(without_controls, texts))
            document = _read(_shown(pair), summaries, aligner)
            statistics.add(document)
            chunks.add(_document_json(document))
        chunks.close()
        index = _index(content, statistics) | _support_json(statistics, aligner)
        _write_data(file, "index", index | {"chunks": chunks.starts})
        file.write(tail)


def _shown(pair: Pair) -> Pair:
    """Returns a document without control characters, which readers may copy."""
    query = pair.query and without_controls(pair.query)
    return pair._replace(
        id=without_controls(pair.id),
        source=without_controls(pair.source),
        reference=without_controls(pair.reference),
        query=query,
        other_references=tuple(map(without_controls, pair.other_references)),
    )


class _Text(NamedTuple):
    """A summary split into sentences with white space, their support, and its words."""

    pieces: list[str]
    support: list[Support]
    words: int


class _Document(NamedTuple):
    """A document split into sentences, with its references and the summaries of all systems."""

    pair: Pair
    pieces: list[str]
    references: list[_Text]
    summaries: list[_Text]


def _read(pair: Pair, summaries: Sequence[str], aligner: Aligner) -> _Document:
    """Aligns all texts of a document, which is encoded only once."""
    sentences = split_sentences(pair.source)
    references = [text for text in pair.references if text.strip()]
    texts = [*references, *summaries]
    written = [split_sentences(text) for text in texts]
    support = iter(aligner.align(list(itertools.chain(*written)), sentences))
    aligned = [
        _Text(
            _pieces(text, text_sentences),
            [next(support) for _ in text_sentences],
            num_words(text),
        )
        for text, text_sentences in zip(texts, written, strict=True)
    ]
    count = len(references)
    pieces = _pieces(pair.source, sentences)
    return _Document(pair, pieces, aligned[:count], aligned[count:])


def _pieces(text: str, sentences: Sequence[str]) -> list[str]:
    """Returns the text of every sentence with the white space before it, as the page shows it."""
    return pieces_without_marks(text, sentence_ends(text, sentences).tolist())


def _document_json(document: _Document) -> dict[str, Any]:
    return {
        "query": document.pair.query,
        "source": document.pieces,
        "references": [_text_json(text) for text in document.references],
        "summaries": [_text_json(text) for text in document.summaries],
    }


def _text_json(text: _Text) -> dict[str, Any]:
    support = [
        [
            [index, round(score, DIGITS)]
            for index, score in zip(*support, strict=True)
        ]
        for support in text.support
    ]
    return {"pieces": text.pieces, "support": support}


class _Statistics:
    """The data of the plots, over all documents; the reference precedes the systems.

    Args:
        systems: number of systems.
    """

    def __init__(self, systems: int) -> None:
        names = ("id", "opening", "words", "reference_words")
        self.documents: dict[str, list[Any]] = {name: [] for name in names}
        self.words: list[list[int]] = [[] for _ in range(systems)]
        # Support of every sentence of a text, by series and document.
        self._totals: list[list[list[float]]] = [[] for _ in range(1 + systems)]
        # histogram of support
        self.sentences = np.zeros((1 + systems, BINS), np.int64)
        # sums of histograms of source positions
        self._used = np.zeros((1 + systems, BINS))
        self._used_by = np.zeros((1 + systems, 1), np.int64)

    def add(self, document: _Document) -> None:
        """Counts a document."""
        pair = document.pair
        opening = "".join(document.pieces)[: 2 * OPENING]
        values = {
            "id": pair.id,
            "opening": " ".join(opening.split())[:OPENING],
            "words": num_words(pair.source),
            "reference_words": num_words(pair.reference),
        }
        for name, value in values.items():
            self.documents[name].append(value)
        positions = _places(document.pieces)
        for text in document.references[:1]:
            self._add_text(0, text, positions)
        for series, text in enumerate(document.summaries, 1):
            self._add_text(series, text, positions)
        for system, text in enumerate(document.summaries):
            self.words[system].append(text.words)

    def _add_text(
        self, series: int, text: _Text, positions: np.ndarray
    ) -> None:
        # Round as the page does, so that the counts match the sentences it
        # marks.
        totals = [
            sum(round(score, DIGITS) for score in support.scores)
            for support in text.support
        ]
        self._totals[series].append(totals)
        self.sentences[series] += _histogram(np.array(totals))
        indices = [
            index for support in text.support for index in support.indices
        ]
        scores = [score for support in text.support for score in support.scores]
        if indices:
            used = _histogram(positions[indices], np.array(scores))
            self._used[series] += used / used.sum()
            self._used_by[series] += 1

    def unsupported(self, threshold: float) -> list[list[int]]:
        """Returns the number of sentences of each text below a threshold, [series][documents]."""
        return [
            [sum(total < threshold for total in totals) for totals in of_series]
            for of_series in self._totals
        ]

    def used(self) -> np.ndarray:
        """Returns the distribution of source sentences over their documents, [series, BINS]."""
        return self._used / np.maximum(self._used_by, 1)


def _places(pieces: Sequence[str]) -> np.ndarray:
    """Returns the relative position, 0 to 1, of each sentence's middle in its document."""
    lengths = np.array([len(piece) for piece in pieces])
    return (lengths.cumsum() - lengths / 2) / max(lengths.sum(), 1)


def _histogram(
    shares: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    bins = np.minimum((shares * BINS + 1e-9).astype(int), BINS - 1)
    return np.bincount(bins, weights, minlength=BINS)


def _index(content: ReportContent, statistics: _Statistics) -> dict[str, Any]:
    """Returns everything on the page except the documents themselves."""
    from longsum_jax import __version__

    columns = columns_of(content.metrics)
    main = [content.main_column, *MAIN_COLUMNS, columns[0]]
    described = [metric.describe() for metric in content.metrics.values()]
    return {
        "version": __version__,
        "columns": columns,
        "main_column": next(name for name in main if name in columns),
        "signatures": [
            description["signature"]
            for description in described
            if "signature" in description
        ],
        "sampling": content.sampling._asdict(),
        "systems": [
            _system_json(system, content.differences)
            for system in content.systems
        ],
        "published": [block._asdict() for block in content.published],
        "has_references": any(statistics.documents["reference_words"]),
        "documents": statistics.documents,
        "words": statistics.words,
        "scores": {
            column: [
                [round(scores[column], 4) for scores in system.scores]
                for system in content.systems
            ]
            for column in columns
        },
        "sentences": statistics.sentences.tolist(),
        "used": statistics.used().round(5).tolist(),
    }


def _support_json(statistics: _Statistics, aligner: Aligner) -> dict[str, Any]:
    """Returns the page's data on the support of sentences."""
    threshold = round(aligner.threshold(), DIGITS)
    unsupported = statistics.unsupported(threshold)
    shares = [
        sum(counts) / max(int(sentences.sum()), 1)
        for counts, sentences in zip(
            unsupported, statistics.sentences, strict=True
        )
    ]
    return {
        "alignment": aligner.describe(),
        "supported": threshold,
        "max_sources": MAX_SOURCES,
        "unsupported": unsupported[1:],
        "unsupported_shares": shares,
    }


def _system_json(
    system: System, differences: Mapping[str, Mapping[str, Difference]]
) -> dict[str, Any]:
    system_differences = differences.get(system.name, {})
    return {
        "name": system.name,
        "values": system.values,
        "intervals": system.intervals,
        "against": {
            column: difference._asdict()
            for column, difference in system_differences.items()
        },
        "empty": sum(not text.strip() for text in system.predictions),
    }


class _Chunks:
    """Writes documents into a page, several of them compressed together.

    Attributes:
        starts: index of the first document of every chunk.
    """

    def __init__(self, file: TextIO) -> None:
        self.starts: list[int] = []
        self._file = file
        self._waiting: list[str] = []
        self._written = 0

    def add(self, document: dict[str, Any]) -> None:
        """Adds a document, and writes a chunk when it is full."""
        self._waiting.append(
            json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        )
        if sum(map(len, self._waiting)) >= CHUNK_CHARACTERS:
            self.close()

    def close(self) -> None:
        """Writes the last chunk."""
        if not self._waiting:
            return
        _write_packed(
            self._file,
            f"chunk-{len(self.starts)}",
            f"[{','.join(self._waiting)}]",
        )
        self.starts.append(self._written)
        self._written += len(self._waiting)
        self._waiting = []


def _write_data(file: TextIO, name: str, data: dict[str, Any]) -> None:
    _write_packed(
        file, name, json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    )


def _write_packed(file: TextIO, name: str, text: str) -> None:
    """Writes a text into an element of the page, gzipped and base64-encoded."""
    # A lone surrogate, which is invalid in UTF-8, is shown as a replacement
    # character.
    packed = gzip.compress(text.encode("utf-8", "surrogatepass"), mtime=0)
    encoded = base64.b64encode(packed).decode()
    file.write(f'<script type="text/plain" id="{name}">{encoded}</script>\n')
