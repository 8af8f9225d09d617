"""Takes the pictures of the server's page in the guide.

    python docs/serve_pictures.py --browser=CHROMIUM

The package's example text is summarized by its first sentences, in place of a
model, and by the bundled ranker.
"""

import argparse
import json
import socket
import sys
import threading
import time
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from example_report import HERE, save_picture

from longsum_jax.serving.app import make_app
from longsum_jax.serving.engine import BUILT_IN, Engine
from longsum_jax.serving.pieces import WholeJob
from longsum_jax.summarization.summary import Summary
from longsum_jax.text.sentences import split_sentences

FILE = "example.md"  # in the package
SIZE = (1280, 900)
PHONE = (390, 844)
LEAD = "first-sentences"
WORDS = 100
RUNS = ((LEAD, "summarize"), (BUILT_IN, "compare"))
SELECT = "document.querySelectorAll('{} .sentence')[1].click()"


class LeadEngine(Engine):
    """Summarizes a document by its first sentences, without headings."""

    def _extract(self, length: Any, future: Any, request: Any, stream: Any) -> list[WholeJob]:
        spans = request.outline.headings
        headings = {request.text[start:end].strip() for start, end in spans}
        text, words = "", request.text.split()
        for sentence in split_sentences(request.text):
            longer = f"{text}\n{sentence}".strip()
            if len(longer.split()) > length.value:
                break
            if sentence not in headings:
                text = longer
        count = len(text.split())
        summary = Summary(text, len(words), len(words), 0, count, "eos", request=request)
        return [WholeJob(future, lambda _: summary, stream, time.monotonic())]


def summarize(browser: Any, text: str) -> None:
    """Chooses a file, and compares its summaries by two models."""
    browser.run(f"chooseFiles([new File([{json.dumps(text)}], {json.dumps(FILE)})])")
    for model, button in RUNS:
        browser.run(
            f"at('length').value = {WORDS}; at('model').value = '{model}';"
            f"at('status').textContent = ''; at('{button}').click()"
        )
        browser.wait("at('status').textContent === 'Summary finished'", 120)
    browser.run(SELECT.format("article:last-child"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--browser", required=True, help="program of Chromium")
    flags = parser.parse_args()
    sys.path.insert(0, str(HERE.parent / "tests" / "evaluation"))
    from browser import Browser

    listener = socket.create_server(("127.0.0.1", 0))
    app = make_app(LeadEngine(name=LEAD), Engine())
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    with TemporaryDirectory() as directory:
        browser = Browser(flags.browser, directory)
        try:
            browser.set_theme("light")
            browser.resize(*SIZE)
            browser.open(f"http://127.0.0.1:{listener.getsockname()[1]}/")
            browser.wait("at('facts').textContent", 60)
            text = (HERE.parent / "longsum_jax" / FILE).read_text(encoding="utf-8")
            summarize(browser, text)
            browser.run("document.activeElement.blur()")
            browser.run("scrollTo(0, 0)")
            save_picture(browser, "serve_page.png")
            browser.set_theme("dark")
            browser.resize(*PHONE)
            browser.run("at('reader').scrollIntoView()")
            browser.run(SELECT.format("article:first-child"))
            save_picture(browser, "serve_page_phone.png")
        finally:
            browser.close()
    server.should_exit = True
    thread.join()


if __name__ == "__main__":
    main()
