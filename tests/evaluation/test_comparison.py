import json

import numpy as np
import pytest
from scipy import stats

from longsum_jax import checksums
from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import (
    Prediction,
    Sampling,
    common_documents,
    compare,
    intervals,
    own_references,
    read_predictions,
    score_system,
)
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.predictions import Pair, read_pairs
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.significance import bootstrap_intervals, holm, randomization_test

ROUGE = make_metrics()
WORDS = ["cat", "dog", "bird", "sat", "ran", "flew", "home", "away"]
PAIRS = {str(i): Pair(str(i), "", " ".join(WORDS[: 1 + i % 8])) for i in range(12)}
SAMPLING = Sampling(rounds=300)


def predictions_of(step):
    """The first words of every reference and some others, more of them the larger the step."""
    return {
        name: Prediction(f"{pair.reference} {' '.join(['x'] * (int(name) % step))}")
        for name, pair in PAIRS.items()
    }


def system_of(name, step, metrics=ROUGE):
    return score_system(name, predictions_of(step), list(PAIRS.values()), metrics, SAMPLING)


@pytest.fixture
def write(tmp_path):
    def write_rows(*rows, name="predictions.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write_rows


def test_line_breaks_of_pegasus_in_predictions(write):
    row = {"id": "a", "prediction": "One. <n>Two.", "reference": "One.<n>Three."}
    expected = Prediction("One.\nTwo.", ("One.\nThree.",))
    assert read_predictions(write(row)) == {"a": expected}


def test_line_breaks_of_pegasus_in_references(write):
    row = {"id": "a", "document": "x", "summary": ["One. <n>Two.", "Three."]}
    [pair] = read_pairs(write(row)).values()
    assert pair.references == ("One.\nTwo.", "Three.")


@pytest.mark.parametrize("empty", [{"reference": None}, {"references": None}, {"references": ""}])
def test_empty_cells_of_references(write, empty):
    path = write({"id": "a", "prediction": "x"} | empty)
    assert read_predictions(path) == {"a": Prediction("x")}
    path = write({"id": "a", "prediction": "x", "references": "", "reference": "y"})
    assert read_predictions(path) == {"a": Prediction("x", ("y",))}


def test_halves_of_characters_in_predictions(tmp_path):
    expected = {"a\ufffd": Prediction("x \ufffd y"), "b": Prediction("\U0001f600")}
    texts = {"a\ud800": "x \udfff y", "b": "\U0001f600"}
    (tmp_path / "object.json").write_text(json.dumps(texts))
    rows = [json.dumps({"id": name, "prediction": text}) for name, text in texts.items()]
    (tmp_path / "lines.jsonl").write_text("\n".join(rows))
    assert read_predictions(tmp_path / "object.json") == expected
    assert read_predictions(tmp_path / "lines.jsonl") == expected
    row = {"id": "a", "prediction": "x", "references": ["y \ud83d"]}
    (tmp_path / "own.jsonl").write_text(json.dumps(row))
    assert read_predictions(tmp_path / "own.jsonl")["a"].references == ("y \ufffd",)


def test_files_of_predictions(write):
    path = write(
        {"id": "a", "prediction": "One.", "reference": "A."},
        {"id": 2, "prediction": "", "reference": "A.", "references": ["A.", "B."]},
        {"id": "c", "prediction": "Three."},
    )
    result = read_predictions(path)
    assert result == {
        "a": Prediction("One.", ("A.",)),
        "2": Prediction("", ("A.", "B.")),
        "c": Prediction("Three."),
    }
    del result["c"]
    pairs = own_references(result, path)
    assert [pair.references for pair in pairs.values()] == [("A.",), ("A.", "B.")]


def test_systems_may_name_their_predictions_differently(write):
    path = write({"id": "a", "prediction": "One."}, {"id": "b", "summary": "Two."})
    result = read_predictions(path, prediction_key="prediction,summary")
    assert result == {"a": Prediction("One."), "b": Prediction("Two.")}
    with pytest.raises(InputError, match=':1: no text under "text", only id, prediction; write'):
        read_predictions(path, prediction_key="text,words")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "a"}, ':2: no text under "prediction", only id; write rows {"id": ..., "pred'),
        ({"prediction": "x"}, ':2: no text under "id", only prediction; write rows'),
        ({"id": "b", "prediction": ["x"]}, ':2: no text under "prediction", but ["x"]; write'),
        ({"id": "b", "prediction": None}, ':2: no text under "prediction", but null; write'),
        ({"id": "a", "prediction": "x"}, ':2: duplicate id "a"; keep one of the rows'),
        ({"id": "b", "prediction": "x", "references": "y"}, ':2: "references" must be a list'),
        ({"id": "b", "prediction": "x", "references": "y"}, 'texts, not "y"; correct the row'),
        ({"id": "b", "prediction": "x", "reference": 3}, ':2: "references" must be a list'),
    ],
)
def test_rows_that_are_no_predictions(write, row, problem):
    path = write({"id": "a", "prediction": "x"}, row)
    with pytest.raises(InputError) as caught:
        read_predictions(path)
    assert problem in str(caught.value)


