from longsum_jax.evaluation.tables import score_table


def test_columns_are_as_wide_as_their_titles():
    result = score_table(["ROUGE-1", "a longer title"], {"model": [1.234, 100], "lead": [0, 5.5]})
    assert result.splitlines() == [
        "         ROUGE-1 a longer title",
        "model       1.23         100.00",
        " lead       0.00           5.50",
    ]


def test_cells_may_be_texts():
    result = score_table(["one"], {"a": ["1.00 [0.50, 1.50]"], "b": [2]})
    assert result.splitlines() == [
        "                one",
        "a 1.00 [0.50, 1.50]",
        "b              2.00",
    ]


def test_no_rows():
    assert score_table(["f1"], {}).split() == ["f1"]
