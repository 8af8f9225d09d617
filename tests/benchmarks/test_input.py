"""Documents on their way to a model."""

import json

import numpy as np

from longsum_jax.text.gap_sentences import _WordCounts


def stages(report):
    return {row["stage"]: row for row in report["rows"]}


def test_drawn_documents(report):
    result = report("input", "--count=40", "--sentences=10", "--vocab=500")
    rows = stages(result)
    peer = rows["select: rouge-score, independent"]
    assert peer["documents"] == 2
    assert peer["ratio"] > 1
    assert {"gap sentences", "tokenize", "both"} < rows.keys()
    assert result["pieces"] == 500
    assert 10 * 12 <= result["words_per_document"] <= 10 * 28


def test_documents_of_a_file(report, topics, tmp_path):
    path = tmp_path / "documents.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in topics[:12]))
    rows = stages(report("input", f"--documents={path}", "--count=10", "--vocab=500"))
    assert rows["both"]["documents"] == 10


def test_both_ways_select_the_same(scripts):
    script = scripts("input")
    options, scorer = script.GapSentenceOptions(), script.RougeScorer(["rouge1"], use_stemmer=False)
    for text in script.synthetic_documents(3, 25, seed=1):
        sentences = script.split_sentences(text)
        assert len(sentences) == 25
        # Ties are exact in ours alone: what the two select has the same scores.
        ours = script.select_gap_sentences(sentences, options, None)
        theirs = script.select_with_rouge_score(sentences, scorer)
        scores = _WordCounts.of(sentences, "original").scores("f1")
        assert len(ours) == len(theirs) == 5
        np.testing.assert_allclose(np.sort(scores[ours]), np.sort(scores[theirs]), rtol=1e-12)
