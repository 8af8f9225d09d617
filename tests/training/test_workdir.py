import json

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import workdir
from longsum_jax.training.workdir import differing_keys, open_workdir


def test_differing_keys_name_both_values():
    old = {"model": {"d": 4, "gone": True}, "data": "a", "steps": 1, "mesh": {"fsdp": 1}}
    new = {"model": {"d": 8}, "data": "a", "new": [1], "steps": 2, "mesh": {"fsdp": 4}}
    assert differing_keys(old, new) == [
        "model.d (4 there, 8 here)",
        "model.gone (true there, absent here)",
        "new (absent there, [1] here)",
    ]


def test_an_option_of_one_version_is_no_difference_if_it_is_off():
    plain = {"model": {"d": 4}}
    off = {"model": {"d": 4, "tables": [], "name": None}}
    assert differing_keys(plain, off) == differing_keys(off, plain) == []
    assert differing_keys({"model": {"d": 4, "tables": [1]}}, plain) == [
        "model.tables ([1] there, absent here)"
    ]


def test_same_run_with_tuples_and_changeable_keys_is_let_in(tmp_path):
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    open_workdir(tmp_path, {"lengths": (1, 2), "steps": 5, "data": {"epochs": 1}})
    longer = {"lengths": [1, 2], "steps": 9, "data": {"epochs": 2}}
    open_workdir(tmp_path, longer)
    assert json.loads((tmp_path / "run.json").read_text()) == longer
    with pytest.raises(InputError, match=r"lengths \(\[1, 2\] there, \[1\] here\)"):
        open_workdir(tmp_path, {"lengths": [1], "steps": 9})


def test_spoilt_description_is_named(tmp_path):
    (tmp_path / "checkpoints" / "5").mkdir(parents=True)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json: not the description of a run"):
        open_workdir(tmp_path, {})


@pytest.mark.parametrize("name", ["007", "٣", "²", "5.damaged", "5.orbax-checkpoint-tmp-1"])
def test_a_workdir_without_a_checkpoint_is_taken_over(tmp_path, name):
    open_workdir(tmp_path, {"model": {"d": 1}})
    (tmp_path / "checkpoints" / name).mkdir(parents=True)
    open_workdir(tmp_path, {"model": {"d": 2}})
    (tmp_path / "checkpoints" / "7").mkdir()
    with pytest.raises(InputError, match="holds another run"):
        open_workdir(tmp_path, {"model": {"d": 3}})


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch):
    def fail(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(workdir.atomic, "write_text", fail)
    with pytest.raises(
        InputError, match=r"cannot write there \(No space left on device\); .* free up space"
    ):
        open_workdir(tmp_path, {})


def test_buckets_must_be_mounted():
    with pytest.raises(
        InputError, match=r"workdir gs://bucket/run is not a directory; mount the bucket"
    ):
        open_workdir("gs://bucket/run", {})
