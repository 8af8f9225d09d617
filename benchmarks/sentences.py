"""Measures sentence splitters: boundaries that are missed or wrong, and megabytes a second.

    python benchmarks/sentences.py --data=DIRECTORY --out=sentences.json

Two sets of boundaries. ``tests/golden/sentences.tsv`` has texts of our own in ten languages and
more, made from frames, abbreviations and what follows them; a third (``held``) was not looked at
while the rules were written. ``sentence_labels.tsv`` has positions in texts that are not part of
the repository (--data, JSON lines compressed by xz), numbers only: a file, the id of a document,
where a block of it begins, its length, and positions (characters but white space) with + for a
boundary and - for none. They are labelled by rules that were checked by eye: stops on which all
peers agree, and of the others titles, citations, names of species, attributions, stops inside
words, and ordinary words before a capital. Stops inside quotations and brackets have no label.

Peers, each if it is installed (pip install sentencex pysbd spacy nltk): sentencex, spaCy's rule
sentencizer, pySBD and NLTK's Punkt, trained on the texts of the language. sentencex and pySBD get
the code of the language. An error is a boundary too many or too few.
"""

import argparse
import itertools
import json
import lzma
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from common import fastest, print_table, write_report

from longsum_jax.text.sentences import split_sentences

HERE = Path(__file__).parent
OWN = HERE.parent / "tests" / "golden" / "sentences.tsv"
LABELS = HERE / "sentence_labels.tsv"
OURS = "longsum_jax"
PYSBD = "en de fr es it nl pl ru el zh ja hi ar ur hy am my"  # languages of pySBD
Split = Callable[[str], Iterable[str]]


class Text(NamedTuple):
    """A text whose boundaries are known.

    Attributes:
        name: data set.
        language: code of its language.
        kind: kind of its boundaries.
        part: "held" or "seen".
        text: the text.
        labels: True for a boundary, by the number of characters but white space before it.
        is_complete: True if all boundaries are labelled, so that another one is an error.
    """

    name: str
    language: str
    kind: str
    part: str
    text: str
    labels: dict[int, bool]
    is_complete: bool


def boundaries(sentences: Iterable[str]) -> set[int]:
    """Returns where sentences end, as numbers of characters but white space."""
    ends = set()
    count = 0
    for sentence in sentences:
        count += len("".join(sentence.split()))
        ends.add(count)
    return ends


def own_texts() -> list[Text]:
    """Returns our own texts."""
    texts = []
    for line in OWN.read_text(encoding="utf-8").splitlines():
        language, kind, part, *sentences = line.split("\t")
        text = ("" if kind == "script" else " ").join(sentences)
        ends = sorted(boundaries(sentences))[:-1]
        texts.append(Text("own", language, kind, part, text, dict.fromkeys(ends, True), True))
    return texts


def real_texts(data: Path) -> list[Text]:
    """Returns blocks of real texts whose boundaries are labelled in part."""
    blocks = defaultdict(list)
    for line in LABELS.read_text(encoding="utf-8").splitlines():
        file, *row = line.split("\t")
        blocks[file].append(row)
    texts = []
    for file, rows in blocks.items():
        expected = {row[0] for row in rows}
        documents = {}
        with lzma.open(data / f"{file}.jsonl.xz", "rt", encoding="utf-8") as lines:
            for line in lines:
                document = json.loads(line)
                if document["id"] in expected:
                    documents[document["id"]] = document.get("document") or document["text"]
        for name, start, length, *labels in rows:
            block = documents[name][int(start) : int(start) + int(length)]
            part = "held" if zlib.crc32(name.encode()) % 3 == 0 else "seen"
            known = {int(label[1:]): label[0] == "+" for label in labels}
            text = " ".join(block.split())
            texts.append(Text("real", "en", file.split("/")[0], part, text, known, False))
    return texts


