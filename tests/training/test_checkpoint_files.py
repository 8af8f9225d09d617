import os
import shutil

import pytest

from longsum_jax import checksums
from longsum_jax.errors import InputError
from longsum_jax.training.checkpointing import TrainingCheckpoints, read_meta, restore_params


@pytest.mark.parametrize("name", ["007", "٣", "²"])
def test_names_that_only_look_like_a_step_are_left_alone(tmp_path, name, toy):
    toy.save_checkpoints(tmp_path, {2: None})
    shutil.copytree(tmp_path / "2", tmp_path / name)
    (tmp_path / name / "meta" / "metadata").write_text("{")
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() == 2
    checkpoints.close()
    assert read_meta(tmp_path)["step"] == 2
    assert (tmp_path / name).exists()


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("replace", [pipe, device])
@pytest.mark.parametrize("name", ["meta/metadata", "params/_METADATA", "params/manifest.ocdbt"])
def test_pipes_and_devices_are_not_read(tmp_path, capsys, name, replace, toy):
    toy.save_checkpoints(tmp_path, {1: None, 2: None}, keep_latest=2)
    toy.forget_sums(tmp_path / "2")
    replace(tmp_path / "2" / name)
    with pytest.raises(InputError, match="regular file"):
        restore_params(tmp_path, which="latest")
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() == 1
    checkpoints.close()
    assert "regular file" in capsys.readouterr().err


def test_the_best_is_ranked_by_the_metric_of_the_last_run(tmp_path, toy):
    """Each of the two metrics is on a scale of its own."""
    for step, metric, scores in (
        (1, "negative_loss", {"negative_loss": -0.3, "accuracy": 80.0}),
        (2, "accuracy", {"negative_loss": -0.4, "accuracy": 79.0}),
    ):
        checkpoints = TrainingCheckpoints(tmp_path, model="toy", config={}, best_metric=metric)
        checkpoints.save(step, toy.params_of(step), toy.state_of(step), {"position": step}, scores)
        checkpoints.close()
    toy.assert_equal(restore_params(tmp_path), toy.params_of(1))


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no such directory"), ("", "there is no checkpoint")]
)
def test_no_checkpoint(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path / name)


def test_everything_that_is_read_has_a_sum(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {3: 0.5})
    step = tmp_path / "3"
    files = {path for path in step.rglob("*") if path.is_file()}
    names = ("_CHECKPOINT_METADATA", "commit_success.txt")  # older versions of orbax have the first
    unused = files & {step / name for name in names}
    assert files - set(toy.files_with_sums(step)) == {step / checksums.SUMS, *unused}
    for path in unused:
        path.write_bytes(b"\0")
    toy.assert_equal(restore_params(tmp_path), toy.params_of(3))
    checkpoints = TrainingCheckpoints(tmp_path)
    toy.assert_equal(toy.restore_latest(checkpoints).state, toy.state_of(3))
    checkpoints.close()


def test_a_damaged_newest_checkpoint_is_set_aside_and_said(tmp_path, capsys, toy):
    toy.save_checkpoints(tmp_path, {2: None, 4: None, 6: None}, keep_latest=3)
    toy.flip(toy.files_with_sums(tmp_path / "6")[-1])
    (tmp_path / "4" / "meta" / "metadata").write_text("{")
    checkpoints = TrainingCheckpoints(tmp_path, keep_latest=3)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "6.damaged, and training continues from step 2" in said[0]
    assert "4/meta/metadata: changed since it was written" in said[1]
    toy.assert_equal(toy.restore_latest(checkpoints).params, toy.params_of(2))
    for step in (4, 6):
        checkpoints.save(step, toy.params_of(step), toy.state_of(step), {}, None)
    checkpoints.close()
    toy.assert_equal(restore_params(tmp_path, which="latest"), toy.params_of(6))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["2", "4", "4.damaged", "6", "6.damaged"]


def test_damaged_checkpoints_alone_stay_where_they_are(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {2: None, 4: None}, keep_latest=2)
    for step in ("2", "4"):
        toy.flip(toy.files_with_sums(tmp_path / step)[0])
    with pytest.raises(InputError, match=r"4/.*changed since it was written"):
        TrainingCheckpoints(tmp_path)
    assert toy.kept_steps(tmp_path) == [2, 4]


def test_the_best_of_the_undamaged_checkpoints_is_taken_and_said(tmp_path, capsys, toy):
    toy.save_checkpoints(tmp_path, {2: 1.0, 4: 3.0, 6: 2.0}, keep_latest=3)
    toy.flip(tmp_path / "4" / "meta" / "metadata")
    assert read_meta(tmp_path)["step"] == 6
    toy.assert_equal(restore_params(tmp_path), toy.params_of(6))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("4/meta/metadata" in line and "the best of the other" in line for line in said)
    for step in (2, 6):
        toy.flip(tmp_path / str(step) / "meta" / "metadata")
    with pytest.raises(InputError, match="6/meta/metadata: changed since it was written"):
        read_meta(tmp_path)


def test_a_checkpoint_that_was_half_deleted_does_not_count(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {2: 0.9, 4: 0.1}, keep_latest=2)
    shutil.rmtree(tmp_path / "2" / "meta")
    toy.forget_sums(tmp_path / "2")
    toy.assert_equal(restore_params(tmp_path), toy.params_of(4))
    checkpoints = TrainingCheckpoints(tmp_path)
    checkpoints.save(6, toy.params_of(6), toy.state_of(6), {}, None)
    checkpoints.close()
    assert toy.kept_steps(tmp_path) == [4, 6]


def test_a_checkpoint_without_its_sums_is_refused(tmp_path, capsys, toy):
    toy.save_checkpoints(tmp_path, {1: None, 2: None}, keep_latest=2)
    (tmp_path / "2" / checksums.SUMS).unlink()
    with pytest.raises(InputError, match=r"/SHA256SUMS is missing, .* longsum verify --unverified"):
        restore_params(tmp_path, which="latest")
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() == 1
    checkpoints.close()
    assert "2/SHA256SUMS is missing" in capsys.readouterr().err
