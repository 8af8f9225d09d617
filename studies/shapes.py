"""Finds shapes of input whose time or memory grows faster than their size.

One quantity of a file (depth, width, repetition, length of a name, number of
objects, ratio of compression) is doubled until the reader refuses the file or
the next doubling may take more than five seconds. "exponent" is the growth of
the time over the last doubling; 1 is linear. Exponents above 1.2 are measured
three times more, with the smallest times, because other programs slow some runs.

    python studies/shapes.py                  # all shapes
    python studies/shapes.py html tokenizer   # shapes with a word in the name

With --out, the same command goes on from the last shape.
"""

import argparse
import contextlib
import functools
import gzip
import hashlib
import io
import json
import math
import resource
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
from common import Deadline, rows_before, write_report
from fuzz_readers import READERS, TEXT, Files, tar

from longsum_jax.checksums import SUMS
from longsum_jax.errors import InputError

LIMIT = 5.0  # seconds
START = 1
MOST = 2**22
MEASURABLE = 0.05  # seconds; the growth of shorter times is noise
DOUBTFUL = 1.2  # exponents above are measured again
REPEATS = 3


class Growth(NamedTuple):
    """The measurement of a shape.

    Attributes:
        number: largest number that was read.
        seconds: processor time of the largest number.
        exponent: growth of the time over the last doubling; NaN if not measurable.
        megabytes: growth of the peak memory of the process.
        end: reason for the end of the doubling.
    """

    number: int
    seconds: float
    exponent: float
    megabytes: float
    end: str


def _row(**fields: Any) -> Files:
    row = {"id": "a", "document": "A cat sat.", "summary": "A cat.", "label": "a"}
    row |= fields
    return {"a.jsonl": json.dumps(row).encode()}


def _nested(content: bytes, number: int) -> bytes:
    """Returns a JSON object with another field of nested lists."""
    return content.rstrip()[:-1] + b', "a": ' + b"[" * number + b"]" * number + b"}"


def _page(content: str) -> Files:
    return {"a.html": f"<p>A cat sat.</p>{content}".encode()}


def _config(**fields: Any) -> Files:
    return {"config.json": json.dumps({"model_type": "t5"} | fields).encode()}


def _tokenizer(pattern: str = "a", words: int = 1, added: int = 0) -> Files:
    """Returns a tokenizer with a regular expression, a number of words and of added tokens."""
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    tokens = [
        {"id": words + i, "content": f"<{i}>", **dict.fromkeys(flags, False)} for i in range(added)
    ]
    vocabulary = {"a": 0} | {f"w{i}": i for i in range(1, words)}
    content = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"},
        "pre_tokenizer": step | {"invert": False},
        "added_tokens": tokens,
    }
    special = dict.fromkeys(("unk_token", "pad_token", "eos_token"), "a")
    return {
        "tokenizer.json": json.dumps(content).encode(),
        "tokenizer_config.json": json.dumps(special).encode(),
    }


def _merges(number: int) -> Files:
    """Returns a tokenizer of byte pairs with a number of merges."""
    files = next(files for files in _seeds("tokenizer").values() if "merges.txt" in files)
    words = json.loads(files["vocab.json"])
    pairs = [(f"t{i}", f"h{i}") for i in range(number)]
    for first, second in pairs:
        for word in (first, second, first + second):
            words[word] = len(words)
    text = "\n".join(["#version: 0.2", *map(" ".join, pairs)])
    return {"vocab.json": json.dumps(words).encode(), "merges.txt": text.encode()}


@functools.cache
def _seeds(reader: str) -> dict[str, Files]:
    """Returns the small valid files of a reader by their names."""
    return {" ".join(files): files for files in READERS[reader].seeds()}


def _long_text(name: str, number: int) -> Files:
    """Returns a document whose text is repeated, in members of archives, too."""
    return {name: _repeated(_seeds("documents")[name][name], number)}


def _repeated(content: bytes, number: int) -> bytes:
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return content.replace(TEXT.encode(), (TEXT + " ").encode() * number)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.namelist():
            new.writestr(member, _repeated(old.read(member), number), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _long_key(reader: str, number: int) -> Files:
    """Returns valid files of a reader with another key of so many letters in a JSON file."""
    files = next(files for files in _seeds(reader).values() if _json_names(files))
    name = _json_names(files)[0]
    content = json.loads(files[name]) | {"k" * number: 1}
    return files | {name: json.dumps(content).encode()}


def _json_names(files: Files) -> list[str]:
    """Returns the names of the files that hold JSON objects."""
    return [
        name for name, content in files.items() if content[:1] == b"{" and b"\n{" not in content
    ]


def _compressed(suffix: str, number: int) -> Files:
    import bz2
    import lzma

    from longsum_jax.compressed import import_zstd

    compress = {"xz": lzma.compress, "bz2": bz2.compress, "gz": gzip.compress}.get(suffix)
    if compress is None:
        compress = import_zstd("a.txt.zst").compress
    return {f"a.txt.{suffix}": compress(b"A. " * number)}


def _pdf_text(number: int) -> Files:
    """Returns a page whose stream unpacks to much text."""
    stream = zlib.compress(b"BT /F 12 Tf " + b"(a. ) Tj " * number + b"ET")
    parts = (
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (i + 1, part) for i, part in enumerate(parts))
    return {"a.pdf": b"%PDF-1.7\n" + body + b"trailer<</Root 1 0 R/Size 9>>\n"}


def _parquet_text(number: int) -> Files:
    import pyarrow
    import pyarrow.parquet

    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"text": [TEXT] * number}), out)
    return {"a.parquet": out.getvalue()}


