"""How many built-in summaries a reader would keep as they stand.

    python studies/kept_summaries.py sheet --data=DATA --sheet=SHEET
    python studies/kept_summaries.py collect --sheet=SHEET --out=kept_summaries.json

DATA is what `configs/builtin_extractor.py` reads, with `novels`, `longbooks` and `imdb`. The first
command draws five documents of each of twelve kinds, and writes their summaries in random order to
SHEET/summaries.md, the documents to SHEET/docs. Readers then write SHEET/judge_NAME.json each: a
list of {"n": number of the summary, "kept": true or false, "reason": ""}. "Kept" means that the
summary tells what the document is about and its main points (or answers the question), can be
read without stopping, and misleads in nothing.
"""

import argparse
import json
import lzma
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
from common import print_table, write_report

from longsum_jax.ranking.ranker import builtin_ranker

SEED = 20261130
PER_KIND = 5
FEWEST_WORDS = 250  # of a film review

Row = Mapping[str, Any]


class Kind(NamedTuple):
    """A kind of document.

    Attributes:
        name: name in the report.
        file: file of the data, without its suffix.
        text: key of the text.
        is_one: whether a row is of this kind.
        has_query: True if the row's query is asked.
    """

    name: str
    file: str
    text: str = "document"
    is_one: Callable[[Row], bool] = bool
    has_query: bool = False


def _asks_for_the_plot(row: Row) -> bool:
    return "plot" in (row.get("query") or "plot").lower()


KINDS = (
    Kind("technical standards", "techspecs/test"),
    Kind("computational linguistics papers", "scisummnet/test"),
    Kind("biomedical papers", "sumpubmed/test"),
    Kind("visits to a doctor", "acibench/train"),
    Kind("meetings", "qmsum/test", is_one=lambda row: row["query_type"] == "general"),
    Kind(
        "meetings, with a query",
        "qmsum/test",
        is_one=lambda row: row["query_type"] != "general",
        has_query=True,
    ),
    Kind("sessions of a game", "crd3/test"),
    Kind("short stories", "squality/train", is_one=_asks_for_the_plot),
    Kind(
        "short stories, with a question",
        "squality/train",
        is_one=lambda row: not _asks_for_the_plot(row),
        has_query=True,
    ),
    Kind("novels", "novels/train", "text"),
    Kind("books", "longbooks/books", "text"),
    Kind("film reviews", "imdb/test", "text", lambda row: len(row["text"].split()) > FEWEST_WORDS),
)


def write_sheet(data: Path, sheet: Path) -> None:
    """Writes the summaries, the documents and the kinds of both."""
    rng = random.Random(SEED)
    drawn: list[tuple[str, str, str | None]] = []
    for kind in KINDS:
        rows = [row for row in _rows(data / f"{kind.file}.jsonl.xz") if kind.is_one(row)]
        for row in rng.sample(rows, PER_KIND):
            drawn.append((kind.name, row[kind.text], row["query"] if kind.has_query else None))
    rng.shuffle(drawn)
    (sheet / "docs").mkdir(parents=True, exist_ok=True)
    entries, kinds = [], {}
    for number, (kind_name, text, query) in enumerate(drawn, 1):
        summary = builtin_ranker().summarize(text, length="auto", query=query).text
        (sheet / "docs" / f"{number:02d}.txt").write_text(text, encoding="utf-8")
        title = f"## {number:02d} ({kind_name}; {len(text.split()):,} words)"
        entries.append(f"{title}{f' - question: {query}' if query else ''}\n\n{summary}\n")
        kinds[number] = kind_name
    (sheet / "summaries.md").write_text("\n".join(entries), encoding="utf-8")
    (sheet / "kinds.json").write_text(json.dumps(kinds), encoding="utf-8")


def _rows(path: Path) -> Iterator[Row]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def collect(kinds: Mapping[int, str], verdicts: Sequence[Mapping[int, bool]]) -> list[Row]:
    """Returns a row for each kind, and one for all of them.

    Args:
        kinds: the kind of each summary.
        verdicts: for each reader, True for each summary that is kept.
    """
    groups = {
        kind: [n for n in kinds if kinds[n] == kind] for kind in dict.fromkeys(kinds.values())
    }
    groups["all"] = list(kinds)
    rows = []
    for kind, numbers in groups.items():
        votes = [sum(retained[n] for retained in verdicts) for n in numbers]
        row: dict[str, Any] = {"kind": kind, "summaries": len(numbers)}
        row["by_reader"] = ", ".join(
            str(sum(retained[n] for n in numbers)) for retained in verdicts
        )
        row["by_most"] = sum(2 * vote > len(verdicts) for vote in votes)
        rows.append(row)
    return rows


def main() -> None:
    """Writes a sheet, or collects what readers said about it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("part", choices=("sheet", "collect"))
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--sheet", type=Path, required=True, help="folder of the sheet")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    if args.part == "sheet":
        write_sheet(args.data, args.sheet)
        return
    kinds = json.loads((args.sheet / "kinds.json").read_text(encoding="utf-8"))
    verdicts = []
    for path in sorted(args.sheet.glob("judge_*.json")):
        entries = json.loads(path.read_text(encoding="utf-8"))
        verdicts.append({entry["n"]: entry["kept"] for entry in entries})
    rows = collect({int(number): kind for number, kind in kinds.items()}, verdicts)
    print_table(rows)
    if args.out:
        write_report(args.out, rows, seed=SEED)


if __name__ == "__main__":
    main()
