"""Takes the pictures of the server's page in the guide.

    python docs/serve_pictures.py --browser=CHROMIUM

The bundled ranker summarizes the package's example text twice.
"""

import argparse
import json
import socket
import sys
import threading
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from example_report import HERE, save_picture

from longsum_jax.serving.app import make_app
from longsum_jax.serving.engine import Engine

FILE = "example.md"  # in the package
SIZE = (1280, 900)
PHONE = (390, 844)
LENGTHS = ((100, "words", "summarize"), (3, "sentences", "compare"))
SELECT = "document.querySelectorAll('{} .sentence')[1].click()"


def summarize(browser: Any, text: str) -> None:
    """Chooses a file, and compares its summaries of two lengths."""
    browser.run(f"chooseFiles([new File([{json.dumps(text)}], {json.dumps(FILE)})])")
    for length, unit, button in LENGTHS:
        browser.run(
            f"at('length').value = {length}; at('unit').value = '{unit}';"
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
    config = uvicorn.Config(make_app(Engine()), log_level="error")
    server = uvicorn.Server(config)
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
