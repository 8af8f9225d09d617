"""Protocols, keys, sheets and filled answers."""

import csv
import html.parser
import json
import re

import pytest
from judged_summaries import NAMES, PAIRS, SYSTEMS, key_of, random_answers, sheet

from longsum_jax.errors import InputError
from longsum_jax.experimental.judging.judgements import missing_judges
from longsum_jax.experimental.judging.judging import (
    PROTOCOLS,
    item_sentences,
    make_key,
    read_key,
    read_prompt,
    write_key,
)
from longsum_jax.experimental.judging.sheets import read_sheets, write_sheets

PROTOCOL_NAMES = ("awesome", "hepos", "locost")


@pytest.fixture(scope="module")
def key():
    return key_of()


def names_of(questions):
    return [question.name for question in questions]


def test_protocols_have_the_numbers_and_units_of_the_papers():
    numbers = {name: (row.documents, row.judges) for name, row in PROTOCOLS.items()}
    assert numbers == {"hepos": (50, 2), "awesome": (25, 3), "locost": (500, 1)}
    assert [name for name, row in PROTOCOLS.items() if row.shows_reference] == ["hepos", "awesome"]
    awesome, hepos, locost = map(key_of, PROTOCOL_NAMES)
    assert names_of(awesome.of_sentences) == ["coherent", "faithful"]
    assert names_of(awesome.of_summaries) == ["rank"]
    assert awesome.of_summaries[0].answers == (1, 2, 3)  # ranks of three systems
    aspects = ("Why GAO did this study", "What GAO found", "What GAO recommends")
    errors = ["hallucination", "deletion", "false_concatenation"]
    assert names_of(hepos.of_sentences) == ["aspect", *errors]
    assert (hepos.of_sentences[0].answers, hepos.of_sentences[0].labels) == ((1, 2, 3), aspects)
    assert names_of(hepos.of_summaries) == [f"informativeness: {name}" for name in aspects]
    assert locost.of_sentences == ()
    axes = ["relevance", "consistency", "fluency", "coherence"]
    assert names_of(locost.of_summaries) == axes


def test_aspects_of_other_data_sets():
    assert key_of("hepos", aspects="pubmed").aspects == (
        "Introduction",
        "Methods",
        "Results",
        "Conclusion",
    )
    assert key_of("hepos", aspects="Plot, Style").of_sentences[0].labels == ("Plot", "Style")


def test_keys_are_samples_with_every_summary_once_for_every_judge(key):
    assert len(set(key.documents)) == 5
    expected = {
        (judge, name, system) for judge in range(3) for name in key.documents for system in SYSTEMS
    }
    assert {item[:3] for item in key.items.values()} == expected
    assert len(key.items) == len(expected)
    for item in key.items.values():
        summary = SYSTEMS[item.system][item.document].text
        assert item.sentences == len(item_sentences("awesome", summary))
    orders = {
        tuple(item.system for item in key.items.values() if item[:2] == (judge, name))
        for judge in range(3)
        for name in key.documents
    }
    assert len(orders) > 3  # orders differ between documents and judges
    assert key_of() == key
    assert key_of(seed=2).documents != key.documents
    assert not key.items.keys() & key_of(seed=2).items.keys()
    assert {item.sentences for item in key_of("locost").items.values()} == {0}
    assert len(make_key("locost", list(PAIRS.values()) * 20, SYSTEMS).documents) == 500


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_keys_are_read_as_they_were_written(tmp_path, protocol):
    write_key(tmp_path / "key.json", key_of(protocol))
    assert read_key(tmp_path / "key.json") == key_of(protocol)


class Page(html.parser.HTMLParser):
    """Groups of controls of a page: item, sentence, legend, and options by label."""

    def __init__(self, text):
        super().__init__()
        self.groups, self.texts, self.open = [], {}, []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag in ("meta", "input", "br"):
            return
        self.open.append((tag, attributes))
        if tag == "fieldset":
            group = {"item": attributes["data-item"], "sentence": attributes["data-sentence"]}
            self.groups.append(group | {"legend": "", "controls": {}})
        if tag == "select":
            assert self.open[-2][0] == "label"  # by which it has a name
            self.groups[-1]["controls"][attributes["name"]] = []
        if tag == "option":
            list(self.groups[-1]["controls"].values())[-1].append(attributes["value"])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag == "legend":
            self.groups[-1]["legend"] += data
        if tag == "div" and "text" in attributes.get("class", ""):
            kind = attributes.get("aria-label", "Instructions").split()[0]
            self.texts.setdefault(kind, []).append(data)


