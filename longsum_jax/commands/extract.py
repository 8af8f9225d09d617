"""longsum extract: reduces documents to their important sentences."""

import argparse
import contextlib
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted
from longsum_jax.files import json_text, open_regular, parse_json
from longsum_jax.locks import locked_output, part_of
from longsum_jax.progress import Bar

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model
    from longsum_jax.text.documents import DataRow

EXAMPLES = """\
  # training data for summarizing extracted sentences: the sentences most similar to the references
  longsum extract --oracle --data=reports/train.jsonl --out=short/train.jsonl

  # its evaluation data: sentences predicted by an extractor (configs/extractor.py)
  longsum extract --model=runs/extractor --data=reports/validation.jsonl \\
      --out=short/validation.jsonl
  python -m longsum_jax.train --workdir=runs/abstractor \\
      --config=configs/extract_abstract.py:model=bart-large,data='short/{split}.jsonl'

  # without an extractor: 600 words selected by the built-in ranker, which uses queries
  longsum extract --length="600 words" --data=reports/train.jsonl --out=short/train.jsonl

  # an upper bound of extractive summaries
  longsum extract --oracle --data=reports/test.jsonl --out=oracle/test.jsonl

Each line has the keys id, summary and query of its input, document (the selected sentences, in
document order), and sentences (their indices, from 0).
"""


class Chosen(NamedTuple):
    """Selected sentences of a document, in document order, and their indices."""

    texts: list[str]
    numbers: list[int]


Choose = Callable[["DataRow"], Chosen]


def main(argv: Sequence[str]) -> None:
    """Writes the shorter documents.

    Raises:
        InputError: the data or the model is invalid.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    for name in ("oracle", "length"):
        if getattr(args, name):
            flags.refuse_idle(
                args, parser, ("threshold", "top_k"), f"with --{name}"
            )
    out = Path(args.out)
    if out.exists():
        raise InputError(
            f"--out={out} already exists; remove it or give another name"
        )
    documents, choose, model = _documents_and_choice(args)
    _write(out, documents, choose, _settings(args, model))
    console.print_stdout(f"{out}: {counted(len(documents), 'document')}")


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "extract",
        "Reduces documents to their most important sentences.",
        EXAMPLES,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model",
        metavar="DIR",
        help="a training workdir or model directory of an extractor",
    )
    source.add_argument(
        "--oracle",
        action="store_true",
        help="select greedily by ROUGE against the reference summary",
    )
    source.add_argument(
        "-l",
        "--length",
        metavar="LENGTH",
        help='select with the built-in ranker up to a length: "600 words", "20 sentences" or "5%%"',
    )
    parser.add_argument(
        "--data",
        required=True,
        metavar="FILE",
        help="JSON lines, plain or compressed, or a glob",
    )
    parser.add_argument(
        "-o", "--out", required=True, metavar="FILE", help="JSON lines to write"
    )
    flags.add_document_key(parser)
    parser.add_argument(
        "--summary_key",
        default="summary",
        help="field of the reference; default: summary",
    )
    parser.add_argument(
        "--threshold",
        type=float,
        default=0.5,
        help="probability above which a sentence is selected",
    )
    parser.add_argument(
        "--top_k",
        type=int,
        default=3,
        help="number of sentences selected if none is above --threshold; default: 3",
    )
    return parser


def _documents_and_choice(
    args: Any,
) -> tuple[list["DataRow"], Choose, "Model | None"]:
    """Returns the documents, the function that selects sentences, and its model.

    Invalid data, lengths and models are refused here, before anything is
    written.
    """
    from longsum_jax.ranking.ranker import builtin_ranker
    from longsum_jax.text.documents import read_json_lines
    from longsum_jax.text.lengths import parse_length
    from longsum_jax.text.oracle import greedy_oracle
    from longsum_jax.text.sentences import split_sentences

    keys = {"document_key": args.document_key, "summary_key": args.summary_key}
    documents = list(
        read_json_lines(args.data, **keys, require_summary=args.oracle)
    )

    def choose_by_reference(document: "DataRow") -> Chosen:
        sentences = split_sentences(document.document)
        return _chosen(
            sentences, greedy_oracle(sentences, document.only_summary)
        )

    if args.oracle:
        return documents, choose_by_reference, None
    if args.length:
        with flags.named_flags(args):
            length = parse_length(args.length)

        def choose_by_ranker(document: "DataRow") -> Chosen:
            extract = builtin_ranker().summarize(
                document.document, length=length, query=document.query
            )
            sources = [statement.sources[0] for statement in extract.statements]
            return Chosen(
                [source.text for source in sources],
                [source.number for source in sources],
            )

        return documents, choose_by_ranker, None
    from longsum_jax.summarization.loading import load

    model = load(args.model)
    options = {"threshold": args.threshold, "top_k": args.top_k}
    model.extract([], **options)

    def choose_by_model(document: "DataRow") -> Chosen:
        sentences = split_sentences(document.document)
        return _chosen(
            sentences,
            model.extract([sentences], queries=[document.query], **options)[0],
        )

    return documents, choose_by_model, model


def _chosen(sentences: list[str], numbers: list[int]) -> Chosen:
    """Returns sentences by index; the first if none is selected, so that no document is empty."""
    numbers = numbers or [0]
    return Chosen([sentences[number] for number in numbers], numbers)


def _row(document: "DataRow", selection: Chosen) -> dict[str, Any]:
    """Returns one line of the output."""
    row: dict[str, Any] = {
        "id": document.id,
        "document": " ".join(selection.texts),
    }
    row |= {
        "summary": document.summary,
        "query": document.query,
        "sentences": selection.numbers,
    }
    return {key: value for key, value in row.items() if value is not None}


def _settings(args: Any, model: "Model | None") -> dict[str, Any]:
    """Returns all settings that the rows depend on, apart from the documents."""
    from longsum_jax import __version__
    from longsum_jax.ranking.ranker import builtin_ranker
    from longsum_jax.text.sentences import splitter_name

    weights = None
    if args.length:
        weights = builtin_ranker().fingerprint
    settings = {
        "longsum_jax": __version__,
        "splitter": splitter_name(),
        "oracle": args.oracle,
        "length": args.length,
        "threshold": args.threshold,
        "top_k": args.top_k,
        "weights": weights if model is None else model.fingerprint,
    }
    if model is not None:
        settings["config"] = model.config_fingerprint
        settings["tokenizer"] = model.tokenizer.fingerprint
    return settings


def _write(
    out: Path,
    documents: list["DataRow"],
    choose: Choose,
    settings: dict[str, Any],
) -> None:
    """Writes the rows of all documents.

    They are collected in an unfinished file, which a restart continues.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with locked_output(out), _Rows(out, settings) as rows:
            for document in Bar(documents, unit="document"):
                if not rows.has(document):
                    row = _row(document, choose(document))
                    rows.append(document, json_text(row))
            with atomic.open_text(out) as file:
                for text in rows.texts():
                    file.write(text + "\n")
    except OSError as error:
        raise console.unwritable(out, error) from error


