"""FactCC, SummaC, BLANC and APES beside published packages, transformers, and their definitions."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_heads
from tiny_heads import GUESSED, HELP, SOURCES, SUMMARIES

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.answers import Answers
from longsum_jax.evaluation.model_metric import SUPPORTED, label_number
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.summac import PERCENTILES
from longsum_jax.experimental.metrics.blanc import masked_sentences
from longsum_jax.experimental.tasks.cloze import MARK
from longsum_jax.inference.rows import pair_logits, pair_probabilities
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.support import find_statements

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics"
NOTHING = [""] * len(SOURCES)


def make(name, directory, **options):
    (metric,) = make_metrics([name], {name: {"model": str(directory), **options}}).values()
    return metric


def golden(name):
    return json.loads((GOLDEN / f"{name}.json").read_text())


# SummaC


@pytest.mark.parametrize("bins", ["percentile", "even50"])
def test_summac_is_the_published_one(tiny_entailment, tmp_path, bins):
    import torch

    layers = tiny_heads.conv_layers({"percentile": 23, "even50": 50}[bins])
    torch.save(layers, tmp_path / "conv.bin")
    options = {"conv_weights": str(tmp_path / "conv.bin"), "conv_bins": bins, "batch_size": 7}
    metric = make("summac", tiny_entailment, **options)
    assert (PERCENTILES[0], PERCENTILES[-1]) == (0, 1)
    assert sorted(PERCENTILES) == list(PERCENTILES)
    assert metric.columns == ("summac_zs", "summac_conv", "summac_unread")
    scores = metric.score(SUMMARIES, NOTHING, SOURCES)
    expected = golden("summac")
    result = [score["summac_zs"] / 100 for score in scores]
    np.testing.assert_allclose(result, expected["zs"], atol=1e-5)
    result = [score["summac_conv"] / 100 for score in scores]
    np.testing.assert_allclose(result, expected[bins], atol=1e-5)


def test_summac_judges_statements(tiny_entailment):
    metric = make("summac", tiny_entailment)
    document = "A cat sat on the mat. It rained all day in the old town. Nobody came."
    summary = "The cat sat, and it rained all day. Zebras!"
    result = find_statements(summary, document)
    judged = metric.judge(result)
    assert [each._replace(support=0, is_supported=False) for each in judged] == [
        each._replace(support=0, is_supported=False) for each in result
    ]
    sat, zebras = judged
    texts = [source.text for source in sorted(result[0].sources, key=lambda each: each.number)]
    assert len(texts) == 2
    probabilities = []
    for premise in [*texts, " ".join(texts)]:
        tokenizer = metric.user_model.model.tokenizer
        pair = tokenizer.join_pair(tokenizer.encode(premise), tokenizer.encode(sat.text))
        [logits] = pair_logits(metric.user_model.model, [pair], batch_size=1)
        probabilities.append(np.exp(logits) / np.exp(logits).sum())
    names = [metric.user_model.config.id2label[i].lower() for i in range(3)]
    by_name = dict(zip(names, np.max(probabilities, 0), strict=True))
    expected = by_name["entailment"] - by_name["contradiction"]
    assert sat.support == pytest.approx(expected, abs=1e-4)
    assert sat.support == round(sat.support, 4)
    assert sat.is_supported == (expected > 0)
    assert (zebras.sources, zebras.support, zebras.is_supported) == ((), 0, False)


def test_summac_conv_needs_weights_that_fit(tiny_entailment, tmp_path):
    import torch

    directory = tiny_entailment
    assert make("summac", directory).columns == ("summac_zs", "summac_unread")
    with pytest.raises(InputError, match=r"no such file .*none.bin; give the published .bin"):
        make("summac", directory, conv_weights=str(tmp_path / "none.bin"))
    torch.save(tiny_heads.conv_layers(50), tmp_path / "conv.bin")
    with pytest.raises(InputError, match=r"but percentile bins of entailment scores need .*23"):
        make("summac", directory, conv_weights=str(tmp_path / "conv.bin"))


def test_labels_of_entailment_are_found_by_name(tiny_entailment, tiny_facts):
    given = {"entailment": "neutral", "contradiction": "contradiction"}
    usual, other = (make("summac", tiny_entailment, **options) for options in ({}, given))
    arguments = (SUMMARIES[:1], NOTHING[:1], SOURCES[:1])
    assert usual.score(*arguments) != other.score(*arguments)
    # A model of FactCC tells support from its opposite, too.
    make("summac", tiny_facts).score(*arguments)
    with pytest.raises(
        InputError, match='entailment="yes" is not a label of the model; known: contradiction, '
    ):
        make("summac", tiny_entailment, entailment="yes")


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (
            (),
            "is not given, and of the model's labels LABEL_0, LABEL_1 none begins",
        ),
        (
            ("yes", "not_entailment"),
            "labels yes, not_entailment none begins with entail or support",
        ),
        (("entailed", "supported"), "labels entailed, supported 2 begin with entail"),
    ],
)
def test_labels_that_say_nothing(labels, problem):
    config = SimpleNamespace(id2label=labels, num_labels=2)
    with pytest.raises(InputError, match=problem):
        label_number(config, "metrics.summac.entailment", "", SUPPORTED)
    assert label_number(config, "", labels[1] if labels else "LABEL_1", SUPPORTED) == 1


# FactCC


@pytest.fixture(scope="module")
def torch_facts(tiny_facts):
    """(documents, claims) -> probabilities by transformers, one pair at a time."""
    import torch
    import transformers

    model = transformers.BertForSequenceClassification.from_pretrained(tiny_facts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_facts)

    def probabilities(document, claim):
        pair = tokenizer(
            document, claim, truncation="longest_first", max_length=512, return_tensors="pt"
        )
        with torch.no_grad():
            return model.eval()(**pair).logits.softmax(-1)[0].numpy()

    return probabilities


def test_factcc_is_the_mean_over_sentences(tiny_facts, torch_facts):
    sources = [SOURCES[0], SOURCES[1] * 20, SOURCES[2]]  # the second beyond the positions
    metric = make("factcc", tiny_facts, batch_size=3)
    scores = metric.score(SUMMARIES, NOTHING, sources)
    for score, source, summary in zip(scores, sources, SUMMARIES, strict=True):
        result = [torch_facts(source, claim) for claim in split_sentences(summary)]
        correct = [p[0] for p in result] or [0]
        assert score["factcc"] == pytest.approx(100 * np.mean(correct), abs=1e-3)
        assert score["factcc_correct"] == pytest.approx(100 * np.mean(np.array(correct) > 0.5))
    assert scores[2] == dict.fromkeys(metric.columns, 0)
    tokenizer = longsum_jax.load(tiny_facts).tokenizer
    claim = tokenizer.encode("A new dam was promised.")
    whole = len(tokenizer.join_pair(tokenizer.encode(sources[1]), claim).ids)
    assert scores[0]["factcc_unread"] == 0
    assert scores[1]["factcc_unread"] == pytest.approx(100 * (1 - 512 / whole))
    assert whole > 600


def test_factcc_of_the_best_piece(tiny_facts, torch_facts):
    metric = make("factcc", tiny_facts, reads="pieces", piece_words=9)
    [score] = metric.score(SUMMARIES[:1], [""], SOURCES[:1])
    pieces = ["The river rose after three days of rain."]
    pieces += ["Boats carried families to the school on the hill."]
    pieces += ["Engineers had warned the council in 2019 about the old dam."]
    pieces += ["Nobody was hurt.\n\nToo short."]
    best = [
        max(torch_facts(piece, claim)[0] for piece in pieces)
        for claim in split_sentences(SUMMARIES[0])
    ]
    assert score["factcc"] == pytest.approx(100 * np.mean(best), abs=1e-3)


def test_groups_of_pairs_are_read_together(tiny_facts):
    model = longsum_jax.load(tiny_facts)
    tokenizer = model.tokenizer
    ids = [tokenizer.encode(text) for text in ("rain", "rivers fell", "a storm of boats")]
    pairs = [tokenizer.join_pair(first, second) for first in ids for second in ids]
    groups = [pairs[:1], [], pairs[1:6], pairs[6:]]
    result = list(pair_probabilities(model, iter(groups), batch_size=4))
    assert [rows.shape for rows in result] == [(1, 2), (0, 2), (5, 2), (3, 2)]
    one_by_one = [next(pair_probabilities(model, [[pair]], batch_size=1))[0] for pair in pairs]
    np.testing.assert_allclose(np.concatenate(result), one_by_one, atol=1e-6)
    assert list(pair_probabilities(model, [], batch_size=4)) == []


# BLANC


@pytest.mark.parametrize("gap", [2, 6])
def test_blanc_is_the_published_one(tiny_masked, gap):
    metric = make("blanc", tiny_masked, gap=gap, batch_size=4)
    scores = metric.score(HELP, NOTHING, GUESSED)
    for score, expected in zip(scores, golden("blanc")[f"gap {gap}"], strict=True):
        assert score["blanc_help"] == pytest.approx(100 * expected["relative"], abs=1e-9)
        assert score["blanc_improve"] == pytest.approx(100 * expected["improve"], abs=1e-9)


def test_nothing_to_mask(tiny_masked):
    metric = make("blanc", tiny_masked)
    assert metric.score(["rain"], [""], ["A of a."]) == [{"blanc_help": 0, "blanc_improve": 0}]


def test_every_token_is_masked_in_one_sentence():
    ids, can_mask = np.arange(10, 17), np.array([1, 0, 1, 1, 0, 0, 1], bool)
    result = list(masked_sentences(ids, can_mask, 3, 99))
    assert [one.positions.tolist() for one in result] == [[0, 3, 6], [2]]  # none is 1 modulo 3
    assert result[0].ids.tolist() == [99, 11, 12, 99, 14, 15, 99]
    assert result[1].answers.tolist() == [12]
    assert [one.positions.tolist() for one in masked_sentences(ids[:1], can_mask[:1], 3, 99)] == [
        [0]
    ]
    assert list(masked_sentences(ids[:0], can_mask[:0], 3, 99)) == []


# APES

STORY = (
    "Ann Lee met the council of Rome in 2019. It was told of 3 dams there. Nothing came of that. "
    "Later Bob Ray of Paris paid $5 million for a dam. The people of Rome were glad."
)
REFERENCE = "Bob Ray of Paris paid $5 million. Ann Lee met the council of Rome. Ed Fox slept."
PREDICTION = "In 2019 Ann Lee met the council. Bob Ray paid."


def test_apes_by_hand(tiny_answers):
    """Questions, contexts and answers one at a time."""
    model = longsum_jax.load(tiny_answers)
    # The last sentence of the story recalls nothing more.
    context = (
        "Ann Lee met the council of Rome in 2019. Later Bob Ray of Paris paid $5 million for a dam."
    )
    questions = {
        f"{MARK} paid $5 million.": "Bob Ray of Paris",
        f"Bob Ray of Paris paid {MARK}.": "$5 million",
        f"{MARK} met the council of Rome.": "Ann Lee",
        f"Ann Lee met the council of {MARK}.": "Rome",
        f"{MARK} slept.": "Ed Fox",  # whom the context does not name; only training leaves it out
    }

    def found(text):
        return [model.answer([question], [text])[0].text for question in questions]

    def f1(given, right):
        return [score["answer_f1"] for score in Answers().score(given, right, [""] * len(given))]

    given, of_source = found(PREDICTION), found(context)
    metric = make("apes", tiny_answers, batch_size=3)
    [score, empty] = metric.score([PREDICTION, " "], [REFERENCE] * 2, [STORY] * 2)
    assert score["questions"] == empty["questions"] == 5
    assert score["apes"] == pytest.approx(np.mean(f1(given, list(questions.values()))))
    assert score["apes_src"] == pytest.approx(np.mean(f1(given, of_source)))
    assert score["answered_src"] == pytest.approx(5 * score["apes_src"] / 100)
    assert (empty["apes"], empty["apes_src"]) == (0, 0)
    # Nothing of this document recalls the reference, so there is nothing to answer from.
    [apart] = metric.score([PREDICTION], [REFERENCE], ["It rained."])
    assert (apart["questions"], apart["apes"]) == (5, score["apes"])
    assert apart["apes_src"] == 0


def test_apes_of_a_data_set_is_that_of_its_questions(tiny_answers):
    metric = make("apes", tiny_answers)
    columns = metric.columns
    rows = [(50.0, 25.0, 4.0, 2.0, 1.0), (100.0, 0.0, 1.0, 1.0, 0.0), *[(0.0,) * 5] * 4]
    scores = [dict(zip(columns, row, strict=True)) for row in rows]
    values = metric.corpus_values(scores, [], [], [])
    assert (values["apes"], values["apes_src"]) == (pytest.approx(60), pytest.approx(20))
    [nothing] = metric.score(["x"], ["nothing is named."], ["nothing."])
    assert nothing == dict.fromkeys(columns, 0)
    assert metric.corpus_values([nothing], [], [], [])["apes"] == 0


@pytest.mark.parametrize(
    ("name", "model", "options", "problem"),
    [
        (
            "factcc",
            "masked",
            {},
            "head masked_lm; give a classifier of pairs, as configs/factcc.py",
        ),
        (
            "factcc",
            "entailment",
            {"correct": "fine"},
            'factcc.correct="fine" is not a label of the model; known',
        ),
        ("factcc", "facts", {"piece_words": 0}, "factcc.piece_words=0 must be at least 1"),
        ("summac", "masked", {}, "head masked_lm; give a classifier of entailment"),
        ("blanc", "facts", {}, "head classification; give a masked language model"),
        ("blanc", "masked", {"gap": 0}, "blanc.gap=0 must be at least 1"),
        ("apes", "facts", {}, "give a model that answers questions, as configs/apes.py"),
        ("apes", "answers", {"context_words": 0}, "cloze.context_words=0 must be at least 1"),
        ("apes", "answers", {"tagger": "rulez"}, 'apes.tagger="rulez" is unknown'),
    ],
)
def test_models_and_options_that_do_not_fit(request, name, model, options, problem):
    with pytest.raises(InputError, match=problem):
        make(name, request.getfixturevalue(f"tiny_{model}"), **options)
