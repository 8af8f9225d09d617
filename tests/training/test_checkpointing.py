import ctypes
import gc
import itertools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax import checksums
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


def num_answers():
    """Answers of TensorStore about its metrics, lists of dictionaries."""
    lists = [found for found in gc.get_objects() if type(found) is list and found]
    firsts = [found[0] for found in lists if type(found[0]) is dict]
    return sum("value" in first or "sum_of_squared_deviation" in first for first in firsts)


def test_answers_about_metrics_do_not_pile_up(tmp_path):
    """TensorStore never frees them."""
    save(tmp_path, {1: None})
    before = num_answers()
    save(tmp_path, {2: None, 3: None})
    assert num_answers() == before


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the allocator is not glibc's"
)
def test_memory_that_threads_have_freed_goes_back_with_a_save(tmp_path, resident_bytes):
    def use_much():
        size, number = 2**14, 2**13  # 128 MiB, in pieces too small for pages of their own
        pieces = [libc.malloc(size) for _ in range(number)]
        for piece in pieces:
            ctypes.memset(piece, 1, size)
        pieces.pop()  # the last one stays, so the end of the heap is in use
        for piece in pieces:
            libc.free(ctypes.c_void_p(piece))

    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    save(tmp_path, {1: None})
    before = resident_bytes()
    thread = threading.Thread(target=use_much)
    thread.start()
    thread.join()
    assert resident_bytes() > before + 2**26
    save(tmp_path, {2: None})
    assert resident_bytes() < before + 2**25


@pytest.mark.parametrize("name", ["007", "٣", "²"])
def test_names_that_only_look_like_a_step_are_left_alone(tmp_path, name):
    save(tmp_path, {2: None})
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
def test_pipes_and_devices_are_not_read(tmp_path, capsys, name, replace):
    save(tmp_path, {1: None, 2: None}, keep_latest=2)
    (tmp_path / "2" / checksums.SUMS).unlink()
    replace(tmp_path / "2" / name)
    with pytest.raises(InputError, match="regular file"):
        restore_params(tmp_path, which="latest")
    checkpoints = TrainingCheckpoints(tmp_path)
    assert checkpoints.latest_step() == 1
    checkpoints.close()
    assert "regular file" in capsys.readouterr().err


def test_clocks_that_go_back_change_nothing(tmp_path, monkeypatch):
    """The newest checkpoint is that of the largest step, whatever its times say."""
    clock = itertools.count(2_000_000_000, -1000)
    monkeypatch.setattr(time, "time", clock.__next__)
    save(tmp_path, {1: None, 2: None, 3: None}, keep_latest=2)
    for step in (2, 3):
        os.utime(tmp_path / str(step), (10**9 - step, 10**9 - step))
    assert kept(tmp_path) == [2, 3]
    assert read_meta(tmp_path, which="latest")["step"] == 3
    save(tmp_path, {4: None}, keep_latest=2)
    assert kept(tmp_path) == [3, 4]


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


def test_the_best_is_ranked_by_the_metric_of_the_last_run(tmp_path):
    """Each of the two metrics is on a scale of its own."""
    for step, metric, scores in (
        (1, "negative_loss", {"negative_loss": -0.3, "accuracy": 80.0}),
        (2, "accuracy", {"negative_loss": -0.4, "accuracy": 79.0}),
    ):
        checkpoints = TrainingCheckpoints(tmp_path, model="toy", config={}, best_metric=metric)
        checkpoints.save(step, params_of(step), state_of(step), {"position": step}, scores)
        checkpoints.close()
    equal(restore_params(tmp_path), params_of(1))


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


