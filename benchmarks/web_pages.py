"""Measures main-text extraction from web pages: text that is lost, boilerplate that stays, speed.

    python benchmarks/web_pages.py --out=web_pages.json

``web_pages/*.html`` has templates by kind of site. Each imitates the markup of a widespread content
management system, theme or site: elements, names in class and id, ARIA, order. Placeholders are
filled with sentences of our own, drawn from frames, each of them unique within its page. Digits
stand for sentences of the article, ``h`` for a heading and ``x`` for a list item of it; other
letters stand for boilerplate: ``m`` menus, ``c`` cookies, ``n`` newsletters, ``r`` and ``t``
headlines and teasers of other pages, ``w`` authors, ``k`` readers' comments, ``s`` sharing, ``p``
advertisements, ``u`` directions for users, ``f`` footers. ``[[3|...]]`` repeats markup. Titles,
bylines, captions, code and pull quotes are not counted. In forums and shops, posts and reviews are
the article. A template is "seen" or "held": the errors of the latter were not looked at while the
rules were written. Those marked "late" were written when the rules were complete.

``recall`` is the share of the article's letters and digits that an extractor returns, in whole
sentences, ``boilerplate`` the share of the boilerplate's; both are means over pages. Peers run if
they are installed (pip install trafilatura readability-lxml); comments are off in trafilatura.
"""

import argparse
import contextlib
import random
import re
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import numpy as np
from common import fastest, print_table, write_report

from longsum_jax.readers.html import Page as HtmlPage
from longsum_jax.readers.source import ReadOptions, Source

TEMPLATES = Path(__file__).parent / "web_pages"
OURS = "longsum_jax"
ARTICLE = re.compile(r"[0-9hx]")

WORDS = {
    "syllable": "ba bre dol fen gar hul ist kor lan mer nol pas rin sol tav ul ver wen yor zel",
    "noun": "bridge harbour council library orchard railway museum valley market school hospital "
    "tunnel forest reservoir factory garden station cathedral lighthouse mill",
    "verb": "closed opened replaced moved measured repaired sold painted rebuilt inspected",
}
REASONS = (
    "because the old one had become too small for the town",
    "although the first plan had been refused twice",
    "after a long winter in which little work was done",
    "so that visitors can reach the river on foot",
    "which nobody had expected when the work began",
    "while the engineers measured how the ground moves",
    "before the money of the region was spent on other things",
    "and most people in the valley agree that it was right",
)
ARTICLE_FRAMES = """
In {year} the {noun} of {name} was {verb}, {reason}.
Nobody in {name} remembers who {verb} the {noun}, {reason}.
The {noun} near {name} has {number} rooms, and it was {verb} in {year}, {reason}.
According to a study from {name}, every {noun} should be {verb} after {number} years, {reason}.
{number} people from {name} walked to the {noun} in {year}, {reason}.
What happened at the {noun} of {name} was {verb} again later, {reason}.
When the {noun} in {name} was {verb}, it cost {number} crowns, {reason}.
"""
FRAMES = {
    "h": "How {name} {verb} its {noun}",
    "x": "{number} parts of the {name} {noun}, {verb} and dry",
    "m": "{name} {noun}",
    "c": """
We and our {number} {name} partners use cookies to store data on your device and to personalise ads.
You can change your {name} choices at any time under privacy settings, see our cookie policy.
By using this site you agree to the {name} terms and to cookies that measure how it is used.
""",
    "n": """
Get the {name} briefing in your inbox every morning, with the best stories of the week.
Sign up for the free {name} newsletter and join {number} readers, you can unsubscribe at any time.
Never miss a post from {name}, enter your email address to subscribe.
""",
    "r": "Why the {noun} of {name} was {verb} by {number} strangers",
    "t": """
Our reporter visits the {noun} of {name} and meets {number} people who have {verb} it.
The {name} {noun} is back, and here is what you need to learn about it.
""",
    "w": """
{name} is a writer and editor who has covered the {noun} for {number} years and lives with two cats.
Follow {name} for more stories about every {noun}, or read the earlier books and essays.
""",
    "k": """
Great post, I was in {name} last year and the {noun} was {verb} even then, thank you for this.
I do not agree with {name} at all, my {noun} cost {number} and it was never {verb}.
Does anyone here have the address of the {name} {noun}, mine was {verb} a while ago?
""",
    "s": "Share on {name}",
    "p": """
Save {number} percent on your first {noun} at {name} when you order this week.
The {name} {noun} is now available from {number} crowns, terms and conditions apply.
""",
    "u": """
Skip to the {name} {noun}
Report a {name} problem with this page
Was this {name} page helpful?
You must be logged in to {name} to reply to this {noun}.
""",
    "f": """
© {year} {name} Media. All rights reserved. No {noun} may be reproduced without permission.
{name} is a registered charity of the {noun}, number {number}, and part of the {name} group.
""",
}
PAGE_START = re.compile(r"<!-- page ([\w-]+) (\w+) -->\n")
PLACEHOLDER = re.compile(r"\{(\d+|[a-z]|title)\}")
REPEATED = re.compile(r"\[\[(\d+)\|((?:(?!\[\[).)*?)\]\]", re.DOTALL)
Extract = Callable[[str], str]


class Page(NamedTuple):
    """A page whose article and boilerplate are marked.

    Attributes:
        kind: kind of the site.
        name: name of its template.
        part: "seen", "held" or "late".
        html: the page.
        article: sentences of the article, letters and digits only.
        boilerplate: sentences of everything else, likewise.
    """

    kind: str
    name: str
    part: str
    html: str
    article: Sequence[str]
    boilerplate: Sequence[str]


