"""The page of scores and documents: what is in it, and how it behaves in a browser."""

import base64
import gzip
import html.parser
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from longsum_jax.evaluation import report
from longsum_jax.evaluation.aligners import VectorAligner
from longsum_jax.evaluation.comparison import Prediction, Sampling, compare, score_system
from longsum_jax.evaluation.pages import fill, read_part
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.evaluation.published import find_published
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.report import BINS, ReportContent, write_report
from longsum_jax.text.alignment import SUPPORTED, align
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import split_sentences

ANIMALS = "Cats sleep all day. Dogs bark at night.\n\nHorses run far. </script> Birds sing early."
INVENTED = "Zebras graze in Kenya."


def document(number):
    source = f"Report {number} is short. {ANIMALS} " + "It goes on. " * (number % 7)
    return Pair(f"report-{number}", source, "Cats sleep. Birds sing at night.")


@pytest.fixture(scope="module")
def content():
    """Two systems on 60 documents: one copies, the other invents and leaves one empty."""
    pairs = [document(number) for number in range(60)]
    pairs[3] = pairs[3]._replace(query="Who sleeps?", other_references=("Horses run.",))
    copied = {pair.id: Prediction("Cats sleep all day.\n Birds sing early.") for pair in pairs}
    invented = {pair.id: Prediction(f"Dogs bark at night. {INVENTED}") for pair in pairs}
    invented["report-5"] = Prediction("")
    metrics, sampling = make_metrics(["rouge", "length"]), Sampling(rounds=200)
    systems = [
        score_system(name, predictions, pairs, metrics, sampling)
        for name, predictions in {"copied": copied, "invented": invented}.items()
    ]
    differences = compare(systems[0], systems[1:], metrics, sampling)
    return ReportContent(pairs, systems, metrics, differences, sampling)


@pytest.fixture(scope="module")
def path(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "CHUNK_CHARACTERS", 10_000)
        write_report(path, content)
    return path


