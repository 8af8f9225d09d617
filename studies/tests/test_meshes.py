"""studies/meshes.py: its draws, its comparison, and one case on the device at hand."""

import itertools

import numpy as np
import pytest


@pytest.fixture(scope="module")
def meshes(scripts):
    return scripts("meshes")


@pytest.fixture
def result(meshes):
    arrays = {"a": np.ones(3), "b": np.full(2, 1e-3)}
    return meshes.Result(2.0, arrays, arrays, 0, [[1, 2]])


def test_cases_are_drawn_again_alike(meshes):
    first, second = (list(itertools.islice(meshes.cases(3), 12)) for _ in range(2))
    assert first == second
    assert [case.setup for case in first[:4]] == [first[0].setup] * 4
    assert len({meshes.describe(case.mesh) for case in first[:4]}) == 4
    assert first[4].setup != first[0].setup
    for case in first:
        assert meshes.ROWS % (case.mesh.batch * case.mesh.fsdp * case.accumulation) == 0


def test_every_model_from_case_100_on_has_dropout(meshes):
    drawn = list(itertools.islice(meshes.cases(0), 100, 160))
    assert all(case.setup.has_dropout and case.accumulation == 1 for case in drawn)
    assert {case.setup.family for case in drawn} == set(meshes.FAMILIES)
    for case in drawn:
        config = meshes.make_config(case.setup)
        assert config.dropout_rate == meshes.DROPOUT
        assert not (case.setup.has_memory and case.mesh.batch > 1)
        if case.mesh.sequence > 1:
            assert config.encoder_stack.attention_dropout_rate == 0
    assert any(case.mesh.sequence > 1 for case in drawn)
    assert any(case.setup.has_memory for case in drawn)
    assert any(case.setup.options["attention_dropout"] for case in drawn)


def test_rows_are_of_their_kinds(meshes):
    kinds = ("full", "short", "empty", "no target", "padding", "full", "short", "empty")
    setup = meshes.Setup("t5", {}, "whole", 9, kinds, "padding", 0)
    batch = meshes.make_batch(setup, 0)
    lengths = batch["attention_mask"].sum(1)
    assert lengths[0] == lengths[3] == 9 > lengths[1] > 0 == lengths[2] == lengths[4]
    assert (batch["labels"] == -100).all(1).tolist() == [
        kind in ("no target", "padding") for kind in kinds
    ]
    infinite = batch["input_ids"] == meshes.INFINITE_ID
    np.testing.assert_array_equal(infinite, ~batch["attention_mask"])
    assert not (meshes.make_batch(setup, 0, clean=True)["input_ids"] == meshes.INFINITE_ID).any()


def test_equal_results_are_no_fault(meshes, result):
    row = meshes.compare(result, result)
    assert row["fault"] == ""
    assert row["equal_ids"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"loss": 2.001}, "loss 2.001, one device 2.0"),
        ({"gradients": {"a": np.array([1, 1, 1.01]), "b": np.full(2, 1e-3)}}, "['a'] 1.0e-02"),
        ({"gradients": {"a": np.array([1, np.nan, 1]), "b": np.full(2, 1e-3)}}, "gradients: "),
        ({"params": {"a": np.ones(3), "b": np.full(2, 2e-3)}}, "gradients: "),
        ({"ids": [[1, 3]]}, "ids"),
        ({"skipped": 1}, "skipped 1, one device 0"),
    ],
)
def test_differences_are_faults(meshes, result, change, fault):
    assert fault in meshes.compare(result._replace(**change), result)["fault"]


def test_gradients_of_zero_may_be_rounded(meshes):
    tree = {"large": np.ones(2), "zero": np.array([1e-8, -1e-8])}
    assert meshes.difference(tree | {"zero": -tree["zero"]}, tree) < 1e-5


@pytest.mark.slow
def test_a_case_on_one_device(meshes):
    """An infinite embedding, which one device skips, too."""
    kinds = ("full", "short", "empty", "no target", "padding", "full", "short", "empty")
    setup = meshes.Setup("t5", {"tie_word_embeddings": False}, "whole", 9, kinds, "row", 0)
    subject = meshes.Subject(setup)
    expected = subject.alone()
    assert expected.skipped == 1
    row = meshes.compare(subject.on_mesh(meshes.MeshOptions(batch=1), 2), expected)
    assert row == {"skipped": True, "fault": ""}
