"""Entities and nouns by a model that labels words, beside a slow twin over transformers."""

import itertools
import re

import pytest
import tiny_heads

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.experimental.metrics.model_tagger import BATCH_SIZE, ModelTagger
from longsum_jax.experimental.metrics.taggers import ModelNounTagger, _singular, tag
from longsum_jax.inference.rows import text_windows
from longsum_jax.text.sentences import split_sentences

TEXTS = [
    "Rivers of Rome rose. In the storm, Ann's boats (of 3 towns) fell, and waterfalls-like rain.",
    "",
    "... !",
    "Rain, " * 160 + "storm. Town.",  # beyond the positions
]


@pytest.fixture(scope="module")
def expected(tiny_tags):
    """Text -> entities, a window and a word at a time."""
    import torch
    import transformers

    model = transformers.BertForTokenClassification.from_pretrained(tiny_tags).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_tags)

    def labels_of(ids):
        with torch.no_grad():
            logits = model(torch.tensor([[2, *ids, 3]])).logits[0, 1:-1]
        return [tiny_heads.TAGS[number] for number in logits.argmax(-1)]

    def entities_of(sentence):
        encoded = tokenizer(sentence, add_special_tokens=False, return_offsets_mapping=True)
        ids = encoded["input_ids"]
        windows = text_windows(len(ids), 510)
        read = [labels_of(ids[window.start : window.stop]) for window in windows]
        retained = [slice(each.first - each.start, each.last - each.start) for each in windows]
        labels = [
            label for result, part in zip(read, retained, strict=True) for label in result[part]
        ]
        result, before = [], "O"
        for word in re.finditer(r"\w+(?:[-.'&]\w+)*", sentence):
            first = [start for start, _ in encoded["offset_mapping"]].index(word.start())
            label = labels[first]
            if label == "I-LOC" and before.endswith("LOC"):
                result[-1] = (result[-1][0], word.end())
            elif label != "O":
                result.append(word.span())
            before = label
        return [sentence[start:end] for start, end in result]

    return lambda text: list(itertools.chain(*map(entities_of, split_sentences(text))))


def test_words_are_joined_as_their_first_tokens_say(tiny_tags, expected):
    wanted = [expected(text) for text in TEXTS]
    assert any(" " in result for result in wanted[0])  # a run of several words is among them
    assert sum(len(split_sentences(text)) for text in TEXTS) < BATCH_SIZE  # one batch, filled up
    tagger = ModelTagger("metrics.entities.tagger", str(tiny_tags))
    assert tag(tagger, TEXTS) == wanted
    nouns = ModelNounTagger("metrics.entity_graph.tagger", str(tiny_tags))(TEXTS)
    assert nouns == [[_singular(word.lower()) for word in result] for result in wanted]


def test_metrics_name_their_model(tiny_tags, expected):
    options = {"tagger": str(tiny_tags)}
    metrics = make_metrics(
        ["entities", "entity_graph"], {"entities": options, "entity_graph": options}
    )
    fingerprint = longsum_jax.load(tiny_tags).fingerprint
    for name, metric in metrics.items():
        described = metric.describe()
        assert described["signature"] == f"{name}|tagger:{tiny_tags}"
        assert described["tagger_model"]["weights"] == fingerprint
        assert metric.scored_last
    [score] = metrics["entities"].score(TEXTS[:1], [""], [TEXTS[0]])
    assert score["entities"] == len({result.lower() for result in expected(TEXTS[0])})
    assert score["entity_precision"] == 100
    [score] = metrics["entity_graph"].score(["Rain fell. Rain fell. Rain fell."], [""], [""])
    tagged = bool(expected("Rain fell."))
    assert score["entity_graph"] == pytest.approx((1 + 1 + 0.5) / 3 if tagged else 0)


def test_models_that_are_no_taggers(tmp_path, tiny_bert, monkeypatch):
    problem = "is a bert with head masked_lm; give a model that labels words"
    with pytest.raises(InputError, match=problem):
        make_metrics(["entities"], {"entities": {"tagger": str(tiny_bert)}})
    monkeypatch.setattr(tiny_heads, "TAGS", ("LABEL_0", "LABEL_1"))
    nameless = str(tiny_heads.write_tags(tmp_path / "nameless"))
    with pytest.raises(InputError, match='have no names; write them as "id2label" in its'):
        make_metrics(["entities"], {"entities": {"tagger": nameless}})
    with pytest.raises(InputError, match="no/such/place"):
        make_metrics(["entities"], {"entities": {"tagger": "no/such/place"}})


def test_nouns_of_a_model_of_parts_of_speech(tmp_path, monkeypatch):
    labels = ("X", "NOUN", "NOUN", "NOUN")
    monkeypatch.setattr(tiny_heads, "TAGS", labels)
    directory = tiny_heads.write_tags(tmp_path / "pos")
    result = ModelTagger("metrics.entity_graph.tagger", str(directory))(TEXTS[:1])
    numbers = longsum_jax.load(directory).config.id2label
    assert numbers == labels
    assert result[0]
    assert not any(" " in noun for noun in result[0])  # each word is one of its own