def test_one_object_of_predictions(tmp_path):
    path = tmp_path / "predictions.json"
    path.write_text('{"a": "One.", "b": ""}')
    assert read_predictions(path) == {"a": Prediction("One."), "b": Prediction("")}
    for content in ('["x"]', '{"a": 3}'):
        path.write_text(content)
        with pytest.raises(InputError, match=r"predictions\.json: give an object of texts"):
            read_predictions(path)
    path.write_text('{"a": "One.", "b": "Two.", "b": "Three."}')
    with pytest.raises(InputError, match=r'predictions\.json: duplicate id "b"; keep one'):
        read_predictions(path)
    path.write_text('{"a": ')
    with pytest.raises(InputError, match=r"predictions\.json: not valid JSON \("):
        read_predictions(path)


def test_predictions_without_references():
    with pytest.raises(InputError, match='x: the prediction of "a" has no "reference"'):
        own_references({"a": Prediction("One.")}, "x")


def test_documents_that_all_systems_have():
    pairs = {name: Pair(name, "", "r") for name in "abc"}
    every, some = ({name: Prediction(name) for name in names} for names in ("abc", "cbx"))
    assert common_documents(pairs, {"one": every}) == list(pairs.values())
    result = common_documents(pairs, {"one": every, "two": some}, "skip")
    assert [pair.id for pair in result] == ["b", "c"]
    with pytest.raises(InputError, match="two: 1 of 3 ids have no references, x; give files of"):
        common_documents(pairs, {"one": every, "two": some})
    some["y"] = Prediction("y")
    with pytest.raises(InputError, match="two: 2 of 4 ids have no references, x, y; give files of"):
        common_documents(pairs, {"one": every, "two": some})
    del some["x"], some["y"]
    with pytest.raises(InputError, match="two: 1 of 3 ids have no predictions, a; give files"):
        common_documents(pairs, {"one": every, "two": some})
    with pytest.raises(InputError, match="no id is in all of the files: a, b and 1 more among ref"):
        common_documents(pairs, {"one": {"y": Prediction("")}}, "skip")


def test_scores_and_intervals_of_a_system():
    result = system_of("one", 3)
    column = np.array([score["rouge1"] for score in result.scores])
    assert result.values["rouge1"] == pytest.approx(column.mean())
    expected = bootstrap_intervals(column, rounds=300)
    assert result.intervals["rouge1"] == pytest.approx(tuple(expected))
    assert result.intervals.keys() == result.values.keys()
    assert result.predictions[2] == f"{PAIRS['2'].reference} x x"


