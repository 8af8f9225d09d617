"""The base of metrics over a model, on one that compares means of states."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import ModelMetric, Requirement, text_ids
from longsum_jax.evaluation.predictions import Pair, example_scores, predict, score_last
from longsum_jax.inference.padding import batches_by_length, pad_rows
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_options import SummaryOptions


class MeanState(ModelMetric):
    """Mean of the first component of the states of a summary."""

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        layer: int = 1

    name = "mean_state"
    columns = ("mean_state",)
    requirement = Requirement("a masked language model", heads=("masked_lm",))

    def score_with(self, model, predictions, references, sources):
        rows, _ = text_ids(model, predictions)
        result = np.zeros(len(rows))
        for batch in batches_by_length([len(row) for row in rows], self.options.batch_size):
            ids, mask = pad_rows([rows[i] for i in batch], self.options.batch_size, 0)
            states = np.asarray(model.encode(ids, mask, layer=self.options.layer))
            for i, row, real in zip(batch, states, mask, strict=False):
                result[i] = row[real, 0].mean()
        return [{"mean_state": value} for value in result.tolist()]


def make(model, **options):
    return MeanState(MeanState.Options(model=str(model), **options))


def test_a_directory_and_a_model_give_the_same(tiny_bert, sentences):
    loaded = longsum_jax.load(tiny_bert)
    texts = [*sentences, "", "Rain"]
    blank = [""] * len(texts)
    named, given = make(tiny_bert, batch_size=3), MeanState(model=loaded)
    expected = []
    for text in texts:
        ids = np.array([loaded.tokenizer.add_special_tokens(loaded.tokenizer.encode(text), 40)])
        expected.append(float(loaded.encode(ids, np.ones_like(ids), layer=1)[..., 0].mean()))
    for metric in (named, given):
        result = [score["mean_state"] for score in metric.score(texts, blank, blank)]
        np.testing.assert_allclose(result, expected, atol=1e-6)
    described = named.describe()
    assert described["weights"] == loaded.fingerprint
    assert described["model"] == str(tiny_bert)
    assert "batch_size" not in described
    # One object for all metrics that name the directory.
    assert make(tiny_bert).user_model.model is named.user_model.model


def test_texts_beyond_the_positions_are_cut_and_counted(tiny_bert):
    model = longsum_jax.load(tiny_bert)
    long, short = "a b c d e " * 10, "a b"
    result = text_ids(model, [long, short])
    assert [len(row) for row in result.rows] == [40, 4]
    assert result.unread.tolist() == [12, 0]
    assert result.rows[0][-1] == result.rows[1][-1]  # the end of the text is cut, not [SEP]
    assert text_ids(model, [long], limit=10).unread.tolist() == [42]


def test_batches_hold_rows_of_similar_length_and_one_shape():
    lengths = [3, 9, 1, 9, 4]
    assert list(batches_by_length(lengths, 2)) == [[1, 3], [4, 0], [2]]
    ids, mask = pad_rows([[7, 8, 9], [5]], 4, 0)
    np.testing.assert_array_equal(ids, [[7, 8, 9], [5, 0, 0]])
    np.testing.assert_array_equal(mask, ids > 0)
    filled, _ = pad_rows([[7, 8, 9], [5], [6]], 4, 0)
    np.testing.assert_array_equal(filled[2:], [[6, 0, 0], [6, 0, 0]])
    assert len(pad_rows([[7], [5], [6]], 3, 0)[0]) == 3


def test_finer_padding_changes_no_state(tiny_bert):
    model = longsum_jax.load(tiny_bert)
    ids = np.array([[2, 9, 8, 7, 3]])
    states = [model.encode(ids, ids > 0, layer=1, bucket=bucket) for bucket in (8, 64)]
    np.testing.assert_allclose(*states, atol=1e-6)
    np.testing.assert_allclose(model.logits(ids, ids > 0, bucket=8), model.logits(ids), atol=1e-5)
    assert model.padded(ids, ids > 0, {}, 8).ids.shape == (1, 8)


@pytest.mark.parametrize("columns", [1, 2])
def test_batches_hold_little_padding(columns):
    rng = np.random.default_rng(columns)
    table = np.exp(rng.normal(5, 0.7, (300, columns))).astype(int)
    lengths = table[:, 0].tolist() if columns == 1 else list(map(tuple, table.tolist()))
    batches = list(batches_by_length(lengths, 12))
    assert sorted(i for batch in batches for i in batch) == list(range(300))
    order = [lengths[i] for batch in batches for i in batch]
    assert order == sorted(order, reverse=True)
    for batch, following in itertools.pairwise(batches):
        assert padding_of(table[batch]) <= max(1 / 8, 64 / tokens_of(table[batch]))
        if len(batch) < 12:  # one more would not have done, nor would any further ones
            for count in range(1, min(len(following), 12 - len(batch)) + 1):
                longer = table[[*batch, *following[:count]]]
                assert padding_of(longer) > max(1 / 8, 64 / tokens_of(longer))


def tokens_of(lengths):
    rows = min(2 ** math.ceil(math.log2(len(lengths))), 12)
    return rows * lengths.max(0).sum()


def padding_of(lengths):
    return 1 - lengths.sum() / tokens_of(lengths)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"model": ""}, r"metrics.mean_state.model names no model; give a masked language model, "
                        r"--metric_option=mean_state.model=DIR"),
        ({"batch_size": 0}, "metrics.mean_state.batch_size=0 must be at least 1"),
        ({"model": "no/such/place/at/all"}, "no/such/place/at/all"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit(tiny_bert, changes, problem):
    with pytest.raises(InputError, match=problem):
        make(**{"model": tiny_bert} | changes)


def test_models_that_do_not_fit(tiny_bert):
    family = get_family("locost")
    with pytest.raises(
        InputError,
        match=r"metrics.mean_state.model: Model\(locost, .* is a locost with head language_model; "
        r"give a masked language model",
    ):
        MeanState(model=longsum_jax.Model(family, family.presets["tiny"], {}))
    model = longsum_jax.load(tiny_bert)
    without = longsum_jax.Model(model.family, model.config, model.params)
    metric = MeanState(model=without)
    with pytest.raises(InputError, match=r"Model\(bert, .* has no tokenizer; copy its files"):
        metric.score(["a"], ["a"], ["a"])


class Summarizer:
    """Gives the first word of a document."""

    def summaries(self, texts, options, **names):
        return [Summary(text.split()[0], 1, 1, 0, 1, "eos") for text in texts]


def test_rows_are_scored_when_all_are_there(tiny_bert, sentences):
    pairs = [Pair(str(i), text, text) for i, text in enumerate(sentences)]
    metrics = {"mean_state": make(tiny_bert)}
    rows = predict(Summarizer(), pairs, metrics, SummaryOptions())
    assert [row["scores"] for row in rows] == [{}] * len(pairs)
    assert score_last(rows, pairs, metrics)
    expected = example_scores(metrics, [row["prediction"] for row in rows], pairs)
    assert [row["scores"] for row in rows] == expected
    assert not score_last(rows, pairs, metrics)


def test_rows_stay_as_they_are_where_a_score_is_not_finite(tiny_bert):
    model = longsum_jax.load(tiny_bert)
    model.params["word_embeddings"] = model.params["word_embeddings"] * np.nan
    pairs = [Pair("a", "Rain fell.", "Rain.")]
    metrics = {"mean_state": MeanState(model=model)}
    rows = predict(Summarizer(), pairs, metrics, SummaryOptions())
    with pytest.raises(InputError, match='mean_state of "a" is nan; leave out the document'):
        score_last(rows, pairs, metrics)
    assert rows[0]["scores"] == {}