class _Rows:
    """The rows of an unfinished output, in a hidden file next to it.

    Its first line contains the settings; each of the others the hash of a
    document and its row. It remains if the process is killed or interrupted
    (Ctrl-C).

    Args:
        out: path of the output, which this process has locked.
        settings: settings that the rows depend on.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, out: Path, settings: dict[str, Any]) -> None:
        self._path = part_of(out).with_suffix(".rows")
        self._first = json.dumps(settings).encode() + b"\n"
        self._digests: list[str] = []
        self._num_passed = 0

    def __enter__(self) -> "_Rows":
        end = self._read()
        if not end:
            self._path.unlink(missing_ok=True)  # perhaps a link
        self._file = self._path.open("ab")
        self._file.truncate(end)
        if not end:
            self._file.write(self._first)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: Any) -> None:
        self._file.close()
        if kind is not KeyboardInterrupt:
            self._path.unlink(missing_ok=True)

    def has(self, document: "DataRow") -> bool:
        """Returns True if the next row is the row of this document."""
        is_there = self._num_passed < len(self._digests)
        if is_there and self._digests[self._num_passed] == _digest(document):
            self._num_passed += 1
            return True
        return False

    def append(self, document: "DataRow", text: str) -> None:
        """Adds a row, in place of old rows of other documents."""
        if self._num_passed < len(self._digests):
            self._file.truncate(self._ends[self._num_passed])
            del self._digests[self._num_passed :]
        digest = _digest(document)
        self._file.write(json.dumps([digest, text]).encode() + b"\n")
        self._file.flush()  # a killed process loses no row
        self._digests.append(digest)
        self._num_passed += 1

    def texts(self) -> Iterator[str]:
        """Yields the rows of the output."""
        with open_regular(self._path) as file:
            file.readline()
            for line in itertools.islice(file, self._num_passed):
                yield json.loads(line)[1]

    def _read(self) -> int:
        """Reads the rows of an interrupted process with the same settings.

        Returns:
            The size of the valid lines in bytes.
        """
        end = 0
        self._ends: list[int] = []
        with (
            contextlib.suppress(OSError, ValueError),
            open_regular(self._path) as file,
        ):
            if self._path.is_symlink() or file.readline() != self._first:
                return 0
            end = len(self._first)
            for line in file:
                digest, _ = parse_json(line)
                if not line.endswith(b"\n"):
                    break
                self._ends.append(end)
                self._digests.append(str(digest))
                end += len(line)
        return end


def _digest(document: "DataRow") -> str:
    """Returns a hash of everything in a document."""
    content = json.dumps(document).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
