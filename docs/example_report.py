"""Writes the example reports of the documentation and pictures of them.

    python docs/example_report.py [--data=test.jsonl] [--browser=CHROMIUM]

The report of ``longsum summarize`` is about the text that the package
contains, ``longsum_jax/example.md``. With data, it also writes a comparison of
systems: the built-in extractor, the first sentences of a document and, with
``--model``, a model. The data are the proposals of the Ethereum project that
are under CC0 1.0 (EIPs), JSON lines with id, licence, document and the abstract
as summary. The first two systems write about as many words as the references
have on average.
"""

import argparse
import base64
import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

import longsum_jax
from longsum_jax.commands import console
from longsum_jax.commands.summarize import main as summarize_files
from longsum_jax.evaluation.baselines import lead
from longsum_jax.evaluation.comparison import Prediction, Sampling, compare, score_system
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.report import ReportContent, write_report
from longsum_jax.text.rows import read_rows

HERE = Path(__file__).resolve().parent
REPORT = HERE / "guide" / "example_report.html"
SUMMARY_REPORT = HERE / "guide" / "summary_report.html"
SUMMARY_SIZE = (1280, 760)  # pixels of the summary's picture
METRICS = ("rouge", "novelty", "extractiveness", "repetition", "entities", "length")
OPTIONS = {"rouge": {"stemmer": True}}
LICENCE = "CC0-1.0"
SHOWN = 7  # document of the picture, from 1 on
# The first sentence of the reference that rests on several.
SENTENCE = """
[...document.querySelectorAll("#summaries .sentence")]
  .find((each) => each.support.length > 1).click()
"""
COLORS = 64  # of a picture
PICTURES = {"report": (1280, 900), "report_phone": (390, 844)}

Summarize = Callable[[Sequence[Pair], int], list[str]]


def extracts(pairs: Sequence[Pair], words: int) -> list[str]:
    return [longsum_jax.summarize(pair.source, length=words).text for pair in pairs]


def leads(pairs: Sequence[Pair], words: int) -> list[str]:
    return [lead(pair.source, num_words=words) for pair in pairs]


def of_model(path: str) -> Summarize:
    def summaries(pairs: Sequence[Pair], words: int) -> list[str]:
        model = longsum_jax.load(path)
        options = {"no_repeat_ngram_size": 3, "max_new_tokens": 2 * words, "batch_size": 8}
        return [each.text for each in model.summaries([pair.source for pair in pairs], **options)]

    return summaries


def content(pairs: Sequence[Pair], systems: dict[str, Summarize]) -> ReportContent:
    """Returns what the page shows."""
    words = round(sum(len(pair.reference.split()) for pair in pairs) / len(pairs))
    metrics, sampling = make_metrics(METRICS, OPTIONS), Sampling()
    scored = []
    for name, summarize in systems.items():
        with console.spinner(f"summaries of {name}"):
            texts = summarize(pairs, words)
        predictions = {pair.id: Prediction(text) for pair, text in zip(pairs, texts, strict=True)}
        scored.append(score_system(name, predictions, pairs, metrics, sampling))
    differences = compare(scored[0], scored[1:], metrics, sampling)
    return ReportContent(pairs, scored, metrics, differences, sampling)


def free_pairs(path: str) -> list[Pair]:
    """Returns the documents that anybody may pass on."""
    rows = [row for _, row in read_rows(path) if row.get("licence") == LICENCE]
    return [Pair(row["id"], row["document"], row["summary"]) for row in rows]


def write_summary_report() -> None:
    """Writes the report of the package's example text."""
    with contextlib.chdir(HERE.parent):  # the page shows the relative path
        path = SUMMARY_REPORT.relative_to(HERE.parent)
        flags = ["--length=5 sentences", f"--report={path}"]
        summarize_files([*flags, "longsum_jax/example.md"])


def take_pictures(program: str) -> None:
    """Takes pictures of the summary, the comparison and one of its documents."""
    sys.path.insert(0, str(HERE.parent / "tests" / "evaluation"))
    from browser import Browser

    with TemporaryDirectory() as directory:
        browser = Browser(program, directory)
        try:
            browser.set_theme("light")
            browser.resize(*SUMMARY_SIZE)
            browser.open(SUMMARY_REPORT.as_uri())
            browser.wait("!document.getElementById('reader').hidden")
            browser.run("document.querySelectorAll('.sentence')[2].click()")
            browser.run("document.activeElement.blur()")
            save_picture(browser, "summary_report.png")
            for name, size in PICTURES.items():
                browser.resize(*size)
                browser.open(REPORT.as_uri())
                browser.wait("document.querySelectorAll('#table .row').length > 2")
                save_picture(browser, f"{name}.png")
            browser.resize(*PICTURES["report"])
            browser.open(f"{REPORT.as_uri()}#document={SHOWN}")
            browser.wait("!document.getElementById('reader').hidden")
            browser.run(SENTENCE)
            save_picture(browser, "report_document.png")
        finally:
            browser.close()


def save_picture(browser: Any, name: str) -> None:
    """Stores what a browser shows as a picture of the guide."""
    path = HERE / "guide" / name
    picture = Image.open(io.BytesIO(base64.b64decode(browser.picture()))).convert("RGB")
    picture.quantize(COLORS).save(path, optimize=True)
    print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="JSON lines of the comparison")
    parser.add_argument("--model", help="the quickstart's workdir")
    parser.add_argument("--browser", help="program of Chromium, for pictures")
    flags = parser.parse_args()
    write_summary_report()
    if flags.data:
        systems: dict[str, Summarize] = {"built-in extractor": extracts, "lead": leads}
        if flags.model:
            systems["quickstart model"] = of_model(flags.model)
        write_report(REPORT, content(free_pairs(flags.data), systems))
        print(f"{REPORT.relative_to(HERE.parent)}: {REPORT.stat().st_size:,} bytes")
    if flags.browser:
        take_pictures(flags.browser)


if __name__ == "__main__":
    main()
