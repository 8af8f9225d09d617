import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.ranker import WEIGHTS, Ranker, builtin_ranker
from longsum_jax.ranking.trees import BoostedTrees
from longsum_jax.text.statements import Outline

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "builtin_extractor.json"


def test_extract_says_where_its_sentences_stand(text):
    extract = builtin_ranker().summarize(text, length="30 words")
    assert extract.text.split("\n") == [statement.text for statement in extract.statements]
    sources = [source for statement in extract.statements for source in statement.sources]
    numbers = [source.number for source in sources]
    assert numbers == sorted(numbers)
    for source, statement in zip(sources, extract.statements, strict=True):
        assert text[source.start : source.end].split() == statement.text.split()
        assert extract.text[statement.start : statement.end] == statement.text
        assert (source.score, statement.support, statement.is_supported) == (1, 1, True)
    assert extract.summary_words == len(extract.text.split()) <= 30
    assert extract.document_words == len(text.split())
    assert extract.document_sentences == 14


def test_headings_of_sources(text):
    def under(**options):
        extract = builtin_ranker().summarize(text, length="100%", query="closed", **options)
        assert len(extract.statements) < extract.document_sentences  # some are alike
        return {each.text[:11]: each.sources[0].heading for each in extract.statements}

    assert under()["We conclude"] == "Conclusion"
    assert under()["Nobody know"] == "Introduction"
    title = Outline([(0, len("A Report on Bridges"))], [0, text.index("We conclude")])
    assert under(outline=title)["We conclude"] == "A Report on Bridges"
    [end] = builtin_ranker().summarize(text, length="1 sentence", outline=title).statements
    assert end.sources[0].page == 1 + end.text.startswith("We conclude")


def test_list_items_lose_their_marks():
    items = "- Close the old bridge by the mill.\n-  Build one of stone.\n12. Wait for the spring."
    text = f"The plan:\n\n{items}"
    extract = builtin_ranker().summarize(text, length="100%")
    shown = ["Close the old bridge by the mill.", "Build one of stone.", "Wait for the spring."]
    assert extract.text.split("\n")[-3:] == shown
    places = [statement.sources[0] for statement in extract.statements[-3:]]
    assert [text[place.start : place.end] for place in places] == shown


def test_talk_has_its_speakers():
    turns = [
        *("DOCTOR: How are you?", "PATIENT: I sleep badly. My left knee hurts at night."),
        *("DOCTOR: Since when is that? Take the blue pills twice a day.", "PATIENT: I will."),
    ]
    text = "\n".join(turns)
    extract = longsum_jax.summarize(text, length="100%")
    assert "PATIENT: My left knee hurts at night." in extract.text.split("\n")
    assert "DOCTOR: Take the blue pills twice a day." in extract.text.split("\n")
    assert "DOCTOR: DOCTOR:" not in extract.text
    for statement in extract.statements:
        [source] = statement.sources
        assert statement.text.endswith(text[source.start : source.end])
        assert extract.text[statement.start : statement.end] == statement.text
    alone = longsum_jax.summarize("\n".join(turns[:2]), length="100%")
    assert "My left knee hurts at night." in alone.text.split("\n")  # no talk yet


def test_sentences_of_talk_never_have_a_wrong_speaker():
    turns = [
        "Anna Lund: We decide about the warehouse. It is in Aarhus.",
        "Bo Ek: It costs two million euros. Delivery takes two days.",
        "Visitor: I live next to the site. The traffic makes our street unsafe.",
        "Dr. Cleo van der Marsh (Freight, guest): It ends in May. The contract runs two years.",
        "+44 7700 900123: I object to this plan. Nobody asked the neighbors.",
        "the one who wrote the letter: This is wrong. My letter said March.",
        "Anna Lund: We sign this week. The warehouse has to wait for its new owner.",
        "Bo Ek: I agree. Nobody else wants it.",
    ]
    lines = longsum_jax.summarize("\n\n".join(turns), length="100%").text.split("\n")
    assert "Visitor: The traffic makes our street unsafe." in lines
    assert "Dr. Cleo van der Marsh (Freight, guest): The contract runs two years." in lines
    assert "+44 7700 900123: Nobody asked the neighbors." in lines
    assert "My letter said March." in lines
    assert "Anna Lund: The warehouse has to wait for its new owner." in lines


