"""TFDS data sets in array_record files; a subprocess shows that no TensorFlow is imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from longsum_jax.text.documents import DataRow

SCRIPT = Path(__file__).with_name("tfds_script.py")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tfds")
    subprocess.run(
        [sys.executable, str(SCRIPT), str(directory)],
        check=True,
        timeout=300,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(SCRIPT.parents[2])},
    )
    return json.loads((directory / "answers.json").read_text())


def text(number):
    return f"Part {number} is né. It is short. It ends."


def test_array_records_are_read_without_tensorflow(answers):
    assert answers["imported"] == []
    assert answers["messages"] == 0


def test_documents_are_those_of_the_data_set_every_time(answers):
    first, second = answers["plain"]
    assert first == second
    expected = [[*DataRow(str(i), text(i), f"Summary {i}.", None)] for i in range(5)]
    assert sorted(first) == expected


def test_nameless_documents_are_numbered_and_gap_sentences_have_no_summary(answers):
    order = [document[1] for document in answers["plain"][0]]
    expected = [[*DataRow(f"c4/train:{i}", order[i], None, None)] for i in range(5)]
    assert answers["nameless"] == expected


def test_short_documents_are_their_only_piece(answers):
    order = [document[0] for document in answers["plain"][0]]
    assert [document[0] for document in answers["pieces"]] == [f"{name}#0" for name in order]


def test_lists_are_joined_line_by_line(answers):
    expected = [f"A: hello\nB: good day {i}" for i in range(5)]
    assert sorted(answers["joined"]) == expected


def test_labels_are_numbers(answers):
    expected = [[*DataRow(str(i), text(i), None, None, i % 2)] for i in range(5)]
    train, validation = answers["labeled"]
    assert sorted(train + validation) == expected
    assert train
    assert validation


def test_a_share_of_a_split(answers):
    assert answers["part"] == answers["plain"][0][1:3]


def test_fields_of_usual_names_are_read(answers):
    """The data set has neither "document" nor "summary", nor an id or a query."""
    expected = [[text, summary] for _, text, summary, *_ in answers["plain"][0]]
    assert [[text, summary] for _, text, summary, *_ in answers["usual"]] == expected


def test_a_field_that_the_data_set_lacks(answers):
    expected = 'task "billsum": tfds:reports has no field "numbr"; did you mean "number"?'
    assert expected in answers["no_field"]


def test_packages_of_one_data_set_are_named(answers):
    """As Apache Beam, with which C4 and MediaSum are made."""
    assert answers["needs_package"] == (
        "tfds:needs_package is made with package_that_is_not_there, which is not installed: pip "
        "install package_that_is_not_there, or read JSON lines (source=json:...)"
    )


def test_files_to_fetch_by_hand_are_named_with_their_place(answers):
    without, with_another = answers["by_hand"]
    assert re.fullmatch(
        r"tfds:by_hand is made of files that TFDS does not download; put them into "
        r"/\S+/by_hand/downloads/manual, which is empty, or read JSON lines "
        r"\(source=json:\.\.\.\); TFDS's instructions: Fetch reports.zip from "
        r"https://example.org and unpack it\.",
        without,
    )
    assert "downloads/manual, in which TFDS found [Errno 2] No such file" in with_another
    assert with_another.endswith("Fetch reports.zip from https://example.org and unpack it.")