class Elements(html.parser.HTMLParser):
    """Everything of a page: tags with attributes, and the texts of scripts by id."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.scripts = {}
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = dict(attributes).get("id") if tag == "script" else None

    def handle_data(self, data):
        if self._inside:
            self.scripts[self._inside] = data

    def handle_endtag(self, tag):
        self._inside = None


LABELS = {"for", "aria-labelledby"}


@pytest.fixture(scope="module")
def page(path):
    return Elements(path.read_text(encoding="utf-8"))


def unpacked(page, name):
    return json.loads(gzip.decompress(base64.b64decode(page.scripts[name])))


def test_a_page_holds_all_it_needs(page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe")
        assert not {"src", "srcset", "onclick"} & attributes.keys()
        assert not attributes.get("href", "#").startswith("http")
    policies = [each.get("content", "") for tag, each in page.tags if tag == "meta"]
    assert any("default-src 'none'" in policy for policy in policies)


def test_what_is_labelled_exists(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes[key] for _, attributes in page.tags for key in LABELS & attributes.keys()]
    assert {"metric", "search", "order"} <= set(named) <= set(ids)


def test_scores_of_the_page(page, content):
    index = unpacked(page, "index")
    assert index["columns"][:4] == ["rouge1", "rouge2", "rougeLsum", "mean_rouge"]
    assert index["main_column"] == "mean_rouge"
    for shown, system in zip(index["systems"], content.systems, strict=True):
        assert shown["values"] == system.values
        assert shown["intervals"]["rouge1"] == list(system.intervals["rouge1"])
    assert [shown["empty"] for shown in index["systems"]] == [0, 1]
    against = index["systems"][1]["against"]["rouge1"]
    assert against == content.differences["invented"]["rouge1"]._asdict()
    scores = [values["rouge1"] for values in content.systems[1].scores]
    assert index["scores"]["rouge1"][1] == pytest.approx(scores, abs=1e-4)
    assert index["signatures"][0].startswith("rouge|")
    assert index["supported"] == SUPPORTED
    assert index["has_references"] is True


def test_documents_lie_in_the_page_as_they_are(page, content):
    index = unpacked(page, "index")
    chunks = [unpacked(page, f"chunk-{number}") for number in range(len(index["chunks"]))]
    assert len(chunks) > 2
    assert index["chunks"] == np.cumsum([0, *map(len, chunks)])[:-1].tolist()
    documents = [each for chunk in chunks for each in chunk]
    assert index["documents"]["id"] == [pair.id for pair in content.pairs]
    for number, (result, pair) in enumerate(zip(documents, content.pairs, strict=True)):
        assert "".join(result["source"]) == pair.source
        texts = ["".join(each["pieces"]) for each in result["references"]]
        assert texts == list(pair.references)
        for system, summary in zip(content.systems, result["summaries"], strict=True):
            assert "".join(summary["pieces"]) == system.predictions[number]
            assert len(summary["pieces"]) == len(summary["support"])
    assert documents[3]["query"] == "Who sleeps?"


def test_sentences_name_what_they_rest_on(page, content):
    result, pair = unpacked(page, "chunk-0")[2], content.pairs[2]
    sentences = split_sentences(pair.source)
    expected = align(["Dogs bark at night.", INVENTED], sentences)
    for support, each in zip(result["summaries"][1]["support"], expected, strict=True):
        assert [index for index, _ in support] == each.indices
        assert [score for _, score in support] == pytest.approx(each.scores, abs=1e-3)
    [[index, score]] = result["summaries"][1]["support"][0]
    assert (result["source"][index].strip(), score) == ("Dogs bark at night.", 1)
    index = unpacked(page, "index")
    assert index["unsupported"][0] == [0] * 60
    assert index["unsupported"][1] == [int(number != 5) for number in range(60)]


def test_what_the_page_plots(page, content):
    index = unpacked(page, "index")
    assert index["words"][0] == [7] * 60
    assert index["documents"]["reference_words"] == [6] * 60
    reference, copied, invented = map(np.array, index["sentences"])
    assert len(reference) == BINS
    assert (reference.sum(), copied.sum(), invented.sum()) == (120, 120, 118)
    assert copied[-1] == 120
    assert invented[: int(SUPPORTED * BINS)].sum() == 59
    for used in index["used"]:
        assert sum(used) == pytest.approx(1, abs=1e-4)
    places = np.flatnonzero(np.array(index["used"][1]) > 0.01)
    assert places.min() < BINS / 2 < places.max()


def test_the_main_column_may_be_given(content, tmp_path):
    few = content._replace(pairs=content.pairs[:1], main_column="length_ratio")
    write_report(tmp_path / "few.html", few)
    page = Elements((tmp_path / "few.html").read_text(encoding="utf-8"))
    assert unpacked(page, "index")["main_column"] == "length_ratio"


@pytest.fixture(scope="module")
def by_vectors(content, tiny_bert, tmp_path_factory):
    """A page of a few documents that aligns sentences by vectors."""
    path = tmp_path_factory.mktemp("vectors") / "report.html"
    systems = [
        system._replace(predictions=system.predictions[:4], scores=system.scores[:4])
        for system in content.systems
    ]
    few = content._replace(pairs=content.pairs[:4], systems=systems)
    write_report(path, few._replace(aligner=VectorAligner(str(tiny_bert))))
    return path


def test_rows_of_papers_are_in_the_page(page, content, tmp_path):
    assert unpacked(page, "index")["published"] == []
    blocks = find_published("lsg:table4")
    write_report(tmp_path / "report.html", content._replace(published=blocks))
    index = unpacked(Elements((tmp_path / "report.html").read_text(encoding="utf-8")), "index")
    [block] = index["published"]
    assert block["table"] == "4"
    assert block["systems"]["LED (4K)"]["rouge1"] == 44.4


def test_sentences_may_be_aligned_by_vectors(by_vectors, content):
    page = Elements(by_vectors.read_text(encoding="utf-8"))
    index, result = unpacked(page, "index"), unpacked(page, "chunk-0")[2]
    assert index["alignment"]["by"] == "vectors"
    [[place, score], *_] = result["summaries"][1]["support"][0]
    assert (result["source"][place].strip(), score) == ("Dogs bark at night.", 1)
    totals = [
        sum(score for _, score in support)
        for document in unpacked(page, "chunk-0")
        for support in document["summaries"][1]["support"]
    ]
    below = sum(total < index["supported"] for total in totals)
    assert 0 < below == sum(index["unsupported"][1])
    counts = np.array(index["sentences"]).sum(1)
    missing = [sum(values) for values in index["unsupported"]]
    np.testing.assert_allclose(index["unsupported_shares"][1:], missing / counts[1:])


def test_documents_without_references(content, tmp_path):
    pairs = [pair._replace(reference="") for pair in content.pairs[:2]]
    metrics = make_metrics(["support"])
    copied = {pair.id: Prediction(f"Cats sleep all day. {INVENTED}") for pair in pairs}
    system = score_system("copied", copied, pairs, metrics, Sampling(rounds=10))
    path = tmp_path / "alone.html"
    write_report(path, ReportContent(pairs, [system], metrics, {}, Sampling(rounds=10)))
    page = Elements(path.read_text(encoding="utf-8"))
    index = unpacked(page, "index")
    assert index["has_references"] is False
    assert index["main_column"] == "supported_sentences"
    assert index["scores"]["supported_sentences"] == [[50, 50]]
    assert index["sentences"][0] == [0] * BINS
    assert sum(index["sentences"][1]) == 4
    assert [document["references"] for document in unpacked(page, "chunk-0")] == [[], []]


def test_marks_and_counts_of_documents(content, tmp_path):
    source = "# Well-known animals\n\n- **Cats sleep. They purr** `all_day`."
    pairs = [Pair("cats", source, "")]
    systems = [content.systems[0]._replace(predictions=["- **Cats** don't bark."])]
    path = tmp_path / "marks.html"
    write_report(path, content._replace(pairs=pairs, systems=systems, differences={}))
    page = Elements(path.read_text(encoding="utf-8"))
    index, [document] = unpacked(page, "index"), unpacked(page, "chunk-0")
    assert index["documents"]["words"] == [num_words(source)]
    assert index["words"] == [[4]]
    assert index["documents"]["opening"] == [
        "Well-known animals \u2022 Cats sleep. They purr all_day."
    ]
    assert len(document["source"]) == len(split_sentences(source))
    assert document["summaries"][0]["pieces"] == ["\u2022 Cats don't bark."]
    [[[index, _]]] = document["summaries"][0]["support"]
    assert document["source"][index].strip() == "\u2022 Cats sleep."


def test_halves_of_characters_do_not_end_the_report(content, tmp_path):
    pairs = [Pair("\ud800", "A cat \udc00 sat.", "A cat.")]
    systems = [content.systems[0]._replace(predictions=["A cat \ud83d."])]
    write_report(tmp_path / "half.html", content._replace(pairs=pairs, systems=systems))
    assert (tmp_path / "half.html").read_text(encoding="utf-8")


def luminance(color):
    """Relative luminance (WCAG 2, definitions)."""
    digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    parts = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def test_contrasts_of_both_themes():
    themes = re.findall(r":root \{(.*?)\}", read_part("report.css"), re.DOTALL)
    assert len(themes) == 2
    for theme in themes:
        colors = dict(re.findall(r"--(\w+): (#\w+);", theme))
        pairs = [(ink, paper) for ink in ("ink", "soft", "accent") for paper in ("paper", "tint")]
        for ink, paper in [*pairs, ("ink", "mark"), ("accent", "mark")]:
            dark, light = sorted(luminance(colors[name]) for name in (ink, paper))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, paper)


def test_all_scripts_are_in_the_page():
    directory = Path(report.__file__).parent
    assert {path.name for path in directory.glob("*.js")} == set(report.SCRIPTS)


def test_templates():
    assert fill("{{a}} {{b}} {{c}", a="{{b}}", b="1") == "{{b}} 1 {{c}"


# In a browser


@pytest.fixture
def shown(browser, path):
    """The page on a wide screen, with its table filled."""
    browser.set_theme("light")
    browser.resize(1400, 900)
    browser.open(path.as_uri())
    browser.wait("document.querySelectorAll('#table .row').length > 2")
    return browser


ROWS = "[...document.querySelectorAll('#table .row a')].map((link) => link.textContent)"


def text(browser, selector):
    return browser.run(f"document.querySelector({json.dumps(selector)}).innerText")


def open_document(browser, number):
    browser.run(f"location.hash = '#document={number}'")
    browser.wait(f"document.getElementById('name').textContent === 'report-{number - 1}'")


@pytest.mark.browser
def test_the_first_screen_tells_which_system_is_better(shown, content):
    difference = content.differences["invented"]["mean_rouge"].difference
    verdict = f"copied scores {difference:.2f} higher than invented in mean_rouge."
    assert text(shown, "#verdict") == verdict
    assert "The difference is significant (p = 0.005)" in text(shown, "#reason")
    assert len(shown.run("[...document.querySelectorAll('#plots svg')]")) == 5
    top = shown.run("document.getElementById('board').getBoundingClientRect().bottom")
    assert top < 900
    shown.run(
        "metric.value = 'length_ratio'; metric.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert "length_ratio" in text(shown, "#verdict")


@pytest.mark.browser
def test_the_worst_come_first_and_rows_exist_in_view_only(shown, content):
    values = [scores["mean_rouge"] for scores in content.systems[0].scores]
    worst = np.argsort(values, kind="stable")
    rows = shown.run(ROWS)
    assert rows == [content.pairs[i].id for i in worst[: len(rows)]]
    assert len(rows) < 40
    shown.run("document.querySelectorAll('#table th button')[1].click()")
    assert shown.run(ROWS)[0] == "report-5"  # the empty one
    assert shown.run("document.querySelectorAll('[aria-sort]').length") == 1
    shown.run("document.querySelector('#table .row a').focus()")
    shown.press("End", 35)
    shown.wait("document.activeElement.dataset.place === '59'")
    shown.press("ArrowUp", 38)
    assert shown.run("document.activeElement.dataset.place") == "58"
    assert "report-5" not in shown.run(ROWS)


@pytest.mark.browser
def test_the_level_of_intervals_has_few_digits(browser, content, tmp_path):
    path = tmp_path / "report.html"
    write_report(path, content._replace(sampling=content.sampling._replace(level=0.683)))
    browser.open(path.as_uri())
    browser.wait("document.getElementById('board-note').textContent")
    assert "Bars are 68.3 % intervals" in text(browser, "#board-note")


@pytest.mark.browser
def test_pages_without_references(browser, tmp_path):
    metrics, sampling = make_metrics(["support"]), Sampling(rounds=10)
    expected = {1: "1 document, 19 words; summary of 4 words", 3: "summaries of 12 words"}
    for count, facts in expected.items():
        pairs = [document(7 * number)._replace(reference="") for number in range(count)]
        predictions = {pair.id: Prediction("Cats sleep all day.") for pair in pairs}
        system = score_system("copied", predictions, pairs, metrics, sampling)
        path = tmp_path / f"{count}.html"
        write_report(path, ReportContent(pairs, [system], metrics, {}, sampling))
        browser.open(path.as_uri())
        browser.wait("document.getElementById('facts').textContent")
        assert text(browser, "#facts").endswith(facts)
        is_one = str(count == 1).lower()
        browser.wait(f"{is_one} === !document.getElementById('reader').hidden")
        assert browser.run("document.getElementById('measured').open") is False
        items = "document.querySelectorAll('#list li').length"
        browser.wait(f"{items} === {count}")
    # Items have no visible text before the browser first draws them.
    browser.wait("document.querySelector('#list li:last-child').innerText")
    lines = text(browser, "#list li:last-child").split("\n")
    assert [line for line in lines if line] == [
        "report-14",
        "19 words, summary of 4 words",
        "Cats sleep all day.",
    ]
    browser.run("document.querySelector('#list li:last-child a').click()")
    browser.wait("document.getElementById('name').textContent === 'report-14'")
    browser.press("Escape", 27)
    browser.wait("document.activeElement.textContent === 'report-14'")
    browser.run(
        "search_box = document.getElementById('search');"
        "search_box.value = 'report 7 is';"
        "search_box.dispatchEvent(new Event('input'))"
    )
    visible = "document.querySelectorAll('#list li:not([hidden])').length"
    browser.wait(f"{visible} === 1")
    assert browser.run("document.title") == "Summaries of report-0 and 2 more"


@pytest.mark.browser
def test_rows_of_papers_stand_below_the_scores(browser, content, tmp_path):
    path = tmp_path / "report.html"
    published = [*find_published("lsg:table4"), *find_published("awesome:table13")]
    write_report(path, content._replace(published=published))
    browser.open(path.as_uri())
    browser.wait("!document.getElementById('overview').hidden")
    assert text(browser, "#published-title") == "Published scores"
    cells = "[...document.querySelectorAll('#published tr')].map((row) => row.innerText)"
    rows = [row.split("\t") for row in browser.run(cells)]
    assert rows[0] == ["System", "rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert rows[1][:2] == ["copied", f"{content.systems[0].values['rouge1']:.2f}"]
    assert rows[3] == ["PEGASUS (1K)", "44.70", "17.27", "25.80", ""]
    assert len(rows) == 1 + 2 + 15  # density was not scored, so that table is left out


@pytest.mark.browser
def test_papers_without_rows_have_no_section(shown):
    assert shown.run("document.getElementById('published-section').hidden")


@pytest.mark.browser
def test_search_finds_texts_of_all_documents(shown):
    for expected, result in (("Who sleeps?", "1"), ("KENYA", "59"), ("no such words", "0")):
        shown.run(
            f"search_box = document.getElementById('search'); search_box.value = '{expected}';"
            "search_box.dispatchEvent(new Event('input'))"
        )
        shown.wait(f"document.getElementById('found').textContent === '{result} of 60 documents'")


@pytest.mark.browser
def test_a_sentence_shows_what_it_rests_on(shown):
    open_document(shown, 3)
    assert shown.run("document.activeElement.id") == "name"
    sentences = "document.querySelectorAll('#summaries article:last-child .sentence')"
    shown.run(f"{sentences}[0].focus()")
    shown.press("Enter", 13)
    assert text(shown, "mark").startswith("Dogs bark at night.")
    assert text(shown, "#support") == "Based on one sentence, which contains 100 % of its words."
    assert text(shown, "mark sup") == "100 %"
    shown.press("ArrowRight", 39)
    assert shown.run("document.activeElement.textContent") == f"{INVENTED} (unsupported)"
    shown.press(" ", 32)
    assert shown.run("document.querySelectorAll('mark').length") <= 3
    assert text(shown, "#support").startswith(("Unsupported", "Shares no words"))
    source = shown.run("document.getElementById('source').textContent")
    assert "</script>" in source
    shown.press("Escape", 27)
    shown.wait("!document.getElementById('overview').hidden")
    assert shown.run("document.activeElement.textContent") == "report-2"


@pytest.mark.slow
@pytest.mark.browser
def test_thousands_of_documents_lie_in_one_page(browser, content, tmp_path):
    count = 5000
    pairs = [
        Pair(f"d{i}", f"Report {i} says {i * i}. {ANIMALS}", "Cats sleep.") for i in range(count)
    ]
    scores = [{name: float(i * 7919 % count) for name in content.systems[0].values}
              for i in range(count)]  # fmt: skip
    system = content.systems[0]._replace(predictions=["Cats sleep."] * count, scores=scores)
    path = tmp_path / "many.html"
    write_report(path, content._replace(pairs=pairs, systems=[system], differences={}))
    browser.resize(1400, 900)
    browser.open(path.as_uri())
    browser.wait("document.querySelectorAll('#table .row').length > 2")
    assert browser.run("document.querySelectorAll('#table .row').length") < 40
    rows = browser.run(ROWS)
    assert rows[0] == "d0"  # the worst one
    assert rows[1] == f"d{next(i for i in range(count) if i * 7919 % count == 1)}"
    browser.run("location.hash = '#document=5000'")
    browser.wait("document.getElementById('name').textContent === 'd4999'")
    assert "Report 4999 says 24990001." in text(browser, "#source")
    browser.run("location.hash = ''")
    browser.run(
        "search_box = document.getElementById('search'); search_box.value = 'says 24990001';"
        "search_box.dispatchEvent(new Event('input'))"
    )
    browser.wait("document.getElementById('found').textContent === '1 of 5,000 documents'")


@pytest.mark.browser
def test_what_is_told_of_vectors(browser, by_vectors):
    browser.resize(1400, 900)
    browser.open(by_vectors.as_uri())
    browser.wait("document.querySelectorAll('#table .row').length > 2")
    assert "similar to the document" in text(browser, "#scores-note")
    assert "Similarity to the document" in text(browser, "#plots")
    open_document(browser, 3)
    assert "which 3 in 100 sentences about other documents reach" in text(browser, "#reader-note")
    browser.run("document.querySelectorAll('#summaries article:last-child .sentence')[0].click()")
    assert text(browser, "#support") == "Based on one sentence, 100 % similar to it."


@pytest.mark.browser
@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_is_wider_than_the_screen(shown, width):
    shown.resize(width, 800)
    for number in (None, 4):
        if number:
            open_document(shown, number)
        assert shown.run("document.documentElement.scrollWidth") <= width


@pytest.mark.axe
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
def test_rules_of_axe(shown, theme, width):
    shown.set_theme(theme)
    shown.resize(width, 800)
    shown.run(Path(os.environ["LONGSUM_JAX_AXE"]).read_text(encoding="utf-8") + ";0")
    for number in (None, 4):
        if number:
            open_document(shown, number)
            shown.run("document.querySelector('.sentence').click()")
        result = shown.run("axe.run().then((result) => result.violations.map((each) => each.id))")
        assert result == []
