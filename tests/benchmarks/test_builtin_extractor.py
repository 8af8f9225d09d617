"""The benchmark of the built-in ranker: its peers beside slow twins, and a small run."""

import json

import numpy as np
import pytest

from longsum_jax.ranking.boosting import BoostingOptions
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.training import RowOptions

TEXT = (
    "The old bridge fell into the river. Oak rots in the river. Stone bridges stay. "
    "The town builds a stone bridge over the river. Nobody swims. The old town has an oak and a "
    "mill of stone."
)


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("builtin_extractor")


@pytest.fixture
def document():
    return parse_document(TEXT)


def bags(document):
    """Content words of the sentences, a list with repetitions for each."""
    words = document.words
    result = [[] for _ in document.sentences]
    for number, row in zip(words.ids, words.rows, strict=True):
        if document.content[number]:
            result[row].append(words.names[number])
    return result


def pagerank(links, damping=0.85):
    """The stationary distribution, as a linear system."""
    degree = np.maximum(links.sum(0), 1e-12)
    count = len(links)
    return np.linalg.solve(np.eye(count) - damping * links / degree, np.full(count, 0.15 / count))


def vectors(document):
    table = np.zeros((len(document.sentences), document.words.size))
    table[document.words.row, document.words.word] = document.weights
    return table


def test_lexrank_and_centroid(script, document):
    table = vectors(document)
    links = (table @ table.T > 0.1).astype(float)
    np.testing.assert_allclose(script.lexrank(document), pagerank(links), atol=2e-4)
    np.testing.assert_allclose(script.centroid(document), table @ table.sum(0))


def test_textrank(script, document):
    sets = [set(bag) for bag in bags(document)]
    lengths = np.bincount(document.words.rows)
    links = np.array(
        [
            [
                0 if i == j else len(a & b) / max(np.log(lengths[i]) + np.log(lengths[j]), 1)
                for j, b in enumerate(sets)
            ]
            for i, a in enumerate(sets)
        ]
    )
    np.testing.assert_allclose(script.textrank(document), pagerank(links), atol=2e-4)


def test_sumbasic(script, document):
    lines = bags(document)
    everything = [word for line in lines for word in line]
    p = {word: everything.count(word) / len(everything) for word in everything}
    order = []
    while len(order) < len(lines):
        rest = [i for i in range(len(lines)) if i not in order]
        best = max(rest, key=lambda i: sum(p[w] for w in lines[i]) / max(len(lines[i]), 1))
        order.append(best)
        p |= {word: p[word] ** 2 for word in set(lines[best])}
    assert np.argsort(-script.sumbasic(document)).tolist() == order


def test_lsa(script, document):
    left, strengths, _ = np.linalg.svd(vectors(document), full_matrices=False)
    retained = np.arange(len(strengths)) < min(10, len(document.sentences) - 1)
    retained &= strengths >= strengths[0] / 2
    expected = np.sqrt((left[:, retained] ** 2 * strengths[retained] ** 2).sum(1))
    np.testing.assert_allclose(script.lsa(document), expected, rtol=1e-6)


@pytest.mark.slow
def test_a_small_run(script, report, tmp_path, monkeypatch):
    monkeypatch.setattr(script.recipe, "KIND_ROWS", RowOptions(rows=40))
    monkeypatch.setattr(script.recipe, "ROWS", RowOptions(rows=40))
    monkeypatch.setattr(script.recipe, "BOOSTING", BoostingOptions(trees=2))
    summaries = ["The old bridge of oak fell. A stone bridge is built.", "Oak rots."]
    files = {"qmsum": ["Oak?", "Summarize the meeting."], "squality": [None, "Oak?"]}
    for name in ("scisummnet", "techspecs", "qmsum", "acibench", "squality", "sumpubmed", "crd3"):
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        lines = []
        for text in (TEXT, f"{TEXT} Stop.", f"{TEXT} Go on."):
            for query in files.get(name, [None]):
                for summary in summaries if name == "squality" else summaries[:1]:
                    row = {"document": text, "summary": summary}
                    lines.append(json.dumps(row | ({"query": query} if query else {})) + "\n")
        for split in ("train", "test"):
            (folder / f"{split}.jsonl").write_text("".join(lines))
    flags = (f"--data={tmp_path / 'data'}", f"--work={tmp_path / 'work'}", "--words=200")
    result = report("builtin_extractor", *flags)
    scored = [row for row in result["rows"] if "mean_rouge" in row]
    assert {row["data_set"] for row in scored} == {*script.DATA_SETS, "mean"}
    assert {row["system"] for row in scored} == {*script.PEERS, *script.RANKERS, "reference"}
    tested = [row for row in scored if "p_best" in row]
    assert len(tested) == 2 * len(script.DATA_SETS) - len(script.UNSEEN)
    assert all(0 < row["p_best"] <= 1 for row in tested)
    lead = [row for row in scored if row["system"] == "lead" and "rows" in row]
    rows = {row["data_set"]: row["rows"] for row in lead}
    assert (rows["plots"], rows["questions"], rows["qmsum"]) == (1, 1, 6)
    assert {row["what"] for row in result["rows"] if "what" in row} == {"start", "book"}
    assert report("builtin_extractor", *flags)["rows"][:5] == result["rows"][:5]  # kept