class Writer:
    """Draws sentences, each with names that no other has.

    Args:
        seed: seed of the draws.
    """

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._names: set[str] = set()

    def write(self, key: str) -> str:
        """Returns a sentence for a placeholder, see the module."""
        frames = FRAMES.get(key, ARTICLE_FRAMES).strip().split("\n")
        draw = self._random.choice
        return draw(frames).format(
            name=self._name(),
            noun=draw(WORDS["noun"].split()),
            verb=draw(WORDS["verb"].split()),
            reason=draw(REASONS),
            year=self._random.randrange(1850, 2020),
            number=self._random.randrange(12, 990),
        )

    def _name(self) -> str:
        while True:
            name = "".join(self._random.choices(WORDS["syllable"].split(), k=3)).capitalize()
            if name not in self._names:
                self._names.add(name)
                return name


def letters(text: str) -> str:
    """Returns the letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def fill(kind: str, name: str, part: str, template: str) -> Page:
    """Returns the page of a template."""
    writer = Writer(f"{kind}/{name}")
    article: list[str] = []
    boilerplate: list[str] = []
    title = writer.write("h")

    def repeat(match: re.Match[str]) -> str:
        count = int(match.group(1))
        return "".join(match.group(2).replace("{i}", str(i)) for i in range(1, count + 1))

    def replace(match: re.Match[str]) -> str:
        key = match.group(1)
        if key == "title":
            return title
        count = int(key) if key.isdigit() else 1
        sentences = [writer.write(key) for _ in range(count)]
        marked = article if ARTICLE.match(key) else boilerplate
        marked += map(letters, sentences)
        return " ".join(sentences)

    html = REPEATED.sub(repeat, template)
    return Page(kind, name, part, PLACEHOLDER.sub(replace, html), article, boilerplate)


def read_pages() -> list[Page]:
    """Returns all pages."""
    pages: list[Page] = []
    for path in sorted(TEMPLATES.glob("*.html")):
        _, *fields = PAGE_START.split(path.read_text(encoding="utf-8"))
        for name, part, template in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
            pages.append(fill(path.stem, name, part, template))
    return pages


def ours(html: str) -> str:
    """Returns the text of a page by this library."""
    page = HtmlPage(html, Source("page", "page", b"", ReadOptions()))
    page.drop_boilerplate()
    return "\n\n".join(block.text for block in page.blocks())


def peers() -> dict[str, Extract]:
    """Returns the peers that are installed."""
    result: dict[str, Extract] = {}
    try:
        import trafilatura
    except ImportError:
        pass
    else:
        settings = {
            "trafilatura": {},
            "trafilatura, recall": {"favor_recall": True},
            "trafilatura, precision": {"favor_precision": True},
        }

        def extractor(options: dict[str, bool]) -> Extract:
            return lambda html: trafilatura.extract(html, include_comments=False, **options) or ""

        result |= {name: extractor(options) for name, options in settings.items()}
    try:
        import readability
        from lxml.html import fromstring
    except ImportError:
        return result
    result["readability"] = lambda html: fromstring(
        readability.Document(html).summary()
    ).text_content()
    return result


def score(page: Page, text: str) -> tuple[float, float]:
    """Returns the shares of a page's article and boilerplate that a text has."""
    extracted = letters(text)
    shares = []
    for sentences in (page.article, page.boilerplate):
        present = sum(len(sentence) for sentence in sentences if sentence in extracted)
        shares.append(present / sum(map(len, sentences)))
    return shares[0], shares[1]


def rows_of(name: str, pages: Sequence[Page], extract: Extract, *, verbose: bool) -> list[dict]:
    """Returns rows by kind and part for an extractor."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for page in pages:
        text = extract(page.html)
        shares = score(page, text)
        for group in ((page.kind, "all"), ("all", page.part), ("all", "all")):
            groups.setdefault(group, []).append(shares)
        if verbose and page.part == "seen" and (shares[0] < 1 or shares[1] > 0):
            print(f"\n{page.kind}/{page.name}: {shares[0]:.3f} {shares[1]:.3f}")
            show(page, text)
    rows = []
    for (kind, part), values in groups.items():
        recall, boilerplate = np.mean(values, axis=0)
        row = {"system": name, "kind": kind, "part": part, "pages": len(values)}
        rows.append(row | {"recall": float(recall), "boilerplate": float(boilerplate)})
    return rows


def show(page: Page, text: str) -> None:
    """Prints sentences that are missing or too many."""
    extracted = letters(text)
    for sentence in page.article:
        if sentence not in extracted:
            print("  lost:", sentence[:70])
    for sentence in page.boilerplate:
        if sentence in extracted:
            print("  kept:", sentence[:70])


def main() -> None:
    """Scores and times all extractors, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--verbose", action="store_true", help="print our errors, not of held ones")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    args = parser.parse_args()
    pages = read_pages()
    extractors = {OURS: ours} | peers()
    rows = []
    for name, extract in extractors.items():
        rows += rows_of(name, pages, extract, verbose=args.verbose and name == OURS)
    print_table([row for row in rows if row["kind"] == "all" or row["system"] == OURS])

    def run(extract: Extract) -> Callable[[], None]:
        def call() -> None:
            for page in pages:
                extract(page.html)

        return call

    if args.verbose:
        return
    seconds = fastest({name: run(extract) for name, extract in extractors.items()}, 5)
    size = sum(len(page.html.encode()) for page in pages)
    speeds = [
        {"system": name, "part": "speed", "megabytes_per_second": size / 1e6 / time.cpu}
        for name, time in seconds.items()
    ]
    print_table(speeds)
    if args.out:
        versions = []
        for package in ("selectolax", "trafilatura", "readability-lxml"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions.append(f"{package} {metadata.version(package)}")
        write_report(args.out, [*rows, *speeds], note=", ".join(versions))


if __name__ == "__main__":
    main()