def test_differences_are_those_of_the_columns():
    systems = [system_of(name, step) for name, step in (("one", 2), ("two", 3), ("three", 5))]
    result = compare(systems[0], systems[1:], ROUGE, SAMPLING)
    assert list(result) == ["two", "three"]
    columns = [np.array([score["rouge2"] for score in each.scores]) for each in systems]
    tests = [randomization_test(columns[0], other, rounds=300) for other in columns[1:]]
    for each, other, p_value in zip(result.values(), columns[1:], holm(tests), strict=True):
        assert each["rouge2"].difference == pytest.approx((columns[0] - other).mean())
        assert each["rouge2"].p_value == pytest.approx(p_value)
        low, high = bootstrap_intervals(columns[0] - other, rounds=300)
        assert (each["rouge2"].low, each["rouge2"].high) == pytest.approx((low, high))
        expected = 2.801585 * stats.sem(columns[0] - other)
        assert each["rouge2"].smallest == pytest.approx(expected, rel=0.15)
    assert compare(systems[0], [], ROUGE, SAMPLING) == {}
    with pytest.raises(InputError, match='test "t" is unknown; known: bootstrap, randomization'):
        compare(systems[0], systems[1:], ROUGE, Sampling(test="t"))


def test_values_that_are_functions_of_means_have_intervals_too():
    types = ["rouge1", "rouge2", "rougeL"]
    metrics = make_metrics(["rouge", "salience"], {"rouge": {"types": types}})
    pairs = [pair._replace(source=f"z {pair.reference} y") for pair in PAIRS.values()]
    one, two = (
        score_system(name, predictions_of(step), pairs, metrics, SAMPLING)
        for name, step in (("one", 3), ("two", 2))
    )
    assert one.intervals.keys() == one.values.keys() > {"geometric_rouge", "salient_100"}
    for column, (low, high) in one.intervals.items():
        assert low <= one.values[column] <= high
    low, high = one.intervals["geometric_rouge"]
    assert low < one.values["geometric_rouge"] < high
    result = compare(one, [two], metrics, SAMPLING)["two"]["geometric_rouge"]
    means = [np.mean([[s[t] for t in types] for s in each.scores], 0) for each in (one, two)]
    expected = np.prod(means[0]) ** (1 / 3) - np.prod(means[1]) ** (1 / 3)
    assert result.difference == pytest.approx(expected)
    assert result.low < expected < result.high


class Total(Metric):
    """The length of the longest prediction."""

    columns = ("longest",)

    def score(self, predictions, references, sources):
        return [{"longest": len(text)} for text in predictions]

    def corpus_values(self, scores, predictions, references, sources):
        return {"longest": max(score["longest"] for score in scores)}


def test_values_that_are_no_functions_of_means_have_none():
    metrics = ROUGE | {"total": Total()}
    system = system_of("one", 3, metrics)
    assert system.values.keys() - system.intervals.keys() == {"longest"}
    assert "longest" not in compare(system, [system_of("two", 2, metrics)], metrics, SAMPLING)
    assert intervals({"total": Total()}, system.scores, SAMPLING) == {}
    assert compare(system, [system], {"total": Total()}, SAMPLING) == {}


class Undefined(Metric):
    """Divides by the words of the reference less one."""

    columns = ("undefined",)

    def score(self, predictions, references, sources):
        return [{"undefined": float("nan" if " " not in r else 1)} for r in references]


def test_scores_that_are_not_finite():
    with pytest.raises(InputError, match='one: undefined of "0" is nan; leave out the document or'):
        system_of("one", 2, {"undefined": Undefined()})


def test_predictions_are_compared_with_their_sums(tmp_path):
    path = tmp_path / "predictions.jsonl"
    path.write_text(json.dumps({"id": "a", "prediction": "A cat sat."}) + "\n")
    (tmp_path / "other.json").write_text("{}")
    checksums.write(tmp_path)
    (tmp_path / "other.json").write_text("[]")  # is not read
    assert read_predictions(path)["a"].text == "A cat sat."
    path.write_text(path.read_text().replace("cat", "bat"))
    with pytest.raises(InputError, match=r"predictions\.jsonl: changed since .* delete"):
        read_predictions(path)
    (tmp_path / checksums.SUMS).unlink()
    assert read_predictions(path)["a"].text == "A bat sat."