@pytest.mark.parametrize("protocol", PROTOCOL_NAMES)
def test_every_sentence_has_its_own_controls(tmp_path, protocol):
    key = key_of(protocol, judges=2)
    pages = write_sheets(tmp_path, key, PAIRS, SYSTEMS)
    assert [page.name for page in pages] == ["judge-1.html", "judge-2.html"]
    source = pages[1].read_text()
    assert not re.search(r"https?://|src=|@import", source)
    assert source.count("</script>") == 1  # only the page's own
    page = Page(source)
    expected = []
    for document in key.documents:
        for name, item in key.items.items():
            if (item.judge, item.document) != (1, document):
                continue
            summary = SYSTEMS[item.system][document].text
            for number, sentence in enumerate(item_sentences(protocol, summary), 1):
                expected.append((name, str(number), f"{number}. {sentence}"))
            expected.append((name, "", f"Summary {name[-1]} as a whole"))
    assert [tuple(group.values())[:3] for group in page.groups] == expected
    for group in page.groups:
        questions = key.of_sentences if group["sentence"] else key.of_summaries
        assert group["controls"] == {
            question.name: ["", *map(str, question.answers)] for question in questions
        }
    assert page.texts["Document"] == [PAIRS[name].source for name in key.documents]
    references = [PAIRS[name].reference for name in key.documents]
    assert page.texts.get("Reference", []) == ([] if protocol == "locost" else references)
    for question in PROTOCOLS[protocol].of_sentences + PROTOCOLS[protocol].of_summaries:
        assert question.text in page.texts["Instructions"][0]


def test_sheets_show_texts_and_hide_names(key, tmp_path):
    write_sheets(tmp_path, key, PAIRS, SYSTEMS, "Be {kind} & fair.")
    for path in tmp_path.rglob("*.*"):
        content = path.read_text()
        assert not any(name in content for name in (*SYSTEMS, *NAMES))
    for number, name in enumerate(key.documents, 1):
        folder = tmp_path / "documents"
        assert (folder / f"{number:03d}.txt").read_text() == PAIRS[name].source + "\n"
        reference = (folder / f"{number:03d}-reference.txt").read_text()
        assert reference == PAIRS[name].reference + "\n"
    assert (tmp_path / "instructions.txt").read_text() == "Be {kind} & fair.\n"
    assert Page((tmp_path / "judge-1.html").read_text()).texts["Instructions"] == [
        "Be {kind} & fair."
    ]
    with (tmp_path / "judge-2.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = []
    for name, item in key.items.items():
        if item.judge == 1:
            sentences = item_sentences("awesome", SYSTEMS[item.system][item.document].text)
            for number, sentence in enumerate(sentences, 1):
                expected.append((name, str(number), sentence, "", "", "-"))
            expected.append((name, "", "", "-", "-", ""))
    columns = ("item", "sentence", "text", "coherent", "faithful", "rank")
    assert [tuple(row[column] for column in columns) for row in rows] == expected
    for row in rows:
        assert key.documents[int(row["document"]) - 1] == key.items[row["item"]].document


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("protocol", ["awesome", "hepos"])
def test_sheets_are_read_as_spreadsheets_save_them(tmp_path, protocol, delimiter):
    key = key_of(protocol, judges=3)
    fill = random_answers(key)
    paths = []
    for judge in (2, 0):
        paths.append(tmp_path / f"{judge}.csv")
        paths[-1].write_text("\ufeff" + sheet(key, fill, (judge,), delimiter), newline="")
    answers = read_sheets(paths, key)
    assert missing_judges(key, answers) == [2]
    for name, item in key.items.items():
        if item.judge == 1:
            assert name not in answers
            continue
        assert sorted(answers[name]) == list(range(item.sentences + 1))
        for sentence, row in answers[name].items():
            questions = key.of_sentences if sentence else key.of_summaries
            assert row == {question.name: fill(item, sentence, question) for question in questions}


def test_unfilled_sheets_are_missing(key, tmp_path):
    write_sheets(tmp_path, key, PAIRS, SYSTEMS)
    answers = read_sheets([tmp_path / f"judge-{judge}.csv" for judge in (1, 2, 3)], key)
    assert answers == {}
    assert missing_judges(key, answers) == [1, 2, 3]


@pytest.mark.parametrize(
    ("pattern", "replacement", "problem"),
    [
        ("item", "row", "sheet.csv: no column item; give a filled sheet as CSV"),
        (",rank", "", "sheet.csv: no column rank; give a filled sheet as CSV"),
        ("-1-001-", "-9-001-", "is not in the key; give the key.json that was written with"),
        (r"(\w+-1-001.*)\n", r"\1\n\1\n", "has the same answers at sheet.csv:2; give one row"),
        (r"(\w+-1-001-A,1),1,(.*)\n", r"\1,1,\2\n\1,0,\2\n", "has other answers at sheet.csv:2"),
        (r"(-A,1,1),1", r"\1,7", '"7" under faithful; answer by one of 0, 1'),
        (r"-A,1,1,1", "-A,8,1,1", 'sentence "8" of a summary of'),
        (r"-A,1,1,1,-", "-A,1,1,1,2", '"2" under rank, which this row does not ask; leave'),
        (r"-A,1,1,1", "-A,1,1,", "judge 1: no answer to faithful of sentence 1 of "),
        (r".*-A,1,1,1.*\n", "", "judge 1: no answer to coherent of sentence 1 of "),
        (r"-A,,-,-,1", "-A,,-,-,", "judge 1: no answer to rank of summary "),
        (r"(001-.,,-,-,)1", r"\g<1>2", "judge 1: no summary of document 001 has rank 1, the best"),
    ],
)
def test_sheets_that_do_not_fit_are_refused(
    key, tmp_path, monkeypatch, pattern, replacement, problem
):
    monkeypatch.chdir(tmp_path)
    text = sheet(key, lambda *cell: 1, (0,)).replace("\r\n", "\n")
    count = 3 if "001-." in pattern else 1
    (tmp_path / "sheet.csv").write_text(re.sub(pattern, replacement, text, count=count))
    with pytest.raises(InputError) as caught:
        read_sheets(["sheet.csv"], key)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"protocol": "hepo"}, '--protocol=hepo is unknown; did you mean "hepos"'),
        ({"documents": 31}, "31 documents to judge, but there are 30; give --documents=30"),
        ({"aspects": "pubmed"}, "--aspects has no effect with --protocol=awesome; leave it out"),
        (
            {"protocol": "hepos", "aspects": "A,A"},
            "--aspects=A,A must be govreport, pubmed or at least two different names",
        ),
    ],
)
def test_keys_that_cannot_be_made(options, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        key_of(**options)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{document} {article}", "unknown placeholder {article}; known: {document}, {query}"),
        ("Only {query}.", "no placeholder {document}; put it where the document of a request"),
    ],
)
def test_prompts_that_do_not_fit(tmp_path, text, problem):
    (tmp_path / "prompt.txt").write_text(text)
    with pytest.raises(InputError, match=re.escape(problem)):
        read_prompt(tmp_path / "prompt.txt", ("document",), ("query",))


