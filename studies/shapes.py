"""Finds shapes of input whose time or memory grows faster than their size.

One quantity of a file (depth, width, repetition, length of a name, number of
objects, ratio of compression) is doubled until the reader refuses the file or
the next doubling may take more than five seconds. "exponent" is the growth of
the time over the last doubling; 1 is linear.

    python studies/shapes.py                  # all shapes
    python studies/shapes.py html tokenizer   # shapes with a word in the name
"""

import argparse
import contextlib
import gzip
import json
import math
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
from fuzz_readers import READERS, Files

from longsum_jax.errors import InputError

LIMIT = 5.0  # seconds
START = 64
MOST = 2**22
MEASURABLE = 0.05  # seconds; the growth of shorter times is noise


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


def _nested(number: int) -> bytes:
    return b'{"a":' + b"[" * number + b"]" * number + b"}"


def _page(content: str) -> Files:
    return {"a.html": f"<p>A cat sat.</p>{content}".encode()}


def _config(**fields: Any) -> Files:
    return {"config.json": json.dumps({"model_type": "t5"} | fields).encode()}


def _tokenizer(pattern: str) -> Files:
    step = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    content = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"},
        "pre_tokenizer": step | {"invert": False},
    }
    return {
        "tokenizer.json": json.dumps(content).encode(),
        "tokenizer_config.json": b'{"unk_token": "a"}',
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
    "rows: depth": lambda n: {"a.jsonl": _nested(n)},
    "rows: keys": lambda n: _row(**{f"k{i}": 1 for i in range(n)}),
    "rows: long key": lambda n: _row(**{"k" * n: 1}),
    "rows: long document": lambda n: _row(document="A cat sat. " * n),
    "rows: summaries": lambda n: _row(summary=["A cat."] * n),
    "rows: ratio": lambda n: {"a.jsonl.gz": gzip.compress(b" " * n + b"{}")},
    "config: long name": lambda n: _config(model_type="t" * n),
    "config: keys": lambda n: _config(**{f"k{i}": 1 for i in range(n)}),
    "config: depth": lambda n: {"config.json": _nested(n)},
    "tokenizer: optional atoms": lambda n: _tokenizer("a?" * n),
    "tokenizer: alternatives": lambda n: _tokenizer("(?:a|b)" * n),
    "predictions: depth": lambda n: {"predictions.jsonl": _nested(n)},
    "predictions: rows": lambda n: {
        "predictions.jsonl": b"".join(
            b'{"id": "%d", "prediction": "A cat."}\n' % i for i in range(n)
        )
    },
}


def _seconds(name: str, number: int) -> float:
    """Returns the processor time of reading one file.

    Raises:
        InputError: the file is refused.
    """
    reader = READERS[name.partition(":")[0]]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in SHAPES[name](number).items():
            Path(folder, file).write_bytes(content)
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
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return Growth(number, seconds, exponent, (peak - memory) / 1024, end)


def main() -> None:
    """Prints the growth of the shapes whose name contains one of the words."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*", help="words in the names of shapes; default: all")
    words = parser.parse_args().words
    for name in SHAPES:
        if not words or any(word in name for word in words):
            growth = grow(name)
            row = (
                name,
                f"{growth.number:,}",
                f"{growth.seconds:.2f}",
                f"{growth.exponent:.1f}",
                f"{growth.megabytes:.0f}",
                growth.end,
            )
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