def _tensor_names(number: int) -> Files:
    entries = {
        f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(number)
    }
    header = json.dumps(entries).encode()
    return {"model.safetensors": len(header).to_bytes(8, "little") + header}


def _state_dict(number: int) -> Files:
    import torch

    out = io.BytesIO()
    torch.save({f"t{i}": torch.zeros(1) for i in range(number)}, out)
    return {"pytorch_model.bin": out.getvalue()}


def _index(number: int) -> Files:
    names = {f"t{i}": "x.safetensors" for i in range(number)}
    [(_, shard)] = _tensor_names(number).items()
    index = json.dumps({"weight_map": names}).encode()
    return {"model.safetensors.index.json": index, "x.safetensors": shard}


def _sums(number: int) -> Files:
    names = sorted(map(str, range(number)))
    lines = [f"# {number} sums", *(f"{hashlib.sha256().hexdigest()}  {name}" for name in names)]
    return dict.fromkeys(names, b"") | {SUMS: "\n".join([*lines, ""]).encode()}


def _predictions(change: Callable[[bytes], bytes]) -> Files:
    """Returns the files of a run's predictions whose first row is changed."""
    [files] = _seeds("predictions").values()
    first, _ = files["predictions.jsonl"].splitlines()
    return files | {"predictions.jsonl": change(first) + b"\n"}


# Documents whose text is repeated, by the kind of their reader.
LONG_TEXTS = {
    "notebook": "a.ipynb",
    "rst": "a.rst",
    "xml": "a.xml",
    "epub": "a.epub",
    "docx": "a.docx",
    "pptx": "a.pptx",
    "xlsx": "a.xlsx",
    "odt": "a.odt",
    "subtitles": "a.srt",
    "mail": "a.eml",
    "mhtml": "a.mht",
    "mailbox": "a.mbox",
    "slack": "slack.zip",
    "json_lines": "a.jsonl",
    "json": "a.json",
    "zip": "a.zip",
}
# Name, which begins with the reader -> function that returns the files for a number.
SHAPES: dict[str, Callable[[int], Files]] = {
    "documents: html, nested div": lambda n: _page("<div>" * n),
    "documents: html, nested b": lambda n: _page("<b>" * n + "x"),
    "documents: html, attributes": lambda n: _page(
        "<p " + "".join(f"a{i} " for i in range(n)) + ">x"
    ),
    "documents: html, long attribute": lambda n: _page(f"<p class='{'a ' * n}'>x"),
    "documents: html, paragraphs": lambda n: _page("<p>A dog sat." * n),
    "documents: html, unclosed links": lambda n: _page("<a href=x>" * n),
    "documents: html, cells": lambda n: _page("<table><tr>" + "<td>x" * n),
    "documents: html, entities": lambda n: _page("&amp;" * n),
    "documents: markdown, quotes": lambda n: {"a.md": b">" * n + b" A cat sat."},
    "documents: markdown, brackets": lambda n: {"a.md": b"[" * n + b"A cat sat."},
    "documents: markdown, stars": lambda n: {"a.md": b"*a " * n},
    "documents: text, one word": lambda n: {"a.txt": b"a" * n},
    "documents: text, dots": lambda n: {"a.txt": b"A. " * n},
    "documents: text, lines": lambda n: {"a.txt": b"a\n" * n},
    "documents: csv, columns": lambda n: {"a.csv": b"text" + b",a" * n + b"\nA cat sat."},
    **{
        f"documents: {kind}, long text": functools.partial(_long_text, name)
        for kind, name in LONG_TEXTS.items()
    },
    **{
        f"documents: {suffix}, ratio": functools.partial(_compressed, suffix)
        for suffix in ("gz", "xz", "bz2", "zst")
    },
    "documents: tar, members": lambda n: {
        "a.tar": tar({f"{i}.txt": TEXT.encode() for i in range(n)})
    },
    "documents: pdf, unpacked text": _pdf_text,
    "documents: parquet, rows": _parquet_text,
    "documents: rtf, groups": lambda n: {"a.rtf": b"{\\rtf1 " + b"{" * n + b"A." + b"}" * n + b"}"},
    "documents: xml, depth": lambda n: {
        "a.xml": b"<article><body>"
        + b"<sec>" * n
        + b"<p>A cat sat.</p>"
        + b"</sec>" * n
        + b"</body></article>"
    },
    "documents: mail, headers": lambda n: {"a.eml": b"X-A: b\n" * n + b"\nA cat sat.\n"},
    "weights: tensors": _tensor_names,
    "pickle: tensors": _state_dict,
    "index: tensors": _index,
    "checkpoint: long key": functools.partial(_long_key, "checkpoint"),
    "sentencepiece: long key": functools.partial(_long_key, "sentencepiece"),
    "metadata: long key": functools.partial(_long_key, "metadata"),
    "scrolls: rows": lambda n: {
        "validation.jsonl": b"".join(
            b'{"id": "%d", "pid": "%d_0", "input": "A.", "output": "B."}\n' % (i, i)
            for i in range(n)
        )
    },
    "sums: lines": _sums,
    "rows: depth": lambda n: {"a.jsonl": _nested(_row()["a.jsonl"], n)},
    "rows: keys": lambda n: _row(**{f"k{i}": 1 for i in range(n)}),
    "rows: long key": lambda n: _row(**{"k" * n: 1}),
    "rows: long document": lambda n: _row(document="A cat sat. " * n),
    "rows: summaries": lambda n: _row(summary=["A cat."] * n),
    "rows: ratio": lambda n: {"a.jsonl.gz": gzip.compress(b" " * n + _row()["a.jsonl"])},
    "config: long name": lambda n: _config(_name_or_path="t" * n),
    "config: keys": lambda n: _config(**{f"k{i}": 1 for i in range(n)}),
    "config: depth": lambda n: {"config.json": _nested(_config()["config.json"], n)},
    "tokenizer: optional atoms": lambda n: _tokenizer("a?" * n),
    "tokenizer: alternatives": lambda n: _tokenizer("(?:a|b)" * n),
    "tokenizer: words": lambda n: _tokenizer(words=n),
    "tokenizer: added tokens": lambda n: _tokenizer(added=n),
    "tokenizer: merges": _merges,
    "predictions: long prediction": lambda n: _predictions(
        lambda row: row.replace(b"A cat.", b"A cat. " * n)
    ),
    "predictions: depth": lambda n: _predictions(lambda row: _nested(row, n)),
    "predictions: rows": lambda n: _predictions(
        lambda row: b"\n".join(row.replace(b'"a"', b'"%d"' % i, 1) for i in range(n))
    ),
}


