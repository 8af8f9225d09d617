import collections
import importlib.util
from pathlib import Path

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ranking.boosting import BoostingOptions
from longsum_jax.ranking.features import feature_table, sentence_features
from longsum_jax.ranking.gains import SHRINKAGE, reference_gains
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.training import RowOptions, asked, draw_rows, train_trees
from longsum_jax.text.documents import DataRow
from longsum_jax.text.ngrams import stem, words_of


def words(text):
    return [stem(word.decode()) if len(word) > 3 else word.decode() for word in words_of(text)]


def slow_density(sentence, reference):
    total = 0.0
    for size in (1, 2):
        grams = []
        for text in (sentence, reference):
            line = words(text)
            grams.append(collections.Counter(zip(*(line[i:] for i in range(size)), strict=False)))
        total += (grams[0] & grams[1]).total() / (grams[0].total() + SHRINKAGE)
    return total


def test_gains_are_standardised_densities(text):
    sentences = parse_document(text).sentences
    reference = "The old bridge is in danger. It must be closed; the old bridge rots."
    slow = np.array([slow_density(sentence, reference) for sentence in sentences])
    slow = (slow - slow.mean()) / slow.std()
    np.testing.assert_allclose(reference_gains(sentences, reference), slow, atol=1e-12)
    assert reference_gains(sentences, "Zebra xylophone!").tolist() == [0.0] * len(sentences)


def test_gains_of_other_scripts():
    sentences = ["\u65b0\u3057\u3044\u6a4b\u3002", "\u5929\u6c17\u304c\u826f\u3044\u3002"]
    gains = reference_gains(sentences, "\u6a4b\u306f\u65b0\u3057\u3044\u3002")
    np.testing.assert_allclose(gains, [1.0, -1.0], atol=1e-12)


def documents(count, seed=0):
    """Documents whose summaries are their longest sentences."""
    rng = np.random.default_rng(seed)
    result = []
    for number in range(count):
        lengths = rng.permutation(12) + 3
        sentences = [
            " ".join(f"word{rng.integers(900)}" for _ in range(length)).capitalize() + "."
            for length in lengths
        ]
        summary = " ".join(sentences[i] for i in np.argsort(-lengths)[:3])
        result.append(DataRow(str(number), " ".join(sentences), summary, None))
    return result


def test_rows_are_features_and_gains_of_sentences():
    given = documents(3)
    rows = draw_rows(given, RowOptions(rows=36, query_share=0.0))
    tables, gains = [], []
    for document in given:
        parsed = parse_document(document.document)
        tables.append(feature_table(sentence_features(parsed), rows.names))
        gains.append(reference_gains(parsed.sentences, document.summary))
    assert np.array_equal(rows.table, np.concatenate(tables))
    assert np.array_equal(rows.gains, np.concatenate(gains))
    few = draw_rows(given, RowOptions(rows=12, query_share=0.0))
    assert len(few.table) == 12
    assert few.weights.sum() == pytest.approx(12)
    again = draw_rows(given, RowOptions(rows=12, query_share=0.0))
    assert np.array_equal(few.table, again.table)
    with_queries = draw_rows(given, RowOptions(rows=72, query_share=1.0))
    asks = with_queries.table[:, rows.names.index("query_known")]
    assert asks.reshape(6, 12).tolist() == [[0.0] * 12, [1.0] * 12] * 3


def test_queries_are_words_of_a_sentence_of_the_summary():
    [document] = documents(1)
    for seed in range(8):
        result = asked(document, 4, np.random.default_rng(seed))
        assert result.summary in document.summary
        assert set(result.query.split()) <= set(result.summary.lower().rstrip(".").split())
        assert 1 <= len(result.query.split()) <= 4
    assert asked(document._replace(summary="Nothing in common."), 4, None) is None


def test_trained_trees_find_the_sentences_of_summaries():
    sets = [draw_rows(documents(20, seed), RowOptions(rows=360)) for seed in (0, 1)]
    options = BoostingOptions(trees=30, depth=3, smallest_leaf=5, learning_rate=0.2)
    trees = train_trees(sets, options)
    hits = 0
    for document in documents(10, seed=2):
        parsed = parse_document(document.document)
        table = feature_table(sentence_features(parsed), trees.names)
        best = np.argsort(-trees.predict(table))[:3]
        hits += sum(parsed.sentences[i] in document.summary for i in best)
    assert hits >= 25  # of 30; by chance 7.5


def test_documents_without_summaries_are_refused():
    with pytest.raises(InputError, match="no documents"):
        draw_rows([])
    with pytest.raises(InputError, match='document "a" has no summary'):
        draw_rows([DataRow("a", "Text.", None, "q")])


def test_script_writes_weights(tmp_path, monkeypatch):
    """configs/builtin_extractor.py from files to weights, twice the same."""
    path = Path(__file__).parents[2] / "configs" / "builtin_extractor.py"
    spec = importlib.util.spec_from_file_location("builtin_extractor_script", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "ROWS", RowOptions(rows=200))
    monkeypatch.setattr(script, "BOOSTING", BoostingOptions(trees=2, depth=2, smallest_leaf=5))
    (tmp_path / "mine").mkdir()
    lines = [
        f'{{"document": "{row.document}", "summary": "{row.summary}"}}\n' for row in documents(4)
    ]
    (tmp_path / "mine" / "train.jsonl").write_text("".join(lines))
    for name in ("a.npz", "b.npz"):
        flags = ["script", f"--data={tmp_path}", "--data_sets=mine", "--kinds=mine"]
        flags.append(f"--out={tmp_path / name}")
        monkeypatch.setattr("sys.argv", flags)
        script.main()
    with np.load(tmp_path / "a.npz") as first, np.load(tmp_path / "b.npz") as second:
        assert all(np.array_equal(first[name], second[name]) for name in first)