def errors(text: Text, split: Split) -> Counter[str]:
    """Counts the boundaries that a splitter misses and its wrong ones."""
    ends = boundaries(split(text.text))
    ends.discard(len("".join(text.text.split())))
    missed = sum(is_boundary and end not in ends for end, is_boundary in text.labels.items())
    if text.is_complete:
        wrong = len(ends - text.labels.keys())
    else:
        wrong = sum(not text.labels.get(end, True) for end in ends)
    return Counter(missed=missed, wrong=wrong)


def splitters(language: str, texts: Sequence[Text]) -> dict[str, Split]:
    """Returns ours and the peers that are installed, for texts of a language."""
    result: dict[str, Split] = {OURS: split_sentences}
    try:
        import sentencex

        result["sentencex"] = partial(sentencex.segment, language)
    except ImportError:
        pass
    try:
        import spacy

        pipeline = spacy.blank("xx")
        pipeline.add_pipe("sentencizer")
        result["spaCy sentencizer"] = lambda text: [span.text for span in pipeline(text).sents]
    except ImportError:
        pass
    try:
        from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer

        trainer = PunktTrainer()
        trainer.train("\n".join(text.text for text in texts))
        result["Punkt"] = PunktSentenceTokenizer(trainer.get_params()).tokenize
    except ImportError:
        pass
    try:
        import pysbd

        code = language if language in PYSBD.split() else "en"
        result["pySBD"] = pysbd.Segmenter(language=code, clean=False).segment
    except ImportError:
        pass
    return result


def measure(texts: Sequence[Text]) -> list[dict[str, Any]]:
    """Returns the errors of every splitter by data set, part, language and kind."""
    groups: dict[tuple[str, str], list[Text]] = defaultdict(list)
    for text in texts:
        groups[text.name, text.language].append(text)
    sums: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for (_, language), group in groups.items():
        for name, split in splitters(language, group).items():
            for text in group:
                counts = errors(text, split)
                counts["boundaries"] = sum(text.labels.values())
                stops = sum(text.text.count(mark) for mark in ".!?\u2026\u3002\uff01\uff1f")
                others = stops - counts["boundaries"] - 1
                if not text.is_complete:
                    others = len(text.labels) - counts["boundaries"]
                counts["others"] = max(others, 0)
                sums[text.name, text.part, "all", name] += counts
                sums[text.name, "both", text.language, name] += counts
                sums[text.name, "both", text.kind, name] += counts
    rows = []
    for (data, part, group, name), counts in sums.items():
        numbers = {key: counts[key] for key in ("boundaries", "others", "missed", "wrong")}
        total = counts["missed"] + counts["wrong"]
        rows.append(
            {
                "data": data,
                "part": part,
                "group": group,
                "splitter": name,
                **numbers,
                "errors": total,
            }
        )
    return rows


def speed(path: Path, novels: int, repeats: int) -> list[dict[str, Any]]:
    """Returns megabytes a second of ours and sentencex, on novels, a paragraph a line."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, novels)]
    blocks = [block for text in texts for block in re.split(r"\n\s*\n", text)]
    paragraphs = [" ".join(block.split()) for block in blocks]
    whole = "\n\n".join(paragraphs)
    calls: dict[str, Callable[[], Any]] = {OURS: lambda: split_sentences(whole)}
    size = len(whole.encode())
    try:
        import sentencex

        calls["sentencex"] = lambda: [sentencex.segment("en", line) for line in paragraphs]
    except ImportError:
        pass
    taken = fastest(calls, repeats)
    return [
        {"data": "speed", "splitter": name, "megabytes_per_second": size / 1e6 / seconds.cpu}
        for name, seconds in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="directory of the real texts; default: none")
    parser.add_argument("--repeats", type=int, default=3, help="turns of the speed; default: 3")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args()
    texts = own_texts()
    if args.data is not None:
        texts += real_texts(args.data)
    rows = measure(texts)
    if args.data is not None:
        rows += speed(args.data / "novels" / "val.jsonl.xz", 2, args.repeats)
    print_table([row for row in rows if row["data"] == "speed" or row["group"] == "all"])
    if args.out:
        peers = {name: _version(name) for name in ("sentencex", "spacy", "nltk", "pysbd")}
        write_report(args.out, rows, peers=peers)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
