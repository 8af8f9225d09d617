import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import checkpoint_metadata
from longsum_jax.training.checkpointing import TrainingCheckpoints, read_meta, restore_params


def test_clocks_that_go_back_change_nothing(tmp_path, monkeypatch, toy):
    """The newest checkpoint is that of the largest step, whatever its times say."""
    clock = itertools.count(2_000_000_000, -1000)
    monkeypatch.setattr(time, "time", clock.__next__)
    toy.save_checkpoints(tmp_path, {1: None, 2: None, 3: None}, keep_latest=2)
    for step in (2, 3):
        os.utime(tmp_path / str(step), (10**9 - step, 10**9 - step))
    assert toy.kept_steps(tmp_path) == [2, 3]
    assert read_meta(tmp_path, which="latest")["step"] == 3
    toy.save_checkpoints(tmp_path, {4: None}, keep_latest=2)
    assert toy.kept_steps(tmp_path) == [3, 4]


def test_round_trip(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {7: None})
    checkpoints = TrainingCheckpoints(tmp_path)
    result = toy.restore_latest(checkpoints)
    checkpoints.close()
    assert (result.step, result.data) == (7, {"position": 7})
    toy.assert_equal(result.params, toy.params_of(7))
    toy.assert_equal(result.state, toy.state_of(7))
    assert jax.tree.structure(result.state) == jax.tree.structure(toy.state_of(7))
    assert result.params["bias"].dtype == jnp.bfloat16
    assert result.meta["model"] == "toy"
    assert result.meta["config"] == {"d": 4}
    assert result.meta["format_version"] == checkpoint_metadata.FORMAT_VERSION


@pytest.mark.parametrize(
    ("scores", "options", "expected"),
    [
        ({1: None, 2: None, 3: None}, {}, [3]),
        ({1: 0.1, 2: 0.9, 3: 0.5, 4: None}, {}, [2, 4]),
        ({1: 0.1, 2: 0.9, 3: 0.5, 4: None}, {"keep_latest": 2, "keep_best": 2}, [2, 3, 4]),
        ({1: 0.1, 2: float("nan"), 3: None}, {}, [1, 3]),
        ({1: 0.9, 2: 0.1}, {"keep_best": 0}, [2]),
    ],
)
def test_latest_and_best_are_kept(tmp_path, scores, options, expected, toy):
    toy.save_checkpoints(tmp_path, scores, **options)
    assert toy.kept_steps(tmp_path) == expected


def test_best_survives_reopening(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {1: 0.9, 2: 0.1})
    toy.save_checkpoints(tmp_path, {3: 0.5, 4: None, 5: None})
    assert toy.kept_steps(tmp_path) == [1, 5]
    toy.assert_equal(restore_params(tmp_path), toy.params_of(1))
    toy.assert_equal(restore_params(tmp_path, which="latest"), toy.params_of(5))


def test_an_evaluation_that_comes_after_the_checkpoint_counts(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {1: 0.5, 2: None})
    checkpoints = TrainingCheckpoints(tmp_path)
    assert (checkpoints.scores(1), checkpoints.scores(2)) == ({"mean_rouge": 0.5}, None)
    checkpoints.add_scores(2, {"mean_rouge": 0.9})
    assert checkpoints.scores(2) == {"mean_rouge": 0.9}
    checkpoints.save(3, toy.params_of(3), toy.state_of(3), {"position": 3}, None)
    checkpoints.close()
    assert toy.kept_steps(tmp_path) == [2, 3]
    toy.assert_equal(restore_params(tmp_path), toy.params_of(2))
    assert read_meta(tmp_path)["metrics"] == {"mean_rouge": 0.9}


def test_parameters_alone_as_numpy_from_the_workdir(tmp_path, toy):
    toy.save_checkpoints(tmp_path / "checkpoints", {3: None})
    result = restore_params(tmp_path)
    toy.assert_equal(result, toy.params_of(3))
    assert {type(leaf) for leaf in jax.tree.leaves(result)} == {np.ndarray}
    assert result["bias"].dtype == jnp.bfloat16
    assert read_meta(tmp_path)["step"] == 3


def test_parameters_alone_onto_a_target(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {3: None})
    result = restore_params(tmp_path, toy.abstract(toy.params_of(0)))
    toy.assert_equal(result, toy.params_of(3))
    assert isinstance(result["bias"], jax.Array)


