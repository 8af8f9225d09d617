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
from longsum_jax.ranking.selection import Length
from longsum_jax.ranking.trees import BoostedTrees

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "builtin_extractor.json"


def test_extract_says_where_its_sentences_stand(text):
    extract = longsum_jax.summarize(text, length="30 words")
    assert extract.text.split("\n") == [source.text for source in extract.sources]
    numbers = [source.number for source in extract.sources]
    assert numbers == sorted(numbers)
    for source in extract.sources:
        assert text[source.start : source.end].split() == source.text.split()
    assert extract.summary_words == len(extract.text.split()) <= 30
    assert extract.document_words == len(text.split())
    assert extract.length == Length(30)
    report = extract.report()
    assert "text" not in report
    assert report["length"] == "30 words"
    assert report["sources"][0]["start"] == extract.sources[0].start


def test_headings_of_sources(text):
    extract = longsum_jax.summarize(text, length="100%", query="closed")
    assert len(extract.sources) < extract.document_sentences  # some are alike
    under = {source.text[:11]: source.heading for source in extract.sources}
    assert under["We conclude"] == "Conclusion"
    lines = extract.with_sources().split("\n")
    place = lines[lines.index("Nobody knows who built it!") + 1]
    assert place == '    [sentence 5 of 15, under "Introduction"]'


def test_headings_are_no_sentences_of_a_summary(text):
    extract = longsum_jax.summarize(text, length="100%")
    assert not {"Introduction", "Results", "Conclusion"} & {s.text for s in extract.sources}
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


def test_bad_input(text):
    with pytest.raises(InputError, match="the document is empty"):
        longsum_jax.summarize(" \n")
    with pytest.raises(InputError, match="the query is blank"):
        longsum_jax.summarize(text, query=" ")
    with pytest.raises(InputError, match='length="x"; write'):
        longsum_jax.summarize(text, length="x")


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
    systems |= {"trained on the four other sets": "others", "trained on the set itself": "own"}
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
    assert 900 <= extract.summary_words <= 1000