@pytest.mark.parametrize(("first", "second"), [("mira", "dan"), ("李四", "张三")])
def test_names_of_talk_need_no_capitals(first, second):
    said = "The old disk of the server is full. A new disk costs forty euros."
    text = f"{first}: {said}\n{second}: We need two of them. Ask the office.\n" * 2
    lines = longsum_jax.summarize(text, length="100%").text.split("\n")
    assert f"{first}: A new disk costs forty euros." in lines


def test_equal_trees_have_equal_fingerprints():
    ranker = builtin_ranker()
    trees = ranker.trees
    assert Ranker(trees, ranker.fallback).fingerprint == ranker.fingerprint
    other = Ranker(trees._replace(leaves=trees.leaves * 2), ranker.fallback)
    assert other.fingerprint != builtin_ranker().fingerprint


def test_headings_are_no_sentences_of_a_summary(text):
    extract = longsum_jax.summarize(text, length="100%")
    headings = {"Introduction", "Results", "Conclusion"}
    assert not headings & {statement.text for statement in extract.sources}
    assert longsum_jax.summarize("Only a title").text == "Only a title"


def test_query_changes_the_ranking(text):
    [about_oak] = longsum_jax.summarize(text, length="1 sentences", query="oak rots").sources
    [about_size] = longsum_jax.summarize(text, length="1 sentences", query="build of stone").sources
    assert "oak" in about_oak.text
    assert "stone" in about_size.text


def test_scores_are_those_of_the_trees(text):
    trees = BoostedTrees(
        ["words", "position"],
        np.zeros((1, 1), np.int16),
        np.full((1, 1), 8, np.float32),
        np.array([[-1, 1]], np.float32),
    )
    document = parse_document(text)
    words = np.bincount(document.words.rows, minlength=len(document.sentences))
    assert Ranker(trees).scores(document).tolist() == np.where(words > 8, 1, -1).tolist()
    with pytest.raises(InputError, match=r"features that this version does not have \(size\)"):
        Ranker(trees._replace(names=["words", "size"]))


def test_a_talk_without_punctuation_is_summarised_in_pieces():
    words = [f"word{number * number % 971}" for number in range(6000)]
    text = "\n".join(" ".join(words[i : i + 8]) for i in range(0, len(words), 8))
    extract = builtin_ranker().summarize(text, length="150 words")
    assert 75 <= extract.summary_words <= 150
    for statement in extract.statements:
        [source] = statement.sources
        assert text[source.start : source.end].split() == statement.text.split()


def test_headings_and_rows_of_tables_are_no_sentences():
    text = (
        "CHAPTER II. THE BRIDGE OF STONE AND OAK\n\nThe bridge of stone and oak was built here.\n\n"
        "bridge of stone | oak and stone | built\n"
    )
    heading = text.index("\n")
    outline = Outline([(0, heading), (len(text), len(text))])
    result = longsum_jax.summarize(text, length="100%", outline=outline)
    assert result.text == "The bridge of stone and oak was built here."
    assert result.sources[0].sources[0].heading == text[:heading]
    only = text[:heading]
    alone = longsum_jax.summarize(only, outline=outline).text
    assert alone.split() == only.split()  # there is nothing else


def test_bad_input(text):
    with pytest.raises(InputError, match="the document is empty"):
        longsum_jax.summarize(" \n")
    with pytest.raises(InputError, match="the query is blank"):
        longsum_jax.summarize(text, query=" ")
    with pytest.raises(InputError, match='length="x"; write'):
        longsum_jax.summarize(text, length="x")
    for wrong in (None, [text], text.encode(), Path("a.txt"), iter([text])):
        name = type(wrong).__name__
        with pytest.raises(InputError, match=f"the document is of type {name}; give its text"):
            longsum_jax.summarize(wrong)
    with pytest.raises(InputError, match="the query of the document is of type int"):
        longsum_jax.summarize(text, query=5)


