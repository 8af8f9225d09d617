"""longsum extract: reduces documents to their important sentences."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import InputError, counted
from longsum_jax.files import json_text
from longsum_jax.progress import Bar

if TYPE_CHECKING:
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
            flags.refuse_idle(args, parser, ("threshold", "top_k"), f"with --{name}")
    out = Path(args.out)
    if out.exists():
        raise InputError(f"--out={out} is there already; remove it or give another name")
    documents, choose = _documents_and_choice(args)
    _write(out, documents, choose)
    console.print_stdout(f"{out}: {counted(len(documents), 'document')}")


def _parser() -> argparse.ArgumentParser:
    parser = console.parser(
        "extract", "Cuts documents down to the sentences that an extractor chooses.", EXAMPLES
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--model", metavar="DIR", help="a training workdir or model directory of an extractor"
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
        "--data", required=True, metavar="FILE", help="JSON lines, plain or compressed, or a glob"
    )
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="JSON lines to write")
    parser.add_argument(
        "--document_key", default="document", help="field of the document; default: document"
    )
    parser.add_argument(
        "--summary_key", default="summary", help="field of the reference; default: summary"
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


def _documents_and_choice(args: Any) -> tuple[list["DataRow"], Choose]:
    """Returns the documents, and the function that selects the sentences of a document.

    Invalid data, lengths and models are refused here, before anything is written.
    """
    from longsum_jax.ranking.ranker import builtin_ranker
    from longsum_jax.ranking.selection import parse_length
    from longsum_jax.text.documents import read_json_lines
    from longsum_jax.text.oracle import greedy_oracle
    from longsum_jax.text.sentences import split_sentences

    keys = {"document_key": args.document_key, "summary_key": args.summary_key}
    documents = list(read_json_lines(args.data, **keys, require_summary=args.oracle))

    def choose_by_reference(document: "DataRow") -> Chosen:
        sentences = split_sentences(document.document)
        return _chosen(sentences, greedy_oracle(sentences, document.only_summary))

    if args.oracle:
        return documents, choose_by_reference
    if args.length:
        length = parse_length(args.length)

        def choose_by_ranker(document: "DataRow") -> Chosen:
            extract = builtin_ranker().summarize(
                document.document, length=length, query=document.query
            )
            sources = [statement.sources[0] for statement in extract.statements]
            return Chosen(
                [source.text for source in sources], [source.number for source in sources]
            )

        return documents, choose_by_ranker
    from longsum_jax.inference.loading import load

    model = load(args.model)
    options = {"threshold": args.threshold, "top_k": args.top_k}
    model.extract([], **options)

    def choose_by_model(document: "DataRow") -> Chosen:
        sentences = split_sentences(document.document)
        return _chosen(
            sentences, model.extract([sentences], queries=[document.query], **options)[0]
        )

    return documents, choose_by_model


def _chosen(sentences: list[str], numbers: list[int]) -> Chosen:
    """Returns sentences by index; the first if none is selected, so that no document is empty."""
    numbers = numbers or [0]
    return Chosen([sentences[number] for number in numbers], numbers)


def _row(document: "DataRow", selection: Chosen) -> dict[str, Any]:
    """Returns one line of the output."""
    row: dict[str, Any] = {"id": document.id, "document": " ".join(selection.texts)}
    row |= {"summary": document.summary, "query": document.query, "sentences": selection.numbers}
    return {key: value for key, value in row.items() if value is not None}


def _write(out: Path, documents: list["DataRow"], choose: Choose) -> None:
    """Writes the rows of all documents."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic.open_text(out) as file:
            for document in Bar(documents, unit="document"):
                file.write(json_text(_row(document, choose(document))) + "\n")
    except OSError as error:
        raise console.unwritable(out, error) from error
