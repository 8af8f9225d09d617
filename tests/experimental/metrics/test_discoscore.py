"""DiscoScore beside a twin in PyTorch, written from the paper and what its code does."""

import itertools

import numpy as np
import pytest
import torch

from longsum_jax.errors import InputError
from longsum_jax.experimental.metrics.discoscore import DiscoScore
from longsum_jax.experimental.metrics.taggers import rule_nouns
from longsum_jax.text.sentences import split_sentences

# Every word is one token, and so is a period: 12 in a sentence.
SENTENCE = "the dam and the river was the town and the rain."
PREDICTIONS = [
    "the river rose and the dam broke. the town was flooded by the river.",
    "the council met. it was old.",
    "the dam",
    "",
    "the rain on the dam. the rain in town.",
]
REFERENCES = [
    "the dam in the town was old. the river took the dam down.",
    "the dam was old. the river rose.",
    "the dam in the town was old.",
    "the dam.",
    "a dam. rain.",
]


@pytest.fixture(scope="module")
def torch_bert(tiny_bert):
    import transformers

    model = transformers.BertModel.from_pretrained(tiny_bert).eval()
    model.encoder.layer = model.encoder.layer[:2]
    return model, transformers.BertTokenizer.from_pretrained(tiny_bert)


def focus_vectors(states, words, nouns):
    """For each noun the sum of the unit states of the last pieces of its occurrences."""
    result = {}
    for word, pieces in words:
        if word in nouns:
            state = states[pieces[-1]]
            result[word] = result.get(word, 0) + state / state.norm()
    return result


def read(torch_bert, text):
    """Vectors of nouns, and of sentences with their neighbours in the graph."""
    model, tokenizer = torch_bert
    sentences = split_sentences(text) or [""]
    nouns = rule_nouns(sentences)
    ids, owners, words = [tokenizer.cls_token_id], [0], []
    for number, sentence in enumerate(sentences):
        for word in sentence.split():
            pieces = tokenizer.encode(word, add_special_tokens=False)
            words.append((word, range(len(ids), len(ids) + len(pieces))))
            ids += pieces
            owners += [number] * len(pieces)
    with torch.no_grad():
        states = model(torch.tensor([ids])).last_hidden_state[0]
    means = [states[torch.tensor(owners) == i].mean(0) for i in range(len(sentences))]
    rows = []
    for i, own in enumerate(means):
        row = own.clone()
        for j in range(i + 1, len(means)):
            if set(nouns[i]) & set(nouns[j]):
                row += means[j] / (j - i)
        rows.append(row / row.norm())
    known = set(itertools.chain(*nouns))
    return focus_vectors(states, words, known), torch.stack(rows)


def twin(torch_bert, prediction, reference):
    """DS_Focus_NN and DS_SENT_NN of a summary and its reference."""
    (nouns, sentences), (ref_nouns, ref_sentences) = (
        read(torch_bert, text) for text in (prediction, reference)
    )
    focus = 0.0
    for noun in nouns.keys() & ref_nouns.keys():
        focus += (nouns[noun] - ref_nouns[noun]).square().sum().item() / len(nouns)
    cosine = torch.nn.functional.cosine_similarity
    if len(ref_sentences) == 1:
        return focus, cosine(ref_sentences, sentences).mean().item()

    def pooled(x):
        return torch.cat([x.min(0).values, x.mean(0), x.max(0).values, x.sum(0)])

    return focus, cosine(pooled(sentences), pooled(ref_sentences), dim=0).item()


def make(model, **options):
    return DiscoScore(DiscoScore.Options(model=str(model), **options))


def test_scores_of_the_twin(tiny_bert, torch_bert):
    scores = make(tiny_bert, layer=2).score(PREDICTIONS, REFERENCES, REFERENCES)
    expected = [twin(torch_bert, *pair) for pair in zip(PREDICTIONS, REFERENCES, strict=True)]
    result = [(score["ds_focus_nn"], score["ds_sent_nn"]) for score in scores]
    np.testing.assert_allclose(result, expected, atol=1e-5)
    assert result[0][0] > 0.01
    assert result[1][0] == 0  # no noun in common


def test_a_text_is_not_different_from_itself(tiny_bert):
    (score,) = make(tiny_bert).score([REFERENCES[0]], [REFERENCES[0]], [""])
    assert score == pytest.approx({"ds_focus_nn": 0, "ds_sent_nn": 1, "ds_unread": 0})


def test_what_is_cut_off_is_as_if_it_were_not_there(tiny_bert):
    metric = make(tiny_bert, layer=2)
    long = " ".join([SENTENCE] * 5)
    read = " ".join([SENTENCE] * 3) + " the dam and"  # 39 tokens and [CLS]
    reference = "the dam. the river was a town."
    (cut,), (expected,) = (metric.score([text], [reference], [""]) for text in (long, read))
    assert expected["ds_unread"] == 0
    assert cut["ds_unread"] == pytest.approx(100 * 21 / (60 + 9))
    for column in ("ds_focus_nn", "ds_sent_nn"):
        assert cut[column] == pytest.approx(expected[column], abs=1e-6)
    windows = make(tiny_bert, layer=2, long_texts="windows")
    (whole,) = windows.score([long], [reference], [""])
    assert whole["ds_unread"] == 0
    assert abs(whole["ds_focus_nn"] - cut["ds_focus_nn"]) > 0.01


def test_a_tagger_of_ones_own(tiny_bert):
    def words(sentences):
        return [sentence.split() for sentence in sentences]

    options = DiscoScore.Options(model=str(tiny_bert), layer=2)
    metric = DiscoScore(options, tagger=words)
    (score,) = metric.score(["it was old"], ["it was new"], [""])
    assert score["ds_focus_nn"] > 0
    assert "tagger:words" in metric.describe()["signature"]
    assert make(tiny_bert, layer=2).score(["it was"], ["it was"], [""])[0]["ds_focus_nn"] == 0


def test_unknown_tagger(tiny_bert):
    with pytest.raises(InputError, match=r'metrics.discoscore.tagger="spacy" is unknown'):
        make(tiny_bert, tagger="spacy")