def test_the_name_of_a_file_is_not_its_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert longsum_jax.summarize("notes.txt").text == "notes.txt"  # no such file
    (tmp_path / "notes.txt").write_text("One sentence.")
    with pytest.raises(InputError, match=r"document is notes\.txt, the name of a file; give its"):
        longsum_jax.summarize("notes.txt")


def test_weights_are_small_and_described():
    assert WEIGHTS.stat().st_size < 2**20
    card = WEIGHTS.with_name("model_card.md").read_text()
    for line in ("## Data and licences", "## Scores", "## What it is not for"):
        assert line in card
    trees = builtin_ranker().trees
    assert np.isfinite(trees.leaves).all()
    assert trees.features.max() < len(trees.names)


def test_model_card_has_the_scores_that_were_measured():
    card = WEIGHTS.with_name("model_card.md").read_text()
    rows = json.loads(RESULTS.read_text())["rows"]
    systems = {"lead": "lead", "LexRank": "LexRank", "**these weights**": "built-in"}
    for title, system in systems.items():
        scores = [row["mean_rouge"] for row in rows if row.get("system") == system]
        cells = " | ".join(f"{score:.1f}" for score in scores)
        assert f"| {title} | {cells} |" in card


def in_a_process(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_numpy_alone_is_needed():
    script = (
        "import sys, longsum_jax; longsum_jax.summarize('One sentence. Another one.');"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    loaded = set(in_a_process(script).split())
    assert not loaded & {"jax", "flax", "nltk", "rouge_score", "scipy", "torch"}


@pytest.mark.slow
def test_a_book_takes_two_seconds():
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"w{number}x" for number in range(20_000)])
    weights = 1 / np.arange(1, 20_001)
    drawn = rng.choice(vocabulary, 100_000, p=weights / weights.sum()).reshape(-1, 20)
    book = "\n".join(" ".join(line).capitalize() + "." for line in drawn)
    longsum_jax.summarize("Warm up.")
    began = time.process_time()
    extract = longsum_jax.summarize(book, length="1%")
    assert time.process_time() - began < 2
    assert 900 <= extract.summary_tokens <= 1000


def test_fragments_are_no_sentences_of_a_summary_unless_there_are_no_others(text):
    more = f"{text}\n\nGood-by! He said so. 我们在这里看书。"
    extract = longsum_jax.summarize(more, length="100%")
    shown = extract.text.split("\n")
    assert not {"Good-by!", "He said so."} & set(shown)
    assert shown[-1] == "我们在这里看书。"
    assert longsum_jax.summarize("Stop! Go on. Stop again.", length="1 sentence").text


def test_notes_of_short_lines_fill_the_length():
    lines = [
        *("Delivery times of eleven weeks", "Compressor supplier bankrupt in August"),
        *("Training centre for installers", "New plant in Poland: 40,000 units"),
    ]
    assert longsum_jax.summarize("\n\n".join(lines), length="100%").text.split("\n") == lines
    prose = "The board approved the new plant in Poland on Monday after a long debate. " * 2
    assert "Delivery" not in longsum_jax.summarize(f"{lines[0]}\n\n{prose}", length="100%").text


def test_a_short_chat_has_the_questions_of_its_answers():
    chat = [
        "Ann: Did everybody read the proposal?",
        "Bob: Yes, I did.",
        "Bob: It looks fine to me, but the price is too high.",
        "Ann: Can we ask for a discount?",
        "Bob: We can.",
        "Bob: They gave one to the Berlin office last spring, about 15 percent.",
    ]
    assert longsum_jax.summarize("\n".join(chat)).text.splitlines() == chat
    sentences = ["It is a small tool for text.", "This shows the sales of a year."]
    notes = f"# Use\n\n{sentences[0]}\n\nFigure 3: Sales\n\n{sentences[1]}"
    assert longsum_jax.summarize(notes).text.splitlines() == sentences
    review = "Great hotel! It was clean and quiet. They gave us a room with a view of the lake."
    assert longsum_jax.summarize(review).text.replace("\n", " ") == review