def _seconds(name: str, number: int) -> float:
    """Returns the processor time of reading one file.

    Raises:
        InputError: the file is refused.
    """
    reader = READERS[name.partition(":")[0]]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in SHAPES[name](number).items():
            path = Path(folder, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        start = time.process_time()
        reader.read(Path(folder))
        return time.process_time() - start


def grow(name: str, start: int = START) -> Growth:
    """Doubles the quantity of a shape until a limit answers."""
    with contextlib.suppress(InputError):
        _seconds(name, 1)  # imports
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    number, seconds, exponent, end = 0, 0.0, math.nan, "the largest number"
    following = start
    while following <= MOST:
        try:
            new = _seconds(name, following)
        except InputError as error:
            end = f"refused at {following:,}: {error}"[-60:]
            break
        if seconds > MEASURABLE:
            exponent = math.log2(new / seconds)
        number, seconds = following, new
        following *= 2
        if seconds * 4 > LIMIT:
            end = "time"
            break
    if exponent > DOUBTFUL:
        half, whole = (
            min(_seconds(name, size) for _ in range(REPEATS)) for size in (number // 2, number)
        )
        seconds, exponent = whole, math.log2(whole / half)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Growth(number, seconds, exponent, (peak - memory) / 1024, end)


def main() -> None:
    """Prints the growth of the shapes whose name contains one of the words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="words in the names of shapes; default: all")
    parser.add_argument("--out", metavar="FILE")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    deadline = Deadline(args.minutes)
    rows = rows_before(args.out)
    finished = {row["shape"] for row in rows}
    for name in SHAPES:
        if deadline.is_over:
            break
        if name in finished or (args.words and not any(word in name for word in args.words)):
            continue
        growth = grow(name)
        row = {
            "shape": name,
            "number": growth.number,
            "seconds": round(growth.seconds, 2),
            "exponent": None if math.isnan(growth.exponent) else round(growth.exponent, 2),
            "megabytes": round(growth.megabytes),
            "end": growth.end,
        }
        rows.append(row)
        print(*row.values(), sep="\t", flush=True)
        if args.out:
            write_report(args.out, rows, date=time.strftime("%Y-%m-%d"))


if __name__ == "__main__":
    main()
