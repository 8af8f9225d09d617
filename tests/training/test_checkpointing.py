import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import checkpointing
from longsum_jax.training.checkpointing import TrainingCheckpoints, read_meta, restore_params


def params_of(scale, size=4):
    kernel = np.random.default_rng(0).normal(size=(size, 3)).astype(np.float32)  # does not compress
    return {"a": {"kernel": jnp.asarray(scale * kernel)}, "bias": jnp.full(3, scale, jnp.bfloat16)}


def state_of(step):
    return {"step": jnp.int32(step), "slots": (jnp.ones(2), ())}


def abstract(tree):
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree)


def save(directory, steps, size=4, **kwargs):
    """Saves one checkpoint per item of {step: score}."""
    checkpoints = TrainingCheckpoints(directory, model="toy", config={"d": 4}, **kwargs)
    for step, score in steps.items():
        metrics = None if score is None else {"mean_rouge": score}
        checkpoints.save(step, params_of(step, size), state_of(step), {"position": step}, metrics)
    checkpoints.close()


def kept(directory):
    return sorted(int(path.name) for path in directory.iterdir())


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(a), jax.device_get(b))


def test_round_trip(tmp_path):
    save(tmp_path, {7: None})
    checkpoints = TrainingCheckpoints(tmp_path)
    found = checkpoints.restore(abstract(params_of(0)), abstract(state_of(0)))
    checkpoints.close()
    assert (found.step, found.data) == (7, {"position": 7})
    equal(found.params, params_of(7))
    equal(found.state, state_of(7))
    assert jax.tree.structure(found.state) == jax.tree.structure(state_of(7))
    assert found.params["bias"].dtype == jnp.bfloat16
    assert found.meta["model"] == "toy"
    assert found.meta["config"] == {"d": 4}
    assert found.meta["format_version"] == checkpointing.FORMAT_VERSION


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
def test_latest_and_best_are_kept(tmp_path, scores, options, expected):
    save(tmp_path, scores, **options)
    assert kept(tmp_path) == expected


def test_best_survives_reopening(tmp_path):
    save(tmp_path, {1: 0.9, 2: 0.1})
    save(tmp_path, {3: 0.5, 4: None, 5: None})
    assert kept(tmp_path) == [1, 5]
    equal(restore_params(tmp_path), params_of(1))
    equal(restore_params(tmp_path, which="latest"), params_of(5))


def test_an_evaluation_that_comes_after_the_checkpoint_counts(tmp_path):
    save(tmp_path, {1: 0.5, 2: None})
    checkpoints = TrainingCheckpoints(tmp_path)
    assert (checkpoints.scores(1), checkpoints.scores(2)) == ({"mean_rouge": 0.5}, None)
    checkpoints.add_scores(2, {"mean_rouge": 0.9})
    assert checkpoints.scores(2) == {"mean_rouge": 0.9}
    checkpoints.save(3, params_of(3), state_of(3), {"position": 3}, None)
    checkpoints.close()
    assert kept(tmp_path) == [2, 3]
    equal(restore_params(tmp_path), params_of(2))
    assert read_meta(tmp_path)["metrics"] == {"mean_rouge": 0.9}


def test_parameters_alone_as_numpy_from_the_workdir(tmp_path):
    save(tmp_path / "checkpoints", {3: None})
    found = restore_params(tmp_path)
    equal(found, params_of(3))
    assert {type(leaf) for leaf in jax.tree.leaves(found)} == {np.ndarray}
    assert found["bias"].dtype == jnp.bfloat16
    assert read_meta(tmp_path)["step"] == 3


def test_parameters_alone_onto_a_target(tmp_path):
    save(tmp_path, {3: None})
    found = restore_params(tmp_path, abstract(params_of(0)))
    equal(found, params_of(3))
    assert isinstance(found["bias"], jax.Array)


def test_parameters_that_do_not_fit_are_listed(tmp_path):
    save(tmp_path, {3: None})
    target = {"a": {"kernel": jnp.zeros((4, 5)), "scale": jnp.zeros(2)}}
    message = (
        r"step 3: the parameters do not fit this model: missing a/scale; extra bias; "
        r"misshapen a/kernel \(there \(4, 3\), wanted \(4, 5\)\)"
    )
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path, abstract(target))


def test_long_lists_of_names_are_shortened(tmp_path):
    save(tmp_path, {3: None})
    target = params_of(0) | {f"extra_{i}": jnp.zeros(1) for i in range(20)}
    with pytest.raises(InputError, match=r"missing extra_0, .*, extra_\d+ and 12 more$"):
        restore_params(tmp_path, abstract(target))


def test_another_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpointing, "FORMAT_VERSION", 99)
        save(tmp_path, {3: None})
    with pytest.raises(
        InputError, match=r"step 3 has checkpoint format 99 .* this version reads format 1"
    ):
        restore_params(tmp_path)


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no such directory"), ("", "there is no checkpoint")]
)
def test_no_checkpoint(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path / name)


def test_nothing_to_resume_from(tmp_path):
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() is None
    with pytest.raises(InputError, match="there is no checkpoint to restore"):
        checkpoints.restore({}, {})
    checkpoints.close()


def test_damaged_checkpoint_is_named(tmp_path):
    save(tmp_path, {3: None})
    (tmp_path / "3" / "meta" / "metadata").write_text("{")
    with pytest.raises(InputError, match="step 3 is not a checkpoint of this library"):
        restore_params(tmp_path)


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
def test_full_disk_is_one_sentence_and_spares_the_earlier_checkpoint(tmp_path):
    save(tmp_path, {1: None}, size=20_000)
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1  # no tracebacks of background threads
    assert re.search(r"the (last )?checkpoint.* could not be written .*free space", done.stderr)
    equal(restore_params(tmp_path), params_of(1, 20_000))
    save(tmp_path, {3: None}, size=20_000)
    equal(restore_params(tmp_path), params_of(3, 20_000))
    assert kept(tmp_path) == [3]