def test_instructions_of_sheets_have_no_placeholders(tmp_path):
    path = tmp_path / "prompt.txt"
    path.write_text('Answer {"a": 1}.')
    assert read_prompt(path) == 'Answer {"a": 1}.'
    path.write_text("{summary}")
    with pytest.raises(
        InputError, match=r"unknown placeholder \{summary\}; a sheet has no placeholders; remove"
    ):
        read_prompt(path)


@pytest.mark.parametrize("content", ["[]", "{}", "x", '{"items": {"a": {}}}'])
def test_files_that_are_no_keys(tmp_path, content):
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(InputError, match=r"key\.json: not a key; give the key\.json that longsum"):
        read_key(tmp_path / "key.json")


@pytest.mark.browser
@pytest.mark.parametrize("protocol", ["awesome", "hepos"])
def test_a_page_saves_what_is_read(browser, tmp_path, protocol):
    key = key_of(protocol, judges=1)
    [page] = write_sheets(tmp_path, key, PAIRS, SYSTEMS)
    fill = random_answers(key)
    browser.open(page.as_uri())
    browser.run("localStorage.clear()")
    browser.open(page.as_uri())
    visible = "pages.filter((page) => !page.hidden).length"
    assert browser.run(visible) == 1
    expected, cells = {}, []
    for name, item in key.items.items():
        expected[name] = {}
        for sentence in range(item.sentences + 1):
            questions = key.of_sentences if sentence else key.of_summaries
            row = {question.name: fill(item, sentence, question) for question in questions}
            expected[name][sentence] = row
            cells += [[name, str(sentence or ""), *cell] for cell in row.items()]
    # Controls are reached and changed by keys.
    browser.run("document.querySelector('fieldset select').focus()")
    browser.press("ArrowDown", 40)
    assert browser.run("at('progress').textContent") == f"1 of {len(cells)} answers"
    browser.press("Tab", 9)
    assert browser.run("document.activeElement === document.querySelectorAll('select')[1]")
    browser.run(
        f"for (const [item, sentence, name, value] of {json.dumps(cells)}) {{"
        "const group = groups.find((group) => group.dataset.item === item"
        " && group.dataset.sentence === sentence);"
        "const select = all('select', group).find((control) => control.name === name);"
        "select.value = value; select.dispatchEvent(new Event('change', {bubbles: true})); }"
    )
    progress = f"{len(cells)} of {len(cells)} answers"
    assert browser.run("at('progress').textContent") == progress
    browser.run("at('next').click()")
    assert browser.run(f"{visible} === 1 && !pages[1].hidden && !at('previous').disabled")
    browser.open(page.as_uri())  # answers are still there
    assert browser.run("at('progress').textContent") == progress
    (tmp_path / "saved.csv").write_text(browser.run("csv()"))
    assert read_sheets([tmp_path / "saved.csv"], key) == expected
