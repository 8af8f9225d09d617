"""Cells of studies compared: arithmetic beside numbers worked out by hand, and a tiny study."""

import json
import string

import numpy as np
import pytest

from longsum_jax.errors import InputError


@pytest.fixture(scope="module")
def compare_cells(scripts):
    return scripts("compare_cells")


def scores(compare_cells, bits, rouge=()):
    bits = np.array(bits, float)
    documents = {"bits": bits, "bits_other": bits + 1, "tokens": np.full(len(bits), 2.0)}
    summaries = {"mean_rouge": np.array(rouge, float)} if len(rouge) else {}
    return compare_cells.Scores(documents, summaries)


def test_seeds_are_averaged_and_their_spread_is_pooled(compare_cells):
    cells = {
        "a/x": {0: scores(compare_cells, [2, 4]), 1: scores(compare_cells, [4, 6])},
        "a/y": {0: scores(compare_cells, [6, 8]), 1: scores(compare_cells, [6, 8])},
    }
    base, other = compare_cells.compare(cells, "a/x")
    assert (base["bits"], base["bits_other"], base["by_seed"]) == (2.0, 2.5, [1.5, 2.5])
    assert "difference" not in base
    assert other["difference"] == pytest.approx(1.5)
    assert other["p_value"] == 0.5  # of 4 ways to exchange two documents, 2 are as far apart
    # Squares .25 + .25 + 0 + 0 over two degrees of freedom.
    assert compare_cells.pooled_spread(cells) == pytest.approx(0.5)
    assert other["least_seeds"] == pytest.approx(2.8 * 0.5)
    assert compare_cells.pooled_spread({"a/x": {0: scores(compare_cells, [1])}}) is None


def test_a_difference_of_all_documents_is_found_and_one_of_none_is_not(compare_cells):
    rng = np.random.default_rng(0)
    bits = rng.uniform(10, 20, 100)
    noise = rng.normal(0, 1, 100)
    cells = {
        "a/x": {0: scores(compare_cells, bits, bits)},
        "a/less": {0: scores(compare_cells, bits - 1 + noise, bits + 5)},
        "a/same": {0: scores(compare_cells, bits + noise - noise.mean(), bits)},
    }
    _, less, same = compare_cells.compare(cells, "a/x")
    assert less["p_value"] < 0.01 < same["p_value"]
    assert less["high"] < 0
    assert same["low"] < 0 < same["high"]
    # The noise of a mean of 100 documents of two tokens has a standard deviation of .05.
    assert less["least_documents"] == pytest.approx(2.8 * 0.05, rel=0.2)
    assert less["documents_needed"] < 100
    assert less["mean_rouge_difference"] == pytest.approx(5)
    assert same["mean_rouge_p_value"] == 1.0


def test_p_values_are_adjusted_for_all_comparisons_together(compare_cells):
    rows = [{"cell": "base"}, {"p_value": 0.01}, {"p_value": 0.02}, {"p_value": 0.5}]
    compare_cells.adjust(rows)
    assert rows[0] == {"cell": "base"}
    assert [row["p_value"] for row in rows[1:]] == pytest.approx([0.03, 0.04, 0.5])


def test_documents_of_a_data_set_are_selected_in_all_values(compare_cells, tmp_path):
    path = tmp_path / "rows.jsonl"
    sets = ["papers", "specifications", "papers"]
    texts = (
        json.dumps({"id": str(i), "set": name, "document": "d", "summary": "s"}) + "\n"
        for i, name in enumerate(sets)
    )
    path.write_text("".join(texts))
    parts = compare_cells.documents_by_part(str(path), "set")
    assert {name: list(numbers) for name, numbers in parts.items()} == {
        "papers": [0, 2],
        "specifications": [1],
    }
    cells = {"a/x": {0: scores(compare_cells, [2, 4, 6], [10, 20, 30])}}
    (selected,) = compare_cells.select(cells, parts["papers"])["a/x"].values()
    assert list(selected.bits["bits"]) == [2, 6]
    assert list(selected.bits["bits_other"]) == [3, 7]
    assert list(selected.summaries["mean_rouge"]) == [10, 30]


def test_documents_that_a_difference_needs(compare_cells):
    assert compare_cells.needed(100, 0.1, 0.28) == 100
    assert compare_cells.needed(100, 0.1, 0.14) == 400
    assert compare_cells.needed(100, 0.1, 0) is None


def test_documents_with_other_summaries_to_know_are_left_out(compare_cells, capsys):
    tokens = np.arange(20.0)
    other = tokens.copy()
    other[3] += 1
    other[7] += 1
    retained = compare_cells.common_documents([tokens, tokens, other])
    assert retained.tolist() == [i for i in range(20) if i not in (3, 7)]
    assert "in some cells: 3, 7" in capsys.readouterr().err
    assert compare_cells.common_documents([tokens, tokens]).tolist() == list(range(20))
    assert not capsys.readouterr().err
    other[9] += 1
    with pytest.raises(InputError, match="cells have other summaries to know"):
        compare_cells.common_documents([tokens, other])
    with pytest.raises(InputError, match="validation documents; compare those of one data set"):
        compare_cells.common_documents([tokens, tokens[:5]])