META = "3/meta/metadata"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "step 3 is not a checkpoint of this library"),
        ("[]", "step 3 is not a checkpoint of this library"),
        ("[" * 100_000, "step 3 is not a checkpoint of this library"),
        ({"parameters": {"bias": [[-1], "float32"]}}, "list of its parameters"),
        ({"parameters": {"bias": [[10**12, 10**12], "float32"]}}, "parameters are missing or"),
        ({"parameters": {"bias": [[3], "float33"]}}, "list of its parameters"),
        ({"parameters": 7}, "list of its parameters"),
        ({"state": {"step": None}}, "list of its state"),
        ({"metrics": [1]}, "evaluation is missing or damaged"),
        ({"metrics": {"mean_rouge": "1"}}, "evaluation is missing or damaged"),
        ({"metrics": {"mean_rouge": True}}, "evaluation is missing or damaged"),
        ({"metrics": ...}, "evaluation is missing or damaged"),
        ({"best_metric": ["mean_rouge"]}, "name of its best metric is missing or damaged"),
        ({"best_metric": ...}, "name of its best metric is missing or damaged"),
    ],
)
def test_a_damaged_description_without_sums_is_one_sentence(tmp_path, content, message):
    save(tmp_path, {3: None})
    (tmp_path / "3" / checksums.SUMS).unlink()
    if isinstance(content, dict):
        changed = json.loads((tmp_path / META).read_text()) | content
        kept = {name: value for name, value in changed.items() if value is not ...}
        content = json.dumps(kept)
    (tmp_path / META).write_text(content)
    with pytest.raises(InputError, match=message):
        restore_params(tmp_path)


def test_tasks_that_fail_after_the_first_error_are_not_logged(tmp_path, caplog):
    """Those of orbax alone: nobody waits for them any more."""
    save(tmp_path, {3: None})
    shutil.rmtree(tmp_path / "3" / "params" / "d")
    (tmp_path / "3" / checksums.SUMS).unlink()
    with pytest.raises(InputError, match="missing or damaged") as caught:
        restore_params(tmp_path)
    caplog.clear()
    logger = logging.getLogger("asyncio")
    logger.error("Task exception was never retrieved", exc_info=caught.value.__cause__)
    assert not caplog.records
    logger.error("Task exception was never retrieved", exc_info=ValueError("of another task"))
    assert len(caplog.records) == 1


def test_a_checkpoint_without_sums_is_read_as_it_is(tmp_path):
    save(tmp_path, {3: 0.5})
    (tmp_path / "3" / checksums.SUMS).unlink()
    equal(restore_params(tmp_path), params_of(3))
    checkpoints = TrainingCheckpoints(tmp_path)
    checkpoints.add_scores(3, {"mean_rouge": 0.9})
    equal(checkpoints.restore(abstract(params_of(0)), abstract(state_of(0))).params, params_of(3))
    checkpoints.close()
    assert read_meta(tmp_path)["metrics"] == {"mean_rouge": 0.9}


def files_with_sums(step_directory):
    lines = (step_directory / checksums.SUMS).read_text().splitlines()[1:]
    return [step_directory / line.split("  ")[1] for line in lines]


def test_everything_that_is_read_has_a_sum(tmp_path):
    save(tmp_path, {3: 0.5})
    step = tmp_path / "3"
    files = {path for path in step.rglob("*") if path.is_file()}
    names = ("_CHECKPOINT_METADATA", "commit_success.txt")  # older versions of orbax have the first
    unused = files & {step / name for name in names}
    assert files - set(files_with_sums(step)) == {step / checksums.SUMS, *unused}
    for path in unused:
        path.write_bytes(b"\0")
    equal(restore_params(tmp_path), params_of(3))
    checkpoints = TrainingCheckpoints(tmp_path)
    equal(checkpoints.restore(abstract(params_of(0)), abstract(state_of(0))).state, state_of(3))
    checkpoints.close()


def test_a_flipped_bit_is_found_before_parameters_are_used(tmp_path):
    save(tmp_path, {3: None})
    params = [path for path in files_with_sums(tmp_path / "3") if "params" in path.parts]
    assert len(params) > 3
    for path in params:
        flip(path)
        with pytest.raises(InputError, match=f"{path.name}: not what was written there"):
            restore_params(tmp_path)
        flip(path)
    equal(restore_params(tmp_path), params_of(3))


