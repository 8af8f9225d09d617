"""TFDS through seqio. TensorFlow is large and slow to import, so one subprocess answers for all
tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longsum_jax.text.documents import DataRow

pytestmark = pytest.mark.slow  # TensorFlow and seqio take half a minute
SCRIPT = Path(__file__).with_name("seqio_script.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("seqio")
    subprocess.run(
        [sys.executable, str(SCRIPT), str(directory)],
        check=True,
        timeout=300,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"},
    )
    return json.loads((directory / "answers.json").read_text())


def test_documents_are_those_of_the_data_set_every_time(answers):
    assert answers["first"] == answers["second"]
    assert sorted(answers["first"]) == sorted(answers["rows"])
    assert answers["piped"] == answers["first"]


def test_lists_are_joined_line_by_line(answers):
    assert answers["joined"] == answers["piped_joined"] == ["A: hello\nB: good day"] * 2


def test_default_ids_are_numbered(answers):
    assert answers["numbered"] == ["billsum/train:0", "billsum/train:1"]


def test_seqio_and_prepared_shards_give_the_same_batches(answers):
    assert answers["stream_batches"] == answers["prepared_batches"]
    assert len(answers["stream_batches"]) > 4


def test_selection_in_the_pipeline_is_that_of_python(answers):
    assert answers["pipeline_pairs"] == answers["python_pairs"]
    assert answers["pipeline_counts"] == answers["python_counts"]
    assert answers["direct_pairs"] == answers["python_pairs"]
    assert answers["direct_counts"] == answers["python_counts"]
    assert answers["pipeline_counts"]["too_short"] == 2


@pytest.mark.parametrize("strategy", ["independent", "random"])
def test_pieces_in_the_pipeline_are_those_of_python(answers, strategy):
    result = answers["pieces"]
    assert result[f"{strategy}_pipeline_pairs"] == result[f"{strategy}_python_pairs"]
    assert result[f"{strategy}_direct_pairs"] == result[f"{strategy}_python_pairs"]
    counts = result[f"{strategy}_pipeline_counts"]
    assert counts == result[f"{strategy}_direct_counts"]
    assert counts == result[f"{strategy}_python_counts"]
    assert counts["read"] == 12
    assert counts["pieces"] >= len(result[f"{strategy}_pipeline_pairs"]) > 20


def test_pieces_of_nameless_documents_are_named_by_content(answers):
    ids = [f"c4:{digest}#{n}" for digest, count in answers["digests"] for n in range(count)]
    assert answers["nameless_ids"] == answers["direct_nameless_ids"] == ids


def test_pieces_are_the_same_from_a_cache_in_any_order(answers):
    assert answers["cached_pieces"] == sorted(answers["uncached_pieces"])
    assert answers["cached_read"] == 12


def test_cached_texts_are_read_back(answers):
    assert answers["cached"] == [
        [*DataRow("c0", "kept", "chosen", None)],
        [*DataRow("c1", "too short", "", None)],
    ]


def test_every_builder_has_the_fields_that_its_task_names(answers):
    assert {name: result for name, result in answers["mocked"].items() if result != "texts"} == {}
    assert len(answers["mocked"]) == 18


def test_all_tasks_without_labels_are_registered_by_importing_the_module(answers):
    expected = {f"longsum_jax_{name}" for name in answers["mocked"]}
    assert expected - set(answers["registered"]) == {"longsum_jax_imdb_labels"}
    assert set(answers["registered"]) <= expected


def test_a_changed_task_gets_another_name(answers):
    plain, same, changed = answers["names"]
    assert plain == same == "longsum_jax_c4"
    assert changed.startswith("longsum_jax_c4_")


def test_tasks_in_other_pieces_do_not_share_a_cache(answers):
    assert len(set(answers["piece_names"])) == 3


def test_a_cached_split_is_exported(answers):
    assert answers["exported"] == [
        {"id": "b0", "document": "A né.", "summary": "A."},
        {"id": "billsum/train:1", "document": "B.", "summary": "C.", "query": "Why?"},
    ]


def test_numbers_become_ids(answers):
    assert answers["number_ids"] == [[f"{100 + i}" for i in range(12)]] * 2


def test_a_data_set_that_is_not_there(answers):
    assert 'cannot open split "train" of tfds:no_such_set' in answers["missing"]
    assert "\n" not in answers["missing"]


def test_fields_that_a_data_set_lacks(answers):
    expected = 'task "c4": tfds:reports has no field "documnt"; did you mean "document"?'
    assert expected in answers["no_field"]
    assert '"speaker+utt+odd" have [2, 2, 3] items' in answers["uneven"]


def test_a_users_task_is_read_as_text(answers):
    task = [[f"own_reports/train:{n}", f"reports {n}", f"sum {n}"] for n in range(6)]
    assert answers["own_task"] == task
    # token ids without their text are decoded
    assert [row[1:] for row in answers["own_decoded"]] == [
        [f"dialogues {n}", f"sum {n}"] for n in range(3)
    ]


def test_a_users_mixture_has_its_rates(answers):
    rows = answers["own_mixture"]
    # seqio sorts the tasks of a mixture by name
    names = [row[1].split()[0] for row in rows]
    assert names == ["reports", "dialogues", "reports"] * 3
    assert [row[1] for row in answers["own_mix"]] == [row[1] for row in rows]
    assert answers["own_mixture_rest"] == rows[7:]


def test_a_task_that_is_not_registered(answers):
    errors = answers["own_errors"]
    assert "name the module that does so, seqio:package.module:own_" in errors["not_imported"]
    assert 'the module "no_such_module" cannot be imported' in errors["no_module"]
    assert 'did you mean "own_reports"' in errors["no_name"]
    assert 'has no split "validation"' in errors["no_split"]


def test_accelerators_are_hidden_from_tensorflow(answers):
    assert set(answers["devices"]) <= {"CPU"}