@pytest.mark.slow
def test_a_tiny_study_is_compared(scripts, compare_cells, tmp_path):
    letters = list(string.ascii_lowercase) * 2
    for split, count in (("train", 26), ("validation", 5)):
        rows = (
            {
                "id": str(i),
                "set": "odd" if i % 2 else "even",
                "document": " ".join(np.random.default_rng(i).choice(letters, 30)) + ".",
                "summary": " ".join(letters[i : i + 4]),
            }
            for i in range(count)
        )
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(text)
    scripts("study").main(
        [
            f"--workdir={tmp_path}/study",
            f"--data={tmp_path}/{{split}}.jsonl",
            "--config=configs/awesome.py:tiny,variant={variant},data={data}",
            "--cells=se3,attentive",
            "--config.training.steps=1",
            "--config.evaluation.examples=2",
            "--config.evaluation.max_new_tokens=2",
        ]
    )
    out = tmp_path / "compared.json"
    flags = [f"a={tmp_path}/study", f"--data={tmp_path}/validation.jsonl", f"--out={out}"]
    compare_cells.main([*flags, "--against=a/se3", "--metrics=rouge,support", "--by=set"])
    result = json.loads(out.read_text())["rows"]
    sizes = [(row.get("part"), row["cell"], row["documents"]) for row in result]
    of_all = [(None, "attentive", 5), (None, "se3", 5)]
    by_set = [("even", "attentive", 3), ("even", "se3", 3), ("odd", "attentive", 2)]
    assert sizes == [*of_all, *by_set, ("odd", "se3", 2)]
    rows = result[:2]
    even, odd = result[3], result[5]
    retained = (tmp_path / "study" / "se3-0" / "document_bits.json").read_text()
    tokens = json.loads(retained)["tokens"]
    of_even = sum(tokens[::2]) / sum(tokens)
    together = of_even * even["bits"] + (1 - of_even) * odd["bits"]
    assert together == pytest.approx(rows[1]["bits"], abs=1e-3)
    results = (tmp_path / "study" / "results.jsonl").read_text().splitlines()
    for row, trained in zip(rows[::-1], map(json.loads, results), strict=True):
        assert row["bits"] == pytest.approx(trained["bits"], abs=1e-3)
        assert row["bits_other"] == pytest.approx(trained["bits_other"], abs=1e-3)
        assert row["mean_rouge"] >= 0
        assert 0 <= row["held_by_document"] <= 100
    (tmp_path / "study" / "se3-0" / "document_bits.json").unlink()
    compare_cells.main([f"a={tmp_path}/study", "--against=a/se3"])  # computes what is not there
    assert (tmp_path / "study" / "se3-0" / "document_bits.json").read_text() == retained
    attentive = tmp_path / "study" / "attentive-0" / "document_bits.json"
    before = attentive.read_text()
    other = json.loads(before)
    other["tokens"][0] += 1
    attentive.write_text(json.dumps(other))
    with pytest.raises(InputError, match="cells of the same max_source_length"):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3"])
    attentive.write_text(before)
    with pytest.raises(InputError, match='no cell "a/x"; there are a/attentive, a/se3'):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/x"])
    with pytest.raises(InputError, match="--cells: no se4; there are attentive, se3"):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3", "--cells=se3,se4"])
    with pytest.raises(InputError, match='no cell "a/se3"; there are a/attentive'):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3", "--cells=attentive"])
    words = [*flags, "--against=a/se3", "--cells=se3", "--length=2 sentences"]
    compare_cells.main(words)
    retained = tmp_path / "study" / "se3-0" / "predictions.2_sentences" / "settings.json"
    assert json.loads(retained.read_text())["length"] == "2 sentences"
    assert [row["cell"] for row in json.loads(out.read_text())["rows"]] == ["se3"]
    compare_cells.main([*words, "--segments_no_repeat_ngram_size=2"])
    retained = tmp_path / "study" / "se3-0" / "predictions.2_sentences.no_2" / "settings.json"
    assert json.loads(retained.read_text())["generation"]["segments_no_repeat_ngram_size"] == 2
    compare_cells.main([*flags, "--against=a/se3", "--by=set", "--bits_only"])
    of_bits = json.loads(out.read_text())["rows"]
    assert [(row.get("part"), row["cell"], row["documents"]) for row in of_bits] == sizes
    assert of_bits[3]["bits"] == even["bits"]
    assert "mean_rouge" not in of_bits[0]
    with pytest.raises(InputError, match="--length=2 sentences is of summaries; leave --bits"):
        compare_cells.main([*words, "--by=set", "--bits_only"])
    with pytest.raises(InputError, match="--bits_only is for --by, which is missing"):
        compare_cells.main([*flags, "--against=a/se3", "--bits_only"])
    with pytest.raises(InputError, match="--metrics=support is of summaries; give --data"):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3", "--metrics=support"])
    with pytest.raises(InputError, match="--by=set is a field of --data"):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3", "--by=set"])
    some = tmp_path / "some.jsonl"
    some.write_text("".join((tmp_path / "validation.jsonl").read_text().splitlines(True)[:4]))
    with pytest.raises(InputError, match="is of other documents than --data"):
        compare_cells.main([f"a={tmp_path}/study", "--against=a/se3", f"--data={some}"])
    with pytest.raises(InputError, match="is no LABEL=WORKDIR"):
        compare_cells.main([f"{tmp_path}/study", "--against=a/x"])


def test_a_study_of_encoders_alone_has_no_picture(scripts, tmp_path, capsys):
    row = {"encoder": "s4d", "tokens": "8192", "seed": 0, "bits": 6.5, "mean_rouge": 12.1}
    scripts("study").write_results(tmp_path, [row], None)
    assert "8192" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["table.md"]