def test_parameters_that_do_not_fit_are_listed(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {3: None})
    target = {"a": {"kernel": jnp.zeros((4, 5)), "scale": jnp.zeros(2)}}
    message = (
        r"step 3: the parameters do not fit this model: missing a/scale; extra bias; "
        r"misshapen a/kernel \(there \(4, 3\), wanted \(4, 5\)\)"
    )
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path, toy.abstract(target))


def test_nothing_to_resume_from(tmp_path):
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() is None
    with pytest.raises(InputError, match="there is no checkpoint to restore"):
        checkpoints.restore({}, {})
    checkpoints.close()


def test_a_checkpoint_without_sums_is_read_as_it_is(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {3: 0.5})
    toy.forget_sums(tmp_path / "3")
    toy.assert_equal(restore_params(tmp_path), toy.params_of(3))
    checkpoints = TrainingCheckpoints(tmp_path)
    checkpoints.add_scores(3, {"mean_rouge": 0.9})
    toy.assert_equal(toy.restore_latest(checkpoints).params, toy.params_of(3))
    checkpoints.close()
    assert read_meta(tmp_path)["metrics"] == {"mean_rouge": 0.9}


def test_a_flipped_bit_is_found_before_parameters_are_used(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {3: None})
    params = [path for path in toy.files_with_sums(tmp_path / "3") if "params" in path.parts]
    assert len(params) > 3
    for path in params:
        toy.flip(path)
        with pytest.raises(InputError, match=f"{path.name}: changed since it was written"):
            restore_params(tmp_path)
        toy.flip(path)
    toy.assert_equal(restore_params(tmp_path), toy.params_of(3))


KILLED_WHILE_DELETING = """
import os, shutil, signal, sys
import numpy as np
from longsum_jax.training.checkpointing import TrainingCheckpoints

unlink = os.unlink
def kill(*args, **kwargs):
    unlink(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)

checkpoints = TrainingCheckpoints(sys.argv[1])
checkpoints.save(4, {"a": np.ones(3)}, {"step": np.zeros(1)}, {}, None)
checkpoints.wait()
os.unlink = kill
checkpoints.close()
"""


@pytest.mark.slow
def test_a_kill_while_an_old_checkpoint_is_deleted_leaves_the_others_readable(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {1: None})
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", KILLED_WHILE_DELETING, str(tmp_path)]
    assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == [".deleted", "4"]
    toy.assert_equal(restore_params(tmp_path), {"a": np.ones(3)})
    TrainingCheckpoints(tmp_path).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4"]


FULL_DISK = """
import resource, sys
import numpy as np
from longsum_jax.training.checkpointing import TrainingCheckpoints
from longsum_jax.errors import InputError

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))  # stands for a disk that runs full
checkpoints = TrainingCheckpoints(sys.argv[1])
params = {"a": np.random.default_rng(0).normal(size=60_000)}
try:
    checkpoints.save(2, params, {"step": np.zeros(1)}, {}, None)
    checkpoints.wait()
except InputError as error:
    sys.exit(str(error))
"""


@pytest.mark.slow
def test_full_disk_is_one_sentence_and_spares_the_earlier_checkpoint(tmp_path, toy):
    toy.save_checkpoints(tmp_path, {1: None}, size=20_000)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1  # no tracebacks of background threads
    assert re.search(r"the (last )?checkpoint.* could not be written .*free space", done.stderr)
    toy.assert_equal(restore_params(tmp_path), toy.params_of(1, 20_000))
    toy.save_checkpoints(tmp_path, {3: None}, size=20_000)
    toy.assert_equal(restore_params(tmp_path), toy.params_of(3, 20_000))
    assert toy.kept_steps(tmp_path) == [3]


@pytest.mark.parametrize(
    ("processes", "advice"),
    [(1, "check the free space"), (2, "check whether another process of the run has ended")],
)
def test_a_process_that_has_ended_may_be_why_nothing_is_written(
    tmp_path, monkeypatch, processes, advice, toy
):
    checkpoints = TrainingCheckpoints(tmp_path)

    def lose(step, args):
        raise RuntimeError("Gloo AllGather failed: Connection closed by peer\nmore of it")

    monkeypatch.setattr(checkpoints._manager, "save", lose)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    with pytest.raises(InputError, match=rf"step 3 .*\(Gloo .* by peer\); {advice}") as result:
        checkpoints.save(3, toy.params_of(3), toy.state_of(3), {})
    assert "\n" not in str(result.value)
    monkeypatch.undo()
    checkpoints.close()