def flip(path, bit=77):
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_damaged_newest_checkpoint_is_set_aside_and_said(tmp_path, capsys):
    save(tmp_path, {2: None, 4: None, 6: None}, keep_latest=3)
    flip(files_with_sums(tmp_path / "6")[-1])
    (tmp_path / "4" / META.removeprefix("3/")).write_text("{")
    checkpoints = TrainingCheckpoints(tmp_path, keep_latest=3)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "6.damaged, and training continues from step 2" in said[0]
    assert "4/meta/metadata: not what was written there" in said[1]
    equal(checkpoints.restore(abstract(params_of(0)), abstract(state_of(0))).params, params_of(2))
    for step in (4, 6):
        checkpoints.save(step, params_of(step), state_of(step), {}, None)
    checkpoints.close()
    equal(restore_params(tmp_path, which="latest"), params_of(6))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["2", "4", "4.damaged", "6", "6.damaged"]


def test_damaged_checkpoints_alone_stay_where_they_are(tmp_path):
    save(tmp_path, {2: None, 4: None}, keep_latest=2)
    for step in ("2", "4"):
        flip(files_with_sums(tmp_path / step)[0])
    with pytest.raises(InputError, match=r"4/.*not what was written there"):
        TrainingCheckpoints(tmp_path)
    assert kept(tmp_path) == [2, 4]


def test_the_best_of_the_undamaged_checkpoints_is_taken_and_said(tmp_path, capsys):
    save(tmp_path, {2: 1.0, 4: 3.0, 6: 2.0}, keep_latest=3)
    flip(tmp_path / "4" / "meta" / "metadata")
    assert read_meta(tmp_path)["step"] == 6
    equal(restore_params(tmp_path), params_of(6))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert all("4/meta/metadata" in line and "the best of the other" in line for line in said)
    for step in (2, 6):
        flip(tmp_path / str(step) / "meta" / "metadata")
    with pytest.raises(InputError, match="6/meta/metadata: not what was written"):
        read_meta(tmp_path)


def test_a_checkpoint_that_was_half_deleted_does_not_count(tmp_path):
    save(tmp_path, {2: 0.9, 4: 0.1}, keep_latest=2)
    shutil.rmtree(tmp_path / "2" / "meta")
    (tmp_path / "2" / checksums.SUMS).unlink()
    equal(restore_params(tmp_path), params_of(4))
    checkpoints = TrainingCheckpoints(tmp_path)
    checkpoints.save(6, params_of(6), state_of(6), {}, None)
    checkpoints.close()
    assert kept(tmp_path) == [4, 6]


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
def test_a_kill_while_an_old_checkpoint_is_deleted_leaves_the_others_readable(tmp_path):
    save(tmp_path, {1: None})
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-c", KILLED_WHILE_DELETING, str(tmp_path)]
    assert subprocess.run(command, env=environment).returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == [".deleted", "4"]
    equal(restore_params(tmp_path), {"a": np.ones(3)})
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


@pytest.mark.parametrize(
    ("processes", "advice"),
    [(1, "check the free space"), (2, "see whether another process of the run has ended")],
)
def test_a_process_that_has_ended_may_be_why_nothing_is_written(
    tmp_path, monkeypatch, processes, advice
):
    checkpoints = TrainingCheckpoints(tmp_path)

    def lose(step, args):
        raise RuntimeError("Gloo AllGather failed: Connection closed by peer\nmore of it")

    monkeypatch.setattr(checkpoints._manager, "save", lose)
    monkeypatch.setattr(jax, "process_count", lambda: processes)
    with pytest.raises(InputError, match=rf"step 3 .*\(Gloo .* by peer\); {advice}") as found:
        checkpoints.save(3, params_of(3), state_of(3), {})
    assert "\n" not in str(found.value)
    monkeypatch.undo()
    checkpoints.close()
